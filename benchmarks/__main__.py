"""List the questions, run a script, make the pages, or list records of code that has changed.

    python benchmarks
    python benchmarks --run iasg_speed [its options]
    python benchmarks --run ormachine_speed_h200
    python benchmarks --pages
    python benchmarks --stale

`--run` takes the name of a script, or of a record: without options it runs as the record was made.
`--stale` lists the records whose code has changed since, and those of which this is not known.
"""

from __future__ import annotations

import argparse
import ast
import runpy
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import pages


def run(name: str, options: list[str]) -> None:
    """Run a script as its own command does."""
    record = pages.read_records(pages.RESULTS).get(name)
    if record is not None and not options:
        _, place, *options = shlex.split(record["command"])
        name = Path(place).stem
    path = pages.scripts().get(name)
    if path is None:
        raise SystemExit(f"no script or record is called {name}; python benchmarks lists scripts")
    sys.argv = [str(path), *options]
    runpy.run_path(str(path), run_name="__main__")


def told_stale() -> None:
    """Print which records are of code that has changed."""
    from benchmarks.record import Record  # which load JAX
    from benchmarks.stale import changed

    states = {"has changed": 0, "is as it was": 0, "is unknown": 0}
    for name, record in pages.read_records(pages.RESULTS).items():
        made = Record(**record)
        found = changed(made.script, made.commit, made.code)
        if found:
            print(f"{name}: changed since {made.commit}, in {found}")
        elif found is None:
            print(f"{name}: unknown, the repository lacks {made.commit} or its script")
        states["has changed" if found else "is unknown" if found is None else "is as it was"] += 1
    print("; ".join(f"of {count} records the code {state}" for state, count in states.items()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run", nargs=argparse.REMAINDER, metavar="NAME", help="a script; its own options follow"
    )
    parser.add_argument("--stale", action="store_true", help="which records are of earlier code")
    parser.add_argument("--pages", action="store_true", help="make all pages again")
    options = parser.parse_args()
    if options.run:
        run(options.run[0], options.run[1:])
    elif options.pages:
        print(*pages.write_all(), sep="\n")
    elif options.stale:
        told_stale()
    else:
        for name, path in pages.scripts().items():
            asked = ast.get_docstring(ast.parse(path.read_text())).partition("\n")[0]
            print(f"{path.parent.name}/{name}: {asked}")


if __name__ == "__main__":
    main()

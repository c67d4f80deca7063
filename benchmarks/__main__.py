"""List the questions, run a script, make the pages, or list records of code that has changed.

    python benchmarks
    python benchmarks --run iasg_speed [its options]
    python benchmarks --run ormachine_speed_h200
    python benchmarks --pages
    python benchmarks --stale
    python benchmarks --join movielens_fits_1m ELSEWHERE/*.json

`--run` takes the name of a script, or of a record: without options it runs as the record was made.
`--stale` lists how many lines of its code have changed since a record, most first, and the records
of which this is not known. `--join` writes a record of parts, which the same script made elsewhere.
"""

import argparse
import ast
import json
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
        _, _, place, *options = shlex.split(pages.command_now(record["command"]))
        name = place.rpartition(".")[2]
    path = pages.scripts().get(name)
    if path is None:
        raise SystemExit(f"no script or record is called {name}; python benchmarks lists scripts")
    sys.argv = [str(path), *options]
    runpy.run_path(str(path), run_name="__main__")


def told_stale() -> None:
    """Print how far records are from the code, the furthest first."""
    from benchmarks.record import Record  # which load JAX
    from benchmarks.stale import changed

    found = {}
    for name, record in pages.read_records(pages.RESULTS).items():
        made = Record(**record)
        found[name] = made.commit, changed(made.script, made.commit, made.code)
    known = {name: sum(files.values()) for name, (_, files) in found.items() if files is not None}
    for name in sorted(known, key=lambda name: -known[name]):
        commit, files = found[name]
        most = max(files, key=files.get, default=None)
        where = f", most in {most} ({files[most]})" if files else ""
        print(f"{known[name]:6,} lines since {name} (commit {commit}){where}")
    for name in found.keys() - known.keys():
        print(f"unknown: {name}, the repository lacks {found[name][0]} or its script")
    changes = sum(map(bool, known.values()))
    print(
        f"of {changes} records the code has changed, of {len(known) - changes} it is as it was, of "
        f"{len(found) - len(known)} this is unknown"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run", nargs=argparse.REMAINDER, metavar="NAME", help="a script; its own options follow"
    )
    parser.add_argument(
        "--join", nargs="+", metavar="NAME", help="a record; the files of its parts follow"
    )
    parser.add_argument("--stale", action="store_true", help="how far records are from the code")
    parser.add_argument("--pages", action="store_true", help="make all pages again")
    options = parser.parse_args()
    if options.run:
        run(options.run[0], options.run[1:])
    elif options.join:
        from benchmarks.record import Record, join

        name, *parts = options.join
        made = vars(Record(**join(name, [json.loads(Path(part).read_text()) for part in parts])))
        (pages.RESULTS / f"{name}.json").write_text(json.dumps(made, indent=1) + "\n")
        print(*pages.write_all(), sep="\n")
    elif options.pages:
        print(*pages.write_all(), sep="\n")
    elif options.stale:
        told_stale()
    else:
        for name, path in pages.scripts().items():
            asked = ast.get_docstring(ast.parse(path.read_text())).partition("\n")[0]
            if asked.endswith("?"):  # others are parts of these
                print(f"{path.parent.name}/{name}: {asked}")


if __name__ == "__main__":
    main()

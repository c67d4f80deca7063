"""List the questions, run a script, or make the pages.

python benchmarks
python benchmarks --run iasg_speed [its options]
python benchmarks --pages
"""

from __future__ import annotations

import argparse
import ast
import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import pages


def run(name: str, options: list[str]) -> None:
    """Run a script as its own command does."""
    path = pages.scripts().get(name)
    if path is None:
        raise SystemExit(f"no script is called {name}; python benchmarks lists them")
    sys.argv = [str(path), *options]
    runpy.run_path(str(path), run_name="__main__")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run", nargs=argparse.REMAINDER, metavar="NAME", help="a script; its own options follow"
    )
    parser.add_argument("--pages", action="store_true", help="make all pages again")
    options = parser.parse_args()
    if options.run:
        run(options.run[0], options.run[1:])
    elif options.pages:
        print(*pages.write_all(), sep="\n")
    else:
        for name, path in pages.scripts().items():
            asked = ast.get_docstring(ast.parse(path.read_text())).partition("\n")[0]
            print(f"{path.parent.name}/{name}: {asked}")


if __name__ == "__main__":
    main()

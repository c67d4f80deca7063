"""The code of the pages: what is printed there, and what it prints.

A block marked ``python`` runs, in the order of its page, in one namespace. A ``text`` block right
below it is what it printed. Blocks in other languages (``console``, and ``py`` for the code of
other libraries) do not run. ``python docs/pages.py PAGE.md ...`` runs pages at full size and writes
what the blocks print below them; without names it runs all pages.
"""

import contextlib
import io
import itertools
import os
import re
import sys
import tempfile
import textwrap
import warnings
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language, its lines, and where it stands in the page."""

    language: str
    text: str
    start: int
    end: int


def pages() -> list[Path]:
    """Return the pages with text of their own."""
    return sorted(DOCS.glob("*.md"))


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [Block(m[1], m[2], m.start(), m.end()) for m in _BLOCK.finditer(page)]


def printed_below(page: str) -> list[tuple[Block, Block | None]]:
    """Return the blocks that run, each with the output that stands below it, if there is one."""
    found = blocks(page)
    pairs = []
    for block, following in itertools.zip_longest(found, found[1:]):
        if block.language != "python":
            continue
        adjacent = (
            following is not None
            and following.language == "text"
            and not page[block.end : following.start].strip()
        )
        pairs.append((block, following if adjacent else None))
    return pairs


def run(page: str, name: str) -> tuple[dict, list[tuple[Block, Block | None, str]]]:
    """Run the blocks of a page in order.

    Return what they define, and each block with the output below it and what it printed now.
    """
    names: dict = {"__name__": "__main__"}
    told = []
    for block, below in printed_below(page):
        # Tracebacks show the line of the page.
        code = "\n" * page[: block.start].count("\n") + "\n" + block.text
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, name, "exec"), names)
        told.append((block, below, output.getvalue()))
    return names, told


def wrapped(line: str) -> str:
    """Wrap a long sentence, as a terminal does; a line of a table stays."""
    if len(line) <= 98 or "  " in line.strip():
        return line.rstrip()
    return "\n".join(textwrap.wrap(line, 98))


def filled(page: str, name: str) -> str:
    """Return a page with what its blocks print."""
    for block, below, output in reversed(run(page, name)[1]):
        lines = "\n".join(wrapped(line) for line in output.rstrip().splitlines())
        end = block.end if below is None else below.end
        shown = f"\n\n```text\n{lines}\n```" if lines else ""
        page = page[: block.end] + shown + page[end:]
    return page


def main(names) -> None:
    """Write what the blocks of pages print below them."""
    warnings.simplefilter("ignore")
    for path in [DOCS / name for name in names] or pages():
        text = path.read_text()
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                text = filled(text, str(path))
            finally:
                os.chdir(here)
        path.write_text(text)
        print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])

"""What can be checked of the language by itself: how sentences begin."""

import re
from pathlib import Path

import bmfjax

ROOT = Path(bmfjax.__file__).parent
#: A sentence, a comment or the text of a parameter that begins so.
BEGINS = re.compile(r'(?:""" *|^ *#?:? *|[.!?] |" *)Of [a-zA-Z`:]', re.MULTILINE)


def test_no_sentence_begins_with_of():
    """Who does what stands first: "For a large matrix ...", "The last of ...", not "Of ..."."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted(ROOT.rglob("*.py"))
        for line in path.read_text().splitlines()
        if BEGINS.search(line)
    ]
    assert not found, "\n".join(found)

"""What a page says that its code prints, against what the code prints in a small run.

Draws of a small run differ from those on the page, and so do numbers. Their words do not: a block
that prints no draws must print the page's text, any other the same words in the same places. Only
sentences that depend on how a run went (`JUDGED`) may have other words, of those that the code can
say.
"""

import ast
import functools
import re
from pathlib import Path

import bmfjax

#: What the draws do not change, as the end of what is printed.
SURE = (".shape", ".num_missing", ".tolist()", "again.verdict == fit.verdict", "dataset.name")
#: Parts of code whose words depend on how the run went.
JUDGED = (
    ".verdict", ".check(", ".modes", ".tiles(", ".rank_probabilities", "compare(", "print(ranks)",
    "votes[fit", ".held_out",
)  # fmt: skip
_SAYING = (
    "verdict", "comparison", "report/factors.py", "posterior", "diagnostics/trust.py",
    "result/fit.py", "families/tiles.py", "families/features.py", "families/logistic.py",
)  # fmt: skip

_NUMBER = re.compile(
    r"(?<![A-Za-z_])[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?|\b(?:nan|NaN|inf|True|False|None)\b|<NA>"
)
_WORD = re.compile(r"[A-Za-z][A-Za-z_-]*[A-Za-z]|[A-Za-z]")


def difference(code: str, page: str, now: str) -> str:
    """Say how the printed text on a page differs from that of a small run; "" if it does not."""
    if is_sure(code):
        return "" if page.split() == now.split() else f"the page has {page!r}, the code {now!r}"
    if _blanked(page) == _blanked(now):
        return ""
    if not any(part in code for part in JUDGED):
        return f"the page has the words {page!r}, the code {now!r}"
    known = sayable()  # a note begins with a capital where it is a sentence
    strange = {w for w in words(page) - words(now) - known if w[0].lower() + w[1:] not in known}
    return f"nothing prints {sorted(strange)}" if strange else ""


def _blanked(text: str) -> list[str]:
    """Return the words of a text, with a mark for every number; arrays pad theirs."""
    return re.sub(r"(?<=\[)\s+|\s+(?=\])", "", _NUMBER.sub("#", text)).split()


def is_sure(code: str) -> bool:
    """Whether draws change nothing of what a block prints."""
    calls = [n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Call)]
    printed = [a for c in calls if ast.unparse(c.func) == "print" for a in c.args]
    return bool(printed) and all(ast.unparse(argument).endswith(SURE) for argument in printed)


def words(text: str) -> set[str]:
    """Return the words of a text, without what is a number; a broken word is whole."""
    return set(_WORD.findall(_NUMBER.sub(" ", re.sub(r"(?<=\w)-\n", "-", text))))


@functools.cache
def sayable() -> set[str]:
    """Return the words of the sentences that judge a fit, and of the names of the votes."""
    package = Path(bmfjax.__file__).parent
    found = words(" ".join(bmfjax.load("house-votes").column_names))
    for place in _SAYING:
        for path in [package / place] if place.endswith(".py") else (package / place).rglob("*.py"):
            for text in _texts(ast.parse(path.read_text())):
                found |= words(text)
    return found


def _texts(tree):
    """Strings of a module that are no docstrings."""
    docstrings = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docstrings:
            yield node.value

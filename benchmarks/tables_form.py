"""What the generated pages are made of: a page for each question, tables, and numbers."""

from __future__ import annotations

import fnmatch
import math
import sys
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

Records = dict[str, dict]


class Page(NamedTuple):
    """A question, the records that answer it, and what shows them."""

    name: str  # of the file, without .md
    question: str
    patterns: tuple[str, ...]  # of the names of the records
    body: Callable[[Records], Iterable[str]]  # paragraphs and tables

    def shows(self, record: str) -> bool:
        """Say whether a record of this name belongs to the page."""
        return any(fnmatch.fnmatchcase(record, pattern) for pattern in self.patterns)


PAGES: dict[str, Page] = {}


def page(name: str, question: str, *patterns: str):
    """Register the function below it as the body of a page.

    Parameters
    ----------
    name : str
        Name of the page, without ``.md``.
    question : str
        Its title.
    *patterns : str
        Names of its records, without ``.json``; `*` stands for anything. Default: `name`.
    """

    def register(body):
        PAGES[name] = Page(name, question, patterns or (name,), body)
        return body

    return register


def table(header: Iterable[str], rows: Iterable[Iterable]) -> str:
    """Write a Markdown table; cells that are no text are written by `number`."""
    lines = [list(header), ["---"] * len(list(header)), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value) -> str:
    return (value if isinstance(value, str) else number(value)).replace("|", "\\|")


def number(value, digits: int | None = None) -> str:
    """Write a number with thousands separators; nothing for None, and a word for no number."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    value = float(value) if isinstance(value, str) else value  # "inf" stands in some records
    # In records the largest float stands for infinity.
    if not abs(value) < sys.float_info.max:
        return "none" if math.isnan(value) else "infinite"
    if isinstance(value, int) and not digits:
        return f"{value:,}"
    if digits is None:
        return f"{value:,}"
    # As on paper: 1.0065 has no exact float, and is to be 1.007.
    exact = Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{exact:,}"


def with_error(value, error, digits: int) -> str:
    """Write a mean and its standard error."""
    if value is None or error is None:
        return number(value, digits)
    return f"{number(value, digits)} ± {number(error, digits)}"


def percent(share, digits: int = 1) -> str:
    """Write a share in per cent, without the sign."""
    return "" if share is None else number(100.0 * share, digits)


def listed(values, digits: int | None = None) -> str:
    """Write numbers in a row, or nothing where there are none."""
    return "; ".join(number(v, digits) for v in values or ())


def figures(records: Records, name: str) -> dict:
    """Return the figures of a record; empty where there is no such record."""
    return records.get(name, {}).get("figures", {})

"""What the generated pages are made of: a page for each question, tables, and numbers."""

import fnmatch
import functools
import inspect
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import NamedTuple

Records = dict[str, dict]


class Page(NamedTuple):
    """A question, the records that answer it, and what shows them."""

    name: str  # of the file, without .md
    question: str
    patterns: tuple[str, ...]  # of the names of the records
    body: Callable[[Records], Iterable[str]]  # paragraphs and tables
    notes: dict[tuple[str, str], str]  # of records, by their name and commit

    def shows(self, record: str) -> bool:
        """Say whether a record of this name belongs to the page."""
        return any(fnmatch.fnmatchcase(record, pattern) for pattern in self.patterns)


#: The pages of all scripts that are imported.
PAGES: dict[str, Page] = {}
#: What is noted of most records.
SECONDS = "other work ran beside it: seconds are upper bounds"


def page(
    doc: str,
    *patterns: str,
    name: str | None = None,
    question: str | None = None,
    notes: Iterable[tuple[str, ...]] = (),
):
    """Register the function below it as the body of a page.

    `doc` is the docstring of the script, whose first line is the question, if there is no other
    `question`. `patterns` are names of its records, without ``.json``, where `*` stands for
    anything; by default `name`, that of the page, which is by default that of the script. `notes`
    are what must be known of records: a commit, what is said of its records, and their names with
    spaces between them; without names of all that the page shows. A newer record loses its note.
    """

    def register(body):
        own = name or Path(inspect.getfile(body)).stem
        title = question or doc.partition("\n")[0]
        noted = {
            (record, commit): said
            for commit, said, *names in notes
            for record in (" ".join(names).split() or [""])
        }
        PAGES[own] = Page(own, title, patterns or (own,), body, noted)
        return body

    return register


def page_of_one(doc: str, **options):
    """Register the function below it as the body of a page: it takes the figures of its one record.

    The page and the record have the name of the script.
    """

    def register(body):
        name = Path(inspect.getfile(body)).stem

        @functools.wraps(body)
        def of_records(records: Records):
            return body(figures(records, name))

        page(doc, name=name, **options)(of_records)
        return body

    return register


def page_of_each(doc: str, intro: str = "", **options):
    """Register the function below it as the body of a page: it takes the figures of each record.

    The names of page and records begin with that of the script. `intro` stands before all.
    """

    def register(body):
        name = Path(inspect.getfile(body)).stem

        @functools.wraps(body)
        def of_records(records: Records):
            yield from filter(None, [intro])
            for record in records:
                yield f"## {record}"
                yield from body(figures(records, record))

        page(doc, f"{name}*", name=name, **options)(of_records)
        return body

    return register


def table(header: Iterable[str], rows: Iterable[Iterable]) -> str:
    """Write a Markdown table; cells that are no text are written by `number`."""
    lines = [list(header), ["---"] * len(list(header)), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value) -> str:
    return (value if isinstance(value, str) else number(value)).replace("|", "\\|")


#: How a column of `shown` is written.
_COLUMN = re.compile(
    r"(?P<way>.*?)(?P<lacks>\?)?(?: \* (?P<by>\S+))?(?: (?P<kind>[%±;]?)(?P<n>\d+))?"
)


def named(cases: dict, *names: str) -> list[dict]:
    """Return the rows of a table of tables, in each of which its keys have these names."""
    first, *rest = names
    return [
        {first: key} | row
        for key, case in cases.items()
        for row in (named(case, *rest) if rest else [case])
    ]


def shown(rows: Iterable[dict], columns: dict) -> str:
    """Write a Markdown table of rows; `columns` are {heading: what stands below it}.

    That is a function of the row, or a text: the keys on the way to a value, which ``/`` parts (a
    dot is the row); ``?`` where it may lack; ``* factor``; and the digits of a number, of a share
    in per cent after ``%``, of a mean and its standard error after ``±``, and of each number of a
    list after ``;``. Nothing stands for the heading itself.
    """
    rows = [[_shown(row, how or title) for title, how in columns.items()] for row in rows]
    return table(columns, rows)


def _shown(row: dict, how):
    if callable(how):
        return how(row)
    found = _COLUMN.fullmatch(how)
    value = row
    for key in filter(".".__ne__, found["way"].split("/")):
        value = (value or {}).get(key) if found["lacks"] else value[key]
    if value is None or found["n"] is None:
        return value
    digits, by = int(found["n"]), float(found["by"] or 1)
    if found["kind"] == "±":
        pair = value if isinstance(value, list) else (value["mean"], value["standard_error"])
        return with_error(*(by * part for part in pair), digits)
    if found["kind"] == ";":
        return listed(value, digits)
    value = value if isinstance(value, str) or by == 1 else by * value
    return percent(value, digits) if found["kind"] == "%" else number(value, digits)


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


def mean_and_error(values, digits: int) -> dict:
    """Return the mean of values and its standard error, which a single one does not have."""
    values = [float(value) for value in values]
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return {
        "mean": round(statistics.fmean(values), digits),
        "standard_error": None if error is None else round(error, digits),
    }


def percent(share, digits: int = 1) -> str:
    """Write a share in per cent, without the sign."""
    return "" if share is None else number(100.0 * share, digits)


def listed(values, digits: int | None = None) -> str:
    """Write numbers in a row, or nothing where there are none."""
    return "; ".join(number(v, digits) for v in values or ())


def figures(records: Records, name: str) -> dict:
    """Return the figures of a record; empty where there is no such record."""
    return records.get(name, {}).get("figures", {})


def parts_of(record: dict) -> Iterable[str]:
    """Write which parts a record was joined of, if any."""
    if parts := record["figures"].get("parts"):
        yield "Made in parts:"
        yield table(
            ["command", "commit", "cores", "JAX"],
            [[f"`{p['command']}`", p["commit"], p["cores"], p["jax"]] for p in parts],
        )


def settings_of(found: dict, *without: str) -> str:
    """Write the settings of a run: what is neither a table nor left out."""
    plain = {n: v for n, v in found.items() if n not in without and not isinstance(v, dict)}
    named = (f"{n} {_plainly(v)}" for n, v in plain.items())
    return "Settings: " + ", ".join(named) + "."


def _plainly(value) -> str:
    """Write a setting, of numbers four digits."""
    if value is None:
        return "default"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

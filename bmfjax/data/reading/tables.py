"""A table: which line and which column hold names, and which columns hold values."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bmfjax.data.errors import InputError
from bmfjax.data.names import place_text
from bmfjax.data.reading.cells import (
    MISSING_MARKS,
    NO_ANSWERS,
    PAIRS,
    WORDS,
    Column,
    any_number,
    decimal_of,
    is_value,
    number,
)
from bmfjax.data.reading.record import BINARY, RATINGS, REAL, Asked, option, quoted
from bmfjax.errors import meant

#: Fields of a line that has few of them: numbers in it may rise by chance.
FEW = 4
#: Lines from which on a column that counts up is asked about.
MANY = 5
#: Most different texts of a column that labels the rows.
MOST_LABELS = 30
#: Cells among ones and zeros up to which they may be slips of whoever wrote the table.
MOST_SLIPS = 5
#: Names of columns up to which a message lists all of them.
MOST_LISTED = 8
#: What the columns of ids may be called, besides names that end in "id": those of rows first.
USERS = frozenset(["row", "user", "customer"])
ID_NAMES = USERS | {"column", "item", "movie", "film", "product", "book"}
#: What a column that names the rows may be called, besides those.
NAMES_OF_ROWS = ID_NAMES.union(
    ["id", "name", "names", "who", "year", "sample", "index", "nr", "no", "number"],
    ["respondent", "subject", "patient", "case", "member"],
)
#: Words that end in "id", and are no ids.
_NO_IDS = frozenset(
    ["acid", "lipid", "solid", "fluid", "liquid", "humid", "void", "paid", "bid", "grid", "valid"]
)
SAY_PAIRS = "if its lines are pairs of row and column, say layout='pairs' (--layout pairs)"
#: Words in the names of times.
TIME_WORDS = frozenset(["time", "timestamp", "date", "datetime", "year"])
#: Numbers with something about them, such as <0.05 and 12%, which are no names.
_LIKE_NUMBER = re.compile(r"[<>≤≥~=*]*\s*[+-]?[$€£¥]?\s*\d[\d.,' ]*\s*[%*$€£¥]?")
#: A number with a sign of a share or of money, which is no part of it.
_WITH_SIGN = re.compile(r"[+-]?[$€£¥]\s*\d[\d.,]*|[+-]?\d[\d.,]*\s*[%$€£¥]")
_IN_PANDAS = ", such as 70 for 70% (in pandas by frame.replace('[%$€£¥]', '', regex=True))"
#: Numbers from which on seconds since 1970 are meant.
TIMES = 1e8
#: Marks of a missing cell in files of numbers that are as large as no value.
SENTINELS = (99, 999, 9999, 99999, -99, -999, -9999, -99999)


def words_in_name(name: str) -> list[str]:
    """Return the words in a name, in lower case."""
    return re.split(r"[^a-z0-9]+", name.lower().strip("#. "))


def is_id_name(name: str) -> bool:
    """Say whether a header may call the field of rows or columns so."""
    low = name.lower()
    return low in ID_NAMES or (low.endswith("id") and low not in _NO_IDS)


def names_rows(name: str) -> bool:
    """Say whether a column of names may be called so."""
    low = name.lower().strip("#. ")
    return (
        is_id_name(low)
        or words_in_name(name)[-1] in ("id", "nr", "no")
        or low in NAMES_OF_ROWS
        or (low.startswith("unnamed: 0"))
    )


class Table(NamedTuple):
    """A table whose columns may have names; `lines` are the numbers of its rows in the file."""

    names: list[str] | None
    columns: list[Column]
    lines: Sequence[int] | None = None
    notes: tuple[str, ...] = ()

    def name_of(self, column: Column) -> str:
        """Return the name of a column, or its number, from 1."""
        numbers = (j for j, other in enumerate(self.columns, start=1) if other is column)
        return column.name or str(next(numbers))

    def twice(self, column: Column) -> str:
        """Say which text of a column stands in two rows first, and where; "" where none does."""
        first: dict[int, int] = {}
        for i, code in enumerate(column.codes.tolist()):
            if first.setdefault(code, i) != i:
                both, name = (first[code], i), column.text(i)
                if self.lines is None:
                    return f"{name!r} twice, in rows {both[0] + 1} and {i + 1} (counted from 1)"
                return f"{name!r} twice, on lines {' and '.join(str(self.lines[k]) for k in both)}"
        return ""

    def where(self, i, column: Column, parts: Parts) -> tuple[str, str]:
        """Say where a cell of the values is, and on which line."""
        j = next(j for j, other in enumerate(parts.values) if other is column)
        names = self.names and [own.name for own in parts.values]
        line = "" if self.lines is None else f" (line {self.lines[i]} of the file)"
        return place_text(i, j, parts.row_names, names), line


# ---- header ---------------------------------------------------------------------------------


def has_header(head, kind, asked: Asked, layout="table") -> bool:
    """Say whether the first of some lines of fields names the columns; refuse if it is unclear."""
    names = (*asked.label_column, *asked.ignore, *asked.one_hot, *(asked.columns or ()))
    named = any(not re.fullmatch(r"[\d:, ]+", name) for name in names)
    if asked.header is False and named:
        raise InputError(
            f"header=False says that columns have no names, and {names[0]!r} is one; leave one of "
            "them out, or give numbers of columns, from 1"
        )
    if asked.header != "auto" or named:
        return asked.header is not False
    first, body = head[0], head[1:]
    if names_fitted(first, asked):
        return True
    fields = first[1:] if len(first) > 1 else first
    if first[0] == "" and any(fields):
        return True
    codes = {*asked.one, *asked.zero, *asked.missing}
    texts = [k for k, f in enumerate(first) if _is_text(f) and f not in codes]
    texts = [k for k in texts if k or len(first) == 1]
    shift = bool(body) and all(len(row) == len(first) + 1 for row in body)  # as R writes it

    def cells(k):
        return [row[k + shift] for row in body if len(row) > k + shift]

    words = [k for k, text in enumerate(first) if _is_word(text, cells(k))]
    if _are_names(first, [k for k in range(len(first)) if k not in words], codes, cells):
        return True
    names = {k: first[k] for k in texts if k not in words and first[k] not in cells(k)}
    unclear = words and not (shift or is_id_name(first[0]))  # which no row begins with
    if names and body and (unclear or _may_be_row(first, body, names.values(), map(cells, names))):
        raise _unclear_header(first, first[words[0]] if words else _value_in(first))
    if texts:
        return bool(names)
    if kind == BINARY and asked.binarize is None:
        return not codes and _are_beside_bits(first, body)
    return _numbers_are_names(first, body, kind, layout)


def names_fitted(first, asked: Asked) -> bool:
    """Say whether a first line holds most names of the columns of a fit, and so is a header.

    Names that are numbers may be values: all of them have to be there, in their order.
    """
    codes = {*asked.one, *asked.zero, *asked.missing}
    names = [n for n in asked.fitted if n.lower() not in WORDS and n not in codes]
    if all(map(is_value, names)):
        return len(names) >= FEW and [field for field in first if field in set(names)] == names
    # One name may be the column of a pair.
    return len(set(names) & set(first)) >= min(len(names), max(2, len(names) / 2))


def with_fitted(table: Table, asked: Asked) -> Asked:
    """Name the columns of values by those of a fit that a table of new rows has, if it has any."""
    if asked.columns is not None or not (asked.fitted and table.names):
        return asked
    others = {*asked.ignore, *asked.label_column, *asked.one_hot}
    own = tuple(n for n in asked.fitted if n in set(table.names) - others)
    return replace(asked, columns=own) if own else asked


def _is_text(field) -> bool:
    """Say whether a field is no value, and no mark such as ?, which names nothing."""
    return not is_value(field, True) and any(map(str.isalnum, field))


def _are_names(first, places, codes, cells) -> bool:
    """Say whether nearly all fields of a first line can only be names.

    They are different words above columns of values; as cells they would be odd, all of them.
    """
    words = [k for k in places if _is_text(first[k]) and first[k] not in codes]
    words = [k for k in words if not _LIKE_NUMBER.fullmatch(first[k])]
    sure = []
    for k in words:
        below = {cell.lower() for cell in cells(k)} - MISSING_MARKS
        if below and first[k].lower() not in below and not any(map(_is_word_of_text, below)):
            sure.append(first[k])
    return len(sure) >= FEW - 1 and len(set(sure)) == len(sure) and 4 * len(sure) >= 3 * len(first)


def _is_word_of_text(cell) -> bool:
    return _is_text(cell) and cell not in WORDS | NO_ANSWERS


def _value_in(first) -> str:
    """Return the field of a first line that may be a value."""
    values = [f for f in first if any_number(f) is not None or _LIKE_NUMBER.fullmatch(f)]
    return next(iter(values), first[0])


def _may_be_row(first, body, names, columns) -> bool:
    """Say whether a first line of numbers and of texts may be a row, as those below.

    Its numbers are no names if they do not rise, or a few by chance, nor are texts that are nearly
    numbers, or that stand above columns of distinct texts.
    """
    own = _numbers_of([first[1:]])
    if any_number(first[0]) is not None:
        return True
    if not own:
        return False
    below = _numbers_of(row[1:] for row in body)
    outside = not below or own[0] > max(below) or own[-1] < min(below)
    rises = (np.diff(own) > 0).all() and (len(own) >= FEW or outside)
    like = any(map(_LIKE_NUMBER.fullmatch, names))
    return like or not rises or all(map(_are_distinct_texts, columns))


def _are_distinct_texts(cells) -> bool:
    texts = all(_is_text(cell) and cell.lower() not in WORDS for cell in cells)
    return texts and len(set(cells)) == len(cells)


def _is_word(text, cells) -> bool:
    """Say whether a text is one of two words for a one and a zero that its column has below."""
    below = {cell.lower() for cell in cells}
    return any(text.lower() in NO_ANSWERS.union(p) and below & {*p} for p in PAIRS[1:])


def _are_beside_bits(first, body) -> bool:
    """Say whether numbers stand above a table of zeros and ones, or of two words, alone."""
    below = {text.lower() for row in body for text in row[1:]} - MISSING_MARKS
    words = WORDS | NO_ANSWERS
    if not below or not all(text in words or number(text) in (0, 1) for text in below):
        return False
    own = [number(text) for text in first if text.lower() not in MISSING_MARKS]
    own = [v for v in own if v is not None]
    if not any(number(text) is not None for text in below):
        return len(own) > 0
    others = [v for v in own if v not in (0, 1)]
    counts = (np.diff(own) > 0).all() and (len(own) >= FEW or _are_even(own))
    if set(others) & {*SENTINELS} or (0 < len(others) < len(own) and not counts):  # maybe a slip
        odd = next((v for v in others if v in SENTINELS), others[0])
        raise _unclear_header(first, next(text for text in first if number(text) == odd))
    return len(others) > 0


def _numbers_of(rows) -> list[float]:
    """Return the numbers of some lines, but for marks of missing cells."""
    found = (v for row in rows for text in row if (v := any_number(text)) is not None and v == v)
    return [v for v in found if v not in SENTINELS]


def _numbers_are_names(first, body, kind, layout) -> bool:
    """Say whether numbers in a first line are names of columns, such as wavelengths or years."""
    word = any_number(first[0]) is None
    if word and body and all(any_number(row[0]) is not None for row in body):
        return True
    few, own = len(first) <= FEW, [any_number(text) for text in first[1:]]
    may_be = word and layout == "table"
    if few and not word and layout == "table" and _is_unlike(first, body):
        raise _unclear_header(first)
    if (few and not may_be) or len(own) < 2 or None in own or not (np.diff(own) > 0).all():
        return False
    if body and all(len(row) == len(first) + 1 for row in body):  # as R writes it
        return True
    if word and names_rows(first[0]) and (kind == REAL or is_id_name(first[0])):
        return True
    below = _numbers_of(row[1:] for row in body)
    if below and own[0] <= max(below) and own[-1] >= min(below):  # they overlap
        beyond = own[0] < min(below) or own[-1] > max(below)
        if kind == REAL and any(v != round(v) for v in own):
            return False
        if not (word and beyond and not few) or kind == REAL:
            raise _unclear_header(first)
    elif (few and not _are_even(own)) or _counted([row[0] for row in (first, *body)]):
        raise _unclear_header(first)
    return True


def _are_even(numbers) -> bool:
    """Say whether numbers rise by equal steps, as years and wavelengths do."""
    steps = np.diff(numbers)
    return len(steps) > 1 and np.allclose(steps, steps[0])


def _is_unlike(first, body) -> bool:
    """Say whether a line of few rising whole numbers is unlike the lines below."""
    own = [any_number(text) for text in first]
    below = _numbers_of(body)
    if None in own or not below or any(v != round(v) for v in own) or (np.diff(own) <= 0).any():
        return False
    mixed = any(v != round(v) for v in below)
    return len(own) > 1 and (own[0] > max(below) or (mixed and own[-1] < min(below)))


def _unclear_header(first, text=None) -> InputError:
    """Return the error for a first line of which some field, a text, may be a value or a name."""
    text = _value_in(first) if text is None else text
    return InputError(
        "the first line may be ratings or other values, or names of columns, because of "
        f"{text[:60]!r} in field {first.index(text) + 1}; say header=True or header=False "
        "(--header, --no-header)"
    )


def _counted(first) -> bool:
    """Say whether a first column numbers the rows: it is whole and distinct."""
    own = [any_number(text) for text in first]
    return None not in own and all(v == round(v) for v in own) and len(set(own)) == len(own) > 1


def table_of_lines(body, kind, asked: Asked, separator=",") -> Table:
    """Part the lines of a text, (line number, fields), into names and columns."""
    if not body:
        raise InputError("the file is empty; give a table with at least one row")
    names = None
    if has_header([fields for _, fields in body], kind, asked):
        names = list(body[0][1])
        names[0] = names[0].removeprefix("#")
        body = body[1:]
    if not body:
        raise InputError("there is a header and no row below it; give at least one row")
    width = len(body[0][1])
    if names is not None and len(names) == width - 1 and asked.row_names is not False:
        names = ["", *names]  # as R writes it: no cell above the row names
    if names is not None and len(names) != width:
        raise InputError(
            f"the header has {len(names)} cells and line {body[0][0]} has {width}; "
            "give every line the same number"
        )
    for line, row in body:
        if len(row) != width:
            raise InputError(
                f"line {line} has {len(row)} cells and line {body[0][0]} has {width}; "
                "give every line the same number"
            )
    cells = list(zip(*(row for _, row in body), strict=True))
    if width > 1 and (names is None or names[-1] == "") and not any(cells[-1]):
        cells.pop()  # a separator at the end of every line makes no column
        names = None if names is None else names[:-1]
    texts = {text for column in cells for text in column}.difference(asked.missing)
    # Where commas are decimal signs, points are of thousands, also of a text without commas.
    decimal = decimal_of(texts, asked.decimal, separator)
    notes = {",": ("decimal commas",), "thousands": ("commas of thousands",)}.get(decimal, ())
    if decimal == "," and not any("," in text and number(text, ",") is not None for text in texts):
        notes = ("points of thousands",) * any("." in text for text in texts)
    columns = [
        Column.of_texts("" if names is None else names[j], column, asked.missing, decimal)
        for j, column in enumerate(cells)
    ]
    return Table(names, columns, [line for line, _ in body], notes)


# ---- names of rows --------------------------------------------------------------------------


def row_names_of(table: Table, kind, asked: Asked) -> bool:
    """Say whether the first column names the rows; refuse if it is unclear."""
    if asked.row_names != "auto":
        return asked.row_names
    first, named = table.columns[0], table.names is not None
    if named and (first.name == "" or first.name.lower().startswith("unnamed: 0")):
        return True
    called = named and names_rows(first.name)
    if first.is_numeric or first.gone.all():
        return _numbers_name_rows(table, first, kind, asked, called)
    if called:
        return True
    codes = {_plain(code) for code in (*asked.one, *asked.zero)}
    if kind == BINARY and (pair_of(first) is not None or codes & {*map(_plain, first.words)}):
        return False
    if any(_LIKE_NUMBER.fullmatch(word) for word in first.words if number(word) is None):
        return False
    if not first.is_text:  # one odd cell makes no names of numbers
        numbers = (~np.isnan(first.values)).sum()
        return bool(numbers < (~first.missing).sum() / 2)
    return first.is_distinct or len(first.words) > _most_labels(first)


def _numbers_name_rows(table, first, kind, asked, called) -> bool:
    if called and first.is_whole:
        return True
    plain = kind == BINARY and asked.binarize is None
    codes = {number(code) for code in (*asked.one, *asked.zero)} or {0, 1}
    if plain and set(first.seen) <= codes:
        return False
    if called:
        held = "" if first.missing.any() else table.twice(first)
        say = "make them distinct, say row_names=False (--no-row-names)"
        if held:
            say += " if they are values"
        else:
            held = "a cell that is no whole number"
            say = "say row_names=True or row_names=False (--row-names, --no-row-names)"
        raise InputError(
            f"column {first.name!r} may name the rows, and holds {held}; {say}, or leave it out "
            f"by {option('ignore', first.name)}"
        )
    if not (first.is_whole and len(first) > 1):
        return False
    others = [c.seen for c in table.columns[1:] if c.is_numeric]
    low = min((own.min() for own in others), default=-np.inf)
    high = max((own.max() for own in others), default=np.inf)
    outside = min(first.numbers) > high or max(first.numbers) < low
    if kind == RATINGS and outside:
        return True
    if first.rises and (plain or outside or kind == RATINGS or len(first) >= MANY):
        raise InputError(
            f"the first column holds whole numbers that rise ({first.texts[0]}, "
            f"{first.texts[1]}, ...), which may be names of rows or values; say row_names=True or "
            "row_names=False (--row-names, --no-row-names), or name the columns of values by "
            "columns= (--columns)"
        )
    return False


# ---- roles of columns -----------------------------------------------------------------------


def chosen(given: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns that texts such as "a", "a,b" or "a:c" name."""
    found = []
    for text in given:
        first, colon, last = text.partition(":")
        if text in names:
            found.append(text)
        elif colon and first in names and last in names:
            low, high = sorted((names.index(first), names.index(last)))
            found += names[low : high + 1]
        elif "," in text:
            found += chosen([part.strip() for part in text.split(",")], names)
        else:
            raise _no_column(text, names)
    return found


def _no_column(text: str, names: Sequence[str]) -> InputError:
    """Return the error for a text that names no column: say which are nearly called so."""
    ends = text.split(":", 1)
    unknown = [repr(end) for end in ends if end not in names]
    said = f"no column is called {' or '.join(unknown)}"
    said += f", of {text!r}" if ":" in text else ""
    near = [end if end in names else meant(end, names) for end in ends]
    hint = "the" if None in near else f"did you mean {':'.join(near)!r}? The"
    return InputError(f"{said}; {hint} columns are {_all_of(names)}")


def _all_of(names: Sequence[str]) -> str:
    """Write names: of many the first three, the last one, and how many there are.

    >>> _all_of("abc"), _all_of("abcdefghijk")
    ('a, b, c', 'a, b, c, ... k (11)')
    """
    if len(names) <= MOST_LISTED:
        return ", ".join(names)
    return f"{', '.join(names[:3])}, ... {names[-1]} ({len(names)})"


class Parts(NamedTuple):
    """The roles of the columns of a table."""

    values: list[Column]
    row_names: list[str] | None
    names_from: str
    labels: list[Column]
    ignored: tuple[str, ...]


def roles_of(table: Table, kind, asked: Asked) -> Parts:
    """Decide what each column is, as far as its name and the options say."""
    columns, named = list(table.columns), table.names
    if kind == RATINGS and asked.label_column:
        raise InputError("label_column means nothing for ratings; leave it out")
    if named is None and (asked.columns or asked.ignore or asked.label_column or asked.one_hot):
        named = [str(j) for j in range(1, len(columns) + 1)]  # they go by their numbers
        for name, column in zip(named, columns, strict=True):
            column.name = name
    named = named or []
    for name, texts in (("label_column", asked.label_column), ("one_hot", asked.one_hot)):
        for text in texts:
            if text not in named:
                raise _no_column(text, named)
            if named.count(text) > 1:
                raise InputError(
                    f"{name} is {text!r} and {named.count(text)} columns have that name; give them "
                    "names that differ"
                )
    labels = [columns[named.index(text)] for text in asked.label_column]
    out = chosen(asked.ignore, named)
    rest = [c for c in columns if not any(c is other for other in labels) and c.name not in out]
    if not rest:
        what = "labels" if labels else "columns left out"
        raise InputError(f"the table has no column beside the {what}; give at least one of values")
    own = None
    if asked.columns is not None:
        own, rest, left = _named_values(rest, asked)
        out += left
    elif row_names_of(
        table._replace(columns=rest, names=table.names and [c.name for c in rest]), kind, asked
    ):
        if len(rest) < 2:
            raise InputError(
                "the only column holds row names; give a table with values, or row_names=False"
            )
        own, rest = rest[0], rest[1:]
        held = table.twice(own) if asked.row_names == "auto" and not own.gone.any() else ""
        if held:
            # The reader of pairs says it where there are fewer columns.
            pairs = f"{SAY_PAIRS}; else " * (kind == BINARY and len(rest) > 2)
            raise InputError(
                f"the first column names the rows, and holds {held}; {pairs}make the row names "
                "distinct, or say row_names=False (--no-row-names)"
            )
    source = "" if own is None else f"{own.name!r}" if own.name else "the first column"
    return Parts(rest, None if own is None else own.all_texts(), source, labels, tuple(out))


def _named_values(columns, asked: Asked):
    """Part columns of which those of values are named: (names of rows or None, values, left out).

    The rows are named by the first of the others that may name them.
    """
    kept = chosen(asked.columns, [c.name for c in columns]) + list(asked.one_hot)
    rest = [c for c in columns if c.name not in kept]
    own = None
    if asked.row_names is True:
        own = rest[0] if rest else None
    elif asked.row_names == "auto":
        able = [c for c in rest if c.is_distinct and not c.gone.any()]
        called = [c for c in able if c.name == "" or names_rows(c.name)]
        own = next(iter([*called, *(c for c in able if c.is_text)]), None)
    values = [c for c in columns if c.name in kept]
    return own, values, [c.name for c in rest if c is not own]


def labels_and_rest(columns: list[Column], asked: Asked) -> tuple[list[Column], tuple[str, ...]]:
    """Part columns of texts into labels of the rows and columns that are left out."""
    labels = []
    if not (asked.label_column or asked.columns):
        labels = [c for c in columns if c.is_text and 1 < len(c.words) <= _most_labels(c)][:1]
    return labels, tuple(c.name for c in columns if not any(c is other for other in labels))


def _most_labels(column) -> int:
    return max(2, min(MOST_LABELS, len(column) // 2))


# ---- values ---------------------------------------------------------------------------------


def numbers_of(table: Table, parts: Parts, kind, asked: Asked):
    """Return the columns of numbers, of texts, and notes; refuse an odd cell by its place."""
    values, texts = [], []
    for column in parts.values:
        at = column.odd()
        if at is None:
            values.append(column)
        elif kind == REAL and column.is_text and asked.columns is None and column.name:
            texts.append(column)
        else:
            raise _no_number(table, parts, column, at, kind)
    if not values:
        column = texts[0]
        raise _no_number(table, parts, column, column.odd(), kind)
    check_ids_and_times(values, asked)
    return values, texts


def check_ids_and_times(columns: Sequence[Column], asked: Asked) -> None:
    """Refuse columns of numbers that are ids or times by their names, unless they were chosen."""
    for column in columns if asked.columns is None else ():
        are_ids = names_rows(column.name) and column.is_whole and column.rises and len(column) > 2
        if column.name and (are_ids or _are_years(column)):
            raise InputError(
                f"column {column.name!r} looks like {'ids' if are_ids else 'times'} "
                f"({', '.join(column.words[:2])}, ...); leave it out by "
                f"{option('ignore', column.name)}, or name all columns of values by columns= "
                "(--columns)"
            )


def _are_years(column) -> bool:
    """Say whether a column is called a time, and holds years, days or seconds since 1970."""
    seen = column.seen
    years = len(seen) and ((seen >= 1500) & (seen <= 2100) & (seen == np.rint(seen))).all()
    return not TIME_WORDS.isdisjoint(words_in_name(column.name)) and (years or are_times(seen))


def _no_number(table, parts, column, at, kind) -> InputError:
    text = column.text(at)[:60]
    what = "a rating or nothing in each cell" if kind == RATINGS else "a number or nothing"
    if _WITH_SIGN.fullmatch(text):
        what = f"numbers without a sign of percent or money{_IN_PANDAS}"
    aside = f", or leave the column out by {option('ignore', table.name_of(column))}"
    where, line = table.where(at, column, parts)
    return InputError(
        f"value {text!r} at {where} is no number{line}; write {what}, or say missing= (--missing) "
        f"if {text!r} means that there is none{aside}"
    )


def sentinels(values: np.ndarray) -> dict[float, int]:
    """Count the numbers that may stand for missing cells, and are far from all other values.

    In a table they are so if they are in several columns, and far from all others of these. A sole
    negative number, -1, is one beside whole numbers that go up to 3 or more.
    """
    seen = values[~np.isnan(values)]
    found = {m: int(n) for m in SENTINELS if (n := np.sum(seen == m))}
    others = seen[~np.isin(seen, list(found))]
    most = _far(others)
    found = {
        m: n for m, n in found.items()
        if abs(m) > most or (values.ndim == 2 and _is_far_in_columns(values, m))
    }  # fmt: skip
    counts = others[others != -1]
    if 0 < len(counts) < len(others) and counts.min() >= 0 and counts.max() >= 3:
        found |= {-1: len(others) - len(counts)} if (counts == np.rint(counts)).all() else {}
    return found


def _far(others) -> float:
    return 8 * np.abs(others).max() if len(others) else np.inf


def _is_far_in_columns(values, mark) -> bool:
    """Say whether a number is in several columns, and far from the other values of each."""
    several = values[:, (values == mark).any(0)].T
    others = [own[~np.isnan(own) & ~np.isin(own, SENTINELS)] for own in several]
    far = [abs(mark) > _far(own) for own in others if len(own)]
    return len(far) > 1 and all(far)


def check_numbers(values: np.ndarray, what: str, kind, asked: Asked, where: Callable) -> None:
    """Refuse numbers (cell,), or a table, that may be marks of missing cells, or times.

    ``where(k)`` says where a cell is, counted column by column, and on which line.
    """
    if kind == RATINGS and are_times(values):
        low, high = np.nanmin(values), np.nanmax(values)
        raise InputError(
            f"{what} {low:.0f} to {high:.0f}, which look like times and no ratings; say columns= "
            "(--columns) with row, column and rating, by the names of a header or by the numbers "
            "of the fields, such as --columns 1,2,4"
        )
    if asked.scale is not None or "" in asked.missing:  # the user has said what is missing
        return
    for mark, count in sentinels(values).items():
        far = "far from all other values" if mark != -1 else "the only negative value"
        cells, line = where(int(np.argmax((values == mark).T)))
        cells += line + (f", and in {count - 1} more," if count > 1 else "")
        value = (
            f"scale= (--scale LOW HIGH) with {mark} in it"
            if kind == RATINGS
            else "missing='' (--missing '') if it is a value"
        )
        raise InputError(
            f"value {mark} at {cells} is {far}; say missing={mark} (--missing={mark}) if it means "
            f"that there is none, or {value}"
        )


def check_table(table: Table, columns: list[Column], parts: Parts, kind, asked: Asked) -> None:
    """Refuse columns of numbers that may be something else."""
    values, rows = np.column_stack([column.values for column in columns]), len(columns[0])
    check_numbers(
        values, "its cells hold", kind, asked,
        lambda k: table.where(k % rows, columns[k // rows], parts),
    )  # fmt: skip


def are_times(values: np.ndarray) -> bool:
    """Say whether numbers look like seconds since 1970, or like days written as 20240131."""
    seen = values[np.isfinite(values)]
    if not len(seen) or np.median(seen) > TIMES:
        return len(seen) > 0
    year, month, day = seen // 10_000, seen // 100 % 100, seen % 100
    days = (year >= 1900) & (year < 2101) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return bool((days & (seen == np.rint(seen))).all())


# ---- ones and zeros -------------------------------------------------------------------------

ZERO, ONE, GONE, ODD = 0, 1, 2, 3


def pair_of(column: Column) -> tuple[str, str] | None:
    """Return the two texts, for a one and a zero, of which a column is, or None."""
    if column.gone.all():
        return None
    if column.is_numeric:
        return PAIRS[0] if np.isin(column.seen, (0, 1)).all() else None
    words = {_plain(word) for word in column.words} - NO_ANSWERS
    if not words:  # nobody answered
        return PAIRS[2]
    return next((pair for pair in PAIRS[1:] if words <= set(pair)), None)


def _plain(word) -> str:
    return word.lower().replace("\u2019", "'")


def codes_of(column, asked, pair) -> np.ndarray:
    """Return the code of every distinct text of a column."""
    found = np.full(len(column.texts), ODD, np.uint8)
    found[column.gone] = GONE
    if asked.binarize is not None:
        above = column.numbers > asked.binarize
        return np.where(np.isnan(column.numbers), found, above.astype(np.uint8))
    ones, zeros = asked.one, asked.zero
    if ones and not zeros:
        zeros = tuple(p[1] for p in PAIRS if _plain(ones[0]) == p[0])
    elif zeros and not ones:
        ones = tuple(p[0] for p in PAIRS if _plain(zeros[0]) == p[1])
    if not (asked.one or asked.zero):
        ones, zeros = ((pair[0],), (pair[1],)) if pair else ((), ())
    for code, given in ((ONE, ones), (ZERO, zeros)):
        words, values = {_plain(w) for w in given}, {number(w) for w in given} - {None}
        for k, text in enumerate(column.texts):
            same = _plain(text) in words or column.numbers[k] in values
            # A blank is a code where that is said.
            if same and (found[k] != GONE or text in given):
                found[k] = code
    if pair and not pair[0].isdigit():
        found[[_plain(t) in NO_ANSWERS for t in column.texts]] = GONE
    return found


def columns_of_bits(table: Table, parts: Parts, asked: Asked):
    """Return columns of ones and zeros: their codes, labels, names left out, and notes."""
    hot = [c for c in parts.values if c.name in asked.one_hot]
    columns = [c for c in parts.values if c.name not in asked.one_hot]
    if asked.binarize is not None and columns:
        check_ids_and_times(columns, asked)
        check_table(table, columns, parts, BINARY, asked)
    pairs = {id(c): pair_of(c) for c in columns}
    both = {p for c in columns if (p := pairs[id(c)]) and len({*map(_plain, c.words)} & {*p}) > 1}
    codes, fine, others = {}, [], []
    for column in columns:
        pair = pairs[id(column)]
        if pair in PAIRS[3:] and pair not in both:  # a letter alone says nothing
            pair = None
        own = codes[id(column)] = codes_of(column, asked, pair)
        (others if (own == ODD).any() else fine).append(column)
    shown = [pair for pair in PAIRS if any(pairs[id(c)] == pair for c in fine)]
    used = {*sum(shown, ()), *map(_plain, (*asked.one, *asked.zero))}
    wrong = [c for c in others if _holds_values(c, asked, used, bool(fine))]
    if wrong or not (fine or hot):
        raise _neither(table, parts, wrong or others, fine, asked)
    labels, out = labels_and_rest(others, asked)
    found = [(c.name, codes[id(c)][c.codes]) for c in fine]
    for column in hot:
        found += [
            (f"{column.name}={text}", np.where(column.missing, GONE, column.codes == k))
            for k, text in enumerate(column.texts) if not column.gone[k]
        ]  # fmt: skip
    unanswered = dict.fromkeys(n for c in fine for n in c.words if _plain(n) in NO_ANSWERS)
    said = tuple(f"{name!r} missing" for name in unanswered)
    return found, labels, out, _values_said(asked, shown), said


def _values_said(asked, shown) -> str:
    if asked.binarize is not None:
        return f"numbers, ones above {asked.binarize:g}"
    if asked.one or asked.zero:
        said = [("ones", asked.one), ("zeros", asked.zero)]
        return ", ".join(
            f"{what} {'/'.join(text or 'blank' for text in given)}" for what, given in said if given
        )
    return " and ".join(
        "0/1" if pair[0] == "1" else "/".join(word.capitalize() for word in pair) for pair in shown
    )


def _holds_values(column, asked, used, has_values) -> bool:
    """Say whether a column that is not all ones and zeros holds some, or might."""
    if not has_values or asked.columns is not None or not column.name:
        return True
    if any(_plain(w) in used for w in column.words):
        return True
    bits = {number(word) for word in used} - {None}
    if bits.intersection(column.seen):
        return True
    # Beside words a column of numbers is of something else; beside zeros and ones it may be a slip.
    return not column.is_text and bool(bits)


def _neither(table, parts, wrong, fine, asked) -> InputError:
    """Return the error for a column that is not of ones and zeros: name an odd cell, and ask."""
    counts = Counter()
    for one in (*fine, *wrong):
        counts.update(one.counts())
    odd, pair = (None, None) if asked.one or asked.zero else _odd_text(counts)
    slips = _slips(wrong, asked)
    column = next((c for c in wrong if odd in c.texts), None)
    if column is not None:
        at = int(np.argmax(column.codes == column.texts.index(odd)))
    elif slips is not None:
        (column, at), pair = slips.first, slips.pair
    else:
        pair, column = ("0", "1"), wrong[0]
        at = _first_odd(column, fine, asked)
    mend = (
        "" if slips is None else f"write {pair[0]}, {pair[1]} or nothing there{slips.others}, or "
    )
    asked_for = _declared(asked)
    ask = (
        _ask_of_codes(counts, (*fine, *wrong), mend, asked)
        if odd is None
        else _ask_of_one(odd, pair, counts, mend)
    )
    text = column.text(at)[:60]
    value = text if number(text) is not None else repr(text)
    where, line = table.where(at, column, parts)
    if fine and slips is None:
        out = [table.name_of(c) for c in wrong]
        ask += (
            f"; or leave out {quoted(out)} by ignore= (--ignore {shlex.quote(','.join(out[:6]))}), "
            "or name the columns of values by columns= (--columns)"
        )
    neither = asked_for or f"neither {pair[0]} nor {pair[1]}"
    return InputError(f"value {value} at {where} is {neither}{line}; {ask}")


def _declared(asked) -> str:
    """Say what a cell is not where ones or zeros were named; "" where none was."""
    said = [f"{quoted(own)} ({name}=)" for name, own in (("one", asked.one), ("zero", asked.zero))
            if own]  # fmt: skip
    if len(said) == 2:
        return f"neither {' nor '.join(said)}"
    return f"not {said[0]}" if said else ""


class _Slips(NamedTuple):
    """Cells that may be slips: how many, the first one, and texts for a zero and a one there."""

    number: int
    first: tuple[Column, int]
    pair: tuple[str, str]

    @property
    def others(self) -> str:
        """Say that there are more of them."""
        more = "another cell" if self.number == 2 else f"{self.number - 1} other cells"
        return f" and in {more}" if self.number > 1 else ""


def _slips(columns, asked) -> _Slips | None:
    """Return the cells of some columns that are neither ones nor zeros, where these are few."""
    found = []
    for pair in PAIRS if asked.binarize is None else ():
        if asked.one or asked.zero:
            odd = [codes_of(c, asked, None) == ODD for c in columns]
            pair = [(given or ("",))[0] or "blank" for given in (asked.zero, asked.one)]
        else:
            known = NO_ANSWERS.union(pair)
            odd = [
                np.array([_plain_code(t) not in known for t in c.texts]) & ~c.gone for c in columns
            ]
            pair = pair[::-1] if pair is PAIRS[0] else [word.capitalize() for word in pair]
        cells = [np.flatnonzero(own[c.codes]) for own, c in zip(odd, columns, strict=True)]
        first = next(((c, int(k[0])) for c, k in zip(columns, cells, strict=True) if len(k)), None)
        found.append(_Slips(sum(map(len, cells)), first, tuple(pair)))
    least = min(found, key=lambda slips: slips.number, default=None)
    rare = least is not None and 5 * least.number <= sum(int((~c.missing).sum()) for c in columns)
    return least if rare and 1 <= least.number <= MOST_SLIPS else None


def _odd_text(counts):
    """Return the one text beside two for a one and a zero, and these two as they are written.

    They are None where no two such texts are there, or several others.
    """
    for pair in PAIRS:
        beside = {t: c for t in counts if (c := _plain_code(t)) in pair}
        odd = [t for t in counts if t not in beside and _plain(t) not in NO_ANSWERS]
        if set(beside.values()) == set(pair) and len(odd) == 1:
            spelled = [max((t for t in beside if beside[t] == c), key=counts.get) for c in pair]
            spelled = spelled[::-1] if pair is PAIRS[0] else spelled
            return odd[0], spelled
    return None, None


def _plain_code(text) -> str:
    value = number(text)
    return f"{abs(value):g}" if value in (0, 1) else _plain(text)


def _ask_of_one(odd, pair, counts, mend) -> str:
    one, other = (f"{word} ({counts[word]})" for word in pair)
    what = "it means" if counts[odd] == 1 else f"the {counts[odd]} such cells mean"
    return (
        f"beside it are {one} and {other}: {mend}if {what} no answer, say "
        f"{option('missing', odd)}, or say which are ones and zeros by one=, zero= (--one, --zero)"
    )


def _first_odd(column, fine, asked) -> int:
    """Return the first cell of a column that is no one and no zero."""
    bad = (codes_of(column, asked, pair_of(column)) == ODD)[column.codes]
    if not (
        column.is_text or asked.one or asked.zero
    ):  # the first cell that the other columns would not have, if there are any
        is_bit = np.isin(column.texts, ("0", "1")) if fine else np.isin(column.numbers, (0, 1))
        odd = ~is_bit & ~column.gone
        bad = odd[column.codes] if odd.any() else bad
    return int(np.argmax(bad))


def _ask_of_rest(counts, columns, mend, asked) -> str:
    """Ask what the texts mean that are neither of the ones nor of the zeros that were named."""
    odd = {}
    for column in columns:
        codes = codes_of(column, asked, None)
        odd |= {text: counts[text] for text, code in zip(column.texts, codes, strict=True)
                if code == ODD}  # fmt: skip
    lacks = [name for name in ("one", "zero") if not getattr(asked, name)]
    if len(lacks) == 1 and len(odd) == 1:
        ask = f"say {option(lacks[0], next(iter(odd)))}"
    elif lacks:
        ask = f"say which are {lacks[0]}s by {lacks[0]}= (--{lacks[0]})"
    else:
        ask = "say what it is, too: one= and zero= (--one, --zero) may name several"
    left = "" if len(odd) > 12 else f"what is not named is {listed(odd)}: "
    return f"{left}{mend}{ask}, or missing= (--missing) if it means that there is none"


def _ask_of_codes(counts, columns, mend, asked) -> str:
    """Ask what the texts of some columns mean: list them if they are few."""
    if asked.one or asked.zero:
        return _ask_of_rest(counts, columns, mend, asked)
    signs = f"write them without a sign of percent or money{_IN_PANDAS}"
    if asked.binarize is not None and any(map(_WITH_SIGN.fullmatch, counts)):
        return f"{mend}binarize= is of numbers: {signs}"
    # As they were read, with decimal commas where the table has these.
    read = {t: v for c in columns for t, v in zip(c.texts, c.numbers, strict=True)}
    numbers = [None if np.isnan(read[word]) else float(read[word]) for word in counts]
    whole = None not in numbers and all(v >= 0 and v % 1 == 0 for v in numbers)
    few = len(counts) <= 12
    most = max(counts, key=counts.get)
    if few:
        ask = (
            f"the values are {listed(counts)}: {mend}say which are ones, zeros and missing by "
            "one=, zero=, missing= (--one, --zero, --missing)"
        )
    else:
        ask = f"{mend}say what is a one by one= and zero= (--one, --zero)"
    if len(counts) == 1 and any("" in column.texts for column in columns):
        ask += f"; where a blank means no, {option('one', most)}, {option('zero', '')}"
    if any(map(_WITH_SIGN.fullmatch, counts)):
        ask += f"; if they are numbers, {signs}, and say binarize= (--binarize T)"
    if len(columns) == 1 and all(re.search(r"\S\s+\S", word) for word in counts):
        ask += "; if blanks part the cells, write commas or tabs instead"
    if whole and number(most) == 0 and len(counts) > 3:
        ask += ", or, of counts, binarize=0 (--binarize 0)"
    elif None not in numbers and not few:
        ask += ", or binarize= (--binarize T) to make ones of numbers above T"
    if None not in numbers and len(counts) > 3:
        ask += ", or fit them as ratings or other numbers by model='pmf' (--model pmf)"
    return ask


def listed(counts: Mapping[str, int]) -> str:
    """List up to 12 values with how often they are there: numbers in order, texts by frequency.

    Examples
    --------
    >>> listed(Counter({"4": 9, "10": 2, "3.5": 7})), listed(Counter({"no": 2, "yes": 9}))
    ('3.5 (7), 4 (9), 10 (2)', 'yes (9), no (2)')
    """
    # Numbers among texts are codes, too.
    rising = all(number(text) is not None for text in counts)
    key = number if rising else lambda text: -counts[text]
    shown = sorted(counts, key=key)
    return ", ".join(f"{text} ({counts[text]})" for text in shown[:12]) + ", ..." * (
        len(shown) > 12
    )

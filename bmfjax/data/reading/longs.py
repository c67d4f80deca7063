"""Long data: lines of row, column and value, lists of pairs, and lines of items."""

from __future__ import annotations

import itertools
import re
import shlex
from array import array
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bmfjax.data.errors import InputError
from bmfjax.data.io.declared import NAME
from bmfjax.data.memory import require_memory
from bmfjax.data.names import are_ids, place_text
from bmfjax.data.reading.cells import (
    WORDS,
    Column,
    any_number,
    decimal_of,
    is_missing,
    is_value,
    number,
)
from bmfjax.data.reading.record import BINARY, RATINGS, REAL, Asked, Found, Reading, quoted
from bmfjax.data.reading.tables import (
    FEW,
    GONE,
    ID_NAMES,
    ODD,
    ONE,
    TIME_WORDS,
    USERS,
    ZERO,
    check_numbers,
    codes_of,
    has_header,
    is_id_name,
    listed,
    names_fitted,
    pair_of,
    words_in_name,
)

#: Words in the name of a field of ratings.
RATING_WORDS = frozenset(["rating", "ratings", "stars", "score", "value"])
#: The options that mean something for lines of items.
OF_ITEMS = frozenset(["layout", "missing", "encoding", "fitted"])
#: Different numbers from which on those with leading zeros are ids, and no codes of answers.
MOST_CODES = 12
#: Lines from which on those of two fields may be a list of pairs.
LONG = 6
#: The options that mean nothing for a list of pairs, so that a table is meant where they are given.
_OF_TABLES = frozenset(
    ["columns", "ignore", "label_column", "one_hot", "binarize", "one", "zero", "row_names"]
)
SAY = "layout='triples' or layout='table' (--layout on the command line)"
_SAY_TABLE = "layout='table' (--layout table) if lines are rows of a table"


class Roles(NamedTuple):
    """Which fields of a line are the row, the column and the value; no value in a list of pairs."""

    row: int
    column: int
    value: int | None
    named: bool = False  # by a header

    @property
    def width(self) -> int:
        return 1 + max(self.row, self.column, self.value or 0)


def _names_rating(name) -> bool:
    return not RATING_WORDS.isdisjoint(words_in_name(name))


def index_of(names, body) -> int:
    """Return 1 where the first field is the index that pandas wrote above such lines, else 0."""
    if len(names) < 3 or not (names[0] == "" or names[0].lower().startswith("unnamed: 0")):
        return 0
    own = [number(row[0]) for row in body]
    counts = None not in own and len(own) > 0 and own == [own[0] + k for k in range(len(own))]
    return int(counts and says_triples(names[1:]))


def says_triples(names) -> bool:
    """Say whether a header names a field of ratings, or two fields of ids."""
    low = [name.lower() for name in names]
    exact = any(name in RATING_WORDS for name in low)
    ids = sum(map(is_id_name, low))
    rated = any(map(_names_rating, low))
    return exact or (ids >= 2 and (rated or (len(low) > 2 and all(map(is_id_name, low[:2])))))


def roles_of(names, body, asked: Asked, with_value=True) -> Roles:
    """Say which fields are row, column and value, by the header or by their order."""
    if asked.columns is not None:
        return _chosen_roles(names, asked, with_value)
    if names and len(names) < (3 if with_value else 2):
        raise InputError(f"the table has {len(names)} columns; give three: row, column and value")
    if not names:
        return Roles(0, 1, 2 if with_value else None)
    start = index_of(names, body)
    left = list(range(start, len(names)))
    times = [k for k in left if TIME_WORDS.intersection(words_in_name(names[k]))]
    rated = [k for k in left if _names_rating(names[k]) and k not in times]
    exact = [k for k in rated if names[k].lower() in RATING_WORDS]
    rated = exact if len(exact) == 1 else rated
    if with_value and len(rated) > 1:
        raise InputError(
            f"the header has several fields of ratings, {quoted([names[k] for k in rated])}; say "
            "columns= (--columns) with the names of row, column and rating"
        )
    rest = [k for k in left if k not in times + rated]
    ids = [k for k in rest if is_id_name(names[k])]
    ids = ids[:2] if len(ids) >= 2 else rest[:2]
    if len(ids) == 2 and _kind_of(names[ids[0]]) == "item" and _kind_of(names[ids[1]]) == "user":
        ids.reverse()
    if not with_value:
        return Roles(*ids, None, True)
    if not rated and len(left) > 2 and left[2] in times:
        raise InputError(
            f"the third field is called {names[left[2]]!r}, which is no rating; say columns= "
            "(--columns) with the names of row, column and rating"
        )
    value = rated[0] if rated else left[2] if len(left) > 2 else 2
    return Roles(*(ids if len(ids) == 2 else (0, 1)), value, True)


def _kind_of(name) -> str:
    """Return "user" or "item" where a field of ids is called so, else ""."""
    stem = re.sub(r"[^a-z]*id$", "", name.lower())
    return "user" if stem in USERS else "item" if stem in ID_NAMES else ""


def _chosen_roles(names, asked, with_value) -> Roles:
    several = [p.strip() for text in asked.columns for p in text.split(",")]
    least = 3 if with_value else 2
    try:
        places = [names.index(p) if p in names else int(p) - 1 for p in several]
    except ValueError:
        raise InputError(
            f"columns is {', '.join(several)}; give names of the header ({', '.join(names[:8])}), "
            "or the numbers of the fields, from 1"
        ) from None
    if len(places) != least or min(places) < 0:
        what = "row, column and value" if with_value else "row and column"
        raise InputError(f"columns names {len(places)} fields of each line; give {what}")
    return Roles(*places, *(() if with_value else (None,)), bool(names))


# ---- which layout ---------------------------------------------------------------------------


def layout_of(head, kind, asked: Asked, separator=",") -> str:
    """Say what the lines of a text are, lists of fields; refuse what may be either."""
    if asked.layout != "auto":
        return asked.layout
    if head and asked.header is not False and names_fitted(head[0], asked):
        # Below a header no cell is a column's name: the first line is then one of items.
        fitted = set(asked.fitted).difference(WORDS)
        below = any(not fitted.isdisjoint(row) for row in head[1:])
        return "baskets" if kind == BINARY and below and _are_baskets(head) else "table"
    if kind == RATINGS:
        return _layout_of_ratings(head, asked, separator)
    if kind == BINARY and _are_baskets(head):
        return "baskets"
    body = head[1:]
    widths = {len(row) for row in head}
    if len(widths) != 1 or not body or (asked.header is False and _is_of_table(asked)):
        return "table"
    named = [""] * len(head[0]) if asked.header is False else head[0]
    start = index_of(named, body)
    if asked.header is False or (asked.header == "auto" and _begins_with_ids(head)):
        body = head
    ids = sum(is_id_name(name) for name in named)
    if ids >= 2 and len(named) - start > 2 and any(map(_names_rating, named)):
        return "triples"
    if len(named) - start == 3 or (kind == BINARY and len(named) - start == 2):
        return _layout_of_few(named[start:], [row[start:] for row in body], kind)
    return "table"


def _layout_of_few(names, body, kind) -> str:
    """Say whether lines of two or three fields are pairs: names that come again, and no values."""
    columns = [_column_of(*both) for both in zip(names, zip(*body, strict=True), strict=True)]
    if len(names) == 3 and not columns[0].is_text and _names_rating(names[0]):
        columns = columns[1:] + columns[:1]  # the value stands first
    one, two = columns[:2]
    if len(names) == 3 and kind == BINARY and pair_of(one) is not None:
        _refuse_value_first(columns)
    if any(pair_of(c) is not None or c.missing.any() for c in (one, two)):
        return "table"
    again = not one.is_distinct or not two.is_distinct
    several = not one.is_distinct and not two.is_distinct
    once = len({*zip(one.codes, two.codes, strict=True)}) == len(body)
    are_names = all(_is_of_names(c, other) for c, other in ((one, two), (two, one)))
    if kind == BINARY and several and once and not are_names:
        only_ones = len(names) == 2 or set(columns[2].words) == {"1"}
        are_names = only_ones and _are_bare_ids(one, two)
    # Two names and a number make no matrix of numbers, whatever comes twice.
    pairs = kind == REAL or once
    if len(names) == 2:
        return "pairs" if are_names and again else "table"
    if are_names and several and not pairs and pair_of(columns[2]) is not None:
        raise InputError(_twice(columns))
    return "triples" if are_names and several and pairs and not columns[2].is_text else "table"


def _column_of(name, texts) -> Column:
    """Make a column, whose numbers may have decimal commas."""
    found = Column.of_texts(name, texts)
    return Column.of_texts(name, texts, decimal=",") if found.is_text else found


def _is_of_table(asked: Asked) -> bool:
    return not _OF_TABLES.isdisjoint(asked.given())


def _begins_with_ids(head) -> bool:
    """Say whether a column of whole numbers begins with one, which is then no name of a field."""
    columns = list(zip(*head, strict=True))[:2]
    return any(all(cell.isdigit() for cell in column) for column in columns)


def _are_words(column) -> bool:
    """Say whether most cells are texts; a few may be numbers, such as an item called 7."""
    numbers = int((~np.isnan(column.values)).sum())
    return column.is_text or 2 * numbers < len(column) - int(column.missing.sum())


def _is_padded(column) -> bool:
    """Say whether whole numbers are written with leading zeros, as values are not."""
    words = column.words
    are_digits = len(words) > 2 and all(map(str.isdigit, words))
    return are_digits and any(word[0] == "0" and len(word) > 1 for word in words)


def _is_of_names(column, other) -> bool:
    """Say whether a column holds names, as far as it shows without its place in the file."""
    if _are_words(column) or (column.is_numeric and is_id_name(column.name)):
        return True
    return _is_padded(column) and (_are_words(other) or len(column.words) > MOST_CODES)


def _are_bare_ids(one, two) -> bool:
    """Say whether whole numbers without a header are ids: names, or ids, stand beside them."""
    many = all(len(column.words) > 2 for column in (one, two))
    return many and any(_is_of_names(a, b) and _is_bare(b) for a, b in ((one, two), (two, one)))


def _is_bare(column) -> bool:
    no_header = column.name == "" or column.name.isdigit()
    return no_header and all(map(str.isdigit, column.words))


def may_be_pairs(head, kind, asked: Asked) -> bool:
    """Say whether lines of few fields that make no table of ones and zeros may be pairs.

    They have two fields, or a third one of ones; the first two have many different texts.
    """
    if kind != BINARY or asked.layout != "auto" or _is_of_table(asked) or len(head) < LONG:
        return False
    if {len(row) for row in head} not in ({2}, {3}):
        return False
    columns = [Column.of_texts("", texts) for texts in zip(*head[1:], strict=True)]
    if columns[2:] and columns[2].words != ["1"]:
        return False
    whole = all((c.seen == np.rint(c.seen)).all() for c in columns[:2])
    return whole and all(len(c.words) > 2 for c in columns[:2])


def _twice(columns) -> str:
    """Say which pair stands twice in lines of two names and a value, which may be a table too."""
    one, two, value = columns
    pairs = Counter(zip(one.all_texts(), two.all_texts(), strict=True))
    twice = next(list(pair) for pair, count in pairs.items() if count > 1)
    return (
        f"its lines may be {quoted([one.name, two.name, value.name])} for row, column and value, "
        f"and the pair {quoted(twice)} is given twice; give every pair once, or say {SAY}"
    )


def _refuse_value_first(columns) -> None:
    """Refuse a column of ones and zeros before two of names that come again: no matrix is so."""
    value, one, two = columns
    if all(c.is_text and not c.is_distinct and pair_of(c) is None for c in (one, two)):
        order = f"{one.name},{two.name},{value.name}"
        raise InputError(
            f"its lines may be value, row and column; say columns='{order}' and layout='triples' "
            f"(--columns {shlex.quote(order)} --layout triples) if so, or {_SAY_TABLE}"
        )


def check_items(head) -> None:
    """Refuse lines of items, lists of fields, that may be rows of a table, or pairs, as well."""
    if len({len(line) for line in head}) != 1 or len(head[0]) < 2:
        return
    body, other = head[1:] or head, ""
    if all(pair_of(Column.of_texts("", cells)) for cells in list(zip(*body, strict=True))[1:]):
        other = "table"
    elif len(head[0]) == 2 and not are_ids(itertools.chain(*head)):
        may_be = {_layout_of_few(["user", "item"], lines, BINARY) for lines in (head, body)}
        other = "pairs" if "pairs" in may_be else ""
    if other:
        what = {"table": "rows of a table", "pairs": "a list of pairs"}[other]
        raise InputError(
            f"its lines have one length, and may be {what} or transactions of items; say "
            f"layout={other!r} or layout='baskets' (--layout)"
        )


def _are_baskets(head) -> bool:
    """Say whether lines are of names alone, of different lengths or filled by blanks at the end.

    Filled lines may be rows of a table, unless a name stands in several columns or they have more
    than two lengths.
    """
    rows = [list(itertools.dropwhile(lambda f: not f, reversed(row)))[::-1] for row in head]
    lengths = set(map(len, rows))
    if len(lengths) == 1 or any(is_value(f) or f.lower() in WORDS for row in rows for f in row):
        return False
    if len({len(row) for row in head}) > 1:
        return True
    places: dict[str, set[int]] = {}
    for row in rows:
        for k, item in enumerate(row):
            places.setdefault(item, set()).add(k)
    return len(lengths) > 2 or any(len(at) > 1 for at in places.values())


def _layout_of_ratings(head, asked, separator) -> str:
    header = asked.header
    if not head or len(separator) > 1:
        return "triples"
    if len(head[0]) > 2 and index_of(head[0], head[1:]):
        return "triples"
    marks = set(asked.missing)
    no_table = head[1:] and not _may_be_table([], head[1:], marks)
    # The header of R has a field less than the lines below it.
    if no_table and max(map(len, head[:2])) > FEW:
        return _layout_of_wide(head, header)
    if no_table and header == "auto" and head[0][0]:
        return "triples"  # whatever the first line is
    named = has_header(head, RATINGS, asked, "auto")
    names, body = (head[0], head[1:]) if named else ([], head)
    if names and names[0] == "":  # the corner above names of rows
        return "table"
    if not _may_be_table(names, body, marks) or says_triples(names):
        return "triples"
    width, blank = len(body[0]), any("" in row[1:] for row in body)
    if named and (blank or width > FEW or len(names) < width):  # R has no cell above names of rows
        return "table"
    if named:  # names of rows are distinct, and of users that rate more than once they are not
        found = "triples" if _repeat_names([row[0] for row in head]) else None
    elif width > FEW:
        found = None if _may_be_triples(body) else "table"
    elif width == FEW and not all(_is_rating(row[2]) for row in body):
        found = "table"
    else:
        found = "triples" if all(_is_id(field) for row in body for field in row[:2]) else None
    if found is None:
        raise _unclear()
    return found


def _layout_of_wide(head, header) -> str:
    """Say what lines of more fields than triples have are, of which some suit no table."""
    first = head[0]
    named = (first[0] == "" or number(first[2]) is None) if header == "auto" else header
    if named:
        return "triples" if says_triples(first) else "table"
    # Fields that are words in every line are no ratings; a word here and there may be a slip.
    fields = itertools.islice(zip(*head, strict=False), 1, None)
    if any(not any(is_value(f, True) for f in field) for field in fields):
        return "triples"
    raise _unclear()


def _unclear() -> InputError:
    return InputError(
        "its lines may be row, column and rating, or rows of a table with a rating in each cell; "
        f"say {SAY}"
    )


def _may_be_table(names, body, marks) -> bool:
    """Say whether every line has equally many fields: a name, then numbers or nothing."""
    widths = {len(row) for row in body}
    if len(widths) != 1 or (names and len(names) - len(body[0]) not in (0, -1)):
        return False
    values = (f in marks or is_value(f, True) for row in body for f in row[1:])
    return len(body[0]) > 2 and all(values)


def _may_be_triples(body) -> bool:
    """Say whether every line has the ids of a row and a column, each pair once, and a rating."""
    pairs = {tuple(row[:2]) for row in body}
    ids = all(field and _is_id(field) for pair in pairs for field in pair)
    return ids and len(pairs) == len(body) and all(_is_rating(row[2]) for row in body)


def _repeat_names(first) -> bool:
    """Say whether a first column repeats names, which are not numbers that might be ratings."""
    return len(set(first)) < len(first) and not all(is_value(f, True) for f in first[1:])


def _is_rating(field) -> bool:
    return any_number(field) is not None and not is_missing(field)


def _is_id(field) -> bool:
    value = any_number(field)
    return value is None or value == np.floor(value)


# ---- lines ----------------------------------------------------------------------------------


class _Names(dict):
    """The position of each name in the order in which they first occur."""

    def __init__(self):
        self.checked = 1 << 16

    def __missing__(self, name):
        position = self[name] = len(self)
        if position == self.checked:
            self.checked *= 2  # the table doubles
            what = f"a table of {self.checked:,} names"
            require_memory(self.checked * NAME, what, "give fewer rows and columns")
        return position


def read_lines(lines, layout, kind, asked: Asked) -> Found:
    """Read lines of row, column and value, or pairs; leave out further fields."""
    head = [fields for _, fields in lines.head(1000)]
    if not head:
        raise InputError("the file is empty; give a line for each rating")
    with_value = layout == "triples"
    header = asked.header
    if header == "auto":
        header = _is_header(head, with_value, asked)
    fields = head[0] if header else [f"field {k + 1}" for k in range(len(head[0]))]
    roles = roles_of(head[0] if header else [], head[1:], asked, with_value)
    used, decimal = [roles.row, roles.column, roles.value][: 2 + with_value], "."
    if with_value:
        texts = {row[roles.value] for row in head[1:] if len(row) > roles.value}
        decimal = decimal_of(texts.difference(asked.missing), asked.decimal, lines.separator)
    names, codes, at = [_Names() for _ in used], [array("q") for _ in used], array("q")
    for line, own in itertools.islice(lines, int(header), None):
        _check_fields(line, own, roles, lines.separator, kind)
        at.append(line)
        for k, place_of in enumerate(used):
            codes[k].append(names[k][own[place_of]])
    if not at:
        raise InputError("there is a header alone; give a line for each rating")
    columns = [
        Column(fields[place_of] if place_of < len(fields) else "", np.frombuffer(own, np.int64),
               list(texts), asked.missing if k == 2 else (), decimal)
        for k, (place_of, own, texts) in enumerate(zip(used, codes, names, strict=True))
    ]  # fmt: skip
    # The first line, for which a header may have been meant.
    unclear = asked.header == "auto" and not header
    found = found_of_lines(columns, at, kind, asked, layout, unclear)
    return with_fields(found, roles, fields)


def found_of_lines(columns, lines, kind, asked: Asked, layout, may_be_header=False) -> Found:
    """Return what the columns of row, column and, but of pairs, value hold; `lines` are numbers."""
    if asked.label_column:
        raise InputError("label_column means nothing for lines of row and column; leave it out")
    sides, value = columns[:2], columns[2] if columns[2:] else None
    if kind == BINARY:
        return bits_of_pairs([(side.codes, side.texts) for side in sides], value, asked, layout)
    odd = value.odd()
    if odd is not None:
        hint = ", or header=True (--header) if the line names the fields" * may_be_header
        hint = hint if odd == 0 else ""
        raise InputError(f"line {lines[odd]}: {value.text(odd)!r} is no number; give one{hint}")
    keep, own = ~value.missing, []
    for side in sides:  # what has no rating is no line
        codes, there = pd.factorize(np.asarray(side.codes)[keep])
        own.append((codes, [side.texts[k] for k in there]))
    return numbers_of_triples(own, value.values[keep], kind, asked, value.name)


def _check_fields(line, fields, roles, separator, kind):
    if len(fields) < roles.width:
        held = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
        what = "row, column and value" if roles.value is not None else "row and column"
        raise InputError(
            f"line {line}: {held}; give {what}, separated by {separator!r} as in the first line"
        )
    for what, at in (("row", roles.row), ("column", roles.column)):
        if not fields[at]:
            raise InputError(
                f"line {line}: the {what} is empty; name every {what}, or say {_SAY_TABLE}"
            )
    if kind != BINARY and not fields[roles.value]:
        raise InputError(f"line {line}: the rating is blank; delete the line, or say {_SAY_TABLE}")


def _is_header(head, with_value, asked) -> bool:
    """Say whether the first line names the fields."""
    first, second = head[0], head[1] if head[1:] else None
    if with_value:
        # A word without digits stands where a rating would, or names say so.
        if second is not None and len(first) != len(second):
            return False
        if len(first) > 2 and says_triples(first) and index_of(first, head[1:]):
            return True
        if any(is_id_name(f) for f in first[:2]) and not any(number(f) is not None for f in first):
            return True
        field = first[2] if len(first) > 2 else ""
        word = not is_value(field) and not any(c.isdigit() for c in field)
        codes = {m.lower() for m in (*asked.one, *asked.zero, *asked.missing)}
        lines = [row for row in head[1:] if len(row) > 1]
        ids = (first[k] in {row[k] for row in lines} for k in (0, 1))  # which name no field
        return word and field.lower() not in codes and not any(ids)
    if any(is_id_name(f) for f in first[:2]):
        return True
    below = [{row[k] for row in head[1:] if len(row) > k} for k in (0, 1)]
    if any(first[k] in below[k] or first[k].isdigit() for k in (0, 1)):
        return False
    if any(own and all(map(str.isdigit, own)) for own in below):  # a word above numbers
        return True
    raise InputError(
        "the first line may be a pair or names of columns; say header=True or header=False "
        "(--header, --no-header)"
    )


def with_fields(found: Found, roles: Roles, names) -> Found:
    """Add to a record which fields are the row and the column, and which were left out."""
    used = roles.row, roles.column, roles.value
    left = tuple(name for k, name in enumerate(names) if name and k not in used)
    # A header may have fewer fields than the lines.
    row, column = (
        repr(names[k]) if roles.named and k < len(names) else "" for k in (roles.row, roles.column)
    )
    how = replace(found.reading, row_names=row, column_names=column, ignored=left)
    return found._replace(reading=how)


# ---- what they make -------------------------------------------------------------------------


def merged(rows, columns, values, how, where):
    """Return triples in the order of rows and columns, each pair once.

    If there are several values for one pair, the last, the mean or the sum is kept;
    ``where(row, column)`` says where one is, for the message that refuses them.
    """
    order = np.lexsort((columns, rows))  # stable: the last of a pair stays the last
    rows, columns, values = rows[order], columns[order], values[order]
    again = np.flatnonzero((np.diff(rows) == 0) & (np.diff(columns) == 0))
    if not len(again):
        return rows, columns, values
    if how == "error":
        one, other = values[again[0] : again[0] + 2]
        raise InputError(
            f"{where(rows[again[0]], columns[again[0]])} is rated twice, {one:g} and {other:g}; "
            "give every pair once, or say duplicates='last', 'mean' or 'sum' (--duplicates)"
        )
    first = np.setdiff1d(np.arange(len(rows)), again + 1)
    if how == "last":
        kept = values[np.append(first[1:], len(rows)) - 1]
    else:
        kept = np.add.reduceat(values, first)
        kept = kept / np.diff(np.append(first, len(rows))) if how == "mean" else kept
    return rows[first], columns[first], kept


def numbers_of_triples(sides, values, kind, asked: Asked, field) -> Found:
    """Return ratings, or a matrix of numbers in which cells that are not listed are missing."""
    (rows, row_names), (columns, column_names) = sides

    def where(k):
        return place_text(int(rows[k]), int(columns[k]), row_names, column_names), ""

    check_numbers(values, f"{field} holds", kind, asked, where)
    names = {"row_names": row_names, "column_names": column_names}
    shape = (len(row_names), len(column_names))
    how = _reading("triples", shape, column_names, "ratings" if kind == RATINGS else "numbers")
    if kind == RATINGS:
        triples = {"rows": rows, "columns": columns, "values": values}
        more = {"scale": asked.scale, "duplicates": asked.duplicates, "shape": shape}
        return Found(triples | names | more, how)
    what = f"a table of {shape[0]:,} x {shape[1]:,} numbers"
    require_memory(25.0 * shape[0] * shape[1], what, "give fewer lines")
    table = np.full(shape, np.nan)
    at = merged(rows, columns, values, asked.duplicates, lambda i, j: place_text(
        int(i), int(j), row_names, column_names))  # fmt: skip
    table[at[0], at[1]] = at[2]
    return Found({"values": table} | names, how, ("cells that are not listed are missing",))


def bits_of_pairs(sides, values, asked: Asked, layout) -> Found:
    """Return a binary matrix: pairs alone are ones among zeros, beside listed zeros missing."""
    (rows, row_names), (columns, column_names) = sides
    shape = (len(row_names), len(column_names))
    codes, note = np.ones(len(rows), np.uint8), "pairs that are not listed are zeros"
    if values is not None:
        own = codes_of(values, asked, pair_of(values))
        if (own == ODD).any():
            counts = values.counts()
            ask = "say which are ones and zeros by one=, zero= (--one, --zero)"
            if all(number(text) is not None for text in counts):
                ask = (
                    "if they are ratings, fit them by model='pmf' (--model pmf), or read them by "
                    "load_ratings or, of a data frame, Ratings.from_frame; else "
                    f"{ask}, or make ones of numbers above T by binarize=T (--binarize T)"
                )
            raise InputError(
                f"its lines are row, column and value, and the values are {listed(counts)}: {ask}"
            )
        codes = own[values.codes]
    keep = codes < GONE
    rows, columns, codes = rows[keep], columns[keep], codes[keep]
    ones, zeros = (
        sp.csr_array((np.ones(n.sum(), bool), (rows[n], columns[n])), shape=shape)
        for n in (codes == ONE, codes == ZERO)
    )
    if zeros.multiply(ones).nnz:
        raise InputError("a pair is listed both as a one and as a zero; give every pair once")
    seen, values = None, "ones"
    if zeros.nnz:
        seen, values = (ones + zeros).astype(bool), "ones and zeros"
        note = "pairs that are not listed are missing"
    given = {"values": ones, "observed": seen, "row_names": row_names, "column_names": column_names}
    return Found(given, _reading(layout, shape, column_names, values), (note,))


def read_baskets(lines, asked: Asked) -> Found:
    """Read lines of items as transactions."""
    idle = [n for n, v in asked.given().items() if n not in OF_ITEMS and v is not False]
    if idle:
        raise InputError(
            f"{idle[0]} means nothing for lines of items; leave it out, or say {_SAY_TABLE}"
        )
    items, rows, columns, count, blank, due = _Names(), array("q"), array("q"), 0, 0, 0
    for line, fields in lines:
        blank += line - due if due else 0
        due = line + 1 + sum(item.count("\n") for item in fields)
        for item in fields:
            if item and item not in asked.missing:
                rows.append(count)
                columns.append(items[item])
        count += 1
    if not rows:
        raise InputError("the file holds no item; give one transaction a line")
    at = np.frombuffer(rows, np.int64), np.frombuffer(columns, np.int64)
    # As bools, so that an item given twice in a line is still a one.
    ones = sp.csr_array((np.ones(len(rows), bool), at), shape=(count, len(items)))
    names = list(items)
    how = _reading("baskets", ones.shape, names, "items")
    notes = (f"{blank} blank line{'s' * (blank > 1)} left out",) if blank else ()
    return Found({"values": ones, "column_names": names}, how, notes)


def _reading(layout, shape, names, values) -> Reading:
    return Reading(layout, shape, "", "", names[0], names[-1], values)

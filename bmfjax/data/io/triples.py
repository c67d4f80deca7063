"""Ratings as text: lines of row, column and rating, or a table with a rating in each cell."""

import csv
import itertools
import re
from array import array

import numpy as np

from bmfjax.data.errors import InputError
from bmfjax.data.io.declared import NAME, check_rating_lines, check_rating_table
from bmfjax.data.io.tables import Numbers, dissected, number
from bmfjax.data.memory import require_memory
from bmfjax.data.ratings import Ratings

#: Ways in which a text can hold ratings.
LAYOUTS = ("triples", "table")
#: What the third field of a header may be called, and others may not.
RATING_NAMES = ("rating", "ratings", "stars", "score", "value")
#: What the first two fields of a header may be called besides names that end in "id".
ID_NAMES = ("row", "user", "customer", "column", "item", "movie", "film", "product", "book")
#: What separates the fields, in the order in which it is looked for.
SEPARATORS = ("::", "\t", ";", ",", " ")
#: Lines by which the layout is told.
HEAD = 1000
#: Fields that lines of row, column, rating have at most where no header says so: a time besides.
MOST_FIELDS = 4
_SAY = "layout='triples' or layout='table' (--layout on the command line)"
_SAY_TABLE = "layout='table' (--layout table) if lines are rows of a table"
_MISSING = Numbers(())


def layout_of(path, header):
    """Say whether lines are triples or rows of a table; refuse where they may be either."""
    separator, lines = read_lines(path)
    head = [fields for _, fields in itertools.islice(lines, HEAD)]
    if not head or len(separator) > 1:
        return "triples"
    # The header of R has a field less than the lines below it.
    wide = max(map(len, head[:2])) > MOST_FIELDS
    if wide and head[1:] and not _may_be_table([], head[1:]):
        return _layout_of_wide(head, header)
    if header == "auto" and head[0][0] and head[1:] and not _may_be_table([], head[1:]):
        return "triples"  # whatever the first line is
    named = names_columns(head) if header == "auto" else header
    names, body = (head[0], head[1:]) if named else ([], head)
    if names and names[0] == "":  # the corner above names of rows
        return "table"
    if not _may_be_table(names, body) or _says_triples(names):
        return "triples"
    width, blank = len(body[0]), any("" in row[1:] for row in body)
    if names and len(names) < width:  # as R writes it: no cell above the row names
        return "table"
    if named and (blank or width > MOST_FIELDS):
        return "table"
    if named:  # names of rows are distinct, and of users that rate more than once they are not
        found = "triples" if _repeat_names([row[0] for row in head]) else None
    elif width > MOST_FIELDS:
        found = None if _may_be_triples(body) else "table"
    elif width == MOST_FIELDS and not all(_is_rating(row[2]) for row in body):
        found = "table"
    else:
        found = "triples" if all(_is_id(field) for row in body for field in row[:2]) else None
    if found is None:
        raise _unclear()
    return found


def _layout_of_wide(head, header):
    """Say what lines of more fields than triples have are, of which some suit no table."""
    first = head[0]
    named = (first[0] == "" or number(first[2]) is None) if header == "auto" else header
    if named:
        return "triples" if _says_triples(first) else "table"
    # Fields that are words in every line are no ratings; a word here and there may be a slip.
    fields = itertools.islice(zip(*head, strict=False), 1, None)
    if any(not any(map(_MISSING.accepts, field)) for field in fields):
        return "triples"
    raise _unclear()


def _unclear():
    return InputError(
        "its lines may be row, column and rating, or rows of a table with a rating in each cell; "
        f"say {_SAY}"
    )


def names_columns(head, layout="auto"):
    """Say whether the first line of a table names its columns; refuse if it may be ratings.

    A name may be a number, as of films by their number: then the line has no row name where others
    have numbers, or counts upwards beyond the ratings.
    """
    first, body = head[0], head[1:]
    if not _MISSING.are_values(first[1:]) or first[0] == "":
        return True
    word = number(first[0]) is None
    if word and body and all(number(row[0]) is not None for row in body):
        return True
    # Few numbers may rise by chance, and lines that may be no table have nothing to name.
    few = len(first) <= MOST_FIELDS
    if (few and not (word and layout == "table")) or not _rises(first[1:]):
        return False
    if body and all(len(row) == len(first) + 1 for row in body):  # as R writes it
        return True
    if word and is_id_name(first[0]):
        return True
    if few or _counted([row[0] for row in head]) or not _beyond(first[1:], body):
        raise InputError(
            "the first line may be ratings or names of columns; say header=True or header=False "
            "(--header, --no-header)"
        )
    return True


def _rises(fields):
    """Say whether at least two whole numbers rise."""
    if len(fields) < 2 or not all(map(_is_whole, fields)):
        return False
    return bool((np.diff([number(field) for field in fields]) > 0).all())


def _beyond(fields, body):
    """Say whether one of the rising fields lies outside the range of the fields below."""
    below = [_MISSING[text] for row in body for text in row[1:] if _MISSING.accepts(text)]
    if np.isnan(below).all():
        return True
    return number(fields[0]) < np.nanmin(below) or number(fields[-1]) > np.nanmax(below)


def _counted(first):
    """Say whether a first column numbers the rows: it is whole and distinct, as ratings are not."""
    return all(map(_is_whole, first)) and len(set(first)) == len(first) > 1


def is_id_name(name):
    """Say whether a header may call the field of rows or columns so."""
    return name.lower().endswith("id") or name.lower() in ID_NAMES


def _says_triples(names):
    """Say whether a header names a field of ratings, or two fields of ids."""
    low = [name.lower() for name in names]
    return any(name in RATING_NAMES for name in low) or (
        len(low) > 2 and all(map(is_id_name, low[:2]))
    )


def _may_be_table(names, body):
    """Say whether every line has equally many fields: a name, then numbers or nothing."""
    widths = {len(row) for row in body}
    if len(widths) != 1 or (names and len(names) - len(body[0]) not in (0, -1)):
        return False
    return len(body[0]) > 2 and all(_MISSING.are_values(row[1:]) for row in body)


def _may_be_triples(body):
    """Say whether every line has the ids of a row and a column, each pair once, and a rating."""
    pairs = {tuple(row[:2]) for row in body}
    ids = all(field and _is_id(field) for pair in pairs for field in pair)
    return ids and len(pairs) == len(body) and all(_is_rating(row[2]) for row in body)


def _repeat_names(first):
    """Say whether a first column repeats names, which are not numbers that might be ratings."""
    return len(set(first)) < len(first) and not _MISSING.are_values(first[1:])


def _is_rating(field):
    return not np.isnan(_MISSING[field])


def _is_id(field):
    return number(field) is None or _is_whole(field)


def _is_whole(field):
    value = number(field)
    return value is not None and value == np.floor(value)


# ---- triples ----------------------------------------------------------------------------------


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


def read_triples(path, header):
    """Read ratings from lines of row, column and value; leave out further fields."""
    separator, lines = read_lines(path)
    two = list(itertools.islice(lines, 2))
    if not two:
        raise InputError("the file is empty; give a line for each rating")
    # The line for which a header may have been meant.
    unclear = two[0][0] if header == "auto" else None
    if header is True or (header == "auto" and _is_header(*(fields for _, fields in two))):
        unclear = None
        _check_order(two.pop(0)[1])
    names, positions, values = (_Names(), _Names()), (array("q"), array("q")), array("d")
    for line, fields in itertools.chain(two, lines):
        if len(fields) < 3:
            held = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
            raise InputError(
                f"line {line}: {held}; give row, column and value, "
                f"separated by {separator!r} as in the first line"
            )
        for k, what in enumerate(("row", "column")):
            if not fields[k]:
                raise InputError(
                    f"line {line}: the {what} is empty; name every {what}, or say {_SAY_TABLE}"
                )
            positions[k].append(names[k][fields[k]])
        values.append(_rating(line, fields[2], line == unclear))
    if not values:
        raise InputError("there is a header alone; give a line for each rating")
    rows, columns = (np.frombuffer(side, dtype=np.int64) for side in positions)
    return Ratings(
        rows, columns, np.frombuffer(values), row_names=names[0], column_names=names[1],
        name=path.stem,
    )  # fmt: skip


def _rating(line, field, may_be_header):
    if not field:
        raise InputError(f"line {line}: the rating is blank; delete the line, or say {_SAY_TABLE}")
    value = number(field)
    if value is None:
        hint = ", or header=True (--header) if the line names the fields" if may_be_header else ""
        raise InputError(f"line {line}: {field!r} is no number; give one{hint}")
    return value


def _is_header(first, second=None):
    """Say whether a word without digits stands where a rating would.

    Neither an empty field is a header, nor a line with more or fewer fields than the next.
    """
    field = first[2] if len(first) > 2 else ""
    word = bool(field) and number(field) is None and not any(c.isdigit() for c in field)
    return word and (second is None or len(first) == len(second))


def _check_order(names):
    """Refuse a header that calls another field the rating."""
    at = [k for k, name in enumerate(names) if name.lower() in RATING_NAMES]
    if at and 2 not in at:
        raise InputError(
            f"the header has {names[at[0]]!r} as field {at[0] + 1}, and the third is read "
            "as the rating; put row, column and rating first, in this order, or say "
            "layout='table' if it is a table"
        )


# ---- a table ----------------------------------------------------------------------------------


def read_table_of_ratings(path, header):
    """Read ratings from the cells of a table; blank and missing cells have none."""
    check_rating_table(path)
    body = list(read_lines(path)[1])
    if not body:
        raise InputError("the file is empty; give a table with at least one row")
    if header == "auto":
        header = names_columns([fields for _, fields in body], "table")
    first = [fields[0] for _, fields in body[header:]]
    body, sides = dissected(body, _MISSING, header, True if _counted(first) else "auto", None)
    rows, columns, values = [], [], []
    for i, (line, row) in enumerate(body):
        numbers = np.array([_cell(line, text) for text in row])
        rated = np.flatnonzero(~np.isnan(numbers))
        rows.append(np.full(len(rated), i))
        columns.append(rated)
        values.append(numbers[rated])
    sides.pop("row_labels")
    triples = map(np.concatenate, (rows, columns, values))
    return Ratings(*triples, shape=(len(body), len(body[0][1])), name=path.stem, **sides)


def _cell(line, text):
    try:
        return _MISSING[text]
    except ValueError:
        raise InputError(
            f"line {line}: {text[:60]!r} is no number; write a rating or nothing in each "
            "cell, and the names of rows in the first column"
        ) from None


# ---- lines ------------------------------------------------------------------------------------


def read_lines(path, least=3):
    """Return the separator, and an iterator of (line number, fields) of lines that are not blank.

    The separator is the one that gives every line `least` fields or more.
    """
    try:
        check_rating_lines(path)  # before the first line, which may be the whole file
        with open(path, encoding="utf-8-sig") as stream:
            lines = list(itertools.islice((line for line in stream if line.strip()), 10))
    except UnicodeDecodeError as err:
        raise _not_utf8(path) from err
    except OSError as err:
        raise InputError(f"it cannot be read: {err.strerror or err}; give another") from err
    separator = _separator(lines, least)
    return separator, _fields(path, separator)


def _separator(lines, least):
    """Return what parts the first lines into equally many fields, or else what the first holds."""
    for separator in SEPARATORS:
        if len(separator) > 1:
            widths = {len(line.split(separator)) for line in lines}
        else:
            widths = {len(row) for row in csv.reader(lines, delimiter=separator)}
        if len(widths) == 1 and min(widths) >= least:
            return separator
    bare = re.sub('"[^"]*"', "", lines[0] if lines else "")
    return next((s for s in SEPARATORS if s in bare), ",")


def _fields(path, separator):
    began = 1
    try:
        if len(separator) > 1:  # as MovieLens writes them, without quotes
            with open(path, encoding="utf-8-sig") as stream:
                for line, text in enumerate(stream, start=1):
                    if text.strip():
                        yield line, [field.strip() for field in text.split(separator)]
            return
        with open(path, encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter=separator, skipinitialspace=True, strict=True)
            for fields in reader:
                if len(fields) > 1 or any(field.strip() for field in fields):
                    yield began, [field.strip() for field in fields]
                began = reader.line_num + 1
    except UnicodeDecodeError as err:
        raise _not_utf8(path) from err
    except csv.Error as err:
        raise InputError(
            f"line {began}: {err}; close every double quote, and write two for one inside"
        ) from err


def _not_utf8(path):
    """Return the error for a file of another encoding, with the line."""
    with open(path, "rb") as stream:
        line = next(k for k, text in enumerate(stream, start=1) if not _is_utf8(text))
    return InputError(f"line {line}: not UTF-8; save the file in that encoding")


def _is_utf8(text):
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True

"""Tables as text: .csv and .tsv, with or without a header and row names."""

import csv
import itertools

import numpy as np

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.errors import InputError
from bmfjax.data.io.declared import BINARY_ENTRY, REAL_ENTRY, check_table_text
from bmfjax.data.names import place
from bmfjax.data.real import RealMatrix

# What pandas takes for a missing cell, in lower case.
MISSING_MARKS = frozenset(
    ["", "#n/a", "#n/a n/a", "#na", "-1.#ind", "-1.#qnan", "-nan", "1.#ind", "1.#qnan"]
) | {"<na>", "n/a", "na", "nan", "none", "null"}
_WORDS = {"true": 1.0, "false": 0.0}
_ZERO, _ONE, _MISSING = 0, 1, 2


class Cells(dict):
    """The code of a cell (0, 1, 2 for missing) by its text; a text seen again costs a look-up.

    Raises ValueError for a text that is neither missing, nor 0, 1, true or false, nor, where there
    is a threshold, a number.
    """

    def __init__(self, missing, binarize):
        super().__init__(dict.fromkeys(missing, _MISSING))
        self.binarize = binarize

    def __missing__(self, text):
        code = self._code(text.strip())
        if len(self) < 10_000:
            self[text] = code
        return code

    def _code(self, text):
        if text in self:
            return self[text]  # seen before without the blanks around it
        if text.lower() in MISSING_MARKS:
            return _MISSING
        value = _number(text)
        if value is None:
            raise ValueError(text)
        if np.isnan(value):
            return _MISSING
        if self.binarize is not None:
            return _ONE if value > self.binarize else _ZERO
        if value not in (0, 1):
            raise ValueError(text)
        return int(value)

    def accepts(self, text):
        """Say whether a text has a code."""
        try:
            self[text]
        except ValueError:
            return False
        return True

    def are_values(self, texts):
        """Say whether each text is a cell (a number of any size, or missing) and not a name."""
        return all(
            text in self or text.lower() in MISSING_MARKS or _number(text) is not None
            for text in map(str.strip, texts)
        )


class Numbers(dict):
    """The number of a cell by its text, NaN for missing; ValueError for what is none."""

    def __init__(self, missing):
        super().__init__(dict.fromkeys(missing, np.nan))

    def __missing__(self, text):
        text = text.strip()
        if text in self.keys() or text.lower() in MISSING_MARKS:
            return np.nan
        value = _number(text)
        if value is None:
            raise ValueError(text)
        return value

    accepts, are_values = Cells.accepts, Cells.are_values


def read_table(path, *, missing, binarize, header, row_names, label_column):
    """Read a .csv or .tsv file; `bmfjax.data.load` says how its parts are told apart."""
    cells = Cells(missing, binarize)
    check_table_text(path, 2 + BINARY_ENTRY)
    body, sides = _parts(path, cells, header, row_names, label_column)
    codes = _codes(body, cells, sides["row_names"], sides["column_names"])
    return BinaryMatrix(codes == _ONE, observed=codes != _MISSING, **sides)


def read_real_table(path, *, missing, header, row_names, label_column):
    """Read a .csv or .tsv file of numbers of any size; its parts are told apart as there."""
    cells = Numbers(missing)
    check_table_text(path, 8 + REAL_ENTRY)
    body, sides = _parts(path, cells, header, row_names, label_column)
    values = np.empty((len(body), len(body[0][1])))
    for i, (line, row) in enumerate(body):
        try:
            values[i] = [cells[text] for text in row]
        except ValueError:
            j = next(j for j, text in enumerate(row) if not cells.accepts(text))
            where = place(i, j, sides["row_names"], sides["column_names"])
            raise InputError(
                f"value {row[j].strip()[:60]!r} at {where} is no number (line {line} of the "
                "file); write a number or nothing, or tell header=, row_names= or label_column= "
                f"what is no value (missing={[row[j].strip()[:60]]!r} would make it missing)"
            ) from None
        body[i] = None  # freed at once: the texts are larger than the numbers
    return RealMatrix(values, **sides)


def _parts(path, cells, header, row_names, label_column):
    """Read the cells of a table as (line number, texts), and the names of its sides."""
    with open(path, encoding="utf-8-sig", newline="") as stream:
        try:
            body = list(_lines(stream, path))
        except UnicodeDecodeError as err:
            raise InputError("the file is not UTF-8 text; save it as UTF-8") from err
    body, sides = dissected(body, cells, header, row_names, label_column)
    return body, sides | {"name": path.stem}


def dissected(body, cells, header, row_names, label_column):
    """Part the lines of a table, (line number, texts), from its header, row names and labels.

    The options are those of `bmfjax.data.load`; the names come as arguments of a matrix.
    """
    if not body:
        raise InputError("the file is empty; give a table with at least one row")
    names = None
    if _has_header(body[0][1], cells, header, label_column):
        names = [name.strip() for name in body.pop(0)[1]]
    if not body:
        raise InputError("there is a header and no row below it; give at least one row")
    width = len(body[0][1])
    if names is not None and len(names) == width - 1 and row_names is not False:
        names, row_names = ["", *names], True  # as R writes it: no cell above the row names
    _check_widths(names, body, width)
    labels = _take_labels(names, body, label_column)
    rows = _take_row_names(names, body, cells, row_names)
    return body, {"row_names": rows, "column_names": names, "row_labels": labels}


def _lines(stream, path):
    """Yield (line number, cells) of every line that is not blank."""
    delimiter = "\t"
    if path.suffix.lower() == ".csv":
        head = list(itertools.islice((line for line in stream if line.strip()), 2))
        stream.seek(0)
        delimiter = _delimiter(head)
    reader = csv.reader(stream, delimiter=delimiter, strict=True)
    for row in reader:
        if row and (len(row) > 1 or row[0].strip()):
            yield reader.line_num, row


def _delimiter(head):
    """Return the separator of a .csv by its first two lines."""
    for delimiter in ",;\t":
        widths = {len(row) for row in csv.reader(head, delimiter=delimiter)}
        if len(widths) == 1 and widths != {1}:
            return delimiter
    # A line of values tells more than a header, whose names may hold anything.
    return max(",;\t", key=head[-1].count) if head else ","


def _has_header(first, cells, header, label_column):
    if label_column is not None:
        if header is False:
            raise InputError(
                f"label_column is {label_column!r} and header=False says that columns have no "
                "names; leave one of them out"
            )
        return True
    if header != "auto":
        return header
    # Not the first cell of many: it may be the name of a row.
    return not cells.are_values(first[1:] if len(first) > 1 else first)


def _check_widths(names, body, width):
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


def _take_labels(names, body, label_column):
    """Remove the label column from names and rows and return it, or None."""
    if label_column is None:
        return None
    if names.count(label_column) != 1:
        raise InputError(
            f"label_column is {label_column!r} and {names.count(label_column)} columns of the "
            f"header have that name; give one of {', '.join(names[:8])}"
        )
    if len(names) == 1:
        raise InputError("the table has no column beside the labels; give at least one of values")
    position = names.index(label_column)
    del names[position]
    return [row.pop(position).strip() for _, row in body]


def _take_row_names(names, body, cells, row_names):
    """Remove the row names from names and rows and return them, or None."""
    if row_names == "auto":
        above = names[0] if names else None
        row_names = above == "" or not cells.are_values(row[0] for _, row in body)
    if not row_names:
        return None
    if len(body[0][1]) < 2:
        raise InputError(
            "the only column holds row names; give a table with values, or row_names=False"
        )
    if names is not None:
        del names[0]
    return [row.pop(0).strip() for _, row in body]


def _codes(body, cells, row_names, column_names):
    """Return the cells as uint8 codes (rows, columns)."""
    width = len(body[0][1])
    codes = np.empty((len(body), width), dtype=np.uint8)
    for i, (line, row) in enumerate(body):
        try:
            codes[i] = np.frombuffer(bytes(map(cells.__getitem__, row)), dtype=np.uint8)
        except ValueError:
            raise _wrong_cell(cells, row, i, line, row_names, column_names) from None
        body[i] = None  # freed at once: the texts are larger than the codes
    return codes


def _wrong_cell(cells, row, i, line, row_names, column_names):
    """Return the error for the first cell of a row that `cells` refuses."""
    j = next(j for j, text in enumerate(row) if not cells.accepts(text))
    text = row[j].strip()
    if _number(text) is None:
        value, hint = repr(text[:60]), f"missing={[text[:60]]!r} would make it missing"
    else:
        value, hint = text, "binarize=0 would make what is above 0 a one"
    return InputError(
        f"value {value} at {place(i, j, row_names, column_names)} is neither 0 nor 1 (line {line} "
        f"of the file); write 0, 1, true, false or nothing, or tell header=, row_names= or "
        f"label_column= what is no value ({hint})"
    )


def _number(text):
    """Return the number of a text, or of the word for one; None where it is neither."""
    word = _WORDS.get(text.strip().lower())
    return number(text) if word is None else word


def number(text):
    """Return the number of a text, or None; Python would take 1_0 for digits apart."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None

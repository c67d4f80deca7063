"""The one door: a text or a data frame comes in, the arguments of a matrix and a record go out."""

from __future__ import annotations

import contextlib
from pathlib import Path

import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd

from bmfjax.data.checks import is_real
from bmfjax.data.errors import InputError
from bmfjax.data.io.declared import RATING, SMALLER, check_text
from bmfjax.data.io.files import reading
from bmfjax.data.names import names_of_index
from bmfjax.data.reading import longs, tables
from bmfjax.data.reading.cells import Column
from bmfjax.data.reading.record import BINARY, RATINGS, REAL, Asked, Found, Reading
from bmfjax.data.reading.text import Lines, Sheet, ending_of, read_lines

#: Lines by which the layout is told.
HEAD = 1000
#: Bytes for each cell of a text, besides its characters.
_BYTES = {BINARY: 6, REAL: 25}


def read_text(path, kind, asked: Asked) -> Found:
    """Read a text file, packed or not, or an Excel file."""
    if path.suffix.lower() == ".xlsx":
        lines = Sheet(path)
    else:
        # Before the first line, which may be the whole file.
        if kind == RATINGS:
            remedy = "give fewer ratings, or use a machine with more memory"
            check_text(path, "ratings from a text", remedy, strings=False, a_line=RATING)
        else:
            remedy = f"give it as .npz, .npy or .mtx, or {SMALLER}"
            check_text(path, "a table as text", remedy, a_cell=_BYTES[kind])
        lines = read_lines(path, asked.encoding, 3 if kind == RATINGS else 2)
    head = [fields for _, fields in lines.head(HEAD)]
    by_ending = ending_of(path) == ".basket" and kind == BINARY
    if by_ending and asked.given().keys() <= longs.OF_ITEMS and asked.layout == "auto":
        longs.check_items(head)
        layout = "baskets"
    else:
        layout = longs.layout_of(head, kind, asked, lines.separator)
    if layout == "baskets":
        found = longs.read_baskets(lines, asked)
    elif layout != "table":
        found = longs.read_lines(lines, layout, kind, asked)
    else:
        if isinstance(lines, Lines) and kind == RATINGS:
            remedy = "give it as lines of row, column and rating, or fewer ratings"
            check_text(path, "a table of ratings as text", remedy, a_filled=RATING)
        with _saying_pairs(head, kind, asked):
            found = read_table(
                tables.table_of_lines(list(lines), kind, asked, lines.separator), kind, asked
            )
    return found._replace(notes=(*found.notes, *lines.notes))


def read_named_lines(
    path, what: str, fields: str, *, decimal="auto", encoding=None
) -> tuple[list[str], list[Column]]:
    """Read a file whose first line names columns, and whose lines begin with their names.

    `what` the table is of, and the `fields` of a line, are for messages.
    """
    asked = Asked.of(header=True, decimal=decimal)
    path = Path(path)
    with reading(path):
        if not path.is_file():
            raise InputError(f"there is no such file; give a table of {what}")
        lines = Sheet(path) if path.suffix.lower() == ".xlsx" else read_lines(path, encoding)
        named, *columns = tables.table_of_lines(list(lines), REAL, asked, lines.separator).columns
        if not columns:
            raise InputError(f"it has 1 field a line; give {fields}")
    return named.all_texts(), columns


def found_in(frame, kind, options) -> Found:
    """Read a data frame of any library, with the options of a loader."""
    own = as_frame(frame)
    if not isinstance(own, pd.DataFrame):
        raise TypeError(f"frame is a {type(frame).__name__}; give a DataFrame")
    try:
        asked = Asked.of(**options)
    except TypeError as err:
        raise TypeError(str(err).replace("Asked.__init__()", "from_frame()")) from None
    return read_frame(own, kind, asked)


def read_frame(frame: pd.DataFrame, kind, asked: Asked) -> Found:
    """Read a data frame whose columns are values, names, labels and others, or lines of ratings."""
    names = [str(name) for name in frame.columns]
    index = names_of_index(frame.index)
    columns = [Column.of_series(frame.iloc[:, j], asked.missing) for j in range(len(names))]
    if not columns or not len(frame):
        raise InputError(f"the table is empty: {len(frame)} rows and {len(columns)} columns")
    # What is left of a frame has an index with gaps.
    by_itself = frame.index.name is None and pd.api.types.is_integer_dtype(frame.index.dtype)
    lines = []
    if (index is None or by_itself) and asked.layout != "table":
        head = [names, *([str(cell) for cell in row]
                         for row in frame.head(HEAD).itertuples(index=False))]  # fmt: skip
        named = Asked(**asked.given() | {"header": True})
        layout = _layout_of_frame(head, kind, named)
        if layout != "table":
            return _long_frame(columns, names, head, layout, kind, named)
        lines = head
    counted = names_of_index(frame.columns) is None
    if index is not None:
        columns = [Column.of_texts(str(frame.index.name or ""), list(map(str, index))), *columns]
        names = [columns[0].name, *names]
        asked = Asked(**asked.given() | {"row_names": True})
    with _saying_pairs(lines, kind, asked):
        return read_table(tables.Table(None if counted else names, columns), kind, asked)


@contextlib.contextmanager
def _saying_pairs(head, kind, asked):
    """Let the refusal of a table of few fields name the list of pairs that it may be."""
    try:
        yield
    except InputError as err:
        if not longs.may_be_pairs(head, kind, asked):
            raise
        what, _, ask = str(err).partition("; ")
        raise InputError(f"{what}; {tables.SAY_PAIRS}; else {ask}") from err


def _layout_of_frame(head, kind, asked) -> str:
    if kind != RATINGS or asked.layout != "auto":
        return longs.layout_of(head, kind, asked)
    named = asked.columns is not None and len(asked.columns) == 3
    return "triples" if named or longs.says_triples(head[0]) else "table"


def _long_frame(columns, names, head, layout, kind, asked) -> Found:
    """Read the lines of a data frame as row, column and value, or as pairs."""
    with_value = layout == "triples"
    roles = longs.roles_of(names, head[1:], asked, with_value)
    own = [columns[at] for at in (roles.row, roles.column, roles.value)[: 2 + with_value]]
    for what, column in zip(("row", "column"), own, strict=False):
        if column.missing.any():
            line = int(np.argmax(column.missing)) + 1
            raise InputError(f"line {line} has no {what}; give every id, in column {column.name!r}")
    lines = range(1, len(columns[0]) + 1)
    return longs.with_fields(longs.found_of_lines(own, lines, kind, asked, layout), roles, names)


def read_table(table: tables.Table, kind, asked: Asked) -> Found:
    """Decide what each column of a table is, and return its values."""
    asked = tables.with_fitted(table, asked)
    parts = tables.roles_of(table, kind, asked)
    notes = ()
    if kind == BINARY:
        bits, labels, out, said, notes = tables.columns_of_bits(table, parts, asked)
        names = [name for name, _ in bits]
        codes = np.column_stack([column for _, column in bits])
        given = {"values": codes == tables.ONE, "observed": codes != tables.GONE}
        missing = float(np.mean(codes == tables.GONE))
    else:
        columns, texts = tables.numbers_of(table, parts, kind, asked)
        labels, out = tables.labels_and_rest(texts, asked)
        names = [column.name for column in columns]
        values = np.column_stack([column.values for column in columns])
        tables.check_table(table, columns, parts, kind, asked)
        said, missing = ("ratings" if kind == RATINGS else "numbers"), np.isnan(values).mean()
        given = {"values": values}
        if kind == RATINGS:
            at = np.nonzero(~np.isnan(values))
            given = {"rows": at[0], "columns": at[1], "values": values[at], "shape": values.shape,
                     "scale": asked.scale}  # fmt: skip
    labels = [*parts.labels, *labels]
    if labels:
        texts = [["" if gone else text for text, gone in zip(c.all_texts(), c.missing, strict=True)]
                 for c in labels]  # fmt: skip
        given["row_labels"] = [" / ".join(row) for row in zip(*texts, strict=True)]
    given |= {"row_names": parts.row_names, "column_names": None if table.names is None else names}
    shape = (len(table.columns[0]), len(names))
    how = Reading(
        "table", shape, parts.names_from, "first line" if table.lines and table.names else "",
        names[0], names[-1], said, tuple(c.name for c in labels), (*parts.ignored, *out),
        float(missing),
    )  # fmt: skip
    return Found(given, how, (*table.notes, *notes))


# ---- frames of other libraries --------------------------------------------------------------


def as_frame(values):
    """Return a frame of polars, pyarrow and others as one of pandas; anything else as it is."""
    if isinstance(values, pd.DataFrame):
        return values
    found = nw.from_native(values, eager_only=True, pass_through=True)
    if not isinstance(found, nw.DataFrame):
        return values
    columns = {}
    for name in found.columns:
        own = found[name]
        plain = own.dtype.is_numeric() or own.dtype == nw.Boolean
        columns[name] = own.to_numpy() if plain and not own.null_count() else own.to_list()
    return pd.DataFrame(columns)


def is_frame(values) -> bool:
    """Say whether values are a data frame that a reading takes apart, and no plain table of bits.

    A sparse frame, and one of zeros and ones alone, are values already.
    """
    own = as_frame(values)
    if not isinstance(own, pd.DataFrame):
        return False
    if any(isinstance(kind, pd.SparseDtype) for kind in own.dtypes):
        return False
    return not (
        all(map(is_real, own.dtypes)) and own.isin([0, 1]).where(own.notna(), True).all(axis=None)
    )


def holds_lines(frame) -> bool:
    """Say whether a data frame has a line for each rating."""
    own = as_frame(frame)
    return own.shape[1] > 2 and longs.says_triples([str(name) for name in own.columns])


def decoded(table: np.ndarray) -> np.ndarray:
    """Return an array of texts such as "0" and "1", or "yes" and "no", as numbers; NaN is missing.

    Anything else comes back as it is.
    """
    if table.dtype.kind != "O" or table.ndim != 2 or 0 in table.shape:
        return table
    gone = pd.isna(table)
    if gone.all() or not all(isinstance(cell, str) for cell in table[~gone]):
        return table
    texts = np.where(gone, "", table)
    columns = [Column.of_texts("", texts[:, j]) for j in range(texts.shape[1])]
    pairs = [tables.pair_of(column) for column in columns]
    if any(pair is None and not c.gone.all() for pair, c in zip(pairs, columns, strict=True)):
        return table
    codes = [tables.codes_of(c, Asked(), p)[c.codes] for c, p in zip(columns, pairs, strict=True)]
    codes = np.column_stack(codes)
    return np.where(codes == tables.GONE, np.nan, codes)

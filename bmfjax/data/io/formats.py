"""Every file format: a reader, and its row in `READERS`.

To add a format, write a function ``read(path, kind, **options)`` that returns data of a kind, and
name it in the table at the end, from which messages and the docstrings of the loaders take it. It
gets the options that are given. Readers need no path in their messages, and may let any exception
of another library through.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.blocks import blocks
from bmfjax.data.checks import check_axes
from bmfjax.data.errors import InputError
from bmfjax.data.io import annotated
from bmfjax.data.io.declared import (
    NAME,
    REAL_ENTRY,
    bytes_an_entry,
    check_array,
    check_dense,
    check_sparse,
)
from bmfjax.data.io.files import opened_npz, thresholded
from bmfjax.data.io.market import market_matrix
from bmfjax.data.io.npz import BITS, read_saved
from bmfjax.data.io.rows import (
    binary_of_blocks,
    check_positions,
    check_words,
    checked,
    labels_of,
    names_in,
    needs_package,
)
from bmfjax.data.memory import require_memory
from bmfjax.data.names import checked_sides, names_of_index
from bmfjax.data.ratings import Ratings
from bmfjax.data.reading.door import HEAD, found_in, read_text
from bmfjax.data.reading.longs import check_items
from bmfjax.data.reading.record import BINARY, RATINGS, REAL, Asked
from bmfjax.data.real import RealMatrix
from bmfjax.data.stores import LARGE, read_rows

#: What a text is read as.
_CLASSES = {BINARY: BinaryMatrix, REAL: RealMatrix, RATINGS: Ratings}
#: Bytes for each item of transactions: as text, its number, its place, and its entries.
ITEM = 150


# ---- files of bmfjax, NumPy and scipy -----------------------------------------------------------


def _read_npz(path, kind, *, binarize=None, name=None, share_of=None, **options):
    """Read what `bmfjax.data.save` or ``scipy.sparse.save_npz`` wrote."""
    with opened_npz(path, without=() if share_of is None else BITS) as arrays:
        keys = sorted(arrays.files)
        found = read_saved(arrays, name or path.stem, share_of) if "kind" in keys else None
    if found is None and "format" in keys and kind != RATINGS:
        return _of_values(kind, _scipy_matrix(path), path.stem, binarize=binarize)
    if found is None:
        raise InputError(
            f"it holds the arrays {', '.join(keys[:6])} and not a matrix; "
            "give a file of bmfjax.data.save or scipy.sparse.save_npz"
        )
    if isinstance(found, Ratings) != (kind == RATINGS):
        raise InputError(
            "its kind is that of a matrix; give ratings that bmfjax.save wrote"
            if kind == RATINGS
            else "it holds ratings, not a matrix; read it by bmfjax.load_ratings, and "
            "threshold them for a matrix of ones and zeros"
        )
    if binarize is not None:
        raise InputError("binarize means nothing for a file of bmfjax.save; leave it out")
    if kind == RATINGS:
        names = [options.get(f"{side}_names_given") for side in ("row", "column")]
        return found.renamed(*names, options.get("scale"))
    return _as_real(found) if kind == REAL else found


#: Arrays of positions in the files of scipy's formats.
_POSITIONS = {"indices", "indptr", "row", "col", "coords", "offsets"}


def _scipy_matrix(path):
    with opened_npz(path) as arrays:
        for key in _POSITIONS & set(arrays.files):
            check_positions(key, arrays[key])
    with open(path, "rb") as stream:
        values = checked(sp.load_npz(stream))
    if values.ndim == 2:
        check_sparse(values.shape, values.nnz)
    return values


def _as_real(matrix):
    """Return a matrix as real numbers, sparse where it is kept so and nothing is missing."""
    if isinstance(matrix, RealMatrix):
        return matrix
    if matrix.is_sparse and not matrix.num_missing:
        values = matrix.ones().astype(np.float64)
    else:
        check_dense(matrix.shape, 8 + REAL_ENTRY)
        values = matrix.dense(np.float64)
    return RealMatrix(
        values, None, matrix._row_names, matrix._column_names,
        row_labels=matrix.row_labels, name=matrix.name,
    )  # fmt: skip


def _of_values(kind, values, name, *, binarize=None, **options):
    """Return an array or a sparse matrix as data; what such a one does not store is not rated."""
    if kind == BINARY:
        return BinaryMatrix(thresholded(values, binarize), name=name)
    if kind == REAL:
        return RealMatrix(values, name=name)
    check_axes(values)
    if not sp.issparse(values):
        at = np.nonzero(~np.isnan(values))
        return Ratings(*at, values[at], shape=values.shape, name=name, **options)
    listed = sp.coo_array(values)
    return Ratings(listed.row, listed.col, listed.data, shape=values.shape, name=name, **options)


def _read_array(path, kind, **options):
    with open(path, "rb") as stream:
        check_array(stream, path.stat().st_size)
    return _of_values(kind, np.load(path, allow_pickle=False), path.stem, **options)


def _read_market(path, kind, **options):
    values = market_matrix(path, bytes_an_entry(kind, options.get("binarize")))
    return _of_values(kind, values, path.stem, **options)


# ---- texts and data frames: the door ------------------------------------------------------------


def _read_text(path, kind, *, row_names_given=None, column_names_given=None, **options):
    found = read_text(path, kind, Asked.of(**options))
    more = {} if kind != RATINGS else found.renamed(row_names_given, column_names_given)
    return _CLASSES[kind]._of_reading(found, title(path), **more)


def title(path) -> str:
    """Return the name of a file without its endings."""
    return path.with_suffix("").stem if path.suffix.lower() == ".gz" else path.stem


def _read_parquet(path, kind, *, share_of=None, **options):
    with _opened_parquet(path) as file:
        is_large = kind == BINARY and _size(file.metadata) > LARGE
        _check_parquet(file.metadata, options.get("binarize"), share_of, in_words=is_large)
        if is_large:
            return _read_batches(file, path.stem, share_of, **options)
        frame = file.read(use_pandas_metadata=True).to_pandas()
    return _CLASSES[kind]._of_reading(found_in(frame, kind, options), path.stem)


# ---- files of other libraries -------------------------------------------------------------------


@contextlib.contextmanager
def _opened_parquet(path):
    """Yield a Parquet file whose columns are of plain cells."""
    try:
        from pyarrow import parquet  # pandas' own message for its absence is a page long
    except ImportError as err:
        raise needs_package("pyarrow", "parquet") from err
    with parquet.ParquetFile(path) as file:
        _check_columns(file.schema_arrow, file.metadata.num_rows)
        yield file


def _parted(frame, row_names, label_column):
    """Take labels and names of rows out of a table; returns the rest and the labels."""
    labels = labels_of(frame, label_column, "the table")
    if row_names is False:
        frame = frame.reset_index(drop=True)
    elif names_of_index(frame.index) is None and frame.shape[1]:
        first = frame.columns[0]
        if row_names is True or pd.api.types.is_string_dtype(frame[first].dropna()):
            frame = frame.set_index(frame.pop(first).astype(str))
    frame.columns = frame.columns.map(str)
    return frame, labels


def _read_batches(
    file, name, share_of, *, binarize=None, row_names="auto", label_column=None, fitted=(), **others
):
    """Read a large table in blocks of rows; what is no value is read first."""
    for option in others:
        raise InputError(
            f"{option} is for tables of at most {LARGE:,} cells; leave it out, or give a part"
        )
    schema = file.schema_arrow
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    columns = [c for c in schema.names if c not in index]
    checked_sides((1, len(columns)), (None, columns), (None, None))  # refuses a name twice
    asked = names_in(label_column)
    if not set(asked) <= set(columns):
        labels_of(pd.DataFrame(columns=columns), label_column, "the table")  # which refuses it
    # A first column of text, or of nothing, may name the rows: `_parted` decides.
    first = next((c for c in columns if c not in asked), None)
    aside = [c for c in columns if c in asked]
    if first is not None and (row_names is True or not _is_number(schema.field(first).type)):
        aside = [first, *aside]
    frame = file.read(columns=aside, use_pandas_metadata=True).to_pandas()
    frame, labels = _parted(frame, row_names, label_column)
    # What did not become names or labels is a value.
    aside = [c for c in aside if c not in frame.columns]
    values = [c for c in columns if c not in aside]
    shape = (file.metadata.num_rows, len(values))
    share, rows = read_rows(share_of, shape)
    batches = _batches_of(file, rows, values)
    parts = (thresholded(b.to_pandas(ignore_metadata=True), binarize) for b in batches)
    names = names_of_index(frame.index), values
    return binary_of_blocks(parts, shape, names, labels, name, share)


def _batches_of(file, rows, columns):
    """Yield some rows of a table, a slice, in batches; groups without any are not read."""
    groups = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
    ends = np.cumsum(groups)
    own = np.flatnonzero((ends > rows.start) & (ends - groups < rows.stop)).tolist()
    at = int(ends[own[0]]) - groups[own[0]] if own else 0
    size = next(blocks(file.metadata.num_rows, len(columns))).stop
    for batch in file.iter_batches(batch_size=size, row_groups=own, columns=columns):
        first, last = max(rows.start - at, 0), min(rows.stop - at, batch.num_rows)
        at += batch.num_rows
        if first < last:
            yield batch.slice(first, last - first)


def _is_number(kind) -> bool:
    """Tell whether a type of Arrow is one of numbers or booleans."""
    try:
        return np.dtype(kind.to_pandas_dtype()).kind in "biuf"
    except (NotImplementedError, TypeError):  # text in a dictionary, among others
        return False


def _size(meta) -> int:
    return meta.num_rows * meta.num_columns


def _check_columns(schema, num_rows):
    """Refuse columns whose cells hold several values, and names that do not fit."""
    from pyarrow import types

    texts = sum(not _is_number(kind) for kind in schema.types)
    what = f"text for {num_rows:,} rows, as the file declares them,"
    require_memory(NAME * num_rows * texts, what, "leave out rows, or columns of text")
    for field in schema:
        kind = getattr(field.type, "storage_type", field.type)  # an extension has one below
        if types.is_nested(kind):
            raise InputError(
                f"column {field.name!r} is of {str(kind)[:60]}, several values in a cell; give "
                "each of them a column, or leave it out"
            )


def _check_parquet(meta, binarize, share_of, in_words):
    """Refuse a table that does not fit: as words, or as Arrow, as a frame and as an array."""
    if in_words:
        check_words((meta.num_rows, meta.num_columns), share_of)
        return
    each, width = bytes_an_entry(BINARY, binarize), 0
    for kind in meta.schema.to_arrow_schema().types:
        try:
            cell = max(kind.bit_width // 8, 1)
        except ValueError:  # text
            cell = NAME
        width += 3 * cell + each
    rows, columns = meta.num_rows, meta.num_columns
    check_dense((rows, columns), width / max(columns, 1))


def _read_dat(path, kind, *, layout="auto", **options):
    """Read transactions, or a table of zeros and ones; lines that may be either are refused."""
    if layout not in ("auto", "baskets"):
        return _read_text(path, kind, layout=layout, **options)
    if layout == "auto":
        with open(path, encoding="latin-1") as stream:
            check_items([line.split() for line in itertools.islice(stream, HEAD) if line.strip()])
    return read_transactions(path)


def read_transactions(path):
    """Read a FIMI file: the items of a transaction, non-negative integers, on each line.

    The columns are the items that occur, in ascending order and named by their number; a blank
    line is a transaction without items. The matrix is kept sparse.
    """
    size = path.stat().st_size
    remedy = "give fewer transactions, or use a machine with more memory"
    require_memory(4 * size, f"reading transactions from {size:,} bytes", remedy)
    text = path.read_bytes()
    number = _num_items(text)
    require_memory(ITEM * number, f"reading {number:,} items of transactions", remedy)
    lines = text.splitlines()
    counts = np.array([len(line.split()) for line in lines], dtype=np.int64)
    tokens = b" ".join(lines).split()
    if not tokens:
        raise InputError("the file holds no item; give one transaction a line")
    if not all(map(bytes.isdigit, tokens)) or max(map(len, tokens)) > 18:
        wrong = next(i for i, token in enumerate(tokens) if not token.isdigit() or len(token) > 18)
        line = int(np.searchsorted(np.cumsum(counts), wrong, side="right")) + 1
        shown = tokens[wrong][:40].decode(errors="replace")
        raise InputError(
            f"item {shown!r} on line {line} is not a non-negative integer of up to 18 digits; "
            "number the items"
        )
    items, columns = np.unique(np.array(tokens).astype(np.int64), return_inverse=True)
    rows = np.repeat(np.arange(len(lines)), counts)
    # As bools, so that an item given twice in a line is still a one.
    ones = sp.coo_array(
        (np.ones(len(tokens), dtype=bool), (rows, columns)), shape=(len(lines), len(items))
    )
    require_memory(2 * NAME * len(items), f"naming {len(items):,} different items", remedy)
    return BinaryMatrix(ones, column_names=items.tolist(), name=path.stem)


def _num_items(text):
    """Count the runs of bytes that are no blank, as `bytes.split` finds them."""
    marked = text.translate(bytes(byte not in b" \t\n\r\x0b\f" for byte in range(256)))
    return marked.count(b"\0\1") + marked.startswith(b"\1")


# ---- the table ------------------------------------------------------------------------------


class Reader(NamedTuple):
    """How files of an ending are read as data of one kind."""

    read: Callable  # read(path, kind, **options) -> BinaryMatrix, RealMatrix or Ratings
    options: tuple[str, ...] = ()  # those of the public loader that mean something for it
    about: str = ""  # what is read, for the docstring of the loader
    #: Whether it has a further option: ``share_of(shape)``, of a large matrix the rows to read.
    shares: bool = False


_COLUMNS = ("missing", "row_names", "label_column", "columns", "ignore")
_TEXT = (*_COLUMNS, "header", "layout", "decimal", "encoding")
OF_BITS = ("binarize", "one", "zero", "one_hot")
#: All names of the sides of ratings, where they are given.
_GIVEN = ("row_names_given", "column_names_given")
_TEXTS = {
    BINARY: Reader(
        _read_text,
        (*OF_BITS, *_TEXT),
        "a table of 0 and 1, or of two words such as yes and no; a list of pairs; or lines of "
        "items. A cell is missing if it is empty, NA, NaN or whatever else pandas takes for "
        "missing, or is listed in `missing`. Fields are separated by commas, semicolons or tabs. "
        "Blank lines are skipped, and a file may be packed (.csv.gz)",
    ),
    REAL: Reader(
        _read_text, (*_TEXT, "duplicates"),
        "a table of numbers, or lines of row, column and value; a cell is missing as "
        "`bmfjax.load` has it",
    ),
}  # fmt: skip
_CHOICE = ("label_column", "layer", "use_raw", "modality")
_ANNDATA = {
    BINARY: Reader(
        annotated.read_annotated, ("binarize", *_CHOICE),
        "the X of AnnData, a layer, or its raw values; of MuData those of a modality "
        "(``pip install 'bmfjax[h5ad]'``, or ``[zarr]``). A .zarr may be an array alone",
        shares=True,
    ),
    REAL: Reader(
        annotated.read_annotated, _CHOICE,
        "the X of AnnData, a layer, or its raw values; of MuData those of a modality; sparse "
        "where the file has it so (``pip install 'bmfjax[h5ad]'``, or ``[zarr]``)",
    ),
}  # fmt: skip
#: Ending -> kind of data -> reader.
READERS = {
    ".npz": {
        BINARY: Reader(
            _read_npz, ("binarize",),
            "a file of `bmfjax.data.save` or of ``scipy.sparse.save_npz``",
            shares=True,
        ),
        REAL: Reader(
            _read_npz, (),
            "a file of `bmfjax.data.save` or of ``scipy.sparse.save_npz``, which stays sparse",
        ),
        RATINGS: Reader(_read_npz, ("scale", *_GIVEN)),
    },
    ".csv": _TEXTS,
    ".tsv": _TEXTS,
    ".xlsx": _TEXTS,
    ".basket": _TEXTS,
    ".npy": {
        BINARY: Reader(_read_array, ("binarize",), "an array; NaN is missing"),
        REAL: Reader(_read_array, (), "an array; NaN is missing"),
        RATINGS: Reader(_read_array, ("scale",)),
    },
    ".mtx": {
        BINARY: Reader(_read_market, ("binarize",), "Matrix Market"),
        REAL: Reader(_read_market, (), "Matrix Market; coordinates stay sparse"),
        RATINGS: Reader(_read_market, ("scale", "duplicates")),
    },
    ".dat": {
        BINARY: Reader(
            _read_dat, (*OF_BITS, *_TEXT),
            "FIMI transactions: a line lists the integer items of a row; columns are the items "
            "that occur, ascending",
        )
    },
    ".h5ad": _ANNDATA,
    ".h5mu": _ANNDATA,
    ".zarr": _ANNDATA,
    ".parquet": {
        BINARY: Reader(
            _read_parquet, (*OF_BITS, *_COLUMNS, "layout"),
            "a table, as text is read (``pip install 'bmfjax[parquet]'``)",
            shares=True,
        ),
        REAL: Reader(_read_parquet, (*_COLUMNS, "layout", "duplicates"), "a table of numbers"),
        RATINGS: Reader(_read_parquet, (*_COLUMNS, "layout", "duplicates", "scale")),
    },
}  # fmt: skip
#: What has these endings is a folder.
FOLDERS = (".zarr",)
#: Ratings come as text under any ending that is no other format.
ANY_ENDING = {RATINGS: Reader(_read_text, (*_TEXT, "duplicates", "scale", *_GIVEN))}


def is_text(ending: str) -> bool:
    """Tell whether files of this ending are texts, whose readers take an encoding."""
    return any("encoding" in r.options for r in READERS.get(ending, ANY_ENDING).values())


#: The options of all readers.
OPTIONS = tuple(
    dict.fromkeys(
        name
        for row in (ANY_ENDING, *READERS.values())
        for reader in row.values()
        for name in reader.options
    )
)

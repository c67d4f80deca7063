"""From what a user has (arrays, sparse matrices, data frames) to a store of ones and missing.

Everything that is refused is refused here, with the first wrong entry and where it stands.
"""

from numbers import Real

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bmfjax.data.bits import WORD, full_line, owners, zero_words
from bmfjax.data.blocks import blocks
from bmfjax.data.checks import check_axes, check_sides, is_real, whole
from bmfjax.data.errors import InputError
from bmfjax.data.names import names_of_index, not_binary, not_single, place_text
from bmfjax.data.reading.annotated import unwrapped
from bmfjax.data.reading.door import as_frame, decoded
from bmfjax.data.stores import (
    PackedStore,
    SharedStore,
    canonical,
    dense_store,
    num_missing,
    packed_store,
    sparse_store,
)


def as_table(values):
    """Return (array or CSR of unchecked values, names of its rows, of its columns, repeats).

    The names are None where there are none. `repeats` is None, or counts as a CSR how often a
    sparse matrix lists each entry, where one is listed twice.
    """
    (values, row_names, column_names), repeats = unwrapped(as_frame(values)), None
    if values is None or isinstance(values, str | bytes | dict):
        hint = "; bmfjax.load reads a file"
        if not isinstance(values, str):
            hint = "; give an array, a scipy.sparse matrix or a pandas.DataFrame"
        raise TypeError(f"values is a {type(values).__name__}, not a matrix{hint}")
    if isinstance(values, pd.DataFrame):
        row_names, column_names = names_of_index(values.index), names_of_index(values.columns)
        values = frame_values(values)
    if sp.issparse(values):
        # Checked before the conversion, which would fold one axis into a row.
        check_matrix(values)
        table = sp.csr_array(values, copy=True)
        table.sum_duplicates()
        repeats = _repeats(values, table)
    else:
        table = _dense_values(values)
    if 0 in table.shape:
        raise InputError(
            f"the matrix is empty: {table.shape[0]} rows and {table.shape[1]} columns; "
            "give at least one of each"
        )
    return table, row_names, column_names, repeats


def read_store(table, observed=None, row_names=None, column_names=None, repeats=None):
    """Check the values of `as_table` and return them as a `PackedStore` or a `SparseStore`.

    An entry is missing if its value is missing or if `observed` does not mark it; values that
    `observed` does not mark are not looked at. Names and `repeats` are for the messages alone.
    """
    observed = checked_observed(observed, table.shape)
    return _with_entries(_read(table, observed, row_names, column_names, repeats))


def _with_entries(store):
    if num_missing(store) == int(store.shape[0]) * int(store.shape[1]):
        raise nothing_observed("0 or 1")
    return store


def read_blocks(tables, shape, row_names=None, column_names=None, *, share=None):
    """Check blocks of rows, one below the other, and return them as one `PackedStore`.

    One block at a time is formed. With a `share` they are its rows alone (`SharedStore`).
    """
    first, number = (0, shape[0]) if share is None else (share.first, share.last - share.first)
    words, seen, start = zero_words(number, shape[1]), None, 0
    for values in tables:
        table, *_, repeats = as_table(values)
        part = _read(table, None, row_names, column_names, repeats, first + start)
        some = slice(start, start + table.shape[0])
        start = some.stop
        words[some], observed = part.packed()
        if observed is not None and seen is None:
            seen = np.tile(full_line(shape[1]), (number, 1))
        if observed is not None:
            seen[some] = observed
    store = PackedStore(words, seen, shape[1])
    return _with_entries(store) if share is None else SharedStore(store, share, shape[0])


def read_packed(ones, observed, num_columns):
    """Check packed words and return them as a `PackedStore`, which has them for itself."""
    num_columns = whole("num_columns", num_columns)
    check_sides((0, num_columns))
    width = -(-num_columns // WORD)
    ones = _checked_words("ones", ones, width, num_columns)
    if observed is not None:
        observed = _checked_words("observed", observed, width, num_columns)
        if observed.shape != ones.shape:
            raise InputError(
                f"observed has {len(observed)} rows and ones {len(ones)}; give the same number"
            )
        if any((ones[some] & ~observed[some]).any() for some in blocks(len(ones), width)):
            raise InputError("ones has bits set that observed has not; set them to zero")
    return _with_entries(packed_store(ones, observed, num_columns))


def _checked_words(name, words, width, num_columns):
    is_array = isinstance(words, np.ndarray) or hasattr(words, "__jax_array__")
    is_array = is_array or type(words).__module__.startswith("jax")
    kind = words.dtype if is_array else type(words).__name__
    if not is_array or kind != np.uint32 or words.ndim != 2 or words.shape[1] != width:
        shape = f" of shape {words.shape}" if is_array else ""
        raise InputError(
            f"{name} is {kind}{shape}; give uint32 words of shape (rows, {width}) for "
            f"{num_columns} columns"
        )
    if not len(words):
        raise InputError(f"{name} has no rows; give at least one")
    words = np.asarray(words)
    if (words[:, -1] & ~full_line(num_columns)[-1]).any():
        raise InputError(
            f"{name} has bits beyond column {num_columns}; set them to zero, or give "
            "num_columns the number of entries that were packed"
        )
    # What others may still write to would change the matrix.
    is_own = owners(words)[-1].base is None and not any(a.flags.writeable for a in owners(words))
    return words if is_own else np.array(words)


def frame_values(frame):
    """Return the values of a DataFrame: sparse, numbers with NaN where missing, or objects."""
    kinds = list(frame.dtypes)
    if kinds and all(isinstance(kind, pd.SparseDtype) and kind.fill_value == 0 for kind in kinds):
        return frame.sparse.to_coo()
    if kinds and all(map(is_real, kinds)):
        # Also for pandas' own integers and booleans, whose missing entries become NaN.
        whole = all(isinstance(kind, np.dtype) and kind.kind in "biu" for kind in kinds)
        return frame.to_numpy() if whole else frame.to_numpy(dtype=float, na_value=np.nan)
    return frame.to_numpy(dtype=object)


def is_nested(table) -> np.ndarray:
    """Mark the cells of an array of objects that hold several values, or no plain number.

    An array of one value in a cell would be taken for the value.
    """
    odd = complex, np.complexfloating, np.timedelta64

    def is_one(cell):
        return pd.api.types.is_list_like(cell) or isinstance(cell, odd)

    return np.frompyfunc(is_one, 1, 1)(table).astype(bool)


def _dense_values(values):
    if isinstance(values, np.ma.MaskedArray):  # NumPy would forget the mask
        values = np.where(np.ma.getmaskarray(values), None, values.data.astype(object))
    try:
        table = np.asarray(values)
    except ValueError as err:
        cure = "give every row the same number of entries"
        if any(isinstance(row, list | tuple) and row and isinstance(row[0], str) for row in values):
            cure = (
                "of lists of items make pairs, by BinaryMatrix.from_frame(pandas.Series(lists)"
                ".explode().dropna().reset_index(), layout='pairs')"
            )
        raise InputError(f"the rows of values have different lengths; {cure}") from err
    if table.ndim == 0 and table.dtype.kind == "O":
        raise TypeError(f"values is a {type(values).__name__}, not a matrix")
    check_matrix(table)
    if table.dtype.kind in "US":
        return table.astype(object)
    if table.dtype.kind == "V" and table.dtype.names is None:
        # The short floats of JAX, which NumPy does not count among its floats.
        return table.astype(np.float32)
    return table


def checked_observed(observed, shape):
    """Return a mask of the shape of a matrix as a bool array or a bool CSR; None is none."""
    if observed is None:
        return None
    if not sp.issparse(observed):
        observed = np.asarray(observed)
    if observed.shape != shape:
        raise InputError(
            f"observed has shape {observed.shape} and the matrix has {shape}; give them one shape"
        )
    stored = observed.data if sp.issparse(observed) else observed
    if stored.dtype != bool:
        if stored.dtype.kind not in "iuf" or not np.isin(stored, (0, 1)).all():
            raise InputError(
                f"observed has dtype {stored.dtype} with values beside 0 and 1; give True where "
                "an entry is observed and False where it is not"
            )
        return canonical(observed) if sp.issparse(observed) else observed != 0
    return canonical(observed) if sp.issparse(observed) else observed


def _read(table, observed, row_names, column_names, repeats, first=0):
    """Return the store; the first row is number `first`, from 0, for the messages."""
    table = table if sp.issparse(table) else decoded(table)
    if table.dtype.kind not in "biufO":
        raise InputError(f"values has dtype {table.dtype}; give zeros, ones and missing entries")
    if sp.issparse(table):
        return _read_sparse(table, observed, row_names, column_names, repeats, first)
    return _read_dense(table, observed, row_names, column_names, first)


def _read_dense(table, observed, row_names, column_names, first):
    missing = _missing_values(table)
    if observed is not None:
        hidden = ~(observed.toarray() if sp.issparse(observed) else observed)
        missing = hidden if missing is None else missing | hidden
    if table.dtype.kind == "O" and missing is not None:
        table = np.where(missing, 0, table)  # pandas' NA cannot be compared
    if table.dtype.kind == "O":
        _refuse_first(is_nested(table), table, row_names, column_names, first)
    ones = table == 1
    if table.dtype != bool:
        wrong = ~(ones | (table == 0))
        if missing is not None:
            wrong &= ~missing
        _refuse_first(wrong, table, row_names, column_names, first)
    return dense_store(ones, missing)


def _refuse_first(wrong, table, row_names, column_names, first):
    """Refuse a table with wrong cells (bool); name the first; the first row is number `first`."""
    if wrong.any():
        row, column = np.unravel_index(np.argmax(wrong), wrong.shape)
        where = place_text(row + first, column, row_names, column_names)
        raise not_binary(table[row, column], where, table.shape[1], _values_of(table))


def _values_of(array):
    """Return the different numbers in an array, but for missing ones."""
    values = array.ravel().tolist() if array.dtype.kind == "O" else np.unique(array).tolist()
    return {value for value in values if isinstance(value, Real) and value == value}


def _missing_values(table):
    if table.dtype.kind == "f":
        return np.isnan(table)
    return pd.isna(table) if table.dtype.kind == "O" else None


def _repeats(values, table):
    """Count how often each entry is listed, where the sum over all repeats has fewer entries."""
    if table.nnz == values.nnz:
        return None
    listed = values.tocoo()
    return sp.csr_array((np.ones(listed.nnz), (listed.row, listed.col)), shape=listed.shape)


def _read_sparse(table, observed, row_names, column_names, repeats, first):
    if table.dtype.kind == "O":
        raise InputError("values is a sparse matrix of objects; give one of numbers or bool")
    unknown = np.isnan(table.data) if table.dtype.kind == "f" else np.zeros(table.nnz, dtype=bool)
    wrong = _where(table, (table.data != 0) & (table.data != 1) & ~unknown)
    if observed is not None:
        observed = canonical(observed)
        wrong = canonical(wrong.multiply(observed))
    if wrong.nnz:
        row = int(np.flatnonzero(np.diff(wrong.indptr))[0])
        column = int(wrong.indices[0])
        where = place_text(row + first, column, row_names, column_names)
        if repeats is not None and repeats[row, column] > 1:
            raise not_single(int(repeats[row, column]), table[row, column], where)
        raise not_binary(table[row, column], where, others={0, *_values_of(table.data)})
    ones, missing = _where(table, table.data == 1), _where(table, unknown)
    if observed is None:
        return sparse_store(ones, missing=missing)
    return sparse_store(ones, observed=canonical(observed > missing))


def _where(table, chosen):
    """Return the stored entries of a CSR that `chosen` (one bool each) picks, as a bool CSR."""
    return canonical(sp.csr_array((chosen, table.indices, table.indptr), shape=table.shape))


# ---- what matrices of any kind are asked --------------------------------------------------------


def check_matrix(array):
    """Refuse an array that has not two axes, or too long ones."""
    check_axes(array)
    check_sides(array.shape)


def nothing_observed(what):
    """Return the error for a matrix without an observed entry."""
    return InputError(
        "no entry is observed: every value is missing or hidden by observed; "
        f"give a matrix with at least one {what}"
    )

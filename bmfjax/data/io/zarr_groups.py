"""Zarr: an array, or the group that AnnData writes, read some rows at a time."""

from __future__ import annotations

import math

import pandas as pd

from bmfjax.data.checks import check_axes
from bmfjax.data.errors import InputError
from bmfjax.data.io.declared import (
    BINARIZED_ENTRY,
    BINARY_ENTRY,
    NAME,
    REAL_ENTRY,
    check_length,
    require_chunks,
    warn_of_absent_chunks,
)
from bmfjax.data.io.rows import (
    Rows,
    binary_of_rows,
    labels_of,
    names_in,
    needs_package,
    real_of_rows,
    sparse_rows,
)
from bmfjax.data.io.zarr_store import check_store, chunk_counts
from bmfjax.data.memory import require_memory

#: The tables that AnnData has of the rows and of the columns of X.
SIDES = ("obs", "var")
#: What a column that is a group has for each line: texts and numbers with a mask, or categories.
OF_LINES = ("values", "mask", "codes")


def read_zarr(path, *, binarize, label_column, share_of=None):
    """Read a binary matrix from an array, or from the X of an AnnData group."""
    entry = BINARY_ENTRY if binarize is None else BINARIZED_ENTRY
    rows, names, labels = _opened(path, label_column, entry, share_of=share_of)
    return binary_of_rows(rows, binarize, names, labels, path.stem, share_of)


def read_real_zarr(path, *, label_column):
    """Read a matrix of real numbers likewise."""
    rows, names, labels = _opened(path, label_column, REAL_ENTRY, real=True)
    return real_of_rows(rows, names, labels, path.stem)


def _opened(path, label_column, entry, real=False, share_of=None):
    """Return the rows of a matrix that fits, names as arguments of a matrix, and labels."""
    try:
        import zarr
    except ImportError as err:
        raise needs_package("zarr", "zarr") from err
    check_store(path)
    found = zarr.open(str(path), mode="r")
    names, labels = {}, None
    if isinstance(found, zarr.Array):
        if label_column is not None:
            raise InputError(
                f"label_column is {label_column!r} and an array has no labels; leave it out"
            )
        rows = _dense_rows(found)
        rows.check(found.dtype.itemsize + entry, real=real, share_of=share_of)
        _warn_of_absent(path, found)
        return rows, names, labels
    if "X" not in found:
        raise InputError("it holds no matrix X; store the values as X, or as an array alone")
    values = found["X"]
    if isinstance(values, zarr.Array):
        rows = _dense_rows(values)
        rows.check(values.dtype.itemsize + entry, real=real, share_of=share_of)
        _warn_of_absent(path, values)
    else:
        rows = _sparse_rows(values)
        rows.check(entry, real=real, share_of=share_of)
    if all(side in found for side in SIDES):
        obs, var = (_frame(found[side], rows.shape, axis) for axis, side in enumerate(SIDES))
        for label in set(names_in(label_column)) & set(obs):
            for array in _values(found["obs"][label]):
                _warn_of_absent(path, array)
        labels = labels_of(obs, label_column, "obs")
        names = {"row_names": obs.index, "column_names": var.index}
    elif label_column is not None:
        labels_of(pd.DataFrame(), label_column, "the group")  # which refuses it
    return rows, names, labels


def _warn_of_absent(path, array) -> None:
    warn_of_absent_chunks(path, array.path, *chunk_counts(array), array.fill_value)


def _dense_rows(array) -> Rows:
    check_axes(array, "its array")
    _require_room(array)
    return Rows(tuple(array.shape), None, lambda some: array[some], chunk=int(array.chunks[0]))


def _sparse_rows(group) -> Rows:
    kind = str(group.attrs.get("encoding-type", ""))
    if kind not in ("csr_matrix", "csc_matrix"):
        raise InputError(f"its X is of the kind {kind!r}; give a dense array, CSR or CSC")
    arrays = [group[name] for name in ("data", "indices", "indptr")]
    if "shape" not in group.attrs:
        raise InputError("its X declares no shape; write it with AnnData")
    for array in arrays:
        _require_room(array)
        if arrays[0].size:  # pointers that are all zero need no file
            require_chunks(array.path, *chunk_counts(array))
    return sparse_rows(group.attrs["shape"], *arrays, by_column=kind == "csc_matrix")


def _frame(group, shape, axis) -> pd.DataFrame:
    """Return the table that AnnData wrote of one side of an X of this shape."""
    try:
        from anndata.io import read_elem
    except ImportError as err:
        raise needs_package("anndata", "zarr") from err
    for array in _columns(group):
        check_length(array.path, array.shape, shape, axis)
    arrays = list(_arrays(group))
    for array in arrays:
        _require_room(array)
    needed = sum(a.size * max(a.dtype.itemsize, NAME) for a in arrays)
    require_memory(needed, "what the group declares", "store fewer cells, or X alone")
    index = group.attrs.get("_index")
    if index in group:
        for array in _values(group[index]):
            require_chunks(array.path, *chunk_counts(array))
    return read_elem(group)


def _columns(group):
    """Yield the arrays of a table with an entry for each of its lines."""
    yield from (array for _, array in group.arrays())
    for _, column in group.groups():
        yield from (column[name] for name in OF_LINES if name in column)


def _arrays(item):
    """Yield an array, or those of a group and of the groups in it."""
    if hasattr(item, "chunks"):
        yield item
        return
    for _, array in item.arrays():
        yield array
    for _, group in item.groups():
        yield from _arrays(group)


def _values(item):
    """Yield the arrays of a column but its mask, which has no chunk where nothing is missing."""
    return (array for array in _arrays(item) if not array.path.endswith("/mask"))


def _require_room(array) -> None:
    """Refuse an array with a chunk that does not fit; one is decoded as a whole."""
    size = math.prod(getattr(array, "shards", None) or array.chunks) * array.dtype.itemsize
    what = f"a chunk of {array.path or 'the array'}, as the store declares it,"
    require_memory(size, what, "have it written in smaller chunks")

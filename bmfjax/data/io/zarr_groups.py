"""Zarr: an array, or the group that AnnData writes, read some rows at a time."""

from __future__ import annotations

import pandas as pd

from bmfjax.data.errors import InputError
from bmfjax.data.io.declared import BINARIZED_ENTRY, BINARY_ENTRY, NAME, REAL_ENTRY
from bmfjax.data.io.rows import (
    Rows,
    binary_of_rows,
    labels_of,
    needs_package,
    real_of_rows,
    sparse_rows,
)
from bmfjax.data.memory import require_memory


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
    found = zarr.open(str(path), mode="r")
    names, labels = {}, None
    if isinstance(found, zarr.Array):
        if label_column is not None:
            raise InputError(
                f"label_column is {label_column!r} and an array has no labels; leave it out"
            )
        rows = _dense_rows(found)
        rows.check(found.dtype.itemsize + entry, real=real, share_of=share_of)
        return rows, names, labels
    if "X" not in found:
        raise InputError("it holds no matrix X; store the values as X, or as an array alone")
    values = found["X"]
    if isinstance(values, zarr.Array):
        rows = _dense_rows(values)
        rows.check(values.dtype.itemsize + entry, real=real, share_of=share_of)
    else:
        rows = _sparse_rows(values)
        rows.check(entry, real=real, share_of=share_of)
    if "obs" in found and "var" in found:
        obs, var = (_frame(found[side]) for side in ("obs", "var"))
        labels = labels_of(obs, label_column, "obs")
        names = {"row_names": obs.index, "column_names": var.index}
    elif label_column is not None:
        labels_of(pd.DataFrame(), label_column, "the group")  # which refuses it
    return rows, names, labels


def _dense_rows(array) -> Rows:
    if array.ndim != 2:
        raise InputError(f"its array has {array.ndim} axes; give a matrix, with two")
    return Rows(tuple(array.shape), None, lambda some: array[some], chunk=int(array.chunks[0]))


def _sparse_rows(group) -> Rows:
    kind = str(group.attrs.get("encoding-type", ""))
    if kind not in ("csr_matrix", "csc_matrix"):
        raise InputError(f"its X is of the kind {kind!r}; give a dense array, CSR or CSC")
    arrays = (group[name] for name in ("data", "indices", "indptr"))
    if "shape" not in group.attrs:
        raise InputError("its X declares no shape; write it with AnnData")
    return sparse_rows(group.attrs["shape"], *arrays, by_column=kind == "csc_matrix")


def _frame(group) -> pd.DataFrame:
    """Return a table that AnnData wrote."""
    try:
        from anndata.io import read_elem
    except ImportError as err:
        raise needs_package("anndata", "zarr") from err
    sizes = [a.size * max(a.dtype.itemsize, NAME) for _, a in group.arrays()]
    require_memory(sum(sizes), "what the group declares", "store fewer cells, or X alone")
    return read_elem(group)

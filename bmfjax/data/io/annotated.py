"""AnnData and MuData, in HDF5, in zarr or as objects: a matrix, some rows at a time, and its names.

HDF5 and zarr have the same groups of arrays, which say what is in them before they are read.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator

import pandas as pd

from bmfjax.data.checks import check_axes
from bmfjax.data.errors import InputError
from bmfjax.data.io import hdf5, zarr_store
from bmfjax.data.io.declared import (
    NAME,
    bytes_an_entry,
    check_length,
)
from bmfjax.data.io.rows import (
    Rows,
    binary_of_rows,
    checked,
    labels_of,
    names_in,
    needs_package,
    sparse_rows,
)
from bmfjax.data.memory import require_memory
from bmfjax.data.names import names_of_index
from bmfjax.data.reading.annotated import is_annotated, key_of, matrix_in, modality_of
from bmfjax.data.reading.record import REAL
from bmfjax.data.real import RealMatrix

#: What a column that is a group has for each line: texts and numbers with a mask, or categories.
_OF_LINES = ("values", "mask", "codes")


def read_annotated(source, kind, *, binarize=None, label_column=None, share_of=None, **choice):
    """Read a matrix of a kind; `choice` has layer, use_raw and modality."""
    real, entry = kind == REAL, bytes_an_entry(kind, binarize)
    with _opened(source) as root:
        rows, names, labels = _parts(source, root, label_column, choice, entry, real, share_of)
        if real:  # sparse where it is kept so
            return RealMatrix(rows.all(), None, *names, row_labels=labels, name=file_title(source))
        return binary_of_rows(rows, binarize, names, labels, file_title(source), share_of)


def file_title(source) -> str | None:
    """Return what data are called by their file, if they have one."""
    return None if is_annotated(source) else source.stem


@contextlib.contextmanager
def _opened(source):
    """Yield the group at the root, or an array alone; an object of AnnData as it is."""
    if is_annotated(source):
        yield source
        return
    if source.suffix.lower() == ".zarr":
        try:
            import zarr
        except ImportError as err:
            raise needs_package("zarr", "zarr") from err
        zarr_store.check_store(source)
        yield zarr.open(str(source), mode="r")
        return
    try:
        import anndata  # noqa: F401
        import h5py
    except ImportError as err:
        raise needs_package("anndata", "h5ad") from err
    with h5py.File(source) as file:
        hdf5.check_hdf5(file)
        yield file


def _parts(source, root, label_column, choice, entry, real, share_of):
    """Return the rows of a matrix that fits, the names of both sides, and labels."""
    if is_annotated(root):
        values, row_names, column_names, obs = matrix_in(root, **choice)
        labels = labels_of(obs.copy(), label_column, "obs")
        return _rows_of_object(values), (row_names, column_names), labels
    if _is_array(root):
        if label_column is not None or any(choice.values()):
            raise InputError(
                "it is an array, which has no labels, layers, raw values and modalities; leave "
                "these options out"
            )
        return _rows(source, root, entry, real, share_of), (None, None), None
    modality = modality_of(root.get("mod", ()), choice.get("modality"))
    group = root if modality is None else root[f"mod/{modality}"]
    layers = list(group["layers"]) if "layers" in group else []
    there = [key for key in ("X", "raw/X") if key in group]
    key = key_of(there, layers, choice.get("layer"), choice.get("use_raw", False))
    rows = _rows(source, group[key], entry, real, share_of)
    sides = ["obs", "raw/var" if key == "raw/X" else "var"]
    obs, var = (_frame(source, group, side, rows.shape, k) for k, side in enumerate(sides))
    for label in set(names_in(label_column)) & set(() if obs is None else obs):
        for array in _values(group["obs"][label]):
            _warn_of_absent(source, array)
    names = [None if frame is None else names_of_index(frame.index) for frame in (obs, var)]
    where = "the group" if obs is None else "obs"
    return rows, names, labels_of(pd.DataFrame() if obs is None else obs, label_column, where)


# ---- the matrix -----------------------------------------------------------------------------


def _rows_of_object(values) -> Rows:
    """Return the rows of a matrix in memory, or of one that AnnData reads from its file."""
    stored = getattr(values, "nnz", None)
    is_csc = getattr(values, "format", "") == "csc"
    if is_csc and hasattr(values, "to_memory"):
        values = values.to_memory()
    shape = tuple(map(int, values.shape))
    return Rows(shape, stored, lambda some: checked(values[some]), in_blocks=not is_csc)


def _rows(source, values, entry, real, share_of) -> Rows:
    """Return the rows of an array, or of a group that is a sparse matrix, if they fit."""
    if _is_array(values):
        check_axes(values, "its array")
        _require_room(values)
        chunk = 1 if values.chunks is None else int(values.chunks[0])
        shape = tuple(map(int, values.shape))
        rows = Rows(shape, None, lambda some: values[some], chunk=chunk)
        rows.check(values.dtype.itemsize + entry, real=real, share_of=share_of)
        _warn_of_absent(source, values)
        return rows
    said = values.attrs
    kind = str(said.get("encoding-type", f"{_text(said.get('h5sparse_format', ''))}_matrix"))
    shape = said.get("shape", said.get("h5sparse_shape"))
    if kind not in ("csr_matrix", "csc_matrix"):
        raise InputError(f"its X is of the kind {kind!r}; give a dense array, CSR or CSC")
    if shape is None:
        raise InputError("its X declares no shape; write it with AnnData")
    arrays = [values[name] for name in ("data", "indices", "indptr")]
    for array in arrays:
        _require_room(array)
        if arrays[0].size:  # pointers that are all zero need no file
            _require_chunks(array)
    Rows(tuple(map(int, shape)), arrays[0].size, None, in_blocks=kind == "csr_matrix").check(
        entry, real=real, share_of=share_of
    )
    return sparse_rows(shape, *arrays, by_column=kind == "csc_matrix")


def _text(value) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# ---- the tables of rows and columns ---------------------------------------------------------


def _frame(source, group, side, shape, axis) -> pd.DataFrame | None:
    """Return the table that AnnData wrote of one side of a matrix of this shape, if it did."""
    if side not in group:
        return None
    try:
        import anndata
        from anndata.io import read_elem
    except ImportError as err:
        raise needs_package("anndata", "zarr") from err
    table = group[side]
    if _is_array(table):  # as AnnData wrote it before 0.7
        check_length(side, table.shape, shape, axis)
        return pd.DataFrame(getattr(anndata.read_h5ad(source), side))
    for array in _columns(table):
        check_length(_path(array), array.shape, shape, axis)
    arrays = list(_arrays(table))
    for array in arrays:
        _require_room(array)
    needed = sum(a.size * (NAME if a.dtype.hasobject else a.dtype.itemsize) for a in arrays)
    require_memory(needed, "what is declared of its rows and columns", "store fewer columns of obs")
    index = table.attrs.get("_index")
    if index in table:
        for array in _values(table[index]):
            _require_chunks(array)
    return read_elem(table)


# ---- groups and arrays of either library ----------------------------------------------------


def _is_array(item) -> bool:
    return hasattr(item, "chunks")


def _path(array) -> str:
    return array.name.strip("/")


def _items(group) -> dict:
    return dict(group.members() if hasattr(group, "members") else group.items())


def _columns(group) -> Iterator:
    """Yield the arrays of a table with an entry for each of its lines."""
    for column in _items(group).values():
        if _is_array(column):
            yield column
        else:
            yield from (column[name] for name in _OF_LINES if name in column)


def _arrays(item) -> Iterator:
    """Yield an array, or those of a group and of the groups in it."""
    if _is_array(item):
        yield item
        return
    for part in _items(item).values():
        yield from _arrays(part)


def _values(item) -> Iterator:
    """Yield the arrays of a column; zarr has no chunk of a mask in which nothing is missing."""
    return (a for a in _arrays(item) if _is_hdf5(a) or not a.name.endswith("/mask"))


def _is_hdf5(array) -> bool:
    return hasattr(array, "fillvalue")


def _chunk_counts(array) -> tuple[int, int]:
    return (hdf5 if _is_hdf5(array) else zarr_store).chunk_counts(array)


def _warn_of_absent(path, array) -> None:
    """Warn of chunks that are not there, which may be meant: zarr writes none of one value."""
    absent, number = _chunk_counts(array)
    if absent:
        fill = array.fillvalue if _is_hdf5(array) else array.fill_value
        warnings.warn(
            f"{path}: {absent:,} of {number:,} chunks of {_path(array) or 'the array'} are not "
            f"there and are read as {fill}; if they were lost in copying, copy it again",
            stacklevel=2,
        )


def _require_chunks(array) -> None:
    """Refuse an array with chunks that are not there, which libraries read as one value."""
    absent, number = _chunk_counts(array)
    if absent:
        raise InputError(
            f"its array {_path(array)!r} lacks {absent:,} of {number:,} chunks; copy or write it "
            "again"
        )


def _require_room(array) -> None:
    """Refuse an array with a chunk that does not fit; one is decoded as a whole."""
    chunk = getattr(array, "shards", None) or array.chunks or ()
    size = math.prod(chunk) * array.dtype.itemsize
    what = f"a chunk of {_path(array) or 'the array'}, as the store declares it,"
    require_memory(size, what, "have it written in smaller chunks")

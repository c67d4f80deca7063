"""Parts of data of any kind: some of the rows, all but some of the cells, and repeated rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bmfjax.data import stores
from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.ratings import Ratings
from bmfjax.data.real import RealMatrix


def rows_of(data, rows):
    """Return some rows (row,) int of data, all columns and their names.

    >>> rows_of(BinaryMatrix([[1, 0], [0, 1], [1, None]]), np.array([0, 2])).dense()
    array([[ 1.,  0.],
           [ 1., nan]], dtype=float32)
    """
    names = {
        "row_names": tuple(data.row_names[i] for i in rows) if data.has_row_names else None,
        "column_names": data.column_names if data.has_column_names else None,
        "name": data.name,
    }
    if isinstance(data, BinaryMatrix):
        store = data._store
        if data.is_sparse:
            mask = None if store.mask is None else store.mask[rows]
            store = _sparse(store.ones[rows], store.marks, mask)
        elif data.is_packed:
            store = store.rows(rows)
        else:
            store = _dense(store.ones[rows], None if store.missing is None else store.missing[rows])
        return BinaryMatrix._from_store(store, **names)
    if isinstance(data, RealMatrix):
        values = data.nonzero() if data.is_sparse else data.dense(np.float64)
        return RealMatrix(values[rows], **names)
    place = np.full(data.num_rows, -1)
    place[rows] = np.arange(len(rows))
    held = place[data.rows] >= 0
    return Ratings(
        place[data.rows[held]], data.columns[held], data.values[held],
        shape=(len(rows), data.num_columns), scale=data.scale, **names,
    )  # fmt: skip


def without_cells(data, i, j):
    """Return the same data in which the cells (cell,) of rows `i` and columns `j` are missing.

    >>> without_cells(BinaryMatrix([[1, 0], [0, 1]]), np.array([1]), np.array([0])).dense()
    array([[ 1.,  0.],
           [nan,  1.]], dtype=float32)
    """
    names = {
        "row_names": data.row_names if data.has_row_names else None,
        "column_names": data.column_names if data.has_column_names else None,
        "name": data.name,
    }
    if isinstance(data, BinaryMatrix):
        store = data._store
        if data.is_sparse:
            hidden = sp.csr_array((np.ones(len(i), bool), (i, j)), shape=data.shape)
            if store.marks == "observed":
                store = _sparse(store.ones, "observed", store.mask > stores.canonical(hidden))
            else:
                mask = hidden if store.mask is None else store.mask + hidden
                store = _sparse(store.ones, "missing", mask)
        elif data.is_packed:
            store = store.without(i, j)
        else:
            missing = np.zeros(data.shape, bool) if store.missing is None else store.missing.copy()
            missing[i, j] = True
            store = _dense(store.ones, missing)
        return BinaryMatrix._from_store(store, **names)
    if isinstance(data, RealMatrix):
        values = data.dense(np.float64).copy()
        values[i, j] = np.nan
        return RealMatrix(values, **names)
    left = ~np.isin(_numbers(data, data.rows, data.columns), _numbers(data, i, j))
    return Ratings(
        data.rows[left], data.columns[left], data.values[left],
        shape=data.shape, scale=data.scale, **names,
    )  # fmt: skip


def repeated(data, times: int):
    """Return the rows of data several times, one below the other, without their names.

    >>> repeated(BinaryMatrix([[1, 0], [0, None]]), 2).dense()
    array([[ 1.,  0.],
           [ 0., nan],
           [ 1.,  0.],
           [ 0., nan]], dtype=float32)
    """
    names = {"column_names": data.column_names if data.has_column_names else None}
    if isinstance(data, BinaryMatrix):
        store = data._store
        if data.is_sparse:
            mask = None if store.mask is None else _stacked(store.mask, times)
            store = _sparse(_stacked(store.ones, times), store.marks, mask)
        else:
            missing = store.missing_array()
            missing = None if missing is None else np.tile(missing, (times, 1))
            store = _dense(np.tile(store.ones_array(), (times, 1)), missing)
        return BinaryMatrix._from_store(store, **names)
    if isinstance(data, RealMatrix):
        if data.is_sparse:
            return RealMatrix(sp.vstack([data.nonzero()] * times), **names)
        return RealMatrix(np.tile(data.dense(np.float64), (times, 1)), **names)
    places = np.repeat(np.arange(times) * data.num_rows, data.num_ratings)
    return Ratings(
        np.tile(data.rows, times) + places, np.tile(data.columns, times),
        np.tile(data.values, times), shape=(times * data.num_rows, data.num_columns),
        scale=data.scale, **names,
    )  # fmt: skip


def _sparse(ones, marks, mask):
    """Return a sparse store of CSRs: ones, and the entries that are missing, or observed."""
    given = {} if mask is None else {marks: stores.canonical(mask)}
    return stores.sparse_store(stores.canonical(ones), **given)


def _dense(ones, missing):
    """Return a dense store of arrays: ones, uint8, and the missing entries, or None."""
    if missing is None or not missing.any():
        return stores.DenseStore(ones, None)
    return stores.DenseStore(np.where(missing, 0, ones).astype(np.uint8), missing)


def _stacked(entries, times):
    return sp.vstack([entries] * times, format="csr")


def _numbers(data, i, j):
    """Return a number for each cell, by row and column."""
    return np.asarray(i, np.int64) * data.num_columns + np.asarray(j, np.int64)

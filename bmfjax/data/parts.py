"""Parts of data of any kind: some of the rows, all but some of the cells, and repeated rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.ratings import Ratings
from bmfjax.data.real import RealMatrix


def rows_of(data, rows):
    """Return some rows (row,) int of data, all columns and their names.

    >>> rows_of(BinaryMatrix([[1, 0], [0, 1], [1, None]]), np.array([0, 2])).dense()
    array([[ 1.,  0.],
           [ 1., nan]], dtype=float32)
    """
    names = _names(data)
    if data.has_row_names:
        names["row_names"] = tuple(data.row_names[i] for i in rows)
    if isinstance(data, BinaryMatrix):
        return BinaryMatrix._from_store(data._store.chosen(rows), **names)
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
    names = _names(data)
    if isinstance(data, BinaryMatrix):
        return BinaryMatrix._from_store(data._store.without(i, j), **names)
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
    names = {"column_names": data._column_names}
    if isinstance(data, BinaryMatrix):
        return BinaryMatrix._from_store(data._store.repeated(times), **names)
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


def _names(data):
    """Return names and title as arguments of data."""
    return {"row_names": data._row_names, "column_names": data._column_names, "name": data.name}


def _numbers(data, i, j):
    """Return a number for each cell, by row and column."""
    return np.asarray(i, np.int64) * data.num_columns + np.asarray(j, np.int64)

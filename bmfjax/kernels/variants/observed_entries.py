"""The observed entries of a binary matrix that is mostly missing, twice: by row and by column.

A list of (row, column, value) triples is cut into chunks of a fixed width. A chunk holds entries of
one line, a row or a column, and the last chunk of a line is filled up with padding. A sum over the
entries of every line is then a dense reduction over the width and a short scatter over the chunks,
and values of a line are gathered once a chunk instead of once an entry. Scatters and gathers are
slow on CPUs, so this makes a sweep over the entries cheap.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bmfjax.data.errors import InputError

WIDTHS = (4, 8, 16, 32, 64)
#: What a chunk costs, in entries: one gather and one scatter.
CHUNK_COST = 8


class EntryLists(NamedTuple):
    """The entries line by line."""

    line: jax.Array  # (chunk,) int32: the line of each chunk, in ascending order
    other: jax.Array  # (chunk, width) int32: the entry's place in its line; 0 for padding
    sign: jax.Array  # (chunk, width): +1 for a one, -1 for a zero, 0 for padding
    count: jax.Array  # (lines,) int32: observed entries


class ObservedEntries(NamedTuple):
    """The same entries as lists of the rows and as lists of the columns."""

    by_row: EntryLists
    by_column: EntryLists

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.by_row.count.shape[0], self.by_column.count.shape[0]


def observed_entries(rows, columns, values, shape=None, *, chunks=None) -> ObservedEntries:
    """List the observed entries, from triples in any order.

    Parameters
    ----------
    rows, columns : (entry,) array of integers
        From 0.
    values : (entry,) array
        0 or 1 (or bool).
    shape : (int, int), optional
        Rows and columns of the matrix; default: as many as the indices need.
    chunks : (int, int), optional
        Fill both lists up to this many chunks (see `num_chunks`), so that data sets of
        different entries share one compiled program. The widths are then 32.

    Returns
    -------
    ObservedEntries

    Raises
    ------
    InputError
        For no entries, lengths that differ, indices that are not integers or lie outside the
        shape, values other than 0 and 1, an entry that is given twice, or too few chunks.

    Examples
    --------
    >>> data = observed_entries([0, 0, 2], [1, 0, 1], [1, 0, 1])
    >>> data.shape, data.by_row.count.tolist(), data.by_column.count.tolist()
    ((3, 2), [2, 0, 1], [1, 2])
    >>> line_sums(data.by_row, data.by_row.sign).tolist()
    [0.0, 0.0, 1.0]
    """
    rows, columns, values, shape = _checked(rows, columns, values, shape)
    sides = ((rows, columns, shape[0]), (columns, rows, shape[1]))
    lists = []
    for k, (line, other, size) in enumerate(sides):
        count = np.bincount(line, minlength=size)
        width = best_width(count) if chunks is None else 32
        lists.append(_lists(line, other, values, count, width, chunks and chunks[k]))
    return ObservedEntries(*lists)


def num_chunks(lines, width=32) -> int:
    """Count the chunks that the lists of these entries have, given each entry's line."""
    return int((-(-np.bincount(lines) // width)).sum())


def best_width(count) -> int:
    """Return the width of a chunk with the least work for these numbers of entries a line."""

    def work(width):
        return (-(-count // width)).sum() * (width + CHUNK_COST)

    return min(WIDTHS, key=work)


def line_sums(lists: EntryLists, x):
    """Sum x (chunk, width), zero at the padding, over the entries of every line: (lines,)."""
    return jax.ops.segment_sum(
        x.sum(-1), lists.line, num_segments=lists.count.shape[0], indices_are_sorted=True
    )


def _lists(line, other, values, count, width, least) -> EntryLists:
    order = np.lexsort((other, line))
    line, other, values = line[order], other[order], values[order]
    per_line = -(-count // width)
    total = int(per_line.sum())
    size = total if least is None else least
    if size < total:
        raise InputError(f"chunks is {size} and the entries fill {total}; give at least so many")
    begin = np.concatenate([[0], np.cumsum(count)[:-1]])
    first = np.concatenate([[0], np.cumsum(per_line)[:-1]])
    place = np.arange(len(line)) - begin[line]
    chunk, slot = first[line] + place // width, place % width
    # Chunks that fill the list up belong to the last line: the order stays ascending.
    chunk_line = np.full(size, len(count) - 1, np.int32)
    chunk_line[:total] = np.repeat(np.arange(len(count)), per_line)
    others = np.zeros((size, width), np.int32)
    others[chunk, slot] = other
    signs = np.zeros((size, width), np.int8)
    signs[chunk, slot] = 2 * values - 1
    real = jnp.result_type(float)
    return EntryLists(
        *jax.device_put((chunk_line, others, signs.astype(real), count.astype(np.int32))),
    )


def _checked(rows, columns, values, shape):
    rows, columns, values = np.asarray(rows), np.asarray(columns), np.asarray(values)
    if not rows.ndim == columns.ndim == values.ndim == 1 or not (
        len(rows) == len(columns) == len(values)
    ):
        raise InputError(
            f"rows, columns and values have shapes {rows.shape}, {columns.shape} and "
            f"{values.shape}; give three lists of the same length"
        )
    if len(rows) == 0:
        raise InputError("there are no observed entries; give at least one")
    for name, index in (("rows", rows), ("columns", columns)):
        if not np.issubdtype(index.dtype, np.integer):
            raise InputError(f"{name} are {index.dtype}; give integers from 0")
    if shape is None:
        shape = (int(rows.max()) + 1, int(columns.max()) + 1)
    for name, index, size in (("rows", rows, shape[0]), ("columns", columns, shape[1])):
        outside = np.flatnonzero((index < 0) | (index >= size))
        if len(outside):
            raise InputError(
                f"{name}[{outside[0]}] is {index[outside[0]]}; give indices from 0 to {size - 1}, "
                "or a larger shape"
            )
    wrong = np.flatnonzero((values != 0) & (values != 1))
    if len(wrong):
        raise InputError(
            f"values[{wrong[0]}] is {values[wrong[0]]}; give 0 or 1, and leave out what is missing"
        )
    rows, columns = rows.astype(np.int64), columns.astype(np.int64)
    cells, first = np.unique(rows * shape[1] + columns, return_index=True)
    if len(cells) < len(rows):
        again = np.setdiff1d(np.arange(len(rows)), first)[0]
        raise InputError(
            f"row {rows[again]}, column {columns[again]} is given twice, again at {again}; "
            "give every entry once"
        )
    return rows, columns, values.astype(np.int8), tuple(shape)

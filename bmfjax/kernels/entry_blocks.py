"""The observed entries of a mostly missing matrix, twice, in blocks of lines of like degree.

A line is a row or a column, its degree the number of its entries. Lines are ordered by degree and
cut into blocks of so many lines; the entries of a block fill a table of lines x width, padded to
one of a few widths that are chosen for the data at hand so that little is padding. Blocks whose
lines have more entries than `MAX_WIDTH` are made of several such tables. A loop over the blocks
then does its work with dense products, in memory that does not grow with the matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bmfjax.data.errors import InputError

#: Entries of a line in one table at most, and different widths of tables.
MAX_WIDTH, MAX_KINDS = 256, 8
#: Widths are multiples of this.
STEP = 4


class LineBlocks(NamedTuple):
    """The entries line by line, in blocks.

    Attributes
    ----------
    other : tuple of (tables, lines, width) int32
        For every width the entries' places in their lines, and `padding`.
    value : tuple of (tables, lines, width) float
        Zero as padding.
    line : tuple of (tables, lines) int32
        The lines of every table; as padding, the number of lines.
    kind, first, number : (blocks,) int32
        Of every block: which width, its first table there, and how many tables it has.
    place : (number of lines,) int32
        Where each line stands among all blocks' lines.
    count : (number of lines,) int32
        Degrees.
    padding : () int32
        What stands for padding in `other`: the number of places.
    """

    other: tuple[jax.Array, ...]
    value: tuple[jax.Array, ...]
    line: tuple[jax.Array, ...]
    kind: jax.Array
    first: jax.Array
    number: jax.Array
    place: jax.Array
    count: jax.Array
    padding: jax.Array


class EntryBlocks(NamedTuple):
    """The same entries as blocks of rows and as blocks of columns.

    Attributes
    ----------
    by_row, by_column : LineBlocks
    """

    by_row: LineBlocks
    by_column: LineBlocks

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.by_row.count.shape[0], self.by_column.count.shape[0]


def entry_blocks(rows, columns, values, shape, *, block_size: int | None = None) -> EntryBlocks:
    """Blocks of entries, from triples in any order.

    Parameters
    ----------
    rows, columns : (entry,) array of int
        From 0; no pair twice (see `bmfjax.Ratings`, which checks that).
    values : (entry,) array of float
    shape : (int, int)
        Rows and columns of the matrix.
    block_size : int, optional
        Lines of a block: memory grows with it, and the number of steps falls. Default: from 8 to
        64, by the size of the matrix.

    Returns
    -------
    EntryBlocks

    Raises
    ------
    InputError
        For lists of different lengths, no entries, or a block size below 1.

    Examples
    --------
    >>> data = entry_blocks([0, 0, 2], [1, 0, 1], [1.0, 2.0, 3.0], (3, 2))
    >>> data.shape, data.by_row.count.tolist(), data.by_column.count.tolist()
    ((3, 2), [2, 0, 1], [1, 2])
    """
    rows, columns, values = np.asarray(rows), np.asarray(columns), np.asarray(values)
    if not rows.shape == columns.shape == values.shape or rows.ndim != 1 or not len(rows):
        raise InputError(
            f"rows, columns and values have shapes {rows.shape}, {columns.shape} and "
            f"{values.shape}; give three lists of one length, of at least one entry"
        )
    if block_size is not None and block_size < 1:
        raise InputError(f"block_size is {block_size}; give at least 1")
    sides = ((rows, columns, *shape), (columns, rows, *reversed(shape)))
    return EntryBlocks(*(_blocks(*s[:2], values, *s[2:], block_size) for s in sides))


def best_widths(degrees, most: int = MAX_KINDS) -> list[int]:
    """The widths, at most so many, that leave the least padding for tables of these degrees.

    Parameters
    ----------
    degrees : (tables,) array of int
        At most `MAX_WIDTH`.
    most : int

    Returns
    -------
    list of int
        Ascending, multiples of `STEP`.

    Examples
    --------
    >>> best_widths([3, 4, 9, 200], most=2), best_widths([3, 4, 9, 200])
    ([12, 200], [4, 12, 200])
    """
    needed = -(-np.maximum(np.asarray(degrees), 1) // STEP) * STEP
    widths, count = np.unique(needed, return_counts=True)
    above = np.concatenate([[0], np.cumsum(count)])
    # cost[j]: least total width of the tables up to the j-th width, with so many kinds.
    cost, choice = widths * above[1:], [np.zeros(len(widths), int)]
    for _ in range(min(most, len(widths)) - 1):
        # One kind more: tables from the i-th width on get the j-th.
        table = widths[None, :] * (above[1:][None, :] - above[:-1][:, None])
        table = table + np.concatenate([[0], cost[:-1]])[:, None]
        table[np.tril_indices(len(widths), -1)] = np.iinfo(np.int64).max
        choice.append(table.argmin(0))
        cost = table.min(0)
    chosen, j = [], len(widths) - 1
    for i in reversed(choice):
        chosen.append(int(widths[j]))
        j = i[j] - 1
        if j < 0:
            break
    return chosen[::-1]


def _blocks(line, other, values, lines, others, size) -> LineBlocks:
    count = np.bincount(line, minlength=lines)
    if size is None:
        size = int(np.clip(2 ** np.floor(np.log2(max(lines / 4, 1))), 8, 64))
    ranked = np.argsort(count, kind="stable")
    number = -(-lines // size)
    padded = np.full(number * size, lines)
    padded[:lines] = ranked
    place = np.empty(lines, np.int64)
    place[ranked] = np.arange(lines)
    # The last line of a block has the most entries of it.
    degree = count[ranked[np.minimum(np.arange(1, number + 1) * size, lines) - 1]]
    tables = np.maximum(-(-degree // MAX_WIDTH), 1)
    widths = best_widths(np.where(tables > 1, MAX_WIDTH, degree))
    kind = np.searchsorted(widths, np.minimum(degree, MAX_WIDTH))
    first = np.zeros(number, np.int64)
    for k in range(len(widths)):
        first[kind == k] = np.cumsum(tables[kind == k]) - tables[kind == k]

    blocks = padded.reshape(number, size)

    order = np.argsort(line, kind="stable")
    line, other, values = line[order], other[order], values[order]
    slot = np.arange(len(line)) - (np.cumsum(count) - count)[line]
    block = place[line] // size
    filled = []
    for k, width in enumerate(widths):
        shape = (int(tables[kind == k].sum()), size, width)
        others_k, values_k = np.full(shape, others, np.int32), np.zeros(shape, np.float64)
        own = kind[block] == k
        at = (first[block[own]] + slot[own] // width, place[line[own]] % size, slot[own] % width)
        others_k[at], values_k[at] = other[own], values[own]
        lines_k = np.repeat(blocks[kind == k], tables[kind == k], axis=0)
        values_k = jnp.asarray(values_k, jnp.result_type(float))
        filled.append((jnp.asarray(others_k), values_k, jnp.asarray(lines_k, jnp.int32)))
    integers = (kind, first, tables, place, count, others)
    return LineBlocks(
        *(tuple(part) for part in zip(*filled, strict=True)),
        *(jnp.asarray(a, jnp.int32) for a in integers),
    )


def flat_values(lists: LineBlocks):
    """Values of all tables in one row, and which of them are entries and not padding."""
    values = jnp.concatenate([v.ravel() for v in lists.value])
    return values, jnp.concatenate([(o < lists.padding).ravel() for o in lists.other])

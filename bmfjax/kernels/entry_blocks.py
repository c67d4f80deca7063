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

#: Entries of a line in one table at most, and different widths of tables: of few entries fewer,
#: since each is a loop to compile.
MAX_WIDTH, MAX_KINDS, FEW = 256, 5, (5_000, 50_000)
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


#: Of each side the tables: ``((width, number), ...)``.
Layout = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]


def entry_blocks(
    rows, columns, values, shape, *, block_size: int | None = None, layout: Layout | None = None
) -> EntryBlocks:
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
    layout : tuple, optional
        Of `common_layout`, so that data sets of different entries share one compiled program.

    Returns
    -------
    EntryBlocks

    Raises
    ------
    InputError
        For lists of different lengths, no entries, a block size below 1, or a layout of too few
        tables.

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
    return EntryBlocks(
        *(
            _blocks(line, other, values, n, m, block_size, layout and layout[k])
            for k, (line, other, n, m) in enumerate(sides)
        )
    )


def common_layout(datasets, shape, *, block_size: int | None = None) -> Layout:
    """Tables that hold the entries of any of several data sets of one shape.

    Parameters
    ----------
    datasets : list of ((entry,) array, (entry,) array)
        Rows and columns of the entries of each.
    shape : (int, int)
    block_size : int, optional
        As for `entry_blocks`.

    Returns
    -------
    tuple

    Examples
    --------
    >>> layout = common_layout([([0, 0, 1], [0, 1, 1]), ([1], [0])], (2, 2))
    >>> a, b = (entry_blocks([i], [0], [1.0], (2, 2), layout=layout) for i in range(2))
    >>> [v.shape for v in a.by_row.value] == [v.shape for v in b.by_row.value]
    True
    """
    layout = []
    for side, lines in enumerate(shape):
        size = _block_size(lines, block_size)
        counts = [np.bincount(np.asarray(d[side]), minlength=lines) for d in datasets]
        degrees = [_degrees(np.sort(c), size) for c in counts]
        widths = _widths(np.concatenate(degrees), max(len(d[0]) for d in datasets))
        tables = [_tables(d, widths) for d in degrees]
        most = np.max([[n[k == i].sum() for i in range(len(widths))] for k, n in tables], axis=0)
        layout.append(tuple(zip(widths, map(int, most), strict=True)))
    return tuple(layout)


def best_widths(degrees, most: int) -> list[int]:
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
    >>> best_widths([3, 4, 9, 200], most=2), best_widths([3, 4, 9, 200], most=8)
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


def _block_size(lines, size):
    if size is not None:
        return size
    return int(np.clip(2 ** np.floor(np.log2(max(lines / 4, 1))), 8, 64))


def _degrees(ascending, size):
    """The largest degree of every block, from the degrees of all lines in ascending order."""
    lines = len(ascending)
    return ascending[np.minimum(np.arange(1, -(-lines // size) + 1) * size, lines) - 1]


def _widths(degrees, entries):
    most = 1 if entries < FEW[0] else 2 if entries < FEW[1] else MAX_KINDS
    return best_widths(np.minimum(degrees, MAX_WIDTH), most)


def _tables(degrees, widths):
    """Of every block: which width, and how many tables."""
    kind = np.searchsorted(widths, np.minimum(degrees, MAX_WIDTH))
    return kind, np.maximum(-(-degrees // np.take(widths, kind)), 1)


def _blocks(line, other, values, lines, others, size, layout) -> LineBlocks:
    count = np.bincount(line, minlength=lines)
    size = _block_size(lines, size)
    ranked = np.argsort(count, kind="stable")
    degrees = _degrees(count[ranked], size)
    number = len(degrees)
    padded = np.full(number * size, lines)
    padded[:lines] = ranked
    place = np.empty(lines, np.int64)
    place[ranked] = np.arange(lines)
    widths = _widths(degrees, len(line)) if layout is None else [w for w, _ in layout]
    kind, tables = _tables(degrees, widths)
    first = np.zeros(number, np.int64)
    for k in range(len(widths)):
        first[kind == k] = np.cumsum(tables[kind == k]) - tables[kind == k]
    totals = [int(tables[kind == k].sum()) for k in range(len(widths))]
    blocks = padded.reshape(number, size)
    if layout is not None:
        totals = _room(totals, layout)

    order = np.argsort(line, kind="stable")
    line, other, values = line[order], other[order], values[order]
    slot = np.arange(len(line)) - (np.cumsum(count) - count)[line]
    block = place[line] // size
    filled = []
    for k, width in enumerate(widths):
        shape = (totals[k], size, width)
        others_k, values_k = np.full(shape, others, np.int32), np.zeros(shape, np.float64)
        own = kind[block] == k
        at = (first[block[own]] + slot[own] // width, place[line[own]] % size, slot[own] % width)
        others_k[at], values_k[at] = other[own], values[own]
        lines_k = np.full((totals[k], size), lines, np.int32)
        held = np.repeat(blocks[kind == k], tables[kind == k], axis=0)
        lines_k[: len(held)] = held
        values_k = jnp.asarray(values_k, jnp.result_type(float))
        filled.append((jnp.asarray(others_k), values_k, jnp.asarray(lines_k)))
    integers = (kind, first, tables, place, count, others)
    return LineBlocks(
        *(tuple(part) for part in zip(*filled, strict=True)),
        *(jnp.asarray(a, jnp.int32) for a in integers),
    )


def _room(needed, layout):
    room = [n for _, n in layout]
    for (width, n), least in zip(layout, needed, strict=True):
        if n < least:
            raise InputError(
                f"layout has {n} tables of width {width} and the entries fill {least}; make it of "
                "all data sets that it is for"
            )
    return room


def flat_values(lists: LineBlocks):
    """Values of all tables in one row, and which of them are entries and not padding."""
    values = jnp.concatenate([v.ravel() for v in lists.value])
    return values, jnp.concatenate([(o < lists.padding).ravel() for o in lists.other])

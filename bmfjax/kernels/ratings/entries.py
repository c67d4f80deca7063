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

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.kernels.numerics.budget import ONE_BY_ONE, Budget, device_budget, device_memory
from bmfjax.kernels.numerics.mesh import WHOLE, Along
from bmfjax.kernels.ratings.attributes import Attributes

#: Entries of a line in one table at most, and different widths of tables: of few entries fewer,
#: since each is a loop to compile.
MAX_WIDTH, MAX_KINDS, FEW = 256, 5, (5_000, 50_000)
#: Widths are multiples of this.
STEP = 4
#: Lines of a block at most: on a CPU, where fewer leave less padding, and elsewhere.
LINES = (32, 64)


class LineBlocks(NamedTuple):
    """The entries line by line, in blocks; integers are int32."""

    other: tuple[jax.Array, ...]  # (tables, lines, width) for every width: places in the lines
    value: tuple[jax.Array, ...]  # the same, float; zero as padding
    line: tuple[jax.Array, ...]  # (tables, lines); as padding the number of lines
    kind: jax.Array  # (blocks,): which width each block has
    first: jax.Array  # (blocks,): its first table there
    number: jax.Array  # (blocks,): its number of tables
    place: jax.Array  # (number of lines,): where each line stands among all blocks' lines
    count: jax.Array  # (number of lines,): degrees
    padding: jax.Array  # (): stands for padding in `other`; the number of places


class EntryBlocks(NamedTuple):
    """The same entries as blocks of rows and as blocks of columns, and what is known of factors."""

    by_row: LineBlocks
    by_column: LineBlocks
    #: (columns, number): the first coordinates of the columns' factors, where these are known.
    known: jax.Array | None = None
    #: What is known of rows and of columns, in the prior means of their vectors.
    row_attributes: Attributes | None = None
    column_attributes: Attributes | None = None
    #: On a mesh every device has all entries, and draws the vectors of its own blocks of lines.
    along: Along = WHOLE
    #: How many blocks and tables are worked on at once, where no mesh divides them.
    budget: Budget = ONE_BY_ONE

    def num_known(self, side: str) -> int:
        """Return how many first coordinates of a side's vectors are known."""
        return 0 if side == "row" or self.known is None else self.known.shape[1]

    def attributes(self, side: str) -> Attributes | None:
        """Return what is known of the lines of a side."""
        return self.row_attributes if side == "row" else self.column_attributes

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.by_row.count.shape[0], self.by_column.count.shape[0]


#: The tables of each side: ``((width, number), ...)``.
Layout = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]


def entry_blocks(
    rows, columns, values, shape, *, block_size: int | None = None, layout: Layout | None = None
) -> EntryBlocks:
    """Return blocks of entries, from triples in any order.

    `block_size` is the number of lines of a block. A `layout` of `common_layout` makes data sets
    alike in shape, so that one compiled program serves them.
    """
    rows, columns, values = np.asarray(rows), np.asarray(columns), np.asarray(values)
    if not rows.shape == columns.shape == values.shape or rows.ndim != 1 or not len(rows):
        raise InputError(
            f"rows, columns and values have shapes {rows.shape}, {columns.shape} and "
            f"{values.shape}; give three lists of one length, of at least one entry"
        )
    if block_size is not None:
        whole("block_size", block_size)
    sides = ((rows, columns, *shape), (columns, rows, *reversed(shape)))
    return EntryBlocks(
        *(
            _blocks(line, other, values, n, m, block_size, layout and layout[k])
            for k, (line, other, n, m) in enumerate(sides)
        ),
        budget=device_budget(),
    )


def common_layout(datasets, shape, *, block_size: int | None = None) -> Layout:
    """Return tables for the entries of any of several data sets, each (rows, columns, ...)."""
    layout = []
    for side, lines in enumerate(shape):
        size = _block_size(lines, block_size)
        counts = [np.bincount(np.asarray(d[side]), minlength=lines) for d in datasets]
        degrees = [_degrees(c, _ranked(c, size)) for c in counts]
        widths = _widths(np.concatenate(degrees), max(len(d[0]) for d in datasets))
        tables = [_tables(d, widths) for d in degrees]
        most = np.max([[n[k == i].sum() for i in range(len(widths))] for k, n in tables], axis=0)
        layout.append(tuple(zip(widths, map(int, most), strict=True)))
    return tuple(layout)


def best_widths(degrees, most: int) -> list[int]:
    """Return at most so many widths, ascending, that leave the least padding for these degrees."""
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
    most = LINES[device_memory() is not None]
    return int(np.clip(2 ** np.floor(np.log2(max(lines / 4, 1))), 8, most))


def _ranked(count, size):
    """Return lines in blocks (block, size) by ascending number of entries.

    Padding, the number of lines, stands before the first: beside lines of few entries.
    """
    lines = len(count)
    ranked = np.full(-(-lines // size) * size, lines)
    ranked[len(ranked) - lines :] = np.argsort(count, kind="stable")
    return ranked.reshape(-1, size)


def _degrees(count, ranked):
    """Return the largest degree of every block."""
    return np.append(count, 0)[ranked].max(1)


def _widths(degrees, entries):
    most = 1 if entries < FEW[0] else 2 if entries < FEW[1] else MAX_KINDS
    return best_widths(np.minimum(degrees, MAX_WIDTH), most)


def _tables(degrees, widths):
    """Return of every block which width it has, and how many tables."""
    kind = np.searchsorted(widths, np.minimum(degrees, MAX_WIDTH))
    return kind, np.maximum(-(-degrees // np.take(widths, kind)), 1)


def _blocks(line, other, values, lines, others, size, layout) -> LineBlocks:
    count = np.bincount(line, minlength=lines)
    size = _block_size(lines, size)
    blocks = _ranked(count, size)
    degrees = _degrees(count, blocks)
    place = np.empty(lines + 1, np.int64)
    place[blocks.ravel()] = np.arange(blocks.size)
    place = place[:lines]
    widths = _widths(degrees, len(line)) if layout is None else [w for w, _ in layout]
    kind, tables = _tables(degrees, widths)
    first = np.zeros(len(blocks), np.int64)
    for k in range(len(widths)):
        first[kind == k] = np.cumsum(tables[kind == k]) - tables[kind == k]
    totals = [int(tables[kind == k].sum()) for k in range(len(widths))]
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
        values_k = values_k.astype(jnp.result_type(float))
        filled.append(jax.device_put((others_k, values_k, lines_k)))
    integers = (kind, first, tables, place, count, others)
    return LineBlocks(
        *(tuple(part) for part in zip(*filled, strict=True)),
        *(jax.device_put(np.array(a, np.int32)) for a in integers),
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
    """Return the values of all tables in one row, and which of them are no padding."""
    values = jnp.concatenate([v.ravel() for v in lists.value])
    return values, jnp.concatenate([(o < lists.padding).ravel() for o in lists.other])

r"""A matrix as samplers hold it: both orientations, what is missing, dense or sparse.

Everything a sampler of a Gaussian factorisation asks of the data are products
with a factor matrix, the sum of squared residuals and the number of observed
entries. `MatrixData` answers from the dense matrix, `SparseMatrixData` from the
nonzero entries alone. On a mesh a device holds its own rows and its own columns, and the sums are
those of all devices.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import lax
from jax.sharding import Mesh

from bmfjax.data.errors import InputError
from bmfjax.kernels.numerics.mesh import (
    ROWS,
    WHOLE,
    Along,
    num_shards,
    place,
    place_lines,
)
from bmfjax.kernels.numerics.precision import full_precision

#: The factor matrices, and of each the other one.
FACTORS = ("usage", "basis")
OTHER = {"usage": "basis", "basis": "usage"}
#: Lists of cells are used where no line has more than this share of its cells listed.
MAX_LISTED = 1 / 8
#: Entries of a line that stand side by side, the most that fit with few zeros between: at most
#: so many places an entry. And places that are looked at at once: what is in memory.
WIDTHS, MOST_PLACES, BLOCK = (16, 8, 4, 2, 1), 1.25, 2**15


class MissingCells(NamedTuple):
    """Positions of the missing cells of every line, (most, lines) int32.

    Padded with the length of a line, one more than the last position.
    """

    index: jax.Array


class ObservedCells(NamedTuple):
    """Positions of the observed cells of every line, likewise, where these are the fewer."""

    index: jax.Array


class MatrixData(NamedTuple):
    """A dense matrix in both orientations, so that rows and columns are gathered alike.

    On a mesh the last axis of every array is `along` the rows of the mesh: a device has its own
    columns of `values` and its own rows of `transposed`, filled up with zeros that count nowhere.
    """

    values: jax.Array  # (rows, columns) float, zero where missing
    transposed: jax.Array  # (columns, rows)
    observed: jax.Array | None  # (rows, columns) float, one where observed; None: everything is
    observed_transposed: jax.Array | None  # (columns, rows)
    by_row: MissingCells | ObservedCells | None = None  # along rows, where short
    by_column: MissingCells | ObservedCells | None = None
    count: jax.Array | None = None  # () float: number of observed entries, on a mesh
    along: Along = WHOLE


class LineEntries(NamedTuple):
    """The nonzero entries of lines, in pieces of `width` entries of one line each.

    Pieces are in the order of lines, and so many that blocks of them divide their number. What
    fills up are zeros.
    """

    line: jax.Array  # (pieces,) int32
    place: jax.Array  # (width, pieces) int32: positions in the line
    value: jax.Array  # (width, pieces) float

    def blocks(self):
        """Return the number of blocks, and a function that returns one of them."""
        width, pieces = self.value.shape
        size = min(pieces, BLOCK // width)

        def block(b):
            some = (lax.dynamic_slice_in_dim(a, b * size, size, a.ndim - 1) for a in self)
            return LineEntries(*some)

        return pieces // size, block


class SparseMatrixData(NamedTuple):
    """The nonzero entries of a matrix, by row and again by column.

    On a mesh a device has those of its own rows, and again of its own columns, with the numbers
    that these have there.
    """

    of_rows: LineEntries
    of_columns: LineEntries
    rows: jax.Array  # (rows, 0) float: an empty array that carries the shape
    columns: jax.Array  # (columns, 0)
    by_row: MissingCells | None  # as long as the line with most; None: everything is observed
    by_column: MissingCells | None
    count: jax.Array  # () float: number of observed entries
    along: Along = WHOLE


def matrix_data(values, observed=None, mesh: Mesh | None = None) -> MatrixData:
    """Build `MatrixData` from a matrix whose missing entries are NaN or masked."""
    # On the host where possible, also inside a trace: a matrix that is known to have no
    # gaps needs no mask, which saves half of the work.
    traced = any(isinstance(x, jax.core.Tracer) for x in (values, observed))
    xp = jnp if traced else np
    dtype = jnp.result_type(float)
    values = xp.asarray(values, dtype)
    seen = ~xp.isnan(values)
    if observed is not None:
        seen = seen & xp.asarray(observed, bool)
    values = xp.where(seen, values, xp.zeros((), dtype))
    complete = not traced and seen.all()
    mask = None if complete else seen.astype(dtype)
    lists = (None, None)
    if not (traced or complete):
        lists = (_listed(seen, mesh), _listed(seen.T, mesh))
    both = (values, values.T.copy(), mask, None if mask is None else mask.T.copy())
    if mesh is None:
        return MatrixData(*(both if traced else jax.device_put(both)), *lists)
    placed = (None if x is None else place_lines(x, mesh) for x in both)
    return MatrixData(*placed, *lists, np.asarray(seen.sum(), dtype), Along(ROWS))


def _listed(seen, mesh):
    """Return the shorter list of cells along the rows of `seen`, or None where neither is short."""
    for kind, cells in ((MissingCells, ~seen), (ObservedCells, seen)):
        if cells.sum(1).max() <= MAX_LISTED * seen.shape[1]:
            line, position = np.nonzero(cells)
            return kind(_padded(line, position, *seen.shape, mesh))
    return None


def _padded(line, position, lines, length, mesh):
    """Return positions grouped by line, (most, lines), padded with `length`."""
    counts = np.bincount(line, minlength=lines)
    index = np.full((max(counts.max(initial=0), 1), lines), length, np.int32)
    order = np.argsort(line, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    index[np.arange(len(line)) - starts[line[order]], line[order]] = position[order]
    return jax.device_put(index) if mesh is None else place_lines(index, mesh, fill=length)


def sparse_matrix_data(values, missing=None, mesh: Mesh | None = None) -> SparseMatrixData:
    """Build `SparseMatrixData` from a scipy sparse matrix, in which what is not stored is zero.

    `missing`, (2, number), holds rows and columns of the missing entries, where zeros are stored or
    nothing is.
    """
    dtype, shape = jnp.result_type(float), values.shape
    gaps = np.zeros((2, 0), np.int32) if missing is None else np.asarray(missing, np.int32)
    for name, found, size in zip(("row", "column"), gaps, shape, strict=True):
        if len(found) and not (found.min() >= 0 and found.max() < size):
            raise InputError(f"a {name} index is outside 0 to {size - 1}; check the positions")
    lists = (None, None)
    if gaps.shape[1]:
        lists = (
            MissingCells(_padded(gaps[0], gaps[1], *shape, mesh)),
            MissingCells(_padded(gaps[1], gaps[0], shape[1], shape[0], mesh)),
        )
    lines = jax.device_put(tuple(np.zeros((size, 0), dtype) for size in shape))
    if mesh is not None:
        lines = (np.pad(a, ((0, -len(a) % num_shards(mesh)), (0, 0))) for a in lines)
        lines = tuple(place(a, mesh, ROWS) for a in lines)
    return SparseMatrixData(
        of_rows=_line_entries(sp.csr_array(values), dtype, mesh),
        of_columns=_line_entries(sp.csr_array(values.T), dtype, mesh),
        rows=lines[0],
        columns=lines[1],
        by_row=lists[0],
        by_column=lists[1],
        count=np.asarray(float(shape[0]) * shape[1] - gaps.shape[1], dtype),
        along=WHOLE if mesh is None else Along(ROWS),
    )


def _line_entries(csr, dtype, mesh: Mesh | None) -> LineEntries:
    """Return the entries of the rows of a CSR, those of a device side by side.

    Each device has as many pieces, and its own lines count from 0; what fills up is at its last.
    """
    lines, counts = csr.shape[0], np.diff(csr.indptr)
    most = MOST_PLACES * max(csr.nnz, 1)
    width = next(w for w in WIDTHS if w == 1 or w * (-(-counts // w)).sum() <= most)
    of_line = -(-counts // width)
    line = np.repeat(np.arange(lines), of_line)
    size = -(-lines // num_shards(mesh))
    part = line // size
    of_part = np.bincount(part, minlength=num_shards(mesh))
    pieces, block = max(of_part.max(), 1), BLOCK // width
    if pieces > block:
        pieces += -pieces % block
    stands = part * pieces + np.arange(len(line)) - (np.cumsum(of_part) - of_part)[part]
    number = pieces * num_shards(mesh)
    found = LineEntries(
        np.full(number, size - 1, np.int32),
        np.zeros((width, number), np.int32),
        np.zeros((width, number), dtype),
    )
    found.line[stands] = line - part * size
    slot = np.arange(csr.nnz) - np.repeat(csr.indptr[:-1], counts)
    first = np.cumsum(of_line) - of_line
    at = slot % width, stands[np.repeat(first, counts) + slot // width]
    found.place[at], found.value[at] = csr.indices, csr.data
    return (
        jax.device_put(found)
        if mesh is None
        else LineEntries(*(place_lines(a, mesh) for a in found))
    )


def num_observed(data: MatrixData | SparseMatrixData) -> jax.Array:
    """Return the number of observed entries, as a float (exact up to 2^24 a row)."""
    if data.count is not None:
        return data.count
    if data.observed is None:
        return jnp.asarray(float(data.values.size), data.values.dtype)
    return jnp.sum(jnp.sum(data.observed, axis=1))


def oriented(factor, data: MatrixData):
    """Return values and mask, (n, m), with the lines of the other factor matrix first.

    On a mesh m is the number of this device's own lines.
    """
    if factor == "usage":
        return data.transposed, data.observed_transposed
    return data.values, data.observed


@full_precision
def transposed_product(values, other):
    """Return ``values.T @ other``, transposing the small matrix alone.

    XLA on CPU would copy `values` into its transpose first, which takes longer than
    the product; the barriers keep it from rewriting this form into that one.
    """
    return lax.optimization_barrier(lax.optimization_barrier(other.T) @ values).T


@full_precision
def cross_product(data: MatrixData | SparseMatrixData, factor: str, other) -> jax.Array:
    r"""Return what a factor matrix's conditional needs of the data, (rank, m).

    That is :math:`(D X)^\top` for the usage and :math:`(D^\top Y)^\top` for the basis, missing
    entries left out, with `other` (n, rank) the other factor matrix. On a mesh of this device's own
    m lines.
    """
    if isinstance(data, MatrixData):
        values, _ = oriented(factor, data)
        return lax.optimization_barrier(lax.optimization_barrier(other.T) @ values)
    is_usage = factor == "usage"
    number, block = (data.of_rows if is_usage else data.of_columns).blocks()
    lines = (data.rows if is_usage else data.columns).shape[0]

    def add(b, total):
        line, places, values = block(b)
        part = sum(v[:, None] * other[p] for p, v in zip(places, values, strict=True))
        return total.at[line].add(part, indices_are_sorted=True)

    return lax.fori_loop(0, number, add, jnp.zeros((lines, other.shape[1]), other.dtype)).T


@full_precision
def gram_matrix(factor, along: Along) -> jax.Array:
    """Return the Gram matrix of a factor matrix, (rank, rank); every device adds up its lines."""
    own = along.own(factor)
    return along.total(own.T @ own)


@full_precision
def residual_sum_of_squares(usage, basis, data: MatrixData | SparseMatrixData) -> jax.Array:
    """Return the sum of the squared residuals over the observed entries.

    Formed from the residuals themselves where the data are dense: the expanded
    form cancels in float32. For sparse data it is the expanded form, with partial
    sums and their rounding errors carried in pairs of floats.
    """
    if isinstance(data, SparseMatrixData):
        return _sparse_residual_sum_of_squares(usage, basis, data)
    residual = data.values - usage @ data.along.own(basis).T
    if data.observed is not None:
        residual = residual * data.observed
    # Row sums first: a single float32 sum over 10^8 squares loses digits.
    return data.along.total(jnp.sum(jnp.sum(residual * residual, axis=1)))


@full_precision
def _sparse_residual_sum_of_squares(usage, basis, data):
    own = data.along.own(usage)
    number, block = data.of_rows.blocks()

    def of_block(b):
        line, places, values = block(b)
        lines = own[line]
        fitted = jnp.stack([jnp.einsum("ek,ek->e", lines, basis[p]) for p in places])
        # Over the nonzero entries d (d - 2 f) = (d - f)^2 - f^2: no large terms yet.
        return pair_sum((values * (values - 2.0 * fitted)).ravel())

    pairs = [pair_sum(*lax.map(of_block, jnp.arange(number)))]
    if data.by_row is not None:
        gaps = gather_lines(basis, data.by_row.index)
        hidden = jnp.einsum("krm,mr->km", gaps, own)
        pairs.append(pair_sum(-(hidden * hidden).ravel()))
    pairs = [pair_of_all(data.along, *pair) for pair in pairs]
    pairs.append(pair_sum(*(a.ravel() for a in gram_products(usage, basis, data.along))))
    high, low = pair_sum(*map(jnp.stack, zip(*pairs, strict=True)))
    return jnp.maximum(high + low, 0.0)


def gram_products(usage, basis, along: Along):
    """Return products of the entries of both Gram matrices, (rank, rank), as pairs of floats."""
    high, low = _gram_pair(usage, along)
    other_high, other_low = _gram_pair(basis, along)
    product, error = _two_product(high, other_high)
    return product, error + high * other_low + low * other_high


def gather_lines(other, index):
    """Return lines of `other` at padded positions, (most, rank, lines); zero where padded."""
    padded = jnp.concatenate([other, jnp.zeros((1, other.shape[1]), other.dtype)])
    return jnp.swapaxes(padded[index], 1, 2)


@full_precision
def _gram_pair(factor, along, block=256):
    """Gram matrix as an unevaluated sum of two floats: exact to the blocks' own rounding."""
    factor = along.own(factor)
    short = -factor.shape[0] % block
    blocks = jnp.pad(factor, ((0, short), (0, 0))).reshape(-1, block, factor.shape[1])
    partial = jnp.einsum("bik,bil->bkl", blocks, blocks)
    return pair_of_all(along, *pair_sum(partial))


def pair_of_all(along, high, low):
    """Return the sum of the pairs that the devices have."""
    if along.axis is None:
        return high, low
    high, low = along.gather((high[None], low[None]))
    return pair_sum(high, low)


def pair_sum(high, low=None):
    """Sum along the first axis, pairwise; returns the sum and its rounding errors, kept apart.

    `low` are what the terms lack already.
    """
    low = jnp.zeros_like(high) if low is None else low
    while high.shape[0] > 1:
        if high.shape[0] % 2:
            pad = [(0, 1)] + [(0, 0)] * (high.ndim - 1)
            high, low = jnp.pad(high, pad), jnp.pad(low, pad)
        total, error = _two_sum(high[0::2], high[1::2])
        high, low = total, low[0::2] + low[1::2] + error
    return high[0], low[0]


def _two_sum(a, b):
    """Sum and its rounding error (Knuth 1969)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a, b):
    """Product and its rounding error, by splitting both (Dekker 1971)."""
    bits = 12 if a.dtype == jnp.float32 else 27
    factor = float(2**bits + 1)

    def split(x):
        scaled = lax.optimization_barrier(x * factor)
        high = lax.optimization_barrier(scaled - lax.optimization_barrier(scaled - x))
        return high, x - high

    product = lax.optimization_barrier(a * b)
    (a1, a2), (b1, b2) = split(a), split(b)
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2

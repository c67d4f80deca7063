r"""A matrix as samplers hold it: both orientations, what is missing, dense or sparse.

Everything a sampler of a Gaussian factorisation asks of the data are products
with a factor matrix, the sum of squared residuals and the number of observed
entries. `MatrixData` answers from the dense matrix, `SparseMatrixData` from the
nonzero entries alone.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bmfjax.data.errors import InputError

#: The factor matrices, and of each the other one.
FACTORS = ("usage", "basis")
OTHER = {"usage": "basis", "basis": "usage"}
#: Lists of cells are used where no line has more than this share of its cells listed.
MAX_LISTED = 1 / 8


class MissingCells(NamedTuple):
    """Positions of the missing cells of every line, (most, lines) int32.

    Padded with the length of a line, one more than the last position.
    """

    index: jax.Array


class ObservedCells(NamedTuple):
    """Positions of the observed cells of every line, likewise, where these are the fewer."""

    index: jax.Array


class MatrixData(NamedTuple):
    """A dense matrix in both orientations, so that rows and columns are gathered alike."""

    values: jax.Array  # (rows, columns) float, zero where missing
    transposed: jax.Array  # (columns, rows)
    observed: jax.Array | None  # (rows, columns) float, one where observed; None: everything is
    observed_transposed: jax.Array | None  # (columns, rows)
    by_row: MissingCells | ObservedCells | None = None  # along rows, where short
    by_column: MissingCells | ObservedCells | None = None


class SparseMatrixData(NamedTuple):
    """The nonzero entries of a matrix, sorted by row and again by column."""

    by_row_index: jax.Array  # (2, nonzero) int32: row and column of every entry
    by_column_index: jax.Array  # the same, in the order of columns
    by_row_values: jax.Array  # (nonzero,) float
    by_column_values: jax.Array
    rows: jax.Array  # (rows, 0) float: an empty array that carries the shape
    columns: jax.Array  # (columns, 0)
    by_row: MissingCells | None  # as long as the line with most; None: everything is observed
    by_column: MissingCells | None
    count: jax.Array  # () float: number of observed entries


def matrix_data(values, observed=None) -> MatrixData:
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
        lists = (_listed(seen), _listed(seen.T))
    both = (values, values.T.copy(), mask, None if mask is None else mask.T.copy())
    return MatrixData(*(None if x is None else jnp.asarray(x) for x in both), *lists)


def _listed(seen):
    """The shorter list of cells along the rows of `seen`, or None where neither is short."""
    for kind, cells in ((MissingCells, ~seen), (ObservedCells, seen)):
        if cells.sum(1).max() <= MAX_LISTED * seen.shape[1]:
            line, position = np.nonzero(cells)
            return kind(_padded(line, position, *seen.shape))
    return None


def _padded(line, position, lines, length):
    """Positions grouped by line, (most, lines), padded with `length`."""
    counts = np.bincount(line, minlength=lines)
    index = np.full((max(counts.max(initial=0), 1), lines), length, np.int32)
    order = np.argsort(line, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    index[np.arange(len(line)) - starts[line[order]], line[order]] = position[order]
    return jnp.asarray(index)


def sparse_matrix_data(shape, row, column, values=None, missing=None) -> SparseMatrixData:
    """Build `SparseMatrixData` from the positions of the nonzero entries, each named once.

    `values` are ones unless given; `missing`, (2, number), holds rows and columns of the missing
    entries.
    """
    dtype = jnp.result_type(float)
    row, column = np.asarray(row, np.int32), np.asarray(column, np.int32)
    values = np.ones(len(row), dtype) if values is None else np.asarray(values, dtype)
    gaps = np.zeros((2, 0), np.int32) if missing is None else np.asarray(missing, np.int32)
    for name, found, size in (
        ("row", np.concatenate([row, gaps[0]]), shape[0]),
        ("column", np.concatenate([column, gaps[1]]), shape[1]),
    ):
        if len(found) and not (found.min() >= 0 and found.max() < size):
            raise InputError(f"a {name} index is outside 0 to {size - 1}; check the positions")
    lists = (None, None)
    if gaps.shape[1]:
        lists = (
            MissingCells(_padded(gaps[0], gaps[1], *shape)),
            MissingCells(_padded(gaps[1], gaps[0], shape[1], shape[0])),
        )
    by_row, by_column = np.lexsort((column, row)), np.lexsort((row, column))
    return SparseMatrixData(
        by_row_index=jnp.asarray(np.stack([row[by_row], column[by_row]])),
        by_column_index=jnp.asarray(np.stack([row[by_column], column[by_column]])),
        by_row_values=jnp.asarray(values[by_row]),
        by_column_values=jnp.asarray(values[by_column]),
        rows=jnp.zeros((shape[0], 0), dtype),
        columns=jnp.zeros((shape[1], 0), dtype),
        by_row=lists[0],
        by_column=lists[1],
        count=jnp.asarray(float(shape[0]) * shape[1] - gaps.shape[1], dtype),
    )


def num_observed(data: MatrixData | SparseMatrixData) -> jax.Array:
    """Return the number of observed entries, as a float (exact up to 2^24 a row)."""
    if isinstance(data, SparseMatrixData):
        return data.count
    if data.observed is None:
        return jnp.asarray(float(data.values.size), data.values.dtype)
    return jnp.sum(jnp.sum(data.observed, axis=1))


def oriented(factor, data: MatrixData):
    """Return values and mask, (n, m), with the lines of the other factor matrix first."""
    if factor == "usage":
        return data.transposed, data.observed_transposed
    return data.values, data.observed


def transposed_product(values, other):
    """Return ``values.T @ other``, transposing the small matrix alone.

    XLA on CPU would copy `values` into its transpose first, which takes longer than
    the product; the barriers keep it from rewriting this form into that one.
    """
    return lax.optimization_barrier(lax.optimization_barrier(other.T) @ values).T


def cross_product(data: MatrixData | SparseMatrixData, factor: str, other) -> jax.Array:
    r"""Return what a factor matrix's conditional needs of the data, (rank, m).

    That is :math:`(D X)^\top` for the usage and :math:`(D^\top Y)^\top` for the basis, missing
    entries left out, with `other` (n, rank) the other factor matrix.
    """
    if isinstance(data, MatrixData):
        values, _ = oriented(factor, data)
        return lax.optimization_barrier(lax.optimization_barrier(other.T) @ values)
    usage = factor == "usage"
    index = data.by_row_index if usage else data.by_column_index
    values = data.by_row_values if usage else data.by_column_values
    target, source = (index[0], index[1]) if usage else (index[1], index[0])
    lines = (data.rows if usage else data.columns).shape[0]
    summed = jax.ops.segment_sum(
        values[:, None] * other[source], target, lines, indices_are_sorted=True
    )
    return summed.T


def residual_sum_of_squares(usage, basis, data: MatrixData | SparseMatrixData) -> jax.Array:
    """Return the sum of the squared residuals over the observed entries.

    Formed from the residuals themselves where the data are dense: the expanded
    form cancels in float32. For sparse data it is the expanded form, with partial
    sums and their rounding errors carried in pairs of floats.
    """
    if isinstance(data, SparseMatrixData):
        return _sparse_residual_sum_of_squares(usage, basis, data)
    residual = data.values - usage @ basis.T
    if data.observed is not None:
        residual = residual * data.observed
    # Row sums first: a single float32 sum over 10^8 squares loses digits.
    return jnp.sum(jnp.sum(residual * residual, axis=1))


def _sparse_residual_sum_of_squares(usage, basis, data):
    row, column = data.by_row_index
    d = data.by_row_values
    fitted = jnp.einsum("ek,ek->e", usage[row], basis[column])
    # Over the nonzero entries d (d - 2 f) = (d - f)^2 - f^2: no large terms yet.
    gram_high, gram_low = _gram_pair(usage)
    other_high, other_low = _gram_pair(basis)
    product, error = _two_product(gram_high, other_high)
    error = error + gram_high * other_low + gram_low * other_high
    terms = [product.ravel(), error.ravel(), d * (d - 2.0 * fitted)]
    if data.by_row is not None:
        gaps = gather_lines(basis, data.by_row.index)
        hidden = jnp.einsum("krm,mr->km", gaps, usage)
        terms.append(-(hidden * hidden).ravel())
    high, low = _pair_sum(jnp.concatenate(terms))
    return jnp.maximum(high + low, 0.0)


def gather_lines(other, index):
    """Return lines of `other` at padded positions, (most, rank, lines); zero where padded."""
    padded = jnp.concatenate([other, jnp.zeros((1, other.shape[1]), other.dtype)])
    return jnp.swapaxes(padded[index], 1, 2)


def _gram_pair(factor, block=256):
    """Gram matrix as an unevaluated sum of two floats: exact to the blocks' own rounding."""
    short = -factor.shape[0] % block
    blocks = jnp.pad(factor, ((0, short), (0, 0))).reshape(-1, block, factor.shape[1])
    partial = jnp.einsum("bik,bil->bkl", blocks, blocks)
    return _pair_sum(partial)


def _pair_sum(terms):
    """Sum along the first axis, pairwise, with the rounding errors kept apart."""
    high, low = terms, jnp.zeros_like(terms)
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

r"""Moves of whole lines of a nonnegative factor matrix, along directions in which it is free.

Given the other factor matrix X, a line y has a normal likelihood with precision :math:`\tau G`,
:math:`G = X^\top X`. Where G is nearly singular, y can move far along its weak directions, while
single entries cannot move at all without the others. Column k of :math:`G^{-1}` says how the other
entries follow entry k: along it, the conditional standard deviation of entry k is its marginal one.
On the line :math:`y + t d` with such a direction d, which depends on X alone, t has a normal
distribution truncated to where the line stays nonnegative, and is drawn from it (a hit-and-run step
with chosen directions; Chen, Schmeiser 1993). All lines move at once, one direction after another.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.kernels.elimination import inverse
from bmfjax.kernels.matrix_data import MatrixData, SparseMatrixData, cross_product
from bmfjax.kernels.truncated_normal import truncated_normal_quantile

#: Added to the diagonal of G, as a share of its mean: float32 could not tell less from zero.
RIDGE = {"float32": 1e-6, "float64": 1e-12}


def move_lines(key, factor, x, other, data, rate, weight):
    """Move every line along all columns of the inverse Gram matrix, one after another.

    Parameters
    ----------
    key : jax.Array
    factor : {"usage", "basis"}
    x : (m, rank) float
        The factor matrix, nonnegative.
    other : (n, rank) float
    data : MatrixData or SparseMatrixData
    rate : (rank,) float
        Rates of the exponential prior.
    weight : () float
        Noise precision times inverse temperature.

    Returns
    -------
    (m, rank) float

    Raises
    ------
    InputError
        For sparse data with missing entries.
    """
    gradient, curvature = _likelihood(factor, x, other, data)
    directions = weak_directions(other)
    rank = x.shape[1]
    uniforms = random.uniform(key, (rank, x.shape[0]), x.dtype, minval=2.0**-24)

    def move(k, carry):
        x, slope = carry
        d = directions[k]
        along, change = curvature(d)
        low, high = _nonnegative(x, d)
        linear = weight * (d @ slope) - rate @ d
        t = truncated_normal_quantile(uniforms[k], linear, weight * along, low, high)
        t = jnp.where(high > low, jnp.clip(t, low, high), 0.0)
        # At the end of the interval an entry is zero, up to rounding.
        x = jnp.maximum(x + t[:, None] * d, jnp.finfo(x.dtype).tiny)
        return x, slope - change(t)

    return lax.fori_loop(0, rank, move, (x, gradient))[0]


def weak_directions(other) -> jax.Array:
    """Columns of the inverse Gram matrix of a factor matrix, each with largest entry one.

    Parameters
    ----------
    other : (n, rank) float

    Returns
    -------
    (rank, rank) float

    Examples
    --------
    >>> weak_directions(jnp.array([[1.0, 1.0], [1.0, 0.0]])).round(3).tolist()
    [[1.0, -1.0], [-0.5, 1.0]]
    """
    gram = other.T @ other
    scale = jnp.mean(jnp.diagonal(gram)) + jnp.finfo(gram.dtype).tiny
    gram = gram / scale + RIDGE[gram.dtype.name] * jnp.eye(gram.shape[0], dtype=gram.dtype)
    found = inverse(gram)
    return found / jnp.max(jnp.abs(found), axis=1, keepdims=True)


def _nonnegative(x, direction):
    """The interval of t in which x + t direction is nonnegative, (m,) each."""
    moves = jnp.where(direction != 0, direction, 1.0)
    bound = -x / moves
    low = jnp.max(jnp.where(direction > 0, bound, -jnp.inf), axis=1)
    return low, jnp.min(jnp.where(direction < 0, bound, jnp.inf), axis=1)


def _likelihood(factor, x, other, data: MatrixData | SparseMatrixData):
    """Gradient of minus half the squared residuals, and what a direction does to it.

    Returns
    -------
    gradient : (rank, m) float
    curvature : callable
        ``curvature(d)``: the second derivative along it, () or (m,), and a function of the
        steps t, (m,), that is the change of the gradient, (rank, m).
    """
    complete = data.by_row is None if isinstance(data, SparseMatrixData) else data.observed is None
    if complete:
        gram = other.T @ other
        gradient = cross_product(data, factor, other) - gram @ x.T

        def of_all(d):
            pulled = gram @ d
            return d @ pulled, lambda t: pulled[:, None] * t[None, :]

        return gradient, of_all
    if isinstance(data, SparseMatrixData):
        raise InputError(
            "the moves of whole lines need dense data where entries are missing; give "
            "moves without 'lines'"
        )
    usage = factor == "usage"
    # Both with the other matrix's lines first: (n, m).
    mask = data.observed_transposed if usage else data.observed
    values = data.transposed if usage else data.values
    gradient = other.T @ (mask * (values - other @ x.T))

    def of_observed(d):
        pulled = other @ d
        seen = (other * pulled[:, None]).T @ mask
        return (pulled * pulled) @ mask, lambda t: seen * t[None, :]

    return gradient, of_observed

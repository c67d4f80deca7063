r"""Moves of whole lines of a nonnegative factor matrix, along directions in which it is free.

Given the other factor matrix X, a line y has a normal likelihood with precision :math:`\tau G`,
:math:`G = X^\top X`. Where G is nearly singular, y can move far along its weak directions, while
single entries cannot move at all without the others. Column k of :math:`G^{-1}` says how the other
entries follow entry k: along it, the conditional standard deviation of entry k is its marginal one.
On the line :math:`y + t d` with such a direction d, which depends on X alone, t has a normal
distribution truncated to where the line stays nonnegative, and is drawn from it (a hit-and-run step
with chosen directions; Chen, Schmeiser 1993). All lines move at once, one direction after another,
at a cost of rows times columns times the rank.
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
    steps = _of_sparse if isinstance(data, SparseMatrixData) else _of_dense
    slope, change, start = steps(factor, x, other, data)
    directions = weak_directions(other)
    rank = x.shape[1]
    uniforms = random.uniform(key, (rank, x.shape[0]), x.dtype, minval=2.0**-24)

    def move(k, carry):
        x, held = carry
        d = directions[k]
        gradient, curvature = slope(d, held)
        low, high = _nonnegative(x, d)
        linear = weight * gradient - rate @ d
        t = truncated_normal_quantile(uniforms[k], linear, weight * curvature, low, high)
        t = jnp.where(high > low, jnp.clip(t, low, high), 0.0)
        # At the end of the interval an entry is zero, up to rounding.
        x = jnp.maximum(x + t[:, None] * d, jnp.finfo(x.dtype).tiny)
        return x, change(d, held, t)

    return lax.fori_loop(0, rank, move, (x, start))[0]


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


def _of_dense(factor, x, other, data: MatrixData):
    """How minus half the squared residuals changes along a direction, from the residuals.

    They are kept up to date: along the weak directions products of Gram matrices would cancel.

    Returns
    -------
    slope : callable
        ``slope(d, residual)``: first derivative, (m,), and minus the second, (m,) or ().
    change : callable
        ``change(d, residual, t)``: the residuals after steps t.
    residual : (n, m) float
        The lines of the other matrix first; zero where missing.
    """
    usage = factor == "usage"
    mask = data.observed_transposed if usage else data.observed
    residual = (data.transposed if usage else data.values) - other @ x.T
    residual = residual if mask is None else mask * residual

    def slope(d, residual):
        pulled = other @ d
        squares = pulled * pulled
        return pulled @ residual, jnp.sum(squares) if mask is None else squares @ mask

    def change(d, residual, t):
        step = (other @ d)[:, None] * t[None, :]
        return residual - (step if mask is None else mask * step)

    return slope, change, residual


def _of_sparse(factor, x, other, data: SparseMatrixData):
    """The same from the Gram matrix; what is kept is the gradient, (rank, m)."""
    if data.by_row is not None:
        raise InputError(
            "moves of whole lines need dense data where entries are missing; leave 'lines' out"
        )
    gram = other.T @ other
    gradient = cross_product(data, factor, other) - gram @ x.T

    def slope(d, gradient):
        return d @ gradient, d @ (gram @ d)

    def change(d, gradient, t):
        return gradient - (gram @ d)[:, None] * t[None, :]

    return slope, change, gradient

r"""Moves of whole lines of a nonnegative factor matrix, along directions in which it is free.

Given the other factor matrix X, a line y has a normal likelihood with precision :math:`\tau G`,
:math:`G = X^\top X`. Where G is nearly singular, y can move far along its weak directions, while
single entries cannot move at all without the others. Column k of :math:`G^{-1}` says how the other
entries follow entry k: along it, the conditional standard deviation of entry k is its marginal one.
On the line :math:`y + t d` with such a direction d, which depends on X alone, t has a normal
distribution truncated to where the line stays nonnegative, and is drawn from it (a hit-and-run step
with chosen directions; Chen, Schmeiser 1993). All lines move at once, one direction after another,
at a cost of rows times columns times the rank, of sparse data of their nonzero entries times the
rank.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.kernels.numerics.linalg import inverse
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.numerics.truncated_normal import truncated_normal_quantile
from bmfjax.kernels.relaxed.data import MatrixData, SparseMatrixData, cross_product, oriented

#: Added to the diagonal of G, as a share of its mean: float32 could not tell less from zero.
RIDGE = {"float32": 1e-6, "float64": 1e-12}


@full_precision
def move_lines(key, factor, x, other, data, rate, weight, first=0):
    """Move all lines of `x` (m, rank) along each column of the inverse Gram matrix in turn.

    `rate` (rank,) holds the rates of the priors, `weight` is the noise precision times the inverse
    temperature, and `other` (n, rank). Columns before the `first` stay. On a mesh a device moves
    its own lines, and gets those of the others.
    """
    lines, number = x.shape[0], x.shape[1] - first
    if number == 0:
        return x
    x = data.along.own(x)
    steps = _of_sparse if isinstance(data, SparseMatrixData) else _of_dense
    directions = jnp.pad(_weak_directions(other[:, first:]), ((0, 0), (first, 0)))
    slope, change, start = steps(factor, x, other, data, directions)
    uniforms = random.uniform(key, (number, lines), x.dtype, minval=2.0**-24)
    uniforms = data.along.own(uniforms, 1)

    def move(k, carry):
        x, held = carry
        d = directions[k]
        gradient, curvature = slope(k, x, held)
        low, high = _nonnegative(x, d)
        linear = weight * gradient - rate @ d
        t = truncated_normal_quantile(uniforms[k], linear, weight * curvature, low, high)
        t = jnp.where(high > low, jnp.clip(t, low, high), 0.0)
        # At the end of the interval an entry is zero, up to rounding.
        x = jnp.maximum(x + t[:, None] * d, jnp.finfo(x.dtype).tiny)
        return x, change(k, held, t)

    moved = lax.fori_loop(0, number, move, (x, start))[0]
    return data.along.join(moved.at[:, :first].set(x[:, :first]), lines)


def _weak_directions(other) -> jax.Array:
    """Return the columns of the inverse Gram matrix, a row each, with largest entry one."""
    gram = other.T @ other
    scale = jnp.mean(jnp.diagonal(gram)) + jnp.finfo(gram.dtype).tiny
    gram = gram / scale + RIDGE[gram.dtype.name] * jnp.eye(gram.shape[0], dtype=gram.dtype)
    found = inverse(gram)
    return found / jnp.max(jnp.abs(found), axis=1, keepdims=True)


def _nonnegative(x, direction):
    """Return the ends of the interval of t in which x + t direction is nonnegative, (m,) each."""
    moves = jnp.where(direction != 0, direction, 1.0)
    bound = -x / moves
    low = jnp.max(jnp.where(direction > 0, bound, -jnp.inf), axis=1)
    return low, jnp.min(jnp.where(direction < 0, bound, jnp.inf), axis=1)


def _of_dense(factor, x, other, data: MatrixData, directions):
    """Return how minus half the squared residuals changes along each direction.

    ``slope(k, x, residual)`` gives the first derivative, (m,), and minus the second;
    ``change(k, residual, t)`` the residuals (n, m) after steps t; the third are the residuals now,
    zero where missing. They are kept up to date: along the weak directions products of Gram
    matrices would cancel.
    """
    values, mask = oriented(factor, data)
    residual = values - other @ x.T
    residual = residual if mask is None else mask * residual

    def slope(k, x, residual):
        pulled = other @ directions[k]
        squares = pulled * pulled
        return pulled @ residual, jnp.sum(squares) if mask is None else squares @ mask

    def change(k, residual, t):
        step = (other @ directions[k])[:, None] * t[None, :]
        return residual - (step if mask is None else mask * step)

    return slope, change, residual


def _of_sparse(factor, x, other, data: SparseMatrixData, directions):
    """Do the same without residuals, from products with X d, which is small where d is weak.

    Products of d with those of X are not: they would cancel.
    """
    if data.by_row is not None:
        raise InputError(
            "moves of whole lines need dense data where entries are missing; leave 'lines' out"
        )
    pulled = other @ directions.T  # (n, number)
    observed, fitted = cross_product(data, factor, pulled), pulled.T @ other
    squares = jnp.sum(pulled * pulled, axis=0)

    def slope(k, x, held):
        return observed[k] - x @ fitted[k], squares[k]

    return slope, lambda k, held, t: held, ()

"""Small linear systems by Gauss-Jordan elimination without pivots.

Not by `jax.numpy.linalg`: on a CPU its batched LAPACK calls wait for threads of a pool from inside
of it, and where two of them run at once on a machine of two cores, for ever.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def solve(system, right) -> jax.Array:
    """Solve many small positive definite systems.

    Parameters
    ----------
    system : (..., width, width) float
        Positive definite, or so after rows of the identity are taken out.
    right : (..., width) float

    Returns
    -------
    (..., width) float

    Examples
    --------
    >>> solve(jnp.array([[2.0, 1.0], [1.0, 4.0]]), jnp.array([3.0, 5.0])).tolist()
    [1.0, 1.0]
    """
    return solve_many(system, right[..., None])[..., 0]


def solve_many(system, right) -> jax.Array:
    """Solve each system for several right-hand sides, (..., width, number) float.

    Examples
    --------
    >>> solve_many(2.0 * jnp.eye(2), jnp.array([[2.0, 1.0], [4.0, 8.0]])).tolist()
    [[1.0, 0.5], [2.0, 4.0]]
    """
    width = system.shape[-1]
    table = jnp.concatenate([system, right], axis=-1)

    def eliminate(k, table):
        row = jax.lax.dynamic_index_in_dim(table, k, axis=-2, keepdims=False)
        column = jax.lax.dynamic_index_in_dim(table, k, axis=-1, keepdims=False)
        here = jnp.arange(width) == k
        pivot = jnp.sum(jnp.where(here, column, 0.0), -1, keepdims=True)
        return (
            table - jnp.where(here, column - 1.0, column)[..., None] * (row / pivot)[..., None, :]
        )

    return jax.lax.fori_loop(0, width, eliminate, table)[..., width:]


def inverse(system) -> jax.Array:
    """Inverses of many small positive definite matrices, (..., width, width) float.

    Examples
    --------
    >>> inverse(jnp.array([[2.0, 1.0], [1.0, 1.0]])).tolist()
    [[1.0, -1.0], [-1.0, 2.0]]
    """
    eye = jnp.eye(system.shape[-1], dtype=system.dtype)
    return solve_many(system, jnp.broadcast_to(eye, system.shape))

r"""Cholesky factors of many small matrices at once, the matrices along the last axis.

`jax.numpy.linalg` is not used: on a CPU its batched LAPACK calls wait for threads of a pool from
inside of it, and two of them at once on a machine of two cores wait for ever. Here every step of
the elimination is one pass over arrays whose last axis counts matrices, which compilers turn into
vector instructions: at widths up to 64 it is faster as well.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

#: Columns eliminated before the rest of the matrix is cut out and the loop goes on with less.
PANEL = 8


def cholesky(a, panel: int = PANEL):
    r"""Upper factors :math:`U` with :math:`A = U^\top U`, and :math:`U^{-\top} b` beside them.

    Parameters
    ----------
    a : (n, m, batch) float, m >= n
        :math:`[A\ b]`: positive definite matrices, and any columns beside them.
    panel : int

    Returns
    -------
    (n, m, batch) float
        :math:`[U\ \ U^{-\top} b]`, zero below the diagonal. A pivot below the rounding error of its
        diagonal entry is raised to that.

    Examples
    --------
    >>> a = jnp.array([[4.0, 2.0, 8.0], [2.0, 5.0, 8.0]])
    >>> cholesky(a[..., None])[..., 0].tolist()
    [[2.0, 1.0, 4.0], [0.0, 2.0, 2.0]]
    """
    n = a.shape[0]
    least = jnp.finfo(a.dtype).eps * jnp.stack([a[k, k] for k in range(n)])
    done = []
    for start in range(0, n, panel):
        here = min(panel, n - start)
        rows, a = _eliminate(a, here, least[start:])
        done.append(jnp.pad(rows, ((0, 0), (start, 0), (0, 0))))
    return jnp.concatenate(done)


def _eliminate(a, number, least):
    """The first rows of the factor, and what is left of the matrix without them."""
    width = jnp.arange(a.shape[1])[:, None]

    def pivot_row(a, k):
        row = lax.dynamic_index_in_dim(a, k, 0, keepdims=False)
        pivot = lax.dynamic_index_in_dim(row, k, 0, keepdims=False)
        pivot = jnp.maximum(pivot, lax.dynamic_index_in_dim(least, k, 0, keepdims=False))
        return jnp.where(width >= k, row * lax.rsqrt(pivot), 0.0)

    # The pivot row is carried and not made where it is used: the compiler would make it again for
    # every entry of the matrix, which is ten times slower.
    def step(k, carry):
        a, row, rows = carry
        rows = lax.dynamic_update_index_in_dim(rows, row, k, 0)
        a = a - row[: a.shape[0], None] * row[None]
        return a, pivot_row(a, jnp.minimum(k + 1, number - 1)), rows

    rows = jnp.zeros((number, *a.shape[1:]), a.dtype)
    a, _, rows = lax.fori_loop(0, number, step, (a, pivot_row(a, 0), rows))
    return rows, a[number:, number:]


def back_substitute(upper, y):
    r"""Solve :math:`U x = y`.

    Parameters
    ----------
    upper : (n, n, batch or 1) float
        Zero below the diagonal, or not read there.
    y : (n, batch) float

    Returns
    -------
    (n, batch) float

    Examples
    --------
    >>> upper = jnp.array([[2.0, 1.0], [0.0, 2.0]])[..., None]
    >>> back_substitute(upper, jnp.array([[4.0], [2.0]]))[:, 0].tolist()
    [1.5, 1.0]
    """
    n = upper.shape[0]
    index = jnp.arange(n)[:, None]

    def step(t, x):
        k = n - 1 - t
        row = lax.dynamic_index_in_dim(upper, k, 0, keepdims=False)
        rest = jnp.sum(jnp.where(index > k, row * x, 0.0), 0)
        own = lax.dynamic_index_in_dim(y, k, 0, keepdims=False) - rest
        diagonal = lax.dynamic_index_in_dim(row, k, 0, keepdims=False)
        return lax.dynamic_update_index_in_dim(x, own / diagonal, k, 0)

    return lax.fori_loop(0, n, step, jnp.zeros_like(y))


def factor(matrix):
    """The upper factor of one matrix, (n, n) float."""
    return cholesky(matrix[..., None], panel=matrix.shape[0])[..., 0]


def log_determinant(matrix):
    """Of one positive definite matrix, () float.

    Examples
    --------
    >>> round(float(jnp.exp(log_determinant(jnp.array([[4.0, 2.0], [2.0, 5.0]])))), 3)
    16.0
    """
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor(matrix))))

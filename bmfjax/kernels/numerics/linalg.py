"""Linear algebra of many small positive definite matrices at once.

`jax.numpy.linalg` is not used. On a CPU its batched LAPACK calls wait, inside a pool of threads,
for threads of the same pool: two such calls at once block a machine of two cores for ever.

* `cholesky`, `back_substitute`: the matrices lie along the *last* axis. Every step of the
  elimination is one pass over arrays whose last axis counts matrices, which compilers turn into
  vector instructions. At widths up to 64 this is faster than LAPACK as well.
* `solve`, `solve_many`, `inverse`: the matrices lie along the *first* axes; Gauss-Jordan
  elimination without pivots.
* `newton_direction`: one matrix for all rows, another set of free coordinates for each row.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from bmfjax.kernels.numerics.precision import full_precision

#: Columns eliminated before the rest of the matrix is cut out and the loop goes on with less.
PANEL = 8


def cholesky(a, panel: int = PANEL):
    r"""Return :math:`[U\ \ U^{-\top} b]` of :math:`[A\ b]` (n, m, batch), :math:`A = U^\top U`.

    Any number m - n >= 0 of columns b stands beside A. The result is zero below the diagonal. A
    pivot below the rounding error of its diagonal entry is raised to that error.
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
    """Return the first rows of the factor, and the rest of the matrix without them."""
    width = jnp.arange(a.shape[1])[:, None]

    def pivot_row(a, k):
        row = lax.dynamic_index_in_dim(a, k, 0, keepdims=False)
        pivot = lax.dynamic_index_in_dim(row, k, 0, keepdims=False)
        pivot = jnp.maximum(pivot, lax.dynamic_index_in_dim(least, k, 0, keepdims=False))
        return jnp.where(width >= k, row * lax.rsqrt(pivot), 0.0)

    # The pivot row is carried. Made where it is used, the compiler would make it again for every
    # entry of the matrix, which is ten times slower.
    def step(k, carry):
        a, row, rows = carry
        rows = lax.dynamic_update_index_in_dim(rows, row, k, 0)
        a = a - row[: a.shape[0], None] * row[None]
        return a, pivot_row(a, jnp.minimum(k + 1, number - 1)), rows

    rows = jnp.zeros((number, *a.shape[1:]), a.dtype)
    a, _, rows = lax.fori_loop(0, number, step, (a, pivot_row(a, 0), rows))
    return rows, a[number:, number:]


def back_substitute(upper, y):
    """Solve ``U x = y`` for x (n, batch); U (n, n, batch or 1) is not read below the diagonal."""
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
    """Return the upper factor of one matrix (n, n)."""
    return cholesky(matrix[..., None], panel=matrix.shape[0])[..., 0]


def log_determinant(matrix):
    """Return the log determinant of one positive definite matrix."""
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor(matrix))))


def solve(system, right) -> jax.Array:
    """Solve systems (..., width, width) for one right-hand side (..., width) each."""
    return solve_many(system, right[..., None])[..., 0]


def solve_many(system, right) -> jax.Array:
    """Solve systems (..., width, width) for right-hand sides (..., width, number)."""
    width = system.shape[-1]
    table = jnp.concatenate([system, right], axis=-1)

    def eliminate(k, table):
        row = lax.dynamic_index_in_dim(table, k, axis=-2, keepdims=False)
        column = lax.dynamic_index_in_dim(table, k, axis=-1, keepdims=False)
        here = jnp.arange(width) == k
        pivot = jnp.sum(jnp.where(here, column, 0.0), -1, keepdims=True)
        column = jnp.where(here, column - 1.0, column)
        return table - column[..., None] * (row / pivot)[..., None, :]

    return lax.fori_loop(0, width, eliminate, table)[..., width:]


def inverse(system) -> jax.Array:
    """Invert matrices (..., width, width)."""
    eye = jnp.eye(system.shape[-1], dtype=system.dtype)
    return solve_many(system, jnp.broadcast_to(eye, system.shape))


@full_precision
def newton_direction(gradient, free, curvature, num_iterations=3):
    """Solve ``A p = g`` on the free coordinates of every row of g (m, rank), A shared by all rows.

    Clipping a full Newton step does not lead to the constrained optimum; solving on the
    coordinates that are free to move does. Each row has its own free set, hence conjugate
    gradients with a diagonal preconditioner, all rows at once; `rank` iterations are exact. A Gram
    matrix of nonnegative factors has one large eigenvalue and a cluster: three iterations leave
    an error of about 1 %.
    """
    # Factors along the first axis: sums over them then run over contiguous memory, and
    # einsum keeps its speed under vmap where a plain sum does not (a factor of six on CPU).
    scale = lax.rsqrt(jnp.diagonal(curvature))[:, None]
    unit = curvature * scale * scale.T
    mask = free.T.astype(gradient.dtype)
    residual = gradient.T * mask * scale
    d, p = residual, jnp.zeros_like(residual)
    rho = jnp.einsum("km,km->m", residual, residual)
    # The residual of a solved row is rounding error, which depends on how XLA fuses the
    # computation. The ratio of two such numbers would be a step of any length.
    solved = rho * (32 * jnp.finfo(rho.dtype).eps) ** 2
    for _ in range(min(num_iterations, curvature.shape[0])):
        q = (unit @ d) * mask
        bend = jnp.einsum("km,km->m", d, q)
        going = (rho > solved) & (bend > 0)
        alpha = jnp.where(going, rho / jnp.where(going, bend, 1.0), 0.0)
        p, residual = p + alpha * d, residual - alpha * q
        new = jnp.einsum("km,km->m", residual, residual)
        d = residual + jnp.where(rho > 0, new / jnp.where(rho > 0, rho, 1.0), 0.0) * d
        rho = new
    return (p * scale).T

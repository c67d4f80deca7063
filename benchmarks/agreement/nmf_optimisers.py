r"""Nonnegative factorisation by optimisation of the squared error.

.. math:: \min_{Y, X \ge 0}\ \tfrac12\|D - Y X^\top\|_F^2

by the multiplicative updates of Lee and Seung (2001) and the projected gradient of Lin (2007),
"Projected gradient methods for nonnegative matrix factorization", Neural Computation 19(10).
Both run under ``jit`` and ``vmap``: thousands of restarts at once.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from bmfjax.kernels.numerics.precision import full_precision

#: Of the Armijo rule: the factor of a step, and the decrease that is asked of it.
SHRINK, DECREASE = 0.1, 0.01
#: Steps of one subproblem, and of its search for a step size.
MAX_INNER, MAX_SEARCH = 100, 20


def multiplicative_updates(usage, basis, data, num_steps: int):
    """Take Lee and Seung's updates of both factors, in turn; zeros stay zeros."""
    data = jnp.maximum(data, 0.0)
    tiny = jnp.finfo(data.dtype).tiny ** 0.5

    @full_precision
    def update(_, factors):
        usage, basis = factors
        basis = basis * (data.T @ usage) / jnp.maximum(basis @ (usage.T @ usage), tiny)
        usage = usage * (data @ basis) / jnp.maximum(usage @ (basis.T @ basis), tiny)
        return usage, basis

    return lax.fori_loop(0, num_steps, update, (usage, basis))


class ProjectedGradient(NamedTuple):
    """State of Lin's algorithm."""

    usage: jax.Array  # (rows, rank)
    basis: jax.Array  # (columns, rank)
    tolerance: jax.Array  # (2,): of the projected gradient in the subproblems of usage and basis
    gradient: jax.Array  # (): norm of the projected gradient of both
    step: jax.Array  # () int32


def projected_gradient(
    usage, basis, data, *, tolerance: float = 1e-4, max_steps: int = 500
) -> ProjectedGradient:
    """Run Lin's alternating least squares by projected gradients (his algorithms 2 and 4).

    Each factor is fitted with the other fixed, by gradient steps projected to the nonnegative
    numbers, whose size is found by the Armijo rule from the one before. It stops where the norm of
    the projected gradient is `tolerance` times that at the start.
    """
    at_start = _gradient_norm(usage, basis, data)
    goal = tolerance * at_start
    tolerances = jnp.ones(2) * jnp.maximum(1e-3, tolerance) * at_start
    start = ProjectedGradient(usage, basis, tolerances, at_start, jnp.int32(0))

    def unfinished(state):
        return (state.step < max_steps) & (state.gradient > goal)

    return lax.while_loop(unfinished, lambda s: _alternate(s, data), start)


def _alternate(state: ProjectedGradient, data) -> ProjectedGradient:
    usage, first = _least_squares(state.usage, state.basis, data, state.tolerance[0])
    basis, second = _least_squares(state.basis, usage, data.T, state.tolerance[1])
    # A subproblem that was solved at once is to be solved better.
    done = jnp.stack([first, second]) <= 1
    tolerance = jnp.where(done, 0.1 * state.tolerance, state.tolerance)
    gradient = _gradient_norm(usage, basis, data)
    return ProjectedGradient(usage, basis, tolerance, gradient, state.step + 1)


@full_precision
def _least_squares(x, other, data, tolerance):
    """Fit x in ``data = x other^T``; return the fit and the number of steps."""
    gram, cross = other.T @ other, data @ other

    def gradient(x):
        return x @ gram - cross

    def unfinished(carry):
        x, _, count = carry
        norm = jnp.linalg.norm(_projected(gradient(x), x))
        return (count < MAX_INNER) & ((norm > tolerance) | (count == 0))

    def descend(carry):
        x, size, count = carry
        size, x = _armijo(x, gradient(x), gram, size)
        return x, size, count + 1

    x, _, count = lax.while_loop(unfinished, descend, (x, jnp.ones((), x.dtype), jnp.int32(0)))
    return x, count


def _armijo(x, gradient, gram, size):
    """Return the largest step, by powers of `SHRINK`, that decreases enough, and where it leads."""

    def moved(size):
        return jnp.maximum(x - size * gradient, 0.0)

    @full_precision
    def enough(size):
        d = moved(size) - x
        # Of a quadratic function, exactly (Lin 2007, equation 17).
        return (1 - DECREASE) * jnp.sum(gradient * d) + 0.5 * jnp.sum((d @ gram) * d) <= 0

    grows = enough(size)

    def searching(carry):
        return ~carry[2] & (carry[1] < MAX_SEARCH)

    def search(carry):
        size, count, _ = carry
        larger = size / SHRINK
        still = grows & enough(larger) & jnp.any(moved(larger) != moved(size))
        smaller = size * SHRINK
        size = jnp.where(grows, jnp.where(still, larger, size), smaller)
        return size, count + 1, jnp.where(grows, ~still, enough(size))

    size, _, _ = lax.while_loop(searching, search, (size, jnp.int32(0), jnp.array(False)))
    return size, jnp.where(enough(size), moved(size), x)


def _projected(gradient, x):
    """Return the gradient where a step against it is allowed, else zero."""
    return jnp.where((gradient < 0) | (x > 0), gradient, 0.0)


@full_precision
def _gradient_norm(usage, basis, data):
    residual = usage @ basis.T - data
    first, second = _projected(residual @ basis, usage), _projected(residual.T @ usage, basis)
    return jnp.sqrt(jnp.sum(first**2) + jnp.sum(second**2))

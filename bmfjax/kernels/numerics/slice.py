"""Univariate slice sampling on an interval, for arrays of independent coordinates."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.kernels.numerics.mesh import WHOLE, Along

#: An interval halved this often has no room left in float32 or float64.
MAX_SHRINKS = 200


def slice_sample(
    key: jax.Array,
    position: jax.Array,
    log_density: Callable[[jax.Array], jax.Array],
    low: float,
    high: float,
    *,
    size: int | None = None,
    along: Along = WHOLE,
) -> jax.Array:
    """Update every coordinate once by slice sampling, which leaves its density invariant.

    The slice is found by shrinking from the whole interval (Neal 2003, section 4 and figure 5,
    with the interval as the first bracket), so nothing is tuned. The interval [low, high] is
    finite and holds all of the density, or is one of fixed width that was placed around `position`
    uniformly at random. `log_density` acts elementwise. On a mesh `position` (m,) may be this
    device's part of `size` coordinates: its random numbers are those that it has without one.
    """
    key_level, key_moves = random.split(key)
    shape = position.shape if size is None else (size,)
    # A point of infinite density, such as a bound, would never be left: from there anywhere.
    height = log_density(position)
    height = jnp.where(height == jnp.inf, -jnp.inf, height)
    level = height - along.own(random.exponential(key_level, shape, position.dtype))

    def searching(carry):
        _, _, _, done, count = carry
        return ~jnp.all(done) & (count < MAX_SHRINKS)

    def shrink(carry):
        left, right, x, done, count = carry
        u = along.own(random.uniform(random.fold_in(key_moves, count), shape, x.dtype))
        proposal = left + u * (right - left)
        density = log_density(proposal)
        found = (density >= level) & (density < jnp.inf)  # and never to one
        x = jnp.where(found & ~done, proposal, x)
        left = jnp.where(proposal < position, proposal, left)
        right = jnp.where(proposal < position, right, proposal)
        return left, right, x, done | found, count + 1

    ends = (jnp.full_like(position, low), jnp.full_like(position, high))
    # What is never found (a density that is NaN) stays where it was.
    start = (*ends, position, jnp.zeros(position.shape, bool), jnp.int32(0))
    return lax.while_loop(searching, shrink, start)[2]

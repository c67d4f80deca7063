"""Draws from Beta distributions, by one loop for both of their Gamma variables."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import random


def draw_beta(key: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Draw from Beta(a, b), by a program half as large as that of ``jax.random.beta``.

    It works in logarithms, so that small parameters do not round both Gamma variables to zero.
    """
    both = random.loggamma(key, jnp.stack([a, b]), dtype=a.dtype)
    return jnp.exp(both[0] - jnp.logaddexp(both[0], both[1]))


def draw_same_beta(key: jax.Array, a: float, b: float, shape: tuple, dtype) -> jax.Array:
    """Draw an array from one Beta(a, b), without a loop where that is uniform."""
    if a == b == 1.0:
        return random.uniform(key, shape, dtype)
    return draw_beta(key, jnp.full(shape, a, dtype), jnp.full(shape, b, dtype))

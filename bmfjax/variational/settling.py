"""When an optimisation may end: its objective has stopped changing."""

from __future__ import annotations

import jax
import jax.numpy as jnp

#: Steps that are averaged, before and after.
WINDOW = 20


def no_values(kind) -> jax.Array:
    """Return what is kept of an objective before the first step: (2 WINDOW,) NaN."""
    return jnp.full(2 * WINDOW, jnp.nan, kind)


def with_value(recent, value) -> jax.Array:
    """Append the newest value and drop the oldest."""
    return jnp.concatenate([recent[1:], value[None]])


def has_settled(recent, tolerance: float) -> jax.Array:
    """Return whether the mean of the last `WINDOW` values is that of the `WINDOW` before."""
    # From the newest on, single precision resolves small changes of large numbers.
    values = recent - recent[-1]
    change = jnp.mean(values[WINDOW:]) - jnp.mean(values[:WINDOW])
    # NaN is not small.
    return jnp.abs(change) <= tolerance * jnp.abs(recent[-1])

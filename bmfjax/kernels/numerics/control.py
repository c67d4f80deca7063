"""Control flow whose cost depends on what happens, under ``vmap`` too, and the accept step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, random


def run_if(condition: jax.Array, update: Callable[..., Any], value: Any, given: tuple = ()) -> Any:
    """Return ``update(value, *given)`` if the condition holds, else the value.

    Under ``vmap`` ``lax.cond`` always runs both branches. This is a loop of one or no round, which
    runs only if the condition holds for some of the batch. Pass in `given` what costly work of the
    update depends on: XLA moves work that does not depend on the round out of the loop, and would
    do it always.
    """

    def one(t, value):
        _, tied = lax.optimization_barrier((t, given))
        return update(value, *tied)

    return lax.fori_loop(0, condition.astype(jnp.int32), one, value)


def acceptance(log_ratio) -> jax.Array:
    """Return the probability of Metropolis and Hastings: stay if both states are impossible.

    Examples
    --------
    >>> acceptance(jnp.array([0.5, -jnp.inf, jnp.nan])).tolist()
    [1.0, 0.0, 0.0]
    """
    return jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))


def accepted(key, log_ratio) -> tuple[jax.Array, jax.Array]:
    """Draw for every log ratio whether the proposal is accepted; return it and the probability."""
    probability = acceptance(log_ratio)
    return random.uniform(key, probability.shape, probability.dtype) < probability, probability


def log_uniform(key, shape, dtype) -> jax.Array:
    """Draw logarithms of uniform numbers, below which a log ratio refuses its proposal.

    The numbers are never zero, under which any proposal would be accepted.
    """
    return -random.exponential(key, shape, dtype)

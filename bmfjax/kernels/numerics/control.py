"""Control flow whose cost depends on what happens, under ``vmap`` too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def run_if(condition: jax.Array, update: Callable[[Any], Any], value: Any) -> Any:
    """Return ``update(value)`` if the condition holds, else the value.

    Under ``vmap`` ``lax.cond`` always runs both branches. This is a loop of one or no round, which
    runs only if the condition holds for some of the batch.
    """
    return lax.fori_loop(0, condition.astype(jnp.int32), lambda _, value: update(value), value)

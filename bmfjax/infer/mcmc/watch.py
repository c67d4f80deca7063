"""Look at draws while NumPyro's MCMC makes them.

MCMC looks at no draw, and its loop is one compiled program. What must reach the user before the
run ends goes through a callback of JAX. It is called only where something is wrong.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np


def watch(kernel: str, remedy: str, before: Mapping, after: Mapping, number: jax.Array) -> None:
    """Raise an error if a draw is not finite, and warn if it is the one before it.

    `before` and `after` are two draws that follow each other, of one chain or of several, and
    `number` is that of the second. The `kernel` is named, with the `remedy` of the error.
    """
    sites = tuple(sorted(s for s in after if jnp.size(after[s])))
    infinite = jnp.stack([~jnp.all(jnp.isfinite(after[s])) for s in sites])
    # One a chain, where there are several.
    still = jnp.stack([
        jnp.any(jnp.all(after[s] == before[s], tuple(range(number.ndim, jnp.ndim(after[s])))))
        for s in sites
    ])  # fmt: skip
    tell = functools.partial(_tell, kernel, remedy, np.array(sites))
    jax.lax.cond(
        jnp.any(infinite | still),
        lambda: jax.debug.callback(tell, infinite, still, jnp.max(number)),
        lambda: None,
    )


def _tell(kernel, remedy, sites, infinite, still, number):
    # Under vmap this is called for every chain, whatever the condition says.
    if infinite.any():
        raise FloatingPointError(
            f"draw {int(number)} of {', '.join(sites[infinite])} by {kernel} is not finite; "
            f"{remedy}"
        )
    if still.any():
        warnings.warn(
            f"{kernel} does not move {', '.join(sites[still])}: a draw is the one before it; give "
            "a larger step_size, and see whether the site is at a bound",
            UserWarning,
            stacklevel=2,
        )

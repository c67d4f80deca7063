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


def watch(
    kernel: str,
    remedy: str,
    before: Mapping,
    after: Mapping,
    number: jax.Array,
    *,
    may_stay: jax.Array | bool = False,
    doubts: Mapping[str, jax.Array],
) -> None:
    """Raise an error if a draw is not finite; warn if it is the one before it, or of a doubt.

    `before` and `after` are draws that follow each other, of one chain or of several, and `number`
    is that of the second. `may_stay` says whether a draw may be the one before it. `doubts` are
    said once where they are true of the second draw. The error names the kernel and the remedy.
    """
    sites = tuple(sorted(s for s in after if jnp.size(after[s])))
    infinite = jnp.stack([~jnp.all(jnp.isfinite(after[s])) for s in sites])
    # One a chain, where there are several.
    still = jnp.stack([
        jnp.any(
            jnp.all(after[s] == before[s], tuple(range(number.ndim, jnp.ndim(after[s]))))
            & ~jnp.asarray(may_stay)
        )
        for s in sites
    ])  # fmt: skip
    doubted = jnp.array([jnp.any(flag) for flag in doubts.values()], bool)
    tell = functools.partial(_tell, kernel, remedy, np.array(sites), list(doubts), set())
    jax.lax.cond(
        jnp.any(infinite | still) | jnp.any(doubted),
        lambda: jax.debug.callback(tell, infinite, still, doubted, jnp.max(number)),
        lambda: None,
    )


def _tell(kernel, remedy, sites, doubts, warned, infinite, still, doubted, number):
    # As NumPy has them: another computation of JAX would wait for the one that calls this.
    infinite, still, doubted = map(np.asarray, (infinite, still, doubted))
    # Under vmap this is called for every chain, whatever the condition says.
    if infinite.any():
        raise FloatingPointError(
            f"draw {int(number)} of {', '.join(sites[infinite])} by {kernel} is not finite; "
            f"{remedy}"
        )
    found = [doubt for doubt, holds in zip(doubts, doubted, strict=True) if holds]
    if still.any():
        found.append(
            f"{kernel} does not move {', '.join(sites[still])}: a draw is the one before it; give "
            "a larger step_size, and see whether the site is at a bound"
        )
    for words in found:
        if words not in warned:
            warned.add(words)
            warnings.warn(words, UserWarning, stacklevel=2)

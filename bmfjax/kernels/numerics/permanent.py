"""The permanent of a small matrix of positive numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp


def log_permanent(log_entries: jax.Array) -> jax.Array:
    r"""Return the log of :math:`\sum_\sigma \prod_k a_{k\sigma(k)}` over all permutations.

    By sums over subsets, :math:`s_{k}(M) = \sum_{l \in M} a_{kl}\, s_{k-1}(M \setminus l)`, of r
    columns :math:`2^r` for every row (Held, Karp 1962, "A dynamic programming approach to
    sequencing problems", use the same recursion for a minimum). All terms are positive, and nothing
    cancels, as it does in Ryser's formula.

    The logs of the entries are (r, r), -inf for zero, with r of about 10 at most.

    Examples
    --------
    >>> bool(jnp.isclose(log_permanent(jnp.log(jnp.array([[1.0, 2.0], [3.0, 4.0]]))), np.log(10)))
    True
    """
    size = log_entries.shape[0]
    subsets, one = np.arange(2**size)[:, None], 1 << np.arange(size)
    holds = subsets & one != 0

    def add_row(log_sums, row):
        terms = jnp.where(holds, row + log_sums[subsets ^ one], -jnp.inf)
        return logsumexp(terms, axis=1), None

    start = jnp.full(2**size, -jnp.inf, log_entries.dtype).at[0].set(0.0)
    return lax.scan(add_row, start, log_entries)[0][-1]

"""Which factor each count is of, given the rates: drawn exactly, by the entries that are not zero.

The counts of an entry are multinomial over the factors, with probabilities in proportion to what
each adds to the rate (Cemgil 2009, "Bayesian inference for nonnegative matrix factorisation
models", Computational Intelligence and Neuroscience, equation 15). The counts of a small entry are
drawn one by one; those of a large one factor after factor, how many of the rest are of it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.kernels.numerics.binomial import draw_binomial
from bmfjax.kernels.poisson.density import PoissonData, shares


def allocate(key, usage, basis, data: PoissonData) -> tuple[jax.Array, jax.Array]:
    """Draw the factors of all counts, and count them.

    Returns
    -------
    of_rows, of_columns : (rows, rank), (columns, rank) int32
        Counts of every row, and of every column, that are of a factor.
    """
    key_single, key_large = random.split(key)
    rank = usage.shape[1]
    start = tuple(jnp.zeros((len(f), rank), jnp.int32) for f in (usage, basis))

    def single(counts, part):
        key, row, column = part
        of_rows, of_columns = counts
        factor = _one_of(key, shares(usage, basis, row, column))
        hit = jnp.where(row < len(usage), 1, 0)
        return (
            of_rows.at[row, factor].add(hit, mode="drop"),
            of_columns.at[column, factor].add(hit),
        ), None

    def large(counts, part):
        key, row, column, count = part
        of_rows, of_columns = counts
        found = split_counts(key, count, shares(usage, basis, row, column)).astype(jnp.int32)
        return (of_rows.at[row].add(found, mode="drop"), of_columns.at[column].add(found)), None

    for one, k, parts in ((single, key_single, data.singles), (large, key_large, data.large)):
        if len(parts[0]):
            start, _ = lax.scan(one, start, (random.split(k, len(parts[0])), *parts))
    return start


def _one_of(key, weights) -> jax.Array:
    """Draw a factor (entry,) with probabilities in proportion to `weights` (entry, rank)."""
    rank = weights.shape[1]
    below = weights @ jnp.triu(jnp.ones((rank, rank), weights.dtype))  # faster than a cumsum
    level = random.uniform(key, weights.shape[:1], weights.dtype) * below[:, -1]
    return jnp.minimum(jnp.sum(below <= level[:, None], axis=1), rank - 1)


def split_counts(key, count, weights) -> jax.Array:
    """Draw multinomial counts (entry, rank) float with these sums and `weights` (entry, rank)."""
    after = jnp.cumsum(weights[:, ::-1], axis=1)[:, ::-1]  # of a factor and those after it

    def draw(left, part):
        key, own, rest = part
        share = jnp.where(rest > 0, own / jnp.where(rest > 0, rest, 1.0), 0.0)
        drawn = draw_binomial(key, left, share)
        return left - drawn, drawn

    keys = random.split(key, weights.shape[1] - 1)
    left, drawn = lax.scan(draw, count, (keys, weights.T[:-1], after.T[:-1]))
    return jnp.concatenate([drawn, left[None]]).T

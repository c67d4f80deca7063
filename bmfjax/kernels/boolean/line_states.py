r"""Weigh all states of the bits of a line together, with one factor matrix summed out.

Given the other factor matrix the lines of one are independent, and b bits of a line i have
:math:`2^b` states z, of weight :math:`W_i(z)`. Lines of the other matrix enter by their *pattern*
q, the bits that they use: a state covers an entry where :math:`z \wedge q \ne 0`, and that adds
the *gain* :math:`g_{ij}` to the log likelihood. Hence, without line j,

.. math::

   \sum_z W_i^{-j}(z)\, e^{g_{ij} [z \wedge q \ne 0]}
     = \sum_{z \wedge q = 0} W_i^{-j}(z) + e^{g_{ij}} \sum_{z \wedge q \ne 0} W_i^{-j}(z),

for all patterns q at once by one matrix product.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data.checks import one_of
from bmfjax.kernels.boolean.bits import covered_by_states, states_of, weigh
from bmfjax.kernels.boolean.density import log_odds
from bmfjax.kernels.boolean.words import PackedLines, pack_last_axis, unpack_last_axis


class Sides(NamedTuple):
    """Which factor matrix is summed out, which is kept, and how many lines they have."""

    summed: str
    kept: str
    long: int
    short: int


def sides_of(shape: tuple[int, int], summed: str) -> Sides:
    """Choose the factor matrix that is summed out: "usage", "basis", or the "longer" one."""
    one_of("summed", summed, ("longer", "usage", "basis"))
    rows, columns = shape
    if summed == "usage" or (summed == "longer" and rows >= columns):
        return Sides("usage", "basis", rows, columns)
    return Sides("basis", "usage", columns, rows)


class LineGains:
    """What covering the entries of a line adds to the log likelihood.

    The line belongs to the matrix that is kept and has `length` entries, one for every line that is
    summed out. Entries covered by factors outside of the states gain nothing: `covers_rest`
    (factors, lines) are the bits of these factors in the kept matrix, and `others` (factors, words)
    those in the other.
    """

    def __init__(self, lines: PackedLines, length: int, weights, covers_rest, others):
        flat = lambda a: None if a is None else a.reshape(-1, a.shape[-1])  # noqa: E731
        self.ones, self.observed = flat(lines.ones), flat(lines.observed)
        self.length, self.weights = length, weights
        self.covers_rest, self.others = covers_rest, others

    def __call__(self, j) -> jax.Array:
        """Return the gains of line j: (length,), zero where missing or covered by the rest."""
        covered = jnp.where(self.covers_rest[:, j, None], self.others, jnp.uint32(0))
        covered = lax.reduce(covered, np.uint32(0), lax.bitwise_or, (0,))
        free = ~covered if self.observed is None else ~covered & self.observed[j]
        one = unpack_last_axis(self.ones[j] & free, self.length)
        zero = unpack_last_axis(~self.ones[j] & free, self.length)
        return weigh(self.weights, one.astype(jnp.int32), zero.astype(jnp.int32))


def log_prior_of_states(log_odds) -> jax.Array:
    """Return the log prior of every state, (states, lines), from log odds of bits (size, lines)."""
    states = states_of(log_odds.shape[0])
    own = jnp.where(states[:, :, None], log_odds[None], -log_odds[None])
    return jnp.sum(jax.nn.log_sigmoid(own), axis=1)


def patterns_of(bits) -> jax.Array:
    """Number the patterns of bits (size, lines): (lines,) int32."""
    return jnp.sum(bits << jnp.arange(bits.shape[0])[:, None], axis=0, dtype=jnp.int32)


def packed_bits(numbers, size: int) -> jax.Array:
    """Pack the bits of numbered states or patterns (lines,): (size, words) uint32."""
    return pack_last_axis((numbers >> jnp.arange(size)[:, None]) & 1 == 1)


def log_weights(log_prior, gains: LineGains, patterns, size: int) -> jax.Array:
    """Return log prior plus log likelihood of the states of every line: (states, lines)."""

    def add(j, of_patterns):
        # Lines of one pattern weigh alike: their sum is spread over the states once, at the end.
        # (A comparison, as an index would be a slow scatter where chains are batched.)
        return of_patterns + jnp.where(numbers == patterns[j], gains(j), 0.0)

    numbers = jnp.arange(2**size, dtype=patterns.dtype)[:, None]
    summed = lax.fori_loop(0, patterns.shape[0], add, jnp.zeros_like(log_prior))
    return log_prior + covered_by_states(summed, size)


def weigh_states(density, sides: Sides, position, data, weights, group=slice(None), rest=slice(0)):
    """Weigh the states of a group of factors, by default all, in every line summed out.

    `rest` are the other factors. Returns log weights (states, lines summed out), the gains and
    patterns of the kept lines, and the prior log odds (size, lines) of their bits.
    """
    lines = data.by_column if sides.summed == "usage" else data.by_row
    odds, kept_odds = (
        jnp.broadcast_to(log_odds(s, density, position, data), (density.rank, size))[group]
        for s, size in ((sides.summed, sides.long), (sides.kept, sides.short))
    )
    bits = unpack_last_axis(position[sides.kept], sides.short)
    gains = LineGains(lines, sides.long, weights, bits[rest], position[sides.summed][rest])
    patterns = patterns_of(bits[group])
    log_states = log_weights(log_prior_of_states(odds), gains, patterns, len(odds))
    return log_states, gains, patterns, kept_odds


def draw_patterns(key, log_states, gains: LineGains, patterns, log_patterns, chosen, power=1.0):
    """Draw the patterns of the chosen lines (visits,), one after the other, the states summed out.

    `log_states` (states, lines summed out) are those of `log_weights`, `log_patterns`
    (patterns, lines) the prior of the patterns. No line is chosen twice. The marginal likelihood
    is raised to `power`. Returns the new `log_states` and `patterns`.
    """
    numbers = np.arange(log_states.shape[0])
    meets = (numbers[:, None] & numbers[None, :]) != 0
    # Both parts are summed: where one is small, the whole less the other would be rounding error.
    both = jnp.asarray(np.concatenate([meets, ~meets]), log_states.dtype)
    noise = random.gumbel(key, (len(chosen), len(numbers)), log_states.dtype)

    def one_line(t, carry):
        log_states, patterns = carry
        j = chosen[t]
        gain = gains(j)
        covered = ((numbers & patterns[j]) != 0)[:, None]
        log_states = log_states - jnp.where(covered, gain, 0.0)
        # A factor common to all states of a line is common to its patterns, and cancels.
        share = jnp.exp(log_states - jnp.max(log_states, axis=0))
        met, unmet = jnp.split(jnp.dot(both, share, precision=lax.Precision.HIGHEST), 2)
        density = power * jnp.sum(jnp.log(unmet + met * jnp.exp(gain)), axis=1)
        pattern = jnp.argmax(density + log_patterns[:, j] + noise[t]).astype(patterns.dtype)
        covered = ((numbers & pattern) != 0)[:, None]
        log_states = log_states + jnp.where(covered, gain, 0.0)
        return log_states, patterns.at[j].set(pattern)

    return lax.fori_loop(0, len(chosen), one_line, (log_states, patterns))


def draw_states(key, log_states) -> jax.Array:
    """Draw a state of every line: (lines,) int32."""
    # States are many, so one random number a line: the first state whose cumulated weight
    # exceeds it.
    weights = jnp.cumsum(jnp.exp(log_states - jnp.max(log_states, axis=0)), axis=0)
    whole = weights[-1]
    level = random.uniform(key, whole.shape, whole.dtype) * whole
    level = jnp.minimum(level, whole * (1.0 - jnp.finfo(whole.dtype).eps))
    return jnp.sum(weights <= level, axis=0, dtype=jnp.int32)

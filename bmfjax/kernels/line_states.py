r"""States of the bits of a line, weighed together, with one factor matrix summed out.

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

from bmfjax.data.errors import InputError
from bmfjax.kernels.bit_blocks import covered_by_states, states_of
from bmfjax.kernels.bit_updates import weigh
from bmfjax.kernels.packed_lines import PackedLines, pack_last_axis, unpack_last_axis


class Sides(NamedTuple):
    """Which factor matrix is summed out, which is kept, and how many lines they have."""

    summed: str
    kept: str
    long: int
    short: int

    @property
    def of_both(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Site and lines of each."""
        return ((self.summed, self.long), (self.kept, self.short))


def sides_of(shape: tuple[int, int], summed: str) -> Sides:
    """The side that is summed out ("longer", "usage" or "basis") and the one that is kept.

    Examples
    --------
    >>> sides_of((4, 9), "longer")
    Sides(summed='basis', kept='usage', long=9, short=4)
    """
    if summed not in ("longer", "usage", "basis"):
        raise InputError(f"summed is {summed!r}; choose 'longer', 'usage' or 'basis'")
    rows, columns = shape
    if summed == "usage" or (summed == "longer" and rows >= columns):
        return Sides("usage", "basis", rows, columns)
    return Sides("basis", "usage", columns, rows)


class LineGains:
    """What covering the entries of a line adds to the log likelihood.

    Parameters
    ----------
    lines : PackedLines
        Of the matrix that is kept, each with an entry for every line summed out.
    length : int
        Their number of entries.
    weights : Weights
    covers_rest : (factors, lines) bool
        Bits of the kept matrix that are not among the states.
    others : (factors, words) uint32
        The same factors' bits in the matrix that is summed out: what they cover gains nothing.
    """

    def __init__(self, lines: PackedLines, length: int, weights, covers_rest, others):
        flat = lambda a: None if a is None else a.reshape(-1, a.shape[-1])  # noqa: E731
        self.ones, self.observed = flat(lines.ones), flat(lines.observed)
        self.length, self.weights = length, weights
        self.covers_rest, self.others = covers_rest, others

    def __call__(self, j) -> jax.Array:
        """Of line j: (length,) float, zero where missing or covered by other factors."""
        covered = jnp.where(self.covers_rest[:, j, None], self.others, jnp.uint32(0))
        covered = lax.reduce(covered, np.uint32(0), lax.bitwise_or, (0,))
        free = ~covered if self.observed is None else ~covered & self.observed[j]
        one = unpack_last_axis(self.ones[j] & free, self.length)
        zero = unpack_last_axis(~self.ones[j] & free, self.length)
        return weigh(self.weights, one.astype(jnp.int32), zero.astype(jnp.int32))


def log_prior_of_states(log_odds) -> jax.Array:
    """Of every state: (states, lines) from the log odds of the bits, (size, lines).

    Examples
    --------
    >>> jnp.exp(log_prior_of_states(jnp.zeros((2, 1))))[:, 0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    states = states_of(log_odds.shape[0])
    own = jnp.where(states[:, :, None], log_odds[None], -log_odds[None])
    return jnp.sum(jax.nn.log_sigmoid(own), axis=1)


def patterns_of(bits) -> jax.Array:
    """Numbers of patterns, (lines,) int32, from bits (size, lines)."""
    return jnp.sum(bits << jnp.arange(bits.shape[0])[:, None], axis=0, dtype=jnp.int32)


def packed_bits(numbers, size: int) -> jax.Array:
    """The bits of states or patterns as words: (size, words) uint32 from (lines,) int32."""
    return pack_last_axis((numbers >> jnp.arange(size)[:, None]) & 1 == 1)


def log_weights(log_prior, gains: LineGains, patterns, size: int) -> jax.Array:
    """Prior and likelihood of the states of every line, unnormalised logs: (states, lines)."""

    def add(j, of_patterns):
        # Lines of one pattern weigh alike: their sum is spread over the states once, at the end.
        # (A comparison, and no index: where chains are batched that would be a slow scatter.)
        return of_patterns + jnp.where(numbers == patterns[j], gains(j), 0.0)

    numbers = jnp.arange(2**size, dtype=patterns.dtype)[:, None]
    summed = lax.fori_loop(0, patterns.shape[0], add, jnp.zeros_like(log_prior))
    return log_prior + covered_by_states(summed, size)


def draw_patterns(key, log_states, gains: LineGains, patterns, log_patterns, chosen, power=1.0):
    """Draw the patterns of the chosen lines, one after the other, the states summed out.

    Parameters
    ----------
    key : jax.Array
    log_states : (states, lines summed out) float
        As `log_weights` gives them.
    gains : LineGains
    patterns : (lines,) int32
    log_patterns : (patterns, lines) float
        Prior of the patterns.
    chosen : (visits,) int32
        Lines, none twice.
    power : float
        To which the marginal likelihood is raised.

    Returns
    -------
    log_states, patterns
    """
    numbers = np.arange(log_states.shape[0])
    meets = (numbers[:, None] & numbers[None, :]) != 0
    # Both parts are summed, for one less the other would be rounding where it is small.
    both = jnp.asarray(np.concatenate([meets, ~meets]), log_states.dtype)
    noise = random.gumbel(key, (len(chosen), len(numbers)), log_states.dtype)

    def one_line(t, carry):
        log_states, patterns = carry
        j = chosen[t]
        gain = gains(j)
        covered = ((numbers & patterns[j]) != 0)[:, None]
        log_states = log_states - jnp.where(covered, gain, 0.0)
        # What is common to all states of a line is common to its patterns: no matter.
        share = jnp.exp(log_states - jnp.max(log_states, axis=0))
        met, unmet = jnp.split(jnp.dot(both, share, precision=lax.Precision.HIGHEST), 2)
        density = power * jnp.sum(jnp.log(unmet + met * jnp.exp(gain)), axis=1)
        pattern = jnp.argmax(density + log_patterns[:, j] + noise[t]).astype(patterns.dtype)
        covered = ((numbers & pattern) != 0)[:, None]
        log_states = log_states + jnp.where(covered, gain, 0.0)
        return log_states, patterns.at[j].set(pattern)

    return lax.fori_loop(0, len(chosen), one_line, (log_states, patterns))


def draw_states(key, log_states) -> jax.Array:
    """A state of every line: (lines,) int32.

    Examples
    --------
    >>> draw_states(random.key(0), jnp.array([[0.0, -jnp.inf], [-jnp.inf, 3.0]])).tolist()
    [0, 1]
    """
    # One random number a line, for states are many: the first whose cumulated weight exceeds it.
    weights = jnp.cumsum(jnp.exp(log_states - jnp.max(log_states, axis=0)), axis=0)
    whole = weights[-1]
    level = random.uniform(key, whole.shape, whole.dtype) * whole
    level = jnp.minimum(level, whole * (1.0 - jnp.finfo(whole.dtype).eps))
    return jnp.sum(weights <= level, axis=0, dtype=jnp.int32)

r"""Draw the bits of one factor matrix given the other, line by line, factor by factor.

Given the basis :math:`u`, the rows of the usage :math:`z` are independent, and the log odds of
one bit are

.. math::

   \ell_{ik} = w_1\,\#\{j \in F_{ik}: x_{ij} = 1\} + w_0\,\#\{j \in F_{ik}: x_{ij} = 0\}
       + \operatorname{logit} p(z_{ik} = 1), \qquad
   F_{ik} = \{j: u_{jk} = 1,\ \textstyle\bigvee_{l \ne k} z_{il} u_{jl} = 0\},

the observed entries which factor k uses and no other factor of the row covers (Rukat, Holmes,
Titsias, Yau 2017; there :math:`w_1 = -w_0 = \lambda`). The sets are words and the counts
population counts: the factors after k are joined beforehand, from the last to the first, and those
before k on the way, so that a line costs its words times the rank. Lines are updated side by side,
factors in turn. Exchanging rows and columns gives the update of the basis.

What they leave invariant
    The conditional distribution of the bits given everything else. `metropolis` proposes the
    opposite value and accepts with :math:`\min(1, p/(1-p))`, p the probability of the proposal;
    `gibbs` draws from the conditional. The first moves more often and has the smaller asymptotic
    variance for a single bit (Peskun 1973; Liu 1996).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.kernels.packed_lines import (
    PackedLines,
    count_bits,
    count_split,
    pack_last_axis,
    unpack_last_axis,
)

FULL = np.uint32(0xFFFFFFFF)


class Lines(NamedTuple):
    """Some lines, and their bits of one factor matrix.

    Attributes
    ----------
    ones, observed : (lines, words) uint32
        `observed` may be None.
    bits : (rank, lines) bool
    log_odds : (rank, lines) float
        Of the prior.
    """

    ones: jax.Array
    observed: jax.Array | None
    bits: jax.Array
    log_odds: jax.Array


class Coverage(NamedTuple):
    """How the observed entries of some lines are explained: counts, int32.

    Attributes
    ----------
    covered_ones, covered_zeros, uncovered_ones : (...) int32
    """

    covered_ones: jax.Array
    covered_zeros: jax.Array
    uncovered_ones: jax.Array


class Weights(NamedTuple):
    """What covering an entry adds to the log likelihood: of a one and of a zero, () float."""

    one: jax.Array
    zero: jax.Array


#: Draws the bits of some lines: ``update(key, lines, partner, weights) -> (bits, coverage)``.
LineUpdate = Callable[[jax.Array, Lines, jax.Array, Weights], tuple[jax.Array, Coverage]]


def update_bits(
    key: jax.Array,
    words: jax.Array,
    partner: jax.Array,
    lines: PackedLines,
    size: int,
    log_odds: jax.Array,
    weights: Weights,
    update: LineUpdate,
) -> tuple[jax.Array, Coverage]:
    """Draw all bits of a factor matrix given the other.

    Parameters
    ----------
    key : jax.Array
    words : (rank, ceil(size / 32)) uint32
        Bits of this factor matrix, packed along the lines.
    partner : (rank, words of a line) uint32
        Bits of the other.
    lines : PackedLines
    size : int
        Number of lines.
    log_odds : (rank, 1) or (rank, size) float
        Of the prior.
    weights : Weights
    update : LineUpdate
        `metropolis`, `gibbs`, or another that does the same for a block of lines.

    Returns
    -------
    words : (rank, ceil(size / 32)) uint32
    coverage : Coverage
        (blocks,) counts after the update.

    Examples
    --------
    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.kernels.packed_lines import packed_data
    >>> lines = packed_data(BinaryMatrix([[1, 1, 0], [0, 0, 1], [1, 1, 0]])).by_row
    >>> basis = pack_last_axis(jnp.array([[True, True, False]]))
    >>> weights = Weights(jnp.float32(20.0), jnp.float32(-20.0))
    >>> words, seen = update_bits(
    ...     random.key(0), jnp.zeros((1, 1), jnp.uint32), basis, lines, 3, jnp.zeros((1, 1)),
    ...     weights, gibbs,
    ... )
    >>> unpack_last_axis(words, 3).tolist(), seen.uncovered_ones.tolist()
    ([[True, False, True]], [1])
    """
    blocks, per_block, _ = lines.ones.shape
    rank = words.shape[0]
    filled = blocks * per_block

    def cut(array):
        """(rank, size) to (blocks, rank, lines of a block)."""
        padded = jnp.pad(array, ((0, 0), (0, filled - size)))
        return padded.reshape(rank, blocks, per_block).transpose(1, 0, 2)

    exists = (jnp.arange(filled) < size).reshape(blocks, per_block)
    odds = cut(jnp.broadcast_to(log_odds, (rank, size)))

    def one_block(block):
        number, ones, observed, bits, odds, exists = block
        # Lines that only fill up a block must cover nothing.
        odds = jnp.where(exists, odds, -jnp.inf)
        chosen = Lines(ones, observed, bits, odds)
        return update(random.fold_in(key, number), chosen, partner, weights)

    parts = (jnp.arange(blocks), *lines, cut(unpack_last_axis(words, size)), odds, exists)
    bits, coverage = lax.map(one_block, parts)
    flat = bits.transpose(1, 0, 2).reshape(rank, filled)[:, :size]
    return pack_last_axis(flat), coverage


def metropolis(key, lines: Lines, partner, weights: Weights):
    """Propose to flip each bit in turn; a `LineUpdate`."""
    # The logarithm of a uniform number, never of zero: that would accept whatever is proposed.
    threshold = -random.exponential(key, lines.bits.shape, lines.log_odds.dtype)

    def draw(bit, log_odds, threshold):
        return bit ^ (threshold < jnp.where(bit, -log_odds, log_odds))

    return _in_turn(lines, partner, weights, threshold, draw)


def gibbs(key, lines: Lines, partner, weights: Weights):
    """Draw each bit in turn from its conditional; a `LineUpdate`."""
    threshold = random.logistic(key, lines.bits.shape, lines.log_odds.dtype)
    return _in_turn(lines, partner, weights, threshold, lambda _, odds, cut: cut < odds)


def _in_turn(lines, partner, weights, threshold, draw):
    """Factor after factor, all lines of the block at once."""

    def join(covered, factor):
        bits, used = factor
        return covered | (as_mask(bits)[:, None] & used), covered

    empty = jnp.zeros_like(lines.ones)
    _, later = lax.scan(join, empty, (lines.bits, partner), reverse=True)

    def one_factor(earlier, factor):
        used, later, bits, odds, threshold = factor
        free = used & ~(earlier | later)
        if lines.observed is not None:
            free = free & lines.observed
        gain = weigh(weights, *count_split(free, lines.ones))
        bits = draw(bits, gain.astype(odds.dtype) + odds, threshold)
        return earlier | (as_mask(bits)[:, None] & used), bits

    steps = (partner, later, lines.bits, lines.log_odds, threshold)
    covered, bits = lax.scan(one_factor, empty, steps)
    return bits, coverage(lines, covered)


def weigh(weights: Weights, ones, zeros):
    """Log likelihood that covering so many ones and zeros adds.

    By their difference and sum: with one flip rate for both directions the second weighs nothing,
    and large counts that nearly balance leave no rounding error of their own size.
    """
    kind = weights.one.dtype
    odd, even = 0.5 * (weights.one - weights.zero), 0.5 * (weights.one + weights.zero)
    return odd * (ones - zeros).astype(kind) + even * (ones + zeros).astype(kind)


def coverage(lines: Lines, covered) -> Coverage:
    """Counts of a block of lines, of which `covered` (lines, words) holds the covered entries."""
    zeros = covered & ~lines.ones
    if lines.observed is not None:
        zeros = zeros & lines.observed
    return Coverage(
        *(count_bits(w, axis=None) for w in (covered & lines.ones, zeros, lines.ones & ~covered))
    )


def as_mask(bits):
    """All bits of a word set or none: uint32."""
    return jnp.where(bits, FULL, jnp.uint32(0))

r"""Draw the bits of one factor matrix of the Hamming machine, by the scores of the entries.

In the Hamming machine every factor that a row uses supports the bit of its own code at each entry.
The *score* of an entry is the number of factors that support its value less those that oppose it,

.. math::

   t_{ij} = (2 x_{ij} - 1) \sum_k z_{ik} (2 u_{jk} - 1) \in \{-r, \ldots, r\},

and its log likelihood is a function g of the score alone. Changing one bit moves the scores of a
line by one or two, so that its log odds are sums of differences of g over the entries of each
score. Scores are kept as *bit planes*: word b of an entry holds bit b of the scores of 32 entries.
One is added by a ripple of carries, the entries of a score are an AND of the planes, and their
number is a population count: :math:`O(r)` operations on words for each bit.

What they leave invariant
    The conditional distribution of the bits given everything else: each is proposed to flip in
    turn and the flip accepted with :math:`\min(1, p/(1-p))`, p the probability of the proposal.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from bmfjax.kernels.boolean.bits import FULL, Lines, as_mask
from bmfjax.kernels.boolean.words import count_bits
from bmfjax.kernels.numerics.control import log_uniform


class ScoreWeights(NamedTuple):
    """Log likelihood of an entry by its score, from -rank to rank: (2 rank + 1,) float."""

    by_score: jax.Array


def score_usage(key, lines: Lines, partner, weights: ScoreWeights):
    """Draw the bits of the usage, line by line; a `LineUpdate` that returns the counts of scores.

    `observed` of the lines is given, and excludes what lies beyond the last entry or line. The
    counts, (2 rank + 1,) int32, are the observed entries of each score from -rank to rank.
    """

    def change(bits, used):
        agrees = ~(used ^ lines.ones)
        uses = as_mask(bits)[:, None]
        return uses & agrees, uses & ~agrees

    def gain(used, counts_of):
        g = weights.by_score
        agrees = ~(used ^ lines.ones)
        up = _weigh(g[2:] - g[1:-1], counts_of(lines.observed & agrees))
        return up + _weigh(g[:-2] - g[1:-1], counts_of(lines.observed & ~agrees))

    return _in_turn(key, lines, partner, change, gain)


def score_basis(key, lines: Lines, partner, weights: ScoreWeights):
    """Draw the bits of the basis; otherwise as `score_usage`."""

    def gain(used, counts_of):
        g, uses = weights.by_score, lines.observed & used
        more = counts_of(uses & lines.ones) - counts_of(uses & ~lines.ones)
        return _weigh(g[2:] - g[:-2], more)

    return _in_turn(key, lines, partner, _change_of_basis(lines), gain)


def score_counts(lines: Lines, partner) -> jax.Array:
    """Count the observed entries of each score, from -rank to rank, in lines of the basis."""
    planes = _planes(lines, partner, _change_of_basis(lines))
    return _total(planes, lines)


def _change_of_basis(lines):
    """Build the function of a factor's bits to the entries whose score it raises and lowers."""

    def change(bits, used):
        agrees = ~(as_mask(bits)[:, None] ^ lines.ones)
        return used & agrees, used & ~agrees

    return change


def _planes(lines, partner, change):
    """Return the bit planes of the scores of all entries."""

    def add(planes, factor):
        return _moved(planes, *change(*factor)), None

    start = _planes_of_zero(partner.shape[0], lines.ones.shape)
    return lax.scan(add, start, (lines.bits, partner))[0]


def _total(planes, lines):
    """Count the observed entries of each score: (2 rank + 1,) int32."""
    rank = lines.bits.shape[0]
    counts = _counts(planes, lines.observed, range(2 * rank + 1))
    return jnp.sum(counts, axis=1, dtype=jnp.int32)


def _in_turn(key, lines, partner, change, gain):
    """Draw factor after factor, all lines of the block at once."""
    rank = partner.shape[0]
    threshold = log_uniform(key, lines.bits.shape, lines.log_odds.dtype)

    def one_factor(planes, factor):
        used, bits, odds, threshold = factor
        up, down = change(bits, used)
        rest = _moved(planes, down, up)  # the scores without this factor

        def counts_of(chosen):
            return _counts(rest, chosen, range(1, 2 * rank))

        odds = gain(used, counts_of).astype(odds.dtype) + odds
        bits = bits ^ (threshold < jnp.where(bits, -odds, odds))
        return _moved(rest, *change(bits, used)), bits

    steps = (partner, lines.bits, lines.log_odds, threshold)
    planes, bits = lax.scan(one_factor, _planes(lines, partner, change), steps)
    return bits, _total(planes, lines)


def _planes_of_zero(rank, shape):
    """Return bit planes of a score of zero, held as the rank so that no score is negative."""
    number = (2 * rank).bit_length()
    bits = (jnp.uint32(rank) >> jnp.arange(number, dtype=jnp.uint32)) & 1
    return jnp.broadcast_to(as_mask(bits == 1)[:, None, None], (number, *shape))


def _moved(planes, up, down):
    """Return the planes of scores raised where `up` has a bit and lowered where `down` has one."""
    moved = []
    for plane in planes:
        moved.append(plane ^ (up | down))  # no entry is moved both ways
        up, down = plane & up, ~plane & down
    return jnp.stack(moved)


def _counts(planes, chosen, scores):
    """Count the chosen entries of each score, held with the rank added: (scores, lines)."""
    numbers = jnp.arange(scores.start, scores.stop, dtype=jnp.uint32)
    bits = (numbers[:, None] >> jnp.arange(len(planes), dtype=jnp.uint32)) & 1

    def one(bits):
        match = chosen
        for plane, bit in zip(planes, bits, strict=True):
            match = match & (plane ^ jnp.where(bit == 1, jnp.uint32(0), FULL))
        return count_bits(match)

    return lax.map(one, bits)


def _weigh(differences, counts):
    """Sum differences times counts over the scores: (lines,)."""
    return jnp.sum(differences[:, None] * counts.astype(differences.dtype), axis=0)

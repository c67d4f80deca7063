r"""Draw the bits of one factor matrix where the factors of a row vote on its entries.

In the Hamming machine the factors that a row uses vote on every entry, each for the bit of its own
code. The *score* of an entry is the number of votes for its value less that of the votes against,

.. math::

   t_{ij} = (2 x_{ij} - 1) \sum_k z_{ik} (2 u_{jk} - 1) \in \{-r, \ldots, r\},

and its log likelihood is a function g of the score alone. Changing one bit moves the scores of a
line by one or two, so that its log odds are sums of differences of g over the entries of each
score. Scores are kept as *bit planes*: word b of an entry holds bit b of the scores of 32 entries.
A vote is added by a ripple of carries, the entries of a score are an AND of the planes, and their
number is a population count: :math:`O(r)` operations on words for each bit.

What they leave invariant
    The conditional distribution of the bits given everything else: each is proposed to flip in
    turn and the flip accepted with :math:`\min(1, p/(1-p))`, p the probability of the proposal.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.kernels.bit_updates import FULL, Lines, as_mask
from bmfjax.kernels.packed_lines import count_bits


class ScoreWeights(NamedTuple):
    """Log likelihood of an entry by its score, from -rank to rank: (2 rank + 1,) float."""

    by_score: jax.Array


def vote_usage(key, lines: Lines, partner, weights: ScoreWeights):
    """Draw the bits of the usage, line by line; a `LineUpdate` whose counts are those of scores.

    Parameters
    ----------
    key : jax.Array
    lines : Lines
        `observed` is given, and says that nothing beyond the last entry or line is.
    partner : (rank, words) uint32
    weights : ScoreWeights

    Returns
    -------
    bits : (rank, lines) bool
    counts : (2 rank + 1,) int32
        Observed entries of each score, from -rank to rank.

    Examples
    --------
    >>> lines = Lines(jnp.array([[0b011]], jnp.uint32), jnp.array([[0b111]], jnp.uint32),
    ...               jnp.zeros((1, 1), bool), jnp.zeros((1, 1)))
    >>> code = jnp.array([[0b011]], jnp.uint32)
    >>> weights = ScoreWeights(jax.nn.log_sigmoid(20.0 * jnp.arange(-1.0, 2.0)))
    >>> bits, counts = vote_usage(random.key(0), lines, code, weights)
    >>> bits.tolist(), counts.tolist()
    ([[True]], [0, 0, 3])
    """

    def vote(bits, used):
        agrees = ~(used ^ lines.ones)
        cast = as_mask(bits)[:, None]
        return cast & agrees, cast & ~agrees

    def gain(used, counts_of):
        g = weights.by_score
        agrees = ~(used ^ lines.ones)
        up = _weigh(g[2:] - g[1:-1], counts_of(lines.observed & agrees))
        return up + _weigh(g[:-2] - g[1:-1], counts_of(lines.observed & ~agrees))

    return _in_turn(key, lines, partner, vote, gain)


def vote_basis(key, lines: Lines, partner, weights: ScoreWeights):
    """Draw the bits of the basis; otherwise as `vote_usage`.

    Examples
    --------
    >>> lines = Lines(jnp.array([[0b011]], jnp.uint32), jnp.array([[0b111]], jnp.uint32),
    ...               jnp.zeros((1, 1), bool), jnp.zeros((1, 1)))
    >>> users = jnp.array([[0b011]], jnp.uint32)
    >>> weights = ScoreWeights(jax.nn.log_sigmoid(20.0 * jnp.arange(-1.0, 2.0)))
    >>> bits, counts = vote_basis(random.key(0), lines, users, weights)
    >>> bits.tolist(), counts.tolist()
    ([[True]], [0, 1, 2])
    """

    def gain(used, counts_of):
        g, cast = weights.by_score, lines.observed & used
        more = counts_of(cast & lines.ones) - counts_of(cast & ~lines.ones)
        return _weigh(g[2:] - g[:-2], more)

    return _in_turn(key, lines, partner, _basis_vote(lines), gain)


def score_counts(lines: Lines, partner) -> jax.Array:
    """Observed entries of each score, from -rank to rank, of lines of the basis.

    Examples
    --------
    >>> lines = Lines(jnp.array([[0b011]], jnp.uint32), jnp.array([[0b111]], jnp.uint32),
    ...               jnp.ones((1, 1), bool), jnp.zeros((1, 1)))
    >>> score_counts(lines, jnp.array([[0b110]], jnp.uint32)).tolist()
    [1, 1, 1]
    """
    planes = _planes(lines, partner, _basis_vote(lines))
    return _total(planes, lines)


def _basis_vote(lines):
    def vote(bits, used):
        agrees = ~(as_mask(bits)[:, None] ^ lines.ones)
        return used & agrees, used & ~agrees

    return vote


def _planes(lines, partner, vote):
    """Bit planes of the scores of all entries."""

    def cast(planes, factor):
        return _moved(planes, *vote(*factor)), None

    start = _planes_of_zero(partner.shape[0], lines.ones.shape)
    return lax.scan(cast, start, (lines.bits, partner))[0]


def _total(planes, lines):
    rank = lines.bits.shape[0]
    counts = _counts(planes, lines.observed, range(2 * rank + 1))
    return jnp.sum(counts, axis=1, dtype=jnp.int32)


def _in_turn(key, lines, partner, vote, gain):
    """Factor after factor, all lines of the block at once."""
    rank = partner.shape[0]
    # The logarithm of a uniform number, never of zero: that would accept whatever is proposed.
    threshold = -random.exponential(key, lines.bits.shape, lines.log_odds.dtype)

    def one_factor(planes, factor):
        used, bits, odds, threshold = factor
        up, down = vote(bits, used)
        rest = _moved(planes, down, up)  # the vote taken back

        def counts_of(chosen):
            return _counts(rest, chosen, range(1, 2 * rank))

        odds = gain(used, counts_of).astype(odds.dtype) + odds
        bits = bits ^ (threshold < jnp.where(bits, -odds, odds))
        return _moved(rest, *vote(bits, used)), bits

    steps = (partner, lines.bits, lines.log_odds, threshold)
    planes, bits = lax.scan(one_factor, _planes(lines, partner, vote), steps)
    return bits, _total(planes, lines)


def _planes_of_zero(rank, shape):
    """Bit planes of a score of zero, held as the rank so that no score is negative."""
    number = (2 * rank).bit_length()
    bits = (jnp.uint32(rank) >> jnp.arange(number, dtype=jnp.uint32)) & 1
    return jnp.broadcast_to(as_mask(bits == 1)[:, None, None], (number, *shape))


def _moved(planes, up, down):
    """Planes of the scores, one more where `up` has a bit and one less where `down` has."""
    found = []
    for plane in planes:
        found.append(plane ^ (up | down))  # no entry is moved both ways
        up, down = plane & up, ~plane & down
    return jnp.stack(found)


def _counts(planes, chosen, scores):
    """Chosen entries of each score (held with the rank added) in each line: (scores, lines)."""
    numbers = jnp.arange(scores.start, scores.stop, dtype=jnp.uint32)
    bits = (numbers[:, None] >> jnp.arange(len(planes), dtype=jnp.uint32)) & 1

    def one(bits):
        match = chosen
        for plane, bit in zip(planes, bits, strict=True):
            match = match & (plane ^ jnp.where(bit == 1, jnp.uint32(0), FULL))
        return count_bits(match)

    return lax.map(one, bits)


def _weigh(differences, counts):
    """Sum over scores: (lines,) float."""
    return jnp.sum(differences[:, None] * counts.astype(differences.dtype), axis=0)

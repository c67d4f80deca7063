r"""Draw the bits of one factor matrix given the other: one by one, or several of a line at once.

**One by one** (`metropolis`, `gibbs`). Given the basis :math:`u`, the rows of the usage :math:`z`
are independent, and the log odds of one bit are

.. math::

   \ell_{ik} = w_1\,\#\{j \in F_{ik}: x_{ij} = 1\} + w_0\,\#\{j \in F_{ik}: x_{ij} = 0\}
       + \operatorname{logit} p(z_{ik} = 1), \qquad
   F_{ik} = \{j: u_{jk} = 1,\ \textstyle\bigvee_{l \ne k} z_{il} u_{jl} = 0\},

the observed entries which factor k uses and no other factor of the row covers (Rukat, Holmes,
Titsias, Yau 2017; there :math:`w_1 = -w_0 = \lambda`). The sets are words and the counts
population counts: the factors after k are joined beforehand, from the last to the first, and those
before k on the way, so that a line costs its words times the rank. Lines are updated side by side,
factors in turn. Exchanging rows and columns gives the update of the basis.

**Several at once** (`joint`). Single flips cannot trade one factor for another that covers nearly
the same entries: both would have to change together. For a set B of b factors the joint
conditional of their bits in one line has :math:`2^b` states, and all of them cost little more than
one. Group the entries that no factor outside of B covers by their *pattern* q, the factors of B
that use them. A state z covers the entries whose pattern meets it. With :math:`G(q)` the weight of
the entries of pattern q,

.. math::

   \ell(z) = \sum_{q:\, q \wedge z \ne 0} G(q) = S(\text{all}) - S(\neg z), \qquad
   S(q) = \sum_{p \subseteq q} G(p),

and the subset sums S of all states take b passes over the :math:`2^b` numbers (Yates's zeta
transform). The state is drawn by the Gumbel trick. Factors are grouped at random in every sweep.

What they leave invariant
    The conditional distribution of the bits given everything else. `metropolis` proposes the
    opposite value and accepts with :math:`\min(1, p/(1-p))`, p the probability of the proposal;
    `gibbs` draws from the conditional. The first moves more often and has the smaller asymptotic
    variance for a single bit (Peskun 1973; Liu 1996). `joint` draws a group from its conditional,
    whatever the group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.tree_util import register_dataclass

from bmfjax.data.checks import whole
from bmfjax.kernels.boolean import codes, fused
from bmfjax.kernels.boolean.words import (
    PackedLines,
    count_bits,
    count_split,
    own_bits,
    pack_last_axis,
    unpack_last_axis,
)
from bmfjax.kernels.numerics.control import log_uniform
from bmfjax.kernels.numerics.mesh import WHOLE, Along
from bmfjax.specs.samplers import MAX_JOINT

FULL = np.uint32(0xFFFFFFFF)
#: The loop over up to so many factors is unrolled where all lines together have so many words. A
#: sweep then takes two thirds of the time; compiling takes longer, by 0.1 to 0.2 s a factor.
UNROLLED_RANK, UNROLLED_WORDS = 64, 2**14


@register_dataclass
@dataclass(frozen=True)
class Lines:
    """Some lines, and their bits of one factor matrix."""

    ones: jax.Array  # (lines, words) uint32
    observed: jax.Array | None  # (lines, words) uint32
    bits: jax.Array  # (rank, lines) bool
    log_odds: jax.Array  # (rank, lines), of the prior
    #: Factors in one step of the loop over them.
    unroll: int = field(default=1, metadata={"static": True})


class Coverage(NamedTuple):
    """Counts, int32, of how the product explains the observed entries of some lines."""

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
    along: Along = WHOLE,
    across: PackedLines | None = None,
) -> tuple[jax.Array, Coverage]:
    """Draw all bits of a factor matrix given the other.

    `words` (rank, ceil(size / 32)) are these bits, packed along the `size` lines, and `partner`
    (rank, words of a line) those of the other matrix. Returns the new words and the coverage after
    the update, (blocks,) counts. On a mesh, with blocks `along` one of its axes, a device draws the
    lines of its own blocks, and gets those of the others. As many blocks as the budget of the lines
    holds are drawn at once. Each has a key of its own, so that the draws are the same for all.
    Where the budget says so, one kernel draws all lines (`bmfjax.kernels.boolean.fused`), or those
    that are long enough are drawn from counts by code (`bmfjax.kernels.boolean.codes`) of the data
    in the other orientation, `across`.
    """
    here, per_block, width = lines.ones.shape
    rank, filled = words.shape[0], here * per_block
    blocks, part = -(-size // per_block), along.part()[0]
    numbers = part * here + jnp.arange(here)
    # By the number of all lines: the program is the same on every mesh.
    is_large = size * width >= UNROLLED_WORDS
    unroll = rank if is_large and rank <= UNROLLED_RANK else 1
    exists = numbers[:, None] * per_block + jnp.arange(per_block) < size

    def cut(array):
        """(rank, lines here) to (blocks here, rank, lines of a block)."""
        return array.reshape(rank, here, per_block).transpose(1, 0, 2)

    odds = cut(_own_odds(log_odds, along, filled, size))
    way = _way(update, rank, size, lines, along, across)
    if way is not None:
        odds = jnp.where(exists[:, None], odds, -jnp.inf)
        bits = cut(own_bits(words, along, filled))
        data = across if way is _by_codes else lines
        bits, coverage = _all_at_once(way, key, data, bits, odds, partner, weights, update)
        return pack_last_axis(bits[:, :size]), coverage

    def one_block(block):
        number, ones, observed, bits, odds, exists = block
        # Lines that only fill up a block must cover nothing.
        odds = jnp.where(exists, odds, -jnp.inf)
        chosen = Lines(ones, observed, bits, odds, unroll)
        return update(random.fold_in(key, number), chosen, partner, weights)

    parts = (numbers, lines.ones, lines.observed, cut(own_bits(words, along, filled)), odds, exists)
    bits, coverage = lines.budget.map(one_block, parts, bytes_of_block(rank, per_block, width))
    if along.axis is not None:  # words go to the other devices, not bits
        packed, coverage = along.gather((pack_last_axis(bits), coverage))
        bits = unpack_last_axis(packed, per_block)[:blocks]
        coverage = Coverage(*(counts[:blocks] for counts in coverage))
    flat = bits.transpose(1, 0, 2).reshape(rank, blocks * per_block)[:, :size]
    return pack_last_axis(flat), coverage


def _way(update, rank, size, lines: PackedLines, along, across) -> Callable | None:
    """Choose how all lines are drawn at once, None for block by block."""
    is_known = update in THRESHOLDS and lines.budget.fused and along.axis is None
    if is_known and across is not None and codes.pays(rank, size, across, lines.budget.bytes):
        return _by_codes
    return _in_one_kernel if is_known and fused.knows(rank, lines.ones.shape[-1]) else None


def _all_at_once(way, key, data: PackedLines, bits, log_odds, partner, weights, update):
    """Draw all lines in one of two ways, with the random numbers that blocks have of their own.

    `bits` and `log_odds` are (blocks, rank, lines of a block); returned are (rank, all lines).
    """
    blocks, rank, per_block = bits.shape
    keys = jax.vmap(lambda n: random.fold_in(key, n))(jnp.arange(blocks))
    of_block = lambda k: THRESHOLDS[update](k, bits.shape[1:], log_odds.dtype)  # noqa: E731
    flat = lambda a: a.transpose(1, 0, 2).reshape(rank, blocks * per_block)  # noqa: E731
    given = flat(bits), flat(log_odds), flat(jax.vmap(of_block)(keys))
    bits, counts = way(data, partner, *given, weights, update)
    return bits, Coverage(*counts.reshape(3, blocks, per_block).sum(-1, dtype=jnp.int32))


def _in_one_kernel(lines: PackedLines, partner, bits, log_odds, thresholds, weights, update):
    words = [
        None if a is None else a.reshape(-1, a.shape[-1]) for a in (lines.ones, lines.observed)
    ]
    return fused.draw(update.__name__, *words, partner, bits, log_odds, thresholds, weights)


def _by_codes(across: PackedLines, partner, bits, log_odds, thresholds, weights, update):
    def decide(bit, ones, zeros, odds, threshold):
        gain = weigh(weights, ones, zeros)
        return DRAWS[update](bit, gain.astype(odds.dtype) + odds, threshold)

    return codes.draw(across, partner, bits, log_odds, thresholds, decide)


def bytes_of_block(rank: int, lines: int, words: int) -> int:
    """Return the bytes of what is made of a block on the way: of each factor, and a few more."""
    return 4 * (rank + 4) * lines * words


def _own_odds(log_odds, along, filled, size):
    """Return the log odds of this device's `filled` lines, from those of all `size` or of one."""
    rank = log_odds.shape[0]
    if log_odds.shape[1] == 1:
        return jnp.broadcast_to(log_odds, (rank, filled))
    part, parts = along.part()
    padded = jnp.pad(log_odds, ((0, 0), (0, parts * filled - size)))
    return lax.dynamic_slice_in_dim(padded, part * filled, filled, axis=1)


def metropolis(key, lines: Lines, partner, weights: Weights):
    """Propose to flip each bit in turn; a `LineUpdate`."""
    threshold = log_uniform(key, lines.bits.shape, lines.log_odds.dtype)
    return _in_turn(lines, partner, weights, threshold, _flipped)


def gibbs(key, lines: Lines, partner, weights: Weights):
    """Draw each bit in turn from its conditional; a `LineUpdate`."""
    threshold = random.logistic(key, lines.bits.shape, lines.log_odds.dtype)
    return _in_turn(lines, partner, weights, threshold, _chosen)


def _flipped(bit, log_odds, threshold):
    return bit ^ (threshold < jnp.where(bit, -log_odds, log_odds))


def _chosen(_, log_odds, threshold):
    return threshold < log_odds


#: The updates that draw all lines at once: the numbers that they draw for every bit, and the rule.
THRESHOLDS = {metropolis: log_uniform, gibbs: random.logistic}
DRAWS = {metropolis: _flipped, gibbs: _chosen}


def _in_turn(lines, partner, weights, threshold, draw):
    """Draw factor after factor, all lines of the block at once."""

    def join(covered, factor):
        bits, used = factor
        return covered | (as_mask(bits)[:, None] & used), covered

    empty = jnp.zeros_like(lines.ones)
    _, later = lax.scan(join, empty, (lines.bits, partner), reverse=True, unroll=lines.unroll)

    def one_factor(earlier, factor):
        used, later, bits, odds, threshold = factor
        free = used & ~(earlier | later)
        if lines.observed is not None:
            free = free & lines.observed
        gain = weigh(weights, *count_split(free, lines.ones))
        bits = draw(bits, gain.astype(odds.dtype) + odds, threshold)
        return earlier | (as_mask(bits)[:, None] & used), bits

    steps = (partner, later, lines.bits, lines.log_odds, threshold)
    covered, bits = lax.scan(one_factor, empty, steps, unroll=lines.unroll)
    return bits, coverage(lines, covered)


def weigh(weights: Weights, ones, zeros):
    """Return the log likelihood that covering so many ones and zeros adds.

    It weighs their difference and their sum. With one flip rate for both directions the sum weighs
    nothing, and large counts that nearly balance leave no rounding error of their own size.
    """
    kind = weights.one.dtype
    odd, even = 0.5 * (weights.one - weights.zero), 0.5 * (weights.one + weights.zero)
    return odd * (ones - zeros).astype(kind) + even * (ones + zeros).astype(kind)


def coverage(lines: Lines, covered) -> Coverage:
    """Count a block of lines whose covered entries are `covered` (lines, words)."""
    zeros = covered & ~lines.ones
    if lines.observed is not None:
        zeros = zeros & lines.observed
    return Coverage(
        *(count_bits(w, axis=None) for w in (covered & lines.ones, zeros, lines.ones & ~covered))
    )


def as_mask(bits):
    """Return words with all bits set or none: uint32."""
    return jnp.where(bits, FULL, jnp.uint32(0))


def covered_by(bits, words):
    """Return the Boolean product (lines, words) of bits (rank, lines) and words (rank, words)."""
    join = lambda covered, f: (covered | (as_mask(f[0])[:, None] & f[1]), None)  # noqa: E731
    empty = jnp.zeros((bits.shape[1], words.shape[1]), words.dtype)
    return lax.scan(join, empty, (bits, words))[0]


def joint(size: int) -> LineUpdate:
    """Build the update that draws groups of up to `size` factors at once.

    Parameters
    ----------
    size : int
        Factors of a group, from 1 to 8.

    Returns
    -------
    LineUpdate

    Raises
    ------
    InputError
        For another number.

    Examples
    --------
    >>> partner = jnp.array([[0b011], [0b110]], jnp.uint32)
    >>> lines = Lines(jnp.array([[0b111]], jnp.uint32), None, jnp.zeros((2, 1), bool),
    ...               jnp.zeros((2, 1)))
    >>> weights = Weights(jnp.float32(20.0), jnp.float32(-20.0))
    >>> bits, seen = jax.jit(joint(2))(random.key(0), lines, partner, weights)
    >>> bits[:, 0].tolist(), int(seen.covered_ones)
    ([True, True], 3)
    """
    whole("block_size", size, 1, MAX_JOINT)

    def update(key, lines: Lines, partner, weights: Weights):
        key_order, key_draw = random.split(key)
        rank = partner.shape[0]
        groups = -(-rank // size)
        order = random.permutation(key_order, rank)

        def grouped(array, fill):
            """Put factors in their random order and fill the last group up."""
            padding = jnp.full((groups * size - rank, *array.shape[1:]), fill, array.dtype)
            return jnp.concatenate([array[order], padding]).reshape(groups, size, *array.shape[1:])

        steps = (
            random.split(key_draw, groups),
            grouped(partner, 0),
            grouped(lines.bits, False),
            grouped(lines.log_odds, -jnp.inf),
        )
        covered, bits = _groups_in_turn(steps, lines, weights)
        bits = bits.reshape(groups * size, -1)[:rank]
        return bits[jnp.argsort(order)], coverage(lines, covered)

    return update


def _groups_in_turn(steps, lines, weights):
    def join(covered, group):
        return covered | covered_by(group[2], group[1]), covered

    empty = jnp.zeros_like(lines.ones)
    _, later = lax.scan(join, empty, steps, reverse=True)

    def one_group(earlier, group):
        (key, used, _, log_odds), later = group
        free = ~(earlier | later)
        if lines.observed is not None:
            free = free & lines.observed
        bits = _draw_group(key, free & lines.ones, free & ~lines.ones, used, log_odds, weights)
        return earlier | covered_by(bits, used), bits

    return lax.scan(one_group, empty, (steps, later))


def _draw_group(key, ones, zeros, used, log_odds, weights):
    """Draw the bits (size, lines) of a group; `ones` and `zeros` (lines, words) may be covered."""
    size = used.shape[0]
    states = states_of(size)

    def of_pattern(pattern):
        signed = jnp.where(pattern[:, None], used, ~used)
        columns = lax.reduce(signed, FULL, lax.bitwise_and, (0,))
        return count_bits(ones & columns), count_bits(zeros & columns)

    counts = [covered_by_states(g, size) for g in lax.map(of_pattern, jnp.asarray(states))]
    odds = log_odds[None]
    prior = jnp.where(states[:, :, None], jax.nn.log_sigmoid(odds), jax.nn.log_sigmoid(-odds)).sum(
        1
    )
    state = draw_choice(key, prior, weights, counts)
    return (state >> jnp.arange(size)[:, None]) & 1 == 1


def draw_choice(key, log_prior, weights: Weights, counts) -> jax.Array:
    """Draw one of the choices for every line, (lines,) int32, by the Gumbel trick.

    `log_prior` and both `counts`, of ones and of zeros that a choice covers, are (choices, lines).
    """
    density = log_prior + weigh(weights, *counts).astype(log_prior.dtype)
    # Again, relative to the best choice: what floats lose of large counts would decide near ties.
    best = jnp.argmax(density, axis=0, keepdims=True)
    counts = [c - jnp.take_along_axis(c, best, axis=0) for c in counts]
    density = log_prior + weigh(weights, *counts).astype(log_prior.dtype)
    return jnp.argmax(density + random.gumbel(key, density.shape, density.dtype), axis=0)


def states_of(size: int) -> np.ndarray:
    """Return the states of so many bits, the first bit changing fastest: (2**size, size) bool."""
    return (np.arange(2**size)[:, None] >> np.arange(size)) & 1 == 1


def covered_by_states(counts, size: int):
    """Sum what each state covers, from what there is of each pattern: both (states, lines)."""
    lines = counts.shape[1]
    sums = counts
    for k in range(size):
        halves = sums.reshape(-1, 2, 2**k, lines)
        sums = jnp.stack([halves[:, 0], halves[:, 0] + halves[:, 1]], axis=1)
    sums = sums.reshape(counts.shape)
    return sums[-1] - sums[::-1]

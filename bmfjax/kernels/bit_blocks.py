r"""Draw several bits of a line at once, from their joint conditional.

Single flips cannot trade one factor for another that covers nearly the same entries: both would
have to change together. For a set B of b factors the joint conditional of their bits in one line
has :math:`2^b` states, and all of them cost little more than one. Group the entries that no factor
outside of B covers by their *pattern* q, the factors of B that use them. A state z covers the
entries whose pattern meets it, so that with :math:`G(q)` the weight of the entries of pattern q,

.. math::

   \ell(z) = \sum_{q:\, q \wedge z \ne 0} G(q) = S(\text{all}) - S(\neg z), \qquad
   S(q) = \sum_{p \subseteq q} G(p),

and the subset sums S of all states take b passes over the :math:`2^b` numbers (Yates's zeta
transform). The state is drawn by the Gumbel trick. Factors are grouped at random in every sweep.

What it leaves invariant
    The conditional distribution of the bits given everything else; the draw of a group is from its
    conditional, whatever the group.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.kernels.bit_updates import (
    FULL,
    Lines,
    LineUpdate,
    Weights,
    as_mask,
    coverage,
    weigh,
)
from bmfjax.kernels.packed_lines import count_bits

#: More states than this cost more than they help.
MAX_JOINT = 8


def joint(size: int) -> LineUpdate:
    """The update that draws groups of up to `size` factors at once.

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
    >>> bits, seen = joint(2)(random.key(0), lines, partner, weights)
    >>> bits[:, 0].tolist(), int(seen.covered_ones)
    ([True, True], 3)
    """
    if not 1 <= size <= MAX_JOINT:
        raise InputError(f"block_size is {size}; give a number from 1 to {MAX_JOINT}")

    def update(key, lines: Lines, partner, weights: Weights):
        key_order, key_draw = random.split(key)
        rank = partner.shape[0]
        groups = -(-rank // size)
        order = random.permutation(key_order, rank)

        def grouped(array, fill):
            """Factors in their random order, the last group filled up."""
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
    def cover(bits, used):
        """Entries covered by the factors of a group: (lines, words)."""
        add = lambda covered, f: (covered | (as_mask(f[0])[:, None] & f[1]), None)  # noqa: E731
        return lax.scan(add, jnp.zeros_like(lines.ones), (bits, used))[0]

    def join(covered, group):
        return covered | cover(group[2], group[1]), covered

    empty = jnp.zeros_like(lines.ones)
    _, later = lax.scan(join, empty, steps, reverse=True)

    def one_group(earlier, group):
        (key, used, _, log_odds), later = group
        free = ~(earlier | later)
        if lines.observed is not None:
            free = free & lines.observed
        bits = _draw(key, free & lines.ones, free & ~lines.ones, used, log_odds, weights)
        return earlier | cover(bits, used), bits

    return lax.scan(one_group, empty, (steps, later))


def _draw(key, ones, zeros, used, log_odds, weights):
    """Bits (size, lines) of one group: `ones` and `zeros` (lines, words) are free to be covered."""
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
    density = prior + weigh(weights, *counts).astype(prior.dtype)
    # Again, from the best state on: what floats lose of large counts would decide near ties.
    best = jnp.argmax(density, axis=0, keepdims=True)
    counts = [c - jnp.take_along_axis(c, best, axis=0) for c in counts]
    density = prior + weigh(weights, *counts).astype(prior.dtype)
    state = jnp.argmax(density + random.gumbel(key, density.shape, density.dtype), axis=0)
    return (state >> jnp.arange(size)[:, None]) & 1 == 1


def states_of(size: int) -> np.ndarray:
    """The states of so many bits, the first bit changing fastest: (2**size, size) bool.

    Examples
    --------
    >>> states_of(2).astype(int).tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    return (np.arange(2**size)[:, None] >> np.arange(size)) & 1 == 1


def covered_by_states(counts, size: int):
    """What each state covers, from what there is of each pattern: (states, lines), as `counts`.

    Examples
    --------
    >>> covered_by_states(jnp.array([[9], [1], [2], [4]]), 2)[:, 0].tolist()
    [0, 5, 6, 7]
    """
    lines = counts.shape[1]
    sums = counts
    for k in range(size):
        halves = sums.reshape(-1, 2, 2**k, lines)
        sums = jnp.stack([halves[:, 0], halves[:, 0] + halves[:, 1]], axis=1)
    sums = sums.reshape(counts.shape)
    return sums[-1] - sums[::-1]

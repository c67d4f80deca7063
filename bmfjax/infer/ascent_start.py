r"""Starts of Boolean chains with few factors: a population that climbs to modes.

With few factors one factor matrix can be summed out, and the posterior of the other climbed
(:mod:`bmfjax.kernels.boolean.ascent`). Every chain has a population of its own:

1. it starts from lines of the data, cools, and evolves on some of the lines;
2. its best members evolve on more of them, and the highest one is the start of the chain;
3. if asked for, the highest members of all chains go on together, round after round: a member may
   take over vectors of others where that brings it higher, and one that is far below the highest
   begins again from there. The last round is one after some that brought none of them higher.

Up to step 2 chains are independent of each other. After step 3 they are not: they agree on the
highest point that any of them found, and R-hat cannot speak of modes that were given up. The height
is that of a point, on the lines that were looked at, and not the weight of a mode: a wide mode may
weigh more than a higher one. In large matrices modes are hundreds of nats apart, and few bits are
uncertain; in small ones do not ask for step 3.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.clock import running_clock
from bmfjax.data import BinaryMatrix
from bmfjax.infer.boolean_start import part_of, representatives, share_of_errors
from bmfjax.kernels.boolean import ascent
from bmfjax.kernels.boolean.line_states import sides_of
from bmfjax.kernels.numerics.budget import device_budget, divided
from bmfjax.kernels.numerics.compiling import chain_options, jit_once
from bmfjax.kernels.numerics.programs import form_of, jit_equal, made_once, value_of
from bmfjax.progress import say

#: Most factors; and lines of the first step.
MAX_CLIMB_RANK, LINES = 10, (500, 2000)
#: Lines times states times entries of a line in a step, at first and then, and the most for `LINES`
#: that a climb can afford.
WORK, MORE_WORK, MOST_WORK = 2**26, 2**29, 2**27
#: Entries that the lines of the first step have at least, where `LINES` would be more.
ENTRIES = 2**17
#: Steps of a climb.
STEPS = 5
#: The third step: most rounds; the least gain; how far below the highest a member begins again from
#: there. In nats, on the lines looked at.
ROUNDS, GAIN, MOST_BELOW = 20, 1.0, 5.0


class Effort(NamedTuple):
    """How much is tried."""

    members: int = 12
    jumps: int = 50  # by each member
    best: int = 4  # members of the second step
    last_jumps: int = 20  # there, and in a round of the third
    patience: int = 4  # rounds without a gain after which the third ends


#: What is tried where a step has up to so much work, and what where it has more and lines are long.
FULL, CHEAP, SHORT = Effort(), 2**24, Effort(6, 20, 2, 10, 2)
#: Lines of which bits are drawn side by side on a CPU.
BLOCK = 256


def can_climb(shape: tuple[int, int], rank: int) -> bool:
    """Tell whether `ascent_starts` can afford a matrix of this shape and rank.

    Examples
    --------
    >>> can_climb((8124, 117), 10), can_climb((512, 512), 10), can_climb((10**6, 1000), 5)
    (True, False, True)
    """
    lines = min(max(shape), LINES[0])
    return rank <= MAX_CLIMB_RANK and lines * min(shape) * 2**rank <= MOST_WORK


def ascent_starts(
    key: jax.Array,
    data: BinaryMatrix,
    rank: int,
    num_chains: int,
    *,
    num_rates: int = 2,
    exchange: bool = False,
) -> list[dict]:
    """Return Boolean factors for each chain to start from.

    Parameters
    ----------
    key : jax.Array
    data : BinaryMatrix
        With a shape and rank that `can_climb` allows. A matrix with more than a few million entries
        is represented by rows and columns drawn at random; bits of the others are zero.
    rank : int
    num_chains : int
    num_rates : int
        1 for a single flip rate, 2 for one each of zeros and ones.
    exchange : bool
        Whether chains go on together (step 3); by default starts are independent.

    Returns
    -------
    list of dict
        `usage` (rows, rank) and `basis` (columns, rank) bool, one a chain. Where only
        a part of the matrix is looked at, also `flip_rate` () float, that of the part.

    Examples
    --------
    >>> truth = np.kron(np.eye(3, dtype=bool), np.ones((8, 5), bool))
    >>> starts = ascent_starts(random.key(0), BinaryMatrix(truth), 3, 2)
    >>> [bool(((s["usage"] @ s["basis"].T) == truth).all()) for s in starts]
    [True, True]
    """
    part = dict(zip(("usage", "basis"), representatives(data), strict=True))
    values = part_of(data, *part.values()).dense(missing=np.nan)
    sides = sides_of(data.shape, "longer")
    if sides.summed == "basis":
        values = values.T
    few, more = _lines_of(values, rank, WORK, LINES[1]), _lines_of(values, rank, MORE_WORK)
    key_chains, key_exchange, key_bits = random.split(key, 3)
    keys = random.split(key_chains, num_chains)
    # What is all there at first needs no second look.
    left = more if len(more.count) > len(few.count) else None
    is_costly = few.ones.size * 2**rank > CHEAP and LINES[0] * values.shape[1] > ENTRIES
    effort = SHORT if is_costly else FULL
    climb = functools.partial(_highest_member, rank=rank, num_rates=num_rates, effort=effort)
    say("searching starts", "populations climb to modes")
    highest = _side_by_side(climb, keys, few, left)(keys, few, left)
    if exchange and num_chains > 1:
        highest = _together(key_exchange, highest, more, num_rates, effort)
    size = 4 * (4 * 2**rank + values.shape[1])
    bits = functools.partial(_bits, block=max(device_budget().number(len(values), size), BLOCK))
    drawn = jit_once(bits)(random.split(key_bits, num_chains), *_seen(values), highest)
    starts = []
    for bits, vectors in zip(np.asarray(drawn), np.asarray(highest.vectors) > 0.5, strict=True):
        start = {
            site: np.zeros((size, rank), bool) for site, size in zip(part, data.shape, strict=True)
        }
        start[sides.summed][part[sides.summed]], start[sides.kept][part[sides.kept]] = bits, vectors
        if (len(part["usage"]), len(part["basis"])) != data.shape:
            start["flip_rate"] = share_of_errors(values, bits, vectors)
        starts.append(start)
    return starts


def _lines_of(values, rank: int, work: int, most: int | None = None) -> ascent.Lines:
    """Merge as many lines as a step of this much work can take, at most `most`."""
    least, kept = LINES[0], values.shape[1]
    if most is not None and least * kept > ENTRIES:  # longer lines say more each
        least, work = ENTRIES // kept, work // 2
    number = max(least, work // (kept * 2**rank))
    number = number if most is None else min(number, most)
    if number < len(values):
        values = values[np.random.default_rng(0).choice(len(values), number, replace=False)]
    return ascent.distinct_lines(values)


def _side_by_side(f, each, *common) -> Callable[..., ascent.Member]:
    """Compile ``f(one, *common)`` for chains that run side by side: on a CPU on all its cores.

    Returns a function of arguments like these; the leaves of `each` have a leading axis of chains.
    """
    if jax.default_backend() != "cpu":
        return _in_one_program(f)
    # Compiled before there are threads: those know nothing of the settings of this one.
    given = _of_chain(each, 0), *common
    jitted = jit_equal(f, compiler_options=chain_options())
    key = "side by side", value_of(f), form_of(given)
    compiled = made_once(key, lambda: jitted.lower(*given).compile())

    def call(each, *common):
        number = len(jax.tree.leaves(each)[0])
        with ThreadPoolExecutor(min(number, os.cpu_count() or 1)) as threads:
            found = list(
                threads.map(
                    lambda n: jax.block_until_ready(compiled(_of_chain(each, n), *common)),
                    range(number),
                )
            )
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)

    return call


def _in_one_program(f) -> Callable[..., ascent.Member]:
    """Compile ``f(one, *common)`` for chains that an accelerator runs together."""

    def call(each, *common):
        common = divided(common, len(jax.tree.leaves(each)[0]))
        return jax.vmap(lambda one: f(one, *common))(each)

    return jit_equal(call)


def _of_chain(each, number):
    return jax.tree.map(lambda leaf: leaf[number], each)


def _highest_member(key, few, more, rank, num_rates, effort) -> ascent.Member:
    """Return the highest member of a chain's population."""
    keys = random.split(key, 3)
    members = lax.map(
        lambda k: ascent.first_member(k, few, rank, num_rates),
        random.split(keys[0], effort.members),
        batch_size=few.members_at_once(effort.members, rank),
    )
    members = ascent.evolve(keys[1], few, members, effort.jumps, STEPS, num_rates)
    _, best = lax.top_k(members.value, effort.best)
    members = jax.tree.map(lambda a: a[best], members)
    if more is not None:
        members = _evolved(keys[2], members, more, num_rates, effort.last_jumps)
    return jax.tree.map(lambda a: a[jnp.argmax(members.value)], members)


def _together(key, members, lines, num_rates, effort: Effort = FULL) -> ascent.Member:
    """Let the highest members of all chains go on together, at most until half the time is over."""
    # On lines that are new to them.
    climb = jit_equal(_climbed, static_argnums=2, compiler_options=chain_options())
    members = climb(members, lines, num_rates)
    keys = random.split(key, (ROUNDS, len(members.value)))
    jump = functools.partial(_jumped, num_rates=num_rates, jumps=effort.last_jumps)
    jump = _side_by_side(jump, (keys[0], members), _vectors(members), lines)
    heights, clock = [float(jnp.max(members.value))], running_clock()
    for number, round_keys in enumerate(keys, 1):
        say("searching starts", f"chains go on together, round {number} of at most {ROUNDS}")
        members = _without_low(jump((round_keys, members), _vectors(members), lines))
        heights.append(float(jnp.max(members.value)))
        waited = len(heights) > effort.patience
        if waited and heights[-1] - heights[-1 - effort.patience] < GAIN:
            break
        if clock.limit is not None and clock.spent > clock.limit / 2:
            break
    return members


def _without_low(members) -> ascent.Member:
    """Put the highest member where others are far below it."""
    low = members.value < jnp.max(members.value) - MOST_BELOW
    chosen = jnp.where(low, jnp.argmax(members.value), jnp.arange(len(low)))
    return jax.tree.map(lambda leaf: leaf[chosen], members)


def _vectors(members):
    """Return the vectors of all members: (members x rank, kept)."""
    return jnp.swapaxes(members.vectors, 1, 2).reshape(-1, members.vectors.shape[1])


def _jumped(one, pool, lines, num_rates, jumps) -> ascent.Member:
    """Let a member jump, with the vectors of all at hand."""
    key, member = one
    steps = jnp.ones(STEPS, lines.ones.dtype)

    def body(member, key):
        return ascent.jump(key, lines, member, pool, steps, num_rates), None

    return lax.scan(body, member, random.split(key, jumps))[0]


def _evolved(key, members, lines, num_rates, jumps) -> ascent.Member:
    """Let members climb and evolve on lines that may be new to them."""
    members = _climbed(members, lines, num_rates)
    return ascent.evolve(key, lines, members, jumps, STEPS, num_rates)


def _climbed(members, lines, num_rates) -> ascent.Member:
    """Let members climb on lines that may be new to them."""
    steps = jnp.ones(2 * STEPS, lines.ones.dtype)
    number, _, rank = members.vectors.shape
    return lax.map(
        lambda m: ascent.climb(lines, m, steps, num_rates),
        members,
        batch_size=lines.members_at_once(number, rank),
    )


def _bits(keys, ones, zeros, members, block):
    """Draw the bits of all lines, `block` at once, for every chain: (chain, lines, rank) bool."""

    def one(a):
        key, member = a
        every = random.split(key, len(ones)), ones, zeros
        return lax.map(lambda line: ascent.draw_bits(*line, member), every, batch_size=block)

    return lax.map(one, (keys, members))


def _seen(values):
    """Return the ones and the zeros that are seen, as numbers."""
    return jax.device_put([(values == seen).astype(np.float32) for seen in (1, 0)])

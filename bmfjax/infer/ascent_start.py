r"""Starts of Boolean chains with few factors: a population that climbs to modes.

With few factors one factor matrix can be summed out, and the posterior of the other climbed
(:mod:`bmfjax.kernels.boolean.ascent`). Every chain has a population of its own:

1. it starts from lines of the data, cools, and evolves on some of the lines;
2. its best members evolve on more of them, and the highest one is the start of the chain;
3. if asked for, the highest members of all chains evolve as one population: a chain may take over
   vectors of others where that brings it higher.

Up to step 2 chains are independent of each other. Step 3 is the exchange of
:mod:`bmfjax.infer.boolean_start`, and what is said there of chains that agree holds here.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data import BinaryMatrix
from bmfjax.infer.boolean_start import part_of, representatives
from bmfjax.kernels.boolean import ascent
from bmfjax.kernels.boolean.line_states import sides_of
from bmfjax.kernels.numerics.compiling import chain_options, jit_once

#: Most factors; and lines of the first step.
MAX_RANK, LINES = 10, (500, 2000)
#: Lines times states times entries of a line in a step, at first and then.
WORK, MORE_WORK = 2**27, 2**29
#: Members, jumps of each, and steps of a climb; and in the second and third step.
MEMBERS, JUMPS, STEPS = 12, 50, 5
BEST, LAST_JUMPS = 4, 20
#: Lines of which bits are drawn side by side.
BLOCK = 256


def can_climb(shape: tuple[int, int], rank: int) -> bool:
    """Tell whether `ascent_starts` can afford a matrix of this shape and rank.

    Examples
    --------
    >>> can_climb((8124, 117), 10), can_climb((512, 512), 10), can_climb((10**6, 1000), 5)
    (True, False, True)
    """
    lines = min(max(shape), LINES[0])
    return rank <= MAX_RANK and lines * min(shape) * 2**rank <= WORK


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
        Of a shape and rank that `can_climb` allows. A matrix with more than a few million entries
        is represented by rows and columns drawn at random; bits of the others are zero.
    rank : int
    num_chains : int
    num_rates : int
        1 for a single flip rate, 2 for one each of zeros and ones.
    exchange : bool
        Whether a chain may take over vectors of others; by default starts are independent.

    Returns
    -------
    list of dict
        `usage` (rows, rank) and `basis` (columns, rank) bool, one a chain.

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
    highest = _side_by_side(_highest_member, keys, few, left, rank, num_rates)
    if exchange and num_chains > 1:
        evolve = jax.jit(_evolved, static_argnums=3, compiler_options=chain_options())
        highest = evolve(key_exchange, highest, more, num_rates)
    drawn = jit_once(_bits)(random.split(key_bits, num_chains), *_seen(values), highest)
    starts = []
    for bits, vectors in zip(np.asarray(drawn), np.asarray(highest.vectors) > 0.5, strict=True):
        start = {
            site: np.zeros((size, rank), bool) for site, size in zip(part, data.shape, strict=True)
        }
        start[sides.summed][part[sides.summed]], start[sides.kept][part[sides.kept]] = bits, vectors
        starts.append(start)
    return starts


def _lines_of(values, rank: int, work: int, most: int | None = None) -> ascent.Lines:
    """Merge as many lines as a step of this much work can take, at most `most`."""
    number = max(LINES[0], work // (values.shape[1] * 2**rank))
    number = number if most is None else min(number, most)
    if number < len(values):
        values = values[np.random.default_rng(0).choice(len(values), number, replace=False)]
    return ascent.distinct_lines(values)


def _side_by_side(f, keys, few, more, *static) -> ascent.Member:
    """Call ``f(key, few, more, *static)`` for every key, on all cores; join the results."""
    # Compiled before there are threads: those know nothing of the settings of this one.
    jitted = jax.jit(f, static_argnums=(3, 4), compiler_options=chain_options())
    call = jitted.lower(keys[0], few, more, *static).compile()
    with ThreadPoolExecutor(min(len(keys), os.cpu_count() or 1)) as threads:
        found = list(threads.map(lambda k: jax.block_until_ready(call(k, few, more)), keys))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)


def _highest_member(key, few, more, rank, num_rates) -> ascent.Member:
    """Return the highest member of a chain's population."""
    keys = random.split(key, 3)
    members = lax.map(
        lambda k: ascent.first_member(k, few, rank, num_rates),
        random.split(keys[0], MEMBERS),
        batch_size=ascent.BLOCK,
    )
    members = ascent.evolve(keys[1], few, members, JUMPS, STEPS, num_rates)
    _, best = lax.top_k(members.value, BEST)
    members = jax.tree.map(lambda a: a[best], members)
    if more is not None:
        members = _evolved(keys[2], members, more, num_rates)
    return jax.tree.map(lambda a: a[jnp.argmax(members.value)], members)


def _evolved(key, members, lines, num_rates) -> ascent.Member:
    """Let members climb and evolve on lines that may be new to them."""
    steps = jnp.ones(2 * STEPS, lines.ones.dtype)
    members = lax.map(
        lambda m: ascent.climb(lines, m, steps, num_rates), members, batch_size=ascent.BLOCK
    )
    return ascent.evolve(key, lines, members, LAST_JUMPS, STEPS, num_rates)


def _bits(keys, ones, zeros, members):
    """Draw the bits of all lines, for every chain: (chain, lines, rank) bool."""

    def one(a):
        key, member = a
        every = random.split(key, len(ones)), ones, zeros
        return lax.map(lambda line: ascent.draw_bits(*line, member), every, batch_size=BLOCK)

    return lax.map(one, (keys, members))


def _seen(values):
    """Return the ones and the zeros that are seen, as numbers."""
    return jnp.asarray(values == 1, jnp.float32), jnp.asarray(values == 0, jnp.float32)

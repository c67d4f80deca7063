r"""Draw the bits of many lines in one kernel of a GPU: what `bits.metropolis` and `bits.gibbs` do.

As array code a sweep writes what the factors cover so far, and reads it again, for every factor:
it is as fast as memory is. Here a program of the kernel takes a few lines and goes through the
factors by itself. For every factor it reads the words of its lines and of the partner, joins what
the other factors cover,

.. math::

   F_{ik} = u_k \wedge \neg \bigvee_{l \ne k} (z_{il} \wedge u_l),

counts its ones and zeros, and draws. Nothing but the bits is written. That takes rank operations on
words where two would do, but these are cheap: the population counts take as long. The random
numbers and the arithmetic of the draws are those of the array code, and so are the draws, but for
what a fused multiplication and addition rounds otherwise.

What it leaves invariant
    What the updates of `bmfjax.kernels.boolean.bits` do.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

#: Factors that a kernel knows; bits of a line in a word.
MOST_FACTORS, FACTORS_OF_WORD = 64, 32
#: Lines and warps of a program at most, and masks of its lines in registers.
MOST_LINES, MOST_WARPS, MOST_MASKS = 8, 8, 160
#: Programs, and warps of all, that keep a GPU busy.
PROGRAMS, WARPS = 200, 1000
#: Words of all lines of a program that a thread reads before it counts on, and how often it joins
#: factors then.
UNROLLED, JOINED = 16, 40
#: Words of the partner that stay near a multiprocessor; of more, more lines share what is read.
NEAR = 2**14
#: Counts of ones and of all bits share a word, 16 bits each: of so many words at most, those of one
#: thread or all of a line.
MOST_CHUNKS = 2**16 // 32 - 1


class Tiles(NamedTuple):
    """How lines are given to programs."""

    lines: int  # of a program
    warps: int  # of 32 threads, side by side along the words of a line
    unrolled: int  # words of a line and thread in one round


def knows(rank: int, words: int) -> bool:
    """Tell whether the kernel takes so many factors, and lines of so many words."""
    return 0 < rank <= MOST_FACTORS and words <= 32 * MOST_WARPS * MOST_CHUNKS


def tiles_for(rank: int, lines: int, words: int) -> Tiles:
    """Choose the tiles: programs enough for a GPU, and as many lines in each as registers hold.

    Examples
    --------
    >>> tiles_for(10, 1_300_000, 625)
    Tiles(lines=4, warps=1, unrolled=4)
    >>> tiles_for(10, 20_000, 40_625)
    Tiles(lines=8, warps=4, unrolled=2)
    >>> tiles_for(20, 1_000, 3_125), tiles_for(27, 1_448, 46)
    (Tiles(lines=4, warps=8, unrolled=2), Tiles(lines=1, warps=1, unrolled=1))
    """
    warps = 1 if words <= 2**10 else 4
    while warps < MOST_WARPS and warps * lines < MOST_LINES * WARPS and words > 2**10:
        warps *= 2
    while words > 32 * warps * MOST_CHUNKS:
        warps *= 2
    most = 2 if rank * words > NEAR else 4
    unrolled = max(1, min(most, JOINED // rank, -(-words // (32 * warps))))
    each = MOST_LINES
    while each > 1 and (
        each * unrolled > UNROLLED
        or each * rank > MOST_MASKS
        or lines < each * PROGRAMS
        or lines * warps < each * WARPS
    ):
        each //= 2
    return Tiles(each, warps, unrolled)


def draw(kind: str, ones, observed, partner, bits, log_odds, thresholds, weights, tiles=None):
    """Draw the bits of lines, factor after factor.

    Parameters
    ----------
    kind : {"metropolis", "gibbs"}
    ones, observed : (lines, words) uint32
        `observed` is None where nothing is missing.
    partner : (rank, words) uint32
    bits : (rank, lines) bool
    log_odds, thresholds : (rank, lines) float
    weights : two () floats
    tiles : Tiles, optional

    Returns
    -------
    bits : (rank, lines) bool
    counts : (3, lines) int32
        Covered ones, covered zeros and uncovered ones of every line.
    """
    pallas = loaded("jax.experimental.pallas")
    rank, (lines, words) = len(partner), ones.shape
    tiles = tiles or tiles_for(rank, lines, words)
    programs = -(-lines // tiles.lines)
    filled, width = programs * tiles.lines, 32 * tiles.warps
    chunks = -(-words // width)

    def to(array, axis, size):
        padding = [(0, 0)] * array.ndim
        padding[axis] = (0, size - array.shape[axis])
        return jnp.pad(array, padding)

    integers = lambda a: lax.bitcast_convert_type(a, jnp.int32)  # noqa: E731
    data = [integers(ones)] + ([] if observed is None else [integers(observed)])
    states = -(-rank // FACTORS_OF_WORD)
    state = _states(bits, states)
    kernel = functools.partial(
        _kernel, pallas, rank=rank, words=words, lines=lines, chunks=chunks, tiles=tiles,
        has_missing=observed is not None, kind=kind,
    )  # fmt: skip
    out = [
        jax.ShapeDtypeStruct((states, filled), jnp.int32),
        jax.ShapeDtypeStruct((3, filled), jnp.int32),
    ]
    call = pallas.pallas_call(
        kernel, out_shape=out, grid=(programs,), name=f"boolean_{kind}", **backend(tiles.warps)
    )
    with warnings.catch_warnings():
        # JAX means to give this compiler up; where it is gone, the array code draws
        # (`bmfjax.kernels.numerics.budget.runs_kernels`).
        warnings.filterwarnings("ignore", message="The Pallas Triton backend is deprecated")
        state, counts = call(
            *data,
            integers(to(partner, 1, chunks * width)),
            to(state, 1, filled),
            to(log_odds, 1, filled),
            to(thresholds, 1, filled),
            jnp.stack(list(weights)),
        )
    factor = np.arange(rank)
    drawn = (state[factor // FACTORS_OF_WORD] >> (factor % FACTORS_OF_WORD)[:, None]) & 1 == 1
    return drawn[:, :lines], counts[:, :lines]


def backend(warps: int) -> dict:
    """Return how the kernel is compiled; on a CPU, for tests, it is interpreted."""
    if jax.default_backend() == "cpu":
        return {"interpret": True}
    triton = loaded("jax.experimental.pallas.triton")
    return {"compiler_params": triton.CompilerParams(num_warps=warps, num_stages=1)}


def loaded(name: str):
    """Load a module of Pallas, which takes a tenth of a second and which no CPU needs."""
    return importlib.import_module(name)


def _states(bits, states: int):
    """Pack the bits of every line along the factors: (rank, lines) to (states, lines) int32."""
    rank = len(bits)
    each = [
        jnp.sum(
            bits[first : first + FACTORS_OF_WORD].astype(jnp.uint32)
            << np.arange(min(FACTORS_OF_WORD, rank - first), dtype=np.uint32)[:, None],
            axis=0,
            dtype=jnp.uint32,
        )
        for first in range(0, rank, FACTORS_OF_WORD)
    ]
    return lax.bitcast_convert_type(jnp.stack(each), jnp.int32)


def _kernel(pallas, *refs, rank, words, lines, chunks, tiles, has_missing, kind):
    """Draw the bits of a tile of lines; the number of the program says which."""
    ones_ref, *refs = refs
    observed_ref = refs.pop(0) if has_missing else None
    partner_ref, state_ref, odds_ref, threshold_ref, weights_ref, out_ref, counts_ref = refs
    size, width = tiles.lines, 32 * tiles.warps
    first = pallas.program_id(0) * size
    own = pallas.ds(first, size)
    # What lies beyond the last line or word is read from the last; the partner is zero there.
    rows = jnp.minimum(first + lax.broadcasted_iota(jnp.int32, (size, 1), 0), lines - 1)
    place = lax.broadcasted_iota(jnp.int32, (1, width), 1)
    states = range(-(-rank // FACTORS_OF_WORD))
    is_short = chunks * width <= MOST_CHUNKS
    popcount = lax.population_count

    def masks_of(state):
        """Return for every factor a word of ones where a line uses it: (lines, 1) int32."""
        bit = lambda j: (state[j // FACTORS_OF_WORD] >> (j % FACTORS_OF_WORD)) & 1  # noqa: E731
        return [-bit(j).reshape(size, 1) for j in range(rank)]

    def over_chunks(add, start, unrolled):
        """Add up what is found in all chunks of the lines, some of them in one round."""

        def chunk(c, total):
            column = c * width + place
            at = jnp.minimum(column, words - 1)
            here = ones_ref[rows, at]
            seen = None if observed_ref is None else observed_ref[rows, at]
            return add(total, column, here, seen)

        def several(r, total):
            for u in range(unrolled):
                total = chunk(r * unrolled + u, total)
            return total

        rounds = chunks // unrolled
        total = several(0, start) if rounds == 1 else lax.fori_loop(0, rounds, several, start)
        for c in range(rounds * unrolled, chunks):
            total = chunk(c, total)
        return total

    def covered(masks, column):
        found = jnp.zeros((size, width), jnp.int32)
        for j, mask in enumerate(masks):
            found = found | (mask & partner_ref[j, column])
        return found

    nothing = jnp.zeros((size, width), jnp.int32)
    weight = [weights_ref[0], weights_ref[1]]

    def halves(total):
        """Sum along the words what two halves of a word count."""
        if is_short:
            total = jnp.sum(total, axis=1, dtype=jnp.int32)
            return total & 0xFFFF, (total >> 16) & 0xFFFF
        return [jnp.sum(t & 0xFFFF, axis=1, dtype=jnp.int32) for t in (total, total >> 16)]

    def drawn(k, state, every, of_ones):
        """Draw factor k, which would cover so many entries, and ones of these."""
        bit = jnp.int32(1) << (k % FACTORS_OF_WORD)
        own_bit = [jnp.where(k // FACTORS_OF_WORD == w, bit, 0) for w in states]
        odds = odds_ref[k, own]
        odd, even = 0.5 * (weight[0] - weight[1]), 0.5 * (weight[0] + weight[1])
        gain = odd * (2 * of_ones - every).astype(odds.dtype) + even * every.astype(odds.dtype)
        odds, threshold = gain + odds, threshold_ref[k, own]
        if kind == "metropolis":
            was = jnp.zeros((size,), jnp.int32)
            for s, b in zip(state, own_bit, strict=True):
                was = was | (s & b)
            flips = threshold < jnp.where(was != 0, -odds, odds)
            return [s ^ jnp.where(flips, b, 0) for s, b in zip(state, own_bit, strict=True)]
        is_one = threshold < odds
        return [(s & ~b) | jnp.where(is_one, b, 0) for s, b in zip(state, own_bit, strict=True)]

    def rest_of(k, state):
        """Return the masks of all factors but k."""
        bit = jnp.int32(1) << (k % FACTORS_OF_WORD)
        own_bit = [jnp.where(k // FACTORS_OF_WORD == w, bit, 0) for w in states]
        return masks_of([s & ~b for s, b in zip(state, own_bit, strict=True)])

    def both(words, here):
        """Count the bits, and in the upper half those that are ones."""
        return popcount(words) + (popcount(words & here) << 16)

    def one_factor(k, state):
        k = k.astype(jnp.int32)
        rest = rest_of(k, state)

        def add(total, column, here, seen):
            free = partner_ref[k, column] & ~covered(rest, column)
            return total + both(free if seen is None else free & seen, here)

        total = over_chunks(add, nothing, tiles.unrolled)
        return drawn(k, state, *halves(total))

    state = [state_ref[w, own] for w in states]
    state = lax.fori_loop(0, rank - 1, one_factor, state)
    # The last factor, and what all others cover.
    last = jnp.int32(rank - 1)
    rest = rest_of(last, state)

    def add(totals, column, here, seen):
        found = covered(rest, column)
        free = partner_ref[last, column] & ~found
        if seen is not None:
            free, found = free & seen, found & seen
        valid = here & jnp.where(column < words, -1, 0)  # words beyond the last are the last again
        one, two, three = totals
        return one + both(free, here), two + both(found, here), three + popcount(valid)

    one, two, three = over_chunks(add, (nothing,) * 3, tiles.unrolled)
    every, of_ones = halves(one)
    state = drawn(last, state, every, of_ones)
    is_used = (state[-1] >> ((rank - 1) % FACTORS_OF_WORD)) & 1
    every, of_ones = (a + is_used * b for a, b in zip(halves(two), (every, of_ones), strict=True))
    number = jnp.sum(three, axis=1, dtype=jnp.int32)
    for n, count in enumerate((of_ones, every - of_ones, number - of_ones)):
        counts_ref[n, own] = count
    for w in states:
        out_ref[w, own] = state[w]

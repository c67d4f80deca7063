r"""Draw the bits of few long lines from counts of entries by code, on a GPU.

Entry i of a line has a *code*, the set :math:`c_i` of the factors that use it: one of
:math:`2^\text{rank}`, and the same in all lines. What the draws of a line need of its data are the
numbers of its ones and of its zeros by code. Let v be the bits of a line. Factor k would newly
cover

.. math::

   \#\{i \in F_k: x_i = 1\} = \sum_{c:\, k \in c,\; c \wedge v \subseteq \{k\}} n_1(c), \qquad
   n_1(c) = \#\{i: c_i = c,\ x_i = 1\},

and zeros likewise. The counts take one pass over the data, where the kernel of
`bmfjax.kernels.boolean.fused` takes one for every factor and joins all others on the way. Entries
of one code are lines of the *other* orientation of the data: these are sorted by code, and runs of
one code are cut into pieces. A program of the kernel goes through the words of a piece and counts
the ones of every column. Counts stand in parts of words: of 4 bits for 15 lines, of 8 bits for 255,
and then in words of their own. The draws are array code on the counts of the pieces.

The counts are whole numbers, and the random numbers and the arithmetic of the draws are those of
the array code of `bmfjax.kernels.boolean.bits`, and so are the draws.

What it leaves invariant
    What the updates of `bmfjax.kernels.boolean.bits` do.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from bmfjax.kernels.boolean import fused
from bmfjax.kernels.boolean.words import PackedLines, own_bits
from bmfjax.kernels.numerics.mesh import WHOLE

#: Lines that 4 bits count, and rounds of these that 8 bits count.
ROUND, ROUNDS = 15, 17
#: Warps of a program, side by side along the words.
WARPS = 4
#: Numbers of factors for which to count pays, and entries of a line that there must be for a code.
FACTORS, ENTRIES = range(8, 13), 128
#: Pieces that keep a GPU busy, where codes are few.
PIECES = 2**10
#: Words of all lines, times the square of the rank, from which on sorting pays.
LEAST_WORK = 2**32


def pays(rank: int, lines: int, across: PackedLines, budget_bytes: int) -> bool:
    """Tell whether so many lines, of which `across` has the other orientation, are drawn here."""
    entries = across.ones.shape[0] * across.ones.shape[1]
    if rank not in FACTORS or entries < ENTRIES * 2**rank:
        return False
    kinds = 1 if across.observed is None else 2
    # XLA turns the counts round: they are there twice.
    needed = 2 * 4 * kinds * num_pieces(rank, entries)[0] * lines
    return lines * entries * rank**2 >= 32 * LEAST_WORK and needed <= budget_bytes


def num_pieces(rank: int, entries: int) -> tuple[int, int]:
    """Return the number of pieces that suffices, and the entries of one at most."""
    full = ROUND * ROUNDS
    most = full * -(-entries // (full * max(2**rank, PIECES)))
    return entries // most + 2**rank, most


class Pieces(NamedTuple):
    """The entries in the order of their codes, in pieces of one code; the last may be empty."""

    order: jax.Array  # (entries,) int32
    begin: jax.Array  # (pieces,) int32, in that order
    end: jax.Array
    code: jax.Array


def pieces_of(code, rank: int) -> Pieces:
    """Sort the entries by code (entries,) int32, and cut them into pieces."""
    entries, codes = len(code), 2**rank
    number, most = num_pieces(rank, entries)
    place = jnp.arange(entries, dtype=jnp.int32)
    code, order = lax.sort((code, place), num_keys=1, is_stable=False)
    search = functools.partial(jnp.searchsorted, method="scan_unrolled")
    start = search(code, jnp.arange(codes + 1, dtype=jnp.int32)).astype(jnp.int32)
    needed = -(-jnp.diff(start) // most)
    after = jnp.cumsum(needed, dtype=jnp.int32)
    piece = jnp.arange(number, dtype=jnp.int32)
    # Pieces that are not needed lie behind the last code, and end where they begin.
    own = jnp.minimum(search(after, piece, side="right").astype(jnp.int32), codes - 1)
    begin = start[own] + (piece - (after - needed)[own]) * most
    end = jnp.maximum(begin, jnp.minimum(begin + most, start[own + 1]))
    return Pieces(order, begin, end, own)


def draw(across: PackedLines, partner, bits, log_odds, thresholds, decide: Callable):
    """Draw the bits of lines, factor after factor.

    Parameters
    ----------
    across : PackedLines
        The data in the other orientation: its lines are the entries of those that are drawn.
    partner : (rank, words) uint32
    bits : (rank, lines) bool
    log_odds, thresholds : (rank, lines) float
    decide : callable
        ``decide(bit, ones, zeros, log_odds, threshold)`` draws the bits of one factor, which would
        newly cover so many ones and zeros.

    Returns
    -------
    bits : (rank, lines) bool
    counts : (3, lines) int32
        Covered ones, covered zeros and uncovered ones of every line.
    """
    rank, size = bits.shape
    flat = lambda a: a.reshape(-1, a.shape[-1])  # noqa: E731
    data = flat(across.ones)
    factors = jnp.arange(rank, dtype=jnp.int32)[:, None]
    code = own_bits(partner, WHOLE, len(data)).astype(jnp.int32) << factors
    pieces = pieces_of(jnp.sum(code, axis=0, dtype=jnp.int32), rank)
    ones = count(data, pieces)
    if across.observed is None:
        every = (pieces.end - pieces.begin)[:, None, None]
    else:
        every = count(flat(across.observed), pieces)
    words = ones.shape[-1]

    def turned(array):
        """Order lines as the counts do: (rank, lines) to (rank, 32, words)."""
        filled = jnp.pad(array, ((0, 0), (0, 32 * words - size)))
        return filled.reshape(rank, words, 32).swapaxes(1, 2)

    own = pieces.code[:, None, None]

    def counted(among):
        """Count the entries that are observed in these pieces, and the ones: (32, words) each."""
        return (jnp.sum(jnp.where(among, n, 0), axis=0, dtype=jnp.int32) for n in (every, ones))

    def one_factor(state, factor):
        k, bit, odds, threshold = factor
        rest = state & ~(1 << k)
        newly, of_ones = counted(((own >> k) & 1 == 1) & (own & rest == 0))
        bit = decide(bit, of_ones, newly - of_ones, odds, threshold)
        return rest | (bit.astype(jnp.int32) << k), bit

    given = turned(bits)
    state = jnp.sum(given.astype(jnp.int32) << factors[..., None], axis=0, dtype=jnp.int32)
    steps = factors[:, 0], given, turned(log_odds), turned(thresholds)
    state, drawn = lax.scan(one_factor, state, steps)
    covered, of_ones = counted(own & state != 0)
    uncovered = jnp.sum(ones, axis=0, dtype=jnp.int32) - of_ones
    counts = jnp.stack([of_ones, covered - of_ones, uncovered])
    lines = lambda a: a.swapaxes(1, 2).reshape(len(a), -1)[:, :size]  # noqa: E731
    return lines(drawn), lines(counts)


def count(data, pieces: Pieces, warps: int = WARPS):
    """Count the ones of every column in the lines of a piece.

    `data` is (lines, words) uint32; returned is (pieces, 32, words) int32, where bit b of word w is
    column 32 w + b. The words are filled up to those of whole programs, with any counts.
    """
    pallas = fused.loaded("jax.experimental.pallas")
    words, width = data.shape[1], 32 * warps
    blocks, number = -(-words // width), len(pieces.code)
    kernel = functools.partial(_kernel, pallas, words=words, width=width)
    call = pallas.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((number, 32, blocks * width), jnp.int32),
        grid=(number, blocks),
        name="boolean_counts",
        **fused.backend(warps),
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The Pallas Triton backend is deprecated")
        integers = lax.bitcast_convert_type(data, jnp.int32)
        return call(integers, pieces.order, pieces.begin, pieces.end)


def _kernel(pallas, data_ref, order_ref, begin_ref, end_ref, out_ref, *, words, width):
    """Count the ones of a piece in some words; the numbers of the program say which."""
    piece, block = pallas.program_id(0), pallas.program_id(1)
    begin, end = begin_ref[piece], end_ref[piece]
    rounds = (end - begin + (ROUND - 1)) // ROUND
    # Words beyond the last are the last again: nobody reads their counts.
    at = jnp.minimum(block * width + lax.broadcasted_iota(jnp.int32, (width,), 0), words - 1)
    nothing = jnp.zeros((width,), jnp.int32)

    def one_round(r, octets):
        """Count some lines in 4 bits, and add them to what 8 bits have counted."""
        parts = [nothing] * 4
        for line in range(ROUND):
            place = begin + r * ROUND + line
            row = order_ref[jnp.minimum(place, end - 1)]
            here = data_ref[row, at] & ((place - end) >> 31)  # none beyond the end
            parts = [n + ((here >> s) & 0x11111111) for s, n in enumerate(parts)]
        halves = [(n >> (4 * h)) & 0x0F0F0F0F for h in range(2) for n in parts]
        return tuple(a + b for a, b in zip(octets, halves, strict=True))

    def several(g, totals):
        """Count as many rounds as 8 bits can, and add them to the totals of all 32 bits."""
        last = jnp.minimum((g + 1) * ROUNDS, rounds)
        octets = lax.fori_loop(g * ROUNDS, last, one_round, (nothing,) * 8)
        found = [(octets[b % 8] >> (8 * (b // 8))) & 0xFF for b in range(32)]
        return tuple(a + b for a, b in zip(totals, found, strict=True))

    groups = (rounds + (ROUNDS - 1)) // ROUNDS
    totals = lax.fori_loop(0, groups, several, (nothing,) * 32)
    for bit, total in enumerate(totals):
        out_ref[piece, bit, pallas.ds(block * width, width)] = total

r"""A binary matrix as the Boolean samplers hold it: packed words, both ways round, in blocks.

The usage is updated row by row and the basis column by column, and either update reads whole
lines. Both orientations are therefore kept, a line being ``ceil(entries / 32)`` words, and the
lines are cut into blocks whose intermediate results stay in the cache, so that the cost of a
sweep is linear in rows x columns x rank / 32.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bmfjax.data.matrix import BinaryMatrix
from bmfjax.data.packed import WORD, PackedMatrix

#: Words of a block: with one intermediate result a factor it fills about a second-level cache.
BLOCK_WORDS, MAX_LINES = 4096, 512


class PackedLines(NamedTuple):
    """One orientation of a matrix, in blocks of lines; the last block is filled up with zeros.

    Attributes
    ----------
    ones : (blocks, lines, words) uint32
    observed : (blocks, lines, words) uint32, or None
        None if nothing is missing. What it says beyond the last entry of a line, or the last line,
        is never looked at.
    """

    ones: jax.Array
    observed: jax.Array | None


class PackedData(NamedTuple):
    """Both orientations of a matrix, and what is known of each bit of the factors beforehand.

    Attributes
    ----------
    by_row, by_column : PackedLines
        A line of `by_row` is a row and holds columns.
    num_ones, num_zeros : () float
        Observed.
    usage_log_odds : (rank, rows) float, or None
        Prior log odds of every bit, where they are given one by one; infinite where it is fixed.
    basis_log_odds : (rank, columns) float, or None
    """

    by_row: PackedLines
    by_column: PackedLines
    num_ones: jax.Array
    num_zeros: jax.Array
    usage_log_odds: jax.Array | None = None
    basis_log_odds: jax.Array | None = None


def packed_data(matrix: BinaryMatrix, usage_log_odds=None, basis_log_odds=None) -> PackedData:
    """The data of a Boolean sampler.

    Parameters
    ----------
    matrix : BinaryMatrix
    usage_log_odds : (rows, rank) float array, optional
        Prior log odds of single bits; minus infinity and infinity fix a bit at 0 and at 1.
    basis_log_odds : (columns, rank) float array, optional

    Returns
    -------
    PackedData

    Examples
    --------
    >>> data = packed_data(BinaryMatrix([[1, 0, 1], [0, 1, None]]))
    >>> data.by_row.ones.shape, data.by_column.ones[0, :3].ravel().tolist()
    ((1, 2, 1), [1, 2, 1])
    """
    by_row, by_column = (_lines_of_matrix(matrix, o) for o in ("rows", "columns"))
    log_odds = (
        None if a is None else jnp.asarray(np.asarray(a).T, jnp.result_type(float))
        for a in (usage_log_odds, basis_log_odds)
    )
    counts = (jnp.asarray(n, jnp.result_type(float)) for n in (matrix.num_ones, matrix.num_zeros))
    return PackedData(by_row, by_column, *counts, *log_odds)


def _lines_of_matrix(matrix, orientation) -> PackedLines:
    """One orientation, packed where the device keeps it, so that the words are there once."""
    made = []

    def room(lines, entries):
        words = -(-entries // WORD)
        blocks, size = block_shape(lines, words)
        made.append(_aligned_zeros(blocks, size, words))
        return made[-1].reshape(-1, words)[:lines]

    matrix.fill_words(orientation, room)
    ones, *observed = map(jax.device_put, made)
    return PackedLines(ones, *(observed or [None]))


def _aligned_zeros(*shape) -> np.ndarray:
    """Words that a CPU device takes over without a copy: it asks for multiples of 64 bytes."""
    size = 4 * math.prod(shape)
    octets = np.zeros(size + 64, np.uint8)
    start = -octets.ctypes.data % 64
    return octets[start : start + size].view(np.uint32).reshape(shape)


def blocks_of_lines(packed: PackedMatrix) -> PackedLines:
    """Cut one orientation into blocks.

    Parameters
    ----------
    packed : PackedMatrix
        Words of shape (lines, words).

    Returns
    -------
    PackedLines

    Examples
    --------
    >>> lines = np.zeros((1000, 40), np.uint32)
    >>> blocks_of_lines(PackedMatrix(lines, None)).ones.shape
    (10, 100, 40)
    """
    lines, words = packed.ones.shape
    blocks, size = block_shape(lines, words)

    def cut(array):
        if array is None:
            return None
        # On the host where the words are there: the device never holds them twice.
        filled = (jnp if isinstance(array, jax.Array) else np).pad(
            array, ((0, blocks * size - lines), (0, 0))
        )
        return jnp.asarray(filled.reshape(blocks, size, words))

    return PackedLines(cut(packed.ones), cut(packed.observed))


def block_shape(lines: int, words: int) -> tuple[int, int]:
    """Number of blocks, and lines of each, that so many lines of so many words are cut into.

    Examples
    --------
    >>> block_shape(1000, 40)
    (10, 100)
    """
    most = max(1, min(MAX_LINES, BLOCK_WORDS // max(words, 1)))
    blocks = -(-lines // most)
    return blocks, -(-lines // blocks)


def pack_last_axis(bits) -> jax.Array:
    """Words of bool bits along the last axis: (..., n) to (..., ceil(n / 32)) uint32.

    Examples
    --------
    >>> pack_last_axis(jnp.array([[True, False, True]])).tolist()
    [[5]]
    """
    size = bits.shape[-1]
    words = -(-size // WORD)
    padded = jnp.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, words * WORD - size)])
    parts = padded.reshape(*bits.shape[:-1], words, WORD).astype(jnp.uint32)
    return jnp.sum(parts << jnp.arange(WORD, dtype=jnp.uint32), axis=-1, dtype=jnp.uint32)


def unpack_last_axis(words, size: int) -> jax.Array:
    """The first `size` bits of the last axis: the inverse of `pack_last_axis`.

    Examples
    --------
    >>> unpack_last_axis(jnp.array([[5]], jnp.uint32), 3).tolist()
    [[True, False, True]]
    """
    bits = (words[..., None] >> jnp.arange(WORD, dtype=jnp.uint32)) & 1
    return bits.reshape(*words.shape[:-1], -1)[..., :size].astype(bool)


def count_bits(words, axis=-1) -> jax.Array:
    """Ones along an axis of words: int32.

    Examples
    --------
    >>> count_bits(jnp.array([[5, 1]], jnp.uint32)).tolist()
    [3]
    """
    return jnp.sum(jax.lax.population_count(words), axis=axis, dtype=jnp.int32)


def count_split(words, ones) -> tuple[jax.Array, jax.Array]:
    """Bits of `words` that are set in `ones`, and that are not, along the last axis: int32.

    One pass for both: with a reduction for each, the counts of every word go through memory twice.

    Examples
    --------
    >>> [n.tolist() for n in count_split(jnp.array([[7, 1]], jnp.uint32), jnp.uint32(5))]
    [[3], [1]]
    """
    counts = [jax.lax.population_count(w).astype(jnp.int32) for w in (words & ones, words & ~ones)]
    add = lambda a, b: (a[0] + b[0], a[1] + b[1])  # noqa: E731
    return jax.lax.reduce(counts, [np.int32(0)] * 2, add, (words.ndim - 1,))

"""A binary matrix as the Boolean samplers hold it: packed words, both orientations, in blocks.

The usage is updated row by row and the basis column by column, and either update reads whole
lines. Both orientations are therefore kept. A line is ``ceil(entries / 32)`` words, and the lines
are cut into blocks whose intermediate results stay in the cache. The cost of a sweep is then
linear in rows x columns x rank / 32.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.bits import ALIGNED, WORD, PackedMatrix, words_in_blocks
from bmfjax.kernels.numerics.mesh import ROWS, WHOLE, Along, num_shards, place

#: Words of a block. With one intermediate result a factor it about fills a second-level cache.
BLOCK_WORDS, MAX_LINES = 4096, 512


class PackedLines(NamedTuple):
    """One orientation of a matrix, in blocks of lines; the last block is filled up with zeros.

    `observed` is None if nothing is missing. Its bits beyond the last entry of a line, or beyond
    the last line, are never read.
    """

    ones: jax.Array  # (blocks, lines, words) uint32
    observed: jax.Array | None  # (blocks, lines, words) uint32


class DistinctLines(NamedTuple):
    """The distinct lines of one orientation, for samplers that weigh equal lines once.

    Lines stand in groups that share a number of copies: of G groups, line n is in group n mod G.
    Lines that only fill up a group have no observed entries.
    """

    code: jax.Array  # (entries, lines) int8: MISSING, ONE or ZERO
    ones: jax.Array  # (lines,) int32: observed ones of every line
    zeros: jax.Array  # (lines,) int32
    count: jax.Array  # (groups,) float: how often every line of a group occurs
    place: jax.Array  # (all lines,) int32: which of these a line of the data equals
    first: jax.Array  # (lines,) int32: a line of the data that equals it


#: What an entry of a distinct line is.
MISSING, ONE, ZERO = 0, 1, 2


class PackedData(NamedTuple):
    """Both orientations of a matrix, and the prior log odds of single bits of the factors.

    Log odds are None where no bit has its own, and infinite where a bit is fixed. The distinct
    lines are there only for samplers that sum a factor matrix out. On a mesh every device may hold
    its own blocks of lines, of both orientations (`along`); `whole` is then there for what needs
    all of them. Known solutions are there for the move that jumps to them.
    """

    by_row: PackedLines  # a line is a row and holds columns
    by_column: PackedLines
    num_ones: jax.Array  # () float, observed
    num_zeros: jax.Array
    usage_log_odds: jax.Array | None = None  # (rank, rows)
    basis_log_odds: jax.Array | None = None  # (rank, columns)
    distinct_rows: DistinctLines | None = None
    distinct_columns: DistinctLines | None = None
    along: Along = WHOLE
    whole: PackedData | None = None
    solutions: Any = None  # `bmfjax.kernels.boolean.moves.jump.KnownSolutions`


def packed_data(
    matrix: BinaryMatrix, usage_log_odds=None, basis_log_odds=None, *, mesh: Mesh | None = None
) -> PackedData:
    """Pack a matrix for a Boolean sampler.

    Parameters
    ----------
    matrix : BinaryMatrix
    usage_log_odds : (rows, rank) float array, optional
        Prior log odds of single bits; minus infinity and infinity fix a bit at 0 and at 1.
    basis_log_odds : (columns, rank) float array, optional
    mesh : jax.sharding.Mesh, optional
        Give each device along its axis "rows" its own blocks of rows and of columns. Blocks that
        are added, so that all devices have as many, hold nothing.

    Returns
    -------
    PackedData

    Examples
    --------
    >>> data = packed_data(BinaryMatrix([[1, 0, 1], [0, 1, None]]))
    >>> data.by_row.ones.shape, data.by_column.ones[0, :3].ravel().tolist()
    ((1, 2, 1), [1, 2, 1])
    """
    by_row, by_column = (_lines_of_matrix(matrix, o, mesh) for o in ("rows", "columns"))
    log_odds = (
        None if a is None else jnp.asarray(np.asarray(a).T, jnp.result_type(float))
        for a in (usage_log_odds, basis_log_odds)
    )
    kind = jnp.result_type(float)
    counts = (jnp.asarray(np.asarray(n, kind)) for n in (matrix.num_ones, matrix.num_zeros))
    along = WHOLE if mesh is None else Along(ROWS)
    return PackedData(by_row, by_column, *counts, *log_odds, along=along)


def _lines_of_matrix(matrix, orientation, mesh) -> PackedLines:
    """Pack one orientation where the device keeps it, so that the words are in memory once."""
    if orientation == "rows" and matrix.is_packed and (shared := _shared_lines(matrix, mesh)):
        return shared
    made = []

    def room(lines, entries):
        words = -(-entries // WORD)
        blocks, size = block_shape(lines, words)
        # Blocks of the same shape, and with the same numbers, whatever the mesh.
        made.append(_aligned_zeros(blocks + -blocks % num_shards(mesh), size, words))
        return made[-1].reshape(-1, words)[:lines]

    matrix.fill_words(orientation, room)
    put = jax.device_put if mesh is None else functools.partial(_own_blocks, mesh)
    ones, *observed = map(put, made)
    return PackedLines(ones, *(observed or [None]))


def _shared_lines(matrix, mesh) -> PackedLines | None:
    """Return the rows of packed words in the memory where they are, or None."""
    packed = matrix.packed("rows")
    blocks, size = block_shape(*packed.ones.shape)
    blocks += -blocks % num_shards(mesh)
    given = [packed.ones] if packed.observed is None else [packed.ones, packed.observed]
    made = [words_in_blocks(words, blocks, size) for words in given]
    if any(words is None for words in made):
        return None
    put = jax.device_put if mesh is None else functools.partial(_own_blocks, mesh)
    ones, *observed = map(put, made)
    return PackedLines(ones, *(observed or [None]))


def _own_blocks(mesh, words) -> jax.Array:
    return place(words, mesh, ROWS)


def _aligned_zeros(*shape) -> np.ndarray:
    """Return words that a CPU device takes over without a copy."""
    size = 4 * math.prod(shape)
    octets = np.zeros(size + ALIGNED, np.uint8)
    start = -octets.ctypes.data % ALIGNED
    return octets[start : start + size].view(np.uint32).reshape(shape)


def blocks_of_lines(packed: PackedMatrix) -> PackedLines:
    """Cut one orientation, words (lines, words), into blocks."""
    lines, words = packed.ones.shape
    blocks, size = block_shape(lines, words)

    def cut(array):
        if array is None:
            return None
        # Words on the host are padded there, so that the device never holds them twice.
        filled = (jnp if isinstance(array, jax.Array) else np).pad(
            array, ((0, blocks * size - lines), (0, 0))
        )
        return jnp.asarray(filled.reshape(blocks, size, words))

    return PackedLines(cut(packed.ones), cut(packed.observed))


def block_shape(lines: int, words: int) -> tuple[int, int]:
    """Return the number of blocks, and the lines of each, for lines of so many words."""
    most = max(1, min(MAX_LINES, BLOCK_WORDS // max(words, 1)))
    blocks = -(-lines // most)
    return blocks, -(-lines // blocks)


def pack_last_axis(bits) -> jax.Array:
    """Pack bool bits along the last axis: (..., n) to (..., ceil(n / 32)) uint32."""
    size = bits.shape[-1]
    words = -(-size // WORD)
    padded = jnp.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, words * WORD - size)])
    parts = padded.reshape(*bits.shape[:-1], words, WORD).astype(jnp.uint32)
    return jnp.sum(parts << jnp.arange(WORD, dtype=jnp.uint32), axis=-1, dtype=jnp.uint32)


def unpack_last_axis(words, size: int) -> jax.Array:
    """Return the first `size` bits of the last axis: the inverse of `pack_last_axis`."""
    bits = (words[..., None] >> jnp.arange(WORD, dtype=jnp.uint32)) & 1
    return bits.reshape(*words.shape[:-1], -1)[..., :size].astype(bool)


def own_bits(words, along: Along, size: int) -> jax.Array:
    """Unpack the bits of this device's lines, of which it has `size`: (..., words) to (..., size).

    Those of lines beyond the last are zero.
    """
    part, parts = along.part()
    first, needed = part * size, size // WORD + 2
    beyond = parts * size // WORD + 2 - words.shape[-1]
    padded = jnp.pad(words, [(0, 0)] * (words.ndim - 1) + [(0, beyond)])
    few = lax.dynamic_slice_in_dim(padded, first // WORD, needed, axis=-1)
    bits = unpack_last_axis(few, needed * WORD)
    return lax.dynamic_slice_in_dim(bits, first % WORD, size, axis=-1)


def count_bits(words, axis=-1) -> jax.Array:
    """Count the ones along an axis of words: int32."""
    return jnp.sum(jax.lax.population_count(words), axis=axis, dtype=jnp.int32)


def count_split(words, ones) -> tuple[jax.Array, jax.Array]:
    """Count the bits of `words` that are set in `ones`, and that are not, along the last axis.

    One pass counts both: two reductions would read the counts of every word twice.
    """
    counts = [jax.lax.population_count(w).astype(jnp.int32) for w in (words & ones, words & ~ones)]
    add = lambda a, b: (a[0] + b[0], a[1] + b[1])  # noqa: E731
    return jax.lax.reduce(counts, [np.int32(0)] * 2, add, (words.ndim - 1,))

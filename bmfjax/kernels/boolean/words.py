"""A binary matrix as the Boolean samplers hold it: packed words, both orientations, in blocks.

The usage is updated row by row and the basis column by column, and either update reads whole
lines. Both orientations are therefore kept. A line is ``ceil(entries / 32)`` words, and the lines
are cut into blocks whose intermediate results stay in the cache of a CPU. The cost of a sweep is
then linear in rows x columns x rank / 32. A block has random numbers of its own, and a device takes
as many blocks at once as its memory holds (`bmfjax.kernels.numerics.budget`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.bits import ALIGNED, WORD, PackedMatrix, words_in_blocks
from bmfjax.data.stores import Share
from bmfjax.kernels.numerics.budget import ONE_BY_ONE, Budget, device_budget
from bmfjax.kernels.numerics.mesh import ROWS, WHOLE, Along, gathered, num_shards, over_mesh

#: Words of a block. With one intermediate result a factor it about fills a second-level cache.
BLOCK_WORDS, BLOCK_LINES = 8192, 512
#: Parts in which devices exchange the columns, at most: each is in memory again on the way.
EXCHANGES = 32


class PackedLines(NamedTuple):
    """One orientation of a matrix, in blocks of lines; the last block is filled up with zeros.

    `observed` is None if nothing is missing. Its bits beyond the last entry of a line, or beyond
    the last line, are never read. The budget says how many blocks are worked on at once.
    """

    ones: jax.Array  # (blocks, lines, words) uint32
    observed: jax.Array | None  # (blocks, lines, words) uint32
    budget: Budget = ONE_BY_ONE


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
    all of them. Known solutions are there for the move that jumps to them, and known vectors of one
    factor matrix for the move that gives a factor another one.
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
    candidates: jax.Array | None = None  # (number, lines) bool, for `moves.rebirth`


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
        are added, so that all devices have as many, hold nothing. Where several processes share
        the rows of a matrix, each packs its own rows, and columns are exchanged on the devices.

    Returns
    -------
    PackedData

    Examples
    --------
    >>> data = packed_data(BinaryMatrix([[1, 0, 1], [0, 1, None]]))
    >>> data.by_row.ones.shape, data.by_column.ones[0, :3].ravel().tolist()
    ((1, 2, 1), [1, 2, 1])
    """
    if mesh is None:
        by_row, by_column = (_lines_of_matrix(matrix, o) for o in ("rows", "columns"))
    else:
        by_row, by_column = _rows_on_mesh(matrix, mesh), _columns_on_mesh(matrix, mesh)
    by_row, by_column = (side._replace(budget=device_budget()) for side in (by_row, by_column))
    # Put there as they are: each jnp.asarray of a new shape would compile a program.
    kind = jnp.result_type(float)
    log_odds = (
        None if a is None else jax.device_put(np.array(a, kind).T)
        for a in (usage_log_odds, basis_log_odds)
    )
    counts = (jax.device_put(np.asarray(n, kind)) for n in (matrix.num_ones, matrix.num_zeros))
    along = WHOLE if mesh is None else Along(ROWS)
    return PackedData(by_row, by_column, *counts, *log_odds, along=along)


def _lines_of_matrix(matrix, orientation) -> PackedLines:
    """Pack one orientation where the device keeps it, so that the words are in memory once."""
    if orientation == "rows" and matrix.is_packed and (shared := _shared_lines(matrix)):
        return shared
    made = []

    def room(lines, entries):
        words = -(-entries // WORD)
        made.append(_aligned_zeros(*block_shape(lines, words), words))
        return made[-1].reshape(-1, words)[:lines]

    matrix.fill_words(orientation, room)
    ones, *observed = map(jax.device_put, made)
    return PackedLines(ones, *(observed or [None]))


def _shared_lines(matrix) -> PackedLines | None:
    """Return the rows of packed words in the memory where they are, or None."""
    packed = matrix.packed("rows")
    blocks, size = block_shape(*packed.ones.shape)
    given = [packed.ones] if packed.observed is None else [packed.ones, packed.observed]
    made = [words_in_blocks(words, blocks, size) for words in given]
    if any(words is None for words in made):
        return None
    ones, *observed = map(jax.device_put, made)
    return PackedLines(ones, *(observed or [None]))


class _Cut(NamedTuple):
    """How lines of one orientation are cut into blocks, and these given to devices.

    Blocks have the same shape, and the same numbers, whatever the mesh.
    """

    lines: int
    words: int
    size: int  # lines of a block
    each: int  # blocks of a device

    @classmethod
    def of(cls, lines: int, entries: int, parts: int) -> _Cut:
        words = -(-entries // WORD)
        blocks, size = block_shape(lines, words)
        return cls(lines, words, size, -(-blocks // parts))

    def first(self, part: int) -> int:
        """Return the first line of a device."""
        return min(part * self.each * self.size, self.lines)


def share_of_rows(shape: tuple[int, int], mesh: Mesh) -> Share:
    """Return the rows that this process reads of a matrix, for the devices that it has.

    They begin with a multiple of 32, so that words of columns can be made of them alone.
    """
    parts = num_shards(mesh)
    firsts = _first_words(shape, parts)
    own = [
        part
        for part in range(parts)
        if jax.process_index() in {d.process_index for d in mesh.devices[:, part]}
    ]
    if not own:
        return Share(0, 0, np.zeros(firsts[-1], bool), gathered)
    answers = np.zeros(firsts[-1], bool)
    for part in own:
        if mesh.devices[0, part].process_index == jax.process_index():
            answers[firsts[part] : firsts[part + 1]] = True
    last = _Cut.of(*shape, parts).first(own[-1] + 1)
    last = max(last, min(WORD * firsts[own[-1] + 1], shape[0]))
    return Share(WORD * firsts[own[0]], last, answers, gathered)


def _first_words(shape, parts) -> list[int]:
    """Return at which word of a column the rows of each device begin, and the number of words."""
    rows = _Cut.of(*shape, parts)
    return [*(rows.first(part) // WORD for part in range(parts)), -(-shape[0] // WORD)]


def _placed(shape, mesh, axis: int, of_part, has_missing: bool) -> PackedLines:
    """Put words on a mesh, an axis of them along the rows.

    ``of_part(part)`` makes those of a device: the ones, and the observed entries if some miss.
    """
    spec = [None] * axis + [ROWS]
    size, made = shape[axis] // num_shards(mesh), {}

    def one(kind):
        def words(index):
            part = (index[axis].start or 0) // size
            if part not in made:
                made[part] = of_part(part)
            return made[part][kind]

        return jax.make_array_from_callback(shape, NamedSharding(mesh, P(*spec)), words)

    return PackedLines(one(0), one(1) if has_missing else None)


def _rows_on_mesh(matrix, mesh) -> PackedLines:
    """Pack the rows of this process's devices where these keep them."""
    parts = num_shards(mesh)
    cut = _Cut.of(*matrix.shape, parts)

    def of_part(part):
        made = []

        def room(lines, _):
            made.append(_aligned_zeros(cut.each, cut.size, cut.words))
            return made[-1].reshape(-1, cut.words)[:lines]

        matrix.fill_rows(cut.first(part), cut.first(part + 1), "rows", room)
        return made

    shape = parts * cut.each, cut.size, cut.words
    return _placed(shape, mesh, 0, of_part, matrix.num_missing > 0)


def _columns_on_mesh(matrix, mesh) -> PackedLines:
    """Turn the rows of this process's devices, and let all devices exchange the columns.

    No process needs all rows. Words that hold rows of two devices are of the one with the later
    rows, which has the others too.
    """
    parts = num_shards(mesh)
    rows, columns = matrix.shape
    cut, firsts = _Cut.of(columns, rows, parts), _first_words(matrix.shape, parts)
    counts = np.diff(firsts)
    lines, most = parts * cut.each * cut.size, int(counts.max())

    def of_part(part):
        made = []

        def room(number, entries):
            made.append(_aligned_zeros(lines, most))
            return made[-1][:number, : -(-entries // WORD)]

        first, last = (min(WORD * firsts[p], rows) for p in (part, part + 1))
        matrix.fill_rows(first, last, "columns", room)
        return made

    few = -(-cut.each // EXCHANGES)

    def exchange(own):
        own = own.reshape(parts, cut.each, cut.size, most)

        def some(t, joined):
            # The last ones may have been exchanged before.
            first = jnp.minimum(t * few, cut.each - few)
            given = lax.dynamic_slice_in_dim(own, first, few, axis=1)
            every = lax.all_to_all(given, ROWS, 0, 0)
            kept = [every[part, ..., :n] for part, n in enumerate(counts.tolist())]
            return lax.dynamic_update_slice_in_dim(
                joined, jnp.concatenate(kept, axis=-1), first, axis=0
            )

        empty = jnp.zeros((cut.each, cut.size, cut.words), own.dtype)
        return lax.fori_loop(0, -(-cut.each // few), some, empty)

    turned = _placed((lines, parts * most), mesh, 1, of_part, matrix.num_missing > 0)
    exchange = jax.jit(over_mesh(exchange, mesh, P(None, ROWS), P(ROWS)))
    return PackedLines(
        *(None if words is None else exchange(words) for words in (turned.ones, turned.observed))
    )


def _aligned_zeros(*shape) -> np.ndarray:
    """Return words that a CPU device takes over without a copy."""
    size = 4 * math.prod(shape)
    octets = np.zeros(size + ALIGNED, np.uint8)
    start = -octets.ctypes.data % ALIGNED
    return octets[start : start + size].view(np.uint32).reshape(shape)


def blocks_of_lines(packed: PackedMatrix, budget: Budget = ONE_BY_ONE) -> PackedLines:
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
        return jax.device_put(filled.reshape(blocks, size, words))

    return PackedLines(cut(packed.ones), cut(packed.observed), budget)


def block_shape(lines: int, words: int) -> tuple[int, int]:
    """Return the number of blocks, and the lines of each, for lines of so many words."""
    most = max(1, min(BLOCK_LINES, BLOCK_WORDS // max(words, 1)))
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

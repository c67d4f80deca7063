"""Thirty-two entries of a binary matrix in one word.

Bit ``j % 32`` (the least significant first) of word ``j // 32`` holds entry ``j`` of its row, and
the bits beyond the last entry are zero. A Boolean product is then a bitwise OR and an error count
a bitwise XOR with a population count: a thirty-second of the memory of bytes, and no
floating-point number anywhere. The words are JAX arrays, and all but `count_errors` may be called
inside ``jax.jit`` and ``jax.vmap``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from bmfjax.data.checks import check_axes
from bmfjax.data.errors import InputError

WORD = 32
#: Bytes at multiples of which a CPU device takes arrays over, and words of zeros behind the last.
ALIGNED, SPARE = 64, 2**16
# Bytes of a dense matrix, and ones of a sparse one, that are packed at a time.
_BLOCK, _ENTRIES = 1 << 22, 1 << 18
#: Factors whose unions are tabled together, for at least so many rows.
_GROUP, _LEAST_ROWS = 8, 256


class PackedMatrix(NamedTuple):
    """The ones and the observed entries of a binary matrix as packed words."""

    ones: np.ndarray  # (lines, ceil(entries / 32)) uint32, zero where missing
    observed: np.ndarray | None  # of the same shape; None if every entry is observed


def pack_bits(bits):
    """Pack each row of a binary matrix into 32-bit words, the first entry in the lowest bit.

    Parameters
    ----------
    bits : array (n, m) of bool, or of numbers of which each but zero counts as a one

    Returns
    -------
    uint32 array (n, ceil(m / 32)), with zeros in the bits beyond the m-th

    Raises
    ------
    InputError
        If `bits` has not two axes.

    Examples
    --------
    >>> import numpy as np
    >>> pack_bits(np.array([[1, 0, 1], [0, 1, 1]])).tolist()
    [[5], [6]]
    """
    bits = jnp.asarray(bits)
    check_axes(bits, "bits")
    return _pack(bits != 0)


def unpack_bits(words, num_entries):
    """Unpack the first `num_entries` bits of each row of words; the inverse of `pack_bits`.

    Parameters
    ----------
    words : uint32 array (n, ceil(num_entries / 32))
    num_entries : int
        Entries in a row.

    Returns
    -------
    bool array (n, num_entries)

    Raises
    ------
    InputError
        If `words` are not uint32 with two axes, or do not hold `num_entries` entries a row.

    Examples
    --------
    >>> import numpy as np
    >>> unpack_bits(np.array([[5], [6]], dtype=np.uint32), 3).astype(int).tolist()
    [[1, 0, 1], [0, 1, 1]]
    """
    words = jnp.asarray(_checked(words, "words"))
    if words.shape[1] != -(-num_entries // WORD):
        raise InputError(
            f"words has {words.shape[1]} words a row, and {num_entries} entries fill "
            f"{-(-num_entries // WORD)}; give num_entries the number of entries that were packed"
        )
    bits = (words[:, :, None] >> jnp.arange(WORD, dtype=jnp.uint32)) & 1
    return bits.reshape(words.shape[0], -1)[:, :num_entries].astype(bool)


def boolean_product(usage, basis):
    """Return the Boolean product of two factor matrices as packed rows.

    Entry (i, j) of the product is the OR over k of ``usage[i, k] AND basis[j, k]``: one OR of a
    whole packed column of `basis` for each factor that row i uses.

    Parameters
    ----------
    usage : array (rows, rank) of bool, or of numbers of which each but zero counts as a one
    basis : array (columns, rank), likewise

    Returns
    -------
    uint32 array (rows, ceil(columns / 32))

    Raises
    ------
    InputError
        If the factors have not two axes each, or their ranks differ.

    Examples
    --------
    >>> import numpy as np
    >>> usage = np.array([[1, 0], [0, 1], [1, 1]], dtype=bool)
    >>> basis = np.array([[1, 0], [1, 1], [0, 0], [0, 1]], dtype=bool)
    >>> unpack_bits(boolean_product(usage, basis), 4).astype(int).tolist()
    [[1, 1, 0, 0], [0, 1, 0, 1], [1, 1, 0, 1]]
    """
    usage, basis = jnp.asarray(usage), jnp.asarray(basis)
    check_axes(usage, "usage")
    check_axes(basis, "basis")
    if usage.shape[1] != basis.shape[1]:
        raise InputError(
            f"usage has {usage.shape[1]} factors and basis has {basis.shape[1]}; "
            "give both (rows, rank) and (columns, rank) with the same rank"
        )
    return _boolean_product(usage != 0, basis != 0)


def count_errors(a_words, b_words, observed_words=None):
    """Count the entries in which two packed matrices differ, with NumPy.

    Parameters
    ----------
    a_words, b_words : uint32 arrays (n, words)
    observed_words : uint32 array (n, words), optional
        The entries that count; default: all.

    Returns
    -------
    int

    Raises
    ------
    InputError
        If these are no words of one shape.

    Examples
    --------
    >>> import numpy as np
    >>> a, b = np.array([[5], [6]], dtype=np.uint32), np.array([[4], [1]], dtype=np.uint32)
    >>> count_errors(a, b)
    4
    >>> count_errors(a, b, observed_words=np.array([[7], [3]], dtype=np.uint32))
    3
    """
    given = {"a_words": a_words, "b_words": b_words, "observed_words": observed_words}
    given = {name: words for name, words in given.items() if words is not None}
    a_words, b_words, *observed = (np.asarray(_checked(w, name)) for name, w in given.items())
    for other in (b_words, *observed):
        if other.shape != a_words.shape:
            raise InputError(
                f"packed matrices of shapes {a_words.shape} and {other.shape} cannot be compared; "
                "pack matrices of the same shape in the same orientation"
            )
    differ = a_words ^ b_words
    return int(count_ones(differ & observed[0] if observed else differ).sum())


def zero_words(lines, entries):
    """Return words of zeros for so many entries in each of so many lines.

    They start at 64 bytes, and `SPARE` further zeros follow, so that a CPU device can take them
    over as they are, in blocks of which the last one need not be full.
    """
    words = -(-entries // WORD)
    octets = np.zeros(4 * (lines * words + SPARE) + ALIGNED, np.uint8)
    start = -octets.ctypes.data % ALIGNED
    return octets[start : start + 4 * lines * words].view(np.uint32).reshape(lines, words)


def owners(array):
    """Return an array, and those in whose memory it lies."""
    found = [array]
    while isinstance(found[-1].base, np.ndarray):
        found.append(found[-1].base)
    return found


def lock_words(words):
    """Make words that `zero_words` made, and all of their memory, read-only."""
    for array in owners(words):
        array.flags.writeable = False
    return words


def words_in_blocks(words, blocks, size):
    """Return words that nobody changes as (blocks, size, words), zeros at the end, without a copy.

    None where their memory does not go on with so many zeros (`zero_words`).
    """
    owner = owners(words)[-1]
    start, number = words.ctypes.data - owner.ctypes.data, blocks * size * words.shape[1]
    fits = words.flags.c_contiguous and owner.flags.c_contiguous and not words.flags.writeable
    if not fits or words.ctypes.data % ALIGNED or start + 4 * number > owner.nbytes:
        return None
    whole = owner.reshape(-1).view(np.uint8)[start : start + 4 * number].view(np.uint32)
    return None if whole[words.size :].any() else whole.reshape(blocks, size, -1)


def full_line(entries):
    """Return the words of a line whose entries are all ones; the bits beyond them are zero."""
    return pack_on_host(np.ones((1, entries), bool))[0]


def pack_on_host(bits, transposed=False, words=None):
    """Pack as `pack_bits` does, by NumPy, some rows at a time: the device never sees the bytes.

    With `transposed` a line of words holds a column. `words` of zeros may be given to be filled.
    """
    bits = np.asarray(bits)
    num_rows, num_columns = bits.shape
    if words is None:
        words = zero_words(*(bits.shape[::-1] if transposed else bits.shape))
    step = _BLOCK // max(num_columns, 1) // WORD * WORD or WORD
    for start in range(0, num_rows, step):
        some = slice(start, min(start + step, num_rows))
        octets = np.packbits(bits[some], axis=0 if transposed else 1, bitorder="little")
        octets = octets.T if transposed else octets
        wide = np.zeros((octets.shape[0], -(-octets.shape[1] // 4) * 4), dtype=np.uint8)
        wide[:, : octets.shape[1]] = octets
        if transposed:
            words[:, start // WORD : -(-some.stop // WORD)] = wide.view("<u4")
        else:
            words[some] = wide.view("<u4")
    return words


def pack_csr(ones, transposed=False, words=None):
    """Pack as `pack_on_host` does from a bool CSR whose indices are sorted, each once.

    Some entries are packed at a time: beside the words a constant is needed, and the dense form is
    never made.
    """
    num_columns = ones.shape[1]
    if words is None:
        words = zero_words(*(ones.shape[::-1] if transposed else ones.shape))
    for start in range(0, ones.nnz, _ENTRIES):
        stop = min(start + _ENTRIES, ones.nnz)
        # The rows that these entries lie in, the first and the last of them maybe in part.
        first = np.searchsorted(ones.indptr, start, side="right") - 1
        last = np.searchsorted(ones.indptr, stop, side="left")
        ends = np.clip(ones.indptr[first : last + 1], start, stop) - start
        part = sp.csr_array(
            (np.ones(stop - start, bool), ones.indices[start:stop], ends),
            shape=(last - first, num_columns),
        )
        if transposed:
            part = part.tocsc()
        line = np.repeat(np.arange(len(part.indptr) - 1), np.diff(part.indptr))
        entry = part.indices.astype(np.int64)
        set_bits(words, *((line, entry + first) if transposed else (line + first, entry)))
    return words


def transpose_words(words, num_entries, transposed=None):
    """Return packed lines as packed columns: (num_entries, ceil(lines / 32)) uint32.

    Squares of 32 by 32 bits are transposed in five steps, of which each exchanges half of a square
    with the other (Warren 2013, "Hacker's Delight", section 7-3), some of them at a time. Words
    `transposed` may be given to be filled.

    >>> transpose_words(np.array([[0b01], [0b11], [0b10]], np.uint32), 2).tolist()
    [[3], [6]]
    """
    lines, width = words.shape
    if transposed is None:
        transposed = zero_words(num_entries, lines)
    step = max(1, _BLOCK // (4 * WORD * max(width, 1)))  # squares of lines at a time
    for first in range(0, transposed.shape[1], step):
        some = words[first * WORD : (first + step) * WORD]
        squares = np.zeros((-(-len(some) // WORD) * WORD, width), np.uint32)
        squares[: len(some)] = some
        squares = _turn_squares(squares.reshape(-1, WORD, width))
        columns = squares.transpose(2, 1, 0).reshape(width * WORD, -1)
        transposed[:, first : first + step] = columns[:num_entries]
    return transposed


def _turn_squares(squares):
    """Transpose squares of bits, (squares, 32 lines, width), in place."""
    for half in (16, 8, 4, 2, 1):
        pairs = squares.reshape(len(squares), -1, 2, half, squares.shape[2])
        upper, lower = pairs[:, :, 0], pairs[:, :, 1]
        # The low half of every group of bits of one is the high half of the other's.
        mask = np.uint32(sum(((1 << half) - 1) << k for k in range(0, WORD, 2 * half)))
        change = ((upper >> np.uint32(half)) ^ lower) & mask
        lower ^= change
        upper ^= change << np.uint32(half)
    return squares


def bits_at(words, line, entry):
    """Return single bits (cell,) bool of packed lines."""
    word = words[line, np.asarray(entry) // WORD]
    return (word >> (np.asarray(entry) % WORD).astype(np.uint32)) & 1 == 1


def unpack_on_host(words, num_entries):
    """Return the bits of packed lines, (lines, num_entries) bool, by NumPy."""
    octets = np.ascontiguousarray(words).astype("<u4", copy=False).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=num_entries, bitorder="little").view(bool)


def set_bits(words, line, entry):
    """Set bits, given in the order of lines and entries."""
    word = entry // WORD
    bits = np.left_shift(np.uint32(1), (entry % WORD).astype(np.uint32))
    starts = np.flatnonzero(np.diff(line * words.shape[1] + word, prepend=-1))
    words[line[starts], word[starts]] |= np.bitwise_or.reduceat(bits, starts)


#: Ones in each byte.
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1, dtype=np.uint8)


def count_ones(words) -> np.ndarray:
    """Count the ones of every line of words: (..., words) uint32 to (...) int64."""
    if hasattr(np, "bitwise_count"):  # from NumPy 2.0 on
        return np.bitwise_count(words).sum(-1, dtype=np.int64)
    return _ONES[np.ascontiguousarray(words).view(np.uint8)].sum(-1, dtype=np.int64)


def product_words(usage, basis_words) -> np.ndarray:
    """Return the Boolean product of some rows as packed words, (rows, words) uint32.

    The rows of a product take few values: with eight factors there are 256 unions of their bases.
    These are made once, and every row looks up its own (Arlazarov, Dinic, Kronrod, Faradzev 1970,
    "On economical construction of the transitive closure of a directed graph", Soviet Mathematics
    Doklady 11).

    `usage` is (rank, rows) of zeros and ones; `basis_words`, (rank, words) uint32, are the packed
    columns of the basis.
    """
    rank, rows = usage.shape
    product = np.zeros((rows, basis_words.shape[1]), np.uint32)
    if rows < _LEAST_ROWS:
        for used, words in zip(usage.astype(bool), basis_words, strict=True):
            product[used] |= words
        return product
    for first in range(0, rank, _GROUP):
        few = slice(first, first + _GROUP)
        sets = np.packbits(usage[few], axis=0, bitorder="little")[0]
        product |= np.take(_unions(basis_words[few]), sets, axis=0)
    return product


def _unions(words):
    """Return the OR of every subset of words; bit k of its position stands for factor k."""
    unions = np.zeros((2 ** len(words), words.shape[1]), np.uint32)
    for k, one in enumerate(words):
        np.bitwise_or(unions[: 2**k], one, out=unions[2**k : 2 ** (k + 1)])
    return unions


def product_on_host(usage, basis):
    """Return the Boolean product of two bool factors as a NumPy bool array (rows, columns)."""
    return unpack_on_host(product_words(usage.T, pack_on_host(basis.T)), len(basis))


def _checked(words, name):
    # Before jnp.asarray, which would quietly cut 64-bit words down to 32 bits.
    if getattr(words, "dtype", None) != np.uint32:
        kind = getattr(words, "dtype", type(words).__name__)
        raise InputError(f"{name} is {kind}; give uint32 words, as pack_bits returns them")
    check_axes(words, name)
    return words


@jax.jit
def _pack(bits):
    num_rows, num_columns = bits.shape
    num_words = -(-num_columns // WORD)
    padded = jnp.pad(bits, ((0, 0), (0, num_words * WORD - num_columns)))
    padded = padded.reshape(num_rows, num_words, WORD).astype(jnp.uint32)
    return jnp.sum(padded << jnp.arange(WORD, dtype=jnp.uint32), axis=-1, dtype=jnp.uint32)


@jax.jit
def _boolean_product(usage, basis):
    def add_tile(product, factor):
        used_by, words = factor
        return product | jnp.where(used_by[:, None], words, jnp.uint32(0)), None

    words = _pack(basis.T)
    empty = jnp.zeros((usage.shape[0], words.shape[1]), jnp.uint32)
    return jax.lax.scan(add_tile, empty, (usage.T, words))[0]

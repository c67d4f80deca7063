"""Blocks of packed lines against NumPy's bytes: both orientations, missing entries, blocks."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.bits import lock_words, pack_on_host
from bmfjax.kernels.boolean import words as packed_lines
from bmfjax.kernels.boolean.words import (
    count_bits,
    pack_last_axis,
    packed_data,
    unpack_last_axis,
)

#: On and around the width of a word, and several words.
SHAPES = [(1, 1), (3, 31), (5, 32), (33, 4), (70, 41)]


def random_values(shape, missing=0.0):
    r = np.random.default_rng(sum(shape))
    values = (r.random(shape) < 0.4).astype(float)
    values[r.random(shape) < missing] = np.nan
    values[0, 0] = 1.0  # something is observed
    return values


def unpacked(blocks, lines, entries):
    """(lines, entries) bool of the blocks of one orientation."""
    words = np.asarray(blocks).reshape(-1, blocks.shape[-1])
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    assert not bits[lines:].any(), "lines that only fill up a block hold something"
    assert not bits[:, entries:].any(), "bits beyond the last entry are set"
    return bits[:lines, :entries].astype(bool)


@pytest.mark.parametrize("block_words", [1, 7, 4096])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_orientations_hold_the_matrix(monkeypatch, shape, missing, block_words):
    monkeypatch.setattr(packed_lines, "BLOCK_WORDS", block_words)
    values = random_values(shape, missing)
    data = packed_data(BinaryMatrix(values))
    for lines, table in ((data.by_row, values), (data.by_column, values.T)):
        blocks, each, words = lines.ones.shape
        size, entries = table.shape
        assert each * words <= max(block_words, words) and (blocks - 1) * each < size
        np.testing.assert_array_equal(unpacked(lines.ones, size, entries), table == 1)
        if lines.observed is None:
            assert not np.isnan(values).any()
        else:
            np.testing.assert_array_equal(unpacked(lines.observed, size, entries), ~np.isnan(table))
    assert data.num_ones == (values == 1).sum() and data.num_zeros == (values == 0).sum()
    assert data.num_ones.dtype == jnp.result_type(float)


def test_prior_log_odds_are_turned_to_lie_along_the_lines():
    usage, basis = np.arange(6.0).reshape(3, 2), np.full((4, 2), -np.inf)
    data = packed_data(BinaryMatrix(random_values((3, 4))), usage, basis)
    np.testing.assert_array_equal(data.usage_log_odds, usage.T)
    np.testing.assert_array_equal(data.basis_log_odds, basis.T)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 70])
def test_packing_the_last_axis_is_that_of_the_matrix_and_inverted(size):
    bits = np.random.default_rng(size).random((2, 3, size)) < 0.5

    @jax.jit
    def both_ways(bits):
        words = pack_last_axis(bits)
        back = unpack_last_axis(words, size)
        return words, back, count_bits(words), count_bits(words, axis=None)

    words, back, each, total = jax.device_get(both_ways(bits))
    assert words.dtype == np.uint32 and words.shape == (2, 3, -(-size // 32))
    np.testing.assert_array_equal(words[1], BinaryMatrix(bits[1]).packed("rows").ones)
    np.testing.assert_array_equal(back, bits)
    np.testing.assert_array_equal(each, bits.sum(-1))
    assert total == bits.sum()


def test_counts_are_exact_beyond_what_float32_holds():
    words = jnp.full((2**24 // 32 + 1,), 0xFFFFFFFF, jnp.uint32).at[0].set(1)
    total = jax.jit(count_bits)(words)
    assert total.dtype == jnp.int32 and int(total) == 2**24 + 1


def test_the_words_of_a_matrix_are_there_once():
    """On a CPU the sampler takes over the words that were packed, without a copy on the host."""
    matrix = BinaryMatrix(np.ones((3001, 3001), bool))
    tracemalloc.start()
    data = packed_data(matrix)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * (data.by_row.ones.nbytes + data.by_column.ones.nbytes) + 6e6


@pytest.mark.parametrize("rows", [37, 40])  # the last block is full, or not
def test_the_rows_of_packed_words_are_not_copied(rows, monkeypatch):
    monkeypatch.setattr(packed_lines, "BLOCK_WORDS", 30)  # ten lines of three words
    bits = np.random.default_rng(0).random((rows, 90)) < 0.5
    words = lock_words(pack_on_host(bits))
    matrix = BinaryMatrix.from_packed(words, 90)
    lines = packed_data(matrix).by_row
    assert lines.ones.shape == (4, 10, 3)
    assert lines.ones.unsafe_buffer_pointer() == words.ctypes.data
    np.testing.assert_array_equal(lines.ones, packed_lines.blocks_of_lines(matrix.packed()).ones)
    # What others may write to is copied, and so are rows that more rows follow.
    other = pack_on_host(bits)
    of_other = BinaryMatrix.from_packed(other, 90)
    other[:] = 0
    some = BinaryMatrix.from_packed(lock_words(pack_on_host(bits))[:33], 90)
    for copied, number in ((of_other, rows), (some, 33)):
        rows_of = np.asarray(packed_data(copied).by_row.ones).reshape(-1, 3)
        np.testing.assert_array_equal(rows_of[:number], words[:number])
        assert not rows_of[number:].any()

"""Packed words against NumPy's bytes, at widths beside the multiples of 32 too."""

import tracemalloc
from unittest import mock

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bmfjax.data import (
    BinaryMatrix,
    InputError,
    boolean_product,
    count_errors,
    pack_bits,
    unpack_bits,
)
from bmfjax.data.bits import pack_csr, pack_on_host, product_on_host, transpose_words
from bmfjax.data.stores import canonical

# Few shapes, so that few programs are compiled: on and around the word's width.
SHAPES = [(1, 1), (3, 31), (4, 32), (3, 33), (2, 64), (5, 70)]


def random_bits(seed, *shape):
    return np.random.default_rng(seed).random(shape) < 0.5


def words_by_hand(bits):
    """Pack with Python integers."""
    width = -(-bits.shape[1] // 32)
    words = [[0] * width for _ in bits]
    for i, j in zip(*np.nonzero(bits), strict=True):
        words[i][j // 32] += 2 ** int(j % 32)
    return np.array(words, dtype=np.uint32)


@settings(max_examples=25)
@given(st.sampled_from(SHAPES), st.integers(0, 2**32 - 1))
def test_packing_is_little_endian_and_inverted_by_unpacking(shape, seed):
    bits = random_bits(seed, *shape)
    words = pack_bits(bits)
    assert words.dtype == np.uint32
    np.testing.assert_array_equal(words, words_by_hand(bits))
    np.testing.assert_array_equal(unpack_bits(words, shape[1]), bits)
    np.testing.assert_array_equal(pack_on_host(bits), words)
    np.testing.assert_array_equal(pack_csr(canonical(bits)), words)


@pytest.mark.parametrize("transposed", [False, True])
def test_packing_in_pieces_gives_the_same_words(monkeypatch, transposed):
    """Pieces that begin and end within rows and within words."""
    monkeypatch.setattr("bmfjax.data.bits._ENTRIES", 7)
    monkeypatch.setattr("bmfjax.data.bits._BLOCK", 64 * 70)
    bits = random_bits(0, 150, 70)
    bits[40:60] = False
    words = words_by_hand(bits.T if transposed else bits)
    np.testing.assert_array_equal(pack_csr(canonical(bits), transposed), words)
    np.testing.assert_array_equal(pack_on_host(bits, transposed), words)


@pytest.mark.parametrize("orientation", ["rows", "columns"])
def test_packing_takes_the_words_and_a_constant(orientation):
    """12.5 MB of words of two million ones; 14 times that were taken before."""
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 10_000, (2, 2_000_000))
    matrix = BinaryMatrix(sp.csr_array((np.ones(2_000_000, bool), tuple(cells)), (10_000, 10_000)))
    tracemalloc.start()
    words = matrix.packed(orientation).ones
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * words.nbytes + 20e6


@pytest.mark.parametrize("kind", ["dense", "sparse", "packed"])
@pytest.mark.parametrize("hidden", [0.0, 0.3, 0.8])
def test_errors_and_tiles_are_counted_among_observed_entries(monkeypatch, kind, hidden):
    monkeypatch.setattr("bmfjax.data.stores.LARGE", 400)
    monkeypatch.setattr("bmfjax.data.stores._BLOCK", 300)
    rng = np.random.default_rng(0)
    ones, seen = rng.random((60, 37)) < 0.4, rng.random((60, 37)) >= hidden
    values, mask = (sp.csr_array(x) if kind == "sparse" else x for x in (ones, seen))
    matrix = BinaryMatrix(values, observed=mask)
    if kind == "packed":
        words = pack_on_host(ones & seen), pack_on_host(seen)
        matrix = BinaryMatrix.from_packed(words[0], 37, words[1])
        assert matrix.is_packed
    usage, basis = random_bits(1, 60, 3), random_bits(2, 37, 3)
    product = (usage[:, None] & basis[None]).any(2)
    assert matrix.count_errors(usage, basis) == ((product != ones) & seen).sum()
    tiles = [np.ix_(u, v) for u, v in zip(usage.T, basis.T, strict=True)]
    found, observed = matrix.tile_counts(usage, basis)
    assert found.tolist() == [(ones & seen)[t].sum() for t in tiles]
    assert observed.tolist() == [seen[t].sum() for t in tiles]


@settings(max_examples=25)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_words_are_transposed(lines, entries, seed):
    bits = random_bits(seed, lines, entries)
    with mock.patch("bmfjax.data.bits._BLOCK", 4 * 32):  # a square at a time
        found = transpose_words(pack_on_host(bits), entries)
    np.testing.assert_array_equal(found, pack_on_host(bits.T))


@settings(max_examples=25)
@given(st.sampled_from(SHAPES), st.sampled_from([1, 4]), st.integers(0, 2**32 - 1))
def test_boolean_product_is_an_or_of_ands(shape, rank, seed):
    usage, basis = random_bits(seed, shape[0], rank), random_bits(seed + 1, shape[1], rank)
    expected = (usage[:, None, :] & basis[None, :, :]).any(axis=-1)
    words = boolean_product(usage, basis.astype(np.uint8))
    np.testing.assert_array_equal(words, words_by_hand(expected))
    np.testing.assert_array_equal(product_on_host(usage, basis), expected)


@settings(max_examples=25)
@given(st.sampled_from(SHAPES), st.integers(0, 2**32 - 1))
def test_errors_are_counted_where_observed(shape, seed):
    a, b, observed = (random_bits(seed + k, *shape) for k in range(3))
    assert count_errors(pack_bits(a), pack_bits(b)) == int((a != b).sum())
    found = count_errors(pack_bits(a), pack_bits(b), pack_bits(observed))
    assert found == int(((a != b) & observed).sum())


def test_more_errors_than_32_bits_hold_are_counted(monkeypatch):
    rows = np.full(3, 2**31 - 1, np.int32)
    monkeypatch.setattr("bmfjax.data.bits.count_ones", lambda _: rows.astype(np.int64))
    assert count_errors(*np.zeros((2, 3, 1), np.uint32)) == 3 * (2**31 - 1)


def test_the_functions_work_inside_jit_and_vmap():
    usage, basis = random_bits(0, 6, 3, 2), random_bits(1, 6, 40, 2)
    batched = jax.jit(jax.vmap(boolean_product))(usage, basis)
    single = [boolean_product(u, b) for u, b in zip(usage, basis, strict=True)]
    np.testing.assert_array_equal(batched, single)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pack_bits(np.zeros(3)), "bits is one-dimensional; give a matrix"),
        (lambda: unpack_bits(np.zeros((2, 1), np.uint32), 33), "33 entries fill 2"),
        (lambda: unpack_bits(np.zeros((2, 2), np.uint32), 32), "2 words a row"),
        (lambda: unpack_bits(np.zeros((2, 1), np.uint64), 3), "words is uint64"),
        (
            lambda: boolean_product(np.zeros((2, 3)), np.zeros((4, 2))),
            "usage has 3 factors and basis has 2",
        ),
        (
            lambda: count_errors(np.zeros((2, 1), np.uint32), np.zeros((2, 2), np.uint32)),
            r"\(2, 1\) and \(2, 2\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()

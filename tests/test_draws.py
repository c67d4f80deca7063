"""Packed draws: indexed like the bool array that they stand for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmfjax.data import InputError
from bmfjax.draws import PackedDraws


def example(lines=45, seed=0):
    bits = np.random.default_rng(seed).random((2, 3, lines, 4)) < 0.4
    return bits, PackedDraws.pack(bits)


@given(st.integers(1, 100), st.integers(0, 10))
@settings(max_examples=25, deadline=None)
def test_packing_and_unpacking_gives_the_bits_back(lines, seed):
    bits, draws = example(lines, seed)
    assert draws.shape == bits.shape
    np.testing.assert_array_equal(np.asarray(draws), bits)


@pytest.mark.parametrize(
    "index",
    [
        (0,),
        (1, 2),
        (slice(None), slice(None), np.array([3, 44, 3])),
        (slice(None), slice(None), np.arange(45) > 40),
        (slice(1, None), slice(None, 2), np.array([7])),
        (slice(None), slice(None), np.array([1, 2]), np.array([3, 0])),
        (0, 1, slice(None), 2),
        (slice(None), 1),
        (slice(None), np.array([0, 2])),
        (0, 1, 5, 2),
    ],
)
def test_every_index_gives_what_the_array_gives(index):
    bits, draws = example()
    np.testing.assert_array_equal(draws[index], bits[index])


@pytest.mark.parametrize("axis", [(0, 1), 1, 0])
def test_means_and_spreads_are_those_of_the_array(axis):
    bits, draws = example()
    np.testing.assert_allclose(draws.mean(axis), bits.mean(axis), atol=1e-12)
    np.testing.assert_allclose(draws.std(axis), bits.std(axis), atol=1e-12)


def test_factors_are_reordered_for_all_draws_or_each():
    bits, draws = example()
    order = np.array([2, 0, 3, 1])
    np.testing.assert_array_equal(np.asarray(draws.reordered(order)), bits[..., order])
    each = np.random.default_rng(1).permuted(np.tile(np.arange(4), (2, 3, 1)), axis=-1)
    expected = np.take_along_axis(bits, each[:, :, None, :], -1)
    np.testing.assert_array_equal(np.asarray(draws.reordered(each)), expected)


def test_words_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="45 lines need uint32 words"):
        PackedDraws(np.zeros((1, 1, 2, 1), np.uint32), 45)
    with pytest.raises(InputError, match="average over chains"):
        example()[1].mean(2)

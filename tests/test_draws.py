"""Packed draws: indexed like the bool array that they stand for."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmfjax.data import InputError
from bmfjax.diagnostics import ess_bulk, split_rhat
from bmfjax.posterior import products as posterior
from bmfjax.posterior.packed import PackedDraws, subset


def example(lines=45, seed=0):
    bits = np.random.default_rng(seed).random((2, 3, lines, 4)) < 0.4
    return bits, PackedDraws.pack(bits)


@given(st.integers(1, 100), st.integers(0, 10))
@settings(max_examples=25)
def test_packing_and_unpacking_gives_the_bits_back(lines, seed):
    bits, draws = example(lines, seed)
    assert draws.shape == bits.shape
    np.testing.assert_array_equal(np.asarray(draws), bits)


@pytest.mark.parametrize(
    "index",
    [
        (0,),
        (1, 2),
        (0, -1),
        (-2, -3, np.array([3, 44, 3])),
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


def pair(rows=70, columns=45, draws=6):
    """Draws of two factor matrices, and the products that they stand for."""
    rng = np.random.default_rng(1)
    usage, basis = (rng.random((2, draws, n, 11)) < 0.25 for n in (rows, columns))
    return usage, basis, np.einsum("cdik,cdjk->cdij", usage.astype(int), basis.astype(int)) > 0


@pytest.mark.parametrize("block", [2**21, 200])
def test_functionals_of_packed_draws_are_those_of_their_products(monkeypatch, block):
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", block)
    usage, basis, product = pair()
    packed = PackedDraws.pack(usage), PackedDraws.pack(basis)
    share = product.mean((0, 1))
    np.testing.assert_array_equal(posterior.exceedance(*packed, 0.5), share)
    np.testing.assert_array_equal(posterior.exceedance(usage, basis, 0.5), share)
    mean, sd = posterior.moments(*packed)
    np.testing.assert_array_equal(mean, share)
    np.testing.assert_allclose(sd, product.reshape(12, 70, 45).std(0, ddof=1), atol=1e-12)
    for level in (0.5, 0.9):
        tails = [0.5 - level / 2, 0.5 + level / 2]
        expected = np.quantile(product.astype(float), tails, axis=(0, 1))
        np.testing.assert_allclose(posterior.interval(*packed, level), expected, atol=1e-12)
    rates = np.random.default_rng(2).uniform(0, 0.5, (2, 6, 2))
    f0, f1 = np.moveaxis(rates, -1, 0)[..., None, None]
    expected = np.where(product, 1 - f1, f0).mean((0, 1))
    np.testing.assert_allclose(posterior.predictive(*packed, rates), expected, atol=1e-12)
    tiles = usage[0, 0], basis[0, 0]
    expected = [share[np.ix_(u, v)].mean() for u, v in zip(tiles[0].T, tiles[1].T, strict=True)]
    np.testing.assert_allclose(posterior.tile_means(*packed, *tiles), expected, atol=1e-12)


def test_more_rows_than_a_table_of_unions_and_more_draws_than_a_byte_counts():
    usage, basis, product = pair(rows=300, columns=3, draws=140)
    found = posterior.exceedance(PackedDraws.pack(usage), PackedDraws.pack(basis), 0.5)
    np.testing.assert_array_equal(found, product.mean((0, 1)))


def test_figures_of_sampled_entries_are_those_of_the_whole_products():
    """The same entries as ever, so that R-hat and effective draws are the same numbers."""
    usage, basis, product = pair()
    packed = PackedDraws.pack(usage), PackedDraws.pack(basis)
    where = np.arange(3, 70), np.arange(1, 45)
    inside = product[:, :, where[0][:, None], where[1]].reshape(2, 6, -1).astype(float)
    drawn = np.sort(np.random.default_rng(0).choice(inside.shape[2], 400, replace=False))
    given = {"rows": where[0], "columns": where[1]}
    found = posterior.sampled_entries(*packed, 400, **given)
    np.testing.assert_array_equal(found, inside[..., drawn])
    mean = inside[..., drawn].mean((0, 1))
    unsure = drawn[(mean >= 0.05) & (mean <= 0.95)]
    entries, share = posterior.uncertain_entries(*packed, 20, **given)
    assert share == len(unsure) / 400
    for figure in (split_rhat, ess_bulk):
        expected = figure(inside[..., unsure[:20]])
        np.testing.assert_array_equal(figure(entries), expected)


def test_sampled_entries_are_the_same_in_blocks_of_draws(monkeypatch):
    usage, basis, _ = pair()
    whole = posterior.sampled_entries(usage, basis, 100)
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 3000)
    np.testing.assert_array_equal(posterior.sampled_entries(usage, basis, 100), whole)
    with pytest.raises(InputError, match="level is 90; give a probability"):
        posterior.interval(usage, basis, 90)


def test_real_factors_in_pieces_have_the_same_products(monkeypatch):
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 100)
    usage, basis = (f.astype(np.float32) * 0.7 for f in pair()[:2])
    product = np.einsum("cdik,cdjk->cdij", usage, basis)
    np.testing.assert_array_equal(
        posterior.exceedance(usage, basis, 0.9), (product >= 0.9).mean((0, 1))
    )
    mean, sd = posterior.moments(usage, basis)
    np.testing.assert_allclose(mean, product.mean((0, 1)), rtol=1e-5)
    np.testing.assert_allclose(sd, product.reshape(12, 70, 45).std(0, ddof=1), rtol=1e-4)
    drawn = np.sort(np.random.default_rng(0).choice(70 * 45, 30, replace=False))
    entries = posterior.sampled_entries(usage, basis, 30)
    np.testing.assert_allclose(entries, product.reshape(2, 6, -1)[..., drawn], rtol=1e-6)


def test_some_lines_of_packed_draws_stay_packed():
    bits, draws = example()
    chosen = np.array([44, 3, 3, 31, 32])
    np.testing.assert_array_equal(np.asarray(draws.packed_lines(chosen)), bits[:, :, chosen])
    np.testing.assert_array_equal(subset(draws, [0, 2], chosen), bits[:, [0, 2]][:, :, chosen])
    np.testing.assert_array_equal(subset(bits, [0, 2], chosen), bits[:, [0, 2]][:, :, chosen])


def test_unpacking_takes_no_more_than_a_byte_a_bit():
    draws = PackedDraws(np.ones((2, 50, 20, 50), np.uint32), 1600)
    tracemalloc.start()
    np.asarray(draws)
    draws.mean(1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * 2 * 50 * 20 * 1600

"""Alignment permutes and never changes a factor, and the permutation it finds is the best."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmfjax.data.errors import InputError
from bmfjax.diagnostics.align import align, apply_permutation

ROWS, COLUMNS, RANK = 12, 9, 4


def _shuffled(usage, basis, permutation):
    """One pair of factor matrices repeated for every permutation, (chain, draw, rank)."""
    usages = np.broadcast_to(usage, (*permutation.shape[:2], *usage.shape))
    bases = np.broadcast_to(basis, (*permutation.shape[:2], *basis.shape))
    return apply_permutation(usages, bases, permutation)


def _permutations(rng, chains, draws, rank=RANK):
    return rng.permuted(np.tile(np.arange(rank), (chains, draws, 1)), axis=2)


def _noisy_draws(rng, chains=3, draws=8, noise=0.4):
    usage, basis = rng.random((ROWS, RANK)), rng.random((COLUMNS, RANK))
    usages, bases = _shuffled(usage, basis, _permutations(rng, chains, draws))
    return (
        usages + noise * rng.normal(size=usages.shape),
        bases + noise * rng.normal(size=bases.shape),
    )


@given(seed=st.integers(0, 2**32 - 1), boolean=st.booleans())
@settings(max_examples=25)
def test_random_permutations_are_undone_exactly(seed, boolean):
    rng = np.random.default_rng(seed)
    usage, basis = rng.random((ROWS, RANK)), rng.random((COLUMNS, RANK))
    if boolean:
        usage, basis = usage > 0.6, basis > 0.6
    draws = _shuffled(usage, basis, _permutations(rng, 3, 5))
    aligned = align(*draws)
    assert aligned.converged
    assert aligned.cost == pytest.approx(0, abs=1e-9)
    assert (aligned.usage == aligned.usage[0, 0]).all()
    assert (aligned.basis == aligned.basis[0, 0]).all()
    assert aligned.usage.dtype == usage.dtype


def test_the_permutation_maps_the_draws_to_the_aligned_ones():
    usage, basis = _noisy_draws(np.random.default_rng(1))
    aligned = align(usage, basis)
    assert (np.sort(aligned.permutation, axis=2) == np.arange(RANK)).all()
    again = apply_permutation(usage, basis, aligned.permutation)
    np.testing.assert_array_equal(again[0], aligned.usage)
    np.testing.assert_array_equal(again[1], aligned.basis)
    np.testing.assert_allclose(aligned.pivot_usage, aligned.usage.mean(axis=(0, 1)))
    np.testing.assert_allclose(aligned.pivot_basis, aligned.basis.mean(axis=(0, 1)))


@pytest.mark.parametrize("seed", range(4))
def test_more_iterations_never_cost_more(seed):
    usage, basis = _noisy_draws(np.random.default_rng(seed), draws=30, noise=1.5)
    costs = [align(usage, basis, max_iterations=n).cost for n in range(1, 9)]
    assert (np.diff(costs) <= 1e-9).all()
    assert costs[-1] < costs[0]


def test_cost_is_the_squared_distance_from_the_mean_of_the_own_chain():
    usage, basis = _noisy_draws(np.random.default_rng(3))
    aligned = align(usage, basis)
    distance = sum(
        np.square(x - x.mean(axis=1, keepdims=True)).sum() for x in (aligned.usage, aligned.basis)
    )
    assert aligned.cost == pytest.approx(distance)


def test_every_draw_has_the_cheapest_of_all_its_permutations():
    from itertools import permutations

    usage, basis = _noisy_draws(np.random.default_rng(4), chains=1, draws=6, noise=1.0)
    aligned = align(usage, basis, max_iterations=50)
    assert aligned.converged
    for u, b in zip(usage[0], basis[0], strict=True):
        costs = {
            order: np.square(u[:, order] - aligned.pivot_usage).sum()
            + np.square(b[:, order] - aligned.pivot_basis).sum()
            for order in permutations(range(RANK))
        }
        chosen = np.square(aligned.usage[0] - aligned.pivot_usage).sum(axis=(1, 2)) + np.square(
            aligned.basis[0] - aligned.pivot_basis
        ).sum(axis=(1, 2))
        assert np.isclose(chosen, min(costs.values())).any()


def test_the_pivot_gives_the_order():
    usage, basis = _noisy_draws(np.random.default_rng(5), noise=0.02)
    for chain, draw in [(0, 0), (1, 6), (2, 3)]:
        aligned = align(usage, basis, pivot=(chain, draw))
        np.testing.assert_array_equal(aligned.permutation[chain, draw], np.arange(RANK))


def test_usage_and_basis_are_matched_together():
    # The usage columns are all equal, so that only the basis tells the factors apart.
    rng = np.random.default_rng(6)
    usage, basis = np.ones((ROWS, RANK)), rng.random((COLUMNS, RANK))
    aligned = align(*_shuffled(usage, basis, _permutations(rng, 2, 4)))
    assert (aligned.basis == aligned.basis[0, 0]).all()


def test_a_chain_keeps_factors_of_its_own_apart():
    """Two chains share no factor: within each the draws must still line up."""
    rng = np.random.default_rng(7)
    chains = [
        _shuffled(rng.random((ROWS, RANK)), rng.random((COLUMNS, RANK)), _permutations(rng, 1, 10))
        for _ in range(2)
    ]
    usage, basis = (np.concatenate(x) for x in zip(*chains, strict=True))
    aligned = align(usage, basis)
    assert aligned.cost == pytest.approx(0, abs=1e-9)
    assert (aligned.usage == aligned.usage[:, :1]).all()


@pytest.mark.parametrize(
    ("usage", "basis", "options", "message"),
    [
        ((2, 3, 5, 2), (2, 3, 4), {}, "give arrays"),
        ((2, 3, 5, 2), (2, 3, 4, 3), {}, "same chains, draws and rank"),
        ((2, 0, 5, 2), (2, 0, 4, 2), {}, "at least one chain"),
        ((2, 3, 5, 2), (2, 3, 4, 2), {"pivot": (2, 0)}, "pivot is"),
        ((2, 3, 5, 2), (2, 3, 4, 2), {"pivot": (0, -1)}, "pivot is"),
        ((2, 3, 5, 2), (2, 3, 4, 2), {"max_iterations": 0}, "max_iterations is 0"),
    ],
)
def test_bad_input_is_refused(usage, basis, options, message):
    with pytest.raises(InputError, match=message):
        align(np.zeros(usage), np.zeros(basis), **options)

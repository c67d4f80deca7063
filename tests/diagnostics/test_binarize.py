"""The expected loss is what it says, and the search for its smallest value is right."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmfjax.data.errors import InputError
from bmfjax.diagnostics.binarize import binarize, expected_hamming_factors, factor_thresholds
from bmfjax.diagnostics.flips import ascend, coverage, objective
from bmfjax.diagnostics.reconstruction import boolean_product

seeds = st.integers(0, 2**32 - 1)


def _case(seed, rows=8, columns=6, rank=3):
    rng = np.random.default_rng(seed)
    probability = rng.random((rows, columns))
    return probability, rng.random((rows, rank)), rng.random((columns, rank))


def _loss(probability, usage, basis, false_positive_cost=1.0, false_negative_cost=1.0):
    """The expected loss entry by entry."""
    ones = boolean_product(usage, basis)
    cost = np.where(
        ones, false_positive_cost * (1 - probability), false_negative_cost * probability
    )
    return cost.sum()


def _all_factors(length, rank):
    for bits in product([False, True], repeat=length * rank):
        yield np.array(bits).reshape(length, rank)


def test_expected_loss_is_the_mean_over_all_true_matrices():
    probability, usage, basis = _case(0, rows=2, columns=3, rank=2)
    found = binarize(usage, basis, probability, false_positive_cost=2.0, false_negative_cost=0.5)
    ones = boolean_product(found.usage, found.basis)
    mean = 0.0
    for truth in _all_factors(2, 3):
        weight = np.where(truth, probability, 1 - probability).prod()
        mean += weight * (2.0 * (ones & ~truth).sum() + 0.5 * (truth & ~ones).sum())
    assert found.expected_loss == pytest.approx(mean)


@given(seed=seeds, cost=st.floats(0.2, 5))
@settings(max_examples=25)
def test_flips_end_where_no_column_can_be_improved(seed, cost):
    probability, usage, basis = _case(seed)
    start = usage > 0.5, basis > 0.5
    found = expected_hamming_factors(probability, *start, false_positive_cost=cost)
    assert found.expected_loss == pytest.approx(_loss(probability, found.usage, found.basis, cost))
    assert found.expected_loss <= _loss(probability, *start, cost) + 1e-9
    for side in (0, 1):
        for index in np.ndindex(found[side].shape):
            changed = [found.usage.copy(), found.basis.copy()]
            changed[side][index] ^= True
            assert _loss(probability, *changed, cost) >= found.expected_loss - 1e-9


@given(seed=seeds)
@settings(max_examples=25)
def test_every_sweep_lowers_the_loss_or_keeps_it(seed):
    probability, usage, basis = _case(seed, rows=15, columns=12, rank=4)
    start = usage > 0.4, basis > 0.4
    losses = [
        expected_hamming_factors(probability, *start, max_sweeps=n).expected_loss
        for n in range(1, 10)
    ]
    assert (np.diff([_loss(probability, *start), *losses]) <= 1e-9).all()


@pytest.mark.parametrize("seed", range(10))
def test_best_start_reaches_the_global_optimum_of_a_tiny_case(seed):
    probability, _, _ = _case(seed, rows=3, columns=3)
    everything = [(a, b) for a in _all_factors(3, 1) for b in _all_factors(3, 1)]
    best = min(_loss(probability, a, b) for a, b in everything)
    reached = [expected_hamming_factors(probability, a, b).expected_loss for a, b in everything]
    assert min(reached) == pytest.approx(best)
    # Local optima exist, but a start with the best basis and any non-empty usage is never one.
    _, b = min(everything, key=lambda pair: _loss(probability, *pair))
    found = expected_hamming_factors(probability, np.zeros((3, 1), bool), b)
    assert found.expected_loss == pytest.approx(best)


@pytest.mark.parametrize("seed", range(3))
def test_two_factors_from_all_starts_reach_the_global_optimum(seed):
    probability, _, _ = _case(seed, rows=3, columns=2)
    everything = [(a, b) for a in _all_factors(3, 2) for b in _all_factors(2, 2)]
    best = min(_loss(probability, a, b) for a, b in everything)
    for a, b in everything[:: 1 + seed]:
        assert expected_hamming_factors(probability, a, b).expected_loss >= best - 1e-9
    assert min(
        expected_hamming_factors(probability, a, b).expected_loss for a, b in everything
    ) == pytest.approx(best)


def test_gains_that_cancel_do_not_lose_a_factor():
    gain = np.array([[1.0, 1, -1], [1, 1, -1]])
    start = np.array([[True], [False]]), np.array([[True], [False], [True]])
    usage, basis = ascend(gain, *start, 20)
    assert objective(gain, usage, basis) == 4


def test_gains_that_still_cancel_in_the_end_are_dropped():
    gain = np.array([[1.0, 1], [1, -1]])
    usage, basis = ascend(gain, np.ones((2, 1), bool), np.ones((2, 1), bool), 20)
    assert objective(gain, usage, basis) == 2
    assert usage.sum() + basis.sum() == 3


def test_a_copy_of_a_factor_is_emptied():
    probability = np.where(np.eye(6) > 0, 0.9, 0.1)
    column = np.eye(6, dtype=bool)[:, :1]
    both = np.concatenate([column, column], axis=1)
    found = expected_hamming_factors(probability, both, both)
    assert np.count_nonzero(found.usage.any(axis=0)) == 1
    np.testing.assert_array_equal(found.usage.any(axis=0), found.basis.any(axis=0))


def test_coverage_stays_in_step_with_the_flips():
    """The answer of a warm start equals that of a fresh one from the same place."""
    probability, usage, basis = _case(3, rows=20, columns=20, rank=5)
    once = ascend(probability - 0.5, usage > 0.5, basis > 0.5, 50)
    again = ascend(probability - 0.5, *once, 50)
    np.testing.assert_array_equal(once[0], again[0])
    np.testing.assert_array_equal(once[1], again[1])
    assert (coverage(*once) > 0).tolist() == boolean_product(*once).tolist()


@given(seed=seeds, levels=st.integers(2, 8))
@settings(max_examples=20)
def test_factor_thresholds_are_the_best_of_one_factor(seed, levels):
    """Rank one: no pair of thresholds at all is better, with or without tied values."""
    probability, usage, basis = _case(seed, rank=1)
    usage, basis = np.round(usage * levels) / levels, np.round(basis * levels) / levels
    tau_usage, tau_basis = factor_thresholds(probability, usage, basis)
    cuts = [-1, *np.unique(np.concatenate([usage, basis]))]
    best = min(_loss(probability, usage > s, basis > t) for s in cuts for t in cuts)
    assert _loss(probability, usage > tau_usage, basis > tau_basis) == pytest.approx(best)


@given(seed=seeds)
@settings(max_examples=10)
def test_factor_thresholds_improve_on_every_single_one(seed):
    probability, usage, basis = _case(seed)
    tau_usage, tau_basis = factor_thresholds(probability, usage, basis)
    single = min(_loss(probability, usage > tau, basis > tau) for tau in np.arange(1, 100) / 100)
    assert _loss(probability, usage > tau_usage, basis > tau_basis) <= single + 1e-9


@given(seed=seeds, cost=st.floats(0.2, 5))
@settings(max_examples=15)
def test_binarize_is_no_worse_than_any_single_threshold(seed, cost):
    probability, usage, basis = _case(seed)
    found = binarize(usage, basis, probability, false_negative_cost=cost)
    assert found.expected_loss == pytest.approx(
        _loss(probability, found.usage, found.basis, false_negative_cost=cost)
    )
    for tau in (0.2, 0.5, 0.8):
        loss = _loss(probability, usage > tau, basis > tau, false_negative_cost=cost)
        assert found.expected_loss <= loss + 1e-9


def test_the_truth_is_found_where_factors_have_scales_of_their_own():
    """No single threshold fits: half of the factors lie below the background of the others."""
    rng = np.random.default_rng(5)
    usage, basis = rng.random((60, 6)) < 0.2, rng.random((50, 6)) < 0.2
    truth = boolean_product(usage, basis)
    scale = np.array([0.9, 0.9, 0.9, 0.2, 0.2, 0.2])
    relaxed = [scale * (0.6 * x + 0.4 * rng.random(x.shape)) for x in (usage, basis)]
    found = binarize(*relaxed, np.where(truth, 0.7, 0.2))
    np.testing.assert_array_equal(boolean_product(found.usage, found.basis), truth)


def test_single_precision_stays_single():
    probability, usage, basis = _case(7)
    narrow = binarize(*(x.astype(np.float32) for x in (usage, basis, probability)))
    wide = binarize(usage, basis, probability)
    assert narrow.expected_loss == pytest.approx(wide.expected_loss, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probability": np.full((8, 6), 1.5)}, "outside"),
        ({"probability": np.full((8, 6), np.nan)}, "outside"),
        ({"probability": np.zeros((6, 8))}, "one probability for every entry"),
        ({"usage": np.zeros((8, 2))}, "give \\(rows, rank\\)"),
        ({"false_positive_cost": 0.0}, "false_positive_cost is 0"),
        ({"false_negative_cost": -1.0}, "false_negative_cost is -1"),
    ],
)
def test_bad_input_is_refused(change, message):
    probability, usage, basis = _case(8)
    arguments = {"usage": usage, "basis": basis, "probability": probability} | change
    with pytest.raises(InputError, match=message):
        binarize(**arguments)


def test_flips_need_boolean_factors_and_sweeps():
    probability, usage, basis = _case(9)
    with pytest.raises(InputError, match="not Boolean"):
        expected_hamming_factors(probability, usage, basis)
    with pytest.raises(InputError, match="max_sweeps is 0"):
        expected_hamming_factors(probability, usage > 0.5, basis > 0.5, max_sweeps=0)
    with pytest.raises(InputError, match="max_sweeps is 0"):
        factor_thresholds(probability, usage, basis, max_sweeps=0)

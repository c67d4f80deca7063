"""Calibration: the tests accept samplers that are right and catch those that are not."""

import numpy as np
import pytest
from scipy.stats import kstest

from bmfjax.data.errors import InputError
from bmfjax.diagnostics import geweke_scores, rank_statistics, rank_uniformity

# ---- ranks -------------------------------------------------------------------------------------


def test_ranks_count_the_draws_below_the_truth():
    r = np.random.default_rng(0)
    draws, truth = r.normal(size=(50, 9, 2, 3)), r.normal(size=(50, 2, 3))
    found = rank_statistics(draws, truth)
    assert found.shape == (50, 2, 3) and np.issubdtype(found.dtype, np.integer)
    for place in np.ndindex(found.shape):
        below = draws[place[0], :, place[1], place[2]] < truth[place]
        assert found[place] == below.sum()


def test_a_truth_tied_with_draws_takes_any_place_among_them():
    draws = np.tile([0.0, 1.0, 1.0, 1.0, 2.0], (4000, 1))
    found = rank_statistics(draws, np.ones(4000), seed=3)
    counts = np.bincount(found, minlength=6)
    assert counts[[0, 5]].sum() == 0
    np.testing.assert_allclose(counts[1:5] / 4000, 0.25, atol=0.03)
    np.testing.assert_array_equal(found, rank_statistics(draws, np.ones(4000), seed=3))
    assert (found != rank_statistics(draws, np.ones(4000), seed=4)).any()
    # All tied, as of a quantity with one value only: uniform, and the test says so.
    ranks = rank_statistics(np.zeros((2000, 19)), np.zeros(2000))
    assert rank_uniformity(ranks, 19) > 0.01


@pytest.mark.parametrize(
    ("draws", "truth"),
    [
        (np.zeros((5, 3)), np.zeros(4)),
        (np.zeros((5, 3, 2)), np.zeros((5, 3))),
        (np.zeros(5), np.zeros(5)),
        (np.zeros((5, 0)), np.zeros(5)),
        (np.full((5, 3), np.nan), np.zeros(5)),
        (np.zeros((5, 3)), np.full(5, np.nan)),
    ],
)
def test_draws_and_truth_that_do_not_belong_together_are_refused(draws, truth):
    with pytest.raises(InputError, match=r"^draws "):
        rank_statistics(draws, truth)


@pytest.mark.parametrize(
    ("num_draws", "bins"),
    [(31, None), (30, None), (4, None), (22, 7), (1, None)],
    ids=["equal", "one large", "few", "unequal", "two"],
)
def test_uniform_ranks_have_uniform_p_values(num_draws, bins):
    ranks = np.random.default_rng(1).integers(0, num_draws + 1, (600, 50, 40))
    found = rank_uniformity(ranks, num_draws, bins=bins)
    assert found.shape == (50, 40)
    # The statistic is discrete: with two ranks visibly so.
    assert kstest(found.ravel(), "uniform").statistic < (0.04 if num_draws > 1 else 0.06)


def one_sampler(shift=0.0, scale=1.0, replicates=2000, num_draws=31):
    """Ranks for the posterior N(0, 1) drawn with a wrong mean or a wrong spread."""
    r = np.random.default_rng(2)
    draws = shift + scale * r.normal(size=(replicates, num_draws))
    return rank_statistics(draws, r.normal(size=replicates))


@pytest.mark.parametrize(
    "wrong", [{"shift": 0.2}, {"shift": -0.2}, {"scale": 1.25}, {"scale": 0.8}], ids=str
)
def test_shifted_and_mis_spread_draws_are_caught(wrong):
    assert rank_uniformity(one_sampler(), 31) > 0.01
    assert rank_uniformity(one_sampler(**wrong), 31) < 1e-5


@pytest.mark.parametrize(
    ("ranks", "num_draws", "bins", "message"),
    [
        ([0.5] * 100, 9, None, "whole numbers from 0 to 9"),
        ([10] * 100, 9, None, "whole numbers from 0 to 9"),
        ([-1] * 100, 9, None, "whole numbers from 0 to 9"),
        (np.zeros((0, 2), int), 9, None, "whole numbers"),
        (3, 9, None, "whole numbers"),
        ([1] * 100, 9, 11, "bins is 11; give a whole number from 2 to 10"),
        ([1] * 100, 9, 1, "bins is 1"),
        ([1] * 15, 9, None, "15 replicates in 2 bins"),
        ([1] * 99, 9, 10, "9.9 a bin"),
    ],
)
def test_ranks_that_cannot_be_tested_are_refused(ranks, num_draws, bins, message):
    with pytest.raises(InputError, match=message):
        rank_uniformity(np.asarray(ranks), num_draws, bins=bins)


# ---- Geweke's scores ---------------------------------------------------------------------------


def autoregressive(seed, draws, statistics, correlation=0.8):
    r = np.random.default_rng(seed)
    noise = r.normal(size=(draws, statistics))
    x = noise.copy()
    for t in range(1, draws):
        x[t] = correlation * x[t - 1] + np.sqrt(1 - correlation**2) * noise[t]
    return x


def test_the_scores_of_a_right_chain_are_standard_normal():
    independent = np.random.default_rng(3).normal(size=(3000, 400))
    found = geweke_scores(5.0 + independent, 5.0 + autoregressive(4, 6000, 400))
    assert found.shape == (2, 400)
    for scores in found:
        assert abs(scores.mean()) < 0.2
        assert 0.9 < scores.std() < 1.12
        assert kstest(scores, "norm").pvalue > 0.01


def test_chains_side_by_side_are_as_good_as_one():
    independent = np.random.default_rng(3).normal(size=(3000, 2))
    chains = np.stack([autoregressive(seed, 1000, 2) for seed in range(8)])
    found = geweke_scores(independent, chains)
    assert (np.abs(found) < 3.5).all()
    assert geweke_scores(independent, chains + np.array([0.3, 0.0]))[0, 0] > 4


def test_a_shift_and_a_wrong_spread_are_caught_each_by_its_moment():
    marginal = np.random.default_rng(5).normal(size=(4000, 3))
    chain = autoregressive(6, 8000, 3) * [1.0, 1.0, 1.3] + [0.0, 0.25, 0.0]
    mean, square = geweke_scores(marginal, chain)
    assert abs(mean[0]) < 3.5 and abs(square[0]) < 3.5
    assert mean[1] > 5 and abs(mean[2]) < 3.5 and square[2] > 8


def test_a_statistic_that_never_moves_has_no_score():
    r = np.random.default_rng(7)
    chain = np.stack([r.normal(size=500), np.full(500, 0.1)], axis=1)
    found = geweke_scores(r.normal(size=(500, 2)), chain)
    assert np.isfinite(found[:, 0]).all() and np.isnan(found[:, 1]).all()


@pytest.mark.parametrize(
    ("marginal", "successive", "message"),
    [
        (np.zeros(9), np.zeros((9, 1)), "give both as"),
        (np.zeros((9, 2)), np.zeros((9, 1)), "same statistics"),
        (np.zeros((9, 1)), np.zeros(9), "give both as"),
        (np.zeros((3, 1)), np.zeros((9, 1)), "at least 4"),
        (np.full((9, 1), np.inf), np.zeros((9, 1)), "finite"),
        (np.zeros((9, 1)), np.zeros((3, 1)), "at least 4"),
        (np.zeros((9, 1)), np.full((9, 1), np.nan), "nan or inf"),
    ],
)
def test_statistics_that_cannot_be_compared_are_refused(marginal, successive, message):
    with pytest.raises(InputError, match=message):
        geweke_scores(marginal, successive)

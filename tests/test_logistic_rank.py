"""Fits of the logistic model that find the number of factors."""

import functools

import numpy as np
import pytest
from scipy.special import expit

import bmfjax
from bmfjax.data import BinaryMatrix
from bmfjax.families.logistic import noise_of_log_odds
from bmfjax.report.page import render
from bmfjax.verdict import Mixing, of_starts

SIZE = {"model": "logistic", "max_rank": 8, "num_samples": 40, "progress": False}


def made(rank, shape=(200, 100), seed=0):
    """Three factors of the log odds, some entries missing, and two lines of which nothing is."""
    rng = np.random.default_rng(seed)
    usage, basis = (rng.normal(size=(n, rank)) for n in shape)
    values = (rng.random(shape) < expit(1.2 * usage @ basis.T - 0.5)).astype(float)
    values[rng.random(shape) < 0.1] = np.nan
    values[7], values[:, 5] = np.nan, np.nan
    return values


@functools.cache
def fitted(rank):
    return bmfjax.fit(made(rank), "auto", **SIZE)


@functools.cache
def small(sampler):
    """One start, of a program that is quick to compile."""
    options = SIZE | {"sampler": sampler, "max_rank": 3, "num_chains": 1}
    return bmfjax.fit(made(2, (100, 60)), "auto", **options)


def test_every_start_finds_the_number_of_factors():
    fit = fitted(3)
    assert fit._rank_draws.shape == (4, 40) and (fit._rank_draws == 3).all()
    assert fit.rank_probabilities == {3: 1.0} and fit.rank == fit.figures.rank == 3
    assert fit.figures.settled and fit.figures.rank_agreeing == 1.0
    assert fit.settings["max_rank"] == 8 and fit.settings["priors"]["relevance"] == [0.5, 0.0005]
    assert "their number is 3 with probability 1.00" in str(fit.verdict)
    assert "that of a variational approximation, which is too narrow" in str(fit.verdict)


@pytest.mark.long
def test_entries_drawn_and_all_entries_tell_the_same():
    """The number, and log odds, within what sampled entries are still on their way."""
    for sampler in ("batch", "svi"):
        fit = small(sampler)
        assert fit.figures.settled and fit.rank_probabilities == {2: 1.0} and fit.rank == 2
        assert "their number, 2, not compared" in str(fit.verdict)
    odds = [small(sampler).predict().ravel() for sampler in ("batch", "svi")]
    assert np.corrcoef(*odds)[0, 1] > 0.97
    assert abs(expit(odds[0]) - expit(odds[1])).mean() < 0.04


def test_noise_has_no_factor():
    fit = fitted(0)
    assert fit.rank_probabilities == {0: 1.0} and fit.rank == 1  # a result has a column
    assert fit.figures.converged and "heir number is 0 with prob" in str(fit.verdict)


def test_what_is_left_are_the_factors_that_are_used():
    """The approximation is that of a fit with three factors, also for new rows and on disk."""
    fit = fitted(3)
    at = fit.approximation
    assert {a.shape[-1] for n, a in at.items() if not n.startswith("bias")} == {3}
    drawn = fit.draws()
    z = (drawn["usage"] - at["usage_mean"][:, None]) / np.sqrt(at["usage_variance"])[:, None]
    assert z.std() == pytest.approx(1.0, abs=5 / np.sqrt(z.size))
    # What was left out adds nothing: all factors of either side are found again.
    assert prediction_error(fit) < prediction_error(fitted(0)) - 0.1
    np.testing.assert_allclose(fit.transform(made(3)), fit.usage, atol=0.03)
    # A row of which nothing is known has the learned precisions.
    precision = at["relevance_shape"] / at["relevance_rate"]
    np.testing.assert_allclose(at["usage_variance"][:, 7], 1 / precision, rtol=0.02)


def prediction_error(fit):
    """Mean log loss of the entries that were fitted."""
    values, chance = made(3), fit.probability()
    return -np.nanmean(np.where(values == 1, np.log(chance), np.log1p(-chance)) + 0 * values)


def test_a_fit_comes_back_from_disk_with_its_number(tmp_path):
    fit = fitted(3)
    again = bmfjax.Fit.load(fit.save(tmp_path / "fit"))
    assert again.rank_probabilities == fit.rank_probabilities and again.verdict == fit.verdict
    np.testing.assert_array_equal(again.transform(made(3)[:4]), fit.transform(made(3)[:4]))
    page = render(again)
    assert "How many factors are there?" in page and "the dots those of each start" in page
    assert "variational approximation, which is too narrow" in page


@pytest.mark.parametrize("chance", [0.5, 0.02])
def test_the_noise_of_log_odds_is_that_of_a_logistic_regression(chance):
    """An intercept is known up to the noise of an entry over the root of their number."""
    data, log_odds = BinaryMatrix(np.eye(30)), np.log(chance / (1 - chance))
    side = {
        f"{n}_{m}": np.zeros((2, 30, 1)) for n in ("usage", "basis") for m in ("mean", "variance")
    }
    at = side | {"bias_mean": np.full(2, log_odds), "bias_variance": np.zeros(2)}
    rng = np.random.default_rng(0)
    shares = rng.binomial(900, chance, 20_000) / 900
    scatter = np.log(shares / (1 - shares)).std()
    np.testing.assert_allclose(noise_of_log_odds(data, at) / 30, scatter, rtol=0.05)


def test_starts_that_disagree_on_the_number_are_told_of():
    elbo, steps = np.full((4, 60), -100.0), np.full(4, 60)
    entries = Mixing(np.ones(5), None)
    ranks = np.repeat([[3], [3], [2], [3]], 20, axis=1)
    given = entries, np.ones(3), elbo, steps, np.full(4, True), 1000
    judged = of_starts(*given, sampled=False, ranks=ranks)
    figures = judged.figures
    assert figures.rank == 3 and figures.rank_agreeing == 0.75 and not figures.converged
    assert figures.rank_probability == 0.75
    assert judged.number.said.startswith("their number does not hold yet (")
    assert judged.status == "in part" and "P(rank) is that of a variational" in str(judged)
    assert of_starts(*given, sampled=False, ranks=ranks[:2]).figures.converged is True
    assert of_starts(*given, sampled=False).figures.converged is True

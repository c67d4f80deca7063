"""Leave-one-out scores against exact ones, and stacking weights against the convex optimum."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from bmfjax.data import InputError
from bmfjax.diagnostics import leave_one_out, stacking_weights
from bmfjax.diagnostics.leave_one_out import left_out_means, percent, smoothed


def test_normal_draws_give_the_exact_predictive_density():
    """Mean of normal data under a flat prior: all is normal, with and without an entry."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=30)
    draws = rng.normal(data.mean(), 30**-0.5, (8000, 1))
    found = leave_one_out(stats.norm.logpdf(data, draws, 1.0))
    rest = (data.sum() - data) / 29
    exact = stats.norm.logpdf(data, rest, (1 + 1 / 29) ** 0.5)
    np.testing.assert_allclose(found.log_score, exact, atol=0.01)
    assert not found.doubtful.any()
    places = left_out_means(stats.norm.logpdf(data, draws, 1.0), stats.norm.cdf(data, draws, 1.0))
    expected = stats.norm.cdf(data, rest, (1 + 1 / 29) ** 0.5)
    np.testing.assert_allclose(places, expected, atol=0.003)
    # Other than those of draws that have seen the entry.
    assert np.abs(stats.norm.cdf(data, draws, 1.0).mean(0) - expected).max() > 0.006


def test_coins_give_the_exact_predictive_probability():
    """Beta-Bernoulli: without a one there are (ones - 1 + 1) / (number - 1 + 2) of them."""
    ones, number = 3, 12
    draws = np.random.default_rng(1).beta(1 + ones, 1 + number - ones, (8000, 1))
    found = leave_one_out(np.log(np.concatenate([draws, 1 - draws], 1)))
    exact = [ones / (number + 1), (number - ones) / (number + 1)]
    np.testing.assert_allclose(np.exp(found.log_score), exact, rtol=0.02)


def test_flipped_bits_are_not_smoothed():
    """Of a bit that some draws explain the ratios are two numbers, and no Pareto tail."""
    rng, flip, share = np.random.default_rng(2), 0.05, 0.97
    rates = flip * np.exp(rng.normal(0, 0.05, (2000, 1)))
    density = np.where(rng.random((2000, 40)) < share, np.log1p(-rates), np.log(rates))
    exact = -np.log(share / (1 - flip) + (1 - share) / flip)
    bounded = leave_one_out(density, bounded=True)
    assert abs(bounded.log_score.mean() - exact) < 0.02 and not bounded.doubtful.any()
    # The test can fail: quantiles of a Pareto distribution miss the second number.
    assert abs(leave_one_out(density).log_score.mean() - exact) > 0.2
    stuck = np.where(np.arange(2000)[:, None] == 7, np.log(1e-6), np.log(0.9))
    assert leave_one_out(stuck, bounded=True).doubtful.all()


def test_smoothing_is_that_of_arviz():
    arviz = pytest.importorskip("arviz")
    if not hasattr(arviz, "psislw"):
        pytest.skip("ArviZ 1.x has it elsewhere")
    ratios = np.random.default_rng(3).standard_t(3, (500, 6)) * np.linspace(0.1, 2, 6)
    theirs, shape = arviz.psislw(ratios.T.copy())
    mine, own = smoothed(np.sort(ratios, 0))
    np.testing.assert_allclose(own, shape, atol=1e-9)
    mine = np.exp(mine) / np.exp(mine).sum(0)
    np.testing.assert_allclose(mine, np.exp(np.sort(theirs, 1)).T, rtol=1e-9)


def test_tails_that_say_nothing_are_doubted():
    heavy = -(np.random.default_rng(4).standard_cauchy((1000, 1)) ** 2)
    assert leave_one_out(heavy).doubtful.all()
    assert leave_one_out(np.zeros((10, 1)) + np.arange(10.0)[:, None]).doubtful.all()  # too few
    assert not leave_one_out(np.full((100, 1), -2.0)).doubtful.any()  # constant
    # Of one draw that is hopeless, the others weigh nothing, or the smallest number there is.
    values = np.linspace(-1.0, -20.0, 200)[:, None] * np.ones(2)
    for lowest in (-300.0, -740.0, -750.0, -1e8):
        values[0] = lowest
        found = leave_one_out(values)
        assert np.isfinite(found.log_score).all() and found.doubtful.all()


def test_scores_that_cannot_be_are_refused():
    with pytest.raises(InputError, match=r"give \(draw, entry\)"):
        leave_one_out(np.zeros(3))
    with pytest.raises(InputError, match="not finite"):
        leave_one_out(np.array([[0.0], [-np.inf]]))
    with pytest.raises(InputError, match=r"give \(posterior, entry\)"):
        stacking_weights(np.zeros(3))


def test_stacking_is_the_convex_optimum():
    scores = np.log(np.random.default_rng(5).random((4, 300)))
    scores[3] -= 5.0  # of no use, so that a weight is at its bound

    def loss(weights):
        return -np.log(weights @ np.exp(scores)).mean()

    best = minimize(
        loss, np.full(4, 0.25), bounds=[(0, 1)] * 4, options={"ftol": 1e-14}, method="SLSQP",
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
    )  # fmt: skip
    found = stacking_weights(scores)
    assert found.sum() == pytest.approx(1) and loss(found) <= best.fun + 1e-5
    np.testing.assert_allclose(found, best.x, atol=0.01)


def test_stacking_finds_the_proportions_of_a_mixture():
    rng, share = np.random.default_rng(6), 0.7
    data = np.where(rng.random(20_000) < share, rng.normal(-1, 1, 20_000), rng.normal(2, 1, 20_000))
    found = stacking_weights([stats.norm.logpdf(data, mean) for mean in (-1, 2)])
    np.testing.assert_allclose(found, [share, 1 - share], atol=0.02)
    # Two that are the same share a weight.
    twice = stacking_weights([stats.norm.logpdf(data, mean) for mean in (-1, -1, 2)])
    np.testing.assert_allclose(twice, [share / 2, share / 2, 1 - share], atol=0.02)


@pytest.mark.parametrize("apart", [0.0, 1e-3, 0.3, 30.0])
def test_few_steps_are_enough_however_alike_posteriors_are(apart):
    """Steps of expectation maximisation were tens of thousands where one has a weight of zero."""
    rng = np.random.default_rng(7)
    scores = np.log(rng.uniform(0.1, 0.9, 800)) + apart * rng.normal(size=(4, 800))
    scores[0] += 0.5 * apart
    found = stacking_weights(scores, max_steps=15)
    densities = np.exp(scores - scores.max(0))
    assert (found >= 0).all() and found.sum() == pytest.approx(1)
    assert (densities / (found @ densities)).mean(1).max() <= 1 + 1e-5


def test_a_share_has_no_negative_zero_and_no_error_of_zero():
    assert percent(0.284, 0.012) == "28 ± 1 %" and percent(-0.04, 0.03) == "-4 ± 3 %"
    assert percent(-0.001, 0.02) == "0 ± 2 %"
    assert percent(-0.001, 0.0) == "0 %, ± less than 1 %"
    assert percent(0.5, 0.004) == "50 %, ± less than 1 %"

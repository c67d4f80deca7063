"""Predictions averaged over chains by stacking weights."""

import dataclasses

import numpy as np
import pytest
from scipy.special import logsumexp

from bmfjax.data import InputError
from bmfjax.posterior.model_check import _stacked, left_out
from bmfjax.result.stacked import draws_by_weight
from bmfjax.verdict import Figures, Verdict, with_fit
from tests.test_cells import CHAINS, fit_of

CELLS = np.random.default_rng(0).integers(0, 37, (2, 60))


def weighed(model, *weights):
    fit = fit_of(model, draws=100)
    figures = fit.verdict.changed(stacking_weights=weights or None)
    return dataclasses.replace(fit, verdict=figures)


@pytest.mark.parametrize("model", ["ormachine", "features", "pmf"])
def test_draws_are_those_of_each_chain_by_its_weight(model):
    """As many parts as it weighs, each of draws that are spaced; all that belongs to a draw."""
    fit = weighed(model, 0.75, 0.25)
    stacked = fit.stacked()
    assert stacked.usage_draws.shape[:2] == (20, 6)
    assert str(stacked.verdict).startswith("Chains weighed by stacking, 0.75, 0.25. ")
    chains, places = draws_by_weight((0.75, 0.25), 100)
    assert np.bincount(chains).tolist() == [15, 5]
    own = places[chains == 0].ravel()
    assert len(set(own)) == len(own) and np.ptp(own) > 90
    cells = (*CELLS, np.ones(60))
    every = fit._log_density(*cells).reshape(CHAINS, 100, -1)
    expected = every[chains[:, None], places].reshape(120, -1)
    np.testing.assert_array_equal(stacked._log_density(*cells), expected)


@pytest.mark.parametrize(("weights", "kept"), [((0.52, 0.48), 4), ((1.0, 0.0), 15), ((1, 1), 1)])
def test_parts_share_draws_where_there_are_few(weights, kept):
    """Evenly: every draw of a chain is in as many parts as any other, or in one more."""
    chains, places = draws_by_weight(weights, kept)
    assert places.shape == (20, 1)
    for chain in np.unique(chains):
        times = np.bincount(places[chains == chain].ravel(), minlength=kept)
        assert len(times) == kept and 0 <= np.ptp(times) <= 1 and times.min() >= 1


def test_a_fit_of_few_draws_can_be_weighed():
    few = dataclasses.replace(
        fit_of("pmf", draws=4),
        verdict=weighed("pmf", 0.52, 0.48).verdict,
    )
    assert few.stacked().predict([0], [0]).shape == (1, 1)


def test_one_chain_and_a_mixture_have_nothing_to_weigh():
    with pytest.raises(InputError, match="a fit of one chain has nothing to weigh"):
        weighed("pmf").stacked()
    with pytest.raises(InputError, match="a mixture of its starts"):
        weighed("logistic", 0.5, 0.5).stacked()


def test_the_verdict_says_how_chains_that_are_apart_are_averaged():
    """Of two chains the one that predicts better has the weight, or most of it."""
    fit = fit_of("features", draws=100)
    found = left_out(fit)
    assert len(found.weights) == CHAINS and sum(found.weights) == pytest.approx(1.0)
    assert abs(found.gain) < 0.1 and found.gain_error > 0
    good = Figures(num_chains=2, exact=True, factors_agreeing=1.0, mc_error=0.02)
    for apart, told in ((0.21, True), (0.19, False)):
        judged = Verdict(dataclasses.replace(good, chains_apart=apart))
        said = str(with_fit(judged, found.figures))
        assert ("Predictions are averaged over chains alike" in said) is told


def test_the_gain_of_stacking_is_that_on_entries_it_has_not_seen():
    """Of chains that predict alike but for noise it is no gain; of one that is right it is."""
    rng = np.random.default_rng(0)
    noise = np.log(rng.uniform(0.3, 0.7, (4, 200)))
    weights, gain, error = _stacked(noise, 0)
    seen = logsumexp(noise, axis=0, b=np.array(weights)[:, None]) - logsumexp(noise, 0, b=0.25)
    assert seen.mean() > 0 and gain < 0 < error
    right = np.stack([np.full(200, np.log(0.9)), *noise[1:]])
    weights, gain, error = _stacked(right, 0)
    assert weights[0] > 0.99 and gain > 10 * error
    equal = logsumexp(right, axis=0, b=0.25)
    assert gain == pytest.approx(np.log(0.9) - equal.mean(), abs=1e-3)
    assert _stacked(noise[:1], 0) == (None, None, None)

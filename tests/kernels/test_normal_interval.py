"""Probabilities, hazards and draws of a normal variable in intervals of any width and place."""

import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import truncnorm

from bmfjax.kernels.numerics.normal_interval import between, interval
from tests.kernels.exactness import fast_jit


@pytest.fixture(params=[1.0, 6.0, 30.0], scope="module", ids="{:.0f} sd off".format)
def intervals(request):
    rng, number = np.random.default_rng(0), 20_000
    low = np.float32(request.param * rng.normal(size=number))
    high = low + np.float32(10 ** rng.uniform(-5, 1.6, number))
    high[::5], low[1::5] = np.inf, -np.inf
    return low, high


def log_mass(low, high):
    flip = low + high > 0
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    return log_ndtr(b) + np.log1p(-np.exp(np.minimum(log_ndtr(a) - log_ndtr(b), -1e-300)))


def test_probabilities_and_hazards(intervals):
    low, high = (end.astype(float) for end in intervals)
    found, exact = fast_jit(interval)(*intervals), log_mass(low, high)
    known = high - low > 1e-3  # else float64 loses what it is compared with
    np.testing.assert_allclose(found.log_mass[known], exact[known], rtol=3e-6, atol=2e-5)
    for end, hazard in ((low, found.below), (high, found.above)):
        log_density = -0.5 * (end**2 + np.log(2 * np.pi))
        expected = np.exp(np.minimum(log_density - exact, 88.0))
        seen = known & (expected > 1e-30)
        np.testing.assert_allclose(hazard[seen], expected[seen], rtol=2e-5)
    thin = high - low < 1e-3
    mid, width = (0.5 * (low + high))[thin], (high - low)[thin]
    expected = np.log(width) - 0.5 * (mid**2 + np.log(2 * np.pi)) + width**2 * (mid**2 - 1) / 24
    np.testing.assert_allclose(found.log_mass[thin], expected, rtol=1e-6, atol=2e-5)


def test_draws_are_quantiles(intervals):
    low, high = (end.astype(float) for end in intervals)
    u = np.float32(np.random.default_rng(1).random(low.size))
    z = np.asarray(fast_jit(between)(u, *intervals), float)
    assert (low <= z).all() and (z <= high).all()
    # It is the quantile of u counted from the end that is nearer to zero.
    from_low = low + high >= 0
    ends = np.where(from_low, low, -high), np.where(from_low, high, -low)
    exact = truncnorm.ppf(u.astype(float), *ends) * np.where(from_low, 1, -1)
    wide = high - low > 0.01
    # Where a uniform number is near an end that is far, its rounding counts.
    near = wide & (np.abs(exact) < np.maximum(4.0, np.minimum(np.abs(low), np.abs(high)) + 2.0))
    np.testing.assert_allclose(z[near], exact[near], rtol=2e-5, atol=1e-4)

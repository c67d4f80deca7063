"""The truncated Beta distribution against SciPy: density, draws, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from numpyro.distributions import biject_to
from scipy import stats

from bmfjax.data import InputError
from bmfjax.models import TruncatedBeta

#: Flat, bounded, without bound at zero, mostly above one half, and of very small rates.
A = np.array([1.0, 2.0, 0.5, 6.0, 1.0])
B = np.array([1.0, 5.0, 0.5, 5.0, 1e6])
HIGH = np.array([0.5, 0.5, 0.5, 0.5, 0.5])


def inside(a, b, count=50):
    """Points where the truncated distribution has its mass, by SciPy's quantiles."""
    levels = (np.arange(count) + 0.5) / count
    return stats.beta.ppf(levels * stats.beta.cdf(0.5, a, b), a, b)


def test_density_is_scipys_divided_by_the_mass():
    x = np.stack([inside(a, b) for a, b in zip(A, B, strict=True)], axis=1)
    found = jax.jit(lambda x: TruncatedBeta(A, B).log_prob(x))(jnp.asarray(x, jnp.float32))
    assert found.dtype == jnp.float32
    expected = stats.beta.logpdf(x, A, B) - stats.beta.logcdf(HIGH, A, B)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_density_is_right_to_double_precision(x64):
    found = TruncatedBeta(2.0, 5.0, high=0.3).log_prob(jnp.asarray([0.01, 0.29]))
    expected = stats.beta.logpdf([0.01, 0.29], 2, 5) - stats.beta.logcdf(0.3, 2, 5)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_density_goes_through_compilation_as_an_argument():
    prior = TruncatedBeta(2.0, 5.0)
    found = jax.jit(lambda prior, x: prior.log_prob(x))(prior, 0.2)
    assert float(found) == pytest.approx(float(prior.log_prob(0.2)), rel=1e-6)


def test_gradient_is_that_of_the_formula():
    slope = jax.grad(lambda x: TruncatedBeta(2.0, 5.0).log_prob(x))(0.2)
    assert float(slope) == pytest.approx(1 / 0.2 - 4 / 0.8, abs=1e-5)


@pytest.mark.filterwarnings("ignore:Out-of-support values")
def test_nothing_lies_outside():
    assert np.isneginf(TruncatedBeta(2.0, 5.0).log_prob(jnp.asarray([-0.1, 0.51]))).all()
    to_support = biject_to(TruncatedBeta(2.0, 5.0).support)
    ends = to_support(jnp.asarray([-20.0, 20.0]))
    np.testing.assert_allclose(ends, [0.0, 0.5], atol=1e-6)


def test_draws_have_the_truncated_distribution():
    prior = TruncatedBeta(A, B)
    draws = np.asarray(jax.jit(lambda key: prior.sample(key, (2000,)))(random.key(0)))
    assert draws.shape == (2000, len(A)) and draws.dtype == np.float32
    assert (draws > 0).all() and (draws <= 0.5).all()
    mass = stats.beta.cdf(HIGH, A, B)
    for column, a, b, m in zip(draws.T, A, B, mass, strict=True):
        level = stats.beta.cdf(column.astype(float), a, b) / m
        assert stats.kstest(level, "uniform").pvalue > 1e-3, (a, b)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1.0), r"concentrations are 0\.0 and 1\.0; give positive"),
        ((1.0, np.inf), r"give positive numbers"),
        ((np.nan, 1.0), r"give positive numbers"),
        ((50.0, 2.0), r"Beta\(50\.0, 2\.0\) has less than 0\.01 of its mass below 0\.5"),
        ((1.0, 1.0, 1.0), r"high is 1\.0; give the upper end"),
    ],
)
def test_bad_parameters_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        TruncatedBeta(*arguments)

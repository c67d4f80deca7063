"""Priors of the Boolean models' bits and flip rates: what stands for what, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from scipy import stats

from bmfjax.data import InputError
from bmfjax.models import TruncatedBeta, resolve_bits_prior, resolve_flip_rate
from bmfjax.models.bits import ExactBernoulli, sample_bits
from bmfjax.models.flip_rate import flip_logits
from tests.models.boolean_models import sites

SHAPE = (4, 2)


# ---- bits ------------------------------------------------------------------------------------


def test_bits_priors_stand_for_what_is_said():
    default = resolve_bits_prior(None, "usage", SHAPE)
    assert isinstance(default, dist.Beta)
    assert (default.concentration1, default.concentration0) == (1.0, 1.0)
    given = dist.Beta(0.5, 3.0)
    assert resolve_bits_prior(given, "usage", SHAPE) is given
    assert resolve_bits_prior(np.float32(0.25), "usage", SHAPE) == 0.25
    assert resolve_bits_prior(jnp.asarray(0.25), "usage", SHAPE) == 0.25
    matrix = np.eye(4)[:, :2]
    found = resolve_bits_prior(matrix.astype(bool), "usage", SHAPE)
    assert isinstance(found, np.ndarray) and (found == matrix).all()


def test_certain_bits_are_drawn_so_and_exclude_the_other_value():
    certain = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    model = handlers.seed(sample_bits, random.key(0))
    args = ("usage", "usage_density", ("rows", "factor"), SHAPE)
    assert (np.asarray(model(*args, certain)) == certain).all()
    prior = ExactBernoulli(jnp.asarray([0.0, 1.0, 0.3, 0.3]))
    np.testing.assert_allclose(
        prior.log_prob(jnp.asarray([0, 1, 0, 1])), [0.0, 0.0, np.log(0.7), np.log(0.3)], rtol=1e-6
    )
    assert np.isneginf(prior.log_prob(jnp.asarray([1, 0, 0, 0]))[:2]).all()


def test_axes_of_the_bits_have_names():
    found = sites(sample_bits, "basis", "basis_density", ("columns", "factor"), SHAPE, None)
    assert list(found) == ["basis_density", "basis"]
    assert found["basis"]["infer"]["event_dims"] == ["columns", "factor"]
    assert found["basis"]["value"].dtype == jnp.int32
    assert found["basis_density"]["infer"]["event_dims"] == ["factor"]
    assert found["basis_density"]["value"].shape == (2,)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (0.0, r"the prior of usage is 0\.0; give a density between 0 and 1, both"),
        (1, r"prior of usage is 1;"),
        (float("nan"), r"prior of usage is nan"),
        (True, r"prior of usage is True; give a density"),
        ("uniform", r"prior of usage is 'uniform'; give a density in \(0, 1\)"),
        (np.full((2, 4), 0.5), r"prior of usage has shape \(2, 4\); .* shape \(4, 2\)"),
        (np.full(2, 0.5), r"prior of usage has shape \(2,\)"),
        (np.where(np.eye(4)[:, :2], 1.5, 0.5), r"prior of usage at \[0, 0\] is 1\.5; give values"),
        (np.full(SHAPE, np.nan), r"prior of usage at \[0, 0\] is nan"),
        (dist.Uniform(), r"prior of usage is Uniform of shape \(\); give a scalar .*Beta"),
        (dist.Beta(np.ones(2), 1.0), r"prior of usage is Beta of shape \(2,\)"),
    ],
)
def test_bad_bits_priors_are_named(prior, message):
    with pytest.raises(InputError, match=message):
        resolve_bits_prior(prior, "usage", SHAPE)


# ---- flip rates ------------------------------------------------------------------------------


def test_flip_rates_stand_for_what_is_said():
    one, two = resolve_flip_rate(None), resolve_flip_rate(dist.Beta(2.0, 9.0), 2)
    assert isinstance(one, TruncatedBeta) and one.high == 0.5
    assert (float(one.concentration1), float(one.concentration0)) == (1.0, 1.0)
    assert two.batch_shape == (2,)
    assert two.concentration1.tolist() == [2.0, 2.0] and two.concentration0.tolist() == [9.0, 9.0]
    own = resolve_flip_rate(dist.Beta(jnp.asarray([1.0, 2.0]), 9.0), 2)
    assert own.concentration1.tolist() == [1.0, 2.0] and own.concentration0.tolist() == [9.0, 9.0]
    assert resolve_flip_rate(0.5).shape == () and float(resolve_flip_rate(0.5)) == 0.5
    assert resolve_flip_rate(0.1, 2).tolist() == [0.1, 0.1]
    assert resolve_flip_rate((0.1, 0.3), 2).tolist() == [0.1, 0.3]


@pytest.mark.parametrize(
    ("flip_rate", "num_rates", "message"),
    [
        (0.0, 1, r"flip_rate is 0\.0; a flip rate is in \(0, 1/2\]"),
        (1e-40, 1, "and at least 1e-30"),
        (0.6, 1, r"flip_rate is 0\.6"),
        ((0.1, 0.6), 2, r"flip_rate is \[0\.1, 0\.6\]"),
        (float("nan"), 1, r"flip_rate is nan"),
        ((0.1, 0.2), 1, r"give a number in \(0, 1/2\], a pair of them with num_rates=2"),
        ((0.1, 0.2, 0.3), 2, r"a pair of them"),
        ("low", 1, r"flip_rate is 'low'; give"),
        (dist.Uniform(), 1, r"flip_rate is Uniform of shape \(\); give"),
        (dist.Beta(np.ones(2), 1.0), 1, r"flip_rate is Beta of shape \(2,\)"),
        (dist.Beta(90.0, 10.0), 1, r"Beta\(90\.0, 10\.0\) has less than 0\.01 of its mass"),
        (0.1, 3, r"num_rates is 3; give 1 or"),
    ],
)
def test_bad_flip_rates_are_named(flip_rate, num_rates, message):
    with pytest.raises(InputError, match=message):
        resolve_flip_rate(flip_rate, num_rates)


def test_log_odds_are_those_of_the_flip_rates():
    """The probability of either value of an entry, also of rates that one minus them hides."""
    ones = np.array([False, True])
    for rate in (0.3, 1e-9, (0.2, 0.05)):
        f0, f1 = np.broadcast_to(rate, 2)
        logits = jax.jit(flip_logits)(jnp.asarray(rate, jnp.float32), ones)
        assert logits.dtype == jnp.float32
        noise = dist.Bernoulli(logits=logits)
        found = np.stack([noise.log_prob(jnp.zeros(2)), noise.log_prob(jnp.ones(2))])
        expected = [stats.bernoulli.logpmf(x, [f0, 1 - f1]) for x in (0, 1)]
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-9)

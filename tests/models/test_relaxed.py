"""The relaxed model as any NumPyro model: simulated, scored, sampled and optimised as it stands."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer import (
    Predictive,
    log_likelihood,
)
from numpyro.infer.util import log_density

from bmfjax.data import InputError
from bmfjax.models import relaxed_bmf
from bmfjax.models.relaxed import resolve_precision, resolve_prior
from bmfjax.specs.priors import NAMED, support_box
from tests.kernels.exactness import fast_jit

ROWS, COLUMNS, RANK = 6, 5, 2
MODEL = functools.partial(relaxed_bmf, rank=RANK)
VALUES = (np.random.default_rng(0).random((ROWS, COLUMNS)) < 0.4).astype(np.float32)
HOLES = np.random.default_rng(1).random((ROWS, COLUMNS)) < 0.3
POSITION = {
    "usage": jnp.asarray(np.random.default_rng(2).uniform(0.1, 0.9, (ROWS, RANK)), jnp.float32),
    "basis": jnp.asarray(np.random.default_rng(3).uniform(0.1, 0.9, (COLUMNS, RANK)), jnp.float32),
    "precision": jnp.asarray(1.5),
}


def score(values, observed=None, **options):
    """Log joint density at POSITION."""
    model = functools.partial(MODEL, **options)
    density = fast_jit(lambda p, *data: log_density(model, data, {}, p)[0])
    return float(density(POSITION, values, observed))


def test_density_is_that_of_the_formula():
    """Flat priors, Gamma(1, 1) on the precision, a Gaussian of that precision on every entry."""
    usage, basis, tau = (np.asarray(POSITION[n], float) for n in ("usage", "basis", "precision"))
    rss = ((VALUES - usage @ basis.T) ** 2).sum()
    expected = 0.5 * VALUES.size * np.log(tau / (2 * np.pi)) - 0.5 * tau * rss - tau
    assert score(VALUES) == pytest.approx(expected, rel=1e-6)


# ---- missing entries -------------------------------------------------------------------------


def test_nan_and_mask_say_the_same():
    with_nan = np.where(HOLES, np.nan, VALUES)
    expected = score(with_nan)
    assert score(VALUES, ~HOLES) == pytest.approx(expected, rel=1e-6)
    half = HOLES & (np.arange(COLUMNS) < 3)
    assert score(np.where(half, np.nan, VALUES), ~HOLES) == pytest.approx(expected, rel=1e-6)


def test_masked_entries_do_not_matter():
    other = np.where(HOLES, 77.0, VALUES).astype(np.float32)
    assert score(other, ~HOLES) == score(VALUES, ~HOLES)
    assert score(VALUES) != score(VALUES, ~HOLES)


def test_gradient_is_finite_where_entries_are_missing():
    with_nan = np.where(HOLES, np.nan, VALUES)
    gradient = jax.jit(jax.grad(lambda p: log_density(MODEL, (with_nan,), {}, p)[0]))(POSITION)
    assert all(bool(jnp.isfinite(g).all()) for g in gradient.values())


# ---- priors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [p for p in NAMED if p != "ard"])
def test_named_priors_are_densities_on_the_unit_interval(prior):
    # x = sin^2 t takes the ends of Beta(1/2, 1/2) away.
    t = (np.arange(2000) + 0.5) / 2000 * np.pi / 2
    x, weight = np.sin(t) ** 2, 2 * np.sin(t) * np.cos(t) * np.pi / 2 / 2000
    log_prob = fast_jit(resolve_prior(prior).log_prob)
    density = np.exp(np.asarray(log_prob(jnp.asarray(x, jnp.float32)), float))
    assert (density * weight).sum() == pytest.approx(1.0, abs=1e-4)
    assert support_box(resolve_prior(prior).support) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("prior", "log_ratio"),
    [
        ("uniform", 0.0),
        ("normal", -(0.8**2 - 0.3**2) / 2),
        ("laplace", -(0.8 - 0.3) / 2),
        ("beta", -0.5 * np.log(0.8 * 0.2) + 0.5 * np.log(0.3 * 0.7)),
    ],
)
def test_named_priors_have_the_shape_of_the_thesis(prior, log_ratio):
    """Gonsior 2019, equations 3.3 to 3.6: flat, N(0, 1), Laplace of scale 2, Beta(1/2, 1/2)."""
    log_prob = resolve_prior(prior).log_prob
    assert float(log_prob(0.8) - log_prob(0.3)) == pytest.approx(log_ratio, abs=1e-5)


def test_each_factor_may_have_its_own_prior():
    both = score(VALUES, prior="normal")
    flat = score(VALUES)
    usage, basis = score(VALUES, usage="normal"), score(VALUES, basis="normal")
    assert usage + basis - flat == pytest.approx(both, rel=1e-6)
    assert len({both, flat, usage, basis}) == 4
    assert score(VALUES, prior="laplace", usage="normal", basis="normal") == both


def test_a_distribution_of_ones_own_is_taken():
    assert score(VALUES, prior=dist.Beta(0.5, 0.5)) == score(VALUES, prior="beta")
    assert resolve_prior(dist.Uniform(0.0, 0.5)).high == 0.5


def test_precision_is_fixed_by_a_number_and_learned_from_a_distribution():
    fixed = handlers.trace(handlers.seed(functools.partial(MODEL, precision=2), 0))
    assert "precision" not in fixed.get_trace(VALUES)
    assert resolve_precision(2) == 2.0
    learned = score(VALUES, precision=dist.Gamma(3.0, 2.0)) - score(VALUES)
    expected = dist.Gamma(3.0, 2.0).log_prob(1.5) - dist.Gamma(1.0, 1.0).log_prob(1.5)
    assert learned == pytest.approx(float(expected), abs=1e-4)


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rank": 0}, InputError, r"rank is 0; give a whole number of at least 1"),
        ({"prior": "gauss"}, InputError, r"prior of usage is 'gauss'; choose from uniform"),
        ({"basis": "x"}, InputError, r"prior of basis is 'x'; choose"),
        ({"prior": 0.5}, InputError, r"prior of usage is a float; give a name"),
        ({"basis": dist.Normal()}, InputError, r"prior of basis has support .*on \[0, 1\]"),
        ({"prior": dist.Uniform(0.0, 2.0)}, InputError, r"prior of usage has support"),
        ({"prior": dist.TruncatedNormal(0.0, 1.0, low=0.0)}, InputError, r"has support"),
        ({"prior": dist.Bernoulli(0.5)}, InputError, r"has support"),
        ({"prior": dist.Beta(np.ones(2), 1.0)}, InputError, r"has shape \(2,\); give a scalar"),
        ({"prior": dist.Dirichlet(np.ones(2))}, InputError, r"has shape \(2,\)"),
        ({"precision": 0.0}, InputError, r"precision is 0\.0; give a positive number"),
        ({"precision": -1}, InputError, r"precision is -1; give a positive number"),
        ({"precision": float("nan")}, InputError, r"precision is nan"),
        ({"precision": np.ones(3)}, InputError, r"precision is .*; give a positive number"),
    ],
)
def test_bad_settings_are_named(options, error, message):
    with pytest.raises(error, match=message):
        handlers.seed(relaxed_bmf, 0)(VALUES, **({"rank": RANK} | options))


def test_neither_data_nor_shape():
    with pytest.raises(InputError, match=r"needs data, or shape=\(rows, columns\)"):
        handlers.seed(MODEL, 0)()


# ---- NumPyro's own algorithms ----------------------------------------------------------------


def test_posterior_predictive_and_log_likelihood_see_every_entry():
    draws = {n: jnp.stack([v, 0.5 * v]) for n, v in POSITION.items()}
    simulate = Predictive(functools.partial(MODEL, shape=VALUES.shape), draws)
    simulated = jax.jit(simulate)(random.key(0))
    assert simulated["data"].shape == (2, ROWS, COLUMNS)
    pointwise = jax.jit(lambda d: log_likelihood(MODEL, d, VALUES, ~HOLES))(draws)["data"]
    for d, found in enumerate(np.asarray(pointwise)):
        mean, tau = draws["usage"][d] @ draws["basis"][d].T, draws["precision"][d]
        expected = dist.Normal(mean, tau**-0.5).log_prob(VALUES)
        np.testing.assert_allclose(found, np.where(HOLES, 0.0, expected), rtol=1e-4, atol=1e-5)

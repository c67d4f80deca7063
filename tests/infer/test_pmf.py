"""The Gibbs sampler of ratings under NumPyro."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer.util import log_density

import bmfjax
from bmfjax import models
from bmfjax.infer.mcmc.ratings import pmf_density
from bmfjax.models.pmf import category_probabilities

STARS = np.random.default_rng(0).integers(0, 4, (12, 9)).astype(float)
STARS[0, 1] = STARS[3, 4] = np.nan
OPTIONS = {"level_scale": 2.0, "effect_precision": dist.Gamma(3.0, 2.0), "strength": 1.5}


def check_energy(model, data):
    bound = bmfjax.PMFGibbs(model).bind(data)

    @jax.jit
    def both(key):
        state = bound.algorithm.init(key, None, bound.data)
        state, info = bound.algorithm.step(random.key(1), state, bound.data)
        return info.log_joint, log_density(model, (data,), {}, state.position)[0]

    found, expected = both(random.key(0))
    assert float(found) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("link", ["probit", pytest.param("ordered", marks=pytest.mark.long)])
def test_its_energy_is_that_of_the_model_at_the_draw(link):
    data = np.where(np.isnan(STARS), np.nan, STARS > 1) if link == "probit" else STARS
    model = functools.partial(models.pmf, rank=2, link=link, **OPTIONS)
    check_energy(model, data)


@pytest.mark.parametrize("relevance", [None, dist.Gamma(2.0, 0.5)])
def test_its_energy_is_that_of_the_model_in_the_unit_of_the_data(relevance):
    data = 0.01 * STARS
    priors = models.pmf_priors_by_scale(float(np.nanmean(data)), float(np.nanstd(data)))
    model = functools.partial(models.pmf, rank=2, relevance=relevance, **priors)
    check_energy(model, data)


def test_a_precision_that_is_given_is_not_drawn():
    def sites(**options):
        kernel = bmfjax.PMFGibbs(functools.partial(models.pmf, rank=2, **options))
        first = jax.eval_shape(lambda key: kernel.init(key, 0, None, (STARS,), {}), random.key(0))
        return set(first.sample)

    assert sites() - sites(precision=2.0) == {"precision"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bmfjax.PMFGibbs(lambda data: None).bind(STARS), "no other model"),
        (
            lambda: bmfjax.PMFGibbs(functools.partial(models.pmf, rank=2, shape=(3, 3))).bind(),
            "needs data",
        ),
        (
            lambda: bmfjax.PMFGibbs(
                functools.partial(models.pmf, rank=2, precision=dist.HalfNormal(1.0))
            ).bind(STARS),
            "Gamma",
        ),
        (
            lambda: bmfjax.PMFGibbs(functools.partial(models.pmf, rank=2, link="probit")).bind(
                STARS
            ),
            "zeros and ones",
        ),
        (
            lambda: bmfjax.PMFGibbs(
                functools.partial(models.pmf, rank=2, link="ordered", categories=3)
            ).bind(STARS),
            "category 3 and categories is 3",
        ),
    ],
)
def test_what_it_cannot_sample_is_refused(make, message):
    with pytest.raises(bmfjax.InputError, match=message):
        make()


def test_categories_are_counted_and_values_checked_while_a_program_is_traced():
    """As NUTS does; but not where the data themselves are traced."""

    def traced(data, **options):
        model = functools.partial(models.pmf, rank=1, **options)

        def cuts(key):
            sites = handlers.trace(handlers.seed(model, key)).get_trace(data)
            return sites.get("cutpoints", sites["usage"])["value"]

        return jax.eval_shape(cuts, random.key(0)).shape

    assert traced(STARS, link="ordered") == (3,)
    assert traced(STARS, link="ordered", categories=6) == (5,)
    with pytest.raises(
        bmfjax.InputError, match="lowest category of data is 1 and they are counted"
    ):
        traced(STARS + 1.0, link="ordered")
    for link, message in (("probit", "zeros and ones"), ("ordered", "categories counted from 0")):
        with pytest.raises(bmfjax.InputError, match=message):
            traced(STARS + 0.5, link=link)
    with pytest.raises(bmfjax.InputError, match=r"needs categories, .* or where data are traced"):
        jax.eval_shape(lambda data: jnp.zeros(traced(data, link="ordered")), STARS)
    jax.eval_shape(lambda data: jnp.zeros(traced(data, link="ordered", categories=4)), STARS)
    with pytest.raises(bmfjax.InputError, match="categories is 1; give at least 2"):
        traced(np.zeros((2, 2)), link="ordered")


def test_a_gamma_prior_may_be_given_as_shape_and_rate():
    pairs = pmf_density(rank=2, precision=(2.0, 3.0), effect_precision=[4.0, 1e-6])
    priors = {"precision": dist.Gamma(2.0, 3.0), "effect_precision": dist.Gamma(4.0, 1e-6)}
    assert pairs == pmf_density(rank=2, **priors)
    assert pairs.learns_precision and pairs.effect_gamma == (4.0, 1e-6)
    fixed = pmf_density(rank=2, precision=2.5, level_mean=3.0)
    assert fixed.precision == 2.5 and fixed.level == (3.0, 10.0)


def test_the_probabilities_of_categories_are_areas_between_cut_points():
    found = category_probabilities(jnp.zeros(()), jnp.array([-1.0, 1.0]))
    np.testing.assert_allclose(found, [0.158655, 0.682689, 0.158655], rtol=1e-5)

"""Columns of a matrix factorisation with precisions of their own: density, sampler, refusals."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random
from numpyro import handlers
from numpyro.distributions import Gamma, HalfNormal
from numpyro.infer.util import log_density

from bmfjax.data import InputError
from bmfjax.diagnostics import ess_bulk, geweke_scores
from bmfjax.infer import PMFGibbs
from bmfjax.kernels.ratings.density import LINKS, log_prior, log_probabilities
from bmfjax.kernels.ratings.gibbs import PMFDensity, pmf_gibbs
from bmfjax.models import pmf
from tests.kernels.exactness import fast_jit
from tests.kernels.test_pmf import (
    CATEGORIES,
    RANK,
    SEEN,
    SHAPE,
    UNIT,
    fits,
    simulate,
    template,
    with_values,
)

RELEVANCE, OTHERS = (6.0, 4.0), (6.0, 3.0)
CHAINS, DRAWS, THIN = 160, 20, 4


def density_of(link):
    return PMFDensity(
        RANK, link, categories=CATEGORIES, precision_gamma=OTHERS, effect_gamma=OTHERS,
        relevance=RELEVANCE, usage_unit=UNIT, level=(0.2, 0.8),
    )  # fmt: skip


def the_model(link):
    more = {"precision": Gamma(*OTHERS)} if link == "identity" else {}
    more |= {"categories": CATEGORIES} if link == "ordered" else {}
    return functools.partial(
        pmf, link=link, rank=RANK, effect_precision=Gamma(*OTHERS), relevance=Gamma(*RELEVANCE),
        usage_unit=UNIT, level_mean=0.2, level_scale=0.8, **more,
    )  # fmt: skip


def statistics(position, full, density):
    e, product = fits(position), position["usage"] @ position["basis"].T
    terms = log_probabilities(
        density.link, full, e, position.get("precision", 1.0), position.get("cutpoints")
    )
    level = position["cutpoints"] if density.link == "ordered" else position["intercept"][None]
    return jnp.stack(
        [
            level[0], level[-1] ** 2, product[0, 0], product[4, 1], position["row_effect"][1],
            jnp.where(SEEN, terms, 0.0).sum() + log_prior(density, position),
            jnp.log(position["usage_precision"]).sum(), position["basis_precision"].sum(),
            (position["usage"] ** 2).sum(), (position["usage"].sum(0) ** 2).sum(),
            jnp.log(position["column_precision"]), jnp.where(SEEN, full * e, 0.0).sum(),
        ]
    )  # fmt: skip


@functools.cache
def chains(link):
    """``run(shape) -> (marginal, successive)``, the first parameter of the sampler's prior."""
    density, data = density_of(link), template()

    def draw_joint(key):
        trace = handlers.trace(handlers.seed(the_model(link), key)).get_trace(shape=SHAPE)
        full = trace["data"]["value"].astype(jnp.float32)
        full = 2 * full - 1 if link == "probit" else full
        return {n: trace[n]["value"] for n in density.sites}, full

    def one(key, start, full, shape):
        # A fault is a traced number.
        with mock.patch("bmfjax.kernels.ratings.gibbs.check_density"):
            algorithm = pmf_gibbs(density._replace(relevance=(shape, RELEVANCE[1])))

        def body(carry, key):
            state, full = carry
            key_steps, key_data = random.split(key)
            observed = with_values(data, full)

            def step(state, key):
                return algorithm.step(key, state, observed)[0], None

            state = lax.scan(step, state, random.split(key_steps, THIN))[0]
            full = simulate(key_data, state.position, density)
            return (state, full), statistics(state.position, full, density)

        state = algorithm.init(key, start, data)
        return lax.scan(body, (state, full), random.split(key, DRAWS))[1]

    joint = fast_jit(jax.vmap(draw_joint))

    @fast_jit
    def all_of(keys, truth, full, shape):
        first = jax.vmap(lambda t, f: statistics(t, f, density))(truth, full)
        return first, jax.vmap(lambda k, t, f: one(k, t, f, shape))(keys, truth, full)

    def run(shape):
        keys = random.split(random.key(1), (2, CHAINS))
        truth, full = joint(keys[0])
        return jax.tree.map(np.asarray, all_of(keys[1], truth, full, jnp.float32(shape)))

    return run


@pytest.mark.long
@pytest.mark.parametrize("link", ["identity", "ordered"])
def test_the_joint_distribution_is_that_of_the_model(link):
    marginal, successive = chains(link)(RELEVANCE[0])
    assert ess_bulk(successive).min() > 300
    assert np.abs(geweke_scores(marginal, successive)).max() < 4.0  # of 24


@pytest.mark.long
def test_the_joint_distribution_shows_a_fault():
    assert np.abs(geweke_scores(*chains("identity")(9.0)))[0, 6] > 6


@pytest.mark.parametrize("link", LINKS)
def test_the_log_prior_is_the_models(link):
    """Of the whole joint density, with the likelihood of the links as elsewhere."""
    density, model = density_of(link), the_model(link)

    @fast_jit
    def drawn(key):
        trace = handlers.trace(handlers.seed(model, key)).get_trace(shape=SHAPE)
        position = {n: trace[n]["value"] for n in density.sites}
        full = trace["data"]["value"].astype(jnp.float32)
        full = 2 * full - 1 if link == "probit" else full
        terms = log_probabilities(
            link, full, fits(position), position.get("precision", 1.0), position.get("cutpoints")
        )
        found = jnp.where(SEEN, terms, 0.0).sum() + log_prior(density, position)
        return position, trace["data"]["value"], found

    position, full, found = drawn(random.key(5))
    values = np.where(SEEN, full, np.nan)
    expected = fast_jit(lambda position: log_density(model, (values,), {}, position)[0])(position)
    assert float(found) == pytest.approx(float(expected), abs=2e-3)
    assert PMFGibbs(the_model(link)).bind(values).algorithm is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": 2.0}, "strength is 2.0, of the Normal-Wishart prior, and relevance takes"),
        ({"degrees": 3.0}, "degrees is 3.0"),
        ({"scale": 1.0}, "scale is 1.0"),
        ({"relevance": HalfNormal(1.0)}, "prior of relevance is HalfNormal"),
    ],
)
def test_what_would_have_no_say_is_refused(options, message):
    arguments = {"rank": 2, "relevance": Gamma(1.0, 1.0)} | options
    model = functools.partial(pmf, **arguments)
    values = np.random.default_rng(0).normal(size=(4, 3))
    with pytest.raises(InputError, match=message):
        handlers.seed(model, random.key(0))(values)
    with pytest.raises(InputError, match=message):
        PMFGibbs(model).bind(values)

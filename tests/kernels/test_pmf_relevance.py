"""Columns of a matrix factorisation with precisions of their own: density, sampler, refusals."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from numpyro import handlers
from numpyro.distributions import Gamma, HalfNormal
from numpyro.infer.util import log_density

from bmfjax.data import InputError
from bmfjax.infer import PMFGibbs
from bmfjax.kernels.ratings.density import LINKS, log_prior, log_probabilities
from bmfjax.kernels.ratings.gibbs import PMFDensity
from bmfjax.models import pmf
from tests.kernels.exactness import fast_jit
from tests.kernels.test_pmf import (
    CATEGORIES,
    RANK,
    SEEN,
    SHAPE,
    UNIT,
    fits,
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

"""The OrMachine as any NumPyro model: its density, what is missing, simulation, refusals."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer import Predictive, log_likelihood
from scipy import stats

from bmfjax.data import InputError
from bmfjax.models import ormachine
from tests.models.boolean_models import (
    BASIS,
    COLUMNS,
    DENSITIES,
    HOLES,
    RANK,
    ROWS,
    USAGE,
    VALUES,
    bits,
    check_entries,
    check_missing,
    disjunction,
    noise,
    score,
    sites,
)

MODEL = functools.partial(ormachine, rank=RANK, num_rates=1)
FACTORS = {"usage": USAGE, "basis": BASIS}
POSITION = FACTORS | DENSITIES | {"flip_rate": np.float32(0.2)}
PRODUCT = disjunction(USAGE, BASIS)
BITS = bits(USAGE, DENSITIES["usage_density"]) + bits(BASIS, DENSITIES["basis_density"])


def test_priors_of_the_densities_and_of_the_flip_rate_enter_as_given():
    found = score(
        MODEL,
        POSITION,
        usage=dist.Beta(2.0, 5.0),
        basis=dist.Beta(0.5, 3.0),
        flip_rate=dist.Beta(2.0, 8.0),
    )
    expected = (
        BITS
        + stats.beta.logpdf(DENSITIES["usage_density"], 2, 5).sum()
        + stats.beta.logpdf(DENSITIES["basis_density"], 0.5, 3).sum()
        + stats.beta.logpdf(0.2, 2, 8)
        - stats.beta.logcdf(0.5, 2, 8)
        + noise(VALUES, PRODUCT, 0.2, 0.2)
    )
    assert found == pytest.approx(expected, rel=1e-5)


def test_what_is_fixed_has_no_site():
    probability = np.random.default_rng(5).uniform(0.1, 0.9, (COLUMNS, RANK))
    probability[0] = BASIS[0]  # certain
    fixed = {"usage": 0.3, "basis": probability, "flip_rate": (0.1, 0.4)}
    expected = bits(USAGE, 0.3) + bits(BASIS, probability) + noise(VALUES, PRODUCT, 0.1, 0.4)
    assert score(MODEL, FACTORS, num_rates=2, **fixed) == pytest.approx(expected, rel=1e-5)
    model = functools.partial(MODEL, num_rates=2, **fixed)
    assert list(sites(model, VALUES)) == ["usage", "basis", "data"]
    probability[0] = 1 - BASIS[0]
    assert score(MODEL, FACTORS, num_rates=2, **fixed) == -np.inf


def test_missing_entries_do_not_count():
    assert check_missing(MODEL, POSITION) == pytest.approx(BITS + np.log(2), rel=1e-5)


def test_every_entry_is_simulated_and_scored_with_its_probability():
    position = POSITION | {"flip_rate": np.array([0.1, 0.4], np.float32)}
    check_entries(functools.partial(MODEL, num_rates=2), position, np.where(PRODUCT, 1 - 0.4, 0.1))


def test_all_numbers_of_factors_are_equally_probable_beforehand():
    model = functools.partial(MODEL, shape=(ROWS, COLUMNS), presence_prior=dist.Beta(1.0, 1.0))
    draws = jax.jit(Predictive(model, num_samples=6000))(random.key(1))
    there = np.asarray(draws["usage_density"] > 0)
    counts = np.bincount(there.sum(1), minlength=RANK + 1)
    assert stats.chisquare(counts).pvalue > 1e-3
    assert not np.asarray(draws["usage"])[
        ~np.broadcast_to(there[:, None], draws["usage"].shape)
    ].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, r"rank is 0; give a whole number of at least 1"),
        ({"rank": 1.5}, r"rank is 1\.5"),
        ({"usage": 2.0}, r"prior of usage is 2\.0"),
        ({"basis": np.ones((2, 2))}, r"prior of basis has shape \(2, 2\).* shape \(4, 2\)"),
        ({"flip_rate": 0.7}, r"flip_rate is 0\.7"),
        ({"data": np.full((2, 2), 0.5)}, r"data at row 0, column 0 is 0\.5; give 0, 1 or"),
        ({"data": np.zeros(3)}, r"data has shape \(3,\); give a matrix"),
        ({"observed": np.ones(COLUMNS, bool)}, r"observed has shape \(4,\); give .* \(7, 4\)"),
        ({"data": None}, r"ormachine needs data, or shape=\(rows, columns\)"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(InputError, match=message):
        sites(
            functools.partial(
                ormachine, **({"data": VALUES, "rank": RANK, "num_rates": 1} | options)
            )
        )


def test_hidden_entries_may_be_anything_and_data_may_be_lists():
    hidden = np.where(HOLES, 77.0, VALUES)
    for data, observed in ((hidden, ~HOLES), (VALUES.astype(bool).tolist(), None)):
        found = sites(MODEL, data, observed)["data"]
        assert found["is_observed"] and found["value"].shape == VALUES.shape


def test_one_draw_of_numpy_arrays_is_enough():
    """NumPyro then hands the arrays on as they are, and the plates' indices are traced."""
    one = {n: v[None] for n, v in POSITION.items()}
    prior = dist.Beta(jnp.ones(()), jnp.ones(()))
    model = functools.partial(MODEL, usage=prior, flip_rate=prior)
    found = jax.jit(lambda data: log_likelihood(model, one, data))(jnp.asarray(VALUES))
    assert found["data"].shape == (1, ROWS, COLUMNS)

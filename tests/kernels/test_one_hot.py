"""The one-hot machine is exact: conditionals by enumeration, the model's density."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats
from jax import random

from bmfjax.data.binary import BinaryMatrix
from bmfjax.kernels.boolean import words as packed_lines
from bmfjax.kernels.boolean.density import BitPrior
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.words import unpack_last_axis
from bmfjax.kernels.variants import one_hot as kernel
from bmfjax.kernels.variants.one_hot import (
    OneHotDensity,
    one_hot_data,
    one_hot_machine,
)
from bmfjax.models.one_hot import one_hot_machine as one_hot_model
from tests.kernels.boolean_exactness import as_position, as_sites
from tests.kernels.exactness import fast_jit, model_log_joint, pearson_p_value

SHAPE, RANK = (19, 37), 3
RATES = np.array([0.3, 0.35], np.float32)


def values_with_gaps():
    r = np.random.default_rng(3)
    values = (r.random(SHAPE) < 0.5).astype(float)
    values[r.random(SHAPE) < 0.3] = np.nan
    return values


def entries(values, ones, rates):
    """Log probability of each entry given the product; zero where it is missing."""
    p = np.where(ones, 1.0 - rates[1], rates[0])
    found = np.where(values == 1, np.log(p), np.log1p(-p))
    return np.where(np.isnan(values), 0.0, found)


def frequencies_p_value(draws, probabilities):
    """Pearson's chi-square of (draw, place) draws of categories, all places together."""
    return pearson_p_value(
        (np.bincount(found, minlength=len(p)), len(draws) * p)
        for found, p in zip(draws.T, probabilities, strict=True)
    )


# ---- one sweep ---------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["learned", "of codes", "of rows"])
def test_clusters_and_codes_are_drawn_from_their_conditionals(given):
    """Two flip rates, at an inverse temperature, in several blocks of lines."""
    values, r, power = values_with_gaps(), np.random.default_rng(5), 0.6
    basis = r.random((SHAPE[1], RANK)) < 0.5
    own = np.array([0.2, 0.5, 0.3])
    known = {"learned": None, "of codes": own, "of rows": r.dirichlet(np.ones(RANK), SHAPE[0])}[
        given
    ]
    if given == "of rows":
        known[0] = (0.0, 1.0, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_lines, "BLOCK_WORDS", 12)
        data = one_hot_data(BinaryMatrix(values), known)
    assert data.packed.by_row.ones.shape[0] > 1
    concentration = (1.0,) * RANK if given == "learned" else None
    flips = FlipRatePrior(2, value=tuple(RATES.tolist()))
    density = OneHotDensity(SHAPE, RANK, concentration, BitPrior(None, 0.3), flips)
    start = {"cluster": jnp.zeros(SHAPE[0], jnp.int32), "basis": basis,
             "flip_rate": jnp.asarray(RATES)}  # fmt: skip
    start |= {"weights": jnp.asarray(own, jnp.float32)} if given == "learned" else {}

    @fast_jit
    def run(keys, position, data):
        def one(key):
            return kernel.sweep(key, density, position, data, power)

        return jax.lax.map(one, keys, batch_size=100)

    position, counts, errors = run(random.split(random.key(0), 1500), as_position(start), data)
    clusters = np.asarray(position["cluster"])
    likelihood = power * np.stack([entries(values, u, RATES).sum(1) for u in basis.T], axis=1)
    with np.errstate(divide="ignore"):
        log_p = likelihood + np.log(own if known is None else known)
    assert frequencies_p_value(clusters, scipy.special.softmax(log_p, axis=1)) > 1e-3
    if given == "learned":  # 1.2 times the likelihood shows
        wrong = scipy.special.softmax(1.2 * likelihood + np.log(own), axis=1)
        assert frequencies_p_value(clusters, wrong) < 1e-6
    # Given its clusters every bit is an independent draw, of known probability.
    drawn = np.asarray(unpack_last_axis(position["basis"], SHAPE[1]))  # (key, rank, column)
    gain = power * (entries(values, True, RATES) - entries(values, False, RATES))
    of_code = np.eye(RANK)[clusters]  # (key, row, rank)
    odds = np.einsum("kir,ij->krj", of_code, gain) + scipy.special.logit(0.3)
    p = scipy.special.expit(odds)
    scores = (drawn - p).sum(0) / np.sqrt((p * (1 - p)).sum(0))
    assert scipy.stats.kstest(scores.ravel(), "norm").pvalue > 1e-3
    # And the counts are those of the draw.
    product = np.stack([u[s] for u, s in zip(drawn[:5], clusters[:5], strict=True)])
    assert (errors[:5] == ((product != values) & ~np.isnan(values)).sum((1, 2))).all()
    assert counts.wrong.shape == (1500, 2)
    if given == "learned":
        alpha = 1.0 + of_code.sum(1)
        scores = scipy.stats.beta.cdf(
            position["weights"], alpha, alpha.sum(1, keepdims=True) - alpha
        )
        assert all(scipy.stats.kstest(s, "uniform").pvalue > 1e-3 for s in scores.T)


# ---- the model's own density -------------------------------------------------------------------


@pytest.mark.parametrize("case", ["learned", "known"])
def test_the_log_joint_is_that_of_the_model(case):
    values, r = values_with_gaps(), np.random.default_rng(1)
    if case == "learned":
        options = {"weights": dist.Dirichlet(jnp.array([0.5, 1.0, 2.0]))}
        density, known = OneHotDensity(SHAPE, RANK, (0.5, 1.0, 2.0)), None
    else:
        known = r.dirichlet(np.ones(RANK), SHAPE[0])
        known[0] = (0.0, 1.0, 0.0)
        options = {"weights": known, "num_rates": 2, "flip_rate": dist.Beta(2.0, 3.0),
                   "basis": 0.3}  # fmt: skip
        flips = FlipRatePrior(2, 2.0, 3.0)
        density = OneHotDensity(SHAPE, RANK, None, BitPrior(None, 0.3), flips)
    data, algorithm = one_hot_data(BinaryMatrix(values), known), one_hot_machine(density)
    start = {"cluster": jnp.zeros(SHAPE[0], jnp.int32), "weights": jnp.full(RANK, 1 / RANK),
             "basis": r.random((SHAPE[1], RANK)) < 0.5, "basis_density": jnp.full(RANK, 0.4),
             "flip_rate": jnp.float32(0.2 if case == "learned" else (0.2, 0.3))}  # fmt: skip

    @fast_jit
    def run(key, position, data):
        state, info = algorithm.step(key, algorithm.init(None, position, data), data)
        return state, info, kernel.log_likelihood(density)(state, data)

    with jax.debug_nans(True):
        state, info, again = run(random.key(0), as_position(start), data)
    model = functools.partial(one_hot_model, rank=RANK, **options)
    sites = as_sites(state.position, SHAPE)
    expected = model_log_joint(model, values, sites)
    np.testing.assert_allclose(info.log_joint, expected, rtol=1e-5)
    np.testing.assert_allclose(again, info.log_likelihood, rtol=1e-5)


# ---- structure ---------------------------------------------------------------------------------


@pytest.mark.parametrize("num_rates", [1, 2])
def test_the_sampler_stays_in_float32(num_rates):
    data = one_hot_data(BinaryMatrix(values_with_gaps()))
    density = OneHotDensity(SHAPE, RANK, (1.0,) * RANK, flip_rate=FlipRatePrior(num_rates))
    algorithm = one_hot_machine(density)

    def run(data):
        return algorithm.step(random.key(0), algorithm.init(random.key(1), None, data), data)

    with jax.numpy_dtype_promotion("strict"):
        kinds = {x.dtype.name for x in jax.tree.leaves(jax.eval_shape(run, data))}
    assert kinds == {"float32", "uint32", "int32"}

"""Variational inference of the logistic model: the bound, unbiased statistics, the fixed point."""

import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax import random
from numpy.polynomial.hermite_e import hermegauss
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import log_density
from numpyro.optim import Adam
from scipy.special import log_expit
from scipy.stats import norm

from bmfjax.data import BinaryMatrix, InputError
from bmfjax.models.logistic import logistic as model
from bmfjax.variational import batch, rounds
from bmfjax.variational import posterior as lp
from bmfjax.variational import stochastic as svi
from bmfjax.variational.entry_sampling import STRATEGIES, draw_entries, entry_sampler
from tests.kernels.exactness import fast_jit

RNG = np.random.default_rng(1)
ROWS, COLUMNS = 30, 20
LOGITS = 1.5 * RNG.normal(size=(ROWS, 2)) @ RNG.normal(size=(COLUMNS, 2)).T - 1.0
VALUES = (RNG.random((ROWS, COLUMNS)) < 1 / (1 + np.exp(-LOGITS))).astype(float)
VALUES[RNG.random(VALUES.shape) < 0.1] = np.nan
SEEN = ~np.isnan(VALUES)
PRIORS = {
    "factors": lp.LogisticPrior(2),
    "effects": lp.LogisticPrior(2, 0.8, 2.0, row_effects=True, column_effects=True),
    "row effects": lp.LogisticPrior(1, row_effects=True),
}


def a_posterior(prior, key=0):
    return lp.start(random.key(key), VALUES.shape, prior, -0.5, spread=0.7)


@pytest.mark.parametrize("name", PRIORS)
def test_the_density_of_the_model_is_its_definition(name):
    prior, rng = PRIORS[name], np.random.default_rng(2)
    sites = {
        "usage": rng.normal(size=(ROWS, prior.rank)),
        "basis": rng.normal(size=(COLUMNS, prior.rank)),
        "bias": np.array(0.3),
    }
    logits = sites["usage"] @ sites["basis"].T + 0.3
    if prior.row_effects:
        sites["row_effect"] = rng.normal(size=ROWS)
        logits = logits + sites["row_effect"][:, None]
    if prior.column_effects:
        sites["column_effect"] = rng.normal(size=COLUMNS)
        logits = logits + sites["column_effect"]
    options = {"rank": prior.rank, "prior_scale": prior.scale, "bias_scale": prior.bias_scale}
    options |= {"row_effects": prior.row_effects, "column_effects": prior.column_effects}
    found, _ = log_density(model, (VALUES,), options, {n: jnp.asarray(v) for n, v in sites.items()})
    signed = np.where(VALUES == 1, logits, -logits)
    expected = log_expit(signed)[SEEN].sum()
    for site, values in sites.items():
        scale = prior.bias_scale if site == "bias" else prior.scale
        expected += norm.logpdf(values, scale=scale).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["factors", "effects"])
def test_moments_are_those_of_the_mean_field(name):
    """Against draws; all entries at once as entry by entry."""
    prior = PRIORS[name]
    q = a_posterior(prior)
    keys = random.split(random.key(3), 3)
    draws = [
        g.mean + jnp.sqrt(g.variance) * random.normal(k, (20_000, *g.mean.shape))
        for k, g in zip(keys, q, strict=True)
    ]
    logits = np.asarray(jnp.sum(draws[0][:, 3] * draws[1][:, 5], -1) + draws[2], float)
    mean, variance = (np.asarray(m) for m in lp.all_moments(q))
    alone = lp.moments(*(lp.Gaussian(*(a[i] for a in s)) for s, i in ((q[0], 3), (q[1], 5))), q[2])
    np.testing.assert_allclose(alone, (mean[3, 5], variance[3, 5]), rtol=1e-5)
    assert abs(logits.mean() - mean[3, 5]) < 4 * logits.std() / np.sqrt(len(logits))
    np.testing.assert_allclose(logits.var(), variance[3, 5], rtol=0.06)


def test_the_bound_is_one_and_close():
    node, weight = hermegauss(60)
    for mean in (-9.0, -1.0, 0.0, 0.5, 6.0):
        for sd in (1e-3, 0.5, 2.0):
            exact = (weight * log_expit(mean + sd * node)).sum() / weight.sum()
            found = float(lp.entry_bound(True, mean, sd**2))
            assert exact - 0.25 < found <= exact + 1e-5
    assert np.isfinite(jax.grad(lambda x: lp.curvature(x))(0.0))


def test_coordinate_ascent_climbs_to_where_the_gradient_is_zero(x64):
    prior = PRIORS["effects"]
    values, seen = jnp.asarray(VALUES == 1), jnp.asarray(SEEN)
    q, elbos = rounds.batch_fit(a_posterior(prior), values, seen, prior=prior, num_updates=3000)
    assert (np.diff(elbos) > -1e-7).all() and elbos[-1] > elbos[0] + 10

    def bound(q):
        return batch.elbo(q, prior, values, seen)

    slope = jax.grad(bound)(q)
    for site in ("usage", "basis"):
        free = np.asarray(prior.free(site))
        for part in getattr(slope, site):
            assert np.abs(np.asarray(part)[:, free]).max() < 1e-3
    assert abs(float(slope.bias.mean)) < 1e-3


def test_blocks_of_rows_change_nothing_and_the_bound_is_exact(monkeypatch):
    """Thirty rows in blocks of seven, of which the last is filled up, and in one."""
    prior = PRIORS["effects"]
    update = jax.jit(rounds.batch_update, static_argnames="prior")
    found = []
    for size in (7 * COLUMNS, 2**16):
        monkeypatch.setattr(rounds, "BLOCK", size)
        monkeypatch.setattr(rounds, "LEAST_ROWS", 1)
        signs, state = (
            rounds.sign_blocks(BinaryMatrix(VALUES)),
            rounds.batch_start(a_posterior(prior)),
        )
        assert signs.dtype == np.int8
        for _ in range(3):
            state, bound = update(state, prior, signs)
        exact = batch.elbo(state.posterior, prior, jnp.asarray(VALUES == 1), jnp.asarray(SEEN))
        assert float(bound) == pytest.approx(float(exact), rel=1e-5)
        found.append((len(signs), state.posterior))
    assert [blocks for blocks, _ in found] == [5, 1]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4),
        found[0][1],
        found[1][1],
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_statistics_of_minibatches_are_those_of_all_entries_on_average(strategy):
    """The noisy natural gradient is without bias: within its standard error."""
    prior = PRIORS["effects"]
    q, sampler = a_posterior(prior), entry_sampler(BinaryMatrix(VALUES), strategy)
    mean, variance = lp.all_moments(q)
    curved = jnp.where(SEEN, lp.curvature(jnp.sqrt(mean**2 + variance)), 0.0)
    half = jnp.where(SEEN, jnp.where(VALUES == 1, 0.5, -0.5), 0.0)
    sums = jax.jit(jax.vmap(lambda k: svi.minibatch_sums(k, q, sampler, prior, 1)))
    found = sums(random.split(random.key(0), 200))
    for site in ("usage", "basis"):
        expected = batch.full_statistics(site, q, prior, curved, half)
        part = found[site]
        for total, full in ((part.precision, expected.precision), (part.shift, expected.shift)):
            count = part.count.reshape(part.count.shape + (1,) * (total.ndim - 2))
            difference = np.asarray(total - count * full, float)
            error = difference.std(0, ddof=1) / np.sqrt(len(difference)) + 1e-4
            scores = difference.mean(0) / error
            assert np.abs(scores).max() < 5 and (scores**2).mean() < 1.5
    number = svi.CHUNK
    full = prior.bias_scale**-2.0 + 2 * curved.sum()
    shift = jnp.sum(half - 2 * curved * (mean - q.bias.mean))
    for total, aim in ((found["bias"].precision, full), (found["bias"].shift, shift)):
        each = np.asarray(total, float) / number - float(aim)
        assert abs(each.mean()) < 4 * each.std(ddof=1) / np.sqrt(len(each))


def test_swapped_weights_would_be_found():
    """Weighing rows as if they were columns, as one printing of the equations does."""
    prior = PRIORS["factors"]
    q, sampler = a_posterior(prior), entry_sampler(BinaryMatrix(VALUES), "biased")
    wrong = sampler._replace(log_row=jnp.full(ROWS, -jnp.log(1.0 * COLUMNS)))
    mean, variance = lp.all_moments(q)
    curved = jnp.where(SEEN, lp.curvature(jnp.sqrt(mean**2 + variance)), 0.0)
    half = jnp.where(SEEN, jnp.where(VALUES == 1, 0.5, -0.5), 0.0)
    expected = batch.full_statistics("usage", q, prior, curved, half).shift
    sums = jax.jit(jax.vmap(lambda k: svi.minibatch_sums(k, q, wrong, prior, 1)))
    part = sums(random.split(random.key(0), 100))["usage"]
    difference = np.asarray(part.shift - part.count[..., None] * expected, float)
    scores = difference.mean(0) / (difference.std(0, ddof=1) / 10 + 1e-4)
    assert np.abs(scores).max() > 8


@pytest.mark.parametrize("strategy", ["biased", "uniform"])
def test_stochastic_and_batch_inference_agree(strategy):
    prior = PRIORS["factors"]
    values, seen = jnp.asarray(VALUES == 1), jnp.asarray(SEEN)
    start = a_posterior(prior)
    # Thousands of updates: here the compiler's full effort is worth its time.
    fit = fast_jit(rounds.batch_fit, level=3, static_argnames=("prior", "num_updates"))
    exact, _ = fit(start, values, seen, prior=prior, num_updates=2000)
    sampler = entry_sampler(BinaryMatrix(VALUES), strategy)
    # From a start near that of the other: of several optima both then find the same.
    near, _ = fit(start, values, seen, prior=prior, num_updates=100)
    run = fast_jit(svi.run, level=3, static_argnames="prior")
    state = run(random.key(0), svi.init(near, prior), sampler, prior, 3000)
    (mean, variance), (mean_exact, variance_exact) = map(lp.all_moments, (state.posterior, exact))
    sd = np.sqrt(np.asarray(variance_exact))
    assert np.median(np.abs(mean - mean_exact) / sd) < 0.02
    assert abs(np.median(np.sqrt(variance) / sd) - 1) < 0.02
    assert state.size >= ROWS


def test_the_bound_from_drawn_entries_is_that_of_all():
    prior = PRIORS["effects"]
    q, sampler = a_posterior(prior), entry_sampler(BinaryMatrix(VALUES), "biased")
    exact = batch.elbo(q, prior, jnp.asarray(VALUES == 1), jnp.asarray(SEEN))
    draw = jax.jit(jax.vmap(lambda k: svi.estimated_elbo(q, draw_entries(k, sampler, 4096), prior)))
    found = np.asarray(draw(random.split(random.key(0), 30)))
    error = found.std(ddof=1) / np.sqrt(len(found))
    assert error < 5 and abs(found.mean() - float(exact)) < 4 * error


def test_numpyros_own_inference_of_the_model_reaches_as_much():
    """Independent normals by gradients: as good as the closed form, whose bound is looser."""
    prior, values = PRIORS["factors"], jnp.asarray(VALUES == 1)
    given = functools.partial(model, VALUES, rank=2, bias_scale=prior.bias_scale)
    inference = SVI(given, AutoNormal(given), Adam(0.03), Trace_ELBO(num_particles=4))
    losses = inference.run(random.key(0), 1500, progress_bar=False).losses
    reached = -float(jnp.mean(losses[-300:]))
    best = max(
        float(rounds.batch_fit(a_posterior(prior, k), values, jnp.asarray(SEEN), prior=prior,
                              num_updates=300)[1][-1])
        for k in range(3)
    )  # fmt: skip
    assert best - 3 < reached < best + 15


def test_one_compilation_serves_a_run(compilations):
    prior = PRIORS["factors"]
    sampler = entry_sampler(BinaryMatrix(VALUES), "biased")
    state = svi.init(a_posterior(prior), prior)
    run = jax.jit(svi.run, static_argnames="prior")
    state = run(random.key(0), state, sampler, prior, 3)
    compilations()
    state = run(random.key(0), state, sampler, prior, 9)
    assert compilations() == 0 and state.chunks >= 9


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="rank is 0"):
        lp.start(random.key(0), (3, 3), lp.LogisticPrior(0), 0.0)
    with pytest.raises(InputError, match="prior_scale is -1"):
        model(VALUES, rank=2, prior_scale=-1)

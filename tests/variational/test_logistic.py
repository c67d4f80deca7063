"""Variational inference of the logistic model: the bound, unbiased statistics, the fixed point."""

import functools

import jax
import numpy as np
import pytest
from jax import lax, random
from jax import numpy as jnp
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
from bmfjax.variational.entry_sampling import STRATEGIES, Entries, draw_entries, entry_sampler
from bmfjax.variational.statistics import Statistics
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


# One program each, not one for every operation.
_start = fast_jit(
    lambda key, prior: lp.start(key, VALUES.shape, prior, -0.5, spread=0.7), static_argnames="prior"
)
all_moments = fast_jit(lp.all_moments)
elbo = fast_jit(batch.elbo, static_argnames="prior")
# Thousands of updates: here the compiler's effort is worth its time.
batch_fit = fast_jit(rounds.batch_fit, level=1, static_argnames=("prior", "num_updates"))


def a_posterior(prior, key=0):
    return _start(random.key(key), prior)


@functools.partial(fast_jit, static_argnames="prior")
def full_statistics(q, prior):
    """What all entries together ask for: of rows, of columns and of the bias."""
    mean, variance = lp.all_moments(q)
    curved = jnp.where(SEEN, lp.curvature(jnp.sqrt(mean**2 + variance)), 0.0)
    half = jnp.where(SEEN, jnp.where(VALUES == 1, 0.5, -0.5), 0.0)
    sides = {n: batch.full_statistics(n, q, prior, curved, half) for n in ("usage", "basis")}
    shift = jnp.sum(half - 2 * curved * (mean - q.bias.mean))
    return sides | {"bias": Statistics(prior.bias_scale**-2.0 + 2 * curved.sum(), shift)}


@functools.partial(fast_jit, level=1, static_argnames="prior")
def minibatches(q, sampler, prior):
    """Sums of 200 minibatches, one after the other: together, all would wait for the last zero."""
    keys = random.split(random.key(0), 200)
    return lax.map(lambda key: svi.minibatch_sums(key, q, sampler, prior, 1), keys)


def from_a_table(key, sampler, number):
    """Entries with the probabilities of `draw_entries`, which tries until it has found zeros.

    Its tries would be most of the time of thousands of minibatches.
    """
    row, column = (jnp.asarray(i) for i in np.nonzero(SEEN))
    log = sampler.zero_log_row[:, None] + sampler.zero_log_column
    log = log.at[sampler.one_row, sampler.one_column].set(sampler.one_log_probability)
    log = log[row, column]
    ends = jnp.cumsum(jnp.exp(log))
    i = jnp.searchsorted(ends, ends[-1] * random.uniform(key, (number,)), side="right")
    i = jnp.minimum(i, len(row) - 1)
    return Entries(row[i], column[i], jnp.asarray(VALUES == 1)[row, column][i], log[i])


@functools.partial(fast_jit, level=1, static_argnames="prior")
def _run(*arguments, prior):
    return svi.run(*arguments[:3], prior, arguments[3])


def stochastic_run(key, state, sampler, prior, num_chunks):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svi, "draw_entries", from_a_table)
        return _run(key, state, sampler, num_chunks, prior=prior)


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
    found = fast_jit(lambda sites: log_density(model, (VALUES,), options, sites)[0])(sites)
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
    rng = np.random.default_rng(3)
    one = [
        lp.Gaussian(*(np.asarray(a[i], float) for a in g))
        for g, i in zip(q.normals, (3, 5, ()), strict=True)
    ]
    u, v, z = (g.mean + np.sqrt(g.variance) * rng.normal(size=(20_000, *g.mean.shape)) for g in one)
    logits = (u * v).sum(-1) + z
    mean, variance = (np.asarray(m) for m in all_moments(q))
    alone = fast_jit(lp.moments)(*one)
    np.testing.assert_allclose(alone, (mean[3, 5], variance[3, 5]), rtol=1e-5)
    assert abs(logits.mean() - mean[3, 5]) < 4 * logits.std() / np.sqrt(len(logits))
    np.testing.assert_allclose(logits.var(), variance[3, 5], rtol=0.06)


def test_the_bound_is_one_and_close():
    node, weight = hermegauss(60)
    mean, sd = np.meshgrid([-9.0, -1.0, 0.0, 0.5, 6.0], [1e-3, 0.5, 2.0])
    exact = log_expit(mean[..., None] + sd[..., None] * node) @ weight / weight.sum()
    found = np.asarray(fast_jit(lp.entry_bound)(True, mean, sd**2))
    assert (exact - 0.25 < found).all() and (found <= exact + 1e-5).all()
    assert np.isfinite(fast_jit(jax.grad(lp.curvature))(0.0))


def test_coordinate_ascent_climbs_to_where_the_gradient_is_zero(x64):
    prior = PRIORS["effects"]
    values, seen = jnp.asarray(VALUES == 1), jnp.asarray(SEEN)
    q, elbos = batch_fit(a_posterior(prior), values, seen, prior=prior, num_updates=3000)
    assert (np.diff(elbos) > -1e-7).all() and elbos[-1] > elbos[0] + 10

    slope = fast_jit(jax.grad(lambda q: batch.elbo(q, prior, values, seen)))(q)
    for site in ("usage", "basis"):
        free = np.asarray(prior.free(site))
        for part in getattr(slope, site):
            assert np.abs(np.asarray(part)[:, free]).max() < 1e-3
    assert abs(float(slope.bias.mean)) < 1e-3


def test_blocks_of_rows_change_nothing_and_the_bound_is_exact(monkeypatch):
    """Thirty rows in blocks of seven, of which the last is filled up, and in one."""
    prior = PRIORS["effects"]
    update = fast_jit(rounds.batch_update, static_argnames="prior")
    found = []
    for size in (7 * COLUMNS, 2**16):
        monkeypatch.setattr(rounds, "BLOCK", size)
        monkeypatch.setattr(rounds, "LEAST_ROWS", 1)
        signs, state = (
            rounds.sign_blocks(BinaryMatrix(VALUES)),
            rounds.batch_start(a_posterior(prior)),
        )
        assert signs.ones.dtype == np.uint32  # a bit an entry
        for _ in range(3):
            state, bound = update(state, prior, signs)
        exact = elbo(state.posterior, prior, jnp.asarray(VALUES == 1), jnp.asarray(SEEN))
        assert float(bound) == pytest.approx(float(exact), rel=1e-5)
        found.append((signs.shape[0], state.posterior))
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
    full, found = full_statistics(q, prior), minibatches(q, sampler, prior)
    full, found = (jax.tree.map(np.asarray, x) for x in (full, found))
    for site in ("usage", "basis"):
        expected, part = full[site], found[site]
        # The prior is added to their averages.
        of_entries = expected.precision - np.eye(prior.width) / prior.scale**2
        expected = expected._replace(precision=of_entries)
        for total, each in ((part.precision, expected.precision), (part.shift, expected.shift)):
            count = part.count.reshape(part.count.shape + (1,) * (total.ndim - 2))
            difference = np.asarray(total - count * each, float)
            error = difference.std(0, ddof=1) / np.sqrt(len(difference)) + 1e-4
            scores = difference.mean(0) / error
            assert np.abs(scores).max() < 5 and (scores**2).mean() < 1.5
    number = svi.CHUNK
    for total, aim in zip(found["bias"], full["bias"], strict=True):
        each = np.asarray(total, float) / number - float(aim)
        assert abs(each.mean()) < 4 * each.std(ddof=1) / np.sqrt(len(each))


def test_swapped_weights_would_be_found():
    """Weighing rows as if they were columns, as one printing of the equations does."""
    prior = PRIORS["effects"]
    q, sampler = a_posterior(prior), entry_sampler(BinaryMatrix(VALUES), "biased")
    wrong = sampler._replace(log_row=np.full(ROWS, -np.log(COLUMNS), np.float32))
    expected = full_statistics(q, prior)["usage"].shift
    part = jax.tree.map(lambda x: np.asarray(x)[:100], minibatches(q, wrong, prior)["usage"])
    difference = np.asarray(part.shift - part.count[..., None] * expected, float)
    scores = difference.mean(0) / (difference.std(0, ddof=1) / 10 + 1e-4)
    assert np.abs(scores).max() > 8


@pytest.mark.parametrize("strategy", ["biased", pytest.param("uniform", marks=pytest.mark.long)])
def test_stochastic_and_batch_inference_agree(strategy):
    prior = PRIORS["factors"]
    values, seen = jnp.asarray(VALUES == 1), jnp.asarray(SEEN)
    start = a_posterior(prior)
    exact, _ = batch_fit(start, values, seen, prior=prior, num_updates=2000)
    sampler = entry_sampler(BinaryMatrix(VALUES), strategy)
    # From a start near that of the other: of several optima both then find the same.
    near, _ = batch_fit(start, values, seen, prior=prior, num_updates=100)
    state = stochastic_run(random.key(0), svi.init(near, prior), sampler, prior, 3000)
    (mean, variance), (mean_exact, variance_exact) = map(all_moments, (state.posterior, exact))
    sd = np.sqrt(np.asarray(variance_exact))
    assert np.median(np.abs(mean - mean_exact) / sd) < 0.02
    assert abs(np.median(np.sqrt(variance) / sd) - 1) < 0.02
    assert state.size >= ROWS


def test_the_bound_from_drawn_entries_is_that_of_all():
    prior = PRIORS["effects"]
    q, sampler = a_posterior(prior), entry_sampler(BinaryMatrix(VALUES), "biased")
    exact = elbo(q, prior, jnp.asarray(VALUES == 1), jnp.asarray(SEEN))

    def estimate(key):
        return svi.estimated_elbo(q, draw_entries(key, sampler, 4096), prior)

    draw = fast_jit(lambda keys: lax.map(estimate, keys))
    found = np.asarray(draw(random.split(random.key(0), 30)))
    error = found.std(ddof=1) / np.sqrt(len(found))
    assert error < 5 and abs(found.mean() - float(exact)) < 4 * error


def test_numpyros_own_inference_of_the_model_reaches_as_much():
    """Independent normals by gradients: as good as the closed form, whose bound is looser."""
    prior, values = PRIORS["factors"], jnp.asarray(VALUES == 1)
    given = functools.partial(model, VALUES, rank=2, bias_scale=prior.bias_scale)
    inference = SVI(given, AutoNormal(given), Adam(0.03), Trace_ELBO(num_particles=4))
    run = fast_jit(lambda key: inference.run(key, 1500, progress_bar=False).losses, level=1)
    reached = -float(np.mean(run(random.key(0))[-300:]))
    best = max(
        # The bound after 300 updates.
        float(batch_fit(a_posterior(prior, k), values, SEEN, prior=prior, num_updates=2000)[1][299])
        for k in range(3)
    )
    assert best - 3 < reached < best + 15


def test_one_compilation_serves_a_run(compilations):
    prior = PRIORS["factors"]
    sampler = entry_sampler(BinaryMatrix(VALUES), "biased")
    state = svi.init(a_posterior(prior), prior)
    state = stochastic_run(random.key(0), state, sampler, prior, 3)
    compilations()
    state = stochastic_run(random.key(0), state, sampler, prior, 9)
    assert compilations() == 0 and state.chunks >= 9


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="rank is 0"):
        lp.start(random.key(0), (3, 3), lp.LogisticPrior(0), 0.0)
    with pytest.raises(InputError, match="prior_scale is -1"):
        model(VALUES, rank=2, prior_scale=-1)

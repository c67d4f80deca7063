"""Precisions of the factors that variational inference learns: updates, the bound, the model."""

import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax import random
from numpyro.infer.util import log_density
from scipy.optimize import minimize_scalar

from bmfjax.data import BinaryMatrix
from bmfjax.models.logistic import logistic as model
from bmfjax.variational import batch, entry_sampler, relevance, rounds
from bmfjax.variational import posterior as lp
from bmfjax.variational import stochastic as svi
from tests.kernels.exactness import fast_jit

ROWS, COLUMNS = 24, 16
PRIOR = lp.LogisticPrior(
    4, 0.8, 2.0, row_effects=True, column_effects=True, relevance=(0.5, 0.0005)
)


def data():
    """One strong factor, and missing entries."""
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.normal(size=(ROWS, 1)) @ rng.normal(size=(1, COLUMNS))
    values = rng.random(logits.shape) < 1 / (1 + np.exp(-logits))
    return values, rng.random(logits.shape) < 0.9


VALUES, SEEN = data()
SEEN[5] = False
SAMPLER = entry_sampler(BinaryMatrix(np.where(SEEN, VALUES, np.nan)))
step = fast_jit(lambda key, state: svi.step(key, state, SAMPLER, PRIOR))


def a_posterior(spread=0.7):
    start = fast_jit(lambda key: lp.start(key, VALUES.shape, PRIOR, -0.5, spread=spread))
    return start(random.key(0))


@functools.cache
def fitted():
    """Return what 150 rounds of coordinate ascent reach, in double precision, and their bounds."""
    fit = fast_jit(rounds.batch_fit, static_argnames=("prior", "num_updates"))
    return fit(a_posterior(spread=0.1), VALUES, SEEN, prior=PRIOR, num_updates=150)


@fast_jit
def elbo(q):
    return batch.elbo(q, PRIOR, VALUES, SEEN)


def test_the_update_of_a_precision_is_the_best_of_all_gammas(x64):
    """Against a search over its rate and its shape, each alone, from where the update ends."""
    q = jax.tree.map(lambda a: jnp.asarray(a, float), a_posterior())
    best = fast_jit(lambda q: lp.with_best_relevance(q, PRIOR, True))(q)
    assert float(elbo(best)) > float(elbo(q))
    for name in ("shape", "rate"):
        found = getattr(best.relevance, name)

        def bound(log_factor, name=name, found=found):
            moved = found.at[1].multiply(np.exp(log_factor))
            return float(elbo(best._replace(relevance=best.relevance._replace(**{name: moved}))))

        searched = minimize_scalar(lambda x: -bound(x), bracket=(-0.3, 0.4), tol=1e-8)
        assert abs(searched.x) < 1e-5 and bound(0.1) < bound(0.0) > bound(-0.1)
    kept = lp.with_best_relevance(q, PRIOR, False)
    np.testing.assert_array_equal(kept.relevance.rate, q.relevance.rate)


def test_the_divergence_is_that_from_the_prior_of_the_model():
    """Closed form against draws, whose log prior density is that of the NumPyro model."""
    q = a_posterior()
    hidden = np.full((ROWS, COLUMNS), np.nan)
    options = {
        "rank": PRIOR.rank, "prior_scale": PRIOR.scale, "bias_scale": PRIOR.bias_scale,
        "row_effects": True, "column_effects": True, "relevance": PRIOR.relevance,
    }  # fmt: skip
    # Of a middle size and with a spread, for the terms of the precisions to be seen.
    shape, mean = jnp.array([4.0, 8.0, 20.0, 20.0]), jnp.array([0.1, 0.2, 1.0, 3.0])
    q = q._replace(relevance=lp.Gamma(shape, shape / mean))

    def one(key):
        keys = random.split(key, 4)
        u, v, z = (
            g.mean + jnp.sqrt(g.variance) * random.normal(k, g.mean.shape)
            for k, g in zip(keys, q.normals, strict=False)
        )
        precision = random.gamma(keys[3], q.relevance.shape) / q.relevance.rate
        sites = {
            "usage": u[:, :4], "row_effect": u[:, 4], "basis": v[:, :4], "column_effect": v[:, 5],
            "bias": z, "factor_precision": precision,
        }  # fmt: skip
        log_q = sum(
            jnp.sum(jnp.where(g.variance > 0, jax.scipy.stats.norm.logpdf(x, g.mean, sd), 0.0))
            for x, g, sd in (
                (x, g, jnp.sqrt(jnp.where(g.variance > 0, g.variance, 1.0)))
                for x, g in zip((u, v, z), q.normals, strict=True)
            )
        )
        log_q += jnp.sum(
            jax.scipy.stats.gamma.logpdf(precision, shape, scale=1.0 / q.relevance.rate)
        )
        return log_q - log_density(model, (hidden,), options, sites)[0]

    found = np.asarray(fast_jit(jax.vmap(one))(random.split(random.key(1), 4000)), float)
    error = found.std(ddof=1) / np.sqrt(len(found))
    expected = float(fast_jit(functools.partial(lp.divergence, prior=PRIOR))(q))
    assert error < 2 and abs(found.mean() - expected) < 4 * error


def test_the_bound_never_falls_and_factors_without_evidence_vanish(x64):
    q, bounds = fitted()
    assert (np.diff(bounds) > -1e-7).all()
    assert float(bounds[-1]) == pytest.approx(float(elbo(q)), rel=1e-9)
    # The best precisions given the factors are those that it ends with.
    squares = sum((g.mean**2 + g.variance)[:, :4].sum(0) for g in (q.usage, q.basis))
    np.testing.assert_allclose(q.relevance.mean, (0.5 + 20) / (0.0005 + squares / 2), rtol=1e-6)
    size = np.linalg.norm(q.usage.mean[:, :4], axis=0) * np.linalg.norm(q.basis.mean[:, :4], axis=0)
    assert np.sort(size)[-1] > 15 and np.sort(size)[-2] < 1e-2
    vanished = np.asarray(q.relevance.mean)[size < 1e-2]
    assert vanished.min() > 10 * np.asarray(q.relevance.mean).min()


def test_precisions_wait_until_factors_have_found_something():
    """In rounds and in minibatches: for some steps they are what they were, then they move."""
    q = a_posterior()
    signs = rounds.sign_blocks(BinaryMatrix(np.where(SEEN, VALUES, np.nan)))
    update = fast_jit(lambda s: rounds.batch_update(s, PRIOR, signs)[0])
    for state, name, move in (
        (rounds.batch_start(q), "rounds", update),
        (svi.init(q, PRIOR), "updates", functools.partial(step, random.key(1))),
    ):
        for number, waits in ((relevance.LEARN_AFTER - 1, True), (relevance.LEARN_AFTER, False)):
            at = state._replace(**{name: jnp.asarray(number, jnp.int32)})
            same = np.asarray(move(at).posterior.relevance.rate) == np.asarray(q.relevance.rate)
            assert same.all() if waits else not same.any()


def test_the_prior_does_not_depend_on_the_number_of_minibatches():
    """A row without entries has the prior's variances, and precisions are those of the lines."""
    state = svi.init(a_posterior(), PRIOR)
    for t in range(relevance.LEARN_AFTER + 15):
        before, state = state, step(random.fold_in(random.key(2), t), state)
    q = state.posterior
    np.testing.assert_allclose(
        1 / q.usage.variance[5, :4], before.posterior.relevance.mean, rtol=1e-5
    )
    squares = sum((g.mean**2 + g.variance)[:, :4].sum(0) for g in (q.usage, q.basis))
    expected = (0.5 + (ROWS + COLUMNS) / 2) / (0.0005 + squares / 2)
    np.testing.assert_allclose(q.relevance.mean, expected, rtol=1e-5)


def test_new_rows_have_the_learned_precisions(x64):
    """A row that is fitted again, given all else, is what it was."""
    q, _ = fitted()
    again = fast_jit(functools.partial(batch.usage_given_basis, prior=PRIOR))(
        q.basis, q.bias, values=VALUES, observed=SEEN, relevance=q.relevance
    )
    np.testing.assert_allclose(again.mean, q.usage.mean, atol=2e-3)
    np.testing.assert_allclose(again.variance, q.usage.variance, rtol=2e-2)

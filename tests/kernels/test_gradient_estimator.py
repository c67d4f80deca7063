"""Estimates of gradients: unbiased over all minibatches there are, and so is their variance."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import bmfjax
from bmfjax.infer.mcmc.relaxed import relaxed_arguments, relaxed_density
from bmfjax.kernels.relaxed.data import matrix_data
from bmfjax.kernels.relaxed.density import EntryPrior, log_joint
from bmfjax.kernels.sgmcmc.anchors import follow, start_track
from bmfjax.kernels.sgmcmc.gradients import (
    anchor_at,
    anchored_residual,
    estimate_gradient,
    missing_noise,
)

ROWS, COLUMNS, RANK = 8, 7, 2
BATCH, TEMPERATURE = 3, 0.6
#: Small problems take longer to compile than to run.
quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def problem(prior="uniform", missing=False, upper=1.0):
    """Density, data, and a position with one factor a row; its fit is close but not exact."""
    r = np.random.default_rng(5)
    usage, basis = r.random((ROWS, RANK)), r.random((COLUMNS, RANK))
    values = usage @ basis.T + 0.1 * r.normal(size=(ROWS, COLUMNS))
    if missing:
        values[r.random(values.shape) < 0.3] = np.nan
    named = "uniform" if prior == "quartic" else prior
    model = functools.partial(bmfjax.models.relaxed_bmf, rank=RANK, prior=named, upper=upper)
    density = relaxed_density(relaxed_arguments(model, (values,), {}))
    if prior == "quartic":
        quartic = EntryPrior(lambda x, rate: -3.0 * (x - 0.4) ** 4, 0.0, 1.0, 0.0)
        density = density._replace(usage=quartic, basis=quartic)
    position = {
        "usage": jnp.asarray(np.clip(usage + 0.05 * r.normal(size=usage.shape), 0.01, 0.99).T),
        "basis": jnp.asarray(np.clip(basis + 0.05 * r.normal(size=basis.shape), 0.01, 0.99).T),
        "precision": jnp.asarray(40.0),
    }
    if density.rate_gamma is not None:
        position["rate"] = jnp.array([0.7, 2.0])
    anchor = anchor_at(jnp.asarray(usage.T), jnp.asarray(basis.T), matrix_data(values))
    return density, matrix_data(values), position, anchor


def full_gradient(density, factor, position, data):
    """By automatic differentiation of the log joint density."""

    def of(x):
        lines = position | {factor: x}
        return log_joint(
            density, lines | {f: lines[f].T for f in ("usage", "basis")}, data, TEMPERATURE
        )

    return jax.grad(of)(position[factor])


@pytest.mark.parametrize(("prior", "upper"), [("normal", 1.0), ("quartic", 1.0), ("ard", np.inf)])
def test_all_cases_give_the_gradient_itself_with_no_variance(x64, prior, upper):
    density, data, position, anchor = problem(prior, missing=prior == "quartic", upper=upper)

    @quick_jit
    def both(position):
        pairs = []
        for factor, cases in (("usage", None), ("basis", jnp.arange(ROWS)[::-1])):
            found = estimate_gradient(density, factor, position, data, cases, anchor, TEMPERATURE)
            pairs.append((found, full_gradient(density, factor, position, data)))
        return pairs

    for found, expected in both(position):
        np.testing.assert_allclose(found.gradient, expected, rtol=1e-9)
        assert (found.variance == 0).all()


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
def test_over_all_minibatches_mean_and_variance_are_right(x64, missing):
    """Every set of cases once: no Monte Carlo error, so the identities hold to rounding."""
    density, data, position, anchor = problem("normal", missing)
    at_anchor = position | {"usage": anchor.usage, "basis": anchor.basis}

    @functools.partial(quick_jit, static_argnums=0)
    def all_of(factor, batches):
        def estimates(cases):
            return [
                estimate_gradient(density, factor, p, data, cases, a, TEMPERATURE)
                for p, a in ((position, None), (position, anchor), (at_anchor, anchor))
            ]

        return jax.vmap(estimates)(batches), full_gradient(density, factor, position, data)

    for factor, size in (("usage", COLUMNS), ("basis", ROWS)):
        batches = np.array(list(itertools.combinations(range(size), BATCH)))
        (plain, control, there), expected = all_of(factor, batches)
        for found in (plain, control):
            np.testing.assert_allclose(found.gradient.mean(0), expected, rtol=1e-9)
            np.testing.assert_allclose(found.variance.mean(0), found.gradient.var(0), rtol=1e-8)
        assert 0.0 < control.variance.mean() < 0.25 * plain.variance.mean()
        assert there.variance.max() < 1e-20


def test_the_residual_from_the_anchor_is_exact_with_all_rows_and_unbiased_with_some(x64):
    _, data, position, anchor = problem()
    batches = np.array(list(itertools.combinations(range(ROWS), BATCH)))

    def estimate(cases):
        return jnp.stack(anchored_residual(position, anchor, data, cases))

    expected = jnp.sum((data.values - position["usage"].T @ position["basis"]) ** 2)
    whole, none = quick_jit(estimate)(jnp.arange(ROWS))
    np.testing.assert_allclose(whole, expected, rtol=1e-12)
    assert none == 0.0
    some, share = np.asarray(quick_jit(jax.vmap(estimate))(batches)).T
    np.testing.assert_allclose(some.mean(), expected, rtol=1e-12)
    # The share is of each estimate's own square.
    variance = share * some**2 * 2.0 / (ROWS * COLUMNS)
    np.testing.assert_allclose(variance.mean(), some.var(), rtol=1e-9)
    assert 0.0 < some.std() < 0.05 * expected  # of second order in the distance
    assert abs(anchor.residual - expected) > 5 * some.std()


def test_missing_noise_has_the_curvature_of_the_missing_cells(x64):
    _, data, position, _ = problem(missing=True)

    def draw(key):
        key_cases, key_noise = random.split(key)
        cases = random.permutation(key_cases, ROWS)[:4]
        return missing_noise(key_noise, "basis", position, data, 3.0, cases)

    draws = np.asarray(quick_jit(jax.vmap(draw))(random.split(random.key(0), 20_000)))
    gaps = 1.0 - np.asarray(data.observed)
    usage = np.asarray(position["usage"])
    expected = 3.0 * np.einsum("ij,ki,li->jkl", gaps, usage, usage)
    found = np.einsum("dkj,dlj->jkl", draws, draws) / len(draws)
    np.testing.assert_allclose(found, expected, atol=0.05 * expected.max())
    assert (draws[:, :, gaps.sum(0) == 0] == 0).all()


def test_the_anchor_follows_the_draws_and_then_stays():
    """Under vmap, with chains that differ: each anchor is the mean of its own later half."""
    _, data, position, _ = problem()
    r = np.random.default_rng(0)
    shapes = {f: position[f].shape for f in ("usage", "basis")}
    draws = {f: r.random((10, 2, *s)).astype(np.float32) for f, s in shapes.items()}
    track = quick_jit(jax.vmap(lambda f: start_track(f, data)))({f: d[0] for f, d in draws.items()})
    advance = quick_jit(jax.vmap(lambda t, f: follow(t, f, data, 6)))
    expected = {1: (0, 1), 2: (0, 1), 3: (1, 3), 5: (1, 3), 6: (3, 6), 9: (3, 6)}
    for t in range(10):
        track = advance(track, {f: d[t] for f, d in draws.items()})
        if t + 1 in expected:
            first, last = expected[t + 1]
            for factor, d in draws.items():
                found = getattr(track.anchor, factor)
                np.testing.assert_allclose(found, d[first:last].mean(0), rtol=1e-5)
    usage, basis = (np.asarray(getattr(track.anchor, f)[1]) for f in ("usage", "basis"))
    residual = np.asarray(data.values) - usage.T @ basis
    np.testing.assert_allclose(track.anchor.basis_pull[1], usage @ residual, atol=1e-4)
    np.testing.assert_allclose(track.anchor.usage_pull[1], basis @ residual.T, atol=1e-4)

"""PALM: the objective never increases, because no step is longer than the moduli allow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from benchmarks.papers.elbmf import elastic_penalty, prox_elastic
from bmfjax.optimize import (
    SQUARED_ERROR,
    Factors,
    Matrix,
    Penalty,
    minimise,
    palm,
)
from bmfjax.optimize.tiling import PANPAL, PRIMP, primp_smooth, primp_usage_modulus

ROWS, COLUMNS, RANK = 9, 7, 3
ELASTIC = palm(
    SQUARED_ERROR,
    Penalty(
        lambda x, time: elastic_penalty(x, 0.2, 0.5),
        lambda x, step, time: prox_elastic(x, 0.2 * step, 0.5 * step),
    ),
)
OPTIMISERS = {"PanPal": PANPAL, "Primp": PRIMP, "elastic": ELASTIC}


def matrix(missing: bool) -> Matrix:
    r = np.random.default_rng(0)
    values = (r.random((ROWS, COLUMNS)) < 0.4).astype(float)
    if not missing:
        return Matrix(jnp.asarray(values))
    observed = (r.random(values.shape) < 0.7).astype(float)
    return Matrix(jnp.asarray(values * observed), jnp.asarray(observed))


def start(seed: int) -> Factors:
    keys = random.split(random.key(seed))
    return Factors(random.uniform(keys[0], (ROWS, RANK)), random.uniform(keys[1], (COLUMNS, RANK)))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_the_objective_never_increases(name, missing, x64):
    optimiser, data = OPTIMISERS[name], matrix(missing)

    @jax.jit
    def run(factors):
        def step(carry, _):
            factors, state = optimiser.update(*carry, data)
            return (factors, state), optimiser.objective(factors, state, data)

        return jax.lax.scan(step, (factors, optimiser.init(factors)), length=200)

    (_, state), values = run(start(0))
    values = np.asarray(values)
    assert np.isfinite(values).all() and state.time == 200
    assert (np.diff(values) <= 1e-9).all() and values[-1] < 0.9 * values[0]


def test_primps_modulus_bounds_its_gradient(x64):
    data, r = matrix(False), np.random.default_rng(1)
    # Factors that say little: then the words of the code are most of what curves.
    basis = 0.1 * start(1).basis
    gradient = jax.jit(jax.grad(lambda y: primp_smooth(Factors(y, basis), data)))
    modulus = float(primp_usage_modulus(basis, data))
    ratios = []
    for n in range(60):
        a = jnp.asarray(0.02 * r.random((ROWS, RANK)))
        column = jnp.asarray(np.eye(RANK)[n % RANK] * 0.02)  # the same in all rows curves most
        b = a + (column if n % 2 else jnp.asarray(r.random((ROWS, RANK))))
        ratios.append(float(jnp.linalg.norm(gradient(a) - gradient(b)) / jnp.linalg.norm(a - b)))
    assert 0.3 * modulus < max(ratios) <= modulus


def test_the_squared_error_by_gram_matrices_is_that_of_the_residual(x64):
    data, factors = matrix(False), start(2)
    everywhere = data._replace(observed=jnp.ones((ROWS, COLUMNS)))
    value = jax.value_and_grad(SQUARED_ERROR.value)
    for a, b in zip(*(jax.tree.leaves(value(factors, d)) for d in (data, everywhere)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_the_squared_error_counts_what_is_observed(x64):
    data, factors = matrix(True), start(2)
    values, observed = np.asarray(data.values), np.asarray(data.observed) > 0
    residual = (values - np.asarray(factors.usage @ factors.basis.T))[observed]
    np.testing.assert_allclose(SQUARED_ERROR.value(factors, data), 0.5 * (residual**2).sum())


def test_restarts_at_once_are_restarts_one_by_one():
    data, starts = matrix(False), [start(seed) for seed in range(3)]
    data = Matrix(data.values.astype(jnp.float32))
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)

    def run(factors):
        return minimise(ELASTIC, factors, data, max_steps=400, tolerance=1e-6, window=20)

    found = jax.jit(jax.vmap(run))(together)
    assert len(set(np.asarray(found.steps).tolist())) > 1  # each stops by itself
    for n, one in enumerate(starts):
        alone = run(one)
        assert alone.steps == found.steps[n]
        np.testing.assert_allclose(alone.factors.usage, found.factors.usage[n], atol=1e-4)


def test_it_stops_at_a_point_that_stays(x64):
    data = matrix(False)
    found = minimise(ELASTIC, start(0), data, max_steps=50_000, tolerance=1e-13, window=100)
    assert found.steps < 50_000
    moved, _ = ELASTIC.update(found.factors, ELASTIC.init(found.factors), data)
    for a, b in zip(moved, found.factors, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)

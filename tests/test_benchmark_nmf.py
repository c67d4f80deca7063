"""Nonnegative least squares in turn: descent, and the conditions of a minimum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from scipy.optimize import nnls

from benchmarks.agreement.nmf_optimisers import multiplicative_updates, projected_gradient
from bmfjax.diagnostics import laurberg


def problem(seed=0):
    r = np.random.default_rng(seed)
    data = r.exponential(size=(8, 3)) @ r.exponential(size=(3, 6)) + 0.05 * r.normal(size=(8, 6))
    return jnp.maximum(data, 0.0), jnp.array(r.random((8, 3))), jnp.array(r.random((6, 3)))


def error(data, usage, basis):
    return float(jnp.sum((data - usage @ basis.T) ** 2))


def test_multiplicative_updates_never_raise_the_error_and_keep_zeros():
    data, usage, basis = problem()
    usage = usage.at[0, 0].set(0.0)
    errors = [error(data, usage, basis)]
    for _ in range(20):
        usage, basis = multiplicative_updates(usage, basis, data, 1)
        errors.append(error(data, usage, basis))
    assert (np.diff(errors) <= 1e-5).all() and errors[-1] < 0.2 * errors[0]
    assert usage[0, 0] == 0.0 and (usage >= 0).all() and (basis >= 0).all()


def test_steps_at_once_are_steps_one_by_one():
    data, usage, basis = problem()
    once = multiplicative_updates(usage, basis, data, 3)
    each = usage, basis
    for _ in range(3):
        each = multiplicative_updates(*each, data, 1)
    np.testing.assert_allclose(once[0], each[0], rtol=1e-5)


def test_projected_gradient_stops_where_each_factor_is_the_best_given_the_other(x64):
    data, usage, basis = (jnp.asarray(a, float) for a in problem())
    found = jax.jit(lambda *a: projected_gradient(*a, tolerance=1e-7, max_steps=3000))(
        usage, basis, data
    )
    assert found.step < 3000
    y, x = np.asarray(found.usage), np.asarray(found.basis)
    best = np.stack([nnls(x, row)[0] for row in np.asarray(data)])
    np.testing.assert_allclose(y, best, atol=1e-4)
    best = np.stack([nnls(y, column)[0] for column in np.asarray(data).T])
    np.testing.assert_allclose(x, best, atol=1e-4)


def test_restarts_reach_both_solutions_of_laurbergs_matrix(x64):
    exact = laurberg(0.5)
    run = jax.jit(
        jax.vmap(
            lambda k: projected_gradient(
                *random.uniform(k, (2, 6, 3)), jnp.asarray(exact.exact), tolerance=1e-5
            )
        )
    )
    usage = np.asarray(run(random.split(random.key(0), 40)).usage)
    from bmfjax.diagnostics import pairwise_distances

    apart = [pairwise_distances(usage, exact.solution(t)[0][None])[:, 0] < 1.0 for t in (0.0, 1.0)]
    assert min(a.sum() for a in apart) > 5
    assert (apart[0] | apart[1]).mean() > 0.8


@pytest.mark.parametrize("negative", [False, True])
def test_negative_data_count_as_zero(negative):
    data = jnp.array([[1.0, -0.5 if negative else 0.0], [2.0, 1.0]])
    usage, basis = multiplicative_updates(jnp.ones((2, 1)), jnp.ones((2, 1)), data, 10)
    assert jnp.isfinite(usage).all() and (usage @ basis.T >= 0).all()

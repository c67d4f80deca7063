"""Natural parameters of rows and columns: the systems that are solved, and the mean field."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp
from jax import random

from bmfjax.data import BinaryMatrix
from bmfjax.variational import LogisticPrior, entry_sampler, stochastic
from bmfjax.variational import posterior as lp
from bmfjax.variational.statistics import Statistics, mean_field, solve


@settings(max_examples=20)
@given(st.sampled_from((1, 2, 5, 12)), st.integers(0, 2**31))
def test_systems_are_solved(width, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(5, width, width))
    system = np.eye(width) + root @ root.swapaxes(1, 2)
    right = rng.normal(size=(5, width))
    expected = np.linalg.solve(system, right[..., None])[..., 0]
    found = solve(jnp.asarray(system, jnp.float32), jnp.asarray(right, jnp.float32))
    condition = np.linalg.cond(system).max()
    np.testing.assert_allclose(found, expected, atol=3e-6 * condition)


@pytest.mark.parametrize("free", [(True, True, False), (False, True, True)])
def test_the_mean_field_is_the_best_with_fixed_coordinates(free):
    """Its means solve the free block; fixed ones stay at one, to the last bit."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 3, 3))
    precision, shift = np.eye(3) + root @ root.swapaxes(1, 2), rng.normal(size=(4, 3))
    found = mean_field(Statistics(jnp.asarray(precision), jnp.asarray(shift)), free)
    f = np.array(free)
    for p, h, mean, variance in zip(precision, shift, *found, strict=True):
        expected = np.linalg.solve(p[np.ix_(f, f)], h[f] - p[np.ix_(f, ~f)].sum(1))
        np.testing.assert_allclose(mean[f], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(variance[f], 1 / np.diag(p)[f], rtol=1e-5)
        assert (mean[~f] == 1).all() and (variance[~f] == 0).all()


def test_no_step_waits_for_lapack():
    """Two of its batched calls at once wait for each other's threads on a machine of two cores."""
    prior, values = LogisticPrior(3), np.random.default_rng(0).random((9, 7)) < 0.4
    state = stochastic.init(lp.start(random.key(0), values.shape, prior, 0.0), prior)
    step = jax.jit(functools.partial(stochastic.step, prior=prior))
    program = step.lower(random.key(1), state, entry_sampler(BinaryMatrix(values))).as_text()
    assert "lapack" not in program and "while" in program

"""Cholesky factors along the last axis, and solutions of systems, are those of NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from bmfjax.kernels.numerics import linalg
from tests.kernels.exactness import fast_jit

back_substitute, factor, inverse, log_determinant, solve = map(
    fast_jit,
    (linalg.back_substitute, linalg.factor, linalg.inverse, linalg.log_determinant, linalg.solve),
)


def matrices(n, batch=5, seed=0):
    x = np.random.default_rng(seed).normal(size=(batch, 2 * n + 1, n)).astype(np.float32)
    return np.einsum("bti,btj->bij", x, x) + 0.1 * np.eye(n, dtype=np.float32)


@pytest.mark.parametrize("n", [1, 2, 8, 11])
@pytest.mark.device
def test_factors_and_solutions_are_numpys(n):
    a = matrices(n)
    b = np.random.default_rng(1).normal(size=(5, n)).astype(np.float32)
    system = np.concatenate([a, b[..., None]], -1).transpose(1, 2, 0)
    upper = fast_jit(lambda s: linalg.cholesky(s, panel=4))(jnp.asarray(system))
    expected = np.linalg.cholesky(a.astype(np.float64))
    np.testing.assert_allclose(upper[:, :n], expected.transpose(2, 1, 0), atol=2e-4)
    upper = np.asarray(upper)
    x = back_substitute(upper[:, :n], upper[:, n])
    solution = np.linalg.solve(a.astype(np.float64), b[..., None])[..., 0]
    np.testing.assert_allclose(x.T, solution, rtol=2e-3, atol=1e-3)


@pytest.mark.device
def test_one_matrix():
    a = matrices(6)[0]
    np.testing.assert_allclose(factor(jnp.asarray(a)).T, np.linalg.cholesky(a), atol=1e-4)
    found = float(log_determinant(jnp.asarray(a)))
    assert found == pytest.approx(np.linalg.slogdet(a)[1], rel=1e-4)


def test_a_matrix_that_rounds_to_singular_has_a_finite_factor():
    a = np.float32(np.ones((3, 3)) + 1e-9 * np.eye(3))
    assert np.isfinite(factor(a)).all()


@pytest.mark.device
def test_systems_are_solved_as_by_numpy():
    half = np.random.default_rng(5).normal(size=(40, 5, 7))
    matrices = (half @ half.transpose(0, 2, 1)).astype(np.float32)
    right = matrices[:, :, :2] @ np.ones((2, 1), np.float32)
    found = solve(jnp.asarray(matrices), jnp.asarray(right[..., 0]))
    np.testing.assert_allclose(found, np.broadcast_to([1, 1, 0, 0, 0], (40, 5)), atol=2e-2)
    identity = matrices @ np.asarray(inverse(jnp.asarray(matrices)))
    np.testing.assert_allclose(identity, np.broadcast_to(np.eye(5), identity.shape), atol=2e-2)

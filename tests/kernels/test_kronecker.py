"""The covariance of gradients of a factor matrix as a Kronecker product."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from bmfjax.kernels.sgmcmc import calibration, sandwich
from bmfjax.kernels.sgmcmc.iasg import Block
from bmfjax.kernels.sgmcmc.kronecker import kronecker_factors

M, R = 4, 3
_RNG = np.random.default_rng(0)


def definite(size):
    root = _RNG.normal(size=(size, size))
    return root @ root.T / size + 0.3 * np.eye(size)


def error(found, exact):
    """Of a covariance, relative, in coordinates in which it is the unit matrix."""
    root = np.linalg.inv(np.linalg.cholesky(exact))
    return np.abs(np.linalg.eigvalsh(root @ found @ root.T) - 1).max()


def test_the_estimate_converges_where_the_covariance_is_a_product():
    """With gradients that are not normal, from fewer cases than the full covariance needs."""
    rows, columns = definite(M), definite(R)
    exact = np.kron(rows, columns)
    roots = np.linalg.cholesky(rows), np.linalg.cholesky(columns)
    errors, full = [], []
    for number in (100, 1600, 25_600):
        z = _RNG.uniform(-(3**0.5), 3**0.5, (number, M, R))
        z = np.einsum("ab,ibc,dc->iad", roots[0], z, roots[1])
        errors.append(error(np.kron(*kronecker_factors(jnp.asarray(z, jnp.float32))), exact))
        full.append(error(np.cov(z.reshape(number, -1).T, ddof=0), exact))
    # The error falls with the root of the number of cases: by four each time, and chance.
    assert errors[0] < 0.8 and errors[1] < 0.2 and errors[2] < 0.05
    assert all(e < 0.7 * f for e, f in zip(errors, full, strict=True))


def design():
    """Gradients (case, M, R) whose covariance is a product: all pairs of two sets of vectors."""
    half = _RNG.normal(size=(M + 1, M))
    left, right = np.concatenate([half, -half]), _RNG.normal(size=(2 * R, R))
    each = np.einsum("ia,jb->ijab", left, right).reshape(-1, M, R)
    return each, (left.T @ left / len(left), right.T @ right / len(right))


def test_the_sandwich_is_that_of_all_minibatches(monkeypatch):
    """Every pair of cases, with replacement, is a minibatch: what one step adds is enumerated."""
    each, factors = design()
    n = len(each)
    monkeypatch.setattr(calibration, "FULL_COORDINATES", M * R - 1)
    monkeypatch.setattr(calibration, "MAX_CASES", n - 1)
    gradients = jnp.asarray(n * each, jnp.float32)
    block = Block(
        ("w",), {"rows": (n, 2)}, None,
        case_gradients=lambda position, at, data, b: {"w": gradients[at["rows"]]},
    )  # fmt: skip
    position = {"w": jnp.zeros((M, R))}
    # All cases but one, so that little of the estimate is chance.
    key = random.key(0)
    noise_at = calibration.noise_at([block], key, position, None, replace=True)
    noise = np.asarray(noise_at(jnp.zeros(M * R)))
    # N cov(n g_i) / N^2 in the units of the module: C = N cov(g_i).
    assert error(noise, n * np.kron(*factors)) < 0.2

    curvature = n * np.kron(np.eye(M), definite(R))
    step = 0.25 * np.linalg.inv(curvature)
    moves = [
        step @ (n / 2 * (each[i] + each[j])).ravel()
        for i, j in itertools.product(range(n), repeat=2)
    ]
    enumerated = np.cov(np.array(moves).T, ddof=0)
    exact = [np.asarray(f, np.float32) for f in kronecker_factors(jnp.asarray(each, jnp.float32))]
    one = sandwich.sweep(
        *(jnp.asarray(a, jnp.float32) for a in (curvature, n * np.kron(*exact))),
        [jnp.asarray(step, jnp.float32)], [n / 2],
    )  # fmt: skip
    assert error(np.asarray(one.noise), enumerated) < 1e-3


def test_a_factor_that_no_case_moves_has_no_noise():
    z = _RNG.normal(size=(200, M, R)).astype(np.float32)
    z[:, :, 1] = 0.0
    rows, columns = kronecker_factors(jnp.asarray(z))
    assert np.isfinite(rows).all() and float(columns[1, 1]) == pytest.approx(0.0, abs=1e-6)

"""Covariance of window averages of linear steps, against sums written out, and the map from it."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from bmfjax.kernels.sgmcmc.sandwich import (
    at_least,
    average_covariance,
    calibrating_map,
    covariance_at,
    definite,
    sd_ratios,
    stationary_covariance,
    sweep,
)
from bmfjax.kernels.sgmcmc.step_size import variance_ratio

R = np.random.default_rng(0)
D, FIRST = 5, 2


def covariance(scales):
    mixed = R.normal(size=(len(scales), 3 * len(scales)))
    return mixed @ mixed.T / (3 * len(scales)) * np.outer(scales, scales)


CURVATURE = covariance(np.array([1.0, 3.0, 10.0, 0.5, 2.0]))
NOISE = np.zeros((D, D))
NOISE[:FIRST, :FIRST] = covariance(np.array([2.0, 1.0]))
NOISE[FIRST:, FIRST:] = covariance(np.array([8.0, 1.0, 1.0]))
STEPS, SHARES = (0.3, 0.4), (20.0, 8.0)
MATRICES = [
    STEPS[0] * np.linalg.inv(CURVATURE[:FIRST, :FIRST]),
    STEPS[1] * np.linalg.inv(CURVATURE[FIRST:, FIRST:]),
]


def float32(*arrays):
    return [jnp.asarray(a, jnp.float32) for a in arrays]


@functools.cache
def two_blocks():
    return sweep(*float32(CURVATURE, NOISE), float32(*MATRICES), SHARES)


def by_hand(e, noises=(0.0, 0.0)):
    """Both blocks moved in turn, the second from where the first has gone."""
    e = e.copy()
    for part, matrix, z in zip((slice(0, 2), slice(2, 5)), MATRICES, noises, strict=True):
        e[part] = e[part] - matrix @ ((CURVATURE @ e)[part] - z)
    return e


def test_a_sweep_is_the_steps_of_its_blocks_in_turn():
    found, identity = two_blocks(), np.eye(D)
    transition = np.stack([by_hand(e) for e in identity], 1)
    np.testing.assert_allclose(found.transition, transition, atol=2e-5)
    # Noise goes through what is left of the sweep: columns of a root of C, one at a time.
    roots = [np.linalg.cholesky(NOISE[p, p] * s) for p, s in zip(
        (slice(0, 2), slice(2, 5)), SHARES, strict=True)]  # fmt: skip
    ways = [by_hand(np.zeros(D), (c, np.zeros(3))) for c in roots[0].T]
    ways += [by_hand(np.zeros(D), (np.zeros(2), c)) for c in roots[1].T]
    expected = np.stack(ways, 1) @ np.stack(ways, 1).T
    np.testing.assert_allclose(found.noise, expected, rtol=1e-3, atol=1e-4 * abs(expected).max())


@pytest.mark.parametrize("window", [1, 2, 7])
def test_averages_have_the_sum_over_all_pairs_of_iterates(window):
    one = two_blocks()
    m, q = (np.asarray(a, float) for a in one)
    stationary = np.linalg.solve(np.eye(D * D) - np.kron(m, m), q.ravel()).reshape(D, D)
    np.testing.assert_allclose(stationary_covariance(one), stationary, rtol=2e-3)
    total = np.zeros((D, D))
    for s in range(window):
        for t in range(window):
            lag = np.linalg.matrix_power(m, abs(s - t)) @ stationary
            total += lag if s >= t else lag.T
    np.testing.assert_allclose(average_covariance(one, window), total / window**2, rtol=3e-3)


def limit():
    return np.linalg.inv(CURVATURE) @ NOISE @ np.linalg.inv(CURVATURE)


@pytest.mark.parametrize("window", [1, 8, 30])
def test_newton_steps_of_one_block_have_the_ratio_of_the_step_size_module(window):
    step, fraction = 0.2, 0.05
    matrix = step * np.linalg.inv(CURVATURE)
    one = sweep(*float32(CURVATURE, NOISE), float32(matrix), [1.0 / fraction])
    expected = variance_ratio(step, window, fraction) * limit()
    scale = abs(expected).max()
    np.testing.assert_allclose(
        average_covariance(one, window), expected, rtol=5e-3, atol=1e-4 * scale
    )


@pytest.mark.parametrize("kind", ["blocks", "plain"])
def test_long_averages_have_the_sandwich_whatever_the_preconditioner(kind):
    """Mandt, Hoffman, Blei 2017: A^-1 C A^-1 N / (S T)."""
    window, share = 20_000, 20.0
    matrices = MATRICES if kind == "blocks" else [0.01 * np.eye(D)]
    shares = [share] * len(matrices)
    one = sweep(*float32(CURVATURE, NOISE), float32(*matrices), shares)
    found = average_covariance(one, window) * window / share
    np.testing.assert_allclose(found, limit(), rtol=0.05, atol=0.02 * abs(limit()).max())


def test_the_map_gives_the_posterior_covariance_and_is_symmetric_where_that_is_standard():
    found = np.asarray(calibrating_map(*float32(CURVATURE, limit())), float)
    posterior = np.linalg.inv(CURVATURE)
    np.testing.assert_allclose(
        found @ limit() @ found.T, posterior, rtol=2e-3, atol=1e-4 * posterior.max()
    )
    root = np.linalg.cholesky(CURVATURE).T
    standard = root @ found @ np.linalg.inv(root)
    np.testing.assert_allclose(standard, standard.T, atol=1e-4 * abs(standard).max())
    assert np.linalg.eigvalsh((standard + standard.T) / 2)[0] > 0
    # In other units it is the same map.
    units = np.array([1e3, 1.0, 0.1, 1e-2, 5.0])
    outer = np.outer(units, units)
    other = calibrating_map(*float32(CURVATURE / outer, limit() * outer))
    np.testing.assert_allclose(other / np.outer(units, 1 / units), found, rtol=2e-2, atol=1e-3)


def test_ratios_are_of_standard_deviations():
    found = sd_ratios(*float32(CURVATURE, limit()))
    posterior = np.diag(np.linalg.inv(CURVATURE))
    np.testing.assert_allclose(found, np.sqrt(np.diag(limit()) / posterior), rtol=1e-3)
    np.testing.assert_allclose(
        covariance_at(*float32(CURVATURE)), np.linalg.inv(CURVATURE), rtol=1e-3
    )


def test_a_direction_that_curves_upwards_is_turned_and_others_stay():
    units = np.array([1.0, 1e4])
    turned = definite(*float32(np.array([[0.5, -2.0], [-2.0, 0.5]]) * np.outer(units, units)))
    expected = np.array([[2.0, -0.5], [-0.5, 2.0]])  # eigenvalues 2.5 and 1.5 instead of -1.5
    np.testing.assert_allclose(turned / np.outer(units, units), expected, rtol=1e-4)
    np.testing.assert_allclose(definite(*float32(CURVATURE)), CURVATURE, rtol=1e-4, atol=1e-4)


def test_flat_directions_take_the_curvature_of_the_prior():
    """A rotation of two normal factors at their mode: the curvature there is zero."""
    prior = covariance(np.array([1.0, 2.0, 0.5, 1.0, 1.0]))
    root = np.linalg.cholesky(prior)
    turn = np.linalg.qr(R.normal(size=(D, D)))[0]
    shares, raised = np.array([0.0, 0.02, 0.8, 5.0, 900.0]), np.array([1.0, 1.0, 0.8, 5.0, 900.0])

    def with_shares(values):
        return root @ (turn * values) @ turn.T @ root.T

    found, num_flat = at_least(*float32(with_shares(shares), prior))
    np.testing.assert_allclose(found, with_shares(raised), rtol=1e-3, atol=0.02)
    assert int(num_flat) == 2


def test_without_a_prior_the_curvature_stays_as_it_is():
    found, num_flat = at_least(*float32(CURVATURE, np.zeros((D, D))))
    np.testing.assert_allclose(found, CURVATURE, rtol=1e-3, atol=1e-3)
    assert int(num_flat) == 0


def test_a_prior_that_curves_upwards_is_none_there():
    """Two coordinates that a product of theirs couples, as the level and scale of a hierarchy."""
    prior = np.array([[1.0, 2.0], [2.0, 1.0]])  # with the values 3 and -1
    found, num_flat = at_least(*float32(prior + np.diag([1.5, 1.5]), prior))
    np.testing.assert_allclose(found, prior + np.diag([1.5, 1.5]), rtol=1e-4)
    assert int(num_flat) == 0

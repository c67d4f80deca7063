"""Step sizes: the window formula against brute force, its root, and the thesis's calibration."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random

from bmfjax.data import InputError
from bmfjax.kernels.sgmcmc.iasg import Block
from bmfjax.kernels.sgmcmc.step_size import (
    ENOUGH,
    MOST_INFLATION,
    _streamed_variance,
    averaging_batch,
    calibrated_step_size,
    curvature_inflation,
    default_batch,
    matched_step_size,
    matched_window,
    matched_windows,
    small_batch,
    variance_ratio,
)

fractions = st.sampled_from([1 / 100, 1 / 30, 1 / 8, 0.3, 0.9])
windows = st.integers(1, 60)


def ratio_by_brute_force(step, window, fraction, replace):
    """Variance of the mean of T terms of e' = (1 - step) e + step z, in units of var(z) S/N.

    With z of variance N/S (times 1 - S/N without replacement) in units of the limit variance.
    """
    a = 1.0 - step
    noise = (1.0 if replace else 1.0 - fraction) / fraction
    stationary = step**2 * noise / (1 - a**2)
    lags = np.abs(np.subtract.outer(np.arange(window), np.arange(window)))
    return stationary * (a**lags).sum() / window**2


@given(step=st.floats(0.01, 1.99), window=windows, fraction=fractions, replace=st.booleans())
@settings(max_examples=100)
def test_variance_ratio_is_the_sum_over_all_pairs(step, window, fraction, replace):
    found = variance_ratio(step, window, fraction, replace=replace)
    expected = ratio_by_brute_force(step, window, fraction, replace)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("x", [0.5, 2.0, 10.0, 20.0])
def test_small_steps_follow_the_curve_of_the_design_notes(x):
    expected = 1 - (1 - np.exp(-x)) / x
    assert variance_ratio(x / 5000, 5000, 1 / 5000) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("step", [0.0, 2.0, -0.5, 3.0, float("nan")])
def test_a_step_that_does_not_converge_is_refused(step):
    with pytest.raises(InputError, match=r"step_size is .*strictly between 0 and 2"):
        variance_ratio(step, 8, 0.1)


@given(window=windows, fraction=fractions, replace=st.booleans())
@settings(max_examples=100)
def test_matched_step_gives_the_limit_variance_or_the_most_there_is(window, fraction, replace):
    step = matched_step_size(window, fraction, replace=replace)
    ratio = variance_ratio(step, window, fraction, replace=replace)
    assert 0 < step <= 1
    if step == 1:
        assert ratio <= 1 + 1e-9
    else:
        assert ratio == pytest.approx(1, rel=1e-6)


@given(fraction=st.lists(fractions, min_size=1, max_size=3), replace=st.booleans())
@settings(max_examples=30)
def test_matched_window_is_the_longest_with_steps_of_at_most_one_half(fraction, replace):
    window = matched_window(fraction, replace=replace)

    def longest(t):
        return max(matched_step_size(t, f, replace=replace) for f in fraction)

    assert window == 1 or longest(window) <= 0.5
    assert longest(window + 1) > 0.5 or window + 1 > 1 / max(fraction)


# ---- batch, step and window together -----------------------------------------------------------


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize(
    ("size", "coordinates"), [(64, 1), (64, 4), (128, 30), (435, 4), (512, 30), (10**6, 10)]
)
def test_the_default_batch_averages_eight_iterates_with_the_limit_variance(
    size, coordinates, replace
):
    batch = averaging_batch(size, coordinates, replace=replace)
    fraction = batch / size
    (window,) = matched_windows([fraction], [True], replace=replace)
    assert window == ENOUGH == 8
    step = matched_step_size(window, fraction, replace=replace)
    assert step <= 0.25
    assert variance_ratio(step, window, fraction, replace=replace) == pytest.approx(1.0, rel=1e-6)

    def inflation(batch):
        step = matched_step_size(window, batch / size, replace=replace)
        return curvature_inflation(step, batch, coordinates)

    assert inflation(batch) <= MOST_INFLATION * inflation(1) < np.inf
    # A larger batch would need a longer step, or widen the draws by more.
    longer = matched_step_size(window, (batch + 1) / size, replace=replace) > 0.25
    assert longer or inflation(batch + 1) > MOST_INFLATION * inflation(1)


@pytest.mark.parametrize(("size", "coordinates"), [(16, 2), (63, 1), (64, 80)])
def test_a_plate_that_is_too_small_gets_the_batch_of_before(size, coordinates):
    assert averaging_batch(size, coordinates) is None
    assert default_batch(size, coordinates) == small_batch(size, coordinates) <= -(-size // 2)


def test_windows_are_as_long_as_the_batches_allow():
    """0.25 allows two iterates and 0.1 eight; 1/64 would allow 62."""
    assert matched_windows([0.25, 0.1], [False, True]) == [2, 8]
    assert matched_windows([0.25, 1 / 64], [False, False]) == [2, 8]
    assert matched_windows([1 / 32, 1 / 64], [False, False]) == [30, 30]
    assert matched_windows([1 / 32, 1 / 64], [True, True]) == [8, 8]


def test_curvature_of_a_minibatch_widens_the_iterates_by_the_formula():
    """Least squares with normal regressors: e' = e - step (X'X/S e - noise of variance 1/S)."""
    step, batch, coordinates, chains = 0.3, 4, 3, 20_000
    r, e = np.random.default_rng(0), np.zeros((20_000, 3))
    for _ in range(60):
        x = r.normal(size=(chains, batch, coordinates))
        noise = r.normal(size=(chains, coordinates)) / np.sqrt(batch)
        e = e - step * (np.einsum("csk,csl,cl->ck", x, x, e) / batch - noise)
    without = step**2 / batch / (1.0 - (1.0 - step) ** 2)
    expected = without * curvature_inflation(step, batch, coordinates)
    assert e.var() == pytest.approx(expected, rel=0.02)
    assert curvature_inflation(1.0, 3, 3) == np.inf


# ---- the thesis's calibration ----------------------------------------------------------------

N, S = 40, 8
Y = jnp.asarray(np.linspace(-1.0, 2.0, N), jnp.float32)
#: A box for mu in which the variance between points is comparable with that of minibatches.
BOX = {"mu": (0.0, 0.6)}


@functools.cache
def calibrated(scaled, replace=True):
    """Steps of three means, of which the last sees no data, as under a flat prior."""

    def gradient(p, indices, y, inverse_temperature):
        weight = N / S if scaled else 1.0
        seen = jnp.array([1.0, 1.0, 0.0])
        return {"mu": weight * seen * (jnp.sum(y[indices["cases"]]) - S * p["mu"])}

    measure = calibrated_step_size(
        [Block(("mu",), {"cases": (N, S)}, gradient)],
        BOX,
        num_samples=4000,
        replace=replace,
        likelihood_scaled=scaled,
    )
    position = {"mu": jnp.zeros(3), "other": jnp.zeros(())}
    return jax.jit(measure)(random.key(0), position, Y)


@pytest.mark.parametrize("replace", [True, False])
def test_calibrated_step_is_two_fractions_over_the_variance(replace):
    """Of the sum over a minibatch at points uniform on the box: both parts are known here."""
    spread = float(np.var(Y))
    minibatch = S * spread * (1.0 if replace else (N - S) / (N - 1))
    points = S**2 * 0.6**2 / 12
    steps = calibrated(scaled=False, replace=replace)
    assert set(steps) == {"mu"} and steps["mu"].shape == (3,)
    np.testing.assert_allclose(steps["mu"][:2], 2 * (S / N) / (minibatch + points), rtol=0.08)


def test_calibrated_steps_move_alike_whether_or_not_the_likelihood_is_scaled():
    """The step multiplies a gradient that is N/S larger."""
    unscaled, scaled = calibrated(scaled=False)["mu"], calibrated(scaled=True)["mu"]
    np.testing.assert_allclose(scaled * N / S, unscaled, rtol=1e-4)


def test_a_coordinate_that_sees_no_data_gets_no_step():
    """Such as a row of a column's factors without an observed entry under a flat prior."""
    assert float(calibrated(scaled=False)["mu"][2]) == 0.0


def test_streamed_variance_is_the_sample_variance():
    keys = random.split(random.key(0), 300)

    def one(key):
        return {"a": 1e3 + random.normal(key, (4,))}

    draws = np.asarray(jax.vmap(one)(keys)["a"], float)
    found = jax.jit(lambda keys: _streamed_variance(one, keys))(keys)["a"]
    np.testing.assert_allclose(found, draws.var(0, ddof=1), rtol=1e-4)

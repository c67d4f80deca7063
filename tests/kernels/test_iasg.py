"""IASG on targets whose averages can be worked out by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random

from bmfjax.kernels.sgmcmc.iasg import Block, _clamp, _free, _reflect, iasg
from bmfjax.kernels.sgmcmc.sandwich import Sweep, average_covariance
from bmfjax.kernels.sgmcmc.step_size import matched_step_size, variance_ratio

CASES, DIMS = 64, 32
CENTRE = np.linspace(-1.0, 1.0, DIMS)


@functools.cache
def cases(ddof):
    """(64, 32) with the means of CENTRE and exactly the unit matrix as sample covariance."""
    y = np.random.default_rng(0).normal(size=(CASES, DIMS))
    q = np.linalg.qr(y - y.mean(0))[0]
    q = np.linalg.qr(q - q.mean(0))[0]
    return jnp.asarray(CENTRE + np.sqrt(CASES - ddof) * q, jnp.float32)


def gaussian_mean(batch, tau, **options):
    """Independent Gaussian means with a Newton step; `tau` is the precision that is assumed."""

    def gradient(p, indices, y, inverse_temperature):
        total = jnp.sum(y[indices["cases"]] - p["mu"], axis=0)
        return {"mu": inverse_temperature * tau * (CASES / batch) * total}

    block = Block(
        ("mu",),
        {"cases": (CASES, batch)},
        gradient,
        curvature=lambda p, y, inverse_temperature: inverse_temperature * tau * len(y),
        direction=lambda g, free, curvature: {"mu": g["mu"] / curvature},
    )
    defaults = {"initial": lambda key, y: {"mu": jnp.asarray(CENTRE, jnp.float32)}, "bounds": {}}
    return iasg(
        lambda p, y, b: -0.5 * b * tau * jnp.sum((y - p["mu"]) ** 2),
        [block],
        **(defaults | options),
    )


@functools.partial(jax.jit, static_argnames=("window", "batch", "replace", "num"))
def chain(key, y, step, tau, window, batch, replace, num):
    algorithm = gaussian_mean(batch, tau, step_size={"mu": step}, window=window, replace=replace)

    def one(state, k):
        state, _ = algorithm.step(k, state, y)
        return state, state.average["mu"]

    return jax.lax.scan(one, algorithm.init(key, None, y), random.split(key, num))[1]


@functools.cache
def window_averages(step, window, batch, tau=1.0, replace=True):
    """(1500, 32) draws after the start, in the centre, is forgotten."""
    y = cases(0 if replace else 1)
    draws = chain(random.key(1), y, step, tau, window, batch, replace, 1520)
    return np.asarray(draws, float)[20:]


def autocorrelation_of_averages(step, window):
    """Lag-one correlation of window averages of an autoregression, term by term."""
    a = 1.0 - step
    lags = np.subtract.outer(np.arange(window), np.arange(window))
    return (a ** np.abs(lags - window)).sum() / (a ** np.abs(lags)).sum()


#: step, window, batch, tau, replace
SETTINGS = {
    "independent": (1.0, 8, 8, 1.0, True),
    "matched": (matched_step_size(4, 1 / 8), 4, 8, 1.0, True),
    "short-x=2": (2 / 64, 64, 1, 1.0, True),
    "long-x=10": (10 / 64, 64, 1, 1.0, True),
    "twice-the-noise": (matched_step_size(4, 1 / 8), 4, 8, 0.25, True),
    "no-replacement": (0.5, 8, 16, 1.0, False),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_averages_have_the_right_mean_variance_and_autocorrelation(setting):
    step, window, batch, tau, replace = SETTINGS[setting]
    draws = window_averages(step, window, batch, tau, replace)
    limit = 1.0 / CASES  # A^-1 C A^-1 / N, whatever tau is; the posterior variance is limit / tau
    ratio = variance_ratio(step, window, batch / CASES, replace=replace)
    assert draws.var(0, ddof=1).mean() == pytest.approx(limit * ratio, rel=0.04)

    centred = draws - draws.mean(0)
    lag_one = (centred[1:] * centred[:-1]).mean() / (centred**2).mean()
    predicted = autocorrelation_of_averages(step, window)
    assert lag_one == pytest.approx(predicted, abs=0.02)

    # Lags k correlate by predicted * a^((k - 1) T): the number of independent draws.
    memory = 1 + 2 * predicted / (1 - (1 - step) ** window)
    error = np.sqrt(limit * ratio * memory / len(draws))
    assert np.abs(draws.mean(0) - CENTRE).max() < 4 * error


# ---- steps by optax ----------------------------------------------------------------------


def test_averages_of_momentum_have_the_covariance_of_a_linear_step():
    """A speed v' = b v - g, e' = e + h v' is a linear step of (e, v), whose averages are known."""
    batch, window, rate, momentum, chains = 4, 30, 0.4 / CASES, 0.5, 400
    y = cases(0)
    algorithm = gaussian_mean(
        batch, 1.0, step_size={}, window=window, optimizer=optax.sgd(rate, momentum)
    )
    # In units in which the curvature is one, and the gradient's noise N/S of it.
    h = rate * CASES
    transition = np.array([[1 - h, h * momentum], [-1.0, momentum]])
    noise = CASES / batch * np.array([[h * h, h], [h, 1.0]])
    one = Sweep(jnp.asarray(transition, jnp.float32), jnp.asarray(noise, jnp.float32))
    expected = float(average_covariance(one, window)[0, 0])

    @jax.jit
    def run(key):
        state = algorithm.init(key, None, y)
        return jax.lax.scan(
            lambda s, k: (algorithm.step(k, s, y)[0], s.average["mu"]),
            state,
            random.split(key, chains),
        )[1]

    draws = np.asarray(run(random.key(0)), float)[10:]
    assert draws.var(0).mean() * CASES == pytest.approx(expected, rel=0.05)
    assert expected / (CASES / batch / window) == pytest.approx(1.0, abs=0.1), "nearly the limit"
    assert np.abs(draws.mean(0) - CENTRE).max() < 4 * np.sqrt(expected / CASES / 300)


def test_an_optimizer_respects_the_box_and_needs_one_program():
    """Adam's first step is its rate, against the sign of the gradient, here past the bound."""
    algorithm = iasg(
        lambda p, data, b: b * jnp.sum(p["x"]),
        [Block(("x",), {"cases": (1, 1)}, lambda p, i, data, b: {"x": jnp.array([3.0, -3.0])})],
        initial=lambda key, data: {"x": jnp.full(2, 0.5)},
        step_size={},
        window=2,
        bounds={"x": (0.0, 1.0)},
        optimizer=optax.adam(0.3),
    )
    step = jax.jit(algorithm.step)
    state = algorithm.init(random.key(0), None, None)
    for key in random.split(random.key(1), 3):
        state, info = step(key, state, None)
        np.testing.assert_allclose(state.position["x"], [1.0, 0.0], atol=1e-4)
    # .5 -> .8 -> 1: the average of the first window; held at the bound ever since.
    assert step._cache_size() == 1 and float(info.clamped) == 1.0
    assert int(state.optimizer[0][0].count) == 6


# ---- bounds ------------------------------------------------------------------------------


@given(x=st.floats(-3.5, 4.5), low=st.sampled_from([0.0, -1.0]), width=st.sampled_from([1.0, 2.0]))
@settings(max_examples=50)
def test_reflection_folds_the_line_into_the_box(x, low, width):
    value, out = _reflect(np.float32(x), low, low + width)
    expected = np.float64(np.float32(x))
    while not low <= expected <= low + width:
        expected = 2 * low - expected if expected < low else 2 * (low + width) - expected
    assert float(value) == pytest.approx(expected, abs=3e-6)
    assert bool(out) == (not low <= np.float32(x) <= low + width)


@given(x=st.floats(-3.5, 4.5))
@settings(max_examples=20)
def test_clamp_goes_to_the_nearest_point_of_the_box(x):
    value, held = _clamp(np.float32(x), np.float32(0.1), np.float32(0.9))
    assert float(value) == np.clip(np.float32(x), np.float32(0.1), np.float32(0.9))
    assert bool(held) == (not np.float32(0.1) < np.float32(x) < np.float32(0.9))


def pushed(push, boundary, start=0.5, window=4, **block):
    """One window of steps of 0.3 along a constant gradient in a unit cube."""
    push = jnp.asarray(push)
    algorithm = iasg(
        lambda p, data, b: b * jnp.sum(p["x"]),
        [Block(("x",), {"cases": (1, 1)}, lambda p, i, data, b: {"x": push}, **block)],
        initial=lambda key, data: {"x": jnp.full(push.shape, start)},
        step_size={"x": 0.3},
        window=window,
        bounds={"x": (0.0, 1.0)},
        boundary=boundary,
    )
    state = algorithm.init(random.key(0), None, None)
    return jax.jit(algorithm.step)(random.key(1), state, None)


@pytest.mark.parametrize(
    ("boundary", "end", "mean"),
    [
        # .5 -> .2 -> 0 -> 0 -> 0: two of four coordinates are held in three of four steps.
        ("clamp", [0.0, 0.5, 1.0, 0.5], [0.05, 0.5, 0.95, 0.5]),
        # .5 -> .2 -> |-.1| = .1 -> |-.2| = .2 -> |-.1| = .1
        ("reflect", [0.1, 0.5, 0.9, 0.5], [0.15, 0.5, 0.85, 0.5]),
    ],
)
def test_coordinates_at_their_bounds_on_a_case_done_by_hand(boundary, end, mean):
    state, info = pushed([-1.0, 0.0, 1.0, 0.0], boundary)
    np.testing.assert_allclose(state.position["x"], end, atol=1e-6)
    np.testing.assert_allclose(state.average["x"], mean, atol=1e-6)
    assert float(info.clamped) == pytest.approx(6 / 16)
    np.testing.assert_allclose(info.gradient["x"], [-1.0, 0.0, 1.0, 0.0])


def test_direction_is_told_which_coordinates_are_free():
    """At a bound and pushed outwards: not free; pushed back in, or inside: free."""
    x, g = np.array([0.0, 0.0, 1.0, 1.0, 0.5]), np.array([-1.0, 1.0, 1.0, -1.0, 1.0])
    free = _free(x, g, 0.0, 1.0)
    assert free.tolist() == [False, True, False, True, True]
    seen = pushed(
        [-1.0, 0.0, 1.0, 0.0],
        "clamp",
        curvature=lambda p, data, b: None,
        # Free coordinates drift inwards together wherever something is held.
        direction=lambda g, free, c: {"x": jnp.where(jnp.all(free["x"]), g["x"], 0.0)},
    )[0]
    np.testing.assert_allclose(seen.position["x"], [0.0, 0.5, 1.0, 0.5])


def test_reflection_holds_no_coordinate_that_starts_at_its_bound():
    state, _ = pushed(
        [-1.0],
        "reflect",
        start=0.0,
        window=1,
        curvature=lambda p, data, b: None,
        direction=lambda g, free, c: {"x": jnp.where(free["x"], g["x"], 0.0)},
    )
    assert float(state.position["x"][0]) == pytest.approx(0.3, abs=1e-6)


def test_a_start_outside_the_box_is_brought_in():
    algorithm = gaussian_mean(8, 1.0, step_size={"mu": 0.5}, window=2, bounds={"mu": (-0.25, 0.75)})
    state = algorithm.init(random.key(0), None, cases(0))
    np.testing.assert_allclose(state.position["mu"], np.clip(CENTRE, -0.25, 0.75), atol=1e-6)


# ---- what a window does ------------------------------------------------------------------


def two_sites(window=2, **options):
    """Deterministic blocks: x moves towards 1, then y towards the new x; z is drawn exactly."""
    blocks = [
        Block(("x",), {"cases": (4, 4)}, lambda p, i, d, b: {"x": 1.0 - p["x"]}),
        Block(("y",), {"cases": (4, 4)}, lambda p, i, d, b: {"y": p["z"] * (p["x"] - p["y"])}),
    ]
    return iasg(
        lambda p, d, b: b * (p["x"] + 10.0 * p["y"] + 100.0 * p["z"]),
        blocks,
        initial=lambda key, d: {"x": jnp.zeros(()), "y": jnp.zeros(()), "z": jnp.ones(())},
        step_size={"x": 0.5, "y": 0.5},
        window=window,
        bounds={},
        conditionals={"z": lambda key, p, d, b: p["x"] + p["y"]},
        **options,
    )


def test_blocks_move_in_turn_and_conditionals_follow_the_average():
    algorithm = two_sites()
    state, info = algorithm.step(random.key(0), algorithm.init(random.key(0), None, None), None)
    # x: 0 -> .5 -> .75; y, towards the x just moved: 0 -> .25 -> .5.
    assert {s: float(v) for s, v in state.average.items()} == {"x": 0.625, "y": 0.375, "z": 1.0}
    assert {s: float(v) for s, v in state.position.items()} == {"x": 0.75, "y": 0.5, "z": 1.0}
    assert {s: float(v) for s, v in info.gradient.items()} == {"x": 0.75, "y": 0.5}
    assert float(info.log_joint) == 0.625 + 3.75 + 100.0
    state, _ = algorithm.step(random.key(0), state, None)
    # x: .75 -> .875 -> .9375; y: .5 -> .6875 -> .8125; z is their averages' sum.
    assert float(state.average["z"]) == 0.90625 + 0.75
    assert float(state.position["z"]) == float(state.average["z"])


def test_curvature_is_that_at_the_draw_of_own_sites_and_at_the_iterate_of_others():
    blocks = [
        Block(
            ("x",),
            {"cases": (1, 1)},
            lambda p, i, d, b: {"x": jnp.ones(())},
            curvature=lambda p, d, b: p["x"] + 100.0 * p["y"],
            direction=lambda g, free, c: {"x": c},
        ),
        Block(("y",), {"cases": (1, 1)}, lambda p, i, d, b: {"y": jnp.ones(())}),
    ]
    algorithm = iasg(
        lambda p, d, b: jnp.zeros(()),
        blocks,
        initial=lambda key, d: {"x": jnp.zeros(()), "y": jnp.zeros(())},
        step_size={"x": 1.0, "y": 1.0},
        window=2,
        bounds={},
    )
    state = algorithm.init(random.key(0), None, None)
    for x in ([0.0, 0.0], [200.0, 400.0], [400.0 + 700.0, 400.0 + 1400.0]):
        # y: 2, then 4 at the last iterate; the third curvature is 300, the mean of x, and 400.
        state, _ = algorithm.step(random.key(0), state, None)
        assert float(state.average["x"]) == np.mean(x) and float(state.position["x"]) == x[1]


def test_sites_may_average_different_numbers_of_the_last_iterates():
    algorithm = two_sites(window={"x": 1, "y": 2})
    state, _ = algorithm.step(random.key(0), algorithm.init(random.key(0), None, None), None)
    # x: 0 -> .5 -> .75, of which the last counts; y: 0 -> .25 -> .5, of which both do.
    assert {s: float(v) for s, v in state.average.items()} == {"x": 0.75, "y": 0.375, "z": 1.125}


def test_the_likelihood_is_tempered_in_gradient_and_log_joint():
    algorithm = gaussian_mean(8, 1.0, step_size={"mu": 0.5}, window=2)
    y = cases(0)
    state = algorithm.init(random.key(0), None, y)
    (_, cold), (_, warm) = (
        jax.jit(algorithm.step)(random.key(0), state, y, temperature) for temperature in (1.0, 0.25)
    )
    np.testing.assert_allclose(warm.gradient["mu"], 0.25 * cold.gradient["mu"], rtol=1e-5)
    assert float(warm.log_joint) == pytest.approx(0.25 * float(cold.log_joint), rel=1e-5)


def test_what_is_observed():
    algorithm = two_sites()
    state, info = algorithm.step(random.key(0), algorithm.init(random.key(0), None, None), None)
    observed = algorithm.observe(state, info)
    assert set(observed) == {"x", "y", "z", "gradient_x", "gradient_y", "log_joint", "clamped"}
    assert float(observed["x"]) == 0.625 and float(observed["gradient_x"]) == 0.75


def test_reported_variance_is_that_of_the_estimate():
    """Over the cases of a batch, N/S sum (y - mu) has the variance N^2 var(y) / S."""
    batch = 16
    plain = gaussian_mean(batch, 1.0, step_size={"mu": 0.1}, window=4)

    def gradient_and_variance(p, indices, y, b):
        each = CASES * (y[indices["cases"]] - p["mu"])
        return {"mu": each.mean(0)}, {"mu": each.var(0) / batch}

    block = Block(("mu",), {"cases": (CASES, batch)}, lambda *_: None, gradient_and_variance)
    algorithm = iasg(
        lambda p, y, b: jnp.zeros(()),
        [block],
        initial=lambda key, y: {"mu": jnp.asarray(CENTRE, jnp.float32)},
        step_size={"mu": 0.1 / CASES},
        window=4,
        bounds={},
        report_variance=True,
    )
    y = cases(0)
    state = algorithm.init(random.key(0), None, y)
    state, info = jax.jit(algorithm.step)(random.key(3), state, y)
    expected, reference = jax.jit(plain.step)(random.key(3), plain.init(random.key(0), None, y), y)
    np.testing.assert_allclose(state.average["mu"], expected.average["mu"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(info.gradient["mu"], reference.gradient["mu"], rtol=1e-3, atol=1e-3)
    found = info.gradient_variance["mu"].mean() / (CASES**2 / batch * (1 - 1 / batch))
    assert float(found) == pytest.approx(1.0, abs=0.1)
    assert "gradient_variance_mu" in algorithm.observe(state, info)
    assert reference.gradient_variance == {}


def test_step_size_and_approach_are_asked_once_at_the_start():
    def approach(key, position, data):
        return position | {"x": position["x"] + data}

    def step_size(key, position, data):
        return {"x": position["x"] / 8.0, "y": 0.0}

    blocks = [Block((s,), {"cases": (2, 1)}, lambda p, i, d, b, s=s: {s: 1.0}) for s in "xy"]
    algorithm = iasg(
        lambda p, d, b: jnp.zeros(()),
        blocks,
        initial=lambda key, d: {"x": jnp.zeros(()), "y": jnp.zeros(())},
        step_size=step_size,
        window=1,
        bounds={},
        approach=approach,
    )
    state = algorithm.init(random.key(0), {"x": 1.0, "y": jnp.ones(())}, 3.0)
    assert {s: float(h) for s, h in state.step_size.items()} == {"x": 0.5, "y": 0.0}
    assert {s: float(v) for s, v in state.average.items()} == {"x": 4.0, "y": 1.0}
    assert state.step_size["y"].dtype == jnp.float32


def test_a_start_must_name_the_sites():
    algorithm = two_sites()
    with pytest.raises(ValueError, match=r"start lacks 'z'"):
        algorithm.init(random.key(0), {"x": jnp.zeros(()), "y": jnp.zeros(())}, None)
    with pytest.raises(ValueError, match=r"start names 'w'"):
        start = {s: jnp.zeros(()) for s in "wxyz"}
        algorithm.init(random.key(0), start, None)
    with pytest.raises(ValueError, match=r"start of 'x' has shape \(2,\).*\(\)"):
        algorithm.init(random.key(0), {"x": jnp.zeros(2), "y": 0.0, "z": 1.0}, None)

"""The truncated normal draw against SciPy in double precision, in every branch and at extremes."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import random
from scipy.special import erfcx, ndtr

from bmfjax.kernels.numerics.truncated_normal import truncated_normal, truncated_normal_quantile
from tests.kernels.exactness import fast_jit

INF = float("inf")
quantile = fast_jit(truncated_normal_quantile)


class Expected(NamedTuple):
    cdf: Callable
    mean: float
    sd: float


def expected(distribution):
    return Expected(distribution.cdf, distribution.mean(), distribution.std())


def normal(mode, sd, low=0.0, high=1.0):
    """(linear, precision, low, high) and the distribution."""
    parameters = (mode / sd**2, sd**-2, low, high)
    ends = (low - mode) / sd, (high - mode) / sd
    distribution = scipy.stats.truncnorm(*ends, loc=mode, scale=sd)
    if ends[0] > 100:  # SciPy's moments are nan: those of its limit, right to 1 / ends[0]^2
        return parameters, Expected(distribution.cdf, low + sd / ends[0], sd / ends[0])
    return parameters, expected(distribution)


def exponential(linear, low=0.0, high=1.0):
    """Precision zero: the density exp(linear x) on the interval."""
    parameters = (linear, 0.0, low, high)
    if linear == 0:
        return parameters, expected(scipy.stats.uniform(low, high - low))
    scale = 1 / abs(linear)
    if high == INF:
        return parameters, expected(scipy.stats.expon(low, scale))
    falling = scipy.stats.truncexpon((high - low) / scale, scale=scale)
    if linear < 0:
        return parameters, Expected(
            lambda x: falling.cdf(x - low), low + falling.mean(), falling.std()
        )
    return parameters, Expected(
        lambda x: falling.sf(high - x), high - falling.mean(), falling.std()
    )


CASES = {
    "inside": normal(0.3, 0.2),
    "inside, wide": normal(0.5, 3.0),
    "inside, narrow density": normal(0.7, 1e-3),
    "at a bound": normal(0.0, 0.1),
    "near a bound": normal(1.02, 0.1),
    "the whole line, almost": normal(20.0, 1.0, -30.0, 50.0),
    "narrow interval": normal(0.5, 60.0),
    "narrow interval, mode far": normal(-400.0, 60.0),
    "half line": normal(0.5, 1.0, 0.0, INF),
    "half line, from a bound": normal(0.0, 2.0, 0.0, INF),
    "half line, far inside": normal(500.0, 1.0, 0.0, INF),
    "half line, 2 sd outside": normal(-2.0, 1.0, 0.0, INF),
    "half line, 30 sd outside": normal(-3.0, 0.1, 0.0, INF),
    "uniform": exponential(0.0),
    "falling slightly": exponential(-0.5),
    "falling": exponential(-5.0),
    "falling steeply": exponential(-1e4),
    "rising slightly": exponential(0.5),
    "rising": exponential(5.0),
    "rising steeply": exponential(300.0),
    "falling on the half line": exponential(-0.5, high=INF),
    "falling steeply on the half line": exponential(-1e6, high=INF),
}
for _outside in (3, 5, 10, 30, 1000):
    for _sd in (0.01, 0.7):
        if _sd * _outside < 100:
            CASES[f"{_outside} sd of {_sd} below"] = normal(-_outside * _sd, _sd)
        if _outside < 1000:  # float32 near 1 is coarser than the density is wide
            CASES[f"{_outside} sd of {_sd} above"] = normal(1 + _outside * _sd, _sd)


@functools.cache
def draws(size=20_000):
    """``{case: (size,) draws}`` in float32."""
    parameters = np.array([p for p, _ in CASES.values()], np.float32).T[..., None]
    linear, precision, low, high = np.broadcast_to(parameters, (4, len(CASES), size))
    x = fast_jit(truncated_normal)(random.key(1), linear, precision, low, high)
    assert x.dtype == jnp.float32
    return dict(zip(CASES, np.asarray(x, float), strict=True))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.device
def test_the_draws_are_those_of_scipy(case):
    (_, _, low, high), truth = CASES[case]
    x = draws()[case]
    assert (x >= low).all() and (x <= high).all()
    # Of some 40 cases the worst.
    assert scipy.stats.kstest(x, truth.cdf).pvalue > 2e-3
    assert abs(x.mean() - truth.mean) < 4 * truth.sd / np.sqrt(len(x))
    kurtosis = scipy.stats.kurtosis(x, fisher=False)
    assert x.std() == pytest.approx(truth.sd, rel=4 * np.sqrt((kurtosis - 1) / 4 / len(x)))


# ---- one quantile at a time, in float64 --------------------------------------------------------


def below(x, linear, precision, low, high):
    """P(X <= x) in float64, without cancellation: scaled tails, or an exponential series."""
    if linear - precision * 0.5 * (low + high) > 0 and high < INF:
        return 1.0 - below(low + high - x, precision * (low + high) - linear, precision, low, high)
    width, t = high - low, x - low
    slope = linear - precision * low  # of the log density at `low`
    root = np.sqrt(precision)
    if precision == 0 or width * root < 1e-4:  # no curvature, or none that is visible
        slope = slope - (0.5 * precision * width if precision > 0 else 0.0)
        if abs(slope * width) < 1e-12:
            return t / width
        return np.expm1(slope * t) / np.expm1(slope * width)
    a = -slope / root
    if a > 0.5:
        return below_tail(t * root, a) / below_tail(width * root, a)
    start = ndtr(a)
    return (ndtr(a + t * root) - start) / (ndtr(a + width * root) - start)


def below_tail(t, a):
    """1 - Q(a + t) / Q(a)."""
    if t == INF:
        return 1.0
    ratio = erfcx((a + t) * 0.5**0.5) / erfcx(a * 0.5**0.5)
    return -np.expm1(-t * (a + 0.5 * t) + np.log(ratio))


def missed_by(u, x, parameters, eps):
    """How far x is from the quantile: in u, beyond what a few roundings of x explain."""
    linear, precision, low, high = map(float, parameters)
    u, x = float(u), float(x)
    mirrored = high < INF and linear > precision * 0.5 * (low + high)
    # Measured from a bound that is not zero, or from a mode inside, x carries their rounding.
    size = max(abs(low), abs(x), high if mirrored else 0.0, x if linear > 0 else 0.0)
    slack = 8 * eps * size
    lower = below(max(x - slack, low), *map(float, parameters))
    upper = below(min(x + slack, high), *map(float, parameters))
    target = 1 - u if mirrored else u
    return max(lower - target, target - upper, 0.0)


def a_single_case(dtype):
    """Strategy: (u, linear, precision, low, high) as they come out of a sweep, and worse."""
    eps = float(np.finfo(dtype).eps)
    magnitude = st.floats(-8, 8).map(lambda e: 10**e)
    linear = st.builds(lambda sign, m: sign * m, st.sampled_from([-1, 0, 1]), magnitude)
    precision = st.one_of(st.just(0.0), st.floats(-10, 12).map(lambda e: 10**e))

    def parameters(linear, precision, relative, high):
        """`relative`: half of the time the mode, in standard deviations from the lower bound."""
        if relative is not None and precision > 0:
            linear = relative * precision**0.5
        if high == INF and precision == 0:
            linear = -abs(linear) or -1.0
        return tuple(dtype(v) for v in (np.clip(linear, -1e8, 1e8), precision, 0.0, high))

    case = st.builds(
        parameters,
        linear,
        precision,
        st.one_of(st.none(), st.floats(-40, 40)),
        st.sampled_from([1.0, INF]),
    )
    u = st.one_of(
        st.floats(0.0, 1.0 - eps),
        st.floats(-7, 0).map(lambda e: min(10**e, 1 - eps)),
        st.floats(-7, -1).map(lambda e: 1 - 10**e),
    )
    return st.tuples(u.map(lambda u: dtype(min(u, 1 - eps))), case)


FLOAT32, FLOAT64 = np.float32, np.float64


@pytest.mark.device
# The first two were wrong once: the width cancelled, and the mode inside was moved.
@example((FLOAT32(0.9), tuple(map(FLOAT32, (-0.5, 0.0, 0.0, 1.0)))))
@example((FLOAT32(0.5), tuple(map(FLOAT32, (1e7, 1.0, 0.0, INF)))))
@example((FLOAT32(0.5), tuple(map(FLOAT32, (1e8, 1e12, 0.0, 1.0)))))
@example((FLOAT32(0.0), tuple(map(FLOAT32, (-1e8, 0.0, 0.0, 1.0)))))
@settings(max_examples=300)
@given(a_single_case(FLOAT32))
@pytest.mark.device
def test_quantiles_in_float32(case):
    """To 5e-5 in u, after 8 roundings of x. (The worst: an interval just above 0.02 wide.)"""
    u, parameters = case
    x = quantile(u, *parameters)
    assert x.dtype == jnp.float32
    x = float(x)
    assert parameters[2] <= x <= parameters[3] and np.isfinite(x)
    assert missed_by(u, x, parameters, np.finfo(FLOAT32).eps) < 5e-5


@pytest.mark.usefixtures("x64")
@settings(max_examples=300)
@given(a_single_case(FLOAT64))
def test_quantiles_in_float64(case):
    """To 1e-9 in u; to 1e-5 where the interval is drawn as exponential or the slope is steep.

    A slope s at a bound gets a precision of at least 1e-12 s^2, and so an error of 1e-12 s.
    """
    u, parameters = case
    linear, precision, low, high = map(float, parameters)
    x = quantile(u, *parameters)
    assert x.dtype == jnp.float64
    assert low <= float(x) <= high
    slope = max(-linear, linear - precision * high if precision > 0 else linear, 0.0)
    narrow = (high - low) * precision**0.5 < 0.0201 or slope**2 > 1e12 * precision
    tolerance = 1e-9 + (6e-6 + 1e-12 * slope if narrow else 0.0)
    assert missed_by(u, x, parameters, np.finfo(FLOAT64).eps) < tolerance


@pytest.mark.parametrize("high", [1.0, INF])
def test_nothing_is_nan_and_everything_is_inside_at_extremes(high):
    linear = np.array([0.0, 1e-8, 1.0, 1e3, 1e8, -1e-8, -1.0, -1e3, -1e8], np.float32)
    precision = np.array([0.0, 1e-30, 1e-12, 1e-4, 1.0, 1e4, 1e12], np.float32)
    u = np.array([0.0, 1e-38, 1e-7, 0.5, 1 - 2**-24], np.float32)
    grid = np.stack([g.ravel() for g in np.meshgrid(u, linear, precision)])
    if high == INF:
        grid = grid[:, (grid[1] < 0) | (grid[2] > 0)]
    low, upper = np.broadcast_to(np.float32([[0.0], [high]]), (2, grid.shape[1]))
    x = np.asarray(quantile(*grid, low, upper))
    assert np.isfinite(x).all() and (x >= 0).all() and (x <= high).all()


# ---- branches ----------------------------------------------------------------------------------


def test_quantiles_are_continuous_where_the_branches_meet(x64):
    u = np.linspace(0.0, 1.0, 101)[:-1]
    for mirrored in (False, True):

        def from_bound(a, width, mirrored=mirrored):
            """In standard deviations from the bound nearest to the mode."""
            linear = width + a if mirrored else -a
            x = quantile(u, np.full(100, linear), np.ones(100), 0.0, width)
            return np.asarray(width - x if mirrored else x)

        for width in (0.5, 8.0, INF):
            if not (mirrored and width == INF):
                tail, central = from_bound(3 + 1e-12, width), from_bound(3 - 1e-12, width)
                np.testing.assert_allclose(tail, central, rtol=1e-9, atol=1e-10)
        for a in (-0.005, 0.0, 1.0, 2.9, 3.1, 50.0):
            narrow, wide = from_bound(a, 0.02 - 1e-12), from_bound(a, 0.02 + 1e-12)
            # The exponential leaves out the curvature: of the log density w^2 / 8 = 5e-5.
            np.testing.assert_allclose(narrow, wide, rtol=5e-5, atol=1e-10)
    # The mirror image is taken where the mode crosses the middle: down becomes up.
    up, down = (quantile(u, 2.0 + d, 4.0, 0.0, 1.0) for d in (-1e-12, 1e-12))
    np.testing.assert_allclose(up, 1.0 - np.asarray(down), atol=1e-10)


def test_quantiles_are_monotone():
    u = np.sort(np.random.default_rng(0).random(4000).astype(np.float32))
    parameters = np.array([p for p, _ in CASES.values()], np.float32).T[..., None]
    x = np.asarray(quantile(u, *np.broadcast_to(parameters, (4, len(CASES), u.size))), float)
    for name, values in zip(CASES, x, strict=True):
        steps = np.diff(values) * np.sign(values[-1] - values[0])
        # Not where neighbouring u are within a rounding.
        assert steps.min() >= -4e-7 * np.abs(values).max(), name
        assert values[0] != values[-1], name

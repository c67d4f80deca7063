"""Slice sampling on an interval leaves its density invariant and never leaves the interval."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax import lax, random

from bmfjax.diagnostics import ess_bulk
from bmfjax.kernels.numerics.slice import slice_sample
from tests.kernels.exactness import fast_jit

CHAINS, DRAWS = 200, 150
# The log densities, elementwise; the distributions that they are.
TARGETS = {
    "truncated normal": (
        lambda x: -0.5 * ((x - 0.8) / 0.3) ** 2,
        scipy.stats.truncnorm(-0.8 / 0.3, 0.2 / 0.3, loc=0.8, scale=0.3),
    ),
    "narrow": (
        lambda x: -0.5 * ((x - 0.2) / 1e-3) ** 2,
        scipy.stats.norm(0.2, 1e-3),
    ),
    "infinite at both ends": (
        lambda x: -0.5 * jnp.log(x) - 0.5 * jnp.log1p(-x),
        scipy.stats.beta(0.5, 0.5),
    ),
    "two modes": (
        lambda x: jnp.logaddexp(
            -0.5 * ((x - 0.2) / 0.05) ** 2, -0.5 * ((x - 0.7) / 0.1) ** 2 + jnp.log(0.5)
        ),
        None,
    ),
}


class TwoModes:
    """Half of the mass at 0.2, half at 0.7; tails outside [0, 1] are 2e-3 at most, and cut."""

    parts = (scipy.stats.norm(0.2, 0.05), scipy.stats.norm(0.7, 0.1))

    def cdf(self, x):
        def mass(x):
            return sum(0.5 * part.cdf(x) for part in self.parts)

        return (mass(x) - mass(0.0)) / (mass(1.0) - mass(0.0))


DISTRIBUTIONS = {n: d for n, (_, d) in TARGETS.items()} | {"two modes": TwoModes()}
LOG_DENSITIES = [f for f, _ in TARGETS.values()]


@functools.cache
def chains():
    """``{target: (chain, draw)}``, all targets side by side in one program."""

    def log_density(x):
        return jnp.stack([f(row) for f, row in zip(LOG_DENSITIES, x, strict=True)])

    def body(x, key):
        x = slice_sample(key, x, log_density, 0.0, 1.0)
        return x, x

    start = jnp.tile(jnp.linspace(0.01, 0.99, CHAINS), (len(TARGETS), 1))
    run = fast_jit(lambda key: lax.scan(body, start, random.split(key, DRAWS + 20))[1])
    x = np.asarray(run(random.key(0)))[20:]  # (draw, target, chain)
    return dict(zip(TARGETS, x.transpose(1, 2, 0), strict=True))


def distance(x, distribution):
    """Kolmogorov and Smirnov's, in units of its standard error; and the sample size of that."""
    ordered = np.sort(x.ravel()).astype(float)
    steps = np.arange(1, x.size + 1) / x.size
    size = min(float(ess_bulk(x)), x.size)
    return np.sqrt(size) * np.abs(distribution.cdf(ordered) - steps).max(), size


@pytest.mark.parametrize("target", TARGETS)
def test_the_density_is_invariant(target):
    x = chains()[target]
    assert x.dtype == np.float32
    assert (x >= 0).all() and (x <= 1).all()
    found, size = distance(x, DISTRIBUTIONS[target])
    assert size > 4000
    assert found < 1.8  # exceeded once in 300


def test_the_check_sees_a_slice_that_is_too_low():
    """As if the level were below the density by an exponential number of mean two."""

    def body(x, key):
        return (slice_sample(key, x, lambda x: 0.5 * LOG_DENSITIES[0](x), 0.0, 1.0),) * 2

    run = fast_jit(lambda key: lax.scan(body, jnp.full(CHAINS, 0.5), random.split(key, 100))[1])
    found, size = distance(np.asarray(run(random.key(0)))[20:].T, DISTRIBUTIONS["truncated normal"])
    assert size > 1000 and found > 4


@functools.cache
def one_update():
    """``(density, start, low, high) -> x``: five densities, (5, size), in one program."""

    def densities(x, places):
        return jnp.stack(
            [
                jnp.full_like(x[0], jnp.nan),
                -x[1],
                jnp.where(x[2] == places[2], 0.0, -jnp.inf),  # at one point alone
                1e7 * x[3],
                -1e7 * x[4],
            ]
        )

    def update(key, start, low, high):
        return slice_sample(key, start, lambda x: densities(x, start), low, high)

    return fast_jit(update)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.25, 0.25 + 1e-6), (-3.0, 5.0)])
def test_bounds_are_kept_and_what_is_nan_or_at_the_only_point_stays_put(low, high):
    low, high = np.float32(low), np.float32(high)
    start = np.tile(np.linspace(low, high, 100, dtype=np.float32), (5, 1))
    x = np.asarray(one_update()(random.key(0), start, low, high))
    assert np.isfinite(x).all() and (x >= low).all() and (x <= high).all()
    np.testing.assert_array_equal(x[[0, 2]], start[[0, 2]])
    if high - low > 0.1:
        assert (x[1] != start[1]).mean() > 0.9
        assert (x[3] >= start[3] - 1e-5).all() and (x[4] <= start[4] + 1e-5).all()


def test_a_bound_of_infinite_density_is_left_and_not_drawn():
    """Where it rounded to the bound a chain once stayed there for good."""
    x = chains()["infinite at both ends"]
    assert (x > 0).all() and (x < 1).all()
    start = jnp.array([0.0, 1.0])
    log_density = LOG_DENSITIES[2]
    update = fast_jit(lambda key: slice_sample(key, start, log_density, 0.0, 1.0))
    assert ((update(random.key(0)) > 0) & (update(random.key(0)) < 1)).all()


def test_double_precision_stays(x64):
    start = jnp.full(5, 0.5)
    x = fast_jit(lambda key: slice_sample(key, start, lambda x: -x, 0.0, 1.0))(random.key(0))
    assert x.dtype == jnp.float64

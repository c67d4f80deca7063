"""Data, and what the tests of the Boolean models share: scores, and reference values in NumPy."""

import functools
import itertools

import jax
import numpy as np
from numpyro import handlers
from numpyro.infer import Predictive, log_likelihood
from numpyro.infer.util import log_density
from scipy import stats

ROWS, COLUMNS, RANK = 7, 4, 2
_rng = np.random.default_rng(0)
VALUES = (_rng.random((ROWS, COLUMNS)) < 0.5).astype(np.float32)
HOLES = _rng.random((ROWS, COLUMNS)) < 0.3
USAGE = (_rng.random((ROWS, RANK)) < 0.5).astype(np.int32)
BASIS = (_rng.random((COLUMNS, RANK)) < 0.5).astype(np.int32)
DENSITIES = {
    "usage_density": np.array([0.3, 0.6], np.float32),
    "basis_density": np.array([0.2, 0.7], np.float32),
}


def density(model, **options):
    """Log joint density as a compiled function of position, data and mask."""
    model = functools.partial(model, **options)
    return jax.jit(lambda p, values, observed: log_density(model, (values, observed), {}, p)[0])


def score(model, position, **options):
    """Log joint density of a model at a position, of `VALUES`."""
    return float(density(model, **options)(position, VALUES, None))


def sites(model, *args):
    """The sites of a model by name, traced and not run."""
    found = {}
    seeded = handlers.trace(handlers.seed(model, jax.random.key(0)))
    jax.eval_shape(lambda: found.update(seeded.get_trace(*args)))
    return {n: s for n, s in found.items() if s["type"] == "sample"}


def check_entries(model, position, probability):
    """Simulated ones are as frequent as `probability`, and it scores every observed entry."""
    draws = {n: np.stack([v] * 400) for n, v in position.items()}
    simulate = Predictive(functools.partial(model, shape=VALUES.shape), draws)
    simulated = np.asarray(jax.jit(simulate)(jax.random.key(0))["data"])
    np.testing.assert_allclose(simulated.mean(0), probability, atol=0.11)  # four deviations
    two = {n: v[:2] for n, v in draws.items()}
    found = jax.jit(lambda d: log_likelihood(model, d, VALUES, ~HOLES))(two)["data"]
    expected = np.where(HOLES, 0.0, stats.bernoulli.logpmf(VALUES, probability))
    np.testing.assert_allclose(found, [expected, expected], rtol=1e-5, atol=1e-6)


def disjunction(usage, basis):
    """Boolean product by its definition, entry by entry."""
    product = np.zeros((len(usage), len(basis)), bool)
    for i, j, k in itertools.product(*map(range, (len(usage), len(basis), usage.shape[1]))):
        product[i, j] |= usage[i, k] == 1 and basis[j, k] == 1
    return product


def noise(values, product, f0, f1, seen=None):
    """Sum of the entries' log probabilities, one by one."""
    total = 0.0
    for (i, j), one in np.ndenumerate(product):
        if seen is None or seen[i, j]:
            right = values[i, j] == one
            flip = f1 if one else f0
            total += np.log(1 - flip) if right else np.log(flip)
    return total


def bits(values, probability):
    """Log probability of independent bits."""
    return stats.bernoulli.logpmf(values, np.broadcast_to(probability, values.shape)).sum()


def check_missing(model, position):
    """The density where all is missing, after a test that what is missing counts for nothing.

    A NaN, a False and whatever stands under a False are the same.
    """
    of_data = density(model)

    def value(values, observed):
        return float(of_data(position, values.astype(np.float32), observed))

    full = np.ones_like(HOLES)
    with_nan = value(np.where(HOLES, np.nan, VALUES), full)
    half = HOLES & (np.arange(COLUMNS) < 2)
    assert value(np.where(half, np.nan, np.where(HOLES, 77.0, VALUES)), ~HOLES) == with_nan
    assert value(np.where(HOLES, 1 - VALUES, VALUES), ~HOLES) == with_nan
    nothing = value(np.full_like(VALUES, np.nan), full)
    assert len({with_nan, nothing, value(VALUES, full)}) == 3
    return nothing

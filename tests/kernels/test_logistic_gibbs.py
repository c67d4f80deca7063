"""The exact sampler of the logistic model: Polya-Gamma draws, and the posterior it leaves."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax import lax, random
from numpyro import handlers
from scipy.special import expit

from bmfjax.data import BinaryMatrix, InputError
from bmfjax.kernels.logistic import polya_gamma
from bmfjax.kernels.logistic.density import LogisticDensity
from bmfjax.kernels.logistic.gibbs import logistic_gibbs
from bmfjax.kernels.logistic.polya_gamma import LARGE, draw_polya_gamma
from bmfjax.kernels.logistic.signs import by_block, counts, of_block
from bmfjax.kernels.numerics.budget import Budget
from bmfjax.models import logistic
from bmfjax.variational import sign_blocks
from tests.kernels.exactness import fast_jit, model_log_joint, moment_scores

# ---- Polya-Gamma draws -------------------------------------------------------------------------

#: Tilts: none, either side of where the proposals change, and large ones.
TILTS = np.array([0.0, 0.7, 2 * LARGE - 0.01, -2 * LARGE - 0.01, 3.5, -30.0])
NUMBER = 25_000


@pytest.fixture(scope="module")
def drawn():
    c = jnp.asarray(np.broadcast_to([*TILTS[:, None], [np.nan]], (len(TILTS) + 1, NUMBER)))
    found = fast_jit(draw_polya_gamma)(random.key(3), c)
    assert found.dtype == np.float32 and found.shape == c.shape
    # What is no number has kept nobody waiting.
    return np.asarray(found[:-1], float)


@pytest.mark.device
def test_draws_have_the_moments_and_the_laplace_transform_of_the_distribution(drawn):
    c = np.abs(TILTS) + 1e-3 * (TILTS == 0)
    mean = np.tanh(c / 2) / (2 * c)
    variance = (np.sinh(c) - c) / (4 * c**3 * np.cosh(c / 2) ** 2)
    np.testing.assert_allclose(drawn.var(1), variance, rtol=0.06)
    assert np.abs(drawn.mean(1) - mean).max() < 4.5 * np.sqrt(variance / NUMBER).max()
    for t in (0.5, 4.0, 30.0):
        values = np.exp(-t * drawn)
        exact = np.cosh(c / 2) / np.cosh(np.sqrt((c**2 / 2 + t) / 2))
        z = (values.mean(1) - exact) / (values.std(1) / NUMBER**0.5)
        assert np.abs(z).max() < 4.5


def test_blocks_of_draws_have_random_numbers_of_their_own(monkeypatch):
    """The draws of one c in every place: alike in their moments, and none the same as another."""
    monkeypatch.setattr(polya_gamma, "BLOCK", 2**12)
    number = 3 * polya_gamma.BLOCK - 5
    c = jnp.full((5, number // 5), 3.0)
    found = np.asarray(fast_jit(draw_polya_gamma)(random.key(1), c), float)
    assert found.shape == c.shape
    parts = np.array_split(found.ravel(), 3)
    for one, other in itertools.combinations(parts, 2):
        assert abs(np.corrcoef(one[: len(other)], other[: len(one)])[0, 1]) < 5 / len(one) ** 0.5
    mean, sd = np.tanh(1.5) / 6, np.sqrt((np.sinh(3) - 3) / (4 * 27 * np.cosh(1.5) ** 2))
    assert max(abs(part.mean() - mean) for part in parts) < 4.5 * sd / len(parts[0]) ** 0.5
    # A device with room makes all at once, and the same ones.
    budgets = (Budget(), Budget(2**30))
    blocked, at_once = (
        str(jax.make_jaxpr(lambda c, b=b: draw_polya_gamma(random.key(1), c, b))(c)).count("scan[")
        for b in budgets
    )
    assert blocked == at_once + 1
    again = fast_jit(lambda c: draw_polya_gamma(random.key(1), c, budgets[1]))(c)
    np.testing.assert_allclose(again, found, rtol=1e-4)


@pytest.mark.device
def test_draws_have_the_density_of_the_distribution(drawn):
    """Of 20 series terms, summed over a grid: in float64 these are enough for any x in it."""
    n = np.arange(20)[:, None]
    for c, values in zip(TILTS, drawn, strict=True):
        x = np.geomspace(2e-3, 60.0, 40_001)  # of J* = 4 PG
        terms = (2 * n + 1) * (-1.0) ** n * np.exp(-((2 * n + 1) ** 2) / (2 * x))
        density = terms.sum(0) / np.sqrt(2 * np.pi * x**3)
        # The other series, where this one converges slowly.
        other = np.pi * ((n + 0.5) * (-1.0) ** n * np.exp(-((n + 0.5) ** 2) * np.pi**2 * x / 2))
        density = np.where(x < 1.0, 2 * density, other.sum(0)) * np.exp(-(c**2) * x / 8)
        below = np.concatenate([[0.0], np.cumsum(np.diff(x) * (density[1:] + density[:-1]) / 2)])
        assert below[-1] == pytest.approx(1 / np.cosh(c / 2), rel=1e-4)
        grid = below / below[-1]
        assert scipy.stats.kstest(4 * values, lambda q: np.interp(q, x, grid)).pvalue > 1e-3  # noqa: B023


# ---- the posterior of a tiny matrix ------------------------------------------------------------


def signs_of(values, size):
    """Rows of a matrix (NaN is missing) in blocks of so many, as `sign_blocks` has them."""
    signs = jnp.where(jnp.isnan(values), 0, 2 * jnp.nan_to_num(values) - 1).astype(jnp.int8)
    return jnp.pad(signs, ((0, -len(signs) % size), (0, 0))).reshape(-1, size, signs.shape[1])


@pytest.mark.parametrize("gaps", [False, True])
def test_words_hold_the_signs(gaps, monkeypatch):
    """Blocks of rows that do not divide them, and columns that fill no word."""
    monkeypatch.setattr("bmfjax.variational.rounds.BLOCK", 4 * 37)
    monkeypatch.setattr("bmfjax.variational.rounds.LEAST_ROWS", 1)
    r = np.random.default_rng(0)
    values = (r.random((11, 37)) < 0.4).astype(float)
    values[r.random(values.shape) < 0.2 * gaps] = np.nan
    packed, expected = sign_blocks(BinaryMatrix(values)), signs_of(jnp.asarray(values), 4)
    assert packed.shape == expected.shape and (packed.observed is None) == (not gaps)
    found = jax.vmap(of_block(packed))(by_block(packed))
    np.testing.assert_array_equal(found, expected)
    assert tuple(map(int, counts(packed))) == tuple(map(int, counts(expected)))


def log_odds(position):
    total = position["usage"] @ position["basis"].T + position["bias"]
    total = total + position.get("row_effect", jnp.zeros(1))[..., :, None]
    return total + position.get("column_effect", jnp.zeros(1))


def quadrature(values, scale, bias_scale, nodes=20):
    """Means of the log odds and of their squares at rank 1, (2, rows, columns), in float64.

    Given the basis and the bias rows are independent: each is one integral over its usage.
    """
    x, weight = np.polynomial.hermite_e.hermegauss(nodes)
    weight = weight / weight.sum()
    first, second, bias = np.meshgrid(scale * x, scale * x, bias_scale * x, indexing="ij")
    total = np.multiply.outer(np.multiply.outer(weight, weight), weight)
    basis = np.stack([first, second])
    inner = []
    for row in values:
        psi = scale * x * basis[..., None] + bias[..., None]  # (column, ..., node)
        chance = np.where(np.isnan(row)[:, None, None, None, None], 1.0, expit(
            np.where(row == 1, 1.0, -1.0)[:, None, None, None, None] * psi
        )).prod(0) * weight  # fmt: skip
        mass = chance.sum(-1)
        inner.append([(chance * psi**p).sum(-1) / mass for p in (1, 2)])  # (2, column, ...)
        total = total * mass
    found = np.stack([np.einsum("abc,pjabc->pj", total, np.stack(of)) for of in inner], 1)
    return found / total.sum()


@pytest.mark.device
def test_log_odds_of_a_tiny_matrix_are_those_of_quadrature():
    values = np.array([[1.0, 0.0], [1.0, np.nan], [0.0, 0.0]])
    algorithm = logistic_gibbs(LogisticDensity(1, scale=1.3, bias_scale=2.0), (3, 2))
    data = signs_of(values, 2)

    @fast_jit
    def chains(keys):
        def one(key):
            def sweep(state, key):
                state, _ = algorithm.step(key, state, data)
                return state, log_odds(state.position)

            return lax.scan(sweep, algorithm.init(key, None, data), random.split(key, 420))[1]

        return jax.vmap(one)(keys)

    draws = np.asarray(chains(random.split(random.key(0), 40)))[:, 20:]
    scores, size = moment_scores(draws, quadrature(values, 1.3, 2.0))
    assert size.min() > 1_000
    assert np.abs(scores).max() < 4.0  # of 12


# ---- the joint distribution: `test_exactness.py` ------------------------------------------------

SHAPE, RANK = (5, 4), 2
HIDDEN = np.zeros(SHAPE, bool)
HIDDEN[0] = HIDDEN[2, 1] = HIDDEN[4, 3] = True
EFFECTS = {"row_effects": True, "column_effects": True}
DENSITY = LogisticDensity(RANK, scale=0.8, bias_scale=1.5, **EFFECTS)
MODEL = functools.partial(logistic, rank=RANK, prior_scale=0.8, bias_scale=1.5, **EFFECTS)


def draw_joint(key):
    trace = handlers.trace(handlers.seed(MODEL, key)).get_trace(shape=SHAPE)
    return {n: trace[n]["value"] for n in DENSITY.sites}, trace["data"]["value"] * 1.0


def signs_of_seen(values):
    return signs_of(jnp.where(HIDDEN, jnp.nan, values), 2)


@pytest.mark.device
def test_the_log_joint_of_a_step_is_that_of_the_model():
    algorithm = logistic_gibbs(DENSITY, SHAPE)

    @fast_jit
    def step(key):
        position, values = draw_joint(key)
        data = signs_of_seen(values)
        state, info = algorithm.step(key, algorithm.init(key, position, data), data)
        return state.position, values, info.log_joint

    position, values, log_joint = step(random.key(1))
    expected = model_log_joint(functools.partial(MODEL, observed=~HIDDEN), values, position)
    np.testing.assert_allclose(log_joint, expected, rtol=1e-5)


def test_scales_and_temperatures_are_checked():
    with pytest.raises(InputError, match="bias_scale is 0"):
        logistic_gibbs(LogisticDensity(1, bias_scale=0), (2, 2))
    algorithm = logistic_gibbs(LogisticDensity(1), (2, 2))
    data = signs_of(np.eye(2), 2)
    with pytest.raises(InputError, match="not tempered"):
        algorithm.step(random.key(0), algorithm.init(random.key(0), None, data), data, 0.5)

"""Truncated Gibbs is exact: conditionals and posteriors by quadrature, Geweke's test, calibration.

And its structure: what a sweep forms, what it refuses, where it is bounded.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax import lax, random

from bmfjax.infer.mcmc.relaxed import entry_prior
from bmfjax.kernels.relaxed.data import (
    matrix_data,
)
from bmfjax.kernels.relaxed.density import (
    draw_factor_rate,
    draw_precision,
    log_joint,
)
from bmfjax.kernels.relaxed.gibbs import truncated_gibbs, update_factor
from tests.kernels.exactness import (
    entry_scores,
    fast_jit,
    moment_scores,
    rank_one_posterior,
    uniform_scores,
)
from tests.kernels.small_matrix import (
    EMPTY,
    SHAPES,
    TAU,
    as_data,
    density_of,
    given,
    small_values,
)

INF = float("inf")

# ---- one column at a time ----------------------------------------------------------------------

KEYS, SWEEPS = 300, 10
RATE = np.array([0.5, 3.0, 1.5], np.float32)


def log_prior(prior, x, k=0):
    """Log density of entries of factor k, up to a constant, written out."""
    with np.errstate(divide="ignore"):
        return {
            "uniform": lambda: 0.0 * x,
            "normal": lambda: -0.5 * x**2,
            "laplace": lambda: -0.5 * x,
            "ard": lambda: -RATE[k] * x,
            "beta": lambda: -0.5 * np.log(x) - 0.5 * np.log1p(-x),
            "Beta(2, 3)": lambda: np.log(x) + 2.0 * np.log1p(-x),
            "Kumaraswamy(2, 1.5)": lambda: np.log(x) + 0.5 * np.log1p(-(x**2)),
        }[prior]()


#: What is missing, how the data are held, whose conditional, prior and upper bound.
CONDITIONALS = [
    ("none", "lists", "usage", "normal", INF),
    ("none", "sparse", "usage", "normal", INF),
    ("none", "lists", "basis", "Beta(2, 3)", 1.0),
    ("none", "sparse", "basis", "beta", 1.0),
    ("few", "lists", "usage", "ard", INF),
    ("few", "sparse", "usage", "ard", INF),
    ("few", "lists", "basis", "normal", 1.0),
    ("few", "mask", "basis", "normal", 1.0),
    ("few", "sparse", "basis", "normal", 1.0),
    ("most", "lists", "usage", "Kumaraswamy(2, 1.5)", 1.0),
    ("most", "lists", "basis", "ard", 1.0),
    ("most", "mask", "basis", "ard", 1.0),
    ("many", "mask", "usage", "uniform", 1.0),
]


@functools.cache
def conditional_draws(missing, held, factor, prior, upper):
    """Draws at inverse temperatures 1 and 0.2, (2, key, m, rank)."""
    own = getattr(density_of(prior, upper, precision=TAU), factor)
    data = as_data(small_values(missing), held)
    position = given()
    other = position["basis" if factor == "usage" else "usage"]

    def run(key, weight):
        def sweep(x, key):
            return update_factor(key, factor, x, other, data, own, weight, jnp.asarray(RATE)), None

        # More than one, so that slice sampling forgets its start.
        return lax.scan(sweep, position[factor], random.split(key, SWEEPS))[0]

    many = fast_jit(jax.vmap(run, (0, None)))
    keys = random.split(random.key(3), KEYS)
    return np.stack([many(keys, TAU * power) for power in (1.0, 0.2)])


def scores_of(case):
    """(2, m, rank, key) of `conditional_draws`."""
    missing, _, factor, prior, upper = case
    values = small_values(missing)
    other = given()["basis" if factor == "usage" else "usage"]

    def scores(draws, power, place):
        return entry_scores(
            draws,
            other,
            values if factor == "usage" else values.T,
            TAU * power,
            lambda x: log_prior(prior, x, place[1]),
            place,
            upper,
        )

    found = []
    for power, draws in zip((1.0, 0.2), conditional_draws(*case), strict=True):
        assert np.isfinite(draws).all() and (draws >= 0).all() and (draws <= upper).all()
        places = np.ndindex(draws.shape[1:])
        found.append(np.reshape([scores(draws, power, p) for p in places], (*draws.shape[1:], -1)))
    return np.stack(found)


#: One of each way to hold the data, side, bound and kind of prior; the others are long.
OFTEN = [CONDITIONALS[number] for number in (0, 2, 7, 8, 12)]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=", ".join(map(str, c)), marks=[pytest.mark.long] * (c not in OFTEN))
        for c in CONDITIONALS
    ],
)
@pytest.mark.device
def test_a_column_is_drawn_from_its_conditional(case):
    """By quadrature, an entry given the rest of its row; the empty factor from its prior."""
    for of_power in scores_of(case):
        # The worst of 48. Rows are independent; the entries of one nearly are, by their scores.
        for scores in (of_power[:, :EMPTY], of_power[:, EMPTY]):
            assert scipy.stats.kstest(scores.ravel(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("missing", "factor", "prior", "upper", "ways"),
    [
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ("none", "usage", "normal", INF, ("lists", "sparse")),
                ("few", "usage", "ard", INF, ("lists", "sparse")),
                ("most", "basis", "ard", 1.0, ("lists", "mask")),
            )
        ),
        ("few", "basis", "normal", 1.0, ("lists", "mask", "sparse")),
    ],
)
@pytest.mark.device
def test_all_ways_to_hold_the_data_give_the_same_draws(missing, factor, prior, upper, ways):
    first, *rest = (conditional_draws(missing, held, factor, prior, upper) for held in ways)
    for draws in rest:
        # Where two branches of a draw meet, rounding chooses: of some devices here and there.
        assert np.mean(~np.isclose(draws, first, rtol=2e-3, atol=1e-4)) < 1e-3


@pytest.mark.parametrize(
    ("prior", "upper"),
    [
        *[(p, 1.0) for p in ("uniform", "normal", "laplace", "ard")],
        *[(p, INF) for p in ("normal", "laplace", "ard")],
        (dist.TruncatedNormal(2.0, 0.5, low=0.0), INF),
        (dist.TruncatedNormal(0.3, 0.2, low=0.1, high=0.9), 1.0),
        (dist.Exponential(3.0), INF),
        (dist.HalfNormal(0.7), INF),
    ],
)
def test_the_quadratic_form_is_the_log_density(prior, upper):
    own = entry_prior(prior, "usage", upper)
    x = np.linspace(own.low + 0.01, min(own.high, 3.0) - 0.01, 9, dtype=np.float32)[:, None]
    rate = np.float32([2.5]) if own.learned_rate else None
    slope, curvature = own.quadratic
    slope = 2.5 if own.learned_rate else slope
    left = np.asarray(fast_jit(own.log_prob)(x, rate)) + slope * x + 0.5 * curvature * x**2
    np.testing.assert_allclose(left, left[0, 0] * np.ones_like(x), rtol=1e-5, atol=1e-5)


# ---- precision and rates -----------------------------------------------------------------------


@functools.partial(fast_jit, static_argnums=(0, 2))
def log_joint_over(density, position, site, power, index, values, data):
    """With `values` in the place of one scalar of a site."""

    def at(value):
        moved = position | {site: position[site].at[index].set(value)}
        return log_joint(density, moved, data, power)

    return jax.vmap(at)(values)


def scalar_scores(density, position, data, power, site, index, draws):
    """Scores of draws of one scalar, by quadrature of the log joint density."""

    def log_density(x):
        values = jnp.asarray(x[:, 0])
        found = log_joint_over(density, position, site, power, index, values, data)
        return np.asarray(found)[:, None]

    return uniform_scores(log_density, draws, INF)


@pytest.mark.device
def test_the_precision_is_drawn_from_its_conditional():
    density = density_of("laplace", precision=dist.Gamma(2.0, 3.0))
    data = as_data(small_values("few"), "lists")
    position = given() | {"precision": jnp.ones(())}

    @fast_jit
    def draw(keys, power):
        one = functools.partial(draw_precision, density, position=position, data=data)
        return jax.vmap(lambda key: one(key, inverse_temperature=power))(keys)

    keys = random.split(random.key(0), 4000)
    for power in (1.0, 0.2):
        draws = np.asarray(draw(keys, power))
        scores = scalar_scores(density, position, data, power, "precision", (), draws)
        assert scipy.stats.kstest(scores, "uniform").pvalue > 0.01


@pytest.mark.parametrize("upper", [1.0, INF])
@pytest.mark.device
def test_the_rates_are_drawn_from_their_conditional(upper):
    density = density_of("ard", upper, rate=dist.Gamma(2.0, 0.5))
    data = as_data(small_values("none"), "lists")
    position = {n: x + 0.001 for n, x in given().items()}  # NumPyro's support is open at zero
    position |= {"precision": jnp.ones(()), "rate": jnp.asarray(RATE)}

    @fast_jit
    def run(keys):
        def one(key):
            def step(rate, key):
                return draw_factor_rate(density, key, position | {"rate": rate}), None

            return lax.scan(step, position["rate"], random.split(key, 20))[0]

        return jax.vmap(one)(keys)

    draws = np.asarray(run(random.split(random.key(1), 4000)))
    scores = [
        scalar_scores(density, position, data, 1.0, "rate", (k,), draws[:, k]) for k in (0, EMPTY)
    ]
    assert min(scipy.stats.kstest(s, "uniform").pvalue for s in scores) > 0.005


# ---- the posterior of a tiny matrix ------------------------------------------------------------

TINY = np.array([[1.0, 0.9, 0.1], [0.8, np.nan, 0.3], [0.1, 0.0, 0.6]])


@pytest.mark.parametrize(
    ("priors", "precision"),
    [(("laplace", "normal"), (5.0, 1.0)), (("uniform", "uniform"), 8.0)],
    ids=["learned", "fixed"],
)
@pytest.mark.device
def test_the_posterior_of_a_tiny_matrix_is_that_by_quadrature(priors, precision):
    learned = np.ndim(precision) == 1
    density = density_of(
        usage=priors[0],
        basis=priors[1],
        precision=dist.Gamma(*precision) if learned else precision,
    )
    algorithm = truncated_gibbs(density, None)
    data = matrix_data(TINY)
    start = {f: jnp.full((3, 1), 0.5) for f in SHAPES}
    start |= {"precision": jnp.ones(())} if learned else {}

    @fast_jit
    def run(keys):
        def one(key):
            def body(state, key):
                state, _ = algorithm.step(key, state, data)
                position = state.position
                kept = {"reconstruction": position["usage"] @ position["basis"].T}
                return state, kept | {n: position[n] for n in ("precision",) if learned}

            state = algorithm.init(key, start, data)
            return lax.scan(body, state, random.split(key, 700))[1]

        return jax.vmap(one)(keys)

    draws = run(random.split(random.key(5), 50))
    expected = rank_one_posterior(
        TINY, *(functools.partial(log_prior, p) for p in priors), precision
    )
    for name, found in draws.items():
        scores, size = moment_scores(found[:, 40:], expected[name])
        assert size.min() > 2000
        assert np.abs(scores).max() < 4, name

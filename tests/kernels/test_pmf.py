"""The Gibbs sampler of matrix factorisation: conditionals, noise, the program, refusals."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax import lax, random
from numpyro.distributions import Gamma

from bmfjax.data import InputError
from bmfjax.infer import ChainRun
from bmfjax.kernels.numerics.normal_wishart import (
    NormalWishart,
    draw_normal_wishart,
    gamma_shapes,
    moments,
)
from bmfjax.kernels.ratings.density import latent, log_interval, log_probabilities
from bmfjax.kernels.ratings.entries import entry_blocks
from bmfjax.kernels.ratings.gibbs import PMFDensity, pmf_gibbs
from bmfjax.kernels.ratings.vectors import draw_side
from bmfjax.models import pmf
from tests.kernels.exactness import fast_jit

# Priors of which all moments exist: with the degrees of the paper factors are as wide as Cauchy's.
RANK, CATEGORIES, SHAPE = 2, 4, (6, 5)
PRIOR = NormalWishart(2.0, 12.0, 0.1)
UNIT = 0.7  # of the usage, so that its prior is not that of the basis
DENSITY = PMFDensity(
    RANK, categories=CATEGORIES, precision_gamma=(6.0, 3.0), effect_gamma=(6.0, 3.0),
    factors=PRIOR, usage_unit=UNIT, level=(0.2, 0.8),
)  # fmt: skip
SEEN = np.random.default_rng(3).random(SHAPE) < 0.7
SEEN[4] = False  # a row of which nothing is known
ROWS, COLUMNS = np.nonzero(SEEN)


def the_model(link, **options):
    known = {"link": link, "rank": RANK, "effect_precision": Gamma(6.0, 3.0), "usage_unit": UNIT}
    known |= {"strength": 2.0, "degrees": 12.0, "scale": 0.1, "level_mean": 0.2, "level_scale": 0.8}
    known |= {"precision": Gamma(6.0, 3.0)} if link == "identity" else {}
    known |= {"categories": CATEGORIES} if link == "ordered" else {}
    return functools.partial(pmf, **known | options)


def template():
    return entry_blocks(ROWS, COLUMNS, np.ones(len(ROWS)), SHAPE)


def with_values(data, full):
    """The same cells with values from a whole matrix."""

    def refilled(lists, table):
        padded = jnp.pad(table, ((0, 1), (0, 1)))  # of lines and places that are padding
        values = [
            jnp.where(other < lists.padding, padded[line[..., None], other], 0.0)
            for line, other in zip(lists.line, lists.other, strict=True)
        ]
        return lists._replace(value=tuple(values))

    return data._replace(
        by_row=refilled(data.by_row, full), by_column=refilled(data.by_column, full.T)
    )


# ---- density and conditionals ------------------------------------------------------------------


@pytest.mark.parametrize(("side", "power"), [("row", 1.0), ("column", 0.4)])
@pytest.mark.device
def test_vectors_are_drawn_from_their_conditional(side, power):
    """Columns here have more entries than a table takes."""
    rng = np.random.default_rng(1)
    shape, draws = (330, 4), 1500
    seen = rng.random(shape) < 0.8
    seen[:, 3] &= rng.random(330) < 0.05
    rows, columns = np.nonzero(seen)
    values = 1.0 + rng.normal(size=len(rows))
    data = entry_blocks(rows, columns, values, shape)
    assert int(data.by_column.number.max()) > 1
    density = DENSITY._replace(precision=0.7)
    state = fast_jit(pmf_gibbs(density).init)(random.key(0), None, data)
    mean = jnp.array([0.5, -1.0])
    position = state.position | {"intercept": jnp.float32(0.9), f"{side}_precision": jnp.float32(3)}
    position |= {f"{('usage', 'basis')[side == 'column']}_mean": mean}
    position["column_effect"] = jnp.asarray(rng.normal(size=4), jnp.float32)
    position["row_effect"] = jnp.asarray(0.3 * rng.normal(size=330), jnp.float32)

    @fast_jit
    def many(keys):
        def one(key):
            drawn = draw_side(key, side, position, data, density, power)
            factors = drawn["usage" if side == "row" else "basis"][:4]
            return jnp.concatenate([factors, drawn[f"{side}_effect"][:4, None]], 1)

        return lax.map(one, keys, batch_size=200)

    found = np.asarray(many(random.split(random.key(2), draws)), float)
    own, other = (rows, columns) if side == "row" else (columns, rows)
    theirs = np.asarray(position["basis" if side == "row" else "usage"], float)
    offset = 0.9 + np.asarray(position[("row", "column")[side == "row"] + "_effect"], float)
    prior = np.diag([2.0, 2.0, 3.0])
    for line in range(4):
        f = np.c_[theirs[other[own == line]], np.ones((own == line).sum())]
        residual = values[own == line] - offset[other[own == line]]
        precision = prior + power * 0.7 * f.T @ f
        shift = prior @ [0.5, -1.0, 0.0] + power * 0.7 * f.T @ residual
        expected = np.linalg.solve(precision, shift)
        white = (found[:, line] - expected) @ np.linalg.cholesky(precision)
        assert np.abs(white.mean(0)).max() * draws**0.5 < 4.5
        assert np.abs(np.cov(white.T) - np.eye(3)).max() * draws**0.5 < 7


@pytest.mark.device
def test_vectors_of_columns_are_drawn_given_what_is_known_of_them():
    """Against the normal distribution of whole vectors, conditioned by its covariance matrix."""
    rng = np.random.default_rng(5)
    shape, draws = (9, 5), 3000
    rows, columns = np.nonzero(rng.random(shape) < [0.1, 0.4, 0.6, 0.8, 0.9])
    values = 1.0 + rng.normal(size=len(rows))
    known = rng.normal(size=(5, 2)) * [3.0, 0.2]
    density = DENSITY._replace(rank=3, precision=0.7)
    data = entry_blocks(rows, columns, values, shape, block_size=2)
    data = data._replace(known=jnp.asarray(known, jnp.float32))
    state = fast_jit(pmf_gibbs(density).init)(random.key(0), None, data)
    root = rng.normal(size=(3, 3))
    precision, mean = root @ root.T + np.eye(3), np.array([0.5, -1.0, 0.3])
    position = state.position | {
        "basis_mean": jnp.asarray(mean, jnp.float32),
        "basis_precision": jnp.asarray(precision, jnp.float32),
        "column_precision": jnp.float32(3.0),
        "row_effect": jnp.asarray(rng.normal(size=9), jnp.float32),
    }
    np.testing.assert_array_equal(position["basis"][:, :2], data.known)

    @fast_jit
    def many(keys):
        def one(key):
            drawn = draw_side(key, "column", position, data, density)
            return jnp.concatenate([drawn["basis"], drawn["column_effect"][:, None]], 1)

        return jax.vmap(one)(keys)

    found = np.asarray(many(random.split(random.key(2), draws)), float)
    np.testing.assert_array_equal(found[..., :2], np.broadcast_to(data.known, (draws, 5, 2)))
    usage, offset = (np.asarray(position[n], float) for n in ("usage", "row_effect"))
    prior = np.zeros((4, 4))
    prior[:3, :3], prior[3, 3] = precision, 3.0
    for line in range(5):
        own = rows[columns == line]
        f = np.c_[usage[own], np.ones(len(own))]
        residual = values[columns == line] - float(position["intercept"]) - offset[own]
        covariance = np.linalg.inv(prior + 0.7 * f.T @ f)
        whole = covariance @ (prior @ [*mean, 0.0] + 0.7 * f.T @ residual)
        among = covariance[2:, :2] @ np.linalg.inv(covariance[:2, :2])
        expected = whole[2:] + among @ (known[line] - whole[:2])
        own_covariance = covariance[2:, 2:] - among @ covariance[:2, 2:]
        white = (found[:, line, 2:] - expected) @ np.linalg.cholesky(np.linalg.inv(own_covariance))
        assert np.abs(white.mean(0)).max() * draws**0.5 < 4.5
        assert np.abs(np.cov(white.T) - np.eye(2)).max() * draws**0.5 < 7


@pytest.mark.device
def test_mean_and_precision_are_drawn_from_their_conditional():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(7, 3)) @ np.diag([1.0, 2.0, 0.5]) + 1.0)
    known = moments(x)

    @fast_jit
    def draw(key):
        gammas = random.gamma(key, gamma_shapes(7, 3, PRIOR))
        return draw_normal_wishart(random.fold_in(key, 1), known, PRIOR, gammas)

    mean, precision = jax.vmap(draw)(random.split(random.key(0), 20_000))
    average, scatter = np.asarray(known.average, float), np.asarray(known.scatter, float)
    inverse = np.eye(3) / 0.1 + scatter + 2 * 7 / 9 * np.outer(average, average)
    expected = (12 + 7) * np.linalg.inv(inverse)
    np.testing.assert_allclose(precision.mean(0), expected, atol=0.02 * np.abs(expected).max())
    np.testing.assert_allclose(mean.mean(0), 7 * average / 9, atol=0.02)
    # A multivariate t: E[(9 Lambda)^-1] = inverse / (9 (19 - 3 - 1)).
    np.testing.assert_allclose(np.cov(mean.T), inverse / 9 / 15, rtol=0.1, atol=0.004)
    spread = np.asarray(precision)[:, 0, 0] / expected[0, 0] * 19
    assert scipy.stats.kstest(spread, scipy.stats.chi2(19).cdf).pvalue > 1e-3


# ---- links -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit", [-30.0, 0.4, 25.0])
@pytest.mark.device
def test_latent_values_are_truncated_normals(fit):
    n, cuts = 8_000, jnp.array([-1.0, -0.9, 2.0])
    draw = fast_jit(latent, static_argnames="link")
    for category in range(4):
        value = jnp.full(n, category, jnp.float32)
        z = draw(random.key(category), "ordered", value, jnp.full(n, fit), cuts)
        ends = np.array([-np.inf, -1.0, -0.9, 2.0, np.inf])[category : category + 2]
        exact = scipy.stats.truncnorm(*(ends - fit), loc=fit)
        assert scipy.stats.kstest(np.asarray(z, float), exact.cdf).pvalue > 1e-4
    one = draw(random.key(9), "probit", jnp.ones(n), jnp.full(n, fit))
    assert bool((one > 0).all()) and bool(jnp.isfinite(one).all())
    exact = scipy.stats.truncnorm(-fit, np.inf, loc=fit)
    assert scipy.stats.kstest(np.asarray(one, float), exact.cdf).pvalue > 1e-4


def test_logarithms_of_probabilities_are_right_in_the_tails():
    low = np.array([-np.inf, -40.0, -1.0, 0.3, 8.0, 30.0, 3.0])
    high = np.array([-12.0, -39.0, 2.0, np.inf, 8.5, np.inf, 3.01])
    flip = low > -high
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    top = scipy.stats.norm.logcdf(b)
    exact = top + np.log1p(-np.exp(scipy.stats.norm.logcdf(a) - top))
    found = fast_jit(log_interval)(np.float32(low), np.float32(high))
    np.testing.assert_allclose(found, exact, rtol=2e-4)
    both = fast_jit(lambda s: log_probabilities("probit", s, 1.3))(np.float32([-1, 1]))
    assert np.exp(both).sum() == pytest.approx(1.0, abs=1e-6)


# ---- what `test_exactness.py` simulates --------------------------------------------------------


def fits(position):
    effects = position["row_effect"][:, None] + position["column_effect"]
    return position.get("intercept", 0.0) + effects + position["usage"] @ position["basis"].T


def simulate(key, position, density):
    e = fits(position)
    noise = random.normal(key, e.shape)
    if density.link == "identity":
        return e + noise * position["precision"] ** -0.5
    z = e + noise
    if density.link == "probit":
        return jnp.where(z > 0, 1.0, -1.0)
    return (z[..., None] > position["cutpoints"]).sum(-1).astype(z.dtype)


# ---- the program -------------------------------------------------------------------------------


@pytest.mark.long
def test_no_step_waits_for_lapack_and_one_compilation_serves_a_run(compilations):
    data = template()
    algorithm = pmf_gibbs(DENSITY)
    state = jax.eval_shape(algorithm.init, random.key(0), None, data)
    program = jax.jit(algorithm.step).lower(random.key(1), state, data).as_text()
    assert "lapack" not in program and "while" in program
    run = ChainRun(
        algorithm,
        random.key(0),
        data,
        num_chains=2,
        num_warmup=3,
        num_samples=9,
        draws={"usage": 1},
    )
    run.advance(2)
    compilations()
    run.finish()
    assert run.draws()["usage"].shape == (2, 9, *SHAPE[:1], RANK)
    assert compilations() == 0


@pytest.mark.long
def test_effects_alone_and_factors_alone():
    data = with_values(template(), jnp.ones(SHAPE))
    for density in (DENSITY._replace(rank=0), DENSITY._replace(effects=False)):
        algorithm = pmf_gibbs(density)
        state = jax.eval_shape(algorithm.init, random.key(0), None, data)
        shapes, _ = jax.eval_shape(algorithm.step, random.key(1), state, data)
        assert set(shapes.position) == set(density.sites)
        assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, state)
    algorithm = pmf_gibbs(DENSITY._replace(rank=0))

    @fast_jit
    def log_joint(key, data):
        return algorithm.step(key, algorithm.init(key, None, data), data)[1].log_joint

    assert np.isfinite(log_joint(random.key(0), data))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": -1}, "rank is -1"),
        ({"rank": 0, "effects": False}, "give a factor or the effects"),
        ({"link": "logit"}, "link is 'logit'; choose from identity"),
        ({"link": "ordered", "categories": 1}, "categories is 1"),
        ({"factors": NormalWishart(degrees=0.5)}, "degrees is 0.5, too few"),
        ({"precision": 0.0}, "precision is 0.0; give a positive number"),
        ({"level": (0.0, -1.0)}, "standard deviation of level is -1.0"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        pmf_gibbs(DENSITY._replace(**options))


def test_other_links_are_not_tempered():
    data = template()
    algorithm = pmf_gibbs(DENSITY._replace(link="probit"))
    with pytest.raises(InputError, match="'probit' is not tempered"):
        jax.eval_shape(
            lambda key: algorithm.step(key, algorithm.init(key, None, data), data, 0.5),
            random.key(0),
        )

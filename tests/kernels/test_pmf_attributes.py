"""Attributes in the prior means of matrix factorisation: conditionals, the joint distribution."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax import lax, random
from numpyro import handlers
from numpyro.distributions import Gamma
from numpyro.infer.util import log_density

from bmfjax.data import InputError
from bmfjax.infer import PMFGibbs
from bmfjax.kernels.ratings.attributes import decomposed, draw_coefficients, explained, plain
from bmfjax.kernels.ratings.density import log_prior
from bmfjax.models import pmf
from tests.kernels.exactness import fast_jit
from tests.kernels.test_pmf import (
    DENSITY,
    SEEN,
    SHAPE,
    the_model,
)

RIDGE = (6.0, 2.0)
_RNG = np.random.default_rng(7)
#: Groups of rows, of which one has more attributes than there are rows, and of columns.
OF_ROWS = [_RNG.normal(size=(6, 2)), 0.5 * _RNG.normal(size=(6, 8))]
OF_COLUMNS = _RNG.normal(size=(5, 3))
CHAINS, DRAWS, THIN = 160, 20, 4


# ---- the conditional of the coefficients ---------------------------------------------------------


@pytest.mark.parametrize("number", [3, 9])
def test_coefficients_are_drawn_from_their_conditional(number):
    """Against the matrix normal posterior of all of B given the drawn lambda, and lambda's own."""
    rng = np.random.default_rng(number)
    lines, width, draws = 5, 2, 4000
    x, vectors = rng.normal(size=(lines, number)), rng.normal(size=(lines, width))
    root = rng.normal(size=(width, width))
    precision = root @ root.T + np.eye(width)
    groups = (decomposed(x),)

    @fast_jit
    def many(key):
        def chain(key):
            def step(carry, key):
                return draw_coefficients(
                    key, jnp.asarray(vectors, jnp.float32), *carry,
                    jnp.asarray(precision, jnp.float32), groups, RIDGE,
                ), None  # fmt: skip

            start = jnp.zeros((number, width)), jnp.ones(1)
            return lax.scan(step, start, random.split(key, 12))[0]

        return lax.map(chain, random.split(key, draws), batch_size=500)

    found, ridge = (np.asarray(a, float) for a in many(random.key(0)))
    white = []
    for b, weight in zip(found, ridge[:, 0], strict=True):
        system = x.T @ x + weight * np.eye(number)
        apart = b - np.linalg.solve(system, x.T @ vectors)
        white.append(np.linalg.cholesky(system).T @ apart @ np.linalg.cholesky(precision))
    white = np.reshape(white, (draws, -1))
    assert np.abs(white.mean(0)).max() * draws**0.5 < 4.5
    assert np.abs(np.cov(white.T) - np.eye(number * width)).max() * draws**0.5 < 7
    # The density of lambda with B summed out, by the covariance of the vectors themselves.
    grid = np.exp(np.linspace(np.log(0.05), np.log(30), 400))
    log_p = [
        scipy.stats.gamma(RIDGE[0], scale=1 / RIDGE[1]).logpdf(weight)
        + scipy.stats.matrix_normal(
            rowcov=np.eye(lines) + x @ x.T / weight, colcov=np.linalg.inv(precision)
        ).logpdf(vectors)
        for weight in grid
    ]
    p = np.exp(np.array(log_p) - max(log_p)) * grid  # on a grid of logarithms
    cdf = np.cumsum(p) / p.sum()
    exact = lambda v: np.interp(v, grid, cdf)  # noqa: E731
    assert scipy.stats.kstest(ridge[:, 0], exact).pvalue > 1e-3


def test_what_is_explained_is_the_product():
    x, b = _RNG.normal(size=(6, 10)), _RNG.normal(size=(10, 3))
    two = (decomposed(x[:, :2]), decomposed(x[:, 2:]))
    found = fast_jit(explained)
    np.testing.assert_allclose(found(np.float32(b), two), x @ b, atol=2e-5)
    np.testing.assert_allclose(found(np.float32(b), (plain(x),)), x @ b, atol=2e-5)
    np.testing.assert_allclose(found(np.float32(b[:, 0]), two), x @ b[:, 0], atol=2e-5)
    # Of columns that say the same only their sum is known.
    twice = decomposed(np.c_[x, x])
    assert twice.size.shape == (6,) and twice.right.shape == (20, 6)


# ---- under NumPyro, and what is refused ----------------------------------------------------------


def with_attributes(link, columns=None):
    return functools.partial(
        the_model(link), row_attributes=OF_ROWS, column_attributes=columns, ridge=Gamma(*RIDGE)
    )


@pytest.mark.long
def test_the_prior_is_that_of_the_model():
    """With attributes of both sides, and two groups of those of rows; as the kernel binds them."""
    model = with_attributes("identity", OF_COLUMNS)
    values = np.where(SEEN, np.random.default_rng(2).normal(size=SHAPE), np.nan)
    bound = PMFGibbs(model).bind(values)
    density = DENSITY._replace(attributes=("row", "column"), ridge=RIDGE)
    assert set(jax.eval_shape(bound.algorithm.init, random.key(0), None, bound.data).position) == (
        set(density.sites)
    )

    @fast_jit
    def both(key):
        trace = handlers.trace(handlers.seed(model, key)).get_trace(shape=SHAPE)
        position = {n: trace[n]["value"] for n in density.sites}
        nothing = jnp.full(SHAPE, jnp.nan)
        expected = log_density(model, (nothing,), {}, position)[0]
        return log_prior(density, position, bound.data), expected

    for key in random.split(random.key(3), 4):
        found, expected = both(key)
        assert float(found) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"row_attributes": OF_COLUMNS},
            r"row_attributes has shape \(5, 3\), and there are 6 rows",
        ),
        ({"column_attributes": OF_COLUMNS, "relevance": Gamma(1.0, 1.0)}, "relevance has none"),
    ],
)
def test_attributes_that_the_model_cannot_have_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        pmf(np.zeros(SHAPE), rank=1, **options)

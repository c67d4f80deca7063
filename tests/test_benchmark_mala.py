"""Reflected MALA against quadrature: given the other factor matrix, and the whole chain."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax import lax, random

import bmfjax
from benchmarks.calibration.mala import fold, folded_log_density, reflected_mala, update_factor
from bmfjax.data.errors import InputError
from bmfjax.infer.mcmc.relaxed import relaxed_arguments, relaxed_density
from bmfjax.kernels.relaxed.data import matrix_data
from bmfjax.kernels.relaxed.density import EntryPrior, RelaxedDensity

FLAT = EntryPrior(lambda x, rate: jnp.zeros_like(x), 0.0, 1.0, 0.0, (0.0, 0.0))
PRIORS = {
    "quartic": EntryPrior(lambda x, rate: -40.0 * (x - 0.6) ** 4, 0.0, 1.0, 0.0),
    "exponential": EntryPrior(lambda x, rate: -2.0 * x, 0.0, np.inf, 0.0, (2.0, 0.0)),
    "narrow": FLAT._replace(low=0.3, high=0.4),
}


def model_problem():
    """2 x 1 of rank 1 on [0, 1], the precision learned: density, data and a start."""
    values = np.array([[0.9], [0.2]])
    model = functools.partial(bmfjax.models.relaxed_bmf, rank=1, precision=dist.Gamma(20.0, 0.2))
    density = relaxed_density(relaxed_arguments(model, (values,), {}))
    start = {"usage": np.ones((2, 1)), "basis": np.zeros((1, 1)), "precision": np.array(100.0)}
    return density, matrix_data(values), start


def marginals(log_density, low, high, points=300):
    """Distribution functions of the two coordinates, by summing the density over a grid."""
    edges = np.linspace(low, high, points + 1)
    middle = 0.5 * (edges[1:] + edges[:-1])
    x, y = np.meshgrid(middle, middle, indexing="ij")
    value = np.asarray(log_density(np.stack([x, y])))
    mass = np.exp(value - value.max())
    mass = mass / mass.sum()

    def function(axis):
        cumulated = np.concatenate([[0.0], np.cumsum(mass.sum(1 - axis))])
        return lambda x: np.interp(x, edges, cumulated)

    return function(0), function(1)


@pytest.mark.parametrize(
    ("name", "missing"), [("narrow", False), ("quartic", True), ("exponential", False)]
)
def test_lines_given_the_other_factor_follow_their_density(name, missing):
    """2000 lines with the same data are 2000 independent chains for one density."""
    prior, lines, weight = PRIORS[name], 2000, 30.0
    other = np.array([[0.9, 0.8, 0.7, 0.1, 0.9], [0.8, 0.1, 0.9, 0.8, 0.4]], np.float32)
    row = np.array([0.1, -0.3, 0.4, 0.3, -0.2], np.float32)  # the mode is below both bounds
    observed = np.array([True, True, True, True, not missing])
    data = matrix_data(np.tile(row, (lines, 1)), np.tile(observed, (lines, 1)))
    start = np.full((2, lines), prior.low, np.float32)  # in the corner
    run = jax.jit(
        lambda key: update_factor(key, "usage", start, other, data, prior, weight, 1.0, 200)
    )
    x, acceptance = run(random.key(0))

    def log_density(x):
        fit = np.einsum("kn,kab->nab", other, x)
        squares = ((row[:, None, None] - fit) ** 2 * observed[:, None, None]).sum(0)
        return prior.log_prob(x, None).sum(0) - 0.5 * weight * squares

    assert 0.8 < acceptance < 0.99
    high = 1.5 if prior.high == np.inf else prior.high
    for k, function in enumerate(marginals(log_density, prior.low, high)):
        assert scipy.stats.kstest(np.asarray(x[k]), function).pvalue > 0.005


@pytest.mark.long
def test_the_whole_chain_has_the_posterior_as_its_distribution():
    """Both factor matrices and the precision, 2000 chains against sums over a grid."""
    density, data, start = model_problem()
    mala = reflected_mala(density, initial=None, step_size=2.0, num_steps=4)

    def chain(key):
        state = mala.init(key, start, data)
        keys = random.split(key, 60)
        state, info = lax.scan(lambda s, k: mala.step(k, s, data), state, keys)
        return state.position, info.acceptance

    # The problem is small: it takes longer to compile than to run.
    run = jax.jit(jax.vmap(chain), compiler_options={"xla_backend_optimization_level": 0})
    found, acceptance = run(random.split(random.key(1), 2000))
    assert 0.7 < acceptance.mean() < 0.95
    # Over the precision by its Gamma conditional: (b + rss/2)^-(a + 1), two cells observed.
    edges = np.linspace(0.0, 1.0, 101)
    first, second, x = np.meshgrid(*[0.5 * (edges[1:] + edges[:-1])] * 3, indexing="ij")
    scale = 0.2 + 0.5 * ((0.9 - first * x) ** 2 + (0.2 - second * x) ** 2)
    mass = scale**-21.0 / (scale**-21.0).sum()
    coordinates = (found["usage"][:, 0, 0], found["usage"][:, 1, 0], found["basis"][:, 0, 0])
    for k, drawn in enumerate(coordinates):
        others = tuple({0, 1, 2} - {k})
        function = np.concatenate([[0.0], np.cumsum(mass.sum(others))])
        distribution = functools.partial(np.interp, xp=edges, fp=function)
        assert scipy.stats.kstest(np.asarray(drawn), distribution).pvalue > 0.005
    mean, square = (21.0 * mass / scale).sum(), (462.0 * mass / scale**2).sum()
    error = np.sqrt((square - mean**2) / 2000)
    assert abs(found["precision"].mean() - mean) < 4 * error


def test_folded_density_is_the_sum_over_all_images(x64):
    low, high, s = -1.0, 2.0, 1.0  # as wide as proposals get
    x = np.linspace(low, high, 2001)
    for mean in (-1.0, -0.7, 0.4, 2.0):
        k = np.arange(-20, 21)[:, None]
        images = [low + 6.0 * k + sign * (x - low) for sign in (1, -1)]
        expected = sum(scipy.stats.norm.pdf(i, mean, s).sum(0) for i in images)
        found = np.exp(folded_log_density(x, mean, s * s, low, high)) / np.sqrt(2 * np.pi)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        beyond = folded_log_density(x, mean, s * s, low, np.inf)
        expected = scipy.stats.foldnorm.pdf(x, (mean - low) / s, low, s)
        np.testing.assert_allclose(np.exp(beyond) / np.sqrt(2 * np.pi), expected, rtol=1e-12)


def test_folded_numbers_have_that_density():
    y = 0.9 + 0.33 * np.random.default_rng(0).normal(size=20_000)
    x = np.sort(fold(jnp.asarray(y), 0.0, 1.0))
    grid = np.linspace(0.0, 1.0, 2001)
    density = np.exp(folded_log_density(grid, 0.9, 0.33**2, 0.0, 1.0))
    cumulated = np.cumsum(density) / density.sum()
    assert scipy.stats.kstest(x, lambda x: np.interp(x, grid, cumulated)).pvalue > 0.005


def test_float32_survives_densities_far_below_the_smallest_number():
    a = folded_log_density(jnp.float32(0.0), jnp.float32(1.0), jnp.float32(1e-8), 0.0, 1.0)
    # Two images of the point meet at the bound.
    assert float(a) == pytest.approx(-0.5e8 + np.log(2.0))


def test_state_keeps_its_types_in_single_precision():
    check_types(np.float32)


def test_state_keeps_its_types_in_double_precision(x64):
    check_types(np.float64)


def check_types(dtype):
    density, data, start = model_problem()
    mala = reflected_mala(density, initial=lambda key, data: start)
    state = jax.eval_shape(mala.init, random.key(0), None, data)
    after, info = jax.eval_shape(mala.step, random.key(0), state, data)
    assert jax.tree.all(
        jax.tree.map(lambda x, y: (x.shape, x.dtype) == (y.shape, y.dtype), after, state)
    )
    assert {x.dtype for x in jax.tree.leaves((after, info))} == {np.dtype(dtype)}
    assert set(mala.observe(after, info)) == {*start, *info._fields}


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({}, {"step_size": 0.0}, "step_size is 0.0; give a positive number"),
        ({}, {"num_steps": 0}, "num_steps is 0; give a whole number of at least 1"),
        ({"usage": FLAT._replace(high=np.inf)}, {}, "flat on .*improper"),
        (
            {"basis": FLAT._replace(quadratic=None, log_prob=lambda x, rate: jnp.log(x))},
            {},
            "prior of basis is not finite at its bounds",
        ),
        ({"precision": None}, {}, "not Gamma"),
    ],
)
def test_bad_input_is_refused(change, options, words):
    density = RelaxedDensity(FLAT, FLAT, 1.0, None, None)._replace(**change)
    with pytest.raises(InputError, match=words):
        reflected_mala(density, initial=None, **options)


def test_a_start_that_does_not_fit_the_data_is_refused():
    mala = reflected_mala(RelaxedDensity(FLAT, FLAT, 1.0, None, None), initial=None)
    start = {"usage": np.ones((3, 1)), "basis": np.ones((2, 1))}
    with pytest.raises(InputError, match="start has 3 rows and 2 columns; the data have 2 and 3"):
        mala.init(random.key(0), start, matrix_data(np.ones((2, 3))))
    with pytest.raises(InputError, match="data are ndarray; gradient samplers take dense data"):
        mala.init(random.key(0), start, np.ones((3, 2)))

"""The exact sampler's memory, bounds, dtypes and refusals."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax import lax, random

from bmfjax.data import InputError
from bmfjax.kernels.relaxed.data import (
    matrix_data,
)
from bmfjax.kernels.relaxed.density import (
    MAX_PRECISION,
    draw_precision,
)
from bmfjax.kernels.relaxed.gibbs import truncated_gibbs, update_factor
from tests.kernels.exactness import (
    fast_jit,
)
from tests.kernels.small_matrix import (
    SHAPES,
    TAU,
    as_data,
    density_of,
    given,
    small_values,
)

INF = float("inf")


# ---- structure ---------------------------------------------------------------------------------


def sizes_of_intermediates(jaxpr):
    """Sizes of all that is computed, inside loops and calls too."""
    for equation in jaxpr.eqns:
        yield from (v.aval.size for v in equation.outvars)
        for parameter in equation.params.values():
            for inner in jax.tree.leaves(parameter, is_leaf=lambda p: hasattr(p, "jaxpr")):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from sizes_of_intermediates(inner)


@pytest.mark.parametrize("factor", SHAPES)
@pytest.mark.parametrize(
    ("share", "largest"), [(0.0, 2), (0.02, 8), (0.4, None)], ids=["none", "few", "many"]
)
def test_only_many_missing_entries_need_arrays_as_large_as_the_data(factor, share, largest):
    rows, columns, rank = 100, 120, 2
    values = np.ones((rows, columns), np.float32)
    values[np.random.default_rng(0).random(values.shape) < share] = np.nan
    data = matrix_data(values)
    lines, cells = (rows, columns) if factor == "usage" else (columns, rows)
    update = functools.partial(update_factor, prior=density_of().usage, weight=1.0)
    jaxpr = jax.make_jaxpr(lambda x, other, data: update(random.key(0), factor, x, other, data))(
        jnp.ones((lines, rank)), jnp.ones((cells, rank)), data
    )
    found = max(sizes_of_intermediates(jaxpr.jaxpr))
    if largest is None:
        assert found >= rows * columns
    else:
        listed = 0 if data.by_row is None else max(data.by_row.index.shape[0], 1)
        assert found <= rank * max(lines, cells) * max(largest, 2 * listed) < rows * columns


def wide_data(kind):
    """Data that tempt a sampler to divide by zero or to overflow, all held with a mask."""
    rows, columns = 6, 5
    values = np.zeros((rows, columns), np.float32)
    observed = np.ones((rows, columns), bool)
    if kind == "nothing observed":
        observed[:] = False
    elif kind == "a line of each unobserved":
        observed[2], observed[:, 3] = False, False
    elif kind == "no noise":
        values = np.outer(np.linspace(0.2, 0.9, rows), np.linspace(0.9, 0.3, columns))
    elif kind == "far outside":
        values = np.full((rows, columns), 1e6)
    template = matrix_data(np.where(np.eye(rows, columns), np.nan, 0.0))
    template = template._replace(by_row=None, by_column=None)
    values = jnp.asarray(np.where(observed, values, 0.0), jnp.float32)
    observed = jnp.asarray(observed, jnp.float32)
    return template._replace(
        values=values, transposed=values.T, observed=observed, observed_transposed=observed.T
    )


@functools.cache
def wide_chain():
    """``run(data, start) -> observed``; a weak prior of the precision."""
    density = density_of(usage="ard", precision=dist.Gamma(1.0, 1e-6))
    algorithm = truncated_gibbs(density, None)

    @fast_jit
    def run(data, start):
        def body(state, key):
            state, info = algorithm.step(key, state, data)
            return state, algorithm.observe(state, info)

        state = algorithm.init(None, start, data)
        return lax.scan(body, state, random.split(random.key(0), 200))[1]

    return run


@pytest.mark.parametrize(
    "kind",
    ["zeros", "nothing observed", "a line of each unobserved", "no noise", "far outside"],
)
def test_draws_stay_finite_and_in_bounds_whatever_the_data(kind):
    start = {
        "usage": jnp.linspace(0.2, 0.9, 6)[:, None],
        "basis": jnp.linspace(0.9, 0.3, 5)[:, None],
        "precision": jnp.float32(1e7 if kind == "no noise" else 1.0),
        "rate": jnp.ones(1),
    }
    drawn = wide_chain()(wide_data(kind), start)
    for name, values in drawn.items():
        assert values.dtype == jnp.float32, name
        assert bool(jnp.isfinite(values).all()), name
    for name in SHAPES:
        assert bool((drawn[name] >= 0).all() and (drawn[name] <= 1).all())
    assert float(drawn["precision"].max()) <= MAX_PRECISION
    if kind == "no noise":  # data without noise, and a prior that says nothing against it
        assert float(drawn["precision"][-50:].min()) > 1e5


def test_the_precision_of_data_without_noise_is_bounded():
    """By its prior, and where that says nothing at `MAX_PRECISION`."""
    density = density_of(precision=dist.Gamma(1.0, 1.0))
    position = {"usage": jnp.full((6, 1), 0.5), "basis": jnp.full((5, 1), 0.5)}
    data = matrix_data(np.full((6, 5), 0.25))

    @fast_jit
    def draw(keys, rate):
        own = density._replace(precision_gamma=(1.0, rate))
        return jax.vmap(lambda key: draw_precision(own, key, position, data))(keys)

    keys = random.split(random.key(0), 1000)
    assert scipy.stats.kstest(draw(keys, 1.0), scipy.stats.gamma(16.0).cdf).pvalue > 0.01
    assert set(np.asarray(draw(keys, 1e-20))) == {np.float32(MAX_PRECISION)}


@pytest.mark.parametrize(
    ("prior", "upper"),  # NumPyro's truncated normal promotes by itself
    [("ard", 1.0), ("ard", INF), ("beta", 1.0), ("uniform", 1.0), ("normal", INF)],
)
def test_a_sweep_promotes_no_types(prior, upper):
    density = density_of(prior, upper, precision=dist.Gamma(1.0, 1.0))
    algorithm = truncated_gibbs(density, None)
    start = {"usage": jnp.ones((6, 1)), "basis": jnp.ones((5, 1)), "precision": jnp.ones(())}
    start |= {"rate": jnp.ones(1)} if prior == "ard" else {}
    with jax.numpy_dtype_promotion("strict"):
        state, info = jax.eval_shape(
            lambda data: algorithm.step(random.key(0), algorithm.init(None, start, data), data),
            wide_data("zeros"),
        )
    assert {x.dtype for x in jax.tree.leaves((state, info))} == {jnp.dtype("float32")}


# ---- what is refused ---------------------------------------------------------------------------


def test_priors_on_the_half_line_that_are_not_quadratic_are_refused():
    with pytest.raises(InputError, match="the prior of usage reaches to infinity and is neither"):
        truncated_gibbs(density_of(dist.Gamma(2.0, 1.0), INF), None)


def test_improper_priors_are_refused():
    density = density_of("normal", INF)
    for slope in (0.0, -1.0):
        flat = density.basis._replace(quadratic=(slope, 0.0))
        with pytest.raises(InputError, match=r"the prior of basis is flat on \[0, inf\)"):
            truncated_gibbs(density._replace(basis=flat), None)
    with pytest.raises(InputError, match="'uniform' of usage is improper"):
        density_of("uniform", INF)


def test_a_precision_without_a_gamma_prior_is_refused():
    with pytest.raises(InputError, match="the prior of precision is LogNormal"):
        density_of(precision=dist.LogNormal(0.0, 1.0))
    density = density_of()._replace(precision_gamma=None)
    with pytest.raises(InputError, match="prior that is not Gamma"):
        truncated_gibbs(density, None)


def test_a_beta_prior_that_floats_cannot_hold_is_refused():
    with pytest.raises(InputError, match=r"the prior of usage is Beta\(0\.1"):
        truncated_gibbs(density_of(dist.Beta(0.1, 0.5)), None)


# ---- faults that were found --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prior", "upper"),
    [
        (dist.LogNormal(0.0, 1.0), INF),
        (dist.TransformedDistribution(dist.Normal(), dist.transforms.SigmoidTransform()), 1.0),
        (dist.FoldedDistribution(dist.Normal(1.0, 1.0)), INF),
    ],
    ids=["log normal", "logit normal", "folded normal"],
)
def test_a_transformed_normal_is_not_taken_for_a_truncated_one(prior, upper):
    assert density_of(prior, upper).usage.quadratic is None


def test_the_smallest_uniform_number_does_not_draw_the_bound():
    """NumPyro's densities on (0, inf) are none at zero, and the log joint would be -inf."""

    def smallest(key, shape=(), dtype=float, minval=0.0, maxval=1.0):
        return jnp.full(shape, minval, dtype)

    own, position = density_of("normal", INF).usage, given()
    data = as_data(small_values("none"), "lists")
    update = functools.partial(update_factor, factor="usage", data=data, prior=own, weight=TAU)
    with mock.patch.object(random, "uniform", smallest):
        x = fast_jit(update)(random.key(0), x=position["usage"], other=position["basis"])
    assert bool((x > 0).all())
    assert bool(jnp.isfinite(fast_jit(own.log_prob)(x, None)).all())


def test_a_beta_draw_is_not_the_bound():
    """The sine rounded to one, where the density is infinite, and so was the log joint."""
    own = density_of("beta").usage
    data = matrix_data(np.ones((2000, 1)))
    half = jnp.full((2000, 1), 0.5)
    draw = fast_jit(lambda key: update_factor(key, "usage", half, half[:1], data, own, 1e6))
    x = draw(random.key(0))
    assert bool((x > 0).all() and (x < 1).all())
    assert bool(jnp.isfinite(fast_jit(own.log_prob)(x, None)).all())

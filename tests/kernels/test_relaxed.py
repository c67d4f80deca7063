"""The relaxed density: hand-written gradients against NumPyro, the solver against a dense one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax import random
from numpyro import handlers
from numpyro.infer.util import log_density as numpyro_log_density

from bmfjax.infer.mcmc import plates
from bmfjax.infer.mcmc.relaxed import relaxed_arguments, relaxed_density
from bmfjax.kernels.numerics.linalg import newton_direction
from bmfjax.kernels.relaxed import density as kernel
from bmfjax.kernels.relaxed.data import matrix_data, num_observed, residual_sum_of_squares
from bmfjax.kernels.sgmcmc.relaxed_blocks import relaxed_blocks
from bmfjax.models.relaxed import relaxed_bmf
from bmfjax.specs.priors import NAMED

ROWS, COLUMNS, RANK = 9, 7, 3
#: With repeats, as drawing with replacement gives them.
INDICES = {"basis": {"rows": jnp.array([4, 0, 4, 8])}, "usage": {"columns": jnp.array([6, 6, 1])}}
BATCH = (4, 3)
TAU = 1.7


def problem(prior="uniform", missing=False, **options):
    """Model, its arguments, density, data and a position, in double precision if enabled."""
    r = np.random.default_rng(3)
    values = (r.random((ROWS, COLUMNS)) < 0.4).astype(float)
    observed = None
    if missing:
        values[r.random(values.shape) < 0.2] = np.nan
        observed = r.random(values.shape) < 0.8
    model = functools.partial(relaxed_bmf, rank=RANK, prior=prior, **options)
    density = relaxed_density(relaxed_arguments(model, (values, observed), {}))
    position = {
        "usage": jnp.asarray(r.uniform(0.05, 0.95, (ROWS, RANK))),
        "basis": jnp.asarray(r.uniform(0.05, 0.95, (COLUMNS, RANK))),
    }
    if density.precision is None:
        position["precision"] = jnp.asarray(TAU)
    return model, (values, observed), density, matrix_data(values, observed), position


def numpyro_log_joint(model, args, indices, position):
    """NumPyro's own log density with the plates' indices substituted."""
    return numpyro_log_density(handlers.substitute(model, data=indices), args, {}, position)[0]


@pytest.mark.parametrize(
    ("prior", "missing"),
    [
        pytest.param("uniform", False, marks=pytest.mark.long),
        ("normal", True),
        pytest.param("laplace", False, marks=pytest.mark.long),
        pytest.param("beta", True, marks=pytest.mark.long),
    ],
)
def test_block_gradients_are_those_of_the_numpyro_model(x64, prior, missing):
    """Against NumPyro's density and against that of `plates`, which moves log(precision)."""
    model, args, density, data, position = problem(prior, missing)
    sites = plates.ModelSites(
        {s: v.shape for s, v in position.items()},
        {"usage": (0.0, 1.0), "basis": (0.0, 1.0)},
        {"precision": dist.transforms.ExpTransform()},
        {"rows": ROWS, "columns": COLUMNS},
        {"data": ("rows", "columns")},
        {s: () for s in position},
        {},
    )
    settings = {"newton": (True, True), "unscaled": (False, False)}
    blocks = {
        name: relaxed_blocks(
            density, (ROWS, COLUMNS), BATCH, newton=newton, scale_likelihood=scaled
        )
        for name, (newton, scaled) in settings.items()
    }

    @jax.jit
    def gradients(position):
        """Both settings of both blocks; NumPyro's with the data and with nothing observed."""
        nothing = (args[0], np.zeros((ROWS, COLUMNS), bool))
        moving = position | {"precision": jnp.log(position["precision"])}
        found, expected = {}, {}
        for b, (site, indices) in enumerate(INDICES.items()):
            found[site] = {
                n: both[b].gradient(position, indices, data, 0.5) for n, both in blocks.items()
            }
            for name, its in (("everything", args), ("prior", nothing)):
                of = functools.partial(numpyro_log_joint, model, its, indices)
                expected[site, name] = jax.grad(of)(position)[site]
            by_plates = functools.partial(plates.log_density, model, sites)
            expected[site, "plates"] = jax.grad(by_plates)(moving, indices, args, {}, 0.5)[site]
        return found, expected

    found, expected = gradients(position)
    for site, share in (("basis", 4 / 9), ("usage", 3 / 7)):
        prior_part = expected[site, "prior"]
        likelihood = expected[site, "everything"] - prior_part  # with N/S
        close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
        assert set(found[site]["newton"]) == {site}
        close(found[site]["newton"][site], prior_part + 0.5 * likelihood)
        close(found[site]["newton"][site], expected[site, "plates"])
        close(found[site]["unscaled"][site], prior_part + 0.5 * share * likelihood)


def test_blocks_say_what_they_draw(x64):
    *_, density, _, _ = problem()
    basis, usage = relaxed_blocks(density, (ROWS, COLUMNS), BATCH)
    assert (basis.sites, basis.plates) == (("basis",), {"rows": (9, 4)})
    assert (usage.sites, usage.plates) == (("usage",), {"columns": (7, 3)})
    assert (basis.fraction, usage.fraction) == (4 / 9, 3 / 7)


def gradients(block, one, data, position):
    """Those of a block, their variance, and those of its cases one by one."""
    (site,) = block.sites
    ((plate, cases),) = INDICES[site].items()
    each = [one.gradient(position, {plate: i[None]}, data, 0.5)[site] for i in cases]
    alone = block.gradient(position, INDICES[site], data, 0.5)[site]
    gradient, variance = block.gradient_and_variance(position, INDICES[site], data, 0.5)
    return gradient[site], variance[site], alone, jnp.stack(each)


@pytest.mark.parametrize(
    ("missing", "scaled"), [(False, True), (True, False)], ids=["full-scaled", "missing-unscaled"]
)
def test_case_variance_is_that_of_single_case_gradients(x64, missing, scaled):
    _, _, density, data, position = problem("uniform", missing)
    single = relaxed_blocks(density, (ROWS, COLUMNS), (1, 1), scale_likelihood=scaled)
    blocks = relaxed_blocks(density, (ROWS, COLUMNS), BATCH, scale_likelihood=scaled)
    for both in zip(blocks, single, strict=True):
        found = jax.jit(functools.partial(gradients, *both, data))(position)
        gradient, variance, alone, each = found
        np.testing.assert_allclose(gradient, alone, rtol=1e-12)
        # Scaled, the estimate is the mean of N times each case's gradient; else the sum of cases.
        count = len(each)
        expected = each.var(0) / count if scaled else each.var(0) * count
        np.testing.assert_allclose(variance, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    ("missing", "options"), [(True, {}), (False, {"precision": 0.6})], ids=["learned", "fixed"]
)
def test_log_joint_is_the_numpyro_log_density(x64, missing, options):
    model, args, density, data, position = problem("normal", missing, **options)
    nothing = (args[0], np.zeros((ROWS, COLUMNS), bool))

    @jax.jit
    def densities(position):
        found = [kernel.log_joint(density, position, data, b) for b in (1.0, 0.3)]
        return found, [numpyro_log_density(model, its, {}, position)[0] for its in (args, nothing)]

    (cold, warm), (expected, prior) = densities(position)
    assert float(cold) == pytest.approx(float(expected))
    assert float(warm) == pytest.approx(float(prior + 0.3 * (expected - prior)))


def test_curvature_is_the_hessian_of_a_row(x64):
    _, _, density, data, position = problem("normal")

    @jax.jit
    def minus_hessians(position):
        def of(site, x):
            moved = position | {site: position[site].at[0].set(x)}
            return -kernel.log_joint(density, moved, data, 0.5)

        return {s: jax.hessian(functools.partial(of, s))(position[s][0]) for s in INDICES}

    expected = minus_hessians(position)
    for block in relaxed_blocks(density, (ROWS, COLUMNS), BATCH):
        # All but the ridge that keeps an unused factor definite.
        found = block.curvature(position, data, 0.5)
        np.testing.assert_allclose(found, expected[block.sites[0]], atol=1e-4)


def test_constant_prior_curvature_enters_and_no_other(x64):
    found = {prior: problem(prior)[2] for prior in NAMED}
    assert {p: round(d.usage.curvature, 4) for p, d in found.items()} == {
        "uniform": 0.0,
        "normal": 1.0,
        "laplace": 0.0,
        "beta": 0.0,
        "ard": 0.0,
    }
    density = problem(basis="normal", usage="uniform")[2]
    assert (density.usage.curvature, density.basis.curvature) == (0.0, pytest.approx(1.0))


@pytest.mark.parametrize("rank", [1, 4])
def test_newton_direction_solves_on_the_free_coordinates_of_every_row(x64, rank):
    r = np.random.default_rng(rank)
    factor = r.random((30, rank))
    curvature = factor.T @ factor + 0.5 * np.eye(rank)
    gradient, free = r.normal(size=(80, rank)), r.random((80, rank)) < 0.7
    solve = jax.jit(newton_direction, static_argnums=3)
    found = np.asarray(solve(gradient, free, curvature, rank))
    assert (found[~free] == 0).all()
    for row, f, g in zip(found, free, gradient, strict=True):
        np.testing.assert_allclose(
            row[f], np.linalg.solve(curvature[np.ix_(f, f)], g[f]), rtol=1e-7, atol=1e-10
        )


@pytest.mark.parametrize("chains", [1, 3])
def test_rows_that_are_solved_before_the_last_iteration_stay_solved(chains):
    """Under vmap over one chain XLA once made steps of twice the length of what was rounding."""
    r = np.random.default_rng(2)
    factor = r.random((40, 2)).astype(np.float32)
    curvature = factor.T @ factor + 1e-3 * np.eye(2, dtype=np.float32)
    gradient = r.normal(size=(1000, 2)).astype(np.float32)
    free = np.arange(1000)[:, None] % 2 == [0, 1]  # one coordinate a row: solved in one iteration
    many = [np.stack([x] * chains) for x in (gradient, free, curvature)]
    found = jax.jit(jax.vmap(newton_direction))(*many)
    expected = free * gradient / np.diag(curvature)
    np.testing.assert_allclose(found, [expected] * chains, rtol=1e-4)


def test_three_iterations_leave_a_few_per_cent():
    r = np.random.default_rng(0)
    factor = r.random((200, 10))
    curvature, gradient = factor.T @ factor, r.normal(size=(500, 10))
    found = jax.jit(newton_direction)(gradient, np.ones((500, 10), bool), curvature)
    exact = np.linalg.solve(curvature, gradient.T).T
    assert np.linalg.norm(found - exact) < 0.05 * np.linalg.norm(exact)


def test_newton_direction_of_nothing_is_zero():
    curvature = jnp.eye(3) + 1.0
    gradient = jnp.array([[1.0, -2.0, 3.0], [0.0, 0.0, 0.0]])
    free = jnp.array([[False] * 3, [True] * 3])
    assert (jax.jit(newton_direction)(gradient, free, curvature) == 0).all()


@pytest.mark.parametrize(
    ("missing", "inverse_temperature"), [(False, 1.0), (True, 0.25)], ids=["full", "tempered"]
)
def test_precision_is_drawn_from_its_gamma_conditional(x64, missing, inverse_temperature):
    _, args, density, data, position = problem(missing=missing, precision=dist.Gamma(2.0, 3.0))
    draws = jax.jit(
        jax.vmap(
            lambda key: kernel.draw_precision(density, key, position, data, inverse_temperature)
        )
    )(random.split(random.key(0), 4000))
    seen = ~np.isnan(args[0]) & (True if args[1] is None else args[1])
    product = np.asarray(position["usage"] @ position["basis"].T)
    residual = np.where(seen, args[0] - product, 0)
    conditional = scipy.stats.gamma(
        2.0 + inverse_temperature * seen.sum() / 2,
        scale=1 / (3.0 + inverse_temperature * (residual**2).sum() / 2),
    )
    assert scipy.stats.kstest(np.asarray(draws), conditional.cdf).pvalue > 0.01
    error = conditional.std() / np.sqrt(len(draws))
    assert abs(draws.mean() - conditional.mean()) < 4 * error
    assert draws.std() == pytest.approx(conditional.std(), rel=0.06)


def test_residual_sum_keeps_float32_accuracy_where_the_fit_is_close():
    r = np.random.default_rng(0)
    usage, basis = r.random((600, 4)).astype(np.float32), r.random((500, 4)).astype(np.float32)
    values = (usage @ basis.T + 1e-2 * r.normal(size=(600, 500))).astype(np.float32)
    found = residual_sum_of_squares(usage, basis, matrix_data(values))
    wide = [x.astype(float) for x in (usage, basis, values)]
    exact = ((wide[2] - wide[0] @ wide[1].T) ** 2).sum()
    assert found.dtype == jnp.float32
    assert float(found) == pytest.approx(exact, rel=2e-6)


def test_matrix_data_holds_both_orientations_and_one_mask(x64):
    _, (values, observed), _, data, _ = problem(missing=True)
    seen = ~np.isnan(values) & observed
    np.testing.assert_array_equal(data.observed, seen)
    np.testing.assert_array_equal(data.values, np.where(seen, values, 0))
    np.testing.assert_array_equal(data.transposed, data.values.T)
    np.testing.assert_array_equal(data.observed_transposed, data.observed.T)
    assert float(num_observed(data)) == seen.sum()
    traced = jax.jit(matrix_data)(values, observed)
    jax.tree.map(np.testing.assert_array_equal, traced, data)


def test_a_full_matrix_needs_no_mask():
    data = matrix_data(np.eye(3), np.ones((3, 3), bool))
    assert data.observed is None and data.observed_transposed is None
    assert float(num_observed(data)) == 9.0

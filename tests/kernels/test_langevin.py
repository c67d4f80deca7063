"""Langevin on a box: what each rule at the bounds leaves invariant, with and without noise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax import lax, random

import bmfjax
from bmfjax.data.errors import InputError
from bmfjax.diagnostics import ess_bulk
from bmfjax.infer.mcmc.relaxed import relaxed_arguments, relaxed_density
from bmfjax.infer.run import ChainRun
from bmfjax.kernels.relaxed.data import matrix_data
from bmfjax.kernels.relaxed.density import EntryPrior, RelaxedDensity
from bmfjax.kernels.relaxed.gibbs import truncated_gibbs
from bmfjax.kernels.sgmcmc import langevin as langevin_module
from bmfjax.kernels.sgmcmc.boundary import (
    clamp_step,
    conormal_return,
    logit_step,
    reflect_step,
    truncate_step,
)
from bmfjax.kernels.sgmcmc.langevin import BOUNDARIES, langevin

LINES = 4_000
#: Small problems take longer to compile than to run.
QUICK = {"xla_backend_optimization_level": 0}
FLAT = EntryPrior(lambda x, rate: jnp.zeros_like(x), 0.0, 1.0, 0.0, (0.0, 0.0))
STEPS = {f.__name__.removesuffix("_step"): f for f in (clamp_step, reflect_step, logit_step)}
STEPS["truncate"] = truncate_step

#: One coordinate with its mode one standard deviation below the box.
LINE_CURVATURE, LINE_MODE = 100.0 * np.eye(1, dtype=np.float32), np.full((1, 1), -0.1, np.float32)
LINE = scipy.stats.truncnorm(1.0, 11.0, loc=-0.1, scale=0.1)
#: Two correlated ones, both modes outside, on [0, inf).
CURVATURE = np.array([[1.0, 0.8], [0.8, 1.0]], np.float32)
MODE = np.array([[-0.3], [0.8]], np.float32)


def iterate(step, start, num_steps, *, curvature, mode, box, h, noise=0.0, top_up=True):
    """Lines that are chains of their own, after so many steps; the normal density is exact.

    `noise` is the variance of what is added to the gradient, () or (rank, 1).
    """
    return np.asarray(_iterate(step, box, top_up)(start, num_steps, curvature, mode, h, noise))


@functools.cache
def _iterate(step, box, top_up):
    def run(start, num_steps, curvature, mode, h, noise):
        variance = jnp.broadcast_to(jnp.asarray(noise, start.dtype), start.shape)

        def body(t, x):
            key_step, key_noise = random.split(random.fold_in(random.key(0), t))
            gradient = -curvature @ (x - mode)
            gradient = gradient + jnp.sqrt(variance) * random.normal(key_noise, x.shape)
            return step(key_step, x, gradient, variance, curvature, box, h, top_up).x

        return lax.fori_loop(0, num_steps, body, start)

    return jax.jit(run)


def from_line(boundary, h, num_steps):
    """Bias of the mean and ratio of the standard deviations, in a case of one coordinate."""
    start = LINE.rvs((1, LINES), random_state=9).astype(np.float32)
    x = iterate(
        STEPS[boundary], start, num_steps, curvature=LINE_CURVATURE, mode=LINE_MODE,
        box=(0.0, 1.0), h=h,
    )  # fmt: skip
    return (x.mean() - LINE.mean()) / LINE.std(), x.std() / LINE.std(), x


def marginals(points=600, high=4.0):
    """Distribution functions and means of the two correlated coordinates, on a grid."""
    edges = np.linspace(0.0, high, points + 1)
    middle = 0.5 * (edges[1:] + edges[:-1])
    x = np.stack(np.meshgrid(middle, middle, indexing="ij")) - MODE[:, :, None]
    mass = np.exp(-0.5 * np.einsum("kl,kab,lab->ab", CURVATURE, x, x))
    sums = [mass.sum(1 - k) / mass.sum() for k in (0, 1)]
    functions = [
        functools.partial(np.interp, xp=edges, fp=np.concatenate([[0.0], np.cumsum(s)]))
        for s in sums
    ]
    return functions, np.array([s @ middle for s in sums])


# ---- at the bounds ----------------------------------------------------------------------


def test_the_bias_of_reflection_is_linear_in_the_step():
    bias = [from_line("reflect", h, n)[0] for h, n in ((0.4, 100), (0.1, 300))]
    assert 0.2 < bias[0] < 0.33 and 2.5 < bias[0] / bias[1] < 5.5


def test_the_bias_of_clamping_is_a_root_of_the_step_and_an_atom():
    bias, _, x = zip(*(from_line("clamp", h, n) for h, n in ((0.4, 100), (0.1, 300))), strict=True)
    assert -0.55 < bias[0] < -0.35 and 1.5 < bias[0] / bias[1] < 2.5
    atoms = [(line == 0.0).mean() for line in x]
    assert atoms[0] > 0.4 and 1.4 < atoms[0] / atoms[1] < 2.3


def test_the_logit_has_next_to_no_bias():
    bias, ratio, x = from_line("logit", 0.5, 400)
    assert abs(bias) < 0.05 and abs(ratio - 1.0) < 0.05
    assert scipy.stats.kstest(x[0], LINE.cdf).statistic < 0.03


def test_truncation_has_none_at_any_step():
    functions, _ = marginals()
    for h in (0.3, 0.95):
        x = iterate(
            truncate_step, np.full((2, LINES), 2.0, np.float32), 60, curvature=CURVATURE,
            mode=MODE, box=(0.0, np.inf), h=h,
        )  # fmt: skip
        for k in (0, 1):
            assert scipy.stats.kstest(x[k], functions[k]).pvalue > 0.005


def test_conormal_reflection_of_correlated_coordinates_is_right_and_folding_is_not():
    """As the step goes to zero; folding keeps its bias, so that the reason is the direction."""
    start = np.full((2, LINES), 0.5, np.float32)
    settings = {"curvature": CURVATURE, "mode": MODE, "box": (0.0, np.inf)}

    def folding(key, x, gradient, variance, curvature, box, h, top_up):
        free = reflect_step(key, x, gradient, variance, curvature, (-np.inf, np.inf), h, top_up)
        return free._replace(x=jnp.abs(free.x))  # the box is [0, inf)

    _, means = marginals()
    bias = {
        name: [
            np.abs(iterate(step, start, n, h=h, **settings).mean(1) - means).max()
            for h, n in ((0.4, 60), (0.025, 500))
        ]
        for name, step in (("conormal", reflect_step), ("folding", folding))
    }
    assert bias["conormal"][0] > 0.05 and bias["conormal"][1] < 0.02
    assert bias["folding"][1] > 0.04


def test_points_come_back_into_the_box_from_everywhere():
    r = np.random.default_rng(0)
    factor = r.random((50, 6))
    preconditioner = np.linalg.inv(factor.T @ factor + 0.1 * np.eye(6)).astype(np.float32)
    x = r.normal(size=(6, 500), scale=3.0).astype(np.float32)
    for times in (1.0, 2.0):
        moved = conormal_return(x, preconditioner, (0.0, 1.0), times)
        assert moved.min() >= 0.0 and moved.max() <= 1.0
    inside = r.random((6, 500)).astype(np.float32)
    np.testing.assert_array_equal(conormal_return(inside, preconditioner, (0.0, 1.0), 2.0), inside)


# ---- noise in the gradient --------------------------------------------------------------


def test_truncation_makes_up_exactly_for_normal_noise_of_known_variance():
    functions, _ = marginals()
    settings = {"curvature": CURVATURE, "mode": MODE, "box": (0.0, np.inf), "h": 0.5}
    start = np.full((2, LINES), 0.5, np.float32)
    noise = np.array([[1.5], [0.6]], np.float32)  # of 1.8 that there is room for
    topped = iterate(truncate_step, start, 100, noise=noise, **settings)
    for k in (0, 1):
        assert scipy.stats.kstest(topped[k], functions[k]).pvalue > 0.005
    plain = iterate(truncate_step, start, 100, noise=noise, top_up=False, **settings)
    assert (plain.std(1) / topped.std(1)).max() > 1.07


def test_newton_steps_make_up_for_noise_in_the_metric_of_the_curvature():
    """Of an uncorrelated density far from the bounds, where the rule is exact."""
    scales = np.diag([4.0, 25.0]).astype(np.float32)
    settings = {"curvature": scales, "mode": np.zeros((2, 1), np.float32), "box": (-99.0, 99.0)}
    start = np.zeros((2, LINES), np.float32)
    noise = 1.5 * np.diag(scales)[:, None]
    variances = {
        top_up: iterate(reflect_step, start, 40, h=1.0, noise=noise, top_up=top_up, **settings).var(
            1
        )
        * np.diag(scales)
        for top_up in (True, False)
    }
    # The scheme's own stationary variance: injected over 1 - (1 - h/2)^2.
    np.testing.assert_allclose(variances[True], 1.0 / 0.75, rtol=0.04)
    np.testing.assert_allclose(variances[False], (1.0 + 0.25 * 1.5) / 0.75, rtol=0.04)


@pytest.mark.parametrize("boundary", ["reflect", "logit", "truncate"])
def test_no_noise_is_injected_where_the_gradient_has_more_and_none_is_negative(boundary):
    """In float32, a third of the lines in a corner with a gradient that holds them there."""
    x = jnp.tile(jnp.array([[0.4, 0.0, 1.0], [0.6, 1.0, 0.0]], jnp.float32), (1, 200))
    gradient = jnp.where((x == 0.0) | (x == 1.0), 1e4 * (x - 0.5), 0.1)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def step(key, variance):
        variance = jnp.full_like(x, variance)
        return STEPS[boundary](key, x, gradient, variance, CURVATURE, (0.0, 1.0), 0.5, True)

    keys = random.split(random.key(0), 2)
    (first, second), (free, _) = ([step(k, v) for k in keys] for v in (1e12, 0.0))
    for out in (first, free):
        assert np.isfinite(out.x).all() and out.x.min() >= 0.0 and out.x.max() <= 1.0
    assert first.noise_share > 1.0 and free.noise_share == 0.0
    # The lines inside; a logit in a corner takes the gradient, and its noise, times nothing.
    inside = [out.x[:, ::3] for out in (first, second, free)]
    assert (inside[0] != inside[2]).any()
    if boundary != "truncate":  # which has noise of its own
        np.testing.assert_array_equal(*inside[:2])


# ---- the algorithm ----------------------------------------------------------------------


def model_problem(prior="uniform", upper=1.0, precision=25.0):
    """12 x 10 of rank 2, a fifth missing: density, data and a start in the mode."""
    r = np.random.default_rng(1)
    usage = np.zeros((12, 2), np.float32)
    usage[:7, 0], usage[5:, 1] = 0.9, 0.8
    basis = np.zeros((10, 2), np.float32)
    basis[:5, 0], basis[5:, 1] = 0.9, 0.7
    values = usage @ basis.T + 0.2 * r.normal(size=(12, 10))
    values[r.random(values.shape) < 0.2] = np.nan
    model = functools.partial(
        bmfjax.models.relaxed_bmf, rank=2, prior=prior, upper=upper, precision=precision
    )
    density = relaxed_density(relaxed_arguments(model, (values,), {}))
    start = {"usage": usage, "basis": basis}
    if precision is None:
        start["precision"] = np.float32(25.0)
    if density.rate_gamma is not None:
        start["rate"] = np.ones(2, np.float32)
    return density, matrix_data(values), start


def draws_of(algorithm, data, start, number, chains=16, warmup=48):
    """(chain, draw, coordinate) of all sites, and all infos."""

    def draw(state, key):
        state, info = algorithm.step(key, state, data)
        return state, (jnp.concatenate([state.position[n].ravel() for n in start]), info)

    def chain(key):
        state = algorithm.init(key, start, data)
        return lax.scan(draw, state, random.split(key, warmup + number))[1]

    run = jax.jit(jax.vmap(chain), compiler_options=QUICK)
    draws, info = run(random.split(random.key(3), chains))
    return np.asarray(draws)[:, warmup:], info


@functools.cache
def exact_draws():
    density, data, start = model_problem()
    return draws_of(truncated_gibbs(density, None), data, start, 250)[0]


@pytest.mark.long
def test_minibatches_with_control_variates_come_close(compilations):
    """Chains side by side, compiled once, with anchors that move and then stay."""
    density, data, start = model_problem()
    algorithm = langevin(
        density, (12, 10), initial=None, batch=(6, 5), step_size=0.7, num_steps=3,
        control_variates=True, num_anchor=48,
    )  # fmt: skip
    run = ChainRun(
        algorithm, random.key(0), data, num_chains=16, num_warmup=48, num_samples=250,
        position={n: np.stack([v] * 16) for n, v in start.items()}, chunk_size=149,
        draws=dict.fromkeys((*start, "noise_share", "clamped", "log_joint", "residual"), 1),
    )  # fmt: skip
    run.advance()
    anchor = np.asarray(run.state.track.anchor.usage)
    compilations()
    run.advance()
    assert compilations() == 0
    np.testing.assert_array_equal(run.state.track.anchor.usage, anchor)
    assert (anchor[0] != anchor[1]).any()
    draws, exact = run.draws(), exact_draws()
    assert all(np.isfinite(v).all() for v in draws.values())
    assert 0.01 < draws["noise_share"].mean() < 1.0 and draws["clamped"].mean() < 0.01
    found = np.concatenate([draws[n].reshape(16, 250, -1) for n in start], axis=2)
    assert ess_bulk(found).min() > 300 and ess_bulk(exact).min() > 300
    error = (found.mean((0, 1)) - exact.mean((0, 1))) / exact.std((0, 1))
    ratio = found.std((0, 1)) / exact.std((0, 1))
    assert np.sqrt((error**2).mean()) < 0.06 and np.sqrt(((ratio - 1.0) ** 2).mean()) < 0.06


@pytest.mark.long
def test_an_estimated_residual_has_no_more_noise_than_the_precision_allows(monkeypatch):
    """Rows of three cells: the sum of squares over all data is taken. Without a limit it is not."""
    r = np.random.default_rng(0)
    values = (r.random((40, 2)) @ r.random((2, 3)) + 0.1 * r.normal(size=(40, 3))).astype("f4")
    data, density = matrix_data(values), RelaxedDensity(FLAT, FLAT, 50.0, None, None)
    half = {"usage": jnp.full((40, 2), 0.5), "basis": jnp.full((3, 2), 0.5)}

    def differences():
        algorithm = langevin(
            density, (40, 3), batch=(6, 3), initial=None, control_variates=True, num_anchor=1
        )
        state = algorithm.init(random.key(0), half, data)
        step = jax.jit(algorithm.step, compiler_options=QUICK)
        found = []
        for key in random.split(random.key(1), 12):
            state, info = step(key, state, data)
            fit = state.position["usage"] @ state.position["basis"].T
            found.append(float(abs(info.residual / jnp.sum((values - fit) ** 2) - 1.0)))
        return np.array(found[2:])  # after the anchor has been set

    assert differences().max() < 1e-5
    monkeypatch.setattr(langevin_module, "MAX_RESIDUAL_NOISE", np.inf)
    assert differences().max() > 0.01


def test_state_keeps_its_types_in_single_precision():
    check_types(np.float32)


def test_state_keeps_its_types_in_double_precision(x64):
    check_types(np.float64)


def check_types(dtype):
    for boundary in BOUNDARIES:
        # All that can be learned learned.
        upper = 1.0 if boundary == "logit" else np.inf
        density, data, start = model_problem("ard", upper, precision=None)
        algorithm = langevin(
            density, (12, 10), initial=lambda key, data, start=start: start, batch=(6, 10),
            boundary=boundary, control_variates=True,
        )  # fmt: skip
        state = jax.eval_shape(algorithm.init, random.key(0), None, data)
        after, info = jax.eval_shape(algorithm.step, random.key(0), state, data)
        assert jax.tree.all(
            jax.tree.map(lambda x, y: (x.shape, x.dtype) == (y.shape, y.dtype), after, state)
        )
        assert {x.dtype for x in jax.tree.leaves((after.position, info))} == {np.dtype(dtype)}
        assert set(algorithm.observe(after, info)) == {*start, *info._fields}


# ---- refusals ---------------------------------------------------------------------------

BETA = EntryPrior(lambda x, rate: -0.5 * jnp.log(x) - 0.5 * jnp.log1p(-x), 0.0, 1.0, 0.0)
EXPONENTIAL = EntryPrior(lambda x, rate: -2.0 * x, 0.0, np.inf, 0.0, (2.0, 0.0))


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({}, {"boundary": "bounce"}, "boundary is 'bounce'; choose from truncate, reflect"),
        ({}, {"noise": "none"}, "noise is 'none'; choose from langevin, top-up"),
        ({}, {"batch": (1, 2)}, "the batch of rows is 1; give a whole number from 2 to 6"),
        ({}, {"batch": (6, 5)}, "the batch of columns is 5; give a whole number from 2 to 4"),
        ({}, {"step_size": 1.0}, "step_size is 1.0; with boundary='truncate' give .* 0 and 1,"),
        ({}, {"boundary": "reflect", "step_size": 4.0}, "give a number between 0 and 4,"),
        ({}, {"step_size": 0.0}, "step_size is 0.0"),
        ({}, {"num_steps": 0}, "num_steps is 0; give a whole number of at least 1"),
        ({}, {"num_anchor": 0}, "num_anchor is 0; give a whole number of at least 1"),
        ({"usage": EXPONENTIAL}, {"boundary": "logit"}, "usage reaches to infinity; .* finite"),
        ({"basis": BETA}, {}, "basis is not quadratic in its logarithm"),
        ({"basis": BETA}, {"boundary": "clamp"}, "basis is not finite at its bounds"),
        ({"basis": FLAT._replace(high=np.inf)}, {}, "basis is flat on .*improper"),
        ({"precision": None}, {}, "precision has a prior that is not Gamma"),
    ],
)
def test_bad_input_is_refused(change, options, words):
    density = RelaxedDensity(FLAT, FLAT, 1.0, None, None)._replace(**change)
    with pytest.raises(InputError, match=words):
        langevin(density, (6, 4), initial=None, **{"batch": (3, 2)} | options)


def test_data_of_another_shape_are_refused():
    density = RelaxedDensity(FLAT, FLAT, 1.0, None, None)
    algorithm = langevin(density, (6, 4), initial=None, batch=(3, 2))
    start = {"usage": np.ones((4, 1)), "basis": np.ones((6, 1))}
    with pytest.raises(InputError, match=r"the data are \(4, 6\); the sampler is for \(6, 4\)"):
        algorithm.init(random.key(0), start, matrix_data(np.ones((4, 6))))

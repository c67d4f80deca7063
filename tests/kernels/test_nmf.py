"""Moves and walls of nonnegative factorisations: conditionals, and what they leave invariant."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.sparse as sp
import scipy.stats
from jax import random

from bmfjax import models
from bmfjax.data import InputError
from bmfjax.diagnostics import ess_bulk, geweke_scores, mcse_mean, pairwise_distances
from bmfjax.infer import ChainRun, NMFGibbs, wall_ladder
from bmfjax.kernels.nonnegative import gibbs
from bmfjax.kernels.nonnegative.basis_change import change_basis, draw_nonnegative_shift, draw_shift
from bmfjax.kernels.nonnegative.line_moves import _weak_directions, move_lines
from bmfjax.kernels.nonnegative.soft_constraint import (
    HARD,
    _log_mass_above_zero,
    draw_two_sided,
    violation,
)
from bmfjax.kernels.relaxed.data import matrix_data, sparse_matrix_data
from tests.kernels.exactness import fast_jit, new_problem, simulate, simulator

INF = float("inf")


def uniform_by_quadrature(log_density, draws, low, high, grid=20_000):
    """P(X <= x) of the draws under a density on [low, high], by the midpoint rule."""
    edges = np.linspace(low, high, grid + 1)
    logs = log_density(0.5 * (edges[1:] + edges[:-1]))
    mass = np.concatenate([[0.0], np.cumsum(np.exp(logs - logs.max()))])
    return np.interp(draws, edges, mass / mass[-1])


# ---- the soft constraint -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("linear", "precision", "rate", "wall"),
    [(0.0, 0.0, 1.0, 2.0), (3.0, 2.0, 1.0, 5.0), (-40.0, 4.0, 2.0, 3.0), (-8.0, 1.0, 0.5, 20.0),
     (60.0, 30.0, 1.0, 1.0), (-5.0, 3.0, 1.0, HARD)],
)  # fmt: skip
def test_a_softly_constrained_entry_has_its_density(linear, precision, rate, wall):
    full = functools.partial(jnp.full, (4000,))
    x = np.asarray(
        fast_jit(draw_two_sided)(
            random.key(0), full(linear), full(precision), full(rate), jnp.float32(wall)
        ),
        float,
    )

    def log_density(x):
        price = np.where(x >= 0, rate * x, -min(wall, 1e6) * rate * x)
        return linear * x - 0.5 * precision * x**2 - price

    scores = uniform_by_quadrature(log_density, x, x.min() - 0.1, x.max() + 0.1)
    assert scipy.stats.kstest(scores, "uniform").pvalue > 1e-3
    if wall == HARD:
        assert (x > 0).all()


def test_the_mass_above_zero_of_an_exponential_density():
    mass = fast_jit(_log_mass_above_zero)(-2.0, 0.0)
    assert float(mass) == pytest.approx(np.log(0.5), abs=1e-4)


def test_negative_entries_violate_the_constraint_in_units_of_their_rates():
    position = {"usage": np.float32([[-1.0], [2.0]]), "basis": np.float32([[-0.5]])}
    assert float(fast_jit(violation)(position, {"usage": 1.0, "basis": 4.0})) == 3.0


def test_weak_directions_are_columns_of_the_inverse_gram_matrix():
    directions = fast_jit(_weak_directions)(np.float32([[1.0, 1.0], [1.0, 0.0]]))
    np.testing.assert_allclose(directions, [[1.0, -1.0], [-0.5, 1.0]], atol=1e-3)


# ---- changes of basis ----------------------------------------------------------------------------


@functools.cache
def many(draw):
    """One program of many draws given the same numbers."""
    return fast_jit(lambda keys, *given: jax.vmap(lambda k: draw(k, *given))(keys))


def shift_problem(kind, wall):
    r = np.random.default_rng(3)
    position, direction = r.exponential(size=7), r.normal(size=7)
    position[:2] = 1e-4  # at the wall
    if kind == "beyond":
        position[2:4] = -0.05
    rate = r.uniform(0.5, 2.0, 7)
    return position, direction, rate, wall * rate


@pytest.mark.parametrize(
    ("kind", "wall"), [("inside", 3.0), ("inside", 300.0), ("beyond", 20.0), ("inside", HARD)]
)
@pytest.mark.device
def test_a_shear_is_drawn_from_its_density(kind, wall):
    position, direction, rate, walls = shift_problem(kind, wall)
    given = map(np.float32, (position, direction, rate, walls))
    t = np.asarray(many(draw_shift)(random.split(random.key(1), 4000), *given), float)

    def log_density(t):
        x = position[:, None] + direction[:, None] * t
        price = np.where(x >= 0, rate[:, None] * x, -np.minimum(walls, 1e9)[:, None] * x)
        return -price.sum(0)

    reach = 0.2 * np.ptp(t)
    scores = uniform_by_quadrature(log_density, t, t.min() - reach, t.max() + reach)
    assert scipy.stats.kstest(scores, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.05, 3.0, 40.0])
@pytest.mark.device
def test_a_shear_of_nonnegative_factors_is_drawn_from_its_density(rate):
    """Flat, falling and steep on its interval."""
    r = np.random.default_rng(5)
    position, direction = r.exponential(size=7), r.normal(size=7)
    given = map(np.float32, (position, direction, rate * np.ones(7)))
    t = np.asarray(many(draw_nonnegative_shift)(random.split(random.key(1), 4000), *given), float)
    bound = -position / direction
    low, high = bound[direction > 0].max(), bound[direction < 0].min()
    assert low <= t.min() and t.max() <= high

    def log_density(t):
        return -rate * direction.sum() * t

    scores = uniform_by_quadrature(log_density, t, low, high)
    assert scipy.stats.kstest(scores, "uniform").pvalue > 1e-3


compiled_lines = fast_jit(move_lines, static_argnums=1)


@pytest.mark.parametrize("held", ["dense", "masked", "sparse"])
@pytest.mark.parametrize("apart", [0.3, 0.03])
@pytest.mark.device
def test_lines_move_along_weak_directions_in_float32(apart, held):
    """Far from zero a line is normal: of its draws the weak coordinate is known."""
    noise, columns, rows = 1e-3, 40, 1500
    r = np.random.default_rng(0)
    basis = np.ones((columns, 2)) + np.stack([apart * r.random(columns), np.zeros(columns)], 1)
    truth = np.full((rows, 2), 5.0)
    values = truth @ basis.T + noise * r.normal(size=(rows, columns))
    seen = np.ones(values.shape, bool)
    if held == "masked":
        seen[:, ::7] = False
    values = values.astype(np.float32)
    made = sparse_matrix_data(sp.csr_array(values)) if held == "sparse" else None
    data = made or matrix_data(np.where(seen, values, np.nan))
    inside = seen[0]
    gram = basis[inside].T @ basis[inside]
    best = np.linalg.solve(gram, basis[inside].T @ values[:, inside].T).T
    weak = np.linalg.eigh(gram)[1][:, 0]
    sd = noise / np.sqrt(np.linalg.eigh(gram)[0][0])
    x = compiled_lines(
        random.key(0), "usage", np.float32(best), np.float32(basis), data,
        np.full(2, 1e-3, np.float32), np.float32(noise**-2),
    )  # fmt: skip
    score = (np.asarray(x, float) - best) @ weak / sd
    assert abs(score.mean()) < 4 / np.sqrt(rows)
    assert abs(score.std() - 1) < 4 / np.sqrt(2 * rows)


def test_a_change_of_basis_keeps_the_product_and_the_walls():
    usage, basis = random.exponential(random.key(0), (2, 6, 3))
    one = jnp.ones(3)
    new_usage, new_basis = fast_jit(change_basis)(
        random.key(1), usage, basis, one, one, jnp.float32(HARD)
    )
    np.testing.assert_allclose(new_usage @ new_basis.T, usage @ basis.T, rtol=1e-4, atol=1e-5)
    assert (new_usage >= -1e-6).all() and (new_basis >= -1e-6).all()
    assert not np.allclose(new_usage, usage, atol=0.05)


def test_a_single_factor_has_scales_alone():
    usage, basis = random.exponential(random.key(0), (2, 6, 1))
    new = fast_jit(change_basis)(
        random.key(1), usage, basis, np.ones(1, np.float32), np.ones(1, np.float32)
    )
    scale = new[0] / usage
    np.testing.assert_allclose(scale, scale[0, 0], rtol=1e-5)
    np.testing.assert_allclose(new[0] @ new[1].T, usage @ basis.T, rtol=1e-5)


# ---- the posterior -------------------------------------------------------------------------------

OBSERVED = np.ones((5, 4), bool)
OBSERVED[[0, 2, 3], [1, 2, 0]] = False
OPTIONS = {
    "rank": 2,
    "usage": dist.Exponential(1.5),
    "basis": dist.Exponential(0.7),
    "upper": INF,
    "precision": dist.Gamma(4.0, 2.0),
}


@pytest.mark.long
def test_known_columns_stay_and_the_rest_has_its_posterior():
    """Geweke's test of sweeps and moves, where one column of the basis is known."""
    plain = new_problem(np.ones_like(OBSERVED), **OPTIONS | {"rank": 3})
    known = jnp.array([1.5, 0.0, 0.4, 2.0])

    def draw_joint(key):
        position, _ = plain.draw_joint(key)
        position = position | {"basis": position["basis"].at[:, 0].set(known)}
        return position, simulate(plain.density, random.fold_in(key, 1), position)

    def numbers(position, data):
        usage, basis = position["usage"], position["basis"]
        stays = jnp.all(basis[:, 0] == known).astype(usage.dtype)
        noise = 1e-3 * data.values[0, 0]  # Geweke's scores need a spread
        each = [
            usage[:, 0].sum(), (usage[:, 0] ** 2).sum(), (usage[:, 0] * usage[:, 1]).sum(),
            basis[:, 1:].sum(), (basis[:, 1] ** 2).sum(), (basis[:, 0] * basis[:, 2]).sum(),
            usage[:, 1:].sum(), jnp.log(position["precision"]), stays + noise,
        ]  # fmt: skip
        return jnp.stack(each)

    problem = plain._replace(draw_joint=draw_joint, density=plain.density._replace(anchored=1))
    run = simulator(
        problem, lambda density: gibbs.nonnegative_gibbs(density, None), numbers,
        num_chains=150, num_draws=20, thin=2,
    )  # fmt: skip
    marginal, successive = run(random.key(4), True)
    assert ess_bulk(successive).min() > 250
    assert np.abs(geweke_scores(marginal, successive)).max() < 4.2
    assert successive[..., -1].min() > 0.9


def two_solutions(noise, seed=0):
    """Laurberg's matrix with two solutions, exact or with noise; the first of them."""
    a = 0.5
    usage = np.array([[a, 1, 0], [1, a, 0], [1, 0, a], [a, 0, 1], [0, a, 1], [0, 1, a]])
    exact = usage @ usage.T
    return exact + noise * np.random.default_rng(seed).normal(size=exact.shape), usage


def run_chains(kernel, data, num_samples, num_chains, start=None, seed=0, num_warmup=0):
    bound = kernel.bind(np.asarray(data, np.float32))
    traces = ["log_joint"] + (["replica"] if kernel._walls else [])
    run = ChainRun(
        bound.algorithm, random.key(seed), bound.data, num_chains=num_chains,
        num_warmup=num_warmup, num_samples=num_samples, position=start,
        draws={"usage": 1, "basis": 1}, trace=dict.fromkeys(traces, 1),
    )  # fmt: skip
    run.finish()
    return run


@pytest.mark.long
def test_walls_do_not_change_the_posterior():
    r = np.random.default_rng(4)
    data = r.exponential(size=(4, 2)) @ r.exponential(size=(2, 3)) + 0.3 * r.normal(size=(4, 3))
    data[1, 2] = np.nan
    model = functools.partial(models.nmf, rank=2, precision=dist.Gamma(20.0, 2.0), usage_rate=1.5)
    found = []
    for walls in (None, (30.0, 6.0, 1.5)):
        kernel = NMFGibbs(model, walls=walls, moves=("basis", "lines") if walls else ())
        draws = run_chains(kernel, data, 800, 8, num_warmup=100).draws()
        usage, basis = (np.asarray(draws[n], float) for n in ("usage", "basis"))
        found.append(
            np.stack(
                [
                    usage.sum((2, 3)), (usage**2).sum((2, 3)), basis[:, :, 0].max(-1),
                    (usage[:, :, 0] * basis[:, :, 1]).sum(-1), usage[:, :, 1].min(-1),
                    np.log(basis.sum((2, 3))),
                ], -1,
            )
        )  # fmt: skip
    (first, second), errors = found, [mcse_mean(f) for f in found]
    assert ess_bulk(second).min() > 400
    scores = (first.mean((0, 1)) - second.mean((0, 1))) / np.hypot(*errors)
    assert np.abs(scores).max() < 4


@pytest.mark.long
def test_both_solutions_have_their_share_from_either_start():
    """Without noise the two have equal mass, by symmetry."""
    data, usage = two_solutions(0.0)
    other = np.roll(usage, 3, axis=0)
    model = functools.partial(models.nmf, rank=3, precision=1e4)
    start = {n: np.stack([usage, other] * 3) + 1e-4 for n in ("usage", "basis")}
    run = run_chains(NMFGibbs(model, walls=wall_ladder(2e3, 2.0, 14)), data, 1100, 6, start)
    draws = np.asarray(run.draws()["usage"])
    first = np.stack([pairwise_distances(chain, usage[None])[:, 0] < 18 for chain in draws])
    switches = np.abs(np.diff(first.astype(int), axis=1)).sum(1)
    assert switches.min() >= 2
    assert abs(first.mean() - 0.5) < 4 * mcse_mean(first.astype(float)[..., None])[0]
    assert mcse_mean(first.astype(float)[..., None])[0] < 0.11
    assert pairwise_distances(draws[0, ::50]).max() > 36


@pytest.mark.long
def test_without_walls_a_chain_keeps_its_solution():
    data, usage = two_solutions(0.0)
    model = functools.partial(models.nmf, rank=3, precision=1e4)
    start = {n: usage[None] + 1e-4 for n in ("usage", "basis")}
    draws = run_chains(NMFGibbs(model), data, 200, 1, start).draws()["usage"][0]
    assert pairwise_distances(draws[::5]).max() < 5


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"moves": ("rows",)}, "give a sequence of any of basis, lines"),
        ({"moves": None}, "give a sequence"),
        ({"moves": [["basis"]]}, "give a sequence"),
        ({"walls": (1.0, 2.0)}, "that fall"),
        ({"walls": ()}, "that fall"),
        ({"walls": (1.0, -1.0)}, "positive numbers"),
        ({"walls": "auto"}, "positive numbers"),
        ({"walls": (10.0,), "num_anneal": 5}, "leave one of them out"),
    ],
)
def test_options_that_are_wrong(options, message):
    with pytest.raises(InputError, match=message):
        NMFGibbs(functools.partial(models.nmf, rank=2), **options)


def test_models_that_are_not_its_own():
    data = np.ones((3, 3))
    for model, message in (
        (functools.partial(models.relaxed_bmf, rank=2), "upper=inf"),
        (functools.partial(models.relaxed_bmf, rank=2, upper=INF, prior="normal"), "exponential"),
        (lambda data: None, "no other"),
    ):
        with pytest.raises(InputError, match=message):
            NMFGibbs(model).bind(data)
    with pytest.raises(InputError, match="positive number"):
        NMFGibbs(functools.partial(models.nmf, rank=2, usage_rate=0.0)).bind(data)
    with pytest.raises(InputError, match="needs data"):
        NMFGibbs(functools.partial(models.nmf, rank=2, shape=(3, 3))).bind()

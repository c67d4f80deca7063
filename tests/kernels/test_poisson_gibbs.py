"""Factorisation of counts: allocations, binomial draws, ratios of moves, and the log joint."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from scipy import stats
from scipy.special import gammaln

from bmfjax.kernels.numerics.binomial import draw_binomial, log_beta
from bmfjax.kernels.poisson.allocation import allocate
from bmfjax.kernels.poisson.density import (
    PoissonData,
    PoissonDensity,
    log_likelihood,
    log_prior,
    poisson_data,
)
from bmfjax.kernels.poisson.gibbs import random_position, sweep
from bmfjax.kernels.poisson.split_merge import log_split_ratio
from bmfjax.kernels.poisson.starts import ascended
from bmfjax.kernels.poisson.trajectories import follow, roots_of
from bmfjax.models import poisson
from tests.kernels.exactness import fast_jit, model_log_joint

SHAPE, RANK = (4, 3), 2
HIDDEN = np.zeros(SHAPE, bool)
HIDDEN[0, 1] = HIDDEN[2, 2] = True
OFFSET = np.array([1.0, 0.5, 2.0, 1.0], np.float32)
MILD = {"usage_shape": 1.5, "basis_concentration": 0.7, "rate": (4.0, 4.0)}
LEARNED = {"basis_concentration": None}
KINDS = {
    "complete": {},
    "scattered": {"dispersion_scale": 0.7, "trajectories": 2, **LEARNED},
    "absent": {"presence": True, "trajectories": 2, **LEARNED},
}


def density_of(kind):
    return PoissonDensity(RANK + (kind == "absent"), **MILD | KINDS[kind])


def model_of(density):
    return functools.partial(
        poisson, rank=density.rank, usage_shape=density.usage_shape, offset=OFFSET,
        basis_concentration=density.basis_concentration, rate=dist.Gamma(*density.rate),
        dispersion_scale=density.dispersion_scale,
    )  # fmt: skip


def draw_joint(density, key, shape=SHAPE):
    """A draw of all unknowns and counts; factors that may be absent are there or not."""
    key, key_number, key_order, key_counts = random.split(key, 4)
    trace = handlers.trace(handlers.seed(model_of(density), key)).get_trace(shape=shape)
    sites = {n: trace[n]["value"] for n in density.sites if n != "presence"}
    if density.presence:
        number = random.randint(key_number, (), 1, density.rank + 1)
        there = random.permutation(key_order, jnp.arange(density.rank) < number)
        sites |= {n: jnp.where(there, sites[n], 0.0) for n in ("usage", "basis")}
        sites["presence"] = there.astype(jnp.float32)
    return sites, draw_counts(key_counts, sites)


def draw_counts(key, position):
    key_factor, key_count = random.split(key)
    rate = OFFSET[:, None] * (position["usage"] @ position["basis"].T)
    if "dispersion" in position:
        size = position["dispersion"] ** -2.0
        rate *= random.gamma(key_factor, size, rate.shape) / size
    return random.poisson(key_count, rate).astype(jnp.float32)


def data_of(values, complete=False):
    """Counts that need not be known yet: all of them are split, none is drawn by itself."""
    row, column = (part[None].astype(np.int32) for part in np.nonzero(~HIDDEN | complete))
    counts = values[row[0], column[0]][None]
    none = jnp.zeros((0, 1), jnp.int32)
    seen = jnp.asarray(~HIDDEN, jnp.float32)
    return PoissonData(
        (row, column, counts), (none, none), (row, column, counts), jnp.asarray(OFFSET),
        None if complete else seen, jnp.where(complete | ~HIDDEN, values, 0.0),
        jax.scipy.special.gammaln(counts + 1.0).sum(),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["complete", pytest.param("scattered", marks=pytest.mark.long)])
def test_the_log_joint_is_that_of_the_model(kind):
    density = density_of(kind)

    @fast_jit
    def drawn(key):
        position, values = draw_joint(density, key)
        found = log_likelihood(density, position, data_of(values)) + log_prior(density, position)
        return position, values, found

    position, values, found = drawn(random.key(3))
    sites = {n: v for n, v in position.items() if n != "basis"} | {"spectra": position["basis"].T}
    known = model_log_joint(model_of(density), np.where(HIDDEN, np.nan, values), sites)
    np.testing.assert_allclose(found, known, rtol=1e-5)


def test_absent_factors_have_the_prior_of_their_number():
    """One set of two of three has a third of a third; the rest is the density of what is there."""
    density = density_of("absent")
    drawn, _ = fast_jit(functools.partial(draw_joint, density))(random.key(3))
    position = {n: np.array(value) for n, value in drawn.items()}
    there = np.array([True, False, True])
    position["presence"] = there.astype(np.float32)
    for name in ("usage", "basis"):
        position[name] = np.where(there, position[name] + np.float32(0.1), np.float32(0.0))
    own = {n: position[n][..., there] for n in ("usage", "basis", "rate")}
    own["concentration"] = position["concentration"]
    plain = density._replace(rank=2, presence=False)
    both = fast_jit(lambda own, all: (log_prior(plain, own), log_prior(density, all)))
    known, found = both(own, position)
    of_rate = stats.gamma(4.0, scale=0.25).logpdf(position["rate"][1])
    np.testing.assert_allclose(found, float(known) + of_rate + np.log(1 / 3 / 3), rtol=1e-5)


@pytest.mark.parametrize("most_single", [0, 100])
def test_counts_are_allocated_by_what_factors_add(most_single, monkeypatch):
    """Counts of one entry are multinomial: single ones, and shares of large ones."""
    monkeypatch.setattr("bmfjax.kernels.poisson.density.MOST_SINGLE", most_single)
    data = poisson_data(np.array([[5.0, 0.0], [0.0, 0.0]]), np.ones(2))
    usage, basis = jnp.array([[1.0, 3.0, 4.0], [1.0] * 3]), jnp.array([[0.5, 0.5, 0.25], [0.5] * 3])
    draw = fast_jit(jax.vmap(lambda key: allocate(key, usage, basis, data)))
    of_rows, of_columns = draw(random.split(random.key(0), 4000))
    assert (of_rows[:, 1] == 0).all() and (of_columns[:, 1] == 0).all()
    np.testing.assert_array_equal(of_rows[:, 0], of_columns[:, 0])
    chances = stats.multinomial(5, np.array([1, 3, 2]) / 6)
    kinds, seen = np.unique(np.asarray(of_rows[:, 0]), axis=0, return_counts=True)
    expected = 4000 * np.array([chances.pmf(k) for k in kinds])
    expected[-1] += 4000 - expected.sum()
    assert stats.chisquare(seen, expected).pvalue > 1e-3


@pytest.mark.parametrize(
    ("count", "share"), [(1, 0.3), (7, 0.03), (31, 0.5), (32, 0.5), (300, 0.7), (1e5, 0.02)]
)
def test_binomial_draws_have_their_probabilities(count, share):
    share = float(np.float32(share))
    drawn = np.asarray(
        fast_jit(draw_binomial)(
            random.key(1), np.full(20_000, count, np.float32), np.full(20_000, share, np.float32)
        )
    )
    known = stats.binom(count, share)
    values = np.unique(drawn)
    below = np.searchsorted(np.sort(drawn), values, side="right") / len(drawn)
    assert np.abs(below - known.cdf(values)).max() * len(drawn) ** 0.5 < 1.7


def test_binomial_draws_that_are_sure_are_so():
    sure = fast_jit(draw_binomial)(
        random.key(1), np.float32([4.0, 4.0, 0.0]), np.float32([0.0, 1.0, 0.5])
    )
    assert sure.tolist() == [0.0, 4.0, 0.0]


def test_logs_of_beta_functions_keep_their_digits():
    x, y = np.array([(0.5, 0.5), (3.0, 1e6), (2e5, 2e5), (7.9, 8.1)]).T
    known = gammaln(x) + gammaln(y) - gammaln(x + y)
    np.testing.assert_allclose(fast_jit(log_beta)(*np.float32([x, y])), known, rtol=3e-6)


def test_two_factors_and_one_have_the_ratio_of_their_marginal_densities():
    rng = np.random.default_rng(0)
    density = PoissonDensity(3, **MILD)
    a, c, (g, h) = MILD["usage_shape"], MILD["basis_concentration"], MILD["rate"]
    exposure, rates = np.array([1.0, 0.5, 2.0, 0.0]), np.array([0.4, 1.7, 0.8])
    parts = [rng.poisson(6.0, (4, 3)) * (exposure > 0)[:, None] for _ in range(2)]

    def marginal(counts, rate):
        rows, columns = counts.sum(1), counts.sum(0)
        of_rows = gammaln(a + rows) - gammaln(a) + a * np.log(rate)
        of_rows -= (a + rows) * np.log(rate + exposure)
        of_columns = gammaln(c + columns) - gammaln(c)
        whole = gammaln(3 * c) - gammaln(3 * c + counts.sum())
        return of_rows.sum() + of_columns.sum() + whole + stats.gamma(g, scale=1 / h).logpdf(rate)

    counts = [*parts, parts[0] + parts[1]]
    known = sum(sign * marginal(n, r) for n, r, sign in zip(counts, rates, (1, 1, -1), strict=True))
    sums = [np.stack([n.sum(axis) for n in counts]).astype(np.float32) for axis in (1, 0)]
    ratio = fast_jit(lambda *given: log_split_ratio(*given, c, density))
    found = ratio(sums, np.float32(rates), np.float32(exposure))
    np.testing.assert_allclose(found, known, rtol=2e-5)


def rooted(density):
    """Counts of some size with gaps, a position, and what a trajectory from it is in."""
    rng = np.random.default_rng(1)
    values = np.where(HIDDEN, np.nan, rng.poisson(30.0, SHAPE))
    data = poisson_data(values, OFFSET, dense=True)
    position = {
        "usage": rng.uniform(40.0, 45.0, (SHAPE[0], density.rank)) / OFFSET[:, None],
        "basis": rng.dirichlet([9.0] * SHAPE[1], density.rank).T,
        "rate": rng.uniform(0.01, 0.03, density.rank),
        "concentration": np.array(0.7),
        "presence": np.arange(density.rank) < 2,
    }
    position = {n: v.astype(np.float32) for n, v in position.items()}
    if density.presence:
        position |= {n: position[n] * position["presence"] for n in ("usage", "basis")}
    weights = OFFSET[:, None] * ~HIDDEN
    return data, {n: jnp.asarray(v) for n, v in position.items()}, jnp.asarray(weights)


@pytest.mark.parametrize("anchored", [0, 1])
def test_trajectories_follow_the_gradient_of_the_log_joint(anchored):
    """The log density of roots is the log joint, with the sums of spectra and all Jacobians."""
    density = density_of("complete")._replace(anchored=anchored)
    data, position, weights = rooted(density)
    begin = fast_jit(lambda key: roots_of(key, position, weights, density, data))
    start, roots = begin(random.key(4))
    assert roots.moves[:, anchored:].sum() > 5 and not roots.moves[4:, :anchored].any()
    step = roots.moves * np.random.default_rng(0).normal(0.0, 0.3, start.shape)

    @jax.value_and_grad
    def log_density(q):
        usage, basis, sums = roots.factors(q)
        at = position | {"usage": usage, "basis": basis}
        total = log_likelihood(density, at, data) + log_prior(density, at)
        total += jnp.where(roots.moves, jnp.log(q) + jnp.log(q**4 / (q**4 + 1.0)), 0.0).sum()
        expected = density.usage_shape * OFFSET.sum() / position["rate"]
        of_sums = (expected - 1.0) * jnp.log(sums) - sums - (SHAPE[1] - 1) * jnp.log(sums)
        return total + of_sums[anchored:].sum()

    logs, end = fast_jit(log_density), (start + step).astype(np.float32)
    both = fast_jit(lambda first, last: (roots.rise(first, last), roots.gradient(last)))
    rise, gradient = both(start, end)
    (low, _), (high, known) = (logs(q) for q in (start, end))
    np.testing.assert_allclose(rise, high - low, rtol=1e-3, atol=0.01)
    known = np.where(roots.moves, known, 0.0)
    np.testing.assert_allclose(gradient, known, rtol=1e-3, atol=0.01)


def test_trajectories_are_mostly_accepted_and_leave_what_is_known():
    density = density_of("absent")._replace(anchored=1)
    data, position, weights = rooted(density)
    go = fast_jit(jax.vmap(lambda key: follow(key, position, weights, density, data)))
    found = go(random.split(random.key(0), 100))
    assert (found["usage"][:, 0, 1] != position["usage"][0, 1]).mean() > 0.5
    np.testing.assert_array_equal(found["basis"][:, :, 0] - position["basis"][:, 0], 0.0)
    np.testing.assert_array_equal(found["usage"][..., 2], 0.0)
    np.testing.assert_allclose(found["basis"][..., 1].sum(1), 1.0, rtol=1e-5)


def test_trajectories_alone_draw_from_the_posterior_of_one_factor():
    """Its usage is Gamma and its spectrum Dirichlet; some roots are near zero and rest at times."""
    counts = np.array([[3.0, 0.0, 6.0], [1.0, 1.0, 2.0]])
    offset, rate, density = np.array([1.0, 0.5]), 0.2, PoissonDensity(1, **MILD)
    data = poisson_data(counts, offset, dense=True)
    begin = {"usage": [[5.0], [5.0]], "basis": [[0.3], [0.3], [0.4]], "rate": [rate]}
    begin = {name: jnp.asarray(value, jnp.float32) for name, value in begin.items()}

    def step(position, key):
        position = position | follow(key, position, data.offset, density, data)
        return position, jnp.concatenate([position["usage"][:, 0], position["basis"][:, 0]])

    run = fast_jit(jax.vmap(lambda keys: jax.lax.scan(step, begin, keys)[1]))
    draws = np.asarray(run(random.split(random.key(0), (40, 2_000))), np.float64)[:, 100:]
    usage = stats.gamma(1.5 + counts.sum(1), scale=1.0 / (rate + offset))
    spectrum = stats.dirichlet(0.7 + counts.sum(0))
    mean = np.concatenate([usage.mean(), spectrum.mean()])
    variance = np.concatenate([usage.var(), spectrum.var()])
    for found, right in ((draws, mean), ((draws - mean) ** 2, variance)):
        of_chains = found.mean(1)
        error = of_chains.std(0, ddof=1) / np.sqrt(len(of_chains))
        assert (error < 0.02 * right).all()
        assert (np.abs(of_chains.mean(0) - right) < 4.5 * error).all()


def test_ascents_go_up_and_keep_what_is_known():
    counts = np.random.default_rng(1).poisson(3.0, (12, 8)).astype(float)
    counts[2, 3] = np.nan
    density = PoissonDensity(3, anchored=1)
    data = poisson_data(counts, np.ones(12))
    position = fast_jit(lambda key: random_position(key, density, 8, data))(random.key(0))
    climb = fast_jit(lambda number: ascended(position, density, data, number))
    heights = [float(climb(number)[1]) for number in (0, 1, 5, 50)]
    assert heights == sorted(heights) and heights[0] < heights[-1]
    found = climb(50)[0]
    np.testing.assert_array_equal(found["basis"][:, 0], position["basis"][:, 0])
    np.testing.assert_allclose(found["basis"].sum(0), 1.0, rtol=1e-5)


def test_known_spectra_stay_and_absent_factors_have_nothing():
    counts = np.random.default_rng(1).poisson(3.0, (12, 8)).astype(float)
    data = poisson_data(counts, np.ones(12))
    density = PoissonDensity(3, anchored=1)
    start = fast_jit(lambda key: random_position(key, density, 8, data))
    position = start(random.key(0))
    found = fast_jit(lambda key, p: sweep(key, dict(p), density, data))(random.key(1), position)
    np.testing.assert_array_equal(found["basis"][:, 0], position["basis"][:, 0])
    absent = density._replace(anchored=0, presence=True)

    @fast_jit
    def run(key, keys):
        def step(position, key):
            position = sweep(key, dict(position), absent, data)
            return position, {n: position[n] for n in ("usage", "basis", "presence")}

        return jax.lax.scan(step, random_position(key, absent, 8, data), keys)[1]

    seen = run(random.key(0), random.split(random.key(2), 30))
    there = np.asarray(seen["presence"]) > 0
    assert there.any(1).all()
    assert not np.where(there[:, None], 0.0, seen["usage"]).any()
    np.testing.assert_allclose(seen["basis"].sum(1), there, atol=1e-5)

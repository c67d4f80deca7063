"""Tempering: exact targets by quadrature and enumeration, and what runs are made of."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random

from bmfjax.data import InputError
from bmfjax.diagnostics import ess_bulk
from bmfjax.infer import ChainRun
from bmfjax.kernels import Algorithm
from bmfjax.kernels.ladders import geometric_ladder, round_trips, swap_rates
from bmfjax.kernels.tempering import AnnealedState, annealed, parallel_tempering
from tests.infer.targets import (
    CENTRES,
    DATA,
    WIDTH,
    metropolis,
    observed_steps,
    still,
    two_modes,
)

SIGMAS = 4.5  # of a Monte Carlo standard error that a check allows

# ---- a target with two modes -------------------------------------------------------------------

LADDER = (1.0, 0.35, 0.12, 0.04, 0.0)


@functools.cache
def quadrature(beta):
    """(grid, distribution function) of the tempered posterior."""
    x = np.linspace(-25.0, 25.0, 50_001)
    terms = np.asarray(DATA, float) - 0.5 * ((x[:, None] - CENTRES) / WIDTH) ** 2
    density = np.exp(-0.5 * (x / 4.0) ** 2 + beta * np.logaddexp(*terms.T))
    return x, np.cumsum(density) / density.sum()


ANNEALING, WARMUP, SAMPLES, STOP = 100, 500, 12_000, 57


def new_run(log_likelihood=two_modes, num_samples=SAMPLES):
    """Half of the chains start with all replicas in the left mode, half in the right one."""
    algorithm = annealed(parallel_tempering(metropolis(), log_likelihood, LADDER), ANNEALING)

    def observe(state, info):
        every = {"every": state.inner.inner, "log_likelihood": info.inner.log_likelihood}
        return algorithm.observe(state, info) | every

    names = ("x", "every", "log_likelihood", "replica", "swap_probability")
    return ChainRun(
        algorithm._replace(observe=observe),
        random.key(3),
        DATA,
        num_chains=4,
        num_warmup=WARMUP,
        num_samples=num_samples,
        draws=dict.fromkeys(names, 1),
        trace={"inverse_temperature": 1},
        position=jnp.asarray(CENTRES[[0, 1, 0, 1]], DATA.dtype),
        chunk_size=3000,
    )


@functools.cache
def whole_run():
    """(a finished run, what it held when it stood at step `STOP`)"""
    run = new_run()
    run.advance(STOP)
    stored = run.snapshot(), STOP, jax.tree.map(np.copy, run.recorded_between(0, STOP))
    while run.advance():
        pass
    return run, stored


def draws():
    return whole_run()[0].draws()


def assert_mass_of_the_modes(x, least_ess=500):
    """Right of every start apart (a chain that forgot its start), and of all together."""
    grid, distribution = quadrature(1.0)
    truth = 1.0 - np.interp(0.0, grid, distribution)
    right = (x > 0).astype(float)
    for of in (right, right[0::2], right[1::2]):
        size = ess_bulk(of)
        assert size > least_ess
        assert abs(of.mean() - truth) < SIGMAS * np.sqrt(truth * (1 - truth) / size)


def assert_marginals(every, least_ess=500):
    """Kolmogorov and Smirnov's distance at every temperature, in units of its standard error."""
    for k, beta in enumerate(LADDER):
        x = every[..., k]
        size = ess_bulk(x)
        assert size > least_ess
        grid, distribution = quadrature(beta)
        ordered = np.sort(x.ravel())
        steps = np.arange(1, x.size + 1) / x.size
        distance = np.abs(np.interp(ordered, grid, distribution) - steps).max()
        assert np.sqrt(size) * distance < 2.0, f"temperature {k}"  # exceeded once in 1500


def test_the_modes_have_unequal_masses_and_the_plain_kernel_stays_in_one():
    grid, distribution = quadrature(1.0)
    assert 1 - np.interp(0.0, grid, distribution) == pytest.approx(0.7, abs=1e-3)
    kernel = metropolis()

    def run(start, keys):
        return lax.scan(lambda x, key: (kernel.step(key, x, DATA)[0],) * 2, start, keys)[1]

    keys = random.split(random.key(0), (2, 2000))
    x = np.asarray(jax.jit(jax.vmap(run))(jnp.asarray(CENTRES, DATA.dtype), keys))
    assert (x[0] < 0).all() and (x[1] > 0).all()
    with pytest.raises(AssertionError):
        assert_mass_of_the_modes(np.tile(x, (2, 1)), least_ess=0)


@pytest.mark.device
def test_parallel_tempering_finds_the_masses_from_either_mode():
    assert_mass_of_the_modes(draws()["x"])


def test_every_temperature_has_its_own_posterior():
    found = draws()
    assert_marginals(found["every"])
    np.testing.assert_array_equal(found["x"], found["every"][..., 0])
    expected = jax.jit(jnp.vectorize(lambda x: two_modes(x, DATA)))(found["every"])
    np.testing.assert_allclose(found["log_likelihood"], expected, rtol=1e-4, atol=1e-4)


def test_replicas_travel():
    rates = swap_rates(draws()["swap_probability"])
    assert rates.shape == (4, 4) and (rates > 0.2).all() and (rates < 0.95).all()
    assert (round_trips(draws()["replica"]) > 100).all()
    assert (np.sort(draws()["replica"], -1) == np.arange(5)).all()


def test_a_stopped_run_resumes_and_one_compilation_serves_it(compilations):
    calls = []

    def counted(x, data):
        calls.append(1)
        return two_modes(x, data)

    whole, stored = whole_run()
    run = new_run(counted)
    run.restore(*stored)
    run.advance(3)
    compilations()
    for taken in (30, 200, 710):
        run.advance(taken)
    assert compilations() == 0
    assert len(calls) == 1
    assert run.steps_done == 1000
    for name, values in run.draws().items():
        np.testing.assert_array_equal(values, whole.draws()[name][:, : 1000 - WARMUP], name)
    found = run.trace()["inverse_temperature"]
    np.testing.assert_array_equal(found, whole.trace()["inverse_temperature"][:, :1000])
    assert (found[:, :ANNEALING] < 1).all() and (found[:, ANNEALING:] == 1).all()
    assert isinstance(run.state, AnnealedState)
    assert not np.array_equal(whole.draws()["x"][0], whole.draws()["x"][2])


# ---- as algorithms: starts, nesting, dtypes, compilations, checkpoints -------------------------


def test_replicas_start_apart_or_where_they_are_told():
    algorithm = parallel_tempering(metropolis(), two_modes, LADDER)
    apart = algorithm.init(random.key(0), None, DATA)
    assert len(np.unique(apart.inner)) == 5
    np.testing.assert_array_equal(apart.replica, np.arange(5))
    assert apart.replica.dtype == jnp.int32
    told = algorithm.init(random.key(0), jnp.float32(1.5), DATA)
    np.testing.assert_array_equal(told.inner, np.full(5, 1.5))


def test_one_temperature_is_the_algorithm_alone():
    doubling = Algorithm(
        init=lambda key, position, data: jnp.ones(()),
        step=lambda key, x, data, beta=1.0: (2 * beta * x, x),
        observe=lambda x, info: {"x": x, "before": info},
    )
    _, observed = observed_steps(parallel_tempering(doubling, lambda x, data: x, (1.0,)), 5)
    np.testing.assert_array_equal(observed["x"], [2, 4, 8, 16, 32])
    np.testing.assert_array_equal(observed["before"], [1, 2, 4, 8, 16])
    assert observed["swap_probability"].shape == (5, 0)


def test_they_nest_and_the_innermost_knows_the_whole_temperature():
    given = Algorithm(
        init=lambda key, position, data: jnp.zeros(()),
        step=lambda key, state, data, beta=1.0: (jnp.zeros(()) + beta, beta),
        observe=lambda state, info: {"x": state, "moved_at": info},
    )
    ladder = jnp.array([1.0, 0.5, 0.2])
    tempered = parallel_tempering(given, lambda x, data: jnp.zeros(()), ladder)
    state, observed = observed_steps(annealed(tempered, 2, lowest=0.01), 4)
    factor = np.array([0.01, 0.1, 1.0, 1.0])
    found = np.sort(state.inner.inner)[:, ::-1]
    np.testing.assert_allclose(found, factor[:, None] * ladder, rtol=1e-5)
    # After an exchange the cold state comes from elsewhere, the info is of the cold move.
    np.testing.assert_allclose(observed["x"][:2], factor[:2] * [0.5, 1.0], rtol=1e-5)
    np.testing.assert_allclose(observed["moved_at"], factor, rtol=1e-5)
    added = {"replica", "swap_probability", "inverse_temperature", "inverse_temperatures"}
    assert set(observed) == {"x", "moved_at"} | added
    np.testing.assert_allclose(observed["inverse_temperature"], factor, rtol=1e-5)
    twice = annealed(annealed(given, 2, lowest=0.25), 2, lowest=0.01)
    _, observed = observed_steps(twice, 3)
    np.testing.assert_allclose(observed["inverse_temperature"], [0.0025, 0.05, 1.0], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_dtype_of_the_states_is_kept_under_x64(dtype, x64):
    data = DATA.astype(dtype)
    nested = annealed(parallel_tempering(metropolis(), two_modes, LADDER), 20)
    start = jnp.asarray(1.0, dtype)
    state = jax.eval_shape(nested.init, random.key(0), start, data)
    after, info = jax.eval_shape(nested.step, random.key(1), state, data)
    jax.tree.map(lambda a, b: np.testing.assert_equal(a.dtype, b.dtype), state, after)
    assert after.inner.inner.dtype == dtype
    assert info.inner.swap_probability.dtype == dtype


# ---- refusals ----------------------------------------------------------------------------------


def ladder(*betas, **options):
    return parallel_tempering(metropolis(), two_modes, betas, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: annealed(still(), -1), r"num_steps is -1; give a whole number of at least 0"),
        (lambda: annealed(still(), 2.5), r"num_steps is 2.5; give a whole number"),
        (lambda: annealed(still(), 5, lowest=0.0), r"lowest is 0.0; give .* above 0 and at most 1"),
        (lambda: annealed(still(), 5, lowest=1.5), r"lowest is 1.5; give .* at most 1"),
        (lambda: annealed(still(), 5, lowest=np.nan), r"lowest is nan"),
        (lambda: ladder(), r"temperatures is \(\); give numbers that fall strictly from 1.0"),
        (lambda: ladder(0.9, 0.5), r"is \(0.9, 0.5\); give"),
        (lambda: ladder(1.0, 0.5, 0.5), r"is \(1.0, 0.5, 0.5\); give"),
        (lambda: ladder(1.0, 0.2, 0.4), r"is \(1.0, 0.2, 0.4\); give"),
        (lambda: ladder(1.0, -0.1), r"is \(1.0, -0.1\); give"),
        (lambda: ladder(1.0, np.nan), r"is \(1.0, nan\); give"),
        (lambda: ladder(1.0, 0.5, swap_every=0), r"swap_every is 0; give .* at least 1"),
        (lambda: geometric_ladder(0.1, 1), r"number is 1; give a whole number of at least 2"),
        (lambda: geometric_ladder(1.0, 3), r"lowest is 1.0; give .* below 1"),
        (lambda: geometric_ladder(0.0, 3), r"lowest is 0.0; give .* above 0"),
        (lambda: round_trips([[0, 1]]), r"replica has 2 axes; give it as \(chain, step, ...\)"),
        (lambda: swap_rates([0.5]), r"swap_probability has 1 axes; give it as"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()

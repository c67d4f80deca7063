"""Tempering: exact targets by quadrature and enumeration, and what runs are made of."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jax import lax, random

from bmfjax.data import InputError
from bmfjax.diagnostics import ess_bulk
from bmfjax.infer import ChainRun, tempering
from bmfjax.infer.ladder import geometric_ladder, round_trips, swap_rates
from bmfjax.infer.tempering import (
    AnnealedState,
    ParallelTemperingState,
    annealed,
    parallel_tempering,
)
from bmfjax.kernels import Algorithm
from bmfjax.kernels.iasg import Block, iasg

SIGMAS = 4.5  # of a Monte Carlo standard error that a check allows

# ---- a target with two modes -------------------------------------------------------------------

CENTRES, WIDTH = np.array([-4.0, 4.0]), 0.5
DATA = jnp.log(jnp.array([0.3, 0.7]))  # log weights of the modes
LADDER = (1.0, 0.35, 0.12, 0.04, 0.0)


def log_prior(x):
    return -0.5 * (x / 4.0) ** 2


def two_modes(x, log_weights):
    centres = jnp.asarray(CENTRES, log_weights.dtype)
    return jax.nn.logsumexp(log_weights - 0.5 * ((x - centres) / WIDTH) ** 2)


def metropolis(log_likelihood=two_modes, log_prior=log_prior, scale=1.5):
    """A random walk: from one mode to the other it would have to jump by five of its scales."""

    def init(key, position, data):
        return 4.0 * random.normal(key) if position is None else position

    def step(key, x, data, inverse_temperature=1.0):
        key_move, key_accept = random.split(key)
        y = x + scale * random.normal(key_move, x.shape, x.dtype)

        def log_target(z):
            return log_prior(z) + inverse_temperature * log_likelihood(z, data)

        accept = jnp.log(random.uniform(key_accept, dtype=x.dtype)) < log_target(y) - log_target(x)
        return jnp.where(accept, y, x), accept

    return Algorithm(init, step, lambda x, info: {"x": x, "accepted": info})


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


def test_parallel_tempering_finds_the_masses_from_either_mode():
    assert_mass_of_the_modes(draws()["x"])


def test_every_temperature_has_its_own_posterior():
    found = draws()
    assert_marginals(found["every"])
    np.testing.assert_array_equal(found["x"], found["every"][..., 0])
    expected = jax.jit(jnp.vectorize(lambda x: two_modes(x, DATA)))(found["every"])
    np.testing.assert_allclose(found["log_likelihood"], expected, rtol=1e-4, atol=1e-4)


def test_the_checks_see_a_wrong_sign_in_the_swap(monkeypatch):
    right = tempering._swap_probability
    monkeypatch.setattr(tempering, "_swap_probability", lambda beta, ll: right(beta, -ll))
    wrong = new_run(num_samples=2500)
    wrong.advance()
    with pytest.raises(AssertionError, match="temperature"):
        assert_marginals(wrong.draws()["every"], least_ess=0)


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


# ---- the swap alone, on a target that can be enumerated ----------------------------------------

PRIOR = np.array([0.5, 0.3, 0.2])
LIKELIHOOD = np.array([1.0, 0.1, 4.0])
BETAS = (1.0, 0.6, 0.3, 0.0)
REPEATS = 400
JOINT = np.array(list(itertools.product(range(3), repeat=4)))  # every state of the ladder


def still():
    """States that do not move: what is left is the swap."""
    return Algorithm(
        init=lambda key, position, data: jnp.zeros(()),
        step=lambda key, state, data, inverse_temperature=1.0: (state, inverse_temperature),
        observe=lambda state, info: {"x": state},
    )


def observed_steps(algorithm, count):
    """(states, observed) of the first steps."""

    def body(state, key):
        state, info = algorithm.step(key, state, None)
        return state, (state, algorithm.observe(state, info))

    def run(key):
        return lax.scan(body, algorithm.init(key, None, None), random.split(key, count))[1]

    return jax.jit(run)(random.key(1))


def joint_target(power):
    tempered = PRIOR[:, None] * LIKELIHOOD[:, None] ** (power * np.array(BETAS))
    weights = np.prod(tempered[JOINT, np.arange(4)], axis=1)
    return weights / weights.sum()


def swaps_from_every_state():
    """``(parity, power) -> (state, info)`` after one step from each of the 81 states.

    With `REPEATS` keys each. Compiled once, with the swap probability of the moment.
    """
    table = jnp.log(jnp.asarray(LIKELIHOOD))
    algorithm = parallel_tempering(still(), lambda x, data: data[x], BETAS)

    def one(key, x, parity, power):
        state = ParallelTemperingState(x, jnp.arange(4, dtype=jnp.int32), parity)
        return algorithm.step(key, state, table, power)

    keys = random.split(random.key(5), (len(JOINT), REPEATS))
    every = jax.vmap(jax.vmap(one, (0, None, None, None)), (0, 0, None, None))
    return functools.partial(jax.jit(every), keys, jnp.asarray(JOINT, jnp.int32))


swaps_as_they_are = functools.cache(swaps_from_every_state)


def transition_matrix(parity, probability):
    """Of one round of swaps in which pair k is exchanged with ``probability[state, k]``."""
    row = {tuple(s): i for i, s in enumerate(JOINT)}
    matrix = np.zeros((len(JOINT), len(JOINT)))
    pairs = [k for k in range(3) if k % 2 == parity]
    for i, state in enumerate(JOINT):
        for accepted in itertools.product((False, True), repeat=len(pairs)):
            after, mass = state.copy(), 1.0
            for k, yes in zip(pairs, accepted, strict=True):
                mass *= probability[i, k] if yes else 1 - probability[i, k]
                if yes:
                    after[[k, k + 1]] = after[[k + 1, k]]
            matrix[i, row[tuple(after)]] += mass
    return matrix


def imbalance(info, parity, power):
    """How far the round is from detailed balance with the product of the tempered posteriors."""
    probability = np.asarray(info.swap_probability, float)[:, 0]
    assert np.isnan(probability[:, 1 - parity :: 2]).all()
    assert not np.isnan(probability[:, parity::2]).any()
    flow = joint_target(power)[:, None] * transition_matrix(parity, probability)
    np.testing.assert_allclose(flow.sum(1), joint_target(power), rtol=1e-6)
    assert np.trace(flow) < 0.95, "something moves"
    return np.abs(flow - flow.T).max()


def test_swaps_are_in_detailed_balance(monkeypatch):
    rounds = list(itertools.product((0, 1), (1.0, 0.4)))
    swaps = swaps_as_they_are()
    assert max(imbalance(swaps(*of)[1], *of) for of in rounds) < 1e-7
    right = tempering._swap_probability
    monkeypatch.setattr(tempering, "_swap_probability", lambda beta, ll: right(beta, -ll))
    swaps = swaps_from_every_state()
    assert min(imbalance(swaps(*of)[1], *of) for of in rounds) > 1e-4


def test_swaps_happen_with_the_probability_reported_and_exchange_whole_states():
    swaps = swaps_as_they_are()
    for parity in (0, 1):
        state, info = swaps(parity, 1.0)
        x, replica = np.asarray(state.inner), np.asarray(state.replica)
        np.testing.assert_array_equal(x, np.take_along_axis(JOINT[:, None], replica, -1))
        np.testing.assert_array_equal(info.replica, replica)
        np.testing.assert_allclose(info.log_likelihood, np.log(LIKELIHOOD)[x], rtol=1e-6)
        swapped = (replica[..., :-1] == np.arange(1, 4)) & (replica[..., 1:] == np.arange(3))
        assert not swapped[..., 1 - parity :: 2].any()
        p = np.asarray(info.swap_probability, float)[:, 0, parity::2]
        rate = swapped[..., parity::2].mean(1)
        assert (np.abs(rate - p) <= SIGMAS * np.sqrt(p * (1 - p) / REPEATS)).all()
        assert (p == 1).any() and (p < 0.5).any()
        # Pairs are decided apart: all of a round at once as often as by chance.
        both, chance = swapped[..., parity::2].all(-1).mean(1), p.prod(1)
        assert (np.abs(both - chance) <= SIGMAS * np.sqrt(chance * (1 - chance) / REPEATS)).all()


def test_impossible_states_sink_to_the_prior_and_never_rise():
    cold = np.array([0.0, -np.inf, -np.inf, 0.0])
    hot = np.array([-np.inf, 0.0, -np.inf, np.nan])
    found = tempering._swap_probability(np.array([1.0, 0.0]), jnp.array([cold, hot]))
    np.testing.assert_array_equal(found, [[0, 1, 0, 0]])


def test_even_and_odd_pairs_take_turns():
    """And two equal likelihoods always swap, which moves a replica by one place a round."""
    flat = parallel_tempering(still(), lambda x, data: jnp.zeros(()), BETAS, swap_every=3)
    _, observed = observed_steps(flat, 36)
    rounds = slice(2, None, 3)
    expected = np.full((36, 3), np.nan)
    expected[rounds][0::2, [0, 2]] = 1
    expected[rounds][1::2, 1] = 1
    np.testing.assert_array_equal(observed["swap_probability"], expected)
    # Deterministic: all are back after eight rounds.
    replica = observed["replica"]
    there = [[1, 0, 3, 2], [1, 3, 0, 2], [3, 1, 2, 0], [3, 2, 1, 0]]
    np.testing.assert_array_equal(replica[rounds][:4], there)
    np.testing.assert_array_equal(replica[rounds][7], [0, 1, 2, 3])
    np.testing.assert_array_equal(replica[rounds][8:], there)
    assert (replica[:2] == np.arange(4)).all()


# ---- a Gaussian likelihood, where the mean swap probability is known ---------------------------

DIMENSION, PRIOR_PRECISION = 6, 0.2


def exact_gauss():
    """Prior N(0, 1 / 0.2), likelihood exp(-|x|^2 / 2); a draw forgets the one before."""

    def step(key, x, data, inverse_temperature=1.0):
        return random.normal(key, x.shape) / (PRIOR_PRECISION + inverse_temperature) ** 0.5, None

    return Algorithm(lambda key, position, data: jnp.zeros(DIMENSION), step, lambda x, _: {"x": x})


def test_mean_swap_probability_of_gaussians():
    r"""2 P(E_i >= E_j), with E_k Gamma(d / 2) over the precision at temperature k.

    min(1, r) has twice the mean of 1(r >= 1): exchanging the states turns r into 1 / r.
    """
    ladder, powers = (1.0, 0.5, 0.1, 0.0), np.array([1.0, 0.3])
    algorithm = parallel_tempering(exact_gauss(), lambda x, data: -0.5 * jnp.sum(x**2), ladder)

    def run(power, key):
        def body(state, key):
            state, info = algorithm.step(key, state, None, power)
            return state, info.swap_probability

        return lax.scan(body, algorithm.init(key, None, None), random.split(key, 8000))[1]

    p = np.asarray(jax.jit(jax.vmap(run))(jnp.array(powers), random.split(random.key(1))))
    precision = PRIOR_PRECISION + powers[:, None] * np.array(ladder)
    share = precision[:, 1:] / (precision[:, 1:] + precision[:, :-1])
    expected = 2 * scipy.special.betainc(DIMENSION / 2, DIMENSION / 2, share)
    # Independent from step to step.
    error = np.nanstd(p, axis=1) / np.sqrt((~np.isnan(p)).sum(1))
    assert (error < 0.01).all()
    assert (np.abs(expected[0] - expected[1]) > 10 * error).all()
    assert (np.abs(swap_rates(p) - expected) < SIGMAS * error).all()


# ---- annealing ---------------------------------------------------------------------------------


def schedule(num_steps, count, *, power=1.0, **options):
    algorithm = annealed(still(), num_steps, **options)
    key = random.key(0)

    def body(state, _):
        state, info = algorithm.step(key, state, None, power)
        # The inner info is the inverse temperature that the inner step was given.
        return state, (info.inner, algorithm.observe(state, info)["inverse_temperature"])

    state, (given, seen) = lax.scan(body, algorithm.init(key, None, None), length=count)
    np.testing.assert_array_equal(given, seen)
    assert int(state.step) == count
    return np.asarray(seen)


@pytest.mark.parametrize(("num_steps", "lowest"), [(7, 0.02), (49, 0.3), (1, 0.5), (5, 1.0)])
def test_the_schedule_is_geometric_and_then_exactly_one(num_steps, lowest):
    found = schedule(num_steps, 60, lowest=lowest)
    expected = lowest ** (1 - np.arange(num_steps) / num_steps)
    np.testing.assert_allclose(found[:num_steps], expected, rtol=1e-5)
    assert (found[num_steps:] == 1.0).all()
    np.testing.assert_allclose(
        schedule(num_steps, 60, lowest=lowest, power=0.25), 0.25 * found, rtol=1e-6
    )


def test_no_steps_are_no_annealing():
    assert (schedule(0, 5) == 1.0).all()
    assert schedule(4, 1)[0] == pytest.approx(0.02)


def langevin():
    """Sums of prior and tempered likelihood, in which a compiler could round differently."""

    def step(key, x, data, inverse_temperature=1.0):
        drift = jax.grad(log_prior)(x) + inverse_temperature * jax.grad(two_modes)(x, data)
        return x + 0.01 * drift + 0.1 * random.normal(key), None

    return metropolis()._replace(step=step)


def mean_by_iasg():
    cases = 1.0 + random.normal(random.key(1), (20,))
    block = Block(
        ("mu",),
        {"cases": (20, 5)},
        lambda p, i, data, power: {"mu": power * 4.0 * jnp.sum(cases[i["cases"]] - p["mu"])},
    )
    return iasg(
        lambda p, data, power: -0.5 * power * jnp.sum((cases - p["mu"]) ** 2),
        [block],
        initial=lambda key, data: {"mu": random.normal(key)},
        step_size={"mu": 0.03},
        window=4,
        bounds={},
    )


@pytest.mark.parametrize("make", [langevin, mean_by_iasg])
def test_after_annealing_the_steps_are_those_of_the_plain_algorithm(make):
    """Bit for bit, each compiled in its own loop."""
    plain, num_steps = make(), 10
    algorithm = annealed(plain, num_steps)

    def steps(algorithm):
        def body(state, key):
            return (state := algorithm.step(key, state, DATA)[0]), state

        return jax.jit(lambda state, keys: lax.scan(body, state, keys)[1])

    keys = random.split(random.key(2), num_steps + 40)
    start = jax.jit(algorithm.init)(random.key(1), None, DATA)
    found = jax.tree.map(np.asarray, steps(algorithm)(start, keys).inner)
    at = jax.tree.map(lambda a: a[num_steps - 1], found)
    plain_steps = steps(plain)
    expected = plain_steps(at, keys[num_steps:])
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[num_steps:], b), found, expected)
    # A run that was not annealed is somewhere else by then.
    never = plain_steps(start.inner, keys[:40])
    unlike = jax.tree.map(lambda a, b: np.any(a[num_steps - 1] != b[num_steps - 1]), found, never)
    assert any(jax.tree.leaves(unlike))


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
    added = {"replica", "swap_probability", "inverse_temperature"}
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


# ---- ladders, trips, rates ---------------------------------------------------------------------


def test_the_ladder_has_equal_ratios_and_its_ends_exactly():
    for lowest, number in ((0.01, 7), (0.3, 2)):
        ladder = geometric_ladder(lowest, number)
        assert (len(ladder), ladder[0], ladder[-1]) == (number, 1.0, lowest)
        np.testing.assert_allclose(np.diff(np.log(ladder)), np.log(lowest) / (number - 1))
        parallel_tempering(metropolis(), two_modes, ladder)


def trips_one_by_one(replica):
    """The definition, walked through step by step."""
    count = 0
    last = replica.shape[1] - 1
    for r in range(replica.shape[1]):
        stage = "new"
        for at in np.argmax(replica == r, axis=1):
            if at == 0:
                count += stage == "hot"
                stage = "cold"
            elif at == last and stage == "cold":
                stage = "hot"
    return count


def test_round_trips():
    def trips(*rows):
        return round_trips(np.array([rows])).tolist()

    assert trips([0, 1, 2]) == [0]
    assert trips([0, 1, 2], [1, 0, 2], [1, 2, 0]) == [0], "there only"
    assert trips([0, 1, 2], [1, 0, 2], [0, 1, 2]) == [0], "not as far as the hot end"
    # 0 and 2 change places twice: replica 2 began hot and was not cold before.
    assert trips([0, 1, 2], [2, 1, 0], [0, 1, 2]) == [1]
    assert trips([0, 1, 2], [2, 1, 0], [0, 1, 2], [2, 1, 0]) == [2]
    assert trips([0], [0], [0]) == [0]
    assert round_trips(np.zeros((2, 0, 3), int)).tolist() == [0, 0]

    rng = np.random.default_rng(4)
    replica = rng.permuted(np.broadcast_to(np.arange(4), (3, 200, 4)), axis=2)
    expected = [trips_one_by_one(chain) for chain in replica]
    assert min(expected) > 20 and len(set(expected)) > 1
    assert round_trips(replica).tolist() == expected


def test_swap_rates_ignore_what_was_not_proposed():
    nan = np.nan
    p = [[[0.2, nan, nan], [0.4, 1.0, nan]], [[nan, 0.0, nan], [0.5, 0.5, nan]]]
    np.testing.assert_allclose(swap_rates(p), [[0.3, 1.0, nan], [0.5, 0.25, nan]])
    assert swap_rates(np.float32(p)).dtype == np.float64
    assert np.isnan(swap_rates(np.zeros((1, 0, 2)))).all()


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
        (lambda: ladder(), r"inverse_temperatures are \(\); give them falling strictly from 1.0"),
        (lambda: ladder(0.9, 0.5), r"are \(0.9, 0.5\); give"),
        (lambda: ladder(1.0, 0.5, 0.5), r"are \(1.0, 0.5, 0.5\); give"),
        (lambda: ladder(1.0, 0.2, 0.4), r"are \(1.0, 0.2, 0.4\); give"),
        (lambda: ladder(1.0, -0.1), r"are \(1.0, -0.1\); give"),
        (lambda: ladder(1.0, np.nan), r"are \(1.0, nan\); give"),
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

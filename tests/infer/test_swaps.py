"""Swaps of temperatures against enumeration, and their mean probability where it is known."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import lax, random

from bmfjax.kernels import Algorithm, tempering
from bmfjax.kernels.ladders import swap_rates
from bmfjax.kernels.tempering import ParallelTemperingState, initial_ladder, parallel_tempering
from tests.infer.targets import (
    observed_steps,
    still,
)

SIGMAS = 4.5  # of a Monte Carlo standard error that a check allows

# ---- the swap alone, on a target that can be enumerated ----------------------------------------

PRIOR = np.array([0.5, 0.3, 0.2])
LIKELIHOOD = np.array([1.0, 0.1, 4.0])
BETAS = (1.0, 0.6, 0.3, 0.0)
REPEATS = 400
JOINT = np.array(list(itertools.product(range(3), repeat=4)))  # every state of the ladder


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
        state = ParallelTemperingState(
            x, jnp.arange(4, dtype=jnp.int32), parity, initial_ladder(BETAS)
        )
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

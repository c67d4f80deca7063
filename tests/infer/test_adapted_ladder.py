"""Ladders placed by their communication barrier, on Gaussians where all of it is known."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jax import lax, random
from scipy import integrate, stats

from bmfjax.data import InputError
from bmfjax.kernels import Algorithm
from bmfjax.kernels.ladders import (
    communication_barrier,
    equalised_ladder,
    geometric_ladder,
    round_trips,
    swap_rates,
)
from bmfjax.kernels.tempering import annealed, parallel_tempering
from tests.infer.targets import observed_steps, still

CHAINS, DIMENSION, PRIOR_PRECISION = 6, 6, 0.2
BAD = (1.0, 0.97, 0.94, 0.9, 0.86, 0.8, 0.1, 0.0)
ANNEALING, ADAPTING, STEPS = 40, 512, 6000


def energy(x, data):
    """Log likelihood: minus Gamma(d / 2) over the precision at every temperature."""
    return -0.5 * jnp.sum(x**2)


def normal(key, precision):
    return random.normal(key, (DIMENSION,)) / precision**0.5


def exact_draws():
    """Prior N(0, 1 / 0.2), likelihood exp(-|x|^2 / 2); not a number at infinite temperature."""

    def step(key, x, data, inverse_temperature=1.0):
        draw = normal(key, PRIOR_PRECISION + inverse_temperature)
        return jnp.where(inverse_temperature > 0, draw, jnp.nan), energy(draw, data)

    return Algorithm(lambda key, *_: jnp.zeros(DIMENSION), step, lambda x, _: {"x": x})


def refresh(key, x, data):
    return normal(key, PRIOR_PRECISION)


@functools.cache
def adapted_run():
    """What `CHAINS` annealed chains observe that adapt a bad ladder and then run on."""

    def unknown(x, data):
        return jnp.where(jnp.isnan(x).any(), jnp.nan, energy(x, data))

    tempered = parallel_tempering(
        exact_draws(), unknown, BAD, num_adapt=ADAPTING,
        likelihood_of_info=lambda info: info, refresh=refresh,
    )  # fmt: skip
    algorithm = annealed(tempered, ANNEALING)

    def run(key):
        def body(state, key):
            state, info = algorithm.step(key, state, None)
            every = {"every": state.inner.inner, "known": info.inner.log_likelihood}
            return state, algorithm.observe(state, info) | every

        return lax.scan(body, algorithm.init(key, None, None), random.split(key, STEPS))[1]

    return jax.device_get(jax.jit(jax.vmap(run))(random.split(random.key(1), CHAINS)))


def after(name):
    return adapted_run()[name][:, ANNEALING + ADAPTING :]


def expected_rejection(ladder):
    """Mean rejection of neighbours: see `test_mean_swap_probability_of_gaussians`."""
    precision = PRIOR_PRECISION + np.asarray(ladder, float)
    share = precision[..., 1:] / (precision[..., 1:] + precision[..., :-1])
    return 1 - 2 * scipy.special.betainc(DIMENSION / 2, DIMENSION / 2, share)


def true_barrier():
    r"""By quadrature: half the integral of E|l - l'|, with l of two draws at one temperature."""

    gamma = stats.gamma(DIMENSION / 2)  # times the precision
    half = integrate.quad(lambda e: gamma.cdf(e) * gamma.sf(e), 0, np.inf)[0]
    return integrate.quad(lambda beta: half / (PRIOR_PRECISION + beta), 0, 1)[0]


def test_the_ladder_changes_in_rounds_of_doubling_length_and_is_frozen():
    ladder = adapted_run()["inverse_temperatures"]
    changed = np.flatnonzero((np.diff(ladder, axis=1) != 0).any((0, 2))) + 1
    ends = ADAPTING // 2 ** np.arange(7)[::-1]
    np.testing.assert_array_equal(changed, ANNEALING + ends)
    assert ladder.dtype == np.float32
    assert (ladder[..., 0] == 1).all() and (ladder[..., -1] == 0).all()
    assert (np.diff(ladder[:, -1]) < 0).all()
    assert len(np.unique(ladder[:, -1, 3])) == CHAINS, "every chain has its own"


def test_an_adapted_ladder_rejects_equally_everywhere():
    start = expected_rejection(BAD)
    assert start.max() > 0.7 and start.min() < 0.05
    found = expected_rejection(after("inverse_temperatures")[:, 0])
    # 128 proposals of each pair in the last round.
    assert np.ptp(found, axis=1).max() < 0.12 and np.ptp(found.mean(0)) < 0.05
    rates = swap_rates(after("swap_probability"))
    np.testing.assert_allclose(1 - rates, found, atol=0.03)


def test_barrier_and_round_trips_are_those_of_the_theory():
    """Draws are independent, which is what the theory assumes."""
    found, truth = communication_barrier(after("swap_probability")), true_barrier()
    np.testing.assert_allclose(found.barrier, truth, rtol=0.03)
    np.testing.assert_array_equal(found.num_temperatures, int(np.ceil(2 * truth)) + 1)
    np.testing.assert_allclose(found.best_rate, 1 / (2 + 2 * truth), rtol=0.03)
    steps = after("replica").shape[1]
    rate = round_trips(after("replica")) / steps
    assert abs(rate.mean() / found.round_trip_rate.mean() - 1) < 0.03
    # Another ladder of as many temperatures makes fewer.
    odds = expected_rejection(geometric_ladder(0.01, 7)), expected_rejection(BAD)
    others = [1 / (2 + 2 * np.sum(r / (1 - r))) for r in odds]
    assert rate.mean() > 1.1 * max(others)


def test_every_temperature_has_its_distribution_after_the_freeze():
    """The hottest by `refresh` alone: the step is not asked for temperature infinity."""
    ladder = after("inverse_temperatures")[:, 0]
    square = (after("every") ** 2).sum(-1)
    expected = DIMENSION / (PRIOR_PRECISION + ladder)
    error = expected * np.sqrt(2 / DIMENSION / square.shape[1])
    assert (np.abs(square.mean(1) - expected) < 4.5 * error).all()
    np.testing.assert_allclose(after("known"), -0.5 * square, rtol=1e-4)


def test_a_flat_likelihood_spreads_the_ladder_evenly():
    flat = parallel_tempering(
        still(), lambda x, data: jnp.zeros(()), (1.0, 0.5, 0.1, 0.0), num_adapt=8
    )
    _, observed = observed_steps(flat, 10)
    np.testing.assert_allclose(observed["inverse_temperatures"][-1], [1, 0.5, 0.1, 0], atol=1e-6)


def test_the_population_moves_after_the_swaps():
    """With their log likelihoods, which it returns anew."""

    def move(key, states, data, betas, log_likelihood):
        return states + 1.0, log_likelihood + betas, jnp.float32(0.25)

    algorithm = parallel_tempering(still(), lambda x, data: x, (1.0, 0.5), population_move=move)
    (_, observed) = observed_steps(algorithm, 3)
    np.testing.assert_array_equal(observed["x"], [1, 2, 3])
    np.testing.assert_array_equal(observed["population_accepted"], [0.25] * 3)


def test_a_ladder_is_made_longer_or_shorter():
    assert equalised_ladder((1.0, 0.5), [0.3], 3) == (1.0, 0.75, 0.5)
    long = equalised_ladder(BAD, expected_rejection(BAD), 30)
    assert len(long) == 30 and (np.diff(long) < 0).all()
    assert equalised_ladder((1.0, 0.5, 0.0), [0.0, 0.0]) == (1.0, 0.5, 0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: equalised_ladder((1.0, 0.5), [0.3, 0.2]), r"rejection has shape \(2,\)"),
        (lambda: equalised_ladder((1.0, 0.5), [1.3]), r"give a probability for each of the 1"),
        (lambda: equalised_ladder((1.0, 0.5), [np.nan]), r"give a probability"),
        (lambda: equalised_ladder((0.5, 0.2), [0.3]), r"fall strictly from 1.0"),
        (lambda: equalised_ladder((1.0, 0.5), [0.3], 1), r"number is 1"),
        (lambda: communication_barrier([0.5]), r"swap_probability has 1 axes"),
        (lambda: parallel_tempering(still(), energy, (1.0,), num_adapt=-1), r"num_adapt is -1"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()

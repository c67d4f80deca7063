"""Annealing: its schedule, and that it leaves the plain algorithm behind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random

from bmfjax.kernels.sgmcmc.iasg import Block, iasg
from bmfjax.kernels.tempering import (
    annealed,
)
from tests.infer.targets import (
    DATA,
    log_prior,
    metropolis,
    still,
    two_modes,
)

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

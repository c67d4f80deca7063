"""Targets on the line that tests of tempering share."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.kernels import Algorithm

CENTRES, WIDTH = np.array([-4.0, 4.0]), 0.5
DATA = jnp.log(jnp.array([0.3, 0.7]))  # log weights of the modes


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

"""The approach to a mode: it arrives, stays in its box and leaves other sites alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from bmfjax.kernels.sgmcmc.iasg import Block, adam_approach

N, S = 200, 20
Y = jnp.asarray(np.random.default_rng(0).normal(1.5, 1.0, N), jnp.float32)


def mean_block():
    def gradient(p, indices, y, b):
        return {"mu": N / S * jnp.sum(y[indices["cases"]] - p["mu"])}

    return Block(("mu",), {"cases": (N, S)}, gradient)


def scale_block():
    """A log scale whose Newton steps would leave for infinity from a far start."""

    def gradient(p, indices, y, b):
        residual = y[indices["cases"]] - p["mu"]
        return {"log_sigma": N / S * jnp.sum(residual**2 * jnp.exp(-2 * p["log_sigma"]) - 1.0)}

    return Block(("log_sigma",), {"cases": (N, S)}, gradient)


def arrive(blocks, bounds, start, **options):
    approach = adam_approach(blocks, bounds, 400, **options)
    return jax.jit(approach)(random.key(0), {s: jnp.asarray(v) for s, v in start.items()}, Y)


def test_it_comes_close_to_the_mode_of_all_blocks_and_moves_nothing_else():
    start = {"mu": -3.0, "log_sigma": -4.0, "other": 7.0}
    there = arrive([mean_block(), scale_block()], {}, start)
    assert float(there["mu"]) == pytest.approx(float(Y.mean()), abs=0.15)
    assert float(there["log_sigma"]) == pytest.approx(float(jnp.log(Y.std())), abs=0.15)
    assert float(there["other"]) == 7.0


def test_it_stays_in_the_box():
    there = arrive([mean_block()], {"mu": (0.0, 1.0)}, {"mu": 0.5})
    assert float(there["mu"]) == 1.0


def test_no_step_is_longer_than_the_learning_rate():
    there = adam_approach([mean_block()], {}, 3, learning_rate=0.01)(
        random.key(0), {"mu": jnp.zeros(())}, 1e6 * Y
    )
    assert 0.0 < float(there["mu"]) <= 0.03

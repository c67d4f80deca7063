"""Draws from Beta distributions follow them, in float32 at sizes from 0.1 to millions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax import random

from bmfjax.kernels.numerics.beta import draw_beta
from bmfjax.kernels.numerics.control import run_if

DRAWS = 20_000
SIZES = ((1.0, 1.0), (0.1, 1.5), (0.3, 0.3), (0.999, 3.0), (40.0, 6960.0), (3e6, 4e6))


@pytest.fixture(scope="module")
def drawn():
    a, b = jnp.asarray(SIZES, jnp.float32).T
    draw = jax.jit(jax.vmap(lambda key: draw_beta(key, a, b)))
    return np.asarray(draw(random.split(random.key(0), DRAWS)))


@pytest.mark.parametrize(("place", "sizes"), list(enumerate(SIZES)))
def test_draws_follow_the_distribution(drawn, place, sizes):
    assert drawn.dtype == np.float32
    assert scipy.stats.kstest(drawn[:, place], scipy.stats.beta(*sizes).cdf).pvalue > 1e-3
    # The test sees a size that is wrong by a tenth, or of large ones by a hundredth.
    wrong = scipy.stats.beta(sizes[0] * (1.01 if sizes[0] > 10 else 1.1), sizes[1])
    assert scipy.stats.kstest(drawn[:, place], wrong.cdf).pvalue < 1e-3


def test_an_update_runs_only_where_its_condition_holds_for_some():
    ran = []

    def update(x):
        jax.debug.callback(lambda _: ran.append(1), x)
        return x + 1

    run = jax.jit(jax.vmap(lambda condition, x: run_if(condition, update, x)))
    for conditions in ([True, False, True], [False] * 3):
        before = len(ran)
        found = run(jnp.asarray(conditions), jnp.arange(3))
        jax.effects_barrier()
        assert found.tolist() == [n + c for n, c in enumerate(conditions)]
        assert (len(ran) > before) == any(conditions)

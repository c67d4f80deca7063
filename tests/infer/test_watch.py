"""Draws that are not finite end a run of NumPyro's MCMC, and draws that do not move are told."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest
from jax import random
from numpyro.infer import MCMC

from bmfjax.infer.mcmc.kernel import AlgorithmKernel, BoundAlgorithm
from bmfjax.kernels.base import Algorithm


class Info(NamedTuple):
    log_joint: jax.Array


class Counter(AlgorithmKernel):
    """Counts up in steps of `by`, and leaves the numbers after the draw `last`."""

    _sites, _remedy = ("count", "level"), "take smaller steps"

    def __init__(self, by=1.0, last=100):
        self._by, self._last = by, last

    def bind(self, *args, **kwargs):
        def init(key, position, data):
            return {"count": jnp.zeros(2), "level": random.uniform(key)}

        def step(key, state, data):
            count = state["count"].at[1].add(self._by)
            count = jnp.where(count > self._last, jnp.nan, count)
            return {"count": count, "level": state["level"] + 1.0}, Info(jnp.zeros(()))

        return BoundAlgorithm(
            Algorithm(init, step, lambda state, info: state | info._asdict()), None
        )


def run(kernel, **options):
    mcmc = MCMC(kernel, num_warmup=2, num_samples=4, progress_bar=False, **options)
    mcmc.run(random.key(0) if options.get("num_chains", 1) == 1 else random.split(random.key(0)))
    jax.effects_barrier()
    return mcmc.get_samples()


MANY = [{}, {"num_chains": 2, "chain_method": "vectorized"},
        {"num_chains": 2, "chain_method": jax.vmap}]  # fmt: skip


@pytest.mark.parametrize("options", MANY, ids=["one chain", "vectorized", "vmap"])
def test_a_draw_that_is_not_finite_ends_the_run(options, capfd):
    message = "draw 4 of count by Counter is not finite; take smaller steps"
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        run(Counter(last=3), **options)


@pytest.mark.parametrize("options", MANY, ids=["one chain", "vectorized", "vmap"])
def test_draws_that_move_are_not_told(options):
    assert jnp.isfinite(run(Counter(), **options)["count"]).all()


@pytest.mark.parametrize("options", MANY[:2], ids=["one chain", "vectorized"])
@pytest.mark.filterwarnings("default")
def test_a_site_that_does_not_move_is_told(options):
    with pytest.warns(UserWarning, match="Counter does not move count: .* give a larger step"):
        run(Counter(by=0.0), **options)


class Doubted(Counter):
    """Refuses to move, as it may, and is in doubt of its draws from the third on."""

    def _may_stay(self, state):
        return True

    def _doubts(self, state):
        return {"draws are doubtful": state.i > 2, "draws are wrong": state.i > 100}


@pytest.mark.parametrize("options", MANY[:2], ids=["one chain", "vectorized"])
@pytest.mark.filterwarnings("always")
def test_a_doubt_is_told_once_and_a_refused_draw_is_not(options):
    with pytest.warns(UserWarning) as said:
        run(Doubted(by=0.0), **options)
    assert [str(w.message) for w in said] == ["draws are doubtful"]

"""What the benchmarks of the OrMachine share: a start, restarts, and a posterior mean."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.boolean.density import BitPrior, BooleanDensity
from bmfjax.kernels.boolean.flip_rates import FlipRatePrior
from bmfjax.kernels.boolean.gibbs import ormachine
from bmfjax.kernels.boolean.words import pack_last_axis, unpack_last_axis


class Schedule(NamedTuple):
    """How long, in sweeps, and how started.

    Of random starts that with the highest log joint density goes on after `start_sweeps`. In the
    first `hold` sweeps of each the flip rate stays where it began, at a -logit of `dispersion`.
    """

    burn: int = 100
    keep: int = 100
    starts: int = 1
    start_sweeps: int = 0
    hold: int = 10
    dispersion: float = 1.5


def sampler(
    shape: tuple[int, int], rank: int, density: float | None, rule: str = "sample"
) -> Algorithm:
    """Metropolised Gibbs; `density` is that of all bits, or None to learn one for every factor."""
    prior = BitPrior() if density is None else BitPrior(beta=None, density=density)
    return ormachine(BooleanDensity(shape, rank, prior, prior, FlipRatePrior(rule=rule)))


def random_bits(key, shape, rank, density, dispersion) -> dict:
    """Every bit of both factor matrices with probability one half."""
    position = {"flip_rate": jnp.float32(1.0 / (1.0 + math.exp(dispersion)))}
    for k, site, size in zip(random.split(key), ("usage", "basis"), shape, strict=True):
        position[site] = pack_last_axis(random.bernoulli(k, 0.5, (rank, size)))
        if density is None:
            position[f"{site}_density"] = jnp.full((rank,), 0.5, jnp.float32)
    return position


def empty_basis(key, shape, rank, density, dispersion) -> dict:
    """The start of the released program: random usage, no basis."""
    position = random_bits(key, shape, rank, density, dispersion)
    return position | {"basis": jnp.zeros_like(position["basis"])}


def program(
    shape,
    rank: int,
    density: float | None,
    schedule: Schedule,
    *,
    rule: str = "sample",
    first_bits: Callable = random_bits,
):
    """One compiled run: ``run(key, data, position=None) -> mean product (rows, columns), summary``.

    With a position the run starts there, without restarts. The summary also has the means of the
    bits of both factor matrices (rank, lines) and the product of the last draw.
    """
    algorithm = sampler(shape, rank, density, rule)

    def started(key, data):
        """One start, held at its flip rate for a while: state and mean log joint at its end."""
        key_start, key = random.split(key)
        start = first_bits(key_start, shape, rank, density, schedule.dispersion)
        state = algorithm.init(key_start, start, data)

        def step(state, i):
            following, info = algorithm.step(random.fold_in(key, i), state, data)
            rate = jnp.where(i < schedule.hold, start["flip_rate"], following.position["flip_rate"])
            return type(following)({**following.position, "flip_rate": rate}), info.log_joint

        sweeps = max(schedule.start_sweeps, schedule.hold)
        state, joint = lax.scan(step, state, jnp.arange(sweeps))
        return state, joint[-10:].mean()

    def drawn(state):
        """Bits of both factor matrices, and their product."""
        bits = {
            n: unpack_last_axis(state.position[n], size).astype(jnp.float32)
            for n, size in zip(("usage", "basis"), shape, strict=True)
        }
        return bits | {"product": (bits["usage"].T @ bits["basis"] > 0.5).astype(jnp.float32)}

    def best(key, data):
        """Of all starts."""
        keys = random.split(key, schedule.starts)
        states, level = lax.map(partial(started, data=data), keys)
        return jax.tree.map(lambda leaf: leaf[jnp.argmax(level)], states), level

    @jax.jit
    def run(key, data, position=None):
        key_start, key = random.split(key)
        if position is None:
            state, level = best(key_start, data)
            done = max(schedule.start_sweeps, schedule.hold)
        else:
            state, level, done = algorithm.init(key_start, position, data), None, 0

        def sweep(carry, i):
            state, total = carry
            state, info = algorithm.step(random.fold_in(key, i), state, data)
            # The product itself is only formed of draws that are kept.
            add = lambda t: jax.tree.map(jnp.add, t, drawn(state))  # noqa: E731
            total = lax.cond(i < schedule.burn, lambda t: t, add, total)
            return (state, total), info.log_joint

        sweeps = jnp.arange(done, schedule.burn + schedule.keep)
        none = jax.tree.map(jnp.zeros_like, jax.eval_shape(drawn, state))
        (state, total), joint = lax.scan(sweep, (state, none), sweeps)
        mean = jax.tree.map(lambda t: t / schedule.keep, total)
        summary = {
            "log_joint": joint[-schedule.keep :].mean(), "log_joint_of_starts": level,
            "usage": mean["usage"], "basis": mean["basis"], "last": drawn(state)["product"],
        }  # fmt: skip
        return mean["product"], summary

    return run

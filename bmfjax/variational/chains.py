"""Variational inference of the logistic model as chains: steps of optimisation, then draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.custom_batching import sequential_vmap

from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.numerics.compiling import jit_once
from bmfjax.kernels.numerics.mesh import WHOLE, Along
from bmfjax.variational import LogisticPosterior, LogisticPrior, batch_start, batch_update
from bmfjax.variational import posterior as lp
from bmfjax.variational import stochastic as logistic
from bmfjax.variational.entry_sampling import Entries, EntrySampler, draw_entries
from bmfjax.variational.relevance import LEARN_AFTER
from bmfjax.variational.settling import has_settled, no_values, with_value

#: Entries from which the bound is estimated after every step.
BOUND_ENTRIES = 4 * logistic.CHUNK
#: Share of its size by which a settled bound changes in 20 steps (`bmfjax.variational.settling`).
#: Steps of sampled entries shrink, and far from the end they change it little already.
TOLERANCE_OF_BATCH, TOLERANCE_OF_SVI = 2e-4, 5e-5
#: Minibatches before which a bound does not settle where precisions are learned. One of them may
#: take many steps; of rounds, the windows hold as many.
LEARNED = 2 * LEARN_AFTER


class SampledEntries(NamedTuple):
    """The data of `stochastic`."""

    sampler: EntrySampler
    #: Entries from which the bound is estimated. They are the same for all starts and steps: their
    #: error is too, and the bound's changes are seen far more sharply than the bound.
    of_bound: Entries
    #: On a mesh the devices along this axis share the entries that a step draws, and the lines.
    along: Along = WHOLE


class OptimiserState(NamedTuple):
    """State between two steps."""

    optimiser: Any  # SVIState or BatchState
    recent: jax.Array  # (2 WINDOW,): the last evidence lower bounds, or estimates of them
    steps: jax.Array  # () int32
    settled: jax.Array  # () bool; nothing changes from then on


def draw_bound_entries(key, sampler: EntrySampler) -> SampledEntries:
    """Draw the data of `stochastic`."""
    draw = jit_once(lambda key, sampler: draw_entries(key, sampler, BOUND_ENTRIES))
    return SampledEntries(sampler, draw(key, sampler))


def stochastic(prior: LogisticPrior, shape, log_odds: float, chunks: int) -> Algorithm:
    """Build chains of steps that draw entries (`bmfjax.variational.stochastic`) until they settle.

    The bias starts at `log_odds`. A step takes `chunks` of `logistic.CHUNK` entries; minibatches
    may reach over several steps. The data are `SampledEntries`. It observes the `elbo` and whether
    it has `settled`. Chains run one after the other.
    """

    def begin(posterior):
        return logistic.init(posterior, prior)

    def optimise(key, state, data):
        target = (state.steps + 1) * jnp.int32(chunks)
        optimiser = logistic.run(key, state.optimiser, data.sampler, prior, target, data.along)
        bound = logistic.estimated_elbo(optimiser.posterior, data.of_bound, prior, data.along)
        learned = prior.relevance is None or optimiser.updates >= LEARNED
        return optimiser, bound, learned

    return _algorithm(prior, shape, log_odds, TOLERANCE_OF_SVI, begin, optimise)


def batch(prior: LogisticPrior, shape, log_odds: float) -> Algorithm:
    """Build chains of rounds of coordinate ascent over all entries; else as `stochastic`.

    The data are what `bmfjax.variational.sign_blocks` returns.
    """

    def optimise(key, state, data):
        return *batch_update(state.optimiser, prior, data), True

    return _algorithm(prior, shape, log_odds, TOLERANCE_OF_BATCH, batch_start, optimise)


def _algorithm(
    prior, shape, log_odds, tolerance: float, begin: Callable, optimise: Callable
) -> Algorithm:
    def init(key, position, data):
        posterior = lp.start(key, shape, prior, log_odds)
        if position is not None:
            moved = {n: _placed(getattr(posterior, n), position[n]) for n in position}
            posterior = posterior._replace(**moved)
        nothing = no_values(posterior.bias.mean.dtype)
        return OptimiserState(begin(posterior), nothing, jnp.zeros((), jnp.int32), jnp.array(False))

    # Side by side, chains would scatter into batched arrays, many times slower on a CPU.
    @sequential_vmap
    def advance(key, state, data):
        def move():
            optimiser, bound, may_settle = optimise(key, state, data)
            recent = with_value(state.recent, bound)
            settled = has_settled(recent, tolerance) & may_settle
            return OptimiserState(optimiser, recent, state.steps + 1, settled)

        return lax.cond(state.settled, lambda: state, move)

    def step(key, state, data, inverse_temperature=1.0):
        if inverse_temperature != 1.0:
            raise InputError("variational inference is not tempered; leave inverse_temperature out")
        return advance(key, state, data), None

    def observe(state, info):
        return {"elbo": state.recent[..., -1], "settled": state.settled}

    return Algorithm(init, step, observe)


def posterior_draws(key, posterior: LogisticPosterior, prior: LogisticPrior, number: int) -> dict:
    """Draw so many times from the posterior of every start, which is the leading axis.

    `usage`, `basis`, `bias` and, with effects, `row_effect` and `column_effect` have leading axes
    (start, draw). The draws of a start do not depend on the others.
    """

    def one(key, posterior):
        keys = random.split(key, 3)
        usage, basis, bias = (
            q.mean + jnp.sqrt(q.variance) * random.normal(k, q.mean.shape, q.mean.dtype)
            for k, q in zip(keys, posterior.normals, strict=True)
        )
        rank = prior.rank
        drawn = {"usage": usage[:, :rank], "basis": basis[:, :rank], "bias": bias}
        if prior.row_effects:
            drawn["row_effect"] = usage[:, rank]
        if prior.column_effects:
            drawn["column_effect"] = basis[:, rank + prior.row_effects]
        return drawn

    def of_start(start):
        key_start, posterior = start
        keys = jax.vmap(random.fold_in, (None, 0))(key_start, jnp.arange(number))
        return lax.map(lambda key: one(key, posterior), keys)

    def of_all(key, posterior):
        starts = jnp.arange(len(posterior.bias.mean))
        return lax.map(of_start, (jax.vmap(random.fold_in, (None, 0))(key, starts), posterior))

    return jax.device_get(jit_once(of_all)(key, posterior))


def posterior_of(state: OptimiserState) -> LogisticPosterior:
    """Return the approximation of the posterior in a state."""
    return state.optimiser.posterior


def _placed(vectors: lp.Gaussian, factors) -> lp.Gaussian:
    rank = factors.shape[-1]
    return vectors._replace(mean=vectors.mean.at[..., :rank].set(factors))

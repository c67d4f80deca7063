"""Variational inference of the logistic model as chains: steps of optimisation, then draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.custom_batching import sequential_vmap

from bmfjax.data.errors import InputError
from bmfjax.infer.compiling import jit_once
from bmfjax.infer.settling import has_settled, no_values, with_value
from bmfjax.kernels.base import Algorithm
from bmfjax.variational import (
    LogisticPosterior,
    LogisticPrior,
    batch_start,
    batch_update,
    logistic,
)
from bmfjax.variational import logistic_posterior as lp
from bmfjax.variational.entry_sampling import Entries, EntrySampler, draw_entries

#: Entries from which the bound is estimated after every step.
BOUND_ENTRIES = 4 * logistic.CHUNK
#: Share of its size by which a settled bound changes in 20 steps (`bmfjax.infer.settling`). Steps
#: of sampled entries shrink, and far from the end they change it little already.
TOLERANCE_OF_BATCH, TOLERANCE_OF_SVI = 2e-4, 5e-5


class SampledEntries(NamedTuple):
    """What `stochastic` has for data.

    Attributes
    ----------
    sampler : EntrySampler
    of_bound : Entries
        Those from which the bound is estimated. They are the same for all starts and steps: their
        error is too, and the bound's changes are seen far more sharply than the bound.
    """

    sampler: EntrySampler
    of_bound: Entries


class OptimiserState(NamedTuple):
    """Between two steps.

    Attributes
    ----------
    optimiser : SVIState or BatchState
    recent : (2 WINDOW,) float
        The evidence lower bound after the last steps, or an estimate of it.
    steps : () int32
    settled : () bool
        Whether the bound has settled (`bmfjax.infer.settling`). Nothing changes from then on.
    """

    optimiser: Any
    recent: jax.Array
    steps: jax.Array
    settled: jax.Array


def sampled_entries(key, sampler: EntrySampler) -> SampledEntries:
    """The data of `stochastic`."""
    draw = jit_once(lambda key, sampler: draw_entries(key, sampler, BOUND_ENTRIES))
    return SampledEntries(sampler, draw(key, sampler))


def stochastic(prior: LogisticPrior, shape, log_odds: float, chunks: int) -> Algorithm:
    """Steps that draw entries (`bmfjax.variational.logistic`), until the bound has settled.

    Parameters
    ----------
    prior : LogisticPrior
    shape : (int, int)
    log_odds : float
        Where the bias starts.
    chunks : int
        Chunks of `logistic.CHUNK` entries a step. Minibatches may reach over several steps.

    Returns
    -------
    Algorithm
        Its data are `SampledEntries`. It observes the `elbo` and whether it has `settled`. Chains
        run one after the other.

    Examples
    --------
    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.variational import entry_sampler
    >>> prior, sampler = LogisticPrior(1), entry_sampler(BinaryMatrix([[1, 0, 0], [0, 1, 1]]))
    >>> data = sampled_entries(random.key(2), sampler)
    >>> algorithm = stochastic(prior, (2, 3), 0.0, chunks=1)
    >>> state = algorithm.init(random.key(0), None, data)
    >>> state, info = jax.jit(algorithm.step)(random.key(1), state, data)
    >>> {name: value.shape for name, value in algorithm.observe(state, info).items()}
    {'elbo': (), 'settled': ()}
    """

    def begin(posterior):
        return logistic.init(posterior, prior)

    def optimise(key, state, data):
        target = (state.steps + 1) * jnp.int32(chunks)
        optimiser = logistic.run(key, state.optimiser, data.sampler, prior, target)
        return optimiser, logistic.estimated_elbo(optimiser.posterior, data.of_bound, prior)

    return _algorithm(prior, shape, log_odds, TOLERANCE_OF_SVI, begin, optimise)


def batch(prior: LogisticPrior, shape, log_odds: float) -> Algorithm:
    """Rounds of coordinate ascent over all entries; else as `stochastic`.

    Its data are what `bmfjax.variational.sign_blocks` returns.
    """

    def optimise(key, state, data):
        return batch_update(state.optimiser, prior, data)

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
            optimiser, bound = optimise(key, state, data)
            recent = with_value(state.recent, bound)
            settled = has_settled(recent, tolerance)
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
    """Draw from the variational posterior of every start.

    Parameters
    ----------
    key : jax.Array
    posterior : LogisticPosterior
        With a leading axis of starts. The draws of one do not depend on the others.
    prior : LogisticPrior
    number : int
        Draws of a start.

    Returns
    -------
    dict
        `usage`, `basis`, `bias`, with effects `row_effect` and `column_effect`: arrays with leading
        axes (start, draw).
    """

    def one(key, posterior):
        keys = random.split(key, 3)
        usage, basis, bias = (
            q.mean + jnp.sqrt(q.variance) * random.normal(k, q.mean.shape, q.mean.dtype)
            for k, q in zip(keys, posterior, strict=True)
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

    starts = jnp.arange(len(posterior.bias.mean))
    keys = jax.vmap(random.fold_in, (None, 0))(key, starts)
    return jax.device_get(jit_once(lambda *start: lax.map(of_start, start))(keys, posterior))


def posterior_of(state: OptimiserState) -> LogisticPosterior:
    """What a state approximates the posterior by."""
    return state.optimiser.posterior


def _placed(vectors: lp.Gaussian, factors) -> lp.Gaussian:
    rank = factors.shape[-1]
    return vectors._replace(mean=vectors.mean.at[..., :rank].set(factors))

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
from bmfjax.variational import LogisticPosterior, LogisticPrior, batch_update, elbo, logistic
from bmfjax.variational import logistic_posterior as lp

#: Chunks of entries from which the bound is estimated after a step.
BOUND_CHUNKS = 2


class OptimiserState(NamedTuple):
    """Between two steps.

    Attributes
    ----------
    optimiser : SVIState or LogisticPosterior
    steps : () int32
        Steps so far.
    bound : () float
        The evidence lower bound after the last step of optimisation, or an estimate of it.
    """

    optimiser: Any
    steps: jax.Array
    bound: jax.Array


class Drawn(NamedTuple):
    """A draw from the variational posterior: vectors of rows and columns, and the bias."""

    usage: jax.Array
    basis: jax.Array
    bias: jax.Array


def stochastic(
    prior: LogisticPrior, shape, log_odds: float, num_updates: int, chunks: int
) -> Algorithm:
    """Steps that draw entries (`bmfjax.variational.logistic`), then draws from what they reached.

    Parameters
    ----------
    prior : LogisticPrior
    shape : (int, int)
    log_odds : float
        Where the bias starts.
    num_updates : int
        Steps of optimisation. Later ones draw from the approximate posterior, and leave it alone.
    chunks : int
        Chunks of `logistic.CHUNK` entries a step. Minibatches may reach over several steps.

    Returns
    -------
    Algorithm
        Its data are an `EntrySampler`. It observes `usage`, `basis`, `bias`, with effects
        `row_effect` and `column_effect`, and the `elbo`. Chains run one after the other.

    Examples
    --------
    >>> from bmfjax.data import BinaryMatrix
    >>> from bmfjax.variational import entry_sampler
    >>> prior, data = LogisticPrior(1), entry_sampler(BinaryMatrix([[1, 0, 0], [0, 1, 1]]))
    >>> algorithm = stochastic(prior, (2, 3), 0.0, num_updates=5, chunks=1)
    >>> state = algorithm.init(random.key(0), None, data)
    >>> state, drawn = jax.jit(algorithm.step)(random.key(1), state, data)
    >>> {name: value.shape for name, value in algorithm.observe(state, drawn).items()}
    {'usage': (2, 1), 'basis': (3, 1), 'bias': (), 'elbo': ()}
    """

    def begin(posterior, data):
        return logistic.init(posterior, prior)

    def optimise(key, state, data):
        key_run, key_bound = random.split(key)
        optimiser = logistic.run(
            key_run, state.optimiser, data, prior, (state.steps + 1) * jnp.int32(chunks)
        )
        bound, _ = logistic.estimated_elbo(
            key_bound, optimiser.posterior, data, prior, BOUND_CHUNKS
        )
        return optimiser, bound

    return _algorithm(prior, shape, log_odds, num_updates, begin, optimise)


def batch(prior: LogisticPrior, shape, log_odds: float, num_updates: int) -> Algorithm:
    """Rounds of coordinate ascent over all entries, then draws; else as `stochastic`.

    Its data are ``(values, observed)``, (rows, columns) bool.
    """

    def begin(posterior, data):
        return posterior

    def optimise(key, state, data):
        posterior = batch_update(state.optimiser, prior, *data)
        return posterior, elbo(posterior, prior, *data)

    return _algorithm(prior, shape, log_odds, num_updates, begin, optimise)


def posterior_of(state: OptimiserState) -> LogisticPosterior:
    """What a state approximates the posterior by."""
    optimiser = state.optimiser
    return optimiser if isinstance(optimiser, LogisticPosterior) else optimiser.posterior


def _algorithm(prior, shape, log_odds, num_updates, begin: Callable, optimise: Callable):
    def init(key, position, data):
        posterior = lp.start(key, shape, prior, log_odds)
        if position is not None:
            moved = {n: _placed(getattr(posterior, n), position[n]) for n in position}
            posterior = posterior._replace(**moved)
        nothing = jnp.zeros((), posterior.bias.mean.dtype)
        return OptimiserState(begin(posterior, data), jnp.zeros((), jnp.int32), nothing)

    # Side by side, chains would scatter into batched arrays, many times slower on a CPU.
    @sequential_vmap
    def advance(key, state, data):
        key_step, key_draw = random.split(key)
        optimiser, bound = lax.cond(
            state.steps < num_updates,
            lambda: optimise(key_step, state, data),
            lambda: (state.optimiser, state.bound),
        )
        state = OptimiserState(optimiser, state.steps + 1, bound)
        return state, draw(key_draw, posterior_of(state))

    def step(key, state, data, inverse_temperature=1.0):
        if inverse_temperature != 1.0:
            raise InputError("variational inference is not tempered; leave inverse_temperature out")
        return advance(key, state, data)

    def observe(state, info):
        rank = prior.rank
        seen = {"usage": info.usage[..., :rank], "basis": info.basis[..., :rank]}
        seen |= {"bias": info.bias, "elbo": state.bound}
        if prior.row_effects:
            seen["row_effect"] = info.usage[..., rank]
        if prior.column_effects:
            seen["column_effect"] = info.basis[..., rank + prior.row_effects]
        return seen

    return Algorithm(init, step, observe)


def draw(key, posterior: LogisticPosterior) -> Drawn:
    """A draw of every vector; coordinates that are fixed to one stay."""
    keys = random.split(key, 3)
    return Drawn(
        *(
            q.mean + jnp.sqrt(q.variance) * random.normal(k, q.mean.shape, q.mean.dtype)
            for k, q in zip(keys, posterior, strict=True)
        )
    )


def _placed(vectors: lp.Gaussian, factors) -> lp.Gaussian:
    rank = factors.shape[-1]
    return vectors._replace(mean=vectors.mean.at[..., :rank].set(factors))

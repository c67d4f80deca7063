r"""Sequential Monte Carlo: a population of particles goes from the prior to the posterior.

The population passes through tempered posteriors, prior times likelihood to the power
:math:`\beta`, from :math:`\beta = 0` to one. At each of them particles are weighted, resampled and
moved. The weights estimate the evidence, :math:`p(D) = \int p(x)\, p(D \mid x)\, dx`, which no
chain does, and the share of particles in each mode estimates the mode's weight.

What it leaves invariant
    Nothing, as it is no Markov chain: weighted means over the last population converge to the
    posterior's as particles become more, for any number of moves, and at fixed temperatures the
    estimate of the evidence is unbiased. The moves must leave every tempered posterior invariant.
    Temperatures that are chosen from the population, as here, and moves between particles
    add a bias of the order of one over the number of particles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.custom_batching import sequential_vmap

from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm
from bmfjax.specs.boolean import SMC

#: Halvings of the interval in which the next inverse temperature lies.
BISECTIONS = 40
#: Chains that are moved side by side, at most.
BLOCK = 16


class SMCState(NamedTuple):
    """A population on its way, between two moves.

    Neighbours on the axis of chains are relatives: resampling keeps the order of particles.
    """

    particles: Any  # states of the algorithm inside, (chain, place in the chain, ...)
    log_likelihood: jax.Array  # (chain, place): untempered
    filled: jax.Array  # () int32: places that hold particles of this temperature
    inverse_temperature: jax.Array  # () float
    log_evidence: jax.Array  # () float: of the likelihood to the power so far
    variance: jax.Array  # () float: estimate of the variance of `log_evidence`

    @property
    def finished(self) -> jax.Array:
        """Whether all particles are from the posterior: () bool."""
        return (self.inverse_temperature >= 1.0) & (self.filled == self.log_likelihood.shape[1])


def smc(
    algorithm: Algorithm,
    log_likelihood: Callable[[Any, Any], jax.Array],
    *,
    num_particles: int,
    chain_length: int,
    ess: float = 0.5,
    population_move: Callable[..., tuple[Any, jax.Array, Any]] | None = None,
) -> Algorithm:
    r"""Run waste-free sequential Monte Carlo, one move of all chains a step.

    At each inverse temperature :math:`\beta_{t-1}` there are N particles :math:`x_n` with log
    likelihoods :math:`\ell_n`. The next one is the largest, up to 1, at which the weights

    .. math:: w_n = \exp[(\beta_t - \beta_{t-1})\, \ell_n], \qquad
              \Big(\sum_n w_n\Big)^2 \Big/ \sum_n w_n^2 \ge \text{ess} \cdot N,

    leave so large an effective sample. The log evidence grows by :math:`\log(\sum_n w_n / N)`,
    M = N / P ancestors are resampled systematically, and each starts a chain of P - 1 moves at
    :math:`\beta_t`. All its P states are particles: none is thrown away. The variance of the log
    evidence grows by that of :math:`\log \sum_n w_n` over chains, taken as independent; it is too
    small where chains do not leave their mode, which independent runs show.

    Parameters
    ----------
    algorithm : Algorithm
        Its `init` must draw from the prior, and its step leave the tempered posterior at any
        `inverse_temperature` invariant.
    log_likelihood : callable
        ``log_likelihood(state, data)``, a scalar: untempered, without the prior.
    num_particles, chain_length : int
        N, and P, at least 2, of which N is a multiple of at least twice.
    ess : float
        Share of the particles that the effective sample keeps, above 0 and below 1.
    population_move : callable, optional
        As of `bmfjax.kernels.tempering.parallel_tempering`: ``population_move(key, states, data,
        inverse_temperatures, log_likelihood) -> (states, log_likelihood, info)``, a move between
        up to `BLOCK` particles of different chains that leaves the product of their tempered
        posteriors invariant. It follows every move, and its info is not kept.

    Returns
    -------
    Algorithm
        State `SMCState`, no info. It observes `log_evidence`, `variance`, `inverse_temperature`
        and `finished`, from which on steps change nothing. Under ``vmap`` runs go one after the
        other, each at its own temperatures.

    Raises
    ------
    InputError
        For numbers out of range; and from its `init` for a `position`, from its step for an
        `inverse_temperature`.

    References
    ----------
    Del Moral, Doucet, Jasra (2006), "Sequential Monte Carlo samplers", JRSS B 68(3). All states
    of the chains as particles, and the estimate of the variance: Dau, Chopin (2022), "Waste-free
    sequential Monte Carlo", JRSS B 84(1). The choice of temperatures: Jasra, Stephens, Doucet,
    Tsagaris (2011), "Inference for Lévy-driven stochastic volatility models via adaptive
    sequential Monte Carlo", Scandinavian Journal of Statistics 38(1).

    Examples
    --------
    Prior N(0, 1), one observation 2 of variance 1, drawn exactly at every temperature:

    >>> def draw(key, x, y, inverse_temperature=1.0):
    ...     precision = 1.0 + inverse_temperature
    ...     return (inverse_temperature * y + precision**0.5 * random.normal(key)) / precision, None
    >>> gauss = Algorithm(
    ...     init=lambda key, position, y: random.normal(key),
    ...     step=draw,
    ...     observe=lambda x, info: {"x": x},
    ... )
    >>> normal = lambda x, y: -0.5 * (y - x) ** 2 - 0.5 * jnp.log(2 * jnp.pi)
    >>> algorithm = smc(gauss, normal, num_particles=1024, chain_length=8)
    >>> step, state, t = jax.jit(algorithm.step), algorithm.init(random.key(0), None, 2.0), 0
    >>> while not state.finished:
    ...     state, _ = step(random.fold_in(random.key(1), t), state, 2.0)
    ...     t += 1
    >>> exact = -0.25 * 2.0**2 - 0.5 * jnp.log(4 * jnp.pi)
    >>> bool(abs(state.log_evidence - exact) < 4 * state.variance**0.5)
    True
    """
    SMC(num_particles=num_particles, chain_length=chain_length, ess=ess)  # refuses others
    chains = num_particles // chain_length
    block = max(n for n in range(1, min(BLOCK, chains) + 1) if chains % n == 0)

    def weighed(state, data):
        return state, log_likelihood(state, data)

    @sequential_vmap
    def start(key, data):
        keys = random.split(key, (chains, chain_length))
        one = lambda k: weighed(algorithm.init(k, None, data), data)  # noqa: E731
        particles, values = lax.map(lambda k: lax.map(one, k), keys, batch_size=block)
        zero = jnp.zeros((), values.dtype)
        return SMCState(particles, values, jnp.int32(chain_length), zero, zero, zero)

    @sequential_vmap
    def advance(key, state, data):
        return lax.cond(state.finished, lambda: state, lambda: move(key, state, data))

    def move(key, state, data):
        key_choice, key_moves, key_meet = random.split(key, 3)
        full = state.filled == chain_length
        state = lax.cond(full, lambda: _next_temperature(key_choice, state, ess), lambda: state)
        beta, last = state.inverse_temperature, state.filled - 1
        states, values = lax.map(
            lambda a: weighed(algorithm.step(a[0], a[1], data, beta)[0], data),
            (random.split(key_moves, chains), _at_place(state.particles, last)),
            batch_size=block,
        )
        if population_move is not None:
            states, values = meet(key_meet, states, values, data, beta)
        particles, values = jax.tree.map(
            lambda all_places, new: lax.dynamic_update_index_in_dim(
                all_places, new, state.filled, 1
            ),
            (state.particles, state.log_likelihood),
            (states, values),
        )
        return state._replace(
            particles=particles, log_likelihood=values, filled=state.filled + jnp.int32(1)
        )

    def meet(key, states, values, data, beta):
        """Move particles with others, drawn anew; chains keep their places."""
        key_order, key_move = random.split(key)
        order = random.permutation(key_order, chains)
        met = lax.map(
            lambda a: population_move(a[0], a[1][0], data, jnp.full(block, beta), a[1][1])[:2],
            (
                random.split(key_move, chains // block),
                jax.tree.map(lambda a: a[order].reshape(-1, block, *a.shape[1:]), (states, values)),
            ),
        )
        back = jnp.argsort(order)
        return jax.tree.map(lambda a: a.reshape(chains, *a.shape[2:])[back], met)

    def init(key, position, data):
        if position is not None:
            raise InputError("particles start at draws from the prior; leave the position out")
        return start(key, data)

    def step(key, state, data, inverse_temperature=1.0):
        if inverse_temperature != 1.0:
            raise InputError("particles have temperatures of their own; leave the step's out")
        return advance(key, state, data), None

    def observe(state, info):
        names = ("log_evidence", "variance", "inverse_temperature", "finished")
        return {name: getattr(state, name) for name in names}

    return Algorithm(init, step, observe)


def _at_place(particles, place):
    return jax.tree.map(
        lambda leaf: lax.dynamic_index_in_dim(leaf, place, 1, keepdims=False), particles
    )


def _next_temperature(key, state: SMCState, ess: float) -> SMCState:
    """Weigh all particles for the next temperature, and resample what starts its chains."""
    chains, length = state.log_likelihood.shape
    # A likelihood that is not a number must not spread, and its particle dies.
    values = jnp.where(jnp.isnan(state.log_likelihood), -jnp.inf, state.log_likelihood)
    most = jnp.max(values)
    above = values - most
    rise = _rise(above.reshape(-1), 1.0 - state.inverse_temperature, ess)
    last = state.inverse_temperature + rise >= 1.0 - jnp.finfo(rise.dtype).eps
    new = jnp.where(last, 1.0, state.inverse_temperature + rise).astype(rise.dtype)
    rise = new - state.inverse_temperature  # as rounded: what weighs is what was climbed
    weights = jnp.exp(rise * above)
    mean = jnp.mean(weights)
    ancestors = _systematic(key, weights.reshape(-1), chains)
    first = jax.tree.map(
        lambda leaf: leaf.reshape(chains * length, *leaf.shape[2:])[ancestors],
        (state.particles, values),
    )
    particles, values = jax.tree.map(
        lambda leaf, new: leaf.at[:, 0].set(new), (state.particles, values), first
    )
    of_chains = jnp.mean(weights, axis=1) / mean
    return SMCState(
        particles,
        values,
        jnp.int32(1),
        new,
        state.log_evidence + rise * most + jnp.log(mean),
        state.variance + jnp.var(of_chains, ddof=1) / chains,
    )


def _rise(above, left, ess: float) -> jax.Array:
    """Return by how much the inverse temperature rises, at most `left`, by bisection."""

    def enough(rise):
        weights = jnp.exp(rise * above)
        return jnp.sum(weights) ** 2 >= ess * len(above) * jnp.sum(weights**2)

    def halve(_, interval):
        low, high = interval
        middle = 0.5 * (low + high)
        good = enough(middle)
        return jnp.where(good, middle, low), jnp.where(good, high, middle)

    # The upper end, which is never zero, not even where some likelihoods are.
    high = lax.fori_loop(0, BISECTIONS, halve, (jnp.zeros_like(left), left))[1]
    return jnp.where(enough(left), left, high)


def _systematic(key, weights, number: int) -> jax.Array:
    """Draw so many indices by systematic resampling, in order: (number,) int32."""
    cumulated = jnp.cumsum(weights)
    offset = random.uniform(key, (), weights.dtype)
    levels = (jnp.arange(number) + offset) * (cumulated[-1] / number)
    # Never one of weight zero beyond the last: rounding may put a level at the very end.
    found = jnp.searchsorted(cumulated, levels, side="right")
    return jnp.minimum(found, jnp.searchsorted(cumulated, cumulated[-1])).astype(jnp.int32)

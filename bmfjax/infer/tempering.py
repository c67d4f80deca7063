r"""Tempering: run any algorithm at inverse temperatures other than one.

The tempered posterior at inverse temperature :math:`\beta` is the prior times the
likelihood to the power :math:`\beta`: at one the posterior, towards zero the prior, where
modes are joined. `annealed` walks from hot to cold once, to start well;
`parallel_tempering` holds a ladder of temperatures and swaps states between them, and is
exact at every step. Both return an `Algorithm` again: they run in `ChainRun`, under
``vmap``, and inside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from bmfjax.data.errors import InputError
from bmfjax.infer.ladder import check_whole, checked_ladder
from bmfjax.kernels.base import Algorithm


class AnnealedState(NamedTuple):
    """`inner`: the state of the algorithm inside; `step`: () int32, steps taken."""

    inner: Any
    step: jax.Array


class AnnealedInfo(NamedTuple):
    """`inner`: the info of the algorithm inside; `inverse_temperature`: () float, as used."""

    inner: Any
    inverse_temperature: jax.Array


def annealed(algorithm: Algorithm, num_steps: int, *, lowest: float = 0.02) -> Algorithm:
    r"""Warm an algorithm up from hot to cold, then run it as it is.

    Step t (from 0) has inverse temperature :math:`\beta_t =` ``lowest ** (1 - t / num_steps)``
    for t < `num_steps` and exactly 1 from then on, times the caller's. Steps from `num_steps`
    on are the steps of `algorithm` with the same keys and leave invariant what it does;
    earlier ones leave nothing invariant and belong to the warm-up.

    Parameters
    ----------
    algorithm : Algorithm
        Its step must use `inverse_temperature`.
    num_steps : int
        Length of the annealing; 0 for none.
    lowest : float
        Inverse temperature of the first step, above 0 and at most 1.

    Returns
    -------
    Algorithm
        State `AnnealedState`, info `AnnealedInfo`. It observes what `algorithm` does and
        "inverse_temperature", () float, the caller's included. (Where `algorithm` observes
        that name too, its value stands: the innermost knows the whole product.)

    Raises
    ------
    InputError
        For numbers out of range.

    References
    ----------
    Kirkpatrick, Gelatt, Vecchi (1983), "Optimization by simulated annealing", Science 220;
    the schedule is geometric in the temperature, as theirs.

    Examples
    --------
    >>> passive = Algorithm(
    ...     init=lambda key, position, data: jnp.zeros(()),
    ...     step=lambda key, state, data, inverse_temperature=1.0: (state, None),
    ...     observe=lambda state, info: {"x": state},
    ... )
    >>> algorithm = annealed(passive, 2, lowest=0.01)
    >>> state = algorithm.init(random.key(0), None, None)
    >>> for key in random.split(random.key(1), 3):
    ...     state, info = algorithm.step(key, state, None)
    ...     print(round(float(info.inverse_temperature), 3))
    0.01
    0.1
    1.0
    """
    check_whole("num_steps", num_steps, 0)
    if not 0 < lowest <= 1:
        raise InputError(f"lowest is {lowest}; give an inverse temperature above 0 and at most 1")

    def init(key, position, data):
        return AnnealedState(algorithm.init(key, position, data), jnp.zeros((), jnp.int32))

    def step(key, state, data, inverse_temperature=1.0):
        # Python floats keep the schedule weakly typed: a float32 state stays one under x64.
        left = jnp.maximum(num_steps - state.step, 0) * (1.0 / max(num_steps, 1))
        beta = jnp.where(left > 0, lowest**left, 1.0) * inverse_temperature
        inner, info = algorithm.step(key, state.inner, data, beta)
        return AnnealedState(inner, state.step + 1), AnnealedInfo(info, beta)

    def observe(state, info):
        named = {"inverse_temperature": info.inverse_temperature}
        return named | algorithm.observe(state.inner, info.inner)

    return Algorithm(init, step, observe)


class ParallelTemperingState(NamedTuple):
    """`inner`: states of the algorithm inside, stacked, the coldest first; `replica`:
    (temperature,) int32, which start each of them came from; `step`: () int32, steps taken.
    """

    inner: Any
    replica: jax.Array
    step: jax.Array


class ParallelTemperingInfo(NamedTuple):
    """Statistics of one step: of the move at the first temperature, of the swaps, and after them.

    Attributes
    ----------
    inner : pytree
    swap_probability : (temperature - 1,) float
        With which each pair of neighbours was exchanged; NaN for those not proposed.
    replica : (temperature,) int32
    log_likelihood : (temperature,) float
    """

    inner: Any
    swap_probability: jax.Array
    replica: jax.Array
    log_likelihood: jax.Array


def parallel_tempering(
    algorithm: Algorithm,
    log_likelihood: Callable[[Any, Any], jax.Array],
    inverse_temperatures: Sequence[float],
    *,
    swap_every: int = 1,
    describe: Callable[..., Any] | None = None,
) -> Algorithm:
    r"""Chains at several temperatures that exchange their states.

    A step moves all replicas, each at its inverse temperature :math:`\beta_k`, and every
    `swap_every` steps proposes to exchange neighbours i = k, j = k + 1, for even k and for
    odd k in turn, with probability

    .. math:: \min\{1, \exp[(\beta_i - \beta_j)(\ell_j - \ell_i)]\},

    :math:`\ell` the log likelihood; all :math:`\beta` times the caller's inverse temperature.

    What it leaves invariant
        The product over temperatures of the tempered posteriors,
        :math:`\prod_k p(x_k)\,p(D \mid x_k)^{\beta_k}`, hence the posterior at the first, if
        `algorithm` at each :math:`\beta_k` leaves its factor invariant. Where that is
        approximate, so is this.

    States are exchanged whole. They must therefore hold nothing that depends on the
    temperature: no step size adapted to it, no cached tempered density. To anneal the whole
    ladder write ``annealed(parallel_tempering(...), n)``: the other way round, swaps would
    not know of the annealing.

    Parameters
    ----------
    algorithm : Algorithm
        Its step must use `inverse_temperature`.
    log_likelihood : callable
        ``log_likelihood(state, data)``, a scalar: untempered, without the prior, from one
        state of `algorithm`. Called once a step and temperature.
    inverse_temperatures : sequence of float
        Strictly decreasing from exactly 1.0 to at least 0 (see `geometric_ladder`).
    swap_every : int
        Steps from one round of proposals to the next.
    describe : callable, optional
        ``describe(info, state, data, inverse_temperature) -> info``: what the info of the
        first temperature says of a state, computed anew after the exchange. Without it the
        info is that of the move, whose state may have left.

    Returns
    -------
    Algorithm
        State `ParallelTemperingState`, info `ParallelTemperingInfo`. A `position` is the
        start of all replicas; without one each has its own random start. It observes what
        `algorithm` does, of the first temperature after the exchange (see `describe`), and
        "swap_probability" and "replica" (see the info).

    Raises
    ------
    InputError
        For temperatures out of order or numbers out of range.

    References
    ----------
    Swendsen, Wang (1986), "Replica Monte Carlo simulation of spin glasses", Physical Review
    Letters 57. Geyer (1991), "Markov chain Monte Carlo maximum likelihood", Computing Science
    and Statistics: Proceedings of the 23rd Symposium on the Interface. Even and odd pairs in
    turn: Syed, Bouchard-Côté, Deligiannidis, Doucet (2022), "Non-reversible parallel
    tempering: a scalable highly parallel MCMC scheme", JRSS B 84(2).

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
    >>> algorithm = parallel_tempering(gauss, lambda x, y: -0.5 * (y - x) ** 2, (1.0, 0.3, 0.0))
    >>> state = algorithm.init(random.key(0), None, 2.0)
    >>> state, info = algorithm.step(random.key(1), state, 2.0)
    >>> state.inner.shape, info.swap_probability.shape
    ((3,), (2,))
    >>> sorted(algorithm.observe(state, info))
    ['replica', 'swap_probability', 'x']
    """
    betas = checked_ladder(inverse_temperatures)
    check_whole("swap_every", swap_every, 1)
    number = len(betas)
    pairs = np.arange(number - 1)

    def init(key, position, data):
        keys = random.split(key, number)
        inner = jax.vmap(lambda k: algorithm.init(k, position, data))(keys)
        replica = jnp.arange(number, dtype=jnp.int32)
        return ParallelTemperingState(inner, replica, jnp.zeros((), jnp.int32))

    def step(key, state, data, inverse_temperature=1.0):
        key_move, key_swap = random.split(key)
        # Stacked from Python floats, which stay weakly typed: see `annealed`.
        beta = jnp.stack([jnp.asarray(b) for b in betas]) * inverse_temperature
        move = jax.vmap(algorithm.step, (0, 0, None, 0))
        inner, info = move(random.split(key_move, number), state.inner, data, beta)
        likelihood = jax.vmap(log_likelihood, (0, None))(inner, data)

        taken = state.step + 1
        parity = (taken // swap_every - 1) % 2
        proposed = (taken % swap_every == 0) & (pairs % 2 == parity)
        probability = _swap_probability(beta, likelihood)
        uniform = random.uniform(key_swap, probability.shape, probability.dtype)
        source = _sources(proposed & (uniform < probability))

        inner, replica, likelihood = jax.tree.map(
            lambda leaf: leaf[source], (inner, state.replica, likelihood)
        )
        cold = jax.tree.map(lambda leaf: leaf[0], info)
        if describe is not None:
            state_now = jax.tree.map(lambda leaf: leaf[0], inner)
            cold = describe(cold, state_now, data, inverse_temperature)
        info = ParallelTemperingInfo(
            cold,
            jnp.where(proposed, probability, jnp.nan),
            replica,
            likelihood,
        )
        return ParallelTemperingState(inner, replica, taken), info

    def observe(state, info):
        cold = jax.tree.map(lambda leaf: leaf[0], state.inner)
        named = {"swap_probability": info.swap_probability, "replica": info.replica}
        return algorithm.observe(cold, info.inner) | named

    return Algorithm(init, step, observe)


def _swap_probability(beta, log_likelihood):
    """min(1, exp((beta_i - beta_j)(l_j - l_i))) of the neighbours i, j = i + 1."""
    gain = (beta[:-1] - beta[1:]) * (log_likelihood[1:] - log_likelihood[:-1])
    # Both likelihoods zero, or one not a number: leave such states where they are.
    return jnp.where(jnp.isnan(gain), 0.0, jnp.exp(jnp.minimum(gain, 0.0)))


def _sources(accepted):
    """From which temperature each takes its state, given which pairs swap (never two in a row)."""
    from_hotter, from_colder = jnp.pad(accepted, (0, 1)), jnp.pad(accepted, (1, 0))
    return jnp.arange(len(accepted) + 1) + from_hotter - from_colder.astype(int)

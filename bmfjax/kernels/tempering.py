r"""Tempering: run any algorithm at inverse temperatures other than one.

The tempered posterior at inverse temperature :math:`\beta` is the prior times the
likelihood to the power :math:`\beta`: at one the posterior, towards zero the prior, where
modes are joined. `annealed` walks from hot to cold once, to start well;
`parallel_tempering` holds a ladder of temperatures and swaps states between them, and is
exact at every step. Both return an `Algorithm` again: they run in `ChainRun`, under
``vmap``, and inside each other. `geometric_ladder` makes the temperatures; `swap_rates` and
`round_trips` tell from recorded draws how well states travel between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm


def geometric_ladder(lowest: float, number: int) -> tuple[float, ...]:
    """Return inverse temperatures from 1 to `lowest` in equal ratios.

    Parameters
    ----------
    lowest : float
        The last of them, above 0 and below 1.
    number : int
        How many, at least 2.

    Returns
    -------
    tuple of float

    Raises
    ------
    InputError
        For numbers out of range.

    Examples
    --------
    >>> geometric_ladder(0.0625, 3)
    (1.0, 0.25, 0.0625)
    """
    whole("number", number, 2)
    if not 0 < lowest < 1:
        raise InputError(f"lowest is {lowest}; give an inverse temperature above 0 and below 1")
    return tuple(float(lowest) ** (k / (number - 1)) for k in range(number))


def round_trips(replica) -> np.ndarray:
    """Count how often replicas went from the coldest temperature to the hottest and back.

    Parameters
    ----------
    replica : (chain, step, temperature) int array
        The recorded "replica" of `parallel_tempering`, of every step: visits that thinning
        drops are not seen.

    Returns
    -------
    (chain,) int array
        Whole trips, summed over replicas; 0 for a single temperature.

    Raises
    ------
    InputError
        For another number of axes.

    Examples
    --------
    Replica 0 goes to the hot end and returns; replica 1 has not been cold before:

    >>> round_trips([[[0, 1], [1, 0], [0, 1]]])
    array([1])
    """
    replica = _checked_trace("replica", replica)
    chains, _, temperatures = replica.shape
    trips = np.zeros(chains, int)
    for chain in range(chains):
        for r in range(temperatures):
            cold, hot = replica[chain, :, 0] == r, replica[chain, :, -1] == r
            at_cold = cold[cold | hot]  # its visits to the two ends, in order
            arrivals = np.sum(at_cold[1:] & ~at_cold[:-1]) + np.sum(at_cold[:1])
            # A first arrival at the cold end completes nothing.
            trips[chain] += max(arrivals - 1, 0)
    return trips


def swap_rates(swap_probability) -> np.ndarray:
    """Return the mean probability with which proposed exchanges were accepted.

    Parameters
    ----------
    swap_probability : (chain, step, pair) array
        As `parallel_tempering` observes it: NaN where a pair was not proposed.

    Returns
    -------
    (chain, pair) float64 array
        NaN for pairs never proposed.

    Raises
    ------
    InputError
        For another number of axes.

    Examples
    --------
    >>> swap_rates([[[0.5, np.nan], [np.nan, 1.0], [0.25, np.nan]]])
    array([[0.375, 1. ]])
    """
    values = _checked_trace("swap_probability", swap_probability).astype(float)
    proposed = ~np.isnan(values)
    with np.errstate(invalid="ignore"):  # 0 / 0 where none was proposed
        return np.where(proposed, values, 0.0).sum(1) / proposed.sum(1)


def _checked_ladder(inverse_temperatures) -> tuple[float, ...]:
    """Return inverse temperatures as floats that fall from one."""
    betas = tuple(float(b) for b in inverse_temperatures)
    falling = all(a > b for a, b in pairwise(betas))
    if not (betas and betas[0] == 1.0 and falling and betas[-1] >= 0):
        raise InputError(
            f"inverse_temperatures are {betas}; give them falling strictly from 1.0 to 0 or more"
        )
    return betas


def _checked_trace(name, values):
    values = np.asarray(values)
    if values.ndim != 3:
        raise InputError(f"{name} has {values.ndim} axes; give it as (chain, step, ...)")
    return values


class AnnealedState(NamedTuple):
    """State of `annealed`."""

    inner: Any  # of the algorithm inside
    step: jax.Array  # () int32: steps taken


class AnnealedInfo(NamedTuple):
    """Info of `annealed`."""

    inner: Any  # of the algorithm inside
    inverse_temperature: jax.Array  # () float, as used


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
    whole("num_steps", num_steps, 0)
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
    """State of `parallel_tempering`."""

    inner: Any  # of the algorithm inside, stacked, the coldest first
    replica: jax.Array  # (temperature,) int32: from which start each of them came
    step: jax.Array  # () int32: steps taken


class ParallelTemperingInfo(NamedTuple):
    """Statistics of a step: of the move at the first temperature, of the swaps, and after them."""

    inner: Any
    swap_probability: jax.Array  # (temperature - 1,): of neighbours; NaN for those not proposed
    replica: jax.Array  # (temperature,) int32
    log_likelihood: jax.Array  # (temperature,)


def parallel_tempering(
    algorithm: Algorithm,
    log_likelihood: Callable[[Any, Any], jax.Array],
    inverse_temperatures: Sequence[float],
    *,
    swap_every: int = 1,
    describe: Callable[..., Any] | None = None,
) -> Algorithm:
    r"""Run chains at several temperatures that exchange their states.

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
    betas = _checked_ladder(inverse_temperatures)
    whole("swap_every", swap_every)
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
    """Return min(1, exp((beta_i - beta_j)(l_j - l_i))) of the neighbours i, j = i + 1."""
    gain = (beta[:-1] - beta[1:]) * (log_likelihood[1:] - log_likelihood[:-1])
    # Both likelihoods zero, or one not a number: leave such states where they are.
    return jnp.where(jnp.isnan(gain), 0.0, jnp.exp(jnp.minimum(gain, 0.0)))


def _sources(accepted):
    """Return whose state each temperature takes, given which pairs swap (never two in a row)."""
    from_hotter, from_colder = jnp.pad(accepted, (0, 1)), jnp.pad(accepted, (1, 0))
    return jnp.arange(len(accepted) + 1) + from_hotter - from_colder.astype(int)

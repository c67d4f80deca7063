r"""Tempering: run any algorithm at inverse temperatures other than one.

The tempered posterior at inverse temperature :math:`\beta` is the prior times the
likelihood to the power :math:`\beta`: at one the posterior, towards zero the prior, where
modes are joined. `annealed` walks from hot to cold once, to start well;
`parallel_tempering` holds a ladder of temperatures and swaps states between them, and is
exact once its ladder is fixed. Both return an `Algorithm` again: they run in `ChainRun`, under
``vmap``, and inside each other. `bmfjax.kernels.ladders` makes the temperatures, and tells from
recorded draws how well states travel between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.ladders import equalised
from bmfjax.kernels.numerics.budget import divided
from bmfjax.kernels.numerics.control import acceptance
from bmfjax.specs.samplers import checked_ladder

#: More steps than any annealing has, and so few that they can still be counted on.
MANY_STEPS = 2**30
#: Steps of the first round in which a ladder is adapted, at least.
FIRST_ROUND = 8


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


def past_annealing(state: Any) -> Any:
    """Return a state of any sampler in which all annealed steps are over."""

    def over(part):
        if not isinstance(part, AnnealedState):
            return part
        return part._replace(step=np.full_like(part.step, MANY_STEPS))

    return jax.tree.map(over, state, is_leaf=lambda part: isinstance(part, AnnealedState))


def position_of(state: Any) -> dict | None:
    """Return where chains (chain, ...) are, at the first temperature; None of what has no position.

    Examples
    --------
    >>> position_of(AnnealedState(AnnealedState((), 0), 0)) is None
    True
    """
    while not hasattr(state, "position"):
        if not hasattr(state, "inner"):
            return None
        is_ladder = isinstance(state, ParallelTemperingState)
        state = jax.tree.map(lambda leaf: leaf[:, 0], state.inner) if is_ladder else state.inner
    return state.position


class LadderState(NamedTuple):
    """The temperatures of one chain, and what the present round of adaptation has counted."""

    inverse_temperatures: jax.Array  # (temperature,) float32, falling from 1
    rejected: jax.Array  # (temperature - 1,) float32: sum of the probabilities of rejection
    proposed: jax.Array  # (temperature - 1,) float32: exchanges proposed
    step: jax.Array  # () int32: steps of adaptation taken


class ParallelTemperingState(NamedTuple):
    """State of `parallel_tempering`."""

    inner: Any  # of the algorithm inside, stacked, the coldest first
    replica: jax.Array  # (temperature,) int32: from which start each of them came
    step: jax.Array  # () int32: steps taken
    ladder: LadderState


class ParallelTemperingInfo(NamedTuple):
    """Statistics of a step: of the move at the first temperature, of the swaps, and after them."""

    inner: Any
    swap_probability: jax.Array  # (temperature - 1,): of neighbours; NaN for those not proposed
    replica: jax.Array  # (temperature,) int32
    log_likelihood: jax.Array  # (temperature,)
    inverse_temperatures: jax.Array  # (temperature,) float32, as used, without the caller's
    population: jax.Array | None  # () mean acceptance probability of `population_move`


def parallel_tempering(
    algorithm: Algorithm,
    log_likelihood: Callable[[Any, Any], jax.Array],
    inverse_temperatures: Sequence[float],
    *,
    swap_every: int = 1,
    num_adapt: int = 0,
    describe: Callable[..., Any] | None = None,
    likelihood_of_info: Callable[[Any], jax.Array] | None = None,
    refresh: Callable[..., Any] | None = None,
    population_move: Callable[..., Any] | None = None,
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
        approximate, so is this. Steps that adapt the ladder belong to the warm-up.

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
        Strictly decreasing from exactly 1.0 to at least 0 (see `geometric_ladder`). At 0 the
        replica samples the prior.
    swap_every : int
        Steps from one round of proposals to the next.
    num_adapt : int
        Number of first steps in which the temperatures between the two ends are placed such that
        all neighbours reject exchanges equally often (`equalised_ladder`), in rounds of doubling
        length. Steps at which the caller's inverse temperature is not 1, as in an annealing
        around it, are not counted. Afterwards the ladder is frozen.
    describe : callable, optional
        ``describe(info, state, data, inverse_temperature) -> info``: what the info of the
        first temperature says of a state, computed anew after the exchange. Without it the
        info is that of the move, whose state may have left.
    likelihood_of_info : callable, optional
        ``likelihood_of_info(info)``: `log_likelihood` of the state after a step, where the info
        of that step knows it. It is not computed twice then.
    refresh : callable, optional
        ``refresh(key, state, data) -> state``: a draw from the prior, which leaves the prior
        invariant whatever the state. Where the last inverse temperature is 0 it moves that
        replica in place of `algorithm`. A draw that does not depend on the state makes every
        round trip bring an independent one.
    population_move : callable, optional
        ``population_move(key, states, data, inverse_temperatures, log_likelihood) -> (states,
        log_likelihood, acceptance)``, called after the swaps with the stacked states, the
        coldest first, and (temperature,) arrays. It must leave the product of the tempered
        posteriors invariant. See `bmfjax.kernels.boolean.moves.exchange`.

    Returns
    -------
    Algorithm
        State `ParallelTemperingState`, info `ParallelTemperingInfo`. A `position` is the
        start of all replicas; without one each has its own random start. It observes what
        `algorithm` does, of the first temperature after the exchange (see `describe`), and
        "swap_probability", "replica" and "inverse_temperatures" (see the info), and with a
        population move "population_accepted", () float.

    Raises
    ------
    InputError
        For temperatures out of order or numbers out of range.

    References
    ----------
    Swendsen, Wang (1986), "Replica Monte Carlo simulation of spin glasses", Physical Review
    Letters 57. Geyer (1991), "Markov chain Monte Carlo maximum likelihood", Computing Science
    and Statistics: Proceedings of the 23rd Symposium on the Interface. Even and odd pairs in
    turn, and the placing of the ladder: Syed, Bouchard-Côté, Deligiannidis, Doucet (2022),
    "Non-reversible parallel tempering: a scalable highly parallel MCMC scheme", JRSS B 84(2).

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
    ['inverse_temperatures', 'replica', 'swap_probability', 'x']
    """
    betas = checked_ladder("inverse_temperatures", inverse_temperatures)
    whole("swap_every", swap_every)
    ends = _ends_of_rounds(whole("num_adapt", num_adapt, 0), swap_every)
    number = len(betas)
    pairs = np.arange(number - 1)
    #: Replicas that `algorithm` moves.
    moved = number - (refresh is not None and betas[-1] == 0.0)

    def init(key, position, data):
        keys, data = random.split(key, number), divided(data, number)
        inner = jax.vmap(lambda k: algorithm.init(k, position, data))(keys)
        replica = jnp.arange(number, dtype=jnp.int32)
        return ParallelTemperingState(
            inner, replica, jnp.zeros((), jnp.int32), initial_ladder(betas)
        )

    def move(key, inner, data, beta):
        """Move every replica: the states, the info of the first, and the log likelihoods."""
        keys = random.split(key, number)
        last = jax.tree.map(lambda leaf: leaf[-1], inner)
        inner = jax.tree.map(lambda leaf: leaf[:moved], inner)
        step = jax.vmap(algorithm.step, (0, 0, None, 0))
        inner, info = step(keys[:moved], inner, data, beta[:moved])
        if likelihood_of_info is None:
            likelihood = jax.vmap(log_likelihood, (0, None))(inner, data)
        else:
            likelihood = jax.vmap(likelihood_of_info)(info)
        if moved < number:
            last = refresh(keys[-1], last, data)
            new = last, log_likelihood(last, data)
            inner, likelihood = jax.tree.map(
                lambda a, b: jnp.concatenate([a, b[None].astype(a.dtype)]), (inner, likelihood), new
            )
        return inner, jax.tree.map(lambda leaf: leaf[0], info), likelihood

    def step(key, state, data, inverse_temperature=1.0):
        key_move, key_swap = random.split(key)
        data = divided(data, number)
        now = state.ladder.inverse_temperatures
        beta = now * inverse_temperature
        inner, cold, likelihood = move(key_move, state.inner, data, beta)

        taken = state.step + 1
        parity = (taken // swap_every - 1) % 2
        proposed = (taken % swap_every == 0) & (pairs % 2 == parity)
        probability = _swap_probability(beta, likelihood)
        uniform = random.uniform(key_swap, probability.shape, probability.dtype)
        source = _sources(proposed & (uniform < probability))

        inner, replica, likelihood = jax.tree.map(
            lambda leaf: leaf[source], (inner, state.replica, likelihood)
        )
        population = None
        if population_move is not None:
            key_population = random.fold_in(key_swap, 1)
            inner, likelihood, population = population_move(
                key_population, inner, data, beta, likelihood
            )
        if describe is not None:
            state_now = jax.tree.map(lambda leaf: leaf[0], inner)
            cold = describe(cold, state_now, data, inverse_temperature)
        swapped = jnp.where(proposed, probability, jnp.nan)
        info = ParallelTemperingInfo(cold, swapped, replica, likelihood, now, population)
        ladder = state.ladder
        if ends:
            ladder = _adapted(ladder, swapped, inverse_temperature == 1.0, ends)
        return ParallelTemperingState(inner, replica, taken, ladder), info

    def observe(state, info):
        cold = jax.tree.map(lambda leaf: leaf[0], state.inner)
        named = {n: getattr(info, n) for n in OBSERVED}
        if info.population is not None:
            named["population_accepted"] = info.population
        return algorithm.observe(cold, info.inner) | named

    return Algorithm(init, step, observe)


#: What `parallel_tempering` observes of its ladder, by name.
OBSERVED = ("swap_probability", "replica", "inverse_temperatures")


def initial_ladder(betas: Sequence[float]) -> LadderState:
    """Return the state of a ladder before its first step."""
    # In float32 whatever the states are: strong float64 would make float32 states float64.
    counts = jnp.zeros(len(betas) - 1, jnp.float32)
    return LadderState(jnp.asarray(betas, jnp.float32), counts, counts, jnp.zeros((), jnp.int32))


def _ends_of_rounds(num_adapt: int, swap_every: int) -> tuple[int, ...]:
    """Return after which steps of adaptation the ladder is placed anew: n, n / 2, n / 4 and so on.

    The last round is the longest, and starts from a ladder that is nearly right.
    """
    ends = []
    while num_adapt >= FIRST_ROUND * swap_every or (num_adapt and not ends):
        ends.append(num_adapt)
        num_adapt //= 2
    return tuple(reversed(ends))


def _adapted(ladder: LadderState, swapped, counts, ends) -> LadderState:
    """Count the probabilities of swaps, NaN where none was proposed; at an end place the ladder."""
    counts = counts & (ladder.step < ends[-1])
    proposed = counts & ~jnp.isnan(swapped)
    rejected = ladder.rejected + jnp.where(proposed, 1.0 - swapped, 0.0).astype(jnp.float32)
    proposed = ladder.proposed + proposed
    step = ladder.step + counts
    end = counts & jnp.isin(step, np.array(ends))
    # One more proposal of each pair, rejected as often as all on average: rounds are short.
    mean = jnp.sum(rejected) / jnp.maximum(jnp.sum(proposed), 1.0)
    rates = (rejected + mean) / (proposed + 1.0)
    betas = ladder.inverse_temperatures
    placed = equalised(betas, rates, len(betas))
    seen = end & jnp.all(proposed > 0)
    return LadderState(
        jnp.where(seen, placed, betas),
        jnp.where(end, 0.0, rejected),
        jnp.where(end, 0.0, proposed),
        step,
    )


def _swap_probability(beta, log_likelihood):
    """Return min(1, exp((beta_i - beta_j)(l_j - l_i))) of the neighbours i, j = i + 1."""
    gain = (beta[:-1] - beta[1:]) * (log_likelihood[1:] - log_likelihood[:-1])
    # Both likelihoods zero, or one not a number: such states are left where they are.
    return acceptance(gain)


def _sources(accepted):
    """Return whose state each temperature takes, given which pairs swap (never two in a row)."""
    from_hotter, from_colder = jnp.pad(accepted, (0, 1)), jnp.pad(accepted, (1, 0))
    return jnp.arange(len(accepted) + 1) + from_hotter - from_colder.astype(int)

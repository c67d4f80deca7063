r"""Ladders of inverse temperatures: how to place them, and how well replicas travel along them.

For a ladder :math:`1 = \beta_1 > \dots > \beta_K` let :math:`r_k` be the mean probability that an
exchange of the neighbours k and k + 1 is rejected. Their sum estimates the *communication barrier*
:math:`\Lambda` between the two ends, which belongs to the problem and not to the ladder. Syed,
Bouchard-Côté, Deligiannidis and Doucet (2022) show for even and odd exchanges in turn, and replicas
that forget where they came from, that the round trips per step are

.. math::

   \tau = \Big(2 + 2 \sum_k \frac{r_k}{1 - r_k}\Big)^{-1} \le \frac{1}{2 + 2 \Lambda},

that equal :math:`r_k` are the best for a given K, and that about :math:`2 \Lambda + 1` temperatures
are the best for a given amount of work: each exchange is then accepted every other time.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError
from bmfjax.specs.samplers import checked_ladder

#: Least rejection of a pair, so that the barrier rises along the whole ladder.
LEAST_REJECTION = 1e-3


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


class Communication(NamedTuple):
    """What rejected exchanges say of a ladder, for each chain.

    Attributes
    ----------
    rejection : (chain, pair) float64 array
        Mean probability that an exchange was rejected; NaN where none was proposed.
    barrier : (chain,) float64 array
        The communication barrier between the ends of the ladder. An underestimate where a pair
        is hardly ever exchanged.
    num_temperatures : (chain,) int array
        The number of temperatures that is recommended.
    round_trip_rate : (chain,) float64 array
        Round trips per proposal round that this ladder would make if replicas forgot their past
        between exchanges. Fewer are made where they do not.
    best_rate : (chain,) float64 array
        The same of a ladder with very many temperatures: none makes more.
    """

    rejection: np.ndarray
    barrier: np.ndarray
    num_temperatures: np.ndarray
    round_trip_rate: np.ndarray
    best_rate: np.ndarray


def communication_barrier(swap_probability) -> Communication:
    r"""Estimate the communication barrier of a ladder, and what it implies.

    With :math:`r_k` the mean rejection of pair k, one less `swap_rates`, the barrier is
    :math:`\Lambda = \sum_k r_k`, the number of temperatures recommended
    :math:`\lceil 2 \Lambda \rceil + 1`, the round-trip rate of this ladder
    :math:`1 / (2 + 2 \sum_k r_k / (1 - r_k))` and the best one :math:`1 / (2 + 2 \Lambda)`.
    Compare `round_trips` divided by the number of steps (with `swap_every`: of proposal rounds).

    Parameters
    ----------
    swap_probability : (chain, step, pair) array
        As `parallel_tempering` observes it, of steps after the ladder was frozen.

    Returns
    -------
    Communication

    Raises
    ------
    InputError
        For another number of axes.

    References
    ----------
    Syed, Bouchard-Côté, Deligiannidis, Doucet (2022), "Non-reversible parallel tempering: a
    scalable highly parallel MCMC scheme", JRSS B 84(2), theorem 1 and section 5.

    Examples
    --------
    >>> nan = np.nan
    >>> found = communication_barrier([[[0.5, nan, 0.5], [nan, 0.5, nan]]])
    >>> found.barrier, found.num_temperatures, found.round_trip_rate, found.best_rate
    (array([1.5]), array([4]), array([0.125]), array([0.2]))
    """
    rejection = 1.0 - swap_rates(swap_probability)
    barrier = rejection.sum(1)
    with np.errstate(divide="ignore"):  # a pair that is never exchanged: no round trips
        odds = (rejection / (1.0 - rejection)).sum(1)
    known = np.where(np.isnan(barrier), 0.0, barrier)  # NaN: a pair was never proposed
    number = np.ceil(2.0 * known).astype(int) + 1
    rates = (1.0 / (2.0 + 2.0 * total) for total in (odds, barrier))
    return Communication(rejection, barrier, number, *rates)


def equalised_ladder(
    inverse_temperatures, rejection, number: int | None = None
) -> tuple[float, ...]:
    r"""Return the ladder on which every pair of neighbours would reject exchanges equally often.

    The cumulative barrier :math:`\Lambda(\beta)`, known at the temperatures as the sum of the
    rejections of hotter pairs, is interpolated linearly. The new temperatures part it equally.
    The ends stay.

    Parameters
    ----------
    inverse_temperatures : sequence of float
        The ladder that was run, falling from 1.0.
    rejection : (pair,) array
        Mean probability that an exchange of each pair of neighbours was rejected.
    number : int, optional
        Number of new temperatures, at least 2; default as many as before.

    Returns
    -------
    tuple of float

    Raises
    ------
    InputError
        For a ladder out of order, or rejections that are not probabilities of its pairs.

    References
    ----------
    Syed, Bouchard-Côté, Deligiannidis, Doucet (2022), algorithm 3; they interpolate by a monotone
    cubic. Both have the same fixed point.

    Examples
    --------
    The colder pair rejects three times as often, so that the temperature between moves up:

    >>> equalised_ladder((1.0, 0.4, 0.0), [0.6, 0.2])
    (1.0, 0.6, 0.0)
    >>> equalised_ladder((1.0, 0.4, 0.0), [0.6, 0.2], number=5)
    (1.0, 0.8, 0.6, 0.4, 0.0)
    """
    betas = checked_ladder("inverse_temperatures", inverse_temperatures)
    rejection = np.asarray(rejection, float)
    number = len(betas) if number is None else whole("number", number, 2)
    shape = (len(betas) - 1,)
    if rejection.shape != shape or not ((rejection >= 0) & (rejection <= 1)).all():
        raise InputError(
            f"rejection has shape {rejection.shape} and values {rejection.tolist()}; give a "
            f"probability for each of the {shape[0]} pairs of neighbours"
        )
    found = np.asarray(equalised(jnp.asarray(betas), jnp.asarray(rejection), number))
    return (1.0, *(float(f"{b:.6g}") for b in found[1:-1]), betas[-1])


def equalised(betas, rejection, number: int):
    """Compute `equalised_ladder` of checked arrays, of fixed size and under ``jit``."""
    rejection = jnp.maximum(rejection.astype(betas.dtype), LEAST_REJECTION)
    barrier = jnp.concatenate([jnp.zeros_like(betas[:1]), jnp.cumsum(rejection)])
    parts = jnp.arange(1, number - 1) * (barrier[-1] / (number - 1))
    between = jnp.interp(parts, barrier, betas)
    return jnp.concatenate([betas[:1], between.astype(betas.dtype), betas[-1:]])


def _checked_trace(name, values):
    values = np.asarray(values)
    if values.ndim != 3:
        raise InputError(f"{name} has {values.ndim} axes; give it as (chain, step, ...)")
    return values

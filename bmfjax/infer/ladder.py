"""The ladder of a parallel tempering, and what its traces say of how well states travel."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bmfjax.data.errors import InputError


def geometric_ladder(lowest: float, number: int) -> tuple[float, ...]:
    """Inverse temperatures from 1 to `lowest` in equal ratios.

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
    check_whole("number", number, 2)
    if not 0 < lowest < 1:
        raise InputError(f"lowest is {lowest}; give an inverse temperature above 0 and below 1")
    return tuple(float(lowest) ** (k / (number - 1)) for k in range(number))


def round_trips(replica) -> np.ndarray:
    """How often a replica went from the coldest temperature to the hottest and back.

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
    """Mean probability with which proposed exchanges were accepted.

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


def checked_ladder(inverse_temperatures) -> tuple[float, ...]:
    """Inverse temperatures as floats, falling from one."""
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


def check_whole(name, value, least):
    """Refuse what is not a whole number of at least `least`."""
    if not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} is {value!r}; give a whole number of at least {least}")

"""Boolean factors from relaxed ones by a threshold, chosen by its reconstruction errors.

The baselines of the literature: one threshold for both matrices (Gonsior 2019) or one for each
(Hess, Morik, Piatkowski 2017), by grid search. Here as there the errors are counted against a
reference matrix. :func:`threshold` and :func:`threshold_pairs` count against the observed data,
which is all that a user has; :func:`oracle_threshold` counts against a known truth, which is how
the tables of Gonsior (2019) were made.

Everywhere a value *above* the threshold is a one, so that 0 keeps every positive value and 1 none.
"""

from typing import NamedTuple

import numpy as np

from bmfjax.data.errors import InputError
from bmfjax.diagnostics.reconstruction import check_reference, count_wrong_entries

SINGLE_GRID = np.arange(1, 100) / 100
PAIR_GRID = np.arange(21) / 20


class Threshold(NamedTuple):
    """One threshold for both factor matrices.

    Attributes
    ----------
    error : int
        Smallest number of wrong entries over the grid.
    tau_min, tau_max : float
        Smallest and largest threshold with that number. Those between need not reach it.
    error_at_half : int
        Number of wrong entries at threshold 0.5, whether or not the grid holds it.
    grid : array, (candidates,), float64
    errors : array, (candidates,), int64
        Wrong entries at each threshold of the grid.
    """

    error: int
    tau_min: float
    tau_max: float
    error_at_half: int
    grid: np.ndarray
    errors: np.ndarray

    @property
    def tau(self):
        """The threshold to use: the middle of the longest run of best thresholds.

        The best thresholds may fall into several runs, so the middle of `tau_min` and `tau_max`
        need not be one of them; the middle of a run is, and the longest run is the one where the
        result depends least on the choice. Among equally long runs the one nearest to 0.5 is taken.
        """
        best = np.flatnonzero(self.errors == self.error)
        runs = np.split(best, np.flatnonzero(np.diff(best) > 1) + 1)
        centres = [self.grid[run[(len(run) - 1) // 2]] for run in runs]
        order = [(-len(run), abs(tau - 0.5)) for run, tau in zip(runs, centres, strict=True)]
        return float(centres[order.index(min(order))])


class ThresholdPair(NamedTuple):
    """One threshold for each factor matrix.

    Attributes
    ----------
    error : int
        Smallest number of wrong entries over the grid of pairs.
    tau_usage, tau_basis : float
        The best pair; of several the one nearest to (0.5, 0.5).
    grid : array, (candidates,), float64
    errors : array, (candidates, candidates), int64
        Wrong entries, usage thresholds down and basis thresholds across.
    """

    error: int
    tau_usage: float
    tau_basis: float
    grid: np.ndarray
    errors: np.ndarray


def threshold(usage, basis, data, observed=None, grid=SINGLE_GRID):
    """Find one threshold for both matrices with the fewest errors on the observed data.

    Parameters
    ----------
    usage : array, (rows, rank)
        In [0, 1], such as posterior means.
    basis : array, (columns, rank)
        In [0, 1].
    data : array, (rows, columns)
        0/1 or bool; what it holds at unobserved entries does not matter.
    observed : array, (rows, columns), bool, optional
        Entries that count; all by default.
    grid : array, (candidates,)
        Thresholds to try, increasing.

    Returns
    -------
    Threshold

    Raises
    ------
    InputError
        Shapes that do not belong together, an observed entry that is neither 0 nor 1, factors that
        are not finite, or an empty or unsorted grid.

    References
    ----------
    Gonsior (2019), "Probabilistic Boolean matrix factorisation", algorithm 4.1, there with the
    noise-free matrix in the place of the data (:func:`oracle_threshold`).

    Examples
    --------
    >>> usage, basis = np.array([[0.4], [0.1]]), np.array([[0.6], [0.3]])
    >>> best = threshold(usage, basis, [[1, 1], [0, 0]])
    >>> best.error, best.tau_min, best.tau_max, best.error_at_half
    (0, 0.1, 0.29, 2)
    """
    usage, basis = np.asarray(usage), np.asarray(basis)
    ones, counted = check_reference(usage, basis, data, observed)
    grid = _checked_grid(grid)

    def errors_at(tau):
        return count_wrong_entries(usage > tau, basis > tau, ones, counted)

    errors = np.array([errors_at(tau) for tau in grid])
    best = np.flatnonzero(errors == errors.min())
    return Threshold(
        int(errors.min()),
        float(grid[best[0]]),
        float(grid[best[-1]]),
        errors_at(0.5),
        grid,
        errors,
    )


def oracle_threshold(usage, basis, truth):
    """Find the threshold with the fewest errors on the noise-free truth; for experiments only.

    A user of real data has no truth: the errors given here are a bound on what any choice of one
    threshold can reach, and not what :func:`threshold` reaches.

    Parameters
    ----------
    usage : array, (rows, rank)
        In [0, 1].
    basis : array, (columns, rank)
        In [0, 1].
    truth : array, (rows, columns)
        The matrix before noise, 0/1 or bool.

    Returns
    -------
    Threshold
        On the grid 0.01, 0.02, ... 0.99.

    Raises
    ------
    InputError
        As :func:`threshold`.

    References
    ----------
    Gonsior (2019), algorithm 4.1 and equation 4.3.

    Examples
    --------
    >>> oracle_threshold(np.array([[0.4]]), np.array([[0.6]]), [[1]]).tau_max
    0.39
    """
    return threshold(usage, basis, truth)


def threshold_pairs(usage, basis, data, observed=None, grid=PAIR_GRID):
    """Find one threshold for each matrix with the fewest errors on the observed data.

    Parameters
    ----------
    usage, basis, data, observed
        As for :func:`threshold`.
    grid : array, (candidates,)
        Thresholds to try for each matrix, increasing.

    Returns
    -------
    ThresholdPair

    Raises
    ------
    InputError
        As :func:`threshold`.

    References
    ----------
    Hess, Morik, Piatkowski (2017), "The PRIMPING routine: tiling through proximal alternating
    linearized minimization", Data Mining and Knowledge Discovery 31, with their grid.

    Examples
    --------
    >>> best = threshold_pairs(np.array([[0.9], [0.6]]), np.array([[0.3], [0.2]]), [[1, 0], [0, 0]])
    >>> best.error, best.tau_usage, best.tau_basis
    (0, 0.6, 0.25)
    """
    usage, basis = np.asarray(usage), np.asarray(basis)
    ones, counted = check_reference(usage, basis, data, observed)
    grid = _checked_grid(grid)
    usages, bases = ([x > tau for tau in grid] for x in (usage, basis))
    errors = np.array([[count_wrong_entries(u, b, ones, counted) for b in bases] for u in usages])
    down, across = np.nonzero(errors == errors.min())
    nearest = np.argmin((grid[down] - 0.5) ** 2 + (grid[across] - 0.5) ** 2)
    return ThresholdPair(
        int(errors.min()),
        float(grid[down[nearest]]),
        float(grid[across[nearest]]),
        grid,
        errors,
    )


def _checked_grid(grid):
    grid = np.asarray(grid, float)
    if grid.ndim != 1 or not len(grid) or not (np.diff(grid) > 0).all():
        raise InputError(
            "the grid of thresholds is empty or not increasing; give increasing numbers"
        )
    return grid

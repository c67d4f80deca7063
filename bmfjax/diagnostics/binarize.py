"""Boolean factors with the smallest expected loss, from posterior probabilities.

With ``p_ij`` the posterior probability that the true entry (i, j) is one, the expected number of
wrong entries of a Boolean product A o B is *exactly* linear in the product,

    E ||C - A o B||_1 = sum_ij p_ij + sum_ij (1 - 2 p_ij) (A o B)_ij,

because every entry of A o B is 0 or 1. So the best product is found from the probabilities alone:
no grid of thresholds, no draws, and missing entries take part through their probability. With a
false one costing c_FP and a missed one c_FN it reads

    c_FN sum_ij p_ij - sum_ij gain_ij (A o B)_ij,     gain_ij = c_FN p_ij - c_FP (1 - p_ij).

The maximum over all products of a given rank is hard to find (it contains exact Boolean
factorisation), so what is given is the best of a few local optima.
"""

from typing import NamedTuple

import numpy as np

from bmfjax.data.checks import positive, probabilities, whole
from bmfjax.data.errors import InputError
from bmfjax.diagnostics.flips import ascend, coverage, objective
from bmfjax.diagnostics.reconstruction import check_boolean, check_factors
from bmfjax.diagnostics.threshold import SINGLE_GRID


class Binarized(NamedTuple):
    """Boolean factors and what they are expected to cost.

    Attributes
    ----------
    usage : array, (rows, rank), bool
    basis : array, (columns, rank), bool
        A factor that adds nothing is empty in both.
    expected_loss : float
        Expected number of wrong entries under the probabilities given, each weighted by its cost.
    """

    usage: np.ndarray
    basis: np.ndarray
    expected_loss: float


def binarize(usage, basis, probability, *, false_positive_cost=1.0, false_negative_cost=1.0):
    """Find Boolean factors with a small expected loss, starting from relaxed ones.

    Three starts (threshold 0.5; the best single threshold; the best thresholds for each factor,
    :func:`factor_thresholds`) are each improved by :func:`expected_hamming_factors`, and the best
    result is kept.

    Parameters
    ----------
    usage : array, (rows, rank)
        Aligned posterior means in [0, 1], or Boolean factors. They only give the starts.
    basis : array, (columns, rank)
        The same for the basis.
    probability : array, (rows, columns), float
        Posterior probability of a one at every entry, observed or not.
    false_positive_cost, false_negative_cost : float
        Cost of a one that should be zero, and of a zero that should be one; positive.

    Returns
    -------
    Binarized

    Raises
    ------
    InputError
        Shapes that do not belong together, factors that are not finite, probabilities outside
        [0, 1], or a cost that is not positive.

    Notes
    -----
    The result is as good as the probabilities: where these are pulled towards 1/2, as in a relaxed
    model that learns little from sparse data, factors can be lost.

    Examples
    --------
    >>> probability = np.array([[0.9, 0.8, 0.1], [0.9, 0.7, 0.2], [0.1, 0.1, 0.1]])
    >>> usage, basis = np.array([[0.4], [0.3], [0.1]]), np.array([[0.6], [0.2], [0.1]])
    >>> found = binarize(usage, basis, probability)
    >>> found.usage[:, 0], found.basis[:, 0], round(found.expected_loss, 3)
    (array([ True,  True, False]), array([ True,  True, False]), 1.3)
    """
    usage, basis = np.asarray(usage), np.asarray(basis)
    probability = _checked(probability, usage, basis)
    costs = {
        "false_positive_cost": false_positive_cost,
        "false_negative_cost": false_negative_cost,
    }
    gain = _gain(probability, **costs)
    tau_usage, tau_basis = factor_thresholds(probability, usage, basis, **costs)
    tau = _best_single(gain, usage, basis)
    starts = [(0.5, 0.5), (tau, tau), (tau_usage, tau_basis)]
    results = [
        expected_hamming_factors(probability, usage > u, basis > b, **costs) for u, b in starts
    ]
    return min(results, key=lambda result: result.expected_loss)


def expected_hamming_factors(
    probability, usage, basis, *, max_sweeps=50, false_positive_cost=1.0, false_negative_cost=1.0
):
    """Improve Boolean factors to a local optimum of the expected loss.

    Column after column is set to its exact best values given all others: ``a_ik`` becomes 1 if and
    only if the summed gain of the entries (i, j) with ``b_jk = 1`` that no other factor covers is
    positive. The expected loss never rises, up to rounding.

    Parameters
    ----------
    probability : array, (rows, columns), float
        Posterior probability of a one at every entry.
    usage : array, (rows, rank), bool
        Start.
    basis : array, (columns, rank), bool
        Start.
    max_sweeps : int
        Passes over all factors at most; a few suffice.
    false_positive_cost, false_negative_cost : float
        As for :func:`binarize`.

    Returns
    -------
    Binarized
        No single column of usage or basis can be changed to lower its expected loss, unless
        `max_sweeps` cut the search short.

    Raises
    ------
    InputError
        As :func:`binarize`, or a start that is not Boolean.

    Examples
    --------
    >>> probability = np.array([[0.9, 0.8], [0.9, 0.4]])
    >>> start = np.array([[True], [False]])
    >>> found = expected_hamming_factors(probability, start, start)
    >>> found.usage[:, 0], found.basis[:, 0], round(found.expected_loss, 3)
    (array([ True,  True]), array([ True,  True]), 1.0)
    """
    usage, basis = np.asarray(usage), np.asarray(basis)
    check_boolean(usage, basis)
    whole("max_sweeps", max_sweeps)
    probability = _checked(probability, usage, basis)
    gain = _gain(probability, false_positive_cost, false_negative_cost)
    usage, basis = ascend(gain, usage, basis, max_sweeps)
    loss = false_negative_cost * probability.sum(dtype=float) - objective(gain, usage, basis)
    return Binarized(usage, basis, float(loss))


def expected_loss(probability, usage, basis) -> float:
    """Return the expected number of wrong entries of the Boolean product of factors.

    Parameters
    ----------
    probability : array, (rows, columns), float
        Posterior probability of a one at every entry.
    usage, basis : arrays, bool

    Returns
    -------
    float

    Examples
    --------
    >>> expected_loss(np.array([[0.9, 0.2]]), np.array([[True]]), np.array([[True], [False]]))
    0.3
    """
    probability = _checked(probability, usage, basis)
    gain = 2.0 * probability - 1.0
    return round(float(probability.sum(dtype=float) - objective(gain, usage, basis)), 9)


def factor_thresholds(
    probability, usage, basis, *, max_sweeps=5, false_positive_cost=1.0, false_negative_cost=1.0
):
    """Find thresholds for each factor, with a small expected loss.

    For one factor with all others fixed, rows in the order of falling usage and columns in the
    order of falling basis, every pair of thresholds covers a leading block: cumulative sums of the
    gains not covered by other factors give the exact best pair of all. The factors are taken in
    turn until no pair changes, starting from the best single threshold.

    Parameters
    ----------
    probability : array, (rows, columns), float
        Posterior probability of a one at every entry.
    usage : array, (rows, rank)
        In [0, 1].
    basis : array, (columns, rank)
        In [0, 1].
    max_sweeps : int
        Passes over all factors at most.
    false_positive_cost, false_negative_cost : float
        As for :func:`binarize`.

    Returns
    -------
    usage_thresholds, basis_thresholds : arrays, (rank,), float64
        A value *above* its threshold is a one. Half-way between the last value that is a one and
        the next below it; -inf where all are ones. inf in both where the factor is best left
        empty.

    Raises
    ------
    InputError
        As :func:`binarize`.

    Examples
    --------
    >>> probability = np.array([[0.9, 0.9], [0.9, 0.9], [0.1, 0.1]])
    >>> usage, basis = np.array([[0.3], [0.2], [0.1]]), np.array([[0.9], [0.8]])
    >>> tau_usage, tau_basis = factor_thresholds(probability, usage, basis)
    >>> tau_usage.round(3), tau_basis
    (array([0.15]), array([-inf]))
    """
    usage, basis = np.asarray(usage), np.asarray(basis)
    whole("max_sweeps", max_sweeps)
    gain = _gain(_checked(probability, usage, basis), false_positive_cost, false_negative_cost)
    tau = _best_single(gain, usage, basis)
    taus = np.full((2, usage.shape[1]), tau)
    on_usage, on_basis = usage > tau, basis > tau
    covers = coverage(on_usage, on_basis)
    for _ in range(max_sweeps):
        before = taus.copy()
        for k in range(usage.shape[1]):
            covers[np.ix_(on_usage[:, k], on_basis[:, k])] -= 1
            taus[:, k] = _best_pair(gain, covers, usage[:, k], basis[:, k])
            on_usage[:, k], on_basis[:, k] = usage[:, k] > taus[0, k], basis[:, k] > taus[1, k]
            covers[np.ix_(on_usage[:, k], on_basis[:, k])] += 1
        if np.array_equal(taus, before):
            break
    return taus[0], taus[1]


def _best_pair(gain, covers_without, usage, basis):
    """Return the best thresholds of one factor, given how often the others cover each entry."""
    rows, columns = np.argsort(-usage, kind="stable"), np.argsort(-basis, kind="stable")
    # Equal values fall on one side of any threshold, so a block may end only where values change.
    row_ends, row_taus = _cuts(usage[rows])
    column_ends, column_taus = _cuts(basis[columns])
    sums = (gain * (covers_without == 0))[np.ix_(rows, columns)]
    for axis, ends in ((0, row_ends), (1, column_ends)):
        np.cumsum(sums, axis=axis, out=sums)
        if len(ends) < sums.shape[axis]:
            sums = np.take(sums, ends, axis=axis)
    row, column = np.unravel_index(sums.argmax(), sums.shape)
    if sums[row, column] <= 0:
        return np.inf, np.inf
    return row_taus[row], column_taus[column]


def _cuts(falling):
    """Return the last positions of the runs of equal values, and a threshold behind each."""
    ends = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))
    below = np.append(falling[ends[:-1] + 1], -np.inf)
    return ends, (falling[ends] + below) / 2.0


def _best_single(gain, usage, basis):
    """Return the one threshold of the grid with the smallest expected loss."""
    values = [objective(gain, usage > tau, basis > tau) for tau in SINGLE_GRID]
    return float(SINGLE_GRID[int(np.argmax(values))])


def _gain(probability, false_positive_cost, false_negative_cost):
    positive("false_positive_cost", false_positive_cost)
    positive("false_negative_cost", false_negative_cost)
    return false_negative_cost * probability - false_positive_cost * (1 - probability)


def _checked(probability, usage, basis):
    check_factors(usage, basis)
    probability = np.asarray(probability)
    if probability.dtype != np.float32:
        probability = probability.astype(float)
    shape = (len(usage), len(basis))
    if probability.shape != shape:
        raise InputError(
            f"the factors make a matrix of shape {shape} and the probability has "
            f"{probability.shape}; give one probability for every entry"
        )
    probabilities(probability)
    return probability

r"""How far apart the solutions are that a set of draws holds.

Chains that mix may all sit in one mode. Coverage (Masood, Pan, Doshi-Velez 2016, "An empirical
comparison of sampling quality metrics: a case study for Bayesian nonnegative matrix
factorization", section 3) is a property of the set of draws and not of their order: distances
between factor matrices up to order and scale of the factors, their maximum and mean, and how many
balls of a radius cover the set.

Columns are scaled to unit norm, so that matrices that differ by a monomial matrix are at distance
zero. Each distance has a matching of its own.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, milp
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from bmfjax.data.checks import one_of, whole
from bmfjax.data.errors import InputError

METRICS = ("angle", "line", "l1")
#: Numbers in a block of pairs x factors x factors.
BLOCK = 500_000
#: Factors up to which all orders are tried at once.
MAX_ENUMERATED = 4


class Coverage(NamedTuple):
    """How far a set of draws reaches.

    Attributes
    ----------
    largest, mean : float
        Those of the pairwise distances (equations 4 and 5; the mean counts each draw's distance to
        itself, as there).
    radii : (number,) float
    covering : (number,) int
        Balls of that radius around draws that cover all of them: chosen greedily, an upper bound,
        or as few as there can be (`exact`).
    """

    largest: float
    mean: float
    radii: np.ndarray
    covering: np.ndarray

    def persistence(self, number: int) -> float:
        """Return the share of the radii at which exactly `number` balls are needed."""
        if self.largest == 0:
            return float(number == 1)
        return float((self.covering == number).mean())


def pairwise_distances(draws, others=None, metric: str = "angle") -> np.ndarray:
    r"""Return distances between factor matrices, up to order and scale of the factors.

    "l1": the mean over the factors of the :math:`\ell_1` distance of columns of unit
    :math:`\ell_1` norm, under the order with the smallest one (equation 2 divided by the rank; 0
    to 2). "angle": the largest angle between columns in degrees, under the order with the smallest
    mean angle (equation 3; 0 to 90 for nonnegative matrices, else 180). "line": the same between
    the lines on which the columns lie, for real factors, whose signs mean nothing (0 to 90).

    Parameters
    ----------
    draws : (draw, lines, rank) float
    others : (other, lines, rank) float, optional
        Default the draws themselves.
    metric : {"angle", "line", "l1"}

    Returns
    -------
    (draw, other) float64
        A column of zeros is at 90 degrees, or an l1 distance of 1, from any that has a direction,
        and at 0 from another one of zeros. Angles are right to about a millionth of a degree.

    Raises
    ------
    InputError
        For shapes that do not fit, numbers that are not finite, or another metric.

    Examples
    --------
    >>> one = np.array([[1.0, 0.0], [1.0, 2.0]])
    >>> pairwise_distances(np.stack([one, 3 * one[:, ::-1], np.eye(2)])).round(6)
    array([[ 0.,  0., 45.],
           [ 0.,  0., 45.],
           [45., 45.,  0.]])
    """
    one_of("metric", metric, METRICS)
    left, same = _checked(draws, "draws"), others is None
    right = left if same else _checked(others, "others")
    if left.shape[1:] != right.shape[1:]:
        raise InputError(
            f"draws are {left.shape[1:]} and others {right.shape[1:]}; give matrices of one shape"
        )
    rank = left.shape[2]
    left, right = (_unit_columns(f, metric) for f in (left, right))
    out = np.empty((len(left), len(right)))
    step = max(1, BLOCK // (len(right) * rank * rank))
    for i in range(0, len(left), step):
        # The part above the diagonal of a symmetric table.
        first = i if same else 0
        block = left[i : i + step]
        costs = _costs(block, right[first:], metric).reshape(len(block), rank, -1, rank)
        matched = _matched(costs.transpose(0, 2, 1, 3).reshape(-1, rank, rank))
        found = matched.mean(1) if metric == "l1" else matched.max(1)
        out[i : i + step, first:] = found.reshape(len(block), -1)
    if same:
        upper = np.triu(out, 1)
        out = upper + upper.T
    return out


def coverage(distances, number: int = 100, *, exact: bool = False) -> Coverage:
    """Return the extent and covering numbers of a set of draws from its distances.

    Parameters
    ----------
    distances : (draw, draw) float
        As `pairwise_distances` gives them.
    number : int
        Radii, evenly spaced from 0 to the largest distance.
    exact : bool
        Find the fewest balls of every radius, as `covering_number` does.

    Returns
    -------
    Coverage
        For a single draw the distances are 0, and one ball covers it.

    Examples
    --------
    >>> two = np.array([[0.0, 1.0, 9.0], [1.0, 0.0, 9.0], [9.0, 9.0, 0.0]])
    >>> found = coverage(two, number=10)
    >>> found.largest, found.covering.tolist()
    (9.0, [3, 2, 2, 2, 2, 2, 2, 2, 2, 1])
    >>> found.persistence(2)
    0.8
    """
    distances = np.asarray(distances, float)
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1] or not distances.size:
        raise InputError(f"distances are {distances.shape}; give those of all pairs of draws")
    whole("number of radii", number)
    largest = float(distances.max())
    radii = np.linspace(0.0, largest, number)
    found = [covering_number(distances, r, exact=exact) for r in radii]
    # What covers with small balls covers with large ones.
    return Coverage(largest, float(distances.mean()), radii, np.minimum.accumulate(found))


def covering_number(distances, radius: float, *, exact: bool = False) -> int:
    """Count balls of a radius around draws that cover all draws.

    Parameters
    ----------
    distances : (draw, draw) float
    radius : float
    exact : bool
        Find the fewest by integer programming (HiGHS). By default balls are chosen greedily
        (Chvatal 1979), as in the study: at most 1 + log(draws) times as many. The fewest take
        milliseconds for 100 draws, and may take minutes for thousands.

    Returns
    -------
    int

    Raises
    ------
    RuntimeError
        If the program stops without the fewest.

    Examples
    --------
    >>> row = np.array([0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    >>> distances = np.abs(row[:, None] - row)
    >>> covering_number(distances, 2.0), covering_number(distances, 2.0, exact=True)
    (3, 2)
    """
    near = np.asarray(distances) <= radius
    np.fill_diagonal(near, True)
    if exact:
        return _fewest(near)
    open_, gains, balls = np.ones(len(near), bool), near.sum(1), 0
    while open_.any():
        covered = near[np.argmax(gains)] & open_
        gains = gains - near[:, covered].sum(1)
        open_ &= ~covered
        balls += 1
    return balls


def _fewest(near) -> int:
    """Return the size of the smallest set of draws with one near to each draw."""
    each = np.ones(len(near))
    reached = LinearConstraint(csr_array(near.astype(float)), lb=1.0)
    found = milp(each, integrality=each, bounds=Bounds(0, 1), constraints=reached)
    if not found.success:
        raise RuntimeError(f"the smallest covering was not found: {found.message}")
    return round(found.fun)


def _checked(draws, name):
    draws = np.asarray(draws, float)
    if draws.ndim != 3 or not draws.size:
        raise InputError(f"{name} are {draws.shape}; give (draw, lines, rank), one draw at least")
    if not np.isfinite(draws).all():
        raise InputError(f"{name} have numbers that are not finite; leave those draws out")
    return draws


def _unit_columns(draws, metric):
    """Scale columns to unit norm; leave those of zeros alone."""
    norm = np.abs(draws).sum(1) if metric == "l1" else np.sqrt((draws**2).sum(1))
    return draws / np.where(norm > 0, norm, 1.0)[:, None]


def _costs(left, right, metric):
    """Return distances of columns of draws to those of others: (draws x rank, others x rank)."""
    one, other = (f.transpose(0, 2, 1).reshape(-1, f.shape[1]) for f in (left, right))
    if metric == "l1":
        return cdist(one, other, "cityblock")
    cosine = one @ other.T
    angle = np.arccos(np.clip(np.abs(cosine) if metric == "line" else cosine, -1.0, 1.0))
    empty = [~f.any(1) for f in (one, other)]
    mixed = empty[0][:, None] != empty[1][None]
    both = empty[0][:, None] & empty[1][None]
    return np.degrees(np.where(mixed, 0.5 * np.pi, np.where(both, 0.0, angle)))


def _matched(costs):
    """Return costs of matched factors in the best order: (pair, rank) from (pair, rank, rank)."""
    rank = costs.shape[-1]
    if rank <= MAX_ENUMERATED:
        orders = np.array(list(itertools.permutations(range(rank))))
        each = costs[:, np.arange(rank), orders]
        return each[np.arange(len(costs)), each.sum(2).argmin(1)]
    # Where every factor's nearest is another one, that is the best order.
    order = costs.argmin(2)
    distinct = (np.sort(order, axis=1) == np.arange(rank)).all(1)
    for pair in np.flatnonzero(~distinct):
        order[pair] = linear_sum_assignment(costs[pair])[1]
    return np.take_along_axis(costs, order[:, :, None], 2)[:, :, 0]

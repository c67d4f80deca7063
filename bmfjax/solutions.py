"""How far apart the solutions are that the draws of a fit hold."""

from __future__ import annotations

import numpy as np

from bmfjax.diagnostics import Coverage, coverage, pairwise_distances
from bmfjax.draws import subset

#: Draws of all chains together that are compared, and columns of the matrix by which.
NUM_DRAWS, MAX_LINES = 100, 500


def solutions(basis, num_draws: int = NUM_DRAWS, *, signed: bool = True) -> Coverage:
    """Coverage of the basis by the largest angle between matched factors, in degrees.

    Parameters
    ----------
    basis : (chain, draw, columns, rank) float or bool, or `PackedDraws`
    num_draws : int
        At most so many draws are compared, as many of each chain, evenly spread.
    signed : bool
        False for real factors, the signs of which mean nothing.

    Returns
    -------
    Coverage
        By up to 500 evenly spaced columns.

    Examples
    --------
    >>> two = np.array([np.eye(3)[:, :2], np.eye(3)[:, 1:]])[:, None]
    >>> solutions(two).largest
    90.0
    """
    chains, kept, lines, rank = basis.shape
    draws = _spaced(kept, max(1, num_draws // chains))
    some = np.asarray(subset(basis, draws, _spaced(lines, MAX_LINES)), float)
    some = some.reshape(-1, some.shape[2], rank)
    return coverage(pairwise_distances(some, metric="angle" if signed else "line"))


def farther_solutions(usage, basis) -> Coverage:
    """`solutions` of the factor matrix whose draws are farther apart.

    Nonnegative solutions may share one of the two.

    Examples
    --------
    >>> same = np.ones((2, 1, 3, 1))
    >>> other = np.array([[[[1.0], [0.0]]], [[[0.0], [1.0]]]])
    >>> farther_solutions(other, same).largest
    90.0
    """
    return max(solutions(usage), solutions(basis), key=lambda found: found.largest)


def _spaced(number, most):
    """Evenly spaced positions, the last among them."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(int)[::-1])

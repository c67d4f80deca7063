"""Whether chains found the same factors."""

from itertools import combinations

import numpy as np

from bmfjax.diagnostics.align import check_pair


def agreement(usage_means, basis_means):
    """How alike each factor is in the two chains that differ most in it.

    Parameters
    ----------
    usage_means : array, (chain, rows, rank)
        Mean of the aligned draws of each chain.
    basis_means : array, (chain, columns, rank)
        The same for the basis.

    Returns
    -------
    array, (rank,), float64
        Smallest cosine similarity of the factor's tiles over all pairs of chains, 0 to 1. The
        cosine of two tiles is the cosine of their usage columns times that of their basis columns.
        An empty tile is unlike any other (0) and like another empty one (1). nan with one chain:
        there is nothing to compare.

    Raises
    ------
    InputError
        Shapes that do not belong together.

    Examples
    --------
    >>> usage = np.array([[[1, 1], [0, 1]], [[1, 0], [0, 1]]])
    >>> basis = np.array([[[1, 1]], [[1, 1]]])
    >>> agreement(usage, basis).round(3)
    array([1.   , 0.707])
    """
    usage_means, basis_means = np.asarray(usage_means, float), np.asarray(basis_means, float)
    check_pair(usage_means, basis_means, axes=3)
    chains, _, rank = usage_means.shape
    if chains == 1:
        return np.full(rank, np.nan)
    usage_unit, usage_norm = _normalised(usage_means)
    basis_unit, basis_norm = _normalised(basis_means)
    empty = (usage_norm == 0) | (basis_norm == 0)
    lowest = np.ones(rank)
    for one, other in combinations(range(chains), 2):
        cosine = (usage_unit[one] * usage_unit[other]).sum(0)
        cosine = cosine * (basis_unit[one] * basis_unit[other]).sum(0)
        cosine = np.where(empty[one] | empty[other], 0.0, cosine)
        cosine = np.where(empty[one] & empty[other], 1.0, cosine)
        lowest = np.minimum(lowest, cosine)
    return lowest


def share_agreeing(agreement, threshold=0.8):
    """Share of factors whose :func:`agreement` reaches the threshold.

    Parameters
    ----------
    agreement : array, (rank,)
    threshold : float

    Returns
    -------
    float
        0 to 1; nan where the agreement is nan, that is with one chain.

    Examples
    --------
    >>> share_agreeing(np.array([0.95, 0.2]))
    0.5
    """
    agreement = np.asarray(agreement, float)
    return float("nan") if np.isnan(agreement).any() else float(np.mean(agreement >= threshold))


def _normalised(columns):
    norm = np.sqrt(np.square(columns).sum(axis=1, keepdims=True))
    return np.divide(columns, norm, out=np.zeros_like(columns), where=norm > 0), norm[:, 0]

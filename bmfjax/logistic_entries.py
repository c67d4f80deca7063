r"""Entries under the variational posterior of the logistic model, a mixture over its starts.

A `Fit` keeps what its draws are drawn from as arrays with a leading axis of starts:
`usage_mean`, `usage_variance` (start, rows, width), `basis_mean`, `basis_variance` (start,
columns, width), `bias_mean`, `bias_variance` (start,); vectors as in
`bmfjax.variational.LogisticPosterior`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import expit

MOMENTS = ("mean", "variance")


def probability(approximation: Mapping[str, np.ndarray], rows, columns) -> np.ndarray:
    r"""Probability of a one, averaged over the starts.

    Of each start :math:`\sigma\big(\mu_{ij} / \sqrt{1 + \pi s^2_{ij} / 8}\big)`, with mean and
    variance of the log odds (Hernandez-Lobato, Houlsby, Ghahramani 2014, section 8).

    Parameters
    ----------
    approximation : dict
    rows, columns : (...) int

    Returns
    -------
    (rows, columns) float64

    Examples
    --------
    >>> at = {n: np.ones((1, 1, 1)) for n in ("usage_mean", "basis_mean")}
    >>> at |= {n: np.zeros((1, 1, 1)) for n in ("usage_variance", "basis_variance")}
    >>> at |= {"bias_mean": np.array([-1.0]), "bias_variance": np.array([3.0])}
    >>> probability(at, [0], [0])
    array([[0.5]])
    """
    total = np.zeros((len(rows), len(columns)))
    starts = len(approximation["bias_mean"])
    for start in range(starts):
        mean, variance = log_odds(approximation, start, rows, columns)
        total += expit(mean / np.sqrt(1.0 + 0.125 * np.pi * variance))
    return total / starts


def log_odds(approximation, start: int, rows, columns) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the log odds under one start: (rows, columns) float64 each."""
    usage, usage_variance = (approximation[f"usage_{m}"][start][rows] for m in MOMENTS)
    basis, basis_variance = (approximation[f"basis_{m}"][start][columns] for m in MOMENTS)
    bias, bias_variance = (approximation[f"bias_{m}"][start] for m in MOMENTS)
    usage, basis = (np.asarray(a, np.float64) for a in (usage, basis))
    mean = usage @ basis.T + bias
    variance = usage**2 @ basis_variance.T + usage_variance @ (basis**2 + basis_variance).T
    return mean, variance + bias_variance


def with_effects(usage, basis, others: Mapping, rows, columns) -> tuple[np.ndarray, np.ndarray]:
    """Draws with bias and effects as further coordinates, so that products are log odds.

    Parameters
    ----------
    usage : (chain, draw, rows, rank) float
    basis : (chain, draw, columns, rank) float
    others : dict
        `bias` (chain, draw), and effects (chain, draw, all rows or columns) where there are.
    rows, columns : (...) int
        Which ones `usage` and `basis` hold.

    Returns
    -------
    usage, basis : (chain, draw, rows or columns, rank + up to 3)
    """
    left, right = [usage], [basis]
    ones = [np.ones((*f.shape[:3], 1), f.dtype) for f in (usage, basis)]
    left.append(others["bias"][..., None, None] * ones[0])
    right.append(ones[1])
    if "row_effect" in others:
        left.append(others["row_effect"][..., rows, None])
        right.append(ones[1])
    if "column_effect" in others:
        left.append(ones[0])
        right.append(others["column_effect"][..., columns, None])
    return np.concatenate(left, -1), np.concatenate(right, -1)

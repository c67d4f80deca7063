r"""Latent classes as a reference: what rows that differ by their class alone explain.

Rows are of K classes, and within one the columns are independent,

.. math:: p(x_i) = \sum_k \pi_k \prod_j \theta_{kj}^{x_{ij}} (1 - \theta_{kj})^{1 - x_{ij}},

fitted by EM, with the share of a class drawn towards that of the column by `WEIGHT` entries
(Lazarsfeld, Henry 1968, "Latent Structure Analysis"). Entries are predicted in parts, each part
hidden from a fit to the others; the number of classes is the one that predicts them best.
"""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from bmfjax.data import BinaryMatrix

#: Numbers of classes that are tried, parts of the entries, and steps of EM.
CLASSES, PARTS, STEPS = (2, 4, 8, 16, 32), 5, 60
#: Entries of the matrix up to which it costs little: about a CPU second.
MOST_ENTRIES = 100_000
#: Entries of the mean of a column that each class has beforehand.
WEIGHT = 2.0


def predicted_by_classes(data: BinaryMatrix, cells, seed: int = 0) -> np.ndarray | None:
    """Return the log probabilities of cells (rows, columns, values), each hidden from EM.

    They are those of the number of classes that predicts them best. None for a matrix that is too
    large, or of cells too few to be parted.

    Examples
    --------
    >>> data = BinaryMatrix(np.kron(np.eye(3), np.ones((20, 5))))
    >>> i, j = np.divmod(np.arange(900), 15)
    >>> found = predicted_by_classes(data, (i, j, data.dense()[i, j]))
    >>> bool(found.mean() > -0.1)
    True
    """
    i, j, values = cells
    if data.num_rows * data.num_columns > MOST_ENTRIES or len(i) < PARTS:
        return None
    dense, rng = data.dense(np.float64), np.random.default_rng(seed)
    part = rng.permutation(np.arange(len(i)) % PARTS)
    found = np.empty((len(CLASSES), len(i)))
    for p in range(PARTS):
        own = part == p
        left = dense.copy()
        left[i[own], j[own]] = np.nan
        for number, scores in zip(CLASSES, found, strict=True):
            one = _fitted(left, number, rng)[i[own], j[own]]
            scores[own] = np.log(np.where(values[own] > 0.5, one, 1.0 - one))
    return found[found.mean(1).argmax()]


def _fitted(values, number: int, rng) -> np.ndarray:
    """Return the probabilities of ones (rows, columns) by so many classes; NaN is missing."""
    seen, ones = (~np.isnan(values)).astype(float), np.nan_to_num(values)
    means = (ones.sum(0) + 0.5) / (seen.sum(0) + 1.0)
    chance = np.clip(means + 0.3 * (rng.random((number, len(means))) - 0.5), 0.02, 0.98)
    share = np.full(number, 1.0 / number)
    for _ in range(STEPS):
        log_density = ones @ np.log(chance).T + (seen - ones) @ np.log1p(-chance).T
        member = softmax(log_density + np.log(share), axis=1)
        share = (member.sum(0) + 1.0) / (len(values) + number)
        chance = (member.T @ ones + WEIGHT * means) / (member.T @ seen + WEIGHT)
        chance = np.clip(chance, 1e-4, 1.0 - 1e-4)
    return member @ chance

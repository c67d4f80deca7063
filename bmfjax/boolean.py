"""The Boolean factors of a fit: where the search starts and what the result is expected to cost."""

from __future__ import annotations

import numpy as np

from bmfjax import posterior
from bmfjax.data import BinaryMatrix
from bmfjax.diagnostics import Binarized, binarize, expected_loss, most_probable_factors, threshold


def boolean_factors(data: BinaryMatrix, usage_draws, basis_draws) -> Binarized:
    """The most probable Boolean factors.

    The search starts at the means of every chain and of all, cut at one half and at the
    threshold that fits the data best, and at the factors with the lowest expected loss.

    Parameters
    ----------
    data : BinaryMatrix
    usage_draws : (chain, draw, rows, rank) float
        Aligned.
    basis_draws : (chain, draw, columns, rank) float

    Returns
    -------
    Binarized
        The k-th factor is the k-th of the draws.
    """
    ones, observed = np.nan_to_num(data.dense()) > 0.5, data.observed()
    axes = [(0, 1)] if usage_draws.shape[0] == 1 else [1, (0, 1)]
    starts = []
    for axis in axes:
        usage = usage_draws.mean(axis, dtype=float).reshape(-1, *usage_draws.shape[2:])
        basis = basis_draws.mean(axis, dtype=float).reshape(-1, *basis_draws.shape[2:])
        for u, v in zip(usage, basis, strict=True):
            best = threshold(u, v, ones, observed).tau
            starts += [(u > tau, v > tau) for tau in (0.5, best)]
    probability = posterior.exceedance(usage_draws, basis_draws, level=0.5)
    means = (usage_draws.mean((0, 1), dtype=float), basis_draws.mean((0, 1), dtype=float))
    starts.append(binarize(*means, probability)[:2])
    found = most_probable_factors(starts, ones, observed)
    loss = expected_loss(probability, found.usage, found.basis)
    return Binarized(found.usage, found.basis, loss)

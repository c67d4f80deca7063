"""The Boolean factors of a fit: the most probable ones, and by other rules."""

from __future__ import annotations

import numpy as np

from bmfjax import posterior
from bmfjax.data import BinaryMatrix, InputError
from bmfjax.diagnostics import (
    Binarized,
    binarize,
    expected_loss,
    most_probable_factors,
    threshold,
    threshold_pairs,
)


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


def rounded(fit, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Usage and basis by one of the rules of `Fit.binarize`."""
    if method == "map" or fit.is_real:
        return fit.usage_binary, fit.basis_binary
    if method == "expected":
        found = binarize(fit.usage, fit.basis, fit.probability())
        return found.usage, found.basis
    if method not in ("threshold", "pairs"):
        raise InputError(f"method is {method!r}; choose 'map', 'expected', 'threshold' or 'pairs'")
    ones, observed = np.nan_to_num(fit.data.dense()) > 0.5, fit.data.observed()
    if method == "threshold":
        tau = threshold(fit.usage, fit.basis, ones, observed).tau
        return fit.usage > tau, fit.basis > tau
    best = threshold_pairs(fit.usage, fit.basis, ones, observed)
    return fit.usage > best.tau_usage, fit.basis > best.tau_basis

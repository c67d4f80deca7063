r"""Entries under the variational posterior of the logistic model, a mixture over its starts.

A `Fit` keeps what its draws are drawn from as arrays with a leading axis of starts:
`usage_mean`, `usage_variance` (start, rows, width), `basis_mean`, `basis_variance` (start,
columns, width), `bias_mean`, `bias_variance` (start,); vectors as in
`bmfjax.variational.LogisticPosterior`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import expit, logsumexp

MOMENTS = ("mean", "variance")


def probability(approximation: Mapping[str, np.ndarray], rows, columns) -> np.ndarray:
    r"""Return the probability of a one, averaged over the starts: (rows, columns) float64.

    One start gives :math:`\sigma\big(\mu_{ij} / \sqrt{1 + \pi s^2_{ij} / 8}\big)`, with mean and
    variance of the log odds (Hernandez-Lobato, Houlsby, Ghahramani 2014, section 8).
    """
    total = np.zeros((len(rows), len(columns)))
    starts = len(approximation["bias_mean"])
    for start in range(starts):
        total += probability_of_a_one(*log_odds(approximation, start, rows, columns))
    return total / starts


def log_odds(approximation, start: int, rows, columns) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of the log odds under one start: (rows, columns) float64 each."""
    usage, usage_variance = (approximation[f"usage_{m}"][start][rows] for m in MOMENTS)
    basis, basis_variance = (approximation[f"basis_{m}"][start][columns] for m in MOMENTS)
    bias, bias_variance = (approximation[f"bias_{m}"][start] for m in MOMENTS)
    usage, basis = (np.asarray(a, np.float64) for a in (usage, basis))
    mean = usage @ basis.T + bias
    variance = usage**2 @ basis_variance.T + usage_variance @ (basis**2 + basis_variance).T
    return mean, variance + bias_variance


def cell_log_odds(approximation, rows, columns) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and variance of the log odds of single cells: (start, cell) float64 each."""
    u, du = (np.asarray(approximation[f"usage_{m}"][:, rows], np.float64) for m in MOMENTS)
    v, dv = (np.asarray(approximation[f"basis_{m}"][:, columns], np.float64) for m in MOMENTS)
    bias, bias_variance = (np.asarray(approximation[f"bias_{m}"], np.float64) for m in MOMENTS)
    mean = np.einsum("sik,sik->si", u, v) + bias[:, None]
    variance = np.einsum("sik,sik->si", u**2, dv) + np.einsum("sik,sik->si", du, v**2 + dv)
    return mean, variance + bias_variance[:, None]


def probability_of_a_one(mean, variance) -> np.ndarray:
    """Return the probability of a one given normal log odds, as approximated in `probability`."""
    return expit(mean / np.sqrt(1.0 + 0.125 * np.pi * variance))


def mixture(mean, variance) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and standard deviation of a mixture in equal parts, over the first axis."""
    mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
    return mean.mean(0), np.sqrt(variance.mean(0) + mean.var(0))


def log_odds_of_all_starts(approximation, rows, columns) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and standard deviation of the log odds: (rows, columns) float64 each."""
    total, squares, starts = 0.0, 0.0, len(approximation["bias_mean"])
    for start in range(starts):
        mean, variance = log_odds(approximation, start, rows, columns)
        total, squares = total + mean, squares + mean**2 + variance
    mean = total / starts
    return mean, np.sqrt(np.maximum(squares / starts - mean**2, 0.0))


def rhat(mean, variance) -> np.ndarray:
    """Return R-hat of infinitely many independent draws of normals with these moments (start, ...).

    It is NaN with one start, and where nothing varies.
    """
    mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
    if len(mean) == 1:
        return np.full(mean.shape[1:], np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(1.0 + mean.var(0, ddof=1) / variance.mean(0))


def log_prior(draws: Mapping[str, np.ndarray], scale: float, bias_scale: float) -> np.ndarray:
    """Return the log density (start, draw) float64 of draws (start, draw, ...) under the prior.

    The bias has the standard deviation `bias_scale`, all else `scale`, and means are zero.
    """
    total = 0.0
    for name, values in draws.items():
        sd = bias_scale if name == "bias" else scale
        total = total + _normal(values, 0.0, sd**2, values.shape[:2])
    return total


def log_mixture(approximation: Mapping[str, np.ndarray], draws, rank: int) -> np.ndarray:
    r"""Return the log density (start, draw) float64 of draws under the mixture they are drawn from.

    .. math:: \log \frac1S \sum_s \prod_d N(\theta_d \mid m_{sd}, v_{sd})

    over the S starts; coordinates that are one by definition have no density.
    """
    parts = {"usage": ("usage", slice(rank)), "basis": ("basis", slice(rank))}
    if "row_effect" in draws:
        parts["row_effect"] = ("usage", rank)
    if "column_effect" in draws:
        parts["column_effect"] = ("basis", -1)
    lead, found = draws["bias"].shape, []
    for start in range(len(approximation["bias_mean"])):
        moments = (approximation[f"bias_{m}"][start] for m in MOMENTS)
        total = _normal(draws["bias"], *moments, lead)
        for name, (side, chosen) in parts.items():
            moments = (approximation[f"{side}_{m}"][start][:, chosen] for m in MOMENTS)
            total = total + _normal(draws[name], *moments, lead)
        found.append(total)
    return logsumexp(found, 0) - np.log(len(found))


def _normal(values, mean, variance, lead) -> np.ndarray:
    """Sum normal log densities over all axes but those of the draws, `lead`: float64.

    The numbers of one start are formed at a time.
    """
    mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
    return np.stack([
        (-0.5 * ((own - mean) ** 2 / variance + np.log(2 * np.pi * variance)))
        .reshape(lead[1], -1).sum(1)
        for own in np.asarray(values, np.float64)
    ])  # fmt: skip

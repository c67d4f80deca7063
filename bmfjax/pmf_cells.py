"""Predictions of a matrix factorisation for any cells, from kept draws."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import ndtr

from bmfjax.data import InputError

#: Models with a factorisation of this kind, and the link of each (`bmfjax.models.pmf`).
LINKS = {"pmf": "identity", "probit": "probit", "ordered-probit": "ordered"}
KINDS = ("mean", "sd", "interval")
#: Numbers formed at once: draws times cells, and the factors of both sides for them.
BLOCK = 4_000_000


def predict_cells(
    fit, rows, columns, kind: str = "mean", level: float = 0.9, noisy: bool = False
) -> np.ndarray:
    """Mean, standard deviation or central interval of some cells.

    Parameters
    ----------
    fit : Fit
    rows, columns : (cell,) int
    kind : {"mean", "sd", "interval"}
    level : float
        Probability of the interval.
    noisy : bool
        Of a rating itself, noise included; else of its expectation: the fit of "pmf", the
        probability of a one of "probit", the expected rating of "ordered-probit".

    Returns
    -------
    (cell,) float64, or (2, cell) for "interval"
        Held inside of the ratings' scale where they declare one.
    """
    if kind not in KINDS:
        raise InputError(f"kind is {kind!r}; choose 'mean', 'sd' or 'interval'")
    if not 0 < level < 1:
        raise InputError(f"level is {level}; give a probability between 0 and 1")
    if noisy and fit.model == "probit":
        raise InputError("a binary observation has no interval; leave noisy out")
    rows, columns = np.asarray(rows, int), np.asarray(columns, int)
    if rows.shape != columns.shape or rows.ndim != 1:
        raise InputError(
            f"rows and columns have shapes {rows.shape} and {columns.shape}; give one each a cell"
        )
    draws = fit.usage_draws.shape[0] * fit.usage_draws.shape[1]
    step = max(1, BLOCK // draws)
    out = np.empty((2, len(rows)) if kind == "interval" else len(rows))
    rng = np.random.default_rng(0)
    for i in range(0, len(rows), step):
        some = slice(i, i + step)
        values = _values(fit, cell_draws(fit, rows[some], columns[some]), noisy and rng)
        stars = bool(noisy) and fit.model == "ordered-probit"
        out[..., some] = _functional(values, kind, level, _scale(fit), stars)
    return out


def cell_draws(fit, rows, columns) -> np.ndarray:
    """Draws of the fits of some cells, effects included: (draw of all chains, cell) float."""
    usage, basis, other = fit.usage_draws, fit.basis_draws, fit.other_draws
    fits = np.empty((*usage.shape[:2], len(rows)), usage.dtype)
    step = max(1, BLOCK // (usage.shape[0] * usage.shape[1] * 2 * fit.rank))
    for i in range(0, len(rows), step):
        some = slice(i, i + step)
        u, v = usage[:, :, rows[some]], basis[:, :, columns[some]]
        fits[..., some] = np.einsum("cdik,cdik->cdi", u, v)
    if "intercept" in other:
        fits = fits + other["intercept"][..., None]
    if "row_effect" in other:
        fits = fits + other["row_effect"][:, :, rows] + other["column_effect"][:, :, columns]
    return fits.reshape(-1, len(rows))


def expected(fit, fits) -> np.ndarray:
    """What a rating is on average given draws of its fit, (draw, cell)."""
    link = LINKS[fit.model]
    if link == "identity":
        return fits
    if link == "probit":
        return ndtr(fits)
    cuts = fit.other_draws["cutpoints"].reshape(len(fits), -1)
    stars = np.asarray(fit.settings["stars"], float)
    steps = zip(cuts.T, np.diff(stars), strict=True)
    return stars[0] + sum(step * ndtr(fits - cut[:, None]) for cut, step in steps)


def with_effects(usage, basis, others: Mapping, rows, columns):
    """Draws with intercept and effects as further coordinates, so that products are fits.

    Parameters and shapes as of `bmfjax.logistic_entries.with_effects`.
    """
    left, right = [usage], [basis]
    ones = [np.ones((*f.shape[:3], 1), f.dtype) for f in (usage, basis)]
    if "intercept" in others:
        left.append(others["intercept"][..., None, None] * ones[0])
        right.append(ones[1])
    if "row_effect" in others:
        left += [others["row_effect"][:, :, rows, None], ones[0]]
        right += [ones[1], others["column_effect"][:, :, columns, None]]
    return np.concatenate(left, -1), np.concatenate(right, -1)


def _scale(fit):
    # Of the data that were fitted: those of new lines need not declare one.
    return fit.settings.get("scale")


def _values(fit, fits, rng):
    """Draws of expectations, or with a generator of ratings."""
    if not rng:
        return expected(fit, fits)
    noise = rng.standard_normal(fits.shape)
    if fit.model == "pmf":
        return fits + noise * noise_sd(fit)[:, None]
    cuts = fit.other_draws["cutpoints"].reshape(len(fits), -1)
    category = sum((fits + noise > cut[:, None]).astype(int) for cut in cuts.T)
    return np.asarray(fit.settings["stars"], float)[category]


def noise_sd(fit) -> np.ndarray:
    """Standard deviation of the noise of "pmf" in every draw, (draw,) float."""
    draws = fit.usage_draws.shape[0] * fit.usage_draws.shape[1]
    precision = fit.other_draws.get("precision", fit.settings["priors"]["precision"])
    return np.broadcast_to(np.asarray(precision, float).ravel() ** -0.5, (draws,))


def _functional(values, kind, level, scale, stars):
    if kind == "sd":
        return values.std(0, dtype=float)
    tail = 0.5 * (1.0 - level)
    found = values.mean(0, dtype=float) if kind == "mean" else None
    if found is None:
        # Ends of an interval of stars are stars, and nothing in between.
        method = "inverted_cdf" if stars else "linear"
        found = np.quantile(values, [tail, 1.0 - tail], axis=0, method=method)
    return found if scale is None else np.clip(found, *scale)

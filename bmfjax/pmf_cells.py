"""Predictions of a matrix factorisation for any cells, from kept draws."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import ndtr

from bmfjax.cells import cell_draws, noise_sd, summarised

#: Models with a factorisation of this kind, and the link of each (`bmfjax.models.pmf`).
LINKS = {"pmf": "identity", "probit": "probit", "ordered-probit": "ordered"}


def summaries(fit, rows, columns, kinds, level: float, rng=None) -> dict[str, np.ndarray]:
    """Predictions of a block of cells, of several kinds.

    Parameters
    ----------
    fit : Fit
    rows, columns : (cell,) int
    kinds : sequence of {"mean", "sd", "interval", "probability"}
    level : float
        Probability of the interval.
    rng : numpy.random.Generator, optional
        Of a rating itself, with noise drawn from it; else of its expectation: the fit of "pmf",
        the probability of a one of "probit", the expected rating of "ordered-probit".

    Returns
    -------
    dict
        (cell,) float64 of each kind, (2, cell) of "interval", held inside of the ratings' scale
        where they declare one; "probability" is (star, cell) of "ordered-probit".
    """
    fits = cell_draws(fit, rows, columns)
    values = expected(fit, fits) if rng is None else _ratings(fit, fits, rng)
    stars = rng is not None and LINKS[fit.model] == "ordered"
    # Of the data that were fitted: those of new lines need not declare one.
    scale = fit.settings.get("scale")
    found = {}
    for kind in kinds:
        if kind == "probability":
            found[kind] = _probability(fit, fits, values)
            continue
        # Ends of an interval of stars are stars, and nothing in between.
        method = "inverted_cdf" if stars else "linear"
        found[kind] = summarised(values, kind, level, ddof=0, method=method)
        if kind != "sd" and scale is not None:
            found[kind] = np.clip(found[kind], *scale)
    return found


def _probability(fit, fits, values):
    """Of a one, or of each star."""
    if LINKS[fit.model] == "ordered":
        return star_probabilities(fit, fits).T
    return values.mean(0, dtype=float)


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


def star_probabilities(fit, fits) -> np.ndarray:
    """Probability of each star, averaged over draws: (cell, star) float64 from fits (draw, cell).

    Its rows sum to 1.
    """
    cuts = fit.other_draws["cutpoints"].reshape(len(fits), -1)
    below = [ndtr(c[:, None] - fits).mean(0, dtype=float) for c in cuts.T]
    ends = np.zeros(fits.shape[1]), np.ones(fits.shape[1])
    return np.diff([ends[0], *below, ends[1]], axis=0).T


def _ratings(fit, fits, rng):
    """Draws of ratings."""
    noise = rng.standard_normal(fits.shape)
    if LINKS[fit.model] == "identity":
        return fits + noise * noise_sd(fit)[:, None]
    cuts = fit.other_draws["cutpoints"].reshape(len(fits), -1)
    category = sum((fits + noise > cut[:, None]).astype(int) for cut in cuts.T)
    return np.asarray(fit.settings["stars"], float)[category]


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

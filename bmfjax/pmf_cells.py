"""Predictions of a matrix factorisation for any cells, from kept draws."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import ndtr

from bmfjax.cells import cell_draws, summarised, tails, with_normal_noise

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
        Of a rating itself, with noise drawn from it for an interval of "pmf" (all else is exact
        given the draws); else of its expectation: the fit of "pmf", the probability of a one of
        "probit", the expected rating of "ordered-probit".

    Returns
    -------
    dict
        (cell,) float64 of each kind, (2, cell) of "interval"; "probability" is (star, cell) of
        "ordered-probit". Means and intervals are held inside of the ratings' scale where they
        declare one, and "sd" is of the values before that.
    """
    fits = cell_draws(fit, rows, columns)
    values, ordered = expected(fit, fits), LINKS[fit.model] == "ordered"
    asked = ordered and (rng is not None or "probability" in kinds)
    shares = star_probabilities(fit, fits) if asked else None
    # Of the data that were fitted: those of new lines need not declare one.
    scale = fit.settings.get("scale")
    found = {}
    for kind in kinds:
        if kind == "probability":
            found[kind] = shares.T if ordered else values.mean(0, dtype=float)
            continue
        if rng is None:
            found[kind] = summarised(values, kind, level)
        elif ordered:
            found[kind] = _of_stars(fit, shares, kind, level)
        else:
            found[kind] = with_normal_noise(fit, values, kind, level, rng)
        if kind != "sd" and scale is not None:
            found[kind] = np.clip(found[kind], *scale)
    return found


def _of_stars(fit, shares, kind: str, level: float):
    """As `summarised`, of stars with their probabilities: (cell, star)."""
    stars = np.asarray(fit.settings["stars"], float)
    if kind == "interval":
        # Its ends are stars, and nothing in between: the first with so much at or below it.
        below = shares.cumsum(1)[:, :-1]
        return np.stack([stars[(below < tail).sum(1)] for tail in tails(level)])
    mean = shares @ stars
    if kind == "mean":
        return mean
    return np.sqrt((shares * (stars - mean[:, None]) ** 2).sum(1))


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

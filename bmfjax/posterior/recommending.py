"""Recommendations: the items that a user has not rated, the best first, and how sure that is."""

from __future__ import annotations

import difflib
import math

import numpy as np
import pandas as pd
from scipy.special import ndtr

from bmfjax.data import BinaryMatrix, InputError, Ratings, checks
from bmfjax.posterior import cells, selection
from bmfjax.posterior.selection import found_names

#: What items are put in order by: the column of the table that it is.
ORDERS = {"mean": "mean", "quantile": "lower", "probability": "probability"}
COLUMNS = ("user", "item", "mean", "sd", "lower", "upper", "probability")
#: How far up the scale a rating must be to count, where no number is given: 4 of 1 to 5 stars.
HIGH = 0.75


def recommended(
    fit, users, k: int, *, seen: bool, by: str, least, level: float, positions: bool
) -> pd.DataFrame:
    """Return the table of `bmfjax.Fit.recommend` for a fit of ratings."""
    k = checks.whole("k", k)
    if not isinstance(seen, bool):
        raise InputError(f"seen is {seen!r}; give True or False")
    if by not in ORDERS:
        raise InputError(f"by is {by!r}; choose 'mean', 'quantile' or 'probability'")
    cells.check_level(level)
    least = _least(fit, least)
    parts = []
    for user in _positions(users, fit.data.row_names, positions):
        items = np.arange(fit.data.num_columns)
        if not seen:
            items = np.setdiff1d(items, _seen(fit.data, user))
        if len(items):
            parts.append(_best(fit, user, items, k, ORDERS[by], least, level))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


def _best(fit, user, items, k, column, least, level) -> pd.DataFrame:
    """Return the lines of one user; of equal items the one that is more probably liked is first."""
    rows = np.full(len(items), user)
    found = fit._tell_cells(rows, items, ("mean", "sd", "interval"), level, False)
    names = fit.data.row_names[user], np.array(fit.data.column_names, object)[items]
    values = found["mean"], found["sd"], *found["interval"], chance_of(fit, rows, items, least)
    table = pd.DataFrame(dict(zip(COLUMNS, (*names, *values), strict=True)))
    first = [column, *(c for c in ("probability", "mean") if c != column)]
    return table.sort_values(first, ascending=False, kind="stable").head(k)


def chance_of(fit, rows, columns, least: float) -> np.ndarray:
    """Return the probability of a rating of at least `least`, noise included: (cell,) float64.

    For ones and zeros it is that of a one.
    """
    width = fit.usage_draws.shape[0] * fit.usage_draws.shape[1]
    parts = [
        _chances(fit, cells.cell_draws(fit, rows[some], columns[some]), least)
        for some in cells.blocks(len(rows), width)
    ]
    return np.concatenate(parts)


def _chances(fit, fits, least):
    """Average over draws (draw, cell) of the fits."""
    if fit.link == "probit":
        return ndtr(fits).mean(0, dtype=float)
    if fit.link == "identity":
        return ndtr((fits - least) / cells.noise_sd(fit)[:, None]).mean(0, dtype=float)
    stars = np.asarray(fit.settings["stars"], float)
    return cells.star_probabilities(fit, fits)[:, stars >= least].sum(1)


def _least(fit, least) -> float:
    """Return the rating that counts as high, checked."""
    if fit.link == "probit":
        if least is not None:
            raise InputError(f"least is {least!r}, and model 'probit' is of ones: leave it out")
        return 1.0
    low, high = fit._rating_range
    if least is None:
        return low + HIGH * (high - low)
    if isinstance(least, bool) or not isinstance(least, int | float | np.number):
        raise InputError(f"least is {least!r}; give a rating")
    if not (math.isfinite(least) and low <= least <= high):
        raise InputError(f"least is {least:g}; give a rating from {low:g} to {high:g}")
    return float(least)


def _seen(data, user: int) -> np.ndarray:
    """Return the items that a user has rated; of ones and zeros those with a one."""
    if isinstance(data, Ratings):
        return data.columns[data.rows == user]
    if isinstance(data, BinaryMatrix):
        return data.ones()[[user]].nonzero()[1]
    return np.flatnonzero(data.observed()[user])


def _positions(users, names, by_position) -> np.ndarray:
    """Return positions of users; of a name that is not there the message has the closest ones."""
    items = [users] if isinstance(users, str) else users
    given = [u for u in np.atleast_1d(np.asarray(items, object)) if isinstance(u, str)]
    for name, at in zip(given, found_names(given, names), strict=True):
        if at < 0:
            close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
            # None is like it: say at least what names look like.
            which = f"the closest are {_listed(close)}" if close else f"users are {_some(names)}"
            raise InputError(f"user {name!r} is not among the rows of the fit; {which}")
    return selection.positions(users, names, "row", by_position)


def _listed(names) -> str:
    return ", ".join(map(repr, names))


def _some(names) -> str:
    return _listed(names[:3]) + ", ..." * (len(names) > 3)

"""Recommendations: the items that a user has not rated, the best first, and how sure that is."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from bmfjax.data import BinaryMatrix, InputError, Ratings, checks
from bmfjax.data.blocks import BLOCK, blocks, spaced
from bmfjax.posterior import cells, selection
from bmfjax.posterior.selection import closest, found_names

#: What items are put in order by: the column of the table that it is.
ORDERS = {"mean": "mean", "quantile": "lower", "probability": "p_liked"}
COLUMNS = ("user", "item", "mean", "sd", "lower", "upper", "p_liked")
#: Those of the table of similar items.
ALIKE = ("item", "similar", "correlation", "lower", "upper")
#: How far up the scale a rating must be to count, where no number is given: 4 of 1 to 5 stars.
HIGH = 0.75
#: Draws by which candidates are chosen from many items, and candidates beyond twice what is asked.
FEW_DRAWS, SPARE = 64, 10
#: Blocks that draws of the basis of all items may take.
LARGE = 16
MOST_THREADS = 8
#: Numbers that stay in the cache of a core, and users for whom a matrix product is quick.
CACHED, MANY_USERS = 32_768, 16


def recommendations(
    fit, users, k: int, *, seen: bool, by: str, least, level: float, positions: bool
) -> pd.DataFrame:
    """Return the table of `bmfjax.Fit.recommend` for a fit of ratings."""
    k = checks.whole("k", k)
    if not isinstance(seen, bool):
        raise InputError(f"seen is {seen!r}; give True or False")
    if by not in ORDERS:
        raise InputError(f"by is {by!r}; choose 'mean', 'quantile' or 'probability'")
    cells.check_probability(level)
    asked = _Asked(k, seen, by, _least(fit, least), level)
    users = positions_of(users, fit.data, "row", positions)
    some = blocks(len(users), _width(fit, asked))
    # NumPy lets go of the lock of the interpreter.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS)) as pool:
        parts = list(pool.map(lambda few: _best(fit, users[few], asked), some))
    found = {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}
    for name, names in (("user", fit.data.row_names), ("item", fit.data.column_names)):
        found[name] = np.array(names, object)[found[name]]
    table = pd.DataFrame(found) if len(found["user"]) else pd.DataFrame(columns=COLUMNS)
    table.attrs["least"] = asked.least
    return table


class _Asked(NamedTuple):
    """What is recommended, checked; as `bmfjax.Fit.recommend` has it."""

    k: int
    seen: bool
    by: str
    least: float
    level: float

    @property
    def candidates(self) -> int:
        """How many items of a user are looked at by all draws."""
        return 2 * self.k + SPARE


def _width(fit, asked) -> int:
    """Return how many numbers are formed for a user, with those of the basis of the candidates."""
    size, line = fit.data.num_columns, _num_draws(fit) * fit.rank
    is_small = size * line <= LARGE * BLOCK
    return 4 * size if is_small else max(4 * size, asked.candidates * line // LARGE)


def _best(fit, users, asked) -> dict[str, np.ndarray]:
    """Return the columns of the table for some users; users and items are positions."""
    items, there = _candidates(fit, users, asked)
    known, at = np.unique(items, return_inverse=True)
    at, basis = at.reshape(items.shape), _by_line(fit, "basis", "column_effect", known)
    parts = []
    for some in blocks(len(users), items.shape[1] * _num_draws(fit)):
        fits = _fits(fit, users[some], at[some], basis)
        parts.append(_lines(fit, users[some], items[some], there[some], fits, asked))
    return {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}


def _lines(fit, users, items, there, fits, asked) -> dict[str, np.ndarray]:
    """Return the best of the candidates (user, candidate), by all draws (user, candidate, draw).

    Among equal items the one that is more probably liked is first.
    """
    column, scores = ORDERS[asked.by], np.full(items.shape, -np.inf)
    scores[there] = _columns(fit, fits[there].T, (column,), asked)[column]
    # What is as good as the last that is kept is looked at too.
    last = -np.sort(-scores, axis=1)[:, [min(asked.k, items.shape[1]) - 1]]
    at, of = np.nonzero(there & (scores >= last))
    found = {"user": users[at], "item": items[at, of]}
    found |= _columns(fit, fits[at, of].T, COLUMNS[2:], asked)
    keys = (found[name] for name in ("mean", "p_liked", column))
    order = np.lexsort([found["item"], *(-key for key in keys), at])
    first = np.cumsum(np.bincount(at, minlength=len(users))) - np.bincount(at, minlength=len(users))
    order = order[np.arange(len(at)) - first[at] < asked.k]
    return {name: values[order] for name, values in found.items()}


def _columns(fit, fits, names, asked) -> dict[str, np.ndarray]:
    """Return columns of the table from draws (draw, cell) of the fits."""
    kinds = {"mean": "mean", "sd": "sd", "lower": "interval", "upper": "interval"}
    kinds = dict.fromkeys(kinds[name] for name in names if name in kinds)
    found = cells.summaries_of(fit, fits, kinds, asked.level)
    if "interval" in found:
        found["lower"], found["upper"] = found.pop("interval")
    if "p_liked" in names:
        found["p_liked"] = _chances(fit, fits, asked.least)
    return found


# ---- draws, line by line -------------------------------------------------------------------------


def _num_draws(fit) -> int:
    return fit.usage_draws.shape[0] * fit.usage_draws.shape[1]


def _site(fit, name, lines=slice(None)) -> np.ndarray:
    """Return draws (draw of all chains, line) of a site; zero where the model lacks it."""
    if name not in fit.other_draws:
        return np.zeros((_num_draws(fit), 1), np.float32)
    return fit.other_draws[name].reshape(_num_draws(fit), -1)[:, lines]


def _by_line(fit, factor, effect, lines) -> tuple[np.ndarray, np.ndarray]:
    """Return draws of a factor (line, rank, draw) and of an effect (line, draw)."""
    draws = getattr(fit, f"{factor}_draws")[:, :, lines]
    draws = draws.reshape(_num_draws(fit), *draws.shape[2:]).transpose(1, 2, 0)
    own = np.broadcast_to(_site(fit, effect, lines).T, (len(lines), _num_draws(fit)))
    return np.ascontiguousarray(draws), np.ascontiguousarray(own)


def _fits(fit, users, at, basis) -> np.ndarray:
    """Return draws (user, candidate, draw) of the fits of items `at` positions of a basis."""
    weights, effects = basis
    usage, level = _by_line(fit, "usage", "row_effect", users)
    fits = np.empty((*at.shape, usage.shape[2]), np.float32)
    # One user at a time stays in the cache.
    for one, own, items in zip(fits, usage, at, strict=True):
        np.einsum("ks,cks->cs", own, weights[items], out=one)
        one += effects[items]
    fits += (level + _site(fit, "intercept").T)[:, None]
    return fits


# ---- which items may be the best -----------------------------------------------------------------


def _candidates(fit, users, asked) -> tuple[np.ndarray, np.ndarray]:
    """Return items (user, candidate) by position, and whether each is to be recommended.

    Where there are many items, they are those that are best by some of the draws, taken as normal.
    """
    number, size = asked.candidates, fit.data.num_columns
    hidden = None if asked.seen else _seen(fit.data, users)
    if size <= number:
        there = np.ones((len(users), size), bool)
        if hidden is not None:
            there[hidden] = False
        return np.broadcast_to(np.arange(size), there.shape), there
    promise = _promise(fit, *_moments(fit, users), asked)
    if hidden is not None:
        promise[hidden] = -np.inf
    items = np.argpartition(promise, size - number, axis=1)[:, -number:]
    return items, np.take_along_axis(promise, items, 1) > -np.inf


def _moments(fit, users) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and variance of the fits (user, item) over some of the draws."""
    chosen = spaced(_num_draws(fit), FEW_DRAWS, down=True)
    level = _site(fit, "intercept").mean()
    # About the level, so that squares do not cancel.
    rows = _site(fit, "row_effect", users) + (_site(fit, "intercept") - level)
    rows = np.broadcast_to(rows, (len(rows), len(users)))
    columns = _site(fit, "column_effect")
    mean, variance = np.zeros((2, len(users), fit.data.num_columns), np.float32)
    for some in _few(len(users), fit.data.num_columns):
        total, square, one = mean[some], variance[some], np.empty_like(mean[some])
        for draw in chosen:
            at = divmod(draw, fit.usage_draws.shape[1])
            np.matmul(fit.usage_draws[at][users[some]], fit.basis_draws[at].T, out=one)
            one += rows[draw, some, None]
            one += columns[draw]
            total += one
            np.square(one, out=one)
            square += one
        total /= len(chosen)
        square /= len(chosen)
        square -= np.square(total, out=one)
        np.maximum(square, 0, out=square)
    return mean + level, variance


def _few(number, width) -> list[slice]:
    """Return blocks of users whose fits stay in the cache, unless each has many items."""
    step = max(MANY_USERS, CACHED // width)
    return [slice(start, start + step) for start in range(0, number, step)]


def _promise(fit, mean, variance, asked) -> np.ndarray:
    """Return what rises with the order asked for, of normal fits (user, item)."""
    if asked.by == "quantile":
        return mean + ndtri(cells.tails(asked.level)[0]) * np.sqrt(variance)
    if fit.link == "identity":
        liked = (mean - asked.least) / np.sqrt(variance + np.mean(cells.noise_sd(fit) ** 2))
        if asked.by == "probability":
            return liked
        # Means are held inside of the scale, and so may be equal.
        scale = fit.settings.get("scale")
        top = np.inf if scale is None else scale[1]
        return np.where(mean < top, mean, top + ndtr(liked))
    spread = np.sqrt(1 + variance)
    if fit.link == "probit":
        return mean / spread
    stars, cuts = np.asarray(fit.settings["stars"], float), _site(fit, "cutpoints").mean(0)
    if asked.by == "mean":
        steps = zip(np.diff(stars), cuts, strict=True)
        return sum(step * ndtr((mean - cut) / spread) for step, cut in steps)
    high = stars >= asked.least
    # The lowest star is always reached.
    return mean if high[0] else (mean - cuts[np.argmax(high) - 1]) / spread


# ---- what is asked about -------------------------------------------------------------------------


def _chances(fit, fits, least):
    """Average over draws (draw, cell) of the fits."""
    if fit.link == "probit":
        return ndtr(fits).mean(0, dtype=float)
    if fit.link == "identity":
        sd = cells.noise_sd(fit).astype(np.float32)[:, None]
        return ndtr((fits - np.float32(least)) / sd).mean(0, dtype=float)
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


def _seen(data, users) -> tuple[np.ndarray, np.ndarray]:
    """Return what users have rated, users by their place among these; of 0 and 1 the ones."""
    if isinstance(data, Ratings):
        rated = data.sparse()[users]
    elif isinstance(data, BinaryMatrix):
        rated = data.ones()[users]
    else:
        return np.nonzero(data.observed()[users])
    rated = rated.tocsr()
    return np.repeat(np.arange(len(users)), np.diff(rated.indptr)), rated.indices


def positions_of(given, data, side: str, by_position: bool = False) -> np.ndarray:
    """Return positions of users or items; of a name that is not there say the closest ones."""
    names = data.row_names if side == "row" else data.column_names
    items = [given] if isinstance(given, str) else [] if given is None else given
    texts = [u for u in np.atleast_1d(np.asarray(items, object)) if isinstance(u, str)]
    for name, at in zip(texts, found_names(texts, names), strict=True):
        if at < 0:
            what = "user" if side == "row" else "item"
            raise InputError(
                f"{what} {name!r} is not among the {side}s of the fit; {closest(name, names, what)}"
            )
    return selection.positions(given, names, side, by_position)


# ---- items that are alike ------------------------------------------------------------------------


def similar(fit, items, k: int, *, level: float, positions: bool) -> pd.DataFrame:
    """Return the table of `bmfjax.Fit.similar_items`."""
    k = checks.whole("k", k)
    cells.check_probability(level)
    if fit.data.num_rows < 2:
        raise InputError("the fit has one row, and correlations are over rows; fit more of them")
    at = positions_of(items, fit.data, "column", positions)
    names, vectors = np.array(fit.data.column_names, object), _unit_vectors(fit)
    parts = [pd.DataFrame(columns=ALIKE)] if not len(at) else []
    for item in at:
        alike = np.clip((vectors @ vectors[:, item, :, None])[..., 0], -1.0, 1.0)
        mean = alike.mean(0, dtype=float)
        best = np.argsort(-mean, kind="stable")  # NaN last
        best = best[best != item][:k]
        lower, upper = np.quantile(alike[:, best].astype(float), cells.tails(level), axis=0)
        columns = (names[item], names[best], mean[best], lower, upper)
        parts.append(pd.DataFrame(dict(zip(ALIKE, columns, strict=True))))
    return pd.concat(parts, ignore_index=True)


def _unit_vectors(fit) -> np.ndarray:
    """Return vectors (draw, item, axis) of length one, whose products are correlations over rows.

    It is the fits ``usage @ basis.T`` that are correlated, so that factors may be turned or scaled.
    An item of which these are the same in all rows has NaN.
    """
    rows, columns = fit.data.shape
    found = np.empty((_num_draws(fit), columns, min(rows, fit.rank)), np.float32)
    for draw, one in enumerate(found):
        at = divmod(draw, fit.usage_draws.shape[1])
        usage = fit.usage_draws[at].astype(float)
        # Usage is an orthonormal matrix times this, which alone tells lengths and angles.
        axes = np.linalg.qr(usage - usage.mean(0), mode="r")
        fits = fit.basis_draws[at] @ axes.T
        size = np.linalg.norm(fits, axis=1, keepdims=True)
        one[:] = fits / np.where(size > 0, size, np.nan)
    return found

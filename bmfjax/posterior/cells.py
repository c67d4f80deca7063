"""Single cells over kept draws: blocks of cells and draws, never all cells x draws at once."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping

import numpy as np
from scipy.special import ndtr

from bmfjax.data import InputError
from bmfjax.data.blocks import blocks
from bmfjax.posterior.packed import as_packed, factor_sets

KINDS = ("mean", "sd", "interval", "probability")


# ---- summaries of draws --------------------------------------------------------------------------


def check_probability(level: float) -> None:
    """Refuse what is no probability of an interval."""
    if not isinstance(level, numbers.Real) or not 0 < level < 1:
        raise InputError(f"level is {level!r}; give a probability between 0 and 1")


def tails(level: float) -> tuple[float, float]:
    """Return the probabilities below the two ends of a central interval."""
    tail = 0.5 * (1.0 - level)
    return tail, 1.0 - tail


def summarised(values, kind: str, level: float) -> np.ndarray:
    """Return the mean, standard deviation (cell,) or interval (2, cell) of values (draw, cell)."""
    if kind == "mean":
        return values.mean(0, dtype=float)
    if kind == "sd":
        return values.std(0, dtype=float, ddof=min(1, len(values) - 1))
    return quantiles(values, tails(level))


def quantiles(values, chances) -> np.ndarray:
    """Return quantiles (chance, cell) of values (draw, cell), as `numpy.quantile` in less time."""
    ranked, last = np.sort(values, axis=0), len(values) - 1
    at = [chance * last for chance in chances]
    ends = [ranked[[int(a), min(int(a) + 1, last)]].astype(float) for a in at]
    return np.stack([low + (high - low) * (a % 1) for a, (low, high) in zip(at, ends, strict=True)])


def with_normal_noise(fit, values, kind: str, level: float, rng: np.random.Generator):
    """Do as `summarised`, of observations with normal noise; it is drawn for an interval alone."""
    noise = noise_sd(fit)
    if kind == "interval":
        values = values + rng.standard_normal(values.shape) * noise[:, None]
    found = summarised(values, kind, level)
    return np.sqrt(found**2 + (noise**2).mean()) if kind == "sd" else found


def noise_sd(fit) -> np.ndarray:
    """Return the standard deviation of the normal noise, learned or fixed, in every draw."""
    draws = fit.usage_draws.shape[0] * fit.usage_draws.shape[1]
    precision = fit.other_draws.get("precision")
    # Settings hold a number that is fixed as text.
    precision = fit.settings["priors"]["precision"] if precision is None else precision
    return np.broadcast_to(np.asarray(precision, float).ravel() ** -0.5, (draws,))


# ---- products of real factors --------------------------------------------------------------------


def cell_draws(fit, rows, columns) -> np.ndarray:
    """Return draws (draw of all chains, cell) of the reconstruction, effects included, no link."""
    out = _products(fit.usage_draws, fit.basis_draws, rows, columns)
    for site in fit.other_draws.keys() & {"intercept", "bias"}:
        out += fit.other_draws[site].reshape(-1, 1)
    for site, lines in (("row_effect", rows), ("column_effect", columns)):
        if site in fit.other_draws:
            out += fit.other_draws[site].reshape(len(out), -1)[:, lines]
    return out


def of_average_rows(fit, usage, chain: int, draw: int) -> np.ndarray:
    """Return the reconstruction (row, column) of rows of average effect, of one draw, no link.

    `usage` (row, rank) is in place of that of the draw.
    """
    at, known = (chain, draw), fit.other_draws
    out = usage @ fit.basis_draws[at].T
    for site in known.keys() & {"intercept", "bias", "column_effect"}:
        out = out + known[site][at]
    return out


def _products(usage, basis, rows, columns):
    """Return draws (draw of all chains, cell) of the products of real factors."""
    chains, draws, _, rank = usage.shape
    out = np.empty((chains * draws, len(rows)), usage.dtype)
    for at, one in enumerate(out):
        draw = divmod(at, draws)
        for some in blocks(len(rows), 2 * rank):
            u, v = _lines(usage[draw], rows[some]), _lines(basis[draw], columns[some])
            np.einsum("ik,ik->i", u, v, out=one[some])
    return out


def _lines(factor, chosen):
    """Return some lines of a factor matrix, (chosen, rank)."""
    # Several times as fast as indexing, but it copies the whole of what is not contiguous.
    if factor.flags.c_contiguous or len(chosen) > len(factor):
        return factor.take(chosen, 0)
    return factor[chosen]


def with_effects(usage, basis, others: Mapping, rows, columns) -> tuple[np.ndarray, np.ndarray]:
    """Return draws with level and effects as further coordinates, so that products are the fits.

    `usage` and `basis` (chain, draw, lines, rank) hold the `rows` and `columns`; `others` holds
    `bias` or `intercept` (chain, draw), and effects (chain, draw, all lines), where there are any.
    """
    left, right = [usage], [basis]
    ones = [np.ones((*f.shape[:3], 1), f.dtype) for f in (usage, basis)]
    for level in others.keys() & {"intercept", "bias"}:
        left.append(others[level][..., None, None] * ones[0])
        right.append(ones[1])
    if "row_effect" in others:
        left.append(others["row_effect"][..., rows, None])
        right.append(ones[1])
    if "column_effect" in others:
        left.append(ones[0])
        right.append(others["column_effect"][..., columns, None])
    return np.concatenate(left, -1), np.concatenate(right, -1)


# ---- ratings behind a link -----------------------------------------------------------------------


def summaries(fit, rows, columns, kinds, level: float, rng=None) -> dict[str, np.ndarray]:
    """Return several kinds of predictions of a block of cells of a matrix factorisation.

    Each is (cell,) float64, "interval" (2, cell), "probability" of "ordered-probit" (star, cell).
    With `rng` they are of a rating itself (only an interval of "pmf" draws noise, all else is exact
    given the draws); without, of its expectation: the fit of "pmf", the probability of a one of
    "probit", the expected rating of "ordered-probit". Means and intervals are held inside of the
    ratings' scale where they declare one, and "sd" is of the values before that.
    """
    return summaries_of(fit, cell_draws(fit, rows, columns), kinds, level, rng)


def summaries_of(fit, fits, kinds, level: float, rng=None) -> dict[str, np.ndarray]:
    """Return what `summaries` does, from draws (draw, cell) of the fits."""
    values, ordered = expected(fit, fits), fit.link == "ordered"
    asked = ordered and (rng is not None or "probability" in kinds)
    shares = star_probabilities(fit, fits) if asked else None
    # That of the data that were fitted: those of new lines need not declare one.
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
    """Do as `summarised`, of stars with their probabilities (cell, star)."""
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
    """Return what a rating is on average given draws (draw, cell) of its fit."""
    link = fit.link
    if link == "identity":
        return fits
    if link == "probit":
        return ndtr(fits)
    cuts = fit.other_draws["cutpoints"].reshape(len(fits), -1)
    stars = np.asarray(fit.settings["stars"], float)
    steps = zip(cuts.T, np.diff(stars), strict=True)
    return stars[0] + sum(step * ndtr(fits - cut[:, None]) for cut, step in steps)


def star_probabilities(fit, fits) -> np.ndarray:
    """Return each star's probability (cell, star), averaged over draws (draw, cell) of the fit."""
    cuts = fit.other_draws["cutpoints"].reshape(len(fits), -1)
    below = [ndtr(c[:, None] - fits).mean(0, dtype=float) for c in cuts.T]
    ends = np.zeros(fits.shape[1]), np.ones(fits.shape[1])
    return np.diff([ends[0], *below, ends[1]], axis=0).T


# ---- Boolean products: a bit for each factor, and sums over draws --------------------------------


def covered(usage, basis, rows, columns, weights) -> np.ndarray:
    """Sum the weights (chain, draw) of the draws whose Boolean product covers a cell: (cell,)."""
    total = np.zeros(len(rows))
    products = boolean_products(as_packed(usage), as_packed(basis), rows, columns)
    for weight, hit in zip(weights.ravel(), products, strict=True):
        total += weight * hit
    return total


def boolean_products(usage, basis, rows, columns) -> Iterator[np.ndarray]:
    """Yield some cells of the Boolean product, (cell,) bool, draw after draw of all chains."""
    # Only the lines that some cell needs are unpacked, and only of a few draws.
    (i, at_row), (j, at_column) = (np.unique(x, return_inverse=True) for x in (rows, columns))
    chains, draws, _, rank = usage.shape
    for chain in range(chains):
        one = slice(chain, chain + 1)
        for some in blocks(draws, (len(i) + len(j)) * rank):
            left, right = usage.some(some, one), basis.some(some, one)
            left, right = left.packed_lines(i).words[0], right.packed_lines(j).words[0]
            for u, v in zip(left, right, strict=True):
                hit = np.zeros(len(rows), bool)
                # Do a row and a column share a factor?
                for of_row, of_column in zip(*map(_numbers, (u, v)), strict=True):
                    hit |= (of_row.take(at_row) & of_column.take(at_column)) != 0
                yield hit


def _numbers(words) -> np.ndarray:
    """Return factors of the lines of one draw as bits of few integers: words to (integer, line)."""
    sets = factor_sets(words)
    size = len(sets)
    width = next((w for w in (1, 2, 4) if size <= w), 8)
    padded = np.zeros((sets.shape[1], -(-size // width) * width), np.uint8)
    padded[:, :size] = sets.T
    return np.ascontiguousarray(padded.view(f"u{width}").T)


def quantiles_of_bits(ones, draws: int, level: float) -> np.ndarray:
    """Return central intervals (2, ...) of zeros and ones by their count, as `numpy.quantile`."""
    # In order, the last zero is number draws - ones - 1; the ends lie on the line between values.
    last = draws - np.asarray(ones) - 1
    return np.stack([np.clip(tail * (draws - 1) - last, 0.0, 1.0) for tail in tails(level)])

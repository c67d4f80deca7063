"""Single cells over kept draws: blocks of cells and draws, never all cells x draws at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bmfjax.data import InputError
from bmfjax.draws import as_packed, factor_sets

KINDS = ("mean", "sd", "interval", "probability")
#: Numbers formed at once: draws times cells, or the factors of both sides.
BLOCK = 4_000_000


def check_level(level: float) -> None:
    """Refuse what is no probability of an interval."""
    if not 0 < level < 1:
        raise InputError(f"level is {level}; give a probability between 0 and 1")


def blocks(cells: int, width: int) -> Iterator[slice]:
    """Parts of so many cells, `width` numbers each, that are formed at once."""
    step = max(1, BLOCK // max(width, 1))
    return (slice(i, i + step) for i in range(0, max(cells, 1), step))


def summarised(values, kind: str, level: float):
    """Mean, standard deviation or central interval over draws: (cell,) or (2, cell) float64.

    Parameters
    ----------
    values : (draw, cell) float
    kind : {"mean", "sd", "interval"}
    level : float
    """
    if kind == "mean":
        return values.mean(0, dtype=float)
    if kind == "sd":
        return values.std(0, dtype=float, ddof=min(1, len(values) - 1))
    return np.quantile(values, tails(level), axis=0)


def with_normal_noise(fit, values, kind: str, level: float, rng: np.random.Generator):
    """As `summarised`, of observations with normal noise; it is drawn for an interval alone."""
    noise = noise_sd(fit)
    if kind == "interval":
        values = values + rng.standard_normal(values.shape) * noise[:, None]
    found = summarised(values, kind, level)
    return np.sqrt(found**2 + (noise**2).mean()) if kind == "sd" else found


def tails(level: float) -> tuple[float, float]:
    """Probabilities below the two ends of a central interval."""
    tail = 0.5 * (1.0 - level)
    return tail, 1.0 - tail


def cell_draws(fit, rows, columns) -> np.ndarray:
    """Draws of the reconstruction of some cells, effects included and before any link.

    Parameters
    ----------
    fit : Fit
        Of real factors.
    rows, columns : (cell,) int

    Returns
    -------
    (draw of all chains, cell) float
    """
    out = _products(fit.usage_draws, fit.basis_draws, rows, columns)
    for site in fit.other_draws.keys() & {"intercept", "bias"}:
        out += fit.other_draws[site].reshape(-1, 1)
    for site, lines in (("row_effect", rows), ("column_effect", columns)):
        if site in fit.other_draws:
            out += fit.other_draws[site].reshape(len(out), -1)[:, lines]
    return out


def _products(usage, basis, rows, columns):
    """Draws of the products of real factors at some cells: (draw of all chains, cell) float."""
    chains, draws, _, rank = usage.shape
    out = np.empty((chains * draws, len(rows)), usage.dtype)
    for at, one in enumerate(out):
        draw = divmod(at, draws)
        for some in blocks(len(rows), 2 * rank):
            u, v = _lines(usage[draw], rows[some]), _lines(basis[draw], columns[some])
            np.einsum("ik,ik->i", u, v, out=one[some])
    return out


def _lines(factor, chosen):
    """Some lines of a factor matrix, (chosen, rank)."""
    # Several times as fast as indexing, but it copies the whole of what is not contiguous.
    if factor.flags.c_contiguous or len(chosen) > len(factor):
        return factor.take(chosen, 0)
    return factor[chosen]


def noise_sd(fit) -> np.ndarray:
    """Standard deviation of the normal noise in every draw, learned or fixed: (draw,) float."""
    draws = fit.usage_draws.shape[0] * fit.usage_draws.shape[1]
    precision = fit.other_draws.get("precision")
    # Settings tell a number that is fixed in words.
    precision = fit.settings["priors"]["precision"] if precision is None else precision
    return np.broadcast_to(np.asarray(precision, float).ravel() ** -0.5, (draws,))


# ---- Boolean products: a bit for each factor, and sums over draws ------------------------------


def covered(usage, basis, rows, columns, weights) -> np.ndarray:
    """Sum of the weights of the draws whose Boolean product covers a cell.

    Parameters
    ----------
    usage : (chain, draw, rows, rank) bool or `PackedDraws`
    basis : (chain, draw, columns, rank) bool or `PackedDraws`
    rows, columns : (cell,) int
    weights : (chain, draw) float

    Returns
    -------
    (cell,) float64

    Examples
    --------
    >>> usage = np.array([[[[1, 0]], [[0, 1]]]], bool)
    >>> covered(usage, np.ones((1, 2, 1, 2), bool), [0], [0], np.array([[0.25, 0.5]]))
    array([0.75])
    """
    total = np.zeros(len(rows))
    products = boolean_products(as_packed(usage), as_packed(basis), rows, columns)
    for weight, hit in zip(weights.ravel(), products, strict=True):
        total += weight * hit
    return total


def boolean_products(usage, basis, rows, columns) -> Iterator[np.ndarray]:
    """Draw after draw, of all chains, some cells of the Boolean product: (cell,) bool."""
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
    """Factors of the lines of one draw as bits of few integers: words to (integer, line)."""
    sets = factor_sets(words)
    size = len(sets)
    width = next((w for w in (1, 2, 4) if size <= w), 8)
    padded = np.zeros((sets.shape[1], -(-size // width) * width), np.uint8)
    padded[:, :size] = sets.T
    return np.ascontiguousarray(padded.view(f"u{width}").T)


def quantiles_of_bits(ones, draws: int, level: float) -> np.ndarray:
    """Central interval of zeros and ones by their count, as `numpy.quantile` has it: (2, ...).

    Examples
    --------
    >>> bits = np.array([0, 0, 1, 1, 1])
    >>> quantiles_of_bits(np.array([3]), 5, 0.4).round(6).ravel().tolist()
    [0.2, 1.0]
    >>> np.quantile(bits, [0.3, 0.7]).round(6).tolist()
    [0.2, 1.0]
    """
    # In order, the last zero is number draws - ones - 1; the ends lie on the line between values.
    last = draws - np.asarray(ones) - 1
    return np.stack([np.clip(tail * (draws - 1) - last, 0.0, 1.0) for tail in tails(level)])

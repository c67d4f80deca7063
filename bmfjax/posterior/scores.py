"""How probable draws make what was observed: log densities of cells, and scores of cells left out.

The functions that end in `_density` take values (cell,) and what each draw says of them, and return
(draw of all chains, cell).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import gammaln, log_expit, log_ndtr, logsumexp, ndtr, xlogy

from bmfjax.data import Ratings, RealMatrix, checks
from bmfjax.data.blocks import blocks
from bmfjax.diagnostics import LeaveOneOut, leave_one_out
from bmfjax.diagnostics.leave_one_out import left_out_means
from bmfjax.posterior.selection import MAX_ENTRIES

#: The lowest probability whose logarithm is taken.
TINY = 1e-30
#: Observed entries that are scored, at most.
MAX_SCORED = 5000


def normal_density(values, fits, sd) -> np.ndarray:
    """Return the log density of numbers with normal noise of standard deviation `sd` (draw,)."""
    sd = np.asarray(sd, float)[:, None]
    return -0.5 * ((values - fits) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)


def flipped_density(values, product, rates) -> np.ndarray:
    """Return the log probability of bits that `product` (draw, cell) has before they are flipped.

    `rates` is (draw, 2): the flip rate of zeros, and that of ones.
    """
    of_zeros, of_ones = np.asarray(rates, float).T[..., None]
    return log_chance(values, np.where(product, 1.0 - of_ones, of_zeros))


def log_chance(values, one) -> np.ndarray:
    """Return the log probability of bits whose probability of a one is `one`, shaped alike."""
    return np.log(np.maximum(np.where(np.asarray(values) > 0.5, one, 1.0 - one), TINY))


def logit_density(values, log_odds) -> np.ndarray:
    """Return the log probability of bits given their log odds."""
    return log_expit(np.where(np.asarray(values) > 0.5, 1.0, -1.0) * log_odds.astype(float))


def probit_density(values, fits) -> np.ndarray:
    """Return the log probability of bits behind a probit."""
    return log_ndtr(np.where(np.asarray(values) > 0.5, 1.0, -1.0) * fits.astype(float))


def star_density(at, fits, cuts) -> np.ndarray:
    """Return the log probability of stars, at positions (cell,), between cut points (draw, cut)."""
    ends = np.full((len(cuts), 1), np.inf)
    cuts = np.concatenate([-ends, cuts, ends], 1).astype(float)
    fits = fits.astype(float)
    low, high = cuts[:, at] - fits, cuts[:, at + 1] - fits
    # In the upper tail by its mirror image, where differences do not cancel.
    share = np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    return np.log(np.maximum(share, TINY))


def below_star(at, fits, cuts) -> np.ndarray:
    """Return probabilities (2, draw, cell) of lower stars, and of these or that of the cell.

    Arguments are those of `star_density`.
    """
    ends = np.full((len(cuts), 1), np.inf)
    cuts = np.concatenate([-ends, cuts, ends], 1).astype(float)
    return np.stack([ndtr(cuts[:, place] - fits) for place in (at, at + 1)])


def count_density(values, rate, size=None) -> np.ndarray:
    """Return the log probability of counts: Poisson, or negative binomial with this `size`."""
    if size is None:
        return xlogy(values, rate) - rate - gammaln(values + 1.0)
    return (
        gammaln(values + size) - gammaln(size) - gammaln(values + 1.0)
        + xlogy(values, rate / (size + rate)) - size * np.log1p(rate / size)
    )  # fmt: skip


def drawn_ones(fit, i, j, rng) -> np.ndarray:
    """Return ones and zeros (draw, cell) of some cells, drawn with their probability."""
    one = np.exp(fit._log_density(i, j, np.ones(len(i))))
    return (rng.random(one.shape) < one).astype(float)


def observed_sample(data, number: int = MAX_SCORED, seed: int = 0):
    """Return rows, columns and values of up to `number` observed cells, drawn at random."""
    rng = np.random.default_rng(checks.seed_number(seed))
    if isinstance(data, Ratings):
        at = np.sort(rng.choice(data.num_ratings, min(number, data.num_ratings), replace=False))
        return data.rows[at], data.columns[at], data.values[at]
    size = data.num_rows * data.num_columns
    if isinstance(data, RealMatrix) and data.is_sparse:
        at = np.sort(rng.choice(size, min(number, size), replace=False))
        i, j = np.divmod(at, data.num_columns)
        return i, j, data.at(i, j)
    if size <= MAX_ENTRIES or isinstance(data, RealMatrix):
        seen = np.flatnonzero(data.observed())
        at = np.sort(rng.choice(seen, min(number, len(seen)), replace=False))
        i, j = np.divmod(at, data.num_columns)
        return i, j, data.dense()[i, j]
    i, j = np.divmod(_hit(rng, data, size, number), data.num_columns)
    return i, j, data.at(i, j)[0].astype(float)


def _hit(rng, data, size, number):
    """Draw positions of a matrix that is not formed, until enough of them are observed."""
    seen = size - data.num_missing
    found, most = np.zeros(0, np.int64), min(number, seen)
    several = min(2 * number * size // seen, MAX_ENTRIES)
    while len(found) < most:
        drawn = rng.integers(0, size, several)
        _, hidden = data.at(*np.divmod(drawn, data.num_columns))
        found = np.union1d(found, drawn[~hidden])
    return np.sort(rng.permutation(found)[:most])


def predictive(fit, cells) -> np.ndarray:
    r"""Return the log predictive density (cell,) of `cells` (rows, columns, values) not fitted.

    .. math:: \log \frac{1}{S} \sum_s p(x_{ij} \mid \theta_s)
    """
    return np.concatenate([_averaged_draws(density) for density in _densities(fit, cells)])


def places(fit, cells) -> np.ndarray:
    """Return predictive probabilities (end, cell) of less than the values of cells not fitted.

    For stars they are two, the other that of these or the value of the cell (`_below`).
    """
    i, j, values = cells
    width = 4 * fit.usage_draws.shape[0] * fit.usage_draws.shape[1]
    found = [fit._below(i[s], j[s], values[s]).mean(1) for s in blocks(len(i), width)]
    return np.concatenate(found, -1)


def places_left_out(fit, cells) -> np.ndarray:
    """Return `places` of observed cells, each left out; chains are averaged as they are."""
    i, j, values = cells
    chains, draws = fit.usage_draws.shape[:2]
    found = []
    for some in blocks(len(i), 8 * chains * draws):
        cell = i[some], j[some], values[some]
        density = fit._log_density(*cell).reshape(chains, draws, -1)
        below = fit._below(*cell)
        below = below.reshape(len(below), chains, draws, -1)
        each = [left_out_means(density[chain], below[:, chain]) for chain in range(chains)]
        found.append(np.mean(each, 0))
    return np.concatenate(found, -1)


def scored(fit, cells) -> list[LeaveOneOut]:
    """Return how well each chain predicts `cells` (rows, columns, values), each left out."""
    return _of_cells([_left_out(fit, density) for density in _densities(fit, cells)])


def scored_and_predicted(fit, cells) -> tuple[list[LeaveOneOut], np.ndarray]:
    """Return `scored` and `predictive` of the same cells."""
    parts = [(_left_out(fit, d), _averaged_draws(d)) for d in _densities(fit, cells)]
    left_out, fitted = zip(*parts, strict=True)
    return _of_cells(left_out), np.concatenate(fitted)


def _densities(fit, cells) -> Iterator[np.ndarray]:
    """Yield the log densities (draw of all chains, cell) of a block of cells at a time."""
    i, j, values = cells
    chains, draws = fit.usage_draws.shape[:2]
    # A few numbers a cell for every draw.
    for some in blocks(len(i), 4 * chains * draws):
        yield fit._log_density(i[some], j[some], values[some])


def _averaged_draws(density) -> np.ndarray:
    return logsumexp(density, 0) - np.log(len(density))


def _left_out(fit, density) -> list[LeaveOneOut]:
    """Return how well each chain predicts the cells of a block."""
    own = density.reshape(*fit.usage_draws.shape[:2], -1)
    return [leave_one_out(chain, bounded=fit._has_bounded_scores) for chain in own]


def _of_cells(parts) -> list[LeaveOneOut]:
    """Join what is known of blocks of cells, of each chain."""
    return [
        LeaveOneOut(*map(np.concatenate, zip(*found, strict=True)))
        for found in zip(*parts, strict=True)
    ]


def scored_together(fit, cells) -> LeaveOneOut:
    """Return how well all chains predict `cells`, their predictions averaged as they are.

    Ratios over the draws of all chains would weigh a chain by how badly it predicts an entry, where
    it is in a mode of its own. What half of the chains say too little of is doubtful.
    """
    return averaged(scored(fit, cells))


def averaged(found: list[LeaveOneOut]) -> LeaveOneOut:
    """Return the scores of all chains, their predictions averaged as they are."""
    mean = logsumexp([f.log_score for f in found], axis=0) - np.log(len(found))
    return LeaveOneOut(mean, np.mean([f.doubtful for f in found], axis=0) >= 0.5)

"""The usage that rows are expected to have, by summing over every set of factors."""

from __future__ import annotations

import numpy as np

from bmfjax.data import BinaryMatrix

#: Factors up to which all 2^rank sets are summed over, and draws of the fit that are used.
MAX_RANK, MAX_DRAWS = 8, 400
#: Entries of a block of rows x columns, or of rows x sets of factors, formed at once.
BLOCK = 4_000_000
#: Rates and densities keep this far from 0 and 1, where rows that cannot be would have no mean.
EDGE = 1e-12


def expected_usage(rows: BinaryMatrix, basis_draws, flip_rate, usage_density) -> np.ndarray:
    r"""Posterior means of the usage of each row, exact for every draw of everything else.

    .. math::
        E[z_i \mid x_i, u, f, \pi] \propto \sum_z z \prod_k \pi_k^{z_k} (1 - \pi_k)^{1 - z_k}
        \prod_j P\bigl(x_{ij} \mid \textstyle\bigvee_k z_k u_{jk}\bigr)

    (likelihood: Rukat, Holmes, Titsias, Yau 2017), averaged over draws. A row's means depend on
    no other row given them. Of a fitted row they estimate the same as the draws of its usage do,
    with less noise.

    Parameters
    ----------
    rows : BinaryMatrix
        Missing entries are left out.
    basis_draws : (chain, draw, columns, rank) bool or `PackedDraws`
        At most 400 draws are used, evenly spread.
    flip_rate : (chain, draw) or (chain, draw, 2) float
    usage_density : (chain, draw, rank) float

    Returns
    -------
    (rows, rank) float64

    Examples
    --------
    >>> basis = np.array([[[[1, 0], [1, 0], [0, 1], [0, 1]]]], bool)
    >>> row = BinaryMatrix([[1, 1, 0, 0]])
    >>> expected_usage(row, basis, np.full((1, 1), 0.1), np.full((1, 1, 2), 0.5)).round(3).tolist()
    [[0.988, 0.012]]
    """
    chains, draws, num_columns, rank = basis_draws.shape
    rates = np.asarray(flip_rate, float).reshape(chains * draws, -1)
    rates = np.clip(np.broadcast_to(rates, (chains * draws, 2)), EDGE, 1 - EDGE)
    densities = np.clip(np.reshape(usage_density, (-1, rank)).astype(float), EDGE, 1 - EDGE)
    chosen = np.unique(np.linspace(0, chains * draws - 1, MAX_DRAWS).astype(int))
    sets = (np.arange(2**rank)[:, None] >> np.arange(rank) & 1).astype(float)
    covers = [_covers(sets, basis_draws[c // draws, c % draws]) for c in chosen]
    all_ones, all_missing = rows.ones(), rows.missing()
    out = np.zeros((rows.num_rows, rank))
    step = max(1, BLOCK // max(num_columns, len(sets)))
    for i in range(0, rows.num_rows, step):
        block = slice(i, i + step)
        # Counts are whole numbers, so that sums do not depend on the rows beside a row.
        ones, missing = (m[block].toarray().astype(np.float32) for m in (all_ones, all_missing))
        missing = missing if missing.any() else None
        for cover, rate, density in zip(covers, rates[chosen], densities[chosen], strict=True):
            prior = sets @ (np.log(density) - np.log1p(-density))
            scores = prior + _log_likelihood(ones, missing, cover, *rate)
            weights = np.exp(scores - scores.max(1, keepdims=True))
            out[block] += weights @ sets / weights.sum(1, keepdims=True)
    return np.clip(out / len(chosen), 0.0, 1.0)


def _covers(sets, basis):
    """Columns that each set of factors covers, (sets, columns)."""
    return (sets @ np.asarray(basis, float).T > 0.5).astype(np.float32)


def _log_likelihood(ones, missing, cover, f0, f1):
    """Of each row under each set of factors, less that under the empty set; (rows, sets)."""
    hits = (ones @ cover.T).astype(float)
    seen = cover.sum(1, dtype=float)
    if missing is not None:
        seen = seen - missing @ cover.T
    return hits * np.log((1 - f1) / f0) + (seen - hits) * np.log(f1 / (1 - f0))

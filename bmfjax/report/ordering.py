"""An order of rows and columns in which the tiles of a fit become blocks.

The labels of the rows take no part: where they come out sorted, the factors have found them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import cdist

from bmfjax.data.blocks import spaced

#: Distinct combinations of factors up to which they are ordered by likeness (cubic time).
MAX_CODES = 300
#: Share of the lines below which a combination is rare.
RARE = 0.01
#: Entries of a table of combinations x lines that is formed to compare combinations.
MAX_COMPARED = 1_000_000


class Order(NamedTuple):
    """Positions of rows and columns in the order to draw them, int."""

    rows: np.ndarray
    columns: np.ndarray


def order_by_factors(fit) -> Order:
    """Order both sides of the matrix of a fit.

    Rows with the same Boolean factors stay together, and groups of rows with like reconstructions
    are neighbours. Columns follow in the order of the rows they share. What is in no factor comes
    last, and after it what has no observed entry. Lines of real factors with the same largest part
    stand together, from its highest value to its lowest.
    """
    if fit.binary is None:
        usage, basis = fit._usage, fit._basis
        return Order(
            _by_largest_part(usage, basis, fit.data.empty_rows),
            _by_largest_part(basis, usage, fit.data.empty_columns),
        )
    return order_factors(
        fit._usage_binary,
        fit._basis_binary,
        fit._usage @ fit._basis.mean(0),
        fit._basis @ fit._usage.mean(0),
        fit.data.empty_rows,
        fit.data.empty_columns,
    )


def specificity(factors, other) -> np.ndarray:
    """Return by how much each line's part in a factor exceeds its largest part in others.

    Parts are on the scale of the data: `factors` (lines, rank) times the size of the `other` side.
    """
    parts = np.abs(factors) * np.sqrt((np.asarray(other, float) ** 2).mean(0))
    if parts.shape[1] < 2:
        return parts
    second, first = np.partition(parts, -2, axis=1)[:, -2:].T
    is_first = np.arange(parts.shape[1]) == parts.argmax(1)[:, None]
    return parts - np.where(is_first, second[:, None], first[:, None])


def most_specific(scores, most: int) -> np.ndarray:
    """Return up to `most` lines, each factor's most specific in turn, in the order of the lines.

    Where there is no room for all, lines that no factor has for itself are left out.
    """
    if len(scores) <= most:
        return np.arange(len(scores))
    places = np.argsort(np.argsort(-scores, axis=0, kind="stable"), axis=0).min(1)
    first = np.lexsort((-scores.max(1), places))[:most]
    own = first[scores[first].max(1) > 0]
    return np.sort(own if len(own) else first)


def _by_largest_part(factors, other, empty) -> np.ndarray:
    parts = factors * np.sqrt((other**2).mean(0))
    largest = np.abs(parts).argmax(1)
    last = np.zeros(len(parts), bool)
    last[np.asarray(empty, int)] = True
    return np.lexsort((-parts[np.arange(len(parts)), largest], largest, last))


def order_factors(
    usage, basis, row_weight=None, column_weight=None, empty_rows=(), empty_columns=()
) -> Order:
    """Order two Boolean factors, (rows, rank) and (columns, rank); see `order_by_factors`.

    Lines with the same factors stand in falling weight, and lines that are empty come last.
    """
    usage, basis = np.asarray(usage, bool), np.asarray(basis, bool)
    codes, group = _distinct(usage)
    rows = _arrange(_likeness_rank(codes, np.bincount(group), basis)[group], row_weight, empty_rows)
    codes, group = _distinct(basis)
    columns = _arrange(_position_rank(codes, usage[rows])[group], column_weight, empty_columns)
    return Order(rows, columns)


def _arrange(rank, weight, empty):
    weight = np.zeros(len(rank)) if weight is None else np.asarray(weight)
    last = np.zeros(len(rank), bool)
    last[np.asarray(empty, int)] = True
    return np.lexsort((-weight, rank, last))


def _distinct(binary):
    """Distinct combinations of factors, first factors first, and which one each line has."""
    codes, group = np.unique(~binary, axis=0, return_inverse=True)
    return ~codes, group.reshape(-1)  # numpy 2.0 alone gives the inverse a second axis


def _likeness_rank(codes, counts, other):
    """Place of each combination, so that neighbours give like lines of the Boolean product."""
    used = codes.any(1)
    common = np.flatnonzero(used & (counts >= RARE * counts.sum()))
    if counts[common].sum() < 0.5 * counts[used].sum():
        common = np.flatnonzero(used)
    if not 2 < len(common) <= MAX_CODES:
        # Lexicographic: the first factor whole, then what is left of the second, and so on.
        return np.arange(len(codes), dtype=float)
    # The small addition keeps combinations apart that give the same line.
    lines = np.hstack([_product(codes, other), 1e-3 * codes])
    places = np.argsort(leaves_list(linkage(lines[common], "average", "cityblock", True)))
    first = codes[common][:, 0]
    if first.any() and places[first].mean() > (len(common) - 1) / 2:
        places = len(common) - 1 - places  # the largest factor on top
    rank = np.full(len(codes), float(len(codes)))
    rank[common] = places
    # Rare combinations stand beside the common one nearest to them: as steps of their own they
    # would bridge groups that have little to do with each other.
    rare = np.setdiff1d(np.flatnonzero(used), common)
    if len(rare):
        near = cdist(lines[rare], lines[common], "cityblock").argmin(1)
        rank[rare] = places[near] + 0.5 * (1 + np.arange(len(rare))) / (1 + len(rare))
    return rank


def _position_rank(codes, other):
    """Place of each combination by the mean position of the ordered lines that it meets."""
    lines = _product(codes, other)
    met = lines.sum(1)
    centre = np.where(met > 0, lines @ np.arange(lines.shape[1]) / np.maximum(met, 1), np.inf)
    # Ties in the order of the codes, so that lines with different factors never interleave.
    return np.argsort(np.lexsort((np.arange(len(codes)), centre)))


def _product(codes, other):
    """Boolean product of the codes with some evenly spaced lines of the other side, float."""
    some = spaced(len(other), max(1, MAX_COMPARED // len(codes)))
    return (codes.astype(np.float32) @ other[some].astype(np.float32).T > 0).astype(float)


def block_size(number: int, most: int) -> int:
    """Return how many lines to average so that at most `most` remain."""
    return -(-number // most)


def pool(values, rows: int, columns: int) -> np.ndarray:
    """Average blocks of so many rows and columns of a matrix, (rows, columns, ...).

    The last block of either side may be smaller. NaN is left out; a block of nothing else is NaN.
    """
    values = np.asarray(values, float)
    if rows == columns == 1:
        return values
    known = ~np.isnan(values)
    total, count = _sums(np.where(known, values, 0.0), rows, columns), _sums(known, rows, columns)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _sums(values, rows, columns):
    values = np.add.reduceat(values.astype(float), np.arange(0, values.shape[0], rows), axis=0)
    return np.add.reduceat(values, np.arange(0, values.shape[1], columns), axis=1)

r"""Cells that are hidden from fits, the same for every rank, and scores of ranks side by side.

Two ways to hide. By entries: single cells, drawn at random, are missing in one fit
(`bmfjax.posterior.held_out`). By bi-cross-validation (Owen, Perry 2009): rows are split into parts,
and columns too. A fit to all other rows learns the basis, the usage of the rows of a part is
inferred from the columns outside a block, and the cells of the part in that block are scored. Owen
and Perry fit the rows and columns outside of both alone. Here the fit sees the other rows whole, so
that one fit a part serves all blocks of columns; no cell is predicted from itself, nor from its row
and column block.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bmfjax.data.parts import repeated, rows_of, without_cells
from bmfjax.posterior.held_out import MOST_CELLS
from bmfjax.posterior.scores import observed_sample
from bmfjax.verdict.undrawn import said_elsewhere

#: Parts of the rows, each left out by a fit, and blocks of the columns.
ROW_PARTS, COLUMN_BLOCKS = 2, 5
#: Entries of the rows that a fit leaves out, at most.
MOST_ENTRIES = 4_000_000


# ---- cells ---------------------------------------------------------------------------------------


class Part(NamedTuple):
    """Rows that are left out, the data without them, and cells of these rows that are scored.

    In `new` the rows stand once for every block of columns, which are missing there, so that all
    blocks are scored at once.
    """

    data: Any
    new: Any
    cells: tuple[np.ndarray, np.ndarray, np.ndarray]  # rows in `new`, columns, values, (cell,) each
    cell_rows: np.ndarray  # the row of every cell in the whole data, (cell,)

    def score(self, fit, seed: int = 0) -> np.ndarray:
        """Return the log predictive density (cell,) by a fit to `data`."""
        with said_elsewhere(fit):  # in its verdict, which stands beside the score
            return fit.score_new(self.new, *self.cells, seed=seed)


def left_out_rows(data, seed: int) -> list[Part]:
    """Return the parts of the rows, of one size, so that their fits share compiled programs."""
    rng = np.random.default_rng(seed)
    size = min(data.num_rows // ROW_PARTS, max(50, MOST_ENTRIES // data.num_columns))
    rows, number = rng.permutation(data.num_rows), min(COLUMN_BLOCKS, data.num_columns)
    block_of = rng.permutation(np.arange(data.num_columns) % number)
    return [
        _part(data, np.sort(rows[p * size : (p + 1) * size]), block_of, seed)
        for p in range(ROW_PARTS)
    ]


def _part(data, rows, block_of, seed) -> Part:
    """Return a part of rows (row,); `block_of` (column,) tells which columns are hidden at once."""
    left_out = rows_of(data, rows)
    i, j, values = observed_sample(left_out, MOST_CELLS // ROW_PARTS, seed)
    # The rows once for each block, and there without the columns of the block.
    at, column = np.meshgrid(np.arange(len(rows)), np.arange(data.num_columns), indexing="ij")
    hidden = (block_of[column] * len(rows) + at).ravel(), column.ravel()
    new = without_cells(repeated(left_out, block_of.max() + 1), *hidden)
    others = np.setdiff1d(np.arange(data.num_rows), rows)
    return Part(rows_of(data, others), new, (block_of[j] * len(rows) + i, j, values), rows[i])


# ---- scores of ranks -----------------------------------------------------------------------------


def side_by_side(scores: dict[int, np.ndarray], rows: np.ndarray) -> dict[str, dict[int, float]]:
    r"""Return means of scores and their differences to the best rank, with standard errors.

    Cells of a row depend on each other, so errors are of sums over rows:

    .. math:: \frac{1}{N} \Bigl( \frac{G}{G - 1} \sum_g \bigl( \sum_{i \in g} (d_i - \bar d)
              \bigr)^2 \Bigr)^{1/2}

    with :math:`N` cells in :math:`G` rows (Liang, Zeger 1986, Biometrika 73(1)).

    `scores` (cell,) of every rank are of the same cells, which are in `rows`. The keys are "mean",
    "se", "difference" and "difference_se".
    """
    if not scores:
        return {name: {} for name in ("mean", "se", "difference", "difference_se")}
    best = max(scores, key=lambda rank: scores[rank].mean())
    behind = {rank: s - scores[best] for rank, s in scores.items()}
    return {
        "mean": {rank: float(s.mean()) for rank, s in scores.items()},
        "se": {rank: _error(s, rows) for rank, s in scores.items()},
        "difference": {rank: float(d.mean()) for rank, d in behind.items()},
        "difference_se": {rank: _error(d, rows) for rank, d in behind.items()},
    }


def _error(values, rows) -> float:
    """Return the standard error of a mean of values (cell,) that come in rows (cell,)."""
    _, of_cell = np.unique(rows, return_inverse=True)
    sums = np.bincount(of_cell, values - values.mean())
    groups = len(sums)
    if groups < 2:
        return float("nan")
    return float(np.sqrt(groups / (groups - 1) * (sums**2).sum()) / len(values))

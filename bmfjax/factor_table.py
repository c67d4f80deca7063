"""The table of a fit: one factor a row."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bmfjax import posterior
from bmfjax.draws import as_packed
from bmfjax.selection import MAX_ENTRIES


def factor_table(fit, probability: np.ndarray | None = None) -> pd.DataFrame:
    """The table of `Fit.summary`; `probability` of the whole matrix where it is known already."""
    table = _of_real(fit) if fit.is_real else _of_tiles(fit, probability)
    frame = pd.DataFrame(table).set_index("factor")
    frame.attrs = {k: v for k, v in fit.scalars.items() if np.ndim(v) == 0}
    return frame


def _of_tiles(fit, probability) -> list[dict]:
    u, v = fit.usage_binary, fit.basis_binary
    ones, observed = fit.data.tile_counts(u, v)
    means = _tile_means(fit, probability)
    table = []
    for k in range(fit.rank):
        table.append(
            {
                "factor": k + 1,
                "rows": int(u[:, k].sum()),
                "columns": int(v[:, k].sum()),
                "density": float(ones[k] / observed[k]) if observed[k] else np.nan,
                "probability": float(means[k]),
                "agreement": float(fit.agreement[k]),
                "sd": float(np.concatenate([fit.usage_sd[:, k], fit.basis_sd[:, k]]).mean()),
            }
        )
    return table


def _tile_means(fit, probability) -> np.ndarray:
    """Mean probability of every tile: of the whole matrix, or some rows at a time."""
    u, v = fit.usage_binary, fit.basis_binary
    large = fit.data.num_rows * fit.data.num_columns > MAX_ENTRIES
    if large and fit.is_boolean:
        return posterior.tile_means(as_packed(fit.usage_draws), as_packed(fit.basis_draws), u, v)
    columns, total = range(fit.data.num_columns), np.zeros(fit.rank)
    step = max(1, MAX_ENTRIES // fit.data.num_columns)
    for start in range(0, fit.data.num_rows, step):
        rows = range(start, min(start + step, fit.data.num_rows))
        chance = (
            fit.probability(rows, columns) if probability is None else probability[start:][:step]
        )
        total += np.sum(chance @ v.astype(float), axis=0, where=u[rows.start : rows.stop])
    size = u.sum(0, dtype=float) * v.sum(0, dtype=float)
    return total / np.where(size > 0, size, np.nan)


def _of_real(fit) -> list[dict]:
    table = []
    for k in range(fit.rank):
        usage, basis = fit.usage[:, k], fit.basis[:, k]
        table.append(
            {
                "factor": k + 1,
                "size": float(np.sqrt((usage**2).mean() * (basis**2).mean())),
                "rows": int((abs(usage) > 2 * fit.usage_sd[:, k]).sum()),
                "columns": int((abs(basis) > 2 * fit.basis_sd[:, k]).sum()),
                "agreement": float(fit.agreement[k]),
                "sd": float(np.concatenate([fit.usage_sd[:, k], fit.basis_sd[:, k]]).mean()),
            }
        )
    return table

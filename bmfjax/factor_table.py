"""The table of a fit: one factor a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from bmfjax.result import Fit


def factor_table(fit: Fit) -> pd.DataFrame:
    """The table of `Fit.summary`."""
    table = _of_real(fit) if fit.is_real else _of_tiles(fit)
    frame = pd.DataFrame(table).set_index("factor")
    frame.attrs = {k: v for k, v in fit.scalars.items() if np.ndim(v) == 0}
    return frame


def _of_tiles(fit) -> list[dict]:
    ones, missing = fit.data.ones(), fit.data.missing()
    table = []
    for k in range(fit.rank):
        u, v = fit.usage_binary[:, k], fit.basis_binary[:, k]
        size = int(u.sum()) * int(v.sum())
        seen = size - int(missing[u][:, v].sum()) if size else 0
        tile = fit.probability(np.flatnonzero(u), np.flatnonzero(v)) if size else np.empty(0)
        table.append(
            {
                "factor": k + 1,
                "rows": int(u.sum()),
                "columns": int(v.sum()),
                "density": float(ones[u][:, v].sum()) / seen if seen else np.nan,
                "probability": float(tile.mean()) if tile.size else np.nan,
                "agreement": float(fit.agreement[k]),
                "sd": float(np.concatenate([fit.usage_sd[:, k], fit.basis_sd[:, k]]).mean()),
            }
        )
    return table


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

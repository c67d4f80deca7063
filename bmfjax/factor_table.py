"""The table of a fit: one factor a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from bmfjax.result import Fit


def factor_table(fit: Fit) -> pd.DataFrame:
    """The table of `Fit.summary`."""
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
    frame = pd.DataFrame(table).set_index("factor")
    frame.attrs = {k: v for k, v in fit.scalars.items() if np.ndim(v) == 0}
    return frame

"""The ArviZ container of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from bmfjax.diagnostics import to_inference_data
from bmfjax.selection import MAX_ENTRIES

#: Sites with an axis of factors, of rows or of columns.
DIMS = {
    "usage": ["rows", "factor"],
    "basis": ["columns", "factor"],
    "rate": ["factor"],
    "usage_density": ["factor"],
    "basis_density": ["factor"],
    "row_effect": ["rows"],
    "column_effect": ["columns"],
    "usage_mean": ["factor"],
    "basis_mean": ["factor"],
    "usage_precision": ["factor", "other_factor"],
    "basis_precision": ["factor", "other_factor"],
    "data": ["rows", "columns"],
}


def inference_data(fit) -> Any:
    """The container of `Fit.idata`."""
    warmup = int(fit.scalars["num_warmup"])
    kept = fit.usage_draws.shape[1]
    every = max(1, int(fit.scalars["thinning"]))
    last = warmup + every * np.arange(1, kept + 1) - 1
    # The trace of a variational fit is of its optimisation, and not of draws.
    trace = {} if fit.approximation else fit.trace
    statistics = {("lp" if n == "log_joint" else n): t[:, last] for n, t in trace.items()}
    observed = None
    if fit.data.num_rows * fit.data.num_columns <= MAX_ENTRIES:
        observed = {"data": fit.data.dense()}
    return to_inference_data(
        fit.draws(),
        sample_stats=statistics,
        observed_data=observed,
        dims=DIMS,
        coords={
            "rows": list(fit.data.row_names),
            "columns": list(fit.data.column_names),
            "factor": list(range(1, fit.rank + 1)),
            "other_factor": list(range(1, fit.rank + 1)),
        },
        attrs={"model": fit.model, "sampler": fit.sampler, "verdict": fit.verdict},
    )

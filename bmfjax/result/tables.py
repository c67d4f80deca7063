"""Arrays of a fit as data frames, with the names that its data have."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix, checks
from bmfjax.data.blocks import blocks
from bmfjax.data.reading.annotated import unwrapped
from bmfjax.data.reading.door import as_frame
from bmfjax.report import interop

#: Ends of an interval.
ENDS = ("lower", "upper")
#: Arrays that are tables by their names.
ARRAYS = ("usage", "basis", "usage_sd", "basis_sd")


def of_factors(fit, of: str) -> pd.DataFrame:
    """Return what `bmfjax.Fit.to_frame` does."""
    checks.one_of("of", of, ("factors", *ARRAYS, "specific"))
    if of == "factors":
        return interop.factors_frame(fit)
    if of == "specific":
        return _specific(fit)
    names = fit.data.row_names if of.startswith("usage") else fit.data.column_names
    return pd.DataFrame(getattr(fit, f"_{of}"), list(names), list(fit.factor_names))


def _specific(fit) -> pd.DataFrame:
    """Return how much more often the columns have ones in the rows of each factor."""
    if not (fit._is_of_ones and hasattr(fit, "usage_binary")):
        raise InputError(
            f"model {fit.model!r} has no rows that are in a factor; use to_frame('basis')"
        )
    inside, outside, ratio = _shares_of_ones(fit.data, np.asarray(fit._usage_binary))
    parts = []
    for k, name in enumerate(fit.factor_names):
        order = np.lexsort((-fit._basis[:, k], -ratio[k]))
        line = {"factor": name, "name": np.asarray(fit.data.column_names, object)[order]}
        line |= {"inside": inside[k, order], "outside": outside[k, order]}
        line |= {"log2_ratio": ratio[k, order], "mean": fit._basis[order, k]}
        parts.append(pd.DataFrame(line))
    return pd.concat(parts, ignore_index=True)


def _shares_of_ones(data, usage) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return shares of ones in and out of each factor's rows, and log2 ratios, (rank, columns)."""
    rows, columns = data.shape
    ones, seen = np.zeros((2, 2, usage.shape[1], columns))
    for some in blocks(rows, columns):
        found, hidden = data.part(np.arange(rows)[some], np.arange(columns))
        for side, members in enumerate((usage[some], ~usage[some])):
            ones[side] += members.T.astype(float) @ found
            seen[side] += members.T.astype(float) @ ~hidden
    share = ones / np.where(seen > 0, seen, np.nan)
    # One one more on both sides, at the rate of the column: what few entries tell is near 0.
    total = ones.sum(0)
    inside, outside = (ones + 1.0) / (seen + seen.sum(0) / np.where(total > 0, total, np.nan))
    known = (total > 0) & (seen > 0).all(0)
    return *share, np.where(known, np.log2(inside / outside), 0.0)


def names_of_rows(new) -> list | pd.Index | None:
    """Return the names of new rows, of a frame its index; None where rows have none."""
    if isinstance(new, BinaryMatrix | RealMatrix | Ratings):
        return list(new.row_names)
    found = as_frame(new)
    return found.index if isinstance(found, pd.DataFrame) else unwrapped(found)[1]


def of_entries(data, values, rows, columns, of: str | None = None) -> pd.DataFrame:
    """Return values (rows, columns), or intervals (2, rows, columns), with their names.

    What the values are `of` is the name of the columns.
    """
    index = [data.row_names[i] for i in rows]
    names = pd.Index([data.column_names[j] for j in columns], name=of)
    if np.ndim(values) == 2:
        return pd.DataFrame(values, index, names)
    ends = {end: pd.DataFrame(v, index, names) for end, v in zip(ENDS, values, strict=True)}
    return pd.concat(ends, axis=1)

"""A fit for other programs: a table of its factors, AnnData, and HTML for notebooks."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix
from bmfjax.errors import version_of
from bmfjax.verdict.undrawn import said_elsewhere

if TYPE_CHECKING:
    import anndata

#: The columns of `factors_frame`, as a regular expression.
HEADER = r"side,name,factor,mean,sd(,member)?"
#: Factors that a notebook shows.
SHOWN = 12
#: What a key of AnnData begins or ends with: of observations, and of variables.
OF_ROWS = {"usage": "X_{}", "usage_sd": "{}_usage_sd", "usage_binary": "{}_usage_binary"}
OF_COLUMNS = {"basis": "{}_basis", "basis_sd": "{}_basis_sd", "basis_binary": "{}_basis_binary"}


# ---- a table --------------------------------------------------------------------------------


def factors_frame(fit) -> pd.DataFrame:
    """Return what `bmfjax.Fit.to_frame` does."""
    sides = (("row", "usage", fit.data.row_names), ("column", "basis", fit.data.column_names))
    return pd.concat([_one_side(fit, *side) for side in sides], ignore_index=True)


def _one_side(fit, side, factor, names) -> pd.DataFrame:
    """Return the lines of a side: a name's factors stand together."""
    table = {
        "side": side,
        "name": np.repeat(np.asarray(names, object), fit.rank),
        "factor": np.tile(np.asarray(fit.factor_names, object), len(names)),
        "mean": getattr(fit, f"_{factor}").ravel(),
        "sd": getattr(fit, f"_{factor}_sd").ravel(),
    }
    if hasattr(type(fit), f"{factor}_binary"):
        table["member"] = np.asarray(getattr(fit, f"_{factor}_binary"), bool).ravel()
    return pd.DataFrame(table)


# ---- AnnData --------------------------------------------------------------------------------


def to_anndata(
    fit, adata: anndata.AnnData | None, key: str, obs: bool, overwrite: bool
) -> anndata.AnnData:
    """Do what `bmfjax.Fit.to_anndata` does."""
    if not isinstance(key, str) or not key:
        raise InputError(f"key is {key!r}; give a text that is not empty, such as 'bmf'")
    adata = _new_anndata(fit.data) if adata is None else adata
    columns_of_obs = [f"{key} {name}" for name in fit.factor_names] if obs else []
    taken = [*_taken(adata, key), *(f"obs[{n!r}]" for n in columns_of_obs if n in adata.obs)]
    if taken and not overwrite:
        raise InputError(
            f"the AnnData object has {', '.join(taken)} already; give another key, or "
            "overwrite=True"
        )
    data = fit.data
    rows = _places(data.row_names, data.has_row_names, adata.obs_names, "row")
    columns = _places(data.column_names, data.has_column_names, adata.var_names, "column")
    for group, at, number, names in (
        (adata.obsm, rows, adata.n_obs, OF_ROWS),
        (adata.varm, columns, adata.n_vars, OF_COLUMNS),
    ):
        for what, name in names.items():
            # Real factors have no Boolean ones; those of an older fit go.
            group.pop(name.format(key), None)
            if "binary" in what and not hasattr(type(fit), what):
                continue
            values = np.asarray(getattr(fit, f"_{what}"))
            # Lines that were not fitted are in no factor, as far as is known.
            nothing = False if values.dtype == bool else np.nan
            whole = np.full((number, fit.rank), nothing, values.dtype)
            whole[at] = values
            group[name.format(key)] = whole
    for name, values in zip(columns_of_obs, fit._usage.T, strict=bool(obs)):
        adata.obs[name] = pd.Series(values, adata.obs_names[rows])
    adata.uns[key] = _about(fit)
    return adata


def _taken(adata, key) -> list[str]:
    """Return the places in the object that are taken."""
    groups = (("obsm", adata.obsm, OF_ROWS), ("varm", adata.varm, OF_COLUMNS))
    wanted = [
        (f"{where}[{name.format(key)!r}]", name.format(key) in group)
        for where, group, names in groups
        for name in names.values()
    ]
    return [place for place, is_there in (*wanted, (f"uns[{key!r}]", key in adata.uns)) if is_there]


def _places(names, are_named, theirs, side) -> np.ndarray:
    """Return where the lines of the fit stand among those of the object."""
    attribute = "obs_names" if side == "row" else "var_names"
    if not are_named:
        if len(names) != len(theirs):
            raise InputError(
                f"the {side}s of the fit have no names, and are {len(names):,}, while the AnnData "
                f"object has {len(theirs):,}; give the object that was fitted, or fit with names"
            )
        return np.arange(len(names))
    index = pd.Index(theirs)
    if not index.is_unique:
        twice = index[index.duplicated()][0]
        raise InputError(
            f"{attribute} has {twice!r} twice, so that the {side}s of the fit cannot be found by "
            f"name; run adata.{attribute}_make_unique() before you fit"
        )
    at = index.get_indexer(list(names))
    if (at < 0).any():
        raise InputError(
            f"{side} {names[int(np.argmin(at))]!r} of the fit is not in {attribute} of the AnnData "
            "object; give the object that was fitted"
        )
    return at


def _new_anndata(data) -> anndata.AnnData:
    """Return a new object that holds the data, NaN where they are missing."""
    try:
        import anndata
    except ImportError as error:
        raise InputError(
            "to_anndata needs the package anndata; run pip install 'bmfjax[h5ad]'"
        ) from error
    if isinstance(data, Ratings):
        raise InputError("ratings are no AnnData matrix; give the object that was fitted as adata")
    if isinstance(data, BinaryMatrix) and not data.num_missing:
        values = data.ones().astype(np.float32)
    elif isinstance(data, RealMatrix) and data.is_sparse:
        values = data.nonzero().astype(np.float32)
    else:
        values = data.dense()
    frames = (pd.DataFrame(index=list(names)) for names in (data.row_names, data.column_names))
    return anndata.AnnData(values, *frames)


def _about(fit) -> dict:
    """Return what is said of a fit as a whole, as AnnData can write it to a file."""
    scalars = {n: float(v) for n, v in fit.figures.known().items() if isinstance(v, int | float)}
    return {
        "model": fit.model,
        "sampler": fit.sampler,
        "verdict": str(fit.verdict),
        "factor_names": np.asarray(fit.factor_names, object),
        "scalars": scalars,
        "settings": json.dumps(fit.settings, default=str),
        "version": version_of("bmfjax"),
    }


# ---- a notebook -----------------------------------------------------------------------------


def notebook_html(fit) -> str:
    """Return a small table of the factors, with the verdict above."""
    rows, columns = fit.data.shape
    name = f" of {fit.data.name}" if fit.data.name else ""
    title = f"{fit.model} by {fit.sampler}{name}: {rows:,} x {columns:,}, rank {fit.rank}"
    with said_elsewhere(fit):  # in the verdict
        table = fit.summary()
    more = f"<p>{len(table) - SHOWN} more factors: see <code>summary()</code>.</p>"
    said = "".join(
        f"<p>{html.escape(text)}</p>" for text in (str(fit.verdict), fit._doubts) if text
    )
    return (
        f"<div><p><b>{html.escape(title)}</b></p>{said}"
        f"{table.head(SHOWN).to_html(float_format=lambda v: f'{v:.3g}', border=0)}"
        f"{more if len(table) > SHOWN else ''}</div>"
    )

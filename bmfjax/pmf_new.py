"""Rows and columns that a matrix factorisation has not seen, given the other side."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix
from bmfjax.kernels.pmf_density import FACTORS
from bmfjax.kernels.pmf_sides import draw_side
from bmfjax.pmf_cells import LINKS
from bmfjax.pmf_plan import blocks_of, density_of

if TYPE_CHECKING:
    from bmfjax.result import Fit

SIDES = {"rows": "row", "columns": "column"}


def given_new(fit: Fit, new, side: str = "rows", sweeps: int = 25, seed: int = 0) -> Fit:
    """The fit of `Fit.given_new`."""
    if fit.model not in LINKS:
        raise InputError(f"model {fit.model!r} has no given_new; use transform()")
    if side not in SIDES:
        raise InputError(f"side is {side!r}; choose 'rows' or 'columns'")
    if sweeps < 1:
        raise InputError(f"sweeps is {sweeps}; give at least 1")
    new = _matrix(new, fit.model)
    _check_other_side(fit.data, new, side)
    drawn = _drawn(fit, new, SIDES[side], 1 if fit.model == "pmf" else sweeps, seed)
    usage, basis = (drawn.pop(n, None) for n in FACTORS.values())
    return dataclasses.replace(
        fit,
        data=new,
        usage_draws=fit.usage_draws if usage is None else usage,
        basis_draws=fit.basis_draws if basis is None else basis,
        other_draws=dict(fit.other_draws) | drawn,
    )


def _matrix(new, model):
    if isinstance(new, Ratings | RealMatrix | BinaryMatrix):
        return new
    return BinaryMatrix(new) if model == "probit" else RealMatrix(new)


def _check_other_side(fitted, new, side):
    from bmfjax.new_rows import check_columns

    if side == "rows":
        check_columns(fitted, new)
    elif new.num_rows != fitted.num_rows:
        raise InputError(
            f"the new columns have {new.num_rows} rows and the fitted matrix {fitted.num_rows}; "
            "give the same rows in the same order"
        )
    elif fitted.has_row_names and new.has_row_names and fitted.row_names != new.row_names:
        raise InputError(
            "the new columns name other rows than the fitted matrix, or in another order; give "
            "row_names=fit.data.row_names, or rows in that order"
        )


def _drawn(fit, new, side, sweeps, seed) -> dict:
    """Draws of the new lines' factors and effects, (chain, draw, ...)."""
    settings, chains, kept = fit.settings, *fit.usage_draws.shape[:2]
    link = LINKS[fit.model]
    stars = settings["stars"]
    values = [0.0] if stars is None else stars
    density = density_of(fit.rank, link, settings["priors"], values, stars)
    data, own = blocks_of(new, link, stars if link == "ordered" else None), FACTORS[side]
    size = new.num_rows if side == "row" else new.num_columns
    known = {n: v for n, v in fit.draws().items() if n not in (own, f"{side}_effect")}
    known = {n: np.asarray(v).reshape(chains * kept, *v.shape[2:]) for n, v in known.items()}
    start = {own: jnp.zeros((size, fit.rank))}
    if density.effects:
        start[f"{side}_effect"] = jnp.zeros(size)

    @jax.jit
    def one(key, known, data):
        def sweep(drawn, key):
            return draw_side(key, side, known | drawn, data, density), None

        return lax.scan(sweep, start, random.split(key, sweeps))[0]

    found = []
    for d, key in enumerate(random.split(random.key(seed), chains * kept)):
        found.append(jax.device_get(one(key, {n: v[d] for n, v in known.items()}, data)))
    return {
        n: np.stack([f[n] for f in found]).reshape(chains, kept, *found[0][n].shape) for n in start
    }

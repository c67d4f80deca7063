"""Rows and columns that a matrix factorisation has not seen, given the other side."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax import pmf_trust
from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix
from bmfjax.diagnostics import agreement
from bmfjax.kernels.pmf_density import FACTORS
from bmfjax.kernels.pmf_sides import draw_side
from bmfjax.outcome import data_figures
from bmfjax.pmf_cells import LINKS
from bmfjax.pmf_plan import blocks_of, density_of
from bmfjax.solutions import solutions

if TYPE_CHECKING:
    from bmfjax.result import Fit

SIDES = {"rows": "row", "columns": "column"}
#: Of latent values and vectors, between two draws that are kept.
SWEEPS = 25
#: How often the first draw of a chain is visited before those that are kept.
SETTLE = 20


def given_new(fit: Fit, new, side: str = "rows", sweeps: int | None = None, seed: int = 0) -> Fit:
    """The fit of `Fit.given_new`."""
    if fit.model not in LINKS:
        raise InputError(f"model {fit.model!r} has no given_new; use transform()")
    if side not in SIDES:
        raise InputError(f"side is {side!r}; choose 'rows' or 'columns'")
    if fit.model == "pmf":
        if sweeps is not None:
            raise InputError(f"sweeps is {sweeps}; model 'pmf' draws at once, leave it out")
        sweeps = 1
    sweeps = SWEEPS if sweeps is None else sweeps
    if sweeps < 1:
        raise InputError(f"sweeps is {sweeps}; give at least 1")
    new = _matrix(new, fit, side)
    _check_other_side(fit.data, new, side)
    _check_scale(fit.settings["scale"], new)
    drawn = _drawn(fit, new, SIDES[side], sweeps, seed)
    usage, basis = drawn.pop("usage", fit.usage_draws), drawn.pop("basis", fit.basis_draws)
    found = dataclasses.replace(
        fit,
        data=new,
        settings=dict(fit.settings) | {"given_new": side},
        usage_draws=usage,
        basis_draws=basis,
        other_draws=dict(fit.other_draws) | drawn,
        agreement=agreement(usage.mean(1), basis.mean(1)),
    )
    return dataclasses.replace(found, scalars=_scalars(fit, found, side))


def _scalars(fit, found, side) -> dict:
    """Figures of the new lines; what is said of the run itself stays."""
    # What a line that was fitted is like is known from the fit, also where no new line has it.
    other = f"{'columns' if side == 'rows' else 'rows'}_without_information"
    lines = pmf_trust.informed(fit.data) | {side: pmf_trust.informed(found.data)[side]}
    sides = np.arange(found.data.num_rows), np.arange(found.data.num_columns)
    after = {n: t[:, fit.scalars["num_warmup"] :] for n, t in fit.trace.items()}
    return {
        **fit.scalars,
        **data_figures(found.data, solutions(found.basis_draws, signed=False)),
        # The lines of the other side were learned in the fit, whatever the new ones have of them.
        other: fit.scalars[other],
        **pmf_trust.assess(
            lines, *found.product_draws(*sides), found.agreement, after,
            found.other_draws.get("cutpoints"), exact=found.model == "pmf",
        ),
    }  # fmt: skip


def _matrix(new, fit, side):
    """An array has the names of the fit's lines on the side that stays."""
    if isinstance(new, Ratings | RealMatrix | BinaryMatrix):
        return new
    kind = BinaryMatrix if fit.model == "probit" else RealMatrix
    bare, fitted = kind(new), fit.data
    if side == "rows" and fitted.has_column_names and bare.num_columns == fitted.num_columns:
        return kind(new, column_names=fitted.column_names)
    if side == "columns" and fitted.has_row_names and bare.num_rows == fitted.num_rows:
        return kind(new, row_names=fitted.row_names)
    return bare


def _check_scale(scale, new):
    if scale is None:
        return
    low, high = new.range
    if low < scale[0] or high > scale[1]:
        raise InputError(
            f"new ratings are from {low:g} to {high:g}, outside of the scale that was fitted, "
            f"{scale[0]:g} to {scale[1]:g}; give them on that scale"
        )


def _check_other_side(fitted, new, side):
    from bmfjax.new_rows import check_columns

    if side == "rows":
        check_columns(fitted, new)
    elif new.num_rows != fitted.num_rows:
        raise InputError(
            f"the new columns have {new.num_rows} rows and the fitted matrix {fitted.num_rows}; "
            f"give the same rows in the same order{_hint(new)}"
        )
    elif fitted.has_row_names and new.has_row_names and fitted.row_names != new.row_names:
        raise InputError(
            "the new columns name other rows than the fitted matrix, or in another order; give "
            f"rows in that order{_hint(new)}"
        )


def _hint(new):
    return ", by row_names=fit.data.row_names" if isinstance(new, Ratings) else ""


def _drawn(fit, new, side, sweeps, seed) -> dict:
    """Draws of the new lines' factors and effects, (chain, draw, ...)."""
    settings, chains = fit.settings, fit.num_chains
    link = LINKS[fit.model]
    stars = settings["stars"]
    density = density_of(fit.rank, link, settings["priors"], stars)
    data, own = blocks_of(new, link, stars if link == "ordered" else None), FACTORS[side]
    size = new.num_rows if side == "row" else new.num_columns
    known = {n: v for n, v in fit.draws().items() if n not in (own, f"{side}_effect")}
    start = {own: jnp.zeros((size, fit.rank))}
    if density.effects:
        start[f"{side}_effect"] = jnp.zeros(size)
    settle = 0 if link == "identity" else SETTLE

    @jax.jit
    @jax.default_matmul_precision("highest")
    def chain(key, known, data):
        def draw(drawn, at):
            key, known = at

            def sweep(drawn, key):
                return draw_side(key, side, known | drawn, data, density), None

            # From where the draw before ended: its sides are like these, up to a rotation.
            drawn, _ = lax.scan(sweep, drawn, random.split(key, sweeps))
            return drawn, drawn

        known = {n: jnp.concatenate([jnp.repeat(v[:1], settle, 0), v]) for n, v in known.items()}
        keys = random.split(key, len(next(iter(known.values()))))
        return lax.scan(draw, start, (keys, known))[1]

    found = []
    for c, key in enumerate(random.split(random.key(seed), chains)):
        drawn = jax.device_get(chain(key, {n: v[c] for n, v in known.items()}, data))
        found.append({n: v[settle:] for n, v in drawn.items()})
    return {n: np.stack([f[n] for f in found]) for n in start}

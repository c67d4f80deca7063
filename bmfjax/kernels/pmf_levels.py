"""The level of the fits: the intercept, or the cut points, and what effects share with others."""

from __future__ import annotations

import jax.numpy as jnp
from jax import random

from bmfjax.kernels.entry_blocks import flat_values
from bmfjax.kernels.pmf_cuts import draw_cuts_and_scale
from bmfjax.kernels.pmf_density import FACTORS, PMFDensity, noise_precision
from bmfjax.kernels.pmf_links import are_apart
from bmfjax.kernels.small_cholesky import back_substitute, cholesky


def draw_levels(key, position, fit, data, density: PMFDensity, inverse_temperature):
    """Draw the level, behind a probit together with the scale of the fits; translate the effects.

    Parameters
    ----------
    key : jax.Array
    position : dict
    fit : (entry,) float
        As of `bmfjax.kernels.pmf_sides.entry_fits`.
    data : EntryBlocks
    density : PMFDensity
    inverse_temperature : float

    Returns
    -------
    position : dict
    fit : (entry,) float
    accepted : () float
        1 where the step of level and scale was accepted, or none was needed; else 0.
    """
    key_level, *keys = random.split(key, 5)
    accepted = jnp.ones((), fit.dtype)
    value, seen = flat_values(data.by_column)
    if density.link == "ordered":
        position, fit, accepted = draw_cuts_and_scale(
            key_level, position, fit, value, seen, density
        )
    elif density.link == "probit":
        position, fit, accepted = _draw_threshold(key_level, position, fit, value, seen, density)
    else:
        weight = inverse_temperature * noise_precision(position, density)
        mean, sd = density.level
        # The residuals, the old intercept put back to what is explained.
        total = jnp.sum(jnp.where(seen, value - fit, 0.0))
        old, number = position["intercept"], jnp.sum(data.by_row.count)
        precision = sd**-2 + weight * number
        best = (mean / sd**2 + weight * (total + number * old)) / precision
        new = best + random.normal(key_level, (), fit.dtype) / jnp.sqrt(precision)
        position, fit = position | {"intercept": new}, fit + (new - old)
    if density.effects:
        for side, k, k_mean in zip(FACTORS, keys[:2], keys[2:], strict=True):
            position, moved = _translate(k, side, position, density)
            # Cut points move along with the fits, an intercept against the effects.
            fit = fit + moved
            if density.rank:
                position = _translate_mean(k_mean, side, position, density)
    return position, fit, accepted


def _draw_threshold(key, position, fit, value, seen, density):
    """Intercept and scale of a probit, whose intercept is minus the one cut point of two stars."""
    level, (mean, sd) = position["intercept"], density.level
    others = {n: v for n, v in position.items() if n != "intercept"}
    others, fit, accepted = draw_cuts_and_scale(
        key, others | {"cutpoints": -level[None]}, fit - level, (value > 0).astype(value.dtype),
        seen, density._replace(level=(-mean, sd)),
    )  # fmt: skip
    level = -others.pop("cutpoints")[0]
    return others | {"intercept": level}, fit + level, accepted


def _translate(key, side, position, density):
    """Move the level by t and a side's effects so that no probability changes.

    The density is normal along t. Returns the position, and by how much all fits moved.
    """
    name, (mean, sd) = f"{side}_effect", density.level
    site, sign = ("cutpoints", 1.0) if density.link == "ordered" else ("intercept", -1.0)
    level, effect, effect_precision = position[site], position[name], position[f"{side}_precision"]
    precision = level.size / sd**2 + effect.shape[0] * effect_precision
    linear = -jnp.sum(level - mean) / sd**2 - sign * effect_precision * jnp.sum(effect)
    t = linear / precision + random.normal(key, (), effect.dtype) / jnp.sqrt(precision)
    if density.link != "ordered":
        return position | {site: level + t, name: effect - t}, 0.0
    t = jnp.where(are_apart(level + t), t, 0.0)
    return position | {site: level + t, name: effect + t}, t


def _translate_mean(key, side, position, density):
    r"""Move a side's factors and their mean by d, and the other side's effects so that no fit does.

    :math:`(u_i + d)^\top v_j + (b_j - d^\top v_j)`: the density is normal along d, and without this
    move a mean times a mean is told from effects by slow steps alone.
    """
    mine, other = FACTORS[side], "column" if side == "row" else "row"
    mean, precision = position[f"{mine}_mean"], position[f"{mine}_precision"]
    theirs, effect = position[FACTORS[other]], position[f"{other}_effect"]
    weight = position[f"{other}_precision"]
    system = density.factors.strength * precision + weight * theirs.T @ theirs
    linear = weight * theirs.T @ effect - density.factors.strength * precision @ mean
    solved = cholesky(jnp.c_[system, linear][..., None], panel=density.rank)
    noise = random.normal(key, (density.rank, 1), mean.dtype)
    d = back_substitute(solved[:, :-1], solved[:, -1] + noise)[:, 0]
    return position | {
        mine: position[mine] + d,
        f"{mine}_mean": mean + d,
        f"{other}_effect": effect - theirs @ d,
    }

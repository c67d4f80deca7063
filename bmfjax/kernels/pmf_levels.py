"""The level of the fits: the intercept, or the cut points, and its trade with the effects."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax, random

from bmfjax.kernels.entry_blocks import flat_values
from bmfjax.kernels.pmf_density import FACTORS, PMFDensity, noise_precision
from bmfjax.kernels.pmf_links import latent, log_probabilities
from bmfjax.kernels.small_cholesky import back_substitute

#: Metropolis steps of the cut points in a sweep, in units of the best step for a normal.
CUT_STEPS = (1.0, 0.4)


def draw_levels(key, position, fit, information, data, density: PMFDensity, inverse_temperature):
    """Draw the intercept or the cut points, then translate them against the effects.

    Parameters
    ----------
    key : jax.Array
    position : dict
    fit : (entry,) float
        As of `bmfjax.kernels.pmf_sides.entry_fits`.
    information : (categories - 1, categories - 1) float
    data : EntryBlocks
    density : PMFDensity
    inverse_temperature : float

    Returns
    -------
    position : dict
    fit : (entry,) float
    accepted : () float
        Share of the cut points' steps that were accepted, 1 without.
    """
    key_level, *keys = random.split(key, 3)
    accepted = jnp.ones((), fit.dtype)
    value, seen = flat_values(data.by_column)
    if density.link == "ordered":
        cuts, accepted = _draw_cutpoints(
            key_level, position["cutpoints"], value, seen, fit, information, density
        )
        position = position | {"cutpoints": cuts}
    else:
        key_latent, key_level = random.split(key_level)
        z = latent(key_latent, density.link, value, fit)
        weight = inverse_temperature * noise_precision(position, density)
        mean, sd = density.level
        # The residuals, the old intercept put back to what is explained.
        total = jnp.sum(jnp.where(seen, z - fit, 0.0))
        old, number = position["intercept"], jnp.sum(data.by_row.count)
        precision = sd**-2 + weight * number
        best = (mean / sd**2 + weight * (total + number * old)) / precision
        new = best + random.normal(key_level, (), fit.dtype) / jnp.sqrt(precision)
        position, fit = position | {"intercept": new}, fit + (new - old)
    if density.effects:
        for side, k in zip(FACTORS, keys, strict=True):
            position, moved = _translate(k, side, position, density)
            # Cut points move along with the fits, an intercept against the effects.
            fit = fit + moved
    return position, fit, accepted


def _draw_cutpoints(key, cuts, value, seen, fit, information, density):
    """Metropolis steps on the cut points, without the latent values."""
    mean, sd = density.level

    def log_density(cuts):
        terms = log_probabilities("ordered", value, fit, cutpoints=cuts)
        prior = -0.5 * jnp.sum(((cuts - mean) / sd) ** 2)
        likelihood = jnp.sum(jnp.where(seen, terms, 0.0))
        return jnp.where(jnp.all(jnp.diff(cuts) > 0), likelihood + prior, -jnp.inf)

    def step(carry, at):
        cuts, here, accepted = carry
        size, key = at
        key_move, key_accept = random.split(key)
        noise = random.normal(key_move, (cuts.shape[0], 1), cuts.dtype)
        move = back_substitute(information[..., None], noise)[:, 0]
        proposed = cuts + size * 2.4 / cuts.shape[0] ** 0.5 * move
        there = log_density(proposed)
        accept = jnp.log(random.uniform(key_accept, (), cuts.dtype)) < there - here
        cuts = jnp.where(accept, proposed, cuts)
        return (cuts, jnp.where(accept, there, here), accepted + accept), None

    sizes = jnp.asarray(CUT_STEPS, cuts.dtype)
    start = cuts, log_density(cuts), jnp.zeros((), cuts.dtype)
    (cuts, _, accepted), _ = lax.scan(step, start, (sizes, random.split(key, len(CUT_STEPS))))
    return cuts, accepted / len(CUT_STEPS)


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
    moved = position | {site: level + t, name: effect + sign * t}
    return moved, (t if density.link == "ordered" else 0.0)

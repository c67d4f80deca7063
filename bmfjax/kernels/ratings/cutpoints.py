r"""The level of the fits: the intercept, or the cut points of a probit together with a scale.

`draw_levels` draws the intercept of a normal likelihood from its conditional, and cut points as
follows. It then translates the level and what effects and means of factors share with it.

The noise of the latent values is one, so that cut points :math:`c` and the scale of the fits
:math:`e` are known by each other alone: drawn one given the other, both wander slowly. A step
without latent values proposes new cut points and a factor :math:`s = e^t` for effects and factors
at once,

.. math::

   c \to c', \quad (u, a, b) \to s\,(u, a, b), \quad m_U \to s\,m_U, \quad
   (\Lambda_U, \tau_a, \tau_b) \to s^{-2}(\Lambda_U, \tau_a, \tau_b),

under which the densities of vectors and effects given their means and precisions only lose what the
Jacobian gives. The proposal is that of a Newton step from where the chain is,

.. math::

   x' \sim t_\nu\big(x + H^{-1} g, H^{-1}\big), \qquad x = (c_0, \log(c_1 - c_0), \dots, t),

with gradient g and curvature H of the log density there (Gamerman 1997, "Sampling from the
posterior distribution in generalized linear mixed models", Statistics and Computing 7, with tails
that let a chain come in from afar), and accepted as Metropolis and Hastings have it. In c and s the
likelihood is log-concave; in logarithms of the distances no proposal is out of order. Cut points
that floating point numbers could not separate (`bmfjax.kernels.ratings.density.are_distinct`) are
outside of the support: a category that is hardly ever given, among millions, would fall to no
width.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.kernels.numerics.budget import ONE_BY_ONE
from bmfjax.kernels.numerics.control import accepted
from bmfjax.kernels.numerics.linalg import back_substitute, cholesky
from bmfjax.kernels.numerics.normal_interval import interval
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.ratings.density import (
    COEFFICIENTS,
    FACTORS,
    OTHER,
    PMFDensity,
    are_distinct,
    bounds,
    explained_by_attributes,
    noise_precision,
)
from bmfjax.kernels.ratings.entries import flat_values

#: Entries looked at in one go, on a CPU, whose cache holds what is made of them, and elsewhere.
CHUNK, LARGE_CHUNK = 4_096, 32_768
#: Degrees of freedom of the proposal.
FREEDOM = 8


class Slopes(NamedTuple):
    """The log likelihood at some cut points and fits, and its derivatives."""

    terms: jax.Array  # (entry,): of the entries
    gain: jax.Array  # (): sum over the entries of their terms less those before
    gradient: jax.Array  # (categories,): in the cut points and, last, the log scale
    information: jax.Array  # (categories, categories): minus the second derivatives


@full_precision
def draw_cuts_and_scale(key, position, fit, value, seen, density: PMFDensity, chunk: int = CHUNK):
    """Draw cut points and scale given the fits, categories from 0 and padding; all (entry,).

    Return the position, the new fits, 1.0 where the step was accepted, else 0.0, and the log
    likelihood.
    """
    key_move, key_accept = random.split(key)
    mean, sd = density.level
    size = position["cutpoints"].size + 1
    noise, others = jnp.split(random.normal(key_move, (size + FREEDOM,), fit.dtype), [size])
    noise = noise / jnp.sqrt(jnp.mean(others**2))
    linear, rate = _scale_terms(position, density)

    def look(carry, _):
        cuts, log_scale, before = carry
        at = slopes(cuts, jnp.exp(log_scale) * fit, value, seen, before, chunk)
        at_scale = linear, rate * jnp.exp(-2.0 * log_scale)
        step, upper = _newton(cuts, at, at_scale, density)
        move = step + back_substitute(upper[..., None], noise[:, None])[:, 0]
        proposal = _moved(cuts, move[:-1]), log_scale + move[-1], at.terms
        likelihood = jnp.sum(jnp.where(seen, at.terms, 0.0))
        return proposal, (cuts, log_scale, at.gain, likelihood, step, upper)

    # At the cut points and at those proposed there, which is one program to compile.
    start = position["cutpoints"], jnp.zeros((), fit.dtype), jnp.zeros_like(fit)
    both = lax.scan(look, start, length=2)[1]
    (cuts, proposed), (_, log_scale), (_, gain), likelihoods, (ahead, back), uppers = both
    # What the proposal has become in floating point numbers.
    stretch = jnp.log(jnp.diff(proposed)) - jnp.log(jnp.diff(cuts))
    move = jnp.concatenate([proposed[:1] - cuts[:1], stretch, log_scale[None]])
    gain = (
        gain
        - 0.5 * jnp.sum((proposed - cuts) * (proposed + cuts - 2.0 * mean)) / sd**2
        + jnp.sum(stretch)  # the Jacobian of the logarithms of the distances
        + log_prior_gain(position, log_scale, density)
        + _log_proposal(uppers[1], uppers[1] @ (-move - back))
        - _log_proposal(uppers[0], uppers[0] @ (move - ahead))
    )
    accept = accepted(key_accept, gain)[0] & are_distinct(proposed)
    scale = jnp.exp(log_scale)
    scaled = scaled_position(position, scale) | {"cutpoints": proposed}
    position = jax.tree.map(lambda a, b: jnp.where(accept, b, a), position, scaled)
    fit, likelihood = (jnp.where(accept, b, a) for a, b in ((fit, scale * fit), likelihoods))
    return position, fit, accept.astype(fit.dtype), likelihood


def scaled_position(position, scale) -> dict:
    """Return the position with effects and usage times a scale, their means and precisions too."""
    powers = {"usage": 1, "usage_mean": 1, "usage_precision": -2}
    for side in FACTORS:
        powers |= {f"{side}_effect": 1, f"{side}_precision": -2}
    powers |= {site: powers[name] for name, site in COEFFICIENTS.items() if name in powers}
    return position | {n: position[n] * scale**p for n, p in powers.items() if n in position}


def log_prior_gain(position, log_scale, density: PMFDensity):
    """Return what `scaled_position` adds to the log density of the rest, with its Jacobian."""
    linear, rate = _scale_terms(position, density)
    return -linear * log_scale - rate * jnp.expm1(-2.0 * log_scale)


def _scale_terms(position, density):
    """Return a, b with which the log density is -a t - b exp(-2 t), t the log scale."""
    linear = rate = jnp.zeros(())
    if density.effects:
        shape, own_rate = density.effect_gamma
        linear += 2.0 * shape * len(FACTORS)
        rate += own_rate * sum(position[f"{side}_precision"] for side in FACTORS)
    if density.relevance:
        shape, own_rate = density.relevance_of("row")
        linear += 2.0 * shape * density.rank
        rate += own_rate * jnp.sum(position["usage_precision"])
    elif density.rank:
        prior = density.wishart_of("row")
        linear += density.rank * prior.degrees_of(density.rank)
        rate += 0.5 * jnp.trace(position["usage_precision"]) / prior.scale
    return linear, rate


@full_precision
def slopes(cuts, fit, value, seen, before, chunk: int = CHUNK) -> Slopes:
    """Return terms of the log likelihood, their sum and derivatives, chunk by chunk of entries.

    `before` (entry,) is subtracted from the terms before they are summed: a sum of many terms
    would not keep the digits in which two of them differ.
    """
    entries, categories = fit.shape[0], cuts.shape[0] + 1
    size = min(chunk, entries)
    chunks = -(-entries // size)

    def cut_up(x):
        return jnp.pad(x, (0, chunks * size - entries)).reshape(chunks, size)

    def of_chunk(total, at):
        fit, value, seen, before = at
        terms, features = _features(cuts, fit, value)
        which = value[:, None] == jnp.arange(categories, dtype=value.dtype)
        sums = features @ (which & seen[:, None]).astype(fit.dtype)
        gain = jnp.sum(jnp.where(seen, terms - before, 0.0))
        return (total[0] + sums, total[1] + gain), terms

    start = jnp.zeros((9, categories), fit.dtype), jnp.zeros((), fit.dtype)
    parts = tuple(cut_up(x) for x in (fit, value, seen, before))
    (sums, gain), terms = lax.scan(of_chunk, start, parts)
    return Slopes(terms.ravel()[:entries], gain, *_assembled(sums))


def _features(cuts, fit, value):
    """Return log probabilities, (entry,), and what their derivatives are made of, (9, entry)."""
    low, high = (end - fit for end in bounds(value, cuts))
    terms, below, above = interval(low, high)
    low, high = (jnp.where(jnp.isinf(end), 0.0, end) for end in (low, high))
    between = above - below
    with_high, with_low = above * (between + high), -below * (between + low)
    return terms, jnp.stack(
        [
            above,
            below,
            above * (above + high),
            below * (below - low),
            above * below,
            fit * with_high,
            fit * with_low,
            fit * between,
            fit**2 * (between**2 + high * above - low * below),
        ]
    )


def _assembled(sums):
    """Return gradient and information from sums over each category's entries, (9, categories)."""
    upper, lower = sums[:, :-1], sums[:, 1:]  # categories below and above each cut point
    gradient = jnp.append(upper[0] - lower[1], -jnp.sum(sums[7]))
    beside = -sums[4, 1:-1]
    cuts = jnp.diag(upper[2] + lower[3]) + jnp.diag(beside, 1) + jnp.diag(beside, -1)
    cross = -(upper[5] + lower[6])
    last = jnp.append(cross, jnp.sum(sums[8]))
    return gradient, jnp.concatenate([jnp.c_[cuts, cross], last[None]])


def _moved(cuts, move):
    """Return cut points with the lowest moved and the distances multiplied."""
    distances = jnp.diff(cuts) * jnp.exp(move[1:])
    return jnp.cumsum(jnp.append(cuts[0] + move[0], distances))


@full_precision
def _newton(cuts, at: Slopes, scale_terms, density):
    """Return a Newton step in c_0, log distances and log scale, and the factor of H."""
    (mean, sd), (linear, rate), number = density.level, scale_terms, cuts.size
    gradient = at.gradient.at[:-1].add(-(cuts - mean) / sd**2).at[-1].add(2.0 * rate - linear)
    prior = jnp.append(jnp.full(number, sd**-2.0), 4.0 * rate)
    curvature = at.information + jnp.diag(prior)
    # From cut points to the lowest and the distances, each of which moves all above it.
    jacobian = jnp.tril(jnp.ones((number, number), cuts.dtype))
    jacobian = jacobian.at[:, 1:].multiply(jnp.diff(cuts))
    jacobian = jnp.pad(jacobian, (0, 1)).at[-1, -1].set(1.0)
    gradient, curvature = jacobian.T @ gradient, jacobian.T @ curvature @ jacobian
    # The second derivative of the exponential, where it helps, and the Jacobian's one.
    bend = jnp.maximum(-gradient[1:-1], 1.0)
    # And of the scale, of which the step would be far too long from below.
    up = jnp.maximum(gradient[-1:], 0.0)
    curvature = curvature + jnp.diag(jnp.concatenate([jnp.zeros(1), bend, up]))
    gradient = gradient.at[1:-1].add(1.0)
    solved = cholesky(jnp.c_[curvature, gradient][..., None])[..., 0]
    upper = solved[:, :-1]
    return back_substitute(upper[..., None], solved[:, -1:])[:, 0], upper


def _log_proposal(upper, white):
    """Return the log density of the t distribution at whitened distances, up to a constant."""
    spread = jnp.log1p(jnp.sum(white**2) / FREEDOM)
    return jnp.sum(jnp.log(jnp.diagonal(upper))) - 0.5 * (FREEDOM + white.size) * spread


def draw_levels(key, position, fit, data, density: PMFDensity, inverse_temperature):
    """Draw the level, behind a probit together with the scale of the fits; translate the effects.

    `fit` is (entry,), in the order of `bmfjax.kernels.ratings.vectors.entry_fits` by column. Return
    the position, the new fits, 0.0 where a step of level and scale was rejected, else 1.0, and the
    log likelihood: None of the identity, whose noise is drawn after this.
    """
    key_level, *keys = random.split(key, 5)
    accepted, likelihood = jnp.ones((), fit.dtype), None
    value, seen = flat_values(data.by_column)
    chunk = CHUNK if data.budget == ONE_BY_ONE else LARGE_CHUNK
    if density.link == "ordered":
        position, fit, accepted, likelihood = draw_cuts_and_scale(
            key_level, position, fit, value, seen, density, chunk
        )
    elif density.link == "probit":
        position, fit, accepted, likelihood = _draw_threshold(
            key_level, position, fit, value, seen, density, chunk
        )
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
            position, moved = _translate(k, side, position, density, data)
            # Cut points move along with the fits, an intercept against the effects.
            fit = fit + moved
            if density.rank:
                position = _translate_mean(k_mean, side, position, density, data)
    # No probability has changed since.
    return position, fit, accepted, likelihood


def _draw_threshold(key, position, fit, value, seen, density, chunk):
    """Draw intercept and scale of a probit: minus the intercept is the one cut point of two."""
    level, (mean, sd) = position["intercept"], density.level
    others = {n: v for n, v in position.items() if n != "intercept"}
    others, fit, accepted, likelihood = draw_cuts_and_scale(
        key, others | {"cutpoints": -level[None]}, fit - level, (value > 0).astype(value.dtype),
        seen, density._replace(level=(-mean, sd)), chunk,
    )  # fmt: skip
    level = -others.pop("cutpoints")[0]
    return others | {"intercept": level}, fit + level, accepted, likelihood


def _translate(key, side, position, density, data):
    """Move the level by t and a side's effects so that no probability changes.

    The density is normal along t. Returns the position, and by how much all fits moved.
    """
    name, (mean, sd) = f"{side}_effect", density.level
    site, sign = ("cutpoints", 1.0) if density.link == "ordered" else ("intercept", -1.0)
    level, effect, effect_precision = position[site], position[name], position[f"{side}_precision"]
    precision = level.size / sd**2 + effect.shape[0] * effect_precision
    deviation = effect - explained_by_attributes(name, side, position, density, data)
    linear = -jnp.sum(level - mean) / sd**2 - sign * effect_precision * jnp.sum(deviation)
    t = linear / precision + random.normal(key, (), effect.dtype) / jnp.sqrt(precision)
    if density.link != "ordered":
        return position | {site: level + t, name: effect - t}, 0.0
    t = jnp.where(are_distinct(level + t), t, 0.0)
    return position | {site: level + t, name: effect + t}, t


@full_precision
def _translate_mean(key, side, position, density, data):
    r"""Move a side's factors and their mean by d, and the other side's effects so that no fit does.

    :math:`(u_i + d)^\top v_j + (b_j - d^\top v_j)`: the density is normal along d, and without this
    move a mean times a mean is separated from effects by slow steps alone. The first coordinates
    of the factors may be known, and d is zero there.
    """
    held = data.num_known(side)
    if held == density.rank:
        return position
    mine, other = FACTORS[side], OTHER[side]
    precision, factors = position[f"{mine}_precision"], position[mine]
    theirs, effect = position[FACTORS[other]], position[f"{other}_effect"]
    weight = position[f"{other}_precision"]
    if density.relevance:  # the factors leave a mean of zero
        stiffness = factors.shape[0] * jnp.diag(precision)
        pull, means = precision * jnp.sum(factors, axis=0), {}
    else:
        means = {f"{mine}_mean": position[f"{mine}_mean"]}
        stiffness = density.factors.strength * precision
        pull = stiffness @ means[f"{mine}_mean"]
    deviation = effect - explained_by_attributes(f"{other}_effect", other, position, density, data)
    system = stiffness + weight * theirs.T @ theirs
    linear = weight * theirs.T @ deviation - pull
    solved = cholesky(jnp.c_[system, linear][held:, held:, None], panel=density.rank - held)
    noise = random.normal(key, (density.rank - held, 1), factors.dtype)
    d = jnp.pad(back_substitute(solved[:, :-1], solved[:, -1] + noise)[:, 0], (held, 0))
    moved = {name: mean + d for name, mean in means.items()}
    return position | moved | {mine: factors + d, f"{other}_effect": effect - theirs @ d}

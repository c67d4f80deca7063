r"""Weights and effects given Polya-Gamma variables, of which the likelihood is normal.

For column d, with :math:`\omega_{nd}` the variables, :math:`\kappa = s / 2`, regressors
:math:`x_n = (z_n, 1)` and coefficients :math:`c_d = (w_d, a_d)`, it is that of a normal with
precision :math:`G_d = \sum_n \omega_{nd} x_n x_n^\top` and shift
:math:`h_d = \sum_n (\kappa_{nd} - \omega_{nd} e_n) x_n`. The intercept is summed out first. Then
whether feature k concerns the column, with its weight summed out. The normal part of the density of
a weight has the precision :math:`\nu_k`: :math:`\lambda_k` of signed weights,
:math:`(q + 1) \lambda_k` of positive ones, see `density`. Where g and h are precision and shift of
the weight given the others, the odds of a signed weight are

.. math::

   \frac{\rho_k}{1 - \rho_k} \sqrt{\frac{\nu_k}{\nu_k + g}}
   \exp\Big(\frac{h^2}{2 (\nu_k + g)}\Big).

Last, signed weights that are not zero and the intercept are drawn together; of positive ones the
intercept alone.

The density of positive weights, :math:`\propto w^q N(w \mid 0, \nu^{-1})`, is that of a normal
that is cut below a bound c, with c drawn from its prior:

.. math:: w^q N(w \mid 0, \nu^{-1}) = \int_0^w q c^{q-1} N(w \mid 0, \nu^{-1}) \, dc.

A sweep draws all bounds anew, :math:`c = w U^{1/q}` with U uniform, and of weights that are zero
from a w of the prior. Given its bound the odds that a weight is not zero are those above times
:math:`\Phi((h / (\nu + g) - c) \sqrt{\nu + g}) / \Phi(-c \sqrt\nu)`, and the weight is a normal
cut at c. Both leave the density above invariant.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import log_ndtr

from bmfjax.kernels.features.density import (
    FeatureData,
    FeatureDensity,
    log_half_normal,
    normal_precision,
    present,
)
from bmfjax.kernels.numerics.linalg import back_substitute, cholesky
from bmfjax.kernels.numerics.slice import SHRINKS, slice_sample
from bmfjax.kernels.numerics.truncated_normal import truncated_normal_quantile
from bmfjax.kernels.numerics.uniforms import logistics, normals

LOG_2PI_E = math.log(2.0 * math.pi) + 1.0
#: Width of the bracket of the slice of the log of the row effects' scale.
BRACKET = 3.0
#: Power of the likelihood below which no weight is zero: of few rows, and of more than `MANY_ROWS`.
#: Chains on the votes (435 rows) agree by the first alone, those on NLTCS (16,181 rows) keep their
#: features by the second alone; where between them one becomes the other was not measured.
WHOLE, WHOLE_OF_MANY, MANY_ROWS = 0.5, 1.0, 2_500


def column_systems(position, omega, half):
    """Return the systems of all columns: G (rank + 1, rank + 1, columns), h (rank + 1, columns)."""
    usage = position["usage"]
    x = jnp.concatenate([usage, jnp.ones_like(usage[:, :1])], 1)
    width = x.shape[1]
    first, second = np.triu_indices(width)
    index = np.zeros((width, width), int)
    index[first, second] = index[second, first] = np.arange(len(first))
    shift = half - omega * position["row_effect"] if "row_effect" in position else half
    return (omega @ (x[:, first] * x[:, second])).T[index], (shift @ x).T


def column_shapes(density: FeatureDensity, columns: int) -> list[tuple[int, ...]]:
    """Return the shapes of the uniform numbers that `draw_columns` takes."""
    rank = density.rank
    last = (rank + 1, columns) if density.is_signed else (columns,)
    bounds = (density.moment and density.moment + 2, rank, columns)
    return [(rank, columns), (rank, columns), bounds, last]


def draw_columns(
    uniforms, position, systems, data: FeatureData, density: FeatureDensity, power=1.0
):
    """Draw weights and intercepts of all columns, by uniform numbers of these `column_shapes`.

    While the likelihood counts less than `whole_below` says, a feature that is there concerns all
    columns.
    Memberships at random tell no column apart from those that are not concerned, the less the more
    rows there are, and a feature without columns tells no memberships.

    Returned are these, and the entropy of intercepts and weights that are not zero given the rest;
    that of positive weights as if the normals were not cut, each given the others.
    """
    (gram, shift), (*uniforms, noise) = systems, uniforms
    noise = normals(noise)
    alpha, mean = position["column_precision"], position["column_mean"]
    gram = gram.at[-1, -1].add(alpha)
    shift = shift.at[-1].add(alpha * mean)
    # Without the intercept, which is summed out.
    slope = gram[-1, :-1] / gram[-1, -1]
    reduced = gram[:-1, :-1] - slope[:, None] * gram[-1, :-1]
    weights, precisions = _draw_weights(
        uniforms, position, reduced, shift[:-1] - slope * shift[-1], data, density, power
    )
    if density.is_signed:
        return _draw_together(noise, weights, gram, shift, position, data)
    rest = shift[-1] - jnp.sum(gram[-1, :-1] * weights, 0)
    intercept = rest / gram[-1, -1] + noise * lax.rsqrt(gram[-1, -1])
    entropy = 0.5 * jnp.sum(LOG_2PI_E - jnp.log(gram[-1, -1]))
    entropy += 0.5 * jnp.sum(jnp.where(weights != 0, LOG_2PI_E - jnp.log(precisions), 0.0))
    return {"basis": weights.T, "column_effect": intercept}, entropy


def whole_below(data: FeatureData) -> float:
    """Return the power of the likelihood below which no weight of a feature is zero."""
    return WHOLE_OF_MANY if data.signs.shape[1] > MANY_ROWS else WHOLE


def _draw_weights(uniforms, position, gram, shift, data, density: FeatureDensity, power):
    """Draw weights one feature after the other; return them and precisions, (rank, columns).

    They are made of uniform numbers (rank, columns), of the spikes and of the slabs, and more of
    those for bounds.
    """
    weights, (uniform, slabs, bounds) = position["basis"].T, uniforms
    chance = position["basis_density"]
    odds = jnp.where(present(density, position), jnp.log(chance) - jnp.log1p(-chance), -jnp.inf)
    uniform = jnp.where(power < whole_below(data), -jnp.inf, logistics(uniform))
    nothing = jnp.full_like(weights, jnp.nan)
    slabs = normals(slabs) if density.is_signed else slabs
    known = nothing if data.known_basis is None else data.known_basis.T
    spikes = nothing if data.known_columns is None else data.known_columns.T
    uniform = jnp.where(spikes > 0.5, -jnp.inf, jnp.where(spikes < 0.5, jnp.inf, uniform))

    own_precision = normal_precision(density, position["factor_precision"])
    low = _draw_bounds(bounds, weights, own_precision, density)

    def feature(weights, at):
        k, own_slab, odds, precision, uniform, known, low = at
        own = gram[k, k]
        h = shift[k] - jnp.sum(gram[k] * weights, 0) + own * weights[k]
        total = own + precision
        logit = odds + 0.5 * jnp.log(precision / total) + 0.5 * h * h / total
        if density.is_signed:
            slab = h / total + own_slab * lax.rsqrt(total)
        else:
            logit += log_ndtr((h - low * total) * lax.rsqrt(total))
            logit -= log_ndtr(-low * jnp.sqrt(precision))
            slab = truncated_normal_quantile(own_slab, h, total, low, jnp.inf)
        drawn = jnp.where(logit > uniform, slab, 0.0)
        return weights.at[k].set(jnp.where(jnp.isnan(known), drawn, known)), total

    at = (jnp.arange(len(gram)), slabs, odds, own_precision, uniform, known, low)
    return lax.scan(feature, weights, at)


def _draw_bounds(uniforms, weights, precision, density: FeatureDensity):
    """Draw the bounds (rank, columns) below which the normals of positive weights are cut."""
    if not density.moment:
        return jnp.zeros_like(weights)
    power, *rest = uniforms
    # The length of so many normal numbers has the density of a weight.
    of_prior = jnp.linalg.norm(normals(jnp.stack(rest)), axis=0) * lax.rsqrt(precision)[:, None]
    return jnp.where(weights != 0, weights, of_prior) * power ** (1.0 / density.moment)


def _draw_together(noise, weights, gram, shift, position, data):
    """Draw the weights that are not zero, and the intercept, at once; and tell their entropy."""
    free = weights != 0
    fixed = jnp.zeros_like(weights)
    if data.known_basis is not None:
        unknown = jnp.isnan(data.known_basis.T)
        free, fixed = free & unknown, jnp.where(unknown, 0.0, data.known_basis.T)
    free = jnp.pad(free, ((0, 1), (0, 0)), constant_values=True)
    fixed = jnp.pad(fixed, ((0, 1), (0, 0)))
    shift = jnp.where(free, shift - jnp.sum(gram * fixed, 1), 0.0)
    own = jnp.pad(position["factor_precision"], (0, 1))[:, None]
    own = jnp.where(free, own, 1.0)
    system = jnp.where(free & free[:, None], gram, 0.0)
    system += jnp.eye(len(own))[..., None] * own
    upper = cholesky(jnp.concatenate([system, shift[:, None]], 1))
    drawn = back_substitute(upper[:, :-1], upper[:, -1] + noise)
    drawn = jnp.where(free, drawn, fixed)
    scale = jnp.diagonal(upper[:, :-1]).T
    entropy = jnp.sum(jnp.where(free, 0.5 * LOG_2PI_E - jnp.log(scale), 0.0))
    return {"basis": drawn[:-1].T, "column_effect": drawn[-1]}, entropy


def row_systems(effect, psi, omega, half):
    """Return precision and shift (rows,) of row effects, of which the log odds psi have these."""
    precision = jnp.sum(omega, 0)
    return precision, jnp.sum(half - omega * psi, 0) + precision * effect


def effects_of(noise, scale, precision, shift):
    """Return draws of row effects (rows,), whose prior has this scale, made of normal ones."""
    total = precision + scale**-2
    return shift / total + noise * lax.rsqrt(total)


def row_shapes(rows: int) -> list[tuple[int, ...]]:
    """Return the shapes of the uniform numbers that `draw_rows` takes."""
    return [(rows + 1,), (), (SHRINKS + 1,)]


def draw_rows(uniforms, position, psi, omega, half, density: FeatureDensity):
    r"""Draw the scale of the row effects with the effects summed out, and then the effects.

    The uniform numbers have the `row_shapes`. Returned are what has changed, and the entropy of
    the effects given the rest.

    With P and S the precisions and shifts of the rows the scale has the density

    .. math::

       p(\tau) \prod_n (1 + P_n \tau^2)^{-1/2}
       \exp\Big(\frac{S_n^2 \tau^2}{2 (1 + P_n \tau^2)}\Big).
    """
    noise, bracket, shrinks = uniforms
    noise = normals(noise)
    precision, shift = row_systems(position["row_effect"], psi, omega, half)

    def log_density(x):
        square = jnp.exp(2.0 * x)
        own = 1.0 + precision * square
        found = 0.5 * jnp.sum(shift**2 * square / own - jnp.log(own))
        return found + log_half_normal(jnp.exp(x), density.row_scale) + x

    at = jnp.log(position["row_scale"])
    low = at - BRACKET * bracket
    scale = slice_sample(None, at, log_density, low, low + BRACKET, uniforms=shrinks)
    scale = jnp.exp(scale)
    effect = effects_of(noise[1:], scale, precision, shift)
    moved = _shift_effects(noise[0], position["column_effect"], effect, scale, position)
    entropy = 0.5 * jnp.sum(LOG_2PI_E - jnp.log(precision + scale**-2))
    return {"row_scale": scale, **moved}, entropy


def _shift_effects(noise, columns, rows, scale, position) -> dict:
    """Add a number to all intercepts and take it from all row effects: the log odds stay."""
    alpha, mean = position["column_precision"], position["column_mean"]
    precision = len(columns) * alpha + len(rows) / scale**2
    linear = alpha * jnp.sum(mean - columns) + jnp.sum(rows) / scale**2
    drawn = linear / precision + noise * lax.rsqrt(precision)
    return {"column_effect": columns + drawn, "row_effect": rows - drawn}


def turn(uniform, position, data: FeatureData, density: FeatureDensity) -> dict:
    """Exchange the rows that have a feature and those that have not, feature by feature.

    It takes one uniform number for each. Its weights change their sign, and the intercepts follow.
    The log odds stay, and so does the prior, but for that of the intercepts, which accepts or
    refuses.
    """
    alpha, mean = position["column_precision"], position["column_mean"]
    effect, there = position["column_effect"], present(density, position)
    for known in data.known:
        there = there & jnp.all(jnp.isnan(known), 0)

    def feature(effect, at):
        uniform, weight, there = at
        other = effect + weight
        gain = 0.5 * alpha * jnp.sum((effect - mean) ** 2 - (other - mean) ** 2)
        turned = there & (jnp.log1p(-uniform) < gain)
        return jnp.where(turned, other, effect), turned

    at = uniform, position["basis"].T, there
    effect, turned = lax.scan(feature, effect, at)
    chance = position["usage_density"]
    return {
        "column_effect": effect,
        "basis": jnp.where(turned, -position["basis"], position["basis"]),
        "usage": jnp.where(turned, 1.0 - position["usage"], position["usage"]),
        "usage_density": jnp.where(turned, 1.0 - chance, chance),
    }

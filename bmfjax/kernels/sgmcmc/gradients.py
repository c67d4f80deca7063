r"""Gradients of the relaxed density: estimates from minibatches, and what samplers need beside.

The log density of the relaxed model has in the basis :math:`X`, the usage :math:`Y`
given, the gradient

.. math:: \tau\,\big((D - YX^\top)\odot\Omega\big)^\top Y + \nabla\log p(X),

a sum over the rows of the data, and the same with rows and columns exchanged in the
usage. From N cases S are drawn without replacement, at random.

Plain estimate
    The sum over the cases drawn, times N/S.
Control variates (Baker, Fearnhead, Fox, Nemeth 2019)
    With an anchor :math:`\hat X, \hat Y` and its residual
    :math:`\hat E = (D - \hat Y\hat X^\top)\odot\Omega`, missing cells filled with the
    anchor's fit, the gradient is

    .. math:: \tau\,\big(\hat X(\hat Y^\top Y) + \hat E^\top\hat Y - X(Y^\top Y)\big)
        + \tau\sum_i\Big(\hat e_i\,(y_i-\hat y_i)^\top
        + \big[(1-\omega_i)\odot(Xy_i-\hat X\hat y_i)\big]\,y_i^\top\Big) + \nabla\log p(X).

    Only the sum over i is estimated; the rest takes products of rank x rank matrices
    and one product with the data for each anchor. Residuals and steps away from the
    anchor are both small, and so is their product, the noise. Where nothing is missing
    the second part of the sum is zero.

The variance of an estimate is that of a sum over a simple random sample,

.. math:: \frac{N^2}{S}\Big(1-\frac{S}{N}\Big)\,s^2,

with :math:`s^2` the sample variance of the terms (unbiased; Cochran 1977, section 2.6).

Sum of squared residuals
    Where nothing is missing it follows from the anchor as well. With
    :math:`\Delta X = X - \hat X` and :math:`\Delta Y = Y - \hat Y`,

    .. math:: \|D - YX^\top\|^2 = \|\hat E\|^2
        - 2\,\langle\hat E\hat X, \Delta Y\rangle
        - 2\,\langle\hat E^\top\hat Y, \Delta X\rangle
        - 2\sum_i \hat e_i^\top\Delta X\,\Delta y_i
        + \|\Delta Y X^\top + \hat Y\Delta X^\top\|^2.

    Again only the sum over i is estimated, from rows of its own: those of a step have
    shaped what is now away from the anchor.

Factor matrices are held as (rank, m) arrays throughout, one factor a row.

The second half holds what all gradient samplers of the density share: checks of the density and of
the start, the prior's gradient and scale, and the draw of precision and rates that ends a step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.data.errors import InputError
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.relaxed.data import (
    FACTORS,
    OTHER,
    MatrixData,
    cross_product,
    oriented,
    residual_sum_of_squares,
)
from bmfjax.kernels.relaxed.density import (
    EntryPrior,
    RelaxedDensity,
    check_conditionals,
    draw_factor_rate,
    draw_precision,
)
from bmfjax.kernels.relaxed.gibbs import sweep_info


class Anchor(NamedTuple):
    """A point that estimates are taken relative to, and the gradients there."""

    usage: jax.Array  # (rank, rows)
    basis: jax.Array  # (rank, columns)
    usage_pull: jax.Array  # the residual at the anchor times the other factor matrix
    basis_pull: jax.Array
    residual: jax.Array  # () float: the sum of squared residuals


class GradientEstimate(NamedTuple):
    """`gradient` and `variance`, both (rank, m)."""

    gradient: jax.Array
    variance: jax.Array


def anchor_at(usage, basis, data: MatrixData) -> Anchor:
    """Make an anchor of a point, with three products with the data."""
    position, along = {"usage": usage, "basis": basis}, data.along
    pulls = []
    for f in FACTORS:
        own = _likelihood_gradient(f, position | {f: along.own(position[f], 1)}, data)
        pulls.append(along.join(own, position[f].shape[1], 1))
    return Anchor(usage, basis, *pulls, residual_sum_of_squares(usage.T, basis.T, data))


def own_lines(factor, position, anchor: Anchor | None, along) -> tuple[dict, Anchor | None]:
    """Return a position and an anchor that have of one factor matrix this device's lines alone."""
    position = position | {factor: along.own(position[factor], 1)}
    if anchor is not None:
        names = factor, f"{factor}_pull"
        anchor = anchor._replace(**{n: along.own(getattr(anchor, n), 1) for n in names})
    return position, anchor


@full_precision
def _likelihood_gradient(factor, position, data: MatrixData) -> jax.Array:
    """Return the log likelihood's gradient at unit precision: residual times the other matrix."""
    x, other = position[factor], position[OTHER[factor]]
    values, observed = oriented(factor, data)
    if observed is None:
        return cross_product(data, factor, other.T) - (other @ other.T) @ x
    return other @ ((values - _fit(other, x)) * observed)


@full_precision
def estimate_gradient(
    density: RelaxedDensity,
    factor,
    position,
    data: MatrixData,
    cases=None,
    anchor: Anchor | None = None,
    inverse_temperature=1.0,
) -> GradientEstimate:
    """Estimate the gradient of the log density in one factor matrix from some cases.

    Without an `anchor` the estimate is plain; with `cases` None or all of them it is exact. On a
    mesh the matrix, and the anchor's, are this device's lines (`own_lines`).
    """
    x = position[factor]
    size = position[OTHER[factor]].shape[1]
    weight = inverse_temperature * density.noise_precision(position)
    prior = prior_gradient(getattr(density, factor), x, position.get("rate"))
    if cases is None or cases.shape[0] == size:
        exact = weight * _likelihood_gradient(factor, position, data)
        return GradientEstimate(exact + prior, jnp.zeros_like(x))
    known, terms = _split(factor, position, data, cases, anchor)
    count = cases.shape[0]
    mean = sum(vectors @ lines for vectors, lines in terms) / count
    # No cell is in two terms: their squares add.
    square = sum((v * v) @ (lines * lines) for v, lines in terms) / count
    sample_variance = jnp.maximum(square - mean * mean, 0.0) * (count / (count - 1))
    variance = size * (size - count) / count * sample_variance
    gradient = weight * (known + size * mean) + prior
    return GradientEstimate(gradient, weight * weight * variance)


@full_precision
def anchored_residual(factors, anchor: Anchor, data: MatrixData, cases):
    """Estimate the sum of squared residuals of complete data, from the anchor and some rows.

    Return it, exact with all rows, and its variance as a share of the variance that the sum has by
    the precision's conditional, both () float. `factors` are whole on a mesh, as the anchor is.
    """
    x, start, along = factors["basis"], anchor.usage, data.along
    rows, count = start.shape[1], cases.shape[0]
    away_x, away_y = x - anchor.basis, factors["usage"] - start
    residual = data.values[cases] - _fit(start[:, cases], along.own(anchor.basis, 1))
    each = jnp.sum(away_y[:, cases] * (along.own(away_x, 1) @ residual.T), axis=0)
    each = along.total(each)
    known = jnp.sum(anchor.usage_pull * away_y) + jnp.sum(anchor.basis_pull * away_x)
    moved = (
        jnp.sum((away_y @ away_y.T) * (x @ x.T))
        + 2.0 * jnp.sum((away_y @ start.T) * (x @ away_x.T))
        + jnp.sum((start @ start.T) * (away_x @ away_x.T))
    )
    estimate = anchor.residual - 2.0 * (known + rows * jnp.mean(each)) + moved
    estimate = jnp.maximum(estimate, 0.0)
    variance = 4.0 * rows * (rows - count) / count * jnp.var(each, ddof=1)
    own = estimate * math.sqrt(2.0 / (rows * x.shape[1]))
    return estimate, variance / jnp.maximum(own * own, jnp.finfo(own.dtype).tiny)


@full_precision
def missing_noise(
    key, factor, position, data: MatrixData, weight, cases=None, size: int | None = None
) -> jax.Array:
    r"""Draw normal noise with the curvature that the missing cells of a line would have given.

    Line j of the basis has curvature :math:`\tau\sum_i\omega_{ij}\,y_iy_i^\top`, less
    than :math:`\tau Y^\top Y` by what is the covariance of
    :math:`\sqrt\tau\sum_i(1-\omega_{ij})\,y_i\,\xi_{ij}`: of the gradient's noise if the
    missing cells were drawn from the model. On a mesh the lines are this device's part of `size`.
    """
    other = position[OTHER[factor]]
    _, observed = oriented(factor, data)
    if observed is None:
        return jnp.zeros_like(position[factor])
    if cases is not None:
        weight = weight * (other.shape[1] / cases.shape[0])
        other, observed = other[:, cases], observed[cases]
    lines = observed.shape[1] if size is None else size
    xi = data.along.own(random.normal(key, (len(observed), lines), observed.dtype), 1)
    return jnp.sqrt(weight) * (other @ ((1.0 - observed) * xi))


@full_precision
def _fit(other, x):
    """Return the fit, (S, m), of the cases in `other` (rank, S)."""
    # XLA on CPU would rather transpose the product.
    return lax.optimization_barrier(other.T) @ x


@full_precision
def _split(factor, position, data, cases, anchor):
    """Return the known part of the gradient at unit precision, and the terms that are sampled.

    A term is a pair of arrays (rank, S) and (S, m): case s adds the outer product of column s of
    the first and row s of the second.
    """
    x, other = position[factor], position[OTHER[factor]]
    values, observed = oriented(factor, data)
    values = values[cases]
    seen = None if observed is None else observed[cases]
    lines = other[:, cases]
    if anchor is None:
        residual = values - _fit(lines, x)
        return 0.0, [(lines, residual if seen is None else residual * seen)]
    start, other_start = getattr(anchor, factor), getattr(anchor, OTHER[factor])
    known = (
        (other @ other_start.T) @ start
        + getattr(anchor, f"{factor}_pull")
        - (other @ other.T) @ x
    )  # fmt: skip
    fit = _fit(other_start[:, cases], start)
    away = lines - other_start[:, cases]
    if seen is None:
        return known, [(away, values - fit)]
    moved = (_fit(lines, x) - fit) * (1.0 - seen)
    return known, [(away, (values - fit) * seen), (lines, moved)]


# ---- what gradient samplers share -------------------------------------------------------


def end_draw(density: RelaxedDensity, key, position, data, inverse_temperature=1.0, rss=None):
    """Draw precision and rates from their conditionals; return the position and its statistics.

    `rss` is the sum of squared residuals, where it is known or estimated already.
    """
    key_precision, key_rate = random.split(key)
    if rss is None:
        rss = residual_sum_of_squares(position["usage"], position["basis"], data)
    if density.precision is None:
        drawn = draw_precision(density, key_precision, position, data, inverse_temperature, rss)
        position = position | {"precision": drawn}
    if density.rate_gamma is not None:
        position = position | {"rate": draw_factor_rate(density, key_rate, position)}
    return position, sweep_info(density, position, data, inverse_temperature, rss)


def start_position(density: RelaxedDensity, position, data) -> dict:
    """Return the start as arrays in the data's precision, its factors clipped to their boxes."""
    if not isinstance(data, MatrixData):
        raise InputError(
            f"the data are {type(data).__name__}; gradient samplers take dense data, as "
            "matrix_data makes them"
        )
    position = {n: jnp.asarray(v, data.values.dtype) for n, v in position.items()}
    found = tuple(position[f].shape[0] for f in FACTORS)
    if data.along.axis is None and found != data.values.shape:
        raise InputError(
            f"the start has {found[0]} rows and {found[1]} columns; the data have "
            f"{data.values.shape[0]} and {data.values.shape[1]}"
        )
    for factor in FACTORS:
        prior = getattr(density, factor)
        position[factor] = jnp.clip(position[factor], prior.low, prior.high)
    return position


def scale_curvature(prior: EntryPrior, rate=None):
    """Return the curvature, for preconditioners only, of a factor that nothing uses.

    Its coordinates spread over the whole prior: the curvature is 12 / width^2 on a finite box,
    else the squared rate, () or (rank,).
    """
    width = prior.high - prior.low
    if width < float("inf"):
        return 12.0 / width**2
    if prior.learned_rate:
        return rate**2
    # A prior that is neither exponential nor half-normal: its scale is not known.
    slope, curvature = (0.0, 1e-6) if prior.quadratic is None else prior.quadratic
    return slope**2 + curvature


def prior_gradient(prior: EntryPrior, x, rate=None) -> jax.Array:
    """Return the gradient of the log prior density of a factor matrix, (rank, m)."""
    if prior.quadratic is None:
        return jax.grad(lambda x: jnp.sum(prior.log_prob(x.T, rate)))(x)
    slope, curvature = prior.quadratic
    if prior.learned_rate:
        slope = rate[:, None]
    return -slope - curvature * x


def check_density(density: RelaxedDensity, *, at_bounds: bool) -> None:
    """Refuse a density that a gradient sampler cannot draw from."""
    check_conditionals(density)
    for name in FACTORS:
        if at_bounds and not _finite_at_bounds(getattr(density, name)):
            raise InputError(
                f"the prior of {name} is not finite at its bounds; give one that is, or sample it "
                'with boundary="logit" or exactly'
            )


def _finite_at_bounds(prior: EntryPrior) -> bool:
    if prior.quadratic is not None:
        return True
    with jax.ensure_compile_time_eval():  # also where a model is being traced
        ends = jnp.array([[e] for e in (prior.low, prior.high) if e < float("inf")])
        value, gradient = jax.value_and_grad(lambda x: jnp.sum(prior.log_prob(x, None)))(ends)
        return bool(jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient)))

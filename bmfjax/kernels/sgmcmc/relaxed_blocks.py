"""The relaxed density's two blocks of stochastic gradients: basis from rows, usage from columns."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bmfjax.kernels.numerics.linalg import newton_direction
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.relaxed.data import oriented, transposed_product
from bmfjax.kernels.relaxed.density import RelaxedDensity
from bmfjax.kernels.sgmcmc.iasg import Block


@full_precision
def _factor_gradient(target, other, values, observed, log_prior, weight):
    r"""Return the gradient of the log density in one factor matrix, (m, rank), from S cases.

    .. math:: \nabla_X = w\,(R^\top Y_B) + \nabla\log p(X), \qquad
              R = (D_B - Y_B X^\top)\odot\Omega_B,

    with X the `target` (m, rank), Y_B `other` (S, rank), D_B `values` (S, m), and the `weight` w
    the precision times N/S. `log_prior` is elementwise.
    """
    if observed is None:
        # Through the Gram matrix: no S x m residual is formed.
        pull = transposed_product(values, other) - target @ (other.T @ other)
    else:
        pull = transposed_product((values - other @ target.T) * observed, other)
    prior = jax.grad(lambda x: jnp.sum(log_prior(x)))(target)
    return weight * pull + prior


@full_precision
def _factor_case_variance(target, other, values, observed, weight):
    """Return the variance over the cases of a minibatch of the estimate of `_factor_gradient`.

    With single-case gradients g_i = weight S r_i y_i the estimate is their mean,
    and its variance Var(g) / S; both moments are matrix products.
    """
    size = values.shape[0]
    residual = values - other @ target.T
    if observed is not None:
        residual = residual * observed
    mean = transposed_product(residual, other) / size
    second = transposed_product(residual * residual, other * other) / size
    return weight**2 * size * jnp.maximum(second - mean * mean, 0.0)


@full_precision
def _factor_sandwich(target, other, values, observed, precision, curvature):
    r"""Return the ratios of standard deviations of one factor matrix: long averages, posterior.

    .. math:: \frac{(A^{-1}C_jA^{-1})_{kk}}{(A^{-1})_{kk}} = \frac{\tau^2\sum_i r_{ij}^2
              (A^{-1}y_i)_k^2 - (A^{-1}g_j)_k^2/N}{(A^{-1})_{kk}},

    squared, for line j, given the other factor matrix: with the residuals r, the precision
    :math:`\tau`, :math:`g_j = \tau\sum_i r_{ij}y_i` and one curvature A for all lines. Arrays are
    as in `_factor_gradient`, of all N cases.
    """
    inverse = jnp.linalg.inv(curvature)
    residual = values - other @ target.T
    if observed is not None:
        residual = residual * observed
    lines = other @ inverse
    square = transposed_product(residual * residual, lines * lines)
    total = transposed_product(residual, lines)
    variance = precision**2 * (square - total * total / len(other))
    return jnp.sqrt(jnp.maximum(variance, 0.0) / jnp.diagonal(inverse))


def relaxed_blocks(
    density: RelaxedDensity,
    shape: tuple[int, int],
    batch: tuple[int, int],
    *,
    newton: bool = True,
    scale_likelihood: bool = True,
) -> list[Block]:
    """Return the two blocks: basis from rows, usage from columns (Gonsior 2019, section 3.2).

    `batch` holds the numbers of rows and columns drawn. With `newton` a block is preconditioned by
    its curvature, the precision times the Gram matrix of the other factor and the prior's. Where
    entries are missing the Gram matrix of all cases bounds the curvature of every row: steps are
    safe there and shorter than need be. `scale_likelihood` multiplies the likelihood of S cases by
    N/S, as an estimate of the whole; the thesis did not.
    """

    @full_precision
    def block(target, other, plate, size, count):
        prior = getattr(density, target)
        scale = size / count if scale_likelihood else 1.0

        def cases(position, indices, data, inverse_temperature):
            i = indices[plate]
            values, observed = oriented(target, data)
            weight = inverse_temperature * scale * density.noise_precision(position)
            seen = None if observed is None else observed[i]
            own = data.along.own(position[target])
            return own, position[other][i], values[i], seen, weight

        def entry_log_prior(position):
            return lambda x: prior.log_prob(x, position.get("rate"))

        def gradient(position, indices, data, inverse_temperature):
            x, y, values, seen, weight = cases(position, indices, data, inverse_temperature)
            log_prior = entry_log_prior(position)
            return {target: _factor_gradient(x, y, values, seen, log_prior, weight)}

        def gradient_and_variance(position, indices, data, inverse_temperature):
            x, y, values, seen, weight = cases(position, indices, data, inverse_temperature)
            mean = _factor_gradient(x, y, values, seen, entry_log_prior(position), weight)
            return {target: mean}, {target: _factor_case_variance(x, y, values, seen, weight)}

        @full_precision
        def gram(position, data, inverse_temperature):
            f = position[other]
            identity = jnp.eye(f.shape[1], dtype=f.dtype)
            # A factor that nothing uses has no curvature: keep the matrix definite.
            likelihood = f.T @ f + 1e-6 * size * identity
            tau = inverse_temperature * density.noise_precision(position)
            return tau * likelihood + prior.curvature * identity

        def direction(gradient, free, curvature):
            return {target: newton_direction(gradient[target], free[target], curvature)}

        def sandwich(position, data, inverse_temperature):
            values, observed = oriented(target, data)
            tau = inverse_temperature * density.noise_precision(position)
            curvature = gram(position, data, inverse_temperature)
            here = (data.along.own(position[target]), position[other], values, observed)
            ratios = _factor_sandwich(*here, tau, curvature)
            return {target: data.along.join(ratios, len(position[target]))}

        return Block(
            sites=(target,),
            plates={plate: (size, count)},
            gradient=gradient,
            gradient_and_variance=gradient_and_variance,
            sandwich=sandwich,
            curvature=gram if newton else None,
            direction=direction if newton else None,
            along=lambda data: data.along,
        )

    return [
        block("basis", "usage", "rows", shape[0], batch[0]),
        block("usage", "basis", "columns", shape[1], batch[1]),
    ]

"""The relaxed density's two blocks of stochastic gradients: basis from rows, usage from columns."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bmfjax.kernels.iasg import Block
from bmfjax.kernels.matrix_data import transposed_product
from bmfjax.kernels.newton import newton_direction
from bmfjax.kernels.relaxed import RelaxedDensity


def factor_gradient(target, other, values, observed, log_prior, weight):
    r"""Gradient of the log density in one factor matrix from some cases.

    .. math:: \nabla_X = w\,(R^\top Y_B) + \nabla\log p(X), \qquad
              R = (D_B - Y_B X^\top)\odot\Omega_B.

    Parameters
    ----------
    target : (m, rank) float
        The factor matrix that moves.
    other : (S, rank) float
        Rows of the other one, for the cases drawn.
    values : (S, m) float
    observed : (S, m) float or None
    log_prior : callable
        Elementwise.
    weight : float
        Precision times N/S.

    Returns
    -------
    (m, rank) float
    """
    if observed is None:
        # Through the Gram matrix: no S x m residual is formed.
        pull = transposed_product(values, other) - target @ (other.T @ other)
    else:
        pull = transposed_product((values - other @ target.T) * observed, other)
    prior = jax.grad(lambda x: jnp.sum(log_prior(x)))(target)
    return weight * pull + prior


def factor_case_variance(target, other, values, observed, weight):
    """Variance over the cases of a minibatch of the estimate of `factor_gradient`.

    With single-case gradients g_i = weight S r_i y_i the estimate is their mean,
    and its variance Var(g) / S; both moments are matrix products.

    Parameters
    ----------
    target, other, values, observed, weight
        As for `factor_gradient`.

    Returns
    -------
    (m, rank) float
    """
    size = values.shape[0]
    residual = values - other @ target.T
    if observed is not None:
        residual = residual * observed
    mean = transposed_product(residual, other) / size
    second = transposed_product(residual * residual, other * other) / size
    return weight**2 * size * jnp.maximum(second - mean * mean, 0.0)


def relaxed_blocks(
    density: RelaxedDensity,
    shape: tuple[int, int],
    batch: tuple[int, int],
    *,
    newton: bool = True,
    scale_likelihood: bool = True,
) -> list[Block]:
    """The two blocks: basis from rows, usage from columns (Gonsior 2019, section 3.2).

    Parameters
    ----------
    density : RelaxedDensity
    shape : (int, int)
        Rows and columns of the matrix.
    batch : (int, int)
        Rows drawn for the basis, columns drawn for the usage.
    newton : bool
        Precondition by the block's curvature,
        ``precision * gram of the other factor + curvature of the prior``. Where
        entries are missing the Gram matrix of all cases bounds the curvature of
        every row, so that steps are safe there and shorter than need be.
    scale_likelihood : bool
        Multiply the likelihood of S cases by N/S, as an estimate of the whole.
        The thesis did not.

    Returns
    -------
    list of Block
    """

    def block(target, other, plate, size, count, prior):
        scale = size / count if scale_likelihood else 1.0
        by_rows = target == "basis"

        def cases(position, indices, data, inverse_temperature):
            i = indices[plate]
            values = data.values if by_rows else data.transposed
            observed = data.observed if by_rows else data.observed_transposed
            weight = inverse_temperature * scale * density.noise_precision(position)
            seen = None if observed is None else observed[i]
            return position[target], position[other][i], values[i], seen, weight

        def entry_log_prior(position):
            return lambda x: prior.log_prob(x, position.get("rate"))

        def gradient(position, indices, data, inverse_temperature):
            x, y, values, seen, weight = cases(position, indices, data, inverse_temperature)
            return {target: factor_gradient(x, y, values, seen, entry_log_prior(position), weight)}

        def gradient_and_variance(position, indices, data, inverse_temperature):
            x, y, values, seen, weight = cases(position, indices, data, inverse_temperature)
            mean = factor_gradient(x, y, values, seen, entry_log_prior(position), weight)
            return {target: mean}, {target: factor_case_variance(x, y, values, seen, weight)}

        def gram(position, data, inverse_temperature):
            f = position[other]
            identity = jnp.eye(f.shape[1], dtype=f.dtype)
            # A factor that nothing uses has no curvature: keep the matrix definite.
            likelihood = f.T @ f + 1e-6 * size * identity
            tau = inverse_temperature * density.noise_precision(position)
            return tau * likelihood + prior.curvature * identity

        def direction(gradient, free, curvature):
            return {target: newton_direction(gradient[target], free[target], curvature)}

        return Block(
            sites=(target,),
            plates={plate: (size, count)},
            gradient=gradient,
            gradient_and_variance=gradient_and_variance,
            curvature=gram if newton else None,
            direction=direction if newton else None,
        )

    rows, columns = shape
    return [
        block(
            "basis",
            "usage",
            "rows",
            rows,
            batch[0],
            density.basis,
        ),
        block(
            "usage",
            "basis",
            "columns",
            columns,
            batch[1],
            density.usage,
        ),
    ]

r"""The relaxed Boolean factorisation density: gradients, curvature, conditionals.

.. math::

   p(Y, X, \tau \mid D) \propto \tau^{|\Omega|/2}
       \exp\Big(-\tfrac{\tau}{2}\sum_{(i,j)\in\Omega}(d_{ij}-y_i^\top x_j)^2\Big)
       \, p(Y)\,p(X)\,p(\tau), \qquad Y, X \in [0,1],

Gonsior 2019, equation 3.2, with the noise precision :math:`\tau` (1 in the
thesis) and a set :math:`\Omega` of observed entries. Y is `usage`, X is `basis`.
Given one factor matrix the log density is quadratic in the other, row by row
with one Gram matrix: everything here costs matrix products with the data and
never a loop over entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from bmfjax.kernels.iasg import Block
from bmfjax.kernels.newton import newton_direction


class MatrixData(NamedTuple):
    """A matrix in both orientations, so that rows and columns are gathered alike.

    Attributes
    ----------
    values : (rows, columns) float
        Zero where an entry is missing.
    transposed : (columns, rows) float
    observed, observed_transposed : float of the same shapes, or None
        One where observed; None where everything is.
    """

    values: jax.Array
    transposed: jax.Array
    observed: jax.Array | None
    observed_transposed: jax.Array | None


def matrix_data(values, observed=None) -> MatrixData:
    """Build `MatrixData` from a matrix whose missing entries are NaN or masked.

    Parameters
    ----------
    values : (rows, columns) array
        Entries; NaN is missing.
    observed : (rows, columns) bool array, optional
        False marks further missing entries.

    Returns
    -------
    MatrixData

    Examples
    --------
    >>> data = matrix_data([[1.0, float("nan")], [0.0, 1.0]])
    >>> float(data.observed.sum()), float(data.values.sum())
    (3.0, 2.0)
    """
    # On the host where possible, also inside a trace: a matrix that is known to have no
    # gaps needs no mask, which saves half of the work.
    traced = any(isinstance(x, jax.core.Tracer) for x in (values, observed))
    xp = jnp if traced else np
    dtype = jnp.result_type(float)
    values = xp.asarray(values, dtype)
    seen = ~xp.isnan(values)
    if observed is not None:
        seen = seen & xp.asarray(observed, bool)
    values = xp.where(seen, values, xp.zeros((), dtype))
    mask = seen.astype(dtype) if traced or not seen.all() else None
    both = (values, values.T.copy(), mask, None if mask is None else mask.T.copy())
    return MatrixData(*(None if x is None else jnp.asarray(x) for x in both))


class RelaxedDensity(NamedTuple):
    """The density's settings.

    Attributes
    ----------
    usage_log_prior, basis_log_prior : callable
        Elementwise log prior density, arrays to arrays of the same shape.
    usage_curvature, basis_curvature : float
        Minus the second derivative of the log priors where it is a positive
        constant (1 for a standard normal), else 0: it enters the preconditioner.
    precision : float or None
        The fixed noise precision; None: the position holds a `precision`.
    precision_log_prior : callable or None
        Log prior density of a learned precision.
    precision_gamma : (float, float) or None
        Shape and rate where that prior is a Gamma distribution: the conditional
        is then exact.
    """

    usage_log_prior: Callable[[jax.Array], jax.Array]
    basis_log_prior: Callable[[jax.Array], jax.Array]
    usage_curvature: float
    basis_curvature: float
    precision: float | None
    precision_log_prior: Callable[[jax.Array], jax.Array] | None
    precision_gamma: tuple[float, float] | None

    def noise_precision(self, position):
        """The precision at `position`, fixed or learned."""
        return position["precision"] if self.precision is None else self.precision


def residual_sum_of_squares(usage, basis, data: MatrixData) -> jax.Array:
    """Sum over the observed entries of the squared residual.

    Formed from the residuals themselves: the expanded form cancels in float32.

    Parameters
    ----------
    usage : (rows, rank) float
    basis : (columns, rank) float
    data : MatrixData

    Returns
    -------
    () float

    Examples
    --------
    >>> data = matrix_data(jnp.eye(2))
    >>> float(residual_sum_of_squares(jnp.eye(2), jnp.eye(2), data))
    0.0
    """
    residual = data.values - usage @ basis.T
    if data.observed is not None:
        residual = residual * data.observed
    # Row sums first: a single float32 sum over 10^8 squares loses digits.
    return jnp.sum(jnp.sum(residual * residual, axis=1))


def num_observed(data: MatrixData) -> jax.Array:
    """Number of observed entries, as a float (counted by rows, exact to 2^24 a row)."""
    if data.observed is None:
        return jnp.asarray(float(data.values.size), data.values.dtype)
    return jnp.sum(jnp.sum(data.observed, axis=1))


def log_joint(density: RelaxedDensity, position, data, inverse_temperature=1.0) -> jax.Array:
    """Log joint density of factors, precision and data, constants included.

    Parameters
    ----------
    density : RelaxedDensity
    position : dict
        `usage` (rows, rank), `basis` (columns, rank) and, where it is learned,
        `precision` ().
    data : MatrixData
    inverse_temperature : float
        Power of the likelihood.

    Returns
    -------
    () float
    """
    tau = density.noise_precision(position)
    rss = residual_sum_of_squares(position["usage"], position["basis"], data)
    likelihood = 0.5 * num_observed(data) * jnp.log(tau / (2 * jnp.pi)) - 0.5 * tau * rss
    prior = jnp.sum(density.usage_log_prior(position["usage"]))
    prior = prior + jnp.sum(density.basis_log_prior(position["basis"]))
    if density.precision is None:
        prior = prior + density.precision_log_prior(position["precision"])
    return prior + inverse_temperature * likelihood


def draw_precision(density: RelaxedDensity, key, position, data, inverse_temperature=1.0):
    r"""Draw the precision from its Gamma conditional.

    .. math:: \tau \mid Y, X, D \sim
       \mathrm{Gamma}\big(a + |\Omega|/2,\; b + \|D - YX^\top\|^2_\Omega/2\big).

    Parameters
    ----------
    density : RelaxedDensity
        With `precision_gamma` = (a, b).
    key : jax.Array
    position, data, inverse_temperature
        As for `log_joint`.

    Returns
    -------
    () float
    """
    shape, rate = density.precision_gamma
    rss = residual_sum_of_squares(position["usage"], position["basis"], data)
    shape = shape + 0.5 * inverse_temperature * num_observed(data)
    return random.gamma(key, shape) / (rate + 0.5 * inverse_temperature * rss)


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
        pull = _transposed_product(values, other) - target @ (other.T @ other)
    else:
        pull = _transposed_product((values - other @ target.T) * observed, other)
    prior = jax.grad(lambda x: jnp.sum(log_prior(x)))(target)
    return weight * pull + prior


def _transposed_product(values, other):
    """``values.T @ other``, but it is the small matrix that gets transposed.

    XLA on CPU would copy `values` into its transpose first, which takes longer than
    the product; the barriers keep it from rewriting this form into that one.
    """
    return lax.optimization_barrier(lax.optimization_barrier(other.T) @ values).T


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
    mean = _transposed_product(residual, other) / size
    second = _transposed_product(residual * residual, other * other) / size
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

    def block(target, other, plate, size, count, log_prior, prior_curvature):
        scale = size / count if scale_likelihood else 1.0
        by_rows = target == "basis"

        def cases(position, indices, data, inverse_temperature):
            i = indices[plate]
            values = data.values if by_rows else data.transposed
            observed = data.observed if by_rows else data.observed_transposed
            weight = inverse_temperature * scale * density.noise_precision(position)
            seen = None if observed is None else observed[i]
            return position[target], position[other][i], values[i], seen, weight

        def gradient(position, indices, data, inverse_temperature):
            x, y, values, seen, weight = cases(position, indices, data, inverse_temperature)
            return {target: factor_gradient(x, y, values, seen, log_prior, weight)}

        def gradient_and_variance(position, indices, data, inverse_temperature):
            x, y, values, seen, weight = cases(position, indices, data, inverse_temperature)
            mean = factor_gradient(x, y, values, seen, log_prior, weight)
            return {target: mean}, {target: factor_case_variance(x, y, values, seen, weight)}

        def gram(position, data, inverse_temperature):
            f = position[other]
            identity = jnp.eye(f.shape[1], dtype=f.dtype)
            # A factor that nothing uses has no curvature: keep the matrix definite.
            likelihood = f.T @ f + 1e-6 * size * identity
            tau = inverse_temperature * density.noise_precision(position)
            return tau * likelihood + prior_curvature * identity

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
            density.basis_log_prior,
            density.basis_curvature,
        ),
        block(
            "usage",
            "basis",
            "columns",
            columns,
            batch[1],
            density.usage_log_prior,
            density.usage_curvature,
        ),
    ]

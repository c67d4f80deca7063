r"""The relaxed Boolean factorisation density, and the conditionals that have a name.

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

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random

from bmfjax.kernels.matrix_data import num_observed, residual_sum_of_squares
from bmfjax.kernels.priors import EntryPrior, draw_rate

#: A learned precision is held at or below this: beyond it the factors' own rounding in
#: float32 is as large as the noise. Only data without noise and a prior that lets it come there.
MAX_PRECISION = 1e8


class RelaxedDensity(NamedTuple):
    """The density's settings.

    Attributes
    ----------
    usage, basis : EntryPrior
    precision : float or None
        The fixed noise precision; None: the position holds a `precision`.
    precision_log_prior : callable or None
        Log prior density of a learned precision.
    precision_gamma : (float, float) or None
        Shape and rate where that prior is a Gamma distribution: the conditional
        is then exact.
    rate_gamma : (float, float) or None
        Shape and rate of the Gamma prior of the factors' exponential rates, where
        the priors of the entries learn them: the position holds a `rate` (rank,).
    """

    usage: EntryPrior
    basis: EntryPrior
    precision: float | None
    precision_log_prior: Callable[[jax.Array], jax.Array] | None
    precision_gamma: tuple[float, float] | None
    rate_gamma: tuple[float, float] | None = None

    def noise_precision(self, position):
        """The precision at `position`, fixed or learned."""
        return position["precision"] if self.precision is None else self.precision


def log_likelihood(density: RelaxedDensity, position, data, rss=None) -> jax.Array:
    """Log density of the observed entries given the factors and the precision.

    Parameters
    ----------
    density : RelaxedDensity
    position : dict
        As for `log_joint`.
    data : MatrixData or SparseMatrixData
    rss : () float, optional
        The residual sum of squares, where it is known already.

    Returns
    -------
    () float
    """
    tau = density.noise_precision(position)
    if rss is None:
        rss = residual_sum_of_squares(position["usage"], position["basis"], data)
    return 0.5 * num_observed(data) * jnp.log(tau / (2 * jnp.pi)) - 0.5 * tau * rss


def log_prior(density: RelaxedDensity, position) -> jax.Array:
    """Log prior density of the factors, the precision and the rates.

    Parameters
    ----------
    density : RelaxedDensity
    position : dict
        As for `log_joint`.

    Returns
    -------
    () float
    """
    rate = position.get("rate")
    prior = jnp.sum(density.usage.log_prob(position["usage"], rate))
    prior = prior + jnp.sum(density.basis.log_prob(position["basis"], rate))
    if density.precision is None:
        prior = prior + density.precision_log_prior(position["precision"])
    if density.rate_gamma is not None:
        prior = prior + jnp.sum(gamma_log_density(rate, *density.rate_gamma))
    return prior


def gamma_log_density(x, shape: float, rate: float):
    """Log density of the Gamma distribution, elementwise."""
    constant = shape * math.log(rate) - math.lgamma(shape)
    return constant + (shape - 1.0) * jnp.log(x) - rate * x


def log_joint(density: RelaxedDensity, position, data, inverse_temperature=1.0) -> jax.Array:
    """Log joint density of factors, precision and data, constants included.

    Parameters
    ----------
    density : RelaxedDensity
    position : dict
        `usage` (rows, rank), `basis` (columns, rank) and, where they are learned,
        `precision` () and `rate` (rank,).
    data : MatrixData or SparseMatrixData
    inverse_temperature : float
        Power of the likelihood.

    Returns
    -------
    () float
    """
    likelihood = log_likelihood(density, position, data)
    return log_prior(density, position) + inverse_temperature * likelihood


def draw_precision(density: RelaxedDensity, key, position, data, inverse_temperature=1.0, rss=None):
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
    rss : () float, optional
        The residual sum of squares, where it is known already.

    Returns
    -------
    () float
        At most `MAX_PRECISION`.
    """
    shape, rate = density.precision_gamma
    if rss is None:
        rss = residual_sum_of_squares(position["usage"], position["basis"], data)
    shape = shape + 0.5 * inverse_temperature * num_observed(data)
    drawn = random.gamma(key, shape) / (rate + 0.5 * inverse_temperature * rss)
    return jnp.minimum(drawn, MAX_PRECISION)


def draw_factor_rate(density: RelaxedDensity, key, position):
    """Draw the factors' exponential rates from their conditional (`draw_rate`).

    Parameters
    ----------
    density : RelaxedDensity
        With `rate_gamma`.
    key : jax.Array
    position : dict

    Returns
    -------
    (rank,) float
    """
    learned = [
        (position[n], p)
        for n, p in (("usage", density.usage), ("basis", density.basis))
        if p.learned_rate
    ]
    return draw_rate(
        key,
        position["rate"],
        density.rate_gamma,
        sum(jnp.sum(x - p.low, axis=0) for x, p in learned),
        [x.shape[0] for x, _ in learned],
        [p.high - p.low for _, p in learned],
    )

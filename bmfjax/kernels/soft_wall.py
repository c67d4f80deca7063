r"""Entries that may be negative at a price: the nonnegative model with soft walls.

An entry of a nonnegative factor has an exponential prior on :math:`[0, \infty)` with rate
:math:`\lambda`. With a wall of hardness :math:`\kappa` its log density is

.. math:: -\lambda\,x \ \text{ for } x \ge 0, \qquad -\kappa\lambda\,|x| \ \text{ for } x < 0,

up to a constant: at :math:`\kappa = 1` a Laplace prior, whose sign means nothing, for
:math:`\kappa \to \infty` the exponential prior. Solutions of a nonnegative factorisation that no
path of nonnegative solutions joins are joined where walls are soft.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import random
from jax.scipy.special import log_ndtr

from bmfjax.kernels.truncated_normal import log_mills_ratio, truncated_normal_quantile

#: A wall of this hardness is never crossed: far beyond what a uniform number resolves.
HARD = 1e20


def draw_two_sided(key, linear, precision, rate, wall):
    r"""Draw from :math:`e^{\ell x - p x^2/2}` times the prior of an entry with a wall at zero.

    Parameters
    ----------
    key : jax.Array
    linear, precision : (...) float
        :math:`\ell` and :math:`p \ge 0`, of the likelihood.
    rate : (...) float
        :math:`\lambda > 0`.
    wall : () float
        :math:`\kappa > 0`.

    Returns
    -------
    (...) float

    Examples
    --------
    >>> flat = jnp.zeros(20_000)
    >>> x = draw_two_sided(random.key(0), flat, flat, 1.0, 3.0)
    >>> abs(float((x < 0).mean()) - 0.25) < 0.01  # masses 1 and 1/3
    True
    """
    linear, precision, rate = jnp.broadcast_arrays(linear, precision, rate)
    key_side, key_size = random.split(key)
    tiny = 2.0**-24
    above, below = linear - rate, -linear - wall * rate
    odds = log_mass_above_zero(above, precision) - log_mass_above_zero(below, precision)
    side = random.uniform(key_side, linear.shape, linear.dtype, minval=tiny)
    positive = side < jax.nn.sigmoid(odds)
    size = truncated_normal_quantile(
        random.uniform(key_size, linear.shape, linear.dtype, minval=tiny),
        jnp.where(positive, above, below), precision, 0.0, jnp.inf,
    )  # fmt: skip
    return jnp.where(positive, size, -size)


def log_mass_above_zero(linear, precision):
    r"""Logarithm of :math:`\int_0^\infty e^{\ell x - p x^2/2}\,dx`, right in float32.

    Parameters
    ----------
    linear : (...) float
    precision : (...) float
        At least 0; where it is 0, `linear` is negative.

    Returns
    -------
    (...) float

    Examples
    --------
    >>> round(float(log_mass_above_zero(jnp.array(-2.0), jnp.array(0.0))), 4)  # log(1/2)
    -0.6931
    """
    precision = jnp.maximum(precision, jnp.finfo(linear.dtype).tiny ** 0.5)
    root = jnp.sqrt(precision)
    z = linear / root
    inside = 0.5 * z * z + 0.5 * jnp.log(2 * jnp.pi) + log_ndtr(jnp.maximum(z, -3.0))
    # Below -3 by Mills' ratio: the square and the tail would cancel.
    return jnp.where(z > -3.0, inside, log_mills_ratio(jnp.maximum(-z, 3.0))) - jnp.log(root)


def wall_energy(position, rates) -> jax.Array:
    r"""How far a position is beyond the walls, :math:`\sum \lambda \max(0, -x)`.

    The log density of a position at hardness :math:`\kappa` is minus that times :math:`\kappa`,
    and what does not depend on :math:`\kappa`.

    Parameters
    ----------
    position : dict
        `usage` (rows, rank) and `basis` (columns, rank).
    rates : dict
        Of the same names, () or (rank,) float.

    Returns
    -------
    () float

    Examples
    --------
    >>> beyond = {"usage": jnp.array([[-1.0], [2.0]]), "basis": jnp.array([[-0.5]])}
    >>> float(wall_energy(beyond, {"usage": 1.0, "basis": 4.0}))
    3.0
    """
    return sum(
        jnp.sum(jnp.sum(jnp.maximum(-position[n], 0.0), axis=0) * rates[n])
        for n in ("usage", "basis")
    )

r"""The nonnegativity constraint softened: entries may be negative at a price.

An entry of a nonnegative factor has an exponential prior on :math:`[0, \infty)` with rate
:math:`\lambda`. With a soft constraint of hardness :math:`\kappa` its log density is

.. math:: -\lambda\,x \ \text{ for } x \ge 0, \qquad -\kappa\lambda\,|x| \ \text{ for } x < 0,

up to a constant: at :math:`\kappa = 1` a Laplace prior, whose sign means nothing, for
:math:`\kappa \to \infty` the exponential prior. Solutions of a nonnegative factorisation that no
path of nonnegative solutions joins are joined where the constraint is soft.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import random
from jax.scipy.special import log_ndtr

from bmfjax.kernels.numerics.mesh import WHOLE, Along
from bmfjax.kernels.numerics.truncated_normal import log_mills_ratio, truncated_normal_quantile
from bmfjax.kernels.relaxed.data import FACTORS

#: A constraint of this hardness is never violated: far beyond what a uniform number resolves.
HARD = 1e20


def draw_two_sided(key, linear, precision, rate, hardness, size=None, along: Along = WHOLE):
    r"""Draw from :math:`e^{\ell x - p x^2/2}` times the prior of a softly constrained entry.

    On a mesh `linear` (m,) may be of this device's part of `size` entries: its random numbers are
    those that it has without one.
    """
    linear, precision, rate = jnp.broadcast_arrays(linear, precision, rate)
    key_side, key_size = random.split(key)
    tiny = 2.0**-24
    above, below = linear - rate, -linear - hardness * rate
    odds = _log_mass_above_zero(above, precision) - _log_mass_above_zero(below, precision)
    shape = linear.shape if size is None else (size,)
    side = along.own(random.uniform(key_side, shape, linear.dtype, minval=tiny))
    positive = side < jax.nn.sigmoid(odds)
    size = truncated_normal_quantile(
        along.own(random.uniform(key_size, shape, linear.dtype, minval=tiny)),
        jnp.where(positive, above, below), precision, 0.0, jnp.inf,
    )  # fmt: skip
    return jnp.where(positive, size, -size)


def _log_mass_above_zero(linear, precision):
    r"""Return the logarithm of :math:`\int_0^\infty e^{\ell x - p x^2/2}\,dx`, right in float32.

    The precision is at least 0; where it is 0, `linear` is negative.
    """
    precision = jnp.maximum(precision, jnp.finfo(linear.dtype).tiny ** 0.5)
    root = jnp.sqrt(precision)
    z = linear / root
    inside = 0.5 * z * z + 0.5 * jnp.log(2 * jnp.pi) + log_ndtr(jnp.maximum(z, -3.0))
    # Below -3 by Mills' ratio: the square and the tail would cancel.
    return jnp.where(z > -3.0, inside, log_mills_ratio(jnp.maximum(-z, 3.0))) - jnp.log(root)


def violation(position, rates) -> jax.Array:
    r"""Return how far a position violates the constraint, :math:`\sum \lambda \max(0, -x)`.

    The log density at hardness :math:`\kappa` is a constant in :math:`\kappa` less
    :math:`\kappa` times this.
    """
    return sum(jnp.sum(jnp.sum(jnp.maximum(-position[n], 0.0), axis=0) * rates[n]) for n in FACTORS)

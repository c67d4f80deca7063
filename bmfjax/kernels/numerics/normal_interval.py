r"""A standard normal variable in an interval: its probability, its hazards, and draws of it.

For many intervals at once, at little cost: one rational function stands for the tails, and another
for quantiles. No probability underflows, however far an interval is from zero, and intervals
narrower than rounding keep their width. Quantiles are fitted up to 45 standard deviations: a draw
further out lies in its interval, and is off by up to half of the scale on which the density changes
there. Gradients are not for automatic differentiation, which gives NaN where an end is far or
infinite: the hazards are the derivatives. One end at least is finite.

With the interval mirrored so that :math:`b \ge |a|`, the tail probability :math:`Q`, the density
:math:`\varphi` and Mills' ratio :math:`M = Q/\varphi`,

.. math::

   P(a < z < b) = \varphi(a)\,\big(M(a) - e\,M(b)\big) \quad\text{for } a \ge 0, \qquad
   1 - \varphi(a)\,\big(M(|a|) + e\,M(b)\big) \quad\text{else}, \qquad e = \varphi(b)/\varphi(a),

and Simpson's rule where the difference would cancel. A draw inverts the smaller of the two tail
probabilities in logarithms. `bmfjax.kernels.numerics.truncated_normal` is of other normal
variables, keeps the digits of a draw's distance from a bound, and takes three times as long.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

#: Ends this many standard deviations further from zero than the nearer one are infinite.
FAR = 40.0
#: Widths in units of the scale on which the density changes, below which Simpson's rule is used.
NARROW = 0.1
LOG_ROOT = 0.5 * math.log(2.0 * math.pi)

# M(z) = t P(t), t = 1 / (1 + z / 4), z >= 0: relative error 4e-8.
_MILLS = (
    0.24999998969933823, 0.2500025349399976, 0.23427318014116683, 0.20469801945605468,
    0.1469342172480978, 0.1626273851591164, -0.08516393367643796, 0.2458619849958607,
    -0.20639528200623608, 0.050476056048446065,
)  # fmt: skip
# z = x N(x) / D(x), x = sqrt(-2 log Q(z)) - sqrt(2 log 2), 0 <= z <= 45: error 4e-8 max(1, z).
_ABOVE = (
    1.4756632115703472, 1.6899659985140774, 0.5685772250158067, 0.06299266043410118,
    0.0017175681827532195,
)  # fmt: skip
_BELOW = (
    1.0, 1.3092559496922875, 0.5061486969975447, 0.060990588051179136, 0.0017174960697014419,
)  # fmt: skip


class Interval(NamedTuple):
    """What `interval` returns, all of the shape of the intervals."""

    log_mass: jax.Array  # log P(low < z < high)
    below: jax.Array  # the density at the lower end over the mass; 0 at minus infinity
    above: jax.Array  # the same of the upper end


class _Mirrored(NamedTuple):
    flip: jax.Array  # whether low is -b
    outside: jax.Array  # whether zero is outside of the interval
    log_density: jax.Array  # at a
    density: object
    decay: jax.Array  # the density at b, over that at a
    tails: tuple  # Mills' ratios of |a|, and of b times `decay`
    mass: jax.Array  # over the density at a where zero is outside


def interval(low, high) -> Interval:
    """Return the logarithm of an interval's probability, and the hazards of its ends.

    Examples
    --------
    >>> found = interval(jnp.array([-1.0, 30.0]), jnp.array([1.0, jnp.inf]))
    >>> [f"{value:.2f}" for value in (*found.log_mass, *found.below)]
    ['-0.38', '-454.32', '0.35', '30.03']
    """
    own = _mirrored(low, high)
    near = jnp.where(own.outside, 1.0, own.density) / own.mass
    far = near * own.decay
    log_mass = jnp.log(own.mass) + jnp.where(own.outside, own.log_density, 0.0)
    return Interval(log_mass, jnp.where(own.flip, far, near), jnp.where(own.flip, near, far))


def between(u, low, high):
    """Return the draw on an interval that belongs to a uniform number `u` in [0, 1).

    Examples
    --------
    >>> drawn = jax.jit(between)(jnp.array([0.0, 0.5]), jnp.array([-1.0, 3.0]), jnp.inf)
    >>> [f"{value:.2f}" for value in drawn]
    ['-1.00', '3.21']
    """
    own = _mirrored(low, high)
    near, far = own.tails
    # Beyond the draw, and on the way to it from below where zero is inside.
    beyond = jnp.where(own.outside, near - u * own.mass, own.density * far + (1.0 - u) * own.mass)
    before = own.density * near + u * own.mass
    is_before = ~own.outside & (before < beyond)
    tail = jnp.maximum(jnp.where(is_before, before, beyond), jnp.finfo(u.dtype).tiny)
    log_tail = jnp.log(tail) + jnp.where(own.outside, own.log_density, 0.0)
    x = jnp.maximum(jnp.sqrt(jnp.maximum(-2.0 * log_tail, 0.0)) - math.sqrt(2.0 * math.log(2.0)), 0)
    z = x * (_polynomial(_ABOVE, x) / _polynomial(_BELOW, x))
    z = jnp.where(is_before != own.flip, -z, z)
    return jnp.clip(z, low, high)


def _mirrored(low, high) -> _Mirrored:
    flip = low + high < 0
    a, b = jnp.where(flip, -high, low), jnp.where(flip, -low, high)
    near, outside = jnp.abs(a), a >= 0
    far = jnp.minimum(b, near + FAR)
    decay = jnp.exp(-0.5 * (far - near) * (far + near))
    log_density = -0.5 * near * near - LOG_ROOT
    density = jnp.exp(log_density)
    tails = _mills(near), decay * _mills(far)
    width = jnp.minimum(b - a, FAR)
    unit = jnp.where(outside, 1.0, density)
    # The density half way between is root(decay) exp(width^2 / 8) times that of the nearer end.
    thin = unit * width * (1.0 + (4.0 + 0.5 * width * width) * lax.sqrt(decay) + decay) / 6.0
    mass = jnp.where(outside, tails[0] - tails[1], 1.0 - density * (tails[0] + tails[1]))
    mass = jnp.where(width * (1.0 + near) < NARROW, thin, mass)
    mass = jnp.maximum(mass, jnp.finfo(mass.dtype).tiny)
    return _Mirrored(flip, outside, log_density, density, decay, tails, mass)


def _mills(z):
    """Return Mills' ratio of z >= 0."""
    t = 1.0 / (1.0 + 0.25 * z)
    return t * _polynomial(_MILLS, t)


def _polynomial(coefficients, x):
    total = jnp.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total

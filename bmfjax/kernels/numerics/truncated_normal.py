r"""Normal distributions truncated to an interval.

`truncated_normal` is accurate in float32. One uniform number makes one draw, by inversion, in one
of three ways. With the ends :math:`a < b` in standard deviations from the mode, the interval
mirrored so that the mode lies towards `a`, and :math:`Q` the upper tail probability:

* the mode well inside or near: invert the smaller of the two tail probabilities,
  which float32 resolves to any depth;
* the mode three standard deviations or more outside: solve
  :math:`Q(a+t) = v\,Q(a)` for :math:`t` in logarithms, by Newton's method on
  Mills' ratio :math:`M(z) = Q(z)/\varphi(z)`. Nothing underflows, and `t` is the
  distance from the bound, so that nothing cancels either;
* an interval narrower than 0.02 standard deviations: the density is exponential
  to within 5e-5, and is drawn as such.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import ndtri

#: Ends this many standard deviations from the mode are as good as infinite (exp(-800) is 0).
FAR = 40.0
TAIL, NARROW = 3.0, 0.02

# z M(z) = P(1/z^2) / Q(1/z^2), both with constant term 1, for z >= 3: relative error 2e-11.
_NUMERATOR = (22.89822853785161, 141.99563473685967, 237.72716943594634, 50.18802373957885)
_DENOMINATOR = (23.89822851193118, 162.8938737479496, 343.92478592908856, 159.02976896278253)


def truncated_normal(key, linear, precision, low, high):
    r"""Draw from the density proportional to :math:`e^{\ell x - p x^2/2}` on an interval.

    The parameters are natural ones because :math:`p = 0` is then no special case: it is uniform,
    or exponential with rate :math:`-\ell`. Where `high` is infinite, p is positive or
    :math:`\ell` negative.
    """
    linear, precision = jnp.broadcast_arrays(linear, precision)
    u = random.uniform(key, linear.shape, linear.dtype)
    return truncated_normal_quantile(u, linear, precision, low, high)


def truncated_normal_quantile(u, linear, precision, low, high):
    """Return the draw of `truncated_normal` that belongs to a uniform number `u` in [0, 1).

    It increases in `u`, or decreases where the mode lies above the middle.
    """
    width = high - low
    # The smallest precision that changes nothing visible: it keeps a flat density finite, and
    # one that falls from a bound, with this slope there, within 1e6 standard deviations.
    above = linear - jnp.where(precision > 0, precision * high, 0.0)
    slope = jnp.maximum(jnp.maximum(above, precision * low - linear), 0.0)
    least = jnp.maximum(1e-12 * slope * slope, 1e-8 / (width * width))
    precision = jnp.maximum(precision, jnp.maximum(least, jnp.finfo(linear.dtype).tiny))
    root = jnp.sqrt(precision)
    scale = 1.0 / root
    mode = linear / precision
    lower, upper = low * root - linear * scale, high * root - linear * scale
    flip = lower + upper < 0
    a = jnp.where(flip, -upper, lower)
    b = jnp.where(flip, -lower, upper)
    b = jnp.minimum(b, jnp.maximum(a, 0.0) + FAR)
    w = jnp.minimum(width * root, FAR + jnp.maximum(-a, 0.0))  # b - a would cancel

    z = _central(u, jnp.clip(a, -FAR, TAIL), jnp.clip(b, 0.0, TAIL + FAR))
    central = jnp.where(flip, mode - scale * z, mode + scale * z)
    t = jnp.where(w < NARROW, _exponential(u, 0.5 * (a + b), w), _tail(u, jnp.maximum(a, TAIL), w))
    from_bound = jnp.where(flip, high - scale * t, low + scale * t)
    x = jnp.where((a >= TAIL) | (w < NARROW), from_bound, central)
    # Above zero, where a density on (0, inf) is none: rounding could reach it.
    return jnp.clip(x, low + jnp.finfo(linear.dtype).tiny, high)


def log_mills_ratio(z):
    """Return log(Q(z) / phi(z)), the log of Mills' ratio, for z >= 3."""
    return _log_mills_factor(z) - jnp.log(z)


def _central(u, a, b):
    """Draw a standard normal on [a, b] with |a| <= b, a <= 3."""
    half = jnp.asarray(0.5, u.dtype)
    beyond_a = half * lax.erfc(jnp.abs(a) * half**half)
    above = half * lax.erfc(b * half**half)
    inside = a < 0
    below = jnp.where(inside, beyond_a, 1.0 - beyond_a)
    mass = jnp.where(inside, 1.0 - beyond_a - above, beyond_a - above)
    p = below + u * mass
    q = above + (1.0 - u) * mass
    z = ndtri(jnp.clip(jnp.minimum(p, q), jnp.finfo(u.dtype).tiny, half))
    return jnp.where(p < q, z, -z)


def _exponential(u, rate, w):
    """Draw t from the density proportional to exp(-rate t) on [0, w], rate >= 0."""
    decay = jnp.maximum(rate * w, 1e-6)
    return -jnp.log1p(u * jnp.expm1(-decay)) / decay * w


def _tail(u, a, w):
    """Draw the distance from a of a standard normal on [a, a + w], a >= 3."""
    at_a = _log_mills_factor(a)
    drop = _log_tail_drop(a, w, at_a)
    goal = -jnp.log1p(u * jnp.expm1(-drop))
    # Start: the drop is about (a + 1/a) t + t^2 / 2.
    slope = a + 1.0 / a
    t = 2.0 * goal / (slope + jnp.sqrt(slope * slope + 2.0 * goal))
    for _ in range(2):
        z = a + t
        hazard = z * jnp.exp(-_log_mills_factor(z))
        t = jnp.maximum(t - (_log_tail_drop(a, t, at_a) - goal) / hazard, 0.0)
    return jnp.minimum(t, w)


def _log_tail_drop(a, t, at_a):
    """Return -log(Q(a + t) / Q(a)), from the logarithm of a M(a)."""
    return t * (a + 0.5 * t) + jnp.log1p(t / a) + (at_a - _log_mills_factor(a + t))


def _log_mills_factor(z):
    """Return log(z M(z)) for z >= 3."""
    y = 1.0 / (z * z)
    numerator, denominator = jnp.zeros_like(y), jnp.zeros_like(y)
    for p, q in zip(reversed(_NUMERATOR), reversed(_DENOMINATOR), strict=True):
        numerator, denominator = (numerator + p) * y, (denominator + q) * y
    # The numbers are nearly equal: log1p of the difference keeps the digits.
    return jnp.log1p((numerator - denominator) / (1.0 + denominator))

r"""Draws from binomial distributions, exact to the precision of the numbers, by one short loop.

``jax.random.binomial`` compiles two rejection samplers wherever it is called. Inversion from the
mode (Kachitvichyanukul, Schmeiser 1988, "Binomial random variate generation", Communications of the
ACM 31, section 2) takes some standard deviations of steps, which is few where counts are those of
data. The probability of the mode is Loader's (2000, "Fast and accurate computation of binomial
probabilities"): a product of powers would lose the digits of large counts.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax, random

#: Counts below which the probability of the mode is formed directly.
SMALL = 32.0
#: From here on a few terms of Stirling's series are exact; smaller numbers are raised by as much.
SHIFT = 8
HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def draw_binomial(key: jax.Array, count: jax.Array, share: jax.Array) -> jax.Array:
    """Draw how many of `count` (whole numbers as float) are hit, each with probability `share`.

    A share that is not between 0 and 1 counts as the nearest of these.
    """
    share = jnp.clip(share, 0.0, 1.0)
    turned = share > 0.5
    p = jnp.where(turned, 1.0 - share, share)
    mode = jnp.floor((count + 1.0) * p)
    first = _probability_of_mode(count, p, mode)
    odds = p / (1.0 - p)
    left = random.uniform(key, count.shape, count.dtype) - first

    def is_open(carry):
        _, left, up, down, _ = carry
        return jnp.any((left >= 0.0) & (up + down > 0.0))

    def look(carry):
        step, left, up, down, found = carry
        above, below = mode + step, mode - step
        open_ = left >= 0.0
        up = up * odds * jnp.maximum(count - above + 1.0, 0.0) / above
        left = left - up
        found = jnp.where(open_ & (left < 0.0), above, found)
        open_ = left >= 0.0
        down = down * (below + 1.0) / jnp.maximum(odds * (count - below), _TINY)
        down = jnp.where(below >= 0.0, down, 0.0)
        left = left - down
        found = jnp.where(open_ & (left < 0.0), below, found)
        return step + 1.0, left, up, down, found

    one = jnp.ones((), count.dtype)
    found = lax.while_loop(is_open, look, (one, left, first, first, mode))[-1]
    return jnp.where(turned, count - found, found)


_TINY = 1e-30


def _probability_of_mode(count, p, mode):
    """Return the probability of the mode, for p up to one half."""
    rest = count - mode
    direct = log_gamma(count + 1.0) - log_gamma(mode + 1.0) - log_gamma(rest + 1.0)
    direct += jnp.where(mode > 0.0, mode * jnp.log(jnp.maximum(p, _TINY)), 0.0)
    direct += rest * jnp.log1p(-p)
    hit, left = jnp.maximum(mode, 1.0), jnp.maximum(rest, 1.0)
    saddle = remainder(jnp.maximum(count, 1.0)) - remainder(hit) - remainder(left)
    saddle -= _deviance(hit, count * p) + _deviance(left, count * (1.0 - p))
    saddle += 0.5 * jnp.log(jnp.maximum(count, 1.0) / (2.0 * jnp.pi * hit * left))
    log_probability = jnp.where((count < SMALL) | (mode == 0.0), direct, saddle)
    log_probability = jnp.where(mode == 0.0, count * jnp.log1p(-p), log_probability)
    return jnp.exp(log_probability)


def _deviance(x, mean):
    """Return x log(x / mean) + mean - x, of numbers that are close."""
    mean = jnp.maximum(mean, _TINY)
    v = (x - mean) / mean
    return mean * ((1.0 + v) * jnp.log1p(v) - v)


def remainder(x: jax.Array) -> jax.Array:
    """Return what Stirling's formula lacks of the log of the Gamma function."""
    return jnp.where(x > SHIFT, _series(x), log_gamma(x) - _stirling(x))


def log_gamma(x: jax.Array) -> jax.Array:
    """Return the log of the Gamma function: as ``gammaln``, which takes longer to compile."""
    product = x
    for step in range(1, SHIFT):
        product = product * jnp.where(x > SHIFT, 1.0, x + step)
    moved = jnp.where(x > SHIFT, x, x + SHIFT)
    down = jnp.where(x > SHIFT, 0.0, jnp.log(jnp.where(x > SHIFT, 1.0, product)))
    return _stirling(moved) + _series(moved) - down


def _stirling(x):
    return (x - 0.5) * jnp.log(x) - x + HALF_LOG_TWO_PI


def _series(x):
    large = jnp.maximum(x, 1.0)
    return (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 * large**-2.0) * large**-2.0) / large


def log_beta(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the log of the Beta function, where the logs of Gamma functions would cancel."""
    total, small = x + y, jnp.minimum(x, y)
    large = jnp.maximum(x, y)
    found = (small - 0.5) * jnp.log(small / total) + (large - 0.5) * jnp.log1p(-small / total)
    found -= 0.5 * jnp.log(total) - HALF_LOG_TWO_PI
    return found + remainder(x) + remainder(y) - remainder(total)


def log_rising(x: jax.Array, count: jax.Array) -> jax.Array:
    r"""Return :math:`\log \Gamma(x + n) / \Gamma(x)` of whole numbers n, where it would cancel."""
    whole = jnp.maximum(count, 1.0)
    return jnp.where(count > 0, log_gamma(whole) - log_beta(whole, x + jnp.zeros_like(whole)), 0.0)

r"""Draws of Polya-Gamma variables PG(1, c), exact and many at once.

A Polya-Gamma variable :math:`\omega \sim PG(1, c)` is :math:`\omega = X / 4` with X of the density

.. math::

   f(x \mid z) = \cosh(z)\, e^{-z^2 x / 2} f(x), \qquad z = |c| / 2,

and f that of Devroye (2009), "On exact simulation algorithms for some distributions related to
Jacobi theta functions", Statistics and Probability Letters 79. It has two alternating series, one
that falls fast for small x and one for large x. With :math:`s(q) = \sum_n (-1)^n (2n+1)
q^{n(n+1)/2}`,

.. math::

   f(x) = \underbrace{2 \,(2 \pi x^3)^{-1/2} e^{-1/(2x)}}_{\ell(x)}\, s(e^{-4/x})
        = \underbrace{\tfrac{\pi}{2} e^{-\pi^2 x / 8}}_{r(x)}\, s(e^{-\pi^2 x}).

Polson, Scott, Windle (2013), "Bayesian inference for logistic models using Polya-Gamma latent
variables", JASA 108, section 4, propose from the two leading terms, r(x) above t = 0.64 and l(x)
below it, and accept by the series. Here the same series accept one proposal in every pass, so that
all columns of an array go on together and draws that were rejected propose again:

* :math:`z < 1`: above t an exponential, and below t the inverse of a squared normal, which leaves
  :math:`e^{-z^2 x / 2}` to the acceptance;
* :math:`z \ge 1`: an inverse Gaussian with mean 1/z on the whole axis, whose density is
  proportional to :math:`\ell(x) e^{-z^2 x / 2}` (Michael, Schucany, Haas 1976, "Generating random
  variates using transformations with multiple roots", American Statistician 30). It is accepted
  with probability :math:`1 / (1 + e^{-2z})`.

At least 88 % of the proposals are accepted, whatever z is. Split at t, four terms of the series
leave out less than :math:`10^{-15}` of the sum, which no random number of 23 or 52 bits resolves.

Blocks of draws pass by one after the other where the device says so: a CPU makes random numbers
several times as fast while they stay in its cache. Every block has a key of its own.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import scipy.special
from jax import lax, random
from jax.scipy.special import ndtri

from bmfjax.kernels.numerics.budget import ONE_BY_ONE, Budget

#: Where the two series meet, and from where on proposals are inverse Gaussian.
CUT, LARGE = 0.64, 1.0
#: The mass of twice a Levy density below the cut, and the normal tail that it comes from.
TAIL = float(scipy.special.ndtr(-(CUT**-0.5)))
MASS_BELOW = 4.0 * TAIL
#: Draws of which one proposes in every pass, and draws of a block.
TOGETHER, BLOCK = 8, 2**16


def draw_polya_gamma(key, c, budget: Budget = ONE_BY_ONE) -> jax.Array:
    r"""Draw :math:`\omega \sim PG(1, c)`, one for every c.

    c (...) may have either sign; NaN gives some number, and keeps no other draw waiting. The mean
    is :math:`\tanh(c/2) / (2c)`, 1/4 at zero. A device whose budget has room makes all at once.

    Examples
    --------
    >>> drawn = jax.jit(draw_polya_gamma)(random.key(0), jnp.full(10_000, 2.0))
    >>> bool(abs(drawn.mean() - math.tanh(1.0) / 4.0) < 0.005)
    True
    """
    c = jnp.asarray(c)
    number = 1 if budget.bytes else -(-c.size // BLOCK)
    if number <= 1:
        return _draw_block(key, c.ravel()).reshape(c.shape)
    # Blocks of one size, the last one with a few more.
    size = -(-c.size // number)
    parts = jnp.pad(c.ravel(), (0, number * size - c.size)).reshape(number, size)
    drawn = lax.map(lambda at: _draw_block(*at), (random.split(key, number), parts))
    return drawn.ravel()[: c.size].reshape(c.shape)


def _draw_block(key, c) -> jax.Array:
    """Draw one variable for every c (draws,)."""
    # In columns of a few draws, made one after the other: no draw has to be looked up, and the
    # proposals are compiled once.
    width = -(-c.size // TOGETHER)
    z = jnp.pad(0.5 * jnp.abs(c), (0, TOGETHER * width - c.size)).reshape(TOGETHER, width)

    def propose(carry):
        tries, drawn, made = carry
        here = jnp.arange(TOGETHER)[:, None] == made
        own = jnp.sum(jnp.where(here, z, 0.0), axis=0)
        proposed, rejected = _proposals(random.fold_in(key, tries), own)
        # The next proposal takes the place of one that is rejected.
        return tries + 1, jnp.where(here, proposed, drawn), made + ~rejected

    start = jnp.int32(0), jnp.zeros_like(z), jnp.zeros(width, jnp.int32)
    drawn = lax.while_loop(lambda carry: jnp.any(carry[2] < TOGETHER), propose, start)[1]
    return 0.25 * drawn.ravel()[: c.size]


def _proposals(key, z) -> tuple[jax.Array, jax.Array]:
    """Return one proposal for every z, (...) float, and whether it is rejected, (...) bool."""
    value, choice, accept = random.uniform(key, (3, *z.shape), z.dtype)
    value = 1.0 - value  # in (0, 1]
    large = z >= LARGE
    normal = ndtri(value * jnp.where(large, 0.5, TAIL))
    rate = 0.125 * math.pi**2 + 0.5 * z * z
    above = 0.5 * math.pi / rate * jnp.exp(-rate * CUT)
    right = choice * (above + MASS_BELOW) < above
    small = jnp.where(right, CUT - jnp.log(value) / rate, 1.0 / (normal * normal))
    x = jnp.where(large, _inverse_gaussian(jnp.maximum(z, LARGE), normal * normal, choice), small)
    q = jnp.exp(-jnp.where(x < CUT, 4.0 / x, math.pi**2 * x))
    q3 = q * q * q
    chance = 1.0 - 3.0 * q + 5.0 * q3 - 7.0 * q3 * q3
    # What the proposal's density leaves out: of an inverse Gaussian above the cut the ratio r / l.
    beyond = 1.5 * jnp.log(0.5 * math.pi * x) + 0.5 / x - 0.125 * math.pi**2 * x
    missed = jnp.where(
        large, jnp.where(x < CUT, 0.0, beyond), jnp.where(right, 0.0, -0.5 * z * z * x)
    )
    return x, accept > chance * jnp.exp(missed)


def _inverse_gaussian(z, square, uniform):
    """Return draws with mean 1/z and shape 1, of squared normals and uniform numbers.

    The smaller root of the quadratic equation is written without the difference of two numbers
    that are nearly equal, and the larger one follows from the product of both.
    """
    mean = 1.0 / z
    half = 0.5 * mean * square
    smaller = mean / (1.0 + half + jnp.sqrt(half * (2.0 + half)))
    return jnp.where(uniform * (mean + smaller) <= mean, smaller, mean * mean / smaller)

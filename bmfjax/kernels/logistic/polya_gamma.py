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
leave out less than :math:`10^{-26}` of the sum, which no random number of 24 or 53 bits resolves.

Blocks of draws pass by one after the other on a CPU, which makes random numbers several times as
fast while they stay in its cache, and side by side where the device has room. Every block has a key
of its own, however many are taken at once.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import scipy.special
from jax import lax, random
from jax.scipy.special import ndtri

from bmfjax.kernels.numerics.budget import ONE_BY_ONE, Budget
from bmfjax.kernels.numerics.uniforms import draw_uniforms

#: Where the two series meet, and from where on proposals are inverse Gaussian.
CUT, LARGE = 0.64, 1.0
#: The mass of twice a Levy density below the cut, and the normal tail that it comes from.
TAIL = float(scipy.special.ndtr(-(CUT**-0.5)))
MASS_BELOW = 4.0 * TAIL
#: Draws of which one proposes in every pass, and draws of a block.
TOGETHER, BLOCK = 8, 2**16
#: Numbers that a draw of a block takes in memory, at most.
NUMBERS = 6
#: The inverse error function of x over x, for float32, where :math:`w = -\log(1 - x^2)`: a
#: polynomial in w - 2.5 below `CENTRAL`, and in :math:`\sqrt w - 3` above (Giles 2010,
#: "Approximating the erfinv function", GPU Computing Gems 2).
CENTRAL = 5.0
NEAR = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
        -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
FAR = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
       -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


def draw_polya_gamma(key, c, budget: Budget = ONE_BY_ONE) -> jax.Array:
    r"""Draw :math:`\omega \sim PG(1, c)`, one for every c.

    c (...) may have either sign; NaN gives some number, and keeps no other draw waiting. The mean
    is :math:`\tanh(c/2) / (2c)`, 1/4 at zero.

    Examples
    --------
    >>> drawn = jax.jit(draw_polya_gamma)(random.key(0), jnp.full(10_000, 2.0))
    >>> bool(abs(drawn.mean() - math.tanh(1.0) / 4.0) < 0.005)
    True
    """
    c = jnp.asarray(c)
    number = -(-c.size // BLOCK)
    if number <= 1:
        return _draw_block(key, c.ravel()).reshape(c.shape)
    # Blocks of one size, the last one with a few more.
    size = -(-c.size // number)
    parts = jnp.pad(c.ravel(), (0, number * size - c.size)).reshape(number, size)
    keys, bytes_of_block = random.split(key, number), NUMBERS * size * c.dtype.itemsize
    drawn = budget.map(lambda at: _draw_block(*at), (keys, parts), bytes_of_block)
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
        uniforms = draw_uniforms(key, z.dtype, (width,), (width,), call=tries)
        proposed, rejected = _proposals(*uniforms, own)
        # The next proposal takes the place of one that is rejected.
        return tries + 1, jnp.where(here, proposed, drawn), made + ~rejected

    start = jnp.int32(0), jnp.zeros_like(z), jnp.zeros(width, jnp.int32)
    drawn = lax.while_loop(lambda carry: jnp.any(carry[2] < TOGETHER), propose, start)[1]
    return 0.25 * drawn.ravel()[: c.size]


def _proposals(value, accept, z) -> tuple[jax.Array, jax.Array]:
    """Return one proposal for every z, (...) float, and whether it is rejected, (...) bool.

    They are made of two uniform numbers each.
    """
    large = z >= LARGE
    rate = 0.125 * math.pi**2 + 0.5 * z * z
    above = 0.5 * math.pi / rate * jnp.exp(-rate * CUT)
    first, value = _chosen(value, jnp.where(large, 1.0, above / (above + MASS_BELOW)))
    right = first & ~large
    value = jnp.maximum(1.0 - value, 0.25 * jnp.finfo(z.dtype).eps)
    tail = value * jnp.where(large, 0.5, TAIL)
    # One logarithm for exponential and normal numbers.
    log = -jnp.log(jnp.where(right, value, 4.0 * tail * (1.0 - tail)))
    square = _normal_square(tail, log)
    mean, half = 1.0 / jnp.maximum(z, LARGE), 0.5 * square / jnp.maximum(z, LARGE)
    # Both roots of the quadratic equation without the difference of two numbers nearly equal.
    root = 1.0 + half + jnp.sqrt(half * (2.0 + half))
    first, accept = _chosen(accept, jnp.where(large, root / (1.0 + root), 1.0))
    small = jnp.where(right, CUT + log / rate, 1.0 / square)
    x = jnp.where(large, jnp.where(first, mean / root, mean * root), small)
    inverse, below = 1.0 / x, x < CUT
    q = jnp.exp(-jnp.where(below, 4.0 * inverse, math.pi**2 * x))
    q3 = q * q * q
    chance = 1.0 - 3.0 * q + 5.0 * q3 - 7.0 * q3 * q3
    # What the proposal's density leaves out: of an inverse Gaussian above the cut the ratio r / l.
    beyond, ratio = large & ~below, 0.5 * math.pi * x
    missed = jnp.where(
        beyond, 0.5 * inverse - 0.125 * math.pi**2 * x,
        jnp.where(large | right, 0.0, -0.5 * z * z * x),
    )  # fmt: skip
    chance *= jnp.where(beyond, ratio * jnp.sqrt(ratio), 1.0) * jnp.exp(missed)
    return x, accept > chance


def _chosen(uniform, chance):
    """Return whether a number is below a chance, and what is left of it, uniform again."""
    first = uniform < chance
    rest = jnp.where(first, uniform, uniform - chance)
    return first, rest / jnp.where(first, chance, 1.0 - chance)


def _normal_square(tail, log):
    """Return the squares of normal quantiles of a tail, with ``-log(4 tail (1 - tail))``."""
    if tail.dtype == jnp.float64:
        normal = ndtri(tail)
        return normal * normal
    central = log < CENTRAL
    at = jnp.where(central, log - 2.5, jnp.sqrt(log) - 3.0)
    found = jnp.where(central, NEAR[0], FAR[0])
    for near, far in zip(NEAR[1:], FAR[1:], strict=True):
        found = found * at + jnp.where(central, near, far)
    erfinv = (1.0 - 2.0 * tail) * found
    return 2.0 * erfinv * erfinv

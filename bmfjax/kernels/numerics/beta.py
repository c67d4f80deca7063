"""Draws from Beta and Gamma distributions, by one loop for all of their Gamma variables.

The loops of ``jax.random.beta`` and ``jax.random.gamma``, over single numbers with keys of their
own, take long to compile.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.scipy.special import erfinv

from bmfjax.kernels.numerics.uniforms import draw_uniforms


def draw_beta(key: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Draw from Beta(a, b).

    It works in logarithms, so that small parameters do not round both Gamma variables to zero,
    and takes their scales apart, which at large parameters would round the rest away.
    """
    return _of_cubes(*_draw_cubes(key, jnp.stack([a, b])))


def draw_gamma(key: jax.Array, a: jax.Array) -> jax.Array:
    """Draw from Gamma(a, 1)."""
    scale, log_cube = _draw_cubes(key, a)
    return scale * jnp.exp(log_cube)


def draw_beta_and_gamma(key: jax.Array, a, b, shape) -> tuple[jax.Array, jax.Array]:
    """Draw from Beta(a, b), and from Gamma(shape, 1), by one loop: (n,) and (m,)."""
    n, every = len(a), jnp.concatenate([a, b, shape])

    def draw(tries):
        return draw_uniforms(key, every.dtype, (3, *every.shape), call=tries)[0]

    scale, log_cube = _cubes(draw, every)
    pairs = (x[: 2 * n].reshape(2, n) for x in (scale, log_cube))
    return _of_cubes(*pairs), scale[2 * n :] * jnp.exp(log_cube[2 * n :])


def draw_same_beta(key: jax.Array, a: float, b: float, shape: tuple, dtype) -> jax.Array:
    """Draw an array from one Beta(a, b), without a loop where that is uniform."""
    if a == b == 1.0:
        return random.uniform(key, shape, dtype)
    return draw_beta(key, jnp.full(shape, a, dtype), jnp.full(shape, b, dtype))


def _of_cubes(scale, log_cube):
    """Return Beta draws, of pairs of Gamma variables as `_draw_cubes` returns them."""
    return jax.nn.sigmoid(jnp.log(scale[0] / scale[1]) + (log_cube[0] - log_cube[1]))


def _draw_cubes(key, a):
    """Return what `_cubes` does, by a key of its own for every try."""

    def draw(tries):
        return random.uniform(random.fold_in(key, tries), (3, *a.shape), a.dtype)

    return _cubes(draw, a)


def _cubes(draw, a):
    r"""Return d, and log(x / d) of draws x from Gamma(a, 1), by rejection (Marsaglia, Tsang 2000).

    With d = a - 1/3 and x normal, :math:`d(1 + y)^3` for :math:`y = x / (3 \sqrt d)` is accepted
    with the probability :math:`\exp(x^2/2 + d(3 \log(1 + y) - 3y - 3y^2 - y^3))`. For a < 1 it is
    drawn for a + 1 and multiplied by a uniform number to the power 1/a. ``draw(tries)`` are the
    three uniform numbers of all draws for a try.
    """
    kind = a.dtype
    raised = a < 1.0
    d = jnp.where(raised, a + 1.0, a) - 1.0 / 3.0
    scale = 1.0 / (3.0 * jnp.sqrt(d))
    least = np.nextafter(np.array(-1.0, kind), np.array(0.0, kind))

    def propose(carry):
        tries, value, done = carry
        uniform = draw(tries)
        x = 2.0**0.5 * erfinv(jnp.maximum(2.0 * uniform[0] - 1.0, least))
        log_level, log_power = jnp.log1p(-uniform[1:])
        y = scale * x
        # By log1p: the logarithm of the cube loses what counts where d is large.
        log_cube = 3.0 * jnp.log1p(jnp.maximum(y, least))
        ratio = 0.5 * x * x + d * (log_cube - y * (3.0 + y * (3.0 + y)))
        # A parameter that is not a number draws none, and must not be tried for ever.
        good = ((y > -1.0) & (log_level < ratio)) | jnp.isnan(ratio)
        log_cube = jnp.where(jnp.isnan(ratio), jnp.nan, log_cube)
        drawn = log_cube + jnp.where(raised, log_power / a, 0.0)
        return tries + 1, jnp.where(done, value, drawn), done | good

    start = jnp.int32(0), jnp.zeros_like(a), jnp.zeros(a.shape, bool)
    _, drawn, _ = lax.while_loop(lambda carry: ~jnp.all(carry[2]), propose, start)
    return d, drawn

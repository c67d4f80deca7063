"""Uniform numbers of several shapes by one call, and draws of other distributions made of them.

Every call of JAX's generators is a loop of its own, which takes a tenth of a second to compile on a
CPU and is slow where arrays are small.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.scipy.special import erfinv


def draw_uniforms(key: jax.Array, dtype, *shapes: tuple[int, ...]) -> list[jax.Array]:
    """Draw uniform numbers in [0, 1), an array of each shape.

    Examples
    --------
    >>> one, many = draw_uniforms(random.key(0), jnp.float32, (), (2, 3))
    >>> one.shape, many.shape
    ((), (2, 3))
    """
    sizes = [math.prod(shape) for shape in shapes]
    parts = jnp.split(random.uniform(key, (sum(sizes),), dtype), np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def normals(uniform: jax.Array) -> jax.Array:
    """Return standard normal draws made of uniform ones."""
    kind = uniform.dtype
    least = np.nextafter(np.array(-1.0, kind), np.array(0.0, kind))
    return 2.0**0.5 * erfinv(jnp.maximum(2.0 * uniform - 1.0, least))


def logistics(uniform: jax.Array) -> jax.Array:
    """Return standard logistic draws made of uniform ones."""
    uniform = jnp.maximum(uniform, jnp.finfo(uniform.dtype).eps)
    return jnp.log(uniform) - jnp.log1p(-uniform)


def gumbels(uniform: jax.Array) -> jax.Array:
    """Return standard Gumbel draws made of uniform ones."""
    return -jnp.log(-jnp.log(jnp.maximum(uniform, jnp.finfo(uniform.dtype).tiny)))


def integers(uniform: jax.Array, number: int) -> jax.Array:
    """Return whole numbers from 0 to below `number` made of uniform ones."""
    return (uniform * number).astype(jnp.int32)

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
from jax.extend.random import threefry_2x32
from jax.scipy.special import erfinv

#: Powers of two by which words become numbers: the bits of one that a float32 holds, and those of
#: a first and of a second that a float64 holds.
_SHORT, _LONG = 8, (5, 6)
#: Words of a call from which on it has a key of its own: their counters have 32 bits.
MANY_WORDS = 2**24


def draw_words(key: jax.Array, number: int, call=0) -> jax.Array:
    """Draw so many words of 32 random bits; other ones for every `call` with a key.

    Both words of a block of JAX's default generator are used, where ``jax.random.bits`` gives
    one, and `call`, which may be traced, needs no key of its own unless there are many.
    """
    if str(random.key_impl(key)) != "threefry2x32":
        return random.bits(random.fold_in(key, call), (number,), jnp.uint32)
    even = number + number % 2
    if number >= MANY_WORDS:
        key, call = random.fold_in(key, call), 0
    count = jnp.arange(even, dtype=jnp.uint32) + jnp.asarray(call).astype(jnp.uint32) * even
    return threefry_2x32(tuple(random.key_data(key)), count)[:number]


def draw_uniforms(key: jax.Array, dtype, *shapes: tuple[int, ...], call=0) -> list[jax.Array]:
    """Draw uniform numbers in [0, 1), an array of each shape; other ones for every `call`.

    Examples
    --------
    >>> one, many = draw_uniforms(random.key(0), jnp.float32, (), (2, 3))
    >>> one.shape, many.shape
    ((), (2, 3))
    """
    words = draw_words(key, _words_of(dtype) * sum(map(math.prod, shapes)), call)
    return _shaped(_uniform(words, dtype), shapes)


def draw_parts(key: jax.Array, dtype, parts, num_keys: int) -> tuple[jax.Array, list]:
    """Draw the uniform numbers of several parts of a sweep, and keys, by one call.

    `parts` are lists of shapes. Returned are the keys, and a list of arrays for each part.
    """
    of_key = random.key_data(key).shape
    number = num_keys * math.prod(of_key)
    shapes = [shape for part in parts for shape in part]
    words = draw_words(key, number + _words_of(dtype) * sum(map(math.prod, shapes)))
    keys = words[:number].reshape(num_keys, *of_key)
    found = iter(_shaped(_uniform(words[number:], dtype), shapes))
    keys = random.wrap_key_data(keys, impl=random.key_impl(key))
    return keys, [[next(found) for _ in part] for part in parts]


def _shaped(numbers, shapes) -> list[jax.Array]:
    parts = jnp.split(numbers, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _words_of(dtype) -> int:
    return 2 if dtype == jnp.float64 else 1


def _uniform(words, dtype) -> jax.Array:
    if dtype == jnp.float64:
        high, low = words.reshape(2, -1)
        high, low = (high >> _LONG[0]).astype(dtype), (low >> _LONG[1]).astype(dtype)
        return (high * 2.0 ** (32 - _LONG[1]) + low) * 2.0**-53
    return (words >> _SHORT).astype(dtype) * 2.0 ** (_SHORT - 32)


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

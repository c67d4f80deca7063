r"""The logarithm of a product of many numbers that would leave the range of a float.

A float is :math:`m 2^e` with :math:`1 \le m < 2`. Exponents are added as integers, what is left is
multiplied, and one logarithm is taken of that product.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

#: Most numbers of one logarithm. With twice as many a sweep is hardly faster, and compiles longer.
TOGETHER = 8


def log_product(factors: list[jax.Array]) -> jax.Array:
    r"""Return the logarithm of the product of an even number of arrays, at most `TOGETHER`.

    Their numbers are at least :math:`2^{-61}` and at most :math:`2^{61}`, so that two have a
    product. NaN counts as some number: who may have it looks for it elsewhere.

    Examples
    --------
    >>> numbers = [jnp.full(2, 2.0**60), jnp.array([1.0, 3.0])]
    >>> [round(float(x), 2) for x in log_product(numbers)]
    [41.59, 42.69]
    """
    kind = factors[0].dtype
    own, whole = jnp.finfo(kind), jnp.int64 if kind == jnp.float64 else jnp.int32
    one = lax.bitcast_convert_type(jnp.ones((), kind), whole)
    exponent, left = 0, 1.0
    for first, second in zip(factors[::2], factors[1::2], strict=True):
        bits = lax.bitcast_convert_type(first * second, whole)
        exponent += bits >> own.nmant
        bits = (bits & (2**own.nmant - 1)) | one
        left *= lax.bitcast_convert_type(bits, kind)
    exponent -= len(factors) // 2 * (own.maxexp - 1)
    return exponent.astype(kind) * math.log(2.0) + jnp.log(left)

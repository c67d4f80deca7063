"""Matrix products in full float32 precision, on devices that round by default."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax


def full_precision(f: Callable) -> Callable:
    """Let the matrix products in ``f`` keep all digits of float32.

    By default GPUs and TPUs round the factors of a product to 8 or 11 bits. A sampler that draws
    from what is left would leave another distribution invariant. Every function whose arithmetic
    needs all digits says so itself, whoever calls it.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> product = full_precision(lambda a, b: a @ b)
    >>> "Precision.HIGHEST" in str(jax.make_jaxpr(product)(jnp.eye(2), jnp.eye(2)))
    True
    """

    @functools.wraps(f)
    def precise(*given, **named):
        with jax.default_matmul_precision("highest"):
            return f(*given, **named)

    return precise

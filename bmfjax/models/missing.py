"""Missing entries of a data matrix: NaN, or False in a mask."""

from __future__ import annotations

import jax.numpy as jnp


def split_missing(data, observed=None):
    """Return the values, zero where missing as NaN would poison gradients, and the mask.

    NaN and, where given, False in `observed` mark missing entries. Without data both are None.
    """
    if data is None:
        return None, None
    values = jnp.asarray(data, jnp.result_type(float))
    seen = ~jnp.isnan(values)
    if observed is not None:
        seen = seen & jnp.asarray(observed, bool)
    return jnp.where(seen, values, 0.0), seen

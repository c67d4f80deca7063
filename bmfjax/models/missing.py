"""Missing entries of a data matrix: NaN, or False in a mask."""

from __future__ import annotations

import jax.numpy as jnp


def split_missing(data, observed=None):
    """Values with zeros for what is missing (a NaN would poison gradients), and the mask.

    Parameters
    ----------
    data : (rows, columns) array or None
        NaN is missing.
    observed : (rows, columns) bool array, optional
        False marks further missing entries.

    Returns
    -------
    values : (rows, columns) float or None
        None where `data` is.
    seen : (rows, columns) bool or None

    Examples
    --------
    >>> values, seen = split_missing([[1.0, float("nan")]])
    >>> values.tolist(), seen.tolist()
    ([[1.0, 0.0]], [[True, False]])
    """
    if data is None:
        return None, None
    values = jnp.asarray(data, jnp.result_type(float))
    seen = ~jnp.isnan(values)
    if observed is not None:
        seen = seen & jnp.asarray(observed, bool)
    return jnp.where(seen, values, 0.0), seen

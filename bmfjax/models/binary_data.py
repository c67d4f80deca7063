"""The data of Boolean models: a binary matrix on two full plates, missing entries masked."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from bmfjax.data.errors import InputError
from bmfjax.models.missing import split_missing


def binary_data(data, observed, shape, model):
    """Return shape, values and mask of a binary matrix, as `split_missing` makes them.

    Entries other than 0, 1 and NaN are refused, unless `observed` hides them or they are traced.
    Without data the shape is `shape`; `model` is a name for the refusal.
    """
    if data is None:
        if shape is None:
            raise InputError(f"{model} needs data, or shape=(rows, columns) to simulate some")
        return tuple(shape), None, None
    shape = np.shape(data)
    if len(shape) != 2:
        raise InputError(f"data has shape {shape}; give a matrix of rows and columns")
    if observed is not None and np.shape(observed) != shape:
        raise InputError(f"observed has shape {np.shape(observed)}; give that of the data, {shape}")
    # Traced arrays have no values to check; the caller that compiles checks them.
    if not any(isinstance(a, jax.core.Tracer) for a in (data, observed)):
        _check_binary(data, observed)
    return (shape, *split_missing(data, observed))


def _check_binary(data, observed):
    values = np.asarray(data)
    other = (values != 0) & (values != 1) & (values == values)  # the last: not NaN
    if observed is not None:
        other &= np.asarray(observed, bool)
    if other.any():
        i, j = np.argwhere(other)[0].tolist()
        raise InputError(
            f"data at row {i}, column {j} is {values[i, j]}; give 0, 1 or, for a missing entry, NaN"
        )


def sample_data(logits, shape, values, seen):
    """Sample the site of the data, under the full plates `rows` and `columns`.

    ``logits(i, j)`` are the log odds of ones at the plates' indices; the rest is of `binary_data`.
    """
    rows, columns = shape
    with numpyro.plate("rows", rows, dim=-2) as i, numpyro.plate("columns", columns, dim=-1) as j:
        noise = dist.Bernoulli(logits=logits(i, j))
        if seen is not None:
            noise = noise.mask(seen[i][:, j])
        numpyro.sample("data", noise, obs=None if values is None else values[i][:, j])

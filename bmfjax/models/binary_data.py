"""The data of Boolean models: a binary matrix on two full plates, missing entries masked."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from bmfjax.data.errors import InputError
from bmfjax.models.missing import split_missing


def check_rank(rank):
    """Refuse a number of factors that is not a positive integer.

    Examples
    --------
    >>> check_rank(2)
    >>> check_rank(0)
    Traceback (most recent call last):
        ...
    bmfjax.data.errors.InputError: rank is 0; give a number of factors of at least 1
    """
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1:
        raise InputError(f"rank is {rank!r}; give a number of factors of at least 1")


def binary_data(data, observed, shape, model):
    """Size, values and mask of a binary matrix.

    Parameters
    ----------
    data : (rows, columns) array or None
        0 or 1; NaN is missing.
    observed : (rows, columns) bool array or None
        False marks further missing entries, whose values do not matter.
    shape : (int, int) or None
        Rows and columns where `data` is None.
    model : str
        For the message.

    Returns
    -------
    (int, int), values, seen
        The shape; values and mask as `bmfjax.models.missing.split_missing` returns them.

    Raises
    ------
    InputError
        For neither data nor shape, data that are not a matrix, a mask of another shape,
        or an observed entry other than 0 and 1 (unless the data are traced).

    Examples
    --------
    >>> binary_data([[1, 0, 1]], None, None, "ormachine")[0]
    (1, 3)
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
    # What is traced was looked at, or not, by whoever compiles.
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
    """The site of the data, under the full plates `rows` and `columns`.

    Parameters
    ----------
    logits : callable
        ``logits(i, j) -> (rows, columns) float``: log odds of a one at the plates' indices.
    shape : (int, int)
    values, seen : as `binary_data` returns them

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from numpyro import handlers
    >>> even = lambda i, j: jnp.zeros((len(i), len(j)))
    >>> model = handlers.trace(handlers.seed(sample_data, jax.random.key(0)))
    >>> model.get_trace(even, (3, 2), None, None)["data"]["value"].shape
    (3, 2)
    """
    rows, columns = shape
    with numpyro.plate("rows", rows, dim=-2) as i, numpyro.plate("columns", columns, dim=-1) as j:
        noise = dist.Bernoulli(logits=logits(i, j))
        if seen is not None:
            noise = noise.mask(seen[i][:, j])
        numpyro.sample("data", noise, obs=None if values is None else values[i][:, j])

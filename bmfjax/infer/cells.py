"""Predictions of cells of a matrix factorisation, streamed over the draws of a chain."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jax.scipy.special import ndtr

from bmfjax.infer.reducers import Reducer, moments

#: Cells formed at once.
BATCH = 65_536


def cell_fits(position, rows, columns):
    r"""The fits :math:`\mu + a_i + b_j + u_i^\top v_j` of some cells at one draw.

    Parameters
    ----------
    position : dict
        Sites of `bmfjax.kernels.pmf`; what is absent is left out of the sum.
    rows, columns : (cell,) int

    Returns
    -------
    (cell,) float

    Examples
    --------
    >>> position = {"usage": jnp.ones((2, 1)), "basis": jnp.ones((3, 1)), "intercept": 2.0}
    >>> cell_fits(position, jnp.array([0, 1]), jnp.array([2, 0])).tolist()
    [3.0, 3.0]
    """

    def of(at):
        i, j = at
        fit = jnp.asarray(position.get("intercept", 0.0))
        if "row_effect" in position:
            fit = fit + position["row_effect"][i] + position["column_effect"][j]
        if "usage" in position:
            fit = fit + position["usage"][i] @ position["basis"][j]
        return fit

    cells = jnp.asarray(rows, jnp.int32), jnp.asarray(columns, jnp.int32)
    return lax.map(of, cells, batch_size=min(BATCH, max(1, len(rows))))


def expected_value(link: str, stars=None) -> Callable:
    """What a rating is on average given its fit: ``of(position, fits) -> values``.

    Parameters
    ----------
    link : {"identity", "probit", "ordered"}
        Of "probit" the probability of a one.
    stars : (categories,) array, optional
        Of "ordered" the ratings that the categories stand for, ascending; default 0, 1, 2, ...

    Examples
    --------
    >>> of = expected_value("ordered", [1.0, 2.0, 3.0])
    >>> of({"cutpoints": jnp.array([-1.0, 1.0])}, jnp.zeros(1)).tolist()
    [2.0]
    """

    def of(position, fits):
        if link == "identity":
            return fits
        if link == "probit":
            return ndtr(fits)
        cuts = position["cutpoints"]
        steps = jnp.ones_like(cuts) if stars is None else jnp.diff(jnp.asarray(stars, cuts.dtype))
        lowest = 0.0 if stars is None else float(stars[0])
        return lowest + ndtr(fits[:, None] - cuts) @ steps

    return of


def cell_moments(rows, columns, of: Callable | None = None) -> Reducer:
    """Mean and variance over draws of some cells, of any number of draws in the memory of few.

    Parameters
    ----------
    rows, columns : (cell,) int
    of : callable, optional
        ``of(position, fits) -> (cell,)``, such as `expected_value`; default the fits.

    Returns
    -------
    Reducer
        Its value is ``{"mean": (cell,), "variance": (cell,)}`` in float64, beside the axis of
        chains. Averaged over chains the mean is the posterior mean of the cells.

    Examples
    --------
    >>> reducer = cell_moments([0], [0])
    >>> draw = {"usage": jnp.array([[2.0]]), "basis": jnp.array([[1.5]])}
    >>> reducer.value(reducer.update(reducer.init(draw), draw))["mean"].tolist()
    [3.0]
    """
    inner = moments("cells")

    def cells(observed):
        fits = cell_fits(observed, rows, columns)
        return {"cells": fits if of is None else of(observed, fits)}

    return Reducer(
        lambda observed: inner.init(cells(observed)),
        lambda carry, observed: inner.update(carry, cells(observed)),
        lambda carry: inner.value(carry)["cells"],
    )

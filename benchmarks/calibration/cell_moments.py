"""Predictions of cells of a matrix factorisation, streamed over the draws of a chain.

The memory is that of few draws, however many are taken.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr
from scipy.special import ndtri

from bmfjax.infer.reducers import Reducer, moments

#: Cells formed at once.
BATCH = 65_536


def cell_fits(position, rows, columns):
    r"""Return the fits :math:`\mu + a_i + b_j + u_i^\top v_j` of some cells at one draw.

    `position` holds sites of `bmfjax.kernels.ratings.gibbs`; an absent site is left out of the sum.
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
    """Return ``of(position, fits) -> values``, what a rating is on average given its fit.

    Of link "probit" that is the probability of a one; of "ordered" the mean of the `stars` that the
    categories stand for, ascending; default 0, 1, 2, ...
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


def noisy_parts(link: str, stars=None) -> Callable:
    """Return ``of(position, fits) -> values (number, cell)``, of which intervals of ratings follow.

    Of link "identity" the fit and the variance of the noise, which is learned; of "ordered" the
    probability of each star.
    """

    def of(position, fits):
        if link == "identity":
            return jnp.stack([fits, jnp.broadcast_to(1.0 / position["precision"], fits.shape)])
        below = ndtr(position["cutpoints"][:, None] - fits)
        none = jnp.zeros((1, *fits.shape), fits.dtype)
        return jnp.diff(jnp.concatenate([none, below, none + 1.0]), axis=0)

    return of


def noisy_interval(link: str, found, stars, level: float = 0.9):
    """Return mean and ends of the central interval of ratings, each (cell,), from their moments.

    `found` is what `cell_moments` of `noisy_parts` has of all chains, (chain, number, cell). The
    interval of "identity" is that of a normal distribution, and of "ordered" from star to star.
    """
    mean, variance = (found[n].mean(0) for n in ("mean", "variance"))
    tail = 0.5 * (1.0 - level)
    if link == "identity":
        between = found["mean"][:, 0].var(0)
        half = -ndtri(tail) * np.sqrt(variance[0] + between + mean[1])
        return mean[0], mean[0] - half, mean[0] + half
    below, stars = mean.cumsum(0)[:-1], np.asarray(stars)
    return stars @ mean, *(stars[(below < q).sum(0)] for q in (tail, 1.0 - tail))


def cell_moments(rows, columns, of: Callable | None = None) -> Reducer:
    """Return a reducer to mean and variance over draws of some cells, in the memory of few draws.

    Its value is ``{"mean": (cell,), "variance": (cell,)}`` in float64, beside the axis of chains,
    of ``of(position, fits)``; default: of the fits.
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

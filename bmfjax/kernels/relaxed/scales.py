r"""Moves of a whole factor together with its rate, where usage and basis share a learned one.

Given the entries of a factor its rate is nearly known, and given the rate the entries keep their
size: a factor grows and vanishes by small steps. Here both move,

.. math:: y_k \to s\,y_k,\quad x_k \to s\,x_k,\quad \lambda_k \to \lambda_k / s,

by one slice step in :math:`t = \log s`. The densities of the entries given the rate only lose what
the Jacobian gives, on an interval of width w up to its normalisation. The log density of t is

.. math::

   -a t - b\lambda_k e^{-t} - \textstyle\sum_{w < \infty} n_w \log(1 - e^{-w\lambda_k e^{-t}})
   + \beta\tau\,(\delta\,\langle E, T\rangle - \tfrac12\delta^2\,\|T\|^2), \qquad
   \delta = e^{2t} - 1,

with residuals E, tile :math:`T = y_k x_k^\top`, both over the observed entries, and the
:math:`\mathrm{Gamma}(a, b)` prior of the rate (Yu, Meng 2011, "To center or not to center: that is
not the question", Journal of Computational and Graphical Statistics 20: a step in the ancillary
parametrisation between those in the sufficient one). A factor that explains nothing gets a new rate
from the prior.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax, random

from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.numerics.slice import slice_sample
from bmfjax.kernels.relaxed.data import (
    FACTORS,
    MatrixData,
    SparseMatrixData,
    cross_product,
    gram_matrix,
    gram_products,
    pair_of_all,
    pair_sum,
)
from bmfjax.kernels.relaxed.density import RelaxedDensity

#: Width of the window around log s = 0 in which a scale is looked for.
WINDOW = 4.0


def has_scales(density: RelaxedDensity, data) -> bool:
    """Tell whether factors can be moved: rates of both sides are shared, and nothing is known.

    For sparse data with missing entries there are no residuals at hand.
    """
    learned = all(getattr(density, n).learned_rate for n in FACTORS)
    gaps = isinstance(data, SparseMatrixData) and data.by_row is not None
    return learned and not density.anchored and not gaps


@full_precision
def move_scales(
    key,
    density: RelaxedDensity,
    position,
    data: MatrixData | SparseMatrixData,
    inverse_temperature=1.0,
) -> dict:
    """Move all factors in turn; the posterior at this inverse temperature stays invariant.

    Entries may be negative, as behind a soft constraint: their cost scales alike.
    """
    usage, basis, rates = position["usage"], position["basis"], position["rate"]
    weight = inverse_temperature * density.noise_precision(position)
    pulls, squares, change, start = _tiles(usage, basis, data)
    highest = _most(density, usage, basis)
    rank = usage.shape[1]
    keys = random.split(key, rank)

    def move(k, carry):
        t, held = carry
        along, square = pulls(k, held), squares(k)

        def log_density(t):
            delta = jnp.expm1(2.0 * t)
            fit = weight * delta * (along - 0.5 * delta * square)
            return fit + _log_prior(density, t, rates[k], (usage.shape[0], basis.shape[0]))

        key_window, key_slice = random.split(keys[k])
        left = -WINDOW * random.uniform(key_window, (), rates.dtype)
        right = jnp.minimum(left + WINDOW, highest[k])
        zero = jnp.zeros((), rates.dtype)
        moved = jnp.minimum(slice_sample(key_slice, zero, log_density, left, right), highest[k])
        return t.at[k].set(moved), change(k, held, jnp.expm1(2.0 * moved))

    t = lax.fori_loop(0, rank, move, (jnp.zeros_like(rates), start))[0]
    scaled = {n: _inside(getattr(density, n), position[n], jnp.exp(t)) for n in FACTORS}
    return {**position, **scaled, "rate": rates * jnp.exp(-t)}


def _log_prior(density, t, rate, counts):
    """Return what moving by t adds to the log density of factor and rate, with the Jacobian."""
    shape, inverse_scale = density.rate_gamma
    value = -shape * t - inverse_scale * rate * jnp.exp(-t)
    for name, count in zip(FACTORS, counts, strict=True):
        width = getattr(density, name).high
        if width != float("inf"):
            value = value - count * jnp.log(-jnp.expm1(-rate * width * jnp.exp(-t)))
    return value


def _most(density, usage, basis):
    """Return how far up factors can move until an entry is at its bound, (rank,)."""
    room = jnp.full(usage.shape[1], jnp.inf, usage.dtype)
    for name, x in zip(FACTORS, (usage, basis), strict=True):
        high = getattr(density, name).high
        if high != float("inf"):
            room = jnp.minimum(room, jnp.log(high) - jnp.log(jnp.max(x, axis=0)))
    return jnp.maximum(room, 0.0)


def _inside(prior, x, scale):
    """Return scaled entries; rounding takes none to zero or beyond the bound."""
    tiny = jnp.finfo(x.dtype).tiny
    scaled = x * scale
    scaled = jnp.where(x > 0, jnp.maximum(scaled, tiny), scaled)
    return scaled if prior.high == float("inf") else jnp.minimum(scaled, prior.high)


def _tiles(usage, basis, data: MatrixData | SparseMatrixData):
    r"""Return how tiles and residuals multiply, and how that changes as factors move.

    ``pulls(k, held)`` is :math:`\langle E, T_k\rangle`, ``squares(k)`` is :math:`\|T_k\|^2`, and
    ``change(k, held, delta)`` what is held once tile k has grown by delta times itself; the fourth
    is what is held at the start. On a mesh a device has the residuals of its own columns.
    """
    along, of_all = data.along, basis
    if isinstance(data, SparseMatrixData):
        return _complete_tiles(usage, basis, _sparse_pulls(usage, basis, data), along)
    basis = along.own(of_all)
    residual, mask = data.values - usage @ basis.T, data.observed
    if mask is None:
        start = along.total(jnp.sum(usage * (residual @ basis), axis=0))
        return _complete_tiles(usage, of_all, start, along)

    def change(k, residual, delta):
        return residual - delta * mask * jnp.outer(usage[:, k], basis[:, k])

    return (
        lambda k, held: along.total(usage[:, k] @ (held @ basis[:, k])),
        lambda k: along.total(usage[:, k] ** 2 @ (mask @ basis[:, k] ** 2)),
        change,
        mask * residual,
    )


def _complete_tiles(usage, basis, start, along):
    """Return what `_tiles` does where nothing is missing, from the first pulls, (rank,)."""
    tiles = gram_matrix(usage, along) * gram_matrix(basis, along)
    return (
        lambda k, held: held[k],
        lambda k: tiles[k, k],
        lambda k, held, delta: held - delta * tiles[k],
        start,
    )


def _sparse_pulls(usage, basis, data):
    r"""Return :math:`\langle E, T_k\rangle` of all factors, (rank,), as a difference of two sums.

    They cancel, so that sums and their rounding errors are carried in pairs of floats.
    """
    own = data.along.own(usage)
    observed = pair_sum(own * cross_product(data, "usage", basis).T)
    observed = pair_of_all(data.along, *observed)
    fitted = pair_sum(*gram_products(usage, basis, data.along))  # symmetric
    high, low = pair_sum(jnp.stack([observed[0], -fitted[0]]), jnp.stack([observed[1], -fitted[1]]))
    return high + low

r"""The covariance of window averages near a mode, and the map from it to the posterior's.

Let the log density have the curvature :math:`A` at its mode, and the gradient of N cases,
estimated from S of them, the noise covariance :math:`\tfrac NS C`. A step of a block b of
coordinates with a constant preconditioner :math:`H_b` moves the distance e to the mode by

.. math:: e \leftarrow (I - E_bH_bE_b^\top A)\,e + E_bH_bz_b,
          \qquad \operatorname{Var}(z_b) = \tfrac NS C_b,

where the columns of :math:`E_b` pick the block. All blocks in turn make
:math:`e \leftarrow Me + z`, :math:`\operatorname{Var}(z) = Q`: an autoregression with the
stationary covariance :math:`\Sigma = M\Sigma M^\top + Q`. The average of T iterates has

.. math:: V = \frac1{T^2}\Big(T\Sigma + \sum_{t=1}^{T-1}(T-t)
              \big(M^t\Sigma + \Sigma M^{t\top}\big)\Big).

This is exact for a normal density. For long windows it is the sandwich
:math:`A^{-1}CA^{-1}\,N/(ST)`, whatever the preconditioners are (Mandt, Hoffman, Blei 2017);
:math:`A^{-1}` is the posterior's covariance.

With a root :math:`A = R^\top R` the matrix :math:`RVR^\top` has the variances of the averages in
coordinates in which the posterior is standard normal, and :math:`L = R^{-1}(RVR^\top)^{-1/2}R`
gives averages the covariance :math:`LVL^\top = A^{-1}`. Among all such maps it is the one that is
symmetric and positive definite in those coordinates; it does not depend on the root, nor on the
units of the coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve, solve_triangular

from bmfjax.kernels.numerics.precision import full_precision

#: Squarings of the transition: 2^24 sweeps are enough for any step that converges.
DOUBLINGS = 24
#: Smallest variance of averages, in posterior variances, that is made up for.
LEAST_VARIANCE = 1e-4
#: Share of the curvature that is added to a prior's, which may be none.
LEAST_SHARE = 1e-6
#: A direction is flat where the curvature is below this share of the prior's.
FLAT_SHARE = 0.1


class Sweep(NamedTuple):
    """One step of all blocks: the distance to the mode moves by `transition`, with `noise`."""

    transition: jax.Array  # (d, d)
    noise: jax.Array  # (d, d)


@full_precision
def sweep(
    curvature: jax.Array, noise: jax.Array, preconditioners: Sequence[jax.Array], shares
) -> Sweep:
    """Return what one step of every block, in turn, does to the distance from the mode.

    `curvature` A and `noise` C are (d, d), in the order of the blocks; `preconditioners` holds the
    matrix of each block, step size included, and `shares` its N/S (less where cases are drawn
    without replacement).
    """
    d = curvature.shape[0]
    transition, total, start = jnp.eye(d, dtype=curvature.dtype), jnp.zeros_like(curvature), 0
    for matrix, share in zip(preconditioners, shares, strict=True):
        block = slice(start, start + matrix.shape[0])
        moved = transition.at[block].add(-matrix @ curvature[block] @ transition)
        # The noise that is there already moves as the distance does.
        step = jnp.eye(d, dtype=curvature.dtype).at[block].add(-matrix @ curvature[block])
        total = step @ total @ step.T
        total = total.at[block, block].add(share * matrix @ noise[block, block] @ matrix.T)
        transition, start = moved, block.stop
    return Sweep(transition, total)


def stationary_covariance(one: Sweep) -> jax.Array:
    """Return the covariance of the iterates, by doubling the number of sweeps."""

    @full_precision
    def twice(_, carry):
        transition, covariance = carry
        return transition @ transition, covariance + transition @ covariance @ transition.T

    return lax.fori_loop(0, DOUBLINGS, twice, (one.transition, one.noise))[1]


@full_precision
def average_covariance(one: Sweep, window: int) -> jax.Array:
    """Return the covariance of averages of `window` iterates."""
    stationary = stationary_covariance(one)

    def add(_, carry):
        power, powers, total = carry
        power = one.transition @ power
        powers = powers + power
        return power, powers, total + powers

    # Sums over t < T of the sums up to M^t: every M^t counts T - t times.
    start = (jnp.eye(len(stationary), dtype=stationary.dtype), *[jnp.zeros_like(stationary)] * 2)
    weighted = lax.fori_loop(0, window - 1, add, start)[2] @ stationary
    return (window * stationary + weighted + weighted.T) / window**2


@full_precision
def covariance_at(curvature: jax.Array) -> jax.Array:
    """Return the posterior's covariance by a Cholesky factor."""
    identity = jnp.eye(len(curvature), dtype=curvature.dtype)
    return cho_solve((jnp.linalg.cholesky(curvature), True), identity)


@full_precision
def calibrating_map(curvature: jax.Array, covariance: jax.Array) -> jax.Array:
    """Return the L with ``L covariance L' = inv(curvature)``, both (d, d).

    Directions with less than `LEAST_VARIANCE` posterior variances are not stretched further.
    """
    root = jnp.linalg.cholesky(curvature).T
    values, vectors = jnp.linalg.eigh(root @ covariance @ root.T)
    stretch = (vectors / jnp.sqrt(jnp.maximum(values, LEAST_VARIANCE))) @ vectors.T
    return solve_triangular(root, stretch @ root)


def sd_ratios(curvature: jax.Array, covariance: jax.Array) -> jax.Array:
    """Return standard deviations of a covariance over those of the posterior, (d,)."""
    return jnp.sqrt(jnp.diagonal(covariance) / jnp.diagonal(covariance_at(curvature)))


@full_precision
def definite(curvature: jax.Array) -> jax.Array:
    """Return a symmetric matrix with eigenvalues made positive, after scaling to a unit diagonal.

    Away from the mode a density may curve upwards; the scale of that is still the right one.
    """
    return _with_values(
        curvature, lambda values: jnp.maximum(jnp.abs(values), 1e-6 * jnp.max(jnp.abs(values)))
    )


def _with_values(matrix, change):
    """Return a symmetric matrix with other eigenvalues, after scaling to a unit diagonal."""
    size = jnp.abs(jnp.diagonal(matrix))
    scale = jnp.sqrt(jnp.where(size > 0.0, size, 1.0))
    values, vectors = jnp.linalg.eigh(matrix / scale[:, None] / scale)
    return (vectors * change(values)) @ vectors.T * scale[:, None] * scale


@full_precision
def at_least(curvature: jax.Array, least: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return a curvature with that of the prior, `least`, in directions that the data leave open.

    Both are diagonal in one basis. An entry below `FLAT_SHARE` of the prior's is replaced by the
    prior's. A rotation of two factors is such a direction. The curvature there is next to nothing,
    and a straight step of the length that it allows leaves the ridge. Where the prior itself curves
    upwards, as between the level and the scale of a hierarchy, it says nothing.

    The second number counts these directions.
    """
    size = jnp.abs(jnp.diagonal(curvature))
    positive = _with_values(least, lambda values: jnp.maximum(values, 0.0))
    root = jnp.linalg.cholesky(positive + jnp.diag(LEAST_SHARE * size))
    inner = solve_triangular(root, curvature, lower=True)
    values, vectors = jnp.linalg.eigh(solve_triangular(root, inner.T, lower=True))
    turned = root @ vectors
    flat = values < FLAT_SHARE
    return (turned * jnp.where(flat, 1.0, values)) @ turned.T, jnp.sum(flat)

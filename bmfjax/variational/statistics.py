"""What entries say of the factors of a row or column, and the mean field that follows."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bmfjax.kernels.numerics.linalg import solve
from bmfjax.variational.posterior import Gaussian


class Statistics(NamedTuple):
    """Natural parameters of a normal vector."""

    precision: jax.Array  # (..., width, width)
    shift: jax.Array  # (..., width): precision times mean


def nothing_seen(size: int, width: int, kind) -> Statistics:
    """Return the statistics of so many vectors of which no entry has been seen."""
    return Statistics(jnp.zeros((size, width, width), kind), jnp.zeros((size, width), kind))


def with_prior(statistics: Statistics, precision) -> Statistics:
    """Add what the prior says: precisions of the coordinates, (width,), and means of zero."""
    return statistics._replace(precision=statistics.precision + jnp.diag(precision))


def second_moment(vectors: Gaussian) -> jax.Array:
    """Return E[v v^T], (..., width, width)."""
    outer = vectors.mean[..., :, None] * vectors.mean[..., None, :]
    return outer + vectors.variance[..., None] * jnp.eye(vectors.mean.shape[-1])


def mean_field(statistics: Statistics, free) -> Gaussian:
    """Return the best independent normals: means jointly, variances one over the diagonal."""
    free = jnp.asarray(free)
    width = free.shape[0]
    system = jnp.where(free[:, None], statistics.precision, jnp.eye(width))
    right = jnp.where(free, statistics.shift, 1.0)
    mean = solve(system, right)
    diagonal = jnp.diagonal(statistics.precision, axis1=-2, axis2=-1)
    # A solver does not return its right-hand side to the last digit.
    return Gaussian(jnp.where(free, mean, 1.0), jnp.where(free, 1.0 / diagonal, 0.0))

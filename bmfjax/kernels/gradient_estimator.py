r"""Estimates of a factor matrix's gradient from a minibatch of cases, and their variance.

The log density of the relaxed model has in the basis :math:`X`, the usage :math:`Y`
given, the gradient

.. math:: \tau\,\big((D - YX^\top)\odot\Omega\big)^\top Y + \nabla\log p(X),

a sum over the rows of the data, and the same with rows and columns exchanged in the
usage. Of N cases S are drawn without replacement, at random.

Plain estimate
    The sum over the cases drawn, times N/S.
Control variates (Baker, Fearnhead, Fox, Nemeth 2019)
    With an anchor :math:`\hat X, \hat Y` and its residual
    :math:`\hat E = (D - \hat Y\hat X^\top)\odot\Omega`, missing cells filled with the
    anchor's fit, the gradient is

    .. math:: \tau\,\big(\hat X(\hat Y^\top Y) + \hat E^\top\hat Y - X(Y^\top Y)\big)
        + \tau\sum_i\Big(\hat e_i\,(y_i-\hat y_i)^\top
        + \big[(1-\omega_i)\odot(Xy_i-\hat X\hat y_i)\big]\,y_i^\top\Big) + \nabla\log p(X).

    Only the sum over i is estimated; the rest takes products of rank x rank matrices
    and one product with the data for each anchor. Residuals and steps away from the
    anchor are both small, and so is their product, the noise. Where nothing is missing
    the second part of the sum is zero.

The variance of an estimate is that of a sum over a simple random sample,

.. math:: \frac{N^2}{S}\Big(1-\frac{S}{N}\Big)\,s^2,

with :math:`s^2` the sample variance of the terms (unbiased; Cochran 1977, section 2.6).

Factor matrices are held as (rank, m) arrays throughout, one factor a row.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from bmfjax.kernels.gradient_sampler import OTHER, prior_gradient
from bmfjax.kernels.matrix_data import MatrixData, cross_product
from bmfjax.kernels.relaxed import RelaxedDensity


class Anchor(NamedTuple):
    """A point that estimates are taken relative to, and what they need to know of it.

    Attributes
    ----------
    usage : (rank, rows) float
    basis : (rank, columns) float
    usage_pull, basis_pull : float of the same shapes
        The residual at the anchor times the other factor matrix.
    """

    usage: jax.Array
    basis: jax.Array
    usage_pull: jax.Array
    basis_pull: jax.Array


class GradientEstimate(NamedTuple):
    """`gradient` and `variance`, both (rank, m)."""

    gradient: jax.Array
    variance: jax.Array


def anchor_at(usage, basis, data: MatrixData) -> Anchor:
    """Make an anchor of a point, with two products with the data.

    Parameters
    ----------
    usage : (rank, rows) float
    basis : (rank, columns) float
    data : MatrixData

    Returns
    -------
    Anchor

    Examples
    --------
    >>> from bmfjax.kernels.matrix_data import matrix_data
    >>> anchor = anchor_at(jnp.ones((1, 2)), jnp.full((1, 3), 0.5), matrix_data(jnp.ones((2, 3))))
    >>> anchor.usage_pull.tolist(), anchor.basis_pull.tolist()
    ([[0.75, 0.75]], [[1.0, 1.0, 1.0]])
    """
    position = {"usage": usage, "basis": basis}
    pulls = [likelihood_gradient(f, position, data) for f in ("usage", "basis")]
    return Anchor(usage, basis, *pulls)


def oriented(factor, data):
    """Values and mask with the cases of a factor matrix along the first axis.

    Parameters
    ----------
    factor : {"usage", "basis"}
    data : MatrixData

    Returns
    -------
    values : (n, m) float
        Rows of the data for the basis, columns for the usage.
    observed : (n, m) float or None

    Examples
    --------
    >>> from bmfjax.kernels.matrix_data import matrix_data
    >>> oriented("usage", matrix_data(jnp.ones((2, 3))))[0].shape
    (3, 2)
    """
    if factor == "usage":
        return data.transposed, data.observed_transposed
    return data.values, data.observed


def likelihood_gradient(factor, position, data: MatrixData) -> jax.Array:
    """Residual times the other factor matrix: the log likelihood's gradient at unit precision.

    Parameters
    ----------
    factor : {"usage", "basis"}
    position : dict
        `usage` (rank, rows) and `basis` (rank, columns).
    data : MatrixData

    Returns
    -------
    (rank, m) float

    Examples
    --------
    >>> from bmfjax.kernels.matrix_data import matrix_data
    >>> position = {"usage": jnp.ones((1, 2)), "basis": jnp.zeros((1, 3))}
    >>> likelihood_gradient("basis", position, matrix_data(jnp.eye(2, 3))).tolist()
    [[1.0, 1.0, 0.0]]
    """
    x, other = position[factor], position[OTHER[factor]]
    values, observed = oriented(factor, data)
    if observed is None:
        return cross_product(data, factor, other.T) - (other @ other.T) @ x
    return other @ ((values - _fit(other, x)) * observed)


def estimate_gradient(
    density: RelaxedDensity,
    factor,
    position,
    data: MatrixData,
    cases=None,
    anchor: Anchor | None = None,
    inverse_temperature=1.0,
) -> GradientEstimate:
    """Estimate the gradient of the log density in one factor matrix.

    Parameters
    ----------
    density : RelaxedDensity
    factor : {"usage", "basis"}
    position : dict
        `usage` (rank, rows), `basis` (rank, columns) and, where they are learned,
        `precision` () and `rate` (rank,).
    data : MatrixData
    cases : (S,) int, optional
        Rows (of the data, for the basis) or columns (for the usage), drawn without
        replacement, at least two. None, or as many as there are: all of them, for
        the exact gradient.
    anchor : Anchor, optional
        Use it for control variates.
    inverse_temperature : float
        Power of the likelihood.

    Returns
    -------
    GradientEstimate

    Examples
    --------
    >>> from bmfjax.kernels.matrix_data import matrix_data
    >>> from bmfjax.kernels.priors import EntryPrior
    >>> flat = EntryPrior(lambda x, rate: jnp.zeros_like(x), 0.0, 1.0, 0.0, (0.0, 0.0))
    >>> density = RelaxedDensity(flat, flat, 10.0, None, None)
    >>> position = {"usage": jnp.ones((1, 4)), "basis": jnp.full((1, 2), 0.25)}
    >>> data = matrix_data(jnp.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    >>> exact = estimate_gradient(density, "basis", position, data)
    >>> exact.gradient.tolist(), exact.variance.tolist()
    ([[20.0, 0.0]], [[0.0, 0.0]])
    >>> some = estimate_gradient(density, "basis", position, data, jnp.array([1, 3]))
    >>> some.gradient.tolist(), some.variance.tolist()
    ([[10.0, 10.0]], [[200.0, 200.0]])
    """
    x = position[factor]
    size = position[OTHER[factor]].shape[1]
    weight = inverse_temperature * density.noise_precision(position)
    prior = prior_gradient(getattr(density, factor), x, position.get("rate"))
    if cases is None or cases.shape[0] == size:
        exact = weight * likelihood_gradient(factor, position, data)
        return GradientEstimate(exact + prior, jnp.zeros_like(x))
    known, terms = _split(factor, position, data, cases, anchor)
    count = cases.shape[0]
    mean = sum(vectors @ lines for vectors, lines in terms) / count
    # No cell is in two terms: their squares add.
    square = sum((v * v) @ (lines * lines) for v, lines in terms) / count
    sample_variance = jnp.maximum(square - mean * mean, 0.0) * (count / (count - 1))
    variance = size * (size - count) / count * sample_variance
    gradient = weight * (known + size * mean) + prior
    return GradientEstimate(gradient, weight * weight * variance)


def missing_noise(key, factor, position, data: MatrixData, weight, cases=None) -> jax.Array:
    r"""Normal noise with the curvature that a line's missing cells would have given.

    Line j of the basis has curvature :math:`\tau\sum_i\omega_{ij}\,y_iy_i^\top`, less
    than :math:`\tau Y^\top Y` by what is the covariance of
    :math:`\sqrt\tau\sum_i(1-\omega_{ij})\,y_i\,\xi_{ij}`: of the gradient's noise if the
    missing cells were drawn from the model.

    Parameters
    ----------
    key : jax.Array
    factor : {"usage", "basis"}
    position : dict
        As for `estimate_gradient`.
    data : MatrixData
    weight : () float
        Precision times inverse temperature.
    cases : (S,) int, optional
        Form it from these cases alone, times :math:`\sqrt{N/S}`: the covariance is then
        right on average over the cases.

    Returns
    -------
    (rank, m) float
        Zero where nothing is missing.

    Examples
    --------
    >>> from bmfjax.kernels.matrix_data import matrix_data
    >>> position = {"usage": jnp.ones((1, 2)), "basis": jnp.ones((1, 2))}
    >>> data = matrix_data([[float("nan"), 1.0], [float("nan"), 0.0]])
    >>> noise = missing_noise(random.key(0), "basis", position, data, 4.0)
    >>> bool(noise[0, 0] != 0.0), bool(noise[0, 1] == 0.0)
    (True, True)
    """
    other = position[OTHER[factor]]
    _, observed = oriented(factor, data)
    if observed is None:
        return jnp.zeros_like(position[factor])
    if cases is not None:
        weight = weight * (other.shape[1] / cases.shape[0])
        other, observed = other[:, cases], observed[cases]
    xi = random.normal(key, observed.shape, observed.dtype)
    return jnp.sqrt(weight) * (other @ ((1.0 - observed) * xi))


def _fit(other, x):
    """(S, m) fit of the cases in `other` (rank, S)."""
    # XLA on CPU would rather transpose the product.
    return lax.optimization_barrier(other.T) @ x


def _split(factor, position, data, cases, anchor):
    """What is known of the gradient at unit precision, and the terms of what is sampled.

    Returns
    -------
    known : (rank, m) float
    terms : list of ((rank, S), (S, m))
        The term of case s is the outer product of column and row s.
    """
    x, other = position[factor], position[OTHER[factor]]
    values, observed = oriented(factor, data)
    values = values[cases]
    seen = None if observed is None else observed[cases]
    lines = other[:, cases]
    if anchor is None:
        residual = values - _fit(lines, x)
        return 0.0, [(lines, residual if seen is None else residual * seen)]
    start, other_start = getattr(anchor, factor), getattr(anchor, OTHER[factor])
    known = (
        (other @ other_start.T) @ start
        + getattr(anchor, f"{factor}_pull")
        - (other @ other.T) @ x
    )  # fmt: skip
    fit = _fit(other_start[:, cases], start)
    away = lines - other_start[:, cases]
    if seen is None:
        return known, [(away, values - fit)]
    moved = (_fit(lines, x) - fit) * (1.0 - seen)
    return known, [(away, (values - fit) * seen), (lines, moved)]

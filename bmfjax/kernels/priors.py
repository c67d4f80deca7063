r"""Priors of factor entries, in the form in which samplers use them.

A prior is *quadratic* where its log density on its interval is
:math:`-\lambda x - \tfrac{\kappa}{2}x^2` up to a constant: uniform, truncated
normal, exponential, and Laplace around a bound. Given the other factor matrix
and a Gaussian likelihood the conditionals are then truncated normal. Beta priors
and any other are taken as they are, by slice sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random

from bmfjax.kernels.slice import slice_sample


class EntryPrior(NamedTuple):
    """Prior of every entry of a factor matrix.

    Attributes
    ----------
    log_prob : callable
        ``log_prob(x, rate) -> array`` elementwise, normalised; `x` (m, rank);
        `rate` (rank,), or None where `learned_rate` is False.
    low, high : float
        Its support; `high` may be infinite.
    curvature : float
        The part of minus the second derivative that holds everywhere, at least 0:
        it enters preconditioners.
    quadratic : (float, float) or None
        :math:`\\lambda` and :math:`\\kappa`, where the prior is quadratic.
    beta : (float, float) or None
        The parameters where it is a Beta distribution.
    learned_rate : bool
        :math:`\\lambda` is a rate of each factor's own, in the position (automatic
        relevance determination); the first number of `quadratic` is then not used.
    """

    log_prob: Callable[[jax.Array, jax.Array | None], jax.Array]
    low: float
    high: float
    curvature: float
    quadratic: tuple[float, float] | None = None
    beta: tuple[float, float] | None = None
    learned_rate: bool = False


def is_improper(prior: EntryPrior) -> bool:
    """Whether a quadratic prior reaches to infinity without falling.

    Examples
    --------
    >>> flat = EntryPrior(lambda x, rate: 0.0 * x, 0.0, float("inf"), 0.0, (0.0, 0.0))
    >>> is_improper(flat), is_improper(flat._replace(high=1.0))
    (True, False)
    """
    if prior.high < float("inf") or prior.quadratic is None or prior.learned_rate:
        return False
    slope, curvature = prior.quadratic
    return curvature < 0 or (curvature == 0 and slope <= 0)


def rate_log_density(rate, hyper, total, counts, width):
    r"""Log conditional density of a factor's exponential rate, up to a constant.

    .. math:: (a - 1 + n)\log\lambda - (b + s)\lambda
              - \sum_{w < \infty} n_w \log\big(1 - e^{-\lambda w}\big)

    for `n` entries that sum to `s` under exponential priors, those on an interval
    of width `w` normalised on it. On :math:`[0,\infty)` this is
    :math:`\mathrm{Gamma}(a + n, b + s)`.

    Parameters
    ----------
    rate : (rank,) float
    hyper : (float, float)
        Shape a and rate b of the Gamma prior.
    total : (rank,) float
        Sum s of each factor's entries, measured from their lower bounds.
    counts : sequence of int
        Number of entries of each factor matrix with this prior.
    width : sequence of float
        Width of their intervals.

    Returns
    -------
    (rank,) float
    """
    shape, inverse_scale = hyper
    value = (shape - 1.0 + sum(counts)) * jnp.log(rate) - (inverse_scale + total) * rate
    for count, w in zip(counts, width, strict=True):
        if w != float("inf"):
            value = value - count * jnp.log(-jnp.expm1(-rate * w))
    return value


def draw_rate(key, rate, hyper, total, counts, width):
    r"""Draw the rates from their conditional: Gamma, or one slice step on a finite interval.

    The slice step is in :math:`z = \lambda/(1+\lambda)`, which has a bounded range.

    Parameters
    ----------
    key : jax.Array
    rate : (rank,) float
        Where they stand.
    hyper, total, counts, width
        As for `rate_log_density`.

    Returns
    -------
    (rank,) float
    """
    if all(w == float("inf") for w in width):
        return random.gamma(key, hyper[0] + sum(counts), rate.shape) / (hyper[1] + total)
    edge = jnp.finfo(rate.dtype).eps

    def log_density(z):
        value = z / (1.0 - z)
        jacobian = -2.0 * jnp.log1p(-z)
        return rate_log_density(value, hyper, total, counts, width) + jacobian

    z = jnp.clip(rate / (1.0 + rate), edge, 1.0 - edge)
    z = slice_sample(key, z, log_density, edge, 1.0 - float(edge))
    return z / (1.0 - z)

"""Batch variational Bayes of logistic matrix factorisation: all entries in every update."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from bmfjax.variational import logistic_posterior as lp
from bmfjax.variational.side_statistics import (
    Statistics,
    mean_field,
    of_prior,
    second_moment,
)


def elbo(posterior: lp.LogisticPosterior, prior: lp.LogisticPrior, values, observed) -> jax.Array:
    """The evidence lower bound, exact: () float.

    Parameters
    ----------
    posterior : LogisticPosterior
    prior : LogisticPrior
    values, observed : (rows, columns) bool

    Returns
    -------
    () float
    """
    bound = lp.entry_bound(values, *lp.all_moments(posterior))
    return jnp.sum(jnp.where(observed, bound, 0.0)) - lp.divergence(posterior, prior)


def batch_update(
    posterior: lp.LogisticPosterior, prior: lp.LogisticPrior, values, observed
) -> lp.LogisticPosterior:
    """One round of coordinate ascent: the bias, the rows, the columns, each given the rest.

    The bound never falls. Memory is a few times rows x columns.

    Parameters
    ----------
    posterior : LogisticPosterior
    prior : LogisticPrior
    values, observed : (rows, columns) bool

    Returns
    -------
    LogisticPosterior

    Examples
    --------
    >>> from jax import random
    >>> prior, values = lp.LogisticPrior(1), jnp.eye(4, dtype=bool)
    >>> posterior, seen = lp.start(random.key(0), (4, 4), prior, 0.0), jnp.ones((4, 4), bool)
    >>> better = batch_update(posterior, prior, values, seen)
    >>> bool(elbo(better, prior, values, seen) > elbo(posterior, prior, values, seen))
    True
    """
    weight, half = _weights(posterior, values, observed)
    mean, _ = lp.all_moments(posterior)
    precision = 1.0 / prior.bias_scale**2 + 2.0 * jnp.sum(weight)
    shift = jnp.sum(half - 2.0 * weight * (mean - posterior.bias.mean))
    posterior = posterior._replace(bias=lp.Gaussian(shift / precision, 1.0 / precision))
    for site in ("usage", "basis"):
        weight, half = _weights(posterior, values, observed)
        statistics = full_statistics(site, posterior, prior, weight, half)
        posterior = posterior._replace(**{site: mean_field(statistics, prior.free(site))})
    return posterior


def usage_given_basis(
    basis: lp.Gaussian,
    bias: lp.Gaussian,
    prior: lp.LogisticPrior,
    values,
    observed,
    num_updates: int = 50,
) -> lp.Gaussian:
    """The vectors of rows, given the posterior of columns and bias: coordinate ascent.

    Parameters
    ----------
    basis : Gaussian of (columns, width)
    bias : Gaussian of ()
    prior : LogisticPrior
    values, observed : (rows, columns) bool
    num_updates : int

    Returns
    -------
    Gaussian of (rows, width)
        The prior's for a row of which nothing is observed.
    """
    start = of_prior(values.shape[0], prior, basis.mean.dtype)

    def update(_, usage):
        posterior = lp.LogisticPosterior(usage, basis, bias)
        weight, half = _weights(posterior, values, observed)
        return mean_field(full_statistics("usage", posterior, prior, weight, half), free)

    free = prior.free("usage")
    return jax.lax.fori_loop(0, num_updates, update, mean_field(start, free))


def full_statistics(site, posterior, prior, weight, half) -> Statistics:
    """Statistics of all rows (`usage`) or columns (`basis`) from all entries.

    Parameters
    ----------
    site : {"usage", "basis"}
    posterior : LogisticPosterior
    prior : LogisticPrior
    weight, half : (rows, columns) float
        The curvature and half the sign of every entry, zero where missing.

    Returns
    -------
    Statistics
    """
    other = posterior.basis if site == "usage" else posterior.usage
    if site == "basis":
        weight, half = weight.T, half.T
    lines, width = weight.shape[0], prior.width
    moment = second_moment(other).reshape(-1, width * width)
    start = of_prior(lines, prior, moment.dtype)
    precision = start.precision + 2.0 * (weight @ moment).reshape(lines, width, width)
    return Statistics(precision, (half - 2.0 * weight * posterior.bias.mean) @ other.mean)


def _weights(posterior, values, observed):
    mean, variance = lp.all_moments(posterior)
    weight = lp.curvature(jnp.sqrt(mean**2 + variance))
    half = jnp.where(values, 0.5, -0.5)
    return jnp.where(observed, weight, 0.0), jnp.where(observed, half, 0.0)


@functools.partial(jax.jit, static_argnames=("prior", "num_updates"))
def batch_fit(posterior, values, observed, *, prior: lp.LogisticPrior, num_updates: int):
    """Many rounds of `batch_update`, and the bound after each.

    Returns
    -------
    posterior : LogisticPosterior
    elbos : (num_updates,) float
    """

    def body(posterior, _):
        posterior = batch_update(posterior, prior, values, observed)
        return posterior, elbo(posterior, prior, values, observed)

    return jax.lax.scan(body, posterior, None, length=num_updates)

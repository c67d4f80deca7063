"""The bound of logistic matrix factorisation and the best vectors of rows, from dense matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.variational import posterior as lp
from bmfjax.variational.statistics import (
    Statistics,
    mean_field,
    nothing_seen,
    second_moment,
    with_prior,
)


def elbo(posterior: lp.LogisticPosterior, prior: lp.LogisticPrior, values, observed) -> jax.Array:
    """Return the exact evidence lower bound.

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


def usage_given_basis(
    basis: lp.Gaussian,
    bias: lp.Gaussian,
    prior: lp.LogisticPrior,
    values,
    observed,
    relevance: lp.Gamma | None = None,
    num_updates: int = 50,
) -> lp.Gaussian:
    """Fit the vectors of rows, given the posterior of columns and bias, by coordinate ascent.

    Parameters
    ----------
    basis : Gaussian of (columns, width)
    bias : Gaussian of ()
    prior : LogisticPrior
    values, observed : (rows, columns) bool
    relevance : Gamma of (rank,), optional
        Precisions of the factors, where the prior lets them be learned.
    num_updates : int

    Returns
    -------
    Gaussian of (rows, width)
        The prior's for a row of which nothing is observed.
    """
    kind = basis.mean.dtype
    precision = lp.prior_precision(prior, relevance, kind)
    start = with_prior(nothing_seen(values.shape[0], prior.width, kind), precision)

    def update(_, usage):
        posterior = lp.LogisticPosterior(usage, basis, bias, relevance)
        weight, half = _weights(posterior, values, observed)
        return mean_field(full_statistics("usage", posterior, prior, weight, half), free)

    free = prior.free("usage")
    return jax.lax.fori_loop(0, num_updates, update, mean_field(start, free))


@full_precision
def full_statistics(site, posterior, prior, weight, half) -> Statistics:
    """Return statistics of all rows (`usage`) or columns (`basis`) from all entries.

    `weight` and `half`, (rows, columns), are the curvature and half the sign of every entry, zero
    where missing.
    """
    other = posterior.basis if site == "usage" else posterior.usage
    if site == "basis":
        weight, half = weight.T, half.T
    lines, width = weight.shape[0], prior.width
    moment = second_moment(other).reshape(-1, width * width)
    of_prior = lp.prior_precision(prior, posterior.relevance, moment.dtype)
    found = Statistics(
        2.0 * (weight @ moment).reshape(lines, width, width),
        (half - 2.0 * weight * posterior.bias.mean) @ other.mean,
    )
    return with_prior(found, of_prior)


def _weights(posterior, values, observed):
    mean, variance = lp.all_moments(posterior)
    weight = lp.curvature(jnp.sqrt(mean**2 + variance))
    half = jnp.where(values, 0.5, -0.5)
    return jnp.where(observed, weight, 0.0), jnp.where(observed, half, 0.0)

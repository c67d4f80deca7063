r"""The relaxed density: priors of the entries, the joint density, and its named conditionals.

.. math::

   p(Y, X, \tau \mid D) \propto \tau^{|\Omega|/2}
       \exp\Big(-\tfrac{\tau}{2}\sum_{(i,j)\in\Omega}(d_{ij}-y_i^\top x_j)^2\Big)
       \, p(Y)\,p(X)\,p(\tau), \qquad Y, X \in [0,1],

Gonsior 2019, equation 3.2, with the noise precision :math:`\tau` (1 in the
thesis) and a set :math:`\Omega` of observed entries. Y is `usage`, X is `basis`.
Given one factor matrix the log density is quadratic in the other, row by row
with one Gram matrix: everything here costs matrix products with the data and
never a loop over entries.

A prior of entries is *quadratic* where its log density on its interval is
:math:`-\lambda x - \tfrac{\kappa}{2}x^2` up to a constant: uniform, truncated
normal, exponential, and Laplace around a bound. The conditionals of the entries are
then truncated normal. Beta priors and all others are sampled by slices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random

from bmfjax.data.errors import InputError
from bmfjax.kernels.numerics.slice import slice_sample
from bmfjax.kernels.relaxed.data import FACTORS, num_observed, residual_sum_of_squares

#: A learned precision is held at or below this, of data whose mean square is 1: beyond it the
#: factors' own rounding in float32 is as large as the noise. Only data without noise and a prior
#: that lets it come there.
MAX_PRECISION = 1e8


class EntryPrior(NamedTuple):
    """Prior of every entry of a factor matrix."""

    #: ``log_prob(x, rate)``, elementwise and normalised, of (m, rank); rate (rank,) or None.
    log_prob: Callable[[jax.Array, jax.Array | None], jax.Array]
    low: float
    high: float  # may be infinite
    #: The part of minus the second derivative that holds everywhere, for preconditioners.
    curvature: float
    #: The numbers lambda and kappa of a quadratic prior.
    quadratic: tuple[float, float] | None = None
    beta: tuple[float, float] | None = None  # parameters of a Beta distribution
    #: Lambda is a rate of each factor's own, in the position (automatic relevance determination).
    learned_rate: bool = False


def is_improper(prior: EntryPrior) -> bool:
    """Return whether a quadratic prior reaches to infinity without falling."""
    if prior.high < float("inf") or prior.quadratic is None or prior.learned_rate:
        return False
    slope, curvature = prior.quadratic
    return curvature < 0 or (curvature == 0 and slope <= 0)


def _rate_log_density(rate, hyper, total, counts, width):
    r"""Return the log conditional density of the factors' exponential rates, up to a constant.

    .. math:: (a - 1 + n)\log\lambda - (b + s)\lambda
              - \sum_{w < \infty} n_w \log\big(1 - e^{-\lambda w}\big)

    for n entries (`counts`) that sum to s (`total`, (rank,)) under exponential priors, those on
    an interval of width w normalised on it. `hyper` holds a and b. On :math:`[0,\infty)` this is
    :math:`\mathrm{Gamma}(a + n, b + s)`.
    """
    shape, inverse_scale = hyper
    value = (shape - 1.0 + sum(counts)) * jnp.log(rate) - (inverse_scale + total) * rate
    for count, w in zip(counts, width, strict=True):
        if w != float("inf"):
            value = value - count * jnp.log(-jnp.expm1(-rate * w))
    return value


def _draw_rate(key, rate, hyper, total, counts, width):
    r"""Draw the rates from their conditional: Gamma, or one slice step on a finite interval.

    The slice step is in :math:`z = \lambda/(1+\lambda)`, which has a bounded range.
    """
    if all(w == float("inf") for w in width):
        return random.gamma(key, hyper[0] + sum(counts), rate.shape) / (hyper[1] + total)
    edge = jnp.finfo(rate.dtype).eps

    def log_density(z):
        value = z / (1.0 - z)
        jacobian = -2.0 * jnp.log1p(-z)
        return _rate_log_density(value, hyper, total, counts, width) + jacobian

    z = jnp.clip(rate / (1.0 + rate), edge, 1.0 - edge)
    z = slice_sample(key, z, log_density, edge, 1.0 - float(edge))
    return z / (1.0 - z)


class RelaxedDensity(NamedTuple):
    """Settings of the density."""

    usage: EntryPrior
    basis: EntryPrior
    precision: float | None  # of the noise; None: the position holds a `precision`
    precision_log_prior: Callable[[jax.Array], jax.Array] | None
    precision_gamma: tuple[float, float] | None  # shape and rate, where its prior is a Gamma
    #: Shape and rate of the Gamma prior of learned rates: the position holds a `rate` (rank,).
    rate_gamma: tuple[float, float] | None = None
    #: So many first columns of the basis are known: they stay as they are in the position.
    anchored: int = 0
    max_precision: float = MAX_PRECISION

    def first_free(self, factor: str) -> int:
        """Return the first column of a factor matrix that is drawn."""
        return self.anchored if factor == "basis" else 0

    def noise_precision(self, position):
        """Return the fixed or learned precision at a position."""
        return position["precision"] if self.precision is None else self.precision


def check_conditionals(density: RelaxedDensity) -> None:
    """Refuse a precision without a Gamma conditional, and improper priors of the entries."""
    if density.precision is None and density.precision_gamma is None:
        raise InputError(
            "the noise precision has a prior that is not Gamma; it is drawn from its Gamma "
            "conditional: give a Gamma prior or a fixed number"
        )
    for name in FACTORS:
        if is_improper(getattr(density, name)):
            raise InputError(
                f"the prior of {name} is flat on [0, inf), which is improper: a factor that is "
                "empty in the other matrix would have no distribution; give an exponential or "
                "half-normal prior"
            )


def log_likelihood(density: RelaxedDensity, position, data, rss=None) -> jax.Array:
    """Return the log density of the observed entries; `rss` where that sum is known already."""
    tau = density.noise_precision(position)
    if rss is None:
        rss = residual_sum_of_squares(position["usage"], position["basis"], data)
    return 0.5 * num_observed(data) * jnp.log(tau / (2 * jnp.pi)) - 0.5 * tau * rss


def log_prior(density: RelaxedDensity, position) -> jax.Array:
    """Return the log prior density of the factors, the precision and the rates."""
    rate, basis = position.get("rate"), position["basis"]
    if density.anchored:
        # Known entries may be zero, where the density is that of the interval's inside.
        tiny = density.basis.low + jnp.finfo(basis.dtype).tiny
        basis = basis.at[:, : density.anchored].max(tiny)
    prior = jnp.sum(density.usage.log_prob(position["usage"], rate))
    prior = prior + jnp.sum(density.basis.log_prob(basis, rate))
    if density.precision is None:
        prior = prior + density.precision_log_prior(position["precision"])
    if density.rate_gamma is not None:
        prior = prior + jnp.sum(_gamma_log_density(rate, *density.rate_gamma))
    return prior


def _gamma_log_density(x, shape: float, rate: float):
    """Return the log density of the Gamma distribution, elementwise."""
    constant = shape * math.log(rate) - math.lgamma(shape)
    return constant + (shape - 1.0) * jnp.log(x) - rate * x


def log_joint(density: RelaxedDensity, position, data, inverse_temperature=1.0) -> jax.Array:
    """Return the log joint density of factors, precision and data, constants included."""
    likelihood = log_likelihood(density, position, data)
    return log_prior(density, position) + inverse_temperature * likelihood


def draw_precision(density: RelaxedDensity, key, position, data, inverse_temperature=1.0, rss=None):
    r"""Draw the precision from its Gamma conditional, held at `max_precision`.

    .. math:: \tau \mid Y, X, D \sim
       \mathrm{Gamma}\big(a + |\Omega|/2,\; b + \|D - YX^\top\|^2_\Omega/2\big).
    """
    shape, rate = density.precision_gamma
    if rss is None:
        rss = residual_sum_of_squares(position["usage"], position["basis"], data)
    shape = shape + 0.5 * inverse_temperature * num_observed(data)
    drawn = random.gamma(key, shape) / (rate + 0.5 * inverse_temperature * rss)
    return jnp.minimum(drawn, density.max_precision)


def draw_factor_rate(density: RelaxedDensity, key, position):
    """Draw the exponential rates of all factors, (rank,), from their conditional."""
    learned = [(position[n], getattr(density, n)) for n in FACTORS]
    learned = [(x, prior) for x, prior in learned if prior.learned_rate]
    return _draw_rate(
        key,
        position["rate"],
        density.rate_gamma,
        sum(jnp.sum(x - prior.low, axis=0) for x, prior in learned),
        [x.shape[0] for x, _ in learned],
        [prior.high - prior.low for _, prior in learned],
    )

r"""The posterior of binary latent features, `bmfjax.models.features`.

With D the observed cells, each one or zero, :math:`s_{nd} = 2 x_{nd} - 1`, and the log odds

.. math:: \psi_{nd} = a_d + e_n + \sum_k z_{nk} w_{dk},

the log joint density is

.. math::

   \sum_{(n,d) \in D} \log \sigma(s_{nd} \psi_{nd})
   + \sum_k \log p(z_{\cdot k} \mid \pi_k) + \sum_k \log p(w_{\cdot k} \mid \rho_k, \lambda_k)
   + \sum_d \log N(a_d \mid m, \alpha^{-1}) + \sum_n \log N(e_n \mid 0, \tau^2) + \dots

with bits z, and weights w that are zero with probability :math:`1 - \rho_k`. Otherwise they are
normal with precision :math:`\lambda_k`, or positive with the density

.. math:: p(w \mid \lambda) \propto w^q e^{-(q + 1) \lambda w^2 / 2},
   \qquad \mathrm{E}\, w^2 = \lambda^{-1}, \qquad q = 2,

which vanishes at zero: a product moment density (Johnson, Rossell 2010, "On the use of non-local
prior densities in Bayesian hypothesis tests", JRSS B 72).

A feature that is not there has neither rows nor columns, and its :math:`\pi, \rho, \lambda` are
summed out. The density does not change where features are exchanged. With signed weights the
likelihood does not change under
:math:`z_k \to 1 - z_k`, :math:`w_k \to -w_k`, :math:`a \to a + w_k`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from bmfjax.data.checks import one_of, positive, whole
from bmfjax.kernels.numerics.budget import ONE_BY_ONE, Budget

#: Power q of a positive weight in its prior: an even number.
MOMENT = 2
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
WEIGHTS = ("signed", "positive")


class FeatureDensity(NamedTuple):
    """Rank, kind of weights, and priors of binary latent features.

    Attributes
    ----------
    rank : int
        Number of features, or the most.
    weights : {"signed", "positive"}
    row_effects : bool
        Whether rows have effects of their own.
    slab : (float, float)
        Shape and rate of the Gamma prior of :math:`\\lambda_k`, a feature's precision: one over
        the mean square of its weights.
    row_scale : float
        Scale of the half normal prior of :math:`\\tau`.
    mean_scale : float
        Standard deviation of m, the mean of the intercepts.
    intercepts : (float, float)
        Shape and rate of the Gamma prior of their precision, :math:`\\alpha`.
    presence : (float, float) or None
        Beta prior of the share of the features that are there; None: all are.
    """

    rank: int
    weights: str = "signed"
    row_effects: bool = True
    slab: tuple[float, float] = (3.0, 9.0)
    row_scale: float = 0.5
    mean_scale: float = 3.0
    intercepts: tuple[float, float] = (1.0, 1.0)
    presence: tuple[float, float] | None = None

    @property
    def is_signed(self) -> bool:
        """Whether weights may be negative."""
        return self.weights == "signed"

    @property
    def moment(self) -> int:
        """Power q of a weight before the normal part of its density."""
        return 0 if self.is_signed else MOMENT

    @property
    def sites(self) -> tuple[str, ...]:
        """What is sampled, by name."""
        rows = ("row_effect", "row_scale") * self.row_effects
        presence = () if self.presence is None else ("presence", "presence_share")
        return (
            "usage", "basis", "column_effect", "usage_density", "basis_density",
            "factor_precision", "column_mean", "column_precision", *rows, *presence,
        )  # fmt: skip


class FeatureData(NamedTuple):
    """A binary matrix as the sampler takes it, columns first, and what is known of features."""

    signs: jax.Array  # (columns, rows) int8: 1 for ones, -1 for zeros, 0 where missing
    known_usage: jax.Array | None = None  # (rows, rank) float: bits that are known, NaN otherwise
    known_basis: jax.Array | None = None  # (columns, rank) float: weights that are known
    #: (columns, rank) float: whether a feature concerns a column, 1 or 0 where that is known.
    known_columns: jax.Array | None = None
    #: How much of a sweep the device takes at once.
    budget: Budget = ONE_BY_ONE

    @property
    def known(self) -> list[jax.Array]:
        """Whatever is known of features, (lines, rank) each; NaN where it is not."""
        every = self.known_usage, self.known_basis, self.known_columns
        return [known for known in every if known is not None]


def check_density(density: FeatureDensity) -> None:
    """Refuse a rank below 1, an unknown kind of weights, and scales that are not positive."""
    whole("rank", density.rank)
    one_of("weights", density.weights, WEIGHTS)
    positive("row_scale", density.row_scale, "scale")
    positive("mean_scale", density.mean_scale, "standard deviation")
    for name in ("slab", "intercepts"):
        for value in getattr(density, name):
            positive(name, value, "shape and rate")


def log_odds(position) -> jax.Array:
    """Return the log odds of a one, (columns, rows)."""
    found = position["basis"] @ position["usage"].T + position["column_effect"][:, None]
    return found + position["row_effect"] if "row_effect" in position else found


def log_likelihood(signs, psi) -> jax.Array:
    """Return the log likelihood of cells with these signs and log odds: () float."""
    terms = jnp.where(signs != 0, jax.nn.log_sigmoid(signs * psi), 0.0)
    # Column after column: a sum of all would round. By a product, in vector instructions.
    return jnp.sum(terms @ jnp.ones(terms.shape[1], terms.dtype))


def present(density: FeatureDensity, position) -> jax.Array:
    """Return which features are there: (rank,) bool."""
    if density.presence is None:
        return jnp.ones(density.rank, bool)
    return position["presence"] > 0


def log_slab(density: FeatureDensity, weight, precision) -> jax.Array:
    """Return the log density of weights that are not zero."""
    own = normal_precision(density, precision)
    found = 0.5 * jnp.log(own) - HALF_LOG_2PI - 0.5 * own * weight**2
    return found if density.is_signed else found + log_moment(density, jnp.abs(weight), own)


def normal_precision(density: FeatureDensity, precision) -> jax.Array:
    """Return the precision of the normal part of the density of weights, of that of a feature."""
    return (density.moment + 1) * precision


def log_moment(density: FeatureDensity, weight, own) -> jax.Array:
    """Return the log of the density of positive weights over its normal part, of precision own."""
    # An even moment of a normal distribution is a product of odd numbers.
    whole = math.log(2.0) - sum(math.log(n) for n in range(1, density.moment, 2))
    return whole + density.moment * (jnp.log(weight) + 0.5 * jnp.log(own))


def log_bits(ones, size, chance) -> jax.Array:
    """Return the log probability of so many ones among independent bits of one chance."""
    return ones * jnp.log(chance) + (size - ones) * jnp.log1p(-chance)


def log_gamma(x, shape: float, rate: float) -> jax.Array:
    """Return the log density of a Gamma distribution."""
    return shape * math.log(rate) - math.lgamma(shape) + (shape - 1) * jnp.log(x) - rate * x


def log_normal(x, precision) -> jax.Array:
    """Return the log density of a normal deviation from the mean."""
    return 0.5 * jnp.log(precision) - HALF_LOG_2PI - 0.5 * precision * x**2


def log_prior(density: FeatureDensity, position) -> jax.Array:
    """Return the log prior density of a position, constants included: () float."""
    there, basis = present(density, position), position["basis"]
    active = basis != 0
    slabs = log_slab(density, basis, position["factor_precision"])
    of_features = (
        log_bits(position["usage"].sum(0), len(position["usage"]), position["usage_density"])
        + log_bits(active.sum(0), len(basis), position["basis_density"])
        + jnp.sum(jnp.where(active, slabs, 0.0), 0)
        + log_gamma(position["factor_precision"], *density.slab)
    )
    total = jnp.sum(jnp.where(there, of_features, 0.0))
    mean, precision = position["column_mean"], position["column_precision"]
    total += jnp.sum(log_normal(position["column_effect"] - mean, precision))
    total += log_normal(mean, jnp.asarray(density.mean_scale**-2.0))
    total += log_gamma(precision, *density.intercepts)
    if density.row_effects:
        total += jnp.sum(log_normal(position["row_effect"], position["row_scale"] ** -2))
        total += log_half_normal(position["row_scale"], density.row_scale)
    if density.presence is not None:
        share, (a, b) = position["presence_share"], density.presence
        number = there.sum()
        total += log_bits(number, density.rank, share)
        total += (a - 1) * jnp.log(share) + (b - 1) * jnp.log1p(-share)
        total -= gammaln(a) + gammaln(b) - gammaln(a + b)
    return total


def log_half_normal(x, scale: float) -> jax.Array:
    """Return the log density of a half normal distribution."""
    return math.log(2.0 / scale) - HALF_LOG_2PI - 0.5 * (x / scale) ** 2

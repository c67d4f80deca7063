r"""The mean-field Gaussian posterior of logistic matrix factorisation, and its bound.

Factors of row i and column j are one vector each, with their effects: :math:`(u_i, a_i, 1)` and
:math:`(v_j, 1, b_j)`, so that the log odds are an inner product plus the bias z. Under the mean
field :math:`q = \prod N(u_{id} \mid \bar u_{id}, \tilde u_{id}) \prod N(v_{jd} \mid \bar v_{jd},
\tilde v_{jd})\, N(z \mid \bar z, \tilde z)` they have mean and variance

.. math::

   \mu_{ij} = \sum_d \bar u_{id} \bar v_{jd} + \bar z, \qquad
   s^2_{ij} = \sum_d (\bar u_{id}^2 \tilde v_{jd} + \tilde u_{id} \bar v_{jd}^2
              + \tilde u_{id} \tilde v_{jd}) + \tilde z.

Each likelihood term is bounded below by a Gaussian one (Jaakkola, Jordan 2000, "Bayesian parameter
estimation via variational methods", Statistics and Computing 10): with :math:`y = 2x - 1`,

.. math::

   \log \sigma(y a) \ge \log \sigma(\xi) + (y a - \xi) / 2 - \Lambda(\xi) (a^2 - \xi^2), \qquad
   \Lambda(\xi) = \tanh(\xi / 2) / (4 \xi),

best at :math:`\xi^2 = \mu^2 + s^2`.

Where the number of factors is found, the precisions of their priors are learned
(`bmfjax.variational.relevance`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random

from bmfjax.data.checks import whole
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.variational import relevance as ard
from bmfjax.variational.relevance import Gamma

#: Standard deviation of the bias at a start.
BIAS_SPREAD = 0.1


class LogisticPrior(NamedTuple):
    """Standard deviations, and which effects there are.

    Attributes
    ----------
    rank : int
    scale, bias_scale : float
        Those of factors and effects, and of the bias; their means are zero.
    row_effects, column_effects : bool
    relevance : (float, float) or None
        Shape and rate of the gamma prior of the precision that each factor has of its own, which
        is learned, from `scale` on; None: all factors have `scale`.
    """

    rank: int
    scale: float = 1.0
    bias_scale: float = 5.0
    row_effects: bool = False
    column_effects: bool = False
    relevance: tuple[float, float] | None = None

    @property
    def width(self) -> int:
        """Coordinates of a row's vector."""
        return self.rank + self.row_effects + self.column_effects

    def free(self, site: str) -> tuple[bool, ...]:
        """Return which coordinates are not fixed to one, of `usage` or `basis`."""
        of_rows = site == "usage"
        row, column = (of_rows,) * self.row_effects, (not of_rows,) * self.column_effects
        return (True,) * self.rank + row + column


class Gaussian(NamedTuple):
    """Independent normals: `mean` and `variance` of one shape."""

    mean: jax.Array
    variance: jax.Array


class LogisticPosterior(NamedTuple):
    """The variational distribution.

    Attributes
    ----------
    usage : Gaussian of (rows, width)
        Factors, then the row effect, then a one where there are column effects.
    basis : Gaussian of (columns, width)
        Factors, then a one where there are row effects, then the column effect.
    bias : Gaussian of ()
    relevance : Gamma of (rank,) or None
        Precisions of the factors, where they are learned.
    """

    usage: Gaussian
    basis: Gaussian
    bias: Gaussian
    relevance: Gamma | None = None

    @property
    def normals(self) -> tuple[Gaussian, Gaussian, Gaussian]:
        """What the log odds are made of: usage, basis and bias."""
        return self.usage, self.basis, self.bias


def start(key, shape, prior: LogisticPrior, log_odds: float, spread: float = 0.1):
    """Return a random start: means of factors scatter by `spread`, the bias is at `log_odds`.

    The bias starts nearly certain, whatever its prior: a wide one would flatten the bound of every
    entry, and minibatches are slow to forget it.
    """
    whole("rank", prior.rank)
    kind, sides = jnp.result_type(float), []
    for k, site, size in zip(random.split(key), ("usage", "basis"), shape, strict=True):
        free = jnp.asarray(prior.free(site))
        mean = spread * random.normal(k, (size, prior.width), kind)
        # Effects start at zero.
        mean = jnp.where(jnp.arange(prior.width) < prior.rank, mean, 0.0)
        mean = jnp.where(free, mean, 1.0)
        variance = jnp.where(free, jnp.asarray(prior.scale**2, kind), 0.0)
        sides.append(Gaussian(mean, jnp.broadcast_to(variance, mean.shape)))
    variance = min(prior.bias_scale, BIAS_SPREAD) ** 2
    bias = Gaussian(jnp.asarray(log_odds, kind), jnp.asarray(variance, kind))
    precisions = None
    if prior.relevance is not None:
        precisions = ard.around(prior.scale**-2, prior.rank, sum(shape), prior.relevance, kind)
    return LogisticPosterior(*sides, bias, precisions)


def prior_precision(prior: LogisticPrior, relevance: Gamma | None, kind) -> jax.Array:
    """Return the expected prior precision of the coordinates of a vector, (width,)."""
    same = jnp.full(prior.width, prior.scale**-2, kind)
    return same if relevance is None else same.at[: prior.rank].set(relevance.mean)


def with_best_relevance(posterior: LogisticPosterior, prior: LogisticPrior, learn):
    """Return the posterior with the best precisions given the factors, where `learn` is true."""
    if prior.relevance is None:
        return posterior
    sides = posterior.usage, posterior.basis
    squares = sum(jnp.sum((q.mean**2 + q.variance)[:, : prior.rank], axis=0) for q in sides)
    new = ard.best(squares, sum(len(q.mean) for q in sides), prior.relevance)
    old = posterior.relevance
    chosen = jax.tree.map(lambda a, b: jnp.where(learn, a, b), new, old)
    return posterior._replace(relevance=chosen)


def curvature(xi) -> jax.Array:
    r"""Return :math:`\Lambda(\xi)` of the bound, 1/8 at zero."""
    small = jnp.abs(xi) < 1e-2
    safe = jnp.where(small, 1.0, xi)
    return jnp.where(small, 0.125 - xi**2 / 96.0, jnp.tanh(0.5 * safe) / (4.0 * safe))


def moments(usage: Gaussian, basis: Gaussian, bias: Gaussian) -> tuple[jax.Array, jax.Array]:
    """Return mean and variance of the log odds of entries from their vectors, (..., width) each."""
    mean = jnp.sum(usage.mean * basis.mean, -1) + bias.mean
    variance = (
        usage.mean**2 * basis.variance
        + usage.variance * (basis.mean**2 + basis.variance)
    )  # fmt: skip
    return mean, jnp.sum(variance, -1) + bias.variance


@full_precision
def all_moments(posterior: LogisticPosterior) -> tuple[jax.Array, jax.Array]:
    """Return the mean and variance of the log odds of all entries, (rows, columns) each."""
    u, v, z = posterior.normals
    mean = u.mean @ v.mean.T + z.mean
    variance = u.mean**2 @ v.variance.T + u.variance @ (v.mean**2 + v.variance).T + z.variance
    return mean, variance


def entry_bound(value, mean, variance) -> jax.Array:
    r"""Return the bound on :math:`E_q \log p(x_{ij} \mid \cdot)` at its best :math:`\xi`."""
    xi = jnp.sqrt(mean**2 + variance)
    signed = jnp.where(value, mean, -mean)
    return jax.nn.log_sigmoid(xi) + 0.5 * (signed - xi)


def divergence(posterior: LogisticPosterior, prior: LogisticPrior) -> jax.Array:
    """Return the Kullback-Leibler divergence from the prior, () float."""
    kind = posterior.bias.mean.dtype
    precision = prior_precision(prior, posterior.relevance, kind)
    total = _of_normals(posterior.bias, jnp.asarray(prior.bias_scale**-2, kind), True)
    for site in ("usage", "basis"):
        total += _of_normals(getattr(posterior, site), precision, jnp.asarray(prior.free(site)))
    if posterior.relevance is None:
        return total
    # The log of the mean of a learned precision is not the mean of its log.
    missed = jnp.sum(jnp.log(posterior.relevance.mean) - posterior.relevance.log_mean)
    lines = len(posterior.usage.mean) + len(posterior.basis.mean)
    return total + 0.5 * lines * missed + ard.divergence(posterior.relevance, prior.relevance)


def _of_normals(q: Gaussian, precision, free) -> jax.Array:
    """Return the divergence of the free ones from normals with mean zero and these precisions."""
    ratio = jnp.where(free, q.variance * precision, 1.0)
    each = 0.5 * (ratio + q.mean**2 * precision - 1.0 - jnp.log(ratio))
    return jnp.sum(jnp.where(free, each, 0.0))


def probability(mean, variance) -> jax.Array:
    r"""Probability of a one: :math:`\sigma(\mu / \sqrt{1 + \pi s^2 / 8})`."""
    return jax.nn.sigmoid(mean / jnp.sqrt(1.0 + 0.125 * jnp.pi * variance))

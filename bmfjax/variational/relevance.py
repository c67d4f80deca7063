r"""Precisions of the factors, which are learned, so that factors without evidence vanish.

Every factor k has one precision for its column of the usage and its column of the basis,

.. math::

   u_{ik}, v_{jk} \sim N(0, \alpha_k^{-1}), \qquad \alpha_k \sim \mathrm{Gamma}(a, b)

(automatic relevance determination; Bishop 1999, "Variational principal components", ICANN). Both
columns have one precision, as they have one rate in Tan, Févotte (2013, "Automatic relevance
determination in nonnegative matrix factorization with the beta-divergence", IEEE TPAMI 35): the
likelihood knows only the product of their scales, and with two precisions the bound would hardly
change where one grows and the other shrinks. Under the mean field :math:`q(\alpha_k)` is a gamma
distribution, too. For n rows and m columns the best has

.. math::

   a_k = a + \frac{n + m}{2}, \qquad
   b_k = b + \frac12 \Big( \sum_i E[u_{ik}^2] + \sum_j E[v_{jk}^2] \Big),

and the mean :math:`a_k / b_k` takes the place of a given precision in what follows for the factors.
It depends on the lines alone, and not on how many entries have been seen.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln

#: Rounds, or minibatches, before the precisions are learned. Factors that have not found anything
#: yet look like factors that are not needed. Learned from the first round on, precisions lost one
#: or two of three real factors of a 300 x 200 matrix with 8 % ones, and the bound ended hundreds of
#: nats lower.
LEARN_AFTER = 20


class Gamma(NamedTuple):
    """Independent gamma distributions: `shape` and `rate` of one shape."""

    shape: jax.Array
    rate: jax.Array

    @property
    def mean(self) -> jax.Array:
        """The expected precision."""
        return self.shape / self.rate

    @property
    def log_mean(self) -> jax.Array:
        """The expected logarithm."""
        return digamma(self.shape) - jnp.log(self.rate)


def around(precision: float, rank: int, lines: int, prior: tuple[float, float], kind) -> Gamma:
    """Return distributions with this mean, as narrow as so many lines make them: (rank,)."""
    shape = jnp.full(rank, prior[0] + 0.5 * lines, kind)
    return Gamma(shape, shape / precision)


def best(squares, lines: int, prior: tuple[float, float]) -> Gamma:
    """Return the best distributions given the expected sums of squares (rank,) of all lines."""
    shape = jnp.full_like(squares, prior[0] + 0.5 * lines)
    return Gamma(shape, prior[1] + 0.5 * squares)


def divergence(q: Gamma, prior: tuple[float, float]) -> jax.Array:
    """Return the Kullback-Leibler divergence from the prior, () float."""
    a, b = prior
    shape, rate = q
    each = (shape - a) * digamma(shape) - (gammaln(shape) - gammaln(a))
    return jnp.sum(each + a * jnp.log(rate / b) + shape * (b / rate - 1.0))

r"""The posterior of the logistic model, `bmfjax.models.logistic`, with factors of one given scale.

With D the observed cells, each one or zero, :math:`s_{ij} = 2 d_{ij} - 1`, and the log odds

.. math:: \psi_{ij} = \sum_k u_{ik} v_{jk} + a_i + b_j + z,

the log joint density is

.. math::

   \sum_{(i,j) \in D} \log \sigma(s_{ij} \psi_{ij})
   + \sum_{ik} \log N(u_{ik} \mid 0, \tau^2) + \sum_{jk} \log N(v_{jk} \mid 0, \tau^2)
   + \sum_i \log N(a_i \mid 0, \tau^2) + \sum_j \log N(b_j \mid 0, \tau^2)
   + \log N(z \mid 0, \tau_z^2),

with the effects a and b where the model has them. A missing cell has no term. The density does not
change under :math:`U \to U Q, V \to V Q` with any orthogonal Q.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bmfjax.data.checks import positive, whole


class LogisticDensity(NamedTuple):
    """Number of factors, standard deviations of the priors, and which effects there are."""

    rank: int
    scale: float = 1.0  # of factors and effects
    bias_scale: float = 5.0
    row_effects: bool = False
    column_effects: bool = False

    @property
    def sites(self) -> tuple[str, ...]:
        """What is sampled, by name."""
        effects = ("row_effect",) * self.row_effects + ("column_effect",) * self.column_effects
        return ("usage", "basis", "bias", *effects)


def check_density(density: LogisticDensity) -> None:
    """Refuse a rank below 1 and standard deviations that are not positive."""
    whole("rank", density.rank)
    positive("scale", density.scale, "standard deviation")
    positive("bias_scale", density.bias_scale, "standard deviation")


def log_prior(density: LogisticDensity, position) -> jax.Array:
    """Return the log prior density of a position, constants included: () float."""
    total = jnp.zeros((), position["bias"].dtype)
    for name in density.sites:
        sd, x = density.bias_scale if name == "bias" else density.scale, position[name]
        constant = x.size * (math.log(sd) + 0.5 * math.log(2.0 * math.pi))
        total -= 0.5 * jnp.sum((x / sd) ** 2) + constant
    return total


def log_likelihood(signs, log_odds) -> jax.Array:
    """Return the log likelihood of cells, 1 for ones, -1 for zeros, 0 where missing: () float."""
    terms = jax.nn.log_sigmoid(signs * log_odds)
    return jnp.sum(jnp.where(signs != 0, terms, 0.0))

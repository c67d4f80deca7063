"""Independent normals put in ascending order: the prior of cut points."""

from __future__ import annotations

import jax.numpy as jnp
from jax import random
from jax.scipy.special import gammaln
from numpyro.distributions import Distribution, Normal, constraints


class OrderedNormal(Distribution):
    r"""Order statistics of independent normals.

    .. math::

       p(c_1 < \dots < c_n) = n!\,\prod_k N(c_k \mid m, s^2)

    Parameters
    ----------
    size : int
    loc, scale : float

    Examples
    --------
    >>> cuts = OrderedNormal(3, 0.0, 2.0).sample(random.key(0))
    >>> bool(jnp.all(jnp.diff(cuts) > 0))
    True
    """

    support = constraints.ordered_vector

    def __init__(self, size: int, loc=0.0, scale=1.0, *, validate_args=None):
        self.size, self.loc, self.scale = size, loc, scale
        super().__init__(event_shape=(size,), validate_args=validate_args)

    def sample(self, key, sample_shape=()):
        """Return draws of shape ``(*sample_shape, size)``."""
        return self.loc + self.scale * jnp.sort(random.normal(key, (*sample_shape, self.size)))

    def log_prob(self, value):
        """Return the log density, (...) float."""
        each = Normal(self.loc, self.scale).log_prob(value)
        return each.sum(-1) + gammaln(self.size + 1.0)

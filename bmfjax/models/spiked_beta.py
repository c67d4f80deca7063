"""A Beta distribution with a mass at zero: the density of a factor that may not be there."""

from __future__ import annotations

import jax.numpy as jnp
from jax import random
from jax.scipy.special import betaln, xlog1py, xlogy
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import promote_shapes, validate_sample


class SpikedBeta(Distribution):
    r"""Zero with probability 1 - share, else from a Beta distribution.

    .. math::

       p(x) = (1 - w)\,[x = 0] + w\,[x > 0]\,\frac{x^{a-1} (1-x)^{b-1}}{B(a, b)},

    a density with respect to Lebesgue measure and a point mass at zero.

    Parameters
    ----------
    share : (...) float
        w, in [0, 1].
    concentration1, concentration0 : (...) float
        a and b, positive.

    Examples
    --------
    >>> import jax
    >>> prior = SpikedBeta(0.25, 2.0, 1.0)
    >>> [round(float(jnp.exp(prior.log_prob(x))), 4) for x in (0.0, 0.5)]
    [0.75, 0.25]
    >>> draws = prior.sample(jax.random.key(0), (4000,))
    >>> 0.72 < float((draws == 0).mean()) < 0.78
    True
    """

    arg_constraints = {  # noqa: RUF012 (NumPyro's way)
        "share": constraints.unit_interval,
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval

    def __init__(self, share, concentration1, concentration0, *, validate_args=None):
        self.share, self.concentration1, self.concentration0 = promote_shapes(
            share, concentration1, concentration0
        )
        shape = jnp.broadcast_shapes(
            *(jnp.shape(v) for v in (share, concentration1, concentration0))
        )
        super().__init__(batch_shape=shape, validate_args=validate_args)

    def sample(self, key, sample_shape=()):
        """Draw, with a leading `sample_shape`."""
        shape = tuple(sample_shape) + self.batch_shape
        key_there, key_value = random.split(key)
        value = random.beta(key_value, self.concentration1, self.concentration0, shape)
        return jnp.where(random.bernoulli(key_there, self.share, shape), value, 0.0)

    @validate_sample
    def log_prob(self, value):
        """Return the log density."""
        a, b = self.concentration1, self.concentration0
        inside = jnp.where(value > 0, value, 0.5)
        there = xlogy(a - 1.0, inside) + xlog1py(b - 1.0, -inside) - betaln(a, b)
        return jnp.where(value > 0, jnp.log(self.share) + there, jnp.log1p(-self.share))

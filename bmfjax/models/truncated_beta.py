"""The Beta distribution truncated to [0, high], the prior of a rate that is below one half."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.scipy.special import xlog1py, xlogy
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample
from scipy import special

from bmfjax.data.errors import InputError

#: A draw is rejected until it is below `high`, so a distribution with less than this there is
#: refused. As the prior of a flip rate such a one is a mistake: it says that most entries flip.
LEAST_MASS = 0.01


class TruncatedBeta(Distribution):
    r"""Beta distribution truncated to [0, high].

    .. math::

       p(x) = \frac{x^{a-1} (1-x)^{b-1}}{B(a, b)\, I_h(a, b)}, \qquad 0 \le x \le h,

    with the regularised incomplete beta function :math:`I`. The normaliser is computed
    in float64 when the distribution is made: the incomplete beta function of JAX, in
    float32, is off by a factor of two at a = 1, b = 10^6.

    Parameters
    ----------
    concentration1, concentration0 : (...) float
        a and b, positive numbers that are known (not traced).
    high : float
        Upper end, in (0, 1).

    Raises
    ------
    InputError
        For a concentration that is not positive, `high` outside (0, 1), or a Beta
        distribution with less than a hundredth of its mass below `high`.

    Examples
    --------
    >>> import jax
    >>> prior = TruncatedBeta(1.0, 1.0)
    >>> round(float(jnp.exp(prior.log_prob(0.3))), 4)
    2.0
    >>> bool(prior.sample(jax.random.key(0), (100,)).max() <= 0.5)
    True
    """

    arg_constraints = {  # noqa: RUF012 (NumPyro's way)
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    pytree_data_fields = ("concentration1", "concentration0", "_log_normaliser")
    pytree_aux_fields = ("high",)

    def __init__(self, concentration1, concentration0, high=0.5, *, validate_args=None):
        a, b = np.broadcast_arrays(
            np.asarray(concentration1, float), np.asarray(concentration0, float)
        )
        if not 0.0 < high < 1.0:
            raise InputError(f"high is {high}; give the upper end of the interval, between 0 and 1")
        if not ((a > 0) & (b > 0) & np.isfinite(a + b)).all():
            raise InputError(
                f"the concentrations are {a.tolist()} and {b.tolist()}; give positive numbers"
            )
        mass = special.betainc(a, b, high)
        if (mass < LEAST_MASS).any():
            raise InputError(
                f"Beta({a.tolist()}, {b.tolist()}) has less than {LEAST_MASS} of its mass below "
                f"{high}, where it is to be truncated; give a prior of smaller rates"
            )
        self.concentration1, self.concentration0, self.high = a, b, float(high)
        self._log_normaliser = special.betaln(a, b) + np.log(mass)
        super().__init__(batch_shape=a.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        """[0, high]."""
        return constraints.interval(0.0, self.high)

    def sample(self, key, sample_shape=()):
        """Draw ``sample_shape + batch_shape`` numbers from the Beta until they are below `high`."""
        dtype = jnp.result_type(float)
        shape = (*sample_shape, *self.batch_shape)
        a, b = (jnp.asarray(c, dtype) for c in (self.concentration1, self.concentration0))

        def redraw(carry):
            key, x = carry
            key, now = random.split(key)
            return key, jnp.where(x <= self.high, x, random.beta(now, a, b, shape, dtype))

        start = key, jnp.ones(shape, dtype)
        x = lax.while_loop(lambda carry: jnp.any(carry[1] > self.high), redraw, start)[1]
        return jnp.maximum(x, jnp.finfo(dtype).tiny)  # a rate of zero would be certain

    @validate_sample
    def log_prob(self, value):
        """Return the log density, minus infinity outside [0, high]."""
        x = jnp.asarray(value, jnp.result_type(value, float))
        a, b, log_normaliser = (
            jnp.asarray(c, x.dtype)
            for c in (self.concentration1, self.concentration0, self._log_normaliser)
        )
        log_density = xlogy(a - 1.0, x) + xlog1py(b - 1.0, -x) - log_normaliser
        return jnp.where((x >= 0.0) & (x <= self.high), log_density, -jnp.inf)

r"""The mean and precision matrix that vectors share: the Normal-Wishart prior and its conditional.

.. math::

   x_i \sim N(\mu, \Lambda^{-1}), \qquad
   \mu \sim N(\mu_0, (\beta_0\Lambda)^{-1}),\quad \Lambda \sim W(W_0, \nu_0),

with :math:`\mu_0 = 0` and :math:`W_0 = w I` here.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random
from jax.scipy.special import multigammaln

from bmfjax.kernels.numerics.linalg import back_substitute, factor, log_determinant
from bmfjax.kernels.numerics.precision import full_precision


class NormalWishart(NamedTuple):
    r"""Parameters of the prior: :math:`\beta_0`, :math:`\nu_0` and :math:`w`."""

    strength: float = 2.0
    degrees: float | None = None  # above the width less one; None: the width of the vectors
    scale: float = 1.0

    def degrees_of(self, width: int) -> float:
        r"""Return :math:`\nu_0` for vectors of this width."""
        return float(width if self.degrees is None else self.degrees)

    def times(self, unit: float) -> NormalWishart:
        """Return the prior of vectors that are a number times those of this prior."""
        return self._replace(scale=self.scale / unit**2)


class Moments(NamedTuple):
    """Sufficient statistics of vectors for their mean and precision."""

    number: jax.Array  # ()
    average: jax.Array  # (width,)
    scatter: jax.Array  # (width, width): sum of outer products of differences from the average


@full_precision
def moments(x) -> Moments:
    """Return the moments of vectors (n, width)."""
    average = x.mean(0)
    return Moments(jnp.asarray(x.shape[0], x.dtype), average, (x - average).T @ (x - average))


def gamma_shapes(number, width: int, prior: NormalWishart):
    """Return the shapes (width,) of the Gamma variates that `draw_normal_wishart` needs."""
    return 0.5 * (prior.degrees_of(width) + number - jnp.arange(width))


@full_precision
def draw_normal_wishart(key, x: Moments, prior: NormalWishart, gammas):
    """Draw mean (width,) and precision (width, width) given the vectors.

    Salakhutdinov, Mnih (2008), "Bayesian probabilistic matrix factorization using Markov chain
    Monte Carlo", ICML, equation 14, with the Wishart matrix by Bartlett's decomposition. `gammas`
    (width,) are draws from the Gamma distributions of `gamma_shapes` with rate 1. The caller draws
    them together with others, because their sampler takes long to compile.
    """
    width, dtype = x.average.shape[0], x.average.dtype
    key_below, key_mean = random.split(key)
    strength = prior.strength + x.number
    shrunk = prior.strength * x.number / strength
    inverse_scale = x.scatter + shrunk * jnp.outer(x.average, x.average)
    upper = factor(inverse_scale + jnp.eye(width, dtype=dtype) / prior.scale)
    below = jnp.tril(random.normal(key_below, (width, width), dtype), -1)
    bartlett = below + jnp.diag(jnp.sqrt(2.0 * gammas))
    # With inverse scale U'U and root = U^-1 A, the precision is root root'.
    root = back_substitute(upper[..., None], bartlett)
    noise = back_substitute(bartlett.T[..., None], random.normal(key_mean, (width, 1), dtype))
    mean = (x.number * x.average + upper.T @ noise[:, 0] * jnp.sqrt(strength)) / strength
    return mean, root @ root.T


@full_precision
def log_prob(mean, precision, prior: NormalWishart):
    """Return the log density of mean and precision."""
    width = mean.shape[0]
    degrees = prior.degrees_of(width)
    log_det = log_determinant(precision)
    wishart = (
        0.5 * (degrees - width - 1) * log_det
        - 0.5 * jnp.trace(precision) / prior.scale
        - 0.5 * degrees * width * jnp.log(2.0 * prior.scale)
        - multigammaln(0.5 * degrees, width)
    )
    spread = prior.strength * mean @ precision @ mean
    constant = width * jnp.log(prior.strength / (2.0 * jnp.pi))
    return wishart + 0.5 * (constant + log_det - spread)


@full_precision
def log_prob_of_vectors(x, mean, precision):
    """Return the log density of the vectors x (n, width) given mean and precision."""
    n, width = x.shape
    deviation = x - mean
    constant = log_determinant(precision) - width * jnp.log(2.0 * jnp.pi)
    return 0.5 * (n * constant - jnp.sum((deviation @ precision) * deviation))

r"""The mean and precision matrix that vectors share: the Normal-Wishart prior and its conditional.

.. math::

   x_i \sim N(\mu, \Lambda^{-1}), \qquad
   \mu \sim N(\mu_0, (\beta_0\Lambda)^{-1}),\quad \Lambda \sim W(W_0, \nu_0),

with :math:`\mu_0 = 0` and :math:`W_0 = w I` here.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import random
from jax.scipy.special import multigammaln

from bmfjax.kernels.small_cholesky import back_substitute, factor, log_determinant


class NormalWishart(NamedTuple):
    """The prior's parameters.

    Attributes
    ----------
    strength : float
        :math:`\\beta_0`.
    degrees : float, optional
        :math:`\\nu_0`, above the width less one; default the width of the vectors.
    scale : float
        :math:`w`.
    """

    strength: float = 2.0
    degrees: float | None = None
    scale: float = 1.0

    def degrees_of(self, width: int) -> float:
        """:math:`\\nu_0` for vectors of this width."""
        return float(width if self.degrees is None else self.degrees)


def draw_normal_wishart(key, x, prior: NormalWishart):
    r"""Draw mean and precision given the vectors.

    Salakhutdinov, Mnih (2008), "Bayesian probabilistic matrix factorization using Markov chain
    Monte Carlo", ICML, equation 14, with the Wishart matrix by Bartlett's decomposition.

    Parameters
    ----------
    key : jax.Array
    x : (n, width) float
    prior : NormalWishart

    Returns
    -------
    mean : (width,) float
    precision : (width, width) float

    Examples
    --------
    >>> x = 3.0 + 0.5 * random.normal(random.key(0), (100_000, 2))
    >>> mean, precision = draw_normal_wishart(random.key(1), x, NormalWishart())
    >>> (mean.round(1) + 0).tolist(), bool(jnp.all(abs(jnp.diagonal(precision) - 4) < 0.1))
    ([3.0, 3.0], True)
    """
    n, width = x.shape
    key_chi, key_normal, key_mean = random.split(key, 3)
    strength = prior.strength + n
    average = x.mean(0)
    apart = x - average
    shrunk = prior.strength * n / strength
    inverse_scale = apart.T @ apart + shrunk * jnp.outer(average, average)
    upper = factor(inverse_scale + jnp.eye(width, dtype=x.dtype) / prior.scale)
    degrees = prior.degrees_of(width) + n - jnp.arange(width, dtype=x.dtype)
    diagonal = jnp.sqrt(2.0 * random.gamma(key_chi, 0.5 * degrees, dtype=x.dtype))
    below = jnp.tril(random.normal(key_normal, (width, width), x.dtype), -1)
    bartlett = below + jnp.diag(diagonal)
    # With inverse scale U'U and root = U^-1 A, the precision is root root'.
    root = back_substitute(upper[..., None], bartlett)
    noise = back_substitute(bartlett.T[..., None], random.normal(key_mean, (width, 1), x.dtype))
    mean = (n * average + upper.T @ noise[:, 0] * jnp.sqrt(strength)) / strength
    return mean, root @ root.T


def log_prob(mean, precision, prior: NormalWishart):
    """Log density of mean and precision, () float."""
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


def log_prob_of_vectors(x, mean, precision):
    """Log density of the vectors given mean and precision, () float; x (n, width)."""
    n, width = x.shape
    apart = x - mean
    constant = log_determinant(precision) - width * jnp.log(2.0 * jnp.pi)
    return 0.5 * (n * constant - jnp.sum((apart @ precision) * apart))

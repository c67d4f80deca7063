r"""How a rating follows from its fit :math:`e`: three links, their likelihoods and latent values.

identity
    :math:`y \sim N(e, \tau^{-1})`.
probit
    :math:`P(y = 1) = \Phi(e)`; a value is +1 or -1.
ordered
    :math:`P(y = k) = \Phi(c_k - e) - \Phi(c_{k-1} - e)` with cut points
    :math:`-\infty = c_{-1} < c_0 < \dots < c_{K-1} = \infty`; a value is the category from 0.

The latter two are thresholds of a latent :math:`z \sim N(e, 1)`, of which `latent` draws given
the rating (Albert, Chib 1993, "Bayesian analysis of binary and polychotomous response data",
JASA 88, equations 3 and 13).
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax, random
from jax.scipy.special import log_ndtr, ndtri

from bmfjax.kernels.truncated_normal import truncated_normal_quantile

LINKS = ("identity", "probit", "ordered")


def latent(key, link: str, value, fit, cutpoints=None):
    """Draw the latent value of every entry; of "identity" the value itself.

    Parameters
    ----------
    key : jax.Array
    link : str
    value, fit : (...) float
    cutpoints : (categories - 1,) float, optional

    Returns
    -------
    (...) float

    Examples
    --------
    >>> value, fit = jnp.array([1.0, -1.0]), jnp.array([-9.0, 9.0])
    >>> (latent(random.key(0), "probit", value, fit) * value > 0).tolist()
    [True, True]
    """
    if link == "identity":
        return value
    u = random.uniform(key, fit.shape, fit.dtype)
    one = jnp.ones((), fit.dtype)
    if link == "probit":
        return value * truncated_normal_quantile(u, value * fit, one, 0.0, jnp.inf)
    low, high = bounds(value, cutpoints)
    return truncated_normal_quantile(u, fit, one, low, high)


def bounds(value, cutpoints):
    """Ends of the interval in which the latent value of each category lies."""
    end = jnp.full(1, jnp.inf, cutpoints.dtype)
    ends = jnp.concatenate([-end, cutpoints, end])
    category = value.astype(jnp.int32)
    return ends[category], ends[category + 1]


def log_probabilities(link: str, value, fit, precision=1.0, cutpoints=None):
    """Log likelihood of every entry, (...) float.

    Examples
    --------
    >>> cut = jnp.array([-1.0, 1.0])
    >>> p = log_probabilities("ordered", jnp.arange(3.0), jnp.zeros(3), cutpoints=cut)
    >>> [f"{x:.3f}" for x in jnp.exp(p)]
    ['0.159', '0.683', '0.159']
    """
    if link == "identity":
        return 0.5 * (jnp.log(precision / (2.0 * jnp.pi)) - precision * (value - fit) ** 2)
    if link == "probit":
        return log_ndtr(value * fit)
    low, high = bounds(value, cutpoints)
    return log_interval(low - fit, high - fit)


def log_interval(low, high):
    r""":math:`\log(\Phi(b) - \Phi(a))` for :math:`a < b`, accurate in both tails.

    Examples
    --------
    >>> bool(jnp.isfinite(log_interval(jnp.float32(20.0), jnp.float32(21.0))))
    True
    """
    flip = low + high > 0
    a, b = jnp.where(flip, -high, low), jnp.where(flip, -low, high)
    top = log_ndtr(b)
    # Below rounding error of a narrow interval's ends the difference would be zero.
    drop = jnp.minimum(log_ndtr(a) - top, -jnp.finfo(b.dtype).eps)
    return top + jnp.log1p(-jnp.exp(drop))


def are_apart(cutpoints):
    """Whether cut points keep to the distances that floating point numbers can tell: () bool.

    Nearer ones would meet when all of them are moved, and would never part again.

    Examples
    --------
    >>> near = jnp.array([0.93, 0.93 + 1e-6], jnp.float32)
    >>> bool(are_apart(near)), bool(are_apart(near * jnp.array([1.0, 1.001])))
    (False, True)
    """
    ends = jnp.maximum(1.0, jnp.max(jnp.abs(cutpoints), initial=0.0))
    return jnp.all(jnp.diff(cutpoints) > 64 * jnp.finfo(cutpoints.dtype).eps * ends)


def level_of(link: str, counts):
    """Levels that give these shares: a fit of a probit, or the cut points.

    Parameters
    ----------
    link : {"probit", "ordered"}
    counts : (categories,) float
        Zeros and ones, or how often each category occurs.

    Returns
    -------
    () or (categories - 1,) float

    Examples
    --------
    >>> [f"{c:.2f}" for c in level_of("ordered", jnp.array([25.0, 50.0, 25.0]))]
    ['-0.67', '0.67']
    """
    # Half a count more: a category that does not occur has its place too.
    below = jnp.cumsum(counts + 0.5)
    tiny = jnp.finfo(counts.dtype).eps
    cuts = ndtri(jnp.clip(below[:-1] / below[-1], tiny, 1.0 - tiny))
    if link == "probit":
        return -cuts[0]
    # Of rare categories among many entries the ends would round to one number.
    least = 1e-3 * jnp.arange(cuts.shape[0], dtype=cuts.dtype)
    return lax.cummax(cuts - least) + least

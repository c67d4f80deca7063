"""Flip rates of Boolean models: their prior, and the log odds of a one that they imply."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bmfjax.data.errors import InputError
from bmfjax.models.truncated_beta import TruncatedBeta
from bmfjax.specs.priors import flip_prior


def resolve_flip_rate(flip_rate, num_rates=1):
    """Check a flip rate and return its prior if it is learned, or the fixed rate or rates.

    Parameters
    ----------
    flip_rate : numpyro.distributions.Beta or float or (float, float) or None
        None stands for Beta(1, 1). A Beta distribution, scalar or of shape
        (num_rates,), is truncated to [0, 1/2]. Numbers in (0, 1/2] are fixed; with
        two rates one number is that of both.
    num_rates : {1, 2}
        One rate for zeros and ones, or two: of the zeros and of the ones.

    Returns
    -------
    TruncatedBeta or numpy.ndarray
        With batch shape, or shape, () or (2,). Float64.

    Raises
    ------
    InputError
        For another number of rates, rates outside (0, 1/2], a pair where there is one
        rate, any other distribution, or one with hardly any mass in [0, 1/2].

    Examples
    --------
    >>> resolve_flip_rate(None).batch_shape, resolve_flip_rate(0.1, num_rates=2)
    ((), array([0.1, 0.1]))
    """
    if num_rates not in (1, 2):
        raise InputError(f"num_rates is {num_rates!r}; give 1 or, for the zeros' and ones' own, 2")
    shape = () if num_rates == 1 else (2,)
    if flip_rate is None:
        return TruncatedBeta(np.ones(shape), np.ones(shape), 0.5)
    prior = flip_prior("flip_rate", flip_rate, num_rates)
    if not isinstance(prior, dist.Distribution):
        return np.broadcast_to(np.asarray(prior, float), shape)
    a, b = (
        np.broadcast_to(np.asarray(c, float), shape)
        for c in (prior.concentration1, prior.concentration0)
    )
    return TruncatedBeta(a, b, 0.5)


def sample_flip_rate(name, resolved):
    """Sample a learned flip rate, or return the fixed one, of `resolve_flip_rate`: () or (2,)."""
    if not isinstance(resolved, dist.Distribution):
        return jnp.asarray(resolved, jnp.result_type(float))
    if not resolved.batch_shape:
        return numpyro.sample(name, resolved)
    return numpyro.sample(name, resolved.to_event(1), infer={"event_dims": ["product"]})


def flip_logits(flip_rate, ones):
    r"""Return the log odds of a one, for entries flipped from a Boolean matrix `ones`.

    .. math:: \log\frac{f_0}{1 - f_0} \text{ for a zero}, \qquad
              \log\frac{1 - f_1}{f_1} \text{ for a one}.

    Probabilities would not do: in float32 one minus a rate of 1e-9 is one.
    """
    dispersion = jnp.log1p(-flip_rate) - jnp.log(flip_rate)
    zeros, of_ones = dispersion if jnp.ndim(dispersion) else (dispersion, dispersion)
    return jnp.where(ones, of_ones, -zeros)

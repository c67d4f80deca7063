"""Factor bits of Boolean models: their priors, and their sites."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.discrete import BernoulliProbs
from numpyro.distributions.util import validate_sample

from bmfjax.data.errors import InputError
from bmfjax.models.spiked_beta import SpikedBeta
from bmfjax.specs import priors


class ExactBernoulli(BernoulliProbs):
    """Bernoulli distribution in which a probability of 0 or 1 is certain.

    NumPyro's own keeps probabilities off 0 and 1 in the log density, so that a bit that
    its prior excludes would cost 16 and not infinity.
    """

    @validate_sample
    def log_prob(self, value):
        """Return the log probability, minus infinity for what is excluded."""
        return jnp.where(jnp.asarray(value) == 1, jnp.log(self.probs), jnp.log1p(-self.probs))


def resolve_bits_prior(prior, site, shape):
    """Check the prior of a factor matrix's bits and return it resolved.

    Parameters
    ----------
    prior : None or numpyro.distributions.Beta or float or (size, rank) array
        None: every factor has a density of its own, with prior Beta(1, 1). A scalar
        Beta distribution: that prior of the densities. A number in (0, 1): the density
        of all factors. An array: the probability of every single bit, in [0, 1]; 0 and
        1 fix the bit.
    site : str
        "usage" or "basis", for the message.
    shape : (int, int)
        (rows, rank) or (columns, rank).

    Returns
    -------
    numpyro.distributions.Beta or float or (size, rank) numpy.ndarray
        The prior of learned densities, the fixed density, or the probabilities.

    Raises
    ------
    InputError
        For a density that is not strictly between 0 and 1, probabilities outside
        [0, 1] or of another shape, or any other distribution.

    Examples
    --------
    >>> resolve_bits_prior(0.2, "usage", (4, 2))
    0.2
    >>> resolve_bits_prior([[0, 1], [0.5, 0.5]], "basis", (2, 2)).shape
    (2, 2)
    """
    if prior is None:
        return dist.Beta(1.0, 1.0)
    prior = priors.bits_prior(f"the prior of {site}", prior)
    if isinstance(prior, dist.Distribution):
        return prior
    values = np.asarray(prior, float)
    if not values.shape:
        return float(values)
    if values.shape != tuple(shape):
        raise InputError(
            f"the prior of {site} has shape {values.shape}; the probabilities of its bits have "
            f"shape {tuple(shape)}"
        )
    return values


def resolve_known_bits(anchors, prior, shape):
    """Check the basis of known factors, and return it beside that of all.

    `anchors` (columns, number), of the first factors, and what is returned, (columns, rank), hold
    0, 1, or NaN where a bit is not known. Refuse a `prior` of single bits beside them.

    Examples
    --------
    >>> resolve_known_bits([[1.0], [np.nan]], None, (2, 2))
    array([[ 1., nan],
           [nan, nan]])
    """
    if anchors is None:
        return None
    if prior is not None and not isinstance(prior, dist.Distribution) and np.ndim(prior):
        raise InputError(
            "anchors are known bits of the basis, and so may be those of its prior, which is an "
            "array; put all of them into that array, or give another prior"
        )
    values = np.asarray(anchors, float)
    if values.ndim != 2 or len(values) != shape[0] or not 1 <= values.shape[1] <= shape[1]:
        raise InputError(
            f"anchors has shape {values.shape}; give one row for each of {shape[0]} columns and at "
            f"most {shape[1]} factors"
        )
    if not (np.isnan(values) | (values == 0) | (values == 1)).all():
        raise InputError("anchors has values other than 0, 1 and NaN; give known bits")
    found = np.full(shape, np.nan)
    found[:, : values.shape[1]] = values
    return found


def resolve_presence(presence, prior, site):
    """Check the prior of the share of factors that are there; `prior` is resolved.

    A pair holds the concentrations of a Beta distribution.

    Examples
    --------
    >>> resolve_presence(None, dist.Beta(1.0, 1.0), "usage") is None
    True
    """
    if presence is None:
        return None
    if not isinstance(prior, dist.Distribution):
        raise InputError(
            f"factors may be absent only where the densities of {site} are learned; leave out "
            f"presence_prior, or the prior of {site}"
        )
    if isinstance(presence, tuple) and len(presence) == 2:
        presence = dist.Beta(*presence)
    if not isinstance(presence, dist.Beta) or presence.batch_shape:
        raise InputError(
            f"presence_prior is {presence!r}; give a scalar numpyro.distributions.Beta, the prior "
            "of the share of factors that are there, or the pair of its concentrations"
        )
    return priors.beta("presence_prior", presence)


def sample_bits(site, density_site, dims, shape, prior, presence=None, known=None):
    """Sample a factor matrix's bits, (size, rank) 0 or 1, after their densities where learned.

    `dims` names the two axes of the bits, `prior` is one of `resolve_bits_prior`, `presence` of
    `resolve_presence`, and `known` of `resolve_known_bits`.
    """
    prior = resolve_bits_prior(prior, site, shape)
    presence = resolve_presence(presence, prior, site)
    infer = {"event_dims": list(dims)}
    if presence is not None:
        share = numpyro.sample(f"{site}_presence", presence)
        prior = SpikedBeta(share, prior.concentration1, prior.concentration0)
        density = numpyro.sample(
            density_site, prior.expand([shape[1]]).to_event(1), infer={"event_dims": [dims[1]]}
        )
        bits = ExactBernoulli(jnp.broadcast_to(density, shape))
        return jnp.asarray(numpyro.sample(site, bits.to_event(2), infer=infer))
    if isinstance(prior, np.ndarray):
        bits = ExactBernoulli(jnp.asarray(prior, jnp.result_type(float)))
        return jnp.asarray(numpyro.sample(site, bits.to_event(2), infer=infer))
    if isinstance(prior, dist.Distribution):
        prior = numpyro.sample(
            density_site, prior.expand([shape[1]]).to_event(1), infer={"event_dims": [dims[1]]}
        )
    if known is None:
        bits = dist.Bernoulli(probs=jnp.broadcast_to(prior, shape))
    else:
        bits = ExactBernoulli(jnp.where(np.isnan(known), prior, np.nan_to_num(known)))
    # As a JAX array: a plate's indices may be traced, and could not index one of NumPy.
    return jnp.asarray(numpyro.sample(site, bits.to_event(2), infer=infer))

r"""Draw the flip rates of a Boolean factorisation, and what they make of its likelihood.

With :math:`f_0 = P(x = 1 \mid c = 0)` and :math:`f_1 = P(x = 0 \mid c = 1)` covering an observed
one adds :math:`\log((1 - f_1)/f_0)` to the log likelihood, and covering a zero
:math:`\log(f_1/(1 - f_0))`. One rate for both is the dispersion of Rukat, Holmes, Titsias and Yau
(2017), :math:`\lambda = -\operatorname{logit} f`, and these weights are then :math:`\pm\lambda`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import special

from bmfjax.kernels.beta import draw_beta
from bmfjax.kernels.bit_updates import Weights

#: The dispersion stays finite: the published one is held below 1,000, which float32 cannot hold
#: as a rate.
LEAST_RATE = 1e-30
#: Proposals from the Beta distribution, of which the first within [0, 1/2] is taken.
TRIES = 8


class FlipRatePrior(NamedTuple):
    """What is known of the flip rates beforehand, and how they are drawn.

    Attributes
    ----------
    num_rates : {1, 2}
        One rate for both directions, or one for each.
    a, b : float
        Beta prior, truncated to [0, 1/2].
    rule : {"sample", "laplace", "mle"}
        A draw from the conditional; (errors + 1) / (entries + 2); or errors / entries, as
        published. Only the first samples from the posterior.
    value : float or (float, float), optional
        Of rates that are known and never change.
    """

    num_rates: int = 1
    a: float = 1.0
    b: float = 1.0
    rule: str = "sample"
    value: float | tuple[float, float] | None = None


class ErrorCounts(NamedTuple):
    """Entries that the product gets wrong and right: (2,) float each, where c is 0 and where 1.

    Attributes
    ----------
    wrong, right : (2,) float
    """

    wrong: jax.Array
    right: jax.Array


def both_rates(flip_rate) -> tuple[jax.Array, jax.Array]:
    """:math:`f_0` and :math:`f_1` from a site of shape () or (2,)."""
    return (flip_rate, flip_rate) if jnp.ndim(flip_rate) == 0 else (flip_rate[0], flip_rate[1])


def weights(flip_rate, inverse_temperature=1.0) -> Weights:
    """What covering an entry adds to the tempered log likelihood.

    Examples
    --------
    >>> [round(float(w), 4) for w in weights(jnp.float32(0.1))]
    [2.1972, -2.1972]
    """
    f0, f1 = both_rates(flip_rate)
    one = (jnp.log1p(-f1) - jnp.log(f0)) * inverse_temperature
    zero = (jnp.log(f1) - jnp.log1p(-f0)) * inverse_temperature
    return Weights(one, zero)


def dispersion(flip_rate) -> jax.Array:
    r"""Half the difference of the weights: :math:`\lambda` where one rate holds for both.

    Examples
    --------
    >>> round(float(dispersion(jnp.float32(0.1))), 4)
    2.1972
    """
    one, zero = weights(flip_rate)
    return 0.5 * (one - zero)


def log_likelihood(flip_rate, counts: ErrorCounts) -> jax.Array:
    """Log likelihood of the data given the product: () float."""
    rates = jnp.stack(both_rates(flip_rate))
    return jnp.sum(counts.wrong * jnp.log(rates) + counts.right * jnp.log1p(-rates))


def log_prior(flip_rate, prior: FlipRatePrior) -> jax.Array:
    """Log density of the truncated Beta prior, normalised: () float."""
    if prior.rule != "sample" or prior.value is not None:
        return jnp.zeros((), jnp.result_type(flip_rate))
    # Known numbers, in float64: JAX's incomplete beta function is off by far for some of them.
    whole = special.betaln(prior.a, prior.b) + np.log(special.betainc(prior.a, prior.b, 0.5))
    each = (prior.a - 1.0) * jnp.log(flip_rate) + (prior.b - 1.0) * jnp.log1p(-flip_rate)
    return jnp.sum(each - jnp.asarray(whole, each.dtype))


def draw_flip_rate(key, flip_rate, counts: ErrorCounts, prior: FlipRatePrior, inverse_temperature):
    r"""The next flip rates.

    The conditional is :math:`\mathrm{Beta}(a + E, b + N - E)` on [0, 1/2], E errors among N
    entries. Of a few draws from the Beta distribution the first in [0, 1/2] is taken, and the rate
    stays as it is where none is: a Metropolis step whose proposal does not depend on the state.

    Parameters
    ----------
    key : jax.Array
    flip_rate : () or (2,) float
    counts : ErrorCounts
    prior : FlipRatePrior
    inverse_temperature : float

    Returns
    -------
    () or (2,) float

    Examples
    --------
    >>> counts = ErrorCounts(jnp.array([3.0, 2.0]), jnp.array([57.0, 38.0]))
    >>> rate = draw_flip_rate(None, jnp.float32(0.5), counts, FlipRatePrior(rule="mle"), 1.0)
    >>> round(float(rate), 6)
    0.05
    """
    if prior.value is not None:
        return flip_rate
    wrong, right = counts
    if jnp.ndim(flip_rate) == 0:
        wrong, right = wrong.sum(), right.sum()
    if prior.rule == "sample":
        return _sample(key, flip_rate, wrong, right, prior, inverse_temperature)
    more = 1.0 if prior.rule == "laplace" else 0.0
    rate = (wrong + more) / jnp.maximum(wrong + right + 2.0 * more, 1.0)
    return jnp.clip(rate, LEAST_RATE, 0.5).astype(flip_rate.dtype)


def _sample(key, flip_rate, wrong, right, prior, inverse_temperature):
    a = (prior.a + inverse_temperature * wrong).astype(flip_rate.dtype)
    b = (prior.b + inverse_temperature * right).astype(flip_rate.dtype)
    tries = (TRIES, *flip_rate.shape)
    drawn = draw_beta(key, jnp.broadcast_to(a, tries), jnp.broadcast_to(b, tries))
    good = drawn <= 0.5
    first = jnp.take_along_axis(drawn, jnp.argmax(good, axis=0, keepdims=True), axis=0)[0]
    return lax.select(good.any(0), jnp.maximum(first, LEAST_RATE), flip_rate)

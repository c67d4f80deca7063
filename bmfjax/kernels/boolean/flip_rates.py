r"""The flip rates of a Boolean factorisation: their prior, their draw, and the likelihood.

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
from jax import lax, random
from scipy import special

from bmfjax.kernels.boolean.bits import Weights
from bmfjax.kernels.numerics.beta import draw_beta
from bmfjax.specs.priors import LEAST_RATE

#: Parts of equal probability of the prior, within which its draws are uniform.
PARTS = 4096
#: Proposals from the Beta distribution; the first within [0, 1/2] is taken.
TRIES = 8


class FlipRatePrior(NamedTuple):
    """Prior of the flip rates, and the rule that draws them.

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
        Known rates, which never change.
    """

    num_rates: int = 1
    a: float = 1.0
    b: float = 1.0
    rule: str = "sample"
    value: float | tuple[float, float] | None = None


class ErrorCounts(NamedTuple):
    """Entries that the product gets wrong and right, where it is 0 and where it is 1."""

    wrong: jax.Array  # (2,) float
    right: jax.Array  # (2,) float


def start_rate(prior: FlipRatePrior) -> jax.Array:
    """Return the known flip rates, or 0.2 for learned ones: () or (2,)."""
    rate = jnp.asarray(0.2 if prior.value is None else prior.value, jnp.result_type(float))
    return jnp.broadcast_to(rate, () if prior.num_rates == 1 else (2,))


def prior_rate(key, prior: FlipRatePrior) -> jax.Array:
    """Draw learned flip rates from their prior, by its quantiles, uniform within 4,096 parts."""
    rate = start_rate(prior)
    if prior.value is not None:
        return rate
    # In float64, as in `log_prior`.
    each = (np.asarray(c, float) for c in (prior.a, prior.b))
    a, b = (np.broadcast_to(c, rate.shape)[..., None] for c in each)
    inside = special.betainc(a, b, 0.5)
    ends = special.betaincinv(a, b, inside * np.linspace(0.0, 1.0, PARTS + 1))
    level = random.uniform(key, rate.shape, rate.dtype) * PARTS
    grid = jnp.arange(PARTS + 1, dtype=rate.dtype)
    each = zip(level.reshape(-1), ends.reshape(-1, PARTS + 1), strict=True)
    drawn = jnp.stack([jnp.interp(x, grid, e.astype(rate.dtype)) for x, e in each])
    return jnp.clip(drawn.reshape(rate.shape), LEAST_RATE, 0.5)


def both_rates(flip_rate) -> tuple[jax.Array, jax.Array]:
    """Return :math:`f_0` and :math:`f_1` from a site of shape () or (2,)."""
    return (flip_rate, flip_rate) if jnp.ndim(flip_rate) == 0 else (flip_rate[0], flip_rate[1])


def weights(flip_rate, inverse_temperature=1.0) -> Weights:
    """Return what covering an entry adds to the tempered log likelihood."""
    f0, f1 = both_rates(flip_rate)
    one = (jnp.log1p(-f1) - jnp.log(f0)) * inverse_temperature
    zero = (jnp.log(f1) - jnp.log1p(-f0)) * inverse_temperature
    return Weights(one, zero)


def dispersion(flip_rate) -> jax.Array:
    r"""Return half the difference of the weights: :math:`\lambda` where one rate holds for both."""
    one, zero = weights(flip_rate)
    return 0.5 * (one - zero)


def log_likelihood(flip_rate, counts: ErrorCounts) -> jax.Array:
    """Return the log likelihood of the data given the product."""
    rates = jnp.stack(both_rates(flip_rate))
    return jnp.sum(counts.wrong * jnp.log(rates) + counts.right * jnp.log1p(-rates))


def log_prior(flip_rate, prior: FlipRatePrior) -> jax.Array:
    """Return the normalised log density of the truncated Beta prior."""
    if prior.rule != "sample" or prior.value is not None:
        return jnp.zeros((), jnp.result_type(flip_rate))
    # In float64, as the numbers are known: JAX's incomplete beta function is far off for some.
    whole = special.betaln(prior.a, prior.b) + np.log(special.betainc(prior.a, prior.b, 0.5))
    each = (prior.a - 1.0) * jnp.log(flip_rate) + (prior.b - 1.0) * jnp.log1p(-flip_rate)
    return jnp.sum(each - jnp.asarray(whole, each.dtype))


def draw_flip_rate(key, flip_rate, counts: ErrorCounts, prior: FlipRatePrior, inverse_temperature):
    r"""Draw or set the next flip rates, () or (2,).

    The conditional is :math:`\mathrm{Beta}(a + E, b + N - E)` on [0, 1/2], with E errors among N
    entries. The first of a few draws from the Beta distribution that lies in [0, 1/2] is taken. If
    there is none the rate stays: a Metropolis step whose proposal does not depend on the state.
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


def draw_from_prior(key, flip_rate, prior: FlipRatePrior):
    """Draw the flip rates from their prior, which leaves it invariant where they stay too."""
    if prior.value is not None:
        return flip_rate
    tries = (TRIES, *flip_rate.shape)
    a, b = (jnp.broadcast_to(jnp.asarray(c, flip_rate.dtype), tries) for c in (prior.a, prior.b))
    drawn = draw_beta(key, a, b)
    # The upper half of a symmetric distribution is the lower half mirrored: no draw is lost.
    return _first_good(jnp.where(a == b, jnp.minimum(drawn, 1.0 - drawn), drawn), flip_rate)


def _sample(key, flip_rate, wrong, right, prior, inverse_temperature):
    a = (prior.a + inverse_temperature * wrong).astype(flip_rate.dtype)
    b = (prior.b + inverse_temperature * right).astype(flip_rate.dtype)
    tries = (TRIES, *flip_rate.shape)
    drawn = draw_beta(key, jnp.broadcast_to(a, tries), jnp.broadcast_to(b, tries))
    return _first_good(drawn, flip_rate)


def _first_good(drawn, flip_rate):
    """Return the first of the tries (tries, ...) within [0, 1/2], or the rate if there is none."""
    good = drawn <= 0.5
    first = jnp.take_along_axis(drawn, jnp.argmax(good, axis=0, keepdims=True), axis=0)[0]
    return lax.select(good.any(0), jnp.maximum(first, LEAST_RATE), flip_rate)

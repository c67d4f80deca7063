r"""Metropolis moves of a logistic model's effects, levels and scales.

With sign :math:`s = 2x - 1` the log likelihood of an entry with logit :math:`t` is
:math:`\log\sigma(st)`: concave, with slope :math:`s\sigma(-st)` and curvature
:math:`\sigma(t)\sigma(-t)`. A number that moves alone, given all others, is proposed from a normal
distribution around the Newton step from where it stands, with the Newton step's own precision. The
step back starts from elsewhere and has another density, and the acceptance probability holds both.
Where a conditional is nearly normal this is nearly an independent draw, and nearly always
accepted. Newton steps are cut at three standard deviations of the proposal: from far out they
would overshoot, and never be accepted.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import random

from bmfjax.kernels.numerics.control import accepted
from bmfjax.kernels.numerics.precision import full_precision
from bmfjax.kernels.variants.observed_entries import EntryLists, line_sums

#: Longest Newton step, in standard deviations of the proposal.
LONGEST = 3.0


def logistic_terms(sign, logits):
    r"""Return :math:`\log\sigma(st)`, its slope and its curvature (at least 0) in the logit t.

    The sign s is +1 for a one, -1 for a zero, and 0 where nothing is observed: all three terms are
    0 there.
    """
    x = sign * logits
    small = jnp.exp(-jnp.abs(x))
    value = jnp.minimum(x, 0.0) - jnp.log1p(small)
    other = jnp.where(x > 0, small, 1.0) / (1.0 + small)  # sigma(-x)
    return jnp.where(sign == 0, 0.0, value), sign * other, sign**2 * other * (1.0 - other)


def _proposal(x, slope, precision):
    """Return the mean and precision of the step from x, given slope and minus curvature there."""
    longest = LONGEST * precision**-0.5
    return x + jnp.clip(slope / precision, -longest, longest), precision


def _log_normal(x, mean, precision):
    return 0.5 * jnp.log(precision) - 0.5 * precision * (x - mean) ** 2


def move_effects(key, lists: EntryLists, effect, offset, precision, inverse_temperature=1.0):
    """Move the effects (lines,), each by a step of its own; `offset` are the logits without them.

    Returns the effects and their mean acceptance probability.
    """
    key_normal, key_accept = random.split(key)

    def terms(effect):
        entries = logistic_terms(lists.sign, offset + effect[lists.line][:, None])
        value, slope, curvature = (inverse_temperature * line_sums(lists, x) for x in entries)
        step = _proposal(effect, slope - precision * effect, precision + curvature)
        return value - 0.5 * precision * effect**2, step

    here, forth = terms(effect)
    new = forth[0] + forth[1] ** -0.5 * random.normal(key_normal, effect.shape, effect.dtype)
    there, back = terms(new)
    ratio = there - here + _log_normal(effect, *back) - _log_normal(new, *forth)
    accept, probability = accepted(key_accept, ratio)
    return jnp.where(accept, new, effect), probability.mean()


@full_precision
def move_levels(key, sign, effects, covered, intercept, dispersion, prior, inverse_temperature=1.0):
    r"""Move the logit's levels :math:`\mu - \lambda` and :math:`\mu + \lambda` together.

    The former belongs to the entries that are not covered, the latter to those that are: their
    Newton steps interact only through the prior. Where one of intercept and dispersion is None,
    the other moves alone. `effects` are the logits of the entries without the levels. Returns
    intercept and dispersion (0 for None), the acceptance probability, and the log likelihoods of
    the entries.
    """
    dtype = effects.dtype
    rate, sd = prior.dispersion_rate, prior.intercept_sd
    high = covered > 0
    # levels = matrix @ coordinates; the least precision is about that of the prior.
    if intercept is None:
        matrix, least, x = [[-1.0], [1.0]], rate**2, [dispersion]
    elif dispersion is None:
        matrix, least, x = [[1.0], [1.0]], sd**-2, [intercept]
    else:
        matrix, least = [[1.0, 0.0], [0.0, 1.0]], 0.25 * rate**2
        x = [intercept - dispersion, intercept + dispersion]
    matrix, x = jnp.asarray(matrix, dtype), jnp.stack(x).astype(dtype)

    towards = matrix[1] - matrix[0]
    towards = towards / jnp.maximum(0.5 * jnp.sum(towards**2), 1.0)

    def means(x):
        low, top = matrix @ x
        return 0.5 * (low + top), 0.5 * (top - low)  # intercept, dispersion

    def log_prior(x):
        mu, scale = means(x)
        return -0.5 * (mu / sd) ** 2 - rate * scale

    def terms(x):
        low, top = matrix @ x
        value, slope, curvature = logistic_terms(sign, effects + jnp.where(high, top, low))

        def by_level(y):
            all_of_it, part = y.sum(), jnp.where(high, y, 0.0).sum()
            return inverse_temperature * jnp.stack([all_of_it - part, part])

        slope = by_level(slope) @ matrix + jax.grad(log_prior)(x)
        mean, precision = _proposal(x, slope, by_level(curvature) @ matrix**2 + least)
        # The nearest levels that the prior allows, where the bits would have them the other way.
        mean -= jnp.minimum(means(mean)[1], 0.0) * towards
        return value, (mean, precision)

    key_normal, key_accept = random.split(key)
    values, forth = terms(x)
    new = forth[0] + forth[1] ** -0.5 * random.normal(key_normal, x.shape, dtype)
    new_values, back = terms(new)
    # Differences before the sum: each is small, and float32 holds them.
    ratio = inverse_temperature * jnp.sum(new_values - values) + log_prior(new) - log_prior(x)
    ratio += jnp.sum(_log_normal(x, *back) - _log_normal(new, *forth))
    allowed = means(new)[1] >= 0.0 if dispersion is not None else True
    accept, probability = accepted(key_accept, jnp.where(allowed, ratio, -jnp.inf))
    mu, scale = means(jnp.where(accept, new, x))
    return mu, scale, probability, jnp.where(accept, new_values, values)


def translate(key, intercept, effect, precision, intercept_sd):
    """Draw how the level divides between intercept and effects, which changes no logit."""
    total = effect.size * precision + intercept_sd**-2
    mean = (precision * effect.sum() - intercept_sd**-2 * intercept) / total
    shift = mean + total**-0.5 * random.normal(key, (), effect.dtype)
    return intercept + shift, effect - shift


def rescale_effects(
    key, sign, values, effect, precision, index, rest, gamma, inverse_temperature=1.0
):
    r"""Scale all effects of a side by r and their precision by :math:`r^{-2}`.

    With few entries a line the effects stay near their prior, and precision and effects move
    slowly given each other; here their scale moves given the effects' directions. The log ratio of
    the acceptance is :math:`\ell' - \ell - 2a\log r - b(\tau' - \tau)`: the effects' prior and the
    determinant of the scaling cancel. `values` and `rest` are the entries' log likelihoods and
    their logits without these effects, `index` the line of each entry, `gamma` the prior of the
    precision. Returns effects, precision and values.
    """
    key_normal, key_accept = random.split(key)
    # About the posterior's width for effects of a usual size; the data's share alone.
    width = 2.4 / jnp.sqrt(1.0 + 0.1 * jnp.sum(sign**2))
    log_scale = width * random.normal(key_normal, (), effect.dtype)
    new, new_precision = effect * jnp.exp(log_scale), precision * jnp.exp(-2.0 * log_scale)
    new_values, _, _ = logistic_terms(sign, rest + new[index])
    ratio = inverse_temperature * jnp.sum(new_values - values)
    ratio -= 2.0 * gamma[0] * log_scale + gamma[1] * (new_precision - precision)
    accept = jnp.log(random.uniform(key_accept, (), effect.dtype, minval=1e-37)) < ratio
    return jax.tree.map(
        lambda a, b: jnp.where(accept, a, b),
        (new, new_precision, new_values),
        (effect, precision, values),
    )

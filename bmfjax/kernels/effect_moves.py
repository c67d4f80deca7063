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

from bmfjax.kernels.observed_entries import EntryLists, line_sums

#: Longest Newton step, in standard deviations of the proposal.
LONGEST = 3.0


def logistic_terms(sign, logits):
    r""":math:`\log\sigma(st)`, its slope and the curvature (at least 0) in the logit t.

    Parameters
    ----------
    sign : (...) float
        +1 for a one, -1 for a zero, 0 where nothing is observed: all three terms are 0 there.
    logits : (...) float

    Returns
    -------
    value, slope, curvature : (...) float

    Examples
    --------
    >>> logistic_terms(jnp.array([1.0, 0.0]), jnp.array([0.0, 5.0]))[1].tolist()
    [0.5, 0.0]
    """
    x = sign * logits
    small = jnp.exp(-jnp.abs(x))
    value = jnp.minimum(x, 0.0) - jnp.log1p(small)
    other = jnp.where(x > 0, small, 1.0) / (1.0 + small)  # sigma(-x)
    return jnp.where(sign == 0, 0.0, value), sign * other, sign**2 * other * (1.0 - other)


def _proposal(x, slope, precision):
    """Mean and precision of the step from x, given slope and minus curvature there."""
    longest = LONGEST * precision**-0.5
    return x + jnp.clip(slope / precision, -longest, longest), precision


def _log_normal(x, mean, precision):
    return 0.5 * jnp.log(precision) - 0.5 * precision * (x - mean) ** 2


def move_effects(key, lists: EntryLists, effect, offset, precision, inverse_temperature=1.0):
    """Move the effects of all lines, each by a step of its own.

    Parameters
    ----------
    key : jax.Array
    lists : EntryLists
    effect : (lines,) float
    offset : (chunk, width) float
        Logits of the entries without the effects.
    precision : () float
        Of the effects' normal prior.
    inverse_temperature : () float

    Returns
    -------
    effect : (lines,) float
    accepted : () float
        Mean acceptance probability.

    Examples
    --------
    A line that nothing is observed of draws from its prior:

    >>> from bmfjax.kernels.observed_entries import observed_entries
    >>> lists = observed_entries([0], [0], [1], shape=(1000, 1)).by_row
    >>> x, accepted = move_effects(random.key(0), lists, jnp.zeros(1000), lists.sign * 0, 4.0)
    >>> bool(abs(x.std() - 0.5) < 0.05), bool(accepted > 0.99)
    (True, True)
    """
    key_normal, key_accept = random.split(key)

    def terms(effect):
        found = logistic_terms(lists.sign, offset + effect[lists.line][:, None])
        value, slope, curvature = (inverse_temperature * line_sums(lists, x) for x in found)
        step = _proposal(effect, slope - precision * effect, precision + curvature)
        return value - 0.5 * precision * effect**2, step

    here, forth = terms(effect)
    new = forth[0] + forth[1] ** -0.5 * random.normal(key_normal, effect.shape, effect.dtype)
    there, back = terms(new)
    ratio = there - here + _log_normal(effect, *back) - _log_normal(new, *forth)
    probability = jnp.exp(jnp.minimum(ratio, 0.0))
    uniform = random.uniform(key_accept, effect.shape, effect.dtype)
    return jnp.where(uniform < probability, new, effect), probability.mean()


def move_levels(key, sign, effects, covered, intercept, dispersion, prior, inverse_temperature=1.0):
    r"""Move the logit's levels :math:`\mu - \lambda` and :math:`\mu + \lambda` together.

    The former belongs to the entries that are not covered, the latter to those that are: their
    Newton steps do not interact, but for the prior. Where one of intercept and dispersion is
    None, the other moves alone.

    Parameters
    ----------
    key : jax.Array
    sign, effects : (...) float
        Of the entries, as in `logistic_terms`, and their logits but for the levels.
    covered : (...) float
        Above zero where an entry is covered.
    intercept, dispersion : () float or None
    prior : EffectsPrior
    inverse_temperature : () float

    Returns
    -------
    intercept, dispersion : () float
        0 for what was None.
    accepted : () float
        Acceptance probability.
    values : (...) float
        Log likelihoods of the entries.
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
    probability = jnp.where(allowed, jnp.exp(jnp.minimum(ratio, 0.0)), 0.0)
    accept = random.uniform(key_accept, (), dtype) < probability
    mu, scale = means(jnp.where(accept, new, x))
    return mu, scale, probability, jnp.where(accept, new_values, values)


def translate(key, intercept, effect, precision, intercept_sd):
    """Draw how much of the level is the intercept's and how much the effects' mean; no logit moves.

    Parameters
    ----------
    key : jax.Array
    intercept : () float
    effect : (lines,) float
    precision, intercept_sd : () float

    Returns
    -------
    intercept : () float
    effect : (lines,) float

    Examples
    --------
    >>> m, a = translate(random.key(0), jnp.array(0.0), jnp.full(10_000, 3.0), 1.0, 10.0)
    >>> bool(abs(m - 3.0) < 0.1), bool(jnp.allclose(m + a, 3.0))
    (True, True)
    """
    total = effect.size * precision + intercept_sd**-2
    mean = (precision * effect.sum() - intercept_sd**-2 * intercept) / total
    shift = mean + total**-0.5 * random.normal(key, (), effect.dtype)
    return intercept + shift, effect - shift


def rescale_effects(
    key, sign, values, effect, precision, index, rest, gamma, inverse_temperature=1.0
):
    r"""Scale all effects of a side by r and their precision by :math:`r^{-2}`.

    Few entries a line leave the effects near their prior, and precision and effects then move
    slowly given each other; their scale moves here given the effects' directions. The ratio of
    the acceptance is :math:`\ell' - \ell - 2a\log r - b(\tau' - \tau)`, the effects' prior and the
    determinant of the scaling having cancelled.

    Parameters
    ----------
    key : jax.Array
    sign, values, rest : (chunk, width) float
        Of the entries: sign, log likelihood, and logits without these effects.
    effect : (lines,) float
    precision : () float
    index : (chunk, width) or (chunk, 1) int
        Line of each entry.
    gamma : (float, float)
        Prior of the precision.
    inverse_temperature : () float

    Returns
    -------
    effect, precision, values
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

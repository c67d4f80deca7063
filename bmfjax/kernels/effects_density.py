"""The OrMachine with row and column effects as a density: priors, logits, likelihood.

The equation is in `bmfjax.kernels.effects`, which samples it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import betaln, gammaln, xlog1py, xlogy

from bmfjax.data.packed import pack_bits
from bmfjax.kernels.effect_moves import logistic_terms
from bmfjax.kernels.observed_entries import EntryLists, ObservedEntries

SIDES = ("row", "column")
FACTORS = {"row": "usage", "column": "basis"}


class EffectsPrior(NamedTuple):
    r"""Parameters of the priors.

    Attributes
    ----------
    precision : (float, float)
        Shape and rate of the Gamma priors of both precisions of effects.
    intercept_sd : float
        Standard deviation of the intercept's normal prior, with mean zero.
    dispersion_rate : float
        Rate of the exponential prior of :math:`\lambda`.
    density : (float, float)
        Parameters of the Beta prior of every factor's density.
    """

    precision: tuple[float, float] = (1.0, 1.0)
    intercept_sd: float = 10.0
    dispersion_rate: float = 1.0
    density: tuple[float, float] = (1.0, 1.0)


def entry_logits(position, rows, columns):
    r"""Logit of the probability of a one at any entries, observed or not.

    Parameters
    ----------
    position : dict
        As in `EffectsState`.
    rows, columns : (entry,) int

    Returns
    -------
    (entry,) float

    Examples
    --------
    >>> one = {"usage": jnp.ones((2, 1), jnp.int32), "basis": jnp.array([[1], [0]])}
    >>> entry_logits({**one, "dispersion": 2.0}, jnp.array([0, 1]), jnp.array([0, 1])).tolist()
    [2.0, -2.0]
    """
    logits = 0.0
    if "row_effect" in position:
        row, column = position["row_effect"][rows], position["column_effect"][columns]
        logits = position["intercept"] + row + column
    if "usage" in position:
        used, has = (
            pack_bits(position[f])[index] for f, index in (("usage", rows), ("basis", columns))
        )
        sign = jnp.where(jnp.any(used & has != 0, axis=-1), 1.0, -1.0)
        logits = logits + position["dispersion"] * sign
    return logits


def covered(lists: EntryLists, words, other_words):
    """Whether some factor covers each entry; words (words, lines), of the entries (words, ...)."""
    found = False
    for mine, theirs in zip(words, other_words, strict=True):
        found |= mine[lists.line][:, None] & theirs != 0
    return found


def side_lists(side, data: ObservedEntries) -> EntryLists:
    """The lists of the rows or of the columns."""
    return data.by_row if side == "row" else data.by_column


def effect_logits(side, position, data: ObservedEntries, with_own=True):
    """Intercept and effects at the entries, (chunk, width), in the order of one side."""
    lists = side_lists(side, data)
    if "intercept" not in position:
        return jnp.zeros_like(lists.sign)
    other = "column" if side == "row" else "row"
    logits = position["intercept"] + position[other + "_effect"][lists.other]
    return logits + position[side + "_effect"][lists.line][:, None] if with_own else logits


def entry_signs(side, position, data: ObservedEntries):
    """+1 where an entry is covered and -1 where not, (chunk, width); 0 with rank 0."""
    lists = side_lists(side, data)
    if "usage" not in position:
        return jnp.zeros_like(lists.sign)
    own, other = ("usage", "basis") if side == "row" else ("basis", "usage")
    words, others = (pack_bits(position[n]).T for n in (own, other))
    found = covered(lists, words, [w[lists.other] for w in others])
    return jnp.where(found, 1.0, -1.0).astype(lists.sign.dtype)


def log_likelihood(position, data: ObservedEntries):
    """Log likelihood of the observed entries, () float."""
    logits = effect_logits("row", position, data)
    logits = logits + position.get("dispersion", 0.0) * entry_signs("row", position, data)
    return logistic_terms(data.by_row.sign, logits)[0].sum()


def log_prior(position, prior: EffectsPrior):
    """Log density of the priors, normalised, () float."""
    total = jnp.zeros(())
    if "intercept" in position:
        total += _log_normal(position["intercept"], prior.intercept_sd**-2)
        a, b = prior.precision
        for side in SIDES:
            precision = position[side + "_precision"]
            total += a * jnp.log(b) - gammaln(a) + (a - 1) * jnp.log(precision) - b * precision
            total += _log_normal(position[side + "_effect"], precision).sum()
    if "usage" in position:
        rate = prior.dispersion_rate
        total += jnp.log(rate) - rate * position["dispersion"]
        a, b = prior.density
        for factor in FACTORS.values():
            bits, density = position[factor], position[factor + "_density"]
            total += jnp.sum(xlogy(a - 1, density) + xlog1py(b - 1, -density) - betaln(a, b))
            total += jnp.where(bits != 0, jnp.log(density), jnp.log1p(-density)).sum()
    return total


def _log_normal(x, precision):
    return 0.5 * (jnp.log(precision) - jnp.log(2 * jnp.pi)) - 0.5 * precision * x**2

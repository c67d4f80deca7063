"""Where a feature might be that others leave out: pairs of columns whose residuals go together.

Every pair of columns has the score statistic of a membership that both share: the sum over rows of
the products of their residuals, over its standard deviation without one. In psychometrics it is
nearly Q3 (Yen 1984, "Effects of local item dependence on the fit and equating performance of the
three-parameter logistic model", Applied Psychological Measurement 8). It is largest for a few
columns that are nearly one, whose rows no birth guesses.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

#: Columns that are looked at: all pairs of them.
MOST_COLUMNS = 400
#: Size of a statistic up to which it says nothing, and the weights at first.
NOISE, WEIGHT = 1.0, 2.0


def reseeded(rng, position: dict, signs, *, signed: bool, known: int = 0) -> dict:
    """Return a position, of arrays on the host, in which one feature begins anew.

    It is one that is absent, or else any that comes after `known` ones. A pair of columns is drawn
    by the squares of their statistics given all other features. Rows have the feature where their
    residuals add up to more than nothing.
    """
    there = (position["usage"] != 0).any(0) & (position["basis"] != 0).any(0)
    absent = known + np.flatnonzero(~there[known:])
    k = rng.choice(absent) if len(absent) else rng.integers(known, len(there))
    usage, basis = position["usage"].copy(), position["basis"].copy()
    usage[:, k], basis[:, k] = 0.0, 0.0
    some = rng.permutation(len(signs))[:MOST_COLUMNS]
    shown = signs[some]
    psi = basis[some] @ usage.T + position["column_effect"][some, None]
    chance = expit(psi + position["row_effect"] if "row_effect" in position else psi)
    residuals = np.where(shown != 0, (shown > 0) - chance, 0.0)
    variances = np.where(shown != 0, chance * (1.0 - chance), 0.0)
    first, second = np.triu_indices(len(some), 1)
    score = (residuals @ residuals.T)[first, second]
    score /= np.sqrt((variances @ variances.T)[first, second]) + 1e-6
    size = np.abs(score) if signed else score
    weights = np.maximum(size - NOISE, 0.0) ** 2
    if not weights.sum() > 0:
        return position
    pair = rng.choice(len(weights), p=weights / weights.sum())
    one, other, sign = first[pair], second[pair], np.sign(score[pair])
    usage[:, k] = residuals[one] + sign * residuals[other] > 0
    basis[some[[one, other]], k] = WEIGHT, WEIGHT * sign
    found = position | {"usage": usage, "basis": basis}
    if "presence" in position:
        presence = position["presence"].copy()
        presence[k] = 1.0
        found["presence"] = presence
    return found

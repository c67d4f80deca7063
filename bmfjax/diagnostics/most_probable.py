r"""Boolean factors that are most probable given the observed matrix itself.

A posterior of relaxed factors says which product is likely, not which Boolean factors: an
entry of a tile whose row and column each belong to it for 0.6 has a product of 0.36. So the
relaxed means give the starts only, and the factors are then improved under the Boolean model
that the data are read with: entries flip with a rate for zeros and one for ones,
:math:`\varepsilon_0` and :math:`\varepsilon_1`, and the members of each factor have a density of
their own,

.. math::

   \log p(A, B \mid D) = \sum_{ij \in \Omega} \log p(d_{ij} \mid (A\circ B)_{ij})
       + \sum_k \log \mathrm{B}(n_k + \tfrac12, N - n_k + \tfrac12) + \dots,

the rates and densities integrated over Jeffreys priors; B is the Beta function and the dots are the
same for the basis. The members' densities are what keeps a row out of a small tile that it matches
by chance. The likelihood is that of Rukat, Holmes, Titsias and Yau (2017) with two flip rates in
the place of one. The maximum is searched for from every start: one column after the other is set
to the values that are best given the rates and densities of the sweep, which need not be best once
these have followed, so that the best factors visited are kept; factors that are not missed are then
emptied. The best end of all starts is returned. It is a local optimum at most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import betaln

from bmfjax.data.errors import InputError
from bmfjax.diagnostics.flips import coverage, set_column, uncovered_gains
from bmfjax.diagnostics.reconstruction import boolean_product, check_boolean, check_reference

#: Jeffreys prior of a probability.
HALF = 0.5


class MostProbable(NamedTuple):
    """Boolean factors and their log posterior density, up to a constant of the data."""

    usage: np.ndarray
    basis: np.ndarray
    log_posterior: float


def most_probable_factors(starts, ones, observed=None, *, max_sweeps=30) -> MostProbable:
    """Find the most probable Boolean factors from some starts.

    Parameters
    ----------
    starts : sequence of (usage, basis)
        Boolean factors (rows, rank) and (columns, rank); at least one pair.
    ones : array, (rows, columns)
        The observed matrix, 0/1; what it holds at unobserved entries does not matter.
    observed : array, (rows, columns), bool, optional
        All by default.
    max_sweeps : int
        Passes over all factors at most, from each start.

    Returns
    -------
    MostProbable
        A factor without which the rest is as probable is empty in both.

    Raises
    ------
    InputError
        Without a start, or for one that is not Boolean or of another shape.

    Examples
    --------
    >>> ones = np.kron(np.eye(2), np.ones((6, 5)))
    >>> ones[0, 0] = 0  # flipped
    >>> start = np.repeat(np.eye(2, dtype=bool), 6, 0), np.repeat(np.eye(2, dtype=bool), 5, 0)
    >>> start[0][1] = False  # a member left out
    >>> most_probable_factors([start], ones).usage[:2, 0]
    array([ True,  True])
    """
    if not starts:
        raise InputError("no start is given; give at least one pair of Boolean factors")
    ones = np.asarray(ones, bool)
    observed = np.ones(ones.shape, bool) if observed is None else np.asarray(observed, bool)
    best = None
    for usage, basis in starts:
        usage, basis = np.array(usage), np.array(basis)
        check_boolean(usage, basis)
        check_reference(usage, basis, ones, observed)
        found = _climb(usage, basis, ones, observed, max_sweeps)
        score = log_posterior(*found, ones, observed)
        if best is None or score > best.log_posterior:
            best = MostProbable(*found, score)
    return best


def log_posterior(usage, basis, ones, observed) -> float:
    """Return the log posterior of Boolean factors, flip rates and densities integrated out."""
    counts = _counts(boolean_product(usage, basis), ones, observed)
    value = sum(betaln(wrong + HALF, right + HALF) for wrong, right in counts)
    for factor in (usage, basis):
        members = factor.sum(0)
        value += betaln(members + HALF, len(factor) - members + HALF).sum()
    return float(value)


def _counts(product, ones, observed):
    """Count (flipped, kept) entries where the product is zero, and where it is one."""
    hits = int((product & ones & observed).sum())
    covered = int((product & observed).sum())
    total, positive = int(observed.sum()), int((ones & observed).sum())
    return (positive - hits, total - covered - (positive - hits)), (covered - hits, hits)


def _climb(usage, basis, ones, observed, max_sweeps):
    covers = coverage(usage, basis)
    best = usage.copy(), basis.copy(), log_posterior(usage, basis, ones, observed)
    for _ in range(max_sweeps):
        gain = _log_odds(covers > 0, ones, observed)
        changed = False
        for k in range(usage.shape[1]):
            changed |= _improve(gain, covers, usage[:, k], basis[:, k])
            changed |= _improve(gain.T, covers.T, basis[:, k], usage[:, k])
        if not changed:
            break
        score = log_posterior(usage, basis, ones, observed)
        if score > best[2]:
            best = usage.copy(), basis.copy(), score
    return _without_idle_factors(*best, ones, observed)


def _without_idle_factors(usage, basis, score, ones, observed):
    """Empty every factor without which the rest is as probable, the smallest first."""
    for k in np.argsort(usage.sum(0) * basis.sum(0), kind="stable"):
        fewer = usage.copy(), basis.copy()
        fewer[0][:, k], fewer[1][:, k] = False, False
        without = log_posterior(*fewer, ones, observed)
        if without >= score - 1e-9:
            (usage, basis), score = fewer, without
    return usage, basis


def _log_odds(product, ones, observed):
    """Return the log likelihood ratio of a one at every entry, at the rates of this product."""
    (flips_0, kept_0), (flips_1, kept_1) = _counts(product, ones, observed)
    rate_0 = (flips_0 + HALF) / (flips_0 + kept_0 + 1.0)
    rate_1 = (flips_1 + HALF) / (flips_1 + kept_1 + 1.0)
    present = np.log((1.0 - rate_1) / rate_0)
    absent = np.log(rate_1 / (1.0 - rate_0))
    return np.where(observed, np.where(ones, present, absent), 0.0).astype(np.float32)


def _improve(gain, covers, mine, partner) -> bool:
    """Set `mine` to its best values in place, keep `covers` right; True if anything changed."""
    columns, _, gains = uncovered_gains(gain, covers, mine, partner, dtype=float)
    others = mine.sum() - mine
    prior = np.log((others + HALF) / (len(mine) - 1 - others + HALF))
    return set_column(covers, mine, columns, gains + prior > 0)

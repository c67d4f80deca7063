r"""Boolean factors that are most probable given the observed matrix itself.

A posterior of relaxed factors says which product is likely, not which Boolean factors: an
entry of a tile whose row and column each belong to it for 0.6 has a product of 0.36. So the
relaxed means give the starts only, and the factors are then improved under the Boolean model
that the data are read with: entries flip with a rate for zeros and one for ones,
:math:`\varepsilon_0` and :math:`\varepsilon_1`, or with one for both, and the members of each
factor have a density of their own,

.. math::

   \log p(A, B \mid D) = \sum_{ij \in \Omega} \log p(d_{ij} \mid (A\circ B)_{ij})
       + \sum_k \log \mathrm{B}(n_k + \tfrac12, N - n_k + \tfrac12) + \dots,

the rates and densities integrated over Jeffreys priors; B is the Beta function and the dots are the
same for the basis. The members' densities are what keeps a row out of a small tile that it matches
by chance. With one rate the likelihood is that of Rukat, Holmes, Titsias and Yau (2017). The
maximum is searched for from every start: one column after the other is set
to the values that are best given the rates and densities of the sweep, which need not be best once
these have followed, so that the best factors visited are kept; factors that are not missed are then
emptied. The best end of all starts is returned. It is a local optimum at most.

Given the rates, two numbers of a member matter: how many ones and how many zeros there are among
the entries that no other factor covers. They are counted on packed words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import betaln

from bmfjax.data.bits import count_ones, pack_on_host, product_words
from bmfjax.data.errors import InputError
from bmfjax.diagnostics.reconstruction import check_boolean, check_reference
from bmfjax.diagnostics.trust import unions_after

#: Jeffreys prior of a probability.
HALF = 0.5


class MostProbable(NamedTuple):
    """Boolean factors and their log posterior density, up to a constant of the data."""

    usage: np.ndarray
    basis: np.ndarray
    log_posterior: float


def most_probable_factors(
    starts, ones, observed=None, *, max_sweeps=30, known=None, num_rates=2
) -> MostProbable:
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
    known : array, (columns, number), float, optional
        The basis of the first factors, 0 or 1, which stays so, whatever the starts have; NaN is not
        known.
    num_rates : {1, 2}
        Rates of flips: one for all entries, or one for zeros and one for ones.

    Returns
    -------
    MostProbable
        Factors without which the rest is as probable, tried once each, are empty in both; known
        ones keep their basis.

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
    data = _packed(ones, observed, num_rates)
    best = None
    for usage, basis in starts:
        usage, basis = np.array(usage), np.array(basis)
        check_boolean(usage, basis)
        check_reference(usage, basis, ones, observed)
        found = _climb(usage, basis, data, max_sweeps, _Known.of(known, basis))
        if best is None or found.log_posterior > best.log_posterior:
            best = found
    return best


def log_posterior(usage, basis, ones, observed, num_rates: int = 2) -> float:
    """Return the log posterior of Boolean factors, flip rates and densities integrated out."""
    return _log_posterior(usage, basis, _packed(np.asarray(ones, bool), observed, num_rates))


class _Known(NamedTuple):
    """Bits of the basis that stay."""

    given: np.ndarray  # (columns, rank) bool
    ones: np.ndarray  # (columns, rank) bool

    @classmethod
    def of(cls, known, basis):
        values = np.full(basis.shape, np.nan)
        if known is not None:
            values[:, : known.shape[1]] = known
        return cls(~np.isnan(values), values == 1)

    def restore(self, basis, k=slice(None)) -> None:
        """Set the bits of factor k, or of all, in place."""
        given = self.given[:, k]
        basis[:, k][given] = self.ones[:, k][given]


class _Packed(NamedTuple):
    """Observed ones and zeros as words, a line holds a row or a column; and how many rates flip."""

    rows: tuple[np.ndarray, np.ndarray]
    columns: tuple[np.ndarray, np.ndarray]
    num_rates: int


def _packed(ones, observed, num_rates: int) -> _Packed:
    each = ones & observed, ~ones & observed
    return _Packed(
        tuple(map(pack_on_host, each)),
        tuple(pack_on_host(e, transposed=True) for e in each),
        num_rates,
    )


def _log_posterior(usage, basis, data) -> float:
    value = sum(betaln(wrong + HALF, right + HALF) for wrong, right in _flips(usage, basis, data))
    for factor in (usage, basis):
        members = factor.sum(0)
        value += betaln(members + HALF, len(factor) - members + HALF).sum()
    return float(value)


def _flips(usage, basis, data) -> list[tuple[int, int]]:
    """Count (flipped, kept) entries for each rate."""
    counts = _counts(usage, basis, data)
    return [tuple(map(sum, zip(*counts, strict=True)))] if data.num_rates == 1 else [*counts]


def _counts(usage, basis, data):
    """Count (flipped, kept) entries where the product is zero, and where it is one."""
    product = product_words(usage.T, pack_on_host(basis, transposed=True))
    ones, zeros = data.rows
    hits, misses = (int(count_ones(product & w).sum()) for w in (ones, zeros))
    all_ones, all_zeros = (int(count_ones(w).sum()) for w in (ones, zeros))
    return (all_ones - hits, all_zeros - misses), (misses, hits)


def _climb(usage, basis, data, max_sweeps, known: _Known) -> MostProbable:
    """Improve one start in place; return the best factors visited."""
    known.restore(basis)
    best = usage.copy(), basis.copy(), _log_posterior(usage, basis, data)
    for _ in range(usage.shape[1] + 1):
        best = _swept(*best, data, max_sweeps, known)
        fewer = _without_idle_factors(*best, data, known)
        if fewer is None:
            break
        best = fewer  # what it covered alone may now belong to others
    return MostProbable(*best)


def _swept(usage, basis, score, data, max_sweeps, known):
    """Sweep until nothing changes; return the best factors visited and their log posterior."""
    best, usage, basis = (usage, basis, score), usage.copy(), basis.copy()
    for _ in range(max_sweeps):
        if not _sweep(usage, basis, data, _log_odds(usage, basis, data), known):
            break
        score = _log_posterior(usage, basis, data)
        if score > best[2]:
            best = usage.copy(), basis.copy(), score
    return best


def _without_idle_factors(usage, basis, score, data, known):
    """Empty every factor without which the rest is as probable, the smallest first; None: none."""
    size, emptied = usage.sum(0) * basis.sum(0), False
    for k in np.argsort(size, kind="stable"):
        fewer = usage.copy(), basis.copy()
        fewer[0][:, k], fewer[1][:, k] = False, False
        known.restore(fewer[1], k)
        without = _log_posterior(*fewer, data)
        if without >= score - 1e-9:
            emptied |= bool(size[k])
            (usage, basis), score = fewer, without
    return (usage, basis, score) if emptied else None


def _log_odds(usage, basis, data) -> tuple[float, float]:
    """Return the log likelihood ratio of a one, at a one and at a zero, given this product."""
    rates = [(wrong + HALF) / (wrong + right + 1.0) for wrong, right in _flips(usage, basis, data)]
    rate_0, rate_1 = rates[0], rates[-1]
    return float(np.log((1.0 - rate_1) / rate_0)), float(np.log(rate_1 / (1.0 - rate_0)))


def _sweep(usage, basis, data, odds, known) -> bool:
    """Set one factor after the other to its best values in place; True if anything changed.

    What the other factors cover is kept as words, of those that were set in this sweep and, for
    every factor, of those that are still to come.
    """
    words = pack_on_host(usage, transposed=True), pack_on_host(basis, transposed=True)
    to_come = unions_after(usage, words[1]), unions_after(basis, words[0])
    done = tuple(np.zeros_like(unions[0]) for unions in to_come)
    changed = False
    for k in range(usage.shape[1]):
        mine = usage[:, k], basis[:, k]
        others = tuple(d | unions[k] for d, unions in zip(done, to_come, strict=True))
        changed |= _improve(mine[0], words[1][k], others[0], data.rows, odds)
        words[0][k] = pack_on_host(mine[0][None])[0]
        changed |= _improve(mine[1], words[0][k], others[1], data.columns, odds, known.given[:, k])
        words[1][k] = pack_on_host(mine[1][None])[0]
        done[0][mine[0]] |= words[1][k]
        done[1][mine[1]] |= words[0][k]
    return changed


def _improve(mine, partner_words, others, lines, odds, stays=None) -> bool:
    """Set one side of a factor to its best values in place; True if anything changed.

    What `stays`, (lines,) bool, is left as it is.
    """
    alone = partner_words & ~others
    gains = sum(odd * count_ones(alone & w) for odd, w in zip(odds, lines, strict=True))
    members = mine.sum() - mine
    best = gains + np.log((members + HALF) / (len(mine) - 1 - members + HALF)) > 0
    best = best if stays is None else np.where(stays, mine, best)
    changed = bool((best != mine).any())
    mine[:] = best
    return changed

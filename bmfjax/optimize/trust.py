r"""Which tiles of an optimiser to trust (TrustPal).

An optimiser returns a tile wherever one lowers its cost, in noise too. `trusted` keeps those that
noise alone hardly holds.
"""

from __future__ import annotations

import numbers
from typing import NamedTuple

import numpy as np

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.errors import InputError
from bmfjax.diagnostics.reconstruction import check_boolean, check_factors
from bmfjax.diagnostics.trust import check_level, log_density_bound, noise_rates
from bmfjax.optimize.palm import arrays_of


class Trusted(NamedTuple):
    """The tiles that are kept, and what was said of each that was found.

    Attributes
    ----------
    usage : array, (rows, kept), bool
    basis : array, (columns, kept), bool
    kept : array, (found,), bool
        Which of the tiles that were given these are.
    bound : array, (found,), float64
        Bound on the probability that noise alone holds a tile as large and as dense, by what the
        tile adds to more certain ones. For a tile that is not kept, the one with which it was left
        out.
    noise : array, (found,), float64
        Probability of a one in the noise that the bound was computed with.
    """

    usage: np.ndarray
    basis: np.ndarray
    kept: np.ndarray
    bound: np.ndarray
    noise: np.ndarray


def trusted(tiling, data: BinaryMatrix, fdr: float = 0.05, *, noise: float | None = None):
    r"""Keep the tiles that are not noise, at a false discovery rate (TrustPal, by density).

    A tile of :math:`a` rows and :math:`b` columns is kept where

    .. math:: \binom{n}{a} \binom{m}{b} \exp(-c\,\mathrm{KL}(\delta \| p)) \le q
              \quad\text{and}\quad \delta > p,

    with :math:`\delta` the share of ones among the :math:`c` observed entries of the tile that no
    more certain tile covers. The left side bounds the probability that an :math:`n \times m` matrix
    of noise holds a tile of that size with that density anywhere
    (`bmfjax.diagnostics.density_bound`). If every tile that is kept is false with a probability of
    at most :math:`q`, then so is their expected share of false ones.

    Parameters
    ----------
    tiling : Tiling, Polished or a pair
        Boolean factors: usage (rows, found) and basis (columns, found) are its first two fields.
    data : BinaryMatrix
        The matrix in which they were found. Missing entries do not count.
    fdr : float
        The level :math:`q`, between 0 and 1.
    noise : float, optional
        Probability :math:`p` of a one in the noise, if it is known. By default the share of ones
        among the entries that no other kept tile covers (`bmfjax.diagnostics.noise_rates`).

    Returns
    -------
    Trusted

    Raises
    ------
    InputError
        Factors that are not Boolean or of other shapes than the data, data that are no
        `BinaryMatrix`, or numbers outside their bounds.

    Notes
    -----
    The noise is assumed to be independent and of one rate, so that rows or columns with more ones
    than others may pass for a tile. The bound is over all places of a tile of the size that was
    found. It is not over all sizes, although the data choose the size, too. On the other hand it
    adds up places that overlap as if they did not.

    The published bound counts all entries of a tile. Then a tile that repeats another, and adds a
    few ones of the noise to it, passes by the ones of the other; hence a tile answers for what it
    adds. A tile that is left out is noise, and its ones count as such for those that remain. This
    is repeated until all that remain are kept.

    The probability that a tile is real, given a model and the data, is what ``fit.tiles()`` has.

    References
    ----------
    Hess, Piatkowski, Morik (2018), "The Trustworthy Pal: Controlling the False Discovery Rate in
    Boolean Matrix Factorization", SDM, arXiv:1907.00697. The divergence stands in the place of
    their :math:`2 (\delta - p)^2`, which it is never below; and they bound tiles by their coherence
    as well.

    Examples
    --------
    One tile of 12 x 9 in noise, and one that an optimiser might add to it:

    >>> r = np.random.default_rng(0)
    >>> ones = r.random((60, 40)) < 0.1
    >>> ones[:12, :9] = True
    >>> usage, basis = np.zeros((60, 2), bool), np.zeros((40, 2), bool)
    >>> usage[:12, 0] = basis[:9, 0] = True
    >>> basis[20:22, 1], usage[:, 1] = True, ones[:, 20:22].all(axis=1)
    >>> found = trusted((usage, basis), BinaryMatrix(ones))
    >>> found.kept, found.usage.shape
    (array([ True, False]), (60, 1))
    """
    level = check_level(fdr)
    if noise is not None and not isinstance(noise, numbers.Real):
        raise InputError(f"noise is {noise!r}; give a probability from 0 to 1, or leave it out")
    usage, basis = map(np.asarray, tiling[:2])
    check_boolean(usage, basis)
    check_factors(usage, basis)
    ones, counted = arrays_of(data)
    if (len(usage), len(basis)) != data.shape:
        raise InputError(
            f"the tiles make a matrix of shape {(len(usage), len(basis))} and the data have "
            f"{data.shape}; give the matrix in which they were found"
        )
    counted = np.ones(data.shape, bool) if counted is None else counted
    found = usage.shape[1]
    kept, bound, rates = np.ones(found, bool), np.ones(found), np.full(found, np.nan)
    while True:
        left = np.flatnonzero(kept)
        some = usage[:, left], basis[:, left]
        rates[left] = noise_rates(data, *some) if noise is None else noise
        bound[left] = _bounds(*some, ones, counted, rates[left], level)
        kept = kept & (bound <= level)
        if kept[left].all():
            return Trusted(*some, kept, bound, rates)


def _bounds(usage, basis, ones, counted, noise, level):
    """Bound tile after tile, the most certain first, by the entries that none before covers."""
    sizes = usage.sum(0), basis.sum(0)
    free = counted.copy()

    def log_bound(k):
        places = np.ix_(usage[:, k], basis[:, k])
        open_ = free[places]
        counts = (ones[places] & open_).sum(), open_.sum()
        given = sizes[0][k], sizes[1][k], *counts, ones.shape, noise[k]
        return log_density_bound(*given)[0]

    alone = np.array([log_bound(k) for k in range(len(noise))])
    bound = np.ones(len(noise))
    for k in np.argsort(alone, kind="stable"):
        bound[k] = np.exp(log_bound(k))
        if bound[k] <= level:
            free[np.ix_(usage[:, k], basis[:, k])] = False
    return bound

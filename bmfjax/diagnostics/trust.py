r"""Which tiles to trust: selection at a false discovery rate, and a bound on what noise can do.

`select_tiles` is Bayesian: it reads posterior probabilities. `density_bound` is not: it asks how
likely a matrix of noise alone is to hold a tile as large and as dense somewhere.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, rel_entr

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.bits import count_ones, pack_on_host
from bmfjax.data.blocks import blocks
from bmfjax.data.checks import one_of
from bmfjax.data.errors import InputError

TAILS = ("chernoff", "hoeffding")


def density_bound(rows, columns, ones, observed, *, shape, noise, tail: str = "chernoff"):
    r"""Bound the probability that noise alone holds a tile as large and as dense.

    In an :math:`n \times m` matrix of independent ones with probability :math:`p`, a given tile of
    :math:`a` rows and :math:`b` columns has a share of ones of at least :math:`\delta > p` with a
    probability of at most :math:`\exp(-c\,\mathrm{KL}(\delta \| p))`, where :math:`c` is the number
    of its observed entries. The union over all places of the tile gives

    .. math::

       P(\text{some tile}) \le \binom{n}{a} \binom{m}{b} \exp(-c\,\mathrm{KL}(\delta \| p)),
       \qquad \mathrm{KL}(\delta \| p) = \delta \log\frac{\delta}{p}
       + (1 - \delta) \log\frac{1 - \delta}{1 - p}.

    Parameters
    ----------
    rows, columns : (tile,) int
        Numbers of rows and columns, :math:`a` and :math:`b`.
    ones, observed : (tile,) int
        Ones in every tile, and its observed entries :math:`c`, as of `BinaryMatrix.tile_counts`.
    shape : (int, int)
        Rows and columns of the matrix.
    noise : float or (tile,) float
        Probability :math:`p` of a one in the noise; see `noise_rates`.
    tail : {"chernoff", "hoeffding"}
        "hoeffding" has :math:`2 (\delta - p)^2` in the place of the divergence, as published. It is
        never smaller.

    Returns
    -------
    (tile,) float64
        From 0 to 1; 1 where a tile is empty or no denser than the noise. Several tiles are each
        bounded alone.

    Raises
    ------
    InputError
        For counts that contradict each other or `shape`, and a `noise` outside [0, 1].

    References
    ----------
    Hess, Piatkowski, Morik (2018), "The Trustworthy Pal: Controlling the False Discovery Rate in
    Boolean Matrix Factorization", SDM, arXiv:1907.00697: the bound by density, for tiles of which
    every entry is observed.

    Examples
    --------
    A tile of 8 x 8 with 58 ones, and one of 2 x 2 with 4, in noise with a tenth of ones:

    >>> bound = density_bound([8, 2], [8, 2], [58, 4], [64, 4], shape=(60, 40), noise=0.1)
    >>> bool(bound[0] < 1e-20), float(bound[1])
    (True, 1.0)
    """
    return np.exp(log_density_bound(rows, columns, ones, observed, shape, noise, tail))


def log_density_bound(rows, columns, ones, observed, shape, noise, tail: str = "chernoff"):
    """Return the logarithm of `density_bound`, which does not vanish where many tiles are sure."""
    one_of("tail", tail, TAILS)
    counts = [np.atleast_1d(np.asarray(c, float)) for c in (rows, columns, ones, observed)]
    a, b, ones, observed = np.broadcast_arrays(*counts)
    p, (n, m) = np.asarray(noise, float), shape
    if not ((p >= 0) & (p <= 1)).all():
        raise InputError(f"noise is {noise}; give a probability of a one, from 0 to 1")
    whole = (ones >= 0) & (ones <= observed) & (observed <= a * b) & (a <= n) & (b <= m)
    if not (whole & (a >= 0) & (b >= 0)).all():
        raise InputError(
            f"a tile has more ones than observed entries, or more of these than its rows x "
            f"columns, or does not fit into {n} x {m}; give the counts of tiles of this matrix"
        )
    share = np.divide(ones, observed, out=np.zeros_like(ones), where=observed > 0)
    if tail == "chernoff":
        exponent = rel_entr(share, p) + rel_entr(1 - share, 1 - p)
    else:
        exponent = 2 * (share - p) ** 2
    dense = share > p
    # Where the noise has no ones at all the exponent is infinite, which 0 entries must not meet.
    log = _log_choose(n, a) + _log_choose(m, b) - observed * np.where(dense, exponent, 0.0)
    return np.where(dense, np.minimum(log, 0.0), 0.0)


def _log_choose(n, k):
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)


def noise_rates(data: BinaryMatrix, usage, basis) -> np.ndarray:
    r"""Return, for every tile, the share of ones among the entries that no other tile covers.

    A tile that is noise belongs to the noise itself, so that its own entries count.

    Parameters
    ----------
    data : BinaryMatrix (rows, columns)
    usage : (rows, rank) bool
    basis : (columns, rank) bool

    Returns
    -------
    (rank,) float64
        :math:`(s + \tfrac12) / (c + 1)` for :math:`s` ones among :math:`c` observed entries, the
        mean under Jeffreys' prior.

    Examples
    --------
    >>> data = BinaryMatrix(np.kron(np.eye(2), np.ones((3, 3))))
    >>> usage = basis = np.kron(np.eye(2), np.ones((3, 1))) > 0
    >>> noise_rates(data, usage, basis).round(2)  # 9 ones among 27 entries outside of the other
    array([0.34, 0.34])
    """
    usage, basis = np.asarray(usage, bool), np.asarray(basis, bool)
    rank, words = usage.shape[1], pack_on_host(basis, transposed=True)
    packed = data.packed()
    ones, cells = np.zeros((2, rank))
    for some in blocks(data.num_rows, (rank + 1) * words.shape[1]):
        hits = packed.ones[some]
        seen = None if packed.observed is None else packed.observed[some]
        after, before = unions_after(usage[some], words), np.zeros_like(hits)
        for k in range(rank):
            others = before | after[k]
            ones[k] += count_ones(hits & ~others).sum()
            if seen is None:
                cells[k] += len(hits) * data.num_columns - count_ones(others).sum()
            else:
                cells[k] += count_ones(seen & ~others).sum()
            before[usage[some, k]] |= words[k]
    return (ones + 0.5) / (cells + 1.0)


def unions_after(usage, words):
    """Return what the factors after each one cover: (rank, rows, words)."""
    rank = usage.shape[1]
    unions = np.zeros((rank, len(usage), words.shape[1]), np.uint32)
    for k in range(rank - 1, 0, -1):
        unions[k - 1] = unions[k]
        unions[k - 1][usage[:, k]] |= words[k]
    return unions


def select_tiles(probability, fdr: float = 0.05) -> np.ndarray:
    r"""Select discoveries at a Bayesian false discovery rate.

    With :math:`p_{(1)} \ge p_{(2)} \ge \dots` the sorted posterior probabilities of being true, the
    :math:`d` most probable are selected, for the largest :math:`d` with

    .. math:: \frac1d \sum_{i \le d} (1 - p_{(i)}) \le q.

    The left side is the expected share of false ones among the selected, given the data.

    Parameters
    ----------
    probability : (tile,) float
        Posterior probability that each is real.
    fdr : float
        The level :math:`q`, between 0 and 1.

    Returns
    -------
    (tile,) bool
        Among equal probabilities at the end of the list, the first in the order given.

    Raises
    ------
    InputError
        For a level that is not between 0 and 1, and probabilities outside [0, 1].

    References
    ----------
    Müller, Parmigiani, Robert, Rousseau (2004), "Optimal sample size for multiple testing: the
    case of gene expression microarrays", JASA 99(468); Newton, Noueiry, Sarkar, Ahlquist (2004),
    "Detecting differential gene expression with a semiparametric hierarchical mixture method",
    Biostatistics 5(2).

    Examples
    --------
    >>> select_tiles([0.99, 0.3, 0.93], fdr=0.05)
    array([ True, False,  True])
    """
    level = check_level(fdr)
    p = np.asarray(probability, float)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise InputError("a probability is outside of [0, 1] or NaN; give one for every tile")
    order = np.argsort(-p, kind="stable")
    false = np.cumsum(1.0 - p[order])
    # The mean rises with every further one; rounding must not leave out a set that is at the level.
    number = int((false <= level * np.arange(1, len(p) + 1) * (1 + 1e-12) + 1e-12).sum())
    kept = np.zeros(len(p), bool)
    kept[order[:number]] = True
    return kept


def check_level(fdr) -> float:
    """Return a level of a false discovery rate, or refuse it."""
    number = isinstance(fdr, float | int | np.floating | np.integer) and not isinstance(fdr, bool)
    if not number or not 0 < fdr < 1:
        raise InputError(f"fdr is {fdr!r}; give a number between 0 and 1, such as 0.05")
    return float(fdr)

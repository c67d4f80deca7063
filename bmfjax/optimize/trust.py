r"""How probable it is that noise alone has a tile as dense as one that was found.

Among the :math:`\binom{n}{a}\binom{m}{b}` tiles of a rows and b columns of an n x m matrix of
independent Bernoulli(p) entries, the probability that any holds a share of at least
:math:`\delta > p` of ones is at most

.. math:: \binom{n}{a} \binom{m}{b} \exp(-ab\, \mathrm{KL}(\delta \| p)), \qquad
          \mathrm{KL}(\delta \| p) = \delta \log\frac{\delta}{p}
          + (1 - \delta) \log\frac{1 - \delta}{1 - p},

by the union bound and Chernoff's. With :math:`2(\delta - p)^2` in the place of the divergence it is
Hoeffding's, which is never smaller (Hess, Piatkowski, Morik 2018, "The trustworthy pal: controlling
the false discovery rate in Boolean matrix factorization", SDM, control the share of false tiles by
a bound from the density). It is no Bayesian answer: it asks what noise could do and not what is
probable.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, rel_entr

from bmfjax.data.errors import InputError
from bmfjax.diagnostics.reconstruction import check_boolean, check_reference


def density_bound(rows, columns, density, noise, shape, entries=None):
    """Bound the log probability that noise holds a tile of a size with at least a density.

    Parameters
    ----------
    rows, columns : int or array of int
        Size of the tile.
    density : float or array
        Share of ones in it.
    noise : float
        Probability of a one in the noise, in (0, 1).
    shape : (int, int)
        Of the matrix.
    entries : int or array of int, optional
        Observed entries of the tile; default all.

    Returns
    -------
    array, float64
        Natural logarithm of the bound, at most 0; exactly 0 where `density` is at most `noise`.

    Raises
    ------
    InputError
        `noise` or `density` outside its bounds, or a tile larger than the matrix.

    Examples
    --------
    >>> density_bound(8, 8, np.array([0.05, 0.2, 0.9]), 0.05, (512, 512)).round(1)
    array([  0. ,   0. , -73.6])
    """
    rows, columns = np.asarray(rows, float), np.asarray(columns, float)
    density = np.asarray(density, float)
    if not 0 < noise < 1 or not ((density >= 0) & (density <= 1)).all():
        raise InputError(
            f"noise is {noise!r} and densities span {density.min()} to {density.max()}; "
            "give noise between 0 and 1, and densities in [0, 1]"
        )
    if (
        (rows > shape[0]).any()
        or (columns > shape[1]).any()
        or (np.minimum(rows, columns) < 0).any()
    ):
        raise InputError(f"a tile does not fit into {shape}; give sizes of at most those")
    entries = rows * columns if entries is None else np.asarray(entries, float)
    divergence = rel_entr(density, noise) + rel_entr(1 - density, 1 - noise)
    choices = _log_choose(shape[0], rows) + _log_choose(shape[1], columns)
    bound = np.minimum(choices - entries * divergence, 0.0)
    return np.where(density > noise, bound, 0.0)


def tile_density_bound(usage, basis, data, noise, observed=None):
    """Bound, for each factor, the log probability that noise alone has a tile as dense.

    Keep the factors below the logarithm of the level that you can bear. To cover tiles of every
    size add ``np.log(rows * columns)``, the number of sizes.

    Parameters
    ----------
    usage : array, (rows, rank), bool
    basis : array, (columns, rank), bool
    data : array, (rows, columns)
        0/1 or bool.
    noise : float
        Probability of a one in the noise, such as the density outside all tiles.
    observed : array, (rows, columns), bool, optional
        Entries that count; all by default.

    Returns
    -------
    array, (rank,), float64
        At most 0; 0 for an empty factor.

    Raises
    ------
    InputError
        As :func:`density_bound`, factors that are not Boolean, or shapes that do not belong
        together.

    Examples
    --------
    >>> data = np.kron(np.eye(2, dtype=bool), np.ones((9, 9), bool))
    >>> usage = np.repeat(np.eye(2, dtype=bool), 9, axis=0)
    >>> usage[1:, 1] = False  # the second factor is left with no rows
    >>> tile_density_bound(usage, usage[:, [0, 0]], data, 0.1).round(1)
    array([-164.9,    0. ])
    """
    usage, basis = np.asarray(usage), np.asarray(basis)
    check_boolean(usage, basis)
    ones, counted = check_reference(usage, basis, data, observed)
    counted = np.ones(ones.shape, bool) if counted is None else counted

    def within(array):
        # Double precision counts exactly, and the product runs in BLAS.
        return np.einsum("ik,ik->k", usage.astype(float), array.astype(float) @ basis)

    entries = within(counted)
    density = np.divide(
        within(ones & counted), entries, out=np.zeros_like(entries), where=entries > 0
    )
    sizes = usage.sum(axis=0), basis.sum(axis=0)
    return density_bound(*sizes, density, noise, ones.shape, entries)


def _log_choose(n, k):
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)

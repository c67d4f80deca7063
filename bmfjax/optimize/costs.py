r"""What a Boolean factorisation costs: regularised errors, and the length of a code.

For a matrix D with rows i and columns j let :math:`N = |D - Y \circ X^T|` be the wrong entries, and
:math:`|\cdot|` the number of ones of a matrix, a row or a column.
"""

from __future__ import annotations

import numpy as np

from bmfjax.data.bits import product_on_host
from bmfjax.diagnostics.reconstruction import check_boolean, check_reference


def regularised_error(usage, basis, data, observed=None) -> float:
    r"""Return the number of wrong entries and of ones of both factors, :math:`|N| + |Y| + |X|`.

    Parameters
    ----------
    usage : array, (rows, rank), bool
    basis : array, (columns, rank), bool
    data : array, (rows, columns)
        0/1 or bool; what it holds at unobserved entries does not matter.
    observed : array, (rows, columns), bool, optional
        Entries that count; all by default.

    Returns
    -------
    float

    Raises
    ------
    InputError
        Factors that are not Boolean, shapes that do not belong together, or an observed entry that
        is neither 0 nor 1.

    References
    ----------
    Hess, Morik, Piatkowski (2017), "The PRIMPING routine: tiling through proximal alternating
    linearized minimization", Data Mining and Knowledge Discovery 31: the cost of PanPal. Gonsior
    (2019), equation 2.5.

    Examples
    --------
    >>> one = np.array([[True], [False]])
    >>> regularised_error(one, one, [[1, 0], [0, 1]])
    3.0
    """
    usage, basis, wrong = _wrong(usage, basis, data, observed)
    return float(wrong.sum() + usage.sum() + basis.sum())


def tile_code_length(usage, basis, data, observed=None) -> float:
    r"""Return the length in nats of the code of a matrix by tiles and single columns.

    A row is written as a set of code words: those of its tiles, and for every wrong entry that of
    the column. Words have the optimal lengths for how often they are used, which is
    :math:`a_k = |Y_{\cdot k}|` for a tile and :math:`b_j = |N_{\cdot j}|` for a column; with T the
    sum of all these,

    .. math:: -\sum_k a_k \log\frac{a_k}{T} - \sum_j b_j \log\frac{b_j}{T}
              + \sum_{k: a_k > 0} \Big(c^T X_{\cdot k} - \log\frac{a_k}{T}\Big)
              + \sum_{j: b_j > 0} \Big(c_j - \log\frac{b_j}{T}\Big).

    The last two sums are the table of the code: the columns of each tile, written in the code
    without tiles, :math:`c_j = -\log(|D_{\cdot j}| / |D|)`, and the words themselves.

    Parameters
    ----------
    usage, basis, data, observed
        As for :func:`regularised_error`.

    Returns
    -------
    float
        In nats.

    Raises
    ------
    InputError
        As :func:`regularised_error`.

    References
    ----------
    Siebes, Vreeken, van Leeuwen (2006), "Item sets that compress", SDM; Hess, Morik, Piatkowski
    (2017): the cost of Primp.

    Examples
    --------
    >>> data, row, none = np.ones((8, 2), bool), np.ones((8, 1), bool), np.zeros((8, 0), bool)
    >>> [round(tile_code_length(f, f[:2], data), 2) for f in (row, none)]
    [1.39, 13.86]
    """
    usage, basis, wrong = _wrong(usage, basis, data, observed)
    counted = np.asarray(data) == 1 if observed is None else (np.asarray(data) == 1) & observed
    return code_length_of(usage, basis, wrong.sum(axis=0), item_lengths(counted.sum(axis=0)))


def code_length_of(usage, basis, wrong, items) -> float:
    """Return the code length from the wrong entries of each column and the lengths of columns."""
    used, wrong = usage.sum(axis=0, dtype=float), np.asarray(wrong, float)
    total = used.sum() + wrong.sum()
    tiles, columns = used > 0, wrong > 0
    words = -np.log(used[tiles] / total), -np.log(wrong[columns] / total)
    in_data = used[tiles] @ words[0] + wrong[columns] @ words[1]
    in_table = (basis[:, tiles].T @ items).sum() + items[columns].sum() + sum(map(np.sum, words))
    return float(in_data + in_table)


def item_lengths(counts):
    """Return the code lengths of columns with so many ones; none counts as one."""
    counts = np.asarray(counts, float)
    return np.log(max(1.0, counts.sum())) - np.log(np.maximum(counts, 1.0))


def _wrong(usage, basis, data, observed):
    usage, basis = np.asarray(usage), np.asarray(basis)
    check_boolean(usage, basis)
    ones, counted = check_reference(usage, basis, data, observed)
    wrong = product_on_host(usage, basis) != ones
    return usage, basis, wrong if counted is None else wrong & counted

r"""How many bits a binary matrix takes, by Boolean factors and where their product is wrong.

The two-part code of Miettinen and Vreeken (2014, "MDL4BMF: minimum description length for Boolean
matrix factorization", ACM Transactions on Knowledge Discovery from Data 8(4)) in its form of
data-to-model codes and typed exclusive-or: factors first, then the errors, those among the ones of
the product apart from those among its zeros. The receiver knows shape, rank and missing entries.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from bmfjax.data import BinaryMatrix
from bmfjax.data.blocks import blocks


def code_length(data: BinaryMatrix, usage, basis) -> float:
    r"""Return the length of the code in bits.

    .. math::
        L = \sum_k \bigl[\ell(n, |z_k|) + \ell(m, |u_k|)\bigr] + \ell(c, e_1) + \ell(N - c, e_0),
        \qquad \ell(n, s) = \log_2 (n + 1) + \log_2 \binom{n}{s},

    with :math:`n` rows, :math:`m` columns, :math:`N` observed entries, :math:`c` of them ones of
    the product, and :math:`e_1`, :math:`e_0` errors among its ones and among its zeros.

    Examples
    --------
    >>> data = BinaryMatrix([[1, 1], [0, 0]])
    >>> usage, basis = np.array([[True], [False]]), np.array([[True], [True]])
    >>> round(code_length(data, usage, basis), 3)  # log2 of 3 * 2, 3 * 1, 3 * 1 and 3 * 1
    7.34
    """
    covered, errors_among_ones, errors_among_zeros = _errors(data, usage, basis)
    observed = data.num_ones + data.num_zeros
    bits = sum(_bits(f.shape[0], f.sum(0, dtype=np.int64)).sum() for f in (usage, basis))
    bits += _bits(covered, errors_among_ones) + _bits(observed - covered, errors_among_zeros)
    return float(bits)


def _bits(size, marked):
    """Return the bits that tell how many of `size` places are marked, and which."""
    size, marked = np.asarray(size, float), np.asarray(marked, float)
    ways = gammaln(size + 1) - gammaln(marked + 1) - gammaln(size - marked + 1)
    return np.log2(size + 1) + ways / np.log(2)


def _errors(data, usage, basis) -> tuple[int, int, int]:
    """Return how many observed entries the product covers, and errors among them and the others."""
    columns = np.arange(data.num_columns)
    covered = hit = 0
    weights = basis.T.astype(np.float32)
    for some in blocks(data.num_rows, data.num_columns):
        ones, missing = data.part(np.arange(data.num_rows)[some], columns)
        product = usage[some].astype(np.float32) @ weights > 0
        product &= ~missing
        covered += int(product.sum())
        hit += int((product & ones).sum())
    return covered, covered - hit, data.num_ones - hit

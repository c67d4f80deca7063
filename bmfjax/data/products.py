"""Boolean products of packed factors on the host, some rows at a time.

The rows of a product take few values: with eight factors there are 256 unions of their bases. These
are made once, and every row looks up its own (Arlazarov, Dinic, Kronrod, Faradzev 1970, "On
economical construction of the transitive closure of a directed graph", Soviet Mathematics Doklady
11).
"""

from __future__ import annotations

import numpy as np

#: Factors whose unions are tabled together, for at least so many rows.
GROUP, LEAST_ROWS = 8, 256


def product_words(usage, basis_words) -> np.ndarray:
    """Boolean product of some rows as packed words.

    Parameters
    ----------
    usage : (rank, rows) bool or uint8
        Zeros and ones.
    basis_words : (rank, words) uint32
        Packed columns of the basis.

    Returns
    -------
    (rows, words) uint32

    Examples
    --------
    >>> usage = np.array([[1, 0, 1], [0, 1, 1]], bool)
    >>> product_words(usage, np.array([[3], [10]], np.uint32)).tolist()
    [[3], [10], [11]]
    """
    rank, rows = usage.shape
    product = np.zeros((rows, basis_words.shape[1]), np.uint32)
    if rows < LEAST_ROWS:
        for used, words in zip(usage.astype(bool), basis_words, strict=True):
            product[used] |= words
        return product
    for first in range(0, rank, GROUP):
        few = slice(first, first + GROUP)
        sets = np.packbits(usage[few], axis=0, bitorder="little")[0]
        product |= np.take(_unions(basis_words[few]), sets, axis=0)
    return product


def _unions(words):
    """The OR of every subset of some words, (2^factors, words); bit k of a position is factor k."""
    unions = np.zeros((2 ** len(words), words.shape[1]), np.uint32)
    for k, one in enumerate(words):
        np.bitwise_or(unions[: 2**k], one, out=unions[2**k : 2 ** (k + 1)])
    return unions

"""Give real factors of several chains one order and one sign.

Real factors may also change sign in both matrices together. Chains of a variational fit stay each
at one solution, so that their means are all there is to match.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from bmfjax.diagnostics.align import check_pair


class SignedOrder(NamedTuple):
    """How the factors of every chain are put in order.

    Attributes
    ----------
    permutation : (chain, rank) int
    sign : (chain, rank) int
        1 or -1. Factor k of chain c is column ``permutation[c, k]``, times ``sign[c, k]``.
    """

    permutation: np.ndarray
    sign: np.ndarray

    def apply(self, factors: np.ndarray, *, signed: bool = True) -> np.ndarray:
        """Factors (chain, ..., rank) in this order; `signed` False for variances."""
        shape = (len(factors), *(1,) * (factors.ndim - 2), factors.shape[-1])
        moved = np.take_along_axis(factors, self.permutation.reshape(shape), -1)
        return moved * self.sign.reshape(shape).astype(factors.dtype) if signed else moved


def align_signed(usage, basis, pivot: int = 0) -> SignedOrder:
    """Match the factors of every chain to those of one, by the cosine of their tiles.

    Factors come in the order of their size in that chain, with signs that make the cubes of its
    basis columns sum to a positive number.

    Parameters
    ----------
    usage : (chain, rows, rank) float
    basis : (chain, columns, rank) float
    pivot : int
        The chain.

    Returns
    -------
    SignedOrder

    Examples
    --------
    >>> usage = np.array([[[2.0, 1.0], [0.0, 1.0]], [[-1.0, 2.0], [-1.0, 0.0]]])
    >>> basis = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]]])
    >>> order = align_signed(usage, basis)
    >>> order.permutation.tolist(), order.sign.tolist()
    ([[0, 1], [1, 0]], [[1, 1], [1, -1]])
    """
    usage, basis = np.asarray(usage, float), np.asarray(basis, float)
    check_pair(usage, basis, axes=3)
    size = np.linalg.norm(usage[pivot], axis=0) * np.linalg.norm(basis[pivot], axis=0)
    first = np.argsort(-size, kind="stable")
    up = np.where((basis[pivot] ** 3).sum(0) < 0, -1, 1)
    permutation, sign = [], []
    for u, v in zip(usage, basis, strict=True):
        of_usage, of_basis = _cosines(usage[pivot], u), _cosines(basis[pivot], v)
        match = linear_sum_assignment(of_usage * of_basis, maximize=True)[1]
        both = (of_usage + of_basis)[np.arange(len(match)), match]
        permutation.append(match[first])
        sign.append((np.where(both < 0, -1, 1) * up)[first])
    return SignedOrder(np.array(permutation), np.array(sign))


def _cosines(one, other):
    unit = [a / np.maximum(np.linalg.norm(a, axis=0), 1e-30) for a in (one, other)]
    return unit[0].T @ unit[1]

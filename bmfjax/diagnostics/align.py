"""Give the factors of all draws one order.

The columns of the two factor matrices may be permuted together without changing the product, so
the k-th factor of one draw is in general not the k-th of the next. :func:`align` permutes every
draw to match a pivot, in two stages:

1. each chain alone, to its own mean;
2. the chain means to one another, with one permutation a chain.

One pivot for all draws would be simpler but fails when chains have found different factors: a
factor that only one chain has fits no pivot column, noise decides draw by draw where it goes, and
the chain's own mean is smeared. In two stages every chain keeps its factors sharp, and what the
chains do not share shows as low :func:`agreement`.

Real factors may also change sign in both matrices together: see :func:`align_signed`. Binary
features of rows may be turned round: see :func:`align_turned`.
"""

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from bmfjax.data.checks import whole
from bmfjax.data.errors import InputError

#: Chains of which every group is compared with the others.
MANY = 8
#: Share of the chains whose factor is that of the mean of all (`verdict.factors_differ`).
MOST = 2.0 / 3.0


class Alignment(NamedTuple):
    """Draws with matching factors.

    Attributes
    ----------
    usage : array, (chain, draw, rows, rank)
        The given draws, columns permuted; dtype kept.
    basis : array, (chain, draw, columns, rank)
        The same for the basis.
    permutation : array, (chain, draw, rank), int
        ``usage[c, d, :, k]`` was column ``permutation[c, d, k]``.
    pivot_usage : array, (rows, rank), float64
        Mean of the aligned usage over all draws and chains.
    pivot_basis : array, (columns, rank), float64
        The same for the basis.
    cost : float
        Summed squared distance of the draws from the mean of their own chain.
    converged : bool
        Whether every permutation stopped changing within the iterations allowed.
    """

    usage: np.ndarray
    basis: np.ndarray
    permutation: np.ndarray
    pivot_usage: np.ndarray
    pivot_basis: np.ndarray
    cost: float
    converged: bool


def align(usage, basis, *, pivot=None, max_iterations=10):
    """Permute the factors of every draw so that the k-th of all draws belong together.

    Each draw is matched to the pivot by the permutation with the smallest sum of
    ``||usage_l - pivot_usage_k||^2 + ||basis_l - pivot_basis_k||^2``; the pivot becomes the mean
    of the matched draws, and both steps repeat until nothing changes. Neither step can raise
    `cost`.

    Parameters
    ----------
    usage : array, (chain, draw, rows, rank)
        Boolean or in [0, 1].
    basis : array, (chain, draw, columns, rank)
        Boolean or in [0, 1].
    pivot : (int, int), optional
        Chain and draw to start from, for instance those of the highest log joint density; this
        chain also gives the factors their order. By default the draw of each chain, and the chain,
        nearest to the mean in the row sums of both matrices, which do not depend on the order.
    max_iterations : int
        Matchings at most of each of the two stages.

    Returns
    -------
    Alignment

    Raises
    ------
    InputError
        Shapes that do not belong together, no draws, a pivot outside, or `max_iterations` below 1.

    References
    ----------
    Stephens (2000), "Dealing with label switching in mixture models", JRSS B 62(4), algorithm 4.1
    with squared loss.

    Examples
    --------
    >>> usage = np.array([[[[1, 0], [1, 0], [0, 1]], [[0, 1], [0, 1], [1, 0]]]])
    >>> basis = np.array([[[[1, 0], [0, 1]], [[0, 1], [1, 0]]]])
    >>> aligned = align(usage, basis, pivot=(0, 0))
    >>> aligned.permutation
    array([[[0, 1],
            [1, 0]]])
    >>> aligned.cost
    0.0
    """
    usage, basis = np.asarray(usage), np.asarray(basis)
    found = matched(usage, basis, pivot=pivot, max_iterations=max_iterations)
    usage, basis = apply_permutation(usage, basis, found.permutation)
    return found._replace(usage=usage, basis=basis)


def matched(usage, basis, *, pivot=None, max_iterations=10) -> Alignment:
    """Do as :func:`align`, but return the draws as they were given.

    They are looked at one chain at a time, as ``usage[chain]``, which may unpack them.
    """
    check_pair(usage, basis, axes=4)
    whole("max_iterations", max_iterations)
    chain, starts = _starts(usage, basis, pivot)
    within = [_relabel(usage[c], basis[c], start, max_iterations) for c, start in enumerate(starts)]
    between = _relabel(
        np.stack([w.usage_mean for w in within]),
        np.stack([w.basis_mean for w in within]),
        chain,
        max_iterations,
    )
    permutation = np.stack(
        [w.permutation[:, order] for w, order in zip(within, between.permutation, strict=True)]
    )
    return Alignment(
        usage,
        basis,
        permutation,
        between.usage_mean,
        between.basis_mean,
        sum(w.cost for w in within),
        between.converged and all(w.converged for w in within),
    )


def apply_permutation(usage, basis, permutation):
    """Permute the columns of both factor matrices, draw by draw.

    Parameters
    ----------
    usage : array, (..., rows, rank)
    basis : array, (..., columns, rank)
    permutation : array, (..., rank), int
        Column k of the result is column ``permutation[..., k]`` of the input.

    Returns
    -------
    usage, basis : arrays
        Copies of the same shapes and dtypes.

    Examples
    --------
    >>> apply_permutation(np.array([[1, 2]]), np.array([[3, 4], [5, 6]]), np.array([1, 0]))
    (array([[2, 1]]), array([[4, 3],
           [6, 5]]))
    """
    index = np.asarray(permutation)[..., None, :]
    return np.take_along_axis(usage, index, -1), np.take_along_axis(basis, index, -1)


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
        """Return factors (chain, ..., rank) in this order; `signed` is False for variances."""
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


class TurnedOrder(NamedTuple):
    """How the features of every draw are put in order.

    Attributes
    ----------
    permutation : (chain, draw, rank) int
        Feature k is column ``permutation[c, d, k]``.
    sign : (chain, draw, rank) int
        1, or -1 where the feature is turned round.
    """

    permutation: np.ndarray
    sign: np.ndarray


def align_turned(usage, basis, *, starts, chain=0, signed=True, fixed=0, max_iterations=10):
    """Match features of rows that may be turned round, in all draws.

    Rows with a feature and rows without may be exchanged, if the signs of its weights change too.
    Matched are codes of rows, 1 with the feature and -1 without, and weights, by the absolute value
    of their inner products with a pivot; in two stages, as :func:`align` does.

    Parameters
    ----------
    usage : (chain, draw, rows, rank)
        Zeros and ones.
    basis : (chain, draw, columns, rank)
        Weights; a feature without any takes no part.
    starts : sequence of int
        The draw of each chain to start from.
    chain : int
        The chain that gives the order.
    signed : bool
        False: no feature is turned round, and rows without a feature count as 0.
    fixed : int
        So many first features stay as they are.
    max_iterations : int

    Returns
    -------
    TurnedOrder

    Examples
    --------
    >>> usage = np.array([[[[1, 0], [1, 1], [0, 1]], [[1, 0], [0, 0], [0, 1]]]])
    >>> basis = np.array([[[[2.0, 0.0], [0.0, 1.0]], [[0.0, 2.0], [-1.0, 0.0]]]])
    >>> order = align_turned(usage, basis, starts=[0])
    >>> order.permutation[0].tolist(), order.sign[0].tolist()
    ([[0, 1], [1, 0]], [[1, 1], [1, -1]])
    """
    whole("max_iterations", max_iterations)
    within = [
        _relabel_turned(_codes(u, b, signed), b, start, signed, fixed, max_iterations)
        for u, b, start in zip(usage, basis, starts, strict=True)
    ]
    means = (np.stack([w[i] for w in within]) for i in (2, 3))
    order, turned, *_ = _relabel_turned(*means, chain, signed, fixed, max_iterations)
    permutation = np.stack([w[0][:, own] for w, own in zip(within, order, strict=True)])
    sign = np.stack([w[1][:, own] * s for w, own, s in zip(within, order, turned, strict=True)])
    return TurnedOrder(permutation, sign)


def _codes(usage, basis, signed):
    """Return codes of rows, (draw, rows, rank) float32; zeros where a feature has no weight."""
    codes = np.asarray(usage, np.float32)
    return (2.0 * codes - 1.0) * (basis != 0).any(1, keepdims=True) if signed else codes


def _relabel_turned(codes, basis, start, signed, fixed, max_iterations):
    """Match the draws of one sequence: permutation, sign, and the means of what is matched."""
    pivot = [codes[start].astype(float), basis[start].astype(float)]
    draws, _, rank = codes.shape
    permutation, sign = np.full((draws, rank), -1), np.ones((draws, rank), int)
    permutation[:, :fixed] = np.arange(fixed)
    for _ in range(max_iterations):
        before = permutation.copy(), sign.copy()
        total = [np.zeros_like(p) for p in pivot]
        for d in range(draws):
            product = pivot[0].T @ codes[d] + pivot[1].T @ basis[d]
            free = product[fixed:, fixed:]
            size = np.abs(free) if signed else free
            permutation[d, fixed:] = fixed + linear_sum_assignment(size, maximize=True)[1]
            if signed:
                own = product[np.arange(fixed, rank), permutation[d, fixed:]]
                sign[d, fixed:] = np.where(own < 0, -1, 1)
            for sums, factor in zip(total, (codes[d], basis[d]), strict=True):
                sums += factor[:, permutation[d]] * sign[d]
        pivot = [sums / draws for sums in total]
        if all(map(np.array_equal, before, (permutation, sign))):
            break
    return permutation, sign, *pivot


def agreement(usage_means, basis_means):
    """Return how alike each factor is in the chains that differ most and in all others together.

    Means of groups are compared, for that is what a result is made of: two chains alone, each with
    noise of its own, are less alike than both are to the mean. Every group of up to eight chains is
    compared with the rest; if there are more, every chain is.

    Parameters
    ----------
    usage_means : array, (chain, rows, rank)
        Mean of the aligned draws of each chain.
    basis_means : array, (chain, columns, rank)
        The same for the basis.

    Returns
    -------
    array, (rank,), float64
        Smallest cosine similarity of the factor's tile in the mean of a group and in the mean of
        the others, 0 to 1. The cosine of two tiles is that of their usage columns times that of
        their basis columns.
        An empty tile is unlike any other (0) and like another empty one (1). nan with one chain:
        there is nothing to compare.

    Raises
    ------
    InputError
        Shapes that do not belong together.

    Examples
    --------
    >>> usage = np.array([[[1, 1], [0, 1]], [[1, 0], [0, 1]]])
    >>> basis = np.array([[[1, 1]], [[1, 1]]])
    >>> agreement(usage, basis).round(3)
    array([1.   , 0.707])
    """
    usage_means, basis_means = np.asarray(usage_means, float), np.asarray(basis_means, float)
    check_pair(usage_means, basis_means, axes=3)
    chains, _, rank = usage_means.shape
    if chains == 1:
        return np.full(rank, np.nan)
    sizes = range(1, chains // 2 + 1) if chains <= MANY else [1]
    groups = [list(group) for size in sizes for group in combinations(range(chains), size)]
    return np.min([_alike(usage_means, basis_means, group) for group in groups], 0)


def two_thirds(chains: int) -> int:
    """Return how many chains two thirds of them are, rounded up.

    Examples
    --------
    >>> [two_thirds(number) for number in (2, 3, 4, 6)]
    [2, 2, 3, 4]
    """
    return math.ceil(round(MOST * chains, 6))


def agreements(usage_means, basis_means) -> np.ndarray:
    """Return `agreement` of all chains, and how alike two thirds of them are, (2, rank).

    Left out for each factor are the chains in which it is least like that of the others together.
    The others are compared with their own mean: that of fewer chains has more noise, by which
    chains that have one factor would be told apart. The second number is never the smaller one.
    """
    usage_means, basis_means = np.asarray(usage_means, float), np.asarray(basis_means, float)
    of_all = agreement(usage_means, basis_means)
    chains = len(usage_means)
    kept, most = two_thirds(chains), of_all.copy()
    if 1 < kept < chains:
        likeness = alike_most(usage_means, basis_means)
        likeness = np.take_along_axis(likeness, _most(usage_means, basis_means, kept), 0)
        most = np.maximum(likeness.min(0), of_all)
    return np.stack([of_all, most])


def alike_most(usage_means, basis_means) -> np.ndarray:
    """Return how alike each factor of a chain is to that of two thirds of all, (chain, rank)."""
    whole = most_alike(usage_means, basis_means)
    return np.array(
        [_cosines_of_tiles(own, whole) for own in zip(usage_means, basis_means, strict=True)]
    )


def most_alike(usage_means, basis_means) -> list[np.ndarray]:
    """Return the mean of each factor over the two thirds of the chains in which it is most alike.

    Left out are those in which it is least like that of the others together.
    """
    both, chains = (usage_means, basis_means), len(usage_means)
    kept = two_thirds(chains)
    if not 1 < kept < chains:
        return [means.mean(0) for means in both]
    chosen = _most(*both, kept)
    return [np.take_along_axis(means, chosen[:, None], 0).mean(0) for means in both]


def _most(usage_means, basis_means, kept: int) -> np.ndarray:
    """Return the chains in which each factor is most like that of all others, (kept, rank)."""
    every = range(len(usage_means))
    each = np.array([_alike(usage_means, basis_means, [c]) for c in every])
    return np.sort(np.argsort(-each, 0, kind="stable")[:kept], 0)


def _alike(usage_means, basis_means, group) -> np.ndarray:
    """Return the cosines (rank,) of tiles in the mean of some chains and in that of the others."""
    both = usage_means, basis_means
    others = [np.delete(means, group, 0).mean(0) for means in both]
    return _cosines_of_tiles([means[group].mean(0) for means in both], others)


def _cosines_of_tiles(one, other) -> np.ndarray:
    """Return the cosine (rank,) of each tile of a pair of factor matrices and that of another."""
    cosine, empty = 1.0, []
    for own, others in zip(one, other, strict=True):
        size, of_others = np.linalg.norm(own, axis=0), np.linalg.norm(others, axis=0)
        cosine = cosine * (own * others).sum(0) / np.maximum(size * of_others, 1e-300)
        empty.append([size == 0, of_others == 0])
    first, second = np.any(empty, 0)
    return np.where(first | second, np.where(first & second, 1.0, 0.0), cosine)


def share_agreeing(agreement, threshold=0.8):
    """Return the share of factors whose :func:`agreement` reaches the threshold.

    Parameters
    ----------
    agreement : array, (rank,)
    threshold : float

    Returns
    -------
    float
        0 to 1; nan where the agreement is nan, that is with one chain.

    Examples
    --------
    >>> share_agreeing(np.array([0.95, 0.2]))
    0.5
    """
    agreement = np.asarray(agreement, float)
    return float("nan") if np.isnan(agreement).any() else float(np.mean(agreement >= threshold))


class _Relabelled(NamedTuple):
    permutation: np.ndarray
    usage_mean: np.ndarray
    basis_mean: np.ndarray
    cost: float
    converged: bool


def _relabel(usage, basis, start, max_iterations):
    """Match the draws of one sequence, (draw, rows, rank) and (draw, columns, rank)."""
    draws, _, rank = usage.shape
    usage_pivot, basis_pivot = usage[start].astype(float), basis[start].astype(float)
    permutation = np.full((draws, rank), -1)
    for _ in range(max_iterations):
        matched = [
            _match(u, b, usage_pivot, basis_pivot) for u, b in zip(usage, basis, strict=True)
        ]
        converged = bool(np.array_equal(matched, permutation))
        if converged:
            break
        permutation = np.array(matched)
        usage_pivot, basis_pivot = _mean(usage, permutation), _mean(basis, permutation)
    squares = sum(
        np.einsum("drk,drk->", x, x, dtype=float, casting="unsafe") for x in (usage, basis)
    )
    explained = draws * (np.sum(usage_pivot**2) + np.sum(basis_pivot**2))
    # What is left around the mean; rounding must not make it negative.
    cost = max(float(squares - explained), 0.0)
    return _Relabelled(permutation, usage_pivot, basis_pivot, cost, converged)


def _match(usage, basis, usage_pivot, basis_pivot):
    """Return the permutation of one draw that brings it closest to the pivot.

    The squared norms add up to the same number under every permutation, so the smallest squared
    distance is the largest inner product: one rank x rank product for each matrix.
    """
    product = usage_pivot.T @ usage + basis_pivot.T @ basis
    return linear_sum_assignment(product, maximize=True)[1]


def _mean(factors, permutation):
    """Return the mean over draws of permuted columns, without a copy of all draws."""
    total = np.zeros(factors.shape[1:])
    for draw, order in zip(factors, permutation, strict=True):
        total += draw[:, order]
    return total / len(factors)


def _starts(usage, basis, pivot):
    """Return the chain that gives the order, and for each chain the draw to start from."""
    profile = np.stack(
        [
            np.concatenate([x[c].sum(axis=-1, dtype=float) for x in (usage, basis)], axis=1)
            for c in range(usage.shape[0])
        ]
    )
    chain_means = profile.mean(axis=1)
    starts = np.square(profile - chain_means[:, None]).sum(axis=2).argmin(axis=1)
    if pivot is None:
        chain = int(np.square(chain_means - chain_means.mean(axis=0)).sum(axis=1).argmin())
        return chain, starts
    chain, draw = pivot
    if not (0 <= chain < usage.shape[0] and 0 <= draw < usage.shape[1]):
        raise InputError(
            f"pivot is {tuple(pivot)} with {usage.shape[0]} chains of {usage.shape[1]} draws; "
            "give a chain and a draw counted from 0"
        )
    starts[chain] = draw
    return chain, starts


def check_pair(usage, basis, axes):
    """Refuse factor arrays that do not belong together; `axes` is 4 for draws, 3 for means."""
    leading = axes - 2
    shapes = f"usage has shape {usage.shape} and basis {basis.shape}"
    if usage.ndim != axes or basis.ndim != axes:
        names = "(chain, draw, rows, rank)" if axes == 4 else "(chain, rows, rank)"
        raise InputError(f"{shapes}; give arrays {names} with columns for rows in the basis")
    if usage.shape[:leading] != basis.shape[:leading] or usage.shape[-1] != basis.shape[-1]:
        raise InputError(f"{shapes}; give the same chains, draws and rank for both")
    if 0 in usage.shape[:leading]:
        raise InputError(f"{shapes}; give at least one chain and one draw")


def _cosines(one, other):
    unit = [a / np.maximum(np.linalg.norm(a, axis=0), 1e-30) for a in (one, other)]
    return unit[0].T @ unit[1]

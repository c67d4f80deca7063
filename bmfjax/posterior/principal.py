r"""Factors of a matrix factorisation in one form: those of a singular value decomposition.

With normal priors whose mean and precision matrix are learned, any invertible matrix A may be
put between the factors, :math:`UV^\top = (UA)(VA^{-\top})^\top`, and chains wander along it. Every
draw is turned into :math:`U = Q_U S^{1/2} c,\ V = Q_V S^{1/2}/c` with orthonormal columns of Q and
singular values S of the product, which says the same of every cell; what remains free, order and
sign, is then matched between draws.

Known columns of the basis break this freedom in part. They stay, and other factors are those of the
same decomposition once they are orthogonal to the known columns (`_beside`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bmfjax.diagnostics import align_signed
from bmfjax.diagnostics.align import SignedOrder
from bmfjax.posterior.products import factor_sizes

SIDES = ("usage", "basis")


def principal_draws(
    drawn: Mapping, pivot: tuple[int, int], held: int = 0, number: int | None = None
) -> dict[str, np.ndarray]:
    """Return kept draws (chain, draw, ...) in this form, with order and signs of draw `pivot`.

    Factors, and their `_mean`, `_precision` and `_coefficients`, are turned; other sites stay. The
    first `held` columns of the basis are known and stay. A `number` of factors leaves out all but
    so many of the largest of every draw, where none is known.
    """
    chains, kept = drawn["usage"].shape[:2]
    flat = {
        n: np.asarray(drawn[n], float).reshape(chains * kept, *drawn[n].shape[2:]) for n in SIDES
    }
    maps = [_beside(u, v, held) for u, v in zip(flat["usage"], flat["basis"], strict=True)]
    maps = [tuple(m[:, :number] for m in both) for both in maps]
    turned = {
        n: np.stack([x @ m[k] for x, m in zip(flat[n], maps, strict=True)])
        for k, n in enumerate(SIDES)
    }
    order = _order(turned["usage"], turned["basis"], pivot[0] * kept + pivot[1], held)
    found = dict(drawn)
    for k, name in enumerate(SIDES):
        move = order.apply(np.stack([m[k] for m in maps]))  # columns of the maps, as of factors
        mean, precision = (
            np.asarray(drawn[f"{name}_{what}"], float).reshape(chains * kept, *shape)
            for what, shape in (("mean", (-1,)), ("precision", (move.shape[1],) * 2))
        )
        values = {
            name: flat[name] @ move,
            f"{name}_mean": np.einsum("di,dik->dk", mean, move),
            f"{name}_precision": _turned(precision, move),
        }
        if f"{name}_coefficients" in drawn:
            own = np.asarray(drawn[f"{name}_coefficients"], float)
            own = own.reshape(chains * kept, *own.shape[2:])
            values[f"{name}_coefficients"] = own @ move
        for site, value in values.items():
            found[site] = value.reshape(chains, kept, *value.shape[1:]).astype(drawn[site].dtype)
    return found


def num_needed(usage, basis, cells: tuple, rest: float) -> int:
    """Return how many principal factors of every draw, the largest, the predictions need.

    Those after them add at most `rest` to the posterior means of `cells` (rows, columns), as a root
    mean square. A factor of noise alone is another one in every draw and adds little to the mean;
    weak ones that are real add up.

    Parameters
    ----------
    usage, basis : (chain, draw, lines, rank) float
    cells : tuple of (cell,) int arrays
    rest : float

    Returns
    -------
    int

    Examples
    --------
    >>> usage, basis = np.eye(2)[None, None] * [3.0, 0.1], np.eye(2)[None, None]
    >>> [num_needed(usage, basis, ([0, 1], [0, 1]), rest) for rest in (0.01, 0.5)]
    [2, 1]
    """
    rows, columns = cells
    flat = [np.asarray(f, float).reshape(-1, *f.shape[2:]) for f in (usage, basis)]
    after = np.zeros((len(rows), usage.shape[-1]))
    for u, v in zip(*flat, strict=True):
        of_usage, of_basis = _principal(u, v)
        adds = (u[rows] @ of_usage) * (v[columns] @ of_basis)
        after += adds[:, ::-1].cumsum(1)[:, ::-1]  # those from each one on
    sizes = np.sqrt(np.mean((after / len(flat[0])) ** 2, axis=0))
    # Means of what some factors add may cancel, so that fewer may leave out less.
    return int(np.max(np.flatnonzero(sizes > rest), initial=-1)) + 1


def _turned(precision, move):
    """Return the precision matrices of x @ move (draw, rank, number) where x has these."""
    if move.shape[1] == move.shape[2]:
        back = np.linalg.inv(move)
        return back @ precision @ back.swapaxes(1, 2)
    return np.linalg.inv(move.swapaxes(1, 2) @ np.linalg.solve(precision, move))


def _order(usage, basis, pivot: int, held: int) -> SignedOrder:
    """Match the factors of all draws; those that are held keep place and sign."""
    further = usage[..., held:], basis[..., held:]
    if further[0].shape[-1] == 0:
        known = np.tile(np.arange(held), (len(usage), 1))
        return SignedOrder(known, np.ones_like(known))
    order = by_size(align_signed(*further, pivot=pivot), *further)
    known = np.tile(np.arange(held), (len(usage), 1))
    return SignedOrder(
        np.concatenate([known, held + order.permutation], 1),
        np.concatenate([np.ones_like(known), order.sign], 1),
    )


def by_size(order: SignedOrder, usage, basis) -> SignedOrder:
    """Return an order of draws (draw, ..., lines, rank) with the largest factor of all first."""
    moved = (order.apply(np.asarray(f), signed=False) for f in (usage, basis))
    sizes = factor_sizes(*(f.reshape(1, -1, *f.shape[-2:]) for f in moved))
    first = np.argsort(-sizes, kind="stable")
    return SignedOrder(order.permutation[:, first], order.sign[:, first])


def _beside(usage, basis, held: int):
    """Return the maps of a draw whose first columns of the basis, A, stay.

    With W the other columns, U_a A' + U_w W' is also (U_a + U_w C') A' + U_w (W - A C)', whatever C
    is. Here W - A C is orthogonal to A, so that known factors have all that they can explain, and
    the rest is principal.
    """
    if held == 0:
        return _principal(usage, basis)
    size, known, other = usage.shape[1], basis[:, :held], basis[:, held:]
    of_usage, of_basis = np.eye(size), np.eye(size)
    if size > held:
        share = np.linalg.lstsq(known, other, rcond=None)[0]
        turn_usage, turn_basis = _principal(usage[:, held:], other - known @ share)
        of_usage[held:, :held], of_usage[held:, held:] = share.T, turn_usage
        of_basis[:held, held:], of_basis[held:, held:] = -share @ turn_basis, turn_basis
    return of_usage, of_basis


def _principal(usage, basis):
    """Return the (rank, rank) matrices that usage and basis are multiplied by."""
    upper = [np.linalg.qr(x, mode="r") for x in (usage, basis)]
    left, size, right = np.linalg.svd(upper[0] @ upper[1].T)
    # Columns of equal root mean square on both sides, whatever the numbers of rows and columns.
    balance = (len(usage) / len(basis)) ** 0.25
    root = np.sqrt(size)
    return (
        np.linalg.solve(upper[0], left * (root * balance)),
        np.linalg.solve(upper[1], right.T * (root / balance)),
    )

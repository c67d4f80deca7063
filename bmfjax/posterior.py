"""Functionals of the reconstruction over kept draws, never draws x matrix in memory."""

from __future__ import annotations

import numpy as np

from bmfjax.data.errors import InputError

#: Entries of a block of draws x rows x columns that is formed at once.
BLOCK = 4_000_000


def _flat(usage, basis):
    return usage.reshape(-1, *usage.shape[2:]), basis.reshape(-1, *basis.shape[2:])


def exceedance(usage, basis, level: float) -> np.ndarray:
    """Share of draws whose reconstruction reaches `level`, entry by entry.

    Parameters
    ----------
    usage : (chain, draw, rows, rank) float
    basis : (chain, draw, columns, rank) float
    level : float

    Returns
    -------
    (rows, columns) float64

    Examples
    --------
    >>> usage = np.array([[[[1.0]], [[0.2]]]])
    >>> exceedance(usage, np.ones((1, 2, 1, 1)), 0.5)
    array([[0.5]])
    """
    u, v = _flat(usage, basis)
    count = np.zeros((u.shape[1], v.shape[1]), np.int32)
    for one_usage, one_basis in zip(u, v, strict=True):
        count += (one_usage @ one_basis.T) >= level
    return count / len(u)


def moments(usage, basis) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the reconstruction over draws.

    Parameters
    ----------
    usage, basis
        As for `exceedance`.

    Returns
    -------
    mean, sd : (rows, columns) float64
    """
    u, v = _flat(usage, basis)
    mean = np.zeros((u.shape[1], v.shape[1]))
    squares = np.zeros_like(mean)
    for n, (one_usage, one_basis) in enumerate(zip(u, v, strict=True), 1):
        product = one_usage @ one_basis.T
        step = product - mean
        mean += step / n
        squares += step * (product - mean)
    return mean, np.sqrt(squares / max(len(u) - 1, 1))


def interval(usage, basis, level: float) -> np.ndarray:
    """Central interval of the reconstruction over draws.

    Parameters
    ----------
    usage, basis
        As for `exceedance`.
    level : float
        In (0, 1).

    Returns
    -------
    (2, rows, columns) float64
        Lower and upper end.
    """
    if not 0 < level < 1:
        raise InputError(f"level is {level}; give a probability between 0 and 1")
    u, v = _flat(usage, basis)
    rows, columns = u.shape[1], v.shape[1]
    out = np.empty((2, rows, columns))
    step = max(1, BLOCK // (len(u) * columns))
    tail = 0.5 * (1.0 - level)
    for i in range(0, rows, step):
        product = np.einsum("dik,djk->dij", u[:, i : i + step], v)
        out[:, i : i + step] = np.quantile(product, [tail, 1.0 - tail], axis=0)
    return out


def sampled_entries(usage, basis, number: int, seed: int = 0) -> np.ndarray:
    """Reconstruction of some entries drawn at random, for convergence diagnostics.

    Parameters
    ----------
    usage, basis
        As for `exceedance`.
    number : int
        At most the number of entries.
    seed : int

    Returns
    -------
    (chain, draw, number) float64
    """
    rows, columns = usage.shape[2], basis.shape[2]
    number = min(number, rows * columns)
    draw = np.random.default_rng(seed).choice(rows * columns, number, replace=False)
    i, j = np.divmod(np.sort(draw), columns)
    return np.einsum("cdek,cdek->cde", usage[:, :, i], basis[:, :, j], dtype=np.float64)


def best_usage(values, basis_draws, num_draws: int = 100, sweeps: int = 200) -> np.ndarray:
    """For some draws of the basis the best-fitting usage in [0, 1], averaged.

    Parameters
    ----------
    values : (rows, columns) float
        NaN is missing.
    basis_draws : (draw, columns, rank) float
    num_draws : int
        Number of draws used, evenly spread.
    sweeps : int
        Coordinate sweeps; each solves one column of the usage exactly.

    Returns
    -------
    (rows, rank) float64
        Rows without information are NaN.
    """
    observed = ~np.isnan(values)
    filled = np.nan_to_num(values).astype(np.float64)
    chosen = np.unique(np.linspace(0, len(basis_draws) - 1, num_draws).astype(int))
    total = np.zeros((len(values), basis_draws.shape[-1]))
    for draw in chosen:
        total += _box_least_squares(filled, observed, basis_draws[draw].astype(np.float64), sweeps)
    total /= len(chosen)
    total[~observed.any(1)] = np.nan
    return total


def _box_least_squares(values, observed, basis, sweeps):
    """Minimise the squared error of every row over usage in [0, 1] by exact coordinate steps."""
    complete = observed.all()
    usage = np.full((len(values), basis.shape[1]), 0.5)
    cross = (values * observed) @ basis
    if complete:
        grams = np.broadcast_to(basis.T @ basis, (len(values), *(basis.shape[1],) * 2))
    else:
        grams = np.einsum("ij,jk,jl->ikl", observed.astype(float), basis, basis, optimize=True)
    for _ in range(sweeps):
        before = usage.copy()
        for k in range(usage.shape[1]):
            curvature = np.maximum(grams[:, k, k], 1e-12)
            slope = cross[:, k] - np.einsum("il,il->i", grams[:, k], usage)
            usage[:, k] = np.clip(usage[:, k] + slope / curvature, 0.0, 1.0)
        if np.abs(usage - before).max() < 1e-6:
            break
    return usage

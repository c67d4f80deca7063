"""Functionals of the reconstruction over kept draws, never draws x matrix in memory."""

from __future__ import annotations

import numpy as np

from bmfjax.data.errors import InputError

#: Entries of a block of draws x rows x columns that is formed at once.
BLOCK = 4_000_000


def _draws(usage, basis):
    """Draw after draw, of all chains: (rows, rank) and (columns, rank) float."""
    for chain in range(usage.shape[0]):
        for draw in range(usage.shape[1]):
            yield tuple(np.asarray(f[chain, draw], _kind(f)) for f in (usage, basis))


def _kind(draws):
    return np.float32 if draws.dtype == bool else draws.dtype


def _product(usage, basis, boolean: bool):
    """The reconstruction of one draw, Boolean or not."""
    product = usage @ basis.T
    return (product >= 0.5).astype(np.float32) if boolean else product


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
    count = np.zeros((usage.shape[2], basis.shape[2]), np.int32)
    for one_usage, one_basis in _draws(usage, basis):
        count += (one_usage @ one_basis.T) >= level
    return count / (usage.shape[0] * usage.shape[1])


def moments(usage, basis, link=None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the reconstruction over draws.

    Parameters
    ----------
    usage, basis
        As for `exceedance`.
    link : callable, optional
        Of this function of the reconstruction.

    Returns
    -------
    mean, sd : (rows, columns) float64
    """
    mean = np.zeros((usage.shape[2], basis.shape[2]))
    squares = np.zeros_like(mean)
    boolean = usage.dtype == bool
    for n, (one_usage, one_basis) in enumerate(_draws(usage, basis), 1):
        product = _product(one_usage, one_basis, boolean)
        product = product if link is None else link(product)
        step = product - mean
        mean += step / n
        squares += step * (product - mean)
    return mean, np.sqrt(squares / max(n - 1, 1))


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
    boolean, kind = usage.dtype == bool, np.result_type(_kind(usage), np.float32)
    number = usage.shape[0] * usage.shape[1]
    rows, columns = usage.shape[2], basis.shape[2]
    v = np.asarray(basis, kind).reshape(number, columns, -1)
    out = np.empty((2, rows, columns))
    step = max(1, BLOCK // (number * columns))
    tail = 0.5 * (1.0 - level)
    for i in range(0, rows, step):
        u = np.asarray(usage[:, :, np.arange(i, min(i + step, rows))], kind)
        product = np.einsum("dik,djk->dij", u.reshape(number, -1, u.shape[-1]), v)
        product = (product >= 0.5).astype(kind) if boolean else product
        out[:, i : i + step] = np.quantile(product, [tail, 1.0 - tail], axis=0)
    return out


def sampled_entries(
    usage, basis, number: int, seed: int = 0, rows=None, columns=None
) -> np.ndarray:
    """Reconstruction of some entries drawn at random, for convergence diagnostics.

    Parameters
    ----------
    usage, basis
        As for `exceedance`.
    number : int
        At most the number of entries.
    seed : int
    rows, columns : (...) int, optional
        Where to draw them; default anywhere.

    Returns
    -------
    (chain, draw, number) float64
        Zeros and ones for Boolean factors.
    """
    rows = np.arange(usage.shape[2]) if rows is None else np.asarray(rows)
    columns = np.arange(basis.shape[2]) if columns is None else np.asarray(columns)
    number = min(number, len(rows) * len(columns))
    draw = np.random.default_rng(seed).choice(len(rows) * len(columns), number, replace=False)
    i, j = np.divmod(np.sort(draw), len(columns))
    u, v = usage[:, :, rows[i]], basis[:, :, columns[j]]
    if usage.dtype == bool:
        return (u & v).any(-1).astype(np.float64)
    return np.einsum("cdek,cdek->cde", u, v, dtype=np.float64)


def uncertain_entries(
    usage, basis, number: int, *, rows=None, columns=None, tries: int = 20
) -> tuple[np.ndarray, float]:
    """Entries of a Boolean product that are neither surely a one nor surely a zero.

    Parameters
    ----------
    usage, basis
        As for `exceedance`, bool.
    number : int
        At most so many are returned.
    rows, columns : (...) int, optional
        Where to look.
    tries : int
        So many times more are drawn at random and looked at.

    Returns
    -------
    (chain, draw, at most number) float64
        Those whose mean over all draws is in [.05, .95].
    share : float
        Of the entries looked at that are.
    """
    entries = sampled_entries(usage, basis, tries * number, rows=rows, columns=columns)
    mean = entries.mean((0, 1))
    uncertain = np.flatnonzero((mean >= 0.05) & (mean <= 0.95))
    return entries[..., uncertain[:number]], len(uncertain) / max(len(mean), 1)


def predictive(usage, basis, flip_rate) -> np.ndarray:
    r"""Probability that an observation is a one: :math:`E[f_0 + (1 - f_0 - f_1)\,c]`.

    Parameters
    ----------
    usage, basis
        As for `exceedance`, bool.
    flip_rate : (chain, draw) or (chain, draw, 2) float

    Returns
    -------
    (rows, columns) float64
    """
    rates = np.asarray(flip_rate, float)
    rates = np.stack([rates, rates], -1) if rates.ndim == 2 else rates
    total = np.zeros((usage.shape[2], basis.shape[2]))
    for (f0, f1), factors in zip(rates.reshape(-1, 2), _draws(usage, basis), strict=True):
        total += f0 + (1.0 - f0 - f1) * _product(*factors, boolean=True)
    return total / (rates.size // 2)


def best_usage(
    values, basis_draws, num_draws: int = 100, sweeps: int = 200, upper: float = 1.0
) -> np.ndarray:
    """For some draws of the basis the best-fitting usage in [0, upper], averaged.

    Parameters
    ----------
    values : (rows, columns) float
        NaN is missing.
    basis_draws : (draw, columns, rank) float
    num_draws : int
        Number of draws used, evenly spread.
    sweeps : int
        Coordinate sweeps; each solves one column of the usage exactly.
    upper : float
        1, or infinity.

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
        total += _box_least_squares(
            filled, observed, basis_draws[draw].astype(np.float64), sweeps, upper
        )
    total /= len(chosen)
    total[~observed.any(1)] = np.nan
    return total


def _box_least_squares(values, observed, basis, sweeps, upper):
    """Minimise every row's squared error over usage in [0, upper] by exact coordinate steps."""
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
            usage[:, k] = np.clip(usage[:, k] + slope / curvature, 0.0, upper)
        if np.abs(usage - before).max() < 1e-6 * max(1.0, np.abs(usage).max()):
            break
    return usage

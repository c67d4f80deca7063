"""Functionals of the reconstruction over kept draws, never draws x matrix in memory."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from bmfjax.cells import boolean_products, check_level, quantiles_of_bits, tails
from bmfjax.data.packed import WORD
from bmfjax.data.products import product_words
from bmfjax.draws import as_packed, factor_sets, octets

#: Entries of a block of draws x rows x columns that is formed at once.
BLOCK = 2_000_000


def _blocks(rows: int, columns: int):
    """Slices of rows that together have up to `BLOCK` entries."""
    step = max(1, BLOCK // max(columns, 1))
    # Whole words of packed draws.
    step = step - step % WORD or step
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _each(usage, basis):
    """Draw after draw, of all chains: factors of one draw."""
    for chain in range(usage.shape[0]):
        for draw in range(usage.shape[1]):
            yield usage[chain, draw], basis[chain, draw]


def _boolean_products(usage, basis, rows):
    """Draw after draw the Boolean product of some rows: (rows, columns) uint8."""
    number, columns = rows.stop - rows.start, basis.size
    if rows.start % WORD:
        usage, rows = usage.packed_lines(np.arange(rows.start, rows.stop)), slice(0, number)
    words = slice(rows.start // WORD, -(-rows.stop // WORD))
    for used, items in _each(usage.words, basis.words):
        bits = np.unpackbits(octets(used[:, words]), axis=1, count=number, bitorder="little")
        product = octets(product_words(bits, items))
        yield np.unpackbits(product, axis=1, count=columns, bitorder="little")


def _boolean_counts(usage, basis, rows) -> np.ndarray:
    """In how many draws every entry of some rows is a one: (rows, columns) int32."""
    shape = (rows.stop - rows.start, basis.size)
    total, few = np.zeros(shape, np.int32), np.zeros(shape, np.uint8)
    for n, product in enumerate(_boolean_products(usage, basis, rows), 1):
        few += product
        if n % 255 == 0:  # as far as a byte counts
            total += few
            few[:] = 0
    return total + few


def exceedance(usage, basis, level: float) -> np.ndarray:
    """Share of draws whose reconstruction reaches `level`, entry by entry.

    Parameters
    ----------
    usage : (chain, draw, rows, rank) float, bool or `PackedDraws`
    basis : (chain, draw, columns, rank) float, bool or `PackedDraws`
    level : float
        In (0, 1] for Boolean factors.

    Returns
    -------
    (rows, columns) float64

    Examples
    --------
    >>> usage = np.array([[[[1.0]], [[0.2]]]])
    >>> exceedance(usage, np.ones((1, 2, 1, 1)), 0.5)
    array([[0.5]])
    """
    boolean, number = usage.dtype == bool, usage.shape[0] * usage.shape[1]
    if boolean:
        usage, basis = as_packed(usage), as_packed(basis)
    out = np.empty((usage.shape[2], basis.shape[2]))
    for rows in _blocks(*out.shape):
        if boolean:
            np.divide(_boolean_counts(usage, basis, rows), number, out=out[rows])
            continue
        count = np.zeros(out[rows].shape, np.int32)
        for one_usage, one_basis in _each(usage, basis):
            count += (one_usage[rows] @ one_basis.T) >= level
        np.divide(count, number, out=out[rows])
    return out


def moments(usage, basis, link=None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the reconstruction over draws.

    Parameters
    ----------
    usage, basis
        As for `exceedance`.
    link : callable, optional
        Of this function of the reconstruction; for real factors.

    Returns
    -------
    mean, sd : (rows, columns) float64
    """
    number = usage.shape[0] * usage.shape[1]
    if usage.dtype == bool:
        mean = exceedance(usage, basis, level=0.5)
        return mean, np.sqrt(mean * (1.0 - mean) * (number / max(number - 1, 1)))
    mean = np.zeros((usage.shape[2], basis.shape[2]))
    squares = np.zeros_like(mean)
    for rows in _blocks(*mean.shape):
        for n, (one_usage, one_basis) in enumerate(_each(usage, basis), 1):
            product = one_usage[rows] @ one_basis.T
            product = product if link is None else link(product)
            step = product - mean[rows]
            mean[rows] += step / n
            squares[rows] += step * (product - mean[rows])
    squares /= max(number - 1, 1)
    return mean, np.sqrt(squares, out=squares)


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
    check_level(level)
    number = usage.shape[0] * usage.shape[1]
    if usage.dtype == bool:
        ones = number * exceedance(usage, basis, level=0.5)
        return quantiles_of_bits(ones.round(), number, level)
    kind = np.result_type(usage.dtype, np.float32)
    rows, columns = usage.shape[2], basis.shape[2]
    v = np.asarray(basis, kind).reshape(number, columns, -1)
    out = np.empty((2, rows, columns))
    step = max(1, BLOCK // (number * columns))
    for i in range(0, rows, step):
        u = np.asarray(usage[:, :, np.arange(i, min(i + step, rows))], kind)
        product = np.einsum("dik,djk->dij", u.reshape(number, -1, u.shape[-1]), v)
        out[:, i : i + step] = np.quantile(product, tails(level), axis=0)
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
        bool for Boolean factors.
    """
    rows = np.arange(usage.shape[2]) if rows is None else np.asarray(rows)
    columns = np.arange(basis.shape[2]) if columns is None else np.asarray(columns)
    number = min(number, len(rows) * len(columns))
    draw = np.random.default_rng(seed).choice(len(rows) * len(columns), number, replace=False)
    i, j = np.divmod(np.sort(draw), len(columns))
    boolean = usage.dtype == bool
    if boolean:
        out = np.empty((*usage.shape[:2], number), bool)
        products = boolean_products(as_packed(usage), as_packed(basis), rows[i], columns[j])
        for entries, product in zip(out.reshape(-1, number), products, strict=True):
            entries[:] = product
        return out
    out = np.empty((*usage.shape[:2], number))
    step = max(1, BLOCK // max(1, usage.shape[0] * usage.shape[1] * usage.shape[3]))
    for start in range(0, number, step):
        some = slice(start, start + step)
        u, v = usage[:, :, rows[i[some]]], basis[:, :, columns[j[some]]]
        np.einsum("cdek,cdek->cde", u, v, dtype=np.float64, out=out[..., some])
    return out


def uncertain_entries(
    usage, basis, number: int, *, rows=None, columns=None, tries: int = 20
) -> tuple[np.ndarray, float]:
    """Entries of a Boolean product that are neither surely a one nor surely a zero.

    Parameters
    ----------
    usage, basis
        As for `exceedance`, bool or packed.
    number : int
        At most so many are returned.
    rows, columns : (...) int, optional
        Where to look.
    tries : int
        So many times more are drawn at random and looked at.

    Returns
    -------
    (chain, draw, at most number) bool
        Those whose mean over all draws is in [.05, .95].
    share : float
        Of the entries looked at that are.
    """
    entries = sampled_entries(usage, basis, tries * number, rows=rows, columns=columns)
    mean = entries.mean((0, 1))
    uncertain = np.flatnonzero((mean >= 0.05) & (mean <= 0.95))
    return entries[..., uncertain[:number]], len(uncertain) / max(len(mean), 1)


def tile_means(usage, basis, tile_rows, tile_columns) -> np.ndarray:
    """Mean over the entries of tiles of the probability of a one, no matrix formed.

    Rows with the same factors have the same product, so that every draw is counted over its
    different rows and columns.

    Parameters
    ----------
    usage, basis : PackedDraws
    tile_rows : (rows, tiles) bool
    tile_columns : (columns, tiles) bool

    Returns
    -------
    (tiles,) float64
        NaN of an empty tile.

    Examples
    --------
    >>> from bmfjax.draws import PackedDraws
    >>> usage, basis = PackedDraws.pack([[[[1], [0]]]]), PackedDraws.pack([[[[1], [1]]]])
    >>> tile_means(usage, basis, np.ones((2, 1), bool), np.ones((2, 1), bool))
    array([0.5])
    """
    total = np.zeros(tile_rows.shape[1])
    for used, items in _each(usage.words, basis.words):
        rows, row_counts = _distinct(used, tile_rows)
        columns, column_counts = _distinct(items, tile_columns)
        for some in _blocks(len(rows), len(columns)):
            shared = (rows[some] @ columns.T > 0).astype(float)
            total += (row_counts[some] * (shared @ column_counts)).sum(0)
    size = tile_rows.sum(0, dtype=float) * tile_columns.sum(0, dtype=float)
    size[size == 0] = np.nan
    return total / (size * usage.shape[0] * usage.shape[1])


def _distinct(words, tiles):
    """Different sets of factors of the lines of one draw, (sets, rank) float32, and how many lines
    of each tile have them, (sets, tiles) float64."""
    sets = np.ascontiguousarray(factor_sets(words)[:, : len(tiles)].T)
    keys = sets.view(np.dtype((np.void, sets.shape[1])))[:, 0]
    if sets.shape[1] <= 8:  # numbers are sorted many times faster
        keys = np.pad(sets, ((0, 0), (0, 8 - sets.shape[1]))).view(np.uint64)[:, 0]
    _, first, at = np.unique(keys, return_index=True, return_inverse=True)
    members = csr_array((np.ones(len(at)), (at, np.arange(len(at)))), shape=(len(first), len(at)))
    bits = np.unpackbits(sets[first], axis=1, bitorder="little")[:, : len(words)]
    return bits.astype(np.float32), members @ tiles.astype(float)


def predictive(usage, basis, flip_rate) -> np.ndarray:
    r"""Probability that an observation is a one: :math:`E[f_0 + (1 - f_0 - f_1)\,c]`.

    Parameters
    ----------
    usage, basis
        As for `exceedance`, bool or packed.
    flip_rate : (chain, draw) or (chain, draw, 2) float

    Returns
    -------
    (rows, columns) float64
    """
    rates = np.asarray(flip_rate, float)
    rates = (np.stack([rates, rates], -1) if rates.ndim == 2 else rates).reshape(-1, 2)
    usage, basis = as_packed(usage), as_packed(basis)
    total = np.zeros((usage.shape[2], basis.shape[2]))
    for rows in _blocks(*total.shape):
        products = _boolean_products(usage, basis, rows)
        for (f0, f1), product in zip(rates, products, strict=True):
            total[rows] += f0 + (1.0 - f0 - f1) * product
    return total / len(rates)


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

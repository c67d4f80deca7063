"""Functionals of the reconstruction over kept draws, never draws x matrix in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array, issparse

from bmfjax.data.bits import WORD, count_ones, pack_on_host, product_words
from bmfjax.data.blocks import blocks, spaced
from bmfjax.posterior.cells import boolean_products, check_probability, quantiles_of_bits, tails
from bmfjax.posterior.packed import as_packed, factor_sets, octets
from bmfjax.posterior.selection import sampled_positions


def _row_blocks(rows: int, columns: int):
    """Return slices of rows, in whole words of packed draws."""
    return blocks(rows, columns, multiple=WORD)


def _each(usage, basis):
    """Yield the factors of one draw after the other, of all chains."""
    for chain in range(usage.shape[0]):
        for draw in range(usage.shape[1]):
            yield usage[chain, draw], basis[chain, draw]


def _boolean_products(usage, basis, rows):
    """Yield the Boolean product of some rows, (rows, columns) uint8, draw after draw."""
    number, columns = rows.stop - rows.start, basis.size
    if rows.start % WORD:
        usage, rows = usage.packed_lines(np.arange(rows.start, rows.stop)), slice(0, number)
    words = slice(rows.start // WORD, -(-rows.stop // WORD))
    for used, items in _each(usage.words, basis.words):
        bits = np.unpackbits(octets(used[:, words]), axis=1, count=number, bitorder="little")
        product = octets(product_words(bits, items))
        yield np.unpackbits(product, axis=1, count=columns, bitorder="little")


def _boolean_counts(usage, basis, rows) -> np.ndarray:
    """Count the draws in which each entry of some rows is a one: (rows, columns) int32."""
    shape = (rows.stop - rows.start, basis.size)
    total, few = np.zeros(shape, np.int32), np.zeros(shape, np.uint8)
    for n, product in enumerate(_boolean_products(usage, basis, rows), 1):
        few += product
        if n % 255 == 0:  # as far as a byte counts
            total += few
            few[:] = 0
    return total + few


def exceedance(usage, basis, level: float) -> np.ndarray:
    """Return the share of draws whose reconstruction reaches `level`: (rows, columns) float64.

    `usage` (chain, draw, rows, rank) and `basis` (chain, draw, columns, rank) are float, or bool,
    packed or not; then `level` is in (0, 1].
    """
    boolean, number = usage.dtype == bool, usage.shape[0] * usage.shape[1]
    if boolean:
        usage, basis = as_packed(usage), as_packed(basis)
    out = np.empty((usage.shape[2], basis.shape[2]))
    for rows in _row_blocks(*out.shape):
        if boolean:
            np.divide(_boolean_counts(usage, basis, rows), number, out=out[rows])
            continue
        count = np.zeros(out[rows].shape, np.int32)
        for one_usage, one_basis in _each(usage, basis):
            count += (one_usage[rows] @ one_basis.T) >= level
        np.divide(count, number, out=out[rows])
    return out


def factor_sizes(usage, basis) -> np.ndarray:
    """Return the root mean square, over draws and entries, of what each factor adds: (rank,).

    Examples
    --------
    >>> usage, basis = np.full((1, 2, 4, 1), 2.0), np.full((1, 2, 3, 1), -1.5)
    >>> factor_sizes(usage, basis).tolist()
    [3.0]
    """
    squares = [np.einsum("cdlk,cdlk->cdk", f, f, dtype=float) / f.shape[2] for f in (usage, basis)]
    return np.sqrt((squares[0] * squares[1]).mean((0, 1)))


def moments(usage, basis, link=None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the reconstruction, or of its `link`, over draws."""
    number = usage.shape[0] * usage.shape[1]
    if usage.dtype == bool:
        return moments_of_bits(exceedance(usage, basis, level=0.5), number)
    mean = np.zeros((usage.shape[2], basis.shape[2]))
    squares = np.zeros_like(mean)
    for rows in _row_blocks(*mean.shape):
        for n, (one_usage, one_basis) in enumerate(_each(usage, basis), 1):
            product = one_usage[rows] @ one_basis.T
            product = product if link is None else link(product)
            step = product - mean[rows]
            mean[rows] += step / n
            squares[rows] += step * (product - mean[rows])
    squares /= max(number - 1, 1)
    return mean, np.sqrt(squares, out=squares)


def moments_of_bits(mean, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and standard deviation over `number` draws of bits with these means."""
    return mean, np.sqrt(mean * (1.0 - mean) * (number / max(number - 1, 1)))


def interval(usage, basis, level: float) -> np.ndarray:
    """Return the central interval of the reconstruction over draws: (2, rows, columns) float64."""
    check_probability(level)
    number = usage.shape[0] * usage.shape[1]
    if usage.dtype == bool:
        ones = number * exceedance(usage, basis, level=0.5)
        return quantiles_of_bits(ones.round(), number, level)
    kind = np.result_type(usage.dtype, np.float32)
    rows, columns, rank = usage.shape[2], *basis.shape[2:]
    v = np.asarray(basis, kind).reshape(number, columns, rank)
    out = np.empty((2, rows, columns))
    for some in blocks(rows, number * columns):
        u = np.asarray(usage[:, :, some], kind).reshape(number, -1, rank)
        out[:, some] = np.quantile(np.einsum("dik,djk->dij", u, v), tails(level), axis=0)
    return out


def sampled_entries(
    usage, basis, number: int, seed: int = 0, rows=None, columns=None
) -> np.ndarray:
    """Return draws (chain, draw, number) of entries drawn at random among some rows and columns."""
    rows = np.arange(usage.shape[2]) if rows is None else np.asarray(rows)
    columns = np.arange(basis.shape[2]) if columns is None else np.asarray(columns)
    i, j = sampled_positions(rows, columns, number, seed)
    boolean = usage.dtype == bool
    out = np.empty((*usage.shape[:2], len(i)), bool if boolean else float)
    if boolean:
        products = boolean_products(as_packed(usage), as_packed(basis), i, j)
        for entries, product in zip(out.reshape(-1, len(i)), products, strict=True):
            entries[:] = product
        return out
    for some in blocks(len(i), usage.shape[0] * usage.shape[1] * usage.shape[3]):
        u, v = usage[:, :, i[some]], basis[:, :, j[some]]
        np.einsum("cdek,cdek->cde", u, v, dtype=np.float64, out=out[..., some])
    return out


def uncertain_entries(
    usage, basis, number: int, *, rows=None, columns=None, tries: int = 20
) -> tuple[np.ndarray, float]:
    """Return draws of entries of a Boolean product whose mean is in [0.05, 0.95], and their share.

    `tries` x `number` entries are drawn at random, and the first `number` such ones returned.
    """
    entries = sampled_entries(usage, basis, tries * number, rows=rows, columns=columns)
    mean = entries.mean((0, 1))
    uncertain = np.flatnonzero((mean >= 0.05) & (mean <= 0.95))
    return entries[..., uncertain[:number]], len(uncertain) / max(len(mean), 1)


def tile_means(usage, basis, tile_rows, tile_columns) -> np.ndarray:
    """Return the mean probability of a one over each tile (tiles,), without forming the matrix.

    `tile_rows` (rows, tiles) and `tile_columns` (columns, tiles) are bool; an empty tile has NaN.
    Rows with the same factors have the same product: each draw is summed over distinct sets.
    """
    total = np.zeros(tile_rows.shape[1])
    masks = pack_on_host(tile_columns.T)
    for used, items in _each(usage.words, basis.words):
        sets, counts = _distinct(used, tile_rows)
        for some in _row_blocks(len(sets), basis.size):
            product = product_words(sets[some].T, items)
            for tile, (mask, number) in enumerate(zip(masks, counts[some].T, strict=True)):
                held = np.flatnonzero(number)
                ones = count_ones(product[held] & mask)
                total[tile] += ones @ number[held]
    size = tile_rows.sum(0, dtype=float) * tile_columns.sum(0, dtype=float)
    size[size == 0] = np.nan
    return total / (size * usage.shape[0] * usage.shape[1])


def _distinct(words, tiles):
    """Return a draw's distinct sets of factors, and how many lines of each tile have them.

    The shapes are (sets, rank) uint8 and (sets, tiles) float64.
    """
    sets = np.ascontiguousarray(factor_sets(words)[:, : len(tiles)].T)
    keys = sets.view(np.dtype((np.void, sets.shape[1])))[:, 0]
    if sets.shape[1] <= 8:  # numbers are sorted many times faster
        keys = np.pad(sets, ((0, 0), (0, 8 - sets.shape[1]))).view(np.uint64)[:, 0]
    _, first, at = np.unique(keys, return_index=True, return_inverse=True)
    members = csr_array((np.ones(len(at)), (at, np.arange(len(at)))), shape=(len(first), len(at)))
    bits = np.unpackbits(sets[first], axis=1, count=len(words), bitorder="little")
    return bits, members @ tiles.astype(float)


def predictive(usage, basis, flip_rate) -> np.ndarray:
    r"""Return the probability that an observation is a one: :math:`E[f_0 + (1 - f_0 - f_1)\,c]`.

    `flip_rate` is (chain, draw), or (chain, draw, 2) of zeros and of ones.
    """
    rates = np.asarray(flip_rate, float)
    rates = (np.stack([rates, rates], -1) if rates.ndim == 2 else rates).reshape(-1, 2)
    usage, basis = as_packed(usage), as_packed(basis)
    total = np.zeros((usage.shape[2], basis.shape[2]))
    for rows in _row_blocks(*total.shape):
        products = _boolean_products(usage, basis, rows)
        for (f0, f1), product in zip(rates, products, strict=True):
            total[rows] += f0 + (1.0 - f0 - f1) * product
    return total / len(rates)


#: Draws of the basis to which the usage of new rows is fitted, at most.
NUM_FITTED = 100


def best_usage(
    values, basis_draws, num_draws: int = NUM_FITTED, sweeps: int = 200, upper: float = 1.0
) -> np.ndarray:
    """Return the usage in [0, `upper`] that fits best, averaged over up to `num_draws` draws.

    `values` (rows, columns) has NaN where missing and may be sparse, `basis_draws` is (draw,
    columns, rank). At most `sweeps` coordinate sweeps solve the least squares. A row without
    information has NaN.
    """
    values = _dense_if_missing(values)
    chosen = spaced(len(basis_draws), num_draws, down=True)
    total = np.zeros((values.shape[0], basis_draws.shape[-1]))
    for usage in best_usages(values, basis_draws[chosen], sweeps, upper):
        total += usage
    total /= len(chosen)
    if not issparse(values):
        total[np.isnan(values).all(1)] = np.nan
    return total


def _dense_if_missing(values):
    """Return values of which entries are missing as a dense array."""
    return values.toarray() if issparse(values) and np.isnan(values.data).any() else values


def best_usages(values, basis_draws, sweeps: int = 200, upper: float = 1.0) -> Iterator[np.ndarray]:
    """Yield the usage (rows, rank) in [0, `upper`] that fits best, of one draw after the other.

    Usage that a row tells nothing of is `upper` / 2, and 0 without an upper bound: there no number
    is in the middle, and one would depend on the unit of the data. Arguments as of `best_usage`.
    """
    values = _dense_if_missing(values)
    observed, filled = None, values
    if not issparse(values):
        observed, filled = ~np.isnan(values), np.nan_to_num(values).astype(np.float64)
        observed = None if observed.all() else observed
    for basis in basis_draws:
        yield _box_least_squares(filled, observed, basis.astype(np.float64), sweeps, upper)


def _box_least_squares(values, observed, basis, sweeps, upper):
    """Minimise every row's squared error over usage in [0, upper] by exact coordinate steps.

    Values that are not `observed` are zero; None: all are.
    """
    rows, rank = values.shape[0], basis.shape[1]
    usage = np.full((rows, rank), upper / 2 if np.isfinite(upper) else 0.0)
    cross = values @ basis
    if observed is None:
        grams = np.broadcast_to(basis.T @ basis, (rows, rank, rank))
    else:
        grams = np.einsum("ij,jk,jl->ikl", observed.astype(float), basis, basis, optimize=True)
    # What is small: in [0, 1] beside one, else beside what there is, whatever the unit of the data.
    bounded = np.isfinite(upper)
    square = 1.0 if bounded else max(np.einsum("ikk->ik", grams).max(initial=0.0), 1e-300)
    for _ in range(sweeps):
        before = usage.copy()
        for k in range(usage.shape[1]):
            curvature = np.maximum(grams[:, k, k], 1e-12 * square)
            slope = cross[:, k] - np.einsum("il,il->i", grams[:, k], usage)
            usage[:, k] = np.clip(usage[:, k] + slope / curvature, 0.0, upper)
        size = max(float(bounded), np.abs(usage).max(initial=0.0))
        if np.abs(usage - before).max(initial=0.0) <= 1e-6 * size:
            break
    return usage

"""Small data and settings that several test files fit, so that programs are compiled once."""

import numpy as np

import bmfjax

ROWS, COLUMNS, RANK = 12, 9, 2
SIZES = {"num_chains": 2, "num_warmup": 40, "num_samples": 30, "progress": False}


def real(complete=False):
    """Nonnegative numbers, of which some are missing unless `complete`."""
    rng = np.random.default_rng(20)
    product = rng.gamma(1.0, size=(ROWS, RANK)) @ rng.gamma(1.0, size=(RANK, COLUMNS))
    values = product + 0.1 * rng.random(product.shape)
    missing = rng.permutation(values.size)[:6]
    if not complete:
        values.ravel()[missing] = np.nan
        values[3, 0] = np.nan
    return values


def ones():
    """Zeros and ones, of which some are missing."""
    values = real()
    return np.where(np.isnan(values), np.nan, values > np.nanmedian(values))


def stars(values=None):
    """Ratings from 1 to 4 of the cells that are observed."""
    values = real() if values is None else values
    rows, columns = np.nonzero(~np.isnan(values))
    marks = np.clip(np.ceil(values[rows, columns]), 1, 4)
    return bmfjax.Ratings(rows, columns, marks, shape=values.shape, scale=(1, 4))


def start():
    """Bits for a chain to start from."""
    rng = np.random.default_rng(21)
    return {"usage": rng.random((ROWS, RANK)) > 0.5, "basis": rng.random((COLUMNS, RANK)) > 0.5}

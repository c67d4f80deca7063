"""Starts of relaxed chains that reach the truth: annealed from the prior, with a fixed rate.

From a random point a chain of the relaxed model ends in a poor mode, and where factors may vanish,
some have vanished before they found a tile. In the annealed model factors can slide, and their
rates are fixed, so that none is lost.
"""

from __future__ import annotations

import functools
import math

import jax
import numpy as np
from jax import random

from bmfjax.clock import OutOfTimeError, running_clock
from bmfjax.data import BinaryMatrix
from bmfjax.infer.mcmc.truncated import TruncatedGibbs, sparse_numbers
from bmfjax.infer.reducers import moments
from bmfjax.infer.run import ChainRun, finish_in_time
from bmfjax.models.relaxed import relaxed_bmf

#: Sweeps: annealed, then settling, then averaged.
ANNEAL, SETTLE, AVERAGE = 750, 50, 200
#: CPU seconds below which chains are not begun: to trace and compile them takes longer.
COMPILING = 4.0
#: Share of missing entries up to which they are filled in.
MOST_FILLED = 0.2


def annealed_means(
    key: jax.Array, data: BinaryMatrix, rank: int, num_chains: int, num_anneal: int = ANNEAL
) -> tuple[np.ndarray, np.ndarray]:
    """Return what independent chains of the relaxed model find, annealed from the prior.

    Where few entries are missing they are filled in, with guesses and then with what the chains
    make of these: where all is there, rows share one Gram matrix, and a sweep is many times
    faster. These are starts: the sweeps that follow see what is missing.

    The means are (chain, rows, rank) and (chain, columns, rank), in [0, 1]. `num_anneal` sweeps are
    annealed; another third follows at temperature one. Large sparse data stay sparse.

    Examples
    --------
    >>> truth = np.kron(np.eye(2, dtype=bool), np.ones((8, 6), bool))
    >>> usage, basis = annealed_means(random.key(0), BinaryMatrix(truth), 2, 1, num_anneal=300)
    >>> bool(((usage[0] @ basis[0].T > 0.5) == truth).all())
    True
    """
    if (sparse := sparse_numbers(data)) is not None:
        return _means(key, sparse, rank, num_chains, num_anneal)
    values = data.dense()
    missing = np.isnan(values)
    if not 0 < missing.mean() <= MOST_FILLED:
        return _means(key, values, rank, num_chains, num_anneal)
    key_guess, key = random.split(key)
    guess = _product_of_means(values, ~missing)
    means = _means(key_guess, np.where(missing, guess, values), rank, num_chains, num_anneal)
    products = np.mean([np.minimum(u @ v.T, 1.0) for u, v in zip(*means, strict=True)], axis=0)
    filled = np.where(missing, products, values).astype(values.dtype)
    return _means(key, filled, rank, num_chains, num_anneal)


def _product_of_means(values, observed) -> np.ndarray:
    """Return the product of the means of rows and columns, as independence would have it."""
    rows, columns = (
        np.sum(values, axis=axis, where=observed, dtype=float, keepdims=True)
        / np.maximum(np.sum(observed, axis=axis, keepdims=True), 1)
        for axis in (1, 0)
    )
    whole = np.mean(values, where=observed, dtype=float)
    return np.minimum(rows * columns / max(whole, 1e-12), 1.0).astype(values.dtype)


def _means(key, values, rank, num_chains, num_anneal):
    if not running_clock().has(COMPILING):
        raise OutOfTimeError
    model = functools.partial(relaxed_bmf, rank=rank, prior="laplace")
    bound = TruncatedGibbs(model, num_anneal=num_anneal).bind(values)
    scale = num_anneal / ANNEAL
    run = ChainRun(
        bound.algorithm,
        key,
        bound.data,
        num_chains=num_chains,
        num_warmup=num_anneal + math.ceil(SETTLE * scale),
        num_samples=max(10, math.ceil(AVERAGE * scale)),
        reducers={"mean": moments("usage", "basis")},
        is_short=True,
    )
    finish_in_time(run)
    means = run.reduced()["mean"]
    return means["usage"]["mean"], means["basis"]["mean"]

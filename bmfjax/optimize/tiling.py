r"""PanPal and Primp: tiles by proximal optimisation, whose number is found.

The relaxed objective is minimised in [0, 1] by PALM (:mod:`bmfjax.optimize.palm`) with the penalty
that pulls to 0 and 1 (:func:`bmfjax.optimize.proximal.binary_penalty`), starting at a small rank.
The factors are cut at the pair of thresholds with the least cost. Where the cut leaves at most one
factor unused the rank is raised by columns of random numbers, and the search goes on from there;
else it is done (Hess, Morik, Piatkowski 2017, "The PRIMPING routine: tiling through proximal
alternating linearized minimization", Data Mining and Knowledge Discovery 31; algorithm PAL-Tiling).
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.checks import whole
from bmfjax.diagnostics.threshold import PAIR_GRID
from bmfjax.optimize.costs import code_length_of, item_lengths
from bmfjax.optimize.palm import (
    Factors,
    Matrix,
    Palm,
    Penalty,
    Smooth,
    arrays_of,
    check_key,
    matrix_of,
    minimise,
    norm_of_other,
    palm,
    spectral_norm,
    squared_error,
)
from bmfjax.optimize.proximal import binary_penalty, prox_binary

#: The published search: factors that are added at a time, steps at most at each rank, and the
#: mean decrease of the relaxed objective over a window of steps at which it stops.
RANK_STEP, MAX_STEPS, TOLERANCE = 10, 50_000, 0.005


class Tiling(NamedTuple):
    """Boolean factors, and where they come from.

    Attributes
    ----------
    usage : array, (rows, found), bool
        The tiles in use.
    basis : array, (columns, found), bool
    cost : float
        What was minimised over thresholds and starts.
    tau_usage, tau_basis : float
        The thresholds; a value above is a one.
    relaxed : Factors
        The factors before the cut, float32, with all columns of the last rank.
    """

    usage: np.ndarray
    basis: np.ndarray
    cost: float
    tau_usage: float
    tau_basis: float
    relaxed: Factors


def panpal(
    key,
    data: BinaryMatrix,
    rank: int | None = None,
    *,
    num_starts: int = 1,
    rank_step: int = RANK_STEP,
    max_rank: int | None = None,
    max_steps: int = MAX_STEPS,
    tolerance: float = TOLERANCE,
) -> Tiling:
    r"""Find tiles with few errors and few ones, and their number (PanPal).

    The relaxed objective is

    .. math:: \tfrac12 \|D - Y X^T\|_F^2 + \tfrac12 (|X| + |Y|) + \Lambda(X) + \Lambda(Y)

    and the cost of Boolean factors is :func:`regularised_error`.

    Parameters
    ----------
    key : jax.Array
        ``jax.random.key(seed)``.
    data : BinaryMatrix
        Missing entries count neither in the objective nor in the cost.
    rank : int, optional
        Number of factors. By default it is found.
    num_starts : int
        Random starts; they run at once, and the one with the least cost is returned.
    rank_step : int
        Factors to start with, and to add at a time.
    max_rank : int, optional
        Factors at most; default the shorter side.
    max_steps : int
        Steps of PALM at most, at each rank.
    tolerance : float
        PALM stops where the objective changes by at most so much a step.

    Returns
    -------
    Tiling

    Raises
    ------
    InputError
        What is no random key, data that are no `BinaryMatrix`, or numbers that are not positive and
        whole.

    References
    ----------
    Hess, Morik, Piatkowski (2017). Gonsior (2019), equations 2.6 to 2.16.

    Examples
    --------
    >>> truth = np.kron(np.eye(3, dtype=bool), np.ones((20, 20), bool))
    >>> found = panpal(random.key(0), BinaryMatrix(truth), rank_step=5, num_starts=4)
    >>> found.usage.shape[1], bool(((found.usage @ found.basis.T) == truth).all())
    (3, True)
    """
    options = num_starts, rank_step, max_rank, max_steps, tolerance
    return _search(key, data, rank, PANPAL, _errors_and_ones, *options)


def primp(
    key,
    data: BinaryMatrix,
    rank: int | None = None,
    *,
    num_starts: int = 1,
    rank_step: int = RANK_STEP,
    max_rank: int | None = None,
    max_steps: int = MAX_STEPS,
    tolerance: float = TOLERANCE,
) -> Tiling:
    r"""Find tiles that make the code of a matrix short, and their number (Primp).

    The cost of Boolean factors is :func:`tile_code_length`. The relaxed objective follows from a
    bound of it: with n columns and the code lengths c of single columns,

    .. math:: \frac{1 + \log n}{2} \|D - Y X^T\|_F^2 + \tfrac12 \Big(
              -\sum_k (|Y_{\cdot k}| + 1) \log \frac{|Y_{\cdot k}| + 1}{|Y| + r}
              + |X^T c| + |Y|\Big) + \Lambda(X) + \Lambda(Y).

    Parameters
    ----------
    key, data, rank, num_starts, rank_step, max_rank, max_steps, tolerance
        As for :func:`panpal`.

    Returns
    -------
    Tiling

    Raises
    ------
    InputError
        As :func:`panpal`.

    References
    ----------
    Hess, Morik, Piatkowski (2017).

    Examples
    --------
    >>> truth = np.kron(np.eye(3, dtype=bool), np.ones((20, 20), bool))
    >>> found = primp(random.key(0), BinaryMatrix(truth), rank_step=5, num_starts=4)
    >>> found.usage.shape[1], bool(((found.usage @ found.basis.T) == truth).all())
    (3, True)
    """
    options = num_starts, rank_step, max_rank, max_steps, tolerance
    return _search(key, data, rank, PRIMP, _code_length, *options)


def _panpal_value(factors: Factors, matrix: Matrix):
    ones = jnp.sum(factors.usage) + jnp.sum(factors.basis)
    return squared_error(factors, matrix) + 0.5 * ones


def primp_smooth(factors: Factors, matrix: Matrix):
    """Return the smooth part of the relaxed objective of Primp."""
    usage, basis = factors
    used = jnp.sum(usage, axis=0) + 1.0
    words = -jnp.sum(used * jnp.log(used / jnp.sum(used)))
    counts = jnp.sum(matrix.values, axis=0)
    lengths = jnp.log(jnp.maximum(jnp.sum(counts), 1.0)) - jnp.log(jnp.maximum(counts, 1.0))
    table = jnp.sum(lengths[:, None] * basis)
    return _weight(matrix) * squared_error(factors, matrix) + 0.5 * (words + table + jnp.sum(usage))


def _weight(matrix):
    return 1.0 + jnp.log(jnp.float32(matrix.values.shape[1]))


def primp_usage_modulus(basis, matrix):
    """Return the Lipschitz modulus of its gradient in usage."""
    # The gradient of the words is log((|Y_k| + 1) / (|Y| + r)) in each row: its Jacobian has the
    # norm 2 rows at most.
    return _weight(matrix) * spectral_norm(basis) + matrix.values.shape[0]


def _primp_basis_modulus(usage, matrix):
    return _weight(matrix) * spectral_norm(usage)


_PULL = Penalty(lambda x, time: binary_penalty(x), lambda x, step, time: prox_binary(x, step))
PANPAL = palm(Smooth(_panpal_value, norm_of_other, norm_of_other), _PULL)
PRIMP = palm(Smooth(primp_smooth, primp_usage_modulus, _primp_basis_modulus), _PULL)


def _search(
    key, data, rank, optimiser: Palm, cost, num_starts, rank_step, max_rank, max_steps, tolerance
) -> Tiling:
    """Raise the rank until more than one factor is left unused, and return the best tiling."""
    check_key(key)
    ones, counted = arrays_of(data)
    whole("num_starts", num_starts)
    whole("max_steps", max_steps)
    most = min(data.shape) if max_rank is None else whole("max_rank", max_rank)
    step = min(whole("rank_step", rank_step), most)
    if rank is not None:
        step = most = whole("rank", rank)
    matrix = matrix_of(ones, counted)
    factors = Factors(*(jnp.zeros((num_starts, size, 0)) for size in data.shape))
    for reached in range(step, most + step, step):
        key, key_new = random.split(key)
        factors = _widened(key_new, factors, min(reached, most))
        factors = _minima(optimiser, factors, matrix, max_steps, tolerance)
        tilings = [_cut(Factors(*both), cost, ones, counted) for both in zip(*factors, strict=True)]
        best = min(tilings, key=lambda tiling: tiling.cost)
        # A tile of one row or one column is none: it says what single entries say.
        real = (best.usage.sum(axis=0) > 1) & (best.basis.sum(axis=0) > 1)
        if reached >= most or reached - real.sum() > 1:
            break
    return best


def _widened(key, factors: Factors, rank: int) -> Factors:
    """Append columns of uniform numbers up to `rank`."""
    keys = random.split(key)
    return Factors(
        *(
            jnp.concatenate([old, random.uniform(k, (*old.shape[:2], rank - old.shape[2]))], axis=2)
            for k, old in zip(keys, factors, strict=True)
        )
    )


@functools.partial(jax.jit, static_argnums=(0, 3, 4))
def _minima(optimiser, factors, matrix, max_steps, tolerance, window=500):
    """Return where an optimiser stops from every start, a leading axis of `factors`."""
    window = min(window, max_steps)

    def one(start):
        found = minimise(
            optimiser, start, matrix, max_steps=max_steps, tolerance=tolerance, window=window
        )
        return found.factors

    return jax.vmap(one)(factors)


def _cut(relaxed: Factors, cost, ones, counted) -> Tiling:
    """Cut both factors at the pair of thresholds of the grid with the least cost."""
    relaxed = Factors(*map(np.asarray, relaxed))
    cuts = [_distinct(factor) for factor in relaxed]

    def tilings():
        for (tau_usage, usage), (tau_basis, basis) in itertools.product(*cuts):
            used = usage.any(axis=0) & basis.any(axis=0)  # one side alone is no tile
            tiles = usage[:, used], basis[:, used]
            yield Tiling(*tiles, cost(*tiles, ones, counted), tau_usage, tau_basis, relaxed)

    return min(tilings(), key=lambda tiling: tiling.cost)


def _distinct(factor):
    """Return the thresholds of the grid that give different Boolean factors, with these."""
    cuts = [(float(tau), factor > tau) for tau in PAIR_GRID]
    changed = [True] + [(a[1] != b[1]).any() for a, b in itertools.pairwise(cuts)]
    return [cut for cut, new in zip(cuts, changed, strict=True) if new]


def _wrong(usage, basis, ones, counted):
    """Return the wrong entries of each column."""
    # Single precision counts exactly up to 2**24 factors, and its product runs in BLAS.
    wrong = (usage.astype(np.float32) @ basis.astype(np.float32).T > 0) != ones
    if counted is not None:
        wrong &= counted
    return np.count_nonzero(wrong, axis=0)


def _errors_and_ones(usage, basis, ones, counted) -> float:
    wrong = _wrong(usage, basis, ones, counted)
    return float(wrong.sum() + np.count_nonzero(usage) + np.count_nonzero(basis))


def _code_length(usage, basis, ones, counted) -> float:
    wrong = _wrong(usage, basis, ones, counted)
    return code_length_of(usage, basis, wrong, item_lengths(np.count_nonzero(ones, axis=0)))

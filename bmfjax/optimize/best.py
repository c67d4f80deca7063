"""The Boolean factors with the fewest wrong entries that a given time finds."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.checks import positive, seed_number, whole
from bmfjax.data.errors import InputError
from bmfjax.optimize.palm import arrays_of
from bmfjax.optimize.polish import polish

#: Polishes from the best start, the share of the time of each, and the smallest share of those that
#: go on from the best of all.
REPEATS, SHARE, LEAST = 4, 0.1, 0.05
#: Blocks of all factors find other optima than those that leave some out: sizes that alternate.
BLOCK, LARGE_BLOCK = 8, 10
#: Perturbations without end: the time ends them.
ENDLESS = 10**6


class Reconstruction(NamedTuple):
    """Boolean factors with few wrong entries, and how they were found.

    Attributes
    ----------
    usage : array, (rows, rank), bool
    basis : array, (columns, rank), bool
        A factor that adds nothing is empty in both.
    error : int
        Wrong observed entries.
    errors_from : dict
        ``{start: (error, ...)}``, wrong entries after each polish from a start; those to which it
        came. Where they differ, more time may help.
    """

    usage: np.ndarray
    basis: np.ndarray
    error: int
    errors_from: dict[str, tuple[int, ...]]


def best_reconstruction(
    data: BinaryMatrix, rank: int, *, max_time: float = 60.0, start=None, seed: int = 0
) -> Reconstruction:
    r"""Search for the Boolean factors of a rank with the fewest wrong entries.

    Each start is polished for a tenth of the time (`polish`, with perturbations): no factors at
    all, the largest columns as factors of their own (rows, where these are fewer), and `start`. The
    best of them is polished three times more with other random numbers. What is left of the time
    goes into the best factors of all.

    Parameters
    ----------
    data : BinaryMatrix
        Missing entries do not count.
    rank : int
    max_time : float
        Seconds. It ends earlier only where no entry is wrong.
    start : pair of arrays, optional
        Usage (rows, rank) and basis (columns, rank) of a further start, such as
        ``(fit.usage_binary, fit.basis_binary)``. The result is never worse.
    seed : int

    Returns
    -------
    Reconstruction

    Raises
    ------
    InputError
        Data that are no `BinaryMatrix`, a `start` of another shape or that is not Boolean, or
        numbers outside their bounds.

    Notes
    -----
    The time ends the search, so that the same seed may end in other factors on another machine.
    Set ``OPENBLAS_NUM_THREADS=1`` in the environment before NumPy is imported, as for `polish`.

    The fewest wrong entries are not the truth: in noise, factors with fewer wrong entries than the
    true ones describe the noise. `trusted` and ``fit.tiles()`` say which factors are real.

    Examples
    --------
    >>> truth = np.kron(np.eye(4, dtype=bool), np.ones((5, 7), bool))
    >>> best_reconstruction(BinaryMatrix(truth), 4).error
    0
    """
    ones, _ = arrays_of(data)
    rank, end = whole("rank", rank), time.monotonic() + positive("max_time", max_time)
    seed_number(seed)
    given = {} if start is None else {"start": _pair(start, rank)}
    starts = given | _starts(ones, rank)
    blocks = (BLOCK,) if rank <= BLOCK else (min(rank, LARGE_BLOCK), BLOCK)

    def polished(factors, seconds, n):
        return polish(
            *factors, data, block=blocks[n % len(blocks)], patience=1, perturbations=ENDLESS,
            max_time=seconds, seed=seed + n,
        )  # fmt: skip

    tries = {}
    for name, pair in starts.items():
        tries[name] = [polished(pair, SHARE * max_time, 0)]
        if not tries[name][0].error:
            break
    name = min(tries, key=lambda name: tries[name][0].error)
    for n in range(1, REPEATS):
        if not tries[name][-1].error:
            break
        tries[name].append(polished(starts[name], SHARE * max_time, n))
    found = min(tries[name], key=lambda one: one.error)
    left = max(LEAST * max_time, end - time.monotonic()) / len(blocks)
    for n in range(len(blocks) if found.error else 0):
        found = polished((found.usage, found.basis), left, n)
    errors = {name: tuple(one.error for one in some) for name, some in tries.items()}
    return Reconstruction(found.usage, found.basis, found.error, errors)


def _starts(ones, rank: int) -> dict:
    """Return the starts that every matrix has, by name."""
    nothing = [np.zeros((size, rank), bool) for size in ones.shape]
    by_rows = ones.shape[0] < ones.shape[1]
    values = ones.T if by_rows else ones
    largest = np.argsort(-values.sum(axis=0), kind="stable")[:rank]
    lines = [np.zeros((size, rank), bool) for size in values.shape]
    # A rank above the number of lines leaves factors empty.
    lines[0][:, : len(largest)] = values[:, largest]
    lines[1][largest, np.arange(len(largest))] = True
    return {"nothing": nothing, "rows" if by_rows else "columns": lines[::-1] if by_rows else lines}


def _pair(start, rank: int):
    """Return the factors of the user's start, or refuse another rank; `polish` has the rest."""
    usage, basis = map(np.asarray, start[:2])
    for name, factor in (("usage", usage), ("basis", basis)):
        if factor.ndim != 2 or factor.shape[1] != rank:
            raise InputError(
                f"{name} of the start has shape {factor.shape} and rank is {rank}; give one column "
                "for each factor"
            )
    return usage, basis

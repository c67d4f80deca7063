r"""Nonnegative matrices whose set of factorisations is known: one, two, or a line of them.

Masood, Pan, Doshi-Velez 2016, section 4.1; the first two are Laurberg's. A solution is written
as everywhere here, :math:`D = Y X^\top` with `usage` Y (their A) and `basis` X (their W,
transposed).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bmfjax.data.checks import seed_number
from bmfjax.data.errors import InputError


class NMFProblem(NamedTuple):
    """An exact product and its solutions.

    Attributes
    ----------
    exact : (rows, columns) float64
    rank : int
    solution : callable
        ``solution(t) -> (usage, basis)``, (rows, rank) and (columns, rank) float64, for t in
        [0, 1]: with t uniform, solutions are drawn as the paper's All Modes draws them. Columns
        may be permuted and scaled besides.
    """

    exact: np.ndarray
    rank: int
    solution: Callable[[float], tuple[np.ndarray, np.ndarray]]


def laurberg(a: float) -> NMFProblem:
    """Return Laurberg's 6 x 6 matrix of rank 3 (equations 6 and 7).

    Parameters
    ----------
    a : float
        0.3 for a unique solution, 0.5 for two of them, which a change of basis exchanges.

    Returns
    -------
    NMFProblem

    Raises
    ------
    InputError
        For another number: the solutions are not known.

    Examples
    --------
    >>> two = laurberg(0.5)
    >>> (first, _), (second, _) = two.solution(0.0), two.solution(1.0)
    >>> second[:2].tolist()
    [[0.5, 0.0, 1.0], [0.0, 0.5, 1.0]]
    """
    if a not in (0.3, 0.5):
        raise InputError(f"a is {a}; its solutions are known for 0.3 (one) and 0.5 (two)")
    first = np.array([[a, 1, 0], [1, a, 0], [1, 0, a], [a, 0, 1], [0, a, 1], [0, 1, a]])
    # The exact zeros: their Q has thirds, which floats have not.
    second = np.maximum((first @ np.array([[-1, 2, 2], [2, -1, 2], [2, 2, -1]]) / 3).round(12), 0)

    def solution(t):
        usage = second if a == 0.5 and t >= 0.5 else first
        return usage, usage.copy()

    return NMFProblem(first @ first.T, 3, solution)


def solution_line() -> NMFProblem:
    r"""Return a 7 x 9 matrix of nonnegative rank 6 with a line of solutions (equations 8, 9).

    The basis stays, and the last row of the usage is
    :math:`(1-\delta, 1-\delta, 1-\delta, \delta, \delta, \delta)` for any
    :math:`\delta \in [0, 1]`: the sum of the first three columns of the basis is that of the last
    three. (In the paper's equation 9 the sixth row of :math:`A_\delta` is printed as 0 1 0 0 0 1,
    which does not give the matrix of equation 8; it must be 0 0 0 0 0 1.)

    Returns
    -------
    NMFProblem
        `solution` takes delta.

    Examples
    --------
    >>> line = solution_line()
    >>> usage, basis = line.solution(0.25)
    >>> bool(np.allclose(usage @ basis.T, line.exact))
    True
    """
    three = np.eye(3)
    basis = np.hstack([np.repeat(three, 3, axis=0), np.tile(three, (3, 1))])

    def solution(t):
        last = [1 - t] * 3 + [t] * 3
        return np.vstack([np.eye(6), last]), basis.copy()

    usage, _ = solution(0.5)
    return NMFProblem(usage @ basis.T, 6, solution)


def embedded(problem: NMFProblem, rows: int = 500, columns: int = 50, seed: int = 0) -> NMFProblem:
    r"""Return a larger matrix :math:`B_1 D B_2` with random nonnegative factors.

    The entries of :math:`B_1` and :math:`B_2` are uniform on [0, 1], which the paper leaves open;
    with them the angles between solutions are its own (10.8 and 21.4 degrees). Such a product has
    more solutions than the small matrix: no entry of the factors is zero, so that a change of
    basis has room.

    Parameters
    ----------
    problem : NMFProblem
    rows, columns : int
    seed : int

    Returns
    -------
    NMFProblem

    Examples
    --------
    >>> large = embedded(laurberg(0.5))
    >>> large.exact.shape, large.solution(0.0)[1].shape
    ((500, 50), (50, 3))
    """
    rng = np.random.default_rng(seed_number(seed))
    left = rng.random((rows, problem.exact.shape[0]))
    right = rng.random((problem.exact.shape[1], columns))

    def solution(t):
        usage, basis = problem.solution(t)
        return left @ usage, right.T @ basis

    return NMFProblem(left @ problem.exact @ right, problem.rank, solution)

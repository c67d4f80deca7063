"""Fits that find the number of factors by their relevance: all that sample real factors.

There are as many factors as are allowed, each with a rate or a precision of its own that is
learned, and shrinks it where the data do not need it. How many are used is counted at every draw
by `bmfjax.kernels.used_factors`, and so is its posterior, P(rank). The same rule chooses what is
shown: what a draw does not use is handed to the factors that it uses, and the result has those
that at least half of the draws use. The logistic model draws from an approximation of the
posterior, and leaves out what is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np

from bmfjax.data import InputError
from bmfjax.families.base import FACTORS, Data, Problem, kept_factors, mean_and_square
from bmfjax.kernels.base import Algorithm
from bmfjax.kernels.numerics.programs import jit_equal
from bmfjax.kernels.used_factors import counting, edge_in_noise, used_factors

#: Stream of the random numbers of starts, beside those of the chains.
START_STREAM = 2**31 - 3
#: Squares of factors are at least so large, and so many updates follow what is handed over.
LEAST_SQUARE, UPDATES = 1e-300, 10
#: What counts as a factor, and what is believed of their number beforehand, for the report.
COUNTED = (
    "A factor counts in a draw where it adds more to the product than a factor that fits noise "
    "alone would. Factors that share their rows or their columns count once. One that is weaker "
    "than that does not count, even where it is real."
)
BEFOREHAND = (
    "every factor has a scale of its own, whose prior has most of its mass where it adds nothing"
)


class NoiseEdge(NamedTuple):
    """The noise edge of a data set: what it is multiplied by, and the lines that are looked at."""

    factor: float  # in standard deviations of the noise
    rows: np.ndarray | None  # those of which some entry is observed; None: all
    columns: np.ndarray | None


def noise_edge(data: Data) -> NoiseEdge:
    """Return the noise edge of a data set; lines without entries have draws of the prior."""
    informed = [
        np.setdiff1d(np.arange(size), empty)
        for size, empty in zip(data.shape, (data.empty_rows, data.empty_columns), strict=True)
    ]
    numbers = [len(lines) for lines in informed]
    observed = data.num_rows * data.num_columns - data.num_missing
    some = (
        None if number == size else lines
        for lines, number, size in zip(informed, numbers, data.shape, strict=True)
    )
    return NoiseEdge(edge_in_noise(*numbers, observed), *some)


def with_rank_counted(algorithm: Algorithm, data: Data, noise_sd: Callable) -> Algorithm:
    """Return the algorithm that observes `rank`; ``noise_sd(observed)`` is that of the noise."""
    edge = noise_edge(data)
    return counting(algorithm, edge.factor, noise_sd, (edge.rows, edge.columns))


def noise_sd(precision) -> Callable:
    """Return ``noise_sd(observed)`` of normal noise with this precision: a number, or a prior."""
    if isinstance(precision, float):
        return lambda found: np.float32(precision**-0.5)
    return lambda found: found["precision"] ** -0.5


def random_start(problem: Problem, precision) -> dict:
    """Return where chains of nonnegative factors start: all of them as large as the data allow.

    From there those that are not needed vanish; one that has vanished seldom comes back.
    """
    data, rank = problem.data, int(problem.rank)
    mean, square = mean_and_square(data)
    rate = (rank / mean) ** 0.5
    keys = jax.random.split(jax.random.fold_in(problem.key, START_STREAM))
    start = {
        name: np.maximum(
            np.asarray(jax.random.exponential(key, (problem.num_chains, size, rank))) / rate,
            np.finfo(np.float32).tiny,
        ).astype(np.float32)
        for key, name, size in zip(keys, FACTORS, data.shape, strict=True)
    }  # fmt: skip
    start["rate"] = np.full((problem.num_chains, rank), rate, np.float32)
    if not isinstance(precision, float):
        spread = max(square - mean**2, 1e-12 * square)
        start["precision"] = np.full(problem.num_chains, 1.0 / spread, np.float32)
    return start


def used_draws(data: Data, usage, basis, noise_sd) -> np.ndarray:
    """Tell which factors every kept draw uses, (chain, draw, rank) bool.

    `usage` and `basis` are (chain, draw, lines, rank), `noise_sd` is () or (chain, draw).
    """
    edge = noise_edge(data)
    chains, kept, _, rank = usage.shape
    edges = np.broadcast_to(edge.factor * np.asarray(noise_sd, np.float32), (chains, kept))
    of_chain = jit_equal(lambda draws: jax.lax.map(lambda draw: used_factors(*draw), draws))
    found = np.empty((chains, kept, rank), bool)
    for c in range(chains):  # one at a time, as memory goes
        factors = (
            f[c] if lines is None else f[c][:, lines]
            for f, lines in ((usage, edge.rows), (basis, edge.columns))
        )
        found[c] = of_chain((*factors, edges[c]))
    return found


def handed_over(usage, basis, used, upper: float = np.inf) -> tuple[np.ndarray, np.ndarray]:
    r"""Return nonnegative draws whose unused factors are empty, and what they had is with others.

    An unused factor goes to the one used factor that it is most like, on the side on which they
    are alike: where :math:`x_l \approx c\,x_k`, :math:`y_k + c\,y_l` takes the place of
    :math:`y_k`, at most `upper`. Those that are alike in the basis go first, and c of the others is
    of the usage that came of it: two factors that go to one would else be multiplied. Where there
    is no bound, multiplicative updates then bring the product nearer to what it was.

    References
    ----------
    Lee, Seung (2001), "Algorithms for non-negative matrix factorization", NIPS 13.
    """
    pair = [np.array(f) for f in (usage, basis)]
    for c in range(len(used)):
        before = usage[c], basis[c]
        after, rest = [f[c] for f in pair], _takers(*before, used[c])
        for side in (0, 1):
            maps = _hand_over_map(before[1 - side], after[1 - side], used[c], *rest[side])
            after[side] = np.minimum(before[side] @ maps.astype(before[side].dtype), upper)
        if upper == np.inf:
            after = _nearer(before, after, used[c].any(0))
        for f, found in zip(pair, after, strict=True):
            f[c] = found
    return tuple(pair)


def _takers(usage, basis, used):
    """Return draw, unused factor and its taker, of those alike in the basis and in the usage."""
    grams = [np.einsum("dik,dil->dkl", f, f, dtype=float) for f in (usage, basis)]
    squares = [np.maximum(np.einsum("dkk->dk", g), LEAST_SQUARE) for g in grams]
    cosines = [
        g / np.sqrt(s[:, :, None] * s[:, None, :]) for g, s in zip(grams, squares, strict=True)
    ]
    alike = np.where(used[:, None, :], np.maximum(*cosines), -1.0)
    draw, factor = np.nonzero(~used & used.any(-1, keepdims=True))
    taker = alike.argmax(-1)[draw, factor]
    shared = cosines[1][draw, factor, taker] >= cosines[0][draw, factor, taker]
    return [(draw[some], factor[some], taker[some]) for some in (shared, ~shared)]


def _hand_over_map(alike, taking, used, draw, factor, taker) -> np.ndarray:
    """Return what a factor matrix of every draw is multiplied by, (draw, rank, rank).

    `alike` and `taking` (draw, lines, rank) are the other side, before and now.
    """
    found = used[:, :, None] * np.eye(used.shape[1])
    grams = np.einsum("dik,dil->dkl", alike, taking, dtype=float)
    squares = np.maximum(np.einsum("dik,dik->dk", taking, taking, dtype=float), LEAST_SQUARE)
    found[draw, factor, taker] = grams[draw, factor, taker] / squares[draw, taker]
    return found


def _nearer(before, after, some) -> list[np.ndarray]:
    """Return factors whose product is nearer to that of `before`; `some` (rank,) are not empty."""
    sides, found = [f[..., some] for f in after], [np.array(f) for f in after]
    for _ in range(UPDATES):
        for side in (0, 1):
            other, wanted = sides[1 - side], before[1 - side]
            product = before[side] @ (wanted.swapaxes(-1, -2) @ other)
            own = sides[side] @ (other.swapaxes(-1, -2) @ other)
            sides[side] = sides[side] * (product / np.maximum(own, np.finfo(own.dtype).tiny))
    for whole, side in zip(found, sides, strict=True):
        whole[..., some] = side
    return found


def kept_of(usage) -> np.ndarray:
    """Return the factors (chain, draw, lines, rank) that at least half of the draws use."""
    return kept_factors((usage != 0).any(2))


def refuse_priors(problem: Problem, names: Mapping[str, str]) -> None:
    """Refuse priors, `names` of which say why, that a fit of unknown rank has no use for."""
    for name, why in names.items():
        if name in problem.given_priors:
            raise InputError(f"rank is 'auto', and {name} {why}; leave it out")


def refuse_relevance(problem: Problem, name: str) -> None:
    """Refuse the prior of the factors' scales where their number is given."""
    if not problem.finds_rank and name in problem.given_priors:
        raise InputError(
            f"{name} is of scales by which factors may vanish, and rank is "
            f"{problem.rank}; give rank='auto', or leave it out"
        )

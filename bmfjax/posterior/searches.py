"""Which factors of a fit independent searches found by themselves, and how many factors each.

Chains may begin where one search ended, because the others ended far below. They agree from then on
and say nothing of the searches that were given up; their own ends do
(`bmfjax.infer.search_ends.SearchEnds`). A chain that began at the end of its own search counts by
its draws as well, and so does one of a factor that was not there where it began.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from bmfjax.diagnostics.align import alike_most, most_alike
from bmfjax.infer.search_ends import SearchEnds
from bmfjax.posterior.features import ALIKE, likenesses
from bmfjax.posterior.modes import SAME, Solutions, tile_cosines

#: Probability of the numbers of factors, smallest and largest left out, that a search may have.
INSIDE = 0.95
#: Likeness below which the end of a search lacks a feature.
LACKING = ALIKE / 2


class SearchCounts(NamedTuple):
    """What the own ends of independent searches say.

    Attributes
    ----------
    number : int
        How many searches there were.
    found : (rank,) int, or None
        How many of them found each factor of the fit; None as long as that is not known.
    ranks : (search,) int
        Number of factors at each end.
    own : (search,) bool
        Whether its chain began there.
    """

    number: int
    found: np.ndarray | None
    ranks: np.ndarray
    own: np.ndarray

    @property
    def needed(self) -> int:
        """How many of them a factor is in that holds: half of those that count, two at least.

        Where all chains began at the end of one search, the others ended far below it. What they
        lack says nothing against the mode that has most of the posterior, and this one counts.

        Examples
        --------
        >>> own = np.array([[True, False, False, False], [True, True, False, False]])
        >>> [SearchCounts(4, None, np.full(4, 3), one).needed for one in own]
        [1, 2]
        """
        return 1 if self.own.sum() == 1 else needed(self.number)

    def with_rank(self, drawn) -> int:
        """Return how many ends have a number of factors that is among those `drawn`.

        The most extreme draws, 5 % of all, are left out. The draws of a chain that began at its own
        end have such a number as far as chains agree.

        Examples
        --------
        >>> found = SearchCounts(4, None, np.array([3, 4, 9, 3]), np.zeros(4, bool))
        >>> found.with_rank(np.array([[3] * 50 + [4] * 50]))
        3
        """
        low, high = np.quantile(drawn, (0.5 - INSIDE / 2, 0.5 + INSIDE / 2), method="nearest")
        return int((self.own | (self.ranks >= low) & (self.ranks <= high)).sum())


def needed(number: int) -> int:
    """Return in how many searches a factor is that holds: half of them, and two at least.

    Where m of four searches find a factor, four others all miss it with probability 0.28 for m = 1
    and 0.12 for 2, if any rate was as probable before.

    Examples
    --------
    >>> [needed(number) for number in (1, 2, 3, 4, 8)]
    [2, 2, 2, 2, 4]
    """
    return max(2, math.ceil(number / 2))


def count_searches(
    ends: SearchEnds,
    factors: Sequence | None,
    chains: Sequence[int] | None = None,
    boolean: bool = False,
) -> SearchCounts:
    """Return what searches say of the factors of a fit, where these are known.

    `factors` are the means of the memberships and weights of each chain, (chain, lines, rank) each,
    and `chains` their numbers from 1, where they are not all. A factor is compared with the mean
    of the two thirds of the chains in which it is most alike, each with one partner. The end of a
    search for features is one state of a chain, which has a feature where a draw would have it
    (`bmfjax.posterior.features`). Such a likeness is the same for a feature that is turned round.
    Where a chain began at an end that surely lacks the feature, its draws are of its own finding.
    That of a search for `boolean` factors is the majority of many draws: their tiles are 0.8 alike,
    as in chains that agree.

    Examples
    --------
    >>> usage, basis = np.eye(6, 2)[None] > 0, np.eye(5, 2, dtype=np.float32)[None]
    >>> bits = np.concatenate([usage, ~usage[..., ::-1]])
    >>> weights = np.concatenate([basis, -basis[..., ::-1]])
    >>> one = SearchEnds(np.array([0, 0]), bits, weights)
    >>> count_searches(one, (np.repeat(usage, 2, 0), np.repeat(basis, 2, 0))).found
    array([2, 2])
    """
    if factors is None:
        return SearchCounts(ends.number, None, ends.ranks, ends.own)
    means = [np.asarray(f, float) for f in factors]
    own, whole = alike_most(*means) >= SAME, most_alike(*means)
    there = np.zeros((ends.number, means[0].shape[-1]), bool)
    lacking = there.copy()
    for c, end in enumerate(zip(ends.usage, ends.basis, strict=True)):
        alike, least = likenesses(*whole, *end), ALIKE
        if boolean:
            pair = (Solutions(*(np.asarray(f, float)[None] for f in one)) for one in (whole, end))
            alike, least = tile_cosines(*pair)[0, :, 0], SAME
        mine, theirs = linear_sum_assignment(alike, maximize=True)
        there[c, mine], lacking[c, mine] = (
            alike[mine, theirs] >= least,
            alike[mine, theirs] < LACKING,
        )
    for at, c in enumerate(chains or range(1, 1 + len(own))):
        if (start := ends.origin[c - 1]) >= 0:
            there[c - 1] |= own[at] & (ends.own[c - 1] | lacking[start])
    return SearchCounts(ends.number, there.sum(0), ends.ranks, ends.own)

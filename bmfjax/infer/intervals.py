"""How far kept draws are apart: close at first, at the planned interval when a run is complete.

So a run that is stopped early keeps enough draws to judge it, and a complete run keeps the draws
that were planned. The interval grows by prime factors of the planned one: the draws kept at an
interval include those of every later interval. It follows from the number of draws alone.
"""

from __future__ import annotations

import math


def intervals(every: int) -> list[int]:
    """Return the intervals on the way from 1 to `every`, each a multiple of the one before.

    Large factors come first: later, when there are more draws, fewer of them are given up at once.

    Examples
    --------
    >>> intervals(12), intervals(1)
    ([1, 3, 6, 12], [1])
    """
    steps, left, factor = [], every, 2
    while left > 1:
        while left % factor == 0:
            steps.append(factor)
            left //= factor
        factor += 1
    found = [1]
    for step in reversed(steps):
        found.append(found[-1] * step)
    return found


def interval_after(drawn: int, every: int, most: int) -> int:
    """Return the smallest interval at which at most `most` of so many draws are kept.

    Examples
    --------
    >>> [interval_after(drawn, 12, 100) for drawn in (100, 101, 1000, 5000)]
    [1, 3, 12, 12]
    """
    return next((step for step in intervals(every) if drawn // step <= most), every)


def regular_interval(least: int) -> int:
    """Return the smallest number from `least` on that has no prime factor but 2 and 3.

    Examples
    --------
    >>> [regular_interval(n) for n in (1, 5, 12, 13)]
    [1, 6, 12, 16]
    """
    powers = (3**b for b in range(math.ceil(math.log(least, 3)) + 1))
    return min(p * 2 ** max(0, math.ceil(math.log2(least / p))) for p in powers)

"""The interval between kept draws: short at first, the planned one when a run is complete.

A run that is stopped early keeps enough draws to judge it, and a complete run keeps the planned
draws. The interval grows by prime factors of the planned one, so that the draws kept at an interval
include those of every later interval. It depends on the number of draws alone.
"""

from __future__ import annotations

import math


def intervals(every: int) -> list[int]:
    """Return the intervals on the way from 1 to `every`, each a multiple of the one before.

    Large factors come first: later, when there are more draws, fewer of them are given up at once.
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
    """Return the smallest interval that keeps at most `most` of `drawn` draws."""
    return next((step for step in intervals(every) if drawn // step <= most), every)


def regular_interval(least: int) -> int:
    """Return the smallest number from `least` on that has no prime factor but 2 and 3."""
    powers = (3**b for b in range(math.ceil(math.log(least, 3)) + 1))
    return min(p * 2 ** max(0, math.ceil(math.log2(least / p))) for p in powers)

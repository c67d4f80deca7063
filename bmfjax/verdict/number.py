"""Does the number of factors hold: was it given or the default, or do all chains find the same?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bmfjax.posterior.searches import needed
from bmfjax.specs.run import ACCURATE
from bmfjax.verdict.figures import NAN, Figures
from bmfjax.verdict.part import (
    SLOW,
    WIDE,
    Bounds,
    Holds,
    Part,
    mixed,
    short_scalars,
    slowest,
)

#: Probability of the range of numbers that is named, and what each chain gives it at least.
INSIDE, LEAST_INSIDE = 0.9, 0.8


@dataclass(frozen=True, kw_only=True)
class Number(Part):
    """Whether the number of factors can be used.

    Attributes
    ----------
    given : bool
        Whether it was given; then it holds.
    default : int or None
        The default of the model, where none was given; then it holds, too.
    rank : int or None
        The most probable number of factors, where it was found.
    probability : float
        That of `rank`.
    between : tuple of int or None
        The shortest range of numbers that has a probability of 0.9: smallest and largest.
    between_probability : float
        That of the range.
    """

    given: bool = False
    default: int | None = None
    rank: int | None = None
    probability: float = NAN
    between: tuple[int, int] | None = None
    between_probability: float = NAN


def of_number(
    figures: Figures, remedy: str = "", allow_more: str = "", more_chains: str = ""
) -> Number:
    """Judge the number of factors by the figures of a fit.

    The remedy is to `allow_more` where more may be there, and `more_chains` where too few searches
    found the number.

    Examples
    --------
    >>> of_number(Figures()).said
    'their number was given'
    >>> of_number(Figures(rank_default=10)).said
    'their number is 10 by default'
    >>> of_number(Figures(num_chains=4, rank=4, rank_probability=0.93)).said
    'their number is 4 with probability 0.93'
    >>> wide = dict(rank_between=(3, 5), rank_between_probability=0.957)
    >>> of_number(Figures(num_chains=4, rank=4, rank_probability=0.40, **wide)).said
    'their number is between 3 and 5 (0.96)'

    Where draws use more factors than hold, or predictions need more than stand out, this is no
    number of factors to rely on:

    >>> of_number(Figures(num_chains=4, rank=4, factors_holding=("1", "2"), **wide)).said
    'draws use between 3 and 5 (0.96)'
    >>> weak = Figures(num_chains=4, rank=1, rank_probability=1.0, rank_predicting=20)
    >>> of_number(weak).said
    'predictions need 20 factors; those that stand out of the noise are 1 with probability 1.00'

    Where the time was up in the warm-up, draws say nothing of it:

    >>> of_number(Figures(num_chains=4, rank=0, rank_probability=1.0, planned_warmup=300)).said
    'their number is not known yet'
    """
    if figures.rank is None and figures.rank_default is not None:
        default = int(figures.rank_default)
        said = f"their number is {default} by default"
        return Number(status=Holds.HOLDS, said=said, default=default)
    if figures.rank is None:
        return Number(status=Holds.HOLDS, said="their number was given", given=True)
    known = {
        "rank": int(figures.rank), "probability": figures.get("rank_probability"),
        "between": figures.rank_between,
        "between_probability": figures.get("rank_between_probability"),
    }  # fmt: skip
    status = Holds.NOT_YET
    if figures.planned_warmup is not None:
        said = "their number is not known yet"
    elif figures.rank_bounded:
        status, remedy = Holds.NO, allow_more
        said = "there may be more than were allowed"
    elif figures.is_alone:
        said = f"their number, {figures.rank}, not compared"
    elif not number_agrees(figures):
        said = f"their number does not hold yet ({disagreement(figures)})"
    elif not searches_agree(figures):
        found, remedy = f"{figures.rank_searches} of {figures.searches} searches", more_chains
        said = f"their number, {figures.rank}, was found by {found}"
    else:
        status, remedy = Holds.HOLDS, ""
        what = "draws use" if _come_and_go(figures) else "their number is"
        if figures.rank_predicting:
            what = (
                f"predictions need {figures.rank_predicting} factors; those that stand out of the "
                "noise are"
            )
        said = f"{what} {in_range(figures)}"
    return Number(status=status, said=said, remedy=remedy, **known)


def _come_and_go(figures: Figures) -> bool:
    """Whether draws have several numbers of factors, none below that of the factors that hold.

    One number that all draws have is their number, though chains may differ in which factors.
    """
    low, high = figures.rank_between or (0, 0)
    return figures.factors_holding is not None and len(figures.factors_holding) <= low < high


def in_range(figures: Figures) -> str:
    """Say the number of factors: one, or from where to where it is with a probability of 0.9.

    The Monte Carlo error of the probability stands beside it where that is large.

    Examples
    --------
    >>> for effective in (20.0, 400.0):
    ...     in_range(Figures(rank=3, rank_probability=0.93, ess_rank=effective))
    '3 with probability 0.93 ± 0.06'
    '3 with probability 0.93'
    """
    low, high = figures.rank_between or (figures.rank, figures.rank)
    if low == high:
        return f"{figures.rank} with probability {_share(figures, 'rank_probability')}"
    return f"between {low} and {high} ({_share(figures, 'rank_between_probability')})"


def _share(figures: Figures, name: str) -> str:
    """Write a share of the draws, and its error where it is larger than is asked of predictions."""
    share, effective = figures.get(name), figures.get("ess_rank")
    error = math.sqrt(share * (1.0 - share) / max(effective, 1.0))
    return f"{share:.2f}" + f" ± {error:.2f}" * (error > ACCURATE)


def shortest_range(probabilities: Mapping[int, float]) -> tuple[int, int, float]:
    """Return the shortest range of numbers with a probability of 0.9, and what it has.

    The most probable one of several that are as short.

    Examples
    --------
    >>> shortest_range({3: 0.25, 4: 0.5, 5: 0.25}), shortest_range({3: 0.04, 4: 0.95, 5: 0.01})
    ((3, 5, 1.0), (4, 4, 0.95))
    """
    numbers, ranges = sorted(probabilities), []
    for at, low in enumerate(numbers):
        share = 0.0
        for high in numbers[at:]:
            share += float(probabilities[high])
            if share >= INSIDE - 1e-9:
                ranges.append((high - low, -share, low, high))
                break
    _, share, low, high = min(ranges)
    return low, high, -share


def searches_agree(figures: Figures) -> bool:
    """Whether half of the searches, two at least, ended with a number that the draws have.

    Or one, where the others ended far below it, so that all chains began there.

    Examples
    --------
    >>> [searches_agree(Figures(searches=4, rank_searches=n)) for n in (None, 1, 2)]
    [True, False, True]
    >>> searches_agree(Figures(searches=4, rank_searches=1, searches_needed=1))
    True
    """
    least = figures.searches_needed or needed(figures.searches or 1)
    return figures.rank_searches is None or figures.rank_searches >= least


def number_agrees(figures: Figures, bounds: Bounds = WIDE) -> bool:
    """Whether chains, or starts, find the same number of factors.

    What is said is a range, or one number, with its probability. Within wide bounds it holds where
    each chain gives it 0.8 at least, beside the 0.9 that all together do, and draws are not slower
    than those of the log joint density may be. A run ends by tighter bounds, of the number itself.
    Starts, and fits of earlier versions, have one number to compare.

    Examples
    --------
    >>> slow = dict(num_chains=4, rank=4, rhat_rank=1.06, ess_rank=90.0)
    >>> [number_agrees(Figures(**slow, rank_between_least=p)) for p in (None, 0.7, 0.8)]
    [False, False, True]
    """
    if _by_range(figures, bounds):
        return figures.rank_between_least >= LEAST_INSIDE and mixed(figures, ["rank"], SLOW)
    return mixed(figures, ["rank"], bounds) and figures.rank_agreeing in (None, 1.0)


def _by_range(figures: Figures, bounds: Bounds) -> bool:
    """Whether the range that is said is judged, and not the number."""
    known = figures.rank_between_least is not None and figures.rank_agreeing is None
    return known and bounds == WIDE


def short_number(figures: Figures, bounds: Bounds) -> list[str]:
    """Say all that keeps the number from agreeing within bounds tighter than wide ones.

    Examples
    --------
    >>> short_number(Figures(rank=4, rank_agreeing=0.5), WIDE._replace(rhat=1.01))
    ['starts that disagree about the number of factors']
    """
    found = short_scalars(figures, ["rank"], bounds)
    if figures.rank_agreeing not in (None, 1.0):
        found.append("starts that disagree about the number of factors")
    return found


def disagreement(figures: Figures, bounds: Bounds = WIDE) -> str:
    """Say what keeps chains, or starts, from agreeing about the number within these bounds."""
    by_range = _by_range(figures, bounds)
    asked = SLOW if by_range else bounds
    if not mixed(figures, ["rank"], asked):
        return slowest(figures, ["rank"], asked)
    if not by_range:
        return "starts disagree"
    low, high = figures.rank_between
    where = f"{low}" if low == high else f"{low} to {high}"
    # Downwards: what is just too little should not read like what is asked for.
    return f"{where} with {math.floor(100 * figures.rank_between_least) / 100:.2f} in one chain"

"""Does the number of factors hold: was it given, or do all chains find the same?"""

from __future__ import annotations

from dataclasses import dataclass

from bmfjax.posterior.searches import needed
from bmfjax.verdict.figures import NAN, Figures
from bmfjax.verdict.part import WIDE, Bounds, Holds, Part, mixed, slowest


@dataclass(frozen=True, kw_only=True)
class Number(Part):
    """Whether the number of factors can be used.

    Attributes
    ----------
    given : bool
        Whether it was given; then it holds.
    rank : int or None
        The most probable number of factors, where it was found.
    probability : float
        That of `rank`.
    """

    given: bool = False
    rank: int | None = None
    probability: float = NAN


def of_number(figures: Figures, remedy: str = "", allow_more: str = "") -> Number:
    """Judge the number of factors by the figures of a fit.

    Examples
    --------
    >>> of_number(Figures()).said
    'their number was given'
    >>> of_number(Figures(num_chains=4, rank=4, rank_probability=0.93)).said
    'their number is 4 with probability 0.93'
    """
    if figures.rank is None:
        return Number(status=Holds.HOLDS, said="their number was given", given=True)
    known = {"rank": int(figures.rank), "probability": figures.get("rank_probability")}
    status = Holds.NOT_YET
    if figures.rank_bounded:
        status, remedy = Holds.NO, allow_more
        said = "there may be more than were allowed"
    elif figures.is_alone:
        said = f"their number, {figures.rank}, not compared"
    elif not number_agrees(figures):
        said = f"their number does not hold yet ({disagreement(figures)})"
    elif not searches_agree(figures):
        found = f"{figures.rank_searches} of {figures.searches} searches"
        said = f"their number, {figures.rank}, was found by {found}"
    else:
        status, remedy = Holds.HOLDS, ""
        said = f"their number is {figures.rank} with probability {known['probability']:.2f}"
    return Number(status=status, said=said, remedy=remedy, **known)


def searches_agree(figures: Figures) -> bool:
    """Whether half of the searches, two at least, ended with a number that the draws have.

    Examples
    --------
    >>> [searches_agree(Figures(searches=4, rank_searches=n)) for n in (None, 1, 2)]
    [True, False, True]
    """
    return figures.rank_searches is None or figures.rank_searches >= needed(figures.searches)


def number_agrees(figures: Figures, bounds: Bounds = WIDE) -> bool:
    """Whether all chains, or starts, find the same number of factors equally probable."""
    return mixed(figures, ["rank"], bounds) and figures.rank_agreeing in (None, 1.0)


def disagreement(figures: Figures, bounds: Bounds = WIDE) -> str:
    """Say what keeps chains, or starts, from agreeing about the number within these bounds."""
    if mixed(figures, ["rank"], bounds):
        return "starts disagree"
    return slowest(figures, ["rank"], bounds)

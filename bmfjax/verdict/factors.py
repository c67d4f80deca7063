"""Do factors hold, and which: are they the same in all chains, and do their draws mix?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bmfjax.data.names import in_words
from bmfjax.verdict.figures import Figures
from bmfjax.verdict.number import number_agrees
from bmfjax.verdict.part import (
    RHAT_USABLE,
    SLOW,
    TIGHT,
    WIDE,
    Bounds,
    Holds,
    Part,
    alone,
    mixed,
    short_scalars,
    slowest,
    unfinished,
)

#: So many names are listed.
MOST_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Factors(Part):
    """Whether the factors of a fit can be used, and which of them.

    Attributes
    ----------
    holding, differing : tuple of str
        Names of the factors that two thirds of the chains found, or more, and of the others.
    of_most : tuple of str
        Those of `holding`, and of `rarely_found`, that not all chains found.
    rarely_found : tuple of str
        Names of those on which chains agree, and that fewer than half of the independent
        searches, or than two, found, before chains took over what another one had found.
    in_few_draws : tuple of str
        Names of those that come and go in each chain, and that fewer than two thirds of the chains
        have in at least half of their draws. As empty ones they say nothing against the others.
    counts : bool
        Whether the status of the fit depends on them. That of matrix factorisations does not: data
        determine the product of their factors alone.
    """

    holding: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    of_most: tuple[str, ...] = ()
    rarely_found: tuple[str, ...] = ()
    in_few_draws: tuple[str, ...] = ()
    counts: bool = True


def of_factors(figures: Figures, remedy: str = "", more_chains: str = "") -> Factors:
    """Judge factors by the figures of a fit.

    `more_chains` is the remedy where too few searches found a factor, which more draws do not mend;
    and where one search found what holds, the others ended far below it, and new ones may as well.

    Examples
    --------
    >>> found = dict(factors_holding=("1", "2", "4"), factors_differing=("3",))
    >>> of_factors(Figures(num_chains=4, factors_agreeing=0.75, **found)).said
    'factors 1, 2 and 4 hold, factor 3 does not'
    >>> found |= dict(factors_differing=(), factors_rarely_found=("3",))
    >>> found |= dict(searches=4, factors_rarely_found_by=(1,), factors_in_few_draws=("5",))
    >>> of_factors(Figures(num_chains=4, factors_agreeing=1.0, **found)).said
    'factors 1, 2 and 4 hold, factor 3 was found by 1 of 4 searches, factor 5 is in too few draws'
    """
    holding, differing = figures.factors_holding or (), figures.factors_differing or ()
    counts, status = figures.agreement_counts is not False, Holds.NOT_YET
    of_most, rare = figures.factors_of_most or (), figures.factors_rarely_found or ()
    few = figures.factors_in_few_draws or ()
    one_start = counts and figures.is_of_one_start
    if figures.is_alone:
        said = f"factors not compared{alone(figures)}"
        holding = differing = of_most = rare = few = ()
    elif why := unfinished(figures):
        said = f"factors do not hold yet ({why})"
        holding = differing = of_most = rare = few = ()
    elif factors_differ(figures, WIDE, counted=False):
        status, said = Holds.NO, _told(figures)
    elif not factors_mixed(figures):
        said = f"factors do not hold yet ({slowest(figures, [_looked_at(figures)], SLOW)})"
        rare = ()
    elif rare:
        said, remedy = _told(figures), more_chains
    elif few and not holding:
        # The draws say so, whatever their number.
        status, remedy, said = Holds.NO, "", _told(figures)
    else:
        starts = "one start" if one_start else f"{figures.starts} starts"
        shared = one_start or (counts and 1 < (figures.starts or 0) < figures.num_chains)
        # What several independent searches found says more.
        shared = shared and (figures.factors_searches is None or figures.is_of_one_search)
        status, said = Holds.HOLDS, _told(figures) + f", from {starts}" * shared
        remedy = more_chains if figures.is_of_one_search else ""
    remedy = remedy if counts else ""
    return Factors(
        status=status, said=said, remedy=remedy, holding=holding, differing=differing,
        of_most=of_most, rarely_found=rare, in_few_draws=few, counts=counts,
    )  # fmt: skip


def factors_differ(figures: Figures, bounds: Bounds = TIGHT, *, counted: bool = True) -> bool:
    """Whether chains disagree about a factor; one chain compares nothing.

    Where only what is `counted` is asked for, factors that say nothing against a fit do not differ.
    Within wide bounds a third of the chains may lack a factor: the others have one that is at least
    0.8 like that of their mean. The fit shows the mean of all chains. Where a share q of them has a
    tile, and the rest another one as large, unlike it in rows and columns, the cosine of the mean
    and that tile is q^2 / (q^2 + (1 - q)^2): 0.8, which makes two tiles the same, at two thirds.

    Examples
    --------
    >>> found = Figures(factors_agreeing=0.5, factors_of_most=("2",), factors_differing=())
    >>> factors_differ(found), factors_differ(found, WIDE)
    (True, False)
    """
    if (counted and figures.agreement_counts is False) or figures.rank == 0:
        return False
    if bounds.found < 1.0 and figures.factors_differing is not None:
        return bool(figures.factors_differing)
    return figures.get("factors_agreeing") < 1.0


def factors_agree(figures: Figures, bounds: Bounds = WIDE) -> bool:
    """Whether chains found the same factors, as far as these count, and their draws mixed."""
    return not factors_differ(figures, bounds) and factors_mixed(figures, bounds)


def factors_mixed(figures: Figures, bounds: Bounds = WIDE) -> bool:
    """Whether draws of factors mixed, as far as they count.

    Chains of one start agree from the first draw on, and their log joint density soon tells nothing
    of where they are: that they have left the start entries of the reconstruction say. (Boolean
    ones have few entries that are unsure, and R-hat is of these alone.) Other chains are asked for
    the density. Either may be slow: an R-hat of 1.2, and five effective draws a chain. It goes with
    the factors, or their number, where chains differ in these, which are judged by themselves. A
    run ends by tighter bounds.

    Examples
    --------
    >>> slow = dict(rhat_product=1.3, ess_product=15.0, rhat_log_joint=1.0, ess_log_joint=400.0)
    >>> factors_mixed(Figures(**slow)), factors_mixed(Figures(**slow, shared_starts=True))
    (True, False)
    """
    if figures.agreement_counts is False:
        return True
    by_themselves = figures.factors_of_most or not (figures.rank is None or number_agrees(figures))
    if bounds == WIDE and by_themselves:
        return True
    return mixed(figures, [_looked_at(figures)], _asked_of_draws(figures, bounds))


def unmixed(figures: Figures) -> str:
    """Say what of factors has not mixed even slowly, in whatever modes chains are; else nothing.

    Examples
    --------
    >>> unmixed(Figures(rhat_log_joint=1.45, factors_of_most=("2",)))
    'R-hat 1.45'
    """
    if figures.agreement_counts is False or mixed(figures, [_looked_at(figures)], SLOW):
        return ""
    return slowest(figures, [_looked_at(figures)], SLOW)


def _asked_of_draws(figures: Figures, bounds: Bounds) -> Bounds:
    """Return the bounds of what must have mixed, where those of all parts are given."""
    if bounds == WIDE:
        return SLOW
    if _looked_at(figures) == "product":
        return bounds._replace(rhat=RHAT_USABLE, ess=SLOW.ess)
    return bounds


def difference(figures: Figures, bounds: Bounds = WIDE) -> str:
    """Say what keeps factors from agreeing within these bounds."""
    if not factors_differ(figures, bounds):
        return slowest(figures, [_looked_at(figures)], _asked_of_draws(figures, bounds))
    return _differing(figures)


def short_factors(figures: Figures, bounds: Bounds) -> list[str]:
    """Say all that keeps factors from agreeing within these bounds, and what these are.

    Examples
    --------
    >>> known = dict(factors_agreeing=0.5, factors_of_most=("2",), factors_differing=())
    >>> short_factors(Figures(**known, rhat_log_joint=1.03), TIGHT)
    ['factors (factor 2 not in all chains)', 'R-hat 1.030 of the log joint density, where 1.01 \
is asked']
    """
    found = []
    if factors_differ(figures, bounds):
        found = [f"factors ({_differing(figures)})"]
    if factors_mixed(figures, bounds):
        return found
    asked = _asked_of_draws(figures, bounds)
    return found + short_scalars(figures, [_looked_at(figures)], asked)


def _differing(figures: Figures) -> str:
    if figures.factors_of_most and not figures.factors_differing:
        return f"{listed(figures.factors_of_most, 'not')} in all chains"
    return _told(figures)


def _looked_at(figures: Figures) -> str:
    """Return what must have mixed."""
    return "product" if figures.asks_entries else "log_joint"


def _told(figures: Figures) -> str:
    """Say which factors hold."""
    if figures.factors_holding is None:  # of an older fit
        share = figures.get("factors_agreeing")
        return "all factors hold" if share == 1.0 else f"{100 * share:.0f} % of the factors hold"
    holding, differing = figures.factors_holding, figures.factors_differing
    most, more = figures.factors_of_most or (), []
    if most:
        which = listed(most, "not") if len(most) <= MOST_NAMED else f"{len(most)} factors not"
        more.append(f"{which} in all chains")
    if number := figures.factors_empty:
        more.append("one more is empty" if number == 1 else f"{number} more are empty")
    parts = []
    if rare := figures.factors_rarely_found:
        found_by = f"found by {_counts(figures)} of {figures.searches} searches"
        parts.append(f"{_some(rare, 'were')} {found_by}")
    if few := figures.factors_in_few_draws:
        parts.append(f"{_some(few, 'are')} in too few draws")
    if holding or differing:
        parts.insert(0, _of_draws(holding, differing))
    if not parts:
        return "no factor is there"
    return ", ".join(parts) + (f" ({'; '.join(more)})" if more else "")


def _some(names: Sequence[str], do: str) -> str:
    """Say what factors do; those past a few are counted."""
    return f"{len(names)} others {do}" if len(names) > MOST_NAMED else listed(names, do)


def _counts(figures: Figures) -> str:
    """Say in how many searches the factors are that too few found: in a number or a range."""
    low, high = (end(figures.factors_rarely_found_by) for end in (min, max))
    return str(low) if low == high else f"{low} {'or' if high == low + 1 else 'to'} {high}"


def _of_draws(holding, differing) -> str:
    """Say of which factors the draws of chains agree, and of which they do not."""
    if not differing:
        return listed(holding, "hold")
    if not holding:
        return listed(differing, "do not hold")
    if min(len(holding), len(differing)) > MOST_NAMED:
        return f"{len(holding)} of {len(holding) + len(differing)} factors hold"
    if len(holding) > MOST_NAMED:
        return f"{listed(differing, 'do not hold')}, {_some(holding, 'do')}"
    return f"{listed(holding, 'hold')}, {_some(differing, 'do not')}"


def listed(names: Sequence[str], does: str) -> str:
    """Say what factors with these names do; a run of three numbers or more in short.

    Examples
    --------
    >>> listed(["1", "2", "3", "5"], "hold"), listed(["2"], "do not")
    ('factors 1 to 3 and 5 hold', 'factor 2 does not')
    """
    if len(names) == 1:
        does = {"hold": "holds", "were": "was", "are": "is"}.get(does, does.replace("do ", "does "))
    return f"factor{'s' * (len(names) > 1)} {_names(names)} {does}"


def _names(names: Sequence[str]) -> str:
    """List names of factors, a run of three numbers or more in short."""
    runs: list[list[str]] = []
    for name in names:
        follows = runs and name.isdigit() and runs[-1][-1] == str(int(name) - 1)
        if follows:
            runs[-1].append(name)
        else:
            runs.append([name])
    return in_words([
        text for run in runs
        for text in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run)
    ])  # fmt: skip

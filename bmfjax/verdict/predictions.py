"""Do predictions hold: do chains predict alike, and are they true of entries left out?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bmfjax.diagnostics.leave_one_out import percent
from bmfjax.posterior.model_check import LEAST_EXPLAINED, are_told, is_calibrated, too_few
from bmfjax.specs.run import SLIGHT
from bmfjax.verdict.figures import NAN, Figures
from bmfjax.verdict.part import (
    SCALARS,
    TIGHT,
    WIDE,
    Bounds,
    Holds,
    Part,
    mixed,
    short_scalars,
    slowest,
    unfinished,
)

#: What is said where nearly all scores of entries left out are doubtful.
UNTOLD = "calibration not known: too few draws to leave entries out"
#: Share of the deviance below which a model explains little.
LITTLE = 0.05
#: What to do where intervals hold too little: more factors, or effects, mend no noise.
ONE_NOISE = (
    "see which rows and columns scatter most, fit.check() (the report), for the noise is one for "
    "all of them"
)
#: Share that may be explained, two standard errors above the estimate, from which on "nothing" is
#: not said: the entries are too few.
UNSURE = 0.1


@dataclass(frozen=True, kw_only=True)
class Predictions(Part):
    """Whether what a fit predicts can be used.

    Attributes
    ----------
    within : float
        How exact a prediction is: its Monte Carlo error, and by how much one chain moves it.
        NaN where it is not known.
    explained : float
        Share of the deviance that the model explains, NaN where it is not known.
    lead : str
        What is to be said first: that the model explains nothing, or little; where chains are
        apart, that their mean does.
    """

    within: float = NAN
    explained: float = NAN
    lead: str = ""


def of_predictions(figures: Figures, remedy: str = "", other_model: str = "") -> Predictions:
    """Judge predictions by the figures of a fit.

    Examples
    --------
    >>> good = Figures(num_chains=4, chains_apart=0.0, mc_error=0.02, explained=0.6)
    >>> of_predictions(good).said
    'predictions hold (to within 0.02; 60 % explained)'
    """
    # Two standard errors of the mean of chains of which one, or half, differ so.
    moved = figures.get("chains_apart") / math.sqrt(figures.num_chains or 1)
    within = moved + figures.get("mc_error")
    share = figures.get("explained")
    told = [] if math.isnan(share) else [f"{_percent(figures)} explained"]
    nothing, wrong = explains(figures) == "nothing", misfit(figures)
    if not is_known(figures):  # too much is explained, if at all, where an entry is not left out
        told, share = [UNTOLD], NAN
    elif not _covers(figures, TIGHT):
        other_model = ONE_NOISE
    if nothing:
        # Such predictions may be true, as those of a model without factors are.
        told = ["no better than without factors"]
    status = Holds.NOT_YET
    if figures.num_chains != 1 and not predictions_agree(figures):
        # What chains say that have not come together is not what the model says.
        differ = _are_apart(figures) and not unfinished(figures)
        status = Holds.NO if differ else status
        said = f"predictions do not hold{'' if differ else ' yet'} ({apart(figures)})"
    elif wrong:
        status, remedy, said = Holds.NO, other_model, f"predictions do not hold ({wrong})"
    elif figures.num_chains == 1:
        said = "predictions " + _in_brackets(["not compared", *told])
    else:
        off = misfit(figures, TIGHT)
        if off and any(too_few(figures.get(f"{n}_by_chance")) for n in ("calibration", "coverage")):
            off, nothing_to_mend = "too few entries to tell calibration", not nothing
        else:
            nothing_to_mend = not (off or nothing)
        status, remedy = Holds.HOLDS, "" if nothing_to_mend else other_model
        known = [] if math.isnan(within) else [f"to within {max(within, 0.01):.2f}"]
        # What is wrong comes first, though they may be true.
        what = f"are {told.pop()}" if nothing else "hold"
        # Entries left out say whether they are right, whoever found them.
        said = f"predictions {what} {_in_brackets([*known, *told, *filter(None, [off])])}"
        said = said.rstrip()
    return Predictions(
        status=status,
        said=said,
        remedy=remedy,
        within=within,
        explained=share,
        lead=_lead(figures),
    )


def predictions_agree(figures: Figures, bounds: Bounds = WIDE) -> bool:
    """Whether chains predict alike, so that more draws would not change predictions.

    Chains may differ from the others by 0.2 in the probability of an entry, beyond Monte Carlo
    error. The error of the mean of all may be 0.1. Where a run ends by itself both are 0.05. Where
    chains were not compared so, the R-hat of entries is asked for.

    Examples
    --------
    >>> near = Figures(num_chains=4, chains_apart=0.01, mc_error=0.06, rhat_product=1.3)
    >>> predictions_agree(near), predictions_agree(near, TIGHT)
    (True, False)
    >>> predictions_agree(Figures(num_chains=4, rhat_product=1.3))
    False
    """
    if figures.chains_apart is None:
        agree = mixed(figures, ["product"], bounds)
    else:
        near = not figures.chains_apart > bounds.apart
        agree = near and not figures.get("mc_error") > bounds.error
    agree = agree and not unfinished(figures)
    return bool(agree and mixed(figures, _scalars(figures), bounds))


def misfit(figures: Figures, bounds: Bounds = WIDE) -> str:
    """Say why entries left out do not follow the predictions; nothing where they do.

    Probabilities may surely be off by as much as `bounds` say, and intervals of 90 % hold so many
    entries too few. How much a model explains is
    another question: rates of columns are true on average, and explain nothing (Murphy 1973;
    Gneiting, Balabdaoui and Raftery 2007). Predictions surely worse than these are not true of
    some columns, however they are on average.

    Examples
    --------
    >>> found = Figures(calibration_error=0.04, calibration_by_chance=0.02)
    >>> misfit(found), misfit(found, TIGHT)
    ('', 'probabilities off by 0.04 on average')
    >>> found = {"coverage_error": 0.055, "coverage_by_chance": 0.01}
    >>> misfit(Figures(coverage=0.89, coverage_scattered=0.79, **found))
    '90 % intervals hold 79 % where rows and columns scatter most'
    >>> misfit(Figures(coverage=0.84, coverage_scattered=0.84, **found))
    '90 % intervals hold 84 %'
    >>> misfit(Figures(explained=-0.05, explained_error=0.02))
    'worse than without factors'
    """
    off = figures.get("calibration_error"), figures.get("calibration_by_chance")
    if is_known(figures) and not is_calibrated(*off, bounds.off):
        return f"probabilities off by {figures.calibration_error:.2f} on average"
    if not _covers(figures, bounds):
        fewer = figures.coverage_scattered < figures.coverage - SLIGHT
        least = figures.coverage_scattered if fewer else figures.coverage
        where = " where rows and columns scatter most" * fewer
        return f"90 % intervals hold {100 * least:.0f} %{where}"
    worse = figures.get("explained") + 2.0 * figures.get("explained_error") < 0.0
    return "worse than without factors" if worse else ""


def is_known(figures: Figures) -> bool:
    """Whether draws tell of entries left out, where they were asked; else calibration counts not.

    Examples
    --------
    >>> off = dict(calibration_error=0.2, calibration_by_chance=0.02)
    >>> [misfit(Figures(**off, doubtful=share)) for share in (0.5, 1.0)]
    ['probabilities off by 0.20 on average', '']
    """
    return are_told(figures.get("doubtful"))


def _covers(figures: Figures, bounds: Bounds) -> bool:
    """Whether intervals hold as many entries as these bounds ask."""
    off = figures.get("coverage_error"), figures.get("coverage_by_chance")
    return not is_known(figures) or is_calibrated(*off, bounds.off)


def explains(figures: Figures) -> str:
    """Say how much is explained, where it is "nothing" or "little"; and that is sure.

    Less than half a per cent is nothing, however surely it is more than zero.

    Examples
    --------
    >>> explains(Figures(explained=0.004, explained_error=0.001))
    'nothing'
    >>> [explains(Figures(explained=0.02, explained_error=e)) for e in (0.005, 0.015, 0.1)]
    ['little', 'nothing', '']
    """
    share, error = figures.get("explained"), figures.get("explained_error")
    if share <= 2.0 * error or share < LEAST_EXPLAINED:
        return "nothing" if share <= 0.0 or share + 2.0 * error < UNSURE else ""
    return "little" if share < LITTLE else ""


def _percent(figures: Figures) -> str:
    """Return the share that is explained, with its error where that leaves it open."""
    share, error = figures.explained, figures.get("explained_error")
    return percent(share, error) if share <= 2.0 * error else f"{100 * share:.0f} %"


def _lead(figures: Figures) -> str:
    how = explains(figures)
    if unfinished(figures) or not how:
        return ""
    # Where chains are apart that is said of their mean, and not yet of the model.
    what = "The model" if figures.num_chains == 1 or predictions_agree(figures) else "This fit"
    share = percent(figures.explained, figures.get("explained_error"))
    return f"{what} explains {how} ({share})."


def _scalars(figures: Figures) -> list[str]:
    """Return the scalars that count; where factors do not, the log joint density may."""
    joint = figures.agreement_counts is False and figures.log_joint_counts is not False
    return [*SCALARS, *["log_joint"] * joint]


def _are_apart(figures: Figures) -> bool:
    """Whether chains differ by more than more draws would settle."""
    return figures.get("chains_apart") > WIDE.apart


def apart(figures: Figures, bounds: Bounds = WIDE) -> str:
    """Say what keeps predictions from agreeing within these bounds."""
    if why := unfinished(figures):
        return why
    if figures.get("chains_apart") > bounds.apart:
        return f"chains differ by {figures.chains_apart:.2f}"
    if figures.get("mc_error") > bounds.error:
        return f"to within {_upwards(figures.mc_error)} only"
    if figures.chains_apart is None and not mixed(figures, ["product"], bounds):
        return slowest(figures, ["product"], bounds)
    return slowest(figures, _scalars(figures), bounds)


def short_predictions(figures: Figures, bounds: Bounds) -> list[str]:
    """Say all that keeps predictions from agreeing within these bounds, and what these are.

    Examples
    --------
    >>> known = dict(num_chains=4, chains_apart=0.053, mc_error=0.056)
    >>> for said in short_predictions(Figures(**known), TIGHT):
    ...     print(said)
    chains whose predictions differ by 0.06, where 0.05 is asked
    predictions with a Monte Carlo error of 0.06, where 0.05 is asked
    """
    if why := unfinished(figures):
        return [f"predictions ({why})"]
    found, names = [], _scalars(figures)
    if figures.chains_apart is None:
        names = ["product", *names]
    elif figures.chains_apart > bounds.apart:
        by = f"{_upwards(figures.chains_apart)}, where {bounds.apart:g} is asked"
        found = [f"chains whose predictions differ by {by}"]
    if figures.chains_apart is not None and figures.get("mc_error") > bounds.error:
        # Not "to within", which counts also what chains that differ move the mean by.
        found.append(
            f"predictions with a Monte Carlo error of {_upwards(figures.mc_error)}, where "
            f"{bounds.error:g} is asked"
        )
    return found + short_scalars(figures, names, bounds)


def _upwards(figure: float) -> str:
    # What is just too much should not read like what is asked for.
    return f"{math.ceil(round(100 * figure, 6)) / 100:.2f}"


def _in_brackets(parts) -> str:
    return f"({'; '.join(parts)})" if parts else ""

"""What is said of a fit: of its predictions, its factors and their number; status and sentence.

All of it follows from the figures of the fit, so that the rule that judges a run can end it.
Whoever asks what can be relied on reads `Verdict.predictions`, `Verdict.factors`, `Verdict.number`
and `Verdict.status`; the sentence is for people.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import numpy as np

from bmfjax.data.names import in_words
from bmfjax.specs.checks import one_of
from bmfjax.specs.run import UNTIL
from bmfjax.verdict.factors import (
    Factors,
    difference,
    factors_agree,
    of_factors,
    short_factors,
    unmixed,
)
from bmfjax.verdict.figures import Figures
from bmfjax.verdict.number import Number, disagreement, number_agrees, of_number, short_number
from bmfjax.verdict.part import TIGHT, WIDE, Bounds, Holds, Part
from bmfjax.verdict.predictions import (
    UNTOLD,
    Predictions,
    apart,
    explains,
    is_known,
    misfit,
    of_predictions,
    predictions_agree,
    short_predictions,
)

#: What to try where nothing holds, and neither draws nor another number of factors would mend it.
NOTHING_KNOWN = "try another model (model, --model), or give more data: these say too little of it"
#: Above this share of coordinates at a bound the spread of IASG says little.
MANY_CLAMPED = 0.2


class Status(StrEnum):
    """How far a fit can be relied on."""

    RELIABLE = "reliable"  # all parts hold, by an exact sampler and chains of several starts
    USABLE = "usable"  # all hold, by chains that nearly agree, of one start, or an approximation
    # Most factors hold, or predictions do and the model explains something; or an approximation has
    # a wrong spread.
    IN_PART = "in part"
    UNCHECKED = "unchecked"  # one chain, which nothing is compared with
    UNRELIABLE = "unreliable"  # factors do not hold, nor predictions that explain something


#: What parts are called.
_CALLED = {Predictions: "predictions", Factors: "factors", Number: "their number"}
#: How the sentence begins.
OPENINGS = {
    Status.RELIABLE: "Reliable",
    Status.USABLE: "Usable",
    Status.IN_PART: "Usable in part",
    Status.UNCHECKED: "Not checked",
    Status.UNRELIABLE: "Do not rely on this run",
}


@dataclass(frozen=True, eq=False)
class Verdict:
    """What of a fit can be relied on, why, and what to do next; its text is the sentence.

    Three parts are judged: `predictions`, `factors` and their `number`. Each has a `status`
    ("holds", "not yet" or "does not hold"), figures, and a `remedy`. Two verdicts are equal if they
    say the same.

    Attributes
    ----------
    figures : Figures
        What everything else follows from.
    notes : tuple of str
        What qualifies the result whatever the chains do.
    remedies : mapping
        What to try where chains disagree (`chains`), where too few searches found what they agree
        on (`searches`), where the model does not fit (`model`), where more factors may be there
        (`number`), where somebody interrupted the run and all parts hold (`stopped`), and where
        all hold and something is short of "reliable" (`usable`). A number stands in the place of
        SECONDS once the remedy is said.
    scope : str
        What the verdict is of, where it is not of the whole fit.

    Examples
    --------
    >>> figures = Figures(
    ...     num_chains=4, exact=True, factors_agreeing=1.0, factors_holding=("1", "2"),
    ...     factors_differing=(), chains_apart=0.0, mc_error=0.02, explained=0.6,
    ... )  # fmt: skip
    >>> found = Verdict(figures)
    >>> str(found).startswith("Reliable: predictions hold (to within 0.02; 60 % explained); ")
    True
    >>> found.factors.said
    'factors 1 and 2 hold'
    >>> found.status == "reliable", found.factors.holding, found.number.given
    (True, ('1', '2'), True)
    """

    figures: Figures = dataclasses.field(default_factory=Figures)
    notes: tuple[str, ...] = ()
    remedies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    scope: str = ""

    def __eq__(self, other) -> bool:
        return isinstance(other, Verdict) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def status(self) -> Status:
        """How far the fit can be relied on: it follows from the parts."""
        return status_of(self.figures)

    @property
    def predictions(self) -> Predictions:
        """Whether what the fit predicts can be used."""
        chains, model = map(self.remedy_of, ("chains", "model"))
        return of_predictions(self.figures, chains, model)

    @property
    def factors(self) -> Factors:
        """Whether the factors can be used, and which."""
        chains = self.remedy_of("chains")
        return of_factors(self.figures, chains, self._of_searches)

    @property
    def number(self) -> Number:
        """Whether the number of factors can be used."""
        chains, more = map(self.remedy_of, ("chains", "number"))
        return of_number(self.figures, chains, more, self._of_searches)

    @property
    def _of_searches(self) -> str:
        return self.remedy_of("searches" if "searches" in self.remedies else "chains")

    def remedy_of(self, what: str) -> str:
        """Return one of the remedies, with seconds that follow from what the run took."""
        return self.remedies.get(what, "").replace("SECONDS", str(self.figures.more_seconds))

    @property
    def parts(self) -> tuple[Part, ...]:
        """Predictions, factors and their number."""
        return self.predictions, self.factors, self.number

    @property
    def opening(self) -> str:
        """The status in words, as the sentence begins."""
        approximate = self.status is Status.USABLE and self.figures.exact is False
        return OPENINGS[self.status] + ", as an approximation" * approximate

    def holds(self, what: str = "all") -> bool:
        """Whether a part holds, by its name, or "all" that count."""
        one_of("what", what, ("all", "predictions", "factors", "number"))
        if what == "all":
            return self.status in (Status.RELIABLE, Status.USABLE)
        return getattr(self, what).holds

    @property
    def reasons(self) -> tuple[str, ...]:
        """What is said of each part."""
        return tuple(part.said for part in self.parts)

    @property
    def is_of_starts(self) -> bool:
        """Whether the time was up before the sampler drew, so that draws repeat the starts."""
        # A mode and a mixture have no warm-up, however far the run came.
        cut = self.figures.planned_warmup is not None and self.figures.num_warmup == 0
        return cut and not self.scope

    @property
    def undrawn(self) -> str:
        """Why the draws are none of the posterior; empty where they are, or approximate it.

        Examples
        --------
        >>> Verdict(Figures(num_warmup=20, planned_warmup=300)).undrawn
        'the time was up after 20 of 300 steps of warm-up'
        """
        taken, planned = self.figures.num_warmup, self.figures.planned_warmup
        if planned is None:
            return ""
        if self.is_of_starts:
            return (
                "the time was up before the sampler drew, so that draws repeat where chains began"
            )
        if taken == planned:
            return "the time was up at fewer draws than a result takes"
        return f"the time was up after {taken:,} of {planned:,} steps of warm-up"

    @property
    def _is_usable(self) -> bool:
        return self.status in (Status.USABLE, Status.IN_PART)

    @property
    def lacking(self) -> tuple[str, ...]:
        """All that keeps a fit from "reliable" that is usable, in whole or in part.

        Examples
        --------
        >>> good = dict(num_chains=4, factors_agreeing=1.0, chains_apart=0.0)
        >>> Verdict(Figures(**good, exact=True, mc_error=0.06)).lacking
        ('predictions with a Monte Carlo error of 0.06, where 0.05 is asked',)
        >>> Verdict(Figures(**good, exact=False, mc_error=0.02)).lacking
        ('the sampler is approximate',)
        """
        return (*self._told_elsewhere, *self._short_of) if self._is_usable else ()

    @property
    def _told_elsewhere(self) -> list[str]:
        """What keeps it from "reliable" and stands in the sentence: parts, and the sampler."""
        missed = [_CALLED[type(part)] for part in _counted(self.figures) if not part.holds]
        do = "does" if missed == [_CALLED[Number]] else "do"
        found = [f"{in_words(missed)} {do} not hold"] if missed else []
        found += ["the sampler is approximate"] * (self.figures.exact is False)
        found += ["the model explains nothing"] * (explains(self.figures) == "nothing")
        found += [UNTOLD] * (not is_known(self.figures))
        off = misfit(self.figures, TIGHT)
        return found + [off] * bool(off and not misfit(self.figures))

    @property
    def _short_of(self) -> list[str]:
        """What keeps it from "reliable" in parts that hold, and does not stand in the sentence."""
        figures = self.figures
        found = ["chains began at one start"] * figures.is_of_one_start
        bounds, fallen = _asked(figures), [type(p) for p in _counted(figures) if not p.holds]
        for kind, short in (
            (Predictions, short_predictions),
            (Factors, short_factors),
            (Number, short_number),
        ):
            found += [] if kind in fallen else short(figures, bounds)
        # Several parts may ask for one scalar.
        return list(dict.fromkeys(found))

    @property
    def remedy(self) -> str:
        """What to try next; empty where nothing is wrong."""
        found = [part.remedy for part in self.parts if part.remedy]
        of_usable = self._is_usable and all(part.holds for part in _counted(self.figures))
        found = found or [self.remedy_of("stopped") or self.remedy_of("usable") * of_usable]
        if self.status is Status.UNRELIABLE and not any(found):
            found = [NOTHING_KNOWN]
        # What begins alike is one thing to do, such as to give more time.
        first = {remedy.split(",")[0]: remedy for remedy in reversed(found)}
        return "; and ".join(remedy for remedy in dict.fromkeys(found) if remedy in first.values())

    @property
    def sentence(self) -> str:
        """What holds and what does not, in at most 42 words.

        What was found and holds is no reason not to rely on a run, and has a sentence of its own.

        Examples
        --------
        >>> known = dict(num_chains=4, exact=True, chains_apart=0.0, mc_error=0.02, explained=0.0)
        >>> known |= dict(factors_agreeing=1.0, factors_holding=(), factors_differing=())
        >>> found = Verdict(Figures(**known, rank=0, rank_probability=0.98))
        >>> print(found.sentence.partition(". ")[2].partition("(")[0])
        Do not rely on this run: predictions are no better than without factors
        >>> print(found.sentence.partition("); ")[2])
        no factor is there. Their number is 0 with probability 0.98.
        """
        reasons, apart = list(self.reasons), ""
        is_found = self.number.holds and self.figures.rank is not None
        if self.status is Status.UNRELIABLE and is_found:
            apart = f" {reasons[2][0].upper()}{reasons[2][1:]}."
            del reasons[2]
        said = f"{self.opening}: {'; '.join(reasons)}.{apart}"
        return f"{self.predictions.lead} {said}".lstrip()

    @property
    def shortfall(self) -> str:
        """All that keeps a usable fit from "reliable", in a sentence, where `sentence` is silent.

        Where a part does not hold there is none: that is what to mend first.

        Examples
        --------
        >>> known = dict(num_chains=4, factors_agreeing=1.0, exact=True, rhat_log_joint=1.03)
        >>> Verdict(Figures(**known)).shortfall
        'Short of "reliable": R-hat 1.030 of the log joint density, where 1.01 is asked.'
        """
        hold = all(part.holds for part in _counted(self.figures))
        found = self._short_of if self._is_usable and hold else []
        return f'Short of "{Status.RELIABLE}": {"; ".join(found)}.' if found else ""

    def __str__(self) -> str:
        notes = [f"{note[0].upper()}{note[1:]}." for note in self.notes]
        next_ = f"Next, {self.remedy}." if self.remedy else ""
        return " ".join(
            filter(
                None,
                [self.scope and f"{self.scope}.", self.sentence, self.shortfall, *notes, next_],
            )
        )

    def __repr__(self) -> str:
        return str(self)

    def changed(self, **figures) -> Verdict:
        """Return the same verdict with some figures changed."""
        return dataclasses.replace(self, figures=dataclasses.replace(self.figures, **figures))

    def stored(self) -> dict[str, Any]:
        """Return the verdict as plain values, without its figures; `of_stored` reads them."""
        parts = {
            name: {f.name: _plain(getattr(part, f.name)) for f in fields(part)}
            for name, part in zip(("predictions", "factors", "number"), self.parts, strict=True)
        }
        own = {"notes": list(self.notes), "remedies": dict(self.remedies), "scope": self.scope}
        return {"status": str(self.status), **parts, "remedy": self.remedy, **own}

    @classmethod
    def of_stored(cls, summary: Mapping[str, Any]) -> Verdict:
        """Return the verdict of a stored fit, of its `summary`; of an older one by its figures."""
        known = dict(summary["scalars"])
        known.setdefault("num_chains", summary.get("settings", {}).get("num_chains"))
        judged = summary.get("judged", {})
        older = judged.get("remedy") or known.get("remedy") or ""
        return cls(
            Figures.of_stored(known),
            tuple(judged.get("notes", ())) if "remedies" in judged else (),
            judged.get("remedies", {"chains": older} if older else {}),
            judged.get("scope", ""),
        )


def _plain(value):
    """Return a value as JSON holds it."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    return str(value) if isinstance(value, StrEnum) else value


# ---- the rule -----------------------------------------------------------------------------------

#: Effective draws, by what they are of.
_EFFECTIVE = {
    "the reconstruction": "ess_product",
    "the log joint density": "ess_log_joint",
    "the noise precision": "ess_precision",
    "the dispersion": "ess_dispersion",
    "the cut points": "ess_cutpoints",
    "the number of factors": "ess_rank",
}


def fewest_draws(figures: Figures) -> tuple[str, float]:
    """Return what has the fewest effective draws of all that counts, and how many it has.

    What never moved, or is not there, has none to count; infinity if that is everything.

    Examples
    --------
    >>> fewest_draws(Figures(ess_product=float("nan"), ess_log_joint=5.0, ess_rank=6.0))
    ('the log joint density', 5.0)
    """
    known = {what: figures.get(name) for what, name in _EFFECTIVE.items()}
    if figures.log_joint_counts is False:
        del known["the log joint density"]
    known = {what: math.inf if np.isnan(number) else number for what, number in known.items()}
    return min(known.items(), key=lambda pair: pair[1])


def agrees(figures: Figures, bounds: Bounds = WIDE) -> bool:
    """Whether chains agree about all three parts, within these bounds.

    This is the rule that judges a run, and that ends it: for each part that of its own module.

    Examples
    --------
    >>> good = Figures(
    ...     num_chains=4, chains_apart=0.01, mc_error=0.02, factors_agreeing=1.0,
    ...     rhat_log_joint=1.009, ess_log_joint=900.0,
    ... )  # fmt: skip
    >>> agrees(good), agrees(good, TIGHT), agrees(good, TIGHT._replace(error=0.015))
    (True, True, False)
    """
    parts = (predictions_agree, factors_agree, number_agrees)
    return all(agree(figures, bounds) for agree in parts)


def suffices(figures: Figures, until: str = UNTIL[0], mc_error: float | None = None) -> bool:
    """Whether draws with these figures need no more beside them.

    They agree within the bounds that "reliable" asks for, of which R-hat is that of "usable" where
    no more can be reached: the sampler is not exact, or chains are of one start; `until`
    "predictions" about these alone, and `until` "usable" within the wide bounds by which each part
    holds: these figures must be those of a fit whose parts hold, but for factors that one chain
    found. The R-hat of what factors rest on is at most 1.2 there, also where chains are in modes of
    their own. Predictions are as exact as `mc_error`, where it is given.

    Examples
    --------
    >>> good = dict(num_chains=4, exact=True, chains_apart=0.01, mc_error=0.02)
    >>> apart = Figures(**good, factors_agreeing=0.5)
    >>> suffices(apart), suffices(apart, "predictions"), suffices(apart, "predictions", 0.01)
    (False, True, False)
    >>> rough = Figures(num_chains=4, chains_apart=0.1, mc_error=0.08, factors_agreeing=1.0)
    >>> suffices(rough), suffices(rough, "usable")
    (False, True)
    """
    return not why_more_draws(figures, until, mc_error)


def why_more_draws(figures: Figures, until: str = UNTIL[0], mc_error: float | None = None) -> str:
    """Say what first keeps draws with these figures from sufficing, as `suffices` judges.

    Examples
    --------
    >>> known = dict(chains_apart=0.01, mc_error=0.03, rhat_log_joint=1.02, factors_agreeing=1.0)
    >>> figures = Figures(num_chains=4, exact=True, **known)
    >>> why_more_draws(figures), why_more_draws(figures, mc_error=0.02)
    ('R-hat 1.020', 'to within 0.03 only')
    >>> why_more_draws(figures, "usable")
    ''
    """
    bounds = WIDE if until == UNTIL[2] else _asked(figures)
    exact = bounds if mc_error is None else bounds._replace(error=min(mc_error, bounds.error))
    if not predictions_agree(figures, exact):
        return apart(figures, exact)
    if until == UNTIL[1]:
        return ""
    if not factors_agree(figures, bounds):
        return difference(figures, bounds)
    if not number_agrees(figures, bounds):
        return disagreement(figures, bounds)
    if until != UNTIL[2]:
        return ""
    # A run that ends early has mixed, if slowly, also where its chains are in modes of their own.
    if why := unmixed(figures):
        return why
    # Factors that are not compared more draws do not compare.
    if figures.is_alone:
        return ""
    return next((part.said for part in _counted(figures.of_draws) if not part.holds), "")


def _asked(figures: Figures) -> Bounds:
    """Return the bounds of "reliable", or as much of them as draws of these figures can reach."""
    best = figures.exact and not figures.is_of_one_start
    return TIGHT if best else TIGHT._replace(rhat=WIDE.rhat)


def _counted(figures: Figures) -> list[Part]:
    """Return the parts that the status of a fit depends on."""
    factors, number = of_factors(figures), of_number(figures)
    is_found = figures.rank is not None
    return [of_predictions(figures)] + [factors] * factors.counts + [number] * is_found


def status_of(figures: Figures) -> Status:
    """Decide how far a fit with these figures can be relied on, by its three parts.

    Examples
    --------
    >>> good = Figures(num_chains=4, factors_agreeing=1.0, exact=True)
    >>> str(status_of(good)), str(status_of(dataclasses.replace(good, factors_agreeing=0.5)))
    ('reliable', 'in part')
    """
    if figures.settled is False or figures.planned_warmup is not None:
        return Status.UNRELIABLE
    # One chain, or one start, agrees with none.
    if math.isnan(figures.get("factors_agreeing")) or figures.num_chains == 1:
        return Status.UNCHECKED
    predictions, factors = of_predictions(figures), of_factors(figures)
    nothing = explains(figures) == "nothing"
    if nothing or not all(part.holds for part in _counted(figures)):
        # A number that is right says nothing where nothing else is, and nor do predictions that
        # are those of a model without factors.
        most = figures.factors_agreeing > 0.5
        if figures.factors_differing is not None:
            most = len(factors.holding) > len(factors.differing) + len(factors.rarely_found)
        judged = factors.status is not Holds.NOT_YET or bool(factors.rarely_found)
        most = factors.counts and most and judged
        told = predictions.holds and not nothing
        return Status.IN_PART if told or most else Status.UNRELIABLE
    if figures.exact:
        sure = agrees(figures, TIGHT) and is_known(figures) and not misfit(figures, TIGHT)
        sure = sure and not figures.is_of_one_start
        return Status.RELIABLE if sure else Status.USABLE
    return Status.IN_PART if has_wrong_spread(figures) else Status.USABLE


def has_wrong_spread(figures: Figures) -> bool:
    """Whether an approximate sampler's spread is not nearly that of the posterior."""
    if figures.noise_share is not None:
        return figures.noise_share > 1.0
    return bool(figures.sampled) or figures.get("clamped") > MANY_CLAMPED

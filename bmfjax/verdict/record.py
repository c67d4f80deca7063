"""What is said of a fit, as data: its figures, its status and the sentence.

`status_of` decides the status, by the figures alone. Whoever asks whether a fit can be relied on
reads `Verdict.status`; the sentence is for people.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import numpy as np

#: Vehtari et al. (2021) ask for 1.01; with few kept draws R-hat scatters more than that.
RHAT_GOOD, RHAT_USABLE = 1.01, 1.05
ESS_PER_CHAIN = 50
#: Above this share of coordinates at a bound the spread of IASG says little.
MANY_CLAMPED = 0.2

NAN = float("nan")


class Status(StrEnum):
    """How far a fit can be relied on."""

    RELIABLE = "reliable"  # an exact sampler, and chains that agree
    USABLE = "usable"  # chains that nearly agree, or an approximation whose starts agree
    IN_PART = "in part"  # some of its results alone: the sentence says which
    UNCHECKED = "unchecked"  # one chain, which nothing is compared with
    UNRELIABLE = "unreliable"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of a fit. What a fit does not have is None; what cannot be known is NaN.

    Attributes
    ----------
    num_warmup, num_draws, earlier_steps, thinning : int
        Steps and draws of a chain; `earlier_steps` were of chains that were started anew, and one
        in `thinning` draws was kept.
    planned_warmup : int
        Steps of warm-up that were planned, where the time was up before their end.
    complete, timed_out : bool
        Whether all was drawn that was asked for, and whether the time was up before.
    seconds : float
    steps : int
        Of optimisation, of a variational fit.
    temperatures : int
        Of sampler "smc".
    coverage_largest, coverage_mean : float
        Angles in degrees between the factors of two draws; see `Fit.spread`.
    rows_without_information, columns_without_information : int
        Lines without an observed entry.
    errors, expected_errors : float
        Observed entries that the Boolean product gets wrong, and entries of the matrix without
        noise that it is expected to get wrong.
    exact : bool
        Whether the draws are from the posterior itself.
    converged : bool
        Whether chains, or starts, agree as far as "usable" asks for.
    rhat : float
        The worst R-hat of those that count.
    rhat_product, ess_product, rhat_product_worst : float
        99 % of up to 1,000 entries of the reconstruction are at least as good; the worst entry.
    rhat_nested : float
        99 % of these entries have at most this nested R-hat (`bmfjax.diagnostics.nested_rhat`), of
        at least 16 chains, each a group of its own.
    rhat_log_joint, rhat_precision, rhat_dispersion, rhat_cutpoints, rhat_rank : float
        R-hat of what is sampled besides, and with ``ess_`` effective draws.
    rhat_layers : float
        The worst of the dispersions of layers above the first.
    entries_uncertain : float
        Share of Boolean entries that are neither surely a one nor surely a zero.
    factors_agreeing : float
        Share of the factors with a tile in which all chains agree, NaN for one chain;
        `factors_found` are so many, and `factors_empty` have no tile when rounded and do not count.
    layers_agreeing : tuple of float
        The same share of every layer above the first.
    log_joint_counts, agreement_counts : bool
        Whether the log joint density, and agreement about factors, count in the verdict.
    clamped : float
        Mean share of coordinates at a bound, of IASG.
    window : int
        The least number of iterates that a draw averages, of a sampler that averages.
    noise_share : float
        Of "minibatch", the noise of gradients as a share of what the sampler makes up for.
    noise_free : bool
        Whether the prior, and not the data, bounds the noise precision.
    shared_starts, given_start : bool
        Whether chains took over factors of each other before they started, or all started from the
        solution that was given.
    round_trips : int
        Between the ends of a ladder of temperatures, of all chains.
    rank : int
        The most probable number of factors of a fit that finds it, with its `rank_probability`, and
        the mean, `rank_mean`. `rank_agreeing` is the share of starts in which it is the most
        probable.
    rank_at_bound : float
        Probability that all factors are there that were allowed; from 0.05 on more may be there,
        which is `rank_bounded`. A fit that is `rank_cramped` had no time to start with more.
    elbo, elbo_spread, elbo_rise : float
        Lower bound of the best start, its distance to the worst, and by what share of its size it
        changed over the last steps.
    settled, sampled : bool
        Whether every bound settled, and whether steps were taken from sampled entries.
    log_evidence, log_evidence_error : float
    log_evidence_runs, log_evidence_run_errors : list of float
        Of sampler "smc"; see `Fit.log_evidence`.
    """

    num_warmup: int | None = None
    planned_warmup: int | None = None
    num_draws: int | None = None
    earlier_steps: int | None = None
    thinning: int | None = None
    complete: bool | None = None
    timed_out: bool | None = None
    seconds: float | None = None
    coverage_largest: float | None = None
    coverage_mean: float | None = None
    rows_without_information: int | None = None
    columns_without_information: int | None = None
    expected_errors: float | None = None
    exact: bool | None = None
    elbo: float | None = None
    elbo_spread: float | None = None
    elbo_rise: float | None = None
    steps: int | None = None
    settled: bool | None = None
    sampled: bool | None = None
    rhat_product: float | None = None
    rhat_product_worst: float | None = None
    ess_product: float | None = None
    rhat_nested: float | None = None
    rhat_log_joint: float | None = None
    ess_log_joint: float | None = None
    log_joint_counts: bool | None = None
    rhat_precision: float | None = None
    ess_precision: float | None = None
    rhat_dispersion: float | None = None
    ess_dispersion: float | None = None
    entries_uncertain: float | None = None
    factors_agreeing: float | None = None
    agreement_counts: bool | None = None
    factors_empty: int | None = None
    factors_found: int | None = None
    layers_agreeing: tuple[float, ...] | None = None
    clamped: float | None = None
    noise_free: bool | None = None
    shared_starts: bool | None = None
    given_start: bool | None = None
    errors: float | None = None
    noise_share: float | None = None
    window: int | None = None
    rhat_cutpoints: float | None = None
    ess_cutpoints: float | None = None
    rank: int | None = None
    rank_probability: float | None = None
    rank_mean: float | None = None
    rhat_rank: float | None = None
    ess_rank: float | None = None
    rank_agreeing: float | None = None
    rhat_layers: float | None = None
    round_trips: int | None = None
    rhat: float | None = None
    converged: bool | None = None
    temperatures: int | None = None
    log_evidence: float | None = None
    log_evidence_error: float | None = None
    log_evidence_runs: list[float] | None = None
    log_evidence_run_errors: list[float] | None = None
    rank_at_bound: float | None = None
    rank_bounded: bool | None = None
    rank_cramped: bool | None = None

    def get(self, name: str) -> float:
        """Return a figure by its name, NaN where the fit does not have it."""
        value = getattr(self, name)
        return NAN if value is None else value

    def known(self) -> dict[str, Any]:
        """Return all figures that the fit has, by name.

        Examples
        --------
        >>> Figures(rhat=1.0).known()
        {'rhat': 1.0}
        """
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def of_stored(cls, stored: Mapping[str, Any]) -> Figures:
        """Return the figures of a stored fit; names that there are no longer are left out.

        Examples
        --------
        >>> Figures.of_stored({"factors_agreeing_2": 0.5, "rhat": 1.0, "old": 3}).layers_agreeing
        (0.5,)
        """
        names = {one.name for one in fields(cls)}
        found = {n: value for n, value in stored.items() if n in names}
        # Older fits have a name for every layer.
        old = sorted(n for n in stored if n.startswith("factors_agreeing_"))
        if layers := found.get("layers_agreeing") or [stored[n] for n in old]:
            found["layers_agreeing"] = tuple(layers)
        return cls(**found)


@dataclass(frozen=True)
class Verdict:
    """Whether a fit can be relied on, why, and what to do next; its text is the sentence.

    Two verdicts are equal if they say the same.

    Attributes
    ----------
    status : Status
    opening : str
        The status in the words of the sentence, such as "Usable, as an approximation".
    reasons : tuple of str
        What the status rests on.
    notes : tuple of str
        What else is known, and what qualifies the result.
    remedy : str
        What to try next; empty where nothing is wrong.
    scope : str
        What the verdict is of, where it is not of the whole fit.
    number : str
        What remains open about the number of factors, and what to do.
    figures : Figures

    Examples
    --------
    >>> found = Verdict(Status.USABLE, "Usable", ("chains that agree",), remedy="take more draws")
    >>> str(found), found.status == "usable"
    ('Usable: chains that agree. Next, take more draws.', True)
    """

    status: Status
    opening: str
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    remedy: str = ""
    scope: str = ""
    number: str = ""
    figures: Figures = field(default=Figures(), compare=False, repr=False)

    def __str__(self) -> str:
        because = self.opening.endswith("because")
        reasons = (" and ".join(self.reasons),) if because and self.reasons else self.reasons
        body = "; ".join((*reasons, *self.notes))
        opening = self.opening + (body and (" " if because else ": "))
        next_ = f"Next, {self.remedy}." if self.remedy else ""
        said = (self.scope and f"{self.scope}.", f"{opening}{body}.", next_, self.number)
        return " ".join(filter(None, said))

    def changed(self, **figures) -> Verdict:
        """Return the same verdict with some figures changed."""
        return dataclasses.replace(self, figures=dataclasses.replace(self.figures, **figures))

    def stored(self) -> dict[str, Any]:
        """Return the verdict as plain values, without its figures; `of_stored` reads them."""
        return {
            one.name: list(value) if isinstance(value, tuple) else str(value)
            for one in fields(self)
            if one.name != "figures" and (value := getattr(self, one.name))
        }

    @classmethod
    def of_stored(cls, summary: Mapping[str, Any]) -> Verdict:
        """Return the verdict of a stored fit, of its `summary`; of an older one by its figures."""
        known = summary["scalars"]
        figures = Figures.of_stored(known)
        if (parts := summary.get("judged")) is not None:
            lists = {n: tuple(parts.get(n, ())) for n in ("reasons", "notes")}
            status = Status(parts["status"])
            return cls(**{**parts, **lists, "status": status, "figures": figures})
        remedy = known.get("remedy") or ""
        text, found, number = str(summary["verdict"]).partition(f" Next, {remedy}.")
        return cls(
            status_of(figures),
            text.removesuffix("."),
            remedy=remedy if found and remedy else "",
            number=number.strip(),
            figures=figures,
        )


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


def factors_differ(figures: Figures) -> bool:
    """Whether chains disagree about a factor, where that counts; one chain compares nothing."""
    return figures.agreement_counts is not False and figures.get("factors_agreeing") < 1.0


def agrees(figures: Figures, chains: int, most: float = RHAT_USABLE) -> bool:
    """Whether draws with these figures agree, at an R-hat of at most `most`.

    This is the rule that judges a run, and that ends it. Besides R-hat it asks for effective draws
    of all that counts, and for the same factors in all chains.

    Examples
    --------
    >>> good = Figures(rhat=1.009, factors_agreeing=1.0, ess_product=900.0)
    >>> agrees(good, 4), agrees(good, 4, 1.005)
    (True, False)
    """
    enough = fewest_draws(figures)[1] >= ESS_PER_CHAIN * chains
    return bool(figures.rhat <= most and enough and not factors_differ(figures))


def suffices(figures: Figures, chains: int) -> bool:
    """Whether draws with these figures need no more beside them.

    They agree at the R-hat that "reliable" asks for, or "usable" where the sampler is not exact.

    Examples
    --------
    >>> good = dict(rhat=1.009, exact=True, factors_agreeing=1.0, ess_product=900.0)
    >>> suffices(Figures(**good), 4), suffices(Figures(**good, ess_log_joint=5.0), 4)
    (True, False)
    """
    return agrees(figures, chains, RHAT_GOOD if figures.exact else RHAT_USABLE)


def status_of(figures: Figures) -> Status:
    """Decide how far a fit with these figures can be relied on.

    Examples
    --------
    >>> good = Figures(rhat=1.0, factors_agreeing=1.0, exact=True, converged=True)
    >>> str(status_of(good)), str(status_of(dataclasses.replace(good, rank_bounded=True)))
    ('reliable', 'usable')
    """
    if figures.planned_warmup is not None:
        return Status.UNRELIABLE
    is_of_starts = figures.settled is not None
    if is_of_starts and not figures.settled:
        return Status.UNRELIABLE
    # One chain, or one start, agrees with none.
    if math.isnan(figures.get("factors_agreeing")):
        return Status.UNCHECKED
    if is_of_starts:
        whole = figures.converged and (figures.rank == 0 or figures.factors_agreeing == 1.0)
        return Status.USABLE if whole else Status.IN_PART
    if not figures.converged:
        return Status.UNRELIABLE
    if figures.exact:
        good = figures.rhat <= RHAT_GOOD and not figures.rank_bounded
        return Status.RELIABLE if good else Status.USABLE
    return Status.IN_PART if has_wrong_spread(figures) else Status.USABLE


def has_wrong_spread(figures: Figures) -> bool:
    """Whether an approximate sampler's spread is not nearly that of the posterior."""
    if figures.noise_share is not None:
        return figures.noise_share > 1.0
    return figures.get("clamped") > MANY_CLAMPED

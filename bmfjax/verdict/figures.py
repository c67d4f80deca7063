"""Figures of a fit, which all that is said of it follows from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from bmfjax.specs.run import MAX_TIME

NAN = float("nan")
#: Figures that are names of factors.
FACTOR_NAMES = (
    "factors_holding", "factors_of_most", "factors_differing", "factors_rarely_found",
    "factors_in_few_draws",
)  # fmt: skip
#: Figures that are tuples.
TUPLES = (
    *FACTOR_NAMES, "factors_rarely_found_by", "factors_searches", "factors_chains", "rank_between",
    "stacking_weights",
)  # fmt: skip
#: Names that figures of earlier versions have.
_EARLIER = {
    "factors_alone": "factors_rarely_found", "factors_alone_found": "factors_rarely_found_by"
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of a fit. What a fit does not have is None; what cannot be known is NaN.

    Attributes
    ----------
    num_chains : int
        Chains, or starts, that were compared.
    num_warmup, num_draws, earlier_steps, thinning : int
        Steps and draws of a chain; `earlier_steps` were of chains that were started anew, and one
        in `thinning` draws was kept.
    planned_warmup : int
        Steps of warm-up that were planned, where the time was up before there were draws enough.
    complete, timed_out : bool
        Whether all was drawn that was asked for, and whether the time was up before.
    seconds : float
    steps : int
        Steps of the optimisation of a variational fit.
    temperatures : int
        Those of sampler "smc".
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
        Whether chains, or starts, agree about all three parts of the verdict.
    chains_apart : float
        99 % of up to 1,000 entries have predictions that differ by at most this between some chains
        and the others, beyond their Monte Carlo error: the difference of probabilities, and
        of numbers the total variation distance of normals with the noise of the fit.
    mc_error : float
        Two Monte Carlo standard errors of such a prediction of all chains; 99 % have at most this.
    explained, explained_error, baseline : float, float, str
        Share of the deviance of entries left out that the model explains, its standard error, and
        what it is compared with; see `Fit.check`.
    stacking_weights : tuple of float
        Weights of chains in the mixture that predicts entries left out best, of several chains.
    stacking_gain, stacking_gain_error : float
        What the mean log density of such an entry gains by them over chains that count alike, of
        entries that took no part in the choice of the weights, and its standard error.
    calibration_error, calibration_by_chance : float
        Mean distance of probabilities and shares of ones, and what it stays below in 95 % of cases
        if the probabilities are true.
    doubtful : float
        Share of the scores of entries left out of which the draws say too little. Where nearly all
        are, calibration does not count.
    coverage, coverage_scattered : float
        Shares of entries left out that lie in their predictive intervals of 90 %, of numbers with
        normal noise and of stars: of all, and of the half in rows and columns that scatter most.
    coverage_error, coverage_by_chance : float
        By how much the shares of both halves fall short of 90 % on average, and what that stays
        below in 95 % of cases if the intervals are true.
    factors_holding, factors_of_most, factors_differing : tuple of str
        Names of the factors that hold; of those, and of `factors_rarely_found`, that most chains
        found but not all; and of those on which chains disagree. Empty ones are in none.
    factors_in_few_draws : tuple of str
        Names of the factors that come and go in each chain, and do not hold, for fewer than two
        thirds of the chains have them in at least half of their draws. They are in none of the
        others.
    factors_chains : tuple of int
        How many chains have each factor in at least half of their draws, as `Fit.tiles` counts.
    factors_rarely_found, factors_rarely_found_by : tuple
        Names of the factors on which chains agree, and that do not hold, for too few of the
        independent searches found them by themselves; and how many did.
    searches : int
        Independent searches for starts, of which each kept its own end to be compared with.
    searches_needed : int
        How many of them find a factor that holds: half, two at least, or the only one that counts,
        because the others ended far below it.
    factors_searches : tuple of int
        How many of them found each factor of the fit by themselves.
    rank_searches : int
        How many of them ended with a number of factors that the draws have, too.
    rhat : float
        The largest R-hat of scalars and of 99 % of the entries, whether or not the verdict asks it
        of them (`Verdict`): a reliable fit may have a larger one than the verdict asks.
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
    starts : int
        How many starts of chains differ, of a search that gives some chains the same.
    found_by : int
        How many chains were by themselves as high as the best, which others took over, where they
        did: at their starts, or by jumps.
    round_trips : int
        Between the ends of a ladder of temperatures, of all chains.
    rank : int
        The most probable number of factors of a fit that finds it, with its `rank_probability`, and
        the mean, `rank_mean`. `rank_agreeing` is the share of starts in which it is the most
        probable.
    rank_default : int
        The number of factors where none was given, and the default was taken.
    rank_between : tuple of int
        The shortest range of numbers of factors that has a probability of 0.9, smallest and
        largest, `rank_between_probability`, what it has, and `rank_between_least`, what it has in
        the chain that has least of it.
    rank_predicting : int
        How many factors predictions need, where more than stand out of the noise.
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
        Those of sampler "smc"; see `Fit.log_evidence`.
    """

    num_chains: int | None = None
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
    chains_apart: float | None = None
    mc_error: float | None = None
    explained: float | None = None
    explained_error: float | None = None
    baseline: str | None = None
    stacking_weights: tuple[float, ...] | None = None
    stacking_gain: float | None = None
    stacking_gain_error: float | None = None
    calibration_error: float | None = None
    calibration_by_chance: float | None = None
    doubtful: float | None = None
    coverage: float | None = None
    coverage_scattered: float | None = None
    coverage_error: float | None = None
    coverage_by_chance: float | None = None
    factors_holding: tuple[str, ...] | None = None
    factors_of_most: tuple[str, ...] | None = None
    factors_differing: tuple[str, ...] | None = None
    factors_rarely_found: tuple[str, ...] | None = None
    factors_rarely_found_by: tuple[int, ...] | None = None
    factors_in_few_draws: tuple[str, ...] | None = None
    factors_chains: tuple[int, ...] | None = None
    searches: int | None = None
    searches_needed: int | None = None
    factors_searches: tuple[int, ...] | None = None
    rank_searches: int | None = None
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
    starts: int | None = None
    found_by: int | None = None
    errors: float | None = None
    noise_share: float | None = None
    window: int | None = None
    rhat_cutpoints: float | None = None
    ess_cutpoints: float | None = None
    rank: int | None = None
    rank_probability: float | None = None
    rank_mean: float | None = None
    rank_predicting: int | None = None
    rank_default: int | None = None
    rank_between: tuple[int, int] | None = None
    rank_between_probability: float | None = None
    rank_between_least: float | None = None
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

    @property
    def is_of_one_start(self) -> bool:
        """Whether chains began alike, by a start that was given or that they share."""
        return bool(self.shared_starts or self.given_start)

    @property
    def is_of_one_search(self) -> bool:
        """Whether what one search found holds, and others ended far below it."""
        return self.searches_needed == 1

    @property
    def asks_entries(self) -> bool:
        """Whether entries of the reconstruction say that chains of one start have left it.

        Few Boolean ones are unsure, and R-hat is of these alone.
        """
        return self.is_of_one_start and math.isnan(self.get("entries_uncertain"))

    @property
    def is_found_by_one(self) -> bool:
        """Whether one chain of several found what the others took over.

        Not where the searches of others found all factors of it by themselves.

        Examples
        --------
        >>> [Figures(num_chains=number, found_by=1).is_found_by_one for number in (1, 4)]
        [False, True]
        >>> known = dict(num_chains=4, found_by=1, searches=4)
        >>> [Figures(**known, factors_rarely_found=names).is_found_by_one for names in ((), ("2",))]
        [False, True]
        """
        shared = self.factors_rarely_found == () and not self.factors_differing
        return self.num_chains != 1 and self.found_by == 1 and not shared

    @property
    def is_alone(self) -> bool:
        """Whether no factor is compared: there is one chain, or others took over what one found.

        Not where each search kept its own end, with which every factor is compared.

        Where m of four chains find a solution, four others all miss it with probability 0.28 for
        m = 1, 0.12 for 2 and 0.04 for 3, if any rate was as probable before.

        Examples
        --------
        >>> [Figures(num_chains=4, found_by=number).is_alone for number in (None, 1, 2)]
        [False, True, False]
        """
        return self.num_chains == 1 or (self.found_by == 1 and self.searches is None)

    @property
    def of_draws(self) -> Figures:
        """The same without what more draws do not change."""
        changed = {"factors_rarely_found": (), "factors_in_few_draws": ()}
        return dataclasses.replace(self, **changed, rank_searches=None)

    @property
    def more_seconds(self) -> int:
        """Seconds to give a run whose time was up: twice what it took, and a minute at least.

        Where it was up in the warm-up, so many that as many steps again follow it; ten times what
        it took at most. Where it was up before that, the default at least, in which programs are
        compiled also on a busy machine. In round numbers; twice the default where it is not known
        what it took.

        Examples
        --------
        >>> [Figures(seconds=spent).more_seconds for spent in (4.0, 283.0, None)]
        [60, 600, 600]
        >>> Figures(seconds=283.0, num_warmup=100, planned_warmup=300).more_seconds
        2000
        >>> Figures(seconds=25.0, num_warmup=0, planned_warmup=300).more_seconds
        300
        """
        spent = MAX_TIME if math.isnan(self.get("seconds")) else self.get("seconds")
        times, least = 2.0, 60.0
        if self.planned_warmup and not self.num_warmup:
            least = MAX_TIME
        elif self.planned_warmup is not None and self.num_warmup:
            times = min(2.0 * max(self.planned_warmup / self.num_warmup, 1.0), 10.0)
        wanted = max(times * spent, least)
        digit = 10.0 ** math.floor(math.log10(wanted))
        return int(math.ceil(round(wanted / digit, 6)) * digit)

    @property
    def chains_differ(self) -> bool:
        """Whether chains differ in what they say, so that there may be modes to look at.

        Chains whose warm-up was cut short, or that drew too little, are in no mode yet.
        """
        return self.planned_warmup is None and (not self.converged or bool(self.factors_of_most))

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
        >>> Figures.of_stored({"factors_alone": ["2"]}).factors_rarely_found
        ('2',)
        """
        names = {one.name for one in fields(cls)}
        stored = {_EARLIER.get(name, name): value for name, value in stored.items()}
        found = {n: value for n, value in stored.items() if n in names}
        # Older fits have a name for every layer.
        old = sorted(n for n in stored if n.startswith("factors_agreeing_"))
        if layers := found.get("layers_agreeing") or [stored[n] for n in old]:
            found["layers_agreeing"] = tuple(layers)
        for name in TUPLES:
            if name in found:
                found[name] = tuple(found[name])
        return cls(**found)

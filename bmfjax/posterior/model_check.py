r"""Does the model fit the data at all? Chains that agree on a wrong model are no answer.

Questions, each about observed entries:

* **What is explained.** The log predictive density of entries, each left out, beside that of a
  model without factors. For zeros and ones, and for stars, it is the share of the deviance that the
  columns alone leave (for counts: what totals of rows and columns leave),

  .. math::

     1 - \frac{\sum_{ij} \log p(x_{ij} \mid x_{-ij})}{\sum_{ij} \log p_0(x_{ij} \mid x_{-ij})},

  with :math:`p_0` the shares of values in the rest of a column (McFadden 1974). For numbers, whose
  densities have a unit, it is :math:`1 - \exp(-2 g)`, with g the gain an entry over normal effects
  of rows and columns: of normal errors the share of the variance (Magee 1990, "R^2 measures based
  on Wald and likelihood ratio joint significance tests", The American Statistician 44).
* **Are probabilities calibrated?** Entries are sorted into bins by the probability of a one, and
  the share of ones of each bin is set beside the mean of the probabilities that they have when left
  out. They are sorted by these, and by the probabilities that they have when fitted, and what is
  nearer to chance counts: where many entries share a probability, leaving out a one makes it
  smaller and leaving out a zero larger, so that the first order sorts them by what they are; where
  few do, the second does.
* **Do intervals hold what they say?** Of numbers with normal noise, and of stars, the share of
  entries in their central intervals of 90 %: those whose probability integral transform
  :math:`P(x' \le x_{ij} \mid x_{-ij})` lies between 0.05 and 0.95 (Gelman et al. 2013, "Bayesian
  Data Analysis", third edition, chapter 7; Vehtari, Gelman, Gabry 2017). A star has a range of
  these, of which the part between counts, the mean of what a random one in it has (Czado, Gneiting,
  Held 2009, "Predictive model assessment for count data", Biometrics 65). As noise that is too
  small for some lines and too large for others may be right on average, entries are sorted into
  halves by how far out the others of their row and column lie, which says nothing of an entry
  under the model. Only too few in an interval count against it: the ends of a scale, and numbers
  that are rounded, make those of normal noise too wide, and so do entries that the draws say too
  little of.
* **Do replicates look like the data?** Sums of rows, sums of columns and what pairs of columns have
  in common are compared with those of data that the draws make (Gelman, Meng, Stern 1996,
  "Posterior predictive assessment of model fitness via realized discrepancies", Statistica Sinica
  6). The statistic is the largest distance from the mean of replicates, in their standard
  deviations, so that one probability stands for all rows, columns or pairs, and the worst is named.
  For counts, so is how they scatter: with the rates :math:`\lambda` of a draw, the index of
  dispersion :math:`\sum (n - \lambda)^2 / \sum \lambda` of each column and of all, which is one of
  Poisson counts on average. For numbers it is how they spread: the sum of squares
  :math:`\sum (x - f)^2` of each row and of each column about the fits f of a draw, which says of
  which lines the noise is larger or smaller than that of all. The data are compared with the
  replicate of the same draw.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix, checks
from bmfjax.data.bits import count_ones
from bmfjax.data.blocks import blocks, spaced
from bmfjax.data.names import in_words
from bmfjax.diagnostics import stacking_weights
from bmfjax.diagnostics.leave_one_out import MAX_KHAT, percent
from bmfjax.posterior.cells import tails
from bmfjax.posterior.pointwise import some_draws
from bmfjax.posterior.scores import (
    MAX_SCORED,
    averaged,
    count_density,
    observed_sample,
    places_left_out,
    scored_and_predicted,
)
from bmfjax.specs.run import ACCURATE, SLIGHT

#: Bins of predictive probabilities, and draws of the calibration error by chance.
BINS, DRAWN = 10, 1000
#: The probability of the intervals that are looked at.
LEVEL = 0.9
#: Other entries of a row or column that say whether it scatters more, at least, and for each factor
#: and the effect, where they were fitted together with the entry: with fewer, what is fitted to all
#: of them makes them lie farther out together.
FEW_OTHERS, FEW_A_FACTOR = 10, 2
#: Parts of the entries by which stacking weights are tried.
WEIGHED = 5
#: Replicates, and the entries of each: rows are drawn at random up to this many.
REPLICATES, MOST_REPLICATED = 100, 200_000
#: Columns whose pairs are compared, those with the most to say.
MOST_PAIRED = 150
#: Statistics of the noise of lines, which no other model here knows more of.
SPREADS = ("spreads of rows", "spreads of columns")
#: Probability of a statistic below which the model is said not to have it.
UNLIKELY = 0.02
#: What log densities are of.
BINARY, STARS = "probabilities of ones and zeros", "probabilities of stars"
COUNTS = "probabilities of counts"
DISCRETE = (BINARY, STARS, COUNTS)
#: Times what models without factors leave, above which no more is told apart: a fit whose time was
#: up before a step may leave more than there are numbers for.
MOST_LEFT = 1e4
#: What the model of counts without factors knows.
TOTALS = "totals of rows and columns"
#: Bound for a line of one entry, whose effect is that entry.
MOST_LEVERAGE = 0.9
#: Less than this share is 0 %.
LEAST_EXPLAINED = 0.005
#: Share of doubtful scores above which the sentence speaks of them, and above which they tell
#: nothing.
MANY_DOUBTFUL, MOST_DOUBTFUL = 0.1, 0.9
#: Prior entries of a column, spread over its values: Jeffreys' for two.
PRIOR = 1.0


class Coverage(NamedTuple):
    """How many entries lie in their predictive intervals of 90 %; NaN of data without these.

    Attributes
    ----------
    coverage : float
        Share of the entries.
    coverage_scattered : float
        Share of the half in rows and columns whose other entries lie farthest out; of all where
        lines have too few others to tell.
    coverage_error : float
        By how much the shares of both halves fall short of 90 %, on average over entries.
    coverage_by_chance : float
        What that stays below in 95 % of cases if the intervals are true.
    """

    coverage: float = math.nan
    coverage_scattered: float = math.nan
    coverage_error: float = math.nan
    coverage_by_chance: float = math.nan

    @property
    def holds(self) -> bool:
        """Whether intervals hold as many entries as true ones do, or slightly fewer."""
        return is_calibrated(self.coverage_error, self.coverage_by_chance)

    @property
    def figures(self) -> dict:
        """Its fields by name; none where there are no intervals."""
        return {} if math.isnan(self.coverage) else self._asdict()

    def __str__(self) -> str:
        """Say how many entries the intervals hold.

        Examples
        --------
        >>> print(Coverage(0.91, 0.9, 0.0, 0.01))
        90 % intervals hold 91 % of them
        >>> print(Coverage(0.89, 0.79, 0.055, 0.01))
        90 % intervals hold 89 % of them, and 79 % in rows and columns that scatter most
        """
        text = f"90 % intervals hold {100 * self.coverage:.0f} % of them"
        if not is_calibrated(self.coverage_error, self.coverage_by_chance):
            text += (
                f", and {100 * self.coverage_scattered:.0f} % in rows and columns that scatter most"
            )
        return text


@dataclass(frozen=True, repr=False)
class LeftOut:
    """How well entries that are left out are predicted.

    Attributes
    ----------
    explained : float
        Share of what the baseline leaves, from entries left out: 1 is all, 0 nothing; below 0 the
        baseline predicts better.
    explained_error : float
        Its standard error, from the entries.
    baseline : str
        The model without factors.
    log_score, baseline_score : float
        Mean log predictive densities of an entry, in nats.
    num_entries : int
        Entries that were scored.
    calibration : pandas.DataFrame or None
        For zeros and ones, a row for each bin: `predicted` and `observed` share of ones, and
        `entries`.
    calibration_error : float
        Mean distance of the two over entries; NaN of other data.
    error_by_chance : float
        What it would stay below in 95 % of cases if the probabilities were true.
    weights : tuple of float or None
        Stacking weights of chains, of several.
    gain, gain_error : float or None
        What they gain over chains that count alike, in nats an entry that took no part in their
        choice, and its standard error.
    doubtful : float
        Share of the entries whose scores the draws say too little of (Pareto k above 0.7).
    intervals : Coverage
        Shares of entries in their predictive intervals of 90 %, each left out; NaN of data other
        than numbers with normal noise and stars.
    """

    explained: float
    explained_error: float
    baseline: str
    log_score: float
    baseline_score: float
    num_entries: int
    calibration: pd.DataFrame | None
    calibration_error: float
    error_by_chance: float
    weights: tuple[float, ...] | None
    gain: float | None
    gain_error: float | None
    doubtful: float = dataclasses.field(default=0.0, kw_only=True)
    intervals: Coverage = dataclasses.field(default=Coverage(), kw_only=True)

    @property
    def explains(self) -> bool:
        """Whether more is explained than by chance, two standard errors, and than 0 % in words."""
        return self.explained > max(2.0 * self.explained_error, LEAST_EXPLAINED)

    @property
    def is_told(self) -> bool:
        """Whether the draws tell of entries left out: not nearly all scores are doubtful."""
        return are_told(self.doubtful)

    @property
    def is_calibrated(self) -> bool:
        """Whether the calibration error is known, and one of true probabilities, or slight."""
        return self.is_told and is_calibrated(self.calibration_error, self.error_by_chance)

    @property
    def calibration_text(self) -> str:
        """Whether probabilities are calibrated, in words."""
        if not self.is_told:
            return "calibrated or not: not known"
        return calibration_text(self.calibration_error, self.error_by_chance)

    @property
    def figures(self) -> dict:
        """What the verdict rests on, by the names of its figures."""
        names = ("explained", "explained_error", "baseline", "calibration_error")
        known = {name: getattr(self, name) for name in names}
        known |= {"stacking_weights": self.weights, "stacking_gain": self.gain}
        known |= {"stacking_gain_error": self.gain_error, "doubtful": self.doubtful}
        return known | {"calibration_by_chance": self.error_by_chance} | self.intervals.figures


@dataclass(frozen=True, repr=False)
class ModelCheck(LeftOut):
    """What `Fit.check` found: beside how entries left out are predicted, `statistics`.

    Attributes
    ----------
    statistics : pandas.DataFrame
        A row for `row sums`, `column sums` and `pairs of columns`, for the `dispersions` of
        counts, and for the `spreads of rows` and `spreads of columns` of numbers, root mean squares
        about what is fitted: `p_value`, the share of replicates as far off; and of the `worst`:
        `observed`, `expected` and `sd`.
    other_model : str
        What to fit instead, where this model does not fit: it has what this one lacks.
    """

    statistics: pd.DataFrame
    other_model: str = ""

    @property
    def fits(self) -> bool:
        """Whether the model explains something, is calibrated, and has replicates like the data."""
        return bool(
            self.explains and self.is_calibrated and self.intervals.holds and not self.misfits
        )

    @property
    def misfits(self) -> tuple[str, ...]:
        """Statistics that replicates do not have, by name."""
        return tuple(self.statistics.index[self.statistics["p_value"] < UNLIKELY])

    @property
    def sentence(self) -> str:
        """What was found, without what to do about it."""
        share = percent(self.explained, self.explained_error)
        first = f"{'explains' if self.is_told else 'may explain'} {share}"
        if not self.explains:
            first = f"does not explain the data: {share}"
        parts = [f"{first} of what {self.baseline} leave"]
        doubts = (
            f"{self.doubtful:.0%} of the scores of entries left out are doubtful (Pareto k above "
            f"{MAX_KHAT:g}): to be sure, hide entries (check=0.1, --check 0.1)"
        )
        if not self.is_told:
            what = "whether probabilities are calibrated"
            if math.isnan(self.calibration_error):
                what = "how much"
            parts.append(f"{what} is not known: too few draws to leave entries out")
        elif not math.isnan(self.calibration_error):
            parts.append(
                f"probabilities are {self.calibration_text} (error {self.calibration_error:.3f}, "
                f"by chance up to {self.error_by_chance:.3f})"
            )
        if self.is_told and self.intervals.figures:
            parts.append(f"{self.intervals}".replace("them", "the entries left out"))
        parts += [doubts] * (self.doubtful > MANY_DOUBTFUL)
        parts += [
            f"{name} of its replicates are not those of the data ({self._worst(name)})"
            for name in self.misfits
        ]
        return f"The model {'; '.join(parts)}."

    @property
    def advice(self) -> str:
        """What to do next, and why, in a sentence; empty where nothing is wrong, or known to help.

        The verdict says nothing of replicates: a fit of which it says the best may have others.
        """
        why = ["it explains nothing"] * (not self.explains)
        why += ["probabilities are off"] * (self.is_told and not self.is_calibrated)
        if not {*self.misfits} <= {*SPREADS}:  # which no other model mends
            why.append(f"{in_words(self.misfits)} of its replicates are off")
        if not (why and self.other_model):
            return ""
        return f"Next, as {' and '.join(why)}, {self.other_model}."

    def __str__(self) -> str:
        return f"{self.sentence} {self.advice}".rstrip()

    def __repr__(self) -> str:
        return str(self)

    def _worst(self, name) -> str:
        of = self.statistics.loc[name]
        return f"{of['worst']}: {of['observed']:.4g} for {of['expected']:.4g} ± {of['sd']:.2g}"


def model_check(
    fit, *, max_entries: int = MAX_SCORED, seed: int = 0, found: LeftOut | None = None,
    other_model: str = "",
) -> ModelCheck:  # fmt: skip
    """Check whether the model of a fit explains its data; see `Fit.check`.

    How entries left out are predicted may have been `found` before, by `left_out`. `other_model`
    says what to fit where this model does not fit.
    """
    checks.whole("max_entries", max_entries, 2)
    seed = checks.seed_number(seed)
    found = left_out(fit, max_entries, seed) if found is None else found
    return ModelCheck(**vars(found), statistics=_statistics(fit, seed), other_model=other_model)


def left_out(fit, max_entries: int = MAX_SCORED, seed: int = 0) -> LeftOut:
    """Predict observed entries, each left out, and compare with a model without factors."""
    cells = observed_sample(fit.data, max_entries, seed)
    if len(cells[0]) < 2:
        raise InputError("the data have fewer than two observed entries; there is nothing to check")
    of_chains, fitted = scored_and_predicted(fit, cells)
    of_all = averaged(of_chains)
    scores = of_all.log_score
    plain, baseline = _baseline(fit, cells)
    explained, error = explained_share(scores, plain, fit._scored in DISCRETE)
    table, wrong, by_chance = None, math.nan, math.nan
    if fit._scored == BINARY:
        is_one = cells[2] > 0.5
        one, fitted = (
            np.where(is_one, np.exp(score), -np.expm1(score)) for score in (scores, fitted)
        )
        found = [calibration(one, is_one, seed, order) for order in (one, fitted)]
        table, wrong, by_chance = min(found, key=lambda each: each[1] - each[2])
    intervals = Coverage()
    if has_intervals(fit):
        below = places_left_out(fit, cells)
        few = max(FEW_OTHERS, FEW_A_FACTOR * (1 + fit.usage_draws.shape[-1]))
        intervals = coverage(below, scatter_of_lines(below, cells[:2], few=few), seed)
    return LeftOut(
        explained, error, baseline, float(scores.mean()), float(plain.mean()), len(scores),
        table, wrong, by_chance, *_stacked([found.log_score for found in of_chains], seed),
        doubtful=float(np.mean(of_all.doubtful)), intervals=intervals,
    )  # fmt: skip


def _stacked(scores, seed: int) -> tuple[tuple[float, ...] | None, float | None, float | None]:
    """Return stacking weights of chains, of their scores (chain, entry), and what they gain.

    The gain is over chains that count alike, with its standard error: of entries that took no part
    in the choice of the weights, a part of them at a time.
    """
    scores = np.asarray(scores)
    if len(scores) == 1:
        return None, None, None
    number = scores.shape[1]
    part = np.random.default_rng(seed).permutation(np.arange(number) % min(WEIGHED, number))
    gain = -logsumexp(scores, axis=0, b=1.0 / len(scores))
    for own in (part == p for p in range(part.max() + 1)):
        weights = stacking_weights(scores[:, ~own])
        gain[own] += logsumexp(scores[:, own], axis=0, b=weights[:, None])
    error = float(gain.std(ddof=1) / math.sqrt(number))
    return tuple(stacking_weights(scores).tolist()), float(gain.mean()), error


# ---- what is explained ---------------------------------------------------------------------------


def explained_share(scores, plain, is_discrete: bool) -> tuple[float, float]:
    """Return the share that is explained, and its standard error by the delta method."""
    number = len(scores)
    if is_discrete:
        if not plain.any():  # all values are one value: nothing is left to be explained
            return 0.0, 0.0
        share = 1.0 - scores.mean() / plain.mean()
        error = np.std(scores - (1.0 - share) * plain, ddof=1) / abs(plain.mean())
        return float(share), float(error / math.sqrt(number))
    gain = scores - plain
    left = math.exp(min(-2.0 * gain.mean(), math.log(MOST_LEFT)))
    error = 2.0 * left * gain.std(ddof=1) / math.sqrt(number)
    return 1.0 - left, float(min(error, MOST_LEFT))


def _baseline(fit, cells) -> tuple[np.ndarray, str]:
    """Return the log densities of cells, each left out, without factors; and what that is."""
    i, j, values = cells
    if fit._scored in (BINARY, STARS):
        counts, kind = _counted(fit.data, values)
        return shares_left_out(counts, j, kind), "independent columns"
    if fit._scored == COUNTS:
        return totals_left_out(fit, i, j, values), TOTALS
    return effects_left_out(*_observed(fit.data), fit.data.shape, i, j, values), (
        "effects of rows and columns"
    )


def _observed(data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, columns and values: of all ratings, else of as many entries as are looked at.

    The ratings of a row may be few, so that some of them would not tell its effect.
    """
    if isinstance(data, Ratings):
        return data.rows, data.columns, data.values
    return observed_sample(data, 10 * MOST_REPLICATED, 0)


def _counted(data, values) -> tuple[np.ndarray, np.ndarray]:
    """Count the values of each column, (column, kind); and return the kinds of values (cell,)."""
    if isinstance(data, BinaryMatrix):
        return _bits_of_columns(data), (values > 0.5).astype(int)
    _, columns, seen = observed_sample(data, data.num_rows * data.num_columns)
    kinds = np.unique(seen)
    at = len(kinds) * columns + np.searchsorted(kinds, seen)
    counts = np.bincount(at, minlength=len(kinds) * data.num_columns)
    return counts.reshape(-1, len(kinds)), np.searchsorted(kinds, values)


def _bits_of_columns(data: BinaryMatrix) -> np.ndarray:
    """Count the zeros and the ones of each column, (column, 2), of all entries.

    A sample would not do: of rare ones it has too few a column to tell their shares.
    """
    if data.is_sparse:
        ones = np.bincount(data.ones().indices, minlength=data.num_columns)
    else:
        ones = count_ones(data.packed("columns").ones)
    observed = data.num_rows - data._missing_counts(0)
    return np.stack([observed - ones, ones], 1)


def shares_left_out(counts, j, kind) -> np.ndarray:
    """Return the log shares of kinds of values (cell,) among the other entries of their columns j.

    `counts` (column, kind) has how many entries of a column are of a kind, the cells among them.
    """
    return _log_shares(counts[j, kind] - 1.0, counts[j].sum(1) - 1.0, counts.shape[1])


def totals_left_out(fit, i, j, values, *, among: bool = True) -> np.ndarray:
    """Return log probabilities of counts (cell,), left out of their row and column.

    Rates are products of a number for each row and one for each column, as if all rows were made of
    the same; counts scatter about them as those of the fit do. The cells are `among` those that are
    observed, or not.
    """
    data = fit.data
    at = observed_sample(data, data.num_rows * data.num_columns)
    lines, seen = at[:2], at[2]
    sums = [np.bincount(k, seen, minlength=n) for k, n in zip(lines, data.shape, strict=True)]
    means = [np.ones(n) for n in data.shape]
    met = [np.ones(n) for n in data.shape]
    for _ in range(20):  # each side meets what is observed of the other
        for side, other in ((0, 1), (1, 0)):
            weights = means[other][lines[other]]
            met[side] = np.bincount(lines[side], weights, minlength=data.shape[side])
            means[side] = (sums[side] + 1e-3) / np.maximum(met[side], 1e-12)
    met[0] = np.bincount(lines[0], means[1][lines[1]], minlength=data.shape[0])
    out = values if among else 0.0
    own = (sums[0][i] - out + 0.5) / np.maximum(met[0][i] - among * means[1][j], 1e-12)
    other = (sums[1][j] - out + 0.5) / np.maximum(met[1][j] - among * means[0][i], 1e-12)
    if "dispersion" not in fit.other_draws:
        return count_density(values, own * other)
    rates = means[0][lines[0]] * means[1][lines[1]]
    found = minimize_scalar(
        lambda log_size: -count_density(seen, rates, np.exp(log_size)).sum(), (-7.0, 14.0),
        bounds=(-7.0, 14.0), method="bounded",
    )  # fmt: skip
    return count_density(values, own * other, np.exp(found.x))


def shares_of_columns(data, cells) -> np.ndarray:
    """Return the log shares of values of cells, which the data lack, in their columns."""
    (counts, kind), j = _counted(data, cells[2]), cells[1]
    return _log_shares(counts[j, kind], counts[j].sum(1), counts.shape[1])


def _log_shares(own, rest, kinds: int) -> np.ndarray:
    return np.log((own + PRIOR / kinds) / (rest + PRIOR))


def baseline_of_others(fit, cells) -> tuple[np.ndarray, str]:
    """Return the log densities of cells that the data lack, without factors; and what that is."""
    if fit._scored in (BINARY, STARS):
        return shares_of_columns(fit.data, cells), "independent columns"
    if fit._scored == COUNTS:
        return totals_left_out(fit, *cells, among=False), TOTALS
    return effects_of_others(fit.data, cells), "effects of rows and columns"


def effects_of_others(data, cells) -> np.ndarray:
    """Return normal log densities of cells, which the data lack, under effects of lines."""
    i, j, values = cells
    return effects_left_out(*_observed(data), data.shape, i, j, values, among=False)


def effects_left_out(
    rows, columns, values, shape, i, j, left_out, *, among: bool = True
) -> np.ndarray:
    """Return normal log densities (cell,) of cells under effects of rows and columns, left out.

    The cells are `among` those that tell the effects, or not.
    """
    effects, weights = [np.zeros(n) for n in shape], []
    mean = values.mean()
    lines = (rows, columns)
    for axis, at in enumerate(lines):
        weights.append(np.maximum(np.bincount(at, minlength=shape[axis]), 1.0))
    for _ in range(20):
        for axis, at in enumerate(lines):
            other = effects[1 - axis][lines[1 - axis]]
            total = np.bincount(at, values - mean - other, minlength=shape[axis])
            effects[axis] = total / weights[axis]
    residual = left_out - mean - effects[0][i] - effects[1][j]
    if among:
        # What an entry weighs in its own fit; a line of one entry says nothing without it.
        leverage = 1.0 / weights[0][i] + 1.0 / weights[1][j] - 1.0 / len(values)
        residual = residual / (1.0 - np.minimum(leverage, MOST_LEVERAGE))
    variance = max(float(np.mean(residual**2)), np.finfo(np.float32).tiny)
    return -0.5 * (residual**2 / variance + math.log(2.0 * math.pi * variance))


# ---- calibration ---------------------------------------------------------------------------------


def is_calibrated(error: float, by_chance: float, beyond: float = 0.0) -> bool:
    """Tell whether a calibration error is slight, or at most so far `beyond` what chance gives.

    The error is at most that of the probabilities and what chance adds. So what it is beyond the
    95 % quantile by chance is a lower bound of their mean error, of about 95 % confidence, and 0
    where nothing can be told from true ones. A quantile that is not known takes nothing off.

    Examples
    --------
    >>> is_calibrated(0.04, 0.02), is_calibrated(0.04, 0.02, SLIGHT), is_calibrated(0.3, math.nan)
    (False, True, False)
    """
    by_chance = 0.0 if math.isnan(by_chance) else by_chance
    return not error > max(by_chance + beyond, SLIGHT)


def are_told(doubtful: float) -> bool:
    """Tell whether draws say enough of entries left out, by the share of doubtful scores.

    Examples
    --------
    >>> are_told(0.5), are_told(1.0), are_told(math.nan)
    (True, False, True)
    """
    return not doubtful > MOST_DOUBTFUL


def too_few(by_chance: float) -> bool:
    """Tell whether entries are too few to tell calibration: chance alone gives more than 0.05."""
    return by_chance > ACCURATE


def calibration_text(error: float, by_chance: float) -> str:
    """Say whether probabilities are calibrated.

    "Nearly" where the error is larger than by chance, and by at most 0.025 (`SLIGHT`).

    Examples
    --------
    >>> [calibration_text(error, 0.02) for error in (0.02, 0.022, 0.04, 0.05)]
    ['calibrated', 'nearly calibrated', 'nearly calibrated', 'not calibrated']
    >>> calibration_text(0.1, 0.2)
    'calibrated as far as so few entries tell'
    """
    if not is_calibrated(error, by_chance, SLIGHT):
        return "not calibrated"
    if too_few(by_chance):
        return "calibrated as far as so few entries tell"
    return "nearly calibrated" if error > by_chance else "calibrated"


def calibration(one, is_one, seed: int = 0, order=None) -> tuple[pd.DataFrame, float, float]:
    """Set probabilities of ones (cell,) beside what was observed (cell,) bool.

    Return the table of bins, the mean distance, and its 95 % quantile where probabilities are true.
    Cells are sorted into bins by other probabilities, `order`, where these are given.
    """
    bins = np.clip((BINS * (one if order is None else order)).astype(int), 0, BINS - 1)
    number, predicted, seen = (
        np.bincount(bins, weights, minlength=BINS) for weights in (None, one, is_one.astype(float))
    )
    used = number > 0
    frame = pd.DataFrame(
        {
            "predicted": predicted[used] / number[used],
            "observed": seen[used] / number[used],
            "entries": number[used].astype(int),
        },
        index=pd.Index(np.flatnonzero(used) / BINS, name="from"),
    )
    rng, total = np.random.default_rng(seed), len(one)
    drawn = np.empty(DRAWN)
    for some in blocks(DRAWN, total):
        ones = rng.random((some.stop - some.start, total)) < one
        sums = np.stack([np.bincount(bins, row, minlength=BINS) for row in ones])
        drawn[some] = np.abs(sums - predicted).sum(1) / total
    return frame, float(np.abs(seen - predicted).sum() / total), float(np.quantile(drawn, 0.95))


# ---- intervals -----------------------------------------------------------------------------------


def has_normal_noise(fit) -> bool:
    """Tell whether a fit is of numbers with normal noise, and not of zeros and ones."""
    return fit._scored not in DISCRETE and not isinstance(fit.data, BinaryMatrix)


def has_intervals(fit) -> bool:
    """Tell whether intervals of entries are compared with these: of numbers, and of stars."""
    return has_normal_noise(fit) or fit._scored == STARS


def coverage(below, scatter, seed: int = 0) -> Coverage:
    """Return how many entries lie in their intervals of 90 %, by halves of their `scatter` (cell,).

    `below` (end, cell) has predictive probabilities of less than an entry, and of the entry or
    less, where these differ. The part of what is between them that the interval has counts.

    Examples
    --------
    >>> places = np.linspace(0.0, 1.0, 1000)
    >>> round(coverage(places[None], np.zeros(1000)).coverage, 3)
    0.9
    >>> round(coverage(np.array([[0.0, 0.2], [0.2, 1.0]]), np.zeros(2)).coverage, 3)
    0.844
    """
    low, high = below[0], below[-1]
    least, most = tails(LEVEL)
    width = high - low
    part = np.minimum(high, most) - np.maximum(low, least)
    narrow = ~(width > np.finfo(float).eps)
    inside = np.where(narrow, part >= 0.0, np.maximum(part, 0.0) / np.where(narrow, 1.0, width))
    more = scatter > np.median(scatter)
    halves = [half for half in (~more, more) if half.any()]
    sizes, shares = np.array([(half.sum(), inside[half].mean()) for half in halves]).T
    drawn = np.random.default_rng(seed).binomial(sizes.astype(int), LEVEL, (DRAWN, len(sizes)))

    def short(shares):
        return np.maximum(LEVEL - shares, 0.0) @ sizes / len(inside)

    by_chance = np.quantile(short(drawn / sizes), 0.95)
    return Coverage(float(inside.mean()), float(shares[-1]), float(short(shares)), float(by_chance))


def scatter_of_lines(below, lines, at=None, *, few: int = FEW_OTHERS) -> np.ndarray:
    """Return how far out other entries of the rows and columns of cells `at` lie, 1 on average.

    `lines` (row and column of each entry) are those of `below` (end, entry). The cells are these
    where none are given; an entry itself does not count. So of a true model intervals hold what
    they say, however cells are sorted by it. A line of fewer other entries than these counts as an
    average one.
    """
    far = np.abs(below[0] + below[-1] - 1.0)
    found = np.zeros(len((lines if at is None else at)[0]))
    for line, asked in zip(lines, lines if at is None else at, strict=True):
        size = 1 + max(line.max(), asked.max())
        number, total = (np.bincount(line, w, minlength=size)[asked] for w in (None, far))
        if at is None:
            number, total = number - 1, total - far
        found += np.where(number >= few, total / np.maximum(number, 1), 0.5)
    return found


# ---- replicates ----------------------------------------------------------------------------------


def _statistics(fit, seed: int) -> pd.DataFrame:
    """Compare sums of rows and columns, pairs of columns and scatter with those of replicates."""
    rows, columns, cells = _replicated_cells(fit.data, seed)
    i, j, values = cells
    chains, draws = fit.usage_draws.shape[:2]
    few = some_draws(fit, spaced(draws, max(2, REPLICATES // chains)))
    number = few.usage_draws.shape[0] * few.usage_draws.shape[1]
    made, rng = np.empty((number, len(i)), np.float32), np.random.default_rng(seed)
    for some in blocks(len(i), 4 * number):
        made[:, some] = few._replicates(i[some], j[some], rng)
    shape, at = (len(rows), len(columns)), (np.searchsorted(rows, i), np.searchsorted(columns, j))
    names = [np.asarray(fit.data.row_names)[rows], np.asarray(fit.data.column_names)[columns]]
    found = {"row sums": [], "column sums": [], "pairs of columns": []}
    paired = _paired(at[1], values, shape[1])
    for one in (values, *made):
        dense = np.zeros(shape, np.float32)
        dense[at] = one
        found["row sums"].append(dense.sum(1, dtype=float))
        found["column sums"].append(dense.sum(0, dtype=float))
        both = dense[:, paired].T @ dense[:, paired]
        found["pairs of columns"].append(both[np.triu_indices(len(paired), 1)].astype(float))
    pairs = np.stack(np.triu_indices(len(paired), 1), 1)
    labels = {
        "row sums": names[0],
        "column sums": names[1],
        "pairs of columns": [" and ".join(map(str, names[1][paired[p]])) for p in pairs],
    }
    table = {name: worst_of(np.stack(each), labels[name]) for name, each in found.items()
             if len(labels[name])}  # fmt: skip
    if fit._scored == COUNTS:
        sums, rates = _dispersions(few, cells, made, at[1], shape[1])
        table["dispersions"] = worst_of(sums, [*names[1], "all columns"], rates)
    if has_normal_noise(fit):
        for side, name in enumerate(SPREADS):
            table[name] = _worst_spread(few._fits, cells, made, at[side], names[side])
    return pd.DataFrame(table.values(), index=pd.Index(table, name="statistic"))


def _dispersions(few, cells, made, at, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sums of squared errors of columns, and of all (1 + replicate, column + 1), and rates.

    What the rates of a draw leave of its replicate, less what they leave of the data, is added to
    the mean of the latter: where rates are not sure, they are off by as much in both.
    """
    parts = _sums_of_lines(few._rates, cells, made, at, width)
    rates, own, replicated = np.concatenate([parts, parts.sum(2, keepdims=True)], 2)
    return _beside_own(own, replicated), np.maximum(rates.mean(0), np.finfo(float).tiny)


def _worst_spread(fits, cells, made, at, names) -> dict:
    """Find the line (cell,) whose numbers spread about `fits` least like those of replicates.

    It is found by sums of squares, as dispersions are, and told by root mean squares.
    """
    _, own, replicated = _sums_of_lines(fits, cells, made, at, len(names))
    entries = np.maximum(np.bincount(at, minlength=len(names)), 1)
    # In units of the noise, so that the unit of the numbers changes nothing.
    unit = max(replicated.sum() / (len(made) * len(at)), np.finfo(float).tiny)
    found = worst_of(_beside_own(own, replicated) / unit, names, entries)
    observed, expected = (math.sqrt(found[name] * unit) for name in ("observed", "expected"))
    sd = found["sd"] * unit / (2.0 * max(expected, np.finfo(float).tiny))
    return found | {"observed": observed, "expected": expected, "sd": sd}


def _beside_own(own, replicated) -> np.ndarray:
    """Return sums of the data and of replicates (1 + replicate, line), those of a draw compared."""
    observed = own.mean(0)
    return np.concatenate([observed[None], observed + replicated - own])


def _sums_of_lines(expected, cells, made, at, width: int) -> np.ndarray:
    """Return sums (3, draw, line) of what is expected, and squared errors of data and replicates.

    `expected` has draws (draw, cell) of positions, and `at` (cell,) is the line of each cell.
    """
    i, j, values = cells
    parts = np.zeros((3, len(made), width))
    for some in blocks(len(i), 4 * len(made)):
        means = expected(i[some], j[some])
        number = means.shape[1]
        place = sp.csr_array(
            (np.ones(number), at[some], np.arange(number + 1)), shape=(number, width)
        )
        errors = ((values[some] - means) ** 2, (made[:, some] - means) ** 2)
        parts += np.stack([part @ place for part in (means, *errors)])
    return parts


def _replicated_cells(data, seed: int):
    """Return rows and columns (sorted), and the observed cells of these that are replicated."""
    rng = np.random.default_rng(seed)
    per_row = max(1, (data.num_rows * data.num_columns - data.num_missing) // data.num_rows)
    most = max(2, MOST_REPLICATED // per_row)
    if isinstance(data, Ratings):
        rows = np.arange(data.num_rows)
        if most < len(rows):
            rows = np.sort(rng.choice(len(rows), most, replace=False))
        inside = np.isin(data.rows, rows)
        cells = data.rows[inside], data.columns[inside], np.asarray(data.values[inside], float)
        return rows, np.unique(cells[1]), cells
    rows = np.arange(data.num_rows)
    if most < len(rows):
        rows = np.sort(rng.choice(len(rows), most, replace=False))
    columns = np.arange(data.num_columns)
    found = data.part(rows, columns)
    values = found if isinstance(data, RealMatrix) else np.where(found[1], np.nan, found[0])
    i, j = np.nonzero(~np.isnan(values))
    return rows, columns, (rows[i], j, values[i, j].astype(float))


def _paired(j, values, width: int) -> np.ndarray:
    """Return the columns whose pairs are compared: those that vary most."""
    number = np.maximum(np.bincount(j, minlength=width), 1)
    mean = np.bincount(j, values, minlength=width) / number
    spread = np.bincount(j, values**2, minlength=width) - number * mean**2
    return np.sort(np.argsort(-spread, kind="stable")[:MOST_PAIRED])


def worst_of(sums, labels, units=None) -> dict:
    """Find which of some sums is farthest from those of replicates.

    `sums` (1 + replicate, sum) has the observed ones first. A replicate is measured against the
    others, as the observed are, so that the share of replicates as far off is a probability. What
    is found of a sum is in its unit, (sum,).
    """
    count = len(sums) - 1
    made = sums[1:]
    mean, square = made.mean(0), (made**2).mean(0)

    def distance(one, mean, square, number):
        variance = np.maximum(square - mean**2, 0.0) * number / (number - 1)
        # A sum that never varies in replicates is off where it differs at all, by half a unit.
        least = np.maximum(1e-12 * np.abs(mean), 0.5 / number)
        return np.abs(one - mean) / np.sqrt(variance + least)

    observed = distance(sums[0], mean, square, count)
    without = count - 1
    far = [
        distance(one, (count * mean - one) / without, (count * square - one**2) / without, without)
        .max()
        for one in made
    ]  # fmt: skip
    at = int(observed.argmax())
    unit = 1.0 if units is None else units[at]
    return {
        "p_value": float((1 + np.sum(np.array(far) >= observed[at])) / (1 + count)),
        "worst": str(labels[at]),
        "observed": float(sums[0][at] / unit),
        "expected": float(mean[at] / unit),
        "sd": float(math.sqrt(max(square[at] - mean[at] ** 2, 0.0)) / unit),
    }

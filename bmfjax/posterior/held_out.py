"""Cells that are hidden from a fit, and how well it predicts them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from bmfjax.data import InputError
from bmfjax.data.parts import without_cells
from bmfjax.diagnostics.leave_one_out import percent
from bmfjax.posterior.model_check import (
    BINARY,
    DISCRETE,
    Coverage,
    baseline_of_others,
    calibration,
    calibration_text,
    coverage,
    explained_share,
    has_intervals,
    is_calibrated,
    scatter_of_lines,
)
from bmfjax.posterior.scores import observed_sample, places, places_left_out, predictive

#: Cells that are hidden at most.
MOST_CELLS = 20_000
#: Different values up to which they may be stars, of which a fit needs each, and how often one
#: then occurs at least, on average.
FEW_VALUES, FEW_EACH = 100, 2


class Hidden(NamedTuple):
    """Single cells that are missing in what is fitted."""

    data: Any
    cells: tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, columns, values, (cell,) each

    def score(self, fit) -> np.ndarray:
        """Return the log predictive density (cell,) by a fit to `data`."""
        return predictive(fit, self.cells)


def hidden_cells(
    data, share: float, seed: int, *, keeps_lines: bool = False, keeps_values: bool = False
) -> Hidden:
    """Hide a share of the observed cells, at most `MOST_CELLS`.

    Where it `keeps_lines`, no row or column is left without an observed cell that had one. Where it
    `keeps_values`, each of few values, such as stars, is still there.
    """
    seen = data.num_rows * data.num_columns - data.num_missing
    number = int(np.clip(round(share * seen), 2, MOST_CELLS))
    if number >= seen:
        raise InputError(f"{number} of {seen} cells would be hidden; give more data")
    i, j, values = observed_sample(data, number, seed)
    if keeps_lines:
        for axis in (1, 0):
            at, size = (i, data.num_columns) if axis else (j, data.num_rows)
            most = size - np.asarray(data._missing_counts(axis)) - 1
            held = _first_of_each(at, most, seed)
            i, j, values = i[held], j[held], values[held]
    if keeps_values:
        kept = _last_of_values(data, values)
        i, j, values = (part[~kept] for part in (i, j, values))
    return Hidden(without_cells(data, i, j), (i, j, values))


def _first_of_each(line, most, seed: int) -> np.ndarray:
    """Mark cells (cell,) of a `line` each, in random order so many of a line as are the `most`."""
    order = np.random.default_rng(seed).permutation(len(line))
    order = order[np.argsort(line[order], kind="stable")]
    of_line = line[order]
    place = np.arange(len(line)) - np.searchsorted(of_line, of_line)
    marked = np.empty(len(line), bool)
    marked[order] = place < most[of_line]
    return marked


def _last_of_values(data, hidden) -> np.ndarray:
    """Mark hidden values (cell,) that would not occur among few others any more."""
    every = data.values if hasattr(data, "values") else data.dense()[data.observed()]
    values, counts = np.unique(every, return_counts=True)
    marked = np.zeros(len(hidden), bool)
    if len(values) > FEW_VALUES or len(values) * FEW_EACH > len(every):
        return marked
    for value, count in zip(values, counts, strict=True):
        at = np.flatnonzero(hidden == value)
        marked[at[:1]] = len(at) == count
    return marked


@dataclass(frozen=True, kw_only=True, repr=False)
class HeldOut:
    """How well a fit predicted entries that were hidden from it.

    Attributes
    ----------
    share : float
        Share of the observed entries that were hidden, as asked for.
    num_entries : int
        Entries that were hidden.
    explained, explained_error : float
        Share of the deviance that the model explains of them, and its standard error; of numbers of
        the variance.
    baseline : str
        The model without factors.
    log_score, baseline_score : float
        Mean log predictive densities of an entry, in nats.
    calibration_error, error_by_chance : float
        Mean distance of probabilities and shares of ones, and what it stays below in 95 % of cases
        if the probabilities are true; NaN of other data.
    complete : bool
        Whether the fit without them ended by itself, or had all draws that were asked for.
    coverage, coverage_scattered, coverage_error, coverage_by_chance : float
        Shares of them in their predictive intervals of 90 %, as in
        `bmfjax.posterior.model_check.Coverage`; rows and columns scatter as what was fitted says.
    """

    share: float
    num_entries: int
    explained: float
    explained_error: float
    baseline: str
    log_score: float
    baseline_score: float
    calibration_error: float
    error_by_chance: float
    complete: bool
    coverage: float = math.nan
    coverage_scattered: float = math.nan
    coverage_error: float = math.nan
    coverage_by_chance: float = math.nan

    @property
    def intervals(self) -> Coverage:
        """How many entries lie in their predictive intervals."""
        return Coverage(*(getattr(self, name) for name in Coverage._fields))

    @property
    def is_calibrated(self) -> bool:
        """Whether the calibration error is one that true probabilities have, or slight."""
        return is_calibrated(self.calibration_error, self.error_by_chance)

    @property
    def figures(self) -> dict:
        """What the verdict rests on, by the names of its figures."""
        names = ("explained", "explained_error", "baseline", "calibration_error")
        known = {name: getattr(self, name) for name in names}
        known |= {"calibration_by_chance": self.error_by_chance, "doubtful": 0.0}
        # What an earlier version did not look at is not known, whatever scores left out say.
        return known | dict.fromkeys(Coverage._fields) | self.intervals.figures

    def stored(self) -> dict:
        """Return plain values, None for NaN; `of_stored` reads them."""
        return {n: None if isinstance(v, float) and math.isnan(v) else v
                for n, v in asdict(self).items()}  # fmt: skip

    @classmethod
    def of_stored(cls, stored: Mapping) -> HeldOut:
        """Return what `stored` returned; earlier versions stored no coverage."""
        names = [one.name for one in fields(cls) if one.name in stored]
        return cls(**{n: math.nan if stored[n] is None else stored[n] for n in names})

    def __str__(self) -> str:
        number = f"{self.num_entries:,} entries, {100 * self.share:.3g} %, were hidden from "
        cut = "" if self.complete else " that was cut short"
        share = percent(self.explained, self.explained_error)
        text = f"{number}a first fit{cut}: it explains {share} of what {self.baseline} leave"
        if self.intervals.figures:
            return f"{text}, and {self.intervals}."
        if math.isnan(self.calibration_error):
            return f"{text}."
        state = calibration_text(self.calibration_error, self.error_by_chance)
        return (
            f"{text}, and its probabilities are {state} (error {self.calibration_error:.3f}, by "
            f"chance up to {self.error_by_chance:.3f})."
        )

    def __repr__(self) -> str:
        return str(self)


def held_out(fit, cells, share: float, seed: int = 0) -> HeldOut:
    """Return how well a fit predicts cells (rows, columns, values) that it has not seen."""
    if len(cells[0]) < 2:
        raise InputError(
            "fewer than two entries can be hidden without emptying a row or a column; leave check "
            "(--check) out"
        )
    plain, baseline = baseline_of_others(fit, cells)
    scores = predictive(fit, cells)
    explained, error = explained_share(scores, plain, fit._scored in DISCRETE)
    wrong, by_chance = math.nan, math.nan
    if fit._scored == BINARY:
        is_one = cells[2] > 0.5
        one = np.where(is_one, np.exp(scores), -np.expm1(scores))
        _, wrong, by_chance = calibration(one, is_one, seed)
    intervals = Coverage()
    if has_intervals(fit):
        seen = observed_sample(fit.data, seed=seed)
        scatter = scatter_of_lines(places_left_out(fit, seen), seen[:2], cells[:2])
        intervals = coverage(places(fit, cells), scatter, seed)
    return HeldOut(
        share=float(share), num_entries=len(cells[0]), explained=explained, explained_error=error,
        baseline=baseline,
        log_score=float(scores.mean()), baseline_score=float(plain.mean()),
        calibration_error=wrong, error_by_chance=by_chance,
        complete=bool(fit.figures.complete), **intervals._asdict(),
    )  # fmt: skip

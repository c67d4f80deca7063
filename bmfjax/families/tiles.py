"""Fits whose factors are rounded to Boolean ones: the Boolean model and the relaxed one.

Usage and basis of a factor, rounded, span its tile. The most probable Boolean factors are searched
for from the means of the draws; they give the fit its order, its errors and its table.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from bmfjax import verdict
from bmfjax.data import BinaryMatrix
from bmfjax.data.anchors import Anchors
from bmfjax.diagnostics import (
    Alignment,
    Binarized,
    binarize,
    expected_loss,
    most_probable_factors,
    threshold,
)
from bmfjax.families.base import (
    Chains,
    Family,
    KeptDraws,
    Ordered,
    Problem,
    after_warmup,
    is_exact,
    make_fit,
    searches,
    what_was_tried,
)
from bmfjax.infer import ChainRun
from bmfjax.posterior import products, trust
from bmfjax.posterior.selection import MAX_ENTRIES
from bmfjax.report import words
from bmfjax.report.checks import agreement as agreement_section
from bmfjax.report.checks import modes, spread
from bmfjax.report.factors import UNIT, factors, tile_card
from bmfjax.report.overview import matrix, of_product
from bmfjax.report.plots import traces
from bmfjax.report.summaries import summaries
from bmfjax.result import Fit, ModesMixin, OnesMixin, TilesMixin

#: Where means of factors are cut, those first that are taken if others are as good.
CUTS = (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.1, 0.9)

TILES = (
    functools.partial(matrix, shown="reconstruction", moments=of_product),
    functools.partial(
        factors,
        note="A factor is a set of rows and a set of columns in which they tend to have ones. The "
        "bar is the posterior mean of a column's membership, followed by its standard deviation. "
        "Blue columns, listed first, belong to the factor once it is rounded to yes or no; grey "
        "ones do not.",
        card=tile_card,
        shades=UNIT,
    ),
)
CHAINS_OF_TILES = (
    traces,
    summaries,
    functools.partial(
        agreement_section,
        first="Reconstructed entries do not depend on the order of the factors and are what counts "
        "first.",
    ),
    modes,
    spread,
)
WORDS_OF_TILES = (
    *words.IN_UNIT,
    words.TILE,
    words.REAL_TILE,
    words.HOLDS,
    words.EMPTY,
    words.FALSE_DISCOVERY_RATE,
    words.RECONSTRUCTION,
    words.BOOLEAN_PRODUCT,
    words.PROBABILITY_OF_HALF,
)


@dataclass(frozen=True, repr=False)
class TileFit(TilesMixin, ModesMixin, OnesMixin, Fit):
    """A fit whose factors are rounded to Boolean ones."""

    _is_signed = False

    @classmethod
    def _best_factors(
        cls, data: BinaryMatrix, usage_draws, basis_draws, anchors: Anchors | None, others: Mapping
    ) -> tuple[Binarized, np.ndarray]:
        """Return the Boolean factors of aligned draws, and the probability of every entry.

        `others` are draws of other sites, by name.
        """
        rates = cls._num_rates(others)
        return boolean_factors(data, usage_draws, basis_draws, anchors, rates)

    @staticmethod
    def _num_rates(others: Mapping) -> int:
        """Return how many rates of flips the Boolean factors that are shown have."""
        return 2

    @classmethod
    def rounded(cls, usage, basis) -> tuple[np.ndarray, np.ndarray]:
        """Return the Boolean factors nearest to means of draws."""
        return usage >= 0.5, basis >= 0.5

    @property
    def _other_model(self):
        return (
            "fit with model='features' (--model features), which has effects of rows and columns, "
            "and weights of every column"
        )

    @property
    def _empty(self):
        return ~(self._usage_binary.any(0) & self._basis_binary.any(0))

    def _judged_alone(self, what, agreeing):
        draws = self.usage_draws, self.basis_draws
        # The majority of the draws, for a matrix too large to be formed.
        binary = Binarized(*self.rounded(*(f.mean((0, 1)) for f in draws)), float("nan"))
        if self._is_small:
            binary = self._best_factors(self.data, *draws, self.anchors, self.other_draws)[0]
        figures = {
            "errors": self.data.count_errors(binary.usage, binary.basis),
            "expected_errors": binary.expected_loss,
        }
        found = dataclasses.replace(self, binary=binary, verdict=self.verdict.changed(**figures))
        return super(TileFit, found)._judged_alone(what, agreeing)

    def _table(self) -> list[dict]:
        u, v = self._usage_binary, self._basis_binary
        ones, observed = self.data.tile_counts(u, v)
        means = self._tile_means()
        return [
            {
                "factor": k + 1,
                "rows": int(u[:, k].sum()),
                "columns": int(v[:, k].sum()),
                "density": float(ones[k] / observed[k]) if observed[k] else np.nan,
                "p_one": float(means[k]),
                "agreement": float(self.agreement[k]),
                "sd": float(np.concatenate([self._usage_sd[:, k], self._basis_sd[:, k]]).mean()),
            }
            for k in range(self.rank)
        ]

    def _tile_means(self) -> np.ndarray:
        """Return the mean probability of every tile: from the whole matrix, or tile by tile."""
        u, v = self._usage_binary, self._basis_binary
        size = u.sum(0, dtype=float) * v.sum(0, dtype=float)
        if self._is_small:
            total = np.sum(self._whole_probability @ v.astype(float), axis=0, where=u)
            return total / np.where(size > 0, size, np.nan)
        total = np.zeros(self.rank)
        for k in np.flatnonzero(size):
            rows, columns = np.flatnonzero(u[:, k]), np.flatnonzero(v[:, k])
            step = max(1, MAX_ENTRIES // len(columns))
            for start in range(0, len(rows), step):
                total[k] += self._probability(rows[start : start + step], columns).sum()
        return total / np.where(size > 0, size, np.nan)


class TileFamily(Family):
    """Models whose factors are rounded to Boolean ones."""

    #: The class of its fits.
    fits: type[TileFit]

    def majority(self, problem: Problem, found: Ordered, seen: KeptDraws) -> Binarized | None:
        """Return the Boolean factors of a matrix that is too large to be formed; else None."""
        raise NotImplementedError

    def origin(self, problem, chains, run, found=None):
        # Chains that began apart, and jumped.
        return {"found_by": run.num_starts or None} | searches(problem, run, found)

    def when_rounded(self, problem, found, seen):
        binary, draws = self.majority(problem, found, seen), found.aligned[:2]
        if binary is None:
            binary, _ = self.fits._best_factors(problem.data, *draws, problem.anchors, seen.sites)
        _, there = trust.presence_in(draws, binary.usage, binary.basis)
        return {
            "empty": tile_sizes(binary) == 0, "present": there.present,
            "steady": trust.steady_in(draws),
        }  # fmt: skip


def tile_sizes(binary: Binarized) -> np.ndarray:
    """Return the number of cells of every tile, (rank,)."""
    return binary.usage.sum(0) * binary.basis.sum(0)


def boolean_factors(
    data: BinaryMatrix, usage_draws, basis_draws, anchors: Anchors | None = None, num_rates: int = 2
) -> tuple[Binarized, np.ndarray]:
    """Return the most probable Boolean factors, and the probability of every entry.

    The search starts at the means of every chain and of all, cut at one half and at the
    threshold that fits the data best, and at the factors with the lowest expected loss. Known
    factors keep their basis. Flips have `num_rates` rates.
    """
    ones, observed = np.nan_to_num(data.dense()) > 0.5, data.observed()
    axes = [(0, 1)] if usage_draws.shape[0] == 1 else [1, (0, 1)]
    starts = []
    for axis in axes:
        usage = usage_draws.mean(axis, dtype=float).reshape(-1, *usage_draws.shape[2:])
        basis = basis_draws.mean(axis, dtype=float).reshape(-1, *basis_draws.shape[2:])
        for u, v in zip(usage, basis, strict=True):
            best = threshold(u, v, ones, observed).tau
            starts += [(u > tau, v > tau) for tau in {0.5, best}]
    probability = products.exceedance(usage_draws, basis_draws, level=0.5)
    means = (usage_draws.mean((0, 1), dtype=float), basis_draws.mean((0, 1), dtype=float))
    starts.append(binarize(*means, probability)[:2])
    known = None if anchors is None else anchors.values
    found = most_probable_factors(starts, ones, observed, known=known, num_rates=num_rates)
    loss = expected_loss(probability, found.usage, found.basis)
    return Binarized(found.usage, found.basis, loss), probability


def cut_means(data: BinaryMatrix, usage, basis) -> Binarized:
    """Return means of draws, (lines, rank) each, cut where their Boolean product errs least.

    For a matrix that is too large to be formed: errors are counted on words, some rows at a time.
    """
    errors = {tau: data.count_errors(usage > tau, basis > tau) for tau in CUTS}
    tau = min(CUTS, key=errors.get)
    return Binarized(usage > tau, basis > tau, float("nan"))


def tile_fit(
    kind: type[TileFit],
    problem: Problem,
    chains: Chains,
    run: ChainRun,
    aligned: Alignment,
    agreement: np.ndarray,
    trace: Mapping,
    draws: Mapping,
    *,
    binary: Binarized | None = None,
    residual_floor: float = 0.0,
    figures: Mapping = MappingProxyType({}),
) -> TileFit:
    """Return the fit with its factors ordered by the size of their tiles, after known ones.

    `binary` holds Boolean factors in the order of `aligned` where they are known already; `draws`
    are of other sites, those with a number a factor in that order as well; `figures` are further
    figures of the fit.
    """
    probability = None
    if binary is None:
        binary, probability = kind._best_factors(
            problem.data, aligned.usage, aligned.basis, problem.anchors, draws
        )
    size = tile_sizes(binary)
    order = known_first(
        np.argsort(-size[problem.num_anchors :], kind="stable"), problem.num_anchors
    )
    usage, basis = (reordered(f, order) for f in (aligned.usage, aligned.basis))
    agreement = agreement[:, order]
    # Counted on words: observed entries that the Boolean product gets wrong.
    errors = problem.data.count_errors(binary.usage, binary.basis)

    in_order = Ordered({}, agreement, aligned._replace(usage=usage, basis=basis))

    def judge(fit):
        judged = verdict.of_chains(
            fit._mixing, fit._num_chains, errors, agreement, after_warmup(run, trace),
            exact=is_exact(problem, chains), empty=size[order] == 0, present=fit._present,
            steady=fit._steady,
            shared_starts=chains.arguments.get("shared_starts", False),
            **problem.family.origin(problem, chains, run, in_order),
            given_start=problem.init is not None,
            windows=chains.arguments.get("windows", {}),
            residual_floor=residual_floor, tried=what_was_tried(problem, chains, run),
        )  # fmt: skip
        return judged.changed(expected_errors=binary.expected_loss, **figures)

    fit = make_fit(
        kind, problem, chains, run,
        draws={n: kind._in_order(n, v, order) for n, v in draws.items()}
        | {"usage": usage, "basis": basis},
        trace=trace,
        agreement=agreement[0],
        judge=judge,
        binary=binary._replace(usage=binary.usage[:, order], basis=binary.basis[:, order]),
    )  # fmt: skip
    if probability is not None and fit._is_small:
        # Computed before the factors were put in order: the same for bits, and for real factors up
        # to rounding, where a product is at one half.
        vars(fit)["_whole_probability"] = probability
    return fit


def known_first(order, number: int) -> np.ndarray:
    """Return an order (..., rank) of all factors from one of those after the first `number`."""
    known = np.broadcast_to(np.arange(number), (*np.shape(order)[:-1], number))
    return np.concatenate([known, number + np.asarray(order, int)], -1)


def reordered(draws, order):
    """Return draws (chain, draw, lines, rank), packed or not, with the factors permuted."""
    return draws.reordered(order) if hasattr(draws, "reordered") else draws[..., order]

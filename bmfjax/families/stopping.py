"""When a run has drawn enough: looks at its draws, at fixed numbers of them.

At each look the figures of the verdict are computed with none, a quarter and half of the draws
counted as warm-up: those of scalars first, then of a few entries, and where these suffice, of the
draws that a fit would have, with their factors in order. The run is done where they suffice, by the
rule of the verdict. Where they do not, draws in which chains still rose or fell count as warm-up:
R-hat does not tell, for chains that rise together overlap. Looks depend on the draws alone, and so
does where the run ends.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from bmfjax import verdict
from bmfjax.diagnostics.convergence import split_rhat
from bmfjax.families.base import Chains, KeptDraws, Ordered, Problem
from bmfjax.infer import ChainRun
from bmfjax.specs.base import AUTO
from bmfjax.specs.run import LEAST_KEPT

#: Shares of the draws that may count as warm-up.
SHARES = (0.0, 0.25, 0.5)
#: R-hat of the halves of a chain from which on it rises or falls, and does not only mix slowly.
TRENDING = 1.2
#: Entries of the product that are looked at before the factors are put in order.
FEW_ENTRIES = 200


class Look(NamedTuple):
    """What the draws of a run look like."""

    discarded: int  # kept draws of a chain that should count as warm-up
    figures: verdict.Figures
    done: bool  # whether the draws after them suffice


class Watch:
    """The looks at a run, each of which is made once."""

    def __init__(self, problem: Problem, chains: Chains, run: ChainRun):
        self._problem, self._chains, self._run = problem, chains, run
        self.steps = tuple(chains.num_warmup + number for number in chains.looks)
        self.last: Look | None = None
        self._after = -1

    @property
    def is_done(self) -> bool:
        """Whether this is a step to look at the draws, and they suffice."""
        return self._run.steps_done in self.steps and self.look().done

    @property
    def is_stuck(self) -> bool:
        """Whether this is a step to look at the draws, and another stage should follow."""
        run, chains = self._run, self._chains
        draws, rhat = chains.patience
        is_look = run.steps_done in self.steps and run.steps_done - run.num_warmup >= draws
        if chains.next_stage is None or not is_look:
            return False
        look = self.look()
        return look.figures.rhat > rhat and not look.done

    @property
    def is_full(self) -> bool:
        """Whether this is a step to look at the draws, and more factors should be allowed."""
        run, problem = self._run, self._problem
        if not problem.grows or run.steps_done not in self.steps:
            return False
        if not (self.look().done or run.steps_done - run.num_warmup >= self._chains.patience[0]):
            return False
        drawn = run.trace()["rank"][:, run.num_warmup :]
        late = drawn[:, drawn.shape[1] // 2 :]
        return bool(np.mean(late == problem.rank) >= verdict.AT_BOUND)

    def look(self) -> Look:
        """Look at the draws as they are now, of which there must be enough for a result."""
        if self._after != self._run.steps_done:
            self.last = look(self._problem, self._chains, self._run)
            self._after = self._run.steps_done
        return self.last

    @property
    def waits_for(self) -> str:
        """What the last look found too little, in a few words; until then when the first comes."""
        if self.last is None:
            return f"chains are compared at {self._chains.looks[0]:,}"
        figures, problem = self.last.figures, self._problem
        parts = verdict.Verdict(figures.of_draws).parts
        # More draws do not compare what one chain found.
        asked = parts[:1] if problem.until == "predictions" or figures.is_alone else parts
        if figures.num_chains == 1:
            so_far, asked = "one chain is compared with none", ()
        else:
            so_far = "predictions hold so far"
        missing = [part.said for part in asked if not part.holds]
        if missing:
            return missing[0]
        # What holds may be too far from what ends a run; factors are looked at last.
        return f"{so_far}; {verdict.why_more_draws(figures, problem.until, problem.mc_error)}"


def look(problem: Problem, chains: Chains, run: ChainRun) -> Look:
    """Judge the draws of a run, and say how many of the first should count as warm-up."""
    drawn, trace = run.draws(), run.trace()
    every, family = run.thinning("usage"), problem.family

    def after(discarded: int) -> KeptDraws:
        kept = {name: values[:, discarded:] for name, values in drawn.items()}
        first = run.num_warmup + discarded * every
        return KeptDraws(kept, {name: values[:, first:] for name, values in trace.items()}, every)

    number = drawn["usage"].shape[1]
    # A warm-up that was given is what was asked for.
    shares = SHARES if problem.num_warmup == AUTO else SHARES[:1]
    candidates = [d for s in shares if (d := int(s * number)) == 0 or number - d >= LEAST_KEPT]
    # Scalars first: they cost little, and most looks end there.
    judged = functools.partial(_judged, problem, chains, run)
    early = {d: judged(verdict.UNSEEN, after(d)) for d in dict.fromkeys(candidates)}
    suffices = functools.partial(verdict.suffices, until=problem.until, mc_error=problem.mc_error)

    @functools.cache
    def figures(discarded: int) -> verdict.Figures:
        """Return those of few entries where these do not suffice."""
        seen = after(discarded)
        few = judged(family.mixing(problem, seen.sites, FEW_ENTRIES), seen)
        return _by_all(problem, chains, run, seen) if suffices(few) else few

    for discarded in [d for d, found in early.items() if suffices(found)]:
        if suffices(figures(discarded)):
            return Look(discarded, figures(discarded), True)
    discarded = _settled(trace[chains.objective][:, run.num_warmup :], list(early), every)
    return Look(discarded, figures(discarded), False)


def _settled(objective, candidates: list[int], every: int) -> int:
    """Return after how many draws each chain (chain, step) by itself is stationary, or the most."""
    for discarded in candidates:
        chains = objective[:, discarded * every :]
        if not np.median([split_rhat(chain[None]) for chain in chains]) > TRENDING:
            return discarded
    return candidates[-1]


def _judged(
    problem: Problem, chains: Chains, run: ChainRun, entries: verdict.Mixing, seen: KeptDraws,
    found: Ordered | None = None, **rounded,
) -> verdict.Figures:  # fmt: skip
    """Return figures of draws, where they are `found` in one order, and factors `rounded`."""
    family = problem.family
    origin = family.origin(problem, chains, run, found)
    agreement = None if found is None else found.agreement
    return family.judged(problem, chains, entries, seen, agreement, **origin, **rounded).figures


def _by_all(problem: Problem, chains: Chains, run: ChainRun, seen: KeptDraws) -> verdict.Figures:
    """Return the figures that the verdict would have of these draws, but of entries left out."""
    family, found = problem.family, problem.family.ordered(problem, chains, seen)
    entries = family.mixing(problem, found.sites, verdict.NUM_ENTRIES)
    figures = _judged(problem, chains, run, entries, seen, found)
    enough = verdict.suffices(figures, until=problem.until, mc_error=problem.mc_error)
    if not (enough or verdict.factors_differ(figures)):
        return figures
    # Only now, for it takes a search: chains may agree on the mean of a factor that some lack.
    rounded = family.when_rounded(problem, found, seen)
    return _judged(problem, chains, run, entries, seen, found, **rounded)

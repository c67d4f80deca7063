"""The starts of chains of binary features: an annealed round, and features that are tried anew.

Which features a chain has found after its first sweeps it keeps for long where the matrix has more
than a few hundred rows, and chains that begin at random end in modes of which most have far less of
the posterior than others. So each chain is annealed for a round, and then goes on from the best
that its own rounds have found, with one feature put where it leaves most unexplained
(`bmfjax.kernels.features.seeds`): others stay, and what no birth would find is found. States are
compared by the mean of their log mass over the last sweeps of a round
(`bmfjax.kernels.features.gibbs.FeatureInfo`): the log joint and the entropies of what is drawn
given the rest, so that a narrow peak does not win over a wide one. Rounds end early where all
chains are about equally good.

A chain whose best is not far below that of all starts there: it has found its features by itself,
and R-hat speaks of such modes. The others start at the best of all, and R-hat does not speak of the
modes that they gave up: of each search its own end is kept, to be compared with. Last, where the
warm-up has no given length, all go on while the best of them rises, and those that fall behind
begin there again: a large matrix affords too few rounds, and chains that still rise when draws are
kept are averaged over where the posterior has no mass.

How far is far depends on the number of features. Where it is given chains have no room for one
more, and modes differ by which features have a place: means of the log mass are compared, and the
best is taken. Where it is found all have room. Modes are codings of the same structure, and the log
mass of a chain moves by hundreds of nats as features come and go. Then chains climb apart, and only
those go to the best at last whose log mass does not overlap with its own: the mean of chains that
stay apart mostly predicts better than each of them (Yao, Vehtari, Gelman 2022, "Stacking for
non-mixing Bayesian computations", JMLR 23).
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from bmfjax.clock import running_clock
from bmfjax.infer.run import ChainRun
from bmfjax.progress import say

#: Sweeps of the first round, the least and the most, and what it may cost at most: entries times
#: features times sweeps of all chains. Where two such rounds do not cost as much others follow, of
#: so many sweeps, up to twice the cost.
SWEEPS, MOST_WORK, AGAIN = (40, 100), 2**29, 40
#: Most rounds, and the least before they end early.
ROUNDS, LEAST = 40, 20
#: Share of the first round that is annealed; share of the time that is left after compilation
#: which the rounds may take.
ANNEALED, TIME = 0.6, 0.35
#: Nats of log mass that a chain may lack to the best, beside two standard errors of their
#: difference: its mode has a share of the posterior still. The error is that of means of batches.
NEAR, BATCHES = 10.0, 4
#: Sweeps between two looks at chains that rise, the least and the most; and the most looks.
SETTLE, LOOKS = (20, 200), 30


class Search(NamedTuple):
    """Rounds, and the sweeps of the first, of which some are annealed from a power."""

    rounds: int
    sweeps: int
    num_anneal: int
    lowest: float
    #: Whether chains climb apart, and stay where their log mass overlaps with that of the best.
    apart: bool = False

    def spread(self, mass) -> float:
        """Return by how much the mean log mass of a chain may be off; `mass` is (chain, sweep)."""
        return math.sqrt(np.var(mass, 1).mean()) if self.apart else error_of_mean(mass)

    def within(self, steps: int) -> Search:
        """Return what fits into so many steps: fewer rounds, or a shorter one."""
        sweeps = min(max(self.sweeps, self.num_anneal + self.sweeps // 4), steps)
        most = 1 + (steps - sweeps) // AGAIN if sweeps else 0
        return self._replace(sweeps=sweeps, rounds=min(self.rounds, most))

    @property
    def steps(self) -> int:
        """The sweeps of all rounds."""
        return steps_of(self.rounds, self.sweeps)


def steps_of(rounds: int, sweeps: int) -> int:
    """Return the sweeps of so many rounds, of which the first has these."""
    return sweeps + (rounds - 1) * AGAIN if rounds else 0


class Starts(NamedTuple):
    """Where chains start, and what each search had found by itself; all are snapshots."""

    snapshot: Any
    origin: np.ndarray  # (chain,) int: the search at whose end each chain starts
    ends: Any  # of the searches, before any chain took over the end of another

    @property
    def number(self) -> int:
        """How many of the starts differ."""
        return len(set(self.origin.tolist()))


def planned(entries: int, rank: int, num_chains: int) -> tuple[int, int]:
    """Return rounds, and sweeps of the first, that a matrix affords."""
    most = MOST_WORK // (entries * rank * num_chains)
    first = int(np.clip(most, *SWEEPS))
    if most < 2 * first:
        return 1, first
    return min(1 + (2 * most - first) // AGAIN, ROUNDS), first


def best_starts(run: ChainRun, search: Search, *, again=None, settle: int = 0) -> Starts:
    """Return where chains start, and the own ends of their searches.

    `run` is of `bmfjax.kernels.tempering.annealed`, at its start, and traces `log_mass`. Where time
    is up before the first round ends all chains go on, without annealing, from where they are.
    ``again(snapshot, number)`` returns the snapshot from which later rounds start; without it
    there is one. With `settle` they go on after the rounds while the best of them rises, and are
    compared every so many sweeps.
    """
    is_late, best, highest = _deadline(), None, np.full(run.num_chains, -np.inf)
    for number in range(search.rounds if again else min(search.rounds, 1)):
        say("searching starts", f"round {number + 1} of at most {search.rounds}")
        sweeps, cold = search.sweeps, search.sweeps - search.num_anneal
        if number:
            sweeps, cold = AGAIN, AGAIN // 2
            run.restore(again(_at(best, search.num_anneal), number), 0, {})
        mass = run.rehearse(sweeps, number, is_late)["log_mass"]
        if mass.shape[1] < sweeps:
            break
        mass, here = mass[:, -max(cold, 1) :], run.snapshot()
        error, spread, mass = error_of_mean(mass), search.spread(mass), mass.mean(1)
        best = here if best is None else _chosen(mass > highest, here, best)
        highest = np.maximum(mass, highest)
        if number + 1 >= LEAST and near_best(highest, error).all():
            break
    if best is None:
        here = run.snapshot()
        return Starts(_at(here, search.num_anneal), np.arange(run.num_chains), here)
    best = _at(best, search.num_anneal)
    if settle:
        # The highest of many means is that of luck, too; here all are compared anew.
        return _settled(run, search, best, settle)
    source = _sources(highest, spread)
    return Starts(_taken(best, source), source, best)


def affordable(
    entries: int, rank: int, num_chains: int, *, part: int = 8, between: tuple[int, int] = SETTLE
) -> int:
    """Return the sweeps that cost a part of the search: more where they cost little.

    By default those after which chains that rise are compared.
    """
    return int(np.clip(MOST_WORK // (part * entries * rank * num_chains), *between))


def _settled(run: ChainRun, search: Search, best, sweeps: int) -> Starts:
    """Let chains go on while the best rises.

    A search ends where its chain first falls behind, else where all stop.
    """
    is_late, highest, origin = _deadline(), -np.inf, np.arange(run.num_chains)
    ends = best
    for look in range(LOOKS):
        say("searching starts", "chains go on while the best of them rises")
        run.restore(best, 0, {})
        mass = run.rehearse(sweeps, search.rounds + look, is_late)["log_mass"]
        mass = mass[:, mass.shape[1] // 2 :]
        rises = mass.mean(1).max() >= highest + NEAR and look + 1 < LOOKS and not is_late()
        source = np.arange(run.num_chains)
        if not search.apart or not rises:
            source = _sources(mass.mean(1), search.spread(mass))
        here, alone = run.snapshot(), origin == np.arange(len(origin))
        ends = _chosen(alone, here, ends)
        best, origin = _taken(here, source), origin[source]
        if not rises:
            break
        highest = mass.mean(1).max()
    return Starts(best, origin, ends)


def error_of_mean(mass) -> float:
    """Return the standard error of a chain's mean, from the means of batches of sweeps."""
    batches = [batch.mean(1) for batch in np.array_split(mass, BATCHES, 1) if batch.shape[1]]
    if len(batches) < BATCHES:
        return 0.0
    return float(np.median(np.std(batches, 0, ddof=1))) / math.sqrt(BATCHES)


def _sources(mass, spread: float):
    """Return where each chain goes on: where it is, or at the best where that is far above."""
    return np.where(near_best(mass, spread), np.arange(len(mass)), mass.argmax())


def near_best(mass, spread: float) -> np.ndarray:
    """Tell of each chain whether its mean mass is that of the best, or hardly less.

    Beside ten nats it may lack two standard deviations of a difference of two that spread so.
    """
    return mass >= mass.max() - NEAR - 2.0 * math.sqrt(2.0) * spread


def _taken(snapshot, source):
    """Return a snapshot with these of its chains."""
    return jax.tree.map(lambda leaf: leaf[source], snapshot)


def _deadline():
    """Return the function that tells whether the rounds are to end.

    It is first asked after a step, which holds the compilation.
    """
    clock, end = running_clock(), None

    def is_late() -> bool:
        nonlocal end
        now = time.monotonic()
        end = now + TIME * clock.left() if end is None else end
        return now >= end

    return is_late


def _at(snapshot, step: int):
    """Return a snapshot with chains at this step of the annealing."""
    state, reducers = snapshot
    return state._replace(step=np.full_like(state.step, step)), reducers


def _chosen(which, first, second):
    """Return the chains of a snapshot, and the others of a second."""

    def of(a, b):
        return np.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(of, first, second)

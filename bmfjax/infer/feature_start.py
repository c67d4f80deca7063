"""The starts of chains of binary features: the best of annealed rounds, apart where they are close.

Which features a chain has found after its first sweeps it keeps for long where the matrix has more
than a few hundred rows, and chains that begin at random end in modes of which most have far less of
the posterior than others. So each chain is annealed for a round, and again, less far, from the best
that its own rounds have found: most features stay, and poor ones are found anew. States are
compared by the mean of their log mass over the last sweeps of a round
(`bmfjax.kernels.features.gibbs.FeatureInfo`): the log joint and the entropies of what is drawn
given the rest, so that a narrow peak does not win over a wide one.

A chain whose best is not far below that of all starts there: it has found its features by itself,
and R-hat speaks of such modes. The others start at the best of all, and R-hat does not speak of the
modes that they gave up. Last, where the warm-up has no given length, all go on while the best of
them rises, and those that fall behind begin there again: a large matrix affords too few rounds, and
chains that still rise when draws are kept are averaged over where the posterior has no mass.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import jax
import numpy as np

from bmfjax.clock import running_clock
from bmfjax.infer.run import ChainRun
from bmfjax.progress import say

#: Most rounds, the sweeps of one, the least and the most, and what all may cost: entries times
#: features times sweeps of all chains.
ROUNDS, SWEEPS, MOST_WORK = 10, (40, 100), 2**29
#: Share of a round that is annealed; power of the likelihood to which later rounds go back; share
#: of the time that is left after compilation which the rounds may take.
ANNEALED, WARM, TIME = 0.6, 0.55, 0.25
#: Nats of log mass that a chain may lack to the best, beside two standard errors of their
#: difference: its mode has a share of the posterior still. The error is that of means of batches.
NEAR, BATCHES = 10.0, 4
#: Sweeps between two looks at chains that rise, and the most looks.
SETTLE, LOOKS = 20, 30


class Search(NamedTuple):
    """Rounds, and the sweeps of each, of which the first are annealed from a power."""

    rounds: int
    sweeps: int
    num_anneal: int
    lowest: float

    def within(self, steps: int) -> Search:
        """Return what fits into so many steps: fewer rounds, or a shorter one."""
        sweeps = min(max(self.sweeps, self.num_anneal + self.sweeps // 4), steps)
        return self._replace(sweeps=sweeps, rounds=min(self.rounds, steps // max(sweeps, 1)))

    @property
    def step(self) -> int:
        """The annealed step with the power to which later rounds go back."""
        if self.lowest >= WARM:
            return 0
        return round(self.num_anneal * (1.0 - math.log(WARM) / math.log(self.lowest)))


def planned(entries: int, rank: int, num_chains: int) -> tuple[int, int]:
    """Return rounds, and sweeps of each, that a matrix affords."""
    sweeps = MOST_WORK // (entries * rank * num_chains)
    each = int(np.clip(sweeps, *SWEEPS))
    return int(np.clip(sweeps // each, 1, ROUNDS)), each


def best_starts(run: ChainRun, search: Search, *, settles: bool = False):
    """Return the snapshot at which chains start, and how many of them differ.

    `run` is of `bmfjax.kernels.tempering.annealed`, at its start, and traces `log_mass`. Where time
    is up before the first round ends all chains go on, without annealing, from where they are. With
    `settles` they go on after the rounds while the best of them rises.
    """
    is_late, best, highest = _deadline(), None, np.full(run.num_chains, -np.inf)
    for number in range(search.rounds):
        say("searching starts", f"round {number + 1} of {search.rounds}")
        if number:
            run.restore(_at(best, search.step), 0, {})
        mass = run.rehearse(search.sweeps, number, is_late)["log_mass"]
        if mass.shape[1] < search.sweeps:
            break
        mass, here = mass[:, -max(search.sweeps - search.num_anneal, 1) :], run.snapshot()
        error, mass = error_of_mean(mass), mass.mean(1)
        best = here if best is None else _chosen(mass > highest, here, best)
        highest = np.maximum(mass, highest)
    if best is None:
        return _at(run.snapshot(), search.num_anneal), run.num_chains
    source = _sources(highest, error)
    best = _taken(best, source)
    if settles:
        best, source = _settled(run, search.rounds, best, source)
    return best, len(set(source.tolist()))


def _settled(run: ChainRun, number: int, best, origin):
    """Let chains go on while the best rises; return where they are, and where each came from."""
    is_late, highest = _deadline(), -np.inf
    for look in range(LOOKS):
        say("searching starts", "chains go on while the best of them rises")
        run.restore(best, 0, {})
        mass = run.rehearse(SETTLE, number + look, is_late)["log_mass"]
        mass = mass[:, mass.shape[1] // 2 :]
        source = _sources(mass.mean(1), error_of_mean(mass))
        best, origin = _taken(run.snapshot(), source), origin[source]
        if is_late() or mass.mean(1).max() < highest + NEAR:
            break
        highest = mass.mean(1).max()
    return best, origin


def error_of_mean(mass) -> float:
    """Return the standard error of a chain's mean, from the means of batches of sweeps."""
    batches = [batch.mean(1) for batch in np.array_split(mass, BATCHES, 1) if batch.shape[1]]
    if len(batches) < BATCHES:
        return 0.0
    return float(np.median(np.std(batches, 0, ddof=1))) / math.sqrt(BATCHES)


def _sources(mass, error: float):
    """Return where each chain goes on: where it is, or at the best where that is far above."""
    return np.where(near_best(mass, error), np.arange(len(mass)), mass.argmax())


def near_best(mass, error: float) -> np.ndarray:
    """Tell of each chain whether its mean mass is that of the best, or hardly less."""
    return mass >= mass.max() - NEAR - 2.0 * math.sqrt(2.0) * error


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

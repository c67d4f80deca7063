"""The start of chains of binary features: the best of annealed rounds that all chains share.

Which features a chain has found after its first sweeps it keeps for long where the matrix has more
than a few hundred rows, and chains that begin at random end in modes of which most have far less of
the posterior than others. So chains are annealed for a round, and compared by the mean of their log
mass over its last sweeps (`bmfjax.kernels.features.gibbs.FeatureInfo`): the log joint and the
entropies of memberships and row effects, so that a narrow peak does not win over a wide one. From
the best that any round has found all of them are warmed up again, less far, and cooled for the next
round: most features stay, and poor ones are found anew. Where the best of all is, the chains start.
R-hat does not speak of modes that were given up here.
"""

from __future__ import annotations

import math
import operator
import time
from typing import NamedTuple

import jax
import numpy as np

from bmfjax.clock import running_clock
from bmfjax.infer.run import ChainRun

#: Most rounds, the sweeps of one, the least and the most, and what all may cost: entries times
#: features times sweeps of all chains.
ROUNDS, SWEEPS, MOST_WORK = 10, (40, 100), 2**29
#: Share of a round that is annealed; power of the likelihood to which later rounds go back; share
#: of the time that is left which the rounds may take.
ANNEALED, WARM, TIME = 0.6, 0.55, 0.25


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


def best_start(run: ChainRun, search: Search):
    """Return the snapshot of the best chain, without an axis of chains.

    `run` is of `bmfjax.kernels.tempering.annealed`, at its start, and traces `log_mass`.
    """
    began, limit = time.monotonic(), TIME * running_clock().left()
    best, highest = None, -np.inf
    for number in range(search.rounds):
        if number:
            state, reducers = best
            run.begin_at((state._replace(step=np.int32(search.step)), reducers))
        late_sweeps = max(search.sweeps - search.num_anneal, 1)
        mass = run.rehearse(search.sweeps, number)["log_mass"][:, -late_sweeps:].mean(1)
        if mass.max() > highest:
            highest, chain = mass.max(), int(np.argmax(mass))
            best = jax.tree.map(operator.itemgetter(chain), run.snapshot())
        (late,) = run.together(time.monotonic() - began > limit)
        if late:
            break
    return best

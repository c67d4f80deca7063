"""Runs of sequential Monte Carlo as the chains of a fit: a run is a chain, a particle a draw."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from bmfjax.families.base import Chains, Problem
from bmfjax.infer import ChainRun
from bmfjax.posterior.evidence import combined_evidence

#: Particles of a run that are kept: bits are small.
MAX_KEPT = 512
#: Moves of all chains that a run may take: far more than any has been seen to need.
MOST_MOVES = 100_000
#: Keys of the particles' last bits are drawn from this stream.
PARTICLE_STREAM = 2**31 - 2


def chains_of_particles(problem: Problem, bound: Any, settings: Mapping) -> Chains:
    """Return the runs; `bound` is a sampler with its data, such as `OrMachineSMC` binds."""
    return Chains(
        bound.algorithm,
        bound.data,
        problem.settings(init="the prior", **settings),
        trace=("log_evidence", "variance", "inverse_temperature", "finished"),
        num_samples=MOST_MOVES,
        objective="log_evidence",
        finished=_finished,
        enough=_finished,
        reached=_reached,
        sooner="fewer particles (num_particles)",
        limited=False,
        independent=False,
        phase="tempering",
        arguments={"particles": bound.particles},
    )


def particles(problem: Problem, chains: Chains, run: ChainRun) -> tuple[dict, dict, dict]:
    """Return kept particles {site: (run, draw, ...)}, traces of all particles, and figures."""
    key = jax.random.fold_in(problem.key, PARTICLE_STREAM)
    drawn = chains.arguments["particles"](key, run.state)
    trace = {n: drawn.pop(n) for n in problem.kernel.trace}
    total = trace["log_joint"].shape[1]
    every = math.ceil(total / MAX_KEPT)
    kept = {n: values[:, every - 1 :: every] for n, values in drawn.items()}
    path = run.trace()
    found = combined_evidence(path["log_evidence"][:, -1], np.sqrt(path["variance"][:, -1]))
    figures = found.scalars() | {
        "num_warmup": 0,
        "num_draws": total,
        "thinning": every,
        "complete": True,
        "temperatures": max(len(np.unique(betas)) for betas in path["inverse_temperature"]),
    }
    return kept, trace, figures


def _finished(run: ChainRun) -> bool:
    return bool(run.last_trace("finished").all())


def _reached(run: ChainRun) -> str:
    """Say how far the slowest run is."""
    done, beta = run.last_trace("finished"), run.last_trace("inverse_temperature")
    return (
        f"{run.steps_done:,} moves of all particles, at inverse temperature {beta.min():.2g} "
        f"({int(done.sum())} of {len(done)} runs have reached 1 and made their last moves)"
    )

"""How many factors do the data ask for? Log evidence of each rank, and the probability of ranks.

Independent runs of sequential Monte Carlo (`bmfjax.fit(..., sampler="smc")`) on a shipped matrix,
at every rank; probabilities are under a uniform prior over these ranks. Ranks whose standard error
is above the target are named.

    python benchmarks/rank/evidence.py
    python benchmarks/rank/evidence.py --data house-votes --ranks 1 2 3 4
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import bmfjax
from bmfjax.posterior.evidence import rank_probabilities

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.device import parse
from benchmarks.record import write_record


def one_rank(rank: int, options) -> dict:
    """Fit one rank; its evidence and what it cost."""
    began, work = time.perf_counter(), time.process_time()
    fit = bmfjax.fit(
        options.data, rank,
        sampler=bmfjax.SMC(num_particles=options.particles, chain_length=options.length),
        num_chains=options.runs, seed=options.seed, progress=False,
    )  # fmt: skip
    found = fit.log_evidence
    figures = {
        "log_evidence": round(found.value, 3),
        "standard_error": round(found.error, 3),
        "of_runs": found.runs.round(2).tolist(),
        "errors_of_runs": found.run_errors.round(2).tolist(),
        "temperatures": fit.figures.temperatures,
        "rhat": round(float(fit.figures.rhat), 3),
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - work, 1),
    }
    print(f"rank {rank}: {figures}", flush=True)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="zoo")
    parser.add_argument("--ranks", type=int, nargs="+", default=list(range(2, 9)))
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--particles", type=int, default=512)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--target", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    ranks = {rank: one_rank(rank, options) for rank in options.ranks}
    value, error = (
        np.array([r[name] for r in ranks.values()]) for name in ("log_evidence", "standard_error")
    )
    found = rank_probabilities(value, error)
    for figures, chance, sd in zip(ranks.values(), *found, strict=True):
        figures |= {"probability": round(float(chance), 4), "its_error": round(float(sd), 4)}
    figures = {
        "data": options.data,
        "runs": options.runs,
        "particles": options.particles,
        "chain_length": options.length,
        "target": options.target,
        "ranks_above_the_target": [
            r for r, f in ranks.items() if f["standard_error"] > options.target
        ],
        "ranks": {str(rank): figures for rank, figures in ranks.items()},
    }
    name = "evidence" if options.data == "zoo" else f"evidence_{Path(options.data).stem}"
    print(write_record(name, figures, options.output))


if __name__ == "__main__":
    main()

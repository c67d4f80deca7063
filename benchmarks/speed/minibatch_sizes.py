"""From which size on are minibatches cheaper than all data, per effective draw?

The exact Gibbs sampler of the relaxed model (`TruncatedGibbs`) and the one that works from
minibatches (`AuxiliaryGibbs`), on square matrices of tiles with noise, with the same prior and a
learned precision. Both start at the same draw of the exact one. Of a fixed sample of factor
entries: effective draws, and how far means and standard deviations of the two are apart, with the
Monte Carlo variance of both subtracted, as in `bias_table.py`. The samplers take turns, a stretch
of draws each; a cost is the median over the stretches, in processor time.

    python benchmarks/speed/minibatch_sizes.py [--sizes 512 1024 2048 4096 8192]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import jax
import numpy as np
from jax import random

import bmfjax
from bmfjax.infer import ChainRun

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.calibration.bias_table import Posterior, compare, moments
from benchmarks.device import parse
from benchmarks.record import write_record

RANK, STRETCH = 30, 20


def run_of(posterior: Posterior, bound, warmup: int, draws: int, seed: int) -> ChainRun:
    """Return a chain that is warm and compiled."""
    run = ChainRun(
        posterior.observing(bound.algorithm), random.key(seed), bound.data,
        num_warmup=warmup, num_samples=draws, draws={"entries": 1}, chunk_size=STRETCH,
        position=jax.tree.map(lambda a: a[None], posterior.start),
    )  # fmt: skip
    while run.steps_done < warmup:
        run.advance(STRETCH)
    return run


def in_turns(runs: dict[str, ChainRun], most_seconds: float) -> dict[str, float]:
    """Let chains take turns; return the median processor milliseconds of a draw of each."""
    spent, began = {name: [] for name in runs}, time.perf_counter()
    first = next(iter(runs.values()))
    while first.steps_done < first.num_steps and time.perf_counter() - began < most_seconds:
        for name, run in runs.items():
            before = time.process_time()
            run.advance(STRETCH)
            spent[name].append((time.process_time() - before) / STRETCH * 1e3)
    return {name: statistics.median(each) for name, each in spent.items()}


def size_row(size: int, options) -> dict:
    """All samplers at one size."""
    posterior = Posterior((size, size), RANK)
    bounds = {"Gibbs": posterior.exact, "Gibbs, again": posterior.exact}
    for batch in options.batches:
        sampler = bmfjax.AuxiliaryGibbs(
            posterior.model, batch_size=batch, num_anchor=options.warmup
        )
        bounds[f"AuxiliaryGibbs, batch {batch}"] = sampler.bind(posterior.values)
    runs = {
        name: run_of(posterior, bound, options.warmup, options.draws, seed)
        for seed, (name, bound) in enumerate(bounds.items())
    }
    cost = in_turns(runs, options.seconds)
    drawn = {name: run.draws()["entries"][0].astype(np.float64) for name, run in runs.items()}
    exact, rows = moments(drawn["Gibbs"]), {}
    for name, draws in drawn.items():
        found = compare(draws, 1.0, drawn["Gibbs"], exact)
        rows[name] = {n: found[n] for n in ("mean", "sd", "ratio", "draws", "ess")}
        of_draw = float(np.median(moments(draws)[2])) / len(draws)
        rows[name] |= {
            "ess_of_a_draw": round(of_draw, 3),
            "ms_of_a_draw": round(cost[name], 3),
            "ms_of_an_effective_draw": round(cost[name] / of_draw, 3),
        }
    least = min(rows[n]["ms_of_an_effective_draw"] for n in ("Gibbs", "Gibbs, again"))
    for row in rows.values():
        row["times_gibbs"] = round(row["ms_of_an_effective_draw"] / least, 2)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--warmup", type=int, default=120, help="draws, in which anchors move")
    parser.add_argument("--draws", type=int, default=2000, help="at most, of each sampler")
    parser.add_argument("--seconds", type=float, default=240, help="at most, of each size")
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    table = {}
    for size in options.sizes:
        table[str(size)] = size_row(size, options)
        print(size, *table[str(size)].items(), sep="\n  ", flush=True)
    figures = {n: getattr(options, n) for n in ("batches", "warmup", "draws", "seconds")}
    print(
        write_record("minibatch_sizes", {"rank": RANK, **figures, "sizes": table}, options.output)
    )


if __name__ == "__main__":
    main()

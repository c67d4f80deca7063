"""What do sparse data save, in memory and in time, where models of numbers sample them?

Tiles of counts for "nmf", and of ones for "relaxed", in an otherwise empty matrix with single
entries strewn over it. It is given as a scipy sparse matrix, which stays sparse, and as a dense
array, which is sampled dense. Every run has a process of its own: the peak of the resident memory,
less what the process had when everything was imported, processor seconds of a sweep of all chains,
and seconds of what follows the draws. The draws are from the same keys, and their log joint
densities are compared. The largest matrix is run sparse only.

    python benchmarks/scale/sparse_memory.py
    python benchmarks/scale/sparse_memory.py --only 20,000x5,000
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.device import parse
from benchmarks.record import write_record

#: Rows, columns, the share of stored entries, steps of warm-up and of sampling, and the ways.
SIZES = {
    "20,000x5,000": (20_000, 5_000, 0.01, 2, 8, ("sparse", "dense")),
    "100,000x20,000": (100_000, 20_000, 0.005, 2, 8, ("sparse",)),
}
MODELS, RANK, CHAINS, STREWN = ("relaxed", "nmf"), 10, 2, 0.2


def matrix(model: str, rows: int, columns: int, share: float, seed: int) -> sp.csr_array:
    """Return tiles with a share of the entries, a fifth of which are strewn."""
    rng = np.random.default_rng(seed)
    side = (share * (1 - STREWN) / RANK) ** 0.5
    cells = [
        rng.integers(0, (rows, columns), (round(STREWN * share * rows * columns), 2), np.int32)
    ]
    for _ in range(RANK):
        chosen = (
            rng.choice(n, round(side * n), replace=False).astype(np.int32) for n in (rows, columns)
        )
        cells.append(np.stack(np.meshgrid(*chosen), -1).reshape(-1, 2))
    row, column = np.concatenate(cells).T
    found = sp.csr_array((np.ones(len(row), np.float32), (row, column)), shape=(rows, columns))
    # Tiles overlap, and so do strewn entries.
    found.data = np.ones(found.nnz, np.float32)
    if model == "nmf":
        found.data += rng.poisson(3.0, found.nnz).astype(np.float32)
    return found


def peak() -> int:
    """Return the most bytes that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def one_run(model: str, name: str, way: str, seed: int) -> dict:
    """Sample a matrix in one of the two ways."""
    from bmfjax.families import ask
    from bmfjax.infer.mcmc import truncated

    *given, warmup, samples, _ = SIZES[name]
    idle = peak()
    values = matrix(model, *given, seed)
    stored, size = values.nnz, values.shape[0] * values.shape[1]
    if way == "dense":
        values = values.toarray()
        # A dense matrix of few nonzero entries would be sampled sparse.
        truncated.FASTER = 0.0
    began = time.perf_counter()
    request = ask(
        values, RANK, model=model, num_chains=CHAINS, num_warmup=warmup, num_samples=samples,
        seed=seed,
    )  # fmt: skip
    chains = request.chains()
    run = chains.run(request)
    run.advance(1)
    start = time.perf_counter() - began
    began, busy = time.perf_counter(), time.process_time()
    run.finish()
    each = warmup + samples - 1
    seconds, busy = (time.perf_counter() - began) / each, (time.process_time() - busy) / each
    sampled = peak()
    began = time.perf_counter()
    fit = request.family.result(request.of_result, chains, run)
    fit._record()
    return {
        "stored": stored,
        "entries": size,
        "held": type(run._data).__name__,
        "idle_bytes": idle,
        "sampled_bytes": sampled - idle,
        "peak_bytes": peak() - idle,
        "start_seconds": start,
        "sweep_seconds": seconds,
        "sweep_processor_seconds": busy,
        "after_seconds": time.perf_counter() - began,
        "log_joint": float(run.trace()["log_joint"][:, -1].mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=SIZES, default=list(SIZES), metavar="SIZE")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # a run, in its own process
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    if options.one:
        print(json.dumps(one_run(*options.one, options.seed)))
        return
    figures = {"rank": RANK, "chains": CHAINS, "seed": options.seed, "runs": []}
    for name in options.only:
        for model in MODELS:
            for way in SIZES[name][-1]:
                command = [sys.executable, __file__, "--one", model, name, way]
                command += ["--seed", str(options.seed)]
                made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                found = json.loads(made.stdout.splitlines()[-1])
                figures["runs"].append({"size": name, "model": model, "way": way} | found)
                print(name, model, way, found, flush=True)
    print(write_record("sparse_memory", figures, options.output))


if __name__ == "__main__":
    main()

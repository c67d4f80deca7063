"""What do sparse data save where models of numbers sample them?

Tiles of counts for "nmf", and of ones for "relaxed", in an otherwise empty matrix with single
entries strewn over it. It is given as a scipy sparse matrix, which stays sparse, and as a dense
array, which is sampled dense. Every run has a process of its own. The largest matrix is run sparse
only.
"""

import itertools
import resource
import time

import numpy as np
import scipy.sparse as sp

from benchmarks.device import HIDDEN, apart, script, some
from benchmarks.form import page_of_one, shown

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


def one_run(options) -> dict:
    """Sample a matrix in one of the two ways."""
    from bmfjax.families import ask
    from bmfjax.infer.mcmc import truncated

    (model, name, way), seed = options.one, options.seed
    *given, warmup, samples, _ = SIZES[name]
    idle = peak()
    values = matrix(model, *given, seed)
    stored, size = values.nnz, values.shape[0] * values.shape[1]
    if way == "dense":
        values = values.toarray()
        # A dense matrix of few nonzero entries would be sampled sparse.
        truncated.FASTER = 0.0
    began = time.perf_counter()
    request = ask(values, RANK, model=model, num_chains=CHAINS, num_warmup=warmup,
                  num_samples=samples, seed=seed)  # fmt: skip
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
        "stored": stored, "entries": size, "held": type(run._data).__name__, "idle_bytes": idle,
        "sampled_bytes": sampled - idle, "peak_bytes": peak() - idle, "start_seconds": start,
        "sweep_seconds": seconds, "sweep_processor_seconds": busy,
        "after_seconds": time.perf_counter() - began,
        "log_joint": float(run.trace()["log_joint"][:, -1].mean()),
    }  # fmt: skip


ANSWER = """
Of 20,000 x 5,000 entries, of which 1 % are stored, the relaxed model takes 0.61 GB sparse and 2.96
GB dense, and a tenth of the time. "nmf" takes 0.75 GB and 6.90 GB, and a hundredth of the time:
dense, its moves of lines keep residuals of all entries.

| matrix, rank 10, two chains | model | sampled | peak memory, GB | processor s a sweep | after the draws, s |
| --- | --- | --- | --- | --- | --- |
| 20,000 x 5,000, 1 % stored | `relaxed` | sparse | 0.61 | 0.085 | 5.1 |
| | | dense | 2.96 | 0.80 | 2.5 |
| | `nmf` | sparse | 0.75 | 0.22 | 0.8 |
| | | dense | 6.90 | 20.7 | 2.9 |
| 100,000 x 20,000, 0.5 % stored | `relaxed` | sparse | 1.34 | 0.82 | 16.0 |
| | `nmf` | sparse | 1.49 | 2.12 | 8.0 |

Memory is the peak beyond that of a process with everything imported, and holds the input and
compiled programs. These are runs of ten sweeps.
"""  # noqa: E501


@page_of_one(__doc__, notes=[("b389418", "other work ran beside it: compare processor seconds")])
def tables(found: dict):
    yield (
        f"Rank {found.get('rank')}, {found.get('chains')} chains. Memory is the peak beyond that "
        "of the process with everything imported, and holds the input, until the draws are there "
        "and until the fit is. The log joint density is that of the last sweep, from the same keys."
    )
    yield shown(found.get("runs", ()), {
        "matrix": "size", "stored entries": "stored 0", "model": "", "sampled": "way",
        "peak while sampling, MB": "sampled_bytes * 1e-6 0",
        "peak of all, MB": "peak_bytes * 1e-6 0",
        "processor ms a sweep": "sweep_processor_seconds * 1e3 0",
        "ms a sweep": "sweep_seconds * 1e3 0", "start, s": "start_seconds 1",
        "after, s": "after_seconds 1", "log joint": "log_joint 0"})  # fmt: skip


@script(__doc__, child=one_run, only=some(SIZES), seed=0, one=dict(nargs=3, help=HIDDEN))
def main(options):
    figures = {"rank": RANK, "chains": CHAINS, "seed": options.seed, "runs": []}
    for name, model in itertools.product(options.only, MODELS):
        for way in SIZES[name][-1]:
            found = apart("--one", model, name, way, "--seed", options.seed)
            figures["runs"].append({"size": name, "model": model, "way": way} | found)
            print(name, model, way, found, flush=True)
    return figures

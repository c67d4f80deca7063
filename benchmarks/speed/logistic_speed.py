"""What do sampled entries cost?

Random sparse matrices with thirty ones a row. Of each: seconds of the one-time count, seconds for
so many entries at rank 10 (interleaved rounds, median), and the most memory that the process had
held after a tenth of them and after all.
"""

import resource
import time

import jax
import numpy as np
import scipy.sparse
from jax import random

from benchmarks.device import command_line
from benchmarks.form import Records, figures, notes, number, page, table
from benchmarks.record import write_record
from bmfjax.data import BinaryMatrix
from bmfjax.variational import LogisticPrior, entry_sampler, stochastic
from bmfjax.variational import posterior as lp

RANK, ONES_A_ROW = 10, 30
SHAPES = ((2000, 1000), (1500, 1500), (2900, 100), (20_000, 10_000), (20_000, 1_000_000))
RUN = jax.jit(stochastic.run, static_argnames="prior")


def sparse_matrix(rows: int, columns: int) -> BinaryMatrix:
    rng = np.random.default_rng(0)
    j = rng.integers(0, columns, (rows, ONES_A_ROW))
    i = np.repeat(np.arange(rows), ONES_A_ROW)
    ones = scipy.sparse.coo_matrix((np.ones(i.size, bool), (i, j.ravel())), (rows, columns))
    return BinaryMatrix(ones.tocsr().astype(bool))


def prepared(shape):
    data, prior = sparse_matrix(*shape), LogisticPrior(RANK)
    began = time.perf_counter()
    sampler = jax.block_until_ready(entry_sampler(data))
    seconds = time.perf_counter() - began
    state = stochastic.init(lp.start(random.key(0), shape, prior, -4.0), prior)
    return {"sampler": sampler, "state": state, "prior": prior, "count": seconds, "times": []}


def advance(case, chunks: int) -> float:
    """Draw so many more chunks of entries: seconds."""
    began = time.perf_counter()
    target = case["state"].chunks + chunks
    key = random.key(1)
    case["state"] = RUN(key, case["state"], case["sampler"], case["prior"], target)
    jax.block_until_ready(case["state"])
    return time.perf_counter() - began


def megabytes() -> float:
    """The most that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


NOTES = notes(("8ba5244", "on one core, with another measurement on the other"))

ANSWER = """
10,000,000 entries drawn take 13.5 s at 2,000 x 1,000 and rank 10, on one core and without
compilation, and memory stays flat (565 MB after a tenth and 566 MB at the end). The time for 4,096
entries hardly changes with the matrix, up to 30,000 rows and columns together. With a million
columns what is kept no longer fits the caches.

| matrix, 30 ones a row | ms for 4,096 entries | one-time count, s |
| --- | --- | --- |
| 2,000 x 1,000 | 6.9 | 0.00 |
| 2,900 x 100 | 6.06 | 0.08 |
| 20,000 x 10,000 | 7.87 | 0.13 |
| 20,000 x 1,000,000 | 80.46 | 0.25 |
"""


@page(__doc__, notes=NOTES)
def tables(records: Records):
    found = figures(records, "logistic_speed")
    fits = {n: v for n, v in found.items() if isinstance(v, dict) and "megabytes" in v}
    yield f"A fit of {number(found.get('draws'), 0)} entries drawn, compilation apart:"
    yield table(
        ["matrix", "seconds", "memory after a tenth, MB", "at the end, MB"],
        [[name, number(case["seconds"], 1), *case["megabytes"]] for name, case in fits.items()],
    )
    yield (
        "Milliseconds for 4,096 entries, at 30 ones a row. A minibatch is drawn in chunks of 4,096 "
        "entries, so that the size that the run asks for is rounded up."
    )
    yield table(
        ["matrix", "ms", "minibatch, asked for", "drawn", "one-time count, s"],
        [
            [
                name, case["entries"], asked := case.get("wanted", case.get("minibatch")),
                case.get("drawn", -(-asked // 4096) * 4096), case["one-time count, seconds"],
            ]
            for name, case in found.get("milliseconds per 4096 entries", {}).items()
        ],
    )  # fmt: skip


def main() -> None:
    options = command_line(
        __doc__, draws=(1e7, "entries drawn for the memory"), rounds=5,
        chunks=(60, "chunks of 4096 entries in a round"),
    )  # fmt: skip
    figures = {n: getattr(options, n) for n in ("draws", "rounds", "chunks")}
    first = prepared(SHAPES[0])
    advance(first, 2)
    whole = int(options.draws / stochastic.CHUNK)
    seconds = advance(first, whole // 10)
    memory = [megabytes()]
    seconds += advance(first, whole - whole // 10)
    memory.append(megabytes())
    figures["2000 x 1000"] = {
        "seconds": round(seconds, 1), "megabytes": [round(m) for m in memory],
    }  # fmt: skip
    print(figures["2000 x 1000"], flush=True)
    cases = {f"{r} x {c}": prepared((r, c)) for r, c in SHAPES}
    for case in cases.values():
        advance(case, 2)  # compiles
    for _ in range(options.rounds):
        for case in cases.values():
            case["times"].append(advance(case, options.chunks))
    figures["milliseconds per 4096 entries"] = {
        name: {
            "entries": round(1e3 * float(np.median(c["times"])) / options.chunks, 2),
            "wanted": round(float(c["state"].size)),
            "drawn": int(stochastic.num_chunks(c["state"])) * stochastic.CHUNK,
            "one-time count, seconds": round(c["count"], 2),
        }
        for name, c in cases.items()
    }
    print(figures["milliseconds per 4096 entries"])
    print(write_record("logistic_speed", figures, options.output))


if __name__ == "__main__":
    main()

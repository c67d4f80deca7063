"""Is the memory of a long run flat?

Peak memory of long IASG runs at 512 x 512, rank 30: flat in the number of samples.

The run of the thesis's section 3.3.4: batch 512, moments of factors and
gradients, 50-bin histograms of all 30,720 marginals, a log joint trace and 100
thinned draws. Every length runs in a process of its own, whose peak resident
memory is read when it ends.
"""

import functools
import resource
import time

import jax

from benchmarks.device import HIDDEN, apart, script
from benchmarks.form import page_of_one, shown

RANK = 30


def run_once(options) -> dict:
    """Sample in this process; peak memory in MB and seconds."""
    samples = options.one
    import bmfjax
    from bmfjax.data import thesis_matrix
    from bmfjax.infer import ChainRun, histogram, moments

    data = thesis_matrix("clean", tiles="8x8").data.dense()
    model = functools.partial(bmfjax.models.relaxed_bmf, rank=RANK, prior="normal", precision=1.0)
    bound = bmfjax.IASG.thesis(model, batch_size=512).bind(data)
    began = time.perf_counter()
    run = ChainRun(
        bound.algorithm, jax.random.key(0), bound.data, num_samples=samples, chunk_size=2048,
        draws={"usage": samples // 100, "basis": samples // 100},
        trace={"log_joint": max(1, samples // 10_000)},
        reducers={
            "moments": moments("usage", "basis", "gradient_usage", "gradient_basis"),
            "histograms": histogram("usage", "basis"),
        },
    )  # fmt: skip
    run.finish()
    run.reduced()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "samples": samples,
        "peak_mb": round(peak, 1),
        "seconds": round(time.perf_counter() - began, 1),
    }


ANSWER = """
Yes: IASG peaks at 580.8 MB for 600,000 draws, at 606.5 MB for 60,000 and at 584.5 MB for 6,000,
with histograms of all marginals.
"""


@page_of_one(__doc__)
def tables(found: dict):
    yield f"Rank {found.get('rank')}, batch {found.get('batch')}, histograms of all marginals."
    yield shown(
        found["rows"], {"draws": "samples", "peak memory, MB": "peak_mb 1", "seconds": "seconds 1"}
    )


@script(__doc__, child=run_once, samples=[6_000, 60_000, 600_000], one=(int, HIDDEN))
def main(options):
    rows = []
    for samples in options.samples:
        rows.append(apart("--one", samples))
        print(rows[-1], flush=True)
    return {"rank": RANK, "batch": 512, "rows": rows}

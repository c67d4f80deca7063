"""What do the steps after the draws cost?

Draws are made here, not sampled: planted factors, of which every draw has some bits flipped. A step
runs in a process of its own. Its memory is the peak of the resident memory while it runs, less that
before it.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.device import HIDDEN, apart, reset_peak, resident, script
from benchmarks.form import named, number, page_of_one, shown

ALL = ("align", "most probable", "verdict", "summary", "probability", "save")
#: Rows, columns, rank, kept draws of each of four chains, steps that are measured.
SHAPES = {
    "512x512, rank 30": (512, 512, 30, 500, ALL),
    "8124x119, rank 10": (8124, 119, 10, 500, ALL),
    "100000x1000, rank 20": (100_000, 1000, 20, 64, ("align", "verdict", "summary")),
}
CHAINS, DENSITY, NOISE = 4, 0.15, 0.05


def make_case(shape: str):
    """The matrix, its planted factors and packed draws of them."""
    import bmfjax
    from bmfjax.posterior.packed import PackedDraws

    rows, columns, rank, kept, _ = SHAPES[shape]
    rng = np.random.default_rng(0)
    density = 1 - (1 - DENSITY**2) ** rank
    made = bmfjax.generate_product(rows, columns, rank, density=density, flip=NOISE)
    truth = [made.usage, made.basis]
    draws = []
    for bits in truth:
        whole = PackedDraws.pack(bits[None, None])
        words = np.repeat(np.repeat(whole.words, CHAINS, 0), kept, 1)
        for word in words.reshape(-1, *words.shape[2:]):
            flips = rng.integers(0, 2**32, (5, *word.shape), np.uint32)
            word ^= np.bitwise_and.reduce(flips)  # a bit in 32
        # No bits beyond the last line.
        words &= PackedDraws.pack(np.ones((1, 1, *bits.shape), bool)).words
        draws.append(PackedDraws(words, len(bits)))
    return made.data, truth, draws


def make_fit(data, truth, usage, basis):
    """A fit as it is after the verdict."""
    from bmfjax.diagnostics import Binarized
    from bmfjax.families.boolean import BooleanFit
    from bmfjax.verdict import Figures, Verdict

    chains, kept = usage.shape[:2]
    rng = np.random.default_rng(1)
    return BooleanFit(
        data=data,
        model="ormachine",
        sampler="gibbs",
        settings={"model": "ormachine", "sampler": "gibbs"},
        usage_draws=usage,
        basis_draws=basis,
        trace={"log_joint": rng.normal(size=(chains, kept))},
        agreement=np.ones(usage.shape[3]),
        verdict=Verdict(Figures(num_warmup=0, thinning=1, expected_errors=0.0)),
        binary=Binarized(*truth, 0.0),
        other_draws={"flip_rate": rng.uniform(0, 0.5, (chains, kept))},
    )


def run_step(options) -> dict:
    """One step in this process: peak memory in MB and CPU seconds."""
    shape, step = options.one
    from bmfjax import verdict
    from bmfjax.families.boolean import align_packed
    from bmfjax.families.tiles import boolean_factors
    from bmfjax.posterior.selection import informed

    data, truth, (usage, basis) = make_case(shape)
    fit = make_fit(data, truth, usage, basis)

    def judge():
        wrong = data.count_errors(*truth)
        entries = verdict.mixing(informed(data), usage, basis)
        verdict.of_chains(entries, usage.shape[0], wrong, fit.agreement, fit.trace, exact=True)
        verdict.spread(basis)

    steps = {
        "align": lambda: align_packed(usage, basis, (0, 0)),
        "most probable": lambda: boolean_factors(data, usage, basis),
        "verdict": judge,
        "summary": fit.summary,
        "probability": fit.probability,
        "save": lambda: fit.save(Path(folder) / "fit"),
    }
    with tempfile.TemporaryDirectory() as folder:
        before = reset_peak()
        began = time.process_time()
        steps[step]()
        seconds = time.process_time() - began
        peak = resident("VmHWM")
    return {
        "peak_mb": round(peak - before, 1),
        "cpu_seconds": round(seconds, 2),
        "draws_mb": round((usage.words.nbytes + basis.words.nbytes) / 2**20, 1),
    }


ANSWER = """
Every step takes less memory than 16 times the packed draws; a file of draws is written a few at a
time. The figures are peak memory beside what a step was given, and processor seconds on one thread,
for synthetic draws of four chains.

| step | 512 x 512, rank 30 | 8,124 x 119, rank 10 | 100,000 x 1,000, rank 20 |
| --- | --- | --- | --- |
| align | 61 MB, 0.8 s | 52 MB, 0.4 s | 77 MB, 0.2 s |
| most probable factors | 15 MB, 1.2 s | 53 MB, 2.5 s | |
| verdict | 104 MB, 0.9 s | 89 MB, 1.0 s | 111 MB, 0.5 s |
| summary | 8 MB, 0.4 s | 14 MB, 1.0 s | 55 MB, 9.1 s |
| probability | 4 MB, 0.3 s | 13 MB, 0.9 s | |
| save | 22 MB, 1.5 s | 30 MB, 4.2 s | |
"""


@page_of_one(__doc__, notes=[("fd25565", "run with OPENBLAS_NUM_THREADS=1")])
def tables(found: dict):
    yield (
        "Peak memory beside what a step was given, and processor seconds, for synthetic draws of "
        "four chains. The last column is the ratio of the memory to the packed draws."
    )
    yield shown(named(found, "draws", "step"), {
        "draws": "", "step": "", "peak memory, MB": "peak_mb 1",
        "processor seconds": "cpu_seconds 2", "packed draws, MB": "draws_mb 1",
        "ratio": lambda cost: number(cost["peak_mb"] / cost["draws_mb"], 1)})  # fmt: skip


@script(__doc__, child=run_step, one=dict(nargs=2, help=HIDDEN))
def main(options):
    figures = {}
    for shape, (*_, steps) in SHAPES.items():
        figures[shape] = {}
        for step in steps:
            figures[shape][step] = apart("--one", shape, step)
            print(shape, step, figures[shape][step], flush=True)
    return figures

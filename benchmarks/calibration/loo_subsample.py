"""Does a subsample tell the leave-one-out score of a million entries?

Leave-one-out of a million entries by ArviZ's `loo_subsample`, which scores some entries by
Pareto-smoothed importance sampling and takes a mean over 100 draws for the others, beside the same
importance sampling of every entry, a block at a time.

Needs ArviZ 1.2 or later, and so Python 3.12 or later, and Linux.
"""

import ctypes
import gc
import time
import warnings

import arviz
import numpy as np

import bmfjax
from benchmarks.device import growing, reset_peak, resident, script, some
from benchmarks.form import named, page_of_one, shown
from bmfjax.diagnostics import leave_one_out

MODELS = ("nmf", "ormachine")
CHAINS, DRAWS = 4, 100
BLOCK = 2_000  # entries scored at a time by the stream


def matrix(model: str, size: int, rank: int):
    """Return a simulated matrix (size, size)."""
    rng = np.random.default_rng(0)
    if model == "nmf":
        usage, basis = (rng.gamma(0.5, size=(size, rank)) for _ in range(2))
        return bmfjax.RealMatrix(usage @ basis.T + rng.normal(0, 0.3, (size, size)))
    usage, basis = (rng.random((size, rank)) < 0.2 for _ in range(2))
    values = usage.astype(int) @ basis.T.astype(int) > 0
    return bmfjax.BinaryMatrix(values ^ (rng.random(values.shape) < 0.1))


def measured(work):
    """Return what `work` returns, its processor seconds, and by how many MB memory grew at most."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed earlier would hide what grows
    before = reset_peak()
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of heavy tails
        found = work()
    return found, time.process_time() - began, resident("VmHWM") - before


def subsample(fit, observations: int):
    """Return the estimate by ArviZ and its two standard errors."""
    found = arviz.loo_subsample(
        fit.to_arviz(log_likelihood=True), observations, method="plpd", reff=1.0,
        log_lik_fn=bmfjax.log_likelihood_fn(fit), seed=0,
    )  # fmt: skip
    return float(found.elpd), float(found.se), float(found.subsampling_se)


def stream(fit) -> float:
    """Return the sum of the scores of all entries."""
    rows, columns = fit.data.shape
    values, total = fit.data.dense(), 0.0
    for start in range(0, rows * columns, BLOCK):
        i, j = np.divmod(np.arange(start, min(start + BLOCK, rows * columns)), columns)
        total += leave_one_out(fit._log_density(i, j, values[i, j])).log_score.sum()
    return float(total)


def row(model: str, size: int, rank: int, observations: int) -> dict:
    """Return the figures of one model."""
    fit = bmfjax.fit(matrix(model, size, rank), rank, model=model, num_chains=CHAINS,
                     num_warmup=200, num_samples=DRAWS, seed=0, progress=False)  # fmt: skip
    (elpd, error, of_sample), seconds, peak = measured(lambda: subsample(fit, observations))
    whole, whole_seconds, whole_peak = measured(lambda: stream(fit))
    draws = fit.usage_draws.shape[0] * fit.usage_draws.shape[1]
    return {
        "entries": size**2,
        "draws": draws,
        "scored": observations,
        "matrix_mb": round(8 * draws * size**2 / 2**20),
        "subsample": {
            "elpd": round(elpd, 1),
            "se": round(error, 1),
            "subsampling_se": round(of_sample, 1),
            "cpu_seconds": round(seconds, 1),
            "peak_mb": round(peak),
        },
        "stream": {
            "elpd": round(whole, 1),
            "cpu_seconds": round(whole_seconds, 1),
            "peak_mb": round(whole_peak),
        },
        "apart": round((elpd - whole) / of_sample, 2),
    }


ANSWER = """
Yes, for a nonnegative fit of 1,000 x 1,000 entries with 400 draws: 5,000 scored entries give
-220,527.5, and all entries, a block at a time, -220,554.0. The standard error of the subsample is
313.3. So it tells the score of one model well, and a small difference of two not at all.
`arviz.loo_subsample` takes 3.0 processor seconds and 220 MB, where a number for every draw and
entry is 3,052 MB. The stream takes 19.6 s and 70 MB. There is no record of the Boolean fit.
"""


@page_of_one(__doc__)
def tables(found: dict):
    yield (
        "`subsample` is `arviz.loo_subsample` of `bmfjax.log_likelihood_fn`; `stream` scores every "
        "entry, a block at a time. Memory is the peak while either runs, less that before it. "
        "`apart` is the difference in standard errors of the subsample."
    )
    ways = [
        row | {"way": "subsample"} | row["subsample"] for row in named(found["rows"], "model")
    ] + [
        row | {"way": "stream", "scored": row["entries"], "apart": None} | row["stream"]
        for row in named(found["rows"], "model")
    ]  # fmt: skip
    yield shown(
        ways,
        {"model": "", "entries": "", "draws": "", "draws x entries, MB": "matrix_mb", "scored": "",
         "way": "", "elpd": "elpd 1", "error of the subsample": "subsampling_se? 1",
         "apart": "apart 2", "processor seconds": "cpu_seconds 1", "peak memory, MB": "peak_mb"},
    )  # fmt: skip


@script(__doc__, models=some(MODELS), size=(1000, "rows, and columns"), rank=5,
        observations=(5000, "entries that are scored"))  # fmt: skip
def main(options):
    size = options.size, options.rank, options.observations
    yield from growing({"rank": options.rank}, "rows", options.models, lambda m: row(m, *size))

"""Are random products found under flips?

The random matrix factorisation of Rukat, Holmes, Titsias and Yau (2017), section 4.1: products of
Bernoulli factors, every entry flipped with some probability. As published: one random start, 100
sweeps of burn-in, 100 kept, the generating density as the prior of every bit. Longer: the best of
four starts. With learned densities: longer, the density not known. From the truth: how much of the
error is the posterior's own.
"""

import math
import time

import jax.numpy as jnp
import numpy as np
from jax import random

import bmfjax
from benchmarks.device import script, some
from benchmarks.form import mean_and_error, named, page_of_one, percent, shown
from benchmarks.papers.boolean_runs import Schedule, program
from bmfjax.kernels.boolean.words import pack_last_axis, packed_data

#: size, rank, density of ones in the product
PROBLEMS = {
    "1000x1000, rank 5": (1000, 5, 0.5),
    "100x100, rank 7": (100, 7, 0.5),
    "100x100, rank 7, density .7": (100, 7, 0.7),
}
#: Rukat et al. 2017, figure 4, as read off the plot, to within about .03.
PUBLISHED = {
    "1000x1000, rank 5": {0.2: 0, 0.25: 0, 0.3: 0, 0.35: 0, 0.4: 0, 0.45: 0.23},
    "100x100, rank 7": {
        0.2: 0.015, 0.25: 0.05, 0.3: 0.15, 0.35: 0.27, 0.4: 0.325, 0.45: 0.405, 0.5: 0.5,
    },
    "100x100, rank 7, density .7": {
        0.2: 0.03, 0.25: 0.075, 0.3: 0.165, 0.35: 0.225, 0.4: 0.25, 0.45: 0.29, 0.5: 0.3,
    },
}  # fmt: skip
READ_OFF = 0.03
FLIPS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
LEARNED = "with learned densities"
SCHEDULES = {
    "as published": Schedule(burn=100, keep=100),
    "longer": Schedule(burn=500, keep=500, starts=4, start_sweeps=100),
    LEARNED: Schedule(burn=500, keep=500, starts=4, start_sweeps=100),
    "from the truth": Schedule(burn=100, keep=400),
}


def errors_of(made, run, seed: int, from_truth: bool) -> tuple[float, float]:
    """Share of wrong entries, and seconds."""
    data, position = packed_data(made.data), None
    if from_truth:
        wrong = np.mean(made.data.dense(bool) != made.clean)
        position = {
            "usage": pack_last_axis(jnp.asarray(made.usage.T)),
            "basis": pack_last_axis(jnp.asarray(made.basis.T)),
            "flip_rate": jnp.float32(np.clip(wrong, 1e-3, 0.5)),
        }
    began = time.perf_counter()
    mean, _ = run(random.key(seed), data, position)
    wrong = (np.asarray(mean) > 0.5) != made.clean
    return float(wrong.mean()), time.perf_counter() - began


def errors_at(problem: str, name: str, flips, repeats: int) -> dict:
    """Errors at every flip rate."""
    size, rank, density = PROBLEMS[problem]
    bit_density = math.sqrt(1 - (1 - density) ** (1 / rank))
    run = program((size, size), rank, None if name == LEARNED else bit_density, SCHEDULES[name])
    rows = {}
    for flip in flips:
        errors, seconds = [], []
        for seed in range(repeats):
            made = bmfjax.generate_product(size, size, rank, density=density, flip=flip, seed=seed)
            found = errors_of(made, run, seed, name == "from the truth")
            errors.append(round(found[0], 5))
            seconds.append(found[1])
        rows[str(flip)] = {
            **compared(errors, PUBLISHED[problem].get(flip)),
            "seconds": round(float(np.median(seconds)), 2),
        }
        print(problem, name, flip, rows[str(flip)], flush=True)
    return rows


def compared(errors, published) -> dict:
    """Mean and standard error, beside the published curve."""
    row = mean_and_error(errors, 5) | {"errors": errors}
    if published is not None:
        met = row["mean"] <= published + READ_OFF + 2 * (row["standard_error"] or 0)
        row |= {"published": published, "at_or_below_published": bool(met)}
    return row


ANSWER = """
As well as published, to the 0.03 with which the curve of Rukat et al. (2017), figure 4, can be read
off. At 40 % flips 0.0086 of the entries are wrong on the large matrices where the curve shows 0.
Chains from the truth have 0.0086 too. Shares are against the noise-free matrix.

| flips | 20 % | 30 % | 40 % | 45 % |
| --- | --- | --- | --- | --- |
| 1,000 x 1,000, rank 5 | 0 | 0.00001 | 0.0086 | 0.221 |
| published curve | 0 | 0 | 0 | 0.23 |
| 100 x 100, rank 7 | 0.0140 | 0.149 | 0.311 | 0.401 |
| published curve | 0.015 | 0.15 | 0.325 | 0.405 |
| 100 x 100, rank 7, density 0.7 | 0.0267 | 0.165 | 0.246 | 0.291 |
| published curve | 0.03 | 0.165 | 0.25 | 0.29 |

The rows are the best of four short starts with the density known. As published, with one start and
100 sweeps, some chains end in poor modes at low noise: 0.0115 at 5 % flips on the large matrices.
Learned densities are worse on the 100 x 100 matrices at 45 %: 0.484 beside 0.401.
"""


@page_of_one(__doc__)
def tables(found: dict):
    yield (
        "Entries of random products are flipped. Share of entries in which the rounded posterior "
        "mean differs from the noise-free matrix, with standard errors over the matrices. The "
        "published curve is that of Rukat et al. (2017), figure 4, read off the plot to about "
        "0.03; blank where it was not."
    )
    yield shown(
        named(found.get("schedules", {}), "schedule"),
        {"schedule": "", "burn-in": "burn", "kept": "keep", "starts": ""},
    )
    for problem, runs in found.get("problems", {}).items():
        yield f"## {problem}"
        flips = list(next(iter(runs.values())))
        first = next(iter(runs))
        yield shown(
            [{"flips": flip} | {name: run[flip] for name, run in runs.items()} for flip in flips],
            {"flips": lambda row: f"{percent(float(row['flips']), 0)} %"}
            | {name: f"{name} ±5" for name in runs}
            | {"published curve": f"{first}/published?"},
        )  # fmt: skip


@script(__doc__, problems=some(PROBLEMS), runs=some(SCHEDULES), flips=list(FLIPS),
        repeats=10)  # fmt: skip
def main(options):
    figures = {
        problem: {name: errors_at(problem, name, options.flips, options.repeats)
                  for name in options.runs}
        for problem in options.problems
    }  # fmt: skip
    schedules = {name: SCHEDULES[name]._asdict() for name in options.runs}
    return {"repeats": options.repeats, "schedules": schedules, "problems": figures}

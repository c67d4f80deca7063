"""Does the OrMachine fill in the missing entries of random Boolean products?

Random matrix completion as in Rukat, Holmes, Titsias and Yau (2017), section 4.1: products of rank
5 and size 1000 x 1000 with half of the entries ones and no flips, of which a small share is
observed at random. Share of unobserved entries in which the rounded posterior mean of the product
differs from the truth, over ten matrices. The factors hold about K (M + N - log2 K + 1) bits, their
order left out: with fewer entries observed no method could determine them all.

    python benchmarks/ormachine_completion.py
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
from boolean_runs import Schedule, program
from jax import random
from record import write_record

import bmfjax
from bmfjax.data import BinaryMatrix
from bmfjax.kernels.packed_lines import packed_data

SIZE, RANK, DENSITY = 1000, 5, 0.5
#: The authors' released program with up to 300 sweeps of burn-in, measured by us on two matrices.
PROGRAM = {
    0.01: (0.2505, 0.2460),
    0.02: (0.0254, 0.0221),
    0.05: (0.0002, 0.0008),
    0.1: (0.0,),
    0.2: (0.0,),
}


def bound(size: int, rank: int) -> int:
    """Entries that must be observed for the factors to be determined at all, by counting bits."""
    return math.ceil(rank * (2 * size - math.log2(rank) + 1))


def observed_part(made, share: float, seed: int) -> np.ndarray:
    """Which entries are observed: bool (rows, columns), each with probability `share`."""
    return np.random.default_rng([seed, round(1e4 * share)]).random(made.clean.shape) < share


def one_matrix(run, size: int, share: float, seed: int) -> tuple[float, int, float]:
    """Share of wrong unobserved entries, number observed, seconds."""
    made = bmfjax.generate_product(size, size, RANK, density=DENSITY, seed=seed)
    seen = observed_part(made, share, seed)
    data = packed_data(BinaryMatrix(np.where(seen, made.clean, np.nan)))
    began = time.perf_counter()
    mean, _ = run(random.key(seed), data)
    wrong = (np.asarray(mean) > 0.5) != made.clean
    return float(wrong[~seen].mean()), int(seen.sum()), time.perf_counter() - began


def compared(errors, theirs) -> dict:
    """Mean and standard error, beside the authors' program."""
    deviation = float(np.std(errors, ddof=min(1, len(errors) - 1)))
    error = deviation / math.sqrt(len(errors))
    row = {
        "mean": round(float(np.mean(errors)), 6),
        "median": round(float(np.median(errors)), 6),
        "standard_error": round(error, 6),
        "errors": [round(e, 6) for e in errors],
    }
    if theirs:
        # A mean of one or two matrices varies as ours would.
        both = math.sqrt(error**2 + deviation**2 / len(theirs))
        met = np.mean(errors) <= np.mean(theirs) + 2 * both
        row |= {"released_program": theirs, "no_worse": bool(met)}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--shares", nargs="+", type=float, default=list(PROGRAM))
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--burn", type=int, default=500)
    parser.add_argument("--keep", type=int, default=200)
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--start-sweeps", type=int, default=100)
    parser.add_argument("--hold", type=int, default=10)
    parser.add_argument("--dispersion", type=float, default=1.5)
    parser.add_argument("--known-density", action="store_true", help="the generating one as prior")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    schedule = Schedule(**{n: getattr(options, n) for n in Schedule._fields})
    known = math.sqrt(1 - (1 - DENSITY) ** (1 / RANK)) if options.known_density else None
    run = program((options.size, options.size), RANK, known, schedule)
    rows = {}
    for share in options.shares:
        errors, counts, seconds = zip(
            *(one_matrix(run, options.size, share, seed) for seed in range(options.repeats)),
            strict=True,
        )
        rows[str(share)] = {
            **compared(errors, PROGRAM.get(share) if options.size == SIZE else None),
            "observed": round(float(np.mean(counts))),
            "seconds": round(float(np.median(seconds)), 2),
        }
        print(share, rows[str(share)], flush=True)
    figures = {
        "size": options.size,
        "rank": RANK,
        "repeats": options.repeats,
        "densities": "learned" if known is None else round(known, 4),
        "schedule": schedule._asdict(),
        "entries_needed_at_least": bound(options.size, RANK),
        "shares": rows,
    }
    print(write_record("ormachine_completion", figures, options.output))


if __name__ == "__main__":
    main()

"""Tables 4.1 and 4.2 of Gonsior 2019: IASG as published, on the 8x8 tile matrices.

Every row is one run of 60,000 draws at rank 30 with the precision fixed at one:
clean and noisy matrix, three priors, three batch sizes, from a random start and
from the optimum. The errors count entries of the Boolean product of thresholded
posterior means that differ from the noise-free matrix, with the thresholds of
algorithm 4.1 chosen against that truth, as in the thesis.

The thesis's own matrices are not available; ours are generated with the same
parameters and the tile size that its error counts imply.

    python benchmarks/thesis_tables.py --work /tmp/thesis
    python benchmarks/thesis_tables.py --work /tmp/thesis --rows 0 2 4   # some rows only

Rows that `--work` already holds are not run again; the record is written when
all are there.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import time
from pathlib import Path

import jax
import numpy as np
from device import parse
from record import write_record

import bmfjax
from bmfjax.data import thesis_matrix
from bmfjax.infer import ChainRun, moments

PRIORS = {"flat": "uniform", "Normal": "normal", "PanPAL": "laplace"}
ROWS = list(itertools.product(("random", "optimum"), ("clean", "noisy"), PRIORS, (75, 250, 512)))
RANK = 30

#: Gonsior 2019, tables 4.1 and 4.2: error at 0.5, lowest error, lowest and highest best threshold,
#: in the order of ROWS.
PUBLISHED = [
    (87, 72, 0.41, 0.44), (937, 928, 0.46, 0.46), (1431, 1325, 0.42, 0.42),
    (1919, 713, 0.19, 0.19), (383, 220, 0.42, 0.42), (821, 552, 0.32, 0.32),
    (1919, 1919, 0.01, 0.99), (1919, 1918, 0.03, 0.03), (551, 294, 0.30, 0.34),
    (732, 722, 0.48, 0.48), (1594, 1551, 0.53, 0.53), (1938, 1913, 0.58, 0.60),
    (1885, 407, 0.26, 0.26), (1016, 876, 0.39, 0.39), (1494, 1469, 0.47, 0.47),
    (1919, 1919, 0.01, 0.99), (1195, 1096, 0.38, 0.40), (1533, 1497, 0.48, 0.48),
    (8, 0, 0.40, 0.47), (8, 0, 0.39, 0.48), (0, 0, 0.38, 0.50),
    (1918, 0, 0.17, 0.19), (8, 0, 0.34, 0.43), (8, 0, 0.36, 0.48),
    (1919, 0, 0.01, 0.01), (8, 0, 0.29, 0.42), (8, 0, 0.34, 0.48),
    (125, 104, 0.46, 0.47), (72, 72, 0.48, 0.50), (56, 40, 0.53, 0.54),
    (1549, 111, 0.29, 0.29), (63, 63, 0.50, 0.50), (32, 32, 0.50, 0.50),
    (1919, 0, 0.01, 0.01), (55, 48, 0.46, 0.47), (48, 32, 0.53, 0.53),
]  # fmt: skip


def run_row(row: int, num_samples: int, seed: int) -> dict:
    """Posterior means and traces of one row."""
    start, name, prior, batch = ROWS[row]
    truth = thesis_matrix(name, tiles="8x8", seed=seed)
    data = truth.data.dense()
    model = functools.partial(
        bmfjax.models.relaxed_bmf, rank=RANK, prior=PRIORS[prior], precision=1.0
    )
    bound = bmfjax.IASG.thesis(model, batch_size=batch).bind(data)
    position = None
    if start == "optimum":
        position = {
            "usage": np.asarray(truth.usage, np.float32)[None],
            "basis": np.asarray(truth.basis, np.float32)[None],
        }
    began = time.perf_counter()
    run = ChainRun(
        bound.algorithm,
        jax.random.key(1000 + row),
        bound.data,
        num_samples=num_samples,
        position=position,
        reducers={"moments": moments("usage", "basis")},
        trace={"log_joint": max(1, num_samples // 600), "clamped": max(1, num_samples // 600)},
        chunk_size=2048,
    )
    run.finish()
    reduced = run.reduced()["moments"]
    return {
        "usage": reduced["usage"]["mean"][0],
        "basis": reduced["basis"]["mean"][0],
        "usage_variance": reduced["usage"]["variance"][0],
        "basis_variance": reduced["basis"]["variance"][0],
        "log_joint": run.trace()["log_joint"][0],
        "clamped": run.trace()["clamped"][0],
        "seconds": np.float64(time.perf_counter() - began),
    }


def figures(row: int, result: dict, seed: int) -> dict:
    """Errors of one row beside the published ones."""
    from bmfjax.diagnostics import oracle_threshold

    start, name, prior, batch = ROWS[row]
    truth = thesis_matrix(name, tiles="8x8", seed=seed)
    ours = oracle_threshold(result["usage"], result["basis"], truth.clean)
    half, lowest, low, high = PUBLISHED[row]
    deviation = np.sqrt(np.concatenate([result["usage_variance"], result["basis_variance"]]))
    return {
        "start": start,
        "data": name,
        "model": f"BMF+{prior}" if prior != "PanPAL" else prior,
        "batch": batch,
        "error_at_half": int(ours.error_at_half),
        "error": int(ours.error),
        "tau_min": round(float(ours.tau_min), 2),
        "tau_max": round(float(ours.tau_max), 2),
        "thesis_error_at_half": half,
        "thesis_error": lowest,
        "thesis_tau_min": low,
        "thesis_tau_max": high,
        "mean_entry": round(float(np.mean([result["usage"].mean(), result["basis"].mean()])), 4),
        "mean_sd": round(float(deviation.mean()), 4),
        "log_joint_first": round(float(result["log_joint"][0]), 1),
        "log_joint_last": round(float(result["log_joint"][-1]), 1),
        "clamped_last": round(float(result["clamped"][-1]), 4),
        "seconds": round(float(result["seconds"]), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for the rows' results")
    parser.add_argument("--rows", type=int, nargs="*", help="rows to run (0 to 35); default all")
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the matrices")
    parser.add_argument("--output", type=Path, help="folder of the record")
    options = parse(parser)
    options.work.mkdir(parents=True, exist_ok=True)
    for row in options.rows if options.rows is not None else range(len(ROWS)):
        path = options.work / f"row-{row:02d}.npz"
        if path.exists():
            continue
        result = run_row(row, options.samples, options.seed)
        np.savez_compressed(path, **result)
        print(row, *ROWS[row], f"{float(result['seconds']):.0f} s", flush=True)

    done = [options.work / f"row-{row:02d}.npz" for row in range(len(ROWS))]
    if all(path.exists() for path in done):
        rows = []
        for row, path in enumerate(done):
            with np.load(path) as stored:
                rows.append(figures(row, dict(stored), options.seed))
        clean = thesis_matrix("clean", tiles="8x8", seed=options.seed).clean
        table = {
            "samples": options.samples,
            "rank": RANK,
            "ones_in_the_noise_free_matrix": int(clean.sum()),
            "rows": rows,
        }
        print(write_record("thesis_tables", table, options.output))


if __name__ == "__main__":
    main()

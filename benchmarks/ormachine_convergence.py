"""Do chains of the Boolean model agree on real matrices, at ranks 4 and 8?

R-hat and effective draws (of four chains) of the log joint, the dispersion, and 500 entries of the
product whose posterior mean is in [.05, .95]; entries that hardly ever change are counted apart. On
matrices with a short side the longer factor matrix is summed out and the chains are tempered (see
`bmfjax.kernels.boolean.collapsed`); the record names each case's options.

    python benchmarks/ormachine_convergence.py [--pancan PATH]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from record import write_record

import bmfjax
from bmfjax.diagnostics import ess_bulk, split_rhat
from bmfjax.infer import geometric_ladder
from bmfjax.posterior import products

NUM_ENTRIES = 500


def tempered(ladder, anneal: int, lowest: float) -> dict:
    """Options: all factors at once, tempered, from annealed draws of the prior."""
    return {
        "update": "collapsed", "inverse_temperatures": ladder, "num_anneal": anneal,
        "lowest": lowest,
    }  # fmt: skip


EIGHT = (1.0, 0.85, 0.7, 0.55, 0.42, 0.32, 0.24, 0.18, 0.13, 0.09)
#: Of each matrix and rank: options, steps of the warm-up, draws. Ladders are longer where modes are
#: further apart; on the pathways at rank 8 all factors at once would take 2 s a sweep.
CASES = {
    ("house-votes", 4): (tempered((1.0, 0.6, 0.36, 0.2), 500, 0.02), 1000, 1000),
    ("house-votes", 8): (tempered(EIGHT, 100, 0.1), 200, 800),
    ("zoo", 4): (tempered((1.0, 0.6, 0.36, 0.2), 500, 0.02), 1000, 1000),
    ("zoo", 8): (tempered(EIGHT, 100, 0.1), 200, 1300),
    ("pancan-pathways", 4): (tempered(geometric_ladder(0.02, 10), 150, 0.3), 200, 250),
    ("pancan-pathways", 8): ({"moves": ("collapsed", "birth")}, 300, 300),
}


def pathways(path: Path) -> bmfjax.BinaryMatrix:
    """The pan-cancer matrix: bits (rows, columns) packed, little end first, and its shape."""
    with np.load(path, allow_pickle=False) as file:
        rows, columns = (int(n) for n in file["shape"])
        bits = np.unpackbits(file["bits"], axis=1, bitorder="little", count=columns)
    return bmfjax.BinaryMatrix(bits[:rows].astype(bool))


def one_case(data, rank: int, case, seed: int) -> dict:
    options, warmup, samples = case
    began = time.perf_counter()
    fit = bmfjax.fit(
        data, rank, seed=seed, num_warmup=warmup, num_samples=samples, progress=False,
        sampler_options=options,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    joint, dispersion = (fit.trace[n][:, warmup:] for n in ("log_joint", "dispersion"))
    entries, share = products.uncertain_entries(fit.usage_draws, fit.basis_draws, NUM_ENTRIES)
    rhat = np.sort(split_rhat(entries))
    found = {
        "options": {n: str(v) for n, v in options.items()},
        "steps": [warmup, samples],
        "rhat_log_joint": float(split_rhat(joint)),
        "rhat_dispersion": float(split_rhat(dispersion)),
        "rhat_entries": rhat,
        "rhat_entries_median": float(np.median(rhat)),
        "rhat_entries_99": float(np.quantile(rhat, 0.99, method="higher")),
        "rhat_entries_worst": float(rhat[-1]),
        "entries": len(rhat),
        "share_constant": 1.0 - share,
        "ess_log_joint": float(ess_bulk(joint)),
        "ess_dispersion": float(ess_bulk(dispersion)),
        "ess_entries_least": float(ess_bulk(entries).min()),
        "log_joint": joint.mean(1),
        "dispersion": dispersion.mean(1),
        "factors_agreeing": fit.scalars["factors_agreeing"],
        "seconds": seconds,
    }
    if "inverse_temperatures" in options:
        found["swaps"] = np.nanmean(fit.trace["swap_probability"][:, warmup:], (0, 1))
    return {n: _rounded(v) for n, v in found.items()}


def _rounded(value):
    if isinstance(value, np.ndarray):
        return [round(float(v), 4) for v in value]
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pancan", type=Path, help="pan-cancer pathways, packed (.npz)")
    labels = [f"{name},{rank}" for name, rank in CASES]
    parser.add_argument("--only", nargs="+", choices=labels, default=labels, metavar="CASE")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    record, table = "ormachine_convergence", {}
    if len(options.only) == 1:
        record += "_" + options.only[0].replace(",", "_rank_")
    for (name, rank), case in CASES.items():
        label = f"{name},{rank}"
        needs_file = name.startswith("pancan") and options.pancan is None
        if label not in options.only or needs_file:
            continue
        data = pathways(options.pancan) if name.startswith("pancan") else bmfjax.load(name)
        table[label] = found = one_case(data, rank, case, options.seed)
        print(label, {n: v for n, v in found.items() if n != "rhat_entries"}, flush=True)
        path = write_record(record, {"matrices": table}, options.output)
    print(path)


if __name__ == "__main__":
    main()

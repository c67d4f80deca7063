"""Do chains of the Boolean model agree on real matrices, at the ranks people use?

`bmfjax.fit` with its defaults, four chains from random starts and at most ten minutes: R-hat and
effective draws of the log joint, the dispersion, and up to 500 entries of the product whose
posterior mean is in [0.05, 0.95]; entries that hardly ever change are counted apart. Where chains
disagree the record holds the modes and their weights. One record a case.

    python benchmarks/agreement/ormachine_convergence.py [--only zoo,8] [--files FOLDER]

`FOLDER` holds matrices that are not shipped, each an .npz with `shape` and `bits` (of every row,
little end first), or `indptr` and `indices` of its ones: see `FILES`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import bmfjax
from bmfjax.diagnostics import ess_bulk, split_rhat
from bmfjax.posterior import products

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.device import parse
from benchmarks.record import write_record

NUM_ENTRIES = 500
#: Where a matrix that is not shipped lies in the folder.
FILES = {
    "pancan-pathways": "tcga/pancan-pathways-8098x66.npz",
    "role-mining-apj": "role-mining/apj.npz",
}
CASES = (
    ("house-votes", 4),
    ("house-votes", 8),
    ("zoo", 4),
    ("zoo", 8),
    ("bob-ross", 6),
    ("mushroom", 10),
    ("pancan-pathways", 4),
    ("pancan-pathways", 8),
    ("role-mining-apj", 10),
)


def stored(path: Path) -> bmfjax.BinaryMatrix:
    """Read ones as packed bits or as sparse rows."""
    with np.load(path, allow_pickle=False) as file:
        rows, columns = (int(n) for n in file["shape"])
        if "indptr" in file:
            indptr, indices = file["indptr"].astype(np.int64), file["indices"].astype(np.int64)
            ones = sp.csr_matrix((np.ones(len(indices), bool), indices, indptr), (rows, columns))
            return bmfjax.BinaryMatrix(ones)
        bits = np.unpackbits(file["bits"], axis=1, bitorder="little", count=columns)
    return bmfjax.BinaryMatrix(bits[:rows].astype(bool))


def one_case(data, rank: int, options, seed: int) -> dict:
    """Fit, and look at how the chains mixed."""
    began, cpu = time.perf_counter(), time.process_time()
    fit = bmfjax.fit(data, bmfjax.OrMachine(rank), seed=seed, progress=False, **options)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    joint = fit.trace["log_joint"][:, fit.figures.num_warmup :]
    dispersion = fit.trace["dispersion"][:, fit.figures.num_warmup :]
    entries, share = products.uncertain_entries(fit.usage_draws, fit.basis_draws, NUM_ENTRIES)
    rhat = np.sort(split_rhat(entries))
    rhat = rhat[~np.isnan(rhat)]
    return {
        "shape": list(data.shape),
        "sampler": fit.sampler,
        "settings": {n: str(v) for n, v in fit.settings.get("sampler_options", {}).items()},
        "chains": int(joint.shape[0]),
        "warm_up": int(fit.figures.num_warmup),
        "draws": int(fit.figures.num_draws),
        "rhat_log_joint": float(split_rhat(joint)),
        "rhat_dispersion": float(split_rhat(dispersion)),
        "rhat_entries_median": float(np.median(rhat)) if len(rhat) else None,
        "rhat_entries_99": float(np.quantile(rhat, 0.99, method="higher")) if len(rhat) else None,
        "rhat_entries_worst": float(rhat[-1]) if len(rhat) else None,
        "entries": int(entries.shape[-1]),
        "entries_that_move": len(rhat),
        "share_uncertain": float(share),
        "ess_log_joint": float(ess_bulk(joint)),
        "ess_dispersion": float(ess_bulk(dispersion)),
        "log_joint": [float(v) for v in joint.mean(1)],
        "dispersion": [float(v) for v in dispersion.mean(1)],
        "errors": int(fit.figures.errors),
        "factors_agreeing": float(fit.figures.factors_agreeing),
        "verdict": str(fit.verdict),
        "scalars": {
            n: v for n, v in fit.figures.known().items() if isinstance(v, int | float | bool | str)
        },
        "seconds": seconds,
        "cpu_seconds": cpu,
    }


def _rounded(value):
    if isinstance(value, dict):
        return {n: _rounded(v) for n, v in value.items()}
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    """Run the cases asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    labels = [f"{name},{rank}" for name, rank in CASES]
    parser.add_argument("--only", nargs="+", choices=labels, default=labels, metavar="CASE")
    parser.add_argument("--files", type=Path, help="folder of the matrices that are not shipped")
    parser.add_argument("--sampler", help="another sampler, such as smc")
    parser.add_argument("--max-time", type=float, default=600.0, help="seconds of sampling")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    for name, rank in CASES:
        if f"{name},{rank}" not in options.only or (name in FILES and options.files is None):
            continue
        data = stored(options.files / FILES[name]) if name in FILES else bmfjax.load(name)
        how = {"max_time": options.max_time}
        if options.sampler:
            how["sampler"] = options.sampler
        found = _rounded(one_case(data, rank, how, options.seed))
        print(f"{name}, rank {rank}", found, flush=True)
        parts = ["ormachine_convergence", name, "rank", str(rank), *([options.sampler or []])]
        record = "_".join(p for p in parts if p)
        print(write_record(record, found, options.output))


if __name__ == "__main__":
    main()

"""Do real counts scatter more than Poisson ones, and does the check of a fit say so?

Every file has a table of counts with names of its columns. Both models are fitted to it with the
same number of factors. A record keeps the names of the files, not where they lie. Where figures of
the page are from: the 21 breast cancers of Nik-Zainal et al. 2012 (`Samples.txt` of
SigProfilerAssignment, transposed), and the 300 most frequent words of 395 news items (the
`reuters.ldac` of the package lda).

    python benchmarks/prediction/overdispersion.py breast.csv words.csv
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.device import parse


def one(counts: pd.DataFrame, rank: int, scale: float | None, max_cpu: float) -> dict:
    """Fit one model, and return what its check says of dispersions."""
    import bmfjax

    wall, time.monotonic = time.monotonic, time.process_time  # of a fit: its clock
    began = time.process_time()
    model = bmfjax.Poisson(rank, dispersion_scale=scale)
    fit = bmfjax.fit(counts, model, seed=0, progress=False, max_time=max_cpu)
    spent, time.monotonic = time.process_time() - began, wall
    check = fit.check()
    found = check.statistics.loc["dispersions"]
    scatter = fit.other_draws.get("dispersion")
    return {
        "model": "Poisson" if scale is None else "negative binomial",
        "rows": len(counts),
        "columns": counts.shape[1],
        "worst": found["worst"],
        **{n: float(found[n]) for n in ("p_value", "observed", "expected", "sd")},
        "log_score": check.log_score,
        "scatter": None if scatter is None else float(scatter.mean()),
        "status": fit.verdict.status,
        "cpu_seconds": round(spent, 1),
    }


def main() -> None:
    """Fit both models to every file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="tables of counts, CSV")
    parser.add_argument("--rank", type=int, default=5)
    parser.add_argument("--max-cpu", type=float, default=60.0, help="processor seconds of a fit")
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    from benchmarks.record import write_record

    runs = {}
    for path in options.files:
        counts = pd.read_csv(path)
        runs[path.stem] = [
            one(counts, options.rank, scale, options.max_cpu) for scale in (None, 1.0)
        ]
        print(path.stem, runs[path.stem], flush=True)
        write_record("overdispersion", {"rank": options.rank, "runs": runs}, options.output)


if __name__ == "__main__":
    main()

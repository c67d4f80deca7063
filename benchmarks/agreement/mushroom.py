"""How many entries of the mushroom matrix does the fit leave wrong, and is that prior or mode?

UCI mushroom, 8,124 x 117, rank 10. Chains under the default prior, a density Beta(1, 1) for every
factor, and under a fixed density of 1/2; then chains under either prior from the best solution of
the other. A solution from which both priors end at the same log joint would show that modes differ
and priors do not. Beside them the product of a nonnegative factorisation (scikit-learn), cut at the
threshold that leaves the fewest entries wrong: it adds where the Boolean product does not.

    python benchmarks/agreement/mushroom.py mushroom.npz
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.decomposition import NMF

import bmfjax
from bmfjax.diagnostics import ess_bulk, split_rhat

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.device import parse
from benchmarks.record import write_record

MODELS = {"Beta(1, 1)": bmfjax.OrMachine(), "1/2": bmfjax.OrMachine(usage=0.5, basis=0.5)}


def one_fit(data, prior: str, options, init=None):
    """Fit under a prior; returns the figures and the factors of the best chain's last draw."""
    chosen = {"num_warmup": options.warmup, "num_samples": options.samples}
    chosen["max_time"] = options.max_time
    began = time.perf_counter(), time.process_time()
    fit = bmfjax.fit(
        data, options.rank, seed=options.seed, progress=False, model=MODELS[prior],
        init=init,
        num_chains=options.chains if init is None else 2,
        **{n: v for n, v in chosen.items() if v is not None},
    )  # fmt: skip
    kept = fit.usage_draws.shape[1]
    joint, errors = (fit.trace[n][:, -kept:] for n in ("log_joint", "errors"))
    best = int(joint.mean(1).argmax())
    factors = {n: np.asarray(d[best, kept - 1]) for n, d in (
        ("usage", fit.usage_draws), ("basis", fit.basis_draws)
    )}  # fmt: skip
    figures = {
        "errors": [round(float(v)) for v in errors.mean(1)],
        "log_joint": [round(float(v), 1) for v in joint.mean(1)],
        "rhat_log_joint": round(float(split_rhat(joint)), 3),
        "ess_log_joint": round(float(ess_bulk(joint)), 1),
        "factors_agreeing": fit.figures.factors_agreeing,
        "verdict": str(fit.verdict),
        "seconds": round(time.perf_counter() - began[0], 1),
        "cpu_seconds": round(time.process_time() - began[1], 1),
    }
    accepted = {n: float(np.nanmean(v)) for n, v in fit.trace.items() if n.endswith("_accepted")}
    return figures | {n: round(v, 4) for n, v in accepted.items()}, factors


def thresholded(data, rank: int) -> dict:
    """Cut the product of a nonnegative factorisation where the fewest entries are wrong."""
    values = data.dense(missing=0.0)
    model = NMF(rank, init="nndsvda", max_iter=500, random_state=0)
    product = model.fit_transform(values) @ model.components_
    levels = np.linspace(0.2, 0.8, 61)
    wrong = [int(((product > level) != (values > 0.5)).sum()) for level in levels]
    best = int(np.argmin(wrong))
    return {"errors": wrong[best], "threshold": round(float(levels[best]), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", help="the matrix, as for bmfjax.load")
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--warmup", type=int, help="default: that of the fit")
    parser.add_argument("--samples", type=int, help="default: that of the fit")
    parser.add_argument("--max-time", type=float, help="seconds of sampling; default: as above")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    data = bmfjax.load(options.data)
    names = ("rank", "chains", "warmup", "samples", "max_time", "seed")
    figures = {n: getattr(options, n) for n in names}
    figures["thresholded NMF"] = thresholded(data, options.rank)
    best = {}
    for prior in MODELS:
        figures[prior], best[prior] = one_fit(data, prior, options)
        print(prior, figures[prior], flush=True)
        path = write_record("mushroom", figures, options.output)
    for prior in MODELS:
        other = next(p for p in MODELS if p != prior)
        label = f"{prior}, from the best under {other}"
        figures[label], _ = one_fit(data, prior, options, best[other])
        print(label, figures[label], flush=True)
        path = write_record("mushroom", figures, options.output)
    print(path)


if __name__ == "__main__":
    main()

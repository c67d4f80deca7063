"""Is the misfit of the mushrooms prior or mode?

UCI mushroom, 8,124 x 117, rank 10. Chains under the default prior, a density Beta(1, 1) for every
factor, and under a fixed density of 1/2; then chains under either prior from the best solution of
the other. A solution from which both priors end at the same log joint would show that modes differ
and priors do not. Beside them the product of a nonnegative factorisation (scikit-learn), cut at the
threshold that leaves the fewest entries wrong: it adds where the Boolean product does not.
"""

import time

import numpy as np
from sklearn.decomposition import NMF

import bmfjax
from benchmarks.device import script
from benchmarks.form import SECONDS, listed, named, page_of_one, percent, settings_of, shown
from bmfjax.diagnostics import ess_bulk, split_rhat

MODELS = {"Beta(1, 1)": bmfjax.OrMachine(), "1/2": bmfjax.OrMachine(usage=0.5, basis=0.5)}


def one_fit(data, prior: str, options, init=None):
    """Fit under a prior; returns the figures and the factors of the best chain's last draw."""
    began = time.perf_counter(), time.process_time()
    fit = bmfjax.fit(
        data, options.rank, seed=options.seed, progress=False, model=MODELS[prior],
        init=init, num_chains=options.chains if init is None else 2, max_time=options.max_time,
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


ANSWER = """
Both, and neither explains the distance to additive factors. At rank 10 the default prior leaves
66,746 of 950,508 observed entries wrong, and fixed densities of one half leave about 65,120.

| prior of the densities, start | wrong entries | log joint | R-hat log joint |
| --- | --- | --- | --- |
| Beta(1, 1) | 66,745 to 66,748 | -267,588 to -267,635 | 1.171 |
| Beta(1, 1), from the best under 1/2 | 64,876 | -271,378 | 0.999 |
| 1/2 | 65,115 to 65,132 | -294,516 to -294,562 | 1.020 |
| 1/2, from the best under Beta(1, 1) | 64,996 and 65,290 | -294,206 and -294,973 | 1.363 |
| thresholded nonnegative factorisation | 54,019 | | |

Under the default prior the solution with 1,900 more wrong entries has a log joint that is higher by
3,800, so the prior seems to cause these errors. But chains that start from the other solution stay
there, and only the second row has an R-hat of at most 1.01: modes keep chains apart. The
nonnegative factorisation adds factors where the Boolean product does not.
"""


@page_of_one(__doc__, notes=[("85e6d9e", SECONDS)])
def tables(found: dict):
    yield (
        "Wrong entries and log joint of each chain, under two priors of the densities; then of "
        "chains under one prior from the best solution of the other. Thresholded NMF is the "
        "product of a nonnegative factorisation, cut where the fewest entries are wrong."
    )
    yield settings_of(found)
    runs = {n: v for n, v in found.items() if isinstance(v, dict)}
    yield shown(named(runs, "fit"), {
        "fit": "", "wrong entries": lambda run: listed([*np.atleast_1d(run["errors"]).tolist()]),
        "log joint": "log_joint? ;1", "R-hat log joint": "rhat_log_joint? 3",
        "ESS": "ess_log_joint? 0",
        "factors found by all": lambda run: _share(run.get("factors_agreeing"), 0),
        "rebirths accepted": lambda run: _share(run.get("rebirth_accepted"), 1),
        "seconds": "seconds? 0", "processor seconds": "cpu_seconds? 0",
        "verdict": lambda run: run.get("verdict", "")})  # fmt: skip


def _share(share: float | None, digits: int) -> str:
    return "" if share is None else f"{percent(share, digits)} %"


@script(__doc__, {"data": (str, "the matrix, as for bmfjax.load")}, rank=10, chains=4,
        max_time=(float, "seconds of sampling; default: that of the fit"), seed=0)  # fmt: skip
def main(options):
    data = bmfjax.load(options.data)
    figures = {n: getattr(options, n) for n in ("rank", "chains", "max_time", "seed")}
    figures["thresholded NMF"] = thresholded(data, options.rank)
    best = {}
    for prior in MODELS:
        figures[prior], best[prior] = one_fit(data, prior, options)
        print(prior, figures[prior], flush=True)
        yield figures
    for prior, other in zip(MODELS, reversed(MODELS), strict=True):
        label = f"{prior}, from the best under {other}"
        figures[label], _ = one_fit(data, prior, options, best[other])
        print(label, figures[label], flush=True)
        yield figures

"""How does the library do beside other programs?

This library beside programs that a user could pick instead, on the same matrices in one run.

Four parts, each with a record of its own: missing entries of binary matrices (`peers_binary.py`),
held-out ratings (`peers_ratings.py`), zeros that would become ones, and samplers from minibatches
(both `peers_others.py`). Error, log score of what is held out, calibration, seconds and memory.

Each method runs in a process of its own, with as many cores and threads as the others. It gets the
matrix in a file and leaves its predictions there. Its packages are loaded before its clock starts.
Wall and processor seconds are of the fit, compilation and predictions included; `tuning` are the
processor seconds of the choice of options before. Memory is the peak of the process, and what the
method adds to its data and packages. A peer that is not installed is in the record, with the
reason. Each record is written again after each method: a run that is cut off leaves what it has.

    pip install -e .[peers]
    python -m benchmarks.prediction.peers --movielens ml-100k [--parts binary ratings]
"""

import importlib
import json
import os
import pickle
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.device import HIDDEN, apart, command_line, keep_to, reset_peak, resident, some
from benchmarks.form import Records, notes, number, page, table, with_error
from benchmarks.prediction import peers_binary, peers_others, peers_ratings
from benchmarks.prediction.peers_form import clocks

PARTS = {
    "binary": peers_binary.METHODS,
    "ratings": peers_ratings.METHODS,
    "recall": peers_others.RECALL,
    "regression": peers_others.REGRESSION,
}
#: Packages whose versions a record adds to the library's own.
PEERS = (
    "scikit-learn", "nimfa", "nbmf-mm", "funsor", "cmfrec", "myfm", "smurff", "implicit", "blackjax"
)  # fmt: skip
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


# ---- one method, in a process of its own ---------------------------------------------------------


def load(part: str, case: str, seed: int, movielens: Path | None):
    """Return the problem, and what scores an answer to it."""
    if part == "binary":
        return peers_binary.problem(case, seed), peers_binary.scores
    if part == "ratings":
        return peers_ratings.problem(movielens, seed + 1), peers_ratings.scores
    if part == "recall":
        return peers_others.recall_problem(seed), peers_others.recall_scores
    return peers_others.regression_problem(seed), peers_others.regression_scores


def measure(part: str, name: str, seed: int, place: Path) -> dict:
    """Run one method on the problem in a file, and leave its answer there; return what it cost."""
    method = PARTS[part][name]
    for package in method.packages:
        importlib.import_module(package)
    asked = pickle.loads(place.read_bytes())
    before = reset_peak()
    began = clocks()
    answer = method.run(asked, seed)
    spent = clocks() - began - answer.tuning
    peak = resident("VmHWM")
    place.write_bytes(pickle.dumps(answer.predicted))
    chosen = answer.chosen.items()
    return {
        "seconds": round(spent[0], 2), "processor": round(spent[1], 2),
        "tuning": round(answer.tuning[1], 2), "peak_mb": round(peak),
        "added_mb": round(peak - before),
        "chosen": {n: v if isinstance(v, (int, float)) else str(v) for n, v in chosen},
    }  # fmt: skip


def in_a_process(part, case, name, seed, options) -> dict:
    """Return the scores of a method, its seconds and memory, or why it could not run."""
    asked, score = load(part, case, seed, options.movielens)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "problem"
        place.write_bytes(pickle.dumps(asked))
        cost = apart(
            "--one", part, name, seed, place, "--threads", options.threads, failed="not_run",
            environment={**os.environ, **dict.fromkeys(THREADS, str(options.threads))},
            patience=options.patience,
        )  # fmt: skip
        if "not_run" in cost:
            return cost
        found = score(asked, pickle.loads(place.read_bytes()))
    return {n: round(_number(v), 5) for n, v in found.items()} | cost


# ---- all of them ---------------------------------------------------------------------------------


def summary(runs: list[dict]) -> dict:
    """Return means of what was measured over the repeats, with standard errors, and the choices."""
    done = [run for run in runs if "not_run" not in run]
    found = {"repeats": len(done), "chosen": [run["chosen"] for run in done]}
    failed = sorted({run["not_run"] for run in runs if "not_run" in run})
    if failed:
        found["not_run"] = "; ".join(failed)
    for figure in (n for n in (done[0] if done else ()) if n != "chosen"):
        values = [run[figure] for run in done]
        found[figure] = round(statistics.mean(values), 5)
        if len(values) > 1:
            found[f"{figure}_error"] = round(statistics.stdev(values) / len(values) ** 0.5, 5)
    return found


def cases_of(part: str, options) -> dict[str, int]:
    """Return the names of the matrices of a part, and the repeats of each."""
    if part == "binary":
        return dict.fromkeys(options.matrices, options.repeats)
    if part == "ratings":
        return {"movielens-100k": options.folds}
    return {"synthetic": 1}


def one_part(part: str, options) -> dict:
    """Run all methods of a part, and write the record after each."""
    from benchmarks.record import versions_of, write_record  # which load JAX

    figures = {"threads": options.threads, "versions_of_peers": versions_of(PEERS), "cases": {}}
    began = time.perf_counter()
    for case, repeats in cases_of(part, options).items():
        rows = figures["cases"].setdefault(case, {})
        for name, method in PARTS[part].items():
            if options.only in name:
                runs = [in_a_process(part, case, name, seed, options) for seed in range(repeats)]
                rows[name] = {"ours": method.ours, **summary(runs)}
                print(part, case, name, rows[name], flush=True)
                figures["seconds_of_all"] = round(time.perf_counter() - began)
                write_record(f"peers_{part}", figures, options.output)
    return figures


NOTES = notes(
    ("39a4c79", "other work ran beside it: compare processor seconds"),
    ("53b50b0", "other work ran beside it: compare processor seconds"),
)  # fmt: skip

ANSWER = """
On one core, each method in a process of its own; the binary matrices and the rest are two runs.
Peers are tuned on a fifth of the training data, but for NumPyro's samplers, which run the same
models. Methods of this library are not tuned.

Missing entries of binary matrices, a fifth of them hidden, three draws of what is hidden. Log score
of the hidden entries, higher is better; the product has five factors and flips of a tenth:

| method | zoo | house votes | random product | processor seconds on the votes, with tuning |
| --- | --- | --- | --- | --- |
| bmfjax ormachine, rank found | **-0.263 ± 0.009** | -0.446 ± 0.011 | **-0.335 ± 0.005** | 46.3 |
| bmfjax ormachine, rank given | -0.346 ± 0.011 | -0.498 ± 0.003 | **-0.335 ± 0.005** | 49.0 |
| bmfjax probit, rank found | -0.286 ± 0.016 | **-0.406 ± 0.008** | -0.406 ± 0.004 | 14.6 |
| bmfjax probit, rank given | -0.281 ± 0.013 | **-0.404 ± 0.007** | -0.404 ± 0.004 | 15.3 |
| bmfjax logistic, exact sampler, rank given | -0.327 ± 0.005 | -0.414 ± 0.006 | -0.402 ± 0.005 | 4.8 |
| bmfjax logistic, variational, rank given | -0.362 ± 0.003 | -0.436 ± 0.005 | -0.400 ± 0.005 | 3.3 |
| bmfjax logistic, variational, rank found | -0.491 ± 0.027 | -0.447 ± 0.006 | -0.423 ± 0.004 | 5.1 |
| bmfjax relaxed, rank given | -0.361 ± 0.004 | -0.466 ± 0.007 | -0.477 ± 0.014 | 5.8 |
| nbmf-mm 0.1 | **-0.257 ± 0.015** | -0.437 ± 0.012 | -0.440 ± 0.006 | 0.3 |
| scikit-learn NMF | -0.295 ± 0.010 | -0.463 ± 0.007 | -0.375 ± 0.006 | 0.2 |
| scikit-learn NMF, thresholded | -0.405 ± 0.011 | -0.542 ± 0.010 | -0.422 ± 0.005 | 0.5 |
| nimfa BMF | -0.348 ± 0.007 | -0.455 ± 0.008 | -0.375 ± 0.005 | 0.7 |
| NumPyro DiscreteHMCGibbs, ormachine, rank given | -0.371 ± 0.025 | -0.521 ± 0.006 | **-0.335 ± 0.005** | 29.9 |
| NumPyro NUTS, logistic, rank given | -0.328 ± 0.006 | -0.414 ± 0.005 | -0.401 ± 0.005 | 13.5 |
| share of ones of each column | -0.530 ± 0.008 | -0.670 ± 0.003 | -0.625 ± 0.007 | 0.0 |

The Boolean model with its rank found is as good as the best peer on the zoo and on random products,
and `probit` is best on the votes. The given ranks, 4, 4 and 5, are too low for the Boolean model on
the zoo and the votes. The variational logistic model counts too few factors when it is to find the
rank.

Held-out ratings, the first fold of MovieLens 100K:

| method | error | log score | 90 % intervals cover | processor seconds, with tuning | peak, MB |
| --- | --- | --- | --- | --- | --- |
| bmfjax pmf | 0.9061 | -1.3053 | 89.3 % | 15.0 | 1,348 |
| bmfjax ordered-probit | 0.9059 | -1.2291 | 97.0 % | 32.8 | 1,692 |
| SMURFF 1.1, BPMF | 0.9062 | -1.3074 | 89.5 % | 21.4 | 522 |
| myFM 0.4, regression | 0.9068 | -1.3104 | 89.5 % | 9.3 | 374 |
| myFM 0.4, ordered probit | 0.9072 | -1.2308 | 97.0 % | 12.7 | 202 |
| cmfrec 3.5 | 0.9308 | -1.3474 | 90.0 % | 3.3 | 191 |

The Bayesian programs say the same. This library needs more time than myFM, and more memory than
all: compilation is a large part of both.

Zeros that become ones, on a synthetic matrix, recall at 10: 0.4325 with bmfjax (5.6 s, compilation
included), 0.3690 and 0.3550 with implicit, tuned (0.2 and 0.6 s).

A regression of 20,000 rows from minibatches of 256, beside exact means and standard deviations:
with `bmfjax.infer.SGLD` means are 0.008 posterior standard deviations off and standard deviations
0.3 %, in 10.4 s. With blackjax, whose step sizes were chosen with the truth known, 0.017 and 3.8 %
with control variates in whitened coordinates, and 0.047 and 2.0 % without whitening, in 6.0 s.
"""  # noqa: E501

#: Figures of every part: name in the record, heading, digits.
COLUMNS = {
    "binary": (
        ("error", "error, hidden", 3), ("error_of_truth", "error, truth of hidden", 3),
        ("error_of_seen", "error, seen", 3), ("log_score", "log score", 3),
        ("calibration_error", "calibration error", 3), ("auc", "AUC", 3),
    ),
    "ratings": (
        ("rmse", "RMSE", 4), ("log_score", "log score", 4), ("coverage", "coverage of 90 %", 3),
        ("width", "width, stars", 2),
    ),
    "recall": (
        ("recall", "recall at 10", 4), ("auc", "AUC", 4),
        ("average_precision", "average precision", 4),
    ),
    "regression": (
        ("mean_error", "means off, posterior sd", 3),
        ("sd_error", "standard deviations off, relative", 3),
        ("coverage", "coverage of 90 %", 3), ("effective_draws", "effective draws", 0),
    ),
}  # fmt: skip

COST = (
    ("seconds", "seconds", 1), ("processor", "processor seconds", 1),
    ("tuning", "processor seconds of tuning", 1), ("peak_mb", "peak, MB", 0),
    ("added_mb", "added, MB", 0),
)  # fmt: skip


@page(__doc__, "peers_*", notes=NOTES)
def tables(records: Records):
    yield (
        "Means over repeats, with standard errors where there are several. Log scores are means of "
        "log probabilities or densities of what was held out, in nats: higher is better. Memory is "
        "the peak of the method's process, and what it adds to its data and packages."
    )
    for name, record in records.items():
        part, found = name.removeprefix("peers_").split("_")[0], record["figures"]
        yield f"## {name}"
        kept = {n: v for n, v in found["versions_of_peers"].items() if v != "not installed"}
        versions = ", ".join(f"{n} {v}" for n, v in kept.items())
        yield f"{found['threads']} thread(s) and core(s) for every method. Versions: {versions}."
        for case, rows in found["cases"].items():
            yield f"### {case}"
            yield from _case(part, rows)


def _case(part: str, rows: dict):
    done = {n: row for n, row in rows.items() if row["repeats"]}
    some = [c for c in (*COLUMNS[part], *COST) if any(c[0] in row for row in done.values())]
    yield table(
        ["method", "repeats", *(title for _, title, _ in some)],
        [
            [
                f"**{name}**" if row["ours"] else name, row["repeats"],
                *(_figure(row, figure, digits) for figure, _, digits in some),
            ]
            for name, row in done.items()
        ],
    )  # fmt: skip
    chosen = [[name, _chosen(row["chosen"])] for name, row in done.items() if any(row["chosen"])]
    yield table(["method", "options"], chosen)
    for name, row in rows.items():
        if "not_run" in row:
            yield f"* {name} did not run: {row['not_run']}"


def _figure(row: dict, figure: str, digits: int) -> str:
    if f"{figure}_error" in row and digits > 1:
        return with_error(row.get(figure), row[f"{figure}_error"], digits)
    return number(row.get(figure), digits)


def _chosen(runs: list[dict]) -> str:
    """Write options, once where they are the same in all repeats."""
    words = [", ".join(f"{n} {v}" for n, v in run.items() if n != "verdict") for run in runs]
    return "; ".join(dict.fromkeys(words))


def main() -> None:
    options = command_line(
        __doc__, parts=some(PARTS), movielens=(Path, "folder of the publisher's folds"),
        folds=(1, "of MovieLens"), matrices=some(peers_binary.CASES),
        repeats=(3, "of every binary matrix"), threads=(1, "and cores, of every method"),
        patience=(900, "seconds of a method at most"), only=("", "methods whose name holds this"),
        one=dict(nargs=4, help=HIDDEN),
    )  # fmt: skip
    if options.one:
        keep_to(options.threads)
        part, name, seed, place = options.one
        print(json.dumps(measure(part, name, int(seed), Path(place))))
        return
    if "ratings" in options.parts and options.movielens is None:
        options.error("the part ratings needs --movielens; give the folder, or other --parts")
    for part in options.parts:
        one_part(part, options)


def _number(value: float) -> float:
    """Return an infinite number as the largest, which JSON has."""
    return float(np.nan_to_num(value))


if __name__ == "__main__":
    main()

"""This library beside programs that a user could pick instead, on the same matrices in one run.

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
    python benchmarks/prediction/peers.py --movielens ml-100k [--parts binary ratings]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.device import parse
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


def reset_peak() -> float:
    """Let the peak of the resident memory start anew; return what is resident now, in MB."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def resident(name: str) -> float:
    """Return the resident memory of this process, or its peak, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(s.split()[1]) for s in lines if s.startswith(f"{name}:")) / 1024


def in_a_process(part, case, name, seed, options) -> dict:
    """Return the scores of a method, its seconds and memory, or why it could not run."""
    asked, score = load(part, case, seed, options.movielens)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "problem"
        place.write_bytes(pickle.dumps(asked))
        words = [sys.executable, __file__, "--one", part, name, str(seed), str(place)]
        words += ["--threads", str(options.threads)]
        environment = {**os.environ, **dict.fromkeys(THREADS, str(options.threads))}
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, env=environment, timeout=options.patience
            )
        except subprocess.TimeoutExpired:
            return {"not_run": f"given up after {options.patience} s"}
        if done.returncode:
            return {"not_run": (done.stderr.strip().split("\n") or ["no message"])[-1][:200]}
        found = score(asked, pickle.loads(place.read_bytes()))
    cost = json.loads(done.stdout.strip().split("\n")[-1])
    return {n: round(_number(v), 5) for n, v in found.items()} | cost


def keep_to(threads: int) -> None:
    """Run this process on so many cores, before JAX is loaded, which makes a thread for each."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--movielens", type=Path, help="folder of the publisher's folds")
    parser.add_argument("--folds", type=int, default=1, help="of MovieLens")
    parser.add_argument(
        "--matrices", nargs="+", choices=list(peers_binary.CASES), default=list(peers_binary.CASES)
    )
    parser.add_argument("--repeats", type=int, default=3, help="of every binary matrix")
    parser.add_argument("--threads", type=int, default=1, help="and cores, of every method")
    parser.add_argument("--patience", type=int, default=900, help="seconds of a method at most")
    parser.add_argument("--only", default="", help="methods whose name holds this")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parse(parser)
    if options.one:
        keep_to(options.threads)
        part, name, seed, place = options.one
        print(json.dumps(measure(part, name, int(seed), Path(place))))
        return
    if "ratings" in options.parts and options.movielens is None:
        parser.error("the part ratings needs --movielens; give the folder, or other --parts")
    for part in options.parts:
        one_part(part, options)


def _number(value: float) -> float:
    """Return an infinite number as the largest, which JSON has."""
    return float(np.nan_to_num(value))


if __name__ == "__main__":
    main()

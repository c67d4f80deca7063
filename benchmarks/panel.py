"""How well are hidden entries of real binary matrices predicted, beside plain tuned models?

A tenth of the observed entries of twelve matrices is hidden. Models of bmfjax with the number of
factors found (``rank="auto"``), and tuned latent classes, logistic factorisation and nonnegative
factorisation, give each hidden entry a probability. Told are the mean log probability (nats), the
area under the ROC curve, the calibration error in ten bins of equal width, and the 95 % quantile
that this error has by chance where a model's own probabilities are true; seconds of the processor
with all compilation, and the verdict.

The matrices are not part of bmfjax: the folder holds them as ``NAME/FILE.npz`` with `shape`, and
either `bits` (packed rows) or `indptr` and `indices` of the ones, and those of missing entries as
`mask_indptr` and `mask_indices`. Sets whose files are absent are left out.

    python benchmarks/panel.py --data FOLDER
    python benchmarks/panel.py --data FOLDER --sets zoo votes --models "latent classes" nmf
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from device import parse
from panel_baselines import TUNED, column_means, log_score, tuned

#: Where a set lies, and the most rows and columns that are taken of it.
SETS = {
    "bob-ross": ("bob-ross/bob-ross.npz", 403, 67),
    "fraction": ("cognitive-diagnosis/fraction-subtraction-536x20.npz", 536, 20),
    "animals": ("animals-with-attributes/animals.npz", 50, 85),
    "lastfm": ("lastfm-usergroup/lastfm-1226x285.npz", 1226, 285),
    "news100": ("newsgroups/20news-w100.npz", 2000, 100),
    "pancan": ("tcga/pancan*.npz", 2000, 66),
    "pbmc": ("scrna/pbmc*.npz", 700, 300),
    "mushroom": ("uci-mushroom/*.npz", 1500, 117),
    "votes": ("uci-house-votes-84/*.npz", 435, 16),
    "zoo": ("uci-zoo/*.npz", 101, 21),
    "bci": ("ecology/bci-trees.npz", 50, 225),
    "dna": ("density-benchmarks/dna.npz", 1500, 180),
}
#: Models of bmfjax: the value's class, and what differs from its defaults.
FITS = {
    "one rate": ("OrMachine", {"num_rates": 1}),
    "two rates": ("OrMachine", {"num_rates": 2}),
    "features, signed": ("Features", {"weights": "signed"}),
    "features, positive": ("Features", {"weights": "positive"}),
}
MODELS = ("column means", *TUNED, *FITS)
#: Times that the calibration error is drawn, for its quantile by chance.
DRAWN = 500


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the ones and the observed entries of a file, both (rows, columns) bool."""
    with np.load(path) as file:
        rows, columns = file["shape"]

        def listed(prefix):
            found = np.zeros((rows, columns), bool)
            counts = np.diff(file[f"{prefix}indptr"])
            found[np.repeat(np.arange(rows), counts), file[f"{prefix}indices"]] = True
            return found

        if "bits" in file:
            ones = np.unpackbits(file["bits"], axis=1, count=columns, bitorder="little") > 0
        else:
            ones = listed("")
        missing = listed("mask_") if "mask_indptr" in file else np.zeros_like(ones)
    return ones, ~missing


def split(path: Path, most_rows: int, most_columns: int, seed: int = 0):
    """Return ones, the entries that are shown, and those that are hidden."""
    ones, observed = read(path)
    rng = np.random.default_rng(123 + seed)
    for axis, most in enumerate((most_rows, most_columns)):
        some = np.sort(rng.permutation(ones.shape[axis])[:most])
        ones, observed = (np.take(array, some, axis) for array in (ones, observed))
    used = (ones & observed).sum(0) >= 3
    ones, observed = ones[:, used], observed[:, used]
    hidden = observed & (rng.random(ones.shape) < 0.1)
    return ones, observed & ~hidden, hidden


def calibration_error(chance, ones) -> float:
    """Return the mean distance of probabilities and shares of ones, in ten bins."""
    bins = np.clip((10 * chance).astype(int), 0, 9)
    sums = np.bincount(bins, chance - ones, minlength=10)
    return float(np.abs(sums).sum() / len(chance))


def scores(probability, ones, hidden) -> dict:
    """Return how well the hidden entries were predicted."""
    chance, truth = probability[hidden].astype(float), ones[hidden]
    ranks = chance.argsort(kind="stable").argsort(kind="stable") + 1.0
    number = truth.sum()
    pairs = number * (len(truth) - number)
    rng = np.random.default_rng(0)
    by_chance = [calibration_error(chance, rng.random(len(chance)) < chance) for _ in range(DRAWN)]
    return {
        "log_score": log_score(probability, ones, hidden),
        "auc": float((ranks[truth].sum() - number * (number + 1) / 2) / pairs),
        "calibration_error": calibration_error(chance, truth),
        "calibration_error_by_chance": float(np.quantile(by_chance, 0.95)),
    }


def fitted(name: str, ones, shown, max_time: float | None, seed: int) -> tuple[np.ndarray, dict]:
    """Fit a model of bmfjax; return the probabilities of ones, and what is told of the fit."""
    import bmfjax

    values = np.where(shown, ones.astype(float), np.nan)
    limit = {} if max_time is None else {"max_time": max_time}
    model, options = FITS[name]
    model = getattr(bmfjax, model)("auto", **options)
    fit = bmfjax.fit(values, model, seed=seed, progress=False, **limit)
    told = {"rank": int(fit.rank), "verdict": str(fit.verdict)}
    return np.asarray(fit.probability()), told


def one(options) -> None:
    """Score one model on one set, and write what was found."""
    pattern, *most = SETS[options.one[0]]
    ones, shown, hidden = split(next(options.data.glob(pattern)), *most)
    name, told = options.one[1], {}
    began, cpu = time.perf_counter(), os.times()
    if name == "column means":
        probability = column_means(ones, shown)
    elif name in TUNED:
        probability, told = tuned(name, ones, shown)
    else:
        probability, told = fitted(name, ones, shown, options.max_time, options.seed)
    spent = os.times()
    found = scores(probability, ones, hidden) | told
    found |= {
        "shape": list(ones.shape),
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(spent.user - cpu.user + spent.system - cpu.system, 1),
    }
    options.found.write_text(json.dumps(found))


def in_a_process(options, name: str, model: str) -> dict:
    """Score a model in a process of its own: what is compiled is counted each time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        command = [sys.executable, __file__, "--data", options.data, "--one", name, model]
        command += ["--found", path, "--seed", str(options.seed)]
        if options.max_time is not None:
            command += ["--max-time", str(options.max_time)]
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if ended.returncode or not path.exists():
            return {"stopped": " / ".join(ended.stderr.strip().splitlines()[-2:])[-300:]}
        return json.loads(path.read_text())


def main() -> None:
    """Score all models on all sets."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the matrices")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--max-time", type=float, help="seconds of a fit; default: its own")
    parser.add_argument("--seed", type=int, default=0, help="of the fits")
    parser.add_argument("--jobs", type=int, default=1, help="fits at once")
    parser.add_argument("--commit", help="of the code, where there is no repository to ask")
    parser.add_argument("--one", nargs=2, metavar=("SET", "MODEL"), help=argparse.SUPPRESS)
    parser.add_argument("--found", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    if options.one:
        one(options)
        return
    from record import write_record

    figures = {
        "max_time": options.max_time, "seed": options.seed, "jobs": options.jobs, "sets": {},
    }  # fmt: skip
    absent = [name for name in options.sets if not any(options.data.glob(SETS[name][0]))]
    for name in absent:
        print(f"{name}: no file {SETS[name][0]} in the folder; left out", flush=True)
    for name in options.sets:
        if name not in absent:
            figures["sets"][name] = {}
    pairs = [(name, model) for model in options.models for name in figures["sets"]]
    with ThreadPoolExecutor(options.jobs) as pool:
        asked = {pool.submit(in_a_process, options, *pair): pair for pair in pairs}
        for done in as_completed(asked):
            name, model = asked[done]
            figures["sets"][name][model] = done.result()
            print(name, model, done.result(), flush=True)
            # What has been found stays if the rest is cut off.
            path = write_record("panel", figures, options.output, commit=options.commit)
    print(path)


if __name__ == "__main__":
    main()

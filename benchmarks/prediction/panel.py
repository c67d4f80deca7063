"""How well are hidden entries of real binary matrices predicted, beside plain tuned models?

A tenth of the observed entries of twelve matrices is hidden. Models of bmfjax with the number of
factors found (``rank="auto"``), and tuned latent classes, logistic factorisation and nonnegative
factorisation, give each hidden entry a probability. Told are the mean log probability (nats), the
area under the ROC curve, the calibration error in ten bins of equal width, and two 95 % quantiles
that this error has by chance where a model is true: "by chance" draws hidden entries independently
with the probabilities, "by draws" draws all of them from one draw of the posterior at a time, since
what is not known of a row or a column they have in common; seconds of the processor with all
compilation, and the verdict.

What a record holds of other sets and models stays in it. With ``--resume`` what it holds of those
that are asked for is not found again.

The matrices are not part of bmfjax: the folder holds them as ``NAME/FILE.npz`` with `shape`, and
either `bits` (packed rows) or `indptr` and `indices` of the ones, and those of missing entries as
`mask_indptr` and `mask_indices`. Sets whose files are absent are left out.

    python benchmarks/prediction/panel.py --data FOLDER
    python benchmarks/prediction/panel.py --data FOLDER --max-cpu 120 --resume
    python benchmarks/prediction/panel.py --data FOLDER --sets zoo --models "latent classes" nmf
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.device import parse
from benchmarks.prediction.panel_baselines import TUNED, column_means, log_score, tuned

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


def fitted(name: str, ones, shown, hidden, options) -> tuple[np.ndarray, dict]:
    """Fit a model of bmfjax; return the probabilities of ones, and what is told of the fit."""
    import bmfjax

    limit = {} if options.max_time is None else {"max_time": options.max_time}
    if options.max_cpu is not None:
        # The clock of a fit is a monotonic one: other work on the machine takes nothing of it then.
        time.monotonic, limit = time.process_time, {"max_time": options.max_cpu}
    values = np.where(shown, ones.astype(float), np.nan)
    model, parameters = FITS[name]
    model = getattr(bmfjax, model)("auto", **parameters)
    fit = bmfjax.fit(values, model, seed=options.seed, progress=False, **limit)
    told = {"rank": int(fit.rank), "verdict": str(fit.verdict)}
    probability = np.asarray(fit.probability())
    rows, columns = np.nonzero(hidden)
    drawn = [calibration_error(probability[hidden], y) for y in fit._replicated(rows, columns)]
    told["calibration_error_by_draws"] = float(np.quantile(drawn, 0.95))
    if options.fits is not None:
        fit.save(options.fits / f"{options.one[0]} {name}".replace(" ", "-").replace(",", ""))
    return probability, told


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
        probability, told = fitted(name, ones, shown, hidden, options)
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
        for name in ("max_time", "max_cpu", "fits"):
            if (value := getattr(options, name)) is not None:
                command += ["--" + name.replace("_", "-"), str(value)]
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
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--max-time", type=float, help="seconds of a fit; default: its own")
    limit.add_argument("--max-cpu", type=float, help="processor seconds of a fit in place of it")
    parser.add_argument("--seed", type=int, default=0, help="of the fits")
    parser.add_argument("--resume", action="store_true", help="leave what the record holds")
    parser.add_argument("--fits", type=Path, help="folder in which fits are saved")
    parser.add_argument("--commit", help="of the code, where there is no repository to ask")
    parser.add_argument("--one", nargs=2, metavar=("SET", "MODEL"), help=argparse.SUPPRESS)
    parser.add_argument("--found", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    if options.one:
        one(options)
        return
    from benchmarks.record import commit_of, write_record
    from benchmarks.tables import RESULTS

    record = (options.output or RESULTS) / "panel.json"

    def held() -> dict:
        return json.loads(record.read_text())["figures"]["sets"] if record.exists() else {}

    for name, model in itertools.product(options.sets, options.models):
        if not any(options.data.glob(SETS[name][0])):
            print(f"{name}: no file {SETS[name][0]} in the folder; left out", flush=True)
            continue
        if options.resume and "log_score" in held().get(name, {}).get(model, {}):
            continue
        found = in_a_process(options, name, model) | {
            "seed": options.seed, "max_time": options.max_time, "max_cpu": options.max_cpu,
            "commit": options.commit or commit_of(),
        }  # fmt: skip
        print(name, model, found, flush=True)
        # What has been found stays if the rest is cut off, and what another run found meanwhile.
        sets = held()
        sets.setdefault(name, {})[model] = found
        write_record("panel", {"sets": sets}, options.output, commit=options.commit)


if __name__ == "__main__":
    main()

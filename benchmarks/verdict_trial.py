"""Is what the verdict says of the three parts of a fit right? Each part is put on trial.

A tenth of the entries is hidden. Every matrix is fitted twice, from different seeds, and the
verdict of the first fit is held to what it could not see:

* predictions do hold if the probabilities of hidden entries are calibrated as well as true ones are
  in 95 % of cases, and are within 0.05 of those of the second fit in 99 % of these entries, beyond
  the Monte Carlo error that both fits say;
* a factor does hold if the second fit has it, too: a tile that is at least 0.8 alike;
* the number of factors does hold if it is the most probable one of the second fit, too.

Of the parts that are said to hold the share that do not is counted, and of those that are refused
the share that would have passed. Matrices are those that ship, and planted ones: tiles under flips
of which the ones are more often missing, and effects of rows and columns that no model of tiles
has. Planted ones are fitted with their number of factors unknown.

    python benchmarks/verdict_trial.py --output trial.json
    python benchmarks/verdict_trial.py --sets zoo --models features --planted 4 --budget 600
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from device import parse
from record import write_record
from scipy.optimize import linear_sum_assignment

import bmfjax
from bmfjax.posterior.model_check import calibration
from bmfjax.posterior.modes import SAME, Solutions, tile_cosines
from bmfjax.posterior.scores import predictive
from bmfjax.specs.run import ACCURATE

SETS = {"house-votes": 4, "zoo": 6, "bob-ross": 6, "davis": 2}
MODELS = ("ormachine", "features", "probit")
ROWS, COLUMNS, TILES, MOST = 150, 40, 3, 6


def planted(seed: int) -> np.ndarray:
    """Return tiles under flips of two rates, and of every second seed effects besides."""
    rng = np.random.default_rng(seed)
    usage, basis = rng.random((ROWS, TILES)) < 0.3, rng.random((COLUMNS, TILES)) < 0.3
    chance = np.where(usage.astype(int) @ basis.T.astype(int) > 0, 0.7, 0.1)
    if seed % 2:
        odds = np.log(chance / (1 - chance))
        odds += rng.normal(0, 0.7, (ROWS, 1)) + rng.normal(0, 1.0, COLUMNS)
        chance = 1 / (1 + np.exp(-odds))
    return (rng.random(chance.shape) < chance).astype(float)


def hidden_tenth(values: np.ndarray, seed: int) -> tuple[np.ndarray, tuple]:
    """Return the matrix without a tenth of its observed entries, and these."""
    i, j = np.nonzero(~np.isnan(values))
    chosen = np.random.default_rng(seed).permutation(len(i))[: len(i) // 10]
    i, j = i[chosen], j[chosen]
    left = values.copy()
    left[i, j] = np.nan
    return left, (i, j, values[i, j])


def chances(fit, cells) -> np.ndarray:
    """Return the probability of a one of each cell."""
    i, j, values = cells
    return np.exp(predictive(fit, (i, j, np.ones_like(values))))


def predictions_hold(fit, other, cells) -> tuple[bool, dict]:
    """Hold the predictions of a fit to hidden entries, and to those of another fit."""
    one, two = chances(fit, cells), chances(other, cells)
    _, wrong, by_chance = calibration(one, cells[2] > 0.5)
    error = np.hypot(*(f.figures.get("mc_error") for f in (fit, other)))
    apart = max(0.0, float(np.quantile(abs(one - two), 0.99)) - 1.5 * float(error))
    figures = {"calibration_error": wrong, "by_chance": by_chance, "apart": apart}
    return bool(wrong <= by_chance and apart <= ACCURATE), figures


def found_again(fit, other) -> list[bool]:
    """Say of each factor whether the other fit has it."""
    one, two = (Solutions(f.usage[None], f.basis[None]) for f in (fit, other))
    cosines = tile_cosines(one, two)[0, :, 0]
    mine, theirs = linear_sum_assignment(cosines, maximize=True)
    alike = np.zeros(fit.rank)
    alike[mine] = cosines[mine, theirs]
    return (alike >= SAME).tolist()


def tried(name: str, values, rank, model: str, options) -> dict:
    """Fit a matrix twice, and hold what the first verdict says to the truth."""
    data, cells = hidden_tenth(values, options.seed)
    more = {"model": model, "max_time": options.max_time, "progress": False}
    more |= {"max_rank": MOST} if rank == "auto" else {}
    began = time.process_time()
    fit, other = (
        bmfjax.fit(data, rank, seed=seed, **more) for seed in (options.seed, options.seed + 1)
    )
    judged, again = fit.verdict, found_again(fit, other)
    true, figures = predictions_hold(fit, other, cells)
    names = {n: k for k, n in enumerate(fit.factor_names)}
    parts = [{"part": "predictions", "said": str(judged.predictions.status), "true": true}]
    if judged.factors.counts:
        yet = judged.factors.status == "not yet"
        for said, which in (
            ("not yet" if yet else "holds", "holding"), ("does not hold", "differing"),
        ):  # fmt: skip
            for factor in getattr(judged.factors, which):
                at = names.get(factor, names.get(f"factor {factor}"))
                parts.append({"part": "factor", "said": said, "true": again[at]})
    if not judged.number.given:
        same = judged.number.rank == other.verdict.number.rank
        parts.append({"part": "number", "said": str(judged.number.status), "true": same})
    return {
        "data": name, "model": model, "rank": rank, "verdict": str(judged), "parts": parts,
        "cpu_seconds": round(time.process_time() - began, 1), **figures,
    }  # fmt: skip


def table(runs: list[dict]) -> list[dict]:
    """Count, for each part, what is said to hold and does not, and what is refused and would."""
    parts, rows = [part for run in runs for part in run["parts"]], []
    for name in ("predictions", "factor", "number"):
        own = [part for part in parts if part["part"] == name]
        said = [part["true"] for part in own if part["said"] == "holds"]
        refused = [part["true"] for part in own if part["said"] != "holds"]
        rows.append(
            {
                "part": name, "said to hold": len(said), "of these wrong": said.count(False),
                "refused": len(refused), "of these right": refused.count(True),
            }
        )  # fmt: skip
    return rows


def cases(options):
    """Yield name, matrix, rank and model of every case; planted ones first."""
    for seed in range(options.planted):
        for model in options.models:
            yield f"planted {seed}", planted(seed), "auto", model
    for name in options.sets:
        data = bmfjax.load(name)
        for model in options.models:
            yield name, np.asarray(data.dense(), float), SETS[name], model


def main() -> None:
    """Run the trial, and write its record after every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", choices=SETS, default=list(SETS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--planted", type=int, default=40, help="planted matrices")
    parser.add_argument("--max-time", type=float, default=60.0, help="seconds of a fit")
    parser.add_argument("--budget", type=float, help="CPU seconds after which no case begins")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    began, runs = time.process_time(), []
    for case in cases(options):
        if options.budget is not None and time.process_time() - began > options.budget:
            break
        runs.append(tried(*case, options))
        print(runs[-1]["data"], runs[-1]["model"], runs[-1]["verdict"], flush=True)
        record = {"max_time": options.max_time, "table": table(runs), "runs": runs}
        write_record("verdict_trial", record, options.output)
    for row in table(runs):
        print(row)


if __name__ == "__main__":
    main()

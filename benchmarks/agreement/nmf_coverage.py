"""How much of the solution set of a nonnegative factorisation do samplers see?

The study of Masood, Pan, Doshi-Velez 2016 (tables 1 to 8, figures 5 to 10) on their six data sets,
with two rows more: Gibbs with changes of basis, and with soft walls besides (`bmfjax.NMFGibbs`).
Figures of each row are means over the repetitions and their quartiles. The paper does not state
its noise: .001 gives the angles of its tables 3 and 7 (the log likelihoods of table 1 are in units
of the noise and say nothing of it).

    python benchmarks/agreement/nmf_coverage.py [--quick] [--only SET ...] [--rows ROW ...]
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("JAX_ENABLE_X64", "1")

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from bmfjax.diagnostics import (
    coverage,
    embedded,
    integrated_time,
    laurberg,
    pairwise_distances,
    solution_line,
)
from bmfjax.infer import round_trips, wall_ladder

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.agreement import nmf_samplers as ways
from benchmarks.device import parse
from benchmarks.record import RESULTS, write_record

NOISE = 1e-3
SMALL = {"one mode": laurberg(0.3), "two modes": laurberg(0.5), "infinite modes": solution_line()}
SETS = {f"small, {n}": p for n, p in SMALL.items()}
SETS |= {f"large, {n}": embedded(p) for n, p in SMALL.items()}
#: Hardness of the soft walls. Only where solutions are apart: on the line moves reach them all, and
#: at rank 6 many more entries are at the walls and many more replicas needed. On the large set
#: chains pass from one solution to the other from 100 downwards; below 750 neighbours are close.
WALLS = {
    "small, one mode": wall_ladder(2e4, 2.0, 20),
    "small, two modes": wall_ladder(2e4, 2.0, 20),
    "large, two modes": (2e4, 7e3, 2.8e3, 1.3e3, *wall_ladder(750.0, 80.0, 16)),
}
ROWS = {
    "One Mode": lambda case, seed: ways.baseline(case, False, seed),
    "All Modes": lambda case, seed: ways.baseline(case, True, seed),
    "Random Restarts": lambda case, seed: ways.restarts(case, seed),
    "Gibbs": lambda case, seed: ways.gibbs(case, seed),
    "HMC": lambda case, seed: ways.hmc(case, seed),
    "HMC without Jacobian": lambda case, seed: ways.hmc(case, seed, jacobian=False),
    "Gibbs with moves": lambda case, seed: ways.gibbs(case, seed, ("basis", "lines")),
    "Gibbs behind walls": lambda case, seed: ways.gibbs(case, seed, ("basis", "lines"), case.walls),
}
FILTERED = "Random Restarts (filtered)"
#: Means of the paper: log likelihood, IAT, largest and mean angle, largest and mean l1 distance.
PAPER = {
    "small, one mode": {
        "One Mode": (-17.4, 1.009, 0.185, 0.069, 0.0, 0.0),
        "All Modes": (-17.4, 1.009, 0.185, 0.069, 0.0, 0.0),
        "Random Restarts": (-1120, 1.014, 34.763, 0.873, 0.697, 0.019),
        FILTERED: (-230, 1.014, 4.184, 0.615, 0.091, 0.01),
        "Gibbs": (-23.8, 728.498, 0.289, 0.11, 0.01, 0.0),
        "HMC": (-19.3, 837.699, 0.221, 0.09, 0.0, 0.0),
    },
    "small, two modes": {
        "One Mode": (-17.2, 1.009, 0.152, 0.06, 0.0, 0.0),
        "All Modes": (-17.0, 1.004, 36.965, 18.467, 0.67, 0.33),
        "Random Restarts": (-2170, 1.013, 38.132, 18.61, 0.738, 0.34),
        FILTERED: (-281, 1.013, 37.895, 18.563, 0.694, 0.34),
        "Gibbs": (-23.8, 677.867, 0.278, 0.102, 0.01, 0.0),
        "HMC": (-18.8, 813.753, 0.219, 0.089, 0.0, 0.0),
    },
    "small, infinite modes": {
        "One Mode": (-22.0, 1.008, 0.187, 0.078, 0.009, 0.0),
        "All Modes": (-21.8, 1.008, 44.973, 16.572, 1.0, 0.373),
        "Random Restarts": (-1.2e5, 1.009, 90.0, 27.261, 2.0, 0.566),
        FILTERED: (-320, 1.009, 44.99, 12.835, 1.004, 0.284),
        "Gibbs": (-42.1, 313.22, 1.187, 0.371, 0.032, 0.011),
        "HMC": (-20.9, 710.851, 16.229, 5.16, 0.383, 0.123),
    },
    "large, one mode": {
        "One Mode": (-1.22e4, 1.01, 0.01, 0.01, 0.0, 0.0),
        "All Modes": (-1.22e4, 1.01, 0.01, 0.01, 0.0, 0.0),
        "Random Restarts": (-1.68e6, 1.011, 25.504, 5.172, 0.444, 0.077),
        FILTERED: (-1.0e6, 1.009, 16.326, 4.293, 0.258, 0.062),
        "Gibbs": (-1.25e4, 645.903, 0.027, 0.02, 0.0, 0.0),
        "HMC": (-1.25e4, 1173.558, 0.092, 0.041, 0.0, 0.0),
    },
    "large, two modes": {
        "One Mode": (-1.22e4, 1.01, 0.01, 0.01, 0.0, 0.0),
        "All Modes": (-1.22e4, 1.011, 10.779, 5.38, 0.16, 0.08),
        "Random Restarts": (-3.6e6, 1.012, 22.131, 3.467, 0.382, 0.051),
        FILTERED: (-1.09e6, 1.082, 5.084, 2.457, 0.075, 0.036),
        "Gibbs": (-1.25e4, 524.915, 0.02, 0.02, 0.0, 0.0),
        "HMC": (-1.25e4, 1105.867, 0.072, 0.033, 0.0, 0.0),
    },
    "large, infinite modes": {
        "One Mode": (-1.2e4, 1.01, 0.01, 0.01, 0.0, 0.0),
        "All Modes": (-1.2e4, 1.008, 21.412, 7.935, 0.348, 0.129),
        "Random Restarts": (-1.82e6, 1.005, 42.943, 16.088, 0.985, 0.258),
        FILTERED: (-9.98e5, 1.014, 35.901, 11.978, 0.796, 0.186),
        "Gibbs": (-1.25e4, 1067.452, 0.202, 0.108, 0.0, 0.0),
        "HMC": (-1.25e4, 1077.456, 0.556, 0.307, 0.01, 0.001),
    },
}
NAMES = ("log_likelihood", "iat", "angle_max", "angle_mean", "l1_max", "l1_mean")


def summarise(usages, likelihoods, thin) -> tuple[dict, dict]:
    """Figures of every repetition, and their mean covering numbers on a common grid of radii."""
    found, distances = {n: [] for n in NAMES}, {"angle": [], "l1": []}
    for usage, likelihood in zip(usages, likelihoods, strict=True):
        found["log_likelihood"].append(float(np.mean(likelihood)))
        time = np.nan
        if len(usage) >= 8:
            time = thin * np.nanmean(integrated_time(usage[None]))
        found["iat"].append(float(time))
        for metric, table in distances.items():
            if not len(usage):
                continue
            table.append(pairwise_distances(usage, metric=metric))
            found[f"{metric}_max"].append(float(table[-1].max()))
            found[f"{metric}_mean"].append(float(table[-1].mean()))
    curves = {}
    for metric, tables in distances.items():
        grids = [coverage(t) for t in tables]
        if not grids:
            continue
        radii = np.linspace(0.0, max(g.largest for g in grids), 100)
        steps = [g.covering[np.searchsorted(g.radii, radii, "right") - 1] for g in grids]
        steps = [np.where(radii >= g.largest, 1, s) for g, s in zip(grids, steps, strict=True)]
        curves[metric] = {"radius": radii, "covering": np.mean(steps, 0)}
    return {n: _quartiles(v) for n, v in found.items()}, curves


def _quartiles(values) -> list:
    values = [v for v in values if np.isfinite(v)]
    if not values:
        return [None] * 4
    return [float(f"{v:.5g}") for v in (np.mean(values), *np.quantile(values, [0.25, 0.5, 0.75]))]


def study(case, rows, seed) -> tuple[dict, dict]:
    """All rows on one data set."""
    table, curves, least = {}, {}, None
    order = sorted(rows, key=lambda r: r == "Random Restarts")  # the filter needs Gibbs
    for row in order:
        found = ROWS[row](case, seed)
        thin = ways.every(case) if "Gibbs" in row or "HMC" in row else 1
        table[row], curves[row] = summarise(found.usage, found.log_likelihood, thin)
        table[row] |= {"seconds": round(found.seconds, 1)} | _travel(found, case)
        if row == "Gibbs":
            least = found.log_likelihood.min()
        print(row, table[row], flush=True)
        if row == "Random Restarts" and least is not None:
            chosen = ways.filtered(found, least)
            likelihoods = [v[v >= 100.0 * least] for v in found.log_likelihood]
            table[FILTERED], curves[FILTERED] = summarise(chosen, likelihoods, 1)
            table[FILTERED]["kept"] = [len(c) for c in chosen]
            print(FILTERED, table[FILTERED], flush=True)
    return table, curves


def _travel(found, case) -> dict:
    """Return round trips and swaps behind walls, and what was seen of two solutions."""
    extra = {n: v for n, v in found.extra.items() if n == "acceptance"}
    if "replica" in found.extra:
        extra["round_trips"] = round_trips(found.extra["replica"]).tolist()
        swaps = np.nanmean(found.extra["swap_probability"], (0, 1))
        extra["swaps"] = [round(float(s), 2) for s in swaps]
    first, second = (case.problem.solution(t)[0] for t in (0.0, 1.0))
    apart = pairwise_distances(first[None], second[None])[0, 0]
    if case.problem.rank == 3 and apart > 1:
        nearer = [
            (pairwise_distances(u, first[None]) < pairwise_distances(u, second[None]))[:, 0]
            for u in found.usage
        ]
        extra["share_of_the_first_solution"] = [round(float(s.mean()), 3) for s in nearer]
        # From the first to the second, and back, among the draws that are kept.
        steps = [np.diff(s.astype(int)) for s in nearer]
        extra["crossings"] = [[int((s == way).sum()) for way in (-1, 1)] for s in steps]
    return extra


def draw(curves, path) -> None:
    """Covering numbers by radius: a line a row, a pair of panels a data set (figures 5 to 10)."""
    figure, panels = plt.subplots(
        len(curves), 2, figsize=(10, 3.1 * len(curves)), squeeze=False, layout="constrained"
    )
    for axes_of_set, (name, rows) in zip(panels, curves.items(), strict=True):
        for axes, metric in zip(axes_of_set, ("angle", "l1"), strict=True):
            for row, found in rows.items():
                if metric in found:
                    style = "--" if "Mode" in row else "-"
                    axes.step(
                        found[metric]["radius"], found[metric]["covering"], style,
                        where="post", label=row, color=f"C{[*ROWS, FILTERED].index(row)}",
                    )  # fmt: skip
            axes.set_yscale("log")
            axes.set_title(f"{name}: {'angle in degrees' if metric == 'angle' else 'l1 distance'}")
            axes.set_xlabel("radius")
            axes.set_ylabel("draws that cover all")
    panels[0, 1].legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS), metavar="SET")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--draws", type=int, default=10_000, help="of each repetition")
    parser.add_argument(
        "--warmup", type=int, default=0, help="draws of Gibbs before those; the paper has none"
    )
    parser.add_argument("--kept", type=int, default=1000, help="draws that are compared")
    parser.add_argument("--quick", action="store_true", help="2 repetitions of 200, small sets")
    parser.add_argument(
        "--exact", action="store_true",
        help="data without noise, of which by symmetry two solutions have equal shares",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="nmf_coverage", help="of the record")
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    if options.quick:
        options.repetitions, options.draws, options.kept = 2, 200, 100
        options.only = [s for s in options.only if s.startswith("small")]
    tables, curves = {}, {}
    for name in options.only:
        problem = SETS[name]
        noise = 0.0 if options.exact else NOISE
        noise = noise * np.random.default_rng(options.seed).normal(size=problem.exact.shape)
        case = ways.Case(
            problem, problem.exact + noise, NOISE, options.repetitions, options.draws, options.kept,
            options.warmup, WALLS.get(name),
        )  # fmt: skip
        print(name, flush=True)
        rows = [r for r in options.rows if "walls" not in r or name in WALLS]
        tables[name], curves[name] = study(case, rows, options.seed)
        paper = {r: dict(zip(NAMES, v, strict=True)) for r, v in PAPER[name].items()}
        tables[name]["paper"] = paper
        of_run = ("repetitions", "draws", "warmup")
        settings = {"noise": NOISE} | {n: getattr(options, n) for n in of_run}
        figures = settings | {"compared": options.kept, "sets": tables}
        path = write_record(options.name, figures, options.output)
        draw(curves, (options.output or RESULTS) / f"{options.name}.png")
    print(path)


if __name__ == "__main__":
    main()

"""Which nonnegative factorisations does a chain see?

The study of Masood, Pan, Doshi-Velez 2016 (tables 1 to 8, figures 5 to 10) on their six data sets,
with two rows more: Gibbs with changes of basis, and with soft walls besides (`bmfjax.NMFGibbs`).
Figures of each row are means over the repetitions and their quartiles. The paper does not state
its noise: 0.001 gives the angles of its tables 3 and 7.
"""

import os

os.environ.setdefault("JAX_ENABLE_X64", "1")


import matplotlib.pyplot as plt
import numpy as np

from benchmarks.agreement import nmf_samplers as ways
from benchmarks.device import script, some
from benchmarks.form import SECONDS, number, page, table
from bmfjax.diagnostics import (
    coverage,
    embedded,
    integrated_time,
    laurberg,
    pairwise_distances,
    solution_line,
)
from bmfjax.infer import round_trips, wall_ladder

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
        for metric, found_of in distances.items():
            if not len(usage):
                continue
            found_of.append(pairwise_distances(usage, metric=metric))
            found[f"{metric}_max"].append(float(found_of[-1].max()))
            found[f"{metric}_mean"].append(float(found_of[-1].mean()))
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
        extra["draws"] = found.log_likelihood.shape[1]
        extra["share_of_the_first_solution"] = [round(float(s.mean()), 3) for s in nearer]
        extra["share_by_tenth"] = [
            [round(float(part.mean()), 3) for part in np.array_split(s, 10)] for s in nearer
        ]
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


NOTES = [
    ("ed7326c", SECONDS), ("c78ced3", SECONDS), ("656d8a8", SECONDS), ("c778fdf", SECONDS),
]  # fmt: skip

ANSWER = """
Gibbs and Hamiltonian chains stay with the solution at which they start; with changes of basis a
chain sweeps a line of solutions, 44.9 degrees wide, of which Gibbs sees 4.3 degrees. Solutions that
are apart are reached behind soft walls only. This repeats the study of Masood, Pan and Doshi-Velez
(2016); in brackets are the paper's figures.

| sampler | two solutions: IAT | mean angle | a line of them: IAT | largest angle |
| --- | --- | --- | --- | --- |
| All Modes, the aim | 0.99 (1.00) | 18.45 (18.47) | 0.99 (1.01) | 44.93 (44.97) |
| Gibbs | 698 (678) | 0.101 (0.102) | 275 (313) | 4.31 (1.19) |
| HMC | 897 (814) | 0.091 (0.089) | 966 (711) | 24.05 (16.23) |
| Gibbs with moves | 9.84 | 0.101 | 9.98 | 44.91 |
| Gibbs behind walls | 105 | 0.856 | | |

IAT is the integrated autocorrelation time. The noise decides between the two solutions: after
10,000 draws of warm-up the first has a share of 0 to 0.010 of the draws behind walls, from either
start. Without noise both have one half by symmetry, and chains behind walls give 0.393 to 0.568.
The paper does not state its noise.

The large sets (500 x 50) are at the paper's full protocol too, ten repetitions of 10,000 draws:

* The paper's embedding does not keep the number of solutions: where it counts one, moves reach
  factors 9 degrees apart at the likelihood of Gibbs.
* With moves alone no chain passes between the two solutions. Behind 20 soft walls three chains pass
  from the first to the second and back 112 to 132 times each, and have not arrived: after a warm-up
  of 5,000 draws the first solution has 0.15 to 0.38 of their draws, and nothing in chains that
  start at the second.
"""

_COVERAGE = {
    "log_likelihood": "log likelihood", "iat": "IAT", "angle_max": "largest angle",
    "angle_mean": "mean angle", "l1_max": "largest l1", "l1_mean": "mean l1",
}  # fmt: skip

#: What rows have of two solutions, in each repetition.
_OF_SOLUTIONS = {
    "share_of_the_first_solution": "first solution", "share_by_tenth": "by tenths of the draws",
    "crossings": "crossings", "round_trips": "round trips",
}  # fmt: skip


@page(__doc__, "nmf_coverage*", notes=NOTES)
def tables(records: dict):
    yield (
        "The study of Masood, Pan and Doshi-Velez (2016) on nonnegative matrices whose solutions "
        "are known: Laurberg's with one solution and with two, and one with a line of them. "
        "Figures are means over the repetitions, in brackets the paper's (its tables 1 to 8); "
        "quartiles are in the records. Log likelihoods are without their constant, in units of "
        "the noise. IAT is the integrated autocorrelation time, averaged over the entries of the "
        "usage (the paper's basis A). Angles in degrees and l1 distances are between pairs of "
        "draws. `first solution` is the share of the draws at the first of two solutions, in each "
        "repetition, also by tenths of the draws, and `crossings` how often draws that are "
        "compared pass from the first to the second and back. `round trips` are those of replicas "
        "behind walls, in each repetition."
    )
    yield (
        "The paper does not state its noise. With the standard deviation of 0.001 used here, the "
        "angles of its Gibbs and HMC chains and their autocorrelation times come out. Each figure "
        "depends on one draw of that noise: log likelihoods are off by a few units, by a like "
        "amount in all rows. Nor does the paper say where its restarts stop; ours stop at a "
        "relative projected gradient of 0.005 on the small sets. On the large ones none passes the "
        "filter then (`nmf_coverage_large`); at 0.0003 the log likelihoods are within a factor "
        "of 2.1 of the paper's (`nmf_coverage_restarts`). The paper does not mention the Jacobian "
        "of the logarithm of its HMC either: `HMC without Jacobian` leaves it out. HMC on "
        "logarithms fits too well, there and here, because it has not arrived: entries that are "
        "zero at the start come back slowly. The starts on the line of solutions are drawn along "
        "it. Its large sets embed the small ones by random nonnegative matrices so that the number "
        "of solutions stays. It does not stay: no entry of the factors is zero any more, and a "
        "change of basis has room."
    )
    for name, record in records.items():
        found = record["figures"]
        yield f"## {name}"
        exact = "--exact" in record.get("command", "")
        yield (
            f"The likelihood has a noise of {found['noise']}"
            f"{', and the data have none' if exact else ', as the data have'}. "
            f"{found['repetitions']} repetitions of {found['draws']:,} draws"
            f"{_warmup(found)}, of which {found['compared']:,} are compared."
        )
        if name.endswith(("_small", "_large")):
            yield f"![Covering numbers of the sets, figures 5 to 10 of the paper]({name}.png)"
        for name_of_set, rows in found["sets"].items():
            yield f"### {name_of_set}"
            yield _covered(rows)


def _warmup(found: dict) -> str:
    number = found.get("warmup")
    return f" (of Gibbs after {number:,} others)" if number else ""


def _covered(rows: dict) -> str:
    paper = rows.get("paper") or {}
    ours = {name: row for name, row in rows.items() if name != "paper"}
    also = [n for n in _OF_SOLUTIONS if any(n in row for row in ours.values())]
    lines = [
        [
            name,
            *(_beside(c, row[c][0], paper.get(name, {}).get(c)) for c in _COVERAGE),
            *("; ".join(_repetition(v) for v in row.get(n, ())) for n in also),
            number(row.get("seconds"), 0),
        ]
        for name, row in ours.items()
    ]
    header = ["sampler", *_COVERAGE.values(), *(_OF_SOLUTIONS[n] for n in also), "seconds"]
    return table(header, lines)


def _repetition(value) -> str:
    """Write what one repetition has: a share, a count, a count each way, or shares in turn."""
    if isinstance(value, list):
        return (" and " if len(value) == 2 else ", ").join(map(str, value))
    return f"{value:.3g}"


def _beside(column: str, ours, theirs) -> str:
    """Write a figure, and the paper's in brackets."""
    shown = "none" if ours is None else _rounded(column, ours)
    return shown if theirs is None else f"{shown} ({_rounded(column, theirs)})"


def _rounded(column: str, value: float) -> str:
    if column == "log_likelihood":
        if abs(value) >= 1e5:
            return f"{value:.3g}"
        return number(value, 0 if abs(value) >= 1000 else 2)
    if column == "iat":
        return f"{value:.3g}" if value < 1000 else number(value, 0)
    return number(value, 3 if abs(value) < 1 or column.startswith("l1") else 2)


@script(__doc__, only=some(SETS), rows=some(ROWS), repetitions=10,
        draws=(10_000, "of each repetition"),
        warmup=(0, "draws of Gibbs before those; the paper has none"),
        kept=(1000, "draws that are compared"),
        exact=(False, "data without noise, of which by symmetry two solutions have equal shares"),
        seed=0, name=("nmf_coverage", "of the record"))  # fmt: skip
def main(options):
    tables, curves = {}, {}
    for name in options.only:
        problem = SETS[name]
        noise = 0.0 if options.exact else NOISE
        noise = noise * np.random.default_rng(options.seed).normal(size=problem.exact.shape)
        case = ways.Case(problem, problem.exact + noise, NOISE, options.repetitions, options.draws,
                         options.kept, options.warmup, WALLS.get(name))  # fmt: skip
        print(name, flush=True)
        rows = [r for r in options.rows if "walls" not in r or name in WALLS]
        tables[name], curves[name] = study(case, rows, options.seed)
        paper = {r: dict(zip(NAMES, v, strict=True)) for r, v in PAPER[name].items()}
        tables[name]["paper"] = paper
        of_run = ("repetitions", "draws", "warmup")
        settings = {"noise": NOISE} | {n: getattr(options, n) for n in of_run}
        figures = settings | {"compared": options.kept, "sets": tables}
        options.record = options.name
        yield figures
        draw(curves, options.results / f"{options.name}.png")

"""By how much does the greedy count of balls miss the covering number?

Masood, Pan and Doshi-Velez (2016), section 3.2, define the covering number of a set of draws as the
smallest number of balls around draws that cover all of them, and count balls that are chosen
greedily, because the smallest number is hard to find. `covering_number(..., exact=True)` finds it.

Draws are from one normal distribution in the plane, and from two that are six standard deviations
apart, as in figures 2 and 3 of the paper; and draws that cover all solutions ("All Modes", angles)
of its small matrices with two solutions and with a line of them.
"""

import time

import numpy as np

from benchmarks.agreement import nmf_samplers as ways
from benchmarks.agreement.nmf_coverage import NOISE, SETS
from benchmarks.device import script
from benchmarks.form import page_of_one, settings_of, shown
from bmfjax.diagnostics import covering_number, pairwise_distances

RADII, APART, NUMBER = (1.0, 2.5), 6.0, 20
SOLUTIONS = ("small, two modes", "small, infinite modes")


def normal_draws(r, modes: int, number: int) -> np.ndarray:
    """Return distances between draws in the plane, half of them from a second mode where asked."""
    points = r.standard_normal((number, 2))
    points[: number // 2, 0] += APART * (modes - 1)
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


def solutions(name: str, number: int, seed: int) -> np.ndarray:
    """Return angles between draws that cover the solutions of a matrix."""
    problem = SETS[name]
    noise = NOISE * np.random.default_rng(0).normal(size=problem.exact.shape)
    case = ways.Case(problem, problem.exact + noise, NOISE, 1, number, number)
    return pairwise_distances(ways.baseline(case, True, seed).usage[0])


def counted(tables, radii_of) -> dict:
    """Return the balls of either count, over sets of draws and radii."""
    counts, seconds = {"greedy": [], "fewest": []}, 0.0
    for distances in tables:
        radii = radii_of(distances)
        counts["greedy"].append([covering_number(distances, r) for r in radii])
        began = time.process_time()
        counts["fewest"].append([covering_number(distances, r, exact=True) for r in radii])
        seconds += time.process_time() - began
    greedy, fewest = (np.array(counts[n]) for n in ("greedy", "fewest"))
    return {
        "balls": {n: np.mean(counts[n], 0).round(3).tolist() for n in counts},
        "share_where_greedy_is_fewest": round(float((greedy == fewest).mean()), 3),
        "most_too_many": int((greedy - fewest).max()),
        "largest_ratio": round(float((greedy / fewest).max()), 3),
        "seconds_of_a_radius": round(seconds / greedy.size, 4),
    }


ANSWER = """
By up to two thirds. Of 200 draws in two modes the greedy count of balls of radius 2.5 is 5.1 in the
mean over 20 samples, and the fewest are 4.35; at radius 1 they are 21.6 and 18.1. The greedy count
is the smallest one in 10 % of the cases of one mode and in 20 % of those of two. On a line of
solutions it counts 5 balls where 3 do, and where two solutions are apart both count two.

The fewest take 0.01 to 0.05 processor seconds a radius.
"""


@page_of_one(__doc__)
def tables(found: dict):
    yield (
        "Balls that cover all draws, counted greedily as in Masood, Pan and Doshi-Velez (2016), "
        "and the fewest. `too many` is the largest difference, and `ratio` the largest ratio, over "
        "all samples and radii."
    )
    yield settings_of(found)
    yield shown(
        [{"draws": name} | case for name, case in found.get("sets", {}).items()],
        {"draws": "", "greedy": "balls/greedy ;1", "fewest": "balls/fewest ;1",
         "greedy is the fewest": "share_where_greedy_is_fewest 2", "too many": "most_too_many",
         "ratio": "largest_ratio 2", "processor seconds of a radius": "seconds_of_a_radius 3"},
    )  # fmt: skip


@script(__doc__, number=(200, "draws of a set"), samples=20)
def main(options):
    found = {"number": options.number, "samples": options.samples, "sets": {}}
    for modes, name in ((1, "one mode"), (2, "two modes")):
        each = [
            normal_draws(np.random.default_rng(s), modes, options.number)
            for s in range(options.samples)
        ]
        found["sets"][f"normal, {name}"] = counted(each, lambda _: RADII)
    for name in SOLUTIONS:
        table = solutions(name, options.number, 0)
        grid = np.linspace(0, table.max(), NUMBER + 1)[1:]
        found["sets"][f"solutions, {name}"] = counted([table], lambda _, grid=grid: grid)
    for name, row in found["sets"].items():
        print(name, row, flush=True)
    return found

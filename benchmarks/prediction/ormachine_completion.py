"""Are missing entries filled in as well as can be?

Random matrix completion as in Rukat, Holmes, Titsias and Yau (2017), section 4.1: products of rank
5 and size 1000 x 1000 with half of the entries ones and no flips. A small share of the entries is
observed at random. The factors hold about K (M + N - log2 K + 1) bits without their order: with
fewer entries observed no method could determine them all.

What could any method reach? With one factor matrix known, the bits of the other have at most 32
states a line, and their posterior is exact. Where do chains that start at the truth end? And, with
`--compare`, what does each part of the run change? `WAYS` alters the parts, on the same matrices.
"""

import functools
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jax import random

import bmfjax
from benchmarks.device import growing, script, some
from benchmarks.form import mean_and_error, named, page_of_each, percent, settings_of, shown
from benchmarks.papers.boolean_runs import Schedule, empty_basis, program, random_bits
from bmfjax.data import BinaryMatrix
from bmfjax.kernels.boolean.bits import states_of
from bmfjax.kernels.boolean.density import BooleanDensity
from bmfjax.kernels.boolean.gibbs import start_from
from bmfjax.kernels.boolean.words import packed_data

SIZE, RANK, DENSITY = 1000, 5, 0.5
#: Of every bit of the factors.
BIT_DENSITY = math.sqrt(1 - (1 - DENSITY) ** (1 / RANK))
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
#: What we were to reach.
TARGETS = {0.02: 0.0254, 0.05: 0.00023}
SOURCES = {
    "target": "quoted as published; we found no such number in print",
    "one_factor_known": "exact posterior by enumeration, generating density known",
}


ESTIMATES = (
    "mean of the product",
    "product of the means",
    "product of the rounded means",
    "last draw",
)


class Way(NamedTuple):
    """What a run does otherwise.

    `density` is the prior of every bit, None to learn one for every factor; `rule` how the flip
    rate is drawn; `schedule` by default that of the command line; `estimate` one of `ESTIMATES`.
    """

    density: float | None = None
    rule: str = "sample"
    first_bits: Callable = random_bits
    from_truth: bool = False
    schedule: Schedule | None = None
    estimate: str = "mean of the product"


SHORT = Schedule(burn=100, keep=100)
WAYS = {
    "from the truth": Way(from_truth=True),
    "from the truth, density known": Way(density=BIT_DENSITY, from_truth=True),
    "one start, 100 + 100 sweeps": Way(schedule=SHORT),
    "so, density one half": Way(density=0.5, schedule=SHORT),
    "so, flip rate at its maximum": Way(rule="mle", schedule=SHORT),
    "so, basis empty at the start": Way(first_bits=empty_basis, schedule=SHORT),
    "released program's rules": Way(
        density=0.5,
        rule="mle",
        first_bits=empty_basis,
        schedule=Schedule(burn=300, keep=100),
        estimate="product of the means",
    ),
}


def bound(size: int, rank: int) -> int:
    """Entries that must be observed for the factors to be determined at all, by counting bits."""
    return math.ceil(rank * (2 * size - math.log2(rank) + 1))


def observed_part(made, share: float, seed: int) -> np.ndarray:
    """Which entries are observed: bool (rows, columns), each with probability `share`."""
    return np.random.default_rng([seed, round(1e4 * share)]).random(made.clean.shape) < share


@functools.lru_cache(maxsize=64)
def problem(size: int, share: float, seed: int):
    """The truth, which entries are observed, and their matrix."""
    made = bmfjax.generate_product(size, size, RANK, density=DENSITY, seed=seed)
    seen = observed_part(made, share, seed)
    return made, seen, BinaryMatrix(made.clean, seen)


def one_matrix(run, way: Way, size: int, share: float, seed: int) -> dict:
    """Share of wrong unobserved entries by every estimate, and what the posterior expects."""
    made, seen, matrix = problem(size, share, seed)
    data, position = packed_data(matrix), None
    if way.from_truth:
        density = BooleanDensity((size, size), RANK)
        position = start_from(density, data, {"usage": made.usage, "basis": made.basis})
        if way.density is not None:
            position = {n: v for n, v in position.items() if not n.endswith("_density")}
    began = time.perf_counter()
    mean, summary = run(random.key(seed), data, position)
    hidden = np.asarray(mean)[~seen]
    seconds = time.perf_counter() - began
    usage, basis = (np.asarray(summary[n], float) for n in ("usage", "basis"))
    none = np.prod([1 - np.outer(u, b) for u, b in zip(usage, basis, strict=True)], axis=0)
    estimates = (
        hidden > 0.5,
        (none < 0.5)[~seen],
        ((usage > 0.5).T @ (basis > 0.5))[~seen],
        np.asarray(summary["last"])[~seen] > 0.5,
    )
    truth = made.clean[~seen]
    wrong = {n: float((e != truth).mean()) for n, e in zip(ESTIMATES, estimates, strict=True)}
    expected = float(np.minimum(hidden, 1 - hidden).mean())
    return wrong | {"expected": expected, "observed": int(seen.sum()), "seconds": seconds}


def of_all(way: Way, schedule: Schedule, size: int, share: float, repeats: int) -> dict:
    """`one_matrix` of every matrix: lists."""
    shape = (size, size)
    run = compiled(shape, way.density, way.schedule or schedule, way.rule, way.first_bits)
    found = [one_matrix(run, way, size, share, seed) for seed in range(repeats)]
    return {n: [f[n] for f in found] for n in found[0]}


@functools.cache
def compiled(shape, density, schedule, rule, first_bits):
    """A run, compiled once for all shares."""
    return program(shape, RANK, density, schedule, rule=rule, first_bits=first_bits)


def one_side(basis, clean, seen) -> tuple[float, float]:
    """Expected and actual share wrong when the other factor matrix is known, exactly."""
    states = states_of(RANK)
    covered = (states.astype(np.float32) @ basis.T.astype(np.float32)) > 0.5
    against = (seen & clean).astype(np.float32) @ (~covered).T.astype(np.float32)
    against += (seen & ~clean).astype(np.float32) @ covered.T.astype(np.float32)
    ones = states.sum(1)
    prior = BIT_DENSITY**ones * (1 - BIT_DENSITY) ** (RANK - ones)
    weights = np.where(against < 0.5, prior, 0.0)
    mean = (weights / weights.sum(1, keepdims=True)) @ covered
    hidden = mean[~seen]
    wrong = (hidden > 0.5) != clean[~seen]
    return float(np.minimum(hidden, 1 - hidden).mean()), float(wrong.mean())


def known_factor(size: int, share: float, seeds) -> np.ndarray:
    """(matrices, 2 known sides, [expected, actual]) share wrong with one factor matrix known."""
    found = []
    for seed in seeds:
        made, seen, _ = problem(size, share, seed)
        by_row = one_side(made.basis, made.clean, seen)
        found.append((by_row, one_side(made.usage, made.clean.T, seen.T)))
    return np.array(found)


def compared(errors, share: float) -> dict:
    """Mean and standard error, beside the target."""
    row = mean_and_error(errors, 6) | {
        "median": round(float(np.median(errors)), 6),
        "errors": [round(e, 6) for e in errors],
    }
    if share in TARGETS:
        row["target"] = TARGETS[share]
    return row


def paired(errors, ours) -> dict:
    """Mean and standard error, and those of the difference from ours on the same matrices."""
    return mean_and_error(errors, 6) | {
        "more_than_ours": mean_and_error(np.subtract(errors, ours), 6)
    }


def one_share(options, schedule: Schedule, share: float) -> dict:
    """What is reported of one share."""
    size, repeats = options.size, options.repeats
    ours = of_all(Way(), schedule, size, share, repeats)
    known = known_factor(size, share, range(repeats))[:, :, 0].mean(1)
    row = compared(ours[Way().estimate], share if size == SIZE else math.nan) | {
        "expected_by_the_posterior": mean_and_error(ours["expected"], 6),
        "one_factor_known": mean_and_error(known, 6),
        "observed": round(float(np.mean(ours["observed"]))),
        "seconds": round(float(np.median(ours["seconds"])), 2),
    }
    return row | (all_ways(options, schedule, share, ours) if options.compare else {})


def all_ways(options, schedule: Schedule, share: float, ours: dict) -> dict:
    """What other estimates and other ways give."""
    errors, ways = ours[Way().estimate], {}
    for name in options.ways:
        found = of_all(WAYS[name], schedule, options.size, share, options.repeats)
        ways[name] = paired(found[WAYS[name].estimate], errors)
        print(share, name, ways[name], flush=True)
    others = [n for n in ESTIMATES if n != Way().estimate]
    return {"estimates": {n: paired(ours[n], errors) for n in others}, "ways": ways}


ANSWER = """
Yes from 2 % observed: the share of wrong entries is 0.0232 where the posterior expects 0.0228. With
1 % it is larger, 0.179 against 0.143: the chains have not found all of the posterior there. The
matrices are ten random products, 1,000 x 1,000 at rank 5, without flips.

| observed | ours | the posterior expects | one factor matrix known |
| --- | --- | --- | --- |
| 1 % | 0.1794 ± 0.0109 | 0.1433 | 0.0516 |
| 2 % | 0.0232 ± 0.0005 | 0.0228 | 0.0106 |
| 5 % | 0.00071 ± 0.00010 | 0.00069 | 0.00035 |
| 10 % | 0.000006 ± 0.000006 | 0.000020 | 0.000010 |
| 20 % | 0 | 0 | 0 |

"One factor matrix known" is the expected error of the exact posterior when the usage or the basis
is given: without it no method does better on average. Neither the start, nor the schedule, the
prior density, the flip rate or the rules of the released program change our figure by more than
0.000002.
"""


@page_of_each(
    __doc__,
    intro=(
        "Random products of which few entries are observed: share of the unobserved entries that "
        "is wrong, with standard errors over matrices. `expected` is what the posterior expects. "
        "`one factor known` is the expected error of the exact posterior when the usage or the "
        "basis is given: without it no method does better on average."
    ),
)
def tables(found: dict):
    yield settings_of(found, "entries_needed_at_least")
    yield f"Counting bits, {found['entries_needed_at_least']:,} entries are needed at least."
    yield shown([case | {"ours": case} for case in named(found["shares"], "share")], {
        "observed": lambda case: f"{percent(float(case['share']), 0)} %",
        "entries": "observed?", "ours": "ours ±6", "median": "median? 6",
        "expected": "expected_by_the_posterior? ±6",
        "one factor known": "one_factor_known? ±6", "quoted as published": "target?",
        "seconds": "seconds? 1"})  # fmt: skip
    for share, case in found["shares"].items():
        yield from _ways(share, case)


def _ways(share: str, case: dict):
    """Other estimates and other rules, paired with ours."""
    found = case.get("ways", {}) | case.get("estimates", {})
    if found:
        yield f"Altered, {percent(float(share), 0)} % observed, paired on the same matrices:"
        yield shown(
            named(found, "altered"),
            {"altered": "", "share wrong": "mean 6", "more than ours": "more_than_ours ±6"},
        )


@script(__doc__, size=SIZE,
        shares=dict(nargs="+", type=float, help="default: all; 0.05 to compare"), repeats=10,
        burn=500, keep=200, starts=4, start_sweeps=100, hold=10, dispersion=1.5,
        compare=(False, "with other ways to run it"), ways=some(WAYS))  # fmt: skip
def main(options):
    options.shares = options.shares or ([0.05] if options.compare else list(SHARES))
    schedule = Schedule(**{n: getattr(options, n) for n in Schedule._fields})
    figures = {
        "size": options.size, "rank": RANK, "repeats": options.repeats, "densities": "learned",
        "schedule": schedule._asdict(), "entries_needed_at_least": bound(options.size, RANK),
        "sources": SOURCES,
    }  # fmt: skip
    options.record += "_ways" if options.compare else ""
    shares = functools.partial(one_share, options, schedule)
    yield from growing(figures, "shares", options.shares, shares)

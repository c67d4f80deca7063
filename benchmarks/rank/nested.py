"""Are exclusive and overlapping components found?

The benchmark of siddC/boolmf (`nested_factors.py` of its benchmarks, read there; the matrices are
drawn anew here from its description, so that the numbers of its generator are not the same). 500
samples fall into eight exclusive groups with a component of 80 features each, two pairs of which
share 20 more; twelve components overlap them. Features are seen with probability 0.97, and others
with 0.005. Features that only half of the carriers have are not counted as a component's.
"""

import time
from typing import NamedTuple

import numpy as np

import bmfjax
from benchmarks.device import growing, script
from benchmarks.form import listed, named, page_of_one, settings_of, shown
from benchmarks.prediction.panel_baselines import log_score
from bmfjax.diagnostics import ess_bulk, split_rhat

GROUPS = (150, 100, 80, 60, 40, 30, 25, 15)
#: Features, prevalence and kind of the overlapping components.
OVERLAPPING = (
    (40, 0.25, "anywhere"), (40, 0.05, "anywhere"), (20, 0.10, "anywhere"), (20, 0.02, "anywhere"),
    (10, 0.10, "anywhere"), (10, 0.02, "anywhere"), (5, 0.10, "anywhere"), (5, 0.02, "anywhere"),
    (20, 0.10, "enriched"), (20, 0.60, "restricted"), (30, 0.15, "partial"), (15, 0.08, "nested"),
)  # fmt: skip
RANK = len(GROUPS) + len(OVERLAPPING)
SEEN, BACKGROUND, NOISE_FEATURES, HIDDEN = 0.97, 0.005, 100, 0.1


class Nested(NamedTuple):
    """A matrix and how it was made."""

    values: np.ndarray  # (500, features) float
    hidden: np.ndarray  # bool
    carriers: np.ndarray  # (500, 20) bool
    features: np.ndarray  # (features, 20) bool
    structure: np.ndarray  # (500, features) bool, the entries that are ones but for the noise


def make(seed: int) -> Nested:
    """Draw a matrix."""
    r = np.random.default_rng(seed)
    group = r.permutation(np.repeat(np.arange(len(GROUPS)), GROUPS))
    samples, counter = len(group), iter(range(10_000))
    take = lambda number: [next(counter) for _ in range(number)]  # noqa: E731
    of_group = [take(80) for _ in GROUPS]
    for first, second in ((0, 1), (2, 3)):
        shared = take(20)
        of_group[first] += shared
        of_group[second] += shared
    drawn = [_overlapping(r, group, take, *spec) for spec in OVERLAPPING]
    others, own = map(list, zip(*drawn, strict=True))
    three, two = take(3), take(2)
    for component in (0, 1, 2):
        others[component].extend(three)
    for component in (0, 2, 4, 8):
        others[component].extend(two)
    carriers = np.stack([*(group == g for g in range(len(GROUPS))), *own], 1)
    structured = next(counter)
    structure = np.zeros((samples, structured + NOISE_FEATURES), bool)
    features = np.zeros((structure.shape[1], RANK), bool)
    partial = next(k for k, spec in enumerate(OVERLAPPING) if spec[2] == "partial")
    module = others[partial][20:]
    others[partial] = others[partial][:20]
    for k, columns in enumerate([*of_group, *others]):
        features[columns, k] = True
        structure[np.ix_(carriers[:, k], columns)] = True
    half = carriers[:, len(GROUPS) + partial] & (r.random(samples) < 0.5)
    structure[np.ix_(half, module)] = True
    structure[np.ix_(carriers[:, len(GROUPS)], others[11])] = True
    share = r.uniform(0.005, 0.02, NOISE_FEATURES)
    structure[:, structured:] = r.random((samples, NOISE_FEATURES)) < share
    seen = np.where(structure, SEEN, BACKGROUND)
    values = (r.random(structure.shape) < seen).astype(float)
    return Nested(values, r.random(structure.shape) < HIDDEN, carriers, features, structure)


def _overlapping(r, group, take, size, prevalence, kind):
    """Return the features and the carriers of an overlapping component."""
    samples = len(group)
    carriers = r.random(samples) < prevalence
    if kind == "restricted":
        carriers &= group == 5
    if kind == "enriched":  # four fifths of the carriers are in one group
        number = int(prevalence * samples)
        inside, outside = np.flatnonzero(group == 2), np.flatnonzero(group != 2)
        many = int(0.8 * number)
        chosen = [r.choice(inside, many, False), r.choice(outside, number - many, False)]
        carriers = np.isin(np.arange(samples), np.concatenate(chosen))
    return take(size), carriers


def jaccard(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the Jaccard index of columns (lines, a) and (lines, b): (a, b)."""
    both = first.T.astype(float) @ second
    either = first.sum(0)[:, None] + second.sum(0) - both
    return both / np.maximum(either, 1)


def found(made: Nested, usage, basis) -> list[bool]:
    """Say of each component whether the factors contain it."""
    carriers = jaccard(made.carriers, usage)
    features = jaccard(made.features, basis)
    best = carriers.argmax(1)
    pairs = np.arange(RANK), best
    return list((carriers[pairs] >= 0.8) & (features[pairs] >= 0.5))


def one_matrix(seed: int, options) -> dict:
    """Fit one matrix, and compare with how it was made."""
    made = make(seed)
    began = time.perf_counter(), time.process_time()
    fit = bmfjax.fit(
        np.where(made.hidden, np.nan, made.values), RANK, seed=seed, progress=False,
        num_chains=options.chains, model=bmfjax.OrMachine(num_rates=2), max_time=options.max_time,
    )  # fmt: skip
    usage, basis = fit.usage_binary > 0, fit.basis_binary > 0
    seconds, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    joint = fit.trace["log_joint"][:, -fit.usage_draws.shape[1] :]
    there = found(made, usage, basis)
    p = fit.predict_cells(*np.nonzero(made.hidden), "probability", noisy=True)
    truth = np.where(made.structure, SEEN, BACKGROUND)[made.hidden]
    hidden = made.values[made.hidden]
    return {
        "exclusive_found": int(sum(there[: len(GROUPS)])),
        "overlapping_found": int(sum(there[len(GROUPS) :])),
        "missed": [k for k, is_there in enumerate(there) if not is_there],
        "rhat_log_joint": round(float(split_rhat(joint)), 3),
        "ess_log_joint": round(float(ess_bulk(joint)), 1),
        "log_joint": [round(float(v), 1) for v in joint.mean(1)],
        "log_score_hidden": round(log_score(p, hidden), 5),
        "log_score_hidden_of_the_truth": round(log_score(truth, hidden), 5),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
    }


ANSWER = """
All eight exclusive components are found and 10 of 12 overlapping ones, on both matrices, by chains
that agree (R-hat of the log joint 1.007 and 1.001). The targets were 12 of 12 and a minute: a fit
takes 198 and 250 s on shared cores, 149 and 157 processor seconds.

| matrix | exclusive, of 8 | overlapping, of 12 | R-hat log joint | log score of hidden entries | of the truth |
| --- | --- | --- | --- | --- | --- |
| seed 0 | 8 | 10 | 1.007 | -0.0573 | -0.0462 |
| seed 1 | 8 | 10 | 1.001 | -0.0521 | -0.0428 |

The two that are missed are the same on both: one that is restricted to a group of 30 samples, and
one whose features another component has too. The matrices are drawn anew from the description of
the benchmark in siddC/boolmf, with a tenth of the entries hidden, and the rank is given. On its own
matrices boolmf finds 8 of 8 and 10 to 11 of 12 in 460 to 480 s, as read in its repository.
"""  # noqa: E501


@page_of_one(__doc__, notes=[("6b3958c", "the machine was shared: compare processor seconds")])
def tables(found: dict):
    yield (
        "The benchmark of siddC/boolmf, drawn anew from its description: eight exclusive and "
        "twelve overlapping components, a tenth of the entries hidden. A component is found "
        "where a factor has its carriers with a Jaccard index of at least 0.8 and its features "
        "with at least 0.5. `log score` is the mean log probability of the hidden entries. "
        "boolmf, in its repository, finds 10 to 11 of 12 and 8 of 8 in 460 to 480 s with eight "
        "chains, at an R-hat of the log likelihood up to 1.8; it learns the number of components, "
        "which is given here."
    )
    yield settings_of(found)
    yield shown(named(found.get("matrices", {}), "matrix"), {
        "matrix": "", "exclusive, of 8": "exclusive_found",
        "overlapping, of 12": "overlapping_found",
        "missed": lambda case: listed(case["missed"]), "R-hat log joint": "rhat_log_joint 3",
        "ESS": "ess_log_joint 0", "log joint of the chains": "log_joint ;1",
        "log score": "log_score_hidden 5", "of the truth": "log_score_hidden_of_the_truth 5",
        "seconds": "seconds 0", "processor seconds": "cpu_seconds 0"})  # fmt: skip


@script(__doc__, seeds=(3, "matrices"), chains=4,
        max_time=(float, "seconds of sampling; default: that of the fit"))  # fmt: skip
def main(options):
    cases = {f"seed {seed}": seed for seed in range(options.seeds)}
    figures = {"chains": options.chains, "max_time": options.max_time}
    yield from growing(figures, "matrices", cases, lambda c: one_matrix(cases[c], options))

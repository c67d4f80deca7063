"""Is it right what the verdict says of the parts of a fit?

A tenth of the entries is hidden. Every matrix is fitted twice, from different seeds, and the
verdict of each fit is held to what it could not see:

* predictions do hold if the probabilities of hidden entries are calibrated as well as true ones are
  in 95 % of cases, and are within 0.05 of those of the other fit in 99 % of these entries, beyond
  the Monte Carlo error that both fits say;
* a factor does hold if the other fit has it, too: a tile that is at least 0.8 alike, where a
  binary feature may be turned round: the rows that lack it, with the other signs. Told beside it is
  whether two thirds of the other chains have it, each by itself: the mean of chains in two modes is
  found again as a mean, and is no factor of any chain;
* the number of factors does hold if the range that is said, which is one number where that has a
  probability of 0.9 alone, has one of at least 0.8 in the other fit. Where all factors that are
  allowed may be there the other fit cannot have more, so that such a number is not counted.

Real matrices are those of `panel.py`, of which up to 200 rows and 20 columns are taken, with
four factors. Planted ones are three tiles whose noise no model has. Of every four seeds one has
effects of rows and columns, one a rate of flips for each column, one rows that have a tile in part,
and one noise that rows share. The number of factors is unknown in the first four, which take the
longest, and given in the others.

A fit ends by itself, and has at most so many draws, so that it is the same on any machine. The fits
of a case are stored in the folder of `--work`, and are not made again; what the verdict says
follows from them by the rule of the program that makes the record. `--judge` looks at all stored
fits anew, for a rule of other figures, and fits nothing.

    python -m benchmarks.calibration.verdict_trial --data FOLDER --work FOLDER --judge
"""

import itertools
import json
import os
import time
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import expit, logit
from scipy.stats import binomtest

import bmfjax
from benchmarks.device import COMMIT, script, some
from benchmarks.form import number, page_of_one, shown, table
from benchmarks.prediction import panel_data
from benchmarks.record import commit_of
from bmfjax.diagnostics.align import MOST, agreements
from bmfjax.families import base
from bmfjax.posterior.model_check import calibration
from bmfjax.posterior.modes import SAME, Solutions, tile_cosines
from bmfjax.posterior.scores import predictive
from bmfjax.specs.run import ACCURATE
from bmfjax.verdict import Verdict
from bmfjax.verdict.judging import found_factors, of_rank
from bmfjax.verdict.number import LEAST_INSIDE

MODELS = ("features", "ormachine")
#: Real matrices, the smallest first, and what is taken of them.
SETS = (
    "zoo", "votes", "animals", "bob-ross", "fraction", "bci", "news100", "pancan", "lastfm",
    "mushroom", "dna", "pbmc",
)  # fmt: skip
# One shape for most, which is compiled once.
ROWS, COLUMNS, RANK = 200, 20, 4
TILES, MOST_TILES, UNKNOWN = 3, 6, 4
#: A factor that two thirds of the chains of the other fit have, each by itself.
BY_CHAINS = "factor, by chains"
#: Ones, and zeros, that a column has at least.
LEAST = 5
ON, OFF = 0.75, 0.1
NOISE = ("effects", "rates of columns", "partial rows", "shared noise")


def planted(seed: int) -> np.ndarray:
    """Return three tiles under noise that neither model has, by the seed."""
    rng = np.random.default_rng(seed)
    usage, basis = ((rng.random((n, TILES)) < 0.3).astype(float) for n in (ROWS, COLUMNS))
    kind = NOISE[seed % len(NOISE)]
    if kind == "partial rows":
        usage *= rng.uniform(0.3, 1.0, usage.shape)
    inside = (usage[:, None] * basis).max(-1)
    on, off = ON, OFF
    if kind == "rates of columns":
        on, off = rng.uniform(0.5, 0.95, COLUMNS), rng.uniform(0.01, 0.25, COLUMNS)
    chance = off + (on - off) * inside
    if kind == "effects":
        effects = rng.normal(0, 0.7, (ROWS, 1)) + rng.normal(0, 1.0, COLUMNS)
        chance = expit(logit(chance) + effects)
    drawn = rng.random(chance.shape)
    if kind == "shared noise":  # of two rows a fifth of the entries
        drawn[1::2] = np.where(rng.random(drawn[1::2].shape) < 0.2, drawn[::2], drawn[1::2])
    return (drawn < chance).astype(float)


def without_a_tenth(values: np.ndarray, seed: int) -> tuple[np.ndarray, tuple]:
    """Return the matrix without a tenth of its entries, and these."""
    drawn = np.random.default_rng(1000 + seed).random(values.shape)
    i, j = np.nonzero((drawn < 0.1) & ~np.isnan(values))
    left = values.copy()
    left[i, j] = np.nan
    return left, (i, j, values[i, j])


def of_panel(folder: Path, name: str) -> tuple[np.ndarray, tuple]:
    """Return a part of a real matrix without a tenth of its entries, and these."""
    ones, observed = panel_data.read(next(folder.glob(panel_data.SETS[name][0])))
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(ones))[:ROWS])
    ones, observed = ones[rows], observed[rows]
    number = [(kind & observed).sum(0) for kind in (ones, ~ones)]
    columns = np.flatnonzero(np.min(number, 0) >= LEAST)
    columns = np.sort(rng.permutation(columns)[:COLUMNS])
    ones, observed = ones[:, columns], observed[:, columns]
    return without_a_tenth(np.where(observed, ones.astype(float), np.nan), 0)


# ---- the trial of two fits -----------------------------------------------------------------------


def chances(fit, cells) -> np.ndarray:
    """Return the probability of a one of each cell."""
    i, j, values = cells
    return np.exp(predictive(fit, (i, j, np.ones_like(values))))


def scored(one, cells, weights=None) -> float:
    """Return the mean log probability of cells, of probabilities of ones (..., cell)."""
    chance = one if weights is None else np.average(one, 0, weights)
    chance = np.clip(chance, 1e-12, 1 - 1e-12)
    return float(np.log(np.where(cells[2] > 0.5, chance, 1 - chance)).mean())


def in_each(fit, others: Solutions) -> np.ndarray:
    """Say of each factor which of other solutions have it, (factor, solution)."""
    one = Solutions(fit.usage[None], fit.basis[None])
    cosines = tile_cosines(one, others)[0]
    if fit.model == "features":
        turned = Solutions(1.0 - others.usage, -others.basis)
        cosines = np.maximum(cosines, tile_cosines(one, turned)[0])
    alike = np.zeros(cosines.shape[:2])
    for solution in range(cosines.shape[1]):
        mine, theirs = linear_sum_assignment(cosines[:, solution], maximize=True)
        alike[mine, solution] = cosines[mine, solution, theirs]
    return alike >= SAME


def found_again(fit, other) -> list[bool]:
    """Say of each factor whether the other fit has it."""
    return in_each(fit, Solutions(other.usage[None], other.basis[None]))[:, 0].tolist()


def in_chains(fit, other) -> list[float]:
    """Return for each factor the share of the chains of the other fit that have it."""
    draws = (other.usage_draws, other.basis_draws)
    return in_each(fit, Solutions(*(np.asarray(f.mean(1)) for f in draws))).mean(1).tolist()


def inside(drawn, other) -> float:
    """Return the share of draws of another fit in the range of numbers that is said of `drawn`."""
    low, high = of_rank(drawn)["rank_between"]
    return float(np.mean((other >= low) & (other <= high)))


def told(fit, other, cells) -> dict:
    """Return the figures of a fit, and what is true of its parts as far as hidden entries tell."""
    one, two = chances(fit, cells), chances(other, cells)
    _, wrong, by_chance = calibration(one, cells[2] > 0.5)
    error = np.hypot(*(f.figures.get("mc_error") for f in (fit, other)))
    apart = max(0.0, float(np.quantile(abs(one - two), 0.99)) - 1.5 * float(error))
    number = {}
    if not fit.verdict.number.given:
        share = inside(fit._rank_draws, other._rank_draws)
        number = {"number": share >= LEAST_INSIDE, "number_inside": round(share, 3)}
    names = [n.removeprefix("factor ") for n in fit.factor_names]
    stacked = chances(fit.stacked(), cells)
    means = [np.asarray(f.mean(1)) for f in (fit.usage_draws, fit.basis_draws)]
    alike, searches = agreements(*means), fit._search_counts
    of_draws = searches, fit._present, fit._steady
    seen = found_factors(alike, fit._empty, fit.usage_draws.shape[0], *of_draws)
    if not fit.verdict.number.given:
        seen |= of_rank(fit._rank_draws)
    if searches is not None and not fit.verdict.number.given:
        seen["rank_searches"] = searches.with_rank(fit._rank_draws)
    # By the entries that the rule of this program looks at, in the draws that were kept.
    for name, share, method in (("rhat", 0.99, "higher"), ("ess", 0.01, "lower")):
        moving = getattr(fit._mixing, name)
        if (moving := moving[~np.isnan(moving)]).size:
            seen[f"{name}_product"] = float(np.quantile(moving, share, method=method))
    if fit.figures.starts:
        seen["found_by"] = fit.figures.starts
    judged = fit.verdict.changed(**seen)
    return {
        "judged": {"scalars": judged.figures.known(), "judged": judged.stored()},
        "calibration_error": wrong, "by_chance": by_chance, "apart": apart,
        "predictions": bool(wrong <= by_chance and apart <= ACCURATE),
        "factors": dict(zip(names, found_again(fit, other), strict=True)), **number,
        "in_chains": dict(zip(names, in_chains(fit, other), strict=True)),
        "agreement": np.round(alike, 3).tolist(),
        "log_score": scored(one, cells), "stacked_log_score": scored(stacked, cells),
    }  # fmt: skip


def case_of(name: str, folder: Path | None) -> tuple:
    """Return the matrix of a case, the cells that it lacks, its number of factors and its model."""
    of, number, model = name.split(":")
    if of != "planted":
        return *of_panel(folder, of), RANK, model
    seed = int(number)
    rank = "auto" if seed < UNKNOWN else TILES
    return *without_a_tenth(planted(seed), seed), rank, model


def tried(work: Path, name: str, folder: Path | None, seed: int, commit: str | None) -> dict:
    """Fit a matrix twice, store the fits, and hold what both verdicts say to what is true."""
    data, cells, rank, model = case_of(name, folder)
    more = {"max_rank": MOST_TILES} if rank == "auto" else {}
    began = time.process_time()
    fits = [
        bmfjax.fit(data, rank, model=model, seed=s, progress=False, max_time=600.0, **more)
        for s in (seed, seed + 1)
    ]
    spent = round(time.process_time() - began, 1)
    for k, fit in enumerate(fits):
        fit.save(place(work, name, f"-{k}"))
    return {
        "shape": list(data.shape), "rank": rank, "cpu_seconds": spent,
        "commit": commit or commit_of(),
        "timed_out": any(fit.figures.timed_out for fit in fits), "fits": told_of(fits, cells),
    }  # fmt: skip


def told_of(fits, cells) -> list[dict]:
    """Return what is told of both fits."""
    return [told(*pair, cells) for pair in (fits, fits[::-1])]


def looked_at_again(work: Path, name: str, folder: Path | None) -> dict:
    """Return a stored case, with what is told of its stored fits now."""
    fits = [bmfjax.Fit.load(place(work, name, f"-{k}")) for k in range(2)]
    case = json.loads(place(work, name).read_text())
    return case | {"fits": told_of(fits, case_of(name, folder)[1])}


# ---- the record ----------------------------------------------------------------------------------


def parts_of(fit: dict) -> list[tuple[str, str, bool]]:
    """Return name, status and truth of the parts of a fit, by the rule of this program."""
    judged = Verdict.of_stored(fit["judged"])
    parts = [("predictions", str(judged.predictions.status), fit["predictions"])]
    if judged.factors.counts:
        lonely = judged.figures.factors_rarely_found or ()
        unsure = judged.factors.status == "not yet" and not judged.factors.rarely_found
        held = "not yet" if unsure else "holds"
        told = [(name, held) for name in judged.figures.factors_holding or ()]
        told += [(name, "not yet") for name in lonely]
        told += [(name, "does not hold") for name in judged.figures.factors_differing or ()]
        parts += [("factor", said, fit["factors"][name]) for name, said in told]
        parts += [(BY_CHAINS, said, fit["in_chains"][name] >= MOST) for name, said in told]
    if "number" in fit and not judged.figures.rank_bounded:
        parts.append(("number", str(judged.number.status), fit["number"]))
    return parts


def counted(cases: dict[str, dict]) -> list[dict]:
    """Count, for each part, what is said, and wrongly: holds and does not, or the reverse."""
    rows = []
    fits = [(n.split(":")[0], fit) for n, case in cases.items() for fit in case["fits"]]
    for which in ("planted", "real", "all"):
        own = [f for name, f in fits if which in ("all", "real" * (name != "planted") or name)]
        count = Counter(part for fit in own for part in parts_of(fit))
        for name in ("predictions", "factor", BY_CHAINS, "number"):
            row = {"matrices": which, "part": name}
            for status, bad in (("holds", False), ("not yet", True), ("does not hold", True)):
                row[status] = sum(count[name, status, true] for true in (True, False))
                row[f"{status}, wrongly"] = count[name, status, bad]
            rows.append(row)
    return rows


#: Rules that refuse a part, by what the verdict says of it; the last is of a factor by its name.
RULES = {
    "off by": "calibration", "chains differ by": "chains apart", "to within": "Monte Carlo error",
    "R-hat": "R-hat", "effective draws": "effective draws",
    "worse than": "worse than without factors", "not compared": "found by one chain",
}  # fmt: skip


def refusals(cases: dict[str, dict]) -> list[dict]:
    """Count, for each part and rule, what is refused, and how much of that would have passed."""
    count, wrongly = Counter(), Counter()
    for fit in (fit for case in cases.values() for fit in case["fits"]):
        judged = Verdict.of_stored(fit["judged"])
        for name, status, truth in parts_of(fit):
            if status == "holds":
                continue
            said = getattr(judged, "factors" if name in ("factor", BY_CHAINS) else name).said
            other = "not alike in two thirds of the chains"
            rule = next((rule for words, rule in RULES.items() if words in said), other)
            if status == "not yet" and " searches" in said:
                rule = "found by too few searches"
            count[name, rule] += 1
            wrongly[name, rule] += truth
    return [
        {"part": part, "rule": rule, "refused": number, "wrongly": wrongly[part, rule]}
        for (part, rule), number in sorted(count.items())
    ]


def failed(cases: dict[str, dict]) -> list[dict]:
    """Count the predictions that were said to hold and do not, by the test that they failed."""
    held = [
        fit for case in cases.values() for fit in case["fits"]
        if ("predictions", "holds", False) in parts_of(fit)
    ]  # fmt: skip
    off = sum(fit["calibration_error"] > fit["by_chance"] for fit in held)
    apart = sum(fit["apart"] > ACCURATE for fit in held)
    return [
        {"test": "calibration", "failed": off},
        {"test": "distance from the other fit", "failed": apart},
    ]


def record(work: Path, names: list[str]) -> dict:
    """Return the record of the cases that are there, of those with these names."""
    cases = {}
    for name in names:
        path = place(work, name)
        if path.exists():
            cases[name] = json.loads(path.read_text())
    runs = [
        {
            "case": name, "shape": case["shape"], "rank": case["rank"],
            "verdict": Verdict.of_stored(fit["judged"]).sentence,
            "parts": [list(part) for part in parts_of(fit)],
            **{n: fit[n] for n in ("calibration_error", "by_chance", "apart")},
            **{n: fit[n] for n in ("log_score", "stacked_log_score")},
            "stacking_weights": fit["judged"]["scalars"].get("stacking_weights"),
            "cpu_seconds": case["cpu_seconds"] / 2, "timed_out": case["timed_out"],
            "commit": case["commit"],
        }
        for name, case in cases.items() for fit in case["fits"]
    ]  # fmt: skip
    return {
        "cases": len(cases), "asked": len(names),
        "cpu_seconds": round(sum(case["cpu_seconds"] for case in cases.values())),
        "table": counted(cases), "refusals": refusals(cases), "failed": failed(cases), "runs": runs,
    }  # fmt: skip


def place(work: Path, name: str, fit: str = ".json") -> Path:
    """Return where a case is stored, or one of its fits."""
    return work / f"{name.replace(':', '-')}{fit}"


NOTES = [
    ("5c2e6a33",
     "56 cases, fitted at fc87251f; the rules were changed by what 38 of them say, and once "
     "more when 42 were known; the last 14 took no part; that of one search, and that of "
     "factors in too few draws, were made stricter afterwards, by no case"),
]  # fmt: skip

ANSWER = """
What it says of factors and of their number is right more often than is asked, and it refuses few
factors, most of them without need. On 56 cases, of 251 factors that were said to hold one does not,
and all of 6 ranges of their number hold. Of 102 predictions that were said to hold 8 do not: 8 %,
of the 5 % that true probabilities fail by chance alone. Seven of the 8 are of real matrices. Six
fail by calibration; the other two are both fits of one matrix of fractions as a Boolean product,
whose chains agree each time, on another solution.

Of 11 factors that were refused 10 were found again, and of 10 predictions 5 would have passed: 91
and 50 %, where 15 are allowed. That few are refused is why: those are left that half of the chains
have, or that are nearly as alike as is asked. Such a factor is found again more often than not,
which is too seldom to hold: by the harder test, in two thirds of the other chains each by itself,
9 of the 251 fail, and 2 of the 11. Four chains cannot tell these.

Three rules were chosen on the first 42 cases: a factor that comes and goes in each chain is in too
few draws, and the 68 that are so are not counted; searches that ended far below the only best one
are not asked; and of the number a range is said. In the 14 cases that took no part all 60 factors
that were said to hold do, no factor was refused, and of 25 predictions that were said to hold one
does not. The number was said of few, and a wide range passes.

That one search alone is enough is the weakest of them: 13 of the 251 factors hold so, and the one
that does not hold is among these. The sentence says "from one start" of them, and asks more chains.
"""


@page_of_one(__doc__, notes=NOTES)
def tables(found: dict):
    late = sum(run["timed_out"] for run in found["runs"])
    yield (
        f"{found['cases']} of {found['asked']} cases took {number(found['cpu_seconds'])} "
        f"processor seconds. A case is a matrix under a model, fitted from two seeds, with at most "
        f"{number(found['most_draws'])} draws a chain; each fit is judged by hidden entries "
        f"and by the other. {late} of {len(found['runs'])} fits were stopped by the clock."
    )
    yield (
        "What was said to hold and does not should be at most 5 %, and what was refused and would "
        "have passed at most 15 %. Beside a share is its interval of 95 % (Clopper and Pearson); "
        "the two fits of a case are alike, so that it is too narrow if anything."
    )
    said = ("holds", "not yet", "does not hold")
    yield table(
        ["matrices", "part", *(f"{word}: wrongly" for word in said), "of those that hold",
         "of those refused"],
        [
            [row["matrices"], row["part"],
             *(f"{row[word]}: {row[f'{word}, wrongly']}" for word in said),
             _share(row, said[:1]), _share(row, said[1:])]
            for row in found["table"]
        ],
    )  # fmt: skip
    yield "What was refused, by the rule that did, and how much of it would have passed:"
    yield shown(found["refusals"], dict.fromkeys(("part", "rule", "refused", "wrongly"), ""))
    yield (
        "Of the predictions that were said to hold and do not: "
        + ", ".join(f"{row['failed']} by {row['test']}" for row in found["failed"])
        + ". Probabilities that are true fail the test of calibration in 5 % of cases, which are "
        f"{number(0.05 * _held(found['table']), 1)} of these predictions."
    )
    yield (
        "Each fit: calibration error on hidden entries, what it stays below in 95 % of cases "
        "if the probabilities are true, how far 99 % of these are at most from the other fit's, "
        "their mean log probability, and that of draws by stacking weights."
    )
    yield shown(found["runs"], {
        "case": "", "error": "calibration_error 3", "by chance": "by_chance 3", "apart": "apart 3",
        "log score": "log_score 4", "stacked": "stacked_log_score 4", "verdict": ""})  # fmt: skip


def _held(rows: list[dict]) -> int:
    """Return how many predictions were said to hold, of all matrices."""
    return next(r["holds"] for r in rows if (r["matrices"], r["part"]) == ("all", "predictions"))


def _share(row: dict, said: tuple[str, ...]) -> str:
    """Write the share of what is said wrongly, and its interval of 95 % (Clopper and Pearson)."""
    whole = sum(row[word] for word in said)
    if not whole:
        return ""
    wrong = sum(row[f"{word}, wrongly"] for word in said)
    low, high = (100 * end for end in binomtest(wrong, whole).proportion_ci(method="exact"))
    return f"{100 * wrong / whole:.0f} % ({low:.0f} to {high:.0f})"


@script(__doc__, data=(Path, "folder of the matrices of panel.py"),
        work=dict(type=Path, required=True, help="folder of the cases"),
        sets=dict(nargs="*", choices=SETS, default=list(SETS)), models=some(MODELS),
        planted=(16, "planted matrices"), most_draws=(750, "of a chain of a fit"),
        budget=(float, "CPU seconds after which no case begins"),
        judge=(False, "the stored fits, and fit nothing"),
        cases=dict(nargs="+", help="these alone, such as zoo:4:features"), seed=0,
        commit=COMMIT)  # fmt: skip
def main(options):
    base.LOOKS = tuple(number for number in base.LOOKS if number <= options.most_draws)
    options.work.mkdir(parents=True, exist_ok=True)
    sets = options.sets if options.data is not None else []
    # Both kinds in turn, so that a part of the cases says something of each.
    real = [f"{name}:{RANK}:{model}" for name in sets for model in options.models]
    own = [f"planted:{seed}:{model}" for model in options.models for seed in range(options.planted)]
    pairs = itertools.zip_longest(real, own)
    names = [name for pair in pairs for name in pair if name is not None]
    names = [name for name in names if options.cases is None or name in options.cases]
    for name in names:
        spent, path = sum(os.times()[:2]), place(options.work, name)
        if options.judge and path.exists():
            path.write_text(json.dumps(looked_at_again(options.work, name, options.data)))
        if options.judge or path.exists():
            continue
        if options.budget is not None and spent > options.budget:
            break
        found = tried(options.work, name, options.data, options.seed, options.commit)
        path.write_text(json.dumps(found))
        for fit in found["fits"]:
            print(name, found["cpu_seconds"], Verdict.of_stored(fit["judged"]).sentence, flush=True)
    figures = {"most_draws": options.most_draws, **record(options.work, names)}
    print(*figures["table"], sep="\n")
    return figures

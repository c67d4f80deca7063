"""Do all parts of the verdict hold for the data that ship?

House votes with four features, the zoo and the paintings of Bob Ross with six, as they ship, from
three seeds each, and with a number of features that the fit finds itself. Every fit runs in a
process of its own, so that all compilation counts, and its clock counts processor seconds, so that
it is as long on a busy machine. Told are how alike each feature is in all chains
(`bmfjax.diagnostics.agreement`), R-hat and effective draws of the log joint density, whether chains
shared one start, in which case agreement is no evidence, and what the verdict says. Each fit is
stored in the folder of `--work`, and is not made again.
"""

import itertools
import json
import os
from pathlib import Path

from benchmarks.device import COMMIT, HIDDEN, apart, script, some
from benchmarks.form import number, page_of_one, table

RANKS = {"house-votes": 4, "zoo": 6, "bob-ross": 6}
SEEDS = (0, 1, 2)
#: The number of features is the one above, or found; and the processor seconds of such a fit.
GIVEN, FOUND = "given", "auto"
LIMITS = {GIVEN: 55.0, FOUND: 113.0}


def one(options) -> dict:
    """Fit one matrix from one seed, and return what is said of it."""
    import bmfjax
    from benchmarks.prediction.panel_models import on_processor_time

    (name,), (seed,), (kind,) = options.sets, options.seeds, options.ranks
    on_processor_time()
    rank = RANKS[name] if kind == GIVEN else kind
    fit = bmfjax.fit(
        name, rank, model=options.model, seed=seed, max_time=LIMITS[kind], progress=False
    )
    judged, figures, spent = fit.verdict, fit.figures, os.times()
    return {
        "data": name, "rank": rank, "seed": seed, "status": str(judged.status),
        "most_probable": figures.rank, "rank_probability": figures.rank_probability,
        "rhat_rank": figures.rhat_rank,
        **{n: str(getattr(judged, n).status) for n in ("predictions", "factors", "number")},
        "agreement": [round(float(a), 3) for a in fit.agreement],
        "empty": figures.factors_empty, "found_by_all": figures.factors_found,
        "found_by_most": len(judged.factors.of_most), "not_found": len(judged.factors.differing),
        "rarely_found": len(judged.factors.rarely_found), "searches": figures.factors_searches,
        "in_few_draws": len(judged.factors.in_few_draws), "chains_with": figures.factors_chains,
        "rank_between": figures.rank_between,
        "rank_between_probability": figures.rank_between_probability, "ess_rank": figures.ess_rank,
        "shared_start": bool(figures.shared_starts), "draws": int(figures.num_draws),
        "found_by": figures.found_by,
        **{n: round(figures.get(n), 3) for n in ("explained", "chains_apart", "mc_error")},
        **{n: round(figures.get(n), 3) for n in ("rhat_log_joint", "ess_log_joint")},
        **{n: round(figures.get(n), 3) for n in ("rhat_product", "ess_product")},
        "cpu_seconds": round(spent.user + spent.system, 1), "timed_out": figures.timed_out,
        "sentence": judged.sentence,
    }  # fmt: skip


ANSWER = """
Half of the time. Where the number of features is given, within 60 processor seconds, all three
parts are said to hold in six of nine fits: of the votes from three of three seeds, of the zoo from
two, of Bob Ross from one. Four of the six are "reliable", and two "usable". In two of
the three other fits chains are in modes that they rarely leave, and predictions differ by 0.25 and
0.34.

With a number of features that the fit finds itself, within 120 processor seconds, all parts hold in
three of nine: of the votes from two seeds, and of the zoo from one. Predictions hold in eight. The
number is wide: between 9 and 16 for the votes, and between 9 and 19 for the zoo. For Bob Ross
chains do not find the same number yet.

The goal is all three parts from each of three seeds, given or found: missed in nine of 18.
"""


@page_of_one(__doc__)
def tables(found: dict):
    limits = found["limits"]
    told = ", ".join(f"{number(limit, 0)} where it is {kind}" for kind, limit in limits.items())
    yield (
        f'{len(found["fits"])} of {found["asked"]} fits, by model "{found["model"]}", of four '
        "chains that search their starts apart, each in a process of its own, with all "
        f"compilation. A fit has so many processor seconds by the number of features: {told}. "
        "A factor in too few draws, or an empty one, says nothing against the others."
    )
    yield table(
        ["number", "all three parts hold", "fits", "predictions", "factors", "number holds"],
        [[kind, *_held(found["fits"], kind)] for kind in limits],
    )
    yield table(
        ["data", "features", "seed", "predictions", "factors", "number", "found by all", "by most",
         "by fewer", "by too few searches", "in too few draws", "empty", "agreement",
         "R-hat of the log joint", "effective draws", "draws a chain",
         "shared start", "processor seconds", "commit"],
        [
            [fit["data"], fit["rank"], fit["seed"], *_said(fit), fit["found_by_all"],
             fit["found_by_most"], fit["not_found"], fit.get("rarely_found"),
             fit.get("in_few_draws"), fit.get("empty"),
             " ".join(number(a, 2) for a in fit["agreement"]), number(fit["rhat_log_joint"], 3),
             number(fit["ess_log_joint"], 0), fit["draws"], number(fit["shared_start"]),
             number(fit["cpu_seconds"], 0), fit["commit"]]
            for fit in found["fits"]
        ],
    )  # fmt: skip
    yield table(
        ["data", "features", "seed", "what the verdict says"],
        [[fit["data"], fit["rank"], fit["seed"], fit["sentence"]] for fit in found["fits"]],
    )


def _said(fit: dict) -> list[str]:
    """Return what is said of each part; a part that was not compared has a word of its own."""
    alone = "Not checked:" in fit["sentence"]
    parts = [fit[name] for name in ("predictions", "factors", "number")]
    return ["not compared" if alone and said == "not yet" else said for said in parts]


def _held(fits: list[dict], kind: str) -> list[int]:
    """Count the fits in which all parts hold, all fits, and those in which each part holds."""
    own = [fit for fit in fits if (fit["rank"] == FOUND) == (kind == FOUND)]
    held = [[fit[n] == "holds" for n in ("predictions", "factors", "number")] for fit in own]
    return [sum(map(all, held)), len(own), *(sum(part) for part in zip(*held, strict=True))]


@script(__doc__, child=one, work=dict(type=Path, required=True, help="folder of the fits"),
        sets=some(RANKS), seeds=list(SEEDS), ranks=some(LIMITS), model="features",
        budget=(float, "processor seconds after which no fit begins"), one=(False, HIDDEN),
        commit=COMMIT)  # fmt: skip
def main(options):
    from benchmarks.record import commit_of

    options.work.mkdir(parents=True, exist_ok=True)
    fits = []
    for kind, seed, name in itertools.product(options.ranks, options.seeds, options.sets):
        path = options.work / f"{name}-{kind}-{seed}-{options.model}.json"
        if not path.exists():
            if options.budget is not None and sum(os.times()[:4]) > options.budget:
                continue
            words = ("--sets", name, "--seeds", seed, "--ranks", kind, "--model", options.model)
            found = apart("--work", options.work, "--one", *words)
            found["commit"] = options.commit or commit_of()
            path.write_text(json.dumps(found))
        fits.append(json.loads(path.read_text()))
        print(name, kind, seed, fits[-1]["cpu_seconds"], fits[-1]["sentence"], flush=True)
    asked = len(options.ranks) * len(options.seeds) * len(options.sets)
    return {"model": options.model, "limits": LIMITS, "asked": asked, "fits": fits}

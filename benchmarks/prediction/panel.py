"""How well are hidden entries of real matrices predicted, and do models know how well?

A tenth of the observed entries of fourteen matrices of ones and zeros is hidden, and of three sets
of ratings. Models of bmfjax with the number of factors found (``rank="auto"``) and peers whose
settings a validation tenth of the shown entries chooses give each hidden entry a probability. Told
are the mean log probability (nats), the area under the ROC curve, and the calibration error in ten
bins of equal width with two 95 % quantiles that it has by chance where a model is true: "by chance"
draws hidden entries independently with the probabilities, "by draws" draws all of them from one
draw of the posterior at a time, since what is not known of a row or a column they have in common.
Coverage is of 90 % intervals: of a rating, and of the ones that are hidden in a row or a column.
Also processor seconds with all compilation and the choice of settings, peak memory of the process,
and the verdict.

A cell of the table is one model on one set. It is written as soon as it is there, with its commit.
One that the record holds stays, unless its sampler has changed or `--again` is said. A peer that is
not installed is told, and tried anew at the next run.

The sets are not part of bmfjax: `panel_data.py` has their files. Those that are absent are left
out.

    pip install -e .[peers]
    python -m benchmarks.prediction.panel --data FOLDER
    python -m benchmarks.prediction.panel --data FOLDER --max-cpu 45 --most-cpu 300
    python -m benchmarks.prediction.panel --data FOLDER --sets zoo --models "latent classes" nmf
    python -m benchmarks.prediction.panel --data FOLDER --join ELSEWHERE/*.json

`--join` takes cells of runs elsewhere into the record. A cell says which processor it is of, and
seconds of two processors are not compared.
"""

import contextlib
import fcntl
import importlib.util
import itertools
import json
import os
import sys
from pathlib import Path

import numpy as np

from benchmarks.device import COMMIT, HIDDEN, apart, command_line, processor, resident, some
from benchmarks.form import page
from benchmarks.pages import RESULTS
from benchmarks.prediction import panel_page, panel_ratings
from benchmarks.prediction.panel_baselines import TUNED, column_means, tuned
from benchmarks.prediction.panel_data import (
    PLANTED,
    RATED,
    SETS,
    planted,
    ratings,
    read,
    scores,
    split,
)
from benchmarks.prediction.panel_models import (
    FITS,
    MOST_ENTRIES,
    RATINGS_FITS,
    on_processor_time,
    predicted,
    rated,
    sampler_of,
)

__all__ = ["SETS", "read"]

#: Cheap ones first.
MODELS = ("column means", *TUNED, *FITS)
RATINGS_MODELS = (*panel_ratings.METHODS, *RATINGS_FITS)
#: One thread each: threads that wait for each other count as processor seconds. And what was
#: compiled earlier is not found: to compile counts, too.
ALONE = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "JAX_ENABLE_COMPILATION_CACHE": "false",
}


def of_entries(options, name: str, model: str) -> dict:
    """Score a model on a matrix of ones and zeros."""
    if name == PLANTED:
        ones, shown, hidden = planted()
    else:
        pattern, *most = SETS[name]
        ones, shown, hidden = split(next(options.data.glob(pattern)), *most)
    if name != PLANTED and ones.size > MOST_ENTRIES:
        if model in FITS and not FITS[model].finds_rank:
            return {"not_run": f"over {MOST_ENTRIES:,} entries, and its rank must be tried"}
        if model in TUNED and TUNED[model].slow:
            return {"not_run": f"over {MOST_ENTRIES:,} entries, which it is too slow for"}
    began, draws, told = os.times(), None, {}
    if model == "column means":
        probability = column_means(ones, shown)
    elif model in TUNED:
        probability, told = tuned(model, ones, shown)
    else:
        probability, draws, told = predicted(model, ones, shown, hidden, options)
    spent = _spent(began)
    return scores(probability, ones, hidden, draws) | told | {"shape": list(ones.shape)} | spent


def of_ratings(options, name: str, model: str) -> dict:
    """Score a model on a set of ratings, in the unit of its publisher."""
    asked, unit = ratings(options.data, name)
    began, told = os.times(), {}
    if model in RATINGS_FITS:
        answer, told = rated(model, asked, options)
    else:
        method = panel_ratings.METHODS[model].run(asked, options.seed)
        answer = method.predicted
        told = {
            key: value for key, value in method.chosen.items() if isinstance(value, int | float)
        }
    spent = _spent(began)
    found = panel_ratings.scores(asked, answer)
    found |= {"rmse": found["rmse"] / unit, "width": found["width"] / unit}
    return found | told | {"shape": list(asked.shape)} | spent


def _spent(began) -> dict:
    now = os.times()
    return {
        "seconds": round(now.elapsed - began.elapsed, 1),
        "cpu_seconds": round(now.user - began.user + now.system - began.system, 1),
        "peak_mb": round(resident("VmHWM")),
    }


def one(options) -> None:
    """Score one model on one set, and print what was found."""
    if options.max_cpu is not None:
        on_processor_time()
    name, model = options.one
    found = (of_ratings if name in RATED else of_entries)(options, name, model)
    print(json.dumps(found))


def missing_package(model: str) -> str | None:
    """Return the package that a peer needs and that is not installed."""
    needed = panel_ratings.METHODS[model].packages if model in panel_ratings.METHODS else ()
    if model in TUNED:
        needed = (TUNED[model].package,)
    return next((n for n in needed if n and importlib.util.find_spec(n) is None), None)


def in_a_process(options, name: str, model: str) -> dict:
    """Score a model in a process of its own: what is compiled is counted each time."""
    if package := missing_package(model):
        return {"not_run": f"{package} is not installed"}
    words = ["--data", options.data, "--one", name, model, "--seed", options.seed]
    for key in ("max_cpu", "fits"):
        if (value := getattr(options, key)) is not None:
            words += ["--" + key.replace("_", "-"), value]
    how = {"patience": options.patience, "environment": {**os.environ, **ALONE}}
    return apart(*words, failed="stopped", **how)


@contextlib.contextmanager
def locked(record: Path):
    """Let one process at a time read and write the record."""
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield json.loads(record.read_text() or "{}").get("figures", {"sets": {}})["sets"]


def is_current(cell: dict, model: str) -> bool:
    """Whether a cell holds a score by the sampler as it is; an older cell names no sampler."""
    fit = (FITS | RATINGS_FITS).get(model)
    return "log_score" in cell and (fit is None or cell.get("sampler") in (None, sampler_of(fit)))


def kept(found: dict, held: dict) -> dict:
    """Return which of two cells stays: the found one, unless it has no score and the other has.

    Of a plain model or a peer its seconds on another processor stay too: they compare the two.
    """
    if "log_score" not in found and "log_score" in held:
        return held
    if "verdict" not in found and "cpu_seconds" in held and "log_score" in found:
        before = {"processor": held.get("processor"), "cpu_seconds": held["cpu_seconds"]}
        if before["processor"] != found.get("processor"):
            return found | {"elsewhere": before}
        return found | {key: held[key] for key in ("elsewhere",) if key in held}
    return found


def joined(options) -> None:
    """Take the cells of other records into the record."""
    from benchmarks.record import write_record

    with locked(options.record) as sets:
        for path in options.join:
            for name, of in json.loads(path.read_text())["figures"]["sets"].items():
                held = sets.setdefault(name, {})
                held |= {model: kept(cell, held.get(model, {})) for model, cell in of.items()}
        # What makes the record again is a run, and not where parts of it lay.
        sys.argv = [sys.argv[0], "--data", str(options.data)]
        write_record("panel", {"sets": sets}, options.output, commit=options.commit)


def cells(options):
    """Yield sets and models in turn, a model on all sets before the next."""
    for models, sets in ((MODELS, (*SETS, PLANTED)), (RATINGS_MODELS, RATED)):
        some = [model for model in models if model in options.models]
        for model, name in itertools.product(some, sets):
            if name in options.sets:
                yield name, model


page(__doc__, "panel*", name="panel")(panel_page.tables)

ANSWER = """
By binary latent features with weights of both signs, the default: on fourteen matrices their mean
log probability is 0.030 nats above that of tuned latent classes, 0.022 above that of tuned logistic
factorisation and 0.024 above that of cmfrec, which take seconds where features take two minutes.
They are at least as good as myFM on 14, as latent classes and cmfrec on 13 and as logistic
factorisation on 12. On the roles, whose tiles are nearly exact, logistic factorisation (-0.067) and
Boolean products (-0.055, one rate of flips) are ahead of features (-0.091). Ten of fourteen fits
are calibrated as well as chance allows; the others are less sure than they should be. Positive
weights are ahead of latent classes on eleven of fourteen, and behind on fractions, votes and zoo.
With room for forty features from the start, and not twenty, the mushrooms have -0.036 and DNA has
-0.503; on the tumours, whose table has 66 columns, it did not pay.

`probit`, whose factors are real, has 45 processor seconds and is 0.011 above latent classes, at
least as good on 12 of 14, and 0.019 below features, which it equals or exceeds on trees, aggression
and roles. Its chains agree sooner: on the votes, the trees and aggression it is "Reliable". `pmf`,
which takes ones and zeros as numbers, is 0.013 above latent classes on eight matrices, and `nmf`
0.041 below on seven. Boolean products with effects of rows and columns, whose rank is tried, are
0.006 above on five. Without effects they are far behind on the votes (-0.423 with two rates).
On the zoo NumPyro's samplers of the logistic model and of a Boolean product, with five factors,
have -0.346 and -0.398, where latent classes have -0.280. On a Boolean product that was planted its
sampler has -0.345 in 64.7 processor seconds, and the Boolean model of bmfjax, which finds the five
factors, -0.345 in 77.9 ("Reliable"); latent classes have -0.410 there.

On MovieLens 100K `pmf` with its ten factors has an error of 0.9049 stars (SMURFF 0.9062, myFM
0.9061), and is "Reliable" after 65.5 processor seconds (SMURFF 33.4, one rank of myFM 15.4).
`ordered-probit` has 0.9050 and the best log score, -1.228 (myFM's ordered probit -1.229), with
chains that do not agree about the cut points after 121.1. With ``rank="auto"`` the error of `pmf`
is 0.9075 in 104.9 seconds. On the jokes ten factors have 3.992 points and the number found 3.983
(SMURFF 4.006, myFM 4.011), and both are "Reliable"; on MovieLens small `pmf` has 0.8534 stars and
`ordered-probit` 0.8487 (SMURFF 0.8502, myFM 0.8484), and chains do not agree yet.

The weakest rows of bmfjax: `relaxed`, which explains nothing of the votes (-0.627) and has -0.070
on the roles; variational logistic factorisation with the number found (0.056 nats below latent
classes on 13), whose relevance priors take away factors that predict; `nmf`; and variational
logistic factorisation with effects and one of two numbers, chosen by validation (0.009 below on
six). Draws from the posterior, of one of two numbers, are 0.064 above those with the number found
on the same six matrices, in 15 to 25.2 processor seconds; these fits have no effects. Variants of
the Boolean product: codes (`hamming`) have -0.085 on the roles and -0.330 on the zoo, clusters
(`one-hot`) -0.146 and -0.297; layers (`deep-ormachine`) did not leave their warm-up in the time.
Then features on the roles.

Cells are of several runs and of two processors, as the stars on the page say. Not every model has
every matrix: the page says which cells are empty.
"""


def main() -> None:
    every, names = list(dict.fromkeys((*MODELS, *RATINGS_MODELS))), [*SETS, PLANTED, *RATED]
    options = command_line(
        __doc__, data=dict(type=Path, required=True, help="folder of the sets"), sets=some(names),
        models=some(every), max_cpu=(float, "processor seconds of a fit; default: its own"),
        most_cpu=(np.inf, "then no cell begins"), patience=(1200.0, "seconds of a cell at most"),
        seed=(0, "of the fits"), again=(False, "also what the record holds"),
        fits=(Path, "folder in which fits are saved"),
        commit=COMMIT,
        join=dict(nargs="+", type=Path, help="records of which cells are taken"),
        one=dict(nargs=2, metavar=("SET", "MODEL"), help=HIDDEN),
    )  # fmt: skip
    if options.one:
        one(options)
        return
    from benchmarks.record import commit_of, versions_of, write_record

    options.record = (options.output or RESULTS) / "panel.json"
    if options.join:
        joined(options)
        return
    for name, model in cells(options):
        spent = os.times()
        if spent.children_user + spent.children_system > options.most_cpu:
            print("the processor seconds are spent; the next run goes on here", flush=True)
            break
        file = SETS[name][0] if name in SETS else RATED[name].file if name in RATED else "*"
        if not any(options.data.glob(file)):
            print(f"{name}: no file in the folder; left out", flush=True)
            continue
        with locked(options.record) as sets:
            held = sets.get(name, {}).get(model, {})
        if is_current(held, model) and not options.again:
            continue
        found = in_a_process(options, name, model)
        if fit := (FITS | RATINGS_FITS).get(model) if "log_score" in found else None:
            found |= {"max_cpu": options.max_cpu, "sampler": sampler_of(fit)}
        elif model in TUNED and TUNED[model].package and "log_score" in found:
            found |= versions_of([TUNED[model].package.replace("_", "-")])
        found |= {"seed": options.seed, "commit": options.commit or commit_of()}
        # Virtual ones do not say more than their maker: the cores tell machines apart.
        found |= {"processor": f"{processor()}, {os.cpu_count()} cores"}
        print(name, model, found, flush=True)
        with locked(options.record) as sets:  # with what another run found meanwhile
            of = sets.setdefault(name, {})
            of[model] = kept(found, of.get(model, {}))
            write_record("panel", {"sets": sets}, options.output, commit=options.commit)


if __name__ == "__main__":
    main()

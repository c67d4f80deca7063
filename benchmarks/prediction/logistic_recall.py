"""Which zeros would become ones?

The protocol of Hernandez-Lobato, Houlsby, Ghahramani (2014), section 9: the 1000 columns with most
ones, 2000 rows with at least ten ones, or with `--large` as many as there; one 1 of every row is
held out. Synthetic: rank 10, standard normal factors, bias -7.5. The other matrices come from a
file of transactions: their (rows, columns) in `shape`, and `indptr` and `indices` as a sparse
matrix of rows has them. A file that has held-out columns, `heldout` (repeat, row), is taken as it
is. Where `pip install implicit` has been run, implicit's factorisations at rank 10 stand beside, as
they come and with options tuned on synthetic matrices. On the synthetic matrix there are two
ceilings: who knows all of the truth, and who knows columns and bias but infers the rows.

    python -m benchmarks.prediction.logistic_recall synthetic
    python -m benchmarks.prediction.logistic_recall retail --file PATH
"""

import functools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import random
from matplotlib.figure import Figure

import bmfjax
from benchmarks.device import script
from benchmarks.form import SECONDS, number, page, shown, table, with_error
from bmfjax.data import BinaryMatrix
from bmfjax.diagnostics import prediction_scores, recall_at
from bmfjax.variational import (
    LogisticPrior,
    batch_fit,
    elbo,
    entry_sampler,
    stochastic,
    usage_given_basis,
)
from bmfjax.variational import posterior as lp
from bmfjax.variational.entry_sampling import STRATEGIES

RANK, COLUMNS, BIAS, LEAST = 10, 1000, -7.5, 10
#: Rows of the small and of the large matrices, and the entries drawn from the large ones.
SMALL = 2000
LARGE = {"synthetic": (40_000, 1e8), "retail": (10_000, 1e7), "webview": (5000, 1e7)}
#: When to look, as shares of the entries drawn.
PARTS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
#: Repeats in which entries are hidden too, `bmfjax.fit` is called, and batch inference starts
#: several times.
FEW = 5
#: Options of the models of the package implicit beside the rank.
IMPLICIT = {
    "implicit ALS": {},
    "implicit LMF": {},
    "implicit ALS, tuned": {"regularization": 0.1, "alpha": 20.0, "iterations": 30},
    "implicit LMF, tuned": {"regularization": 0.6, "iterations": 200},
}
RUN = jax.jit(stochastic.run, static_argnames="prior")


def synthetic(seed: int, rows: int = SMALL):
    """Ones, the held-out column of every row, and the truth: log odds, and basis."""
    rng = np.random.default_rng(seed)
    usage, basis = rng.normal(size=(3 * rows, RANK)), rng.normal(size=(COLUMNS, RANK))
    logits = usage @ basis.T + BIAS
    ones = rng.random(logits.shape) < 1.0 / (1.0 + np.exp(-logits))
    chosen = np.flatnonzero(ones.sum(1) >= LEAST)[:rows]
    ones, logits = ones[chosen], logits[chosen]
    return ones, one_of_every_row(ones, rng), (logits, basis)


def one_of_every_row(ones, rng) -> np.ndarray:
    """The column of a random one of every row."""
    return np.array([rng.choice(np.flatnonzero(row)) for row in ones])


def from_file(path: Path, seed: int, rows: int):
    """Ones, and held-out columns: those of the file, or of rows and columns chosen from it."""
    with np.load(path, allow_pickle=False) as file:
        parts = np.ones(len(file["indices"]), bool), file["indices"], file["indptr"]
        matrix = scipy.sparse.csr_matrix(parts, shape=tuple(int(n) for n in file["shape"]))
        if "heldout" in file:
            return matrix.toarray(), file["heldout"][seed].astype(int), None
    most = np.argsort(-matrix.sum(0).A1, kind="stable")[:COLUMNS]
    matrix = matrix[:, np.sort(most)]
    enough = np.flatnonzero(matrix.sum(1).A1 >= LEAST)
    if len(enough) < rows:
        raise SystemExit(f"{path.name} has {len(enough)} rows with {LEAST} ones, {rows} are needed")
    # The same rows in every repeat, and other held-out ones.
    chosen = np.sort(np.random.default_rng(0).choice(enough, rows, replace=False))
    ones = matrix[chosen].toarray()
    return ones, one_of_every_row(ones, np.random.default_rng(seed)), None


def one_repeat(ones, held_out, truth, seed: int, options) -> dict:
    training = ones.copy()
    training[np.arange(len(ones)), held_out] = False
    prior = LogisticPrior(RANK)
    level = log_odds(training.mean())
    start = lp.start(random.key(seed), ones.shape, prior, level)
    values, seen = jnp.asarray(training), jnp.ones(training.shape, bool)
    rank = functools.partial(ranked, training, held_out)
    found = {"popularity": rank(np.broadcast_to(training.mean(0), training.shape))}
    if options.only_fit or seed < FEW:
        found["fit"] = as_a_user(training, seed, rank)
    if options.only_fit:
        return found
    if truth is not None:
        logits, basis = truth
        found["truth known"] = rank(1.0 / (1.0 + np.exp(-logits)))
        found["rows inferred"] = rank(rows_inferred(basis, values, seen, prior))
    for name, (scores, seconds) in implicit_scores(training, seed).items():
        found[name] = rank(scores) | {"seconds": seconds}

    def figures(posterior, began):
        seconds = round(time.perf_counter() - began, 1)
        chance = np.asarray(lp.probability(*lp.all_moments(posterior)))
        bound = jax.jit(elbo, static_argnames="prior")(posterior, prior, values, seen)
        return rank(chance) | {"elbo": round(float(bound), 1), "seconds": seconds}

    chances = []
    for start_seed in range(options.starts if seed < FEW else 1):
        began = time.perf_counter()
        other = lp.start(random.key(1000 * start_seed + seed), ones.shape, prior, level)
        posterior, _ = batch_fit(
            other, values, seen, prior=prior, num_updates=options.batch_updates
        )
        chances.append(np.asarray(lp.probability(*lp.all_moments(posterior))))
        if start_seed == 0:
            found["batch"] = figures(posterior, began)
    if len(chances) > 1:
        found["batch, starts averaged"] = rank(np.mean(chances, axis=0))
    for strategy in STRATEGIES:
        seconds, sizes, recalled = 0.0, [], []
        for part in entries_drawn(training, strategy, start, prior, seed, options.draws):
            seconds += part.seconds
            sizes.append(part.minibatch)
            chance = np.asarray(lp.probability(*lp.all_moments(part.posterior)))
            recalled.append(round(recall_at(chance, training, held_out), 5))
        found[strategy] = figures(part.posterior, time.perf_counter() - seconds)
        found[strategy] |= {"minibatch": sizes, "recall_by_part": recalled}
    return found


def as_a_user(training, seed: int, rank) -> dict:
    """Score the defaults of `bmfjax.fit`."""
    began = time.process_time()
    model = bmfjax.Logistic(RANK)
    fit = bmfjax.fit(training, model, seed=seed, progress=False)
    seconds = round(time.process_time() - began, 1)
    return rank(np.asarray(fit.probability())) | {"cpu_seconds": seconds}


class Part(NamedTuple):
    """Where a fit is after a share of its entries."""

    posterior: lp.LogisticPosterior
    minibatch: int  # entries
    seconds: float  # since the part before


def log_odds(share: float) -> float:
    return float(np.log(share / (1.0 - share)))


def entries_drawn(training, strategy, start, prior, seed, draws) -> Iterator[Part]:
    """The fit after every part of so many entries."""
    began = time.perf_counter()
    sampler, state = entry_sampler(BinaryMatrix(training), strategy), stochastic.init(start, prior)
    for part in PARTS:
        chunks = max(1, int(draws * part / stochastic.CHUNK))
        state = jax.block_until_ready(RUN(random.key(seed), state, sampler, prior, chunks))
        size = int(stochastic.num_chunks(state)) * stochastic.CHUNK
        yield Part(state.posterior, size, time.perf_counter() - began)
        began = time.perf_counter()


def rows_inferred(basis, values, seen, prior):
    """Probabilities where columns and bias are known, and rows are inferred from the ones left."""
    known = lp.Gaussian(jnp.asarray(basis, jnp.float32), jnp.zeros(basis.shape))
    bias = lp.Gaussian(jnp.float32(BIAS), jnp.float32(0.0))
    usage = jax.jit(usage_given_basis, static_argnames="prior")(known, bias, prior, values, seen)
    return np.asarray(lp.probability(*lp.all_moments(lp.LogisticPosterior(usage, known, bias))))


def implicit_scores(training, seed) -> dict:
    """Of the models of the package implicit: scores, and the seconds of the fit."""
    try:
        from implicit.als import AlternatingLeastSquares
        from implicit.lmf import LogisticMatrixFactorization
    except ImportError:
        return {}
    found, ones = {}, scipy.sparse.csr_matrix(training.astype(np.float32))
    for name, options in IMPLICIT.items():
        kind = AlternatingLeastSquares if "ALS" in name else LogisticMatrixFactorization
        began = time.perf_counter()
        model = kind(factors=RANK, random_state=seed, **options)
        model.fit(ones, show_progress=False)
        seconds = round(time.perf_counter() - began, 1)
        found[name] = (model.user_factors @ model.item_factors.T, seconds)
    return found


def ranked(training, held_out, scores) -> dict:
    """Recall, and how held-out ones rank among all zeros of the training matrix."""
    zeros = ~training
    left_out = np.zeros_like(training)
    left_out[np.arange(len(held_out)), held_out] = True
    low, high = scores.min(), scores.max()
    order = prediction_scores(left_out[zeros], ((scores - low) / (high - low))[zeros])
    found = {"recall": recall_at(scores, training, held_out)}
    return found | {n: round(order[n], 5) for n in ("auc", "average_precision")}


def summary(repeats: list[dict]) -> dict:
    """Mean and standard error over the repeats."""
    table = {}
    for method in repeats[0]:
        table[method] = {"repeats": sum(method in r for r in repeats)}
        for figure in ("recall", "auc", "average_precision", "elbo", "seconds", "cpu_seconds"):
            values = np.array([r[method][figure] for r in repeats if figure in r.get(method, ())])
            if len(values):
                table[method][figure] = round(float(values.mean()), 5)
            if len(values) > 1:
                error = values.std(ddof=1) / np.sqrt(len(values))
                table[method][f"{figure}_error"] = round(float(error), 5)
    return table


def against_uniform(repeats: list[dict]) -> dict:
    """By how much other strategies recall more than uniform draws, paired: mean and error."""
    found = {}
    for strategy in (s for s in STRATEGIES if s != "uniform"):
        gain = np.array([r[strategy]["recall"] - r["uniform"]["recall"] for r in repeats])
        error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else float("nan")
        found[strategy] = {"gain": round(float(gain.mean()), 4), "error": round(float(error), 4)}
    return found


def picture(each: list[dict], draws: float, path: Path) -> None:
    """Recall and the size of the minibatch against the entries drawn, means over the repeats."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    at = np.array(PARTS) * draws
    for strategy in STRATEGIES:
        for cell, of in zip(axes, ("recall_by_part", "minibatch"), strict=True):
            cell.plot(at, np.mean([r[strategy][of] for r in each], axis=0), ".-", label=strategy)
    axes[0].axhline(np.mean([r["batch"]["recall"] for r in each]), color="#999999", linewidth=1,
                    label="all entries")  # fmt: skip
    for cell, title in zip(axes, ("recall at 10", "entries of a minibatch"), strict=True):
        cell.set_xscale("log")
        cell.set_xlabel("entries drawn")
        cell.set_title(title, fontsize=10, loc="left")
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=110)


ANSWER = """
On synthetic matrices recall at 10 is 0.4394 ± 0.0035 with all entries and 0.4242 ± 0.0047 with
biased draws, above the 0.368 of Hernandez-Lobato, Houlsby and Ghahramani (2014) on other matrices.
The paper finds sampled entries better than all of them. Here it is the reverse on all four sets, in
less time: on the small synthetic matrix 60 rounds over all entries see 120 million in 1.7 s, and
sampled ones 10 million in 15 s. On the retail matrices the published figures are missed: 0.2275 for
0.234 on the small one, and 0.2310 for 0.235 on the large one.

| recall at 10 | synthetic, 2,000 rows | 40,000 rows | retail, 2,000 rows | 10,000 rows |
| --- | --- | --- | --- | --- |
| ceiling: columns known, rows inferred | 0.4623 ± 0.0033 | 0.4534 ± 0.0002 | | |
| all entries | 0.4394 ± 0.0035 | 0.4529 ± 0.0009 | 0.2296 ± 0.0015 | 0.2330 ± 0.0014 |
| published | 0.314 | 0.324 | 0.229 | 0.233 |
| entries drawn: biased | 0.4242 ± 0.0047 | 0.4291 ± 0.0009 | 0.2275 ± 0.0015 | 0.2310 ± 0.0014 |
| published | 0.368 | 0.387 | 0.234 | 0.235 |
| entries drawn: uniform | 0.3933 ± 0.0040 | 0.3592 ± 0.0057 | 0.2270 ± 0.0013 | 0.2292 ± 0.0013 |
| implicit, alternating least squares, tuned | 0.3703 ± 0.0037 | | | |
| implicit, logistic, tuned | 0.3566 ± 0.0025 | | | |
| implicit, logistic, its defaults | 0.3104 ± 0.0036 | | | |
| popularity | 0.0422 ± 0.0018 | 0.0449 ± 0.0017 | 0.2242 ± 0.0014 | 0.2293 ± 0.0015 |

The options of implicit were tuned on synthetic matrices like these, in trials that are in no
record.

On WebView-2, 2,000 rows, `bmfjax.fit` by default, four starts averaged, has 0.4073 ± 0.0018 over
two of the paper's 25 repeats, where 0.398 is published. On retail four starts averaged have 0.2336
± 0.0036 over five repeats. The paper's other sets, Kosarak, BMS-POS and Netflix, could not be had.
"""

#: Recall at 10 of Hernandez-Lobato, Houlsby and Ghahramani (2014), section 9, on small data: their
#: synthetic matrices, and their retail matrix; held-out ones are not the same as ours.
PUBLISHED_RECALL = {
    "synthetic": {"batch": 0.314, "biased": 0.368},
    "retail": {"batch": 0.229, "biased": 0.234},
    "webview": {"batch": 0.322, "biased": 0.398},
    "synthetic_large": {"batch": 0.324, "biased": 0.387},
    "retail_large": {"batch": 0.233, "biased": 0.235},
    "webview_large": {"batch": 0.359, "biased": 0.390},
}

_RECALLED = {
    "fit": "`bmfjax.fit`, its defaults: four starts averaged",
    "truth known": "ceiling: all of the truth known",
    "rows inferred": "ceiling: columns known, rows inferred",
    "batch": "all entries",
    "batch, starts averaged": "all entries, starts averaged",
    "biased": "entries drawn: biased", "balanced": "entries drawn: balanced",
    "uniform": "entries drawn: uniform", "implicit LMF": "implicit, logistic, its defaults",
    "implicit LMF, tuned": "implicit, logistic, tuned on these synthetic matrices",
    "implicit ALS": "implicit, alternating least squares, its defaults",
    "implicit ALS, tuned": "implicit, alternating least squares, tuned on these synthetic matrices",
    "popularity": "popularity",
}  # fmt: skip


@page(__doc__, "logistic_recall_*", notes=[("5cfbfbf", SECONDS), ("39af385", SECONDS)])
def tables(records: dict):
    yield (
        "Recall at 10 of one held-out one a row at rank 10: means and standard errors over the "
        "repeats. Published are the figures of Hernandez-Lobato, Houlsby and Ghahramani (2014), "
        "section 9; their rows and held-out ones are others."
    )
    for name, record in records.items():
        found, kind = record["figures"], name.removeprefix("logistic_recall_")
        yield f"## {name}"
        yield (
            f"{number(found.get('rows', 2000))} x 1,000. {number(found['draws'], 0)} entries "
            f"drawn, or {found['batch_updates']} rounds."
            if found["gain"]
            else f"{number(found['rows'])} x 1,000."
        )
        published = PUBLISHED_RECALL.get(kind.removesuffix("_fit"), {})
        yield shown(
            [{"method": n} | found["table"][n] for n in _RECALLED if n in found["table"]],
            {"method": lambda row: _RECALLED[row["method"]], "repeats": "",
             "recall at 10": _measured("recall"),
             "published": lambda row, of=published: of.get(row["method"]),
             "AUC": _measured("auc"), "average precision": _measured("average_precision"),
             "seconds": lambda row: number(row.get("seconds", row.get("cpu_seconds")), 1)},
        )  # fmt: skip
        if found["gain"]:
            yield from _paired(found)
        if "parts" in found and found["gain"]:
            yield f"![Recall and the size of the minibatch as entries are drawn]({name}.png)"
        yield from _hidden(found)


def _measured(figure: str):
    return lambda row: with_error(row[figure], row.get(f"{figure}_error"), 4)


def _paired(found: dict):
    yield "Recall beyond that of uniform draws, paired, and the size of the minibatch:"
    each = found["each"]
    sizes = {n: each[0].get(n, {}).get("minibatch") for n in ("uniform", *found["gain"])}
    tenth = found["parts"].index(0.1) if "parts" in found else 0
    rows = [
        [
            name, with_error(found["gain"][name]["gain"], found["gain"][name]["error"], 4)
            if name in found["gain"] else "",
            *(size[place] if size else None for place in (tenth, -1)),
        ]
        for name, size in sizes.items()
    ]  # fmt: skip
    header = ["draws", "gain in recall", "minibatch after a tenth", "at the end (first repeat)"]
    yield table(header, rows)
    averaged = found["table"].get("batch, starts averaged")
    if averaged:
        same = [case["batch"]["recall"] for case in each[: averaged["repeats"]]]
        yield (
            f"One start in the repeats in which starts are averaged:"
            f" {number(statistics.mean(same), 4)}."
        )


def _hidden(found: dict):
    if found.get("hidden"):
        yield (
            "Probabilities of a twentieth of the entries, hidden from the fit, means over"
            f" {len(found['hidden'])} matrices:"
        )
        columns = ("auc", "average_precision", "log_loss", "calibration_error")
        yield table(["", *(n.replace("_", " ") for n in columns)], [
            [who, *(number(statistics.mean(case[who][n] for case in found["hidden"]), 4)
                    for n in columns)]
            for who in found["hidden"][0]])  # fmt: skip


@script(__doc__, {"data": dict(choices=list(LARGE))},
        file=(Path, "transactions (.npz), but for synthetic data"),
        large=(False, "the paper's large matrix"), repeats=25,
        draws=(float, "entries drawn in a run; default as the paper"), batch_updates=60,
        starts=(4, "of batch inference"),
        only_fit=(False, "`bmfjax.fit`, and popularity"))  # fmt: skip
def main(options):
    made_up = options.data == "synthetic"
    if made_up != (options.file is None):
        options.error(f"{options.data} {'takes no' if made_up else 'needs'} --file")
    rows, draws = LARGE[options.data] if options.large else (SMALL, 1e7)
    options.draws = options.draws or draws
    options.record += f"_{options.data}" + ("_large" if options.large else "")
    options.record += "_fit" if options.only_fit else ""
    figures = {n: getattr(options, n) for n in ("repeats", "draws", "batch_updates", "starts")}
    figures |= {"rows": rows, "parts": PARTS, "table": {}, "gain": {}, "each": []}
    for seed in range(options.repeats):
        made = synthetic(seed, rows) if made_up else from_file(options.file, seed, rows)
        figures["rows"] = len(made[0])
        figures["each"].append(one_repeat(*made, seed, options))
        figures["table"] = summary(figures["each"])
        if not options.only_fit:
            figures["gain"] = against_uniform(figures["each"])
        print(seed, {m: v["recall"] for m, v in figures["table"].items()}, flush=True)
        yield figures
        if not options.only_fit:
            picture(figures["each"], options.draws, options.results / f"{options.record}.png")

"""The pages on ratings and on the logistic model: rows of figures for each question."""

from __future__ import annotations

import statistics

from benchmarks.tables_form import (
    Records,
    figures,
    listed,
    number,
    page,
    percent,
    table,
    with_error,
)

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


@page(
    "pmf_movielens", "How far off are predicted stars of MovieLens?", "pmf_movielens",
    "pmf_movielens_1m",
)  # fmt: skip
def pmf_movielens(records: Records):
    yield (
        "Root mean squared error of predicted stars. Of 100K, mean of the publisher's five folds "
        "with its standard error. Published: roots of the five-fold mean squared errors in "
        "Brouwer's comparison of priors. Of 1M, a random tenth is held out."
    )
    for record in records.values():
        found = record["figures"]
        yield f"## {found['data']}"
        yield table(
            ["model", "error", "of the folds", "ms a sweep"],
            [
                [
                    name, with_error(row["rmse"]["mean"], row["rmse"]["standard_error"], 4),
                    listed(row["rmse_of_folds"], 4), number(row.get("milliseconds_a_sweep"), 1),
                ]
                for name, row in found["models"].items()
            ],
        )  # fmt: skip
        if published := found.get("published_rmse"):
            yield table(["published", "error"], [[n, number(v, 4)] for n, v in published.items()])


@page(
    "pmf_movielens_attributes", "Do attributes of users and films predict stars better?",
    "pmf_movielens_attributes*",
)  # fmt: skip
def pmf_movielens_attributes(records: Records):
    yield (
        "Root mean squared error of predicted stars and per cent of the held-out stars inside of "
        "their 90 % intervals; of 100K means over the publisher's five folds with standard "
        "errors, of 1M a random tenth. Intervals of the ordered probit end at stars. Users: age, "
        "gender, occupation; films: year, genres."
    )
    for record in records.values():
        found = record["figures"]
        yield f"## {found['data']}"
        yield table(
            ["model", "error", "of the folds", "inside, %", "ms a sweep"],
            [
                [
                    name, with_error(row["rmse"]["mean"], row["rmse"]["standard_error"], 4),
                    listed(row["rmse_of_folds"], 4), _inside(**row["inside_of_90_percent"]),
                    number(row.get("milliseconds_a_sweep"), 1),
                ]
                for name, row in found["models"].items()
            ],
        )  # fmt: skip


def _inside(mean: float, standard_error: float | None) -> str:
    """In per cent; one fold has no standard error."""
    error = None if standard_error is None else 100 * standard_error
    return with_error(100 * mean, error, 2)


#: How older records were compiled, by whether they say `undivided`.
_COMPILED = {False: "by XLA's defaults", True: "undivided"}


@page("pmf_speed", "What does a Gibbs sweep of ratings cost beside SMURFF?", "pmf_speed*")
def pmf_speed(records: Records):
    yield (
        "Milliseconds of a sweep on a random matrix, without effects: the least of the sweeps, and "
        "in brackets the median. By its defaults XLA divides loops among threads. `bmfjax.fit` "
        "switches that off, and LLVM's later passes with it; `undivided` is without the former."
    )
    rows = []
    for record in records.values():
        found = record["figures"]
        shape = f"{found['rows']:,} x {found['columns']:,}, {found['observed_percent']} % observed"
        for case, run in found["milliseconds_a_sweep"].items():
            rows.append([
                shape, case, found.get("compiled", _COMPILED[found.get("undivided", False)]),
                *(_sweep(run.get(who), of)
                  for who in ("bmfjax", "smurff") for of in ("wall", "processor")),
                found.get("smurff_version", ""),
            ])  # fmt: skip
    yield table(
        ["matrix", "case", "compiled", "bmfjax", "processor", "SMURFF", "processor",
         "SMURFF's version"], rows,
    )  # fmt: skip


def _sweep(run: dict | None, of: str) -> str:
    if run is None or of not in run:  # the program is not there
        return ""
    return f"{number(run[of]['least'], 1)} ({number(run[of]['median'], 1)})"


@page("pmf_calibration", "Do 90 % intervals of hidden ratings cover 90 %?")
def pmf_calibration(records: Records):
    found = figures(records, "pmf_calibration")
    kept, level = found.get("kept", 0), found.get("level_percent", 90)
    yield (
        f"{found.get('repeats')} data sets of {found.get('rows')} x {found.get('columns')} drawn"
        f" from the model at rank {found.get('rank')}, {found.get('observed')} % of the cells"
        f" observed. Per cent of the hidden cells in central {level} % intervals. Ends from n"
        " independent draws are expected to cover the level times (n - 1) / (n + 1): for the "
        f"{kept} that were kept {number(level * (kept - 1) / (kept + 1), 1)} %. They are not quite"
        " independent."
    )
    yield table(
        ["intervals of", "covered, %"],
        [
            [name, with_error(share["mean"], share["standard_error"], 2)]
            for name, share in found.get("covered_percent", {}).items()
        ],
    )


@page(
    "movielens", "Which ratings of MovieLens are above the mean?", "movielens*",
    "probit_movielens*",
)  # fmt: skip
def movielens(records: Records):
    yield (
        "Per cent of the unobserved ratings on the right side of the mean, with standard errors "
        "over the splits. Published are Rukat et al. (2017), from the slides of their talk, and "
        "Ravanbakhsh et al. (2016), table 1."
    )
    for name, record in records.items():
        found = record["figures"]
        shares = found["observed_percent"]
        yield f"## {name}"
        length = (
            f"{found['warmup']} + {found['samples']} sweeps"
            if "warmup" in found
            else f"whole fits, each of about {found['max_cpu_seconds']:g} processor seconds"
        )
        yield f"{found['data']}, {found['splits']} splits, {length}."
        methods = dict.fromkeys(method for case in shares.values() for method in case)
        for figure, digits in (("percent_right", 2), ("log_loss", 4), ("calibration_error", 4)):
            rows = [
                [method, *(_score(case.get(method), figure, digits) for case in shares.values())]
                for method in methods
            ]
            yield table([figure.replace("_", " "), *(f"{s} % observed" for s in shares)], rows)
        rows = [
            [method, f"{share} %", *case[method]["verdicts"]]
            for share, case in shares.items()
            for method in case
            if "verdicts" in case[method]
        ]
        if rows:
            splits = [f"verdict of split {number}" for number in range(found["splits"])]
            yield table(["fit", "observed", *splits], rows)
        published = dict(found.get("published_percent_right", {}))
        at = published.pop("observed_percent", ())
        if published:
            rows = [[f"published: {n}", *values] for n, values in published.items()]
            yield table(["percent right", *(f"{s} % observed" for s in at)], rows)


def _score(case: dict | None, figure: str, digits: int) -> str:
    if not case or figure not in case:
        return ""
    return with_error(case[figure]["mean"], case[figure]["standard_error"], digits)


@page("recommend_speed", "What does a recommendation for every user cost?")
def recommend_speed(records: Records):
    (record,) = records.values()
    found = record["figures"]
    yield (
        f"The {found['best']} best of {found['items']:,} items for each of {found['users']:,} "
        f"users, of whom {found['ratings']:,} ratings are known: rank {found['rank']}, "
        f"{found['draws']:,} draws."
    )
    yield table(
        ["call", "seconds", "of the processor", "lines"],
        [
            [name, number(one["seconds"], 2), number(one["cpu_seconds"], 2), one["lines"]]
            for name, one in found["calls"].items()
        ],
    )


@page("logistic_recall", "Which zeros would become ones?", "logistic_recall_*")
def logistic_recall(records: Records):
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
        rows = [
            [
                label, row["repeats"], with_error(row["recall"], row.get("recall_error"), 4),
                number(PUBLISHED_RECALL.get(kind.removesuffix("_fit"), {}).get(method)),
                with_error(row["auc"], row.get("auc_error"), 4),
                with_error(row["average_precision"], row.get("average_precision_error"), 4),
                number(row.get("seconds", row.get("cpu_seconds")), 1),
            ]
            for method, label in _RECALLED.items()
            if (row := found["table"].get(method))
        ]  # fmt: skip
        header = ["method", "repeats", "recall at 10", "published", "AUC", "average precision"]
        yield table([*header, "seconds"], rows)
        if found["gain"]:
            yield from _paired(found)
        if "parts" in found and found["gain"]:
            yield f"![Recall and the size of the minibatch as entries are drawn]({name}.png)"
        yield from _hidden(found)


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
    if found["hidden"]:
        yield (
            "Probabilities of a twentieth of the entries, hidden from the fit, means over"
            f" {len(found['hidden'])} matrices:"
        )
        columns = ("auc", "average_precision", "log_loss", "calibration_error")
        yield table(
            ["", *(n.replace("_", " ") for n in columns)],
            [
                [who, *(number(statistics.mean(case[who][n] for case in found["hidden"]), 4)
                        for n in columns)]
                for who in found["hidden"][0]
            ],
        )  # fmt: skip


@page(
    "logistic_vs_nuts", "How far is variational inference of the logistic model from its posterior?"
)
def logistic_vs_nuts(records: Records):
    found = figures(records, "logistic_vs_nuts")
    yield (
        "Log odds of all entries of small matrices, beside NUTS. Differences are in posterior "
        "standard deviations. `ratio`: of standard deviations, at the 10, 50 and 90 % quantile of "
        f"the entries. Entries are drawn {number(found.get('draws'), 0)} times."
    )
    yield table(
        ["matrix", "means apart: median", "90 %", "worst", "ratio: 10 %", "50 %", "90 %",
         "drawn from all entries: median", "worst", "NUTS, R-hat", "effective draws"],
        [
            [
                n, *(number(case["means_apart"][q], 3) for q in ("median", "90 %", "worst")),
                *(number(case["sd_ratio"][q], 3) for q in ("0.1", "0.5", "0.9")),
                *(number(case["entries_drawn_apart"][q], 3) for q in ("median", "worst")),
                number(case["nuts_rhat"], 4), number(case["nuts_ess"], 0),
            ]
            for n, case in enumerate(found.get("each", ()))
        ],
    )  # fmt: skip
    if "shipped" in found:
        case = found["shipped"]
        verdict = case["verdict"].partition(":")[0]
        yield (
            f"The same of {case['name']} at rank {case['rank']}, beside the exact sampler, "
            f'`sampler="gibbs"`, whose product has an R-hat of {number(case["rhat_product"], 3)} '
            f"(verdict: {verdict}). Variational inference takes "
            f"{case['batch_seconds']} s and the sampler {case['gibbs_seconds']} s."
        )
        yield table(
            ["all entries", "means apart: median", "90 %", "worst", "ratio: 10 %", "50 %", "90 %"],
            [
                [
                    name.replace("_", " "),
                    *(number(case[name]["means_apart"][q], 3) for q in ("median", "90 %", "worst")),
                    *(number(case[name]["sd_ratio"][q], 3) for q in ("0.1", "0.5", "0.9")),
                ]
                for name in ("log_odds", "probability")
            ],
        )  # fmt: skip


@page("logistic_speed", "What do sampled entries cost, by the size of the matrix?")
def logistic_speed(records: Records):
    found = figures(records, "logistic_speed")
    fits = {n: v for n, v in found.items() if isinstance(v, dict) and "megabytes" in v}
    yield f"A fit of {number(found.get('draws'), 0)} entries drawn, compilation apart:"
    yield table(
        ["matrix", "seconds", "memory after a tenth, MB", "at the end, MB"],
        [[name, number(case["seconds"], 1), *case["megabytes"]] for name, case in fits.items()],
    )
    yield (
        "Milliseconds for 4,096 entries, at 30 ones a row. A minibatch is drawn in chunks of 4,096 "
        "entries, so that the size that the run asks for is rounded up."
    )
    yield table(
        ["matrix", "ms", "minibatch, asked for", "drawn", "one-time count, s"],
        [
            [
                name, case["entries"], asked := case.get("wanted", case.get("minibatch")),
                case.get("drawn", -(-asked // 4096) * 4096), case["one-time count, seconds"],
            ]
            for name, case in found.get("milliseconds per 4096 entries", {}).items()
        ],
    )  # fmt: skip


@page("logistic_defaults", "All entries of the logistic model, or sampled ones?")
def logistic_defaults(records: Records):
    found = figures(records, "logistic_defaults")
    yield (
        f"Synthetic matrices, rank {found.get('rank')}, at most {found.get('most steps')} steps a"
        " fit, from one start. The processor seconds include compilation."
    )
    fits = [
        (name, how, fit)
        for name, case in found.get("fits", {}).items()
        for how, fit in case.items()
    ]
    whole = found.get("default, four starts averaged")
    if whole:
        fits.append(("2000 x 1000, bias -7.5", "the default: four starts averaged", whole))
    yield table(
        ["matrix", "ones, %", "sampler", "steps", "settled", "processor seconds", "seconds",
         "bound", "recall at 10", "memory, MB"],
        [
            [
                name, percent(fit["density"]), how, fit["steps"], fit["settled"],
                number(fit["processor seconds"], 1), number(fit["seconds"], 1),
                number(fit["bound"], 0), number(fit["recall"], 3), fit["megabytes"],
            ]
            for name, how, fit in fits
        ],
    )  # fmt: skip
    yield "Cost of a step:"
    yield table(
        ["matrix", "sampler", "processor seconds a step", "memory, MB"],
        [
            [name, how, number(step["processor seconds a step"], 3), step["megabytes"]]
            for name, case in found.get("steps", {}).items()
            for how, step in case.items()
        ],
    )

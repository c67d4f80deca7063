"""The pages on the relaxed and the nonnegative model: rows of figures for each question."""

from __future__ import annotations

import statistics

from benchmarks.tables_form import Records, figures, number, page, table, with_error


@page("iasg_speed", "What does a step of IASG cost beside its matrix products?", "iasg_speed*")
def iasg_speed(records: Records):
    yield (
        "Microseconds of one step of both factor matrices. `products` are its bare matrix "
        "products; `with curvature` is the default step. The aim was a ratio of at most 1.5."
    )
    for name, record in records.items():
        yield f"## {name}"
        yield table(
            ["batch", "products", "as published", "ratio", "with curvature", "ratio"],
            [
                [
                    row["batch"], *(number(row[n], 0) for n in ("products_us", "thesis_us")),
                    number(row["thesis_over_products"], 2), number(row["newton_us"], 0),
                    number(row["newton_over_products"], 2),
                ]
                for row in record["figures"]["rows"]
            ],
        )  # fmt: skip


@page("iasg_memory", "Is the memory of a long run of IASG flat in its length?")
def iasg_memory(records: Records):
    found = figures(records, "iasg_memory")
    yield f"Rank {found.get('rank')}, batch {found.get('batch')}, histograms of all marginals."
    yield table(
        ["draws", "peak memory, MB", "seconds"],
        [
            [row["samples"], number(row["peak_mb"], 1), number(row["seconds"], 1)]
            for row in found.get("rows", ())
        ],
    )


@page("sparse_memory", "What do sparse data save where models of numbers sample them?")
def sparse_memory(records: Records):
    found = figures(records, "sparse_memory")
    yield (
        f"Rank {found.get('rank')}, {found.get('chains')} chains. Memory is the peak beyond that "
        "of the process with everything imported, and holds the input, until the draws are there "
        "and until the fit is. The log joint density is that of the last sweep, from the same keys."
    )
    yield table(
        [
            "matrix", "stored entries", "model", "sampled", "peak while sampling, MB",
            "peak of all, MB", "processor ms a sweep", "ms a sweep", "start, s", "after, s",
            "log joint",
        ],
        [
            [
                row["size"], number(row["stored"]), row["model"], row["way"],
                *(number(row[n] / 1e6, 0) for n in ("sampled_bytes", "peak_bytes")),
                number(1e3 * row["sweep_processor_seconds"], 0),
                number(1e3 * row["sweep_seconds"], 0),
                *(number(row[n], 1) for n in ("start_seconds", "after_seconds")),
                number(row["log_joint"], 0),
            ]
            for row in found.get("runs", ())
        ],
    )  # fmt: skip


@page("minibatch_sizes", "From which size on are minibatches cheaper than all data?")
def minibatch_sizes(records: Records):
    found = figures(records, "minibatch_sizes")
    yield (
        f"Square matrices of tiles, rank {found.get('rank')}, learned precision. Milliseconds are "
        "of the processor, medians over stretches in which the samplers take turns. Means are off "
        "in posterior standard deviations, and both differences have the Monte Carlo variance "
        "subtracted: what Gibbs, again, shows is what is left of it. `times Gibbs` compares "
        "effective draws."
    )
    yield table(
        [
            "size", "sampler", "draws", "effective share", "ms a draw", "ms an effective draw",
            "times Gibbs", "means off", "standard deviations off",
        ],
        [
            [
                size, name, row["draws"], number(row["ess_of_a_draw"], 2),
                *(number(row[n], 2) for n in ("ms_of_a_draw", "ms_of_an_effective_draw")),
                number(row["times_gibbs"], 2), number(row["mean"], 3), number(row["sd"], 3),
            ]
            for size, rows in found.get("sizes", {}).items()
            for name, row in rows.items()
        ],
    )  # fmt: skip


@page("loo_subsample", "Does a subsample tell the leave-one-out score of a million entries?")
def loo_subsample(records: Records):
    yield (
        "`subsample` is `arviz.loo_subsample` of `bmfjax.log_likelihood_fn`; `stream` scores every "
        "entry, a block at a time. Memory is the peak while either runs, less that before it. "
        "`apart` is the difference in standard errors of the subsample."
    )
    found = figures(records, "loo_subsample").get("rows", {})
    yield table(
        [
            "model", "entries", "draws", "draws x entries, MB", "scored", "way", "elpd",
            "error of the subsample", "apart", "processor seconds", "peak memory, MB",
        ],
        [
            [
                model, row["entries"], row["draws"], row["matrix_mb"],
                row["scored"] if way == "subsample" else row["entries"], way,
                number(row[way]["elpd"], 1),
                *(
                    (number(row[way]["subsampling_se"], 1), number(row["apart"], 2))
                    if way == "subsample"
                    else ("", "")
                ),
                number(row[way]["cpu_seconds"], 1), row[way]["peak_mb"],
            ]
            for model, row in found.items()
            for way in ("subsample", "stream")
        ],
    )  # fmt: skip


@page("iasg_vs_nuts", "How far is IASG's answer from the posterior?")
def iasg_vs_nuts(records: Records):
    found = figures(records, "iasg_vs_nuts")
    yield (
        f"Matrix `{found.get('data')}`, rank {found.get('rank')}: IASG beside NUTS. Differences of "
        "means are in posterior standard deviations, and ratios are of standard deviations."
    )
    columns = {
        "mean_difference_in_sd_median": "difference, median", "ratio_of_sd_median": "ratio, median",
        "mean_difference_in_sd_90_percent": "difference, 90 %",
        "ratio_of_sd_10_percent": "ratio, 10 %", "ratio_of_sd_90_percent": "ratio, 90 %",
    }  # fmt: skip
    yield table(
        ["entries of", *columns.values()],
        [
            [part, *(number(found[part][n], 3) for n in columns)]
            for part in ("usage", "basis", "reconstruction")
            if part in found
        ],
    )
    samplers = {n: found[n] for n in ("iasg", "nuts") if n in found}
    yield table(
        ["sampler", "mean precision", "its standard deviation", "seconds", "divergences",
         "R-hat of 99 % of the product", "share of entries clamped"],
        [
            [
                name, number(run["precision_mean"], 3), number(run["precision_sd"], 3),
                number(run["seconds"], 1), run.get("divergences"),
                number(run.get("rhat_product_99_percent"), 3), number(run.get("clamped"), 3),
            ]
            for name, run in samplers.items()
        ],
    )  # fmt: skip


@page(
    "gibbs_speed", "What does a sweep of the exact relaxed sampler cost, beside NUTS?",
    "gibbs_speed*",
)  # fmt: skip
def gibbs_speed(records: Records):
    for name, record in records.items():
        yield f"## {name}"
        yield from _gibbs_speed(record["figures"])


def _gibbs_speed(found: dict):
    yield "A sweep beside its bare matrix products:"
    yield table(
        ["size", "rank", "ms a sweep", "quickest", "ms of the products", "ratio"],
        [[found.get(n) for n in
          ("size", "rank", "sweep_ms", "sweep_ms_quickest", "products_ms", "ratio")]],
    )  # fmt: skip
    beside = found.get("against_nuts", {})
    if beside:
        yield (
            f"Effective draws of the log joint a second at size {beside['size']}: the ratio is"
            f" {beside['ratio']}."
        )
        yield table(
            ["sampler", "draws", "seconds", "effective draws", "a second", "divergences"],
            [
                [
                    name, run.get("sweeps", run.get("samples")), run["seconds"],
                    run["ess_log_joint"], number(run["ess_per_second"], 1), run.get("divergences"),
                ]
                for name, run in beside.items()
                if isinstance(run, dict)
            ],
        )  # fmt: skip


_BIAS = ("mean", "sd", "ratio", "ks_near_0", "ks_inside", "ks_near_1", "ess_per_second", "seconds")


@page("bias_table", "How far is every sampler of the relaxed model from its posterior?")
def bias_table(records: Records):
    yield (
        "Uniform priors, learned precision; a long run of the exact sampler is the reference. All "
        "start at the same draw of the posterior. Over up to 300 entries of the factors:"
    )
    yield (
        "* `mean`: root mean square of the differences of means, in posterior standard\n"
        "  deviations. `sd`: the same of the relative differences of standard deviations. Both\n"
        "  have the Monte Carlo variance subtracted. `ratio`: median ratio of standard\n"
        "  deviations.\n"
        "* `KS`: median Kolmogorov-Smirnov distance of marginals with a mean below 0.1, between,\n"
        '  and above 0.9. What "Gibbs, again" shows is Monte Carlo error.\n'
        "* `ESS/s`: median effective draws of an entry per second of sampling. Other runs used\n"
        "  the cores as well: compare within a table."
    )
    yield (
        "`Gibbs`, `MALA` and `truncate, all data` are exact, and NUTS is as far as it does not "
        "diverge. `h` is the step in units of the block's own covariance. A draw of SGLD is ten "
        "steps with block-Newton preconditioning (`bmfjax.kernels.langevin`). `truncate` is the "
        "auxiliary-variable step of `bmfjax.kernels.sgmcmc.boundary`."
    )
    for size, case in figures(records, "bias_table").get("tables", {}).items():
        yield f"## {size}, rank {case['rank']}"
        yield (
            f"{case['entries']} entries, {case['near_0']} near 0 and {case['near_1']} near 1. The "
            f"exact run has {case['exact']['ess']:,} effective draws."
        )
        yield table(
            ["sampler", "mean", "sd", "ratio", "KS near 0", "inside", "near 1", "ESS/s", "seconds"],
            [[name, *(row[n] for n in _BIAS)] for name, row in case["rows"].items()],
        )


@page("relaxed_starts", "Do exact relaxed chains from random starts agree, and find the truth?")
def relaxed_starts(records: Records):
    found = figures(records, "relaxed_starts")
    settings = ("size", "chains", "warmup", "anneal", "samples")
    yield (
        "Matrices of Gonsior (2019), algorithm 3.3. Wrong entries are against the noise-free "
        "matrix. `all chains`: the library's own Boolean factors, which never see it. `each "
        "chain`: the same from the means of one chain. `best threshold` and `0.5`: one threshold "
        "for both factors, the best chosen on the noise-free matrix."
    )
    yield "Settings: " + ", ".join(f"{n} {found.get(n)}" for n in settings) + "."
    rows = []
    for name, case in found.get("matrices", {}).items():
        joint, errors = case["log_joint_of_chains"], case["errors_of_chains"]
        rows.append([
            name, *(number(case[f"rhat_{n}"], 3)
                    for n in ("log_joint", "precision", "entries_largest")),
            number(case["errors"]), _middle_and_worst(errors),
            number(statistics.median(case["errors_at_best_threshold_of_chains"]), 0),
            number(statistics.median(case["errors_at_half_of_chains"]), 0),
            f"{min(joint):,} to {max(joint):,}", number(case["errors_of_the_data"]),
            number(case["seconds"], 0),
        ])  # fmt: skip
    yield table(
        ["matrix", "R-hat log joint", "precision", "largest of the entries", "all chains",
         "each chain: median, worst", "best threshold (median)", "0.5 (median)",
         "log joint of the chains", "wrong in the data", "seconds"], rows,
    )  # fmt: skip


def _middle_and_worst(errors: list) -> str:
    return f"{number(statistics.median(errors), 0)}, {max(errors)}"


@page("ambiguity", "Does a standard deviation say more than a mean between 0 and 1?")
def ambiguity(records: Records):
    found = figures(records, "ambiguity")
    yield (
        "Posterior means and standard deviations of the factor entries, from exact draws, on the "
        "dense noisy matrix of 30 tiles. `half to all`: ratio of the standard deviation over half "
        "of the draws to that over all. `explained`: share of the variance of the logarithm of "
        "the standard deviation that the mean explains. `area`: under the ROC curve, in telling "
        "the entries that are wrong at threshold one half from the rest."
    )
    yield (
        "![Posterior standard deviation against mean of the factor entries, at rank 20, 30 and"
        " 40](ambiguity.png)"
    )
    rows = {n: row for n, row in found.get("rows", {}).items() if "explained" in row}
    columns = {
        "sd_half_to_all": "half to all", "explained": "explained",
        "wrong_entries": "wrong entries", "area_ambiguity": "area, ambiguity",
        "area_sd": "area, sd", "area_sd_given_mean": "area, sd given the mean",
    }  # fmt: skip
    yield table(
        ["chains", *columns.values()], [[n, *(row[c] for c in columns)] for n, row in rows.items()]
    )
    rows = {n: row for n, row in found.get("rows", {}).items() if "log_joint" in row}
    yield table(
        ["", "log joint", "precision", "largest of the entries"],
        [
            [n, *(number(row[c], 4) for c in ("log_joint", "precision", "entries_largest"))]
            for n, row in rows.items()
        ],
    )


@page(
    "thesis_tables", "Do the tables of Gonsior (2019) come out of `IASG.thesis`?", "thesis_tables*"
)
def thesis_tables(records: Records):
    found = figures(records, "thesis_tables")
    rows = _rows_of_parts(records)
    several = any(row.get("seed") for row in rows)
    yield (
        f"Runs of {number(found.get('samples'))} draws at rank {found.get('rank')}, precision fixed"
        " at 1, on matrices of 8 x 8 tiles with"
        f" {number(found.get('ones_in_the_noise_free_matrix'))} ones. Wrong entries are against "
        "the noise-free matrix, with the threshold chosen on that truth as in the thesis. The "
        "thesis's own matrices are not available: ours have the same parameters and other random "
        "numbers, and one matrix and one seed a row, as there."
        + (" `several matrices`: the lowest error on several of our matrices, with its standard "
           "error; `deviation`: the standard deviation from matrix to matrix; `range`: the lowest "
           f"and the highest of them. {_inside(rows)}" if several else "")
    )  # fmt: skip
    for start, title in (("random", "From a random start (thesis table 4.1)"),
                         ("optimum", "From the optimum (thesis table 4.2)")):  # fmt: skip
        yield f"## {title}"
        first = [row for row in rows if row["start"] == start and not row.get("seed")]
        yield table(
            ["data", "model", "batch", "error at 0.5", "lowest error (thresholds)",
             "thesis: at 0.5", "thesis: lowest (thresholds)",
             *(["several matrices", "deviation", "range"] if several else []),
             "log joint, first and last", "seconds"],
            [
                [
                    row["data"], row["model"], row["batch"], row["error_at_half"], _lowest(row, ""),
                    row["thesis_error_at_half"], _lowest(row, "thesis_"),
                    *(_over_matrices(row, rows) if several else []), _log_joints(row),
                    number(row["seconds"], 0),
                ]
                for row in first
            ],
        )  # fmt: skip


def _errors_over_matrices(row: dict, rows) -> list[int]:
    """The lowest error of a row of the thesis, on each matrix it was run on."""
    names = ("start", "data", "model", "batch")
    return [r["error"] for r in rows if all(r[n] == row[n] for n in names)]


def _over_matrices(row: dict, rows) -> tuple[str, str, str]:
    """The mean of the lowest errors of a row over its matrices, their deviation and their range."""
    errors = _errors_over_matrices(row, rows)
    if len(errors) == 1:
        return "", "", ""
    deviation = statistics.stdev(errors)
    mean = with_error(statistics.mean(errors), deviation / len(errors) ** 0.5, 1)
    return f"{mean} of {len(errors)}", number(deviation, 1), f"{min(errors):,} to {max(errors):,}"


def _inside(rows) -> str:
    """Say how many figures of the thesis lie below, within and above those of our matrices."""
    below = within = above = 0
    for row in rows:
        errors = _errors_over_matrices(row, rows)
        if not row["seed"] and len(errors) > 1:
            below += row["thesis_error"] < min(errors)
            above += row["thesis_error"] > max(errors)
            within += min(errors) <= row["thesis_error"] <= max(errors)
    return (
        "Of the rows with several matrices the thesis's lowest error is within this range in "
        f"{within}, below it in {below} and above it in {above}."
    )


def _log_joints(row: dict) -> str:
    return f"{number(row['log_joint_first'], 0)}, {number(row['log_joint_last'], 0)}"


@page(
    "thesis_runs", "What do the other runs of Gonsior (2019) and its figures show?", "thesis_runs*"
)
def thesis_runs(records: Records):
    rows = sorted(_rows_of_parts(records), key=_run_of)
    left = _runs_left(records, rows)
    yield (
        "Runs of the thesis's table 3.2 at other ranks than that of the data, longer runs, and the "
        "Beta prior, which the thesis tried and left out. `sd`: mean standard deviation of the "
        "factor entries, and of those with a mean from 0.2 to 0.8, and their share. `usage, "
        "basis`: means over each factor. `near 0, near 1`: shares of all draws in the first and "
        "last of 50 bins. `gradient`: mean absolute value of the mean gradient. "
        f"Runs that are still to be made: {left}. `python "
        "benchmarks/papers/thesis.py --work FOLDER --list` names them."
    )
    for draws in sorted({row["draws"] for row in rows}):
        yield f"## {draws:,} draws"
        yield table(
            ["data", "model", "from", "rank", "batch", "error at 0.5",
             "lowest error (thresholds)", "usage, basis", "sd", "sd between", "share between",
             "near 0, near 1", "gradient", "log joint, first and last", "seconds"],
            [
                [
                    row["data"], row["model"], row["start"], row["rank"], row["batch"],
                    row["error_at_half"], _lowest(row, ""),
                    f"{number(row['mean_usage'], 3)}, {number(row['mean_basis'], 3)}",
                    *(number(row[n], 3) for n in ("mean_sd", "sd_between", "share_between")),
                    f"{number(row['draws_near_zero'], 3)}, {number(row['draws_near_one'], 3)}",
                    number(row["mean_gradient"], 3), _log_joints(row), number(row["seconds"], 0),
                ]
                for row in rows
                if row["draws"] == draws
            ],
        )  # fmt: skip
    yield "## Figures"
    yield (
        "Blue is the usage (the thesis's Y), orange the basis (X). In figures 4.2 and 4.3 the "
        "squares are added: with the minus signs that the thesis prints between them, its own "
        "pictures would not come out."
    )
    for name, caption in _FIGURES.items():
        yield f"![{caption}](thesis_figure_4_{name}.png)\n\nFigure 4.{int(name)}: {caption}"


def _rows_of_parts(records: Records) -> list[dict]:
    """Return the rows of all records of a page, a run once: the earlier record's."""
    rows = {}
    for name in sorted(records):
        for row in figures(records, name).get("rows", ()):
            rows.setdefault(_run_of(row), row)
    return list(rows.values())


def _run_of(row: dict) -> tuple:
    return tuple(row[n] for n in ("draws", "data", "model", "start", "rank", "batch", "seed"))


def _runs_left(records: Records, rows) -> int | None:
    """How many runs of the thesis's table 3.2 are in no record: a part knows its own folder."""
    first = figures(records, "thesis_runs")
    left, known = (first.get(n) for n in ("runs_of_table_3_2_left", "rows"))
    if left is None:
        return None
    return left - sum(not row["seed"] for row in rows) + sum(not row["seed"] for row in known)


_FIGURES = {
    "01": "log joint density of the first 10,000 draws, clean matrix",
    "02": "a model of three variables, flat prior; red dots are the maxima of each cut",
    "03": "the same with the Normal prior",
    "04": "posterior means, 60,000 draws, Normal prior, batch 512; red is 0, yellow 0.5, blue 1",
    "05": "histograms of these means",
    "06": "the same after 600,000 draws",
    "07": "standard deviation against mean, Normal prior, batch 512",
    "08": "standard deviation against mean, by prior and batch",
    "09": "mean gradient against mean, by prior and batch",
    "10": "standard deviation against mean at rank 20",
    "11": "standard deviation against mean at rank 40",
    "12": "the thresholds with the fewest errors",
}


def _lowest(row: dict, of: str) -> str:
    low, high = (row[f"{of}tau_{end}"] for end in ("min", "max"))
    return f"{number(row[f'{of}error'])} ({low:.2f}-{high:.2f})"


@page("thesis_samplers", "IASG as published, corrected, and the exact sampler: what differs?")
def thesis_samplers(records: Records):
    found = figures(records, "thesis_samplers")
    yield (
        f"The matrices of the tables of Gonsior (2019), rank {found.get('rank')}, Normal prior, "
        f"about {number(found.get('seconds'))} seconds of sampling each, of which the first half "
        "is left out. IASG as published has batch 512, IASG corrected its defaults. `difference` "
        "(root mean square of the differences of means, in posterior standard deviations) and "
        "`ratio` (median, of standard deviations) are from the exact sampler, from the optimum, "
        "where labels match. Wrong entries are against the noise-free matrix."
    )
    for given, title in (("1", "Precision fixed at 1, as in the thesis"),
                         ("learned", "Precision learned")):  # fmt: skip
        yield f"## {title}"
        yield table(
            ["data", "from", "sampler", "draws", "error at 0.5", "lowest error (thresholds)",
             "precision", "mean entry", "mean sd", "difference", "ratio", "log joint", "seconds"],
            [
                [
                    row["data"], row["start"], row["sampler"], row["draws"], row["error_at_half"],
                    _lowest(row, ""), number(row["precision"], 1), number(row["mean_entry"], 3),
                    number(row["mean_sd"], 4), number(row.get("mean_difference"), 2),
                    number(row.get("sd_ratio"), 3), number(row["log_joint"], 0),
                    number(row["seconds"], 0),
                ]
                for row in found.get("rows", ())
                if row["precision_is"] == given
            ],
        )  # fmt: skip


_COVERAGE = {
    "log_likelihood": "log likelihood", "iat": "IAT", "angle_max": "largest angle",
    "angle_mean": "mean angle", "l1_max": "largest l1", "l1_mean": "mean l1",
}  # fmt: skip
#: What rows have of two solutions, in each repetition.
_OF_SOLUTIONS = {
    "share_of_the_first_solution": "first solution", "crossings": "crossings",
    "round_trips": "round trips",
}  # fmt: skip


@page(
    "nmf_coverage", "Which factorisations of a nonnegative matrix does a chain see?",
    "nmf_coverage*",
)  # fmt: skip
def nmf_coverage(records: Records):
    yield (
        "The study of Masood, Pan and Doshi-Velez (2016) on nonnegative matrices whose solutions "
        "are known: Laurberg's with one solution and with two, and one with a line of them. "
        "Figures are means over the repetitions, in brackets the paper's (its tables 1 to 8); "
        "quartiles are in the records. Log likelihoods are without their constant, in units of "
        "the noise. IAT is the integrated autocorrelation time, averaged over the entries of the "
        "usage (the paper's basis A). Angles in degrees and l1 distances are between pairs of "
        "draws. `first solution` is the share of the draws at the first of two solutions, in each "
        "repetition, and `crossings` how often draws that are compared pass from the first to the "
        "second and back. `round trips` are those of replicas behind walls, in each repetition."
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
    """Write what one repetition has: a share, a count, or a count each way."""
    return " and ".join(map(str, value)) if isinstance(value, list) else f"{value:.3g}"


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


@page("iasg_calibration", "Does IASG have the posterior's means and standard deviations?")
def iasg_calibration(records: Records):
    yield (
        "Standard deviations over those of long runs of NUTS, and the largest difference of means "
        "in those standard deviations beside its Monte Carlo error. `theory` is the largest "
        "relative error of the ratios that measured curvature and noise predict. The aim with "
        'calibration "sandwich" or "top-up" is ratios from 0.95 to 1.05 and differences of at '
        "most 0.05."
    )
    yield table(
        [
            "data", "coordinates", "calibration", "ratio: least", "median", "most", "mean",
            "error", "theory", "curvature departs",
        ],
        [
            [name, row["coordinates"], kind, *_calibrated(row[kind])]
            for name, row in figures(records, "iasg_calibration").get("rows", {}).items()
            for kind in ("None", "step", "sandwich", "top-up")
        ],
    )  # fmt: skip


def _calibrated(row: dict) -> list[str]:
    """Write the figures of one run, or which of its chains left the finite numbers."""
    names = ("mean", "error", "theory", "departure")
    ratios = row.get("ratio", (f"diverged: {row.get('diverged')}", "", ""))
    shown = [v if isinstance(v, str) else number(v, 3) for v in ratios]
    return [*shown, *(number(row.get(name), 3) for name in names)]


@page("minibatch_regression", "How soon do minibatches know the posterior of a million rows?")
def minibatch_regression(records: Records):
    found = figures(records, "minibatch_regression")
    tolerance, nuts = found.get("tolerance", {}), found.get("nuts", {})
    yield (
        f"A logistic regression on {number(found.get('rows'))} rows and "
        f"{number(found.get('covariates'))} correlated covariates. Seconds, start included, until "
        f"means are within {number(tolerance.get('mean'))} posterior standard deviations and "
        f"standard deviations within {number(tolerance.get('sd'))} of them, and stay there: medians"
        f" of {number(found.get('seeds'))} chains. `mean` and `sd` are the largest differences of "
        "all draws of all chains together, `ratio` the least and the most of the standard "
        "deviations. Effective draws are of the worst coefficient, by a processor second after the "
        "start."
    )
    yield table(
        [
            "sampler", "draws", "mean", "sd", "ratio: least", "most", "start, processor s",
            "to tolerance, processor s", "wall s", "effective draws / s",
        ],
        [
            [
                name, row["draws"], *(number(row[n], 4) for n in ("mean", "sd")),
                *(number(v, 3) for v in row["ratio"]), number(row.get("start"), 2),
                *(number(row.get(n), 2) if row.get(n) else "not reached"
                  for n in ("processor", "seconds")),
                number(row.get("ess_per_second"), 1),
            ]
            for name, row in found.get("samplers", {}).items()
        ],
    )  # fmt: skip
    best = found.get("samplers", {}).get("SVI, AutoNormal", {}).get("ratio_at_its_optimum")
    if best:
        yield (
            f"At its optimum AutoNormal has from {number(best[0], 3)} to {number(best[1], 3)} of "
            "the standard deviations, by the curvature at the mode."
        )
    yield (
        "The reference is the normal density at the mode with importance weights of float64 on all "
        f"rows. On {number(nuts.get('rows'))} rows NUTS, with {number(nuts.get('ess'))} effective "
        f"draws, is {number(nuts.get('mean'), 3)} standard deviations from it in the means and "
        f"{number(nuts.get('sd'), 3)} in the standard deviations."
    )


@page(
    "numpyro_kernels", "Are the minibatch kernels right on NumPyro users' models, or do they warn?"
)
def numpyro_kernels(records: Records):
    yield (
        "Each kernel at its defaults, beside NUTS: the largest difference of means in standard "
        "deviations of NUTS, and the ratio of standard deviations that is farthest from one, of "
        "quantities that rotations and relabelling leave as they are. The rule is that means off "
        "by more than 0.2, or standard deviations by more than 20 %, come with a warning."
    )
    found = figures(records, "numpyro_kernels")
    rows, commits = found.get("rows", {}), found.get("commits", {})
    yield table(
        [
            "model", "commit", "kernel", "mean", "ratio", "effective draws", "CPU, s",
            "CPU of NUTS, s", "said", "silently wrong",
        ],
        [
            [
                model, commits.get(model, ""), kernel, number(row.get("mean"), 3),
                number(row.get("ratio"), 3), number(row.get("ess")),
                number(row["seconds"], 1), number(kernels["NUTS"]["seconds"], 1),
                "; ".join(row["warnings"]), "yes" if row["silent"] else "no",
            ]
            for model, kernels in rows.items()
            for kernel, row in kernels.items()
            if kernel != "NUTS"
        ],
    )  # fmt: skip


@page("poisson_signatures", "Are mutational signatures found in counts?")
def poisson_signatures(records: Records):
    yield (
        "64 tumours and 96 kinds of mutations; the number of signatures is found, up to 20. Found: "
        "a cosine above 0.9. Intervals are those of 95 % of the exposures to signatures that are "
        "found. Published medians over many sets (Landy et al. 2025, read off figures): bias 0, "
        "precision 1 and sensitivity 1 up to 15 signatures and -1, 1 and 0.90 at 20 in 100 to 128 "
        "minutes (bayesNMF, smallest BIC); 0, 0.85 and 0.85 at 20 in 0.6 to 3 minutes "
        "(SignatureAnalyzer)."
    )
    (record,) = records.values()
    runs = sorted(record["figures"]["runs"].items(), key=lambda item: int(item[0]))

    def over(of, take, value, digits):
        return number(take([value(case) for case in of.values()]), digits)

    median = statistics.median
    yield table(
        ["signatures", "matrices", "median bias of their number", "median precision",
         "median sensitivity", "95 % intervals that hold, mean", "median processor seconds"],
        [
            [true, len(of), over(of, median, lambda case, n=int(true): case["rank"] - n, 0),
             over(of, median, lambda case: case["precision"], 2),
             over(of, median, lambda case: case["sensitivity"], 2),
             over(of, statistics.mean, lambda case: case["coverage"], 3),
             over(of, median, lambda case: case["cpu_seconds"], 0)]
            for true, of in runs
        ],
    )  # fmt: skip
    yield table(
        ["signatures", "seed", "number found", "its probability", "precision", "sensitivity",
         "95 % intervals that hold", "verdict", "draws a chain", "processor seconds", "commit"],
        [
            [true, seed, case["rank"], number(case["probability"], 3),
             number(case["precision"], 2), number(case["sensitivity"], 2),
             number(case["coverage"], 3), case["status"], case["draws"],
             number(case["cpu_seconds"], 0), case["commit"]]
            if "rank" in case
            else [true, seed, "none", *[""] * 7, case["commit"]]
            for true, of in runs
            for seed, case in sorted(of.items())
        ],
    )  # fmt: skip
    if "sweep" in record["figures"]:
        sweep = record["figures"]["sweep"]
        yield (
            f"A sweep of one chain with 20 factors takes {number(sweep['cpu_seconds'], 2)} "
            f"processor seconds with {sweep['nonzero']:,} counts that are not zero "
            f"({sweep['commit']})."
        )


@page("overdispersion", "Do real counts scatter more than Poisson ones?")
def overdispersion(records: Records):
    yield (
        "Fits of both models, with the same number of factors and the same time. The dispersions "
        "are those of `fit.check()`: of all columns, or of the one that is named. The log score is "
        "that of an entry left out, in nats."
    )
    (record,) = records.values()
    yield table(
        ["counts", "rows", "columns", "model", "dispersions", "data", "replicates", "p-value",
         "log score", "standard deviation of rates", "processor seconds"],
        [
            [name, case["rows"], case["columns"], case["model"], case["worst"],
             number(case["observed"], 2), with_error(case["expected"], case["sd"], 2),
             number(case["p_value"], 2), number(case["log_score"], 3),
             "" if case["scatter"] is None else number(case["scatter"], 2),
             number(case["cpu_seconds"], 0)]
            for name, cases in record["figures"]["runs"].items()
            for case in cases
        ],
    )  # fmt: skip

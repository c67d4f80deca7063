"""The pages on the Boolean model: rows of figures for each question."""

from __future__ import annotations

import statistics

from scipy.stats import binomtest

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


@page("ormachine_speed", "What does a sweep of the Boolean sampler cost?", "ormachine_speed*")
def speed(records: Records):
    yield (
        "One sweep draws every bit of both factors, the densities and the flip rate, on packed "
        "words. A pass is a population count over the words of both orientations. Figures are "
        "medians of interleaved runs."
    )
    for name, record in records.items():
        yield f"## {name}"
        rows = []
        for size, case in record["figures"]["sizes"].items():
            for update, found in case["updates"].items():
                rows.append([
                    size, update, number(found["sweep_ms"], 2), case["target_ms"],
                    number(case["pass_ms"], 3), number(found["ratio_to_pass"], 1),
                    number(found["memory_bytes"] / 1e6, 1), number(found["memory_ratio"], 2),
                ])  # fmt: skip
        yield table(
            ["matrix", "update", "ms a sweep", "target, ms", "ms a pass", "sweep / pass",
             "memory, MB", "memory / packed data"], rows,
        )  # fmt: skip


@page(
    "ormachine_starts", "Do Boolean chains from random starts find the thesis's matrices?",
    "ormachine_starts*",
)  # fmt: skip
def starts(records: Records):
    yield (
        "Wrong entries against the noise-free matrix, of the posterior mean cut at one half. "
        "Chains start at annealed relaxed fits from random starts of their own, and one starts "
        "at the truth. The last table of each record has the means over its matrices. A matrix "
        "meets the target where no chain has more than 10 % more wrong entries than the chain "
        "from the truth."
    )
    for name, record in records.items():
        found = record["figures"]
        yield f"## {name}"
        yield _settings(found, "matrices")
        rows = [
            [
                kind, listed(case["errors"]), case["errors_from_the_truth"],
                listed(case["errors_of_the_starts"]), number(case["rhat_log_joint"], 3),
                listed([case["log_joint_from_the_truth"], *case["log_joint"]], 1),
                case["errors_of_the_data"],
            ]
            for kind, case in sorted(found["matrices"].items())
        ]  # fmt: skip
        yield table(
            ["matrix", "wrong, each chain", "from the truth", "at the starts", "R-hat log joint",
             "log joint, from the truth first", "wrong in the data"], rows,
        )  # fmt: skip
        yield table(
            ["matrices", "wrong, mean", "from the truth, mean", "meet the target"],
            [_starts_of_kind(kind, found["matrices"]) for kind in _kinds(found["matrices"])],
        )


def _kinds(matrices: dict) -> list[str]:
    return sorted({name.rpartition(",")[0] for name in matrices})


def _starts_of_kind(kind: str, matrices: dict) -> list:
    cases = [case for name, case in matrices.items() if name.rpartition(",")[0] == kind]
    errors = [error for case in cases for error in case["errors"]]
    truth = [case["errors_from_the_truth"] for case in cases]
    met = sum(10 * max(case["errors"]) <= 11 * case["errors_from_the_truth"] for case in cases)
    return [
        kind, number(sum(errors) / len(errors), 1), number(sum(truth) / len(truth), 1),
        f"{met} of {len(cases)}",
    ]  # fmt: skip


def _settings(found: dict, *without: str) -> str:
    """Write the settings of a run: what is neither a table nor left out."""
    plain = {n: v for n, v in found.items() if n not in without and not isinstance(v, dict)}
    named = (f"{n} {_plainly(v)}" for n, v in plain.items())
    return "Settings: " + ", ".join(named) + "."


def _plainly(value) -> str:
    """Write a setting, of numbers four digits."""
    if value is None:
        return "default"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@page(
    "ormachine_convergence", "Do Boolean chains agree on real matrices?", "ormachine_convergence*"
)
def convergence(records: Records):
    yield (
        "Four chains. R-hat of the log joint, of the dispersion, and of up to 500 entries of the "
        "product whose posterior mean is in [0.05, 0.95]: 99 % of these keep to the number under "
        "`entries`. An R-hat of the entries that is infinite means that some entries differ "
        "between chains and never change within one. The last columns are effective draws "
        "of the log joint, the share of factors that all four chains found, the entries that are "
        "wrong in what all chains make together, and seconds with compilation. The target is an "
        "R-hat of at most 1.01."
    )
    current = {n: r["figures"] for n, r in records.items() if "matrices" not in r["figures"]}
    yield table(
        ["record", "matrix", "warm-up", "draws", "log joint", "dispersion", "entries", "ESS",
         "factors found by all", "wrong entries", "seconds", "processor seconds"],
        [_chains(name, case) for name, case in current.items()],
    )  # fmt: skip
    yield (
        "Mean log joint of each chain. It holds one draw of the usage, so that it does not rank "
        "modes by their weight."
    )
    yield table(
        ["record", "log joint of the chains", "verdict"],
        [[_case(n), listed(c["log_joint"], 1), c["verdict"]] for n, c in current.items()],
    )
    yield from _earlier_chains(records)


def _case(name: str) -> str:
    return name.removeprefix("ormachine_convergence").strip("_").replace("_", " ")


def _chains(name: str, case: dict) -> list:
    return [
        _case(name), " x ".join(number(n) for n in case["shape"]), case["warm_up"], case["draws"],
        *(number(case[f"rhat_{of}"], 3) for of in ("log_joint", "dispersion", "entries_99")),
        number(case["ess_log_joint"], 0), percent(case["factors_agreeing"]) + " %",
        case["errors"], number(case["seconds"], 0), number(case["cpu_seconds"], 0),
    ]  # fmt: skip


def _earlier_chains(records: Records):
    """Records of earlier code: several matrices in one, with ladders set by hand."""
    rows = []
    for name, record in records.items():
        for matrix, case in record["figures"].get("matrices", {}).items():
            ladder = case.get("inverse_temperatures")
            if ladder is None:
                ladder = case.get("options", {}).get("inverse_temperatures", "(1.0)")
                ladder = [float(v) for v in ladder.strip("()").split(",")]
            rows.append([
                _case(name) or "(no suffix)", matrix.replace(",", ", rank "),
                f"{len(ladder)}, down to {min(ladder):.2g}", case["steps"][1],
                *(number(case[f"rhat_{of}"], 3)
                  for of in ("log_joint", "dispersion", "entries_99", "entries_worst")),
                percent(case["share_constant"], 0) + " %", number(case["ess_log_joint"], 0),
                listed(case["log_joint"], 1), number(case["seconds"], 0),
            ])  # fmt: skip
    if rows:
        yield "## Earlier code"
        yield (
            "These records were made before temperatures adapted, factors were exchanged and "
            "whole factors replaced. `temperatures` has their number and the hottest inverse "
            "temperature; `constant` is the share of all entries that hardly ever change."
        )
        yield table(
            ["record", "matrix", "temperatures", "draws", "log joint", "dispersion", "entries",
             "worst entry", "constant", "ESS", "log joint of the chains", "seconds"], rows,
        )  # fmt: skip


@page("evidence", "How likely is every rank of the zoo?", "evidence*")
def evidence(records: Records):
    yield (
        "Independent runs of sequential Monte Carlo, and the probability of each rank under a "
        "uniform prior over the ranks of the record. Standard errors above the target are named."
    )
    for name, record in records.items():
        found = record["figures"]
        above = ", ".join(str(r) for r in found["ranks_above_the_target"]) or "none"
        yield f"## {name}"
        yield (
            f"Matrix `{found['data']}`, {found['runs']} runs of {found['particles']:,} particles. "
            f"Target: a standard error of at most {found['target']}. Ranks above it: {above}."
        )
        rows = [
            [
                rank, number(case["log_evidence"], 2), number(case["standard_error"], 2),
                with_error(case["probability"], case["its_error"], 3), case["temperatures"],
                number(case["rhat"], 3), listed(case["of_runs"], 2), number(case["seconds"], 0),
                number(case["cpu_seconds"], 0),
            ]
            for rank, case in found["ranks"].items()
        ]  # fmt: skip
        yield table(
            ["rank", "log evidence", "standard error", "probability", "temperatures",
             "R-hat between runs", "log evidence of the runs", "seconds", "processor seconds"],
            rows,
        )  # fmt: skip


_CALIBRATION = {
    "as_fit_does": "as the fit did",
    "single_flips": "single flips",
    "published_rate": "single flips, flip rate at its maximum (as published)",
}
_QUANTITIES = {
    "lambda": "dispersion", "row_rates": "row rates", "largest_tile": "largest tile",
    "smallest_tile": "smallest tile", "ones": "ones", "log_joint": "log joint",
}  # fmt: skip


@page("ormachine_calibration", "Do the Boolean model's probabilities mean what they say?")
def calibration(records: Records):
    found = figures(records, "ormachine_calibration")
    runs = {label: found[name] for name, label in _CALIBRATION.items() if name in found}
    yield (
        "Matrices drawn from the model. Per cent of 95 % intervals that hold the truth, with "
        "standard errors; p-values for uniform ranks of the truth among the draws; and bins of "
        "predicted probabilities whose share of ones is more than two standard errors off."
    )
    yield _settings(found)
    yield "Coverage of 95 % intervals, per cent:"
    yield table(
        ["sampler", *_QUANTITIES.values(), "bins off"],
        [
            [
                label,
                *(with_error(100 * run["coverage_of_95"][q]["share"],
                             100 * run["coverage_of_95"][q]["error"], 1) for q in _QUANTITIES),
                f"{run['beyond_two_errors']} of {len(run['reliability'])}",
            ]
            for label, run in runs.items()
        ],
    )  # fmt: skip
    yield "p-values of uniform ranks:"
    yield table(
        ["sampler", *(v for q, v in _QUANTITIES.items() if q != "row_rates"), "smallest"],
        [
            [
                label,
                *(number(run["rank_p_values"][q], 3) for q in _QUANTITIES if q != "row_rates"),
                number(min(run["rank_p_values"].values()), 3),
            ]
            for label, run in runs.items()
        ],
    )
    for label, run in runs.items():
        yield f"Predicted probabilities of missing entries, {label}:"
        yield table(
            ["share of ones", "predicted", "standard error", "entries"],
            [
                [number(bin[n], 3) for n in ("share", "wanted", "error")] + [bin["entries"]]
                for bin in run["reliability"]
            ],
        )


@page("tile_fdr", "Are the tiles real that are kept at a false discovery rate of 5 %?", "tile_fdr*")
def tile_fdr(records: Records):
    yield (
        "Half of the matrices hold up to four planted tiles under noise, and half are noise alone. "
        "`bound` is that of Hess, Piatkowski and Morik (2018) on its own. Shares are per cent. "
        "`rate` is the false discovery rate, the mean over matrices; `quiet` are matrices of "
        "noise of which no tile is kept."
    )
    for name, record in records.items():
        found = record["figures"]
        yield f"## {name}"
        yield _settings(found, "calibration")
        kept = {"posterior": "`Fit.tiles`", "density_bound": "bound"}
        powers = [n for n in found["posterior"] if n.startswith("power_from")]
        sizes = [n.removeprefix("power_from_").replace("_", " ") for n in powers]
        yield table(
            ["", "tiles kept", "false", "rate", "quiet", "planted tiles found",
             *(f"found, {size}" for size in sizes)],
            [
                [label, found[n]["kept"]]
                + [percent(found[n][of]) for of in (
                    "share_false", "false_discovery_rate", "noise_without_tile", "power", *powers)]
                for n, label in kept.items() if n in found
            ],
        )  # fmt: skip
        yield "Is the probability of a tile right?"
        yield table(
            ["probability from", "tiles", "mean probability", "share that is real"],
            [
                [number(bin["from"], 2), bin["tiles"], number(bin["mean_probability"], 3),
                 number(bin["real"], 3)]
                for bin in found["calibration"]
            ],
        )  # fmt: skip


_PHASES = ("import", "compile", "start", "sample", "after")


@page("first_answer", "How many seconds does a first answer take, by phase?", "first_answer*")
def first_answer(records: Records):
    yield (
        "Seconds of `bmfjax fit` at its defaults, from start to report; warm: compiled programs "
        "are in the cache folder. `processor` has the processor seconds of all phases, "
        "and `programs` the number of programs that were compiled or read from the cache."
    )
    for name, record in records.items():
        yield f"## {name}"
        rows = []
        for case, runs in record["figures"]["cases"].items():
            # Of the largest matrices there is no second run; older records repeat the first.
            again = runs.get("warm") not in (None, runs["cold"]) or "failed" in runs["cold"]
            rows += [_answered(case, how, runs[how]) for how in ("cold", "warm")[: 1 + again]]
        yield table(
            ["matrix", "", *_PHASES, "in all", "processor", "programs", "draws", "R-hat",
             "verdict"], rows,
        )  # fmt: skip


def _answered(case: str, how: str, run: dict) -> list:
    if "failed" in run:
        return [case, how, *[""] * (len(_PHASES) + 5), f"failed: {run['failed']}"]
    return [
        case, how, *(number(run["phases"].get(p, {}).get("wall"), 1) for p in _PHASES),
        number(run["total"]["wall"], 1), number(run["total"]["cpu"], 1),
        run.get("compilations", ""), run.get("draws"),
        number(run.get("rhat"), 3), run.get("verdict", ""),
    ]  # fmt: skip


@page("after_draws", "What do the steps after the draws cost?")
def after_draws(records: Records):
    yield (
        "Peak memory beside what a step was given, and processor seconds, for synthetic draws of "
        "four chains. The last column is the ratio of the memory to the packed draws."
    )
    yield table(
        ["draws", "step", "peak memory, MB", "processor seconds", "packed draws, MB", "ratio"],
        [
            [
                size, step, number(cost["peak_mb"], 1), number(cost["cpu_seconds"], 2),
                number(cost["draws_mb"], 1), number(cost["peak_mb"] / cost["draws_mb"], 1),
            ]
            for size, steps in figures(records, "after_draws").items()
            for step, cost in steps.items()
        ],
    )  # fmt: skip


@page("scale", "How large a dense binary matrix can be factorised?")
def scale(records: Records):
    found = figures(records, "scale")
    yield (
        f"Boolean products of rank {found['rank']} with {percent(found['flip'], 0)} % of the "
        f"entries flipped, {found['chains']} chains. A sweep is one of all chains. `after` is "
        "everything from the draws to the verdict. Peak memory is that of the whole process, which "
        "made the matrix. Wrong entries are counted against the product without noise."
    )
    phases = ("making", "starts", "compiling and one sweep", "a sweep", "after")
    yield table(
        ["matrix", "entries", *(f"{p}, s" for p in phases), "packed once, GB", "peak, GB",
         "wrong, %", "flip rate", "verdict"],
        [
            [
                name, number(case["entries"], 0),
                *(number(case["seconds"][p], 2) for p in phases),
                number(case["packed_bytes"] / 1e9, 3), number(case["peak_bytes"] / 1e9, 2),
                percent(case["wrong"], 4), number(case["flip_rate"], 6), case["verdict"],
            ]
            for name, case in found.get("sizes", {}).items()
        ],
    )  # fmt: skip


@page("end_to_end", "How long does it take from a sparse file to a report?")
def end_to_end(records: Records):
    found = figures(records, "end_to_end")
    yield (
        f"`bmfjax fit` at its defaults with rank {found['rank']}, {found['threads']} cores, on a "
        f"sparse file of {number(found['rows'])} x {number(found['columns'])} entries: a Boolean "
        f"product of which {percent(found['density'], 0)} % are ones, of which "
        f"{percent(found['missed'], 0)} % are missing, and {percent(found['strewn'], 1)} % of all "
        "entries are ones by chance. Memory is that of the command. Wrong entries are counted "
        "against the product without noise."
    )
    formats = found.get("formats", {})
    yield table(
        ["format", "file, MB", "seconds", "processor seconds", "peak, GB", "draws", "R-hat",
         "wrong, %", "verdict"],
        [
            [kind, *[""] * 7, f"failed: {one['failed']}"] if "failed" in one else
            [
                kind, number(one["file_bytes"] / 1e6, 1), number(one["seconds"], 1),
                number(one["processor_seconds"], 1), number(one["peak_bytes"] / 1e9, 2),
                one["draws"], number(one["rhat"], 3), percent(one["wrong"], 4), one["verdict"],
            ]
            for kind, one in formats.items()
        ],
    )  # fmt: skip
    yield "What it wrote, in bytes:"
    yield table(
        ["format", "file", "bytes"],
        [
            [kind, name, number(size)]
            for kind, one in formats.items()
            for name, size in one.get("written", {}).items()
        ],
    )


@page("scaling", "What does a sweep cost as the matrix grows, and how near is it to C?")
def scaling(records: Records):
    found = figures(records, "scaling")
    limits = found.get("limits")
    yield (
        f"One chain on one core, Boolean products with {percent(found['flip'], 0)} % of the "
        f"entries flipped. Processor milliseconds, the least of {found['rounds']} rounds; in "
        "brackets the median. The update in C draws the same bits with the same operations, "
        "without the rest of a sweep. Shares are those of the limits that the same run measured: "
        "the bytes of both orientations of the matrix, and twelve operations on a 64-bit word for "
        "each factor."
    )
    if limits:
        rate = number(limits["word_operations_a_second"] / 1e9, 1)
        yield (
            f"The limits: {number(limits['read_gb_a_second'], 1)} GB a second read from memory, "
            f"and {rate} billion operations on 64-bit words a second, of which every sixth is a "
            "population count."
        )
    sizes = found.get("sizes", {})
    both = lambda one, name: f"{number(one['fastest_' + name], 2)} ({number(one[name], 2)})"  # noqa: E731
    has_c = bool(limits)
    yield table(
        ["rows x columns x rank", "ms a sweep", "in C", "times C", "of bandwidth, %",
         "of integer rate, %", "peak, GB", "packed, both ways, GB"],
        [
            [
                " x ".join(number(int(n)) for n in name.split("x")), both(one, "ms_a_sweep"),
                both(one, "c_ms_a_sweep") if has_c else "",
                number(one.get("times_as_slow_as_c"), 2),
                percent(one["of_bandwidth"], 1) if has_c else "",
                percent(one["of_integer_rate"], 1) if has_c else "",
                number(one["peak_bytes"] / 1e9, 2), number(one["packed_bytes"] / 1e9, 4),
            ]
            for name, one in sizes.items()
        ],
    )  # fmt: skip
    yield "Time grows with this power of the rows, from 10,000 on:"
    yield table(
        ["matrices", "exponent"],
        [[name, number(power, 3)] for name, power in found.get("exponents", {}).items()],
    )


@page("mesh", "Is one chain faster on several devices than on one?", "mesh*")
def mesh(records: Records):
    for name, record in records.items():
        yield f"## {name}"
        yield from _one_mesh(record["figures"])


def _one_mesh(found: dict):
    same = "the same" if found["same_draws"] else "not the same to the last bit"
    entries = ""
    if "entries" in found:
        entries = f"A minibatch had {number(found['entries'], 0)} entries on average. "
    yield (
        f"Model {found.get('model', 'ormachine')}, one chain of a matrix of "
        f"{number(found['rows'])} x {number(found['columns'])}, rank {found['rank']}; the mesh has "
        f"{found['devices']} devices along the rows. Medians of {found['rounds']} rounds that took "
        f"turns. Of the bytes that a device reads in a sweep it gets "
        f"{number(100 * found['share_from_others'], 2)} % from the others. {entries}The draws are "
        f"{same} on all of them."
    )
    yield table(
        ["run", "ms a sweep", "fastest", "processor ms a sweep", "the mesh is faster by"],
        [
            [
                way, number(ms, 1), number(found["fastest_ms_a_sweep"][way], 1),
                number(found["processor_ms_a_sweep"][way], 1),
                number(found["times_as_fast_as"].get(way), 2),
            ]
            for way, ms in found["ms_a_sweep"].items()
        ],
    )  # fmt: skip


@page("kills", "Does a fit that is killed lose more than the interval of its checkpoints?")
def kills(records: Records):
    found = figures(records, "kills")
    yield (
        f"A fit of the zoo was killed {found['kills']} times in {found['runs']} runs and resumed "
        f"each time. It stores a checkpoint every {number(found['interval'])} seconds. Damaged "
        f"files: {found['damaged']}. Runs that ended with the draws and traces of a run that "
        f"nobody killed, bit for bit: {found['runs_with_the_draws_of_the_unbroken']} of "
        f"{found['runs']}. The last column counts from the start where there was none since."
    )
    yield table(
        ["killed after, seconds", "steps stored before", "steps stored after",
         "seconds since the last checkpoint"],
        [
            [
                number(case["after_seconds"], 1), case["steps_before"], case["steps_after"],
                number(case["seconds_since_checkpoint"], 1),
            ]
            for case in found["cases"]
        ],
    )  # fmt: skip


@page("flipped_bits", "Is a flipped bit of a stored file ever read as something else?")
def flipped_bits(records: Records):
    found = figures(records, "flipped_bits")
    kinds = list(dict.fromkeys(kind for case in found["files"].values() for kind in case["found"]))
    yield (
        "Bits of the files of a small fit and of its checkpoint were flipped one at a time, every "
        f"bit of the first and last {number(found['edge'])} bytes and some of the others, and the "
        f"fit or the checkpoint was read. Reads that were wrong: {found['wrong']}."
    )
    yield table(
        ["file", "bytes", "bits flipped", *kinds],
        [
            [name, case["bytes"], case["bits"], *(case["found"].get(kind, 0) for kind in kinds)]
            for name, case in found["files"].items()
        ],
    )


@page("planted_features", "Are planted features found, and none where there are none?")
def planted_features(records: Records):
    (record,) = records.values()
    runs = record["figures"]["runs"]
    yield "Matrices of 200 rows and 60 columns; a line a kind, means and sums over matrices."
    if of := runs.get("positive"):
        mean, total = (
            lambda name: sum(run[name] for run in of) / len(of),
            lambda name: sum(run[name] for run in of),
        )
        yield table(
            ["three positive features: matrices", "memberships right", "with all known",
             "F1 of columns", "95 % intervals that hold", "kept"],
            [[len(of), percent(mean("right"), 1), percent(mean("right_when_known"), 1),
              number(mean("f1"), 3), percent(total("hold") / total("intervals"), 1),
              f"{total('kept')} of {3 * len(of)}"]],
        )  # fmt: skip
    if of := runs.get("tiles"):
        yield table(
            ["three tiles, asymmetric noise", "matrices", "found and real", "kept", "false"],
            [
                [model, len(of),
                 f"{sum(run[model]['found'] for run in of)} of {3 * len(of)}",
                 *(sum(run[model][name] for run in of) for name in ("kept", "false"))]
                for model in ("features", "two rates")
            ],
        )  # fmt: skip
    if of := runs.get("effects"):
        yield table(
            ["effects of rows and columns alone: matrices", "with no tile kept", "tiles kept"],
            [[len(of), sum(not run["kept"] for run in of), sum(run["kept"] for run in of)]],
        )


@page("features_agreement", "Do chains of binary features find the same features?")
def features_agreement(records: Records):
    yield (
        "Whole matrices, signed weights, four chains that search their starts apart. Found by all: "
        "features whose agreement over chains the verdict counts as one, of those with rows and "
        "columns. Where chains shared one start, because the others were far below it, agreement "
        "is no evidence."
    )
    (record,) = records.values()
    yield table(
        ["matrix", "features", "seed", "found by all", "agreement", "R-hat of the log joint",
         "effective draws", "draws a chain", "shared start", "processor seconds", "commit"],
        [
            [name, record["figures"]["ranks"][name], seed,
             f"{case['found_by_all']} of {case['found_by_all'] + case['not_found_by_all']}",
             " ".join(number(a, 2) for a in case["agreement"]), number(case["rhat_log_joint"], 3),
             case["ess_log_joint"], case["draws"], number(case["shared_start"]),
             number(case["cpu_seconds"], 0), case["commit"]]
            if "agreement" in case
            else [name, record["figures"]["ranks"][name], seed, "none", *[""] * 6, case["commit"]]
            for name, of in record["figures"]["runs"].items()
            for seed, case in of.items()
        ],
    )  # fmt: skip


@page("features_speed", "What does a sweep of binary features cost?")
def features_speed(records: Records):
    (record,) = records.values()
    yield "Processor time of one chain on one core; the first sweep compiles."
    yield table(
        ["rows x columns x features", "ms a sweep", "fastest", "s of the first", "peak memory, MB"],
        [
            [name.replace("x", " x "), number(case["ms_a_sweep"], 1),
             number(case["fastest_ms_a_sweep"], 1), number(case["compile_seconds"], 1),
             number(1e-6 * case["peak_bytes"], 0)]
            for name, case in record["figures"]["sizes"].items()
        ],
    )  # fmt: skip


@page(
    "ormachine_completion", "Does the Boolean model fill in missing entries as well as can be?",
    "ormachine_completion*",
)  # fmt: skip
def completion(records: Records):
    yield (
        "Random products of which few entries are observed: share of the unobserved entries that "
        "is wrong, with standard errors over matrices. `expected` is what the posterior expects. "
        "`one factor known` is the expected error of the exact posterior when the usage or the "
        "basis is given: without it no method does better on average."
    )
    for name, record in records.items():
        found = record["figures"]
        yield f"## {name}"
        if "options" in found:
            yield from _fitted(found)
            continue
        yield _settings(found, "entries_needed_at_least")
        yield f"Counting bits, {found['entries_needed_at_least']:,} entries are needed at least."
        yield table(
            ["observed", "entries", "ours", "median", "expected", "one factor known",
             "quoted as published", "seconds"],
            [_completed(share, case) for share, case in found["shares"].items()],
        )  # fmt: skip
        for share, case in found["shares"].items():
            yield from _ways(share, case)


def _fitted(found: dict):
    """Write what `bmfjax.fit` leaves wrong with its default start and updates."""
    yield _settings(found | found["options"])
    yield table(
        ["observed", "seed", "share wrong", "processor seconds"],
        [
            [f"{percent(float(share), 0)} %", fit["seed"], number(fit["error"], 6),
             number(fit["cpu_seconds"], 1)]
            for share, fits in found["shares"].items()
            for fit in fits
        ],
    )  # fmt: skip


def _completed(share: str, case: dict) -> list:
    expected, known = case.get("expected_by_the_posterior", {}), case.get("one_factor_known", {})
    return [
        f"{percent(float(share), 0)} %", case.get("observed"),
        with_error(case["mean"], case["standard_error"], 6), number(case.get("median"), 6),
        with_error(expected.get("mean"), expected.get("standard_error"), 6),
        with_error(known.get("mean"), known.get("standard_error"), 6),
        number(case.get("target")),
        number(case.get("seconds"), 1),
    ]  # fmt: skip


def _ways(share: str, case: dict):
    """Other estimates and other rules, paired with ours."""
    found = case.get("ways", {}) | case.get("estimates", {})
    if found:
        yield f"Altered, {percent(float(share), 0)} % observed, paired on the same matrices:"
        yield table(
            ["altered", "share wrong", "more than ours"],
            [
                [
                    way, number(row["mean"], 6),
                    with_error(row["more_than_ours"]["mean"],
                               row["more_than_ours"]["standard_error"], 6),
                ]
                for way, row in found.items()
            ],
        )  # fmt: skip
    if "spread" in case:
        spread = case["spread"]
        low, middle, high = spread["5, 50 and 95 %"]
        yield (
            f"Both exact errors with one factor matrix known, added, on {spread['matrices']} "
            f"matrices: {with_error(spread['mean'], spread['standard_error'], 6)} in the mean, and "
            f"{low}, {middle} and {high} at 5, 50 and 95 %. The share of matrices at or below the "
            f"figure quoted as published ({case.get('target')}) is"
            f" {spread['at_or_below_target']:g}."
        )


@page(
    "boolean_peers", "How do layers, message passing and the authors' program do?",
    "boolean_peers_*",
)  # fmt: skip
def boolean_peers(records: Records):
    found = {n.removeprefix("boolean_peers_"): r["figures"] for n, r in records.items()}
    cores = sorted({case["cores"] for case in found.values()})
    yield (
        "All methods of a table ran on the same matrices, in one run on "
        f"{' and '.join(map(str, cores))} core(s). Message passing "
        "is that of Ravanbakhsh, Poczos and Greiner (2016), with messages in 64 bits, 200 "
        "iterations and a damping of 0.4. The authors' program is the released "
        "one of Rukat et al. (2017), in its version with numba. Densities of the OrMachine are "
        "learned. `more` is in pairs."
    )
    titles = {
        "products": ("Products, a share observed: wrong unobserved entries", "observed"),
        "flips": ("Products, all observed: entries unlike the noise-free matrix", "flipped"),
    }
    for part, (title, what) in titles.items():
        cases = found.get(part, {}).get(part, {})
        if cases:
            yield f"## {title}"
            yield table(
                [f"{what}, %", "method", "share wrong", "more than the OrMachine",
                 "of the matrices", "processor seconds"],
                [
                    [
                        percent(float(share), 0), name,
                        with_error(row["mean"], row["standard_error"], 6),
                        with_error(*row["more_than_the_ormachine"].values(), 6),
                        listed(row["of_matrices"], 5), number(row.get("processor_seconds"), 1),
                    ]
                    for share, methods in cases.items()
                    for name, row in methods.items()
                ],
            )  # fmt: skip
    for name in ("movielens", "movielens_1m"):
        if name in found:
            yield from _of_ratings(found[name]["movielens"])
    if "sweeps" in found:
        yield "## Processor milliseconds of a sweep, the least of three rounds"
        cases = found["sweeps"]["sweeps"]
        methods = list(next(iter(cases.values())))
        yield table(["matrix", *methods], [[n, *c.values()] for n, c in cases.items()])


def _of_ratings(found: dict):
    """Write which ratings are put on the right side of the mean."""
    shares = found["observed_percent"]
    yield f"## {found['data']}"
    yield f"{found['splits']} splits, {found['warmup']} + {found['samples']} sweeps."
    methods = dict.fromkeys(name for case in shares.values() for name in case)
    for figure, digits in (("percent_right", 2), ("log_loss", 4)):
        rows = [
            [name, *(with_error(*case[name][figure].values(), digits) for case in shares.values())]
            for name in methods
            if figure in next(iter(shares.values()))[name]
        ]
        yield table([figure.replace("_", " "), *(f"{s} % observed" for s in shares)], rows)


@page(
    "ormachine_factorisation", "Does the OrMachine factorise random products as well as published?"
)
def factorisation(records: Records):
    found = figures(records, "ormachine_factorisation")
    yield (
        "Entries of random products are flipped. Share of entries in which the rounded posterior "
        "mean differs from the noise-free matrix, with standard errors over the matrices. The "
        "published curve is that of Rukat et al. (2017), figure 4, read off the plot to about "
        "0.03; blank where it was not."
    )
    yield table(
        ["schedule", "burn-in", "kept", "starts"],
        [[n, s["burn"], s["keep"], s["starts"]] for n, s in found.get("schedules", {}).items()],
    )
    for problem, runs in found.get("problems", {}).items():
        yield f"## {problem}"
        flips = list(next(iter(runs.values())))
        rows = [
            [f"{percent(float(flip), 0)} %"]
            + [with_error(run[flip]["mean"], run[flip]["standard_error"], 5)
               for run in runs.values()]
            + [number(next(iter(runs.values()))[flip].get(n))
               for n in ("published",)]
            for flip in flips
        ]  # fmt: skip
        yield table(["flips", *runs, "published curve"], rows)


@page("ormachine_figures", "How sure is the OrMachine, and does it leave factors empty?")
def ormachine_figures(records: Records):
    found = figures(records, "ormachine_figures")
    yield (
        "Two pictures of the talk on Rukat et al. (2017), over "
        f"{number(found.get('repeats'))} random matrices of each kind. `sure`: share of the "
        "entries whose posterior mean is below 0.05 or above 0.95. `calibration error`: mean "
        "difference, over 20 bins, of posterior means from the share of ones."
    )
    yield "## Posterior means of the entries of 100 x 100 products of rank 7"
    names = ("sure", "wrong_share", "wrong_of_the_sure", "calibration_error")
    yield table(
        ["chain", "flips", "sure, %", "wrong, %", "wrong of the sure, %", "calibration error"],
        [
            [chain, f"{percent(float(flip), 0)} %", *(percent(row[n], 2) for n in names[:3]),
             number(row[names[3]], 3)]
            for chain, rows in found.get("posterior_means", {}).items()
            for flip, row in rows.items()
        ],
    )  # fmt: skip
    yield "![Histograms of posterior means, right and wrong](ormachine_figures_means.png)"
    yield "## Factors used of those given, on 300 x 300 products of rank 5 with 10 % flips"
    empty = found.get("empty_factors", {})
    yield table(
        ["chain", "densities of bits", "factors given", "used, mean", "in each matrix", "wrong, %"],
        [
            [chain, prior, int(given), number(statistics.mean(row["used"]), 1),
             listed(row["used"]), percent(statistics.mean(row["wrong"]), 3)]
            for chain, priors in empty.items()
            for prior, rows in priors.items()
            for given, row in rows.items()
        ],
    )  # fmt: skip
    yield "![Factors used against factors given](ormachine_figures_empty.png)"


@page(
    "calculator_digits", "What do layers gain on calculator digits?",
    "calculator_digits", "calculator_digits_hierarchy",
)  # fmt: skip
def calculator_digits(records: Records):
    yield (
        "Fifty digits, 70 % of the entries missing: per cent of the entries that is wrong, with "
        "standard errors over seeds. `known segments` and `known digits` predict row by row from "
        "the true segments or the true digits: no layer can be expected to beat them. The slides "
        "to Rukat et al. (2017) give 1.4 % for one layer and 0.4 % with depth."
    )
    found = figures(records, "calculator_digits")
    rows = []
    for picture, cases in found.items():
        for flips, methods in cases.items() if isinstance(cases, dict) else ():
            if not flips.startswith("flips"):
                continue
            for method, wrong in methods.items():
                rows.append([
                    picture, flips, method,
                    *(with_error(wrong[of]["mean"], wrong[of]["standard_error"], 2)
                      for of in ("all", "missing")),
                    number(cases["seconds"].get(method), 1),
                ])  # fmt: skip
    if rows:
        yield _settings(found)
        yield table(
            ["picture", "flips", "method", "of all entries", "of missing ones", "seconds"], rows
        )
    found = figures(records, "calculator_digits_hierarchy")
    if found:
        yield "## Without noise and with all entries"
        yield "![Codes of the digits at ranks 2 to 10, and of layers](calculator_digits.png)"
        wrong = found["wrong_of_540_by_rank"] | found["wrong_of_540_by_layers"]
        yield table(["rank, or ranks of layers", "wrong of 540 entries"], list(wrong.items()))


@page("ormachine_labels", "Do Boolean factors separate labels?")
def labels(records: Records):
    found = figures(records, "ormachine_labels")
    yield (
        "Per cent right in cross-validation, from factors learned without the labels. The usage "
        "of the Boolean model is its posterior mean. R-hat is that of the chains of the fit."
    )
    yield _settings(found)
    rows = []
    for name, case in found.get("data", {}).items():
        shape = " x ".join(number(n) for n in case["shape"])
        for method, right in case["accuracy"].items():
            rows.append([
                f"{name}, {shape}", method,
                *(with_error(100 * right[by], 100 * right[f"{by}_error"], 1)
                  for by in ("neighbours", "logistic")),
            ])  # fmt: skip
        share = percent(case["majority"])
        rows.append([f"{name}, {shape}", f"largest of {case['classes']} classes", share, share])
    yield table(["matrix", "representation", "neighbours", "logistic regression"], rows)
    yield table(
        ["matrix", "R-hat log joint", "R-hat dispersion", "R-hat entries", "wrong entries"],
        [
            [name, *(number(case["fit"][n], 3)
                     for n in ("rhat_log_joint", "rhat_dispersion", "rhat_product")),
             number(case["fit"]["errors"], 0)]
            for name, case in found.get("data", {}).items()
        ],
    )  # fmt: skip


@page("nested", "Are exclusive and overlapping components found under hidden entries?")
def nested(records: Records):
    found = figures(records, "nested")
    yield (
        "The benchmark of siddC/boolmf, drawn anew from its description: eight exclusive and "
        "twelve overlapping components, a tenth of the entries hidden. A component is found "
        "where a factor has its carriers with a Jaccard index of at least 0.8 and its features "
        "with at least 0.5. `log score` is the mean log probability of the hidden entries. "
        "boolmf, in its repository, finds 10 to 11 of 12 and 8 of 8 in 460 to 480 s with eight "
        "chains, at an R-hat of the log likelihood up to 1.8; it learns the number of components, "
        "which is given here."
    )
    yield _settings(found)
    yield table(
        ["matrix", "exclusive, of 8", "overlapping, of 12", "missed", "R-hat log joint", "ESS",
         "log joint of the chains", "log score", "of the truth", "seconds", "processor seconds"],
        [
            [
                name, case["exclusive_found"], case["overlapping_found"], listed(case["missed"]),
                number(case["rhat_log_joint"], 3), number(case["ess_log_joint"], 0),
                listed(case["log_joint"], 1), number(case["log_score_hidden"], 5),
                number(case["log_score_hidden_of_the_truth"], 5), number(case["seconds"], 0),
                number(case["cpu_seconds"], 0),
            ]
            for name, case in found.get("matrices", {}).items()
        ],
    )  # fmt: skip


def _agreeing(run: dict) -> str:
    share = run.get("factors_agreeing")
    return "" if share is None else percent(share, 0) + " %"


@page("mushroom", "How much of the mushrooms' misfit is the prior, and how much a poor mode?")
def mushroom(records: Records):
    found = figures(records, "mushroom")
    yield (
        "Wrong entries and log joint of each chain, under two priors of the densities; then of "
        "chains under one prior from the best solution of the other. Thresholded NMF is the "
        "product of a nonnegative factorisation, cut where the fewest entries are wrong."
    )
    yield _settings(found)
    runs = {n: v for n, v in found.items() if isinstance(v, dict)}
    yield table(
        ["fit", "wrong entries", "log joint", "R-hat log joint", "ESS", "factors found by all",
         "rebirths accepted", "seconds", "processor seconds", "verdict"],
        [
            [
                name, listed(errors if isinstance(errors := run["errors"], list) else [errors]),
                listed(run.get("log_joint"), 1), number(run.get("rhat_log_joint"), 3),
                number(run.get("ess_log_joint"), 0), _agreeing(run),
                _accepted(run.get("rebirth_accepted")), number(run.get("seconds"), 0),
                number(run.get("cpu_seconds"), 0),
                run.get("verdict", ""),
            ]
            for name, run in runs.items()
        ],
    )  # fmt: skip


def _accepted(share: float | None) -> str:
    return "" if share is None else f"{percent(share, 1)} %"


@page(
    "long_matrix",
    "Do chains agree where both sides are long, and do they predict better than NMF?",
    "long_matrix*",
)  # fmt: skip
def long_matrix(records: Records):
    yield from _hidden_tenth({n.removeprefix("long_matrix_"): r for n, r in records.items()})


@page("mnist", "Of which parts are handwritten digits made?")
def mnist(records: Records):
    yield "![Pixels of each factor, and the share of the images that use it](mnist.png)"
    yield from _hidden_tenth(records)


def _hidden_tenth(records: Records):
    """Write what fits say of their chains, and of a tenth of the entries that was hidden."""
    yield (
        "A tenth of the entries is hidden. `log score` is their mean log probability: of the fit, "
        "of a calibrated nonnegative factorisation of the same rank, and of the share of ones of "
        "each column. `constant` is the share of entries that hardly ever change."
    )
    cases = {name: record["figures"] for name, record in records.items()}
    yield table(
        ["record", "log score", "NMF", "columns", "R-hat log joint", "dispersion", "entries",
         "constant", "ESS", "factors found by all", "log joint of the chains", "seconds",
         "processor seconds"],
        [
            [
                name, *(number(case[n], 5)
                        for n in ("log_score", "log_score_nmf", "log_score_columns")),
                *(number(case[f"rhat_{of}"], 3)
                  for of in ("log_joint", "dispersion", "entries_99")),
                percent(case["share_constant"], 0) + " %", number(case["ess_log_joint"], 0),
                percent(case["factors_agreeing"]) + " %", listed(case["log_joint"], 1),
                number(case["seconds"], 0), number(case["cpu_seconds"], 0),
            ]
            for name, case in cases.items()
        ],
    )  # fmt: skip


@page(
    "accelerator_compile",
    "Do the samplers compile for a GPU and a TPU, and what do they need there?",
    "accelerator_compile*",
)  # fmt: skip
def accelerator_compile(records: Records):
    yield (
        "Compiled ahead of time, on a machine without either; nothing was run. One step of one "
        "chain; bytes are those that the compiled program asks for. The least seconds follow from "
        "published peaks and from the operations that were counted: they are bounds, and not "
        "predictions."
    )
    for name, record in records.items():
        found = record["figures"]
        yield f"## {name}"
        yield from (
            f"{target} is left out: {peaks['left_out']}"
            for target, peaks in found["targets"].items() if "left_out" in peaks
        )  # fmt: skip
        yield table(
            ["step", "target", "compiles", "seconds of compiling", "arguments, MB", "scratch, MB",
             "fits", "at least, ms", "because of"],
            [
                _compiled_row(step, target, one)
                for step, case in found["steps"].items()
                for target, one in case["compiled"].items()
            ],
        )  # fmt: skip
        kinds = ("products", "bitwise", "popcounts", "random", "other")
        yield "Operations of a step, in millions; `products` are those of matrix products."
        yield table(
            ["step", *kinds],
            [
                [step, *(number(case["operations"].get(kind, 0) / 1e6, 1) for kind in kinds)]
                for step, case in found["steps"].items()
            ],
        )


def _compiled_row(step: str, target: str, one: dict) -> list:
    """Tell of one step on one target: whether it compiles, and what it needs."""
    if "error" in one:
        return [step, target, one["error"], *[""] * 6]
    least = one["least_seconds"]
    which = max(least, key=least.get)
    return [
        step, target, "yes", number(one["seconds"], 1), number(one["argument_bytes"] / 1e6, 1),
        number(one["scratch_bytes"] / 1e6, 1), "yes" if one["fits"] else "no",
        number(1e3 * least[which], 3), which,
    ]  # fmt: skip


@page("panpal_pull", "Why does PanPal find no tile of 8 x 8?")
def panpal_pull(records: Records):
    found = figures(records, "panpal_pull")
    at = found["objective"]
    yield (
        f"{found['size']} x {found['size']}, {found['rank']} tiles, {number(found['ones'])} ones. "
        f"The relaxed objective is {number(at['truth'], 1)} at the truth and "
        f"{number(at['empty'], 1)} at the empty tiling. Entries are pulled to 0 and 1 with weight "
        f"1 as published; a pull that grows does so over {number(found['steps_in_which_it_grows'])}"
        " steps. Wrong entries are beside the noise-free matrix."
    )
    yield table(
        ["start, as published", "steps", "tiles", "wrong entries"],
        [
            [f"{100 * float(share):g} % truth, the rest uniform numbers", *case.values()]
            for share, case in found["from_the_truth_and_noise"].items()
        ],
    )
    yield table(
        ["from uniform numbers", "rank", "steps", "tiles", "wrong entries"],
        [
            [way, int(rank), *case.values()]
            for rank, cases in found["from_uniform_numbers"].items()
            for way, case in cases.items()
        ],
    )


@page(
    "optimisers",
    "How well do PanPal, Primp, ELBMF, thresholded NMF and the polish factorise?",
    "optimisers*",
)  # fmt: skip
def optimisers(records: Records):
    for name, record in records.items():
        yield f"## {name}"
        yield from _optimised(record["figures"])


def _posteriors(thesis: dict):
    """Say what the posteriors tell of the number of factors, and how far to rely on them."""
    rows = [
        [
            matrix, method,
            ", ".join(f"{n}: {p:.2f}" for n, p in case["rank_probabilities"].items() if p >= 0.005),
            number(case["rhat"], 3), case["verdict"],
        ]
        for matrix, methods in thesis.items()
        for method, case in methods.items()
        if isinstance(case, dict) and "verdict" in case
    ]  # fmt: skip
    if rows:
        yield "Posterior probability of every number of factors of at least 0.005, and the verdict."
        yield table(["matrix", "model", "probabilities", "R-hat", "verdict"], rows)


def _optimised(found: dict):
    yield _settings(found)
    if "thesis" in found:
        yield "### The matrices of Gonsior (2019)"
        said = "Wrong entries. PanPal and Primp find the rank; the others are given it."
        if any("Boolean posterior" in methods for methods in found["thesis"].values()):
            said = (
                "Wrong entries. PanPal, Primp and the posteriors find the rank; the others are "
                "given it."
            )
        if any(n.endswith(", trusted") for methods in found["thesis"].values() for n in methods):
            said += (
                " A row `trusted` has their tiles that are kept at a false discovery rate of 5 %; "
                "its seconds are those of the selection."
            )
        yield said
        rows = [
            [
                matrix, method, case["errors_observed"], case["errors_noise_free"], case["rank"],
                number(case["seconds"], 1),
            ]
            for matrix, methods in found["thesis"].items()
            for method, case in methods.items()
            if isinstance(case, dict)
        ]  # fmt: skip
        header = ["against the data", "against the noise-free matrix", "rank", "seconds"]
        yield table(["matrix", "method", *header], rows)
        yield from _posteriors(found["thesis"])
    if "kovacs" in found:
        study = found["kovacs"]
        yield "### Beside Kovacs, Gunluk and Hauser (2021)"
        yield (
            'Wrong entries of the polish beside the best in the repository of "Binary matrix\n'
            f'factorisation via column generation": within 2 % on {study["within"]}. '
            f"Left out: {', '.join(study['left_out']) or 'none'}."
        )
        yield _polished(study["cells"], ("best_known", "within_2_percent"))
    if "undercover" in found:
        study = found["undercover"]
        yield "### Beside Avellaneda and Villemaire (2022)"
        yield (
            'Wrong entries of the polish beside "Boolean matrix factorization with SAT and '
            f'MaxSAT": at most those of OptiBlock* on {study["at_most"]}. Most methods there '
            "cover no zero; the polish may. "
            f"Left out: {', '.join(study['left_out']) or 'none'}."
        )
        columns = ("optiblock_star", "best_of_eleven", "at_most_optiblock_star", "columns_assumed")
        yield _polished(study["cells"], columns)


def _polished(cells: dict, columns: tuple[str, ...]) -> str:
    return table(
        ["matrix, rank", "shape", "wrong", *(n.replace("_", " ") for n in columns), "seconds"],
        [
            [
                name, " x ".join(number(n) for n in cell["shape"]), cell["errors"],
                *(cell[n] for n in columns), number(cell["seconds"], 1),
            ]
            for name, cell in cells.items()
        ],
    )  # fmt: skip


@page("rank_recovery", "Is the number of factors found, and is its probability calibrated?",
      "rank_recovery*")  # fmt: skip
def rank_recovery(records: Records):
    yield '`bmfjax.fit(data, "auto")`.'
    for name, record in records.items():
        found = record["figures"]
        yield f"## {name}"
        if name.endswith("_grid"):
            yield (
                "The grid is that of Rukat and Yau (2019), 81 fits. As published, their program "
                "finds the rank of 64 of them and boolmf of 54."
            )
        yield _settings({n: v for n, v in found.items() if not isinstance(v, list)})
        if "cases" in found:
            yield from _recovered(found)
        if "told" in found:
            yield from _prior_ranks(found)
        if name.endswith("_evidence"):
            for matrix, study in found["matrices"].items():
                yield from _evidence_ranks(matrix, study)


def _recovered(study: dict):
    """Write every fit of a study; where the true number is known, how often it is found."""
    if "exact" in study:
        yield (
            f"The most probable number is the true one in {study['exact']} of {study['fits']} "
            f"fits, and within one of it in {study['within_one']}."
        )
    if any("exit" in case for case in study["cases"].values()):
        cases = study["cases"].values()
        yield (
            "Seconds are those of the whole command, with report and tiles. The report tells "
            f"P(rank) on {sum(c['report_tells_the_number'] for c in cases)} of {len(cases)}, and "
            f"the trust in the tiles on {sum(c['report_tells_the_trust'] for c in cases)}; the "
            f"command ended with 0 on {sum(c['exit'] == 0 for c in cases)}."
        )
    yield table(
        ["matrix", "true", "found", "most allowed", "its probability", "R-hat rank", "R-hat",
         "draws", "seconds", "verdict"],
        [
            [
                name, case.get("truth"), case["rank"], case.get("most"),
                number(case["rank_probability"], 3),
                number(case["rhat_rank"], 3), number(case["rhat"], 3), case["num_draws"],
                number(case["seconds"], 1), case["verdict"],
            ]
            for name, case in study["cases"].items()
        ],
    )  # fmt: skip
    if any("exact_log_joint" in case for case in study["cases"].values()):
        yield from _beside_exact(study["cases"])


def _beside_exact(cases: dict):
    """Compare the exact factors with the highest draw."""
    yield (
        "Log joint density of data and factors, with densities and flip rate integrated out, of "
        "the exact factors and of the highest draw:"
    )
    yield table(
        ["matrix", "factors", "log joint", "factors of the draw", "entries it has wrong",
         "log joint of the draw"],
        [
            [
                name, case["exact_factors"], number(case["exact_log_joint"], 1),
                case["highest_factors"], case["highest_errors"],
                number(case["highest_log_joint"], 1),
            ]
            for name, case in cases.items()
        ],
    )  # fmt: skip


def _prior_ranks(study: dict):
    yield (
        f"{study['matrices']} matrices drawn from the prior. The true number has a probability of"
        f" {number(study['mean_probability_of_the_truth'], 3)} in the mean. Probabilities of"
        " numbers by bin, beside how often they were the true one:"
    )
    bins = zip(study["told"], study["frequency"], study["numbers"], strict=True)
    yield table(
        ["mean probability", "frequency", "probabilities"],
        [[number(told, 3), number(share, 3), many] for told, share, many in bins],
    )


def _evidence_ranks(matrix: str, study: dict):
    yield (
        f"{matrix}, at most {study['max_rank']} factors: probability of each number of used ones,"
        " from the evidence of every rank and from the fit (R-hat of the rank"
        f" {number(study['rhat_rank'], 3)}):"
    )
    both = zip(study["from_evidence"], study["from_the_fit"], strict=True)
    yield table(
        ["factors", "from the evidence", "from the fit"],
        [[n, number(one, 3), number(other, 3)] for n, (one, other) in enumerate(both)],
    )
    pairs = zip(study["log_evidence"], study["standard_error"], strict=True)
    yield table(
        ["rank", "log evidence"],
        [[n, with_error(value, error, 2)] for n, (value, error) in enumerate(pairs, 1)],
    )


SET_NAMES = {"nltcs": "NLTCS", "baudio": "Audio", "jester": "Jester", "dna": "DNA"}


@page("row_completion", "Are rows completed as well as by sum-product networks?")
def row_completion(records: Records):
    found = figures(records, "row_completion")
    sets, shares = found.get("sets", {}), found.get("shares", ())
    yield (
        "Mean over test rows of log p(query | known), jointly over the query, divided by the "
        "number of columns in it; every row has a query of its own, drawn at random. Higher is "
        f"better. ID-SPN: {found.get('source')}. At or above ID-SPN in {found.get('at_or_above')} "
        f"of {found.get('cells')} cells. {_settings(found, 'source', 'cells', 'at_or_above')}"
    )
    queried = [f"{percent(s, 0)} % queried" for s in shares]
    rows = []
    for name, case in sets.items():
        ours = [with_error(*cell, 4) for cell in case["joint"]]
        rows.append([SET_NAMES[name], "bmfjax", *ours, number(case["independent"], 4)])
        theirs = [number(v, 4) for v in case["published"]["id_spn"]]
        rows.append(["", "ID-SPN", *theirs, number(case["published"]["independent"], 4)])
    yield table(["set", "", *queried, "independent columns"], rows)
    yield (
        "One query that all rows share, several times: mean and standard deviation over queries, "
        "of some of the rows. The last figure of a cell is the distance of ID-SPN from the mean, "
        "in these standard deviations."
    )
    rows = []
    for name, case in sets.items():
        cells = [
            f"{number(c['mean'], 4)}, {number(c['spread'], 4)}, "
            f"{number((published - c['mean']) / c['spread'], 1)}"
            for c, published in zip(
                case["shared_queries"], case["published"]["id_spn"], strict=True
            )
        ]
        rows.append([SET_NAMES[name], *cells])
    yield table(["set", *queried], rows)
    yield (
        "Single columns of the query, the mean of their own log probabilities, beside WinMine "
        "(dependency networks by Gibbs sampling, same source); the log probability of whole test "
        "rows; and what another seed of importance sampling changes per column."
    )
    rows = [
        [
            SET_NAMES[name],
            *(with_error(*c, 4) for c in case["single"]),
            *(number(v, 4) for v in case["published"]["winmine"]),
            with_error(*case["whole_row"], 3), number(case["difference_of_two_seeds"], 5),
        ]
        for name, case in sets.items()
    ]  # fmt: skip
    yield table(
        ["set", "single, 10 %", "single, 90 %", "WinMine, 10 %", "WinMine, 90 %", "whole row",
         "other seed"], rows,
    )  # fmt: skip
    yield "Log probability of validation rows, by which the fit is chosen:"
    yield table(
        ["set", "rank", "scale", "sweeps of the exact sampler", "validation", "chosen",
         "processor seconds of the set"],
        [
            [
                SET_NAMES[name], t["rank"], t["scale"], t["sweeps"],
                number(t["log_probability"], 3), "yes" if t == case["chosen"] else "",
                number(case["processor_seconds"], 0),
            ]
            for name, case in sets.items()
            for t in case["tried"]
        ],
    )  # fmt: skip


@page("verdict_trial", "Is it right what the verdict says of the parts of a fit?")
def verdict_trial(records: Records):
    found = figures(records, "verdict_trial")
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
    columns = ["part", "rule", "refused", "wrongly"]
    yield table(columns, [[row[name] for name in columns] for row in found["refusals"]])
    yield (
        "Each fit: calibration error on hidden entries, what it stays below in 95 % of cases "
        "if the probabilities are true, how far 99 % of these are at most from the other fit's, "
        "their mean log probability, and that of draws by stacking weights."
    )
    yield table(
        ["case", "error", "by chance", "apart", "log score", "stacked", "verdict"],
        [
            [run["case"], number(run["calibration_error"], 3), number(run["by_chance"], 3),
             number(run["apart"], 3), number(run["log_score"], 4),
             number(run["stacked_log_score"], 4), run["verdict"]]
            for run in found["runs"]
        ],
    )  # fmt: skip


def _share(row: dict, said: tuple[str, ...]) -> str:
    """Write the share of what is said wrongly, and its interval of 95 % (Clopper and Pearson)."""
    whole = sum(row[word] for word in said)
    if not whole:
        return ""
    wrong = sum(row[f"{word}, wrongly"] for word in said)
    low, high = (100 * end for end in binomtest(wrong, whole).proportion_ci(method="exact"))
    return f"{100 * wrong / whole:.0f} % ({low:.0f} to {high:.0f})"


@page("verdict_goals", "Do all parts of the verdict hold for the data that ship?")
def verdict_goals(records: Records):
    found = figures(records, "verdict_goals")
    yield (
        f'{len(found["fits"])} of {found["asked"]} fits, by model "{found["model"]}", each in a '
        "process of its own, with all compilation."
    )
    yield table(
        ["data", "rank", "seed", "predictions", "factors", "number", "processor seconds",
         "what the verdict says"],
        [
            [fit["data"], fit["rank"], fit["seed"], fit["predictions"], fit["factors"],
             fit["number"], number(fit["cpu_seconds"], 0), fit["sentence"]]
            for fit in found["fits"]
        ],
    )  # fmt: skip

"""The page of the library beside its peers: a table for each matrix."""

from __future__ import annotations

from benchmarks.tables_form import Records, number, page, table, with_error

#: Figures of every part: name in the record, heading, digits.
COLUMNS = {
    "binary": (
        ("error", "error, hidden", 3), ("error_of_truth", "error, truth of hidden", 3),
        ("error_of_seen", "error, seen", 3), ("log_score", "log score", 3),
        ("calibration_error", "calibration error", 3), ("auc", "AUC", 3),
    ),
    "ratings": (
        ("rmse", "RMSE", 4), ("log_score", "log score", 4), ("coverage", "coverage of 90 %", 3),
        ("width", "width, stars", 2),
    ),
    "recall": (
        ("recall", "recall at 10", 4), ("auc", "AUC", 4),
        ("average_precision", "average precision", 4),
    ),
    "regression": (
        ("mean_error", "means off, posterior sd", 3),
        ("sd_error", "standard deviations off, relative", 3),
        ("coverage", "coverage of 90 %", 3), ("effective_draws", "effective draws", 0),
    ),
}  # fmt: skip
COST = (
    ("seconds", "seconds", 1), ("processor", "processor seconds", 1),
    ("tuning", "processor seconds of tuning", 1), ("peak_mb", "peak, MB", 0),
    ("added_mb", "added, MB", 0),
)  # fmt: skip


@page("peers", "How does the library do beside programs that a user could pick instead?", "peers_*")
def peers(records: Records):
    yield (
        "Means over repeats, with standard errors where there are several. Log scores are means of "
        "log probabilities or densities of what was held out, in nats: higher is better. Memory is "
        "the peak of the method's process, and what it adds to its data and packages."
    )
    for name, record in records.items():
        part, found = name.removeprefix("peers_").split("_")[0], record["figures"]
        yield f"## {name}"
        kept = {n: v for n, v in found["versions_of_peers"].items() if v != "not installed"}
        versions = ", ".join(f"{n} {v}" for n, v in kept.items())
        yield f"{found['threads']} thread(s) and core(s) for every method. Versions: {versions}."
        for case, rows in found["cases"].items():
            yield f"### {case}"
            yield from _case(part, rows)


def _case(part: str, rows: dict):
    done = {n: row for n, row in rows.items() if row["repeats"]}
    some = [c for c in (*COLUMNS[part], *COST) if any(c[0] in row for row in done.values())]
    yield table(
        ["method", "repeats", *(title for _, title, _ in some)],
        [
            [
                f"**{name}**" if row["ours"] else name, row["repeats"],
                *(_figure(row, figure, digits) for figure, _, digits in some),
            ]
            for name, row in done.items()
        ],
    )  # fmt: skip
    chosen = [[name, _chosen(row["chosen"])] for name, row in done.items() if any(row["chosen"])]
    yield table(["method", "options"], chosen)
    for name, row in rows.items():
        if "not_run" in row:
            yield f"* {name} did not run: {row['not_run']}"


def _figure(row: dict, figure: str, digits: int) -> str:
    if f"{figure}_error" in row and digits > 1:
        return with_error(row.get(figure), row[f"{figure}_error"], digits)
    return number(row.get(figure), digits)


def _chosen(runs: list[dict]) -> str:
    """Write options, once where they are the same in all repeats."""
    words = [", ".join(f"{n} {v}" for n, v in run.items() if n != "verdict") for run in runs]
    return "; ".join(dict.fromkeys(words))

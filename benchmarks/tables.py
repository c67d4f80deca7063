"""Write the long tables of the benchmarks: a page for each question, from the records.

Every `results/NAME.md` is made here from the JSON records beside it, and nothing on it is written
by hand. `record.write_record` refreshes the page of a record that it writes. A page without any
record is not written.

    python benchmarks/tables.py [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import (
    tables_accelerator,
    tables_boolean,
    tables_peers,
    tables_ratings,
    tables_relaxed,
)
from benchmarks.prediction import panel_page
from benchmarks.tables_form import PAGES, Page, Records, table

HERE = Path(__file__).parent
RESULTS = HERE / "results"
#: Each registers its pages.
BODIES = (
    panel_page, tables_accelerator, tables_boolean, tables_peers, tables_ratings, tables_relaxed,
)  # fmt: skip

_CLIMBED = "each chain starts where its own population has climbed to; other work ran beside it"
_SHARED = "chains go on together from the highest start: R-hat cannot show modes that all left"
_RELAXED = "earlier starts, from an annealed relaxed model; other work ran beside it"
_SECONDS = "other work ran beside it: seconds are upper bounds"
#: What must be known of one record, by its name and its commit: a newer record loses the note.
NOTES = {
    ("after_draws", "fd25565"): "run with OPENBLAS_NUM_THREADS=1",
    ("evidence", "e5683f1"): "other work ran beside ranks 5 to 7: their seconds are upper bounds",
    ("evidence_1024_particles", "d892af5"): "one core, and shared: seconds are upper bounds",
    ("first_answer_slower_machine", "e5683f1"): "a machine that was slower in every phase",
    ("first_answer_mushroom", "cf76fea"): (
        "other work ran beside it, most beside rank 10: seconds are upper bounds"
    ),
    ("logistic_vs_nuts", "605eee4"): _SECONDS,
    **{
        (f"{name}_h200", "639dbaf"): "before blocks followed the device"
        for name in ("iasg_speed", "ormachine_speed")
    },
    ("gibbs_speed_h200", "639dbaf"): (
        "before blocks followed the device; its part on NUTS, of five draws, is left out"
    ),
    **{
        (name, "8ba5244"): "on one core, with another measurement on the other"
        for name in ("gibbs_speed", "iasg_speed", "logistic_speed")
    },
    ("mnist", "605eee4"): "other work ran beside it, on the same core",
    ("boolean_peers_movielens", "90cd395"): _SECONDS,
    ("boolean_peers_flips", "90cd395"): _SECONDS,
    ("boolean_peers_products", "90cd395"): _SECONDS,
    ("boolean_peers_sweeps", "90cd395"): "other work ran beside it, on the same core",
    ("logistic_defaults", "b1ae58e"): "the machine was shared: compare processor seconds",
    ("logistic_recall_retail", "5cfbfbf"): _SECONDS,
    ("logistic_recall_retail_large", "5cfbfbf"): _SECONDS,
    ("logistic_recall_synthetic_large", "5cfbfbf"): _SECONDS,
    ("logistic_recall_synthetic", "39af385"): _SECONDS,
    ("rank_recovery_tiles", "7ed84f2"): _SECONDS,
    ("long_matrix_advertisement_rank_10", "85e6d9e"): "one core, with other work beside it",
    ("sparse_memory", "b389418"): "other work ran beside it: compare processor seconds",
    ("mesh_pmf", "7477f82"): "other work ran beside it: compare the fastest rounds",
    ("mesh_iasg", "c9f788c"): "much other work ran beside it: read the bytes, not the times",
    ("mesh_relaxed", "1789783"): "much other work ran beside it: read the bytes, not the times",
    ("mushroom", "85e6d9e"): _SECONDS,
    ("first_answer_100000_rows", "7d82477"): _SECONDS,
    ("end_to_end", "fd25565"): _SECONDS,
    ("scale", "7d82477"): _SECONDS,
    ("accelerator_h100", "46765b9"): (
        "in this commit the loop over factors was not unrolled below 1,048,576 words, which "
        "cost 1 to 2 ms at 1,000 and 10,000 rows: accelerator_h100_unrolled has them as they are"
    ),
    ("accelerator_h100_unrolled", "cb09220"): (
        "before ratings were drawn in one batch; no test was marked for a device yet"
    ),
    ("accelerator_h200", "a3fe525"): "some phases only, in the time that was left on the card",
    ("accelerator_compile", "85cf174"): "one core, with other work beside it",
    ("minibatch_regression", "506039b"): (
        "other work ran beside it: compare processor seconds; all start at the mode"
    ),
    ("verdict_trial", "eba1bd1"): "28 of 56 cases, fitted at ef26076 and judged by this commit",
    ("verdict_goals", "7e64974"): "two of nine fits, made at 35eaa1f; other work ran beside them",
    ("nested", "6b3958c"): "the machine was shared: compare processor seconds",
    **{
        (f"ormachine_convergence_{matrix}{seed}", "e260a96"): _SECONDS
        for matrix in ("house-votes_rank_8", "zoo_rank_8", "bob-ross_rank_6")
        for seed in ("", "_seed_1", "_seed_2")
    },
    **{
        (f"ormachine_convergence_{matrix}_rank_8_no_jumps{seed}", "9db28bd"): (
            "before jumps between solutions; other work ran beside it"
        )
        for matrix in ("house-votes", "zoo")
        for seed in ("", "_seed_1", "_seed_2")
    },
    ("rank_recovery_grid", "9db28bd"): _SECONDS,
    ("pmf_movielens_attributes", "55e7bda"): _SECONDS,
    ("iasg_calibration", "55e7bda"): _SECONDS,
    ("thesis_tables", "a0cd576"): _SECONDS,
    ("thesis_tables_seeds", "343f20f"): (
        "several commands on one folder, which held these runs; other work ran beside them"
    ),
    ("nmf_coverage_large", "ed7326c"): _SECONDS,
    ("nmf_coverage_restarts", "c78ced3"): _SECONDS,
    ("nmf_coverage_walls", "656d8a8"): _SECONDS,
    ("nmf_coverage_crossings", "c778fdf"): _SECONDS,
    ("thesis_samplers", "a0cd576"): "other work ran beside it: draws are fewer than on a free core",
    ("thesis_runs_table_3_2", "de461f5"): (
        "several commands on one folder, which held these runs; some were stopped for a while: "
        "their seconds say nothing"
    ),
    ("thesis_runs", "a0cd576"): (
        "several commands on one folder, which held these runs; other work ran beside them"
    ),
    ("bias_table", "c78ced3"): "other work ran beside it: compare effective draws within a table",
    **{
        (f"peers_{part}", commit): "other work ran beside it: compare processor seconds"
        for part, commit in (
            ("binary", "39a4c79"),
            ("ratings", "53b50b0"),
            ("recall", "53b50b0"),
            ("regression", "53b50b0"),
        )
    },
    ("row_completion", "55e7bda"): _SECONDS,
    ("rank_recovery_real", "5aad51d"): "light work ran beside it: seconds are upper bounds",
    ("rank_recovery_shipped", "fe8dc27"): "light work ran beside it: seconds are upper bounds",
    ("minibatch_sizes", "2d06297"): (
        "before all data were taken where the estimated residual is noisy; other work ran beside it"
    ),
    ("optimisers", "fa4df0e"): "one thread, on a shared machine",
    ("ormachine_calibration", "37127ed"): "the fit of then, without moves of whole factors",
    ("ormachine_starts", "b6308ea"): "earlier: half the draws, births, no exchange of factors",
    **{
        (f"ormachine_convergence{name}", commit): note
        for name, commit, note in (
            ("", "6c03e19", "earlier sampler, ladders set by hand; the machine was shared"),
            ("_bob-ross_rank_6_no_jumps", "e1b411a", "before jumps; other work ran beside it"),
            ("_house-votes_rank_8", "e5683f1", "a ladder of five temperatures after 1,750 steps"),
            ("_house-votes_rank_8_no_ladder", "5a1a58a", "earlier default, no ladder"),
            ("_mushroom_rank_10", "a2f5846", _CLIMBED),
            ("_mushroom_rank_10_relaxed_starts", "e1b411a", _RELAXED),
            ("_mushroom_rank_10_shared_starts", "8b0ba21", _SHARED),
            ("_pancan-pathways_rank_4", "a2f5846", _CLIMBED),
            ("_pancan-pathways_rank_4_ladder", "b6308ea", "earlier sampler, ladder set by hand"),
            ("_pancan-pathways_rank_4_relaxed_starts", "e1b411a", _RELAXED),
            ("_pancan-pathways_rank_4_shared_starts", "fe743be", _SHARED),
            ("_pancan-pathways_rank_8", "b6308ea", "earlier sampler, no ladder"),
            ("_pancan-pathways_rank_8_climbed", "a2f5846", _CLIMBED),
            ("_pancan-pathways_rank_8_shared_starts", "fe743be", _SHARED),
            ("_zoo_rank_8", "5a1a58a", "moves that replace whole factors; other work ran"),
            ("_zoo_rank_8_300_s", "6762e86", "earlier: a ladder alone, at most 300 s"),
        )
    },
}


def read_records(folder: Path) -> Records:
    """Return the records of a folder, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def text_of(page: Page, records: Records) -> str | None:
    """Return the text of a page, or None where it has no record."""
    own = {name: record for name, record in records.items() if page.shows(name)}
    if not own:
        return None
    made = (
        "Made by `benchmarks/tables.py` from the records below. Do not change it by hand: run "
        "`python benchmarks/tables.py`. `benchmarks/README.md` has the answer in short."
    )
    body = page.body({name: record for name, record in own.items() if "figures" in record})
    blocks = [f"# {page.question}", made, sources(own), *body]
    return "\n\n".join(map(_wrapped, blocks)) + "\n"


def _wrapped(block: str) -> str:
    """Break the lines of a paragraph; headings, lists, tables and pictures stay."""
    if block.startswith(("#", "* ", "|", "!")):
        return block
    return textwrap.fill(" ".join(block.split()), 100, break_on_hyphens=False)


def place_of(script: str) -> str:
    """Return where a script stands, from its name without folder."""
    return next((p.relative_to(HERE).as_posix() for p in HERE.glob(f"*/{script}")), script)


def command_now(command: str) -> str:
    """Write a record's command as it is typed now: scripts move between folders."""
    return re.sub(
        r"(?<=benchmarks/)(?:\w+/)?(\w+\.py)", lambda found: place_of(found[1]), command, count=1
    )


def sources(records: Records) -> str:
    """Write where the figures come from: commands, commits, dates and devices."""
    rows = []
    for name, record in records.items():
        device = record.get("device", {})
        where = f"{device.get('kind')}, {device.get('cores')} cores, {device.get('machine')}"
        commit = record.get("commit", "unknown")
        note = NOTES.get((name, commit.split()[0]), "")
        command = f"`{command_now(record.get('command', ''))}`"
        rows.append([f"[{name}]({name}.json)", command, commit, record.get("date"), where, note])
    return table(["record", "command", "commit", "date", "device", "note"], rows)


def write_pages(folder: Path = RESULTS, of_record: str | None = None) -> list[Path]:
    """Write the pages of a folder from its records.

    Parameters
    ----------
    folder : Path
        Where the records are, and the pages go.
    of_record : str, optional
        Name of a record: write its page only.

    Returns
    -------
    list of Path
        The files written.
    """
    records, written = read_records(folder), []
    for page in PAGES.values():
        if of_record is not None and not page.shows(of_record):
            continue
        text = text_of(page, records)
        if text is not None:
            path = folder / f"{page.name}.md"
            path.write_text(text)
            written.append(path)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=RESULTS)
    for path in write_pages(parser.parse_args().folder):
        print(path)


if __name__ == "__main__":
    main()

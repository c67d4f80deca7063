"""Make the pages of the benchmarks, of which nothing is written by hand.

`README.md` has the questions and the answers of the scripts, and `results/NAME.md` the long tables:
what the functions below `@page` make of the JSON records beside it.
"""

import functools
import importlib
import json
import os
import re
import textwrap
from pathlib import Path
from types import ModuleType

from benchmarks.form import PAGES, Page, Records, table

HERE = Path(__file__).parent
RESULTS = HERE / "results"
#: Records that are linked below an answer at most; their page has more.
FEW = 8
#: How options of older commands are spelled now, by script. What a script can no longer do is not
#: here: its command is refused.
RESPELLED = {
    "accelerator": {r"\bmodels\b": "relaxed nonnegative ratings 'large ratings'"},
    "nmf_coverage": {r"(?<!')(small, \w+ modes?|Gibbs (?:with moves|behind walls))": r"'\1'"},
    # Of a figure that the record no longer has.
    "ormachine_completion": {r" --exact 60": ""},
    "thesis": {r"--name thesis_runs_": "--part "},
}
#: What the scripts of every folder ask.
FOLDERS = {
    "agreement": "Do chains agree, and do they find what is there?",
    "calibration": "Is what the library says of its own uncertainty right?",
    "rank": "Is the number of factors found?",
    "prediction": "How well is what was hidden predicted?",
    "speed": "What does it cost?",
    "scale": "How large may data be, how long a run, and what if it is cut off?",
    "papers": "Do the papers that the library began from come out?",
}
INTRODUCTION = """
Which model predicts data like yours best, and at what cost? Begin with [the
panel](#{panel}).

Each question below has one script in a folder of its kind, and one command: `python benchmarks
--run iasg_speed`, or `python -m benchmarks.speed.iasg_speed` from the root of the repository, where
what bmfjax needs is installed. A script holds its question, its run, its tables and its answer, and
a new one needs no other file. A run writes a record, a JSON file in `results/` with the figures,
the device, the versions, the commit and the date, and the page of that record. `python benchmarks
--pages` makes all pages again, this one too. Most records are from CPUs with two cores, those named
`h100` and `h200` from a GPU. A record is of the commit that it names, and lists the files of bmfjax
that drew with a hash of each: `python benchmarks --stale` lists how many lines of these have
changed since, and `python benchmarks --run RECORD` makes one again.
"""


@functools.cache
def scripts() -> dict[str, Path]:
    """Return the files in the folders of questions, by name."""
    return {path.stem: path for folder in FOLDERS for path in sorted((HERE / folder).glob("*.py"))}


def every() -> dict[str, ModuleType]:
    """Import all scripts, which registers their pages."""
    before = dict(os.environ)
    try:
        return {
            name: importlib.import_module(f"benchmarks.{path.parent.name}.{name}")
            for name, path in scripts().items()
        }
    finally:  # what a script sets for JAX holds for its own run
        os.environ.clear()
        os.environ.update(before)


def read_records(folder: Path) -> Records:
    """Return the records of a folder, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def text_of(page: Page, records: Records) -> str | None:
    """Return the text of a page, or None where it has no record."""
    own = {name: record for name, record in records.items() if page.shows(name)}
    if not own:
        return None
    made = (
        "Made from the records below. Do not change it by hand: run `python benchmarks --pages`. "
        "`benchmarks/README.md` has the answer in short."
    )
    body = []
    try:
        body += page.body({name: record for name, record in own.items() if "figures" in record})
    except KeyError as lacking:  # the script has come before its new record
        body.append(
            f"These records lack {lacking}, which the tables of the script ask for now: "
            "`python benchmarks --run RECORD` makes them again."
        )
    blocks = [f"# {page.question}", made, sources(page, own), *body]
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
    """Write a record's command as it is typed now: scripts move, and options get other names."""

    def module(found) -> str:
        return "-m benchmarks." + place_of(found[1]).removesuffix(".py").replace("/", ".")

    place, _, options = command.partition(".py")
    for before, now in RESPELLED.get(Path(place).name, {}).items():
        options = re.sub(before, now, options)
    return re.sub(r"benchmarks/(?:\w+/)?(\w+\.py)", module, f"{place}.py{options}", count=1)


def sources(page: Page, records: Records) -> str:
    """Write where the figures come from: commands, commits, dates and devices."""
    rows = []
    for name, record in records.items():
        device = record.get("device", {})
        where = f"{device.get('kind')}, {device.get('cores')} cores, {device.get('machine')}"
        commit = record.get("commit", "unknown")
        commits = [(of, commit.split()[0]) for of in (name, "")]
        note = next((page.notes[key] for key in commits if key in page.notes), "")
        command = f"`{command_now(record.get('command', ''))}`"
        rows.append([f"[{name}]({name}.json)", command, commit, record.get("date"), where, note])
    return table(["record", "command", "commit", "date", "device", "note"], rows)


def write_pages(folder: Path = RESULTS, of_record: str | None = None) -> list[Path]:
    """Write the pages of a folder from its records, or that of one record, and return the files.

    Pages are known as far as their scripts are imported.
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


# ---- the page of all questions --------------------------------------------------------------


def question(module: ModuleType) -> str:
    """Return the first line of a script."""
    return module.__doc__.partition("\n")[0]


def pages_of(name: str, module: ModuleType) -> list[Page]:
    """Return the pages that a script registers."""
    return [p for p in PAGES.values() if name == p.name or p.body.__module__ == module.__name__]


def readme(modules: dict[str, ModuleType]) -> str:
    """Write all questions with their answers, folder after folder; not those without a record."""
    records = [path.stem for path in RESULTS.glob("*.json")]
    asked = {}
    for name, module in modules.items():
        own = pages_of(name, module)
        shown = [page.name for page in own if any(map(page.shows, records))]
        if hasattr(module, "ANSWER") and (shown or not own):
            asked[name] = shown
    first = INTRODUCTION.strip().replace("{panel}", _anchor(question(modules["panel"])))
    blocks = ["# Benchmarks", first, _index(modules, asked)]
    for folder, about in FOLDERS.items():
        blocks += [f"## {folder.capitalize()}", about]
        for name in asked:
            if scripts()[name].parent.name == folder:
                blocks += [f"### {question(modules[name])}", modules[name].ANSWER.strip()]
                blocks += _ending(name, asked[name], records)
    return "\n\n".join(blocks) + "\n"


def _ending(name: str, shown: list[str], records: list[str]) -> list[str]:
    """Write how an answer is made again, and where its tables and records are."""
    if not shown:
        return []
    links = [f"[{page}](results/{page}.md)" for page in shown]
    if len(links) == 1:
        links = [f"[tables](results/{shown[0]}.md)"]
    for page in shown:
        own = sorted(record for record in records if PAGES[page].shows(record))
        names = [record.removeprefix(page).strip("_").replace("_", " ") for record in own]
        links += [
            f"[{label or 'record'}](results/{record}.json)"
            for label, record in zip(names, own, strict=True)
            if len(own) <= FEW
        ]
    said = f"`python benchmarks --run {name}`: {', '.join(links)}."
    return [textwrap.fill(said, 100, break_on_hyphens=False, break_long_words=False)]


def _index(modules: dict[str, ModuleType], asked: dict[str, list[str]]) -> str:
    """Write the table of questions, which lead to their answers, of scripts and of tables."""
    rows = []
    for name, shown in asked.items():
        text, path = question(modules[name]), scripts()[name].relative_to(HERE).as_posix()
        links = ", ".join(f"[{page}](results/{page}.md)" for page in shown)
        rows.append([f"[{text}](#{_anchor(text)})", f"`{path}`", links])
    return table(["question", "script", "tables and records"], rows)


def _anchor(heading: str) -> str:
    """Return the name that a heading has as the target of a link."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def write_all() -> list[Path]:
    """Write every page that is made from the scripts and the records of the repository."""
    modules = every()
    (HERE / "README.md").write_text(readme(modules))
    for name in ("papers", "panel_page"):  # of the site
        modules[name].main()
    return [*write_pages(), HERE / "README.md"]

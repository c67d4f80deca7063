"""The pages in `benchmarks/results` are what the records say."""

import importlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from benchmarks import pages
from benchmarks.form import named, number, shown
from benchmarks.record import write_record
from benchmarks.stale import files_of, hashed

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RESULTS = BENCHMARKS / "results"
README = BENCHMARKS / "README.md"


@pytest.fixture(scope="module")
def scripts():
    """Every script, imported: that finds all that they import, and their pages."""
    return pages.every()


def made(folder):
    """Return the pages of a folder's records, by name."""
    records = pages.read_records(folder)
    texts = {name: pages.text_of(page, records) for name, page in pages.PAGES.items()}
    return {name: text for name, text in texts.items() if text is not None}


def test_every_page_is_what_the_records_make(scripts):
    committed = {path.stem: path.read_text() for path in RESULTS.glob("*.md")}
    texts = made(RESULTS)
    assert sorted(committed) == sorted(texts)
    for name, text in texts.items():
        assert committed[name] == text, f"{name}.md: run python benchmarks --pages"


def test_the_readme_is_what_the_scripts_say(scripts):
    text = pages.readme(scripts)
    assert README.read_text() == text, "run python benchmarks --pages"
    for name, path in pages.scripts().items():
        own = pages.pages_of(name, scripts[name])
        has_record = any((RESULTS / f"{page.name}.md").exists() for page in own)
        if "command_line(" in path.read_text() and has_record:
            assert f"`{path.relative_to(BENCHMARKS).as_posix()}`" in text, name
    for path in RESULTS.glob("*.md"):
        assert f"](results/{path.name})" in text, path.name


def test_every_script_leaves_the_environment_as_it_was(monkeypatch):
    def set_and_fail(name):
        os.environ["JAX_ENABLE_X64"] = "1"
        raise ImportError(name)

    monkeypatch.delenv("JAX_ENABLE_X64", raising=False)
    monkeypatch.setattr(importlib, "import_module", set_and_fail)
    with pytest.raises(ImportError, match=r"benchmarks\.agreement\."):
        pages.every()
    assert "JAX_ENABLE_X64" not in os.environ


def test_every_record_has_a_page(scripts):
    for path in RESULTS.glob("*.json"):
        shown = [page for page in pages.PAGES.values() if page.shows(path.stem)]
        assert len(shown) == 1, path.name
        assert f"]({path.name})" in (RESULTS / f"{shown[0].name}.md").read_text()


def test_a_changed_figure_changes_the_page(scripts, tmp_path):
    for path in RESULTS.glob("*.json"):
        shutil.copy(path, tmp_path)
    before = made(tmp_path)
    record = json.loads((tmp_path / "evidence.json").read_text())
    record["figures"]["ranks"]["8"]["log_evidence"] += 1.0
    (tmp_path / "evidence.json").write_text(json.dumps(record))
    after = made(tmp_path)
    assert {name for name in before if before[name] != after[name]} == {"evidence"}


def test_a_page_says_which_figure_its_records_lack(scripts):
    record = json.loads((RESULTS / "recommend_speed.json").read_text())
    del record["figures"]["calls"]
    text = pages.text_of(pages.PAGES["recommend_speed"], {"recommend_speed": record})
    assert "These records lack 'calls', which the tables of the script ask for now" in text
    assert "| [recommend_speed](recommend_speed.json) |" in text


def test_a_script_refreshes_the_page_of_its_record(scripts, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["iasg_memory.py", "--output", str(tmp_path)])
    rows = [{"samples": 6000, "peak_mb": 12.3, "seconds": 4.5}]
    write_record("iasg_memory", {"rank": 3, "batch": 7, "rows": rows}, tmp_path)
    page = (tmp_path / "iasg_memory.md").read_text()
    assert "| 6,000 | 12.3 | 4.5 |" in page
    assert "`python -m benchmarks.scale.iasg_memory`" in page
    assert sorted(p.name for p in tmp_path.iterdir()) == ["iasg_memory.json", "iasg_memory.md"]
    code = json.loads((tmp_path / "iasg_memory.json").read_text())["code"]
    assert code == {file: hashed(file) for file in files_of("iasg_memory")} and code


@pytest.fixture
def papers(scripts):
    return scripts["papers"]


def test_the_page_of_the_papers_is_what_the_records_make(papers):
    records = pages.read_records(RESULTS)
    text = papers.PAGE.read_text()
    assert text == papers.text_of(records), "run python benchmarks --pages"
    del records["nmf_coverage_small"]["figures"]["sets"]["small, two modes"]
    with pytest.raises(KeyError):
        papers.text_of(records)


def test_what_stands_beside_a_published_figure_is_compared_with_it(papers):
    records = {"study": {"figures": {"rows": [{"rank": 2, "error": 3.0}, {"rank": 4, "error": 1}]}}}
    error = papers.Of("study", ("rows", {"rank": 2}, "error"), 1)
    row = papers.Row("table", (4,), (error,), "lower")
    assert papers.line(row, records)[1:4] == ["4", "3.0", "better"]
    assert papers.compared(row._replace(better="higher"), records).startswith("behind in 1 of 1")
    assert papers.compared(row._replace(better="higher", read=1.0), records) == "as good"
    assert papers.line(row, {})[2:] == ["none", "none", "none"]
    assert papers.line(papers.Row("figure", "shown", shown="how_sure: No such"), {})[2] == "none"
    with pytest.raises(LookupError, match="0 rows"):
        papers.looked_up(error._replace(path=("rows", {"rank": 3}, "error")), records)


def test_links_lead_somewhere():
    for path in (README, *RESULTS.glob("*.md")):
        for target in re.findall(r"\]\((?!http|#)([^)\s]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1.0065, 3, "1.007"), (-4057.0894, 1, "-4,057.1"), (12000, None, "12,000"),
        (None, 2, ""), (float("nan"), 2, "none"), ("inf", 3, "infinite"), (True, None, "yes"),
        (4, 2, "4.00"),
    ],
)  # fmt: skip
def test_numbers_are_written(value, digits, text):
    assert number(value, digits) == text


def test_a_table_shows_rows_by_the_ways_to_their_values():
    cases = {"zoo": {"2": {"error": {"mean": 0.25, "standard_error": 0.01}, "parts": [1.0, 2.5]}}}
    cases["zoo"]["2"] |= {"share": 0.1234, "bytes": 3e6, "seconds": {"a sweep": 0.0625}}
    columns = {
        "set": "", "rank": "", "error": "error ±2", "share, %": "share %1", "MB": "bytes * 1e-6 0",
        "s": "seconds/a sweep 3", "each": "parts ;1", "none": "seconds/a start? 1",
        "twice": lambda row: 2 * int(row["rank"]),
    }  # fmt: skip
    *_, line = shown(named(cases, "set", "rank"), columns).splitlines()
    assert line == "| zoo | 2 | 0.25 ± 0.01 | 12.3 | 3 | 0.063 | 1.0; 2.5 |  | 4 |"
    with pytest.raises(KeyError, match="a start"):
        shown(named(cases, "set", "rank"), {"s": "seconds/a start 1"})

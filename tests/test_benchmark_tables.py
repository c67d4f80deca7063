"""The pages in `benchmarks/results` are what the records say."""

import importlib
import json
import os
import re
import sys
from pathlib import Path

import pytest

from benchmarks import pages
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
        if "@script(" in path.read_text() and has_record:
            assert f"`{path.relative_to(BENCHMARKS).as_posix()}`" in text, name
    for path in RESULTS.glob("*.md"):
        assert f"](results/{path.name})" in text, path.name
    headings = [line.strip("# ") for line in text.splitlines() if line.startswith("#")]
    # An apostrophe becomes nothing on GitHub, and a hyphen on the site.
    assert not [heading for heading in headings if "'" in heading]
    plain = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}
    assert {*re.findall(r"\]\(#([^)]+)\)", text)} <= plain


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


def test_runs_of_a_published_method_are_counted_apart_from_published_figures(papers):
    records = {"a_run": {"figures": {"here": 2.0, "ours": 1.0, "paper": {"here": 2.0}}}}
    here, ours, paper = (papers.figure(f"a_run: {way}") for way in ("here", "ours", "paper/here"))

    def row(published, better="lower"):
        return papers.Row("errors", (published,), (ours,), better)

    def state(*rows):
        return papers.state(papers.part("one", *rows), records)

    assert papers.line(row(here), records)[1] == "2.0 (run here)"
    assert papers.line(row(paper), records)[1] == papers.line(row(2.0), records)[1] == "2.0"
    assert state(row(here)) == papers.BETTER_RUN
    assert state(row(here), row(paper)) == state(row(2.0)) == papers.BETTER
    assert state(row(2.0), row(here, "higher")) == "in part"
    assert state(row(here, None)) == "repeated"


def test_each_part_that_is_not_better_says_why(papers):
    records = pages.read_records(RESULTS)
    better = {papers.BETTER, papers.BETTER_RUN}
    for part in papers.PARTS:
        assert bool(part.left) == (papers.state(part, records) not in better), part.title
        for row in part.rows:
            # A cell has figures of one kind, so that "run here" is said of all of them.
            kinds = {isinstance(f, papers.Of) and f.is_run_here for f in row.published}
            assert len(kinds) == 1, row.item


def test_links_lead_somewhere():
    for path in (README, *RESULTS.glob("*.md")):
        for target in re.findall(r"\]\((?!http|#)([^)\s]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"

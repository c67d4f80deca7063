"""The notebooks run, small, and stored ones are their scripts; the README says what it must."""

import json
import pkgutil
import re
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.text import Text

import bmfjax
from bmfjax.cli import RANK, build_parser
from bmfjax.families import FAMILIES
from bmfjax.report import overview
from tests.shared_fits import LONG_EXAMPLES, LONG_MODULES, davis

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SCRIPTS = sorted(p for p in (ROOT / "notebooks").glob("*.py") if p.stem != "build")
STORED = [path.with_suffix(".ipynb") for path in SCRIPTS]
LARGEST = 400_000  # bytes of a stored notebook


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # as for a reader, to whom a warning is no error
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    """All in this process: another takes seconds to import what it needs."""
    monkeypatch.setenv("BMFJAX_QUICK", "1")
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        plt.close("all")


def cells_of(script):
    """Kind and text of every cell of a script in the percent format, as jupytext reads it."""
    _, *parts = re.split(r"^# %%(.*)\n", script.partition("# ---\n\n")[2], flags=re.MULTILINE)
    cells = []
    for mark, text in zip(parts[::2], parts[1::2], strict=True):
        kind = "markdown" if "[markdown]" in mark else "code"
        if kind == "markdown":
            text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        cells.append((kind, text.strip("\n")))
    return cells


@pytest.mark.parametrize("path", STORED, ids=lambda p: p.stem)
def test_a_stored_notebook_is_its_script_with_outputs(path):
    """Run `notebooks/build.py` where this fails: the script has changed since."""
    text = path.read_text()
    cells = json.loads(text)["cells"]
    found = [(c["cell_type"], "".join(c["source"]).strip("\n")) for c in cells]
    assert found == cells_of(path.with_suffix(".py").read_text())
    code = [c for c in cells if c["cell_type"] == "code"]
    assert [c["execution_count"] for c in code] == list(range(1, len(code) + 1))
    outputs = [output for c in code for output in c["outputs"]]
    assert outputs
    assert not any(o["output_type"] == "error" or o.get("name") == "stderr" for o in outputs)
    assert len(text) < LARGEST
    assert not re.search(r"/(home|root|tmp|work|Users)/|site-packages|execution\": \{", text)


@pytest.mark.parametrize("name", LONG_EXAMPLES)
def test_a_long_example_is_there(name):
    found = pkgutil.resolve_name(name)
    found = getattr(found, "fget", found)  # of a property
    assert name == f"{found.__module__}.{found.__qualname__}" and ">>>" in found.__doc__


@pytest.mark.parametrize("name", LONG_MODULES)
def test_a_module_of_long_examples_is_there(name):
    assert pkgutil.resolve_name(name).__name__ == name


def test_the_readme_is_short():
    words = [w for w in README.split() if any(map(str.isalnum, w))]  # but for lines of tables
    assert len(words) < 700


def test_the_picture_of_the_readme_is_what_the_command_makes(monkeypatch):
    """It is drawn of the same fit, and the stored one has what is drawn now."""
    pictures = runpy.run_path(str(ROOT / "docs" / "pictures.py"))
    asked, calls = build_parser().parse_args(["fit"]), []
    monkeypatch.setattr(bmfjax, "fit", lambda *data, **rest: calls.append((data, rest)) or davis())
    with plt.rc_context({"backend": "agg"}):
        figure = pictures["first_page"]()
    plt.close(figure)
    assert calls == [((asked.data,), {"rank": RANK, "progress": False})]
    assert f"(docs/{pictures['FIRST']}.svg)" in README
    stored = (ROOT / "docs" / f"{pictures['FIRST']}.svg").read_text()
    words = [text.get_text() for text in figure.findobj(Text)]
    titles = set(words) & set(overview.PANELS.values())
    assert len(titles) == 3 and all(f">{title}</text>" in stored for title in titles)
    for name in bmfjax.load(asked.data).column_names:
        assert f">{overview.plain(name, 30)}</text>" in stored


def test_the_readme_has_the_command_that_runs_the_tests():
    """It stands alone below its mark, where `.ci/run` reads it."""
    after = README.partition("<!-- test command -->")[2]
    command = next(line for line in after.splitlines() if line.startswith("    "))
    assert "'.[test]'" in command
    assert command.strip().endswith("-m pytest -n 2 --dist worksteal")


def test_the_readme_names_every_model():
    table = README.partition("## Models")[2].partition("##")[0]
    cells = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")]
    named = {name for cell in cells[1:] for name in re.findall(r"`([\w-]+)`", cell)}
    assert named == set(FAMILIES)


def test_figures_of_samplers_in_the_readme_are_those_of_records():
    """The largest differences of means, in posterior standard deviations."""
    results = ROOT / "benchmarks" / "results"

    def figures(name):
        return json.loads((results / f"{name}.json").read_text())["figures"]

    sizes = figures("minibatch_sizes")["sizes"].values()
    off = {"minibatch": max(rows["AuxiliaryGibbs, batch 64"]["mean"] for rows in sizes)}
    relaxed = [
        row["mean"]
        for size in figures("bias_table")["tables"].values()
        for name, row in size["rows"].items()
        if "IASG" in name
    ]
    own = figures("numpyro_kernels")["rows"].values()
    largest = [max(row[name]["mean"] for row in own) for name in ("SGHMC", "SGLD", "IASG")]
    vb = figures("logistic_vs_nuts")
    narrow = [vb["shipped"]["log_odds"]["sd_ratio"]["0.5"]]
    narrow += [case["sd_ratio"]["0.5"] for case in vb["each"]]
    table = README.partition("## Samplers")[2].partition("##")[0]
    for said in (
        f"off by {off['minibatch']:.2f} | beyond 4,000 x 4,000",
        f"off by {min(relaxed):.2f} to {max(relaxed):.2f}",
        f"standard deviations {min(narrow):.2f} to {max(narrow):.2f} of the right ones",
        f"off by {largest[0]:.2f} and {largest[1]:.2f}",
        f"off by {largest[2]:.2f}, warned of",
    ):
        assert said in table
    faster = [
        size for size, rows in figures("minibatch_sizes")["sizes"].items()
        if rows["AuxiliaryGibbs, batch 64"]["times_gibbs"] < 1
    ]  # fmt: skip
    assert faster == ["8192"]


def test_the_page_of_the_verdict_says_how_often_it_is_wrong():
    """By the record of its trial, beside the rule."""
    found = json.loads((ROOT / "benchmarks" / "results" / "verdict_trial.json").read_text())
    of = {(row["matrices"], row["part"]): row for row in found["figures"]["table"]}

    def wrong(part, matrices="all"):
        return of[matrices, part]["holds"], of[matrices, part]["holds, wrongly"]

    page = " ".join((ROOT / "docs" / "report.md").read_text().split())
    for said in (
        f"fitted {found['figures']['cases']} cases",
        "Of {} predictions that were said to hold {} did not".format(*wrong("predictions")),
        "{1} of {0} on planted".format(*wrong("predictions", "planted")),
        "{1} of {0} on real".format(*wrong("predictions", "real")),
        "Of {} factors that were said to hold the other fit lacked {}.".format(*wrong("factor")),
    ):
        assert said in page
    short = "{3} of {2} predictions that were said to hold did not, and {1} of {0} factors"
    chains = " ".join((ROOT / "docs" / "chains.md").read_text().split())
    assert short.format(*wrong("factor"), *wrong("predictions")) in chains


def test_lines_of_a_factor_are_asked_for_those_that_belong_to_it():
    """`Fit.tiles(members=True)` lists lines that may belong to a factor, from 0.05 on."""
    texts = [path.read_text() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))]
    texts += [path.read_text() for path in ROOT.glob("notebooks/*.py")]
    asked = [q for text in texts for q in re.findall(r'query\(\s*"([^"]*side ==[^"]*)"', text)]
    assert len(asked) > 1
    assert [query for query in asked if "member" not in query.split(" and ")] == []

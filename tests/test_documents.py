"""The notebooks run, at smaller size; the README says what it must (its code: `test_site.py`)."""

import re
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from bmfjax.families import FAMILIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.filterwarnings("default")  # as for a reader, to whom a warning is no error
@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda p: p.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    """All in this process: another takes seconds to import what it needs."""
    monkeypatch.setenv("BMFJAX_QUICK", "1")
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        plt.close("all")


def test_the_readme_is_short():
    words = [w for w in README.split() if any(map(str.isalnum, w))]  # but for lines of tables
    assert len(words) < 700


def test_the_readme_has_the_command_that_runs_the_tests():
    """It stands alone below its mark, where `.ci/run` reads it."""
    after = README.partition("<!-- test command -->")[2]
    command = next(line for line in after.splitlines() if line.startswith("    "))
    assert "'.[test]'" in command
    assert command.strip().endswith("-m pytest -n 2 --dist loadfile --no-loadscope-reorder")


def test_the_readme_names_every_model():
    table = README.partition("## Models")[2].partition("##")[0]
    cells = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")]
    named = {name for cell in cells[1:] for name in re.findall(r"`([\w-]+)`", cell)}
    assert named == set(FAMILIES)

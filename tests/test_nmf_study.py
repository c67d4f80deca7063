"""The coverage study runs, at small size, and says what it should of two solutions."""

import json
import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

STUDY = Path(__file__).parents[1] / "benchmarks" / "agreement" / "nmf_coverage.py"


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # as on the command line, where a warning is no error
def test_the_study_tells_one_solution_from_two(tmp_path, monkeypatch, x64):
    """In this process, in the double precision that the study asks for of its own."""
    rows = ["One Mode", "All Modes", "Random Restarts", "Gibbs"]
    words = ["--repetitions", "2", "--draws", "200", "--kept", "100", "--only", "small, two modes"]
    words += ["--rows", *rows, "--output", str(tmp_path)]
    monkeypatch.setenv("JAX_ENABLE_X64", "1")  # which it would set, and leave set
    monkeypatch.setattr(sys, "argv", [str(STUDY), *words])
    monkeypatch.syspath_prepend(str(STUDY.parents[2]))  # which it would add, and leave
    plt.switch_backend("agg")
    runpy.run_path(str(STUDY), run_name="__main__")
    record = json.loads((tmp_path / "nmf_coverage.json").read_text())
    table = record["figures"]["sets"]["small, two modes"]
    largest = {row: table[row]["angle_max"][0] for row in rows}
    assert largest["One Mode"] < 1 and largest["Gibbs"] < 1
    assert 36 < largest["All Modes"] < 38 and largest["Random Restarts"] > 36
    assert len(table["Random Restarts (filtered)"]["kept"]) == 2
    assert (tmp_path / "nmf_coverage.png").exists()

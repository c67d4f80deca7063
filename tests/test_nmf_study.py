"""The coverage study runs, at small size, and says what it should of two solutions."""

import json
import os
import subprocess
import sys
from pathlib import Path

STUDY = Path(__file__).parents[1] / "benchmarks" / "nmf_coverage.py"


def test_the_study_tells_one_solution_from_two(tmp_path):
    rows = ["One Mode", "All Modes", "Random Restarts", "Gibbs"]
    command = [sys.executable, STUDY, "--quick", "--only", "small, two modes", "--rows", *rows]
    done = subprocess.run(
        [*command, "--output", str(tmp_path)],
        env={**os.environ, "MPLBACKEND": "agg"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "nmf_coverage.json").read_text())
    table = record["figures"]["sets"]["small, two modes"]
    largest = {row: table[row]["angle_max"][0] for row in rows}
    assert largest["One Mode"] < 1 and largest["Gibbs"] < 1
    assert 36 < largest["All Modes"] < 38 and largest["Random Restarts"] > 36
    assert len(table["Random Restarts (filtered)"]["kept"]) == 2
    assert (tmp_path / "nmf_coverage.png").exists()

"""The notebooks run, at small size, and what they assert holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
#: These run longer than they compile: with the compiler that users have. It pays.
LONG = ("house_votes", "gibbs_for_ratings")


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.py")), ids=lambda p: p.stem)
def test_notebook_runs(path, tmp_path):
    environment = {**os.environ, "BMFJAX_QUICK": "1"}
    if path.stem in LONG:
        environment["XLA_FLAGS"] = ""
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

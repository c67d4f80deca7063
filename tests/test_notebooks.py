"""The notebooks run, at small size, and what they assert holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.py")), ids=lambda p: p.stem)
def test_notebook_runs(path, tmp_path):
    # With the compiler that users have: notebooks run longer than they compile.
    environment = {**os.environ, "BMFJAX_QUICK": "1", "XLA_FLAGS": ""}
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

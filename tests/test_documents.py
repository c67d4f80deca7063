"""What the documents show runs: the README's Python as printed, the notebooks; at smaller size."""

import re
import runpy
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
# The votes are fitted at the size of the notebook in its quick form: programs are compiled once.
SMALLER = {
    'bmfjax.fit("house-votes", rank=4)': (
        'bmfjax.fit("house-votes", rank=4, num_chains=2, num_warmup=50, num_samples=30, '
        'sampler_options={"update": "collapsed"}, progress=False)'
    ),
    "num_warmup=1000, num_samples=1000, num_chains=4, chain_method=": (
        "num_warmup=10, num_samples=8, num_chains=2, progress_bar=False, chain_method="
    ),
}


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


def test_the_python_of_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 3
    code = "\n".join(blocks)
    for printed, smaller in SMALLER.items():
        assert printed in code
        code = code.replace(printed, smaller)
    names = {}
    exec(compile(code, "README.md", "exec"), names)

    assert names["fit"].usage.shape == (435, 4)
    assert names["idata"]["posterior"]["basis"].shape == (2, 8, 16, 4)
    # The kernel of the last block samples, also from NumPy arrays.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2)).astype(np.float32)
    y = (x @ [1.0, -2.0] + 0.5 * rng.normal(size=400)).astype(np.float32)
    mcmc = names["MCMC"](names["kernel"], num_warmup=20, num_samples=200, progress_bar=False)
    mcmc.run(jax.random.key(0), x, y)
    assert np.abs(mcmc.get_samples()["beta"].mean(0) - np.array([1.0, -2.0])).max() < 0.1

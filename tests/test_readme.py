"""The README's Python runs as it is printed, at smaller size."""

import re
from pathlib import Path

import jax
import numpy as np

README = (Path(__file__).parents[1] / "README.md").read_text()
SMALLER = {
    'bmfjax.fit("house-votes", rank=4)': (
        'bmfjax.fit("house-votes", rank=4, num_chains=2, num_warmup=20, num_samples=20, '
        "progress=False)"
    ),
    "num_warmup=1000, num_samples=1000, num_chains=4, chain_method=": (
        "num_warmup=10, num_samples=8, num_chains=2, progress_bar=False, chain_method="
    ),
}


def test_python_blocks_run():
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

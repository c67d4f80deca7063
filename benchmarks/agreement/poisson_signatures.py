"""Are mutational signatures found in counts, as many as there are, with exposures that hold?

The simulation of bayesNMF (Landy et al. 2025): 96 kinds of mutations, 64 tumours, spectra from a
sparse Dirichlet drawn until all cosines are at most 0.8, totals of tumours negative binomial, their
proportions Dirichlet(1), counts Poisson. The number of signatures is searched from 1 to 20 by
``rank="auto"``. A signature is found where one of the fit has a cosine above 0.9 with it. What a
record holds of other numbers and seeds stays in it. With ``--sweep`` it measures instead
how long a sweep of one chain takes, with a million counts that are not zero.

    python benchmarks/agreement/poisson_signatures.py
    python benchmarks/agreement/poisson_signatures.py --ranks 20 --seeds 0 1
    python benchmarks/agreement/poisson_signatures.py --sweep
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.device import parse

TUMOURS, KINDS, MOST = 64, 96, 20
#: Sizes of the totals: negative binomial with this mean and number.
MEAN, SIZE = 3000.0, 2.0
SPARSITY, COSINE, FOUND = 0.1, 0.8, 0.9


def simulated(number: int, seed: int):
    """Return counts (tumours, kinds), spectra (number, kinds) and exposures (tumours, number)."""
    rng = np.random.default_rng([seed, number])
    while True:
        spectra = rng.dirichlet(np.full(KINDS, SPARSITY), number)
        unit = spectra / np.linalg.norm(spectra, axis=1, keepdims=True)
        if (unit @ unit.T - np.eye(number)).max() <= COSINE:
            break
    totals = rng.negative_binomial(SIZE, SIZE / (SIZE + MEAN), TUMOURS) + 1
    exposures = totals[:, None] * rng.dirichlet(np.ones(number), TUMOURS)
    return rng.poisson(exposures @ spectra), spectra, exposures


def one(options) -> None:
    """Fit one matrix, and write what was found."""
    import bmfjax

    (number,), (seed,) = options.ranks, options.seeds
    counts, spectra, exposures = simulated(number, seed)
    time.monotonic, began = time.process_time, os.times()  # of a fit: its clock
    model = bmfjax.Poisson("auto", max_rank=MOST)
    fit = bmfjax.fit(counts, model, seed=seed, progress=False, max_time=options.max_cpu)
    spent = os.times()
    known, found = (s / np.linalg.norm(s, axis=1, keepdims=True) for s in (spectra, fit.basis.T))
    cosine = known @ found.T
    pairs = [(i, int(cosine[i].argmax())) for i in range(number) if cosine[i].max() > FOUND]
    low, high = np.quantile(fit.usage_draws, (0.025, 0.975), axis=(0, 1))
    hold = [(exposures[:, i] >= low[:, k]) & (exposures[:, i] <= high[:, k]) for i, k in pairs]
    probabilities = fit.rank_probabilities
    result = {
        "rank": max(probabilities, key=probabilities.get),
        "probability": round(max(probabilities.values()), 3),
        "precision": round(float((cosine.max(0) > FOUND).mean()), 3),
        "sensitivity": round(len(pairs) / number, 3),
        "coverage": round(float(np.mean(hold)), 3) if hold else None,
        "status": fit.verdict.status,
        "draws": fit.figures.num_draws,
        "cpu_seconds": round(spent.user - began.user + spent.system - began.system, 1),
    }
    options.found.write_text(json.dumps(result))


def of_a_sweep(times: int = 6) -> dict:
    """Measure a sweep of one chain with 20 factors, after a first one."""
    import jax

    from bmfjax.kernels.poisson.density import PoissonDensity, poisson_data
    from bmfjax.kernels.poisson.gibbs import poisson_gibbs

    rng, rows, columns = np.random.default_rng(0), 20_000, 1_000
    rate = rng.gamma(0.5, 5.6, (rows, MOST)) @ rng.dirichlet(np.full(columns, 0.3), MOST)
    counts = sp.csr_array(rng.poisson(rate).astype(float))
    data = poisson_data(counts, np.ones(rows))
    algorithm = poisson_gibbs(PoissonDensity(MOST), columns)
    state = jax.jit(algorithm.init)(jax.random.key(0), None, data)
    step, spent = jax.jit(algorithm.step), []
    for key in jax.random.split(jax.random.key(1), times + 1):
        began = time.process_time()
        state, _ = jax.block_until_ready(step(key, state, data))
        spent.append(time.process_time() - began)
    return {"nonzero": int(counts.nnz), "cpu_seconds": round(float(np.median(spent[1:])), 3)}


def in_a_process(options, number: int, seed: int) -> dict:
    """Fit in a process of its own: what is compiled is counted each time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        command = [sys.executable, __file__, "--found", path, "--max-cpu", str(options.max_cpu)]
        command += ["--ranks", str(number), "--seeds", str(seed)]
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if ended.returncode or not path.exists():
            return {"stopped": " / ".join(ended.stderr.strip().splitlines()[-2:])[-300:]}
        return json.loads(path.read_text())


def main() -> None:
    """Fit matrices of all numbers from all seeds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 5, 10, 15, 20])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--max-cpu", type=float, default=120.0, help="processor seconds of a fit")
    parser.add_argument("--sweep", action="store_true", help="measure a sweep of a million counts")
    parser.add_argument("--found", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    if options.found:
        one(options)
        return
    from benchmarks.record import commit_of, write_record
    from benchmarks.tables import RESULTS

    record = (options.output or RESULTS) / "poisson_signatures.json"
    figures = json.loads(record.read_text())["figures"] if record.exists() else {"runs": {}}
    if options.sweep:
        figures["sweep"] = of_a_sweep() | {"commit": commit_of()}
        write_record("poisson_signatures", figures, options.output)
        return
    runs = figures["runs"]
    for seed in options.seeds:
        for number in options.ranks:
            found = in_a_process(options, number, seed)
            found |= {"max_cpu": options.max_cpu, "commit": commit_of()}
            runs.setdefault(str(number), {})[str(seed)] = found
            print(number, seed, found, flush=True)
            # What has been found stays if the rest is cut off.
            write_record("poisson_signatures", figures, options.output)


if __name__ == "__main__":
    main()

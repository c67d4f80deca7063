"""Are mutational signatures found in counts?

The simulation of bayesNMF (Landy et al. 2025): 96 kinds of mutations, 64 tumours, spectra from a
sparse Dirichlet drawn until all cosines are at most 0.8, totals of tumours negative binomial, their
proportions Dirichlet(1), counts Poisson. The number of signatures is searched from 1 to 20 by
``rank="auto"``. A signature is found where one of the fit has a cosine above 0.9 with it. What a
record holds of other numbers and seeds stays in it. With ``--sweep`` it measures instead
how long a sweep of one chain takes, with a million counts that are not zero.

    python -m benchmarks.agreement.poisson_signatures
    python -m benchmarks.agreement.poisson_signatures --ranks 20 --seeds 0 1
    python -m benchmarks.agreement.poisson_signatures --sweep
"""

import os
import statistics
import time

import numpy as np
import scipy.sparse as sp

from benchmarks.device import HIDDEN, apart, held, script
from benchmarks.form import number, page_of_one, shown, table

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


def one(options) -> dict:
    """Fit one matrix."""
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
    return {
        "rank": max(probabilities, key=probabilities.get),
        "probability": round(max(probabilities.values()), 3),
        "precision": round(float((cosine.max(0) > FOUND).mean()), 3),
        "sensitivity": round(len(pairs) / number, 3),
        "coverage": round(float(np.mean(hold)), 3) if hold else None,
        "status": fit.verdict.status,
        "draws": fit.figures.num_draws,
        "cpu_seconds": round(spent.user - began.user + spent.system - began.system, 1),
    }


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


ANSWER = """
Yes, and about as many as there are. Of 1, 5, 10, 15 and 20 signatures (three matrices each) all
have one of the fit above a cosine of 0.9. The number is right in 12 of 15 fits; in one with 10
signatures and in two with 15 it is one too large, with a probability of 1.00 all the same. With 20
it is right each time. Published are 18 to 20 of 20. A fit takes 47 to 122 processor seconds, of a
limit of 120. Of 95 % intervals of exposures 94 to 95 % hold, by the mean of three matrices. A sweep
with a million counts that are not zero takes 0.2 processor seconds a chain.
"""


@page_of_one(__doc__)
def tables(found: dict):
    yield (
        "64 tumours and 96 kinds of mutations; the number of signatures is found, up to 20. Found: "
        "a cosine above 0.9. Intervals are those of 95 % of the exposures to signatures that are "
        "found. Published medians over many sets (Landy et al. 2025, read off figures): bias 0, "
        "precision 1 and sensitivity 1 up to 15 signatures and -1, 1 and 0.90 at 20 in 100 to 128 "
        "minutes (bayesNMF, smallest BIC); 0, 0.85 and 0.85 at 20 in 0.6 to 3 minutes "
        "(SignatureAnalyzer)."
    )
    runs = sorted(found["runs"].items(), key=lambda item: int(item[0]))

    def over(of, take, value, digits):
        return number(take([value(case) for case in of.values()]), digits)

    median = statistics.median
    yield table(
        ["signatures", "matrices", "median bias of their number", "median precision",
         "median sensitivity", "95 % intervals that hold, mean", "median processor seconds"],
        [
            [true, len(of), over(of, median, lambda case, n=int(true): case["rank"] - n, 0),
             over(of, median, lambda case: case["precision"], 2),
             over(of, median, lambda case: case["sensitivity"], 2),
             over(of, statistics.mean, lambda case: case["coverage"], 3),
             over(of, median, lambda case: case["cpu_seconds"], 0)]
            for true, of in runs
        ],
    )  # fmt: skip
    yield shown(
        [{"seed": int(seed), "signatures": true} | case for true, of in runs
         for seed, case in sorted(of.items())],
        {"signatures": "", "seed": lambda case: str(case["seed"]),
         "number found": lambda case: case.get("rank", "none"),
         "its probability": "probability? 3", "precision": "precision? 2",
         "sensitivity": "sensitivity? 2", "95 % intervals that hold": "coverage? 3",
         "verdict": "status?", "draws a chain": "draws?", "processor seconds": "cpu_seconds? 0",
         "commit": ""},
    )  # fmt: skip
    if sweep := found.get("sweep"):
        yield (
            f"A sweep of one chain with 20 factors takes {number(sweep['cpu_seconds'], 2)} "
            f"processor seconds with {sweep['nonzero']:,} counts that are not zero "
            f"({sweep['commit']})."
        )


@script(__doc__, child=one, ranks=[1, 5, 10, 15, 20], seeds=[0, 1],
        max_cpu=(120.0, "processor seconds of a fit"),
        sweep=(False, "measure a sweep of a million counts"), one=(False, HIDDEN))  # fmt: skip
def main(options):
    from benchmarks.record import commit_of

    figures = held(options) or {"runs": {}}
    if options.sweep:
        figures["sweep"] = of_a_sweep() | {"commit": commit_of()}
        yield figures
        return
    runs = figures["runs"]
    for seed in options.seeds:
        for rank in options.ranks:
            # In a process of its own, so that what is compiled is counted each time.
            words = ("--ranks", rank, "--seeds", seed, "--max-cpu", options.max_cpu)
            found = apart("--one", *words, failed="stopped")
            found |= {"max_cpu": options.max_cpu, "commit": commit_of()}
            runs.setdefault(str(rank), {})[str(seed)] = found
            print(rank, seed, found, flush=True)
            yield figures

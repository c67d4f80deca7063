"""What does a sweep of ratings cost beside SMURFF?

Both sample Bayesian matrix factorisation with Normal-Wishart priors and a fixed noise precision,
without effects, on the same entries, each in a process of its own on as many cores. SMURFF (a C++
program, https://github.com/ExaScience/smurff) is not needed by the library: pip install smurff.

Our sweep is compiled as `bmfjax.fit` compiles chains (`bmfjax.kernels.numerics.compiling`): XLA
does not divide loops among threads, which costs more where blocks are small.
"""

import os
import time

import numpy as np

from benchmarks.device import HIDDEN, apart, growing, keep_to, script
from benchmarks.form import number, page, table


def problem(options):
    """Rows, columns and values of the observed entries."""
    rng = np.random.default_rng(0)
    cells = rng.choice(
        options.rows * options.columns, options.rows * options.columns // 100, replace=False
    )
    rows, columns = np.divmod(cells, options.columns)
    return rows, columns, rng.normal(size=len(cells))


def ours(options):
    """Sweeps of `bmfjax.kernels.ratings.gibbs`."""
    import jax

    from bmfjax.kernels.numerics.compiling import chain_options
    from bmfjax.kernels.ratings.entries import entry_blocks
    from bmfjax.kernels.ratings.gibbs import PMFDensity, pmf_gibbs

    data = entry_blocks(*problem(options), (options.rows, options.columns))
    algorithm = pmf_gibbs(PMFDensity(options.rank, precision=2.0, effects=False))
    state = jax.jit(algorithm.init)(jax.random.key(0), None, data)
    step = jax.jit(algorithm.step, compiler_options=chain_options())

    def sweep(k):
        nonlocal state
        state, _ = step(jax.random.key(k), state, data)
        jax.block_until_ready(state)

    return sweep


def smurff(options):
    """Sweeps of SMURFF."""
    import scipy.sparse as sp
    from smurff import FixedNoise, TrainSession

    rows, columns, values = problem(options)
    train = sp.csr_matrix((values, (rows, columns)), shape=(options.rows, options.columns))
    session = TrainSession(
        priors=["normal", "normal"], num_latent=options.rank, burnin=0, nsamples=10**6,
        num_threads=options.threads, verbose=0, seed=1,
    )  # fmt: skip
    session.addTrainAndTest(train, None, FixedNoise(2.0))
    session.init()
    return lambda k: session.step()


def measure(options) -> dict:
    """Milliseconds a sweep after the first two, of wall clock and of processor time."""
    keep_to(options.threads)
    sweep = {"bmfjax": ours, "smurff": smurff}[options.one](options)
    found = []
    for k in range(options.sweeps + 2):
        began = time.perf_counter(), time.process_time()
        sweep(k)
        found.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    wall, cpu = 1000 * np.array(found[2:]).T
    names = ("wall", "processor")
    return {
        n: {"least": round(float(x.min()), 1), "median": round(float(np.median(x)), 1)}
        for n, x in zip(names, (wall, cpu), strict=True)
    }


def in_a_process(options, program, rank) -> dict:
    """The same in a process of its own: what was loaded before has no say."""
    words = [f"--{n}={getattr(options, n)}" for n in ("rows", "columns", "sweeps", "threads")]
    return apart("--one", program, "--rank", rank, *words, failed="failed")


ANSWER = """
On one thread 33.7 ms, where SMURFF 1.1 takes 81.3 ms; on two threads 46.2 ms, where SMURFF takes
44.8 ms. The matrix is 10,000 x 5,000 with 1 % observed, at rank 10; figures are the least of 20
sweeps.

| rank | threads | here, ms | SMURFF, ms |
| --- | --- | --- | --- |
| 10 | 1 | 33.7 | 81.3 |
| 32 | 1 | 127.5 | 341.4 |
| 10 | 2 | 46.2 | 44.8 |
| 32 | 2 | 206.4 | 176.3 |
| 10 | 2, undivided | 41.6 | 44.8 |
| 32 | 2, undivided | 163.0 | 178.2 |

One chain gains nothing from a second core where XLA divides loops over small blocks among threads.
`bmfjax.fit` switches that off, and runs chains side by side in threads. These records are of
programs that are compiled by XLA's defaults, and `undivided` is without the division alone.
"""

#: How older records were compiled, by whether they say `undivided`.
_COMPILED = {False: "by XLA's defaults", True: "undivided"}


@page(__doc__, "pmf_speed*")
def tables(records: dict):
    yield (
        "Milliseconds of a sweep on a random matrix, without effects: the least of the sweeps, and "
        "in brackets the median. By its defaults XLA divides loops among threads. `bmfjax.fit` "
        "switches that off, and LLVM's later passes with it; `undivided` is without the former."
    )
    rows = []
    for record in records.values():
        found = record["figures"]
        shape = f"{found['rows']:,} x {found['columns']:,}, {found['observed_percent']} % observed"
        for case, run in found["milliseconds_a_sweep"].items():
            rows.append([
                shape, case, found.get("compiled", _COMPILED[found.get("undivided", False)]),
                *(_sweep(run.get(who), of)
                  for who in ("bmfjax", "smurff") for of in ("wall", "processor")),
                found.get("smurff_version", ""),
            ])  # fmt: skip
    yield table(
        ["matrix", "case", "compiled", "bmfjax", "processor", "SMURFF", "processor",
         "SMURFF's version"], rows,
    )  # fmt: skip


def _sweep(run: dict | None, of: str) -> str:
    if run is None or of not in run:  # the program is not there
        return ""
    return f"{number(run[of]['least'], 1)} ({number(run[of]['median'], 1)})"


@script(__doc__, child=measure, rows=10_000, columns=5_000, ranks=[10, 32],
        threads=(1, "of either program, and cores"), sweeps=20,
        one=dict(choices=["bmfjax", "smurff"], help=HIDDEN), rank=(int, HIDDEN))  # fmt: skip
def main(options):
    if not 1 <= options.threads <= (os.cpu_count() or 1):
        options.error(f"--threads is {options.threads}; give 1 to {os.cpu_count()}, the cores here")
    figures = {
        "rows": options.rows, "columns": options.columns, "observed_percent": 1,
        "sweeps": options.sweeps, "threads": options.threads, "compiled": "as by fit",
    }  # fmt: skip
    from benchmarks.record import versions_of

    figures["smurff_version"] = versions_of(["smurff"])["smurff"]
    options.record += "" if options.threads == 1 else f"_{options.threads}_threads"
    cases = {f"rank {rank}, {options.threads} core(s)": rank for rank in options.ranks}

    def both(case):
        return {n: in_a_process(options, n, cases[case]) for n in ("bmfjax", "smurff")}

    yield from growing(figures, "milliseconds_a_sweep", cases, both)

"""What does a sweep of binary features cost?

Boolean products of known factors with a tenth of the entries flipped; signed weights, the number of
features found, one pair of chains as fits run them. Every size runs in a process of its own, on one
core.
"""

import resource
import time

import numpy as np

from benchmarks.device import HIDDEN, apart, growing, keep_to, script, some
from benchmarks.form import named, page_of_one, shown

#: Rows, columns, rank, and the sweeps of a round.
SIZES = {"435x16x4": 100, "1000x200x16": 10, "10000x1000x16": 1}
ROUNDS, CHAINS = 5, 2


def one(options) -> dict:
    """Sample one matrix in this process."""
    keep_to(1)
    name = options.one
    import jax

    from bmfjax.data import generate_product
    from bmfjax.families.features import PRESENCE, signs_of
    from bmfjax.infer import ChainRun
    from bmfjax.kernels.features.density import FeatureDensity
    from bmfjax.kernels.features.gibbs import features_gibbs

    rows, columns, rank = map(int, name.split("x"))
    made = generate_product(rows, columns, rank, flip=0.1, seed=0)
    algorithm = features_gibbs(FeatureDensity(rank, presence=PRESENCE), (rows, columns))
    run = ChainRun(algorithm, jax.random.key(0), signs_of(made.data), num_chains=CHAINS,
                   num_samples=10**6, trace={"log_joint": 1})  # fmt: skip
    began = time.process_time()
    run.advance(1)
    compiled, spent = time.process_time() - began, []
    for _ in range(ROUNDS):
        began = time.process_time()
        run.advance(SIZES[name])
        spent.append(1e3 * (time.process_time() - began) / SIZES[name] / CHAINS)
    return {
        "ms_a_sweep": round(float(np.median(spent)), 2),
        "fastest_ms_a_sweep": round(min(spent), 2),
        "compile_seconds": round(compiled, 1),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


ANSWER = """
A sweep of one chain on one core takes 1.5 ms on 435 x 16 with 4 features, 45 ms on 1,000 x 200 with
16, where 60 are allowed, and 3.7 s (3.0 the fastest) on 10,000 x 1,000 with 16, where 3 are on two
cores. The processor is about half as fast as that of the record before. Compiling takes 14 to 23
processor seconds.
"""


@page_of_one(__doc__)
def tables(found: dict):
    yield "Processor time of one chain on one core; the first sweep compiles."
    yield shown(
        named(found["sizes"], "size"),
        {"rows x columns x features": lambda case: case["size"].replace("x", " x "),
         "ms a sweep": "ms_a_sweep 1", "fastest": "fastest_ms_a_sweep 1",
         "s of the first": "compile_seconds 1", "peak memory, MB": "peak_bytes * 1e-6 0"},
    )  # fmt: skip


@script(__doc__, child=one, only=some(SIZES), one=(str, HIDDEN))
def main(options):
    yield from growing({}, "sizes", options.only, lambda name: apart("--one", name))

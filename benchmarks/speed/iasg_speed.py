"""What does a step of IASG cost?

One step updates both factor matrices. Its bare products are, for each of them, the product of the
minibatch with the other factor, the Gram matrix of the minibatch, and the product with that Gram
matrix. All are timed in turn within one run, at 512 x 512 and rank 30; medians over the rounds.
"""

import functools
import statistics
import time

import jax
import jax.numpy as jnp
from jax import lax, random

import bmfjax
from benchmarks.device import script
from benchmarks.form import page_of_each, shown
from bmfjax.data import thesis_matrix

RANK = 30


def step_function(data, batch: int, steps: int, mode: str):
    """One compiled call of `steps` IASG steps (one window), and its argument."""
    precision = 1.0 if mode == "thesis" else None
    model = functools.partial(bmfjax.models.relaxed_bmf, rank=RANK, precision=precision)
    if mode == "thesis":
        calibrated = {"preconditioner": "calibrated", "num_calibration": 100}
        kernel = bmfjax.IASG(
            model, batch_size=batch, window=steps, scale_likelihood=False, **calibrated
        )
    else:
        kernel = bmfjax.IASG(model, batch_size=batch, window=steps, step_size=0.3)
    bound = kernel.bind(data)
    state = jax.jit(bound.algorithm.init)(random.key(0), None, bound.data)
    run = jax.jit(lambda key, state: bound.algorithm.step(key, state, bound.data)[0])
    return lambda i: run(random.key(i), state)


def products_function(data, batch: int, steps: int):
    """One compiled call of the matrix products of `steps` steps."""
    values, transposed = jnp.asarray(data), jnp.asarray(data.T.copy())
    usage = random.uniform(random.key(1), (data.shape[0], RANK))
    basis = random.uniform(random.key(2), (data.shape[1], RANK))

    def half(target, other, cases):
        some = other[:batch]
        pull = cases[:batch].T @ some - target @ (some.T @ some)
        return target + 1e-12 * pull  # the next product must wait for this one

    @jax.jit
    def run(usage, basis):
        def body(_, carry):
            usage, basis = carry
            basis = half(basis, usage, values)
            return half(usage, basis, transposed), basis

        return lax.fori_loop(0, steps, body, (usage, basis))

    return lambda i: run(usage, basis)


def measure(functions: dict, rounds: int, steps: int) -> dict:
    """Median microseconds a step of each function, interleaved round by round."""
    for function in functions.values():
        jax.block_until_ready(function(0))
    times = {name: [] for name in functions}
    for i in range(rounds):
        for name, function in functions.items():
            began = time.perf_counter()
            jax.block_until_ready(function(i))
            times[name].append((time.perf_counter() - began) / steps * 1e6)
    return {name: statistics.median(t) for name, t in times.items()}


NOTES = [
    ("639dbaf", "before blocks followed the device"),
    ("8ba5244", "on one core, with another measurement on the other"),
]  # fmt: skip

ANSWER = """
1.03 to 1.44 times its bare matrix products as published, on one core (1.5 was asked). The default
step, with curvature, misses it by far with 2.66 to 7.22 times: it solves for the free coordinates
of every row.

| batch | products, microseconds | as published | ratio | with curvature | ratio |
| --- | --- | --- | --- | --- | --- |
| 75 | 116 | 167 | 1.44 | 840 | 7.22 |
| 250 | 266 | 309 | 1.16 | 901 | 3.39 |
| 512 | 494 | 511 | 1.03 | 1,311 | 2.66 |

On an H200 a step as published takes 24.5 to 31.9 microseconds, and the default step 58 to 65.
"""


@page_of_each(
    __doc__,
    notes=NOTES,
    intro=(
        "Microseconds of one step of both factor matrices. `products` are its bare matrix "
        "products; `with curvature` is the default step. The aim was a ratio of at most 1.5."
    ),
)
def tables(found: dict):
    yield shown(found["rows"], {
        "batch": "", "products": "products_us 0", "as published": "thesis_us 0",
        "ratio": "thesis_over_products 2", "with curvature": "newton_us 0",
        "ratio ": "newton_over_products 2"})  # fmt: skip


@script(__doc__, rounds=15, steps=(200, "steps in one timed call"))
def main(options):
    data = thesis_matrix("clean").data.dense()
    rows = []
    for batch in (75, 250, 512):
        functions = {
            "products": products_function(data, batch, options.steps),
            "thesis": step_function(data, batch, options.steps, "thesis"),
            "newton": step_function(data, batch, options.steps, "newton"),
        }
        micro = measure(functions, options.rounds, options.steps)
        rows.append({"batch": batch} | {f"{name}_us": round(us, 1) for name, us in micro.items()})
        for name in ("thesis", "newton"):
            rows[-1][f"{name}_over_products"] = round(micro[name] / micro["products"], 2)
        print(rows[-1], flush=True)
    return {"rounds": options.rounds, "steps_per_round": options.steps, "rows": rows}

"""Is one kernel of our own quicker than arrays?

On a GPU a kernel draws the bits of all lines (`bmfjax.kernels.boolean.fused`). Here it is timed
against the array code on random words, by the shapes of its tiles, and their bits are compared.
Then come whole sweeps with and without it. It needs an NVIDIA GPU.
"""

import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from benchmarks.device import COMMIT, script, some
from benchmarks.form import named, page_of_one, shown
from benchmarks.speed import accelerator_phases
from benchmarks.speed.accelerator_phases import BOOLEAN, LARGEST
from bmfjax.kernels.boolean import bits, fused
from bmfjax.kernels.boolean.bits import Lines, Weights
from bmfjax.kernels.boolean.fused import Tiles
from bmfjax.kernels.numerics.budget import device_budget

#: Lines, their words and the rank; and tiles that are tried: lines, warps, words in one round.
TILES = {
    (1_000, 32, 10): [(2, 1, 1), (1, 1, 1), (4, 1, 1)],
    (20_000, 40_625, 10): [
        (8, 4, 2), (4, 4, 2), (8, 2, 4), (8, 4, 1), (8, 4, 4), (16, 4, 1), (8, 8, 1), (4, 8, 2),
        (16, 4, 2),
    ],
    (1_300_000, 625, 10): [
        (8, 1, 4), (8, 1, 2), (8, 1, 1), (4, 1, 4), (16, 1, 1), (16, 1, 2), (8, 2, 2), (8, 4, 1),
    ],
    (1_000, 3_125, 20): [
        (2, 8, 4), (2, 8, 1), (1, 8, 2), (4, 8, 2), (4, 8, 1), (2, 4, 2), (1, 4, 2),
    ],
    (100_000, 32, 20): [(4, 1, 1), (8, 1, 1), (2, 1, 1)],
    (1_448, 46, 27): [(1, 1, 1), (2, 1, 1), (4, 1, 1)],
}  # fmt: skip
WEIGHTS, ROUNDS = Weights(jnp.float32(0.3), jnp.float32(-0.4)), 7


def lines_of(size: int, words: int, rank: int):
    """Return random ones, partner, bits, log odds and thresholds on the device."""
    keys, some = random.split(random.key(0), 5), max(1, 2**24 // words)

    def make(keys):
        drawn = lax.map(lambda key: random.bits(key, (some, words), jnp.uint32), keys)
        return drawn.reshape(-1, words)[:size]

    ones = jax.jit(make)(random.split(keys[0], -(-size // some)))
    partner = random.bits(keys[1], (3, rank, words), jnp.uint32)
    drawn = random.uniform(keys[2], (rank, size)) < 0.3
    odds, noise = random.normal(keys[3], (rank, size)), random.exponential(keys[4], (rank, size))
    partner = partner[0] & partner[1] & partner[2]
    return jax.block_until_ready((ones, partner, drawn, odds, -noise))


def timed(f, given) -> tuple:
    """Return what a compiled function answers, and its times."""
    began = time.perf_counter()
    run = jax.jit(f).lower(*given).compile()
    compiling, times = time.perf_counter() - began, []
    answer = jax.block_until_ready(run(*given))
    for _ in range(ROUNDS):
        began = time.perf_counter()
        jax.block_until_ready(run(*given))
        times.append(1e3 * (time.perf_counter() - began))
    return answer, {
        "ms": round(min(times), 3), "median": round(float(np.median(times)), 3),
        "compile_s": round(compiling, 2),
    }  # fmt: skip


def kernel():
    """Time the draws of all lines, and compare them; yields names and cases, as `sweeps` does."""

    def array(ones, partner, drawn, odds, noise):
        draw = lambda bit, odds, t: bit ^ (t < jnp.where(bit, -odds, odds))  # noqa: E731
        return bits._in_turn(Lines(ones, None, drawn, odds), partner, WEIGHTS, noise, draw)

    def one(ones, partner, *given, tiles):
        drawn, counts = fused.draw("metropolis", ones, None, partner, *given, WEIGHTS, tiles)
        return drawn, counts.sum(1)

    for (size, words, rank), tried in TILES.items():
        given, name = lines_of(size, words, rank), f"{size} x {words} words, rank {rank}"
        (drawn, counts), times = timed(array, given)
        yield f"{name}: array", lambda times=times: times
        for tiles in [None, *(Tiles(*t) for t in tried)]:

            def case(tiles=tiles, given=given, drawn=drawn, counts=counts):
                (same, seen), times = timed(functools.partial(one, tiles=tiles), given)
                apart = [int(a) - int(b) for a, b in zip(seen, counts, strict=True)]
                differ = int((same != drawn).sum())
                return times | {"differ": differ, "of": int(drawn.size), "counts": apart}

            yield f"{name}: {tiles}", case


def sweeps():
    """Time whole sweeps, with the kernel and once without."""
    for name, (*size, _) in BOOLEAN.items():
        yield name, functools.partial(accelerator_phases.boolean_case, *size)
    array, size = dataclasses.replace(device_budget(), fused=False), BOOLEAN[LARGEST][:3]
    case = functools.partial(accelerator_phases.boolean_case, *size, array)
    yield f"{LARGEST}, array code", case
    yield "votes, rank 8, four temperatures", accelerator_phases.votes_case


PARTS = {"kernel": kernel, "sweeps": sweeps}

NOTES = [
    ("6ffd5b3d",
     "by the first version of the script, with four of its parts beside each other on the card, "
     "on four cores; it did the same but for the order"),
]  # fmt: skip

ANSWER = """
Yes: on an NVIDIA H200 a sweep of 1,300,000 x 20,000 at rank 10 takes 32.4 ms, and 63.7 with arrays.
25 ms were hoped for.

| | kernel | arrays |
| --- | --- | --- |
| all rows, 1,300,000 of 625 words, rank 10 | 10.7 ms | 132 ms |
| all columns, 20,000 of 40,625 words, rank 10 | 16.3 ms | 140 ms |
| sweep of 1,300,000 x 20,000, rank 10, tiles of that commit | 32.4 ms | 63.7 ms |
| sweep of 300,000 x 5,000, rank 10 | 1.91 ms | |

The first two are of the quickest tiles that were tried, and of arrays in one block. The bits are
the same in all 13 million cases. To choose no variants of a program by their time
(`xla_gpu_autotune_level`) brings the compilation of the sweeps with rebirths from 69.8 to 36.1 s,
and that of the annealed chains from 21.7 to 10.1.
"""


@page_of_one(__doc__, notes=NOTES)
def tables(found: dict):
    yield (
        "Milliseconds of drawing the bits of all lines: the least of several. `Tiles` are the "
        "lines and warps of a program, and the words of a line that a thread reads in a round."
    )
    yield shown(named(found["kernel"], "case"), {
        "case": "", "ms": "ms?", "median": "median?", "compiling, s": "compile_s?",
        "bits that differ": "differ?", "of": "of?"})  # fmt: skip
    yield "Milliseconds of a sweep."
    both = found.get("sweeps", {}) | found.get("features", {})
    yield shown([one for one in named(both, "case") if "sweep_ms" in one], {
        "case": "", "ms": "sweep_ms", "quickest": "sweep_ms_quickest",
        "compiling, s": "compile_seconds"})  # fmt: skip
    yield "Compilation of the programs of starts, by options."
    yield shown([one for one in named(found.get("compiling", {}), "case") if "compile_s" in one], {
        "options: program": "case", "seconds": "compile_s", "of the CPU": "cpu_s",
        "a step, ms": "step_ms"})  # fmt: skip


@script(__doc__, parts=some(PARTS), commit=COMMIT)
def main(options):
    yield from accelerator_phases.figures_of(PARTS, options.parts)

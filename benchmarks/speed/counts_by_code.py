"""Are few long lines drawn sooner from counts by code?

The columns of a matrix with many rows are drawn from the numbers of their ones among the rows of
one code, the set of their factors (`bmfjax.kernels.boolean.codes`). Here that is timed beside the
kernel that reads the data once for every factor (`bmfjax.kernels.boolean.fused`), on random words,
and the bits are compared. Then come whole sweeps in both ways. It needs an NVIDIA GPU.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax import lax, random

from benchmarks.device import COMMIT, script, some
from benchmarks.form import named, page_of_one, shown
from benchmarks.speed import accelerator_phases
from benchmarks.speed.accelerator_phases import BOOLEAN
from benchmarks.speed.one_kernel import WEIGHTS, timed
from bmfjax.kernels.boolean import bits, codes
from bmfjax.kernels.boolean.words import PackedLines, pack_last_axis, unpack_last_axis
from bmfjax.kernels.numerics.budget import device_budget

#: Rows, columns, rank, and the share of ones in the factors.
CASES = {
    "1,300,000 x 20,000, rank 10": (1_300_000, 20_000, 10, 0.5),
    "1,300,000 x 20,000, rank 10, factors of few ones": (1_300_000, 20_000, 10, 0.1),
    "300,000 x 5,000, rank 10": (300_000, 5_000, 10, 0.5),
    "1,300,000 x 20,000, rank 4": (1_300_000, 20_000, 4, 0.5),
}
#: Sweeps in both ways, of those of the accelerator's sizes where the ways differ.
BOTH = ("1,300,000 x 20,000, rank 10", "300,000 x 5,000, rank 10")


def problem(rows: int, columns: int, rank: int, share: float):
    """Return random words in both orientations, the rows' factors, and what columns are drawn by.

    Both have whole words.
    """
    keys, words = random.split(random.key(0), 6), -(-columns // 32)
    some_rows = lambda key: random.bits(key, (32, words), jnp.uint32)  # noqa: E731

    def turned(across):
        """Turn 32 rows round: (32, words) to (32 words,)."""
        return pack_last_axis(unpack_last_axis(across, 32 * words).T)[:, 0]

    number = -(-rows // 32)
    make = jax.jit(lambda key: lax.map(some_rows, random.split(key, number), batch_size=256))
    across = make(keys[0])
    lines = jax.jit(lambda a: lax.map(turned, a, batch_size=64))(across).T[:columns]
    across = across.reshape(-1, words)[:rows]
    usage, drawn = (
        random.uniform(k, (rank, n)) < share
        for k, n in zip(keys[1:3], (rows, columns), strict=True)
    )
    odds, noise = (random.normal(keys[3], drawn.shape), random.exponential(keys[4], drawn.shape))
    partner = jax.jit(pack_last_axis)(usage)
    return jax.block_until_ready((across, lines, partner, drawn, odds, -noise))


def draws():
    """Time the draws of all columns in both ways, and compare them; and the parts of the counts.

    Yields names and cases, as `sweeps` does.
    """

    def drawn(way, data, *given):
        bits_drawn, counts = way(PackedLines(data, None), *given, WEIGHTS, bits.metropolis)
        return bits_drawn, counts.sum(1)

    for name, (*size, share) in CASES.items():
        rank = size[-1]

        def case(size=size, share=share, rank=rank):
            across, lines, *given = problem(*size, share)
            with accelerator_phases.timing():
                one, kernel = timed(functools.partial(drawn, bits._in_one_kernel), (lines, *given))
                other, by_code = timed(functools.partial(drawn, bits._by_codes), (across, *given))
                factors = jnp.arange(rank, dtype=jnp.int32)[:, None]
                usage = unpack_last_axis(given[0], size[0]).astype(jnp.int32)
                code = jnp.sum(usage << factors, axis=0, dtype=jnp.int32)
                pieces, sorting = timed(functools.partial(codes.pieces_of, rank=rank), (code,))
                _, counting = timed(codes.count, (across, pieces))
            memory = device_budget().bytes
            return {
                "kernel_ms": kernel["ms"], "codes_ms": by_code["ms"],
                "sorting_ms": sorting["ms"], "counting_ms": counting["ms"],
                "differ": int((one[0] != other[0]).sum()), "of": int(one[0].size),
                "counts": [int(a) - int(b) for a, b in zip(other[1], one[1], strict=True)],
                "pieces": len(pieces.code),
                "pays": codes.pays(rank, size[1], PackedLines(across[None], None), memory),
            }  # fmt: skip

        yield name, case


def sweeps():
    """Time whole sweeps; without the memory for counts one kernel draws all."""
    for name in dict.fromkeys([*BOTH, *BOOLEAN]):
        *size, _ = BOOLEAN[name]
        yield name, functools.partial(accelerator_phases.boolean_case, *size)
        if name in BOTH:
            budget = dataclasses.replace(device_budget(), bytes=0)
            case = functools.partial(accelerator_phases.boolean_case, *size, budget)
            yield f"{name}, without counts by code", case


PARTS = {"draws": draws, "sweeps": sweeps}

NOTES = [
    ("543e6a34",
     "with other work on the card; at rank 4 the pieces were 81,600 rows long, which kept the "
     "card waiting: such ranks have shorter ones since, and are drawn by the kernel"),
]  # fmt: skip

ANSWER = """
Yes: on an NVIDIA H200, with other work on the card, a sweep of 1,300,000 x 20,000 at rank 10 takes
16.0 ms with counts by code, and 30.2 ms without.

| | one kernel | from counts |
| --- | --- | --- |
| all columns of 1,300,000 x 20,000, rank 10 | 18.7 ms | 3.7 ms |
| all columns of 300,000 x 5,000, rank 10 | 1.4 ms | 0.9 ms |
| sweep of 1,300,000 x 20,000, rank 10 | 30.2 ms | 16.0 ms |
| sweep of 300,000 x 5,000, rank 10 | 4.0 ms | 3.2 ms |

The bits of all columns are the same. Sorting the rows takes 0.3 ms, and counting 2.7 ms. At rank 4
this version took 28.3 ms where the kernel took 5.3: counts are used from rank 8 on.
"""


@page_of_one(__doc__, notes=NOTES)
def tables(found: dict):
    yield (
        "Milliseconds of drawing the bits of all columns: the least of several. Sorting and "
        "counting are parts of the draws from counts."
    )
    yield shown([one for one in named(found.get("draws", {}), "case") if "codes_ms" in one], {
        "case": "case", "one kernel": "kernel_ms", "from counts": "codes_ms",
        "sorting rows": "sorting_ms", "counting": "counting_ms", "bits that differ": "differ",
        "of": "of"})  # fmt: skip
    yield "Milliseconds of a sweep."
    yield shown([one for one in named(found.get("sweeps", {}), "case") if "sweep_ms" in one], {
        "case": "case", "ms": "sweep_ms", "quickest": "sweep_ms_quickest",
        "compiling, s": "compile_seconds"})  # fmt: skip


@script(__doc__, parts=some(PARTS), commit=COMMIT)
def main(options):
    yield from accelerator_phases.figures_of(PARTS, options.parts)

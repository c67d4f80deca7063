"""Why does PanPal find no tile of 8 x 8?

The objective, the gradients, the moduli and the proximal operator are those of Hess, Morik and
Piatkowski (2017), as Gonsior (2019) states them in equations 2.6 to 2.16. Each row changes one of
them, from the same uniform starts, or the start. 512 x 512, 30 tiles, little noise.
"""

import jax.numpy as jnp
import numpy as np
from jax import random

import bmfjax
from benchmarks.device import script
from benchmarks.form import number, page_of_one, table
from bmfjax.diagnostics import boolean_errors
from bmfjax.optimize import tiling
from bmfjax.optimize.palm import (
    Factors,
    Penalty,
    Smooth,
    arrays_of,
    matrix_of,
    minimise,
    norm_of_other,
    palm,
    squared_error,
)
from bmfjax.optimize.proximal import binary_penalty, prox_binary

SIZE, RANK, GROWS = 512, 30, 2000
MAX_STEPS, TOLERANCE = 4000, 0.0005


def frobenius(other, matrix):
    """Return a modulus that is no smaller than the spectral norm, so that steps are shorter."""
    return jnp.linalg.norm(other.T @ other)


def with_ones(factors, matrix):
    return squared_error(factors, matrix) + 0.5 * sum(jnp.sum(f) for f in factors)


def pulled(weight) -> Penalty:
    """Return the penalty of PanPal times a weight that depends on the step."""
    return Penalty(
        lambda x, time: weight(time) * binary_penalty(x),
        lambda x, step, time: prox_binary(x, weight(time) * step),
    )


def grows(time):
    return jnp.minimum(1.0, time / GROWS)


PUBLISHED = Smooth(with_ones, norm_of_other, norm_of_other)
#: What is minimised, and how the pull is weighed.
WAYS = {
    "as published": (PUBLISHED, lambda _: 1.0),
    "moduli by the Frobenius norm": (Smooth(with_ones, frobenius, frobenius), lambda _: 1.0),
    "a pull of one tenth": (PUBLISHED, lambda _: 0.1),
    "no pull": (PUBLISHED, lambda _: 0.0),
    "a pull that grows": (PUBLISHED, grows),
    "a pull that grows, ones free": (Smooth(squared_error, norm_of_other, norm_of_other), grows),
}


def found_by(way, start, made) -> dict:
    """Minimise, cut as PanPal does, and count tiles and wrong entries."""
    ones, counted = arrays_of(made.data)
    smooth, weight = WAYS[way]
    found = minimise(palm(smooth, pulled(weight)), start, matrix_of(ones, counted),
                     max_steps=MAX_STEPS, tolerance=TOLERANCE, window=500)  # fmt: skip
    cut = tiling._cut(found.factors, tiling._errors_and_ones, ones, counted)
    wrong = boolean_errors(cut.usage, cut.basis, made.clean)
    return {"steps": int(found.steps), "tiles": cut.usage.shape[1], "wrong": wrong}


ANSWER = """
Its pull to 0 and 1 is too strong from the first step on. The objective is 1,589.5 at the truth and
2,214.5 at the empty tiling. From half truth, half uniform numbers, all 30 tiles are found. From
uniform numbers alone, as published, none is.

| from uniform numbers, rank 30 | tiles | wrong of 1,920 |
| --- | --- | --- |
| as published | 0 | 1,920 |
| moduli by the Frobenius norm | 0 | 1,920 |
| a pull of one tenth | 9 | 1,344 |
| no pull | 24 | 452 |
| a pull that grows over 2,000 steps | 24 | 384 |
| the same, ones free | 30 | 0 |

From a uniform start a product of 10 factors is far above one everywhere, the squares drive all
entries down, and the pull takes them to 0, where the gradient of the squares vanishes. `panpal`
stays as published. One matrix was tried.
"""


@page_of_one(__doc__)
def tables(found: dict):
    at = found["objective"]
    yield (
        f"{found['size']} x {found['size']}, {found['rank']} tiles, {number(found['ones'])} ones. "
        f"The relaxed objective is {number(at['truth'], 1)} at the truth and "
        f"{number(at['empty'], 1)} at the empty tiling. Entries are pulled to 0 and 1 with weight "
        f"1 as published; a pull that grows does so over {number(found['steps_in_which_it_grows'])}"
        " steps. Wrong entries are beside the noise-free matrix."
    )
    yield table(["start, as published", "steps", "tiles", "wrong entries"], [
        [f"{100 * float(share):g} % truth, the rest uniform numbers", *case.values()]
        for share, case in found["from_the_truth_and_noise"].items()])  # fmt: skip
    yield table(["from uniform numbers", "rank", "steps", "tiles", "wrong entries"], [
        [way, int(rank), *case.values()]
        for rank, cases in found["from_uniform_numbers"].items()
        for way, case in cases.items()])  # fmt: skip


@script(__doc__, seed=0)
def main(options):
    made = bmfjax.generate_tiles(
        SIZE, SIZE, RANK, noise=(0.01, 0.05), index_size=6, pattern_size=2, seed=options.seed
    )
    matrix = matrix_of(*arrays_of(made.data))
    truth = Factors(*(jnp.asarray(f, jnp.float32) for f in (made.usage, made.basis)))
    empty = Factors(*(jnp.zeros_like(f) for f in truth))
    rng = np.random.default_rng(options.seed)
    noise = Factors(*(jnp.asarray(rng.random(f.shape), jnp.float32) for f in truth))
    figures = {
        "size": SIZE, "rank": RANK, "seed": options.seed, "steps_in_which_it_grows": GROWS,
        "ones": int(made.clean.sum()),
        "objective": {
            name: float(with_ones(f, matrix)) for name, f in (("truth", truth), ("empty", empty))
        },
        "from_the_truth_and_noise": {
            str(share): found_by(
                "as published",
                Factors(*(share * a + (1 - share) * b for a, b in zip(truth, noise, strict=True))),
                made,
            )
            for share in (1.0, 0.5, 0.3)
        },
        "from_uniform_numbers": {},
    }  # fmt: skip
    for rank in (10, RANK):
        keys = random.split(random.key(options.seed))
        start = Factors(*(random.uniform(key, (SIZE, rank)) for key in keys))
        found = {way: found_by(way, start, made) for way in WAYS}
        figures["from_uniform_numbers"][str(rank)] = found
        print(rank, found, flush=True)
    return figures

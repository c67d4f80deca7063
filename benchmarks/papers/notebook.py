"""How near to the truth is the product of a small matrix?

The matrix has two rows and three columns, in "Monte Carlo Markov Chain, Bayes and Matrix
Factorisation", a notebook after Salakhutdinov and Mnih (2008). Its program draws each row of both
factor matrices from its normal conditional, with a noise precision of 1,000 and a flat prior, for
50 sweeps, and prints the product of the mean factors. Beside it stands `bmfjax.PMFGibbs` at the
same rank and precision, with as many sweeps. The error is the root mean square of the differences
from the matrix. A run fails where it is above 0.1, about three standard deviations of the noise.
"""

import functools

import jax
import numpy as np
from jax import lax, random

import bmfjax
from benchmarks.device import script
from benchmarks.form import figures, page, settings_of, shown

TARGET = np.array([[1.0, 1.0, 2.0], [4.0, 5.0, 5.0]])
#: What the notebook prints for it.
PRINTED = np.array([[0.998, 1.002, 2.015], [3.985, 4.987, 4.965]])
PRECISION, SWEEPS, RANK, FAILS = 1000.0, 50, 2, 0.1


def rows_given(r, values, other):
    """Draw the rows of one factor matrix of every seed, given the other: (seed, rows, rank)."""
    precision = PRECISION * np.swapaxes(other, 1, 2) @ other
    covariance = np.linalg.inv(precision)
    means = PRECISION * values @ other @ covariance
    lower = np.linalg.cholesky(covariance)
    return means + r.standard_normal(means.shape) @ np.swapaxes(lower, 1, 2)


def as_printed(seeds: int) -> dict[str, np.ndarray]:
    """Run the notebook's program from random factors, and return what it finds, by seed."""
    r = np.random.default_rng(0)
    basis = r.standard_normal((seeds, TARGET.shape[1], RANK))
    sums, product = [0.0, 0.0], 0.0
    for _ in range(SWEEPS):
        usage = rows_given(r, TARGET, basis)
        basis = rows_given(r, TARGET.T, usage)
        sums = [sums[0] + usage, sums[1] + basis]
        product = product + usage @ np.swapaxes(basis, 1, 2)
    usage, basis = (s / SWEEPS for s in sums)
    return {
        "product of means": usage @ np.swapaxes(basis, 1, 2),
        "mean of products": product / SWEEPS,
    }


def with_priors(seeds: int) -> dict[str, np.ndarray]:
    """Run the sampler of the library as long from its own start, and return the same."""
    model = functools.partial(bmfjax.models.pmf, rank=RANK, effects=False, precision=PRECISION)
    algorithm, data, *_ = bmfjax.PMFGibbs(model).bind(TARGET)

    def run(key):
        def body(state, key):
            state, info = algorithm.step(key, state, data)
            seen = algorithm.observe(state, info)
            return state, {n: seen[n] for n in ("usage", "basis", "intercept")}

        keys = random.split(key, SWEEPS + 1)
        return lax.scan(body, algorithm.init(keys[0], None, data), keys[1:])[1]

    drawn = jax.jit(jax.vmap(run))(random.split(random.key(0), seeds))
    usage, basis, level = (np.asarray(drawn[n], float) for n in ("usage", "basis", "intercept"))
    products = level[..., None, None] + usage @ np.swapaxes(basis, 2, 3)
    means = usage.mean(1) @ np.swapaxes(basis.mean(1), 1, 2)
    return {
        "product of means": level.mean(1)[:, None, None] + means,
        "mean of products": products.mean(1),
        "mean of products, the first half left out": products[:, SWEEPS // 2 :].mean(1),
    }


def figures_of(found: np.ndarray) -> dict:
    """Return the errors of an estimate over the seeds, and how often it fails."""
    error = np.sqrt(((found - TARGET) ** 2).mean((1, 2)))
    return {
        "median_error": round(float(np.median(error)), 5),
        "worst_of_20": round(float(np.quantile(error, 0.95)), 5),
        "largest": round(float(error.max()), 4),
        "share_that_fails": round(float((error > FAILS).mean()), 4),
    }


ANSWER = """
Its entries have an error of 0.0121 in the median over 2,000 seeds where the notebook's program
multiplies the means of the factors (what it prints for one seed has 0.0176), and of 0.0044 where
the products are averaged, as every prediction of this library is. Without a prior factors drift
along the bases that give the same product, and their means multiply to another one. That, and not
the prior, is the difference here: the notebook's own draws have 0.0042 when their products are
averaged. One seed in 20 is above 0.037 by the notebook's estimate and above 0.008 by ours.
"""


@page(__doc__, "notebook_matrix")
def tables(records: dict):
    found = figures(records, "notebook_matrix")
    yield (
        f"The root mean square error of what the notebook prints is {found.get('printed')}. "
        "`fails` is the share of the seeds with an error above 0.1."
    )
    yield settings_of(found)
    yield shown(
        [{"program": program, "estimate": name} | case
         for program, ways in found.get("programs", {}).items() for name, case in ways.items()],
        {"program": "", "estimate": "", "median error": "median_error 4",
         "one seed in 20 is above": "worst_of_20 4", "largest": "largest 3",
         "fails": "share_that_fails 4"},
    )  # fmt: skip


@script(__doc__, seeds=2000)
def main(options):
    printed = float(np.sqrt(((PRINTED - TARGET) ** 2).mean()))
    programs = {"notebook": as_printed, "bmfjax": with_priors}
    found = {
        "seeds": options.seeds,
        "sweeps": SWEEPS,
        "printed": round(printed, 4),
        "programs": {
            name: {way: figures_of(v) for way, v in run(options.seeds).items()}
            for name, run in programs.items()
        },
    }
    for name, ways in found["programs"].items():
        print(name, ways)
    options.record = "notebook_matrix"
    return found

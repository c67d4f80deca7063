"""Do 90 % intervals of hidden ratings cover 90 %?

On data simulated from the model.

Factors, effects and noise are drawn from the prior (with the strength that factors of ratings
have), a share of the cells is observed, and intervals of hidden cells are compared with what is
there: of the fits without noise, and of the ratings themselves.
"""

import jax
import numpy as np
from jax import lax, random

from benchmarks.calibration.cell_moments import cell_fits
from benchmarks.device import script
from benchmarks.form import mean_and_error, named, number, page_of_one, shown
from bmfjax.kernels.numerics.normal_wishart import NormalWishart
from bmfjax.kernels.ratings.entries import common_layout, entry_blocks
from bmfjax.kernels.ratings.gibbs import PMFDensity, pmf_gibbs


def simulate(rng, options):
    """Rows and columns of all cells, ratings, fits, and which are observed."""
    n, m, rank, prior = options.rows, options.columns, options.rank, PRIOR
    sides = []
    for size in (n, m):
        root = rng.normal(size=(int(prior.degrees), rank)) * prior.scale**0.5
        precision = root.T @ root
        spread = np.linalg.cholesky(np.linalg.inv(precision))
        mean = spread @ rng.normal(size=rank) / prior.strength**0.5
        effect = rng.normal(size=size) * rng.gamma(EFFECTS[0], 1 / EFFECTS[1]) ** -0.5
        sides.append((mean + rng.normal(size=(size, rank)) @ spread.T, effect))
    (usage, a), (basis, b) = sides
    fits = rng.normal() + a[:, None] + b + usage @ basis.T
    noise = rng.gamma(NOISE[0], 1 / NOISE[1]) ** -0.5
    values = fits + noise * rng.normal(size=fits.shape)
    return values, fits, rng.random(fits.shape) < options.observed / 100


PRIOR, EFFECTS, NOISE = NormalWishart(2.0, 12.0, 0.1), (4.0, 2.0), (4.0, 2.0)


@jax.jit
def chain(key, data, rows, columns):
    """Draws of the fits of some cells, and of the noise's precision."""
    density = PMFDensity(
        RANK, precision_gamma=NOISE, effect_gamma=EFFECTS, factors=PRIOR, level=(0.0, 1.0)
    )
    algorithm = pmf_gibbs(density)
    state = algorithm.init(key, None, data)

    def sweep(state, key):
        return algorithm.step(key, state, data)[0], None

    def kept(state, key):
        state, _ = lax.scan(sweep, state, random.split(key, THIN))
        return state, (cell_fits(state.position, rows, columns), state.position["precision"])

    key_warm, key_run = random.split(random.fold_in(key, 1))
    state, _ = lax.scan(sweep, state, random.split(key_warm, WARMUP))
    return lax.scan(kept, state, random.split(key_run, KEPT))[1]


RANK, WARMUP, KEPT, THIN = 5, 300, 400, 3


ANSWER = """
Nearly: they cover 89.42 ± 0.12 % of the hidden ratings and 89.24 ± 0.14 % of the fits without
noise, on 40 data sets drawn from the model. Intervals from 400 independent draws are expected to
cover 89.6 %, and these draws are not quite independent.
"""


@page_of_one(__doc__)
def tables(found: dict):
    kept, level = found.get("kept", 0), found.get("level_percent", 90)
    yield (
        f"{found.get('repeats')} data sets of {found.get('rows')} x {found.get('columns')} drawn"
        f" from the model at rank {found.get('rank')}, {found.get('observed')} % of the cells"
        f" observed. Per cent of the hidden cells in central {level} % intervals. Ends from n"
        " independent draws are expected to cover the level times (n - 1) / (n + 1): for the "
        f"{kept} that were kept {number(level * (kept - 1) / (kept + 1), 1)} %. They are not quite"
        " independent."
    )
    yield shown(
        named(found.get("covered_percent", {}), "intervals of"),
        {"intervals of": "", "covered, %": ". ±2"},
    )


@script(__doc__, rows=120, columns=80, observed=(25.0, "per cent"), repeats=40)
def main(options):
    options.rank = RANK
    rng = np.random.default_rng(0)
    made = [simulate(rng, options) for _ in range(options.repeats)]
    shape = (options.rows, options.columns)
    layout = common_layout([np.nonzero(seen) for _, _, seen in made], shape)
    covered = {"fits": [], "ratings": []}
    for k, (values, fits, seen) in enumerate(made):
        i, j = np.nonzero(seen)
        data = entry_blocks(i, j, values[seen], shape, layout=layout)
        at = np.argwhere(~seen)[rng.permutation((~seen).sum())[:2000]].T
        drawn, precision = map(np.asarray, chain(random.key(k), data, *at))
        noisy = drawn + rng.normal(size=drawn.shape) * precision[:, None] ** -0.5
        for name, draws, truth in (("fits", drawn, fits), ("ratings", noisy, values)):
            low, high = np.quantile(draws, [0.05, 0.95], axis=0)
            covered[name].append(100 * np.mean((low <= truth[*at]) & (truth[*at] <= high)))
    return {
        **{n: getattr(options, n) for n in ("rows", "columns", "rank", "observed", "repeats")},
        "warmup": WARMUP, "kept": KEPT, "thin": THIN, "level_percent": 90,
        "covered_percent": {n: mean_and_error(c, 4) for n, c in covered.items()},
    }  # fmt: skip

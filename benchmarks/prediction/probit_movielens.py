"""Which MovieLens ratings lie above the mean? A probit factorisation on the same splits.

The protocol, splits and published figures are those of `movielens.py`; here the factors are real
numbers with Normal-Wishart priors, and rows and columns have effects.
"""

import time
from pathlib import Path

import jax

from benchmarks.calibration.cell_moments import cell_moments
from benchmarks.device import script
from benchmarks.form import mean_and_error
from benchmarks.prediction.movielens import PERCENT, PUBLISHED, read_ratings, scores, split
from benchmarks.prediction.pmf_runs import predict
from bmfjax.kernels.ratings.entries import common_layout, entry_blocks
from bmfjax.kernels.ratings.gibbs import PMFDensity

SETTINGS = ("ranks", "splits", "warmup", "samples")


def one_split(density, user, item, x, seen, rest, shape, layout, options, seed):
    """Scores of one chain, and seconds a sweep."""
    data = entry_blocks(user[seen], item[seen], 2.0 * x[seen] - 1.0, shape, layout=layout)
    began = time.perf_counter()
    held, _ = predict(jax.random.key(seed), data, user[rest], item[rest], density=density,
                      warmup=options.warmup, samples=options.samples)  # fmt: skip
    mean = cell_moments([0], [0]).value(jax.device_get(held))["mean"]
    seconds = (time.perf_counter() - began) / (options.warmup + options.samples)
    return scores(mean, x[rest]), seconds


def one_share(user, item, x, percent, options):
    """Scores of every model on every split, and milliseconds a sweep."""
    shape = (int(user.max()) + 1, int(item.max()) + 1)
    splits = [split(len(x), percent, seed) for seed in range(options.splits)]
    layout = common_layout([(user[s], item[s]) for s, _ in splits], shape)
    names = {
        "effects alone" if rank == 0 else f"probit, rank {rank}": rank for rank in options.ranks
    }
    found, speed = {}, {}
    for name, rank in names.items():
        density = PMFDensity(rank, "probit", level=(0.0, 1.0))
        each = [
            one_split(density, user, item, x, *s, shape, layout, options, seed)
            for seed, s in enumerate(splits)
        ]
        found[name] = {n: mean_and_error([e[0][n] for e in each], 4) for n in each[0][0]}
        speed[name] = round(1000 * min(e[1] for e in each), 1)
    return found, speed


@script(__doc__, folder=dict(type=Path, required=True, help="with u.data or ratings.dat"),
        ranks=[0, 10], warmup=60, samples=200,
        percent=dict(nargs="+", type=float, default=list(PERCENT)), splits=10)  # fmt: skip
def main(options):
    title, user, item, x = read_ratings(options.folder)
    options.record += "" if title == "100K" else f"_{title.lower()}"
    tables, speeds = {}, {}
    for percent in options.percent:
        tables[f"{percent:g}"], speeds[f"{percent:g}"] = one_share(user, item, x, percent, options)
        print(percent, tables[f"{percent:g}"], speeds[f"{percent:g}"], flush=True)
        figures = {
            "data": f"MovieLens {title}",
            **{n: getattr(options, n) for n in SETTINGS},
            "observed_percent": tables,
            "milliseconds_a_sweep": speeds,
            "published_percent_right": {"observed_percent": PERCENT, **PUBLISHED[title]},
        }
        yield figures

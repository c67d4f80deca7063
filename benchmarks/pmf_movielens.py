"""How far off are predicted stars? Bayesian matrix factorisation on five folds of MovieLens 100K.

The publisher's five folds, u1 to u5 (https://grouplens.org/datasets/movielens/), each a fifth of
the ratings held out. Give the folder that the archive unpacks to; where it has no folds, `u.data`
is cut into five at random. Published beside: mean squared errors of the same five-fold protocol
from Brouwer's comparison of priors (github.com/ThomasBrouwer/BMF_Priors).

    python benchmarks/pmf_movielens.py --folder ml-100k
"""

from __future__ import annotations

import argparse
import tarfile
import time
from pathlib import Path

import jax
import numpy as np
from cell_moments import cell_moments
from device import parse
from movielens import summary
from pmf_runs import predict
from record import write_record

from bmfjax.data import InputError
from bmfjax.kernels.ratings.entries import common_layout, entry_blocks
from bmfjax.kernels.ratings.gibbs import PMFDensity

#: Root of the published five-fold mean squared errors.
PUBLISHED = {
    name: round(mse**0.5, 4)
    for name, mse in {
        "Gaussian-Wishart": 0.8255, "automatic relevance": 0.828, "Gaussian-Gaussian": 0.854,
        "exponential, non-negative": 0.855, "Poisson-Gamma": 0.898, "row average": 1.09,
    }.items()
}  # fmt: skip
SHAPE, STARS = (943, 1682), (1.0, 2.0, 3.0, 4.0, 5.0)


def read_folds(folder: Path):
    """Whether the publisher's, and (train, test) tables of user, item, stars."""
    archive = next(folder.glob("*splits.tar.xz"), None)
    if (folder / "u1.base").is_file() or archive:
        return True, [
            tuple(_table(folder, archive, f"u{k}.{part}") for part in ("base", "test"))
            for k in range(1, 6)
        ]
    if not (folder / "u.data").is_file():
        raise InputError(f"{folder} has neither u1.base nor u.data; give the publisher's folder")
    table = _parsed((folder / "u.data").read_text())
    part = np.random.default_rng(0).permutation(len(table)) % 5
    return False, [(table[part != k], table[part == k]) for k in range(5)]


def _table(folder, archive, name):
    if archive is None:
        return _parsed((folder / name).read_text())
    with tarfile.open(archive) as files:
        return _parsed(files.extractfile(name).read().decode())


def _parsed(text):
    return np.array([line.split("\t")[:3] for line in text.split("\n") if line], int) - [1, 1, 0]


def models(ranks) -> dict:
    """Name: density."""
    found = {"effects alone": PMFDensity(0)}
    for rank in ranks:
        found[f"rank {rank}"] = PMFDensity(rank)
    rank = ranks[0]
    found[f"rank {rank}, precision 2, no effects (Salakhutdinov, Mnih 2008)"] = PMFDensity(
        rank, effects=False, precision=2.0
    )
    found[f"rank {rank}, ordered probit"] = PMFDensity(rank, "ordered", categories=5)
    return found


def one_fold(density, train, test, layout, options, seed):
    """Root mean squared error, and seconds a sweep."""
    values, ordered = train[:, 2].astype(float), density.link == "ordered"
    if ordered:
        values = values - STARS[0]  # categories from 0
    data = entry_blocks(train[:, 0], train[:, 1], values, SHAPE, layout=layout)
    began, means = time.perf_counter(), []
    for key in jax.random.split(jax.random.key(seed), options.chains):
        held, _ = predict(
            key, data, test[:, 0], test[:, 1], density=density, warmup=options.warmup,
            samples=options.samples, stars=STARS if ordered else None,
        )  # fmt: skip
        means.append(cell_moments([0], [0]).value(jax.device_get(held))["mean"])
    sweeps = options.chains * (options.warmup + options.samples)
    seconds = (time.perf_counter() - began) / sweeps
    mean = np.clip(np.mean(means, 0), STARS[0], STARS[-1])
    return float(np.sqrt(np.mean((mean - test[:, 2]) ** 2))), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--ranks", type=int, nargs="+", default=[10, 20])
    parser.add_argument("--chains", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--samples", type=int, default=240)
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    published, folds = read_folds(options.folder)
    layout = common_layout([train.T[:2] for train, _ in folds], SHAPE)
    rows = {}
    for name, density in models(options.ranks).items():
        found = [one_fold(density, *fold, layout, options, k) for k, fold in enumerate(folds)]
        errors, seconds = zip(*found, strict=True)
        rows[name] = {
            "rmse": summary(errors),
            "rmse_of_folds": [round(e, 4) for e in errors],
            "milliseconds_a_sweep": round(1000 * min(seconds), 1),
        }
        print(name, rows[name], flush=True)
        figures = {
            "data": "MovieLens 100K", "publishers_folds": published,
            **{n: getattr(options, n) for n in ("chains", "warmup", "samples")},
            "models": rows, "published_rmse": PUBLISHED,
        }  # fmt: skip
        path = write_record("pmf_movielens", figures, options.output)
    print(path)


if __name__ == "__main__":
    main()

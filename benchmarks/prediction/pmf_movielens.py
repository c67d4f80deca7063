"""How far off are predicted stars?

The publisher's five folds, u1 to u5 (https://grouplens.org/datasets/movielens/), each a fifth of
the ratings held out. Give the folder that the archive unpacks to. Published beside: mean squared
errors of the same five-fold protocol from Brouwer's comparison of priors
(github.com/ThomasBrouwer/BMF_Priors).

With ``--attributes`` the prior means of the factors depend on which cells were rated and, where the
folder has `u.user` and `u.item`, on what is known of users and films.
"""

import tarfile
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from benchmarks.calibration.cell_moments import cell_moments, noisy_interval
from benchmarks.device import script
from benchmarks.form import SECONDS, mean_and_error, named, number, page, shown, table
from benchmarks.prediction.pmf_runs import predict
from bmfjax.data import InputError
from bmfjax.data.attributes import rated_attributes, read_attributes, standardised
from bmfjax.kernels.ratings.attributes import decomposed
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
#: Of the level, as `bmfjax.fit` has it: about the mean of the ratings.
LEVEL = (3.5, 10.0)
STARS = (1.0, 2.0, 3.0, 4.0, 5.0)


def read_folds(folder: Path) -> list[tuple]:
    """Return the publisher's folds (train, test): tables of user and item from 0, and stars."""
    archive = next(folder.glob("*splits.tar.xz"), None)
    if not ((folder / "u1.base").is_file() or archive):
        raise InputError(f"{folder} has no u1.base; give the publisher's folder")
    return [
        tuple(_table(folder, archive, f"u{k}.{part}") for part in ("base", "test"))
        for k in range(1, 6)
    ]


def shape_of(folds) -> tuple[int, int]:
    """Number of users and of items."""
    users, items = np.max([t[:, :2].max(0) for fold in folds for t in fold], 0) + 1
    return int(users), int(items)


def _table(folder, archive, name):
    if archive is None:
        return _parsed((folder / name).read_text())
    with tarfile.open(archive) as files:
        return _parsed(files.extractfile(name).read().decode())


def _parsed(text):
    lines = [line.split("\t")[:3] for line in text.split("\n") if line]
    return np.array(lines, int) - [1, 1, 0]


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


def attribute_models(rank, tables) -> dict:
    """Name: density, and by side the attributes that it has."""
    rated = {"row": ["rated"], "column": ["rated"]}
    found = {f"rank {rank}": (PMFDensity(rank, level=LEVEL), {})}
    density = PMFDensity(rank, attributes=tuple(rated), level=LEVEL)
    found[f"rank {rank}, which cells were rated"] = (density, rated)
    name, sides = "which cells were rated", rated
    if tables:
        told = {"row": ["told"], "column": ["told"]}
        name, sides = f"{name}, users and films", {s: told[s] + rated[s] for s in rated}
        found[f"rank {rank}, {name}"] = (density, sides)
        found[f"rank {rank}, users and films"] = (density, told)
    ordered = density._replace(link="ordered", categories=5, level=(0.0, 2.0))
    found[f"rank {rank}, ordered probit, {name}"] = (ordered, sides)
    found[f"rank {rank}, ordered probit"] = (ordered._replace(attributes=()), {})
    return found


def read_tables(folder: Path, shape) -> dict:
    """Attributes of users and of films by side; empty where the folder has no tables."""
    if not (folder / "u.user").is_file() or not (folder / "u.item").is_file():
        return {}
    users = pd.read_csv(folder / "u.user", sep="|", header=None, usecols=[1, 2, 3])
    films = pd.read_csv(folder / "u.item", sep="|", header=None, encoding="latin-1")
    year = pd.to_datetime(films[2], format="%d-%b-%Y").dt.year
    years = pd.cut(year.fillna(year.median()), [0, 1960, 1980, 1990, 1995, 2000]).astype(str)
    users = users.set_axis(["age", "gender", "occupation"], axis=1)
    return {
        "row": read_attributes(users, "row", range(shape[0])),
        "column": read_attributes(films.iloc[:, 5:].assign(year=years), "column", range(shape[1])),
    }


def known_of(sides, tables, train, shape) -> dict:
    """The attributes of each side as the sampler takes them, group by group."""
    return {
        f"{side}_attributes": tuple(
            decomposed(
                standardised(rated_attributes(train[:, 0], train[:, 1], shape, side), True)[0]
                if what == "rated" else standardised(tables[side].values)[0]
            )
            for what in groups
        )
        for side, groups in sides.items()
    }  # fmt: skip


def with_attributes(folds, shape, layout, options):
    """Yield the name of every model, and errors, shares inside of intervals and seconds a sweep."""
    tables = read_tables(options.folder, shape)
    for name, (density, sides) in attribute_models(options.ranks[0], tables).items():
        known = [known_of(sides, tables, train, shape) for train, _ in folds]
        yield (
            name,
            [
                one_fold(density, *fold, shape, layout, options, k, known[k], True)
                for k, fold in enumerate(folds)
            ],
        )


def one_fold(density, train, test, shape, layout, options, seed, known=None, noisy=False):
    """Root mean squared error, the share inside of 90 % intervals, and seconds a sweep."""
    values, ordered = train[:, 2].astype(float), density.link == "ordered"
    if ordered:
        values = values - STARS[0]  # categories from 0
    data = entry_blocks(train[:, 0], train[:, 1], values, shape, layout=layout)
    data = data._replace(**known or {})
    began, means = time.perf_counter(), []
    for key in jax.random.split(jax.random.key(seed), options.chains):
        held, _ = predict(
            key, data, test[:, 0], test[:, 1], density=density, warmup=options.warmup,
            samples=options.samples, stars=STARS if ordered else None, noisy=noisy,
        )  # fmt: skip
        means.append(cell_moments([0], [0]).value(jax.device_get(held)))
    sweeps = options.chains * (options.warmup + options.samples)
    seconds = (time.perf_counter() - began) / sweeps
    found, inside = {n: np.stack([m[n] for m in means]) for n in means[0]}, None
    mean = found["mean"].mean(0)
    if noisy:
        mean, low, high = noisy_interval(density.link, found, STARS)
        inside = float(np.mean((low <= test[:, 2]) & (test[:, 2] <= high)))
    mean = np.clip(mean, STARS[0], STARS[-1])
    return float(np.sqrt(np.mean((mean - test[:, 2]) ** 2))), inside, seconds


NOTES = [("55e7bda", SECONDS)]

ANSWER = """
The root mean squared error on MovieLens 100K is 0.8975 with `pmf` and 0.8965 with `ordered-probit`,
over the publisher's five folds, with one chain each whose convergence was not checked. The best
published figure in Brouwer's comparison of priors is 0.9086.

| model | error | published, other priors | error |
| --- | --- | --- | --- |
| rank 10, effects, ordered probit | 0.8965 ± 0.0024 | Gaussian-Wishart | 0.9086 |
| rank 10, effects, learned noise | 0.8975 ± 0.0023 | automatic relevance | 0.9099 |
| rank 10, precision 2, no effects (Salakhutdinov and Mnih 2008) | 0.9065 ± 0.0024 | Gaussian-Gaussian | 0.9241 |
| effects alone | 0.9409 ± 0.0033 | row average | 1.0440 |

Which cells were rated, and what is known of users and films, in the prior means of the factors
("side information"), bring the error to 0.8794, and 90.1 % of held-out stars lie in their 90 %
intervals. The targets were 0.882, and 90 % within half a percent:

| model, rank 10 | error | held-out stars in their 90 % interval |
| --- | --- | --- |
| without attributes | 0.8981 ± 0.0023 | 90.1 % |
| users and films | 0.8885 ± 0.0019 | 90.1 % |
| which cells were rated | 0.8820 ± 0.0018 | 90.0 % |
| which cells were rated, users and films | 0.8794 ± 0.0018 | 90.1 % |
| the same, ordered probit | 0.8781 ± 0.0018 | 97.1 % |
| ordered probit without attributes | 0.8971 ± 0.0024 | 97.1 % |
"""  # noqa: E501


@page(__doc__, "pmf_movielens", notes=NOTES)
def tables(records: dict):
    yield (
        "Root mean squared error of predicted stars, mean of the publisher's five folds with its "
        "standard error. Published: roots of the five-fold mean squared errors in Brouwer's "
        "comparison of priors."
    )
    for found, models in _models(records):
        yield models
        if published := found.get("published_rmse"):
            yield table(["published", "error"], [[n, number(v, 4)] for n, v in published.items()])


@page(
    __doc__,
    "pmf_movielens_attributes*",
    name="pmf_movielens_attributes",
    question="Do attributes of users and films predict stars better?",
    notes=NOTES,
)
def tables_of_attributes(records: dict):
    yield (
        "Root mean squared error of predicted stars and per cent of the held-out stars inside of "
        "their 90 % intervals, means over the publisher's five folds with standard errors. "
        "Intervals of the ordered probit end at stars. Users: age, gender, occupation; films: "
        "year, genres."
    )
    for _, models in _models(records, **{"inside, %": "inside_of_90_percent * 100 ±2"}):
        yield models


def _models(records: dict, **more: str):
    """Return the figures of each record, and a table of its models below the name of its data."""
    for record in records.values():
        found = record["figures"]
        columns = {"model": "", "error": "rmse ±4", "of the folds": "rmse_of_folds ;4"}
        columns |= more | {"ms a sweep": "milliseconds_a_sweep? 1"}
        yield found, f"## {found['data']}\n\n{shown(named(found['models'], 'model'), columns)}"


@script(__doc__, folder=dict(type=Path, required=True), ranks=[10, 20], chains=1, warmup=60,
        samples=240,
        attributes=(False, "with attributes in the prior means, first rank"))  # fmt: skip
def main(options):
    folds = read_folds(options.folder)
    shape = shape_of(folds)
    layout = common_layout([train.T[:2] for train, _ in folds], shape)
    rows = {}
    runs = (
        with_attributes(folds, shape, layout, options)
        if options.attributes
        else (
            (name, [one_fold(d, *fold, shape, layout, options, k) for k, fold in enumerate(folds)])
            for name, d in models(options.ranks).items()
        )
    )
    options.record += "_attributes" * options.attributes
    for name, found in runs:
        errors, inside, seconds = zip(*found, strict=True)
        rows[name] = {
            "rmse": mean_and_error(errors, 4),
            "rmse_of_folds": [round(e, 4) for e in errors],
            "milliseconds_a_sweep": round(1000 * min(seconds), 1),
        }
        if options.attributes:
            rows[name]["inside_of_90_percent"] = mean_and_error(inside, 4)
        print(name, rows[name], flush=True)
        figures = {
            "data": "MovieLens 100K", "publishers_folds": True,
            **{n: getattr(options, n) for n in ("chains", "warmup", "samples")},
            "models": rows,
            "published_rmse": PUBLISHED,
        }  # fmt: skip
        yield figures

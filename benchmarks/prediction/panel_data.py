"""The matrices and ratings of `panel.py`: where they lie, what is hidden, and how it is scored.

A set of ones and zeros is ``NAME/FILE.npz`` with `shape`, and either `bits` (packed rows) or
`indptr` and `indices` of the ones, and those of missing entries as `mask_indptr` and
`mask_indices`. A set of ratings has `user`, `item` and `rating` (whole multiples of
1 / `rating_scale`), and `fold` where its publisher says what is hidden.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.prediction.panel_baselines import log_score
from benchmarks.prediction.panel_ratings import Problem

#: Where a set lies, and the most rows and columns that are taken of it.
SETS = {
    "bob-ross": ("bob-ross/bob-ross.npz", 403, 67),
    "fraction": ("cognitive-diagnosis/fraction-subtraction-536x20.npz", 536, 20),
    "animals": ("animals-with-attributes/animals.npz", 50, 85),
    "lastfm": ("lastfm-usergroup/lastfm-1226x285.npz", 1226, 285),
    "news100": ("newsgroups/20news-w100.npz", 2000, 100),
    "pancan": ("tcga/pancan*.npz", 2000, 66),
    "pbmc": ("scrna/pbmc*.npz", 700, 300),
    "mushroom": ("uci-mushroom/*.npz", 1500, 117),
    "votes": ("uci-house-votes-84/*.npz", 435, 16),
    "zoo": ("uci-zoo/*.npz", 101, 21),
    "bci": ("ecology/bci-trees.npz", 50, 225),
    "dna": ("density-benchmarks/dna.npz", 1500, 180),
    "aggression": ("cognitive-diagnosis/verbal-aggression-316x24.npz", 316, 24),
    "roles": ("role-mining/healthcare.npz", 46, 46),
}


#: A product of five Boolean factors, a tenth of whose entries are flipped; none of the sets above.
PLANTED, PRODUCT = "product", {"rows": 150, "columns": 100, "rank": 5, "flip": 0.1, "seed": 0}


class Rated(NamedTuple):
    """A set of ratings: its file, the most users, and by how much ratings are divided."""

    file: str
    users: int
    coarse: int = 1


#: Of the first its publisher says what is hidden: the first of five folds.
RATED = {
    "movielens-100k": Rated("movielens-100k/ml-100k.npz", 943),
    "movielens-small": Rated("movielens-latest-small/ml-latest-small.npz", 671),
    "jokes": Rated("jester/jester-5k.npz", 1000, coarse=100),
}
#: Times that the calibration error is drawn, for its quantile by chance.
DRAWN = 500
BINS = 10
LEVEL = 0.9


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the ones and the observed entries of a file, both (rows, columns) bool."""
    with np.load(path) as file:
        rows, columns = file["shape"]

        def listed(prefix):
            found = np.zeros((rows, columns), bool)
            counts = np.diff(file[f"{prefix}indptr"])
            found[np.repeat(np.arange(rows), counts), file[f"{prefix}indices"]] = True
            return found

        if "bits" in file:
            ones = np.unpackbits(file["bits"], axis=1, count=columns, bitorder="little") > 0
        else:
            ones = listed("")
        missing = listed("mask_") if "mask_indptr" in file else np.zeros_like(ones)
    return ones, ~missing


def split(path: Path, most_rows: int, most_columns: int, seed: int = 0):
    """Return ones, the entries that are shown, and those that are hidden."""
    ones, observed = read(path)
    rng = np.random.default_rng(123 + seed)
    for axis, most in enumerate((most_rows, most_columns)):
        some = np.sort(rng.permutation(ones.shape[axis])[:most])
        ones, observed = (np.take(array, some, axis) for array in (ones, observed))
    used = (ones & observed).sum(0) >= 3
    ones, observed = ones[:, used], observed[:, used]
    hidden = observed & (rng.random(ones.shape) < 0.1)
    return ones, observed & ~hidden, hidden


def planted():
    """Return ones of a Boolean product with flips, the entries that are shown, and the hidden."""
    from bmfjax.data import generate_product

    ones = generate_product(**PRODUCT).data.dense(bool)
    hidden = np.random.default_rng(123).random(ones.shape) < 0.1
    return ones, ~hidden, hidden


def ratings(folder: Path, name: str) -> tuple[Problem, float]:
    """Return ratings as whole numbers, shown and hidden, and the unit that they have then."""
    of = RATED[name]
    with np.load(folder / of.file, allow_pickle=False) as file:
        users, items, stars = (file[key].astype(int) for key in ("user", "item", "rating"))
        unit = file["rating_scale"].item() / of.coarse if "rating_scale" in file else 1.0
        fold = file.get("fold")
    rng = np.random.default_rng(123)
    some = np.sort(rng.permutation(users.max() + 1)[: of.users])
    kept = np.isin(users, some)
    hidden = rng.random(len(users)) < 0.1 if fold is None else fold == 1
    table = np.column_stack([users, items, np.rint(stars / of.coarse).astype(int)])
    users = np.searchsorted(some, table[:, 0])
    table[:, 0] = np.where(kept, users, 0)
    shape = (len(some), int(items.max()) + 1)
    scale = (int(table[:, 2].min()), int(table[:, 2].max()))
    return Problem(table[kept & ~hidden], table[kept & hidden], shape, scale), unit


# ---- scores --------------------------------------------------------------------------------------


def calibration_error(chance, ones) -> float:
    """Return the mean distance of probabilities and shares of ones, in bins of equal width."""
    sums = np.bincount(_bins(chance), chance - ones, minlength=BINS)
    return float(np.abs(sums).sum() / len(chance))


def _bins(chance) -> np.ndarray:
    return np.clip((BINS * chance).astype(int), 0, BINS - 1)


def calibration_by_bin(chance, ones) -> dict:
    """Return of each bin how many entries it has, their mean probability, and ones."""
    bins = _bins(chance)
    number = np.bincount(bins, minlength=BINS)
    stated = np.bincount(bins, chance, minlength=BINS) / np.maximum(number, 1)
    found = np.bincount(bins, ones, minlength=BINS)
    return {
        "number": number.tolist(), "stated": np.round(stated, 4).tolist(),
        "ones": found.astype(int).tolist(),
    }  # fmt: skip


def coverage(replicates, ones, rows, columns) -> float:
    """Return how often 90 % intervals have the number of ones hidden in a row or in a column.

    `replicates` (draw, cell) are what the model thinks the cells might be. Such numbers are small
    and whole: where an end of the interval falls on one, it counts by the share of it inside, so
    that a true model has 90 %.
    """
    inside, tail = [], 0.5 * (1.0 - LEVEL)
    for lines in (rows, columns):
        _, line = np.unique(lines, return_inverse=True)
        size = line.max() + 1
        counts = np.stack([np.bincount(line, weights=one, minlength=size) for one in replicates])
        truth = np.bincount(line, weights=ones, minlength=size)
        below, here = (counts < truth).mean(0), (counts == truth).mean(0)
        share = np.minimum(below + here, 1.0 - tail) - np.maximum(below, tail)
        whole = (below > tail) & (below < 1.0 - tail)
        inside.append(np.where(here > 0, share.clip(0.0) / np.maximum(here, 1e-12), whole))
    return float(np.concatenate(inside).mean())


def scores(probability, ones, hidden, replicates=None) -> dict:
    """Return how well the hidden entries were predicted."""
    chance, truth = probability[hidden].astype(float), ones[hidden]
    ranks = chance.argsort(kind="stable").argsort(kind="stable") + 1.0
    number = truth.sum()
    pairs = number * (len(truth) - number)
    rng = np.random.default_rng(0)
    drawn = rng.random((DRAWN, len(chance))) < chance
    by_chance = [calibration_error(chance, one) for one in drawn]
    found = {
        "log_score": log_score(probability, ones, hidden),
        "auc": float((ranks[truth].sum() - number * (number + 1) / 2) / pairs),
        "calibration_error": calibration_error(chance, truth),
        "calibration_error_by_chance": float(np.quantile(by_chance, 0.95)),
        "calibration": calibration_by_bin(chance, truth),
    }
    if replicates is not None:
        by_draws = [calibration_error(chance, one) for one in replicates]
        found["calibration_error_by_draws"] = float(np.quantile(by_draws, 0.95))
    asked = drawn if replicates is None else replicates
    return found | {"coverage": coverage(asked, truth, *np.nonzero(hidden))}

"""How the panel scores held-out ratings, and the peers that predict them.

Peers choose among the options below by their error on a tenth of the training ratings, and are
fitted again on all of them. Where a peer gives one number a rating, its interval is normal, with
the error on that tenth as standard deviation: that is what a user would do. Packages of peers are
imported inside of functions.
"""

import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from benchmarks.prediction.panel_baselines import LEAST

VALIDATION = 0.1
LEVEL = 0.9
NOISES = 4
NORMAL_TAIL = 1.6449  # of the central 90 %
RANK = 10
BURN, KEPT = 60, 240


class Method(NamedTuple):
    """One program with its options, and the packages that it needs."""

    run: Callable  # (problem, seed) -> Answer
    packages: tuple[str, ...]


METHODS: dict[str, Method] = {}


def peer(name: str, *packages: str):
    """Register the function below under a name, with the packages it loads."""

    def register(run):
        METHODS[name] = Method(run, packages)
        return run

    return register


class Problem(NamedTuple):
    """Tables (rating, 3) of user, item and stars: those to learn from, and those to tell."""

    train: np.ndarray
    test: np.ndarray
    shape: tuple[int, int]
    scale: tuple[int, int] = (1, 5)


class Told(NamedTuple):
    """Means (rating,), ends of 90 % intervals (2, rating), log density or probability (rating,)."""

    mean: np.ndarray
    interval: np.ndarray
    log_score: np.ndarray


class Answer(NamedTuple):
    """What a method predicts, and what was chosen for it."""

    predicted: Any
    chosen: Mapping[str, Any]


def scores(asked: Problem, told: Told) -> dict:
    """Return error, coverage and mean log score."""
    stars = asked.test[:, 2]
    inside = (told.interval[0] <= stars) & (stars <= told.interval[1])
    return {
        "rmse": _rmse(told.mean, asked), "coverage": float(inside.mean()),
        "width": float((told.interval[1] - told.interval[0]).mean()),
        "log_score": float(told.log_score.mean()),
    }  # fmt: skip


def _rmse(mean, asked: Problem) -> float:
    return float(np.sqrt(np.mean((np.clip(mean, *asked.scale) - asked.test[:, 2]) ** 2)))


def of_draws(values, noise, test) -> Told:
    """Return what draws (draw, rating) with normal noise of deviations (draw,) tell."""
    noise = np.broadcast_to(np.asarray(noise, float), (len(values),))[:, None]
    # Several noisy values a draw, so that the ends do not depend on few random numbers.
    normal = np.random.default_rng(0).standard_normal((NOISES, *values.shape))
    noisy = (values + noise * normal).reshape(-1, values.shape[1])
    tail = 0.5 * (1 - LEVEL)
    away = (test[:, 2] - values) / noise
    density = -0.5 * away**2 - np.log(noise * np.sqrt(2 * np.pi))
    return Told(
        values.mean(0), np.quantile(noisy, (tail, 1 - tail), axis=0),
        logsumexp(density, axis=0) - np.log(len(values)),
    )  # fmt: skip


def of_point(mean, sd, test) -> Told:
    """Return what means and one standard deviation tell."""
    told = of_draws(mean[None], sd, test)
    return told._replace(interval=np.stack([mean - NORMAL_TAIL * sd, mean + NORMAL_TAIL * sd]))


def told_by(fit, asked: Problem) -> Told:
    """Return what a fit of ratings tells of those that are asked for."""
    i, j, stars = asked.test.T
    noisy = {"noisy": True, "level": LEVEL}
    log_score = np.concatenate([
        logsumexp(density, axis=0) - np.log(len(density))
        for part in np.array_split(np.arange(len(stars)), 20)
        for density in (fit._log_density(i[part], j[part], stars[part].astype(float)),)
    ])  # fmt: skip
    return Told(
        fit.predict_cells(i, j, "mean"), fit.predict_cells(i, j, "interval", **noisy), log_score
    )


# ---- peers ---------------------------------------------------------------------------------------


def grid(**options: Iterable) -> list[dict]:
    """Return all combinations of options."""
    return [
        dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())
    ]


def best_of(candidates: Iterable[dict], loss: Callable[[dict], float]) -> dict:
    """Return the candidate of least loss, of those that do not fail and have a finite one."""
    found = []
    for options in candidates:
        try:
            value = float(loss(options))
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):
            continue
        if np.isfinite(value):
            found.append((value, len(found), options))
    if not found:
        raise ValueError("no candidate could be fitted")
    return min(found)[2]


def without_a_tenth(asked: Problem, seed: int) -> Problem:
    """Return the ratings to learn from while options are chosen, and the tenth that chooses."""
    left_out = np.random.default_rng([seed, 1]).random(len(asked.train)) < VALIDATION
    return asked._replace(train=asked.train[~left_out], test=asked.train[left_out])


def _tuned(asked: Problem, seed: int, candidates, predict) -> Answer:
    """Choose options on left-out ratings; then predict from all of them.

    `predict(asked, seed, **options)` returns `Told`, or means (rating,).
    """
    part, errors = without_a_tenth(asked, seed), []

    def loss(options):
        told = predict(part, seed, **options)
        errors.append(_rmse(told.mean if isinstance(told, Told) else told, part))
        return errors[-1]

    options = best_of(candidates, loss)
    told = predict(asked, seed, **options)
    if not isinstance(told, Told):
        told = of_point(told, min(errors), asked.test)
    return Answer(told, options)


def effects_of(train, shape, damping=10.0):
    """Return level, effects of users and of items, each mean pulled towards 0 as by 10 ratings."""
    users, items, stars = train.T
    level = stars.mean()
    of_user, of_item = np.zeros(shape[0]), np.zeros(shape[1])
    for _ in range(5):
        left = stars - level - of_item[items]
        of_user = _damped(users, left, shape[0], damping)
        left = stars - level - of_user[users]
        of_item = _damped(items, left, shape[1], damping)
    return level, of_user, of_item


def _damped(lines, values, size, damping):
    return np.bincount(lines, values, size) / (np.bincount(lines, minlength=size) + damping)


@peer("effects of users and items")
def effects_alone(asked, seed):
    def predict(asked, seed):
        level, of_user, of_item = effects_of(asked.train, asked.shape)
        return level + of_user[asked.test[:, 0]] + of_item[asked.test[:, 1]]

    return _tuned(asked, seed, [{}], predict)


@peer("cmfrec CMF", "cmfrec", "pandas")
def cmfrec_cmf(asked, seed):
    import pandas as pd
    from cmfrec import CMF

    def predict(asked, seed, **options):
        table = pd.DataFrame(asked.train, columns=["UserId", "ItemId", "Rating"])
        model = CMF(random_state=seed + 1, verbose=False, nthreads=_threads(), **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(table)
        mean = np.asarray(model.predict(*asked.test.T[:2]), float)
        return np.where(np.isnan(mean), table["Rating"].mean(), mean)  # items never rated

    candidates = grid(k=(10, 40), lambda_=(5.0, 10.0, 15.0, 20.0))
    candidates += grid(k=(10, 40), lambda_=(0.05, 0.1), scale_lam=(True,))
    return _tuned(asked, seed, candidates, predict)


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@peer("SMURFF BPMF", "smurff")
def smurff_bpmf(asked, seed):
    """Normal priors; ratings less their mean, or less effects of users and items as well.

    In units of the ratings' standard deviation, which its priors of factors and the precisions that
    are tried suit.
    """
    import scipy.sparse as sp
    from smurff import FixedNoise, TrainSession

    def predict(asked, seed, rank, precision, effects):
        (users, items, stars), (i, j, _) = asked.train.T, asked.test.T
        level, of_user, of_item = effects_of(asked.train, asked.shape)
        if not effects:
            of_user, of_item = np.zeros_like(of_user), np.zeros_like(of_item)
        unit = np.std(stars)
        left = (stars - level - of_user[users] - of_item[items]) / unit
        # Ones in the test matrix: its values are not used, and zeros would not be stored.
        matrix = sp.csr_matrix((left, (users, items)), asked.shape)
        cells = sp.csr_matrix((np.ones(len(i)), (i, j)), asked.shape)
        session = TrainSession(
            priors=["normal", "normal"], num_latent=rank, burnin=BURN, nsamples=KEPT,
            num_threads=_threads(), verbose=0, seed=seed + 1,
        )  # fmt: skip
        session.addTrainAndTest(matrix, cells, FixedNoise(precision))
        session.init()
        draws, number = [], 0
        while session.step():
            number += 1
            if number > BURN and number % 3 == 0:  # reading them costs as much as a sweep
                draws.append(_last_draw(session, cells))
        add = level + of_user[i] + of_item[j]
        place = np.lexsort((j, i))
        values = np.empty((len(draws), len(i)))
        values[:, place] = draws
        return of_draws(unit * values + add, unit * precision**-0.5, asked.test)

    candidates = grid(rank=(10,), precision=(1.5, 2.0), effects=(False, True))
    return _tuned(asked, seed, candidates, predict)


def _last_draw(session, cells):
    """Return a draw of the cells, by rows and then columns."""
    found = session.getTestPredictions()
    order = sorted((tuple(cell.coords), cell.pred_1sample) for cell in found)
    return np.array([value for _, value in order])


def _one_hot(table, shape):
    import scipy.sparse as sp

    number = np.arange(len(table))
    columns = np.concatenate([table[:, 0], shape[0] + table[:, 1]])
    ones = np.ones(2 * len(table))
    return sp.csr_matrix((ones, (np.tile(number, 2), columns)), (len(table), sum(shape)))


@peer("myFM regression", "myfm")
def myfm_regression(asked, seed):
    """Users and items as groups of one-hot variables, as its documentation advises."""
    from myfm import MyFMRegressor

    def predict(asked, seed, rank):
        model = MyFMRegressor(rank=rank, random_seed=seed)
        model.fit(
            _one_hot(asked.train, asked.shape), asked.train[:, 2].astype(float),
            n_iter=BURN + KEPT, n_kept_samples=KEPT, group_shapes=list(asked.shape),
        )  # fmt: skip
        cells = _one_hot(asked.test, asked.shape)
        kept = model.predictor_.samples[::3]
        values = np.stack([draw.predict_score(cells, []) for draw in kept])
        precision = np.array([h.alpha for h in model.history_.hypers])[-KEPT:][::3]
        return of_draws(values, precision**-0.5, asked.test)

    return _tuned(asked, seed, grid(rank=(6, 10)), predict)


@peer("myFM ordered probit", "myfm")
def myfm_ordered(asked, seed):
    """Its intervals are of whole stars, and its log score is of probabilities.

    Stars that nobody gave are none: its cut points would not be apart.
    """
    from myfm import MyFMOrderedProbit

    stars, given = np.unique(asked.train[:, 2], return_inverse=True)
    model = MyFMOrderedProbit(rank=RANK, random_seed=seed)
    model.fit(
        _one_hot(asked.train, asked.shape), given, n_iter=BURN + KEPT, n_kept_samples=KEPT,
        group_shapes=list(asked.shape),
    )  # fmt: skip
    chance = model.predict_proba(_one_hot(asked.test, asked.shape))
    below, tail = np.cumsum(chance, 1), 0.5 * (1 - LEVEL)
    ends = np.stack([stars[(below >= level - 1e-9).argmax(1)] for level in (tail, 1 - tail)])
    which = np.searchsorted(stars, asked.test[:, 2]).clip(max=len(stars) - 1)
    at = np.where(np.isin(asked.test[:, 2], stars), chance[np.arange(len(chance)), which], LEAST)
    return Answer(Told(chance @ stars, ends, np.log(at)), {"rank": RANK})

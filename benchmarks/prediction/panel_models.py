"""The models of bmfjax in `panel.py`, and what their fits tell about hidden entries.

A model finds its number of factors (``rank="auto"``). One that cannot takes the one of a few whose
fit predicts a validation tenth best, as the peers choose their settings. Models of ratings have a
number of their own, and are also fitted both ways.

bmfjax is imported inside of functions: the processes of peers do not load it.
"""

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from benchmarks.prediction.panel_baselines import LEAST, log_score, validation

PACKAGE = Path(__file__).parents[2] / "bmfjax"
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Model(NamedTuple):
    """A value of bmfjax: its class, what differs from its defaults, and where its sampler is."""

    kind: str
    parameters: Mapping[str, Any] = NOTHING
    kernels: str = ""  # rooms of bmfjax, which a hash in the record is of
    finds_rank: bool = True
    own_rank: bool = False  # the number of factors that it has where none is given
    numbers: bool = False  # takes ones and zeros as numbers; the mean is the probability
    options: Mapping[str, Any] = NOTHING  # of `bmfjax.fit`


FITS = {
    "features, signed": Model("Features", {"weights": "signed"}, "kernels/features"),
    "features, positive": Model("Features", {"weights": "positive"}, "kernels/features"),
    "ormachine, two rates": Model("OrMachine", {"num_rates": 2}, "kernels/boolean"),
    "logistic, variational": Model("Logistic", {}, "variational"),
    "probit": Model("Probit", {}, "kernels/ratings"),
    "relaxed": Model("Relaxed", {}, "kernels/relaxed"),
    "ormachine, one rate": Model("OrMachine", {"num_rates": 1}, "kernels/boolean"),
    "bmfjax nmf": Model("NMF", {}, "kernels/nonnegative", numbers=True),
    "bmfjax pmf": Model("PMF", {}, "kernels/ratings", numbers=True),
    "logistic, gibbs": Model(
        "Logistic", {}, "kernels/logistic", finds_rank=False, options={"sampler": "gibbs"}
    ),
    "logistic, effects": Model(
        "Logistic", {"row_effects": True, "column_effects": True}, "variational", finds_rank=False
    ),
    "ormachine-effects": Model("OrMachineEffects", {}, "kernels/variants", finds_rank=False),
    "deep-ormachine": Model("DeepOrMachine", {}, "kernels/variants", finds_rank=False),
    "one-hot": Model("OneHot", {}, "kernels/variants", finds_rank=False),
    "hamming": Model("Hamming", {}, "kernels/variants", finds_rank=False),
}
RATINGS_FITS = {
    "pmf": Model("PMF", {}, "kernels/ratings", own_rank=True),
    "pmf, rank found": Model("PMF", {}, "kernels/ratings"),
    "pmf, rank tried": Model("PMF", {}, "kernels/ratings", finds_rank=False),
    "ordered-probit": Model("OrderedProbit", {}, "kernels/ratings", own_rank=True),
    "ordered-probit, rank tried": Model("OrderedProbit", {}, "kernels/ratings", finds_rank=False),
}
#: Numbers of factors that are tried where a fit does not find it, and the most entries for that.
RANKS, RATINGS_RANKS = (3, 8), (5, 10)
MOST_ENTRIES = 10_000


def sampler_of(model: Model) -> str:
    """Return a hash of the files that the sampler of a model is in."""
    found = hashlib.sha256()
    for path in sorted((PACKAGE / model.kernels).rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def on_processor_time() -> None:
    """Let the clock of fits count processor seconds: other work takes nothing of them then.

    It is a monotonic one, by which the compilation is waited for, too, in short turns.
    """
    time.monotonic = time.process_time


def fitted(name: str, ones, shown, options):
    """Fit a model of bmfjax; return the fit, and the number of factors that was chosen if any.

    Where numbers of factors are tried, all fits have the time of one.
    """
    model, limit = FITS[name], options.max_cpu
    if model.finds_rank:
        return _fit(model, "auto", ones, shown, options, limit), {}
    kept, left_out = validation(shown)
    limit = limit and limit / (len(RANKS) + 1)

    def score(rank) -> float:
        fit = _fit(model, rank, ones, kept, options, limit)
        return log_score(probability(model, fit), ones, left_out)

    chosen = max(RANKS, key=score)
    return _fit(model, chosen, ones, shown, options, limit), {"number": chosen}


def _fit(model: Model, rank, ones, shown, options, limit):
    import bmfjax

    values = np.where(shown, ones.astype(float), np.nan)
    value = getattr(bmfjax, model.kind)(rank, **model.parameters)
    given = {} if limit is None else {"max_time": limit}
    return bmfjax.fit(values, value, seed=options.seed, progress=False, **model.options, **given)


def probability(model: Model, fit) -> np.ndarray:
    """Return the probability of a one of each entry, (rows, columns)."""
    if model.numbers or model.kind == "Relaxed":
        return np.clip(fit.predict(kind="mean"), LEAST, 1.0 - LEAST)
    return np.asarray(fit.probability(noisy=True))


def told(fit) -> dict:
    """Return what a fit says of itself."""
    verdict = fit.verdict
    return {
        "rank": int(fit.rank), "verdict": str(verdict), "status": str(verdict.status),
        "holds": {part: verdict.holds(part) for part in ("predictions", "factors", "number")},
    }  # fmt: skip


def predicted(name: str, ones, shown, hidden, options):
    """Return probabilities, draws of the hidden entries (draw, cell) or None, and what is told."""
    fit, chosen = fitted(name, ones, shown, options)
    if options.fits is not None:
        fit.save(options.fits / f"{options.one[0]} {name}".replace(" ", "-").replace(",", ""))
    model = FITS[name]
    as_ones = not (model.numbers or model.kind == "Relaxed")
    draws = fit._replicated(*np.nonzero(hidden)) if as_ones else None
    return probability(model, fit), draws, told(fit) | chosen


def rated(name: str, asked, options):
    """Return what a model of ratings tells of the hidden ones, and of itself."""
    import bmfjax
    from benchmarks.prediction.panel_ratings import scores, told_by, without_a_tenth

    model, limit = RATINGS_FITS[name], options.max_cpu

    def fit(rank, asked):
        given = {} if limit is None else {"max_time": limit}
        data = bmfjax.Ratings(*asked.train.T, shape=asked.shape, scale=asked.scale)
        value = getattr(bmfjax, model.kind)(rank)
        return bmfjax.fit(data, value, seed=options.seed, progress=False, **given)

    def error(rank) -> float:
        return scores(part, told_by(fit(rank, part), part))["rmse"]

    rank, chosen = None if model.own_rank else "auto", {}
    if not (model.finds_rank or model.own_rank):
        limit = limit and limit / (len(RATINGS_RANKS) + 1)
        part = without_a_tenth(asked, options.seed)
        rank = min(RATINGS_RANKS, key=error)
        chosen = {"number": rank}
    found = fit(rank, asked)
    return told_by(found, asked), told(found) | chosen

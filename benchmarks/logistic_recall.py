"""Which zeros would become ones? Recall at 10 of one held-out one a row.

The protocol of Hernandez-Lobato, Houlsby, Ghahramani (2014), section 9: 2000 x 1000, the 1000
columns with most ones, rows with at least ten; one 1 of every row is held out. Synthetic: rank 10,
standard normal factors, bias -7.5. Beside the three strategies of drawing entries stand popularity,
batch variational Bayes, and, where `pip install implicit` has been run, implicit's factorisations
at rank 10, as they come and with options tuned on synthetic matrices. On the synthetic matrix there
are two ceilings: who knows all of the truth, and who knows columns and bias but infers the rows. In
the first repeats also a twentieth of the synthetic entries is hidden, and the probabilities of what
was hidden are scored.

    python benchmarks/logistic_recall.py synthetic
    python benchmarks/logistic_recall.py retail --file PATH
"""

from __future__ import annotations

import argparse
import functools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from device import parse
from jax import random
from record import write_record

from bmfjax.data import BinaryMatrix
from bmfjax.diagnostics import prediction_scores, recall_at
from bmfjax.variational import (
    LogisticPrior,
    batch_fit,
    elbo,
    entry_sampler,
    stochastic,
    usage_given_basis,
)
from bmfjax.variational import posterior as lp
from bmfjax.variational.entry_sampling import STRATEGIES

RANK, ROWS, COLUMNS, BIAS = 10, 2000, 1000, -7.5
#: Repeats in which entries are hidden too, and batch inference starts several times.
FEW = 5
#: Options of the models of the package implicit beside the rank.
IMPLICIT = {
    "implicit ALS": {},
    "implicit LMF": {},
    "implicit ALS, tuned": {"regularization": 0.1, "alpha": 20.0, "iterations": 30},
    "implicit LMF, tuned": {"regularization": 0.6, "iterations": 200},
}
RUN = jax.jit(stochastic.run, static_argnames="prior")


def synthetic(seed: int):
    """Ones, the held-out column of every row, and the truth: log odds, and basis."""
    rng = np.random.default_rng(seed)
    usage, basis = rng.normal(size=(3 * ROWS, RANK)), rng.normal(size=(COLUMNS, RANK))
    logits = usage @ basis.T + BIAS
    ones = rng.random(logits.shape) < 1.0 / (1.0 + np.exp(-logits))
    rows = np.flatnonzero(ones.sum(1) >= 10)[:ROWS]
    ones, logits = ones[rows], logits[rows]
    held_out = np.array([rng.choice(np.flatnonzero(row)) for row in ones])
    return ones, held_out, (logits, basis)


def from_file(path: Path, seed: int):
    """Ones, and the held-out columns that the file has for this repeat."""
    with np.load(path, allow_pickle=False) as file:
        ones = np.zeros([int(n) for n in file["shape"]], bool)
        ones[np.repeat(np.arange(len(ones)), np.diff(file["indptr"])), file["indices"]] = True
        return ones, file["heldout"][seed].astype(int), None


def one_repeat(ones, held_out, truth, seed: int, options) -> dict:
    training = ones.copy()
    training[np.arange(len(ones)), held_out] = False
    prior = LogisticPrior(RANK)
    level = log_odds(training.mean())
    start = lp.start(random.key(seed), ones.shape, prior, level)
    values, seen = jnp.asarray(training), jnp.ones(training.shape, bool)
    rank = functools.partial(ranked, training, held_out)
    found = {"popularity": rank(np.broadcast_to(training.mean(0), training.shape))}
    if truth is not None:
        logits, basis = truth
        found["truth known"] = rank(1.0 / (1.0 + np.exp(-logits)))
        found["rows inferred"] = rank(rows_inferred(basis, values, seen, prior))
    for name, (scores, seconds) in implicit_scores(training, seed).items():
        found[name] = rank(scores) | {"seconds": seconds}

    def figures(posterior, began):
        seconds = round(time.perf_counter() - began, 1)
        chance = np.asarray(lp.probability(*lp.all_moments(posterior)))
        bound = jax.jit(elbo, static_argnames="prior")(posterior, prior, values, seen)
        return rank(chance) | {"elbo": round(float(bound), 1), "seconds": seconds}

    chances = []
    for start_seed in range(options.starts if seed < FEW else 1):
        began = time.perf_counter()
        other = lp.start(random.key(1000 * start_seed + seed), ones.shape, prior, level)
        posterior, _ = batch_fit(
            other, values, seen, prior=prior, num_updates=options.batch_updates
        )
        chances.append(np.asarray(lp.probability(*lp.all_moments(posterior))))
        if start_seed == 0:
            found["batch"] = figures(posterior, began)
    if len(chances) > 1:
        found["batch, starts averaged"] = rank(np.mean(chances, axis=0))
    for strategy in STRATEGIES:
        began = time.perf_counter()
        state, sizes = entries_drawn(training, strategy, start, prior, seed, options.draws)
        found[strategy] = figures(state.posterior, began) | {"minibatch": sizes}
    return found


def log_odds(share: float) -> float:
    return float(np.log(share / (1.0 - share)))


def entries_drawn(training, strategy, start, prior, seed, draws):
    """The state after so many entries, and the entries of a minibatch after every tenth of them."""
    sampler, state = entry_sampler(BinaryMatrix(training), strategy), stochastic.init(start, prior)
    sizes = []
    for part in range(1, 11):
        chunks = int(draws * part / 10 / stochastic.CHUNK)
        state = RUN(random.key(seed), state, sampler, prior, chunks)
        sizes.append(int(stochastic.num_chunks(state)) * stochastic.CHUNK)
    return state, sizes


def rows_inferred(basis, values, seen, prior):
    """Probabilities where columns and bias are known, and rows are inferred from the ones left."""
    known = lp.Gaussian(jnp.asarray(basis, jnp.float32), jnp.zeros(basis.shape))
    bias = lp.Gaussian(jnp.float32(BIAS), jnp.float32(0.0))
    usage = jax.jit(usage_given_basis, static_argnames="prior")(known, bias, prior, values, seen)
    return np.asarray(lp.probability(*lp.all_moments(lp.LogisticPosterior(usage, known, bias))))


def implicit_scores(training, seed, only=tuple(IMPLICIT)) -> dict:
    """Of the models of the package implicit: scores, and the seconds of the fit."""
    try:
        from implicit.als import AlternatingLeastSquares
        from implicit.lmf import LogisticMatrixFactorization
    except ImportError:
        return {}
    found, ones = {}, scipy.sparse.csr_matrix(training.astype(np.float32))
    for name in only:
        options = IMPLICIT[name]
        kind = AlternatingLeastSquares if "ALS" in name else LogisticMatrixFactorization
        began = time.perf_counter()
        model = kind(factors=RANK, random_state=seed, **options)
        model.fit(ones, show_progress=False)
        seconds = round(time.perf_counter() - began, 1)
        found[name] = (model.user_factors @ model.item_factors.T, seconds)
    return found


def ranked(training, held_out, scores) -> dict:
    """Recall, and how held-out ones rank among all zeros of the training matrix."""
    zeros = ~training
    left_out = np.zeros_like(training)
    left_out[np.arange(len(held_out)), held_out] = True
    low, high = scores.min(), scores.max()
    order = prediction_scores(left_out[zeros], ((scores - low) / (high - low))[zeros])
    found = {"recall": recall_at(scores, training, held_out)}
    return found | {n: round(order[n], 5) for n in ("auc", "average_precision")}


def hidden_entries(seed: int, draws: float) -> dict:
    """Scores of the probabilities of hidden entries, beside those of the true probabilities."""
    ones, _, (logits, _) = synthetic(seed)
    hidden = np.random.default_rng(seed).random(ones.shape) < 0.05
    prior, matrix = LogisticPrior(RANK), np.where(hidden, np.nan, ones)
    start = lp.start(random.key(seed), ones.shape, prior, log_odds(ones.mean()))
    state, _ = entries_drawn(matrix, "biased", start, prior, seed, draws)
    predicted = np.asarray(lp.probability(*lp.all_moments(state.posterior)))
    truth = 1.0 / (1.0 + np.exp(-logits))
    scores = {"biased": predicted, "truth known": truth, "share of ones": 0 * truth + ones.mean()}
    found = {n: prediction_scores(ones[hidden], p[hidden]) for n, p in scores.items()}
    return {n: {k: round(v, 5) for k, v in s.items()} for n, s in found.items()}


def summary(repeats: list[dict]) -> dict:
    """Mean and standard error over the repeats."""
    table = {}
    for method in repeats[0]:
        table[method] = {"repeats": sum(method in r for r in repeats)}
        for figure in ("recall", "auc", "average_precision", "elbo", "seconds"):
            values = np.array([r[method][figure] for r in repeats if figure in r.get(method, ())])
            if len(values):
                table[method][figure] = round(float(values.mean()), 5)
            if len(values) > 1:
                error = values.std(ddof=1) / np.sqrt(len(values))
                table[method][f"{figure}_error"] = round(float(error), 5)
    return table


def against_uniform(repeats: list[dict]) -> dict:
    """By how much other strategies recall more than uniform draws, paired: mean and error."""
    found = {}
    for strategy in (s for s in STRATEGIES if s != "uniform"):
        gain = np.array([r[strategy]["recall"] - r["uniform"]["recall"] for r in repeats])
        error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else float("nan")
        found[strategy] = {"gain": round(float(gain.mean()), 4), "error": round(float(error), 4)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", choices=["synthetic", "retail"])
    parser.add_argument("--file", type=Path, help="the retail matrix (.npz) with held-out ones")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--draws", type=float, default=1e7, help="entries drawn in a run")
    parser.add_argument("--batch-updates", type=int, default=60)
    parser.add_argument("--starts", type=int, default=4, help="of batch inference")
    parser.add_argument("--output", type=Path)
    options = parse(parser)
    if options.data == "retail" and options.file is None:
        parser.error("retail needs --file")
    figures = {n: getattr(options, n) for n in ("repeats", "draws", "batch_updates", "starts")}
    figures |= {"table": {}, "gain": {}, "hidden": [], "each": []}
    for seed in range(options.repeats):
        made = synthetic(seed) if options.data == "synthetic" else from_file(options.file, seed)
        figures["each"].append(one_repeat(*made, seed, options))
        figures["table"] = summary(figures["each"])
        figures["gain"] = against_uniform(figures["each"])
        if options.data == "synthetic" and seed < FEW:
            figures["hidden"].append(hidden_entries(seed, options.draws))
        print(seed, {m: v["recall"] for m, v in figures["table"].items()}, flush=True)
        path = write_record(f"logistic_recall_{options.data}", figures, options.output)
    print(path)


if __name__ == "__main__":
    main()

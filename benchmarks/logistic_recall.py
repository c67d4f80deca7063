"""Which zeros would become ones? Recall at 10 of one held-out one a row.

The protocol of Hernandez-Lobato, Houlsby, Ghahramani (2014), section 9: 2000 x 1000, the 1000
columns with most ones, rows with at least ten; one 1 of every row is held out. Synthetic: rank 10,
standard normal factors, bias -7.5. Beside the three strategies of drawing entries stand popularity,
batch variational Bayes and, on the synthetic matrix, who knows all of the truth.

    python benchmarks/logistic_recall.py [--retail PATH]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from record import write_record

from bmfjax.data import BinaryMatrix
from bmfjax.diagnostics import recall_at
from bmfjax.variational import LogisticPrior, batch_fit, elbo, entry_sampler, logistic
from bmfjax.variational import logistic_posterior as lp
from bmfjax.variational.entry_sampling import STRATEGIES

RANK, ROWS, COLUMNS, BIAS = 10, 2000, 1000, -7.5


def synthetic(seed: int):
    """Ones, the held-out column of every row, and the true log odds."""
    rng = np.random.default_rng(seed)
    usage, basis = rng.normal(size=(3 * ROWS, RANK)), rng.normal(size=(COLUMNS, RANK))
    logits = usage @ basis.T + BIAS
    ones = rng.random(logits.shape) < 1.0 / (1.0 + np.exp(-logits))
    rows = np.flatnonzero(ones.sum(1) >= 10)[:ROWS]
    ones, logits = ones[rows], logits[rows]
    return ones, np.array([rng.choice(np.flatnonzero(row)) for row in ones]), logits


def from_file(path: Path, seed: int):
    """Ones, and the held-out columns that the file has for this repeat."""
    with np.load(path, allow_pickle=False) as file:
        ones = np.zeros([int(n) for n in file["shape"]], bool)
        ones[np.repeat(np.arange(len(ones)), np.diff(file["indptr"])), file["indices"]] = True
        return ones, file["heldout"][seed].astype(int), None


def one_repeat(ones, held_out, truth, seed: int, options) -> dict:
    training = ones.copy()
    training[np.arange(len(ones)), held_out] = False
    prior, share = LogisticPrior(RANK), training.mean()
    start = lp.start(random.key(seed), ones.shape, prior, float(np.log(share / (1 - share))))
    values, seen = jnp.asarray(training), jnp.ones(training.shape, bool)
    found = {"popularity": {"recall": popularity(training, held_out)}}
    if truth is not None:
        found["truth known"] = {"recall": recall_at(truth, training, held_out)}

    def figures(posterior, began):
        chance = np.asarray(lp.probability(*lp.all_moments(posterior)))
        bound = jax.jit(elbo, static_argnames="prior")(posterior, prior, values, seen)
        return {
            "recall": recall_at(chance, training, held_out), "elbo": round(float(bound), 1),
            "seconds": round(time.perf_counter() - began, 1),
        }  # fmt: skip

    began = time.perf_counter()
    posterior, _ = batch_fit(start, values, seen, prior=prior, num_updates=options.batch_updates)
    found["batch"] = figures(posterior, began)
    run = jax.jit(logistic.run, static_argnames="prior")
    for strategy in STRATEGIES:
        began = time.perf_counter()
        sampler, state = (
            entry_sampler(BinaryMatrix(training), strategy),
            logistic.init(start, prior),
        )
        sizes = []
        for part in range(1, 11):
            chunks = int(options.draws * part / 10 / logistic.CHUNK)
            state = run(random.key(seed), state, sampler, prior, chunks)
            sizes.append(round(float(state.size)))
        found[strategy] = figures(state.posterior, began) | {"minibatch": sizes}
    return found


def popularity(training, held_out) -> float:
    scores = np.broadcast_to(training.sum(0, dtype=float), training.shape)
    return recall_at(scores, training, held_out)


def summary(repeats: list[dict]) -> dict:
    """Mean and standard error over the repeats."""
    table = {}
    for method in repeats[0]:
        values = np.array([r[method]["recall"] for r in repeats])
        table[method] = {"recall": round(float(values.mean()), 4)}
        if len(values) > 1:
            error = values.std(ddof=1) / np.sqrt(len(values))
            table[method]["standard_error"] = round(float(error), 4)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--retail", type=Path, help="the retail matrix (.npz) with held-out ones")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--draws", type=float, default=1e7, help="entries drawn in a run")
    parser.add_argument("--batch-updates", type=int, default=200)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    sources = {"synthetic": synthetic}
    if options.retail is not None:
        sources["retail"] = lambda seed: from_file(options.retail, seed)
    figures = {n: getattr(options, n) for n in ("repeats", "draws", "batch_updates")}
    figures |= {"data": {}, "each": {n: [] for n in sources}}
    for seed in range(options.repeats):
        for name, source in sources.items():
            figures["each"][name].append(one_repeat(*source(seed), seed, options))
            figures["data"][name] = summary(figures["each"][name])
            print(name, seed, figures["data"][name], flush=True)
            path = write_record("logistic_recall", figures, options.output)
    print(path)


if __name__ == "__main__":
    main()

"""Plain models that hidden entries of a binary matrix are predicted with: what a fit must beat.

Each takes ones and what is observed, both (rows, columns) bool, and returns probabilities of ones.
"Tuned" ones choose their settings by a tenth of the observed entries, and are then fitted to all
of them from three seeds, whose probabilities are averaged.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import expit, logit, softmax

#: Probabilities stay this far from 0 and 1: one certain entry would decide the score.
LEAST = 0.002


def column_means(ones, observed) -> np.ndarray:
    """Predict every entry by the share of ones of its column."""
    share = ((ones & observed).sum(0) + 0.5) / (observed.sum(0) + 1.0)
    return np.broadcast_to(share, ones.shape)


def latent_classes(ones, observed, number: int, seed: int, *, iterations=200) -> np.ndarray:
    """Fit a mixture of independent columns by EM, each class drawn towards the means of columns."""
    rng, means = np.random.default_rng(seed), column_means(ones, observed)[0]
    seen, positive = observed.astype(float), (ones & observed).astype(float)
    chance = np.clip(means + 0.3 * (rng.random((number, ones.shape[1])) - 0.5), 0.02, 0.98)
    share = np.full(number, 1.0 / number)
    for _ in range(iterations):
        log_density = positive @ np.log(chance).T + (seen - positive) @ np.log1p(-chance).T
        member = softmax(log_density + np.log(share), axis=1)
        share = (member.sum(0) + 1.0) / (len(ones) + number)
        chance = (member.T @ positive + 2.0 * means) / (member.T @ seen + 2.0)
        chance = np.clip(chance, 1e-4, 1 - 1e-4)
    return member @ chance


def nonnegative(ones, observed, number: int, seed: int, *, penalty, iterations=400) -> np.ndarray:
    """Fit a nonnegative product to the observed entries by multiplicative updates."""
    rng = np.random.default_rng(seed)
    seen, positive = observed.astype(float), (ones & observed).astype(float)
    usage = 0.1 + 0.5 * rng.random((len(ones), number))
    basis = 0.1 + 0.5 * rng.random((number, ones.shape[1]))
    for _ in range(iterations):
        usage *= positive @ basis.T / ((usage @ basis * seen) @ basis.T + penalty)
        basis *= usage.T @ positive / (usage.T @ (usage @ basis * seen) + penalty)
    return np.clip(usage @ basis, 0.0, 1.0)


def logistic(ones, observed, number: int, seed: int, *, penalty, iterations=300) -> np.ndarray:
    """Fit a logistic product with effects of rows and columns: ridge steps on a quadratic bound."""
    rng, (rows, columns) = np.random.default_rng(seed), ones.shape
    # log odds = column effect + row effect + product: the first two as columns of the factors.
    usage = np.hstack([np.ones((rows, 1)), 0.1 * rng.normal(size=(rows, number + 1))])
    basis = np.hstack([np.zeros((columns, 1)), 0.1 * rng.normal(size=(columns, number + 1))])
    usage[:, 1], basis[:, 1] = 0.0, 1.0
    basis[:, 0] = logit(column_means(ones, observed)[0])
    ridge = 4.0 * penalty * np.eye(number + 1)
    of_columns = ridge.copy()
    of_columns[0, 0] = 0.01
    in_columns = [0, *range(2, number + 2)]

    def working():
        odds = usage @ basis.T
        return odds + 4.0 * np.where(observed, ones - expit(odds), 0.0)

    for _ in range(iterations):
        known = basis[:, 1:]
        rest = working() - np.outer(usage[:, 0], basis[:, 0])
        usage[:, 1:] = np.linalg.solve(known.T @ known + ridge, known.T @ rest.T).T
        known = usage[:, in_columns]
        rest = working() - np.outer(usage[:, 1], basis[:, 1])
        basis[:, in_columns] = np.linalg.solve(known.T @ known + of_columns, known.T @ rest).T
    return expit(usage @ basis.T)


def _settings(numbers, **penalties):
    names = list(penalties)
    for number, *values in itertools.product(numbers, *penalties.values()):
        yield number, dict(zip(names, values, strict=True))


#: Each with the settings that are tried.
TUNED = {
    "latent classes": (latent_classes, [*_settings((2, 4, 8, 16, 32))]),
    "logistic": (logistic, [*_settings((1, 2, 4, 8, 16), penalty=(0.5, 2.0))]),
    "nmf": (nonnegative, [*_settings((3, 6, 12, 24), penalty=(0.05, 1.0))]),
}


def log_score(probability, ones, where) -> float:
    """Return the mean log probability, in nats, of the entries `where`."""
    chance = np.clip(probability[where], 1e-6, 1 - 1e-6)
    return float(np.where(ones[where], np.log(chance), np.log1p(-chance)).mean())


def tuned(name: str, ones, observed) -> tuple[np.ndarray, dict]:
    """Return the probabilities of a tuned model, (rows, columns), and its settings."""
    model, settings = TUNED[name]
    held_out = observed & (np.random.default_rng(5).random(observed.shape) < 0.1)

    def each(shown, number, options, seeds) -> np.ndarray:
        found = [model(ones, shown, number, seed, **options) for seed in range(seeds)]
        return np.clip(found, LEAST, 1 - LEAST)

    def of(setting) -> float:
        found = each(observed & ~held_out, *setting, 2)
        return float(np.mean([log_score(chance, ones, held_out) for chance in found]))

    number, options = max(settings, key=of)
    return each(observed, number, options, 3).mean(0), {"number": number} | options

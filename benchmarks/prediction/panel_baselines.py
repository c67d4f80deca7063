"""Plain models and peers that hidden entries of a binary matrix are predicted with.

Each takes ones and what is observed, both (rows, columns) bool, and returns probabilities of ones.
"Tuned" ones choose their settings by a tenth of the observed entries, and are then fitted to all
of them, plain models from three seeds, whose probabilities are averaged. Where a peer's numbers are
no probabilities, a logistic curve from them to the ones of that tenth is fitted (Platt 1999).

Packages of peers are imported inside of functions: one that is not installed is told as that.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse
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


# ---- peers ---------------------------------------------------------------------------------------


def nbmf(ones, observed, number: int, seed: int, *, orientation) -> np.ndarray:
    """Fit the mean-parametrised binary factorisation of nbmf-mm, with its default priors."""
    from nbmf_mm import NBMF

    model = NBMF(number, orientation=orientation, max_iter=500, random_state=seed)
    model.fit(np.where(observed, ones, 0.0), mask=observed.astype(float))
    return model.W_ @ model.components_


def implicit_als(ones, observed, number: int, seed: int, *, alpha) -> np.ndarray:
    """Fit weighted least squares of the package implicit: entries not seen are zeros to it."""
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        number, regularization=0.1, alpha=alpha, iterations=30, num_threads=1, random_state=seed
    )
    model.fit(scipy.sparse.csr_matrix((ones & observed).astype(np.float32)), show_progress=False)
    return np.asarray(model.user_factors @ model.item_factors.T, float)


def cmf(ones, observed, number: int, seed: int, *, lambda_) -> np.ndarray:
    """Fit the factorisation of cmfrec to ones and zeros as numbers."""
    import pandas as pd
    from cmfrec import CMF

    rows, columns = np.nonzero(observed)
    table = {"UserId": rows, "ItemId": columns, "Rating": ones[observed].astype(float)}
    model = CMF(k=number, lambda_=lambda_, random_state=seed + 1, verbose=False, nthreads=1)
    model.fit(pd.DataFrame(table))
    everywhere = np.indices(ones.shape).reshape(2, -1)
    return np.asarray(model.predict(*everywhere), float).reshape(ones.shape)


#: Sweeps of myFM, and how many of the last count.
SWEEPS, KEPT = 100, 70


def myfm(ones, observed, number: int, seed: int) -> np.ndarray:
    """Fit the Bayesian probit factorisation of myFM by its Gibbs sampler."""
    from myfm import MyFMClassifier

    def one_hot(rows, columns):
        lines = np.stack([rows, ones.shape[0] + columns], 1).ravel()
        ends = np.arange(0, len(lines) + 1, 2)
        return scipy.sparse.csr_matrix(
            (np.ones(len(lines)), lines, ends), (len(rows), sum(ones.shape))
        )

    model = MyFMClassifier(rank=number, random_seed=seed)
    model.fit(
        one_hot(*np.nonzero(observed)), ones[observed], n_iter=SWEEPS, n_kept_samples=KEPT,
        group_shapes=list(ones.shape),
    )  # fmt: skip
    everywhere = np.indices(ones.shape).reshape(2, -1)
    return np.asarray(model.predict_proba(one_hot(*everywhere))).reshape(ones.shape)


#: Chains of NumPyro's samplers, and their lengths: those of one of the library's quicker fits.
LENGTHS = {"num_warmup": 300, "num_samples": 300, "num_chains": 1}


def _drawn(kernel, values, seed: int) -> dict:
    import jax
    from numpyro.infer import MCMC

    mcmc = MCMC(kernel, chain_method="sequential", progress_bar=False, **LENGTHS)
    mcmc.run(jax.random.key(seed), values)
    return {n: np.asarray(v) for n, v in mcmc.get_samples().items()}


def numpyro_boolean(ones, observed, number: int, seed: int) -> np.ndarray:
    """Sample a Boolean product with one rate of flips by NumPyro's Gibbs steps of single bits."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import NUTS, DiscreteHMCGibbs

    def model(values):
        rate, factors = numpyro.sample("flip_rate", dist.Uniform(0.0, 0.5)), []
        with numpyro.plate("factor", number, dim=-1):
            for name, size in zip(("usage", "basis"), ones.shape, strict=True):
                density = numpyro.sample(f"{name}_density", dist.Beta(1.0, 1.0))
                with numpyro.plate(f"{name}_lines", size, dim=-2):
                    factors.append(numpyro.sample(name, dist.Bernoulli(density)))
        covered = factors[0].astype(float) @ factors[1].astype(float).T > 0.5
        chance = dist.Bernoulli(jnp.where(covered, 1.0 - rate, rate)).mask(jnp.asarray(observed))
        with numpyro.plate("rows", len(ones), dim=-2), numpyro.plate("columns", ones.shape[1]):
            numpyro.sample("data", chance, obs=values)

    draws = _drawn(DiscreteHMCGibbs(NUTS(model), modified=True), ones.astype(float), seed)
    covered = np.einsum("drk,dck->drc", draws["usage"], draws["basis"]) > 0
    rate = draws["flip_rate"][:, None, None]
    return np.where(covered, 1 - rate, rate).mean(0)


def numpyro_logistic(ones, observed, number: int, seed: int) -> np.ndarray:
    """Sample the logistic model of bmfjax by NumPyro's NUTS."""
    from numpyro.infer import NUTS

    from bmfjax.models import logistic as model

    values = np.where(observed, ones.astype(float), np.nan)
    draws = _drawn(NUTS(lambda data: model(data, rank=number)), values, seed)
    of = zip(draws["usage"], draws["basis"], draws["bias"], strict=True)
    return np.mean([expit(usage @ basis.T + bias) for usage, basis, bias in of], 0)


# ---- how settings are chosen ---------------------------------------------------------------------


class Tuned(NamedTuple):
    """A model, the settings that are tried, seeds to try and to average, and its package."""

    model: Callable[..., np.ndarray]
    settings: list[tuple[int, dict]]
    seeds: tuple[int, int] = (2, 3)
    package: str = ""
    curve: bool = False  # its numbers are no probabilities
    slow: bool = False  # left out of large matrices


def _settings(numbers, **penalties):
    names = list(penalties)
    found = itertools.product(numbers, *penalties.values())
    return [(number, dict(zip(names, values, strict=True))) for number, *values in found]


TUNED = {
    "latent classes": Tuned(latent_classes, _settings((2, 4, 8, 16, 32))),
    "logistic": Tuned(logistic, _settings((1, 2, 4, 8, 16), penalty=(0.5, 2.0))),
    "nmf": Tuned(nonnegative, _settings((3, 6, 12, 24), penalty=(0.05, 1.0))),
    "nbmf-mm": Tuned(
        nbmf, _settings((2, 4, 8, 16), orientation=("beta-dir", "dir-beta")), (1, 1), "nbmf_mm"
    ),
    "implicit ALS": Tuned(
        implicit_als, _settings((2, 8, 24), alpha=(1.0, 5.0)), (1, 1), "implicit", True
    ),
    "cmfrec CMF": Tuned(cmf, _settings((2, 8, 24), lambda_=(1.0, 5.0)), (1, 1), "cmfrec", True),
    "myFM probit": Tuned(myfm, _settings((2, 6)), (1, 1), "myfm"),
    "NumPyro NUTS, logistic": Tuned(
        numpyro_logistic, _settings((5,)), (1, 1), "numpyro", slow=True
    ),
    "NumPyro Gibbs, Boolean product": Tuned(
        numpyro_boolean, _settings((5,)), (1, 1), "funsor", slow=True
    ),
}


def platt(told, outcome):
    """Return the logistic curve from predictions to probabilities, by Newton's method.

    Outcomes are pulled towards one half as in Platt (1999), so that the curve stays finite.
    """
    ones = outcome.sum()
    target = np.where(outcome == 1, (ones + 1) / (ones + 2), 1 / (len(outcome) - ones + 2))
    design = np.column_stack([np.ones(len(told)), told])
    weight = np.zeros(2)
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(design @ weight, -30, 30)))
        curvature = (design * (p * (1 - p))[:, None]).T @ design + 1e-6 * np.eye(2)
        weight = weight + np.clip(np.linalg.solve(curvature, design.T @ (target - p)), -5, 5)
    return lambda x: 1 / (1 + np.exp(-np.clip(weight[0] + weight[1] * x, -30, 30)))


def log_score(probability, ones, where=...) -> float:
    """Return the mean log probability, in nats, of the entries `where`; default: of all."""
    chance = np.clip(probability[where], 1e-6, 1 - 1e-6)
    return float(np.where(ones[where] > 0, np.log(chance), np.log1p(-chance)).mean())


def validation(observed) -> tuple[np.ndarray, np.ndarray]:
    """Return what is learned from while settings are chosen, and the tenth that chooses."""
    left_out = observed & (np.random.default_rng(5).random(observed.shape) < 0.1)
    return observed & ~left_out, left_out


def tuned(name: str, ones, observed) -> tuple[np.ndarray, dict]:
    """Return the probabilities of a tuned model, (rows, columns), and its settings."""
    model, settings, (tried, averaged), _, has_curve, _ = TUNED[name]
    kept, left_out = validation(observed)

    def each(shown, number, options, seeds):
        return [model(ones, shown, number, seed, **options) for seed in range(seeds)]

    def within(chance):
        return np.clip(chance, LEAST, 1 - LEAST)

    curves, losses = [], []
    for setting in settings:
        if len(settings) == 1:  # there is nothing to choose
            curves, losses = [np.asarray], [0.0]
            break
        found = each(kept, *setting, tried)
        curve = platt(found[0][left_out], ones[left_out]) if has_curve else np.asarray
        curves.append(curve)
        losses.append(-np.mean([log_score(within(curve(one)), ones, left_out) for one in found]))
    best = int(np.argmin(losses))
    number, options = settings[best]
    found = [within(curves[best](one)) for one in each(observed, number, options, averaged)]
    return np.mean(found, 0), {"number": number} | options

"""Missing entries of binary matrices: this library beside peers. A part of `peers.py`.

A fifth of the observed entries is hidden. Methods of this library have their defaults, but for the
number of draws, and are not tuned: the rank is given, or found by the fit itself. Peers choose rank
and options by their log loss on a fifth of the training entries, and are fitted again on all of
them. Where a peer predicts no probabilities, a logistic curve from its predictions to the outcomes
is fitted on that fifth (Platt 1999), which is what a user would do. scikit-learn and nimfa take no
missing entries: these are filled with the mean of their column, and then several times with what
the fit says of them.

bmfjax is imported inside of functions: the processes of peers do not load it.
"""

import functools
import itertools
import warnings
from typing import NamedTuple

import numpy as np

from benchmarks.prediction.peers_form import Answer, Registry, best_of, clocks, grid

HIDDEN, VALIDATION = 0.2, 0.2
RANKS = (2, 4, 8)
#: Name: rank of our fits, and of the samplers of NumPyro.
CASES = {"zoo": 4, "house-votes": 4, "product": 5}
ROWS, COLUMNS, FLIPS = 150, 100, 0.1
THRESHOLDS = np.linspace(0.05, 0.95, 19)
FILLS = 8
#: Of our chains: a given number of draws, so that the seconds of a shared machine change nothing.
LENGTHS = {"num_chains": 2, "num_warmup": 300, "num_samples": 300}
METHODS = Registry()


class Problem(NamedTuple):
    """A matrix (row, column), NaN where missing, what is hidden in it, and the rank of ours."""

    train: np.ndarray
    values: np.ndarray
    hidden: np.ndarray
    clean: np.ndarray | None
    rank: int

    @property
    def cells(self):
        """Rows and columns of the hidden entries."""
        return np.nonzero(self.hidden)


def problem(case: str, seed: int, shape=(ROWS, COLUMNS)) -> Problem:
    """Hide a part of a shipped matrix, or of a random Boolean product with flips."""
    import bmfjax

    if case == "product":
        made = bmfjax.generate_product(*shape, CASES[case], flip=FLIPS, seed=seed)
        data, clean = made.data, made.clean
    else:
        data, clean = bmfjax.load(case), None
    values = data.dense().astype(float)
    values[~data.observed()] = np.nan
    hidden = ~np.isnan(values) & (np.random.default_rng(seed).random(values.shape) < HIDDEN)
    return Problem(np.where(hidden, np.nan, values), values, hidden, clean, CASES[case])


def scores(asked: Problem, probability: np.ndarray) -> dict:
    """Return the scores of probabilities (row, column) of a one."""
    from bmfjax.diagnostics import prediction_scores

    kept = ~np.isnan(asked.train)
    found = prediction_scores(asked.values[asked.hidden], probability[asked.hidden])
    wrong = (probability > 0.5) != (asked.values == 1)
    errors = {"error": wrong[asked.hidden].mean(), "error_of_seen": wrong[kept].mean()}
    if asked.clean is not None:
        errors["error_of_truth"] = ((probability > 0.5) != asked.clean)[asked.hidden].mean()
    # As in the other parts, higher log scores are better.
    errors["log_score"] = -found.pop("log_loss")
    return {n: float(v) for n, v in (errors | found).items()}


# ---- this library --------------------------------------------------------------------------------


def _ours(model: str, rank: str | None = None, **options):
    """Return a method of ours; without a rank it has that of the problem."""

    def run(asked, seed):
        import bmfjax

        chosen = {"rank": rank or asked.rank} | options
        fit = bmfjax.fit(asked.train, model=model, seed=seed, progress=False, **chosen)
        # Of "relaxed" the mean of the reconstruction is the expected value of an entry.
        if model == "relaxed":
            told = _probability(fit.predict(kind="mean"))
        else:
            told = fit.probability(noisy=True) if model == "ormachine" else fit.probability()
        return Answer(told, chosen | {"verdict": str(fit.verdict)})

    return run


for _name, _method in {
    "ormachine": _ours("ormachine", **LENGTHS),
    "ormachine, rank found": _ours("ormachine", "auto", **LENGTHS),
    "logistic, variational": _ours("logistic"),
    "logistic, variational, rank found": _ours("logistic", "auto"),
    "logistic, exact sampler": _ours("logistic", sampler="gibbs", **LENGTHS),
    "probit": _ours("probit", **LENGTHS),
    "probit, rank found": _ours("probit", "auto", **LENGTHS),
    "relaxed": _ours("relaxed", **LENGTHS),
}.items():
    METHODS.add(f"bmfjax {_name}", "bmfjax.fitting")(_method)


# ---- what peers need -----------------------------------------------------------------------------


@METHODS.add("mean of the column")
def column_mean(asked, seed):
    return Answer(np.broadcast_to(_column_means(asked.train), asked.train.shape), {})


def _column_means(train):
    """Return shares of ones, with one of each added."""
    return (np.nansum(train, 0) + 1.0) / ((~np.isnan(train)).sum(0) + 2.0)


def _validation(train, seed):
    """Return a training matrix without a part of its entries, and which ones."""
    drawn = np.random.default_rng([seed, 1]).random(train.shape) < VALIDATION
    left_out = ~np.isnan(train) & drawn
    return np.where(left_out, np.nan, train), left_out


def tuned(asked: Problem, seed: int, candidates, predict, calibrate=True) -> Answer:
    """Choose options by the log loss on left-out entries; then fit again on all entries.

    `predict(train, seed, **options)` returns predictions (row, column).
    """
    part, left_out = _validation(asked.train, seed)
    outcome = asked.train[left_out]

    def curve(options):
        told = predict(part, seed, **options)[left_out]
        return platt(told, outcome) if calibrate else _probability, told

    def loss(options):
        to_probability, told = curve(options)
        p = to_probability(told)
        return -np.log(np.where(outcome == 1, p, 1.0 - p)).mean()

    began = clocks()
    options, _ = best_of(candidates, loss)
    to_probability, _ = curve(options)
    spent = tuple(clocks() - began)
    return Answer(to_probability(predict(asked.train, seed, **options)), options, spent)


def _probability(told):
    return np.clip(told, 1e-6, 1.0 - 1e-6)


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


def filled(train, fit):
    """Return what `fit(matrix, factors)` reconstructs, with missing entries filled in turn."""
    missing = np.isnan(train)
    values = np.where(missing, _column_means(train), train)
    factors = None
    for _ in range(FILLS):
        factors = fit(values, factors)
        product = factors[0] @ factors[1]
        values = np.where(missing, np.clip(product, 0.0, 1.0), train)
    return factors


# ---- peers ---------------------------------------------------------------------------------------


def _nmf(train, seed, rank, alpha):
    from sklearn.decomposition import NMF

    def fit(values, factors):
        start = "nndsvda" if factors is None else "custom"
        model = NMF(rank, init=start, alpha_W=alpha, max_iter=100, random_state=seed)
        given = {} if factors is None else {"W": factors[0], "H": factors[1]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of iterations: the next fill goes on
            return model.fit_transform(values, **given), model.components_

    return filled(train, fit)


NMF_GRID = {"rank": RANKS, "alpha": (0.0, 0.001, 0.01, 0.03)}


@METHODS.add("scikit-learn NMF", "sklearn.decomposition")
def nmf(asked, seed):
    def predict(train, seed, **options):
        return np.clip(np.matmul(*_nmf(train, seed, **options)), 0.0, 1.0)

    return tuned(asked, seed, grid(**NMF_GRID), predict)


@METHODS.add("scikit-learn NMF, thresholded", "sklearn.decomposition")
def thresholded_nmf(asked, seed):
    """Both factors cut at the pair of thresholds with the fewest errors on the training entries."""

    def predict(train, seed, **options):
        usage, basis = _nmf(train, seed, **options)
        usage, basis = (f / np.maximum(f.max(0), 1e-12) for f in (usage, basis.T))
        products = [
            ((usage > low).astype(float) @ (basis > high).T.astype(float) > 0.5).astype(float)
            for low, high in itertools.product(THRESHOLDS, repeat=2)
        ]
        # A missing entry is no error of any product.
        return min(products, key=lambda product: np.nansum(np.abs(product - train)))

    return tuned(asked, seed, grid(**NMF_GRID), predict)


@METHODS.add("nimfa BMF", "nimfa")
def nimfa_bmf(asked, seed):
    # nimfa 1.4 asks for a name that NumPy 2 has no more.
    setattr(np, "mat", np.asmatrix)  # noqa: B010
    import nimfa

    def fit(values, factors, rank, growth):
        # Without zeros: its updates divide by them.
        model = nimfa.Bmf(
            values + 1e-6, rank=rank, seed="nndsvd", max_iter=100, lambda_w=growth, lambda_h=growth
        )
        found = model()
        return np.asarray(found.basis()), np.asarray(found.coef())

    def predict(train, seed, **options):
        return np.clip(np.matmul(*filled(train, functools.partial(fit, **options))), 0.0, 1.0)

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return tuned(asked, seed, grid(rank=RANKS, growth=(1.01, 1.1, 1.3)), predict)


@METHODS.add("nbmf-mm", "nbmf_mm")
def nbmf(asked, seed):
    from nbmf_mm import NBMF

    def predict(train, seed, rank, prior, orientation):
        seen = ~np.isnan(train)
        model = NBMF(rank, alpha=prior, beta=prior, orientation=orientation, random_state=seed)
        model.fit(np.where(seen, train, 0.0), mask=seen.astype(float))
        return model.W_ @ model.components_

    candidates = grid(rank=RANKS, prior=(1.0, 1.2, 2.0), orientation=("beta-dir", "dir-beta"))
    return tuned(asked, seed, candidates, predict, calibrate=False)


DISCRETE = {"num_warmup": 300, "num_samples": 300, "num_chains": 1}
CONTINUOUS = {"num_warmup": 300, "num_samples": 300, "num_chains": 2}


def _mcmc(kernel, asked, seed, **lengths):
    import jax
    from numpyro.infer import MCMC

    mcmc = MCMC(kernel, chain_method="sequential", progress_bar=False, **lengths)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one chain
        mcmc.run(jax.random.key(seed), asked.train)
    return {n: np.asarray(v) for n, v in mcmc.get_samples().items()}


def _plain_ormachine(values, rank):
    """The model of "ormachine" with its default priors, in sites that NumPyro can enumerate."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rate = numpyro.sample("flip_rate", dist.Uniform(0.0, 0.5))
    factors = {}
    with numpyro.plate("factor", rank, dim=-1):
        for name, size in zip(("usage", "basis"), values.shape, strict=True):
            density = numpyro.sample(f"{name}_density", dist.Beta(1.0, 1.0))
            with numpyro.plate(f"{name}_lines", size, dim=-2):
                factors[name] = numpyro.sample(name, dist.Bernoulli(density))
    covered = factors["usage"].astype(float) @ factors["basis"].astype(float).T > 0.5
    chance = dist.Bernoulli(jnp.where(covered, 1.0 - rate, rate))
    seen = ~jnp.isnan(values)
    with numpyro.plate("rows", values.shape[0], dim=-2), numpyro.plate("columns", values.shape[1]):
        numpyro.sample("data", chance.mask(seen), obs=jnp.where(seen, values, 0.0))


@METHODS.add("NumPyro DiscreteHMCGibbs, ormachine", "numpyro.infer", "funsor")
def discrete_gibbs(asked, seed):
    """The same model and prior as ours, by NumPyro's sampler of discrete sites."""
    from numpyro.infer import NUTS, DiscreteHMCGibbs

    bound = functools.partial(_plain_ormachine, rank=asked.rank)
    draws = _mcmc(DiscreteHMCGibbs(NUTS(bound), modified=True), asked, seed, **DISCRETE)
    probability = np.zeros(asked.train.shape)
    names = ("usage", "basis", "flip_rate")
    for usage, basis, rate in zip(*(draws[n] for n in names), strict=True):
        probability += np.where(usage.astype(int) @ basis.astype(int).T > 0, 1 - rate, rate)
    return Answer(probability / len(draws["usage"]), {"rank": asked.rank} | DISCRETE)


@METHODS.add("NumPyro NUTS, logistic", "numpyro.infer", "bmfjax.models")
def nuts(asked, seed):
    """The same model and prior as ours, by NumPyro's NUTS."""
    from numpyro.infer import NUTS

    from bmfjax.models import logistic as model

    draws = _mcmc(NUTS(functools.partial(model, rank=asked.rank)), asked, seed, **CONTINUOUS)
    probability = np.zeros(asked.train.shape)
    for usage, basis, bias in zip(*(draws[n] for n in ("usage", "basis", "bias")), strict=True):
        probability += 1 / (1 + np.exp(-(usage @ basis.T + bias)))
    return Answer(probability / len(draws["usage"]), {"rank": asked.rank} | CONTINUOUS)

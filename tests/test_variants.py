"""Variants of the Boolean model through `bmfjax.fit`: their posterior, and all that fits have."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer import Predictive
from numpyro.infer.util import log_density
from scipy.special import expit
from scipy.stats import norm

import bmfjax
from bmfjax import models
from bmfjax.cli import main
from bmfjax.data import InputError
from bmfjax.diagnostics import posterior_dataset
from bmfjax.families import ask, variants
from bmfjax.infer import new_rows, whole_rows
from tests.said import said
from tests.test_cells import fit_of

X = np.array([[1, 1, 0], [1, np.nan, 0], [0, 1, 1], [0, np.nan, 1]])
ROW, COLUMN = np.nonzero(~np.isnan(X))
QUICK = {"num_chains": 2, "num_warmup": 100, "num_samples": 1500, "progress": False}
#: Options of a quick fit of rank 2, and the model that it is of, as a function of nothing.
VARIANTS = {
    "ormachine-effects": ({}, functools.partial(models.ormachine_effects, rank=2, shape=X.shape)),
    "deep-ormachine": (
        {"model": bmfjax.DeepOrMachine(layers=[1]), "sampler": bmfjax.Gibbs(num_start=0)},
        functools.partial(models.deep_ormachine, ranks=(2, 1)),
    ),
    "one-hot": ({}, functools.partial(models.one_hot_machine, rank=2)),
    "hamming": ({}, functools.partial(models.hamming_machine, rank=2)),
}
#: Programs that take long to compile.
LONG = ("deep-ormachine", "ormachine-effects", "hamming")
EVERY = pytest.mark.parametrize(
    "model", [pytest.param(m, marks=[pytest.mark.long] * (m in LONG)) for m in VARIANTS]
)


@functools.cache
def fitted(model):
    return bmfjax.fit(X, 2, seed=1, **{"model": model} | VARIANTS[model][0] | QUICK)


def observed_one(fit):
    """The probability that an observation is a one, of every entry."""
    return fit.probability(noisy=True) if fit._noisy_kinds else fit.probability()


def chances(model, sites):
    """Whether each entry is covered, and the probability of a one: (draw, row, column)."""
    one_hot = "cluster" in sites
    usage = sites.get("usage", sites.get("usage_1"))
    usage = sites["cluster"][..., None] == np.arange(2) if one_hot else usage
    basis = sites.get("basis", sites.get("basis_1"))
    covered = np.einsum("dik,djk->dij", usage.astype(int), basis.astype(int)) > 0
    if model == "ormachine-effects":
        level = sites["row_effect"][:, :, None] + sites["column_effect"][:, None]
        level = level + sites["intercept"][:, None, None]
        size = sites["dispersion"][:, None, None]
        return covered, expit(level + np.where(covered, size, -size))
    if model == "hamming":
        one = expit(sites["dispersion"][:, None, None] * (usage @ (2 * basis - 1).swapaxes(1, 2)))
        return one, one
    rate = sites.get("flip_rate", sites.get("flip_rate_1"))[:, None, None]
    return covered, np.where(covered, 1 - rate, rate)


@EVERY
def test_probabilities_are_those_of_the_posterior(model):
    """Draws from the prior of the NumPyro model, weighted by the likelihood: no symmetry counts."""
    function = VARIANTS[model][1]
    arguments = (ROW, COLUMN) if model == "ormachine-effects" else ()
    if not arguments:
        function = functools.partial(function, shape=X.shape)
    sites = jax.jit(Predictive(function, num_samples=80_000))(random.key(0), *arguments)
    covered, one = chances(model, {n: np.asarray(v) for n, v in sites.items()})
    seen = one[:, ROW, COLUMN]
    weight = np.where(X[ROW, COLUMN] == 1, seen, 1 - seen).prod(1)
    weight /= weight.sum()
    assert 1 / (weight**2).sum() > 500
    fit = fitted(model)
    for found, expected in ((fit.probability(), covered), (observed_one(fit), one)):
        np.testing.assert_allclose(found, np.tensordot(weight, expected, 1), atol=0.08)
    cells = fit.predict_cells([1, 3], [1, 1], "probability", noisy=bool(fit._noisy_kinds))
    np.testing.assert_allclose(cells, observed_one(fit)[[1, 3], 1], rtol=1e-6)


def as_sites(model, draws):
    """One draw of a fit by the names of the model."""
    if model == "deep-ormachine":
        first = ("usage", "basis", "flip_rate", "basis_density")
        named = {f"{n}_1" if n in first else n: v for n, v in draws.items()}
        return {n.replace("usage_density_2", "usage_density"): v for n, v in named.items()}
    if model == "one-hot":
        return {"cluster": draws["usage"].argmax(-1)} | draws
    return draws


@EVERY
def test_aligned_draws_are_the_draws_by_other_names(model):
    """All that belongs to a factor moves with it: the log joint density stays."""
    fit, function = fitted(model), VARIANTS[model][1]
    arguments = (ROW, COLUMN, X[ROW, COLUMN]) if model == "ormachine-effects" else (X,)

    @jax.jit
    def joint(sites):
        return log_density(function, arguments, {}, sites)[0]

    moved = fit.draws() | {"usage": np.asarray(fit.usage_draws).astype(int)}
    for at in ((0, 3), (1, 70)):
        sites = as_sites(model, {n: jnp.asarray(np.asarray(v)[at]) for n, v in moved.items()})
        sites = {n: v.astype(int) if v.dtype.kind in "bu" else v for n, v in sites.items()}
        np.testing.assert_allclose(joint(sites), fit._kept_trace("log_joint")[at], rtol=1e-4)
    assert fit.figures.exact and np.isfinite(fit._log_prior_of_draws()).all()


@EVERY
def test_rows_that_were_fitted_are_found_again(model, monkeypatch):
    """Number of factors of a row, and its entries; single factors change places with others."""
    fit, (i, j) = fitted(model), np.indices(X.shape).reshape(2, -1)
    usage, ones = fit.transform(X), np.ones(X.size)
    np.testing.assert_allclose(usage.sum(1), fit.usage.sum(1), atol=0.08)
    chance = np.exp(fit.score_new(X, i, j, ones))
    np.testing.assert_allclose(chance, observed_one(fit).ravel(), atol=0.08)
    if model in ("deep-ormachine", "hamming"):  # by Gibbs sampling, as for many factors
        for module in (variants, new_rows):
            monkeypatch.setattr(module, "MAX_SUMMED_RANK", 0)
        np.testing.assert_allclose(fit.transform(X), usage, atol=0.08)
        np.testing.assert_allclose(np.exp(fit.score_new(X, i, j, ones)), chance, atol=0.08)


@EVERY
def test_whole_rows_of_variants_sum_to_one_and_give_their_chances(model):
    fit = fitted(model)
    rows = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
    every = np.exp(fit.score_rows(rows, num_draws=20))
    assert every.sum() == pytest.approx(1.0, rel=1e-6)
    given = np.array([[1.0, np.nan, np.nan], [np.nan, 0.0, np.nan]])
    chance = fit.complete(given, num_draws=20)
    first, second = rows[:, 0] == 1, rows[:, 1] == 0
    for row, seen, column in ((0, first, 1), (0, first, 2), (1, second, 0), (1, second, 2)):
        expected = every[seen & (rows[:, column] == 1)].sum() / every[seen].sum()
        assert chance[row, column] == pytest.approx(expected, rel=1e-6)
    # Draws count alike for single cells, which makes little difference.
    alone = np.exp(fit.score_new(given, [0], [1], [1.0]))
    assert chance[0, 1] == pytest.approx(alone[0], abs=0.05)


@pytest.mark.long
def test_effects_are_integrated_out():
    """Against the sum over far more nodes of the effect, for both sets of one factor."""
    fit = fitted("ormachine-effects")
    others = {n: v[:1, 7:8] for n, v in fit.other_draws.items()}
    fit = dataclasses.replace(fit, basis_draws=fit.basis_draws[:1, 7:8], other_draws=others)
    sd = float(others["row_precision"].ravel()[0]) ** -0.5
    nodes = np.linspace(-9 * sd, 9 * sd, 4001)
    weights = norm.pdf(nodes, scale=sd) * (nodes[1] - nodes[0])
    level = others["intercept"].ravel()[0] + others["column_effect"][0, 0]
    row, total = np.array([1.0, 0.0, 1.0]), 0.0
    for z in itertools.product([0, 1], repeat=fit.rank):
        cover = (np.asarray(fit.basis_draws[0, 0]) & np.array(z, bool)).any(1)
        one = expit(nodes[:, None] + level + others["dispersion"].ravel()[0] * (2 * cover - 1))
        density = others["usage_density"].reshape(-1)
        prior = np.prod(np.where(z, density, 1 - density))
        total += prior * (weights @ np.prod(np.where(row == 1, one, 1 - one), 1))
    # One draw is chosen of those that the usage has.
    terms = whole_rows.by_states(bmfjax.BinaryMatrix(row[None]), fit._row_states(np.array([0])), 0)
    assert next(terms).log_probability[0] == pytest.approx(np.log(total), abs=1e-6)


@EVERY
def test_axes_of_draws_have_names(model):
    own = {
        "ormachine-effects": ("row_effect", "rows"),
        "deep-ormachine": ("basis_2", "factor_2"),
        "one-hot": ("weights", "factor"),
        "hamming": ("usage_density", "factor"),
    }
    site, axis = own[model]
    assert axis in posterior_dataset(fitted(model).idata)[site].dims


@EVERY
def test_the_command_line_fits_and_reports(model, tmp_path, monkeypatch):
    table, out = tmp_path / "table.csv", tmp_path / "out"
    rows = [",".join("" if np.isnan(v) else str(int(v)) for v in row) for row in X]
    table.write_text("\n".join(rows))
    more = ["--layers", "1", "--option", "num_start=0"] if model == "deep-ormachine" else []
    few = ["--chains", "2", "--warmup", "100", "--samples", "1500", "--seed", "1", "--quiet"]
    asked = ["fit", str(table), "--no-header", "--rank", "2", "--model", model, *more, *few]
    assert main([*asked, "--output", str(out)]) == 0
    fit = bmfjax.Fit.load(out)
    np.testing.assert_array_equal(fit.draws()["usage"], fitted(model).draws()["usage"])
    page = (out / "report.html").read_text()
    own = {"ormachine-effects": "Dispersion", "deep-ormachine": "Layers", "one-hot": "Weights"}
    own["hamming"] = "ones in its code"
    assert own[model] in page


def test_chains_that_disagree_go_on_at_several_temperatures():
    """The next stage starts where the chains are, and its temperatures are those of its options."""
    request = ask(X, 2, model="one-hot", num_chains=2)
    chains = request.chains()
    run = chains.run(request)
    run.advance(3)
    following = chains.next_stage(run)
    assert "replica" in following.trace and following.phase == "sampling at 4 temperatures"
    start = following.start(False)
    np.testing.assert_array_equal(start["cluster"], run.state.inner.position["cluster"])


def test_a_layer_is_the_product_of_the_bases_below_it():
    rng = np.random.default_rng(0)
    fit = fit_of("deep-ormachine")
    chains, draws, rows, rank = fit.usage_draws.shape
    sizes = (fit.data.num_columns, rank, 4, 2)
    for n in (2, 3):
        for site, lines in (("usage", rows), ("basis", sizes[n - 1])):
            bits = rng.random((chains, draws, lines, sizes[n])) < 0.4
            fit.other_draws[f"{site}_{n}"] = bits.astype(np.uint8)
    fit.settings["layers"] = [4, 2]
    assert fit.ranks == (rank, 4, 2)
    bases = [
        np.asarray(fit.basis_draws, int),
        fit.other_draws["basis_2"],
        fit.other_draws["basis_3"],
    ]
    product = functools.reduce(lambda a, b: (a.astype(int) @ b.astype(int)) > 0, bases)
    np.testing.assert_allclose(fit.layer(3).columns, product.mean((0, 1)), atol=1e-12)
    np.testing.assert_allclose(fit.layer(2).basis, bases[1].mean((0, 1)))
    np.testing.assert_allclose(fit.layer(1).columns, fit.basis)
    order = rng.permutation(rank)
    moved = fit._in_order("basis_2", bases[1], order)
    np.testing.assert_array_equal(moved, bases[1][:, :, order])
    np.testing.assert_array_equal(fit._in_order("usage_2", bases[1], order), bases[1])
    with pytest.raises(InputError, match="the number of the layer is 4"):
        fit.layer(4)


def test_a_start_is_where_chains_begin():
    usage, basis = np.eye(4, 2), np.eye(3, 2)
    usage[2:, 0] = 1
    for model in VARIANTS:
        request = ask(X, 2, model=model, init={"usage": usage, "basis": basis}, num_chains=2)
        chains = request.chains()
        start = chains.start(False)
        first = jax.tree.map(lambda a: a[0], start)
        seen = jax.jit(chains.algorithm.init)(None, first, chains.data)
        position = variants.position_of(seen)
        words = position["basis_1" if model == "deep-ormachine" else "basis"]
        expected = basis if model == "ormachine-effects" else [[1], [2]]
        np.testing.assert_array_equal(words, expected)
        assert chains.settings["init"].startswith("given")
    # And the verdict says so, since R-hat does not show other solutions then.
    fit = bmfjax.fit(X, 2, model="one-hot", seed=1, init=request.init, **QUICK)
    assert "started from the solution that was given" in str(fit.verdict)
    assert "started from" not in str(fitted("one-hot").verdict)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("ormachine-effects", {"rank": "auto"}, "does not find the number of factors"),
        ("deep-ormachine", {"anchors": {"a": ["0"]}}, "takes no anchors"),
        ("ormachine-effects", {"priors": {"density": 1.0}}, "both parameters of a Beta"),
        ("ormachine-effects", {"priors": {"effect_precision": "a"}}, "give shape and rate"),
        ("deep-ormachine", {"priors": {"layers": []}}, "at least one and at most 4 numbers"),
        ("deep-ormachine", {"priors": {"layers": [0]}}, "a number in layers is 0"),
        ("deep-ormachine", {"priors": {"layers": "two"}}, "give the number of factors"),
        ("one-hot", {"priors": {"weights": [0.5, 0.4]}}, "do not sum to one"),
        ("one-hot", {"options": {"num_adapt": 5}}, "give inverse_temperatures"),
        (
            "one-hot", {"init": {"usage": np.ones((4, 2)), "basis": np.ones((3, 2))}},
            "a row without exactly one factor",
        ),
    ],
)  # fmt: skip
def test_what_does_not_apply_is_refused(model, options, words):
    rank = options.pop("rank", 2)
    with pytest.raises(InputError, match=words):
        ask(X, rank, **said(model, **options)).chains()


def test_what_a_fit_does_not_have_is_refused():
    with pytest.raises(InputError, match="exactly one factor, which this method does not keep"):
        fitted("one-hot").binarize("threshold")
    for refused, words in (
        (lambda fit: fit.tiles(), "has no tiles, which 'ormachine', "),
        (lambda fit: fit.binarize("pairs"), "which is of Boolean products"),
    ):
        with pytest.raises(InputError, match=words):
            refused(fit_of("hamming"))


@pytest.mark.parametrize(
    ("model", "prior"),
    [
        ("one-hot", "weights"),
        pytest.param("hamming", "usage_density", marks=pytest.mark.long),
        pytest.param("deep-ormachine", "usage_density", marks=pytest.mark.long),
    ],
)
def test_new_rows_need_what_was_learned_of_rows(model, prior):
    fit = fitted(model)
    known = {n: v for n, v in fit.other_draws.items() if not n.startswith(prior)}
    with pytest.raises(InputError, match="nothing of new rows; fit with"):
        variants.dataclasses.replace(fit, other_draws=known).transform(X)


def test_weights_of_a_dirichlet_prior_are_learned():
    prior = dist.Dirichlet(jnp.array([3.0, 1.0]))
    chains = ask(X, 2, model=bmfjax.OneHot(weights=prior)).chains()
    assert "weights" in chains.sites and "Dirichlet" in chains.settings["priors"]["weights"]
    fixed = ask(X, 2, model=bmfjax.OneHot(weights=[0.5, 0.5])).chains()
    assert "weights" not in fixed.sites

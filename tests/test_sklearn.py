"""The scikit-learn estimators: their manners by its own checks, their numbers by theory."""

import dataclasses
import functools
import importlib
import sys
from pathlib import Path
from typing import ClassVar
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

import bmfjax.sklearn
from bmfjax import InputError, RealMatrix
from bmfjax.diagnostics import Binarized
from bmfjax.families.boolean import BooleanFit
from bmfjax.fitting import fit
from bmfjax.posterior.cells import cell_draws
from bmfjax.sklearn import BooleanMF, MFImputer, NonnegativeMF, ProbitMF
from bmfjax.verdict import Verdict, with_short_warmup
from tests import small_fits
from tests.shared_fits import shared_fit
from tests.test_cells import DRAWS, fit_of

#: The estimator passes on no options of samplers; these compile in a third of the time.
quick_fit = functools.partial(fit, sampler=bmfjax.Gibbs(update="gibbs", moves=[]))
CHEAP = {"num_chains": 1, "num_warmup": 50, "num_samples": 200, "init": "random"}


@pytest.fixture(scope="module")
def tiles():
    """Two overlapping tiles, a few flips, and the fit of them."""
    rng = np.random.default_rng(0)
    usage = np.repeat([[1, 0], [0, 1], [1, 1], [0, 0]], 10, axis=0)
    basis = np.repeat([[1, 0], [0, 1], [1, 1], [0, 0]], 4, axis=0)
    X = ((usage @ basis.T > 0) ^ (rng.random((40, 16)) < 0.08)).astype(float)
    with mock.patch.object(bmfjax.sklearn, "fit", quick_fit):
        return X, BooleanMF(2, random_state=1, **CHEAP).fit(X)


def stand_in(data, rank, *, seed, **_):
    """What a fit gives, without a sampler: random bits as draws, made of the data and the seed."""
    rng = np.random.default_rng([seed, int(data.num_ones)])
    basis = rng.random((1, 20, data.num_columns, rank)) < 0.5
    usage = rng.random((1, 20, data.num_rows, rank)) < 0.5
    return BooleanFit(
        data=data,
        model="ormachine",
        sampler="gibbs",
        settings={},
        usage_draws=usage,
        basis_draws=basis,
        other_draws={
            "flip_rate": np.full((1, 20), 0.1),
            "usage_density": np.full((1, 20, rank), 0.5),
        },
        trace={},
        agreement=np.ones(rank),
        verdict=Verdict(),
        binary=Binarized(usage.mean((0, 1)) >= 0.5, basis.mean((0, 1)) >= 0.5, 0.0),
    )


# Every fit compiles for its shape: the checks, dozens of fits, are of the estimator around it.
@pytest.mark.parametrize("threshold", [0.0, 0.5])
def test_scikit_learn_accepts_the_estimator(monkeypatch, threshold):
    monkeypatch.setattr(bmfjax.sklearn, "fit", stand_in)
    results = check_estimator(BooleanMF(binarize=threshold), on_skip=None)
    passed = {r["check_name"] for r in results if r["status"] == "passed"}
    assert {"check_methods_subset_invariance", "check_fit2d_1feature"} <= passed


class Plain:
    """A fit without uncertainty, and without a sampler: usages are projections on a basis."""

    settings: ClassVar = {"stars": None}
    verdict = Verdict()

    def __init__(self, data, rank, *, seed=0, **asked):
        self.asked = {"rank": rank, **asked}
        self._basis = np.random.default_rng(seed).random((data.num_columns, rank))
        self.basis_draws = self._basis[None, None]

    def transform(self, new):
        return np.nan_to_num(new.dense(np.float64)) @ self._basis

    def _chance_given(self, usage, chain, draw):
        return 1 / (1 + np.exp(-usage @ self.basis_draws[chain, draw].T))

    def given_new(self, new):
        usage = self.transform(RealMatrix(new))
        said = lambda i, j, positions: np.einsum("ik,ik->i", usage[i], self._basis[j])  # noqa: E731
        return mock.Mock(predict_cells=said)

    def score_new(self, new, i, j, values):
        return -np.square(values - np.nan_to_num(new).mean(1)[i])


@pytest.mark.parametrize("kind", [ProbitMF(binarize=0.5), NonnegativeMF(), MFImputer()])
def test_scikit_learn_accepts_the_other_estimators(monkeypatch, kind):
    monkeypatch.setattr(bmfjax.sklearn, "fit", Plain)
    check_estimator(kind, on_skip=None)


def test_fitted_samples_transform_to_the_means_of_their_draws(tiles):
    X, bmf = tiles
    assert np.abs(bmf.transform(X) - bmf.fit_.usage).max() < 0.2  # 200 draws of each bit
    assert np.abs(bmf.transform(X) - bmf.fit_.usage).mean() < 0.02
    np.testing.assert_allclose(bmf.components_, bmf.fit_.basis.T)
    assert bmf.components_binary_.shape == bmf.components_.shape == (2, 16)


def test_the_inverse_transform_gives_back_the_probabilities_of_the_fit(tiles):
    X, bmf = tiles
    back = bmf.inverse_transform(bmf.transform(X))
    assert np.abs(back - bmf.fit_.probability()).max() < 0.15
    assert np.mean((back > 0.5) != X) < 0.15  # 8 % are flips
    ends = bmf.inverse_transform([[0, 0], [1, 0], [1, 1]])
    union = np.asarray(bmf.fit_.basis_draws[0]).any(-1).mean(0)
    np.testing.assert_allclose(ends, [np.zeros(16), bmf.components_[0], union], atol=1e-12)


def test_one_random_state_is_one_result(tiles, monkeypatch):
    monkeypatch.setattr(bmfjax.sklearn, "fit", quick_fit)
    X, bmf = tiles
    again = clone(bmf).fit(sp.csr_array(X))  # sparse or dense
    np.testing.assert_array_equal(again.components_, bmf.components_)
    thresholds = clone(bmf).set_params(binarize=2.5).fit(2 + X)
    np.testing.assert_array_equal(thresholds.transform(2 + X), bmf.transform(X))


def test_names_of_features_come_and_go(tiles, monkeypatch):
    monkeypatch.setattr(bmfjax.sklearn, "fit", stand_in)
    frame = pd.DataFrame(tiles[0], columns=[f"item {j}" for j in range(16)])
    bmf = BooleanMF(3, random_state=0).set_output(transform="pandas").fit(frame)
    assert list(bmf.transform(frame).columns) == ["booleanmf0", "booleanmf1", "booleanmf2"]
    assert list(bmf.get_feature_names_out()) == ["booleanmf0", "booleanmf1", "booleanmf2"]
    assert bmf.n_features_in_ == 16 and bmf.feature_names_in_[15] == "item 15"


@pytest.mark.parametrize(
    ("form", "threshold"), [(np.array, None), (np.array, 2), (sp.csr_array, 2)]
)
def test_missing_values_stay_missing_at_any_threshold(monkeypatch, form, threshold):
    seen = []
    monkeypatch.setattr(
        bmfjax.sklearn, "fit", lambda d, r, **o: seen.append(d) or stand_in(d, r, **o)
    )
    X = np.array([[1.0, np.nan, 0.0], [0.0, 1.0, 1.0]])
    given = form(X if threshold is None else 3 * X)
    bmf = BooleanMF(binarize=threshold).fit(given)
    np.testing.assert_array_equal(seen[0].dense(), X)
    assert np.isfinite(bmf.transform(given)).all()


@pytest.mark.parametrize(
    ("index", "named"),
    [("ab", "ab"), ("aa", None), ([0, 1], None), ([1, "1"], None), (["a", None], None)],
)
def test_samples_keep_their_names_where_each_has_one(monkeypatch, index, named):
    monkeypatch.setattr(bmfjax.sklearn, "fit", stand_in)
    data = BooleanMF().fit(pd.DataFrame(np.eye(2), index=list(index))).fit_.data
    assert data.row_names == (tuple(named) if named else ("row 1", "row 2"))


def test_without_scikit_learn_the_import_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "bmfjax.sklearn")
    with pytest.raises(ImportError, match=r"pip install 'bmfjax\[sklearn\]'"):
        importlib.import_module("bmfjax.sklearn")


@pytest.mark.parametrize("model", bmfjax.sklearn.MODELS)
def test_a_model_is_named_and_starts_with_bits_that_it_has(monkeypatch, model):
    asked = {}

    def recorded(data, rank, **options):
        asked.update(options)
        return stand_in(data, rank, **options)

    monkeypatch.setattr(bmfjax.sklearn, "fit", recorded)
    BooleanMF(2, model=model, init="random", random_state=0).fit(np.eye(6, 4))
    assert asked["model"] == model and asked["init"]["basis"].shape == (4, 2)
    assert model != "one-hot" or (asked["init"]["usage"].sum(1) == 1).all()


@pytest.mark.parametrize("model", bmfjax.sklearn.MODELS)
def test_the_inverse_transform_of_bits_is_what_they_say(model):
    """Of one draw: covered or not; of codes the probability of a one."""
    fit = fit_of(model)
    usage, basis = (np.asarray(f[1, 3], float) for f in (fit.usage_draws, fit.basis_draws))
    expected = usage @ basis.T > 0
    if model == "one-hot":
        usage = np.eye(usage.shape[1])[usage.argmax(1)] * 0.5
        expected = usage @ basis.T
    if model == "hamming":
        log_odds = usage @ (2 * basis - 1).T * fit.other_draws["dispersion"][1, 3]
        expected = 1 / (1 + np.exp(-log_odds))
    if model == "features":
        log_odds = usage @ basis.T + fit.other_draws["column_effect"][1, 3]
        expected = 1 / (1 + np.exp(-log_odds))
    np.testing.assert_allclose(fit._chance_given(usage, 1, 3), expected, atol=1e-6)


def test_no_more_components_than_the_smaller_side(monkeypatch):
    monkeypatch.setattr(bmfjax.sklearn, "fit", stand_in)
    bmf = BooleanMF(7).fit(np.eye(4, 3))
    assert bmf.n_components_ == len(bmf.components_) == 3


@pytest.mark.parametrize(
    ("X", "options", "words"),
    [
        ([[0.0, 1.0], [2.0, 1.0]], {}, "other than 0, 1 and NaN, such as 2"),
        (sp.csr_array([[0.0, 3.0], [1.0, 0.0]]), {}, "give a threshold by binarize="),
        ([[0.0, np.inf], [2.0, 1.0]], {"binarize": 0.5}, "infinity"),
        (sp.csr_array([[0.0, 3.0], [1.0, 0.0]]), {"binarize": -1.0}, "threshold of at least 0"),
        (np.eye(2), {"n_components": 0}, "n_components is 0"),
        (np.eye(2), {"n_components": True}, "n_components is True"),
        (np.eye(2), {"init": "nmf"}, "init is 'nmf'"),
        (np.eye(2), {"model": "nmf"}, "model is 'nmf'; choose from ormachine, ormachine-effects"),
    ],
)
def test_bad_input_is_refused(X, options, words):
    with pytest.raises(ValueError, match=words):
        BooleanMF(**options).fit(X)


def test_usages_that_cannot_be_are_refused(tiles):
    with pytest.raises(InputError, match=r"outside \[0, 1\]"):
        tiles[1].inverse_transform([[0.5, 1.5]])
    with pytest.raises(InputError, match="3 columns and the fit 2 components"):
        tiles[1].inverse_transform([[0.5, 0.5, 0.5]])


def test_a_model_may_be_a_value_without_a_rank():
    asked = {}

    def noted(data, rank, *, model, seed, **more):
        asked.update(rank=rank, model=model)
        return stand_in(data, rank, seed=seed)

    data, model = np.kron(np.eye(2), np.ones((4, 3))), bmfjax.OrMachine(num_rates=2)
    with mock.patch.object(bmfjax.sklearn, "fit", noted):
        BooleanMF(2, model=model, random_state=0).fit(data)
    assert asked == {"rank": 2, "model": model}
    for wrong, message in ((bmfjax.Relaxed(), "model is 'relaxed'; choose"), ("nmf", "'nmf'")):
        with pytest.raises(InputError, match=message):
            BooleanMF(2, model=wrong).fit(data)
    with pytest.raises(InputError, match="rank is 2, and the model is"):
        BooleanMF(2, model=bmfjax.OrMachine(3)).fit(data)


# ---- the score, and what follows from it ---------------------------------------------------------


@pytest.mark.parametrize("model", ["probit", "logistic"])
def test_ones_are_as_probable_as_in_rows_of_average_effect(model):
    fit = fit_of(model)
    fit.other_draws["row_effect"][:] = 0.0
    (i, j), usage = np.divmod(np.arange(18), 9), fit.usage_draws[1, 3]
    expected = fit._predicted(cell_draws(fit, i, j), {}, {})[DRAWS + 3]
    np.testing.assert_allclose(fit._chance_given(usage, 1, 3)[i, j], expected, rtol=1e-5)


def estimated(estimator, fit, X):
    """An estimator whose fit is known."""
    with mock.patch.object(bmfjax.sklearn, "fit", lambda *_, **__: fit):
        return estimator.fit(X)


def test_nonnegative_components_are_those_of_the_fit():
    X, fit = small_fits.real(), shared_fit(small_fits.real(), 2, model="nmf", **small_fits.SIZES)
    nmf = estimated(NonnegativeMF(), fit, X)
    usage = nmf.transform(X)
    np.testing.assert_allclose(usage, fit.transform(X))
    np.testing.assert_allclose(nmf.inverse_transform(usage), usage @ fit.basis.T)
    assert nmf.score(X) > nmf.score(X[:, ::-1])
    starts = with_short_warmup(fit.verdict.changed(num_warmup=0), 300, 0)
    with pytest.warns(UserWarning, match="not those of the posterior") as told:
        estimated(NonnegativeMF(), dataclasses.replace(fit, verdict=starts), X)
    assert [Path(one.filename).name for one in told] == [Path(__file__).name]


def test_what_is_missing_is_filled_in_by_what_the_fit_expects():
    X, fit = small_fits.real(), shared_fit(small_fits.real(), 2, model="pmf", **small_fits.SIZES)
    imputer = estimated(MFImputer(model=bmfjax.PMF()), fit, X)
    (i, j), done = np.nonzero(np.isnan(X)), imputer.transform(X)
    np.testing.assert_allclose(done[i, j], fit.given_new(X).predict_cells(i, j), rtol=1e-5)
    done[i, j] = np.nan
    np.testing.assert_array_equal(done, X)
    # Nothing is known of these samples: they are as the prior has them.
    none = np.full((2, 9), np.nan)
    expected = fit.given_new({"ann": {}, "bob": {}}).predict()
    np.testing.assert_allclose(imputer.transform(none), expected, rtol=1e-5)
    assert list(imputer.get_feature_names_out()) == [f"x{k}" for k in range(9)]


def test_a_star_that_was_not_fitted_counts_as_the_nearest(monkeypatch):
    """So that a fold with a rare star can be scored and filled in."""
    monkeypatch.setattr(Plain, "settings", {"stars": [1.0, 2.0, 4.0]})
    near, X = np.array([[[1.0, 4, 2, np.nan]] * 2, [[0.5, 5, 2, np.nan]] * 2])
    imputer = estimated(MFImputer(model="ordered-probit"), Plain(RealMatrix(near), 1), near)
    assert imputer.score(X) == imputer.score(near)
    np.testing.assert_array_equal(imputer.transform(X)[:, :3], X[:, :3])
    np.testing.assert_array_equal(imputer.transform(X)[:, 3], imputer.transform(near)[:, 3])


def test_the_score_is_of_entries_that_are_hidden(tiles):
    """Of each entry once, given none of its part of the features."""
    X, bmf = tiles
    X = np.where(np.random.default_rng(4).random(X.shape) < 0.1, np.nan, X)
    part, total = np.random.default_rng(0).permutation(16) % 5, 0.0
    for i, j in np.argwhere(~np.isnan(X[:6])):
        row = np.where(part == part[j], np.nan, X[i : i + 1])
        total += bmf.fit_.score_new(row, [0], [j], [X[i, j]])[0]
    assert np.isclose(bmf.score(X[:6]), total / (~np.isnan(X[:6])).sum(), rtol=1e-6)
    assert bmf.score(X) > bmf.score(1 - X)


def test_a_search_over_components_takes_the_score(monkeypatch):
    """Samples of three groups, and stand-ins whose score knows how many components there are."""
    monkeypatch.setattr(bmfjax.sklearn, "fit", Plain)
    monkeypatch.setattr(
        Plain, "score_new", lambda self, new, i, j, v: -abs(self.asked["rank"] - 3.0) - 0.0 * v
    )
    search = GridSearchCV(BooleanMF(**CHEAP), {"n_components": [1, 2, 3, 4]}, cv=3)
    with mock.patch.object(Plain, "_basis_binary", np.ones((8, 1)), create=True):
        search.fit(np.kron(np.eye(3), np.ones((4, 3)))[:, :8])
    assert search.best_params_ == {"n_components": 3} and search.best_score_ == 0.0
    asked = search.best_estimator_.fit_.asked
    assert {name: asked[name] for name in ("num_chains", "num_warmup", "num_samples")} == {
        name: CHEAP[name] for name in ("num_chains", "num_warmup", "num_samples")
    }

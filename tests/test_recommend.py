"""`Fit.recommend` and `bmfjax recommend`: against what follows from the draws one by one."""

import dataclasses
import operator
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import bmfjax
from bmfjax.cli import main
from bmfjax.data import InputError
from bmfjax.families.ratings import _matrix
from bmfjax.posterior.cells import cell_draws
from bmfjax.verdict import with_short_warmup
from tests.test_cells import ROWS, data_of, fit_of

FILMS = ("Heat", "Me, Myself", "Alien", "Fargo", "Babe", "Brazil")
HEADER = ["user", "item", "mean", "sd", "lower", "upper", "p_liked"]


def put_together(model):
    """A fit of which user 3 has rated all but Alien, Fargo and Babe, and user 4 everything."""
    full = data_of(model, len(FILMS), FILMS)
    if model == "probit":
        ones = full.dense() > 0.5
        ones[3], ones[4] = [True, True, False, False, False, True], True
        data = bmfjax.BinaryMatrix(ones, row_names=full.row_names, column_names=FILMS)
    else:
        some = ~((full.rows == 3) & np.isin(full.columns, [2, 3, 4]))
        names = {"row_names": full.row_names, "column_names": FILMS, "scale": (1, 5)}
        data = bmfjax.Ratings(full.rows[some], full.columns[some], full.values[some], **names)
    return fit_of(model, data, columns=len(FILMS))


def chance(fit, user, least):
    """P(a rating of at least `least`), (item,), draw by draw."""
    items, found = np.arange(len(FILMS)), []
    fits = cell_draws(fit, np.full(len(FILMS), user), items)
    for s, fitted in enumerate(fits):
        if fit.model == "pmf":
            precision = fit.other_draws["precision"].ravel()[s]
            found.append(ndtr((fitted - least) * precision**0.5))
        elif fit.model == "probit":
            found.append(ndtr(fitted))
        else:
            cuts = fit.other_draws["cutpoints"].reshape(len(fits), -1)[s]
            found.append(ndtr(fitted - cuts[int(least) - 2]))
    return np.mean(found, 0)


@pytest.mark.parametrize("model", ["pmf", "ordered-probit", "probit"])
@pytest.mark.parametrize("by", ["mean", "quantile", "probability"])
def test_the_best_items_not_seen_come_first(model, by):
    fit, cells = put_together(model), (np.full(6, 3), np.arange(6))
    found = fit.recommend("user 3", by=by, level=0.8)
    assert list(found.columns) == HEADER and set(found["user"]) == {"user 3"}
    assert sorted(found["item"]) == ["Alien", "Babe", "Fargo"]
    at = [FILMS.index(item) for item in found["item"]]
    low, high = fit.predict_cells(*cells, "interval", 0.8)
    known = {"mean": fit.predict_cells(*cells), "lower": low, "upper": high}
    known |= {"sd": fit.predict_cells(*cells, "sd"), "p_liked": chance(fit, 3, 4)}
    for name, values in known.items():
        np.testing.assert_allclose(found[name], values[at], rtol=1e-5)
    column = {"mean": "mean", "quantile": "lower", "probability": "p_liked"}[by]
    assert (np.diff(found[column]) <= 0).all()


def test_several_users_numbers_and_what_was_seen():
    fit = put_together("pmf")
    found = fit.recommend([3, "user 5"], k=2, seen=True, by="mean")
    assert found["user"].tolist() == ["user 3"] * 2 + ["user 5"] * 2
    assert found.equals(fit.recommend(np.array([3, 5]), 2, seen=True))
    assert len(fit.recommend(3, k=50, seen=True)) == len(FILMS)
    # Who has rated everything is recommended nothing.
    assert fit.recommend([4]).columns.tolist() == HEADER and not len(fit.recommend([4]))
    assert set(fit.recommend([3, 4])["user"]) == {"user 3"}


def many(model, items=60):
    """A fit of many items, about which it is nearly sure, without chains."""
    names = tuple(f"item {j}" for j in range(items))
    fit = fit_of(model, data_of(model, items, names), columns=items)
    rng = np.random.default_rng(5)

    def sure(drawn):
        return (0.6 * drawn[:1, :1] + 0.05 * rng.normal(size=drawn.shape)).astype("f4")

    effects = {name: sure(fit.other_draws[name]) for name in ("row_effect", "column_effect")}
    return dataclasses.replace(
        fit,
        usage_draws=sure(fit.usage_draws),
        basis_draws=sure(fit.basis_draws),
        other_draws=dict(fit.other_draws) | effects | {"intercept": np.full((2, 25), 3.2, "f4")},
    )


@pytest.mark.parametrize("model", ["pmf", "ordered-probit", "probit"])
@pytest.mark.parametrize("by", ["mean", "quantile", "probability"])
def test_of_many_items_the_best_are_found(model, by, monkeypatch):
    fit, column = many(model), {"quantile": "lower", "probability": "p_liked"}.get(by, by)
    every = fit.recommend(k=60, seen=True, by=by)  # no more than there are: all are looked at
    assert len(every) == ROWS * 60
    monkeypatch.setattr("bmfjax.posterior.recommending.BLOCK", 10_000)
    monkeypatch.setattr("bmfjax.posterior.recommending.CACHED", 100)
    monkeypatch.setattr("bmfjax.posterior.recommending.MANY_USERS", 3)
    monkeypatch.setattr("bmfjax.data.blocks.BLOCK", 10_000)
    found = fit.recommend(k=5, seen=True, by=by)
    best = every.groupby("user", sort=False).head(5).reset_index(drop=True)
    np.testing.assert_allclose(found[column], best[column], rtol=1e-5)
    assert (found["item"] == best["item"]).mean() > 0.98 and len(found) == ROWS * 5


def test_similar_items_are_rated_alike_by_users():
    fit = put_together("pmf")
    found = fit.similar_items("Heat", k=3, level=0.8)
    products = np.einsum("sik,sjk->sij", *(
        draws.reshape(-1, *draws.shape[2:]) for draws in (fit.usage_draws, fit.basis_draws)
    ))  # fmt: skip
    alike = np.array([np.corrcoef(one.T)[0] for one in products])
    order = [j for j in np.argsort(-alike.mean(0)) if j][:3]
    assert found["similar"].tolist() == [FILMS[j] for j in order]
    np.testing.assert_allclose(found["correlation"], alike.mean(0)[order], atol=1e-4)
    np.testing.assert_allclose(found["lower"], np.quantile(alike, 0.1, axis=0)[order], atol=1e-4)
    assert len(fit.similar_items()) == 6 * 5 and set(found["item"]) == {"Heat"}
    none = fit.similar_items([])
    assert none.columns.equals(found.columns) and not len(none)
    with pytest.raises(InputError, match=r"item 'Het' is not .*; the closest is 'Heat'"):
        fit.similar_items("Het")


def test_no_correlation_is_told_where_there_is_none():
    """Of an item of which the factors say nothing, and of a fit of one user."""
    fit = put_together("pmf")
    basis = fit.basis_draws.copy()
    basis[:, :, 2] = 0
    fit = dataclasses.replace(fit, basis_draws=basis)
    found = fit.similar_items("Heat")
    assert found["similar"].iloc[-1] == "Alien" and len(found) == 5
    assert found.iloc[-1, 2:].isna().all() and found.iloc[:-1, 2:].notna().all(None)
    data = bmfjax.Ratings([0] * 6, range(6), [1.0, 2.0, 3.0, 4.0, 5.0, 1.0], column_names=FILMS)
    one = dataclasses.replace(fit, data=data, usage_draws=fit.usage_draws[:, :, :1])
    with pytest.raises(InputError, match="the fit has one row, and correlations are over rows"):
        one.similar_items("Heat")


@pytest.mark.parametrize("model", ["pmf", "probit"])
def test_new_lines_are_rated_by_names(model):
    """As the array that has the same ratings, on both sides."""
    fit, value = put_together(model), {"pmf": 4.0, "probit": 1.0}[model]
    one = _matrix({"Alien": value, "Heat": 1.0}, fit, "rows")
    np.testing.assert_array_equal(one.dense(), [[1, np.nan, value] + [np.nan] * 3])
    assert one.column_names == FILMS and one.row_names == ("new row",)
    two = _matrix({"ann": {"Fargo": 1.0}, "bob": {"Heat": value}}, fit, "rows")
    assert two.row_names == ("ann", "bob") and two.dense()[1, 0] == value
    for none in (
        _matrix({"ann": {}, "bob": {}}, fit, "rows"),
        _matrix(pd.DataFrame(np.nan, ["ann", "bob"], FILMS[::-1]), fit, "rows"),
    ):
        assert none.row_names == ("ann", "bob") and none.column_names == FILMS
        assert none.num_ratings == 0
    assert _matrix(np.full((ROWS, 1), np.nan), fit, "columns").row_names == fit.data.row_names
    others = [f"other {name}" for name in FILMS]
    assert _matrix(pd.DataFrame(value, ["ann"], others), fit, "rows").column_names == tuple(others)
    film = _matrix({"user 3": value, 5: 1.0}, fit, "columns")
    assert np.flatnonzero(film.dense()[:, 0] > 0).tolist() == [3, 5]
    assert film.shape == (ROWS, 1) and film.column_names == ("new column",)
    for wrong, message in (
        ({"Aliens": 1.0}, "item 'Aliens' is not among the columns of the fit; the closest is"),
        ({"ann": {"Heat": 1.0}, "Heat": 1.0}, "new mixes ratings and lines of ratings"),
        ([{"Heat": 1.0}, {"Alien": 1.0}], "new is a list of mappings; give one mapping"),
        ({}, "or has none"),
    ):
        with pytest.raises(InputError, match=message):
            _matrix(wrong, fit, "rows")


def test_what_counts_as_high_may_be_chosen():
    stars, numbers = put_together("ordered-probit"), put_together("pmf")
    for fit, least in ((stars, 3), (stars, 2.5), (numbers, 2.5)):
        found = fit.recommend("user 3", by="probability", least=least)
        at = [FILMS.index(item) for item in found["item"]]
        least = np.ceil(least) if fit is stars else least
        np.testing.assert_allclose(found["p_liked"], chance(fit, 3, least)[at], rtol=1e-5)


@pytest.mark.parametrize("model", ["pmf", "ordered-probit"])
def test_the_scale_is_that_of_the_fit_where_nothing_is_rated(model):
    fit = put_together(model)
    empty = bmfjax.Ratings.without_any(
        fit.data.shape, row_names=fit.data.row_names, column_names=FILMS
    )
    settings = dict(fit.settings) | {"scale": None}
    if model == "pmf":
        settings |= {"rating_range": [1.0, 5.0]}  # of given_new; the other model has its stars
    found = dataclasses.replace(fit, data=empty, settings=settings).recommend(3, k=6)
    at = [FILMS.index(item) for item in found["item"]]
    np.testing.assert_allclose(found["p_liked"], chance(fit, 3, 4)[at], rtol=1e-5)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            "pmf",
            {"user": "usr 3"},
            r"user 'usr 3' is not among the rows of the fit; the closest are",
        ),
        ("pmf", {"user": ["user 1", "Zoe"]}, r"'Zoe' is not .*; users are 'user 0', 'user 1', "),
        ("pmf", {"user": ROWS}, f"row {ROWS} is outside 0 to {ROWS - 1}"),
        ("pmf", {"k": 0}, "k is 0"),
        ("pmf", {"seen": 1}, "seen is 1; give True or False"),
        ("pmf", {"by": "median"}, "by is 'median'; choose 'mean', 'quantile' or 'probability'"),
        ("pmf", {"level": 1}, "level is 1"),
        ("pmf", {"least": 6}, "least is 6; give a rating from 1 to 5"),
        ("pmf", {"least": "4"}, "least is '4'; give a rating"),
        ("probit", {"least": 1}, "least is 1, and model 'probit' is of ones: leave it out"),
        ("nmf", {}, "model 'nmf' has no recommend, which 'pmf', "),
    ],
)
def test_bad_options_are_refused_in_a_sentence(model, options, message):
    fit = fit_of(model) if model == "nmf" else put_together(model)
    with pytest.raises(InputError, match=message) as refused:
        fit.recommend(**{"user": 3} | options)
    assert "\n" not in str(refused.value)


def test_the_command_writes_what_the_fit_recommends(tmp_path, capsys):
    directory = put_together("pmf").save(tmp_path / "films")
    fit, table = bmfjax.Fit.load(directory), tmp_path / "found.csv"
    words = ["recommend", str(directory), "--user", "user 3", "--user", "user 5"]
    more = ["-k", "2", "--by", "probability", "--least", "3.5", "--seen", "--output", str(table)]
    assert main([*words, *more]) == 0
    expected = fit.recommend(["user 3", "user 5"], 2, seen=True, by="probability", least=3.5)
    pd.testing.assert_frame_equal(pd.read_csv(table), expected, rtol=1e-6, check_dtype=False)
    assert main([*words, *more]) == 2  # it is there
    assert main([*words, *more, "--overwrite"]) == 0
    capsys.readouterr()
    assert main(words) == main([*words[:2], "-k", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Alien" in said and "p liked: probability of at least 4" in said  # of 1 to 5
    assert main([*words[:2], "--user", "usr 3"]) == 2
    said = capsys.readouterr().err
    assert "the closest are 'user 3'" in said and said.count("\n") == 1


def test_what_a_run_without_draws_says_comes_with_a_warning(tmp_path, capsys):
    """Once a fit; of the command line on standard error. Its page has the verdict."""
    fit = put_together("pmf")
    judged = with_short_warmup(fit.verdict.changed(num_warmup=0), 300, 0)
    for ask in (
        lambda fit: fit.recommend(3, k=1),
        lambda fit: fit.similar_items(1, k=1),
        lambda fit: fit.predict_cells([3], [1], "interval"),
        lambda fit: fit.predict([3], [1]),
        lambda fit: fit.summary(),
        lambda fit: fit.to_frame(),
        *map(operator.attrgetter, ("usage", "basis", "usage_sd", "basis_sd", "spread", "idata")),
        lambda fit: fit.rank_probabilities,
        lambda fit: fit.draws(),
        lambda fit: fit.to_arviz(),
        lambda fit: fit.plot.factors(),
    ):
        cut = dataclasses.replace(fit, verdict=judged)
        cut._repr_html_()  # which has the verdict
        with pytest.raises(InputError):  # and no warning
            cut.predict(kind="median")
        with pytest.raises(InputError, match="one chain"):
            cut.stacked()
        with pytest.warns(UserWarning, match="draws repeat where chains began; means") as told:
            ask(cut)
            ask(cut)
        assert [Path(one.filename).name for one in told] == [Path(__file__).name]
        assert "not those of the posterior. Next, fit again with more time" in str(told[0].message)
        ask(fit)  # an error, were it to warn
    codes = dataclasses.replace(fit_of("hamming"), verdict=judged)
    for ask in (
        lambda fit: fit.binarize(),
        lambda fit: fit.log_odds([0], [1]),
    ):
        with pytest.warns(UserWarning, match="draws repeat where chains began; means"):
            ask(dataclasses.replace(codes))
    directory = dataclasses.replace(fit, verdict=judged).save(tmp_path / "cut")
    (tmp_path / "cells.csv").write_text("user 3,Heat\n")
    for words in (["recommend", str(directory)], ["predict", str(directory), "--cells"]):
        words += [str(tmp_path / "cells.csv")] * (words[0] == "predict")
        with warnings.catch_warnings():  # as for a user, to whom they are no errors
            warnings.simplefilter("default")
            assert main(words) == 0
        assert capsys.readouterr().err.count("are not those of the posterior") == 1
    with pytest.raises(InputError, match="no draws to check"):
        dataclasses.replace(fit, verdict=judged).check()

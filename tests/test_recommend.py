"""`Fit.recommend` and `bmfjax recommend`: against what follows from the draws one by one."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import bmfjax
from bmfjax.cli import main
from bmfjax.data import InputError
from bmfjax.posterior.cells import cell_draws
from tests.test_cells import ROWS, data_of, fit_of

FILMS = ("Heat", "Me, Myself", "Alien", "Fargo", "Babe", "Brazil")
HEADER = ["user", "item", "mean", "sd", "lower", "upper", "probability"]


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
    known |= {"sd": fit.predict_cells(*cells, "sd"), "probability": chance(fit, 3, 4)}
    for name, values in known.items():
        np.testing.assert_allclose(found[name], values[at], rtol=1e-5)
    column = {"mean": "mean", "quantile": "lower", "probability": "probability"}[by]
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


def test_what_counts_as_high_may_be_chosen():
    stars, numbers = put_together("ordered-probit"), put_together("pmf")
    for fit, least in ((stars, 3), (stars, 2.5), (numbers, 2.5)):
        found = fit.recommend("user 3", by="probability", least=least)
        at = [FILMS.index(item) for item in found["item"]]
        least = np.ceil(least) if fit is stars else least
        np.testing.assert_allclose(found["probability"], chance(fit, 3, least)[at], rtol=1e-5)


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
    np.testing.assert_allclose(found["probability"], chance(fit, 3, 4)[at], rtol=1e-5)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            "pmf",
            {"user": "usr 3"},
            r"user 'usr 3' is not among the rows of the fit; the closest ar",
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
    assert main(words) == 0
    assert "Alien" in capsys.readouterr().out
    assert main([*words[:2], "--user", "usr 3"]) == 2
    said = capsys.readouterr().err
    assert "the closest are 'user 3'" in said and said.count("\n") == 1

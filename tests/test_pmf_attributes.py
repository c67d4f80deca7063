"""bmfjax.fit of ratings with attributes of rows and columns: cold starts, files, refusals."""

import functools

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import ndtr

import bmfjax
from bmfjax import cli
from bmfjax.data import InputError
from bmfjax.data.attributes import (
    load_attributes,
    names_of_fields,
    read_attributes,
    standardised,
)
from bmfjax.families import ask
from bmfjax.posterior.cells import cell_draws, noise_sd
from tests.said import said

ROWS, COLD, COLUMNS = 60, 15, 20
SMALL = {"rank": 1, "model": "pmf", "num_chains": 2, "num_warmup": 100, "num_samples": 100}
KNOWN = SMALL | {"progress": False, "model": bmfjax.PMF(rated="columns")}


@functools.cache
def problem():
    """(ratings without those of the last rows, attributes of all rows, fits)."""
    rng = np.random.default_rng(0)
    age, job = rng.normal(40, 12, ROWS + COLD), rng.choice(["clerk", "nurse", "smith"], ROWS + COLD)
    x = np.c_[(age - 40) / 12, job == "nurse"]
    usage = x @ [1.0, 1.0] + 0.25 * rng.normal(size=len(x))
    effect = x @ [0.3, -1.0] + 0.25 * rng.normal(size=len(x))
    fits = 3.0 + effect[:, None] + np.outer(usage, rng.normal(size=COLUMNS))
    seen = rng.random(fits.shape) < 0.5
    seen[ROWS:] = False
    i, j = np.nonzero(seen)
    names = [f"user {k}" for k in range(len(x))]
    data = bmfjax.Ratings(
        i, j, (fits + 0.3 * rng.normal(size=fits.shape))[seen], row_names=names, shape=fits.shape
    )
    table = pd.DataFrame({"age": age, "job": job}, index=names)
    return data, table.iloc[rng.permutation(len(x))], fits


def warm():
    """The rows with ratings, in an order of their own."""
    data, table, _ = problem()
    kept = bmfjax.Ratings(
        data.rows, data.columns, data.values, row_names=data.row_names[:ROWS], shape=(ROWS, COLUMNS)
    )
    return kept, table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The checkpoint of `fitted`."""
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def fitted(folder):
    data, table = warm()
    return bmfjax.fit(data, checkpoint=folder, row_attributes=table, **KNOWN)


def test_cold_rows_are_predicted_from_their_attributes(fitted):
    """Without attributes nothing tells rows apart that have no ratings."""
    _, table, fits = problem()
    cold, truth = table.loc[[f"user {k}" for k in range(ROWS, ROWS + COLD)]], fits[-COLD:]
    found = fitted.given_new(None, attributes=cold)
    assert found.data.row_names == tuple(cold.index) and found.data.shape == (COLD, COLUMNS)
    apart = found.predict() - truth
    blind = fitted.predict().mean(0) - truth
    assert np.sqrt(np.mean(apart**2)) < 0.5 < 0.9 < np.sqrt(np.mean(blind**2))
    low, high = found.predict(kind="interval", level=0.9)
    assert 0.8 < np.mean((low < truth) & (truth < high)) < 0.99


def test_ratings_of_new_rows_add_to_their_attributes(fitted):
    """Of rows of the fit: what is drawn anew is what the fit has drawn."""
    fit, (data, table) = fitted, warm()
    again = fit.given_new(data, attributes=table)
    np.testing.assert_allclose(again.predict(), fit.predict(), atol=0.15)
    spread = again.predict(kind="sd") / fit.predict(kind="sd")
    assert 0.85 < spread.mean() < 1.15


def test_coefficients_are_those_of_the_attributes_as_they_were_given(fitted):
    fit = fitted
    table = fit.coefficients()
    assert list(table.index) == ["age", "job=clerk", "job=nurse", "job=smith"]
    assert list(table.columns) == ["effect", "effect_sd", "factor_1", "factor_1_sd"]
    # A factor and an effect share what an attribute adds to the mean of a row's fits.
    slope = table["factor_1"] * fit.basis.mean() + table["effect"]
    assert slope["age"] * 12 == pytest.approx(mean_slopes()[0], abs=0.25)
    assert slope["job=nurse"] - slope["job=clerk"] == pytest.approx(mean_slopes()[1], abs=0.4)
    rated = fit.coefficients("columns")
    assert rated.index[0] == "rated user 0" and len(rated) == ROWS
    assert dict(fit.idata["posterior"]["usage_coefficients"].sizes)["row_attribute"] == 4


def mean_slopes():
    """What an attribute adds to the mean of a row's fits."""
    _, table, fits = problem()
    table = table.loc[list(problem()[0].row_names)]
    x = np.c_[(table["age"] - 40) / 12, table["job"] == "nurse", np.ones(len(table))].astype(float)
    return np.linalg.lstsq(x, fits.mean(1), rcond=None)[0]


def test_a_fit_is_stored_and_its_run_goes_on(fitted, folder, tmp_path):
    data, table = warm()
    again = bmfjax.fit(data, checkpoint=folder, resume=True, row_attributes=table, **KNOWN)
    for name, values in fitted.draws().items():
        np.testing.assert_array_equal(again.draws()[name], values)
    with pytest.raises(InputError, match="row_attributes"):
        other = table.assign(age=np.arange(len(table)))
        bmfjax.fit(data, checkpoint=folder, resume=True, row_attributes=other, **KNOWN)
    fitted.save(tmp_path / "fit")
    loaded = bmfjax.Fit.load(tmp_path / "fit")
    pd.testing.assert_frame_equal(loaded.coefficients(), fitted.coefficients())
    cold = table.iloc[:3]
    found = [f.given_new(None, attributes=cold) for f in (fitted, loaded)]
    np.testing.assert_array_equal(*[f.predict() for f in found])
    found[0].save(tmp_path / "new")
    assert bmfjax.Fit.load(tmp_path / "new").data.num_ratings == 0
    page = fitted.report(tmp_path / "page.html").read_text()
    assert "Attributes of rows" in page


def test_new_users_are_recommended_by_the_range_that_was_fitted(fitted, tmp_path):
    table = problem()[1]
    cold = fitted.given_new(None, attributes=table.iloc[:3])
    low, high = fitted.data.range
    found = cold.recommend(0, by="probability")
    at = [cold.data.column_names.index(item) for item in found["item"]]
    fits, noise = cell_draws(cold, np.zeros(len(at), int), at), noise_sd(cold)
    expected = ndtr((fits - low - 0.75 * (high - low)) / noise[:, None]).mean(0)
    np.testing.assert_allclose(found["p_liked"], expected, rtol=1e-5)
    assert 0 < found["p_liked"].min() < found["p_liked"].max() < 1
    # New ratings do not change it, nor what is new to new lines.
    one = bmfjax.Ratings([0], [0], [low], shape=(1, COLUMNS))
    again = cold.given_new(one, attributes=table.iloc[:1].reset_index(drop=True))
    again.save(tmp_path / "again")
    for fit in (again, bmfjax.Fit.load(tmp_path / "again")):
        assert fit.recommend(0, least=high, k=1)["item"].iloc[0] in fit.data.column_names
        with pytest.raises(InputError, match=f"give a rating from {low:g} to {high:g}"):
            fit.recommend(0, least=high + 1)


# ---- reading -------------------------------------------------------------------------------------


def test_tables_arrays_and_sparse_matrices_are_read():
    table = pd.DataFrame({"x": [1.0, 2.0, 4.0], "b": [True, False, True]}, index=list("cab"))
    found = read_attributes(table, "row", "abc")
    assert names_of_fields(found.fields) == ("x", "b=False", "b=True")
    assert found.values.tolist() == [[2, 1, 0], [4, 0, 1], [1, 0, 1]]
    dense = np.array([[1.0, 0.0], [0.0, 3.0], [0.0, 5.0]])
    for given in (dense, sp.csr_array(dense), dense.tolist()):
        np.testing.assert_array_equal(read_attributes(given, "row", "abc").values, dense)
    values, centre, unit = standardised(dense)
    np.testing.assert_allclose(values * unit + centre, dense, atol=1e-12)
    assert (values**2).sum(1).mean() == pytest.approx(1.0)


def test_ids_that_count_from_zero_are_names_where_the_data_have_them():
    ages = pd.DataFrame({"age": [10.0, 20.0, 30.0]}, index=pd.Index([0, 1, 2], name="user"))
    read = functools.partial(read_attributes, side="row")
    for line_names in (["2", "0", "1"], [2, 0, 1]):
        assert read(ages, line_names=line_names).values.ravel().tolist() == [30, 10, 20]
    # Also with further lines, and without the name of the index.
    assert read(ages.set_axis([0, 1, 2]), line_names=["2", "0"]).values.tolist() == [[30], [10]]
    # What pandas counted is in the order of the data, unless it could be both.
    counted = ages.reset_index(drop=True)
    for line_names in ("abc", "012"):
        assert read(counted, line_names=line_names).values.ravel().tolist() == [10, 20, 30]
    with pytest.raises(InputError, match=r"the rows of the data have these names in another order"):
        read(counted, line_names="201")
    with pytest.raises(InputError, match="no line for row '3'"):
        read(ages, line_names="123")


def test_a_text_with_too_many_values_is_refused_before_it_is_formed(monkeypatch):
    monkeypatch.setattr("bmfjax.data.attributes._values", lambda *_: pytest.fail("formed"))
    names = [f"user {k}" for k in range(20_000)]
    with pytest.raises(InputError, match="a table of 20,000 x 20,000 is too large"):
        read_attributes(pd.DataFrame({"id": names}), "row", names)


def test_chains_have_groups_of_attributes_on_one_scale():
    data, table = warm()
    for model, link in (("pmf", "identity"), ("ordered-probit", "ordered")):
        rounded = bmfjax.Ratings(
            data.rows, data.columns, np.round(data.values), row_names=data.row_names,
            shape=data.shape,
        )  # fmt: skip
        request = ask(rounded, 2, row_attributes=table, **said(model, priors={"rated": "both"}))
        chains = request.chains()
        given, rated = chains.data.row_attributes
        assert given.left.shape == (ROWS, 3) and rated.right.shape[0] == COLUMNS
        shapes = jax.eval_shape(chains.algorithm.init, jax.random.key(0), None, chains.data)
        assert shapes.position["usage_coefficients"].shape == (4 + COLUMNS, 2)
        assert "cutpoints" in shapes.position if link == "ordered" else True


def test_the_command_line_reads_attributes(tmp_path, capsys):
    data, table = warm()
    frame = {"user": np.array(data.row_names)[data.rows], "film": data.columns, "v": data.values}
    pd.DataFrame(frame).to_csv(tmp_path / "ratings.csv", index=False)
    table.drop("user 3").to_csv(tmp_path / "users.csv", index_label="user")
    asked = [
        "fit", str(tmp_path / "ratings.csv"), "--model", "pmf", "--rank", "1", "--rated", "rows",
        "--row-attributes", str(tmp_path / "users.csv"), "--output", str(tmp_path / "fit"),
    ]  # fmt: skip
    assert cli.main(asked) == 2
    assert "row_attributes has no line for row 'user 3'; add it" in capsys.readouterr().err
    assert cli.main([*asked[:-4], "--row-attributes", str(tmp_path / "no.csv")]) == 2
    assert "there is no such file" in capsys.readouterr().err


# ---- refusals ------------------------------------------------------------------------------------

LINES = np.arange(2.0 * ROWS).reshape(ROWS, 2) ** 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"row_attributes": LINES[1:]}, "has 59 lines and the data 60 rows; give one line"),
        ({"row_attributes": LINES[:, 0]}, r"shape \(60,\); give lines x attributes"),
        ({"row_attributes": LINES * [1, 0]}, "'attribute 2' is 0 for every row, so that it tells"),
        ({"row_attributes": np.where(LINES == 4, np.nan, LINES)}, "'attribute 1' has values that"),
        ({"row_attributes": "ages"}, "a str was given; give an array, a scipy.sparse matrix or"),
        ({"column_attributes": np.ones((COLUMNS, 0))}, "column_attributes has no attributes"),
        ({"row_attributes": LINES, "rank": "auto"}, "of rows do not go with rank='auto'; leave"),
        ({"row_attributes": LINES, "model": "nmf"}, "'nmf' takes no row_attributes; .*: pmf, prob"),
        ({"priors": {"rated": "users"}}, "rated is 'users'; choose from rows, columns, b"),
        ({"priors": {"ridge": (1.0, 1.0)}}, "ridge is of attributes, and there are none"),
        (
            {"row_attributes": LINES, "mesh": jax.make_mesh((1, 1), ("chains", "rows"))},
            "attributes of rows do not go with a mesh; leave one of them out",
        ),
    ],
)
def test_what_does_not_go_with_attributes_is_refused(options, message):
    data = warm()[0] if options.get("model") != "nmf" else np.abs(LINES) + 1
    with pytest.raises(InputError, match=message):
        ask(data, **said(**{"rank": 2, "model": "pmf"} | options)).chains()


def test_which_cells_are_rated_tells_nothing_of_a_whole_matrix():
    with pytest.raises(InputError, match="every cell of the data is observed"):
        ask(LINES.T[:, :9], 2, model=bmfjax.PMF(rated="both")).chains()


def test_new_lines_are_refused_in_one_sentence(fitted):
    fit, (data, table) = fitted, warm()
    for options, message in (
        ({}, "the fit has row_attributes, and those of the new rows are needed"),
        ({"attributes": table.iloc[:3]}, "no line for row 'user 0'"),
        ({"attributes": table.drop(columns="job")}, "lack 'job', which the fit has; add it"),
        ({"attributes": table.assign(job="pilot")}, "'job' is 'pilot', which is none of the cat"),
        ({"attributes": np.ones((ROWS, 2))}, "'job' of the fit is a category; give a pandas"),
    ):
        with pytest.raises(InputError, match=message):
            fit.given_new(data, **options)
    with pytest.raises(InputError, match="new is None, and there is nothing to predict new rows"):
        fit.given_new(None)
    with pytest.raises(InputError, match="columns were given, and the fit has none"):
        fit.given_new(np.ones((ROWS, 1)), "columns", attributes=[[1.0]])


@pytest.mark.long
def test_chains_apart_have_the_draws_of_one_run(tmp_path):
    data, table = warm()
    options = KNOWN | {"num_warmup": 10, "num_samples": 20, "row_attributes": table}
    one = bmfjax.fit(data, **options)
    for chain in (1, 2):
        bmfjax.fit(data, checkpoint=tmp_path, chains=[chain], **options)
    merged = bmfjax.merge(tmp_path)
    for name, values in one.draws().items():
        np.testing.assert_array_equal(merged.draws()[name], values)
    pd.testing.assert_frame_equal(merged.coefficients(), one.coefficients())
    cold = table.loc[[f"user {ROWS}"]]
    np.testing.assert_array_equal(
        merged.given_new(None, attributes=cold).predict(),
        one.given_new(None, attributes=cold).predict(),
    )


@pytest.mark.long
@pytest.mark.parametrize("model", ["probit", "ordered-probit"])
def test_attributes_tell_marks_of_rows_without_any(model):
    """Whether a fit is above 3, or on which of five steps it is."""
    data, table = warm()
    fits = problem()[2]
    cuts = [3.0] if model == "probit" else [1.0, 2.5, 3.5, 5.0]
    marks = np.digitize(data.values, cuts) + (model != "probit")
    data = bmfjax.Ratings(
        data.rows, data.columns, marks, row_names=data.row_names, shape=data.shape
    )
    fit = bmfjax.fit(data, row_attributes=table, **SMALL | {"model": model, "progress": False})
    cold, truth = table.loc[[f"user {k}" for k in range(ROWS, ROWS + COLD)]], fits[-COLD:]
    told = fit.given_new(None, attributes=cold).predict()
    truth = np.digitize(truth, cuts) + (model != "probit")
    without = np.mean((marks.mean() - truth) ** 2)
    assert np.mean((told - truth) ** 2) < 0.5 * without


@pytest.mark.long
def test_known_columns_and_attributes_of_rows_go_together():
    data, table = warm()
    known = problem()[2][:ROWS].mean(0) - problem()[2].mean()
    anchors = pd.DataFrame({"level": known}, index=data.column_names)
    options = SMALL | {"rank": 2, "num_warmup": 50, "num_samples": 50, "progress": False}
    fit = bmfjax.fit(data, anchors=anchors, row_attributes=table, **options)
    np.testing.assert_allclose(fit.basis[:, 0], known, rtol=1e-6)
    assert list(fit.coefficients().columns)[2::2] == ["factor_1", "factor_2"]


def test_a_file_of_attributes_is_a_table_of_names_or_refused_in_one_sentence(tmp_path):
    path = tmp_path / "users.tsv"
    path.write_text("user\tage\tjob\n007\t24\tclerk\n8\t53\tnurse\n")
    table = load_attributes(path)
    assert list(table.index) == ["007", "8"]
    assert table["age"].tolist() == [24, 53] and table["job"].tolist() == ["clerk", "nurse"]
    excel = path.with_suffix(".csv")
    excel.write_text("user;age;new;age\n007;24,5;TRUE;\n8;1.053,5;FALSE;x\n", "utf-16")
    table = load_attributes(excel)
    assert table.iloc[:, 0].tolist() == [24.5, 1053.5] and list(table) == ["age", "new", "age"]
    assert table["new"].tolist() == ["TRUE", "FALSE"] and table.isna().sum().tolist() == [0, 0, 1]
    with pytest.raises(
        InputError, match=r"nobody.csv: there is no such file; give a table of names by"
    ):
        load_attributes(tmp_path / "nobody.csv")
    path.write_text("user\n8\n")
    with pytest.raises(
        InputError, match="it has 1 field a line; give a name and at least one attr"
    ):
        load_attributes(path)
    path.write_text("")
    with pytest.raises(InputError, match=r"users.tsv: the file is empty"):
        load_attributes(path)

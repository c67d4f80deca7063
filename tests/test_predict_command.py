"""`bmfjax predict` and `bmfjax transform`: tables of stored fits, one sentence for bad input."""

import csv
import dataclasses
import importlib.util
import io

import numpy as np
import pandas as pd
import pytest

import bmfjax
from bmfjax.cli import main
from bmfjax.data import InputError
from bmfjax.data.new_rows import load_new
from bmfjax.diagnostics import binarize, prediction_scores
from bmfjax.predictions import ENDINGS, HEADER, check_table_file, predictions_table, write_table
from tests.test_cells import MODELS, OF_ONES, data_of, fit_of

FILMS = ("Heat", "Me, Myself", "Alien", "Fargo")
CELLS = 'user,film,stars\nuser 3,"Me, Myself",4\n\nuser 0,Fargo,1\nuser 3,Heat,2\n'
STARS = [f"p_observed_{k}" for k in range(1, 6)]
AT = [3, 0, 3], [1, 3, 0]


def run(*arguments):
    return main([str(a) for a in arguments])


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The directory of a fit that was put together and saved: stored(model)."""
    found = {}

    def of(model):
        if model not in found:
            found[model] = put_together(model).save(tmp_path_factory.mktemp("fit") / model)
        return found[model]

    return of


@pytest.fixture
def cells(tmp_path):
    path = tmp_path / "cells.csv"
    path.write_text(CELLS)
    return path


# ---- predict -----------------------------------------------------------------------------------


def put_together(model):
    return fit_of(model, data_of(model, len(FILMS), FILMS), columns=len(FILMS), draws=8)


@pytest.mark.parametrize("model", MODELS)
def test_a_table_has_all_that_a_model_predicts(model):
    fit = put_together(model)
    table = predictions_table(fit, ["user 3", "user 0", "user 3"], AT[1], 0.5)
    assert table["row"].tolist() == ["user 3", "user 0", "user 3"]
    assert table["column"].tolist() == ["Me, Myself", "Fargo", "Heat"]
    low, high = fit.predict_cells(*AT, "interval", 0.5)
    known = {"mean": fit.predict_cells(*AT), "sd": fit.predict_cells(*AT, "sd")}
    known |= {"lower": low, "upper": high}
    log_odds = model in ("features", "logistic", "hamming")
    if log_odds:  # which a table says
        known = {f"log_odds_{name}".removesuffix("_mean"): v for name, v in known.items()}
    names = fit.predict([3], [1, 3], frame=True).columns.names
    names += fit.predict([3], [1, 3], "interval", frame=True).columns.names
    assert names == [name := "log odds" if log_odds else None, None, name]
    if model in OF_ONES:
        known["p_one"] = fit.predict_cells(*AT, "probability")
    if model == "ordered-probit":
        stars = fit.predict_cells(*AT, "probability").T
        known |= {f"p_observed_{k}": p for k, p in enumerate(stars, 1)}
    assert table.columns.tolist() == ["row", "column", *known]
    for name, values in known.items():
        np.testing.assert_array_equal(table[name], values)
    assert HEADER.fullmatch(",".join(table.columns))


def test_what_is_no_probability_is_refused_with_where_there_are_some():
    fit = put_together("features")
    ones = np.arange(fit.data.num_rows) % 2
    for refused in (
        lambda odds: prediction_scores(ones, odds[:, 0]),
        lambda odds: binarize(ones[:, None], np.ones((len(FILMS), 1)), odds),
    ):
        with pytest.raises(InputError, match=r"such as those of fit.probability\(\)"):
            refused(fit.predict())
    with pytest.raises(InputError, match=r"those of fit.probability\(\)"):
        fit.predict(kind="probability")
    with pytest.raises(InputError, match=r"or 'interval'$"):
        put_together("pmf").predict(kind="probability")


def test_cells_of_a_file_are_predicted(stored, cells, capsys):
    assert run("predict", stored("ormachine"), "--cells", cells, "--level", 0.5) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    known = predictions_table(bmfjax.Fit.load(stored("ormachine")), *AT, 0.5)
    pd.testing.assert_frame_equal(table, known, check_dtype=False, rtol=1e-6)


@pytest.mark.parametrize(
    ("model", "columns"),
    [
        ("ormachine", ["mean", "sd", "p_observed"]),
        ("logistic", ["mean", "sd", "p_observed"]),
        ("probit", ["mean", "sd", "p_observed"]),
        ("relaxed", ["mean", "sd", "lower", "upper", "p_observed"]),
        ("ordered-probit", ["mean", "sd", "lower", "upper", *STARS]),
    ],
)
def test_observations_have_the_columns_that_they_can(model, columns):
    fit = put_together(model)
    table = predictions_table(fit, *AT, noisy=True)
    assert table.columns.tolist() == ["row", "column", *columns]
    np.testing.assert_array_equal(table["mean"], fit.predict_cells(*AT, noisy=True))


def test_a_parquet_file_is_written(stored, cells, tmp_path, capsys):
    out = tmp_path / "out.parquet"
    assert run("predict", stored("nmf"), "--cells", cells, "--noisy", "--output", out) == 0
    assert f"{out}: 3 cells" in capsys.readouterr().out
    known = predictions_table(bmfjax.Fit.load(stored("nmf")), *AT, noisy=True)
    pd.testing.assert_frame_equal(pd.read_parquet(out), known, check_dtype=False)


def test_a_header_is_recognised_or_told(stored, tmp_path, capsys):
    bare, folder = tmp_path / "bare.dat", stored("nmf")
    bare.write_text("user 1::Alien\nuser 2::Heat\n")
    for words, lines in (([], 3), (["--header"], 2), (["--no-header"], 3)):
        assert run("predict", folder, "--cells", bare, *words) == 0
        assert len(capsys.readouterr().out.splitlines()) == lines
    for names in ("user,film,2024", "key2_id,film", "who,what"):
        bare.write_text(f"{names}\nuser 2,Heat\n")
        assert run("predict", folder, "--cells", bare) == 0
        assert len(capsys.readouterr().out.splitlines()) == 2
    bare.write_text("user,film\nuser 2,Heat\n")
    assert run("predict", folder, "--cells", bare, "--no-header") == 2
    assert "bare.dat: line 1: row 'user' is not in the fitted matrix" in capsys.readouterr().err


def refused(capsys, message, *arguments):
    assert run(*arguments) == 2
    told = capsys.readouterr()
    *read, said = told.err.splitlines()
    assert said.startswith("bmfjax: ") and not told.out
    assert not read or (arguments[0] == "transform" and ": read as " in read[0])
    assert message in told.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user 1,Heat\nuser 99,Heat\n", "line 2: row 'user 99' is not in the fitted matrix, whose "
         "rows are 'user 0', 'user 1', 'user 2', ...; write their names"),
        ("user,film\n\nuser 1,Cars\n", "line 3: column 'Cars' is not in the fitted matrix"),
        ("user 77,Cars\nuser 1,Heat\n", "line 1: row 'user 77' is not in the fitted matrix, whose "
         "rows are 'user 0', 'user 1', 'user 2', ...; write their names (--header if line 1 names "
         "the fields)"),
        ("user 1,Cars\n", "line 1: column 'Cars' is not in the fitted matrix"),
        ("", "is empty; give a line for each cell"),
        ("user,film\n", "there is a header alone; give a line for each cell"),
        ("user1\n", "line 1: 1 field; give row and column"),
    ],
)  # fmt: skip
def test_files_of_no_cells_are_refused(text, message, stored, cells, tmp_path, capsys):
    cells.write_text(text)
    out = tmp_path / "out.csv"
    refused(capsys, message, "predict", stored("nmf"), "--cells", cells, "--output", out)
    assert not out.exists()


def test_output_is_checked_before_anything_is_read(stored, cells, tmp_path, capsys, monkeypatch):
    def ask(message, output, *words, fit=tmp_path / "no fit"):
        refused(capsys, message, "predict", fit, "--cells", cells, "--output", output, *words)

    out = tmp_path / "out.csv"
    ask("no fit does not exist; give a directory of bmfjax fit", out)
    ask("holds no fit (no summary.json)", out, fit=tmp_path)
    ask("has the ending '.txt'; give .csv or .parquet", tmp_path / "out.txt")
    ask("is not a directory; make it", tmp_path / "none" / "out.csv")
    out.write_text("mine")
    ask("is no table of bmfjax; move it away, or give another file", out)
    ask("is what is read; give another file for the output", cells, "--overwrite")
    ask("is no table of bmfjax; move it away, or give another file", out, "--overwrite")
    out.unlink()
    assert not out.exists() and cells.read_text() == CELLS
    words = ["--cells", cells, "--output", out]
    assert run("predict", stored("nmf"), *words) == 0
    assert f"{out}: 3 cells" in capsys.readouterr().out and len(pd.read_csv(out)) == 3
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    ask("needs the package pyarrow; run pip install 'bmfjax[parquet]'", tmp_path / "out.parquet")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cells.csv", "out.csv"]


def a_prediction():
    return predictions_table(put_together("ordered-probit"), *AT)


USAGE = pd.DataFrame({"row": ["a"], "factor_1": [0.5], "factor_2": [1.0]})
MINE = [
    pd.DataFrame({"row": [1], "column": [2], "mean": [3], "note": ["mine"]}),
    pd.DataFrame({"row": [1], "column": [2]}),
    pd.DataFrame({"a": [1], "row": [2], "factor_1": [3]}),
]


@pytest.mark.parametrize("ending", ENDINGS)
def test_only_tables_of_bmfjax_are_replaced(ending, tmp_path):
    out, source = tmp_path / f"t{ending}", tmp_path / "cells.csv"

    def ask(message, overwrite=True):
        with pytest.raises(InputError, match=message):
            check_table_file(out, overwrite, source)

    def is_mine():
        before = out.read_bytes()
        ask("is no table of bmfjax; move it away, or give another file")
        # So too where it comes after the first look.
        with pytest.raises(InputError, match="is no table of bmfjax"):
            write_table(USAGE, out, True)
        assert out.read_bytes() == before and list(tmp_path.iterdir()) == [out]

    observed = [predictions_table(put_together(m), *AT, noisy=True) for m in ("logistic", "probit")]
    older = observed[0].rename(columns={"p_observed": "probability"})
    for made in (a_prediction(), *observed, older, USAGE):
        write_table(made, out, True)
        ask("already exists; give another file, or --overwrite", overwrite=False)
        with pytest.raises(InputError, match="already exists"):
            write_table(USAGE, out, False)
        check_table_file(out, True, source)
    for mine in MINE:
        mine.to_csv(out, index=False) if ending == ".csv" else mine.to_parquet(out, index=False)
        is_mine()
    for content in (b"", b"\x00\xff\nmine", b"PAR1mine"):
        out.write_bytes(content)
        is_mine()
    out.unlink()
    out.symlink_to("nowhere")
    ask("is no table of bmfjax")
    out.unlink()
    out.mkdir()
    ask("is a directory; give a file")


# ---- transform ---------------------------------------------------------------------------------


def test_new_rows_of_ones_and_zeros_are_read_as_fitted_ones_are(stored, tmp_path, capsys):
    new = tmp_path / "new.csv"
    new.write_text('name,party,Heat,"Me, Myself",Alien,Fargo\nzoe,x,1,0,?,1\nyan,y,?,?,?,?\n')
    words = ["--missing", "?", "--label-column", "party"]
    assert run("transform", stored("relaxed"), new, *words) == 0
    told = capsys.readouterr()
    table = pd.read_csv(io.StringIO(told.out))
    assert f"{new}: read as 2 rows named by 'name' x 4 columns 'Heat' ... 'Fargo' of" in told.err
    assert table.columns.tolist() == ["row", "factor_1", "factor_2", "factor_3"]
    assert table["row"].tolist() == ["zoe", "yan"]
    usage = bmfjax.Fit.load(stored("relaxed")).transform(np.array([[1, 0, np.nan, 1]]))
    np.testing.assert_allclose(table.iloc[0, 1:].astype(float), usage[0], rtol=1e-6)
    assert table.iloc[1, 1:].isna().all()


def test_new_rows_of_numbers_are_numbers(stored, tmp_path, capsys):
    new, out = tmp_path / "new.csv", tmp_path / "usage.parquet"
    new.write_text("2.5,0.1,3,0.5\n")
    assert run("transform", stored("nmf"), new, "--output", out) == 0
    assert f"{out}: 1 rows" in capsys.readouterr().out
    usage = bmfjax.Fit.load(stored("nmf")).transform(np.array([[2.5, 0.1, 3, 0.5]]))
    np.testing.assert_array_equal(pd.read_parquet(out).iloc[:, 1:], usage)
    refused(capsys, "--binarize is for models", "transform", stored("nmf"), new, "--binarize", 1)


def test_new_rows_are_read_as_the_ones_that_were_fitted(tmp_path, capsys):
    ones = bmfjax.BinaryMatrix(np.eye(40, 4, dtype=int), column_names=FILMS)
    fit, new = dataclasses.replace(put_together("nmf"), data=ones), tmp_path / "new.csv"
    folder = fit.save(tmp_path / "fit")
    write_lines(new, FILMS, ["yes", "no", "no", "yes"], ["no", "no", "yes", "no"])
    usage = fit.transform(np.array([[1, 0, 0, 1], [0, 0, 1, 0]]))
    np.testing.assert_array_equal(fit.transform(new), usage)
    assert run("transform", folder, new) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    np.testing.assert_allclose(table.iloc[:, 1:], usage, rtol=1e-6)
    refused(capsys, "finds one usage of new rows for each draw, and no sd", "transform", folder,
            new, "--kind", "sd")  # fmt: skip


def test_new_ratings_are_matched_by_name(stored, tmp_path, capsys, monkeypatch):
    seen = []
    monkeypatch.setattr(
        bmfjax.Fit._of_model("pmf"),
        "transform",
        lambda fit, new, kind: seen.append(new) or np.full((2, 3), {"mean": 1, "sd": 2}[kind]),
    )
    new = tmp_path / "new.csv"
    new.write_text("user,film,stars\nzoe,Fargo,5\nyan,Heat,3\nzoe,Alien,4\n")
    assert run("transform", stored("pmf"), new) == 0
    told = capsys.readouterr()
    assert "zoe,1,1,1" in told.out and f"{new}: read as lines of row, column, value" in told.err
    assert seen[0].column_names == FILMS and seen[0].columns.tolist() == [2, 3, 0]
    assert seen[0].values.tolist() == [4.0, 5.0, 3.0]
    assert run("transform", stored("pmf"), new, "--kind", "sd") == 0
    told = capsys.readouterr().out
    assert told.startswith("row,factor_1_sd,factor_2_sd,factor_3_sd\nzoe,2,2,2\n") and seen.pop()
    assert HEADER.fullmatch(told.split("\n")[0])
    new.write_text('Heat,"Me, Myself",Alien,Fargo\n5,3,4,1\n5,4,3,5\n')
    assert run("transform", stored("pmf"), new) == 0  # a table, by the names of the films
    assert capsys.readouterr().out and seen[1].dense().tolist() == [[5, 3, 4, 1], [5, 4, 3, 5]]
    new.write_text("zoe,Cars,5\n")
    message = "the new rows rate 'Cars', which is no column of the fitted ratings; leave it out"
    refused(capsys, message, "transform", stored("pmf"), new)
    refused(
        capsys, "--binarize is for models of ones and zeros",
        "transform", stored("pmf"), new, "--binarize", "1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "rows"),
    [("relaxed", "1,0,1,1 0,,1,0"), ("pmf", "5,3,4,1 ,4,3,5"), ("nmf", "0.5,2,1,0 1,1,,3")],
)
def test_columns_of_new_rows_in_a_file_are_found_by_name(stored, tmp_path, capsys, model, rows):
    rows = [row.split(",") for row in rows.split()]
    known, new, order = tmp_path / "known.csv", tmp_path / "new.csv", [2, 0, 3, 1]
    write_lines(known, ["", *FILMS], *([name, *row] for name, row in zip("ab", rows, strict=True)))
    mixed = [["town", "who", "seen", *(FILMS[j] for j in order)]]
    for name, town, row in zip("ab", ("Ely", "Ely"), rows, strict=True):
        mixed.append([town, name, "37.5", *(row[j] for j in order)])
    write_lines(new, *mixed)
    fit = bmfjax.Fit.load(stored(model))
    one, other = load_new(known, fit.data), load_new(new, fit.data)
    np.testing.assert_array_equal(one.dense(), other.dense())
    assert one.column_names == other.column_names == FILMS and other.row_names == ("a", "b")
    assert "'town', 'seen' left out" in str(other.reading)
    if model != "pmf":  # the one that was put together has no prior
        assert run("transform", stored(model), known) == 0
        usage = capsys.readouterr().out
        assert run("transform", stored(model), new) == 0 and capsys.readouterr().out == usage
        np.testing.assert_array_equal(fit.transform(str(new)), fit.transform(str(known)))
        assert fit.transform(new, frame=True).index.tolist() == ["a", "b"]


def write_lines(path, *lines):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(lines)


def test_new_rows_are_not_asked_about_what_the_names_of_a_fit_say(stored, tmp_path):
    """The first line may be values or names by itself, and holds names of the fit."""
    names = ("1", "0", "x", "y")
    data = bmfjax.BinaryMatrix(np.eye(4, dtype=int)[[0, 1, 2, 3, 0]], column_names=names)
    path = tmp_path / "new.csv"
    write_lines(path, names, *[[1, 0, 1, 0], [0, 1, 1, 0]])
    with pytest.raises(InputError, match="header=True or header=False"):
        bmfjax.load(path)
    new = load_new(path, data)
    assert new.column_names == names and new.dense().tolist() == [[1, 0, 1, 0], [0, 1, 1, 0]]
    write_lines(path, *[pair.split() for pair in ("zoe Heat", "ann Alien", "zoe Alien")])
    films = bmfjax.BinaryMatrix(np.eye(2, dtype=int), column_names=("Heat", "Alien"))
    assert load_new(path, films).dense().tolist() == [[1, 1], [0, 1]]  # pairs, without a header


def test_new_rows_of_other_columns_are_refused(stored, tmp_path, capsys):
    new, out = tmp_path / "new.csv", tmp_path / "usage.csv"
    ask = ["transform", stored("relaxed"), new, "--output", out]
    new.write_text("Heat,Alien\n1,0\n")
    refused(capsys, "columns 'Me, Myself' and 'Fargo' of the fitted matrix are not in", *ask)
    refused(capsys, "is what is read", *ask[:3], "--output", new, "--overwrite")
    assert not out.exists()

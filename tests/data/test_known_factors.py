"""Known factors: the forms in which they are given, and what is refused."""

import importlib
import re

import numpy as np
import pandas as pd
import pytest

import bmfjax
from bmfjax import cli
from bmfjax.data import InputError
from bmfjax.data.anchors import Anchors, check_bits, check_weights, load_anchors, read_anchors
from bmfjax.data.attributes import load_attributes
from bmfjax.families import ask

COLUMNS = ("corn", "olive", "palm", "rice")
EXPECTED = np.array([[0.0, 1.0, 1.0, 0.0], [0.5, 0.0, np.nan, 2.0]]).T
TABLE = pd.DataFrame(EXPECTED, index=list(COLUMNS), columns=["oils", "two"])

FORMS = {
    "names": {"oils": ["palm", "olive"], "two": {"corn": 0.5, "palm": None, "rice": 2}},
    "numbers": {"oils": [False, True, True, False], "two": np.array([0.5, 0, np.nan, 2])},
    "series": {"oils": TABLE["oils"][::-1], "two": TABLE["two"].dropna()},
    "table": TABLE.iloc[[2, 0, 3, 1]],
    "table without names": TABLE.reset_index(drop=True),
    "read": Anchors(("oils", "two"), EXPECTED),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_say_the_same(form):
    given = FORMS[form]
    if form == "read":
        given = dict(zip(given.names, given.values.T, strict=True))
    found = read_anchors(given, COLUMNS)
    expected = EXPECTED.copy()
    if form == "series":  # a column that is not named is zero
        expected[2, 1] = 0.0
    assert found.names == ("oils", "two") and found.number == 2
    np.testing.assert_array_equal(found.values, expected)


def test_names_and_what_is_whole():
    found = read_anchors(TABLE, COLUMNS)
    assert found.whole.tolist() == [True, False]
    assert np.isnan(found.unknown(7).values).all() and found.unknown(7).values.shape == (7, 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["olive"], "anchors is a list; give a mapping"),
        ({}, "anchors has no factors"),
        ({"oils": ["olive", "tea"]}, "names 'tea', which is no column of the data"),
        ({"oils": {"tea": 1}}, "names 'tea', which is no column of the data"),
        ({"oils": "olive"}, "anchor 'oils' is 'olive'; give a list"),
        ({"oils": 3}, "anchor 'oils' is 3; give a list"),
        ({"oils": [1, 0]}, "has 2 numbers and the data 4 columns"),
        ({"oils": [1, 0, "x", 1]}, "anchor 'oils' is not numeric"),
        ({"oils": [1, 0, np.inf, 1]}, "values that are not finite"),
        ({" ": ["olive"]}, "anchor 1 .* has no name"),
        ({1: ["olive"], "1": ["palm"]}, "two factors named '1'"),
        ({"a": ["olive"], "b": [0, 1, 0, 0]}, "'a' and 'b' have the same values"),
        ({"a": [np.nan] * 4}, "nothing is known of anchor 'a'"),
        (TABLE.iloc[:3], "no line for column 'rice'"),
        (pd.concat([TABLE, TABLE.iloc[:1]]), "two lines for column 'corn'"),
        (TABLE.rename({"rice": "tea"}), "names 'tea', which is no column"),
        (TABLE.iloc[:3].reset_index(drop=True), "3 rows without names and the data 4"),
    ],
)
def test_what_is_no_known_factor_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        read_anchors(given, COLUMNS)


@pytest.mark.parametrize(
    ("name", "number"), [("2", 2), (3, 3), ("factor 3", 3), ("2010", None), ("factor 4", None)]
)
def test_a_known_factor_has_the_number_of_no_other_factor_of_the_fit(name, number):
    given = {name: ["olive"], "oils": ["palm"]}
    if number is None:
        assert read_anchors(given, COLUMNS, 3).names == (name, "oils")
        return
    message = rf"anchor 1 \(counted from 1\) is named '{name}', as factor {number} is called; give"
    with pytest.raises(InputError, match=message):
        read_anchors(given, COLUMNS, 3)


def test_a_fit_takes_years_as_names_of_known_factors_and_numbers_those_without():
    data = pd.DataFrame(np.eye(4), columns=COLUMNS)
    table = pd.DataFrame(EXPECTED > 0, list(COLUMNS))
    known = {"2010": ["olive"], "2": ["palm"]}
    assert ask(data, 3, model="ormachine", anchors=table).anchors.names == (
        "anchor 1", "anchor 2",
    )  # fmt: skip
    assert ask(data, 2, model="ormachine", anchors=known).anchors.names == ("2010", "2")
    with pytest.raises(InputError, match="'2', as factor 2 is called"):
        ask(data, 2, model="ormachine", anchors=dict(reversed(known.items())))


def test_columns_that_count_from_zero_are_names_where_the_data_have_them():
    weights = pd.Series([1.0, 2.0, 3.0], index=pd.Index([0, 1, 2], name="column"))
    for given in (weights.to_frame("a"), {"a": weights}):
        assert read_anchors(given, ["2", "0", "1"]).values.ravel().tolist() == [3, 1, 2]
        assert read_anchors(given, ["x", "y", "z"]).values.ravel().tolist() == [1, 2, 3]
    for given in (weights.reset_index(drop=True), weights.reset_index(drop=True).to_frame("a")):
        given = {"a": given} if isinstance(given, pd.Series) else given
        with pytest.raises(InputError, match="have these names in another order"):
            read_anchors(given, ["2", "0", "1"])


@pytest.mark.parametrize(
    ("check", "values", "message"),
    [
        (check_bits, [0, 2, 1], "'a' has the value 2, and the factors of this model are Boolean"),
        (check_bits, [0, 0, 0], "'a' has no columns"),
        (lambda a: check_weights(a, "nmf", signed=False), [0, -1, 1], "negative values"),
        (lambda a: check_weights(a, "nmf", signed=False), [0, 0, 0], "zero in all columns"),
        (lambda a: check_weights(a, "pmf", signed=True), [0, np.nan, 1], "has missing values"),
    ],
)
def test_what_a_model_cannot_have_is_refused(check, values, message):
    with pytest.raises(InputError, match=message):
        check(Anchors(("a",), np.array([values], float).T))


def test_models_take_what_they_can_have():
    check_bits(Anchors(("a",), np.array([[0.0], [np.nan]])))
    check_weights(Anchors(("a",), np.array([[0.0], [-3.0]])), "pmf", signed=True)


def test_a_file_says_the_same(tmp_path):
    path = tmp_path / "known.csv"
    TABLE.iloc[::-1].to_csv(path)
    found = load_anchors(path)
    np.testing.assert_array_equal(read_anchors(found, COLUMNS).values, EXPECTED)
    TABLE.to_csv(path.with_suffix(".tsv"), sep="\t", na_rep="NA")
    pd.testing.assert_frame_equal(load_anchors(path.with_suffix(".tsv")), found[::-1])
    TABLE.set_axis(range(TABLE.shape[1]), axis=1).to_csv(path)  # a mere count
    counted = read_anchors(load_anchors(path), COLUMNS, rank=4)
    assert counted.names == tuple(f"anchor {k + 1}" for k in range(TABLE.shape[1]))
    np.testing.assert_array_equal(counted.values, EXPECTED)


@pytest.mark.parametrize("data", ["m.csv", "m.npz"])
@pytest.mark.parametrize(("decimal", "numbers"), [(",", [1.234, 2]), (".", [1234, 2])])
def test_the_command_line_says_how_files_beside_the_data_are_read(
    tmp_path, monkeypatch, data, decimal, numbers, capsys
):
    bmfjax.data.save(tmp_path / "m.npz", bmfjax.BinaryMatrix(np.eye(2), column_names=["a", "é"]))
    (tmp_path / "m.csv").write_text("a,\xe9\n1,0\n0,1\n", "latin-1")
    path = tmp_path / "known.csv"
    path.write_text("column;x\na;1,234\n\xe9;2\n", "latin-1")
    for read in (load_anchors, load_attributes):
        with pytest.raises(InputError, match=r"say decimal=',' \(--decimal ,\) if it is 1.234, or"):
            read(path, encoding="latin-1")
    found = {}

    def ask(data, *_, **given):
        found.update(given)
        raise InputError("enough")

    # Modules that take it by its name, and are imported late, must have the true one.
    for late in ("bmfjax.fitting", "bmfjax.comparison.ranks"):
        importlib.import_module(late)
    monkeypatch.setattr("bmfjax.families.ask", ask)
    files = ["--anchors", str(path), "--row-attributes", str(path)]
    how = ["--decimal", decimal, "--encoding", "latin-1"]
    assert cli.main(["fit", str(tmp_path / data), *files, *how]) == 2
    assert capsys.readouterr().err.endswith("enough\n")
    for table in (found["anchors"], found["row_attributes"]):
        assert list(table.index) == ["a", "é"] and table["x"].tolist() == numbers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("column,oils\ncorn,many\n", "has 'many' for anchor 'oils'"),
        ("column\ncorn\n", "it has 1 field a line; give the name of a column"),
        ("", "the file is empty"),
        (None, "there is no such file; give a table of columns by known factors"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, text, message):
    path = tmp_path / "known.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=re.escape(message)):
        load_anchors(path)

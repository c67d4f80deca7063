"""What BinaryMatrix refuses, and that it says what, where and what to do."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bmfjax.data import BinaryMatrix, InputError, RealMatrix

NAN = np.nan
WRONG = np.zeros((4, 6))
WRONG[2, 4], WRONG[3, 0] = 2, 5
ROWS, COLUMNS = ["ann", "joe", "bob", "eve"], ["a", "b", "c", "d", "tax", "f"]


@pytest.mark.parametrize(
    "form", [np.asarray, sp.csr_array, sp.csc_array, lambda x: x.astype(int), lambda x: x.tolist()]
)
def test_the_first_wrong_value_is_named_with_its_place(form):
    with pytest.raises(InputError) as refused:
        BinaryMatrix(form(WRONG), row_names=ROWS, column_names=COLUMNS)
    assert str(refused.value).startswith("value 2")
    assert " at row 3 ('bob'), column 5 ('tax') is neither 0 nor 1" in str(refused.value)
    assert "values > 0" in str(refused.value)
    with pytest.raises(InputError, match=r"at row 3, column 5 is neither"):
        BinaryMatrix(form(WRONG))
    assert BinaryMatrix(form(WRONG), observed=np.isin(WRONG, (0, 1))).num_missing == 2


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, lambda x: x.astype(object)])
def test_a_number_that_may_mark_missing_entries_is_said_to(form):
    """Where it is the only one beside zeros and ones; a rating of 9 is none, nor is -1 for no."""
    marked = np.array([[0, 1, 0], [1, 9, 9], [1, 0, 1]])
    for mark in (9, -1, -9, 99, 999):
        with pytest.raises(InputError, match=rf"np.where\(values == {mark}, np.nan, values\)"):
            BinaryMatrix(form(np.where(marked == 9, mark, marked)))
    for other in (marked + 2 * (marked == 0), np.where(marked == 9, 2, marked), 2 * marked - 1):
        with pytest.raises(InputError, match="is neither 0 nor 1") as refused:
            BinaryMatrix(form(other))
        assert "np.nan" not in str(refused.value)


def test_an_entry_that_is_listed_twice_is_called_so():
    """A sum of 2 that stands nowhere in the input would mislead."""
    where, ones = ([0, 2, 2, 1, 2], [0, 4, 4, 1, 4]), np.ones(5)
    coo = sp.coo_array((ones, where), shape=(4, 6))
    with pytest.raises(InputError) as refused:
        BinaryMatrix(coo, row_names=ROWS, column_names=COLUMNS)
    assert str(refused.value).startswith(
        "the entry at row 3 ('bob'), column 5 ('tax') (counted from 1) is listed 3 times, and its "
        "values add up to 3; list every entry once"
    )
    with pytest.raises(InputError, match=r"row 3, column 5 .* is listed 3 times"):
        BinaryMatrix(sp.csr_array((ones, [0, 1, 4, 4, 4], [0, 1, 2, 5, 5]), shape=(4, 6)))
    # What is bool is listed without harm, and a wrong value listed once keeps its own sentence.
    assert BinaryMatrix(coo.astype(bool)).num_ones == 3
    assert BinaryMatrix(coo, observed=coo.toarray() < 2).num_ones == 2
    ones[0] = 2
    with pytest.raises(InputError, match=r"value 2.* at row 1, column 1 is neither 0 nor 1"):
        BinaryMatrix(sp.coo_array((ones, where), shape=(4, 6)))


def test_the_names_of_a_data_frame_are_in_the_message():
    frame = pd.DataFrame(WRONG, index=ROWS, columns=COLUMNS)
    with pytest.raises(InputError, match=r"row 3 \('bob'\), column 5 \('tax'\)"):
        BinaryMatrix(frame)


@pytest.mark.parametrize("value", [-1, 0.5, np.inf, "1", "yes", b"x", (0,), 2**70])
def test_values_beside_0_and_1_are_refused_from_objects_too(value):
    values = np.zeros((2, 2), dtype=object)
    values[1, 0] = value
    with pytest.raises(InputError, match="at row 2, column 1 is neither 0 nor 1"):
        BinaryMatrix(values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((0, 3)),), "empty: 0 rows and 3 columns"),
        ((sp.csr_array((3, 0)),), "empty: 3 rows and 0 columns"),
        ((pd.DataFrame(),), "empty: 0 rows"),
        ((np.zeros(3),), "values is one-dimensional; give a matrix"),
        ((np.zeros((2, 2, 2)),), "values has 3 dimensions, and not two; give a matrix"),
        ((1,), "0 dimensions"),
        (([[0, 1], [1]],), "different lengths; give every row the same"),
        (
            ([["milk"], ["beer", "dip"]],),
            r"explode\(\)\.dropna\(\)\.reset_index\(\), layout='pairs'",
        ),
        ((np.zeros((2, 2), complex),), "dtype complex128"),
        ((np.zeros((2, 2), "datetime64[s]"),), "dtype datetime64"),
        (([[0.3, -1.2]],), r"value 0\.3 at .*; fit real numbers by model='pmf', or model='nmf'"),
        (([("ann", "Heat")],), r"value 'ann' at .*; of a list of pairs make a DataFrame with two"),
        ((np.full((2, 2), NAN),), "no entry is observed"),
        ((sp.csr_array(np.full((2, 2), NAN)),), "no entry is observed"),
        ((np.eye(2), np.zeros((2, 2), bool)), "no entry is observed"),
        ((sp.csr_array(np.eye(2)), sp.csr_array((2, 2), dtype=bool)), "no entry is observed"),
        ((np.eye(2), np.ones((2, 3), bool)), r"observed has shape \(2, 3\).*has \(2, 2\)"),
        ((np.eye(2), np.full((2, 2), 2)), "observed has dtype int64 with values beside 0 and 1"),
        ((np.eye(2), None, ["a"]), "row_names has 1 entries and the matrix has 2 rows"),
        ((np.eye(2), None, None, list("abc")), "column_names has 3 entries .* 2 columns"),
        ((np.eye(3), None, ["a", "b", "a"]), "row name 'a' is given twice, to rows 1 and 3"),
        ((np.eye(2), None, None, [1, "1"]), "column name '1' is given twice, to columns 1 and 2"),
        ((np.eye(2), None, ["a", None]), "row 2 has no name"),
        ((np.eye(2), None, ["a", NAN]), "row 2 has no name"),
    ],
)
def test_what_is_no_binary_matrix_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        BinaryMatrix(*arguments)


@pytest.mark.parametrize(
    "cell",
    [
        np.array([1]),
        np.array([1, 0]),
        np.array([]),
        pd.Series([1]),
        pd.DataFrame([[1]]),
        [1],
        {1},
        1 + 0j,
        np.timedelta64(1, "s"),
    ],
)
@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame])
def test_a_cell_of_several_values_is_no_value(cell, form):
    """Not even of one: an array of a single 1 equals 1."""
    values = np.zeros((2, 2), dtype=object)
    values[1, 0] = cell
    with pytest.raises(InputError, match="at row 2, column 1 is neither 0 nor 1") as refused:
        BinaryMatrix(form(values))
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="values are not all numbers"):
        RealMatrix(form(values))
    assert BinaryMatrix(form(values), np.array([[1, 1], [0, 1]], bool)).num_missing == 1


def test_complex_columns_of_a_data_frame_are_refused():
    frame = pd.DataFrame({"a": [1.0, 0.0], "b": [1 + 2j, 0]})
    with pytest.raises(InputError, match=r"value \(1\+2j\) at row 1, column 2 \('b'\)"):
        BinaryMatrix(frame)
    with pytest.raises(InputError, match="values are not all numbers"):
        RealMatrix(frame)


def test_duplicate_columns_of_a_data_frame_are_refused():
    with pytest.raises(InputError, match="column name 'a' is given twice"):
        BinaryMatrix(pd.DataFrame(np.eye(2), columns=["a", "a"]))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((None,), {}, "values is a NoneType"),
        (("votes.csv",), {}, "bmfjax.load reads a file"),
        (({"a": [0, 1]},), {}, "values is a dict"),
        (({0, 1},), {}, "values is a set"),
        ((BinaryMatrix(np.eye(2)),), {}, "BinaryMatrix already"),
        ((np.eye(2), None, "ab"), {}, "row_names is a str"),
        ((np.eye(2), None, 3), {}, "row_names is a int"),
        ((np.eye(2),), {"name": 3}, "name is a int"),
    ],
)
def test_objects_of_a_wrong_kind_are_type_errors(arguments, options, message):
    with pytest.raises(TypeError, match=message):
        BinaryMatrix(*arguments, **options)


@pytest.mark.parametrize(
    ("dtype", "missing"), [(int, NAN), (bool, NAN), (np.uint8, -1), (np.uint8, 256), (int, 0.5)]
)
def test_a_dtype_that_cannot_hold_the_missing_value_is_refused(dtype, missing):
    with pytest.raises(InputError, match=r"1 entries are missing and .* cannot hold"):
        BinaryMatrix([[1, None]]).dense(dtype, missing=missing)
    assert BinaryMatrix([[1, 0]]).dense(dtype, missing=missing).tolist() == [[1, 0]]


def test_an_unknown_orientation_and_labels_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="orientation is 'row'; choose from rows, columns"):
        BinaryMatrix(np.eye(2)).packed("row")
    with pytest.raises(InputError, match="row_labels has 1 entries and the matrix has 2 rows"):
        BinaryMatrix(np.eye(2), row_labels=["x"])

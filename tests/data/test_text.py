"""Tables as text: header, row names, missing marks and labels, told apart or told."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from bmfjax.data import InputError, load

NAN = np.nan
EXPECTED = np.array([[1, 0, NAN], [0, 1, 1]])
# Names with every mark that a reader could trip over.
NAME = st.text(st.sampled_from('aä,;"\t x?0'), min_size=1, max_size=6).map(
    lambda s: "m" + s.strip()
)


def table(tmp_path, text, name="t.csv"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


@pytest.mark.parametrize(
    ("text", "rows", "columns"),
    [
        ("1,0,\n0,1,1\n", None, None),
        ("1;0;\n0;1;1", None, None),
        ("1\t0\t\n0\t1\t1\n", None, None),
        ("\ufeff1,0,NA\r\n\r\n0,1,1\r\n", None, None),
        ("true,FALSE,nan\nfalse,True,1.0\n", None, None),
        ("a,b,c\n1,0,?\n0,1,1\n", None, ("a", "b", "c")),
        (" a, b,c\n 1, 0, ? \n0,1 ,1\n", None, ("a", "b", "c")),
        ("1,0, ?\n0,1,1\n", None, None),
        (",a,b,c\nx,1,0,\ny,0,1,1\n", ("x", "y"), ("a", "b", "c")),
        (",a,b,c\n7,1,0,\n8,0,1,1\n", ("7", "8"), ("a", "b", "c")),
        ("who,a,b,c\nx,1,0,\nNA,0,1,1\n", ("x", "NA"), ("a", "b", "c")),
        ("a,b,c\nx,1,0,\ny,0,1,1\n", ("x", "y"), ("a", "b", "c")),
        ("x,1,0,\ny,0,1,1\n", ("x", "y"), None),
        ("a;b;c\nx, y;1;0;\nz;0;1;1\n", ("x, y", "z"), ("a", "b", "c")),
        ('# by "me\n,a,b,c\nx,1,0,\ny,0,1,1\n', ("x", "y"), ("a", "b", "c")),
        ('"who","a, b",c,d\n"x ""1""","1",0,\ny,0,1,1\n', ('x "1"', "y"), ("a, b", "c", "d")),
    ],
)
def test_the_parts_of_a_table_are_told_apart(tmp_path, text, rows, columns):
    matrix = load(table(tmp_path, text), missing="?")
    np.testing.assert_array_equal(matrix.dense(), EXPECTED)
    assert (matrix.row_names if matrix.has_row_names else None) == rows
    assert (matrix.column_names if matrix.has_column_names else None) == columns


@settings(max_examples=30)
@given(
    array_shapes(min_dims=2, max_dims=2, max_side=8).flatmap(
        lambda shape: st.tuples(
            arrays(float, shape, elements=st.sampled_from([0.0, 1.0, NAN])),
            st.lists(NAME, min_size=shape[0], max_size=shape[0], unique=True),
            st.lists(NAME, min_size=shape[1], max_size=shape[1], unique=True),
        )
    ),
    st.sampled_from(["csv", "tsv"]),
)
def test_random_tables_come_back(tmp_path_factory, drawn, ending):
    values, rows, columns = drawn
    if np.isnan(values).all():
        return
    path = tmp_path_factory.getbasetemp() / f"random.{ending}"
    texts = np.where(np.isnan(values), "", values.astype(object))
    with open(path, "w", newline="", encoding="utf-8") as stream:
        # A semicolon or tab in the first line must not be taken for the separator.
        writer = csv.writer(stream, delimiter="\t" if ending == "tsv" else ",", quotechar='"')
        writer.writerow(["", *columns])
        writer.writerows([name, *row] for name, row in zip(rows, texts, strict=True))
    matrix = load(path)
    np.testing.assert_array_equal(matrix.dense(), values)
    assert matrix.row_names == tuple(rows) and matrix.column_names == tuple(columns)


def test_the_guess_can_be_overruled(tmp_path):
    numbers = table(tmp_path, "1,0,1\n7,0,1\n8,1,0\n")
    with pytest.raises(InputError, match=r"numbers that rise .1, 7, .* say row_names=True"):
        load(numbers)
    matrix = load(numbers, header=True, row_names=True)
    assert matrix.column_names == ("0", "1") and matrix.row_names == ("7", "8")
    assert matrix.dense().tolist() == [[0, 1], [1, 0]]
    with pytest.raises(InputError, match="value 'a' at row 1, column 1"):
        load(table(tmp_path, "a,b\n1,0\n"), header=False, row_names=False)


def test_a_label_column_is_no_column_of_the_matrix(tmp_path):
    path = table(tmp_path, "party,name,a,b\nleft,x,1,0\n,y,0,?\nleft,z,1,1\n")
    matrix = load(path, label_column="party", missing=["?", "-"])
    assert matrix.row_labels == ("left", "", "left")
    assert matrix.row_names == ("x", "y", "z") and matrix.column_names == ("a", "b")
    np.testing.assert_array_equal(matrix.dense(), [[1, 0], [0, NAN], [1, 1]])


def test_a_threshold_and_a_mark_that_is_a_number(tmp_path):
    path = table(tmp_path, "2.5,-9,0\n1,1e3,true\n,inf,0.5\n")
    matrix = load(path, binarize=0.5, missing=["-9"])
    np.testing.assert_array_equal(matrix.dense(), [[1, NAN, 0], [1, 1, 1], [NAN, 1, 0]])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "who,a,tax\nann,1,0\nbob,0,2\n",
            {},
            r"value 2 at row 2 \('bob'\), column 2 \('tax'\) is neither .* \(line 3 .*one=, zero=",
        ),
        (
            "1,0\n0,y\n",
            {"header": False},
            r"value 'y' at row 2, column 2 .*0 \(2\) and 1 \(1\): .*missing='y'",
        ),
        ("1,0_1\n0,1\n", {"header": False}, "value '0_1' at row 1, column 2"),
        ("1,0\n\n1,0,1\n", {}, "line 3 has 3 cells and line 1 has 2"),
        ("a,b,c\n1,0,1\n1,0\n", {}, "line 3 has 2 cells and line 2 has 3"),
        ("a,b,c,d\n1,0\n1,0\n", {}, "the header has 4 cells and line 2 has 2"),
        ("", {}, "the file is empty"),
        ("a,b\n", {}, "a header and no row below"),
        ("m\nk\n", {}, "only column holds row names"),
        ("p,a\nx,1\n", {"label_column": "q"}, "no column is called 'q'; the columns are p, a"),
        ("p,p\nx,1\n", {"label_column": "p"}, "label_column is 'p' and 2 columns"),
        ("p,a\nx,1\n", {"label_column": "p", "header": False}, "header=False says"),
        ("p\nx\n", {"label_column": "p"}, "no column beside the labels"),
        ("a,b,a\n1,0,1\n", {}, "column name 'a' is given twice, to columns 1 and 3"),
        ("who,a\nx,1\nx,0\n", {}, "holds 'x' twice, on lines 2 and 3; make the row names"),
        ("who,a\nx,1\nx,0\n", {"row_names": True}, "'x' is given twice, to rows 1 and 2"),
        (",\n,\n", {"row_names": False}, "no entry is observed"),
    ],
)
def test_tables_that_are_refused(tmp_path, text, options, message):
    path = table(tmp_path, text)
    with pytest.raises(InputError, match=message) as refused:
        load(path, **options)
    assert str(refused.value).startswith(f"{path}: ")

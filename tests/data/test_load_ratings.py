"""Files of ratings: their separators, headers and layouts, and what is refused."""

import csv
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix, load_ratings, save

NAN = np.nan
WIDE = np.array([[5, NAN, 3.5], [NAN, 4, NAN]])


def read_ratings(path, **options):
    """Return the ratings of a file, and the layout in which they were read."""
    found = load_ratings(path, **options)
    return found, found.reading.layout


def written(folder, text, name="films.csv"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("separator", ["::", "\t", ";", ",", " "])
@pytest.mark.parametrize("header", ["", "user,item,rating,time\n"])
def test_files_of_all_separators_are_read(tmp_path, separator, header):
    text = (header + "196,242,3,881\n186,302,3.5,891\n\n196,302,1,878\n").replace(",", separator)
    ratings = load_ratings(written(tmp_path, text), scale=(1, 5))
    assert ratings.shape == (2, 2) and ratings.row_names == ("196", "186")
    assert ratings.values.tolist() == [3.0, 1.0, 3.5] and ratings.name == "films"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "films.csv: the file is empty"),
        ("user,item,rating\n", "a header alone"),
        ("1,2,3\n1,3\n", "line 2: 2 fields; give row, column and value"),
        ("1,2,3\n1,3,good\n", "line 2: 'good' is no number"),
        ("a,b,c\n\n1,2,3\n\n\n1,3,good\n", "line 6: 'good' is no number"),
        ("a::b::c\n\n1::2::3\n\n1::3\n", "line 5: 2 fields"),
        ('1,"2\n3",4\n\n1,3\n', "line 4: 2 fields"),
        ("1,2,3\n1,,3\n", "line 2: the column is empty"),
        ('1,2,3\n1,"3,3\n', "line 2: unexpected end of data; close every double quote"),
        ("1,2,3\n1,2,4\n", r"row 1 \('1'\), column 1 \('2'\) .* is rated twice"),
        ("1,2,9\n", "outside the scale"),
        (
            "1,2,3\n1,3,\n",
            r"line 2: the rating is blank; delete the line, or say layout='table' "
            r"\(--layout table\) if lines are rows of a table",
        ),
        ("1,2,3\n1\n", "line 2: 1 field; give row, column and value"),
        ("a;b;3x\na;c;4,5\n", r"line 1: '3x' is no number; give one, or header=True \(--header"),
        ("u,f,stars\na,b,bad1\n", "line 2: 'bad1' is no number; give one$"),
        ("ann,Heat,good\nbob,Heat,4\n", "line 1: 'good' is no number; give one, or header=True"),
        ("ann\nbob\nbob,Heat,4\n", "line 1: 1 field; give row, column and value"),
        ("ann,Heat,good\nbob\n", "line 2: 1 field; give row, column and value"),
        ("1,2,good\n1,3,4\n", "the first line may be ratings or .*; say header=True"),
        ("ann,Me, Myself and Irene,5\nbob,Heat,4\n", "line 1: 'Myself and Irene' is no number"),
        ("1,2,3\n,,\n", "line 2: the row is empty"),
        ("1,2,1_0\n", "'1_0' is no number"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        load_ratings(written(tmp_path, text), scale=(1, 5))


def test_other_encodings_are_refused(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("1,Heat,3\n2,Léon,4\n".encode("latin-1"))
    with pytest.raises(InputError, match="line 2: not UTF-8"):
        load_ratings(path)
    with pytest.raises(InputError, match="header is 'no'"):
        load_ratings(path, header="no")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist: no such file"):
        load_ratings(tmp_path / "none.csv")


def test_names_in_quotes_may_hold_what_separates(tmp_path):
    text = 'user;film;stars\n"ann; x";"Crouching ""Tiger"", Hidden";5\nbob;7" disk;4\n'
    ratings = load_ratings(written(tmp_path, text))
    assert ratings.row_names == ("ann; x", "bob")
    assert ratings.column_names == ('Crouching "Tiger", Hidden', '7" disk')
    # What stands in quotes does not tell what separates.
    ratings = load_ratings(written(tmp_path, '"ann; x",Heat,5\nbob,Heat,4\n'))
    assert ratings.row_names == ("ann; x", "bob")


def test_columns_stand_in_the_order_that_is_asked_for(tmp_path):
    path, names = written(tmp_path, "ann,b,5\nann,a,3\n"), ("a", "none", "b")
    ratings = load_ratings(path, column_names=names)
    assert ratings.column_names == names and ratings.shape == (1, 3)
    assert ratings.dense()[0, [0, 2]].tolist() == [3, 5]
    with pytest.raises(InputError, match="column 'b' is not among the column names"):
        load_ratings(path, column_names=["a"])


def test_saved_ratings_are_read_again(tmp_path):
    made = Ratings(
        ["bob", "ann"], ["y", "x"], [2, 5], scale=(1, 5), row_labels=["left", ""], name="films"
    )
    path = save(tmp_path / "r.npz", made)
    assert load_ratings(path).fingerprint() == made.fingerprint()
    assert load_ratings(path).row_labels == made.row_labels and load_ratings(path).name == "films"
    other = load_ratings(path, scale=(0, 9), row_names=["ann", "bob", "eve"], name="other")
    assert other.row_labels == ("", "left", "") and other.scale == (0, 9) and other.name == "other"
    np.testing.assert_array_equal(other.dense(missing=0), [[0, 5], [2, 0], [0, 0]])
    bare = Ratings([0, 1], [2, 0], [2, 5], shape=(2, 4))
    path = save(tmp_path / "bare.npz", bare)
    assert load_ratings(path).shape == (2, 4) and load_ratings(path).name == "bare"
    assert load_ratings(path, column_names=list("abcd")).column_names == tuple("abcd")


@pytest.mark.parametrize("matrix", [BinaryMatrix(np.eye(2)), RealMatrix(np.eye(2))])
def test_other_saved_tables_are_refused(tmp_path, matrix):
    path = save(tmp_path / "m.npz", matrix)
    with pytest.raises(InputError, match=r"m.npz: its kind is .*; give ratings"):
        load_ratings(path)
    with pytest.raises(InputError, match=r"header means nothing for .*m\.npz: it is for text"):
        load_ratings(path, header=False)
    path.write_text("no archive")
    with pytest.raises(InputError, match=r"no \.npz archive"):
        load_ratings(path)


# ---- lines or a table -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rows", "columns"),
    [
        (",Heat,Fargo,Alien\nann,5,,3.5\nbob,,4,\n", ("ann", "bob"), ("Heat", "Fargo", "Alien")),
        ("user,Heat,Fargo,Alien\nann,5,,3.5\nbob,,4,NA\n", ("ann", "bob"), None),
        ("user,Heat; 2,Fargo,Alien\nann,5,,3.5\nbob,,4,\n", ("ann", "bob"), None),
        ("\ufeffuser;Heat;Fargo;Alien\r\n7;5;;3.5\r\n9;;4;\r\n", ("7", "9"), None),
        ('user\t"Heat, 2"\tFargo\tAlien\nann\t5\t\t3.5\nbob\t \t4\t\n', ("ann", "bob"), None),
        ("Heat\tFargo\tAlien\nann\t5\t\t3.5\nbob\t\t4\t\n", ("ann", "bob"), None),
        (",1,2,3\nann,5,,3.5\nbob,,4,\n", ("ann", "bob"), ("1", "2", "3")),
        ("id,1,2,3\n17,5,,3.5\n18,,4,\n", ("17", "18"), ("1", "2", "3")),
        ("ann,5,,3.5\nbob,,4,\n", ("ann", "bob"), None),
        ("user,3,8,9,11\nann,5,,3.5,\nbob,,4,,\n", ("ann", "bob"), ("3", "8", "9", "11")),
    ],
)
def test_tables_are_told_from_lines(tmp_path, text, rows, columns):
    ratings, layout = read_ratings(written(tmp_path, text))
    assert layout == "table" and ratings.row_names == rows and ratings.name == "films"
    assert columns is None or ratings.column_names == columns
    np.testing.assert_array_equal(ratings.dense()[:, :3], WIDE)


@pytest.mark.parametrize(
    "text",
    [
        "196\t242\t3\t881250949\n186\t302\t3\t891717742\n",  # MovieLens: u.data
        "1::1193::5::978300760\n1::661::3::978302109\n",  # ratings.dat
        "userId,movieId,rating,timestamp\n1,1,4.0,964982703\n1,3,4.0,964981247\n",  # ratings.csv
        "userId,movieId,grade\n1,1,4.0\n2,3,4.0\n",
        "user,film,rating\nann,1917,4\nbob,300,5\n",
        "who,what,grade\nann,1917,4\nann,300,5\n",
        "1,2,3\n1,3,3\n",
        "ann,7,3\nbob,8,4\n",
        "user,film,grade\nann,Heat,4\nbob,Fargo,5\n",
        "u,f,rating,day,comment\nann,7,4,1,good\nbob,8,5,2,bad\n",
        "user,item,rating,day,hour\n1,7,4,1,1\n2,8,5,2,2\n",
        "1,2,3,10,early\n2,3,4,10,late\n",
        '1,2,3,10,"good, but"\n2,3,4,bad,no\n',
    ],
)
def test_lines_of_ratings_are_read_as_such(tmp_path, text):
    ratings, layout = read_ratings(written(tmp_path, text))
    assert layout == "triples" and ratings.num_ratings == 2


@pytest.mark.parametrize(
    "text",
    [
        "Heat,Fargo,Alien\n5,3,4\n4,2,1\n",
        "name,Heat,Fargo\nann,5,3\nbob,4,2\n",
        "user,1,2\n7,5,3\n8,4,1\n",
        "3.5,2,1\n4,2.5,5\n",
        "196,242,3,8812,1\n186,302,3,8917,1\n",
        "1,7,4,10,\n2,7,3,12,\n",
    ],
)
def test_what_may_be_either_is_refused_until_it_is_said(tmp_path, text):
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=r"films.csv: its lines may be .*; say layout='tri"):
        load_ratings(path)
    header = not text[0].isdigit()
    table = load_ratings(path, layout="table", header=header)
    lines = load_ratings(path, layout="triples", header=header)
    assert lines.num_ratings == 2 and table.num_ratings > 2


@pytest.mark.parametrize(
    ("text", "slip"),
    [
        (
            "user,Heat,Fargo,Alien,Jaws\nann,5,4,3,2\nbob,4,2,?,1\n",
            "value '?' at row 2 ('bob'), column 3",
        ),
        ("who,Heat 2,7 up,Alien,Jaws\nann,5,4,3,2\nbob,4,2,3\n", "line 3 has 4 cells and line 2"),
        (",1,2,3,4\nann,5,4,3,2\nbob,4,2,?,1\n", "value '?' at row 2 ('bob'), column 3"),
        (
            "Heat,Fargo,Alien,Jaws\nann,5,4,3,2\nbob,4,2,?,1\n",
            "value '?' at row 2 ('bob'), column 3",
        ),
        (
            "u,f,g,day,comment\nann,7,4,1,good\nbob,8,5,2,bad\n",
            "value 'good' at row 1 ('ann'), column 4",
        ),
    ],
)
def test_a_slip_in_a_table_of_more_than_four_fields_makes_no_triples(tmp_path, text, slip):
    path = written(tmp_path, text)
    for layout in ("auto", "table"):
        with pytest.raises(InputError, match=re.escape(slip)):
            load_ratings(path, layout=layout)
    with pytest.raises(InputError, match=re.escape(slip)):
        load_ratings(path, header=True)
    if "g," in text:
        assert load_ratings(path, layout="triples").num_ratings == 2


@pytest.mark.parametrize("text", ["ann,5,4,3,2\nbob,4,2,?,1\n", "1,2,3,10,20\n2,3,4,10,late\n"])
@pytest.mark.parametrize("names", ["", "user,1,2,3,4\n"])
def test_a_slip_in_numbers_without_names_is_asked_about(tmp_path, text, names):
    path = written(tmp_path, names + text)
    with pytest.raises(InputError, match=r"its lines may be .*; say layout='tri"):
        load_ratings(path)
    with pytest.raises(
        InputError, match=r"value '(\?|late)' at row 2 .*; write a rating or nothing"
    ):
        load_ratings(path, layout="table", header=bool(names), row_names=True)


@pytest.mark.parametrize(
    ("text", "layouts"),
    [
        ("ann,2,4,6,9\nbob,3,3,1,8\ncid,9,1,2,2\n", ("auto", "table")),
        ("1,2,3,4,5\n2,9,5,11,3\n3,7,3,12,8\n", ("auto", "table")),
        ("who,1,2,3\nann,4,,5\nbob,1,3,\n", ("auto", "table")),
        ("ann,3,5\nbob,2,1\n", ("table",)),
    ],
)
def test_a_first_line_that_may_be_ratings_is_refused_until_it_is_said(tmp_path, text, layouts):
    path = written(tmp_path, text)
    for layout in layouts:
        message = r"films.csv: the first line may be ratings or .*; say header=True or header=False"
        with pytest.raises(InputError, match=message):
            load_ratings(path, layout=layout)
    lines, table = text.splitlines(), {"layout": "table", "row_names": True}
    assert load_ratings(path, header=False, **table).num_rows == len(lines)
    named = load_ratings(path, header=True, **table)
    assert named.num_rows == len(lines) - 1 and list(named.column_names) == lines[0].split(",")[1:]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("who,1,2,3,6\nann,4,5,1,2\nbob,1,3,4,5\n", ("1", "2", "3", "6")),  # beyond the ratings
        ("1,2,3,4,5\nann,4,,5,1,2\nbob,1,3,4,5,5\n", ("1", "2", "3", "4", "5")),  # as R writes it
        ("film,1,2,3\nann,4,5,1\nbob,1,3,4\n", ("1", "2", "3")),
        ("ann,3,2,6,9\nbob,3,3,1,8\n", None),
    ],
)
def test_numbers_that_name_columns_are_known(tmp_path, text, columns):
    ratings = load_ratings(written(tmp_path, text), layout="table")
    assert ratings.num_rows == 2 and ratings.row_names == ("ann", "bob")
    assert ratings.has_column_names == (columns is not None)
    assert columns is None or ratings.column_names == columns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("user,Heat,Fargo,Alien\n", "a header and no row"),
        ("a,b,c\nann,5,3\nbob,4\n", "line 3 has 2 cells and line 2 has 3"),
        ("a,b,c\nann,5,3\nbob,4,good\n", r"'good' at row 2 .*line 3 .*; write a rating or nothing"),
        (",b,c\nann,5,3\nann,4,1\n", "first column names the rows, and holds 'ann' twice"),
        (",b,c\nann,,\nbob,,\n", "there are no ratings"),
        (
            ",b,c\nann,,6\nbob,,\n",
            r"rating 6 at row 1 .*, column 2 .* outside the scale",
        ),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as refused:
        load_ratings(written(tmp_path, text), layout="table", scale=(1, 5))
    assert str(refused.value).startswith(f"{tmp_path / 'films.csv'}: ")


def test_tables_keep_columns_without_ratings_and_take_the_names_asked_for(tmp_path):
    path = written(tmp_path, ",b,none,a,c\nann,5,,3,\nbob,,,1,2\n")
    assert load_ratings(path).column_names == ("b", "none", "a", "c")
    names = ["a", "b", "c", "d"]
    ratings = load_ratings(path, column_names=names, scale=(1, 5), name="mine")
    assert ratings.column_names == tuple(names) and ratings.name == "mine"
    np.testing.assert_array_equal(ratings.dense(missing=0), [[3, 5, 0, 0], [1, 0, 2, 0]])
    with pytest.raises(InputError, match=r"'good' at row 1 .*line 2 .*; write a rating"):
        load_ratings(written(tmp_path, ",b,c\nann,5,good\n", "corner.csv"))
    with pytest.raises(InputError, match="layout is 'wide'; choose from auto, table, triples"):
        load_ratings(path, layout="wide")
    saved = save(tmp_path / "r.npz", ratings)
    with pytest.raises(InputError, match=r"layout means nothing for .*r\.npz: it is for text"):
        load_ratings(saved, layout="table")
    with pytest.raises(InputError, match=r"for \.h5ad \.h5mu \.zarr files of binary or real data"):
        load_ratings(path, layer="counts")


NAME = st.text(st.sampled_from('aé," x?0'), max_size=5).map(lambda s: "m" + s.strip())


@settings(max_examples=20)
@given(
    array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=7).flatmap(
        lambda shape: st.tuples(
            arrays(float, shape, elements=st.sampled_from([0.5, 1, 5, NAN])),
            st.lists(NAME, min_size=shape[0], max_size=shape[0], unique=True),
            st.lists(NAME, min_size=shape[1], max_size=shape[1], unique=True),
        )
    ),
    st.sampled_from([",", ";", "\t"]),
)
def test_a_table_and_its_lines_hold_the_same_ratings(tmp_path_factory, drawn, separator):
    values, rows, columns = drawn
    at = np.argwhere(~np.isnan(values)).tolist()
    if not at:
        return
    folder = tmp_path_factory.getbasetemp()
    texts = np.where(np.isnan(values), "", values.astype(object))
    triples = [[rows[i], columns[j], values[i, j]] for i, j in at]
    cells = [[row, *line] for row, line in zip(rows, texts, strict=True)]
    for name, header, lines in (
        ("cells", ["", *columns], cells),
        ("triples", ["user", "film", "rating"], triples),
    ):
        with open(folder / name, "w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, delimiter=separator)
            writer.writerow(header)
            writer.writerows(lines)
    table, layout = read_ratings(folder / "cells")
    assert layout == "table"
    np.testing.assert_array_equal(table.dense(), values)
    names = {"row_names": table.row_names, "column_names": table.column_names}
    lines, layout = read_ratings(folder / "triples", **names)
    assert layout == "triples" and lines.fingerprint() == table.fingerprint()

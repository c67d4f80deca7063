"""Files of ratings: their separators and headers, and what is refused."""

import numpy as np
import pytest

from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix, load_ratings, save


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
        ("", "films.csv is empty"),
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
        ("1,2,\n1,3,4\n", "line 1: '' is no number"),
        ("a;b;3,5\na;c;4,5\n", "line 1: '3,5' is no number; give one, or header=True"),
        ("ann,Me, Myself and Irene,5\nbob,Heat,4\n", "line 1: 'Myself and Irene' is no number"),
        ("1,2,3\n,,\n", "line 2: the row is empty"),
        ("1,2,1_0\n", "'1_0' is no number"),
        ("user,time,film,Rating\n1,2,3,4\n", "has 'Rating' as field 4, and the third is read"),
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
    with pytest.raises(InputError, match="cannot be read"):
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
    with pytest.raises(InputError, match="header is for text files"):
        load_ratings(path, header=False)
    path.write_text("no archive")
    with pytest.raises(InputError, match=r"no \.npz archive"):
        load_ratings(path)

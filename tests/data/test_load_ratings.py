"""Files of ratings: their separators and headers, and what is refused."""

import pytest

from bmfjax.data import InputError, load_ratings


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
        ("1,2,3\n1,2,4\n", r"row 1 \('1'\), column 1 \('2'\) .* is rated twice"),
        ("1,2,9\n", "outside the scale"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        load_ratings(written(tmp_path, text), scale=(1, 5))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_ratings(tmp_path / "none.csv")

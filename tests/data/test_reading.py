"""The one door: what people have is read as it is meant, and said, or refused with a choice."""

import contextlib
import gzip
import lzma
import pickle
import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.io import mmwrite

import bmfjax
from bmfjax.data import BinaryMatrix, InputError, Ratings, RealMatrix, load, load_ratings, load_real
from bmfjax.data.reading.record import Reading
from bmfjax.families import ask
from bmfjax.posterior.selection import positions
from bmfjax.report import facts
from tests.test_cells import data_of, fit_of

NAN = np.nan
SURVEY = (
    "respondent_id,gender,age,Q1,Q2,Q3\n1001,male,25,Yes,No,Don't know\n1002,female,60,No,No,Yes\n"
    "1003,female,28,Yes,Yes,No\n1004,male,50,No,Don't know,No\n"
)
FILMS = [(1, 11, 5), (1, 12, 3), (2, 11, 4), (2, 13, 1), (3, 12, 2), (3, 13, 5)]


def written(folder, text, name="t.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def lines_of(order, header="", separator=",", films=FILMS):
    """Write ratings as lines whose fields stand in an order."""
    body = [separator.join(str((*film, 880650458 + k)[j]) for j in order)
            for k, film in enumerate(films)]  # fmt: skip
    return "\n".join([header] * bool(header) + body) + "\n"


# ---- a survey -------------------------------------------------------------------------------


def test_a_survey_is_read_at_the_first_try_and_said(tmp_path):
    data = load(written(tmp_path, SURVEY))
    np.testing.assert_array_equal(data.dense(), [[1, 0, NAN], [0, 0, 1], [1, 1, 0], [0, NAN, 0]])
    assert data.row_names == ("1001", "1002", "1003", "1004")
    assert data.row_labels == ("male", "female", "female", "male")
    assert str(data.reading) == (
        "read as 4 rows named by 'respondent_id' x 3 columns 'Q1' ... 'Q3' of Yes/No; 'gender' a "
        "label; 'age' left out (columns=, --columns); \"Don't know\" missing; 16.7 % missing; "
        "first line taken for names (header=, --header)"
    )


def test_columns_and_rows_without_any_value_are_named(tmp_path):
    path = written(tmp_path, "id,a,b,c\nann,1,,0\nbob,0,,1\ncid,,,\neve,,,1\n")
    read = "read as 4 rows named by 'id' x 3 columns 'a' ... 'c' of 0/1; 58.3 % missing"
    said = f"{read}, all of column 'b' and row 'cid'; first line taken for names (header=, "
    said += "--header)"
    assert str(load(path).reading) == said
    assert type(load(path).reading).of_text(load(path).reading.as_text()) == load(path).reading
    # By their numbers, from 1, where they have no names; and none of which a part alone is missing.
    bare = BinaryMatrix([[1, NAN, NAN], [0, NAN, NAN], [1, NAN, NAN]]).reading
    assert str(bare).endswith("66.7 % missing, all of columns 2, 3")
    assert str(BinaryMatrix([[1, NAN], [NAN, 1]]).reading).endswith("50 % missing")
    stars = written(tmp_path, "film,a,b\nx,4,\ny,2,\nz,3,\n")
    assert "; no value in column 'b'" in str(load_ratings(stars).reading)


def test_a_frame_of_a_survey_is_read_as_its_file_is(tmp_path):
    path = written(tmp_path, SURVEY)
    frame, data = pd.read_csv(path), load(path)
    for found in (BinaryMatrix.from_frame(frame), ask(frame, 1).data):
        assert found.fingerprint() == data.fingerprint()
        assert found.row_names == data.row_names and found.row_labels == data.row_labels


@pytest.mark.parametrize(
    ("options", "columns", "labels"),
    [
        ({"columns": "Q1:Q2", "label_column": ["gender", "age"]}, ("Q1", "Q2"), "male / 25"),
        ({"columns": ["Q3", "Q1"]}, ("Q1", "Q3"), None),
        ({"ignore": "gender,Q2"}, ("Q1", "Q3"), None),
        ({"one": "Yes", "zero": "No", "missing": "Don't know"}, ("Q1", "Q2", "Q3"), "male"),
        ({"one_hot": "gender", "ignore": "Q2:Q3"}, ("Q1", "gender=male", "gender=female"), None),
    ],
)
def test_columns_are_chosen_by_names(tmp_path, options, columns, labels):
    data = load(written(tmp_path, SURVEY), **options)
    assert data.column_names == columns and data.row_names[0] == "1001"
    assert (data.row_labels or [None])[0] == labels
    if "one_hot" in options:
        assert data.dense(int)[:, 1:].tolist() == [[1, 0], [0, 1], [0, 1], [1, 0]]


def test_columns_that_are_nearly_named_are_told(tmp_path):
    path = written(tmp_path, "name,coughing,Sneezing,fever\nann,1,0,1\nbob,0,1,1\ncid,1,1,0\n")
    for options, unknown, meant in (
        ({"columns": "cough:sneze"}, "'cough' or 'sneze', of 'cough:sneze'", "coughing:Sneezing"),
        ({"columns": "coughing:fevr"}, "'fevr', of 'coughing:fevr'", "coughing:fever"),
        ({"columns": ["coughing", "SNEEZING"]}, "'SNEEZING'", "Sneezing"),
        ({"ignore": "coughing,fevers"}, "'fevers'", "fever"),
        ({"label_column": "fevers"}, "'fevers'", "fever"),
        ({"columns": "cough:x"}, "'cough' or 'x', of 'cough:x'", None),
        ({"columns": "x"}, "'x'", None),
    ):
        with pytest.raises(InputError, match="no column is called") as said:
            load(path, **options)
        hint = "the" if meant is None else f"did you mean {meant!r}? The"
        assert f"no column is called {unknown}; {hint} columns are " in str(said.value)
        assert str(said.value).endswith("coughing, Sneezing, fever")
    assert load(path, ignore="fever:Sneezing").column_names == ("coughing",)  # in either order
    genes = ["id", *(f"gene{letter}" for letter in "ABCDEFGHIJKL")]
    many = written(tmp_path, ",".join(genes) + "\n" + f"x{',1' * 12}\ny{',0' * 12}\n")
    with pytest.raises(InputError, match=r"The columns are id, geneA, geneB, \.\.\. geneL \(13\)$"):
        load(many, ignore="geneZ")


def test_a_flipped_code_is_a_flipped_matrix(tmp_path):
    path = written(tmp_path, SURVEY)
    flipped = load(path, one="No", zero="Yes", missing="Don't know")
    assert flipped.num_ones == load(path).num_zeros


def test_codes_are_listed_with_their_counts_and_asked_for(tmp_path):
    path = written(tmp_path, "name,V1,V2,V3\nABEL,1,6,9\nCOLE,1,6,6\nDAVIS,6,1,0\n")
    with pytest.raises(InputError, match=r"0 \(1\), 1 \(3\), 6 \(4\), 9 \(1\): say which") as said:
        load(path)
    assert "binarize" not in str(said.value)
    data = load(path, one=1, zero=6, missing=[0, 9])
    np.testing.assert_array_equal(data.dense(), [[1, 0, NAN], [1, 0, 0], [0, 1, NAN]])
    counts = written(tmp_path, "a,b,c\n0,0,7\n3,0,1\n0,2,0\n")
    with pytest.raises(InputError, match="of counts, binarize=0"):
        load(counts)


def test_an_odd_answer_is_named_with_its_line_and_the_others_are_counted(tmp_path):
    lines = ["1001,Yes,No,No", "1002,No,Yes,Yes", "1003,No,Yes,Not sure", "1004,Yes,No,No"]
    path = written(tmp_path, "\n".join(["id,q1,q2,q3", *lines]))
    with pytest.raises(InputError) as refused:
        load(path)
    assert str(refused.value).startswith(
        f"{path}: value 'Not sure' at row 3 ('1003'), column 3 ('q3') is neither Yes nor No (line "
        "4 of the file); beside it are Yes (5) and No (6): if it means no answer, say "
        "missing='Not sure' (--missing 'Not sure'), or say which are ones and zeros"
    )
    assert load(path, missing="Not sure").num_missing == 1
    path.write_text("a,b\n0,1\n1,8\n1,0\n8,1\n")
    with pytest.raises(InputError, match=r"value 8 at row 4, column 1 .*neither 0 nor 1 \(line 5"):
        load(path)


def test_a_few_odd_cells_are_to_be_mended_and_no_column_left_out(tmp_path):
    """Where nearly all cells are zeros and ones, others are slips of whoever wrote the table."""
    zeros_and_ones = [["0", "1", "1", "0", "1"][k % 4 :] + ["1"] * (k % 4) for k in range(15)]
    for slips, spelled, mend in (
        ({(2, 3): "O"}, "01", "write 0, 1 or nothing there, or if it means no answer"),
        ({(2, 3): "11"}, "01", "write 0, 1 or nothing there, or if it means no answer"),
        ({(2, 3): "O", (4, 0): "11"}, "01", "write 0, 1 or nothing there and in another cell, or"),
        ({(2, 3): "Noo", (4, 3): "x", (5, 3): "ye"}, ("no", "yes"), "there and in 2 other cells"),
        ({(k, 3): "2" for k in range(6)}, "01", None),
    ):
        rows = [[spelled[int(cell)] for cell in row] for row in zeros_and_ones]
        for (i, j), text in slips.items():
            rows[i][j] = text
        lines = [f"s{i}," + ",".join(row) for i, row in enumerate(rows)]
        path = written(tmp_path, "\n".join(["id,a,b,c,d,e", *lines]))
        with pytest.raises(InputError) as refused:
            load(path)
        said = str(refused.value)
        assert ("--ignore" in said) == ("--columns" in said) == (mend is None)
        assert ("write" in said) == (mend is not None) and (mend or "2 at row 1") in said
        if len(spelled[0]) > 1:  # by the texts that are there, and at the first that is odd
            assert "'Noo' at row 3 ('s2'), column 4 ('d') is neither Yes nor No" in said


def test_marks_beside_blank_cells_are_asked_about(tmp_path):
    path = written(tmp_path, "id,q1,q2\na,x,\nb,,x\nc,x,x\n")
    with pytest.raises(InputError, match=r"a blank means no, one='x' \(--one x\), zero='' \(--ze"):
        load(path)
    data = load(path, one="x", zero="")
    np.testing.assert_array_equal(data.dense(), [[1, 0], [0, 1], [1, 1]])
    assert "of ones x, zeros blank" in str(data.reading)
    assert load(path, one="x").num_missing == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a;b\n0,5;1,25\n2,5;3,75\n0,25;7,5\n", "model='pmf'"),
        ("a,b\n50%,7%\n1%,20%\n", "write them without a sign of percent or money"),
        ("a,b\n$5,$7\n$1,$2\n", r"column 1 \('a'\).*without a sign of percent or money"),
        ("a b\n1 0\n0 1\n", "if blanks part the cells, write commas or tabs"),
        ("a,b,c,d\ninf,2,5,3\n3,4,2,5\n", "the values are 2 .*, inf "),
    ],
)
def test_what_is_no_one_and_no_zero_is_told_what_it_may_be(tmp_path, text, said):
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=said):
        load(path)
    if "sign" in said:
        with pytest.raises(InputError, match="; write numbers without a sign of percent or money"):
            load_real(path)
    if "inf" in said:
        with pytest.raises(InputError, match="is too large"):
            load_ratings(path, layout="table")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"one": "on"}, r"'off' at row 1, .* is not 'on' \(one=\).*say zero='off' \(--zero off\)"),
        ({"zero": "off"}, r"'on' at row 2, .* is not 'off' \(zero=\).*say one='on' \(--one on\)"),
        ({"one": "on", "zero": "no"}, r"'off' at .* neither 'on' \(one=\) nor 'no' \(zero=\)"),
    ],
)
def test_what_is_not_named_is_asked_for_where_the_rest_is(tmp_path, options, said):
    path = written(tmp_path, "off,on\non,off\non,off\noff,on\n")
    with pytest.raises(InputError, match=said):
        load(path, header=False, **options)
    path = written(tmp_path, "id,a,b\nx,1,9\ny,9,0\nz,9,1\n", "m.csv")
    with pytest.raises(InputError, match=r"value 0 at row 2 .* neither .* nor .9. .* is 0 \(1\)"):
        load(path, zero=9, one=1)
    assert load(path, zero=[9, 0], one=1).num_ones == 2


def test_percents_are_to_be_written_as_numbers(tmp_path):
    path = written(tmp_path, "id,a,b\nx,0%,70%\ny,30%,60%\nz,0%,100%\n")
    with pytest.raises(InputError, match=r"binarize= is of numbers: .* such as 70 for 70%") as err:
        load(path, binarize=50)
    assert "one=" not in str(err.value)
    plain = pd.read_csv(path, index_col=0).replace("[%$€£¥]", "", regex=True)
    assert BinaryMatrix.from_frame(plain, binarize=50).num_ones == 3  # as the message has it


def test_one_is_given_once(tmp_path):
    path = written(tmp_path, SURVEY)
    with pytest.raises(InputError, match="'Yes' is given two meanings"):
        load(path, one="Yes", zero="Yes")
    with pytest.raises(InputError, match="binarize makes ones of numbers"):
        load(path, one="Yes", binarize=0)
    # The other side is not guessed.
    with pytest.raises(InputError, match=r"agree \(2\): say zero=.agree. "):
        load(written(tmp_path, "a,b\nagree,deny\ndeny,agree\n"), one="deny")


# ---- two words ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "zero"),
    [("yes", "no"), ("Y", "N"), ("t", "f"), ("TRUE", "false"), ("+", "-"), ("1", "0")],
)
def test_two_words_are_ones_and_zeros_in_texts_and_in_frames(tmp_path, one, zero):
    text = f"s0,s1,s2\n{one},{zero},\n{zero},{one},{one}\n"
    expected = BinaryMatrix([[1, 0, None], [0, 1, 1]])
    path = written(tmp_path, text)
    assert load(path).fingerprint() == expected.fingerprint()
    assert load(path).column_names == ("s0", "s1", "s2")
    frame = pd.read_csv(path, dtype=str)
    for values in (frame, frame.astype("category"), frame.to_numpy(), frame.astype("string")):
        assert BinaryMatrix(values).fingerprint() == expected.fingerprint()


def test_a_letter_alone_is_no_answer(tmp_path):
    data = load(written(tmp_path, "id,sex,a,b\n1,f,1,0\n2,f,0,1\n3,f,1,1\n"), ignore="sex")
    assert data.column_names == ("a", "b")
    data = load(written(tmp_path, "id,sex,a,b\n1,f,1,0\n2,f,0,1\n3,f,1,1\n"))
    assert data.column_names == ("a", "b") and data.reading.ignored == ("sex",)


# ---- columns beside, names, headers ---------------------------------------------------------


def test_columns_beside_zeros_and_ones_are_asked_about(tmp_path):
    text = "icpsr,state,name,V1,V2\n10,41,ABEL,1,0\n11,41,BAKER,0,1\n12,36,COLE,1,\n"
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=r"first column holds whole numbers .*columns="):
        load(path)
    with pytest.raises(InputError, match=r"'state'.* leave out 'state' by ignore= .--ignore state"):
        load(path, ignore="icpsr")
    for options in ({"columns": "V1:V2"}, {"ignore": ["icpsr", "state"]}):
        data = load(path, **options)
        assert data.column_names == ("V1", "V2") and data.row_names == ("ABEL", "BAKER", "COLE")


@pytest.mark.parametrize("name", ["sample_id", "id", "year", "Unnamed: 0", "", "sample"])
def test_ids_name_the_rows(tmp_path, name):
    text = f"{name},g1,g2\n" + "".join(f"{1001 + k},{k / 2},{k * k}\n" for k in range(6))
    data = load_real(written(tmp_path, text))
    assert data.column_names == ("g1", "g2") and data.row_names[0] == "1001"
    frame = pd.read_csv(tmp_path / "t.csv")
    assert RealMatrix.from_frame(frame).fingerprint() == data.fingerprint()


def test_rising_numbers_that_may_be_names_are_asked_about(tmp_path):
    text = "day,g1,g2\n" + "".join(f"{k},{k / 2},{k * k}\n" for k in range(6))
    path = written(tmp_path, text)
    with pytest.raises(InputError, match="may be names of rows or values; say row_names=True"):
        load_real(path)
    assert load_real(path, row_names=True).num_columns == 2
    assert load_real(path, row_names=False).num_columns == 3
    twice = r"may name the rows, and holds '1' twice, on lines 2 and 4; make them distinct, say row"
    with pytest.raises(InputError, match=f"column 'id' {twice}"):
        load_real(written(tmp_path, "id,g1\n1,0.5\n2,0.7\n1,0.2\n"))
    with pytest.raises(
        InputError, match="holds a cell that is no whole number; say row_names=True or"
    ):
        load_real(written(tmp_path, "id,g1\n1.5,0.5\n1,0.2\n"))
    with pytest.raises(InputError, match="column 'sample_id' looks like ids"):
        load_real(written(tmp_path, "g1,sample_id\n0.5,11\n0.2,12\n0.1,13\n"))


@pytest.mark.parametrize(
    ("name", "times"),
    [("year", "2000 2000 2001"), ("Time", "1577872800 1577872800.5 1577872900"),
     ("sample date", "20240131 20240131 20231205")],
)  # fmt: skip
def test_times_among_values_are_asked_about(tmp_path, name, times):
    rows = [f"{'aab'[k]},{when},{k / 2}\n" for k, when in enumerate(times.split())]
    path = written(tmp_path, f"site,{name},zinc\n{''.join(rows)}")
    with pytest.raises(InputError, match=f"column '{name}' looks like times .* ignore='{name}'"):
        load_real(path)
    assert load_real(path, ignore=name).column_names == ("zinc",)
    assert load_real(path, columns=f"{name},zinc").num_columns == 2
    with pytest.raises(InputError, match=f"column '{name}' looks like times"):
        load(path, binarize=0)
    path.write_text("site,time,zinc\na,0.5,2\na,7,3\nb,2000,4\n")  # of something that was timed
    assert load_real(path).column_names == ("time", "zinc")


@pytest.mark.parametrize(
    "header", ["sample,649.9,650,650.1,650.2", "x,1990,1991,1992,1993", ",1,2,3,4"]
)
def test_a_header_of_numbers_is_a_header(tmp_path, header):
    body = "s1,2.29,1.3,1.01,2.8\ns2,0.07,0.02,0.02,0.04\ns3,1.96,1.88,1.44,3.66\n"
    data = load_real(written(tmp_path, f"{header}\n{body}"))
    assert data.shape == (3, 4) and data.column_names == tuple(header.split(",")[1:])
    bits = "s1,1,0,0,1\ns2,0,1,0,1\n"
    if not header.startswith(","):
        assert load(written(tmp_path, f"{header}\n{bits}")).shape == (2, 4)


@pytest.mark.parametrize(
    ("read", "lines", "said"),
    [
        (load, "1,0,?\n0,1,1\n", r"'\?' at row 1, column 3 .*by ignore= \(--ignore 3\)"),
        (load, "left,n,y,?\nright,y,n,y\nleft,n,n,y\nright,y,n,n\n", r"'left' at row 1, column 1"),
        (load, "1,0,a\n0,1,b\n1,1,a\n1,0,b\n", r"value 'a' at row 1, column 3"),
        (load_real, "5.1,3,a\n4,3,a\n7,3,b\n6,2,b\n", r"'a' at row 1, column 3 .*\(--ignore 3\)"),
        (load, "1,0,a\n0,1,b\n1,1,c\n", "header=True or header=False"),
        (load, "1,0,1,7\n0,1,0,1\n1,1,0,0\n", "header=True or header=False"),
        (load, "yes,no,maybe\nyes,yes,no\nno,no,yes\n", "header=True or header=False"),
        (load, "1,9999\n0,0\n1,1\n", "header=True or header=False"),
        (load, "true,oops\nfalse,true\ntrue,false\n", "header=True or header=False"),
        (load, "u,1,0,oops\nv,0,1,1\nw,1,1,0\n", "header=True or header=False"),
        (load_real, "0.5,<0.05,1\n0.7,0.3,2\n", "header=True or header=False"),
        (load_real, "x,2,<0.05,0\ny,0.7,0.3,2\n", "header=True or header=False"),
        (load_real, "x,5.1,3,a\ny,4,3,b\n", "header=True or header=False"),
    ],
)  # fmt: skip
def test_a_first_line_like_all_others_is_no_header(tmp_path, read, lines, said):
    path = written(tmp_path, lines)
    with pytest.raises(InputError, match=said):
        read(path)
    last = str(1 + lines.splitlines()[0].count(","))
    out = "1" if lines[0] == "l" else last
    found = read(path, header=False, ignore=out, missing=["?", "<0.05"])
    assert found.num_rows == lines.count("\n") and not found.has_column_names


@pytest.mark.parametrize("odd", ["0", "1", "7", "T"])
@pytest.mark.parametrize("at", [0, 5, 19])
def test_a_number_among_names_is_the_name_of_a_column(tmp_path, odd, at):
    names = [f"gene{k}" for k in range(20)]
    names[at] = odd
    zero, one = "FT" if odd == "T" else "01"
    bits = [[zero, one] * 10, [one] * 20, [one, zero] * 10]
    path = written(tmp_path, "\n".join(",".join(row) for row in (names, *bits)))
    assert load(path).column_names == tuple(names)
    if odd != "T":
        assert load_real(path).column_names == tuple(names)
    # Where few of the line can only be names it is asked about, and the message says why.
    rows = [[odd, zero, "a", "b"], *(row[:4] for row in bits)]
    with pytest.raises(InputError, match=f"because of '{odd}' in field 1; say header=True"):
        load(written(tmp_path, "\n".join(map(",".join, rows))))


@pytest.mark.parametrize(
    "text",
    [
        "id,x,y,z\na,yes,no,no\nb,no,yes,no\n",
        "id,x,y,z\na,Y,N,N\nb,N,Y,N\n",
        "id,x,y,z\na,y,n,n\nb,n,y,n\n",
        "x,y,z\nT,F,F\nF,T,T\n",
        "patient,T,smoker\na,yes,no\nb,no,yes\n",
        "x,y,z\na,y,n,y\nb,n,y,n\n",
    ],
)
def test_short_words_for_ones_and_zeros_may_be_names(tmp_path, text):
    first, *body = text.splitlines()
    data = load(written(tmp_path, text))
    assert data.shape[0] == len(body) and data.column_names == tuple(
        first.split(",")[-data.shape[1] :]
    )
    with pytest.raises(InputError, match="header=True or header=False"):
        load(written(tmp_path, "x,y,z\ny,n,n\nn,y,n\n"))


def test_one_odd_cell_is_refused_with_its_line_and_makes_no_names(tmp_path):
    path = written(tmp_path, "zinc,lead\n2.29,1.3\n0.07,0.02\n<0.05,1.03\n1.5,2\n")
    with pytest.raises(InputError, match=r"'<0.05' at row 3, column 1 \('zinc'\).*line 4"):
        load_real(path)
    data = load_real(path, missing="<0.05")
    assert data.shape == (4, 2) and data.num_missing == 1
    with pytest.raises(InputError, match=r"'<0.05' at row 1, column 1 \('zinc'\)"):
        load_real(written(tmp_path, "zinc,lead\n<0.05,1.3\n<0.02,0.02\n1.5,2\n"))


def test_a_separator_at_the_end_of_every_line_makes_no_column(tmp_path):
    assert load(written(tmp_path, "a,b,\n1,0,\n0,1,\n")).column_names == ("a", "b")


# ---- ratings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (lines_of((0, 1, 2), "user,item,rating"), "r.csv"),
        (lines_of((0, 1, 2, 3), "userId,movieId,rating,timestamp"), "r.csv"),  # MovieLens
        (lines_of((0, 1, 2, 3), separator="\t"), "u.data"),
        (lines_of((0, 1, 3, 2), "user,item,timestamp,Book-Rating"), "r.csv"),
        (lines_of((2, 1, 0), "stars,item,user"), "r.csv"),
        ("".join(f"{k},{a},{b},{c}\n" for k, (a, b, c) in
                 enumerate([("userId", "movieId", "rating"), *FILMS], -1))
         .replace("-1,", ",", 1), "r.csv"),
    ],
    ids=["plain", "latest-small", "u.data", "by name", "other order", "index of pandas"],
)  # fmt: skip
def test_a_rating_is_taken_by_its_name(tmp_path, text, name):
    expected = Ratings(*zip(*FILMS, strict=True))
    found = load_ratings(written(tmp_path, text, name))
    assert found.column_names == ("11", "12", "13")
    assert found.fingerprint() == expected.fingerprint()
    assert found.range == (1, 5) and found.shape == (3, 3) and found.reading.layout == "triples"
    # What was left out is said: times, and the line's own number is none of the user's fields.
    times = {"u.data": ("field 4",)}.get(name, ("timestamp",) if "timestamp" in text else ())
    assert found.reading.ignored == times
    named = re.search(r"3 rows named by '(\w+?)(Id)?' x 3 columns named by '(\w+?)(Id)?' \('",
                      str(found.reading))  # fmt: skip
    assert (
        named is None if name == "u.data" else named[1] == "user" and named[3] in ("movie", "item")
    )


def test_times_are_no_ratings(tmp_path):
    path = written(tmp_path, lines_of((0, 1, 3, 2)))
    with pytest.raises(InputError, match=r"field 3 holds 8806.* like times .*--columns 1,2,4"):
        load_ratings(path, layout="triples")
    assert load_ratings(path, layout="triples", columns="1,2,4").range == (1, 5)
    for name in ("timestamp", "year"):
        with pytest.raises(InputError, match=f"'{name}', which is no rating"):
            load_ratings(written(tmp_path, lines_of((0, 1, 3), f"userId,movieId,{name}")))
    for times in ([881250949.5, 0, 891717742], [20240131, 20231205, 19990228]):
        frame = pd.DataFrame({"user": [1, 1, 2], "item": [7, 8, 8], "stars": times})
        with pytest.raises(InputError, match=r"stars holds .* which look like times"):
            Ratings.from_frame(frame)
    assert Ratings.from_frame(frame.assign(stars=[20240131, 20231299, 1])).num_ratings == 3


@pytest.mark.parametrize("model", ["pmf", "ordered-probit", "nmf"])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_long_frame_is_ratings(model, gaps):
    frame = pd.DataFrame(FILMS, columns=["user", "item", "rating"])
    data = ask(frame[frame.rating > 1] if gaps else frame, 1, model=model).data
    assert data.shape == (3, 3) and data.row_names == ("1", "2", "3")
    assert isinstance(data, RealMatrix if model == "nmf" else Ratings)


def test_ids_of_ratings_are_names_without_gaps():
    ratings = Ratings([1, 1, 2, 3], [101, 102, 101, 103], [5, 3, 4, 2])
    assert ratings.shape == (3, 3) and ratings.column_names == ("101", "102", "103")
    assert not len(ratings.empty_rows) and ratings.row_names[0] == "1"
    assert Ratings([0, 1], [1, 0], [5, 3]).row_names == ("row 1", "row 2")
    assert Ratings([1, 2], [1, 0], [5, 3], shape=(4, 2)).shape == (4, 2)


@pytest.mark.parametrize(
    ("text", "read", "mark", "value"),
    [
        (
            "4,-8.43,3.05,99\n3,99,-8.81,99\n4,99,-3.82,6.1\n",
            load_ratings,
            99,
            {"scale": (-10, 99)},
        ),
        # As Jester has them: how many jokes were rated, then the ratings.
        (
            "74,-8.43,3.05,99\n100,99,-8.81,99\n54,99,-3.82,6.1\n",
            load_ratings,
            99,
            {"scale": (-10, 100)},
        ),
        ("u,a,b,c\nA,5,-1,3\nB,,2,4\nC,-1,,1\n", load_ratings, -1, {"scale": (-1, 5)}),
        ("user,item,rating\n1,7,5\n1,8,99\n2,8,4\n", load_ratings, 99, {"scale": (1, 99)}),
        ("a,b\n2.29,1.3\n0.07,9999\n1.96,0.5\n", load_real, 9999, {"missing": ""}),
        ("user,item,rating\n1,7,5\n1,8,-999\n2,8,4\n", load_real, -999, {"missing": ""}),
        ("a,b\n2,1\n0,999\n1,0\n", partial(load, binarize=0), 999, {"missing": ""}),
        ("a,b\n2,1\n0,-1\n3,0\n", partial(load, binarize=0), -1, {"missing": ""}),
    ],
)
def test_marks_of_missing_numbers_are_asked_about_and_taken(tmp_path, text, read, mark, value):
    path = written(tmp_path, text)
    layout = {} if text.startswith("user") else {"layout": "table"}
    ask = rf"value {mark} at row \d.*(far from|the only).*missing={mark}.*{next(iter(value))}="
    with pytest.raises(InputError, match=ask):
        read(path, **layout)
    times = len(re.findall(rf"(?<=,){mark}\b", text))
    without, whole = read(path, **layout, missing=mark), read(path, **layout, **value)
    assert without.num_missing == whole.num_missing + times
    frame = pd.DataFrame({"a": [2, mark, 1], "b": [4, 0, 3]})
    more = {"layout": "table"} | getattr(read, "keywords", {})
    with pytest.raises(InputError, match=rf"value {mark} at row 2, column 1 \('a'\) is"):
        type(whole).from_frame(frame, **more)
    assert type(whole).from_frame(frame, missing=mark, **more).num_missing == 1


def test_marks_of_missing_numbers_in_arrays_and_odd_ratings_are_said(tmp_path):
    array = RealMatrix([[2.0, 9999], [0.5, 1]])
    assert str(array.reading).endswith(
        "from 0.5 to 9999; 9999 (1 cell) may mean that there is none"
    )
    path = written(tmp_path, "Item/User,U1,U2\nA,2,?\nB,5,2\nC,?,1\n")
    with pytest.raises(InputError, match=r"'\?' at row .*say missing="):
        load_ratings(path, layout="table")
    assert load_ratings(path, layout="table", missing="?").num_ratings == 4


def test_columns_without_names_go_by_their_numbers(tmp_path):
    path = written(tmp_path, "4,-8.43,3.05,99\n3,99,-8.81,99\n4,99,-3.82,6.1\n")
    data = load_ratings(path, layout="table", missing=99, ignore="1")
    assert data.shape == (3, 3) and data.num_ratings == 5 and not data.has_column_names
    assert load_real(path, columns="2:3", missing=99).shape == (3, 2)
    with pytest.raises(InputError, match="header=False says that columns have no names"):
        load_real(path, ignore="joke", header=False)


def test_one_new_row_is_read_as_many_are(tmp_path):
    data = load(written(tmp_path, "\n".join(SURVEY.splitlines()[:2]) + "\n"))
    np.testing.assert_array_equal(data.dense(), [[1, 0, NAN]])


@pytest.mark.parametrize(("how", "value"), [("last", 1.0), ("mean", 3.0), ("sum", 6.0)])
def test_a_pair_that_is_rated_twice_is_asked_about(tmp_path, how, value):
    path = written(tmp_path, "user,item,rating\na,x,5\nb,x,2\na,x,1\n")
    with pytest.raises(InputError, match=r"rated twice, 5 and 1; .*duplicates='last'"):
        load_ratings(path)
    frame = pd.read_csv(path)
    for ratings in (
        load_ratings(path, duplicates=how),
        Ratings.from_frame(frame, duplicates=how),
        Ratings(frame.user, frame.item, frame.rating, duplicates=how),
    ):
        assert ratings.values.tolist() == [value, 2.0]


@pytest.mark.parametrize("ids", [("doc", "word", "d1 d1 d2", "cat dog cat"),
                                 ("doc_id", "word_id", "1 1 2", "5 7 5")])  # fmt: skip
def test_numbers_by_two_names_are_lines_of_a_matrix(tmp_path, ids):
    rows = zip(ids[2].split(), ids[3].split(), ("3", "1", "2"), strict=True)
    text = f"{ids[0]},{ids[1]},count\n" + "".join(",".join(row) + "\n" for row in rows)
    found = load_real(written(tmp_path, text))
    np.testing.assert_array_equal(found.dense(), [[3, 1], [2, NAN]])
    assert found.column_names == tuple(dict.fromkeys(ids[3].split()))
    twice = text + text.splitlines()[1] + "\n"
    with pytest.raises(InputError, match=r"is rated twice, 3 and 3; .*duplicates="):
        load_real(written(tmp_path, twice))


# ---- lists of pairs, lines of items ---------------------------------------------------------


def test_lines_with_a_value_are_no_table_of_one_column(tmp_path):
    """Neither where a pair is given twice, nor where the value stands first."""
    lines = [("u1", "p1", 1), ("u1", "p2", 0), ("u2", "p1", 0), ("u2", "p2", 1)]
    text = "".join(f"{u},{p},{v}\n" for u, p, v in lines)
    path = written(tmp_path, f"who,what,said\n{text}u1,p2,0\n")
    with pytest.raises(InputError, match=r"the pair 'u1', 'p2' is given twice; give every pair"):
        load(path)
    triples = load(path, layout="triples").dense().tolist()
    assert triples == [[1, 0], [0, 1]]
    text = "".join(f"{v},{u},{p}\n" for u, p, v in lines)
    assert load(written(tmp_path, f"value,who,what\n{text}")).dense().tolist() == triples
    path = written(tmp_path, f"said,who,what\n{text}")
    with pytest.raises(InputError, match=r"value, row and column; say columns='who,what,said' and"):
        load(path)
    again = load(path, columns="who,what,said", layout="triples")
    assert again.dense().tolist() == triples and again.row_names == ("u1", "u2")


@pytest.mark.parametrize("ones", ["", ",1"])
def test_pairs_are_ones_among_zeros(tmp_path, ones):
    pairs = [("u1", "p1"), ("u1", "p2"), ("u2", "p2"), ("u3", "p1")]
    header = "user,permission" + (",granted" if ones else "")
    text = header + "\n" + "".join(f"{a},{b}{ones}\n" for a, b in pairs)
    data = load(written(tmp_path, text))
    assert data.dense(int).tolist() == [[1, 1], [0, 1], [1, 0]]
    assert data.row_names == ("u1", "u2", "u3") and "not listed are zeros" in str(data.reading)
    assert BinaryMatrix.from_frame(pd.read_csv(tmp_path / "t.csv")).num_ones == 4
    mixed = load(written(tmp_path, text.replace("u3,p1,1", "u3,p1,0")))
    assert mixed.num_missing == (2 if ones else 0)


def pairs_of(row, column, end=""):
    """Return pairs of 20 rows and 8 columns as sets of names, and as lines of a file."""
    names = [(row(i), column(j)) for i in range(20) for j in range(8) if (3 * i + j) % 4]
    return set(names), "".join(f'{a},"{b}"{end}\n' for a, b in names)


@pytest.mark.parametrize("end", ["", ",1"])
@pytest.mark.parametrize(
    ("row", "column"),
    [
        ("{:04d}", "item {}"), ("{}", "item {}"), ("u{}", "10{}"), ("{:04d}", "10{}"),
        ("u{}", "item, {}"), ("{:04d}", "{:02d}"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("header", ["auto", False])
def test_pairs_without_a_header_may_have_numbers_for_names(tmp_path, row, column, end, header):
    for odd in ("7", "7 up"):  # one item is a number, or a text
        named = {0: odd} if "item" in column else {}
        known, text = pairs_of(row.format, lambda j: named.get(j, column.format(j)), end)  # noqa: B023
        data = load(written(tmp_path, text), header=header)
        found = zip(*np.nonzero(data.dense()), strict=True)
        assert {(data.row_names[i], data.column_names[j]) for i, j in found} == known


def test_pairs_of_numbers_are_asked_about(tmp_path):
    known, text = pairs_of(str, lambda j: str(100 + j))
    said = r"neither 0 nor 1.*; if its lines .*layout='pairs' \(--layout pairs\); else say"
    for more in ("", "buyer,thing\n"):
        path = written(tmp_path, more + text)
        with pytest.raises(InputError, match=said):
            load(path)
        assert load(path, layout="pairs").num_ones == len(known)
    with pytest.raises(InputError, match=said):
        BinaryMatrix.from_frame(pd.read_csv(path))
    bought = "c0,beer,1,2024-01-02\nc0,dip,3,2024-01-02\nc1,beer,1,2024-01-02\n"
    path = written(tmp_path, "customer,product,quantity,date\n" + bought)
    with pytest.raises(InputError, match=r"'c0' twice.*; if its lines .*; else make the row names"):
        load(path)
    assert load(path, layout="pairs", header=True).num_ones == 3
    # What has two or three fields, and can be no list of pairs, is not said to be one.
    for text in ("a,b\n" + "0.5,1.5\n2.5,3.5\n4.5,5.5\n" * 3, "1,0\n0,1\n1,7\n" * 5):
        with pytest.raises(InputError) as refused:
            load(written(tmp_path, text))
        assert "layout='pairs'" not in str(refused.value)


@pytest.mark.parametrize("name", ["t.csv", "t.basket"])
@pytest.mark.parametrize(
    "text", ["ham,egg,oat\negg,tea\nsoda\n", "ham,egg,oat\negg,tea,\nsoda,,\n"]
)
def test_lines_of_items_are_transactions(tmp_path, text, name):
    data = load(written(tmp_path, text, name))
    assert data.column_names == ("ham", "egg", "oat", "tea", "soda")
    assert data.dense(int).tolist() == [[1, 1, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 1]]
    assert "lines of items" in str(data.reading)


def test_items_of_baskets_may_be_numbers(tmp_path):
    for text in ("1 2 3\n2\n5 1\n", "1,2,3\n2\n5,1\n"):
        data = load(written(tmp_path, text, "t.basket"))
        assert data.column_names == ("1", "2", "3", "5")
        assert data.dense(int).tolist() == [[1, 1, 1, 0], [0, 1, 0, 0], [1, 0, 0, 1]]
    for name in ("u.basket", "u.dat"):  # an item that every line has
        assert load(written(tmp_path, "0 1 5\n0 1 7\n", name)).column_names == tuple("0157")


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("id,a,b\n1,1,0\n2,0,1\n3,1,1\n", "table"),
        ("x,1,0\ny,0,1\n", "table"),
        ("id,a,b\n1,yes,\n2,no,yes\n", "table"),
        ("user,item\n1,a\n1,b\n2,a\n", "pairs"),
        ("1,a\n1,b\n2,a\n", "pairs"),
    ],
)
def test_tables_and_pairs_that_end_as_baskets_are_asked_about(tmp_path, text, layout):
    path = written(tmp_path, text, "t.basket")
    with pytest.raises(InputError, match=f"say layout='{layout}' or layout='baskets'"):
        load(path)
    assert load(path, layout="baskets").shape[0] == text.count("\n")
    found = load(path, layout=layout, header=not text.startswith(("x", "1")))
    assert (found.reading.layout, found.shape[1]) == (layout, 2)


@pytest.mark.parametrize(
    "options", [{"header": True}, {"one": "1"}, {"columns": "a,b"}, {"binarize": 0.5}]
)
def test_lines_of_items_take_no_options_of_tables(tmp_path, options):
    table = written(tmp_path, "id,a,b\n1,1,0\n2,0,1\n3,1,1\n", "t.basket")
    assert load(table, **options).dense(int).tolist() == [[1, 0], [0, 1], [1, 1]]
    ragged = written(tmp_path, "ham,egg,oat\negg,tea\nsoda\n", "u.basket")
    with pytest.raises(InputError, match=f"{min(options)} means nothing for lines of items"):
        load(ragged, layout="baskets", **options)
    assert load(ragged, header=False, missing="tea").shape == (3, 4)


def test_blank_lines_among_items_are_said(tmp_path):
    data = load(written(tmp_path, '\nham,"an\negg"\n\n\ntea\nham\n\n', "t.basket"))
    assert data.shape == (3, 3) and str(data.reading).endswith("; 2 blank lines left out")


@pytest.mark.parametrize("name", ["m.dat", "m.basket"])
def test_lines_of_items_that_may_be_a_matrix_are_asked_about(tmp_path, name):
    path = written(tmp_path, "0 1 1\n1 1 0\n", name)
    with pytest.raises(InputError, match="say layout='table' or layout='baskets'"):
        load(path)
    assert load(path, layout="table").dense(int).tolist() == [[0, 1, 1], [1, 1, 0]]
    assert load(path, layout="baskets").shape == (2, 2)


# ---- dialects -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("sep=;\na;b\n1,5;0\n2;0,25\n", "t.csv", {}),
        ("a;b\n1,5;0\n2;0,25\n", "t.csv", {}),
        ('a,b\n"1,5",0\n2,"0,25"\n', "t.csv", {}),
        ("# made by a program\n#a\tb\n1.5\t0\n2\t0.25\n", "t.tsv", {}),
        ("a,b\n1.5,0\n2,0.25\n".encode("utf-16"), "t.csv", {}),
        (gzip.compress(b"a,b\n1.5,0\n2,0.25\n", mtime=0), "t.csv.gz", {}),
        ("a|b\n1.5|0\n2|0.25\n", "t.csv", {}),
    ],
    ids=["sep-line", "semicolons", "quoted", "comment", "utf-16", "gzip", "bars"],
)
def test_dialects_are_told(tmp_path, text, name, options):
    data = load_real(written(tmp_path, text, name), **options)
    assert data.dense().tolist() == [[1.5, 0.0], [2.0, 0.25]]
    assert data.column_names == ("a", "b") and data.name == "t"


def test_a_comma_that_may_be_of_thousands_is_asked_about(tmp_path):
    path = written(tmp_path, "a;b\n5,678;2\n1,234;3\n")
    ask = r"'1,234' may be .* thousands sign; say decimal=',' \(--decimal ,\) if it is 1.234, or "
    with pytest.raises(InputError, match=ask + r"decimal='.' \(--decimal .\) if it is 1234$"):
        load_real(path)
    assert load_real(path, decimal=",").range == (1.234, 5.678)
    assert load_real(path, decimal=".").range == (2, 5678)
    assert load_real(written(tmp_path, "a;b\n5,678;2\n1,234.5;3\n")).range == (2, 5678)


@pytest.mark.parametrize(
    "text",
    [
        "a;b\n1,234;2,5\n2,345;3,456\n",
        "a;b\n1,234;0,125\n2,345;-3,456\n",  # no thousands begin with a zero
        "name;a;b\nDoe, Ann;1,234;2,5\nLi, Bo;2,345;3,456\n",
        'u,i,value\nx,a,"1,234"\nx,b,"2,5"\ny,a,"2,345"\ny,b,"3,456"\n',
        "age;a;b\n12,5-13;1,234;2,5\n13-14,5;2,345;<0,05\n",
        "u;i;value\nx;a;1,234\nx;b;2,5\ny;a;2,345\ny;b;<0,05\n",
    ],
)
def test_commas_that_can_only_be_decimal_are_read(tmp_path, text):
    data = load_real(written(tmp_path, text), missing="<0,05")
    assert data.dense()[:, 0] == pytest.approx([1.234, 2.345]) and data.shape == (2, 2)


def test_points_of_thousands_are_said_beside_names_with_commas(tmp_path):
    path = written(tmp_path, "name;a;b\nDoe, Ann;1.234;2\nLi, Bo;5.678;3\n")
    assert "; points of thousands;" in str(load_real(path, decimal=",").reading)


def test_a_table_of_ratings_with_decimal_commas_is_no_list(tmp_path):
    path = written(tmp_path, "user;Heat;Alien\nann;3,5;4\nbob;;2,5\n")
    assert load_ratings(path).column_names == ("Heat", "Alien")
    path.write_text(path.read_text().replace(";;", ";4,5;"))  # as with points
    with pytest.raises(InputError, match="its lines may be row, column and rating, or rows of a"):
        load_ratings(path)


def test_points_that_may_be_of_thousands_are_asked_about(tmp_path):
    path = written(tmp_path, "a;b\n5.678;2\n1.234;3\n")
    triples = written(tmp_path, "u;i;value\nx;a;1.234\nx;b;2.125\ny;a;5.678\ny;b;3.5\n", "u.csv")
    assert load_real(triples).range == (1.234, 5.678)
    triples.write_text(triples.read_text().replace("3.5", "3.500"))
    for unclear in (path, triples):
        with pytest.raises(InputError, match=r"'1.234' may be a decimal or a thousands sign"):
            load_real(unclear)
    assert load_real(path, decimal=".").range == (1.234, 5.678)
    data = load_real(path, decimal=",")
    assert data.range == (2, 5678) and "points of thousands" in str(data.reading)
    for plain in ("a,b\n5.678,2\n1.234,3\n", "a;b\n5.678;2\n0.234;3\n", "a;b\n5.678;2\n1.23;3\n"):
        data = load_real(written(tmp_path, plain))
        assert data.range[1] == 5.678 and "thousands" not in str(data.reading)


def test_points_are_of_thousands_where_commas_are_decimal(tmp_path):
    path = written(tmp_path, "a;b\n2.000;1,5\n1.234,5;7\n")
    with pytest.raises(InputError, match=r"value '1.234,5' at row 2.*is no number"):
        load_real(path)
    assert load_real(path, decimal=",").dense().tolist() == [[2000, 1.5], [1234.5, 7]]


def test_an_encoding_is_asked_for(tmp_path):
    path = written(tmp_path, "name,a,b\nLéon,1,0\nAnn,0,1\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"line 2: not UTF-8.*--encoding latin-1"):
        load(path)
    packed = written(tmp_path, lzma.compress(b"name,a,b\nAnn,0,1\n"), "u.csv")
    with pytest.raises(InputError, match=r"u\.csv: packed by xz; unpack it first"):
        load_real(packed)
    assert load(path, encoding="latin-1").row_names == ("Léon", "Ann")
    with pytest.raises(InputError, match="encoding is 'klingon', which is not known"):
        load(path, encoding="klingon")


def test_a_sheet_is_read_as_a_text(tmp_path, monkeypatch):
    sheet = pd.DataFrame([["id", "Q1", "Q2"], [7, "Yes", None], [9, "No", "Yes"]], dtype=object)
    names = ["answers", "notes"]

    class Book(contextlib.nullcontext):
        sheet_names = names

        def __enter__(self):
            return self

        def parse(self, name, **options):
            return {"answers": sheet}[name]

    monkeypatch.setattr(pd, "ExcelFile", Book)
    data = load(written(tmp_path, "", "t.xlsx"))
    np.testing.assert_array_equal(data.dense(), [[1, NAN], [0, 1]])
    assert data.row_names == ("7", "9") and "sheet 'answers' of 2" in str(data.reading)
    del names[1]
    assert "sheet" not in str(load(tmp_path / "t.xlsx").reading)


# ---- objects of other libraries -------------------------------------------------------------


def test_frames_and_arrays_of_other_libraries_keep_their_names():
    pyarrow, anndata = pytest.importorskip("pyarrow"), pytest.importorskip("anndata")
    import xarray

    values = np.array([[1, 0, 1], [0, 1, 1]])
    names = pd.DataFrame(index=["x", "y"]), pd.DataFrame(index=list("abc"))
    table = pyarrow.table({name: values[:, j] for j, name in enumerate("abc")})
    cells = anndata.AnnData(values.astype("f4"), *names)
    array = xarray.DataArray(values, dims=("r", "c"), coords={"c": list("abc")})
    for kind in (BinaryMatrix, RealMatrix):
        for given in (table, cells, array):
            data = kind(given)
            assert data.column_names == ("a", "b", "c") and data.dense().tolist() == values.tolist()
    assert BinaryMatrix(cells).row_names == ("x", "y")
    assert str(BinaryMatrix(cells).reading) == "read as 2 rows x 3 columns 'a' ... 'c' of 0/1"
    long = pyarrow.table(pd.DataFrame(FILMS, columns=["user", "item", "rating"]))
    assert Ratings.from_frame(long).shape == (3, 3)
    assert isinstance(ask(long, 1, model="pmf").data, Ratings)


@pytest.fixture(params=["object", "h5ad", "zarr"])
def cells(request, tmp_path):
    """Cells with a layer and raw values, and those of two modalities: two sources."""
    anndata = pytest.importorskip("anndata")
    from anndata.io import write_elem

    counts = np.array([[0, 3, 0], [2, 0, 1]], "f4")
    names = pd.DataFrame({"kind": ["T", "B"]}, index=["x", "y"]), pd.DataFrame(index=list("abc"))
    rna = anndata.AnnData(sp.csr_matrix(counts[:, :2]), names[0], names[1][:2])
    rna.raw = anndata.AnnData(counts, *names)
    rna.layers["counts"] = sp.csc_matrix(counts[:, 1:])
    mods = {"rna": rna, "atac": anndata.AnnData(counts > 1, *names)}
    if request.param == "object":
        return rna, SimpleNamespace(mod=mods, obs_names=rna.obs_names)
    endings = ("h5ad", "h5mu") if request.param == "h5ad" else ("zarr", "mods.zarr")
    paths = [tmp_path / f"m.{ending}" for ending in endings]
    for path, parts in zip(paths, ({"/": rna}, mods), strict=True):
        if request.param == "h5ad":
            root = pytest.importorskip("h5py").File(path, "w")
        else:
            root = pytest.importorskip("zarr").open_group(str(path), mode="w", zarr_format=2)
        for name, part in parts.items():
            write_elem(root if name == "/" else root.require_group("mod"), name, part)
        if request.param == "h5ad":
            root.close()
    return paths


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_layers_raw_values_and_modalities_are_chosen(cells):
    one, several = cells
    for source, options, values, names in (
        (one, {}, [[0, 3], [2, 0]], "ab"),
        (one, {"layer": "counts"}, [[3, 0], [0, 1]], "ab"),
        (one, {"use_raw": True}, [[0, 3, 0], [2, 0, 1]], "abc"),
        (several, {"modality": "atac"}, [[0, 1, 0], [1, 0, 0]], "abc"),
        (several, {"modality": "rna", "layer": "counts"}, [[3, 0], [0, 1]], "ab"),
    ):
        found = load_real(source, **options, label_column="kind")
        assert found.dense().tolist() == values and found.column_names == tuple(names)
        assert found.row_names == ("x", "y") and found.row_labels == ("T", "B")
        bits = load(source, **options, label_column="kind", binarize=0)
        assert bits.dense().tolist() == (np.array(values) > 0).tolist()
    assert str(bits.reading) == (
        "read as 2 rows x 2 columns 'a' ... 'b' of 0/1; 'kind' a label; modality 'rna'; layer "
        "'counts'; ones above 0"
    )
    for source, options, said in (
        (several, {}, r"holds the modalities atac, rna; say which by modality= \(--modality NAME"),
        (several, {"modality": "adt"}, "modality is 'adt', and it holds the modalities atac, rna"),
        (several, {"modality": "atac", "use_raw": True}, "it holds no raw values"),
        (one, {"modality": "rna"}, "modality is 'rna', and it holds no modalities"),
        (one, {"layer": "raw"}, "layer is 'raw', and the layers of it are counts"),
        (one, {"layer": "counts", "use_raw": True}, "name two matrices; give one of them"),
        (one, {"decimal": ","}, "decimal means nothing for"),
    ):
        with pytest.raises(InputError, match=said):
            load_real(source, **options)
    if isinstance(several, SimpleNamespace):
        with pytest.raises(InputError, match="holds the modalities atac, rna"):
            BinaryMatrix(several)


def test_an_array_of_zeros_and_ones_is_read_from_its_file(tmp_path):
    np.save(tmp_path / "m.npy", np.eye(3))
    assert load(tmp_path / "m.npy").num_ones == 3


def test_a_table_of_parquet_is_read_for_every_kind_of_data(tmp_path):
    pytest.importorskip("pyarrow")
    pd.DataFrame(FILMS, columns=["user", "item", "rating"]).to_parquet(tmp_path / "r.parquet")
    assert load_ratings(tmp_path / "r.parquet").shape == (3, 3)
    frame = pd.DataFrame({"sample": ["x", "y"], "a": [0.5, 2], "b": [1.5, 0]})
    frame.to_parquet(tmp_path / "m.parquet")
    assert load_real(tmp_path / "m.parquet").row_names == ("x", "y")
    pd.read_csv(written(tmp_path, SURVEY)).to_parquet(tmp_path / "s.parquet")
    survey = load(tmp_path / "s.parquet", ignore="Q3")
    assert survey.fingerprint() == load(written(tmp_path, SURVEY), ignore="Q3").fingerprint()
    assert survey.row_names[0] == "1001" and survey.row_labels[:2] == ("male", "female")


def test_ratings_are_read_from_arrays_and_coordinates(tmp_path):
    stars = np.array([[5, NAN, 3], [4, 0, NAN]])
    np.save(tmp_path / "r.npy", stars)
    known = sp.coo_array((stars[~np.isnan(stars)], np.nonzero(~np.isnan(stars))), shape=(2, 3))
    mmwrite(tmp_path / "r.mtx", known)
    for name in ("r.npy", "r.mtx"):
        found = load_ratings(tmp_path / name, scale=(0, 5))
        np.testing.assert_array_equal(found.dense(), stars)
        assert str(found.reading) == "read as 2 rows x 3 columns of 4 ratings from 0 to 5"
    (tmp_path / "r.h5ad").write_bytes(b"")
    with pytest.raises(InputError, match=r"'.h5ad', of which no ratings data are read"):
        load_ratings(tmp_path / "r.h5ad")


def test_lines_without_a_rating_are_none_in_texts_and_in_frames(tmp_path):
    text = "user,item,rating\n7,x,5\n7,y,NA\n8,x,3\n9,z,NA\n"
    assert load_ratings(written(tmp_path, "ann,x,NA\nbob,x,4\nbob,y,?\n"), missing="?").shape == (
        1,
        1,
    )
    path = written(tmp_path, text)
    for found in (load_ratings(path), Ratings.from_frame(pd.read_csv(path))):
        assert found.row_names == ("7", "8") and found.column_names == ("x",)


def test_years_above_few_columns_are_names(tmp_path):
    found = load_real(written(tmp_path, "country,1990,1991,1992\nFR,1.5,2,3\nDE,2,3,4\n"))
    assert found.column_names == ("1990", "1991", "1992") and found.row_names == ("FR", "DE")
    with pytest.raises(InputError, match="header=True or header=False"):
        load_real(written(tmp_path, "country,10,30,31\nFR,1.5,2,3\nDE,2,3,4\n"))


# ---- what is said ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "model", "said"),
    [
        (SURVEY, "ormachine", "read as 4 rows named by 'respondent_id' x 3 columns"),
        ("s,a,b\nx,1,2\ny,3,4\n", "nmf", "of numbers from 1 to 4; first line taken for"),
        ("user,item,rating\na,x,1\nb,y,2\n", "pmf", "of 2 ratings from 1 to 2"),
    ],
)
def test_the_command_line_says_what_was_read(tmp_path, capsys, text, model, said):
    from bmfjax.cli import main

    path = written(tmp_path, text)
    assert main(["fit", str(path), "--model", model, "--rank", "99"]) == 2  # for the rank
    told = capsys.readouterr()
    assert said in told.out and "rank is 99" in told.err


def test_the_command_line_has_the_options_of_the_loaders(tmp_path, capsys):
    from bmfjax.cli import main

    path = written(tmp_path, SURVEY)
    options = ["--columns", "Q1:Q2", "--label-column", "gender", "--one", "No", "--zero", "Yes"]
    assert main(["fit", str(path), "--rank", "99", *options, "--missing", "Don't know"]) == 2
    assert "x 2 columns 'Q1' ... 'Q2' of ones No, zeros Yes; 'gender' a label" in (
        capsys.readouterr().out
    )
    path = written(tmp_path, "a,b\n2,0\n0,1\n")
    assert main(["fit", str(path), "--rank", "99", "--binarize", "0"]) == 2
    assert "2 columns 'a' ... 'b' of numbers, ones above 0" in capsys.readouterr().out


def test_labels_of_ratings_and_of_lines_are_refused(tmp_path):
    path = written(tmp_path, "user,item,rating\na,x,1\nb,y,2\n")
    for read, layout in (
        (load_ratings, "triples"),
        (load_real, "triples"),
        (load_ratings, "table"),
    ):
        with pytest.raises(InputError, match=r"label_column means nothing for (lines|ratings)"):
            read(path, layout=layout, label_column="item")


def test_options_that_nobody_knows_are_type_errors(tmp_path):
    path = written(tmp_path, SURVEY)
    for call in (
        lambda: load(path, colums="Q1"),
        lambda: load_real(path, one="Yes"),
        lambda: BinaryMatrix.from_frame(pd.DataFrame({"a": [1]}), colums="Q1"),
    ):
        with pytest.raises(TypeError, match=r"colums|one is no option"):
            call()
    assert bmfjax.load(path).num_columns == 3


# ---- units and names of numbers ---------------------------------------------------------------


def test_negative_numbers_beyond_the_noise_are_no_data_of_nmf(tmp_path):
    body = "2.29,1.3\n0.07,0.02\n1.96,{}\n0.5,0.9\n"
    path = written(tmp_path, "a,b\n" + body.format("-999"))
    with pytest.raises(InputError, match=r"value -999 at row 3, column 2 \('b'\) \(line 4 of"):
        ask(str(path), 1, model="nmf")
    with pytest.raises(InputError, match=r"value -999 at row 3 .*column 2 .*'b'.*missing=-999"):
        ask(load_real(path, missing=""), 1, model="nmf")
    assert ask(load_real(path, missing=-999), 1, model="nmf").data.num_missing == 1
    assert ask(str(written(tmp_path, "a,b\n" + body.format("-0.01"))), 1, model="nmf")
    scores = np.random.default_rng(0).normal(size=(20, 4))
    with pytest.raises(InputError, match="is negative, and model 'nmf'"):
        ask(scores, 1, model="nmf")


def test_whole_numbers_are_names_where_names_are_whole_numbers():
    names, ids = ("3", "1", "2"), pd.Series([1, 3])
    assert positions(ids, names, "row").tolist() == [1, 0]
    assert positions([1, "3"], names, "row").tolist() == [1, 0]
    assert positions(ids - 1, names, "row", by_position=True).tolist() == [0, 2]
    assert positions([0, 2], ("ann", "bob", "1"), "row").tolist() == [0, 2]
    padded = ("003", "007", "0012", "7", "04", "4")
    assert positions([3, 12, 7, "007"], padded, "row").tolist() == [0, 2, 3, 1]
    assert positions([3], padded, "row", by_position=True).tolist() == [3]
    with pytest.raises(InputError, match=r"row '4' is not in .*'004'"):
        positions([4], ("004", "0004", "1"), "row")  # both are 4
    # Most are whole numbers, and 2 is the position of one and the name of another.
    mixed = ("x", "002", "7", "004")
    with pytest.raises(InputError, match=r"row 2 may be the position of '7', or .*; say '002', or"):
        positions([0, 2], mixed, "row")
    assert positions([0, "002", 3], mixed, "row").tolist() == [0, 1, 3]
    assert positions([2], mixed, "row", by_position=True).tolist() == [2]
    assert positions([1], ("ann", "1", "2"), "row").tolist() == [1]
    several = ("ann", "1", "01", "3", "03", "003")
    assert positions([1], several, "row").tolist() == [1]
    with pytest.raises(InputError, match=r"row 4 may be .*; say '004', or"):
        positions([4], ("004", "04", "1", "2", "x"), "row")
    with pytest.raises(InputError, match=r"row '0' is not in .*positions by positions=True"):
        positions([0], names, "row")


@pytest.mark.parametrize("model", ["pmf", "ordered-probit", "probit"])
def test_predictions_and_recommendations_go_by_ids(model):
    data = data_of(model, 5)
    names = [str(k + 3) for k in range(data.num_rows)], ["15", "11", "14", "13", "12"]
    if model == "probit":
        data = BinaryMatrix(data.dense(), None, *names)
    else:
        sides = {"row_names": names[0], "column_names": names[1], "shape": data.shape}
        data = Ratings(data.rows, data.columns, data.values, scale=(1, 5), **sides)
    fit = fit_of(model, data, columns=5)
    by_name = fit.predict_cells(["4", "3"], ["11", "12"])
    np.testing.assert_array_equal(fit.predict_cells([4, 3], [11, 12]), by_name)
    np.testing.assert_array_equal(fit.predict_cells([1, 0], [1, 4], positions=True), by_name)
    assert fit.recommend(4, seen=True).equals(fit.recommend("4", seen=True))
    assert fit.recommend(1, seen=True, positions=True).equals(fit.recommend("4", seen=True))
    np.testing.assert_array_equal(fit.predict([4], [11]), by_name[:1, None])
    with pytest.raises(InputError, match="row '0' is not in the matrix"):
        fit.predict_cells([0], [11])


def test_new_ratings_by_ids_are_put_under_the_names_of_a_fit():
    columns = ("11", "12", "13")
    new = Ratings([7, 7], [13, 11], [5, 3], column_names=columns)
    assert new.columns.tolist() == [0, 2] and new.row_names == ("7",)


# ---- what is kept of it -----------------------------------------------------------------------


def test_what_was_read_is_kept_in_files_and_copies_and_in_the_report(tmp_path):
    data = load(written(tmp_path, SURVEY))
    path = bmfjax.save(tmp_path / "m.npz", data)
    assert load(path).reading == data.reading == pickle.loads(pickle.dumps(data)).reading
    assert "Yes/No" in load(path).reading.values
    page = {fact.name: fact.value for fact in facts.data(SimpleNamespace(data=data))}
    assert page["Read as"].startswith("4 rows named by 'respondent_id'")
    with pytest.raises(InputError, match="'reading' is no record"):
        Reading.of_text('{"layout": "table", "shape": 3}')


@pytest.mark.parametrize("model", ["ormachine", "features"])
def test_what_has_no_data_is_no_member_of_a_tile(model):
    values = data_of(model).dense().copy()
    values[:, 3] = values[5] = NAN
    fit = fit_of(model, BinaryMatrix(values))
    assert not fit.basis_binary[3].any() and not fit.usage_binary[5].any()
    full = fit_of(model, data_of(model))
    kept = np.arange(values.shape[1]) != 3
    np.testing.assert_array_equal(fit.basis_binary[kept], full.basis_binary[kept])
    assert full.basis_binary[3].any() or full.usage_binary[5].any()


@pytest.mark.parametrize("mark", ["nan", "NaN", "NA", ""])
def test_a_missing_value_in_the_first_line_is_no_name(tmp_path, mark):
    path = tmp_path / "bits.csv"
    path.write_text(f"1,1,{mark},0\n0,1,1,0\n1,0,0,1\n")
    data = bmfjax.load(path)
    assert data.shape == (3, 4) and data.num_missing == 1 and not data.has_column_names

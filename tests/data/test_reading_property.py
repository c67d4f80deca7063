"""Tables of all dialects, kinds and oddities: read as meant, or refused; none is read otherwise."""

import csv
import io

import numpy as np
import pandas as pd
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bmfjax.data import InputError, load, load_ratings, load_real

#: How values of every kind of data are written, by what they are.
WORDS = [("1", "0"), ("Yes", "No"), ("T", "F"), ("true", "false"), ("+", "-")]
SIDES = ("none", "names", "id", "corner")


@st.composite
def tables(draw):
    """A table: its values, how they are written, and what is odd about it."""
    rows, columns = draw(st.integers(3, 9)), draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["binary", "real", "ratings"]))
    if kind == "binary":
        values = rng.integers(0, 2, (rows, columns)).astype(float)
        values[:2] = [1.0], [0.0]  # both stand in every column
    elif kind == "real":
        values = rng.gamma(1.0, 9.0, (rows, columns)).round(3) + 0.001
    else:
        values = rng.integers(1, 11, (rows, columns)) / 2
    hidden = rng.random((rows, columns)) < draw(st.sampled_from([0.0, 0.2]))
    hidden[:2] = False
    values[hidden] = np.nan
    side = draw(st.sampled_from(SIDES))
    header = draw(st.sampled_from(["words", "numbers", "none"]))
    if side == "corner" and header == "none":
        header = "words"
    return {
        "values": values, "kind": kind, "side": side, "header": header,
        "pair": draw(st.sampled_from(WORDS)),
        "separator": draw(st.sampled_from([",", ";", "\t"])),
        "comma": draw(st.booleans()),
        "blank": draw(st.sampled_from(["", "NA"])),
        "end": draw(st.sampled_from(["\n", "\r\n"])),
        "labels": draw(st.booleans()),
        "odd": draw(st.sampled_from([None, None, "<0.05", "?"])),
    }  # fmt: skip


def text_of(table):
    """Write a table as a text."""
    values, kind = table["values"], table["kind"]
    comma = table["comma"] and table["separator"] != "," and kind != "binary"

    def cell(value):
        if np.isnan(value):
            return table["blank"]
        if kind == "binary":
            return table["pair"][0 if value else 1]
        return f"{value:g}".replace(".", ",") if comma else f"{value:g}"

    body = [[cell(value) for value in row] for row in values]
    if table["odd"]:
        body[-1][-1] = table["odd"]
    names = [f"Q{j}" for j in range(len(body[0]))]
    if table["header"] == "numbers":
        names = [str(1990 + j) for j in range(len(names))]
    labels = table["labels"] and kind != "ratings" and table["header"] == "words"
    if labels:
        names = ["party", *names]
        body = [["left" if i % 2 else "right", *row] for i, row in enumerate(body)]
    if table["side"] != "none":
        corner = {"names": "who", "id": "user_id", "corner": ""}[table["side"]]
        names = [corner, *names]
        own = [f"p{i}" if table["side"] == "names" else str(1001 + i) for i in range(len(body))]
        body = [[name, *row] for name, row in zip(own, body, strict=True)]
    lines = body if table["header"] == "none" else [names, *body]
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=table["separator"], lineterminator=table["end"])
    writer.writerows(lines)
    return stream.getvalue()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(tables())
@example(
    {
        "values": np.array([[1.0, 1], [0, 0], [1, 0]]), "kind": "binary", "side": "names",
        "header": "words", "pair": ("Yes", "No"), "separator": ",", "comma": False, "blank": "",
        "end": "\n", "labels": True, "odd": None,
    }
)  # fmt: skip
def test_a_table_is_read_as_meant_or_refused(tmp_path_factory, table):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_text(text_of(table), newline="")
    try:
        if table["kind"] == "binary":
            found = load(path)
        elif table["kind"] == "real":
            found = load_real(path)
        else:
            found = load_ratings(path, layout="table")
    except InputError as refused:
        if table["odd"]:
            return
        # What is clear is read.
        said = str(refused)
        asked = ("row_names=True", "header=True", "may be a decimal", "one=, zero=", "ignore=")
        assert any(option in said for option in asked), said
        clear = table["header"] == "words" and table["side"] in ("names", "id", "corner")
        assert not clear or "may be a decimal" in said, said
        return
    assert not table["odd"], "an odd cell was read"
    np.testing.assert_allclose(found.dense(np.float64), table["values"], rtol=1e-5)
    assert found.has_row_names == (table["side"] != "none")
    assert found.has_column_names == (table["header"] != "none")
    if table["header"] == "words":
        comma = table["comma"] and table["kind"] != "binary" and table["separator"] != ","
        frame = pd.read_csv(path, sep=table["separator"], decimal="," if comma else ".")
        again = type(found).from_frame(frame, layout="table")
        assert again.fingerprint() == found.fingerprint()
        assert again.row_names == found.row_names and again.column_names == found.column_names

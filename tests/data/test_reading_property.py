"""Texts of all dialects, kinds and oddities: read as meant, or refused; none is read otherwise."""

import csv
import gzip
import io
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmfjax.data import InputError, load, load_ratings, load_real

#: How ones and zeros are written.
WORDS = [("1", "0"), ("Yes", "No"), ("T", "F"), ("true", "false"), ("+", "-")]
#: What is odd about the last cell of the first or the last line, or about the last line.
ODD = (None, None, None, "<0.05", "?", "maybe", "9999", "short", "long")
#: What the messages offer where a text has two readings.
CHOICES = (
    "row_names=",
    "header=",
    "decimal=",
    "one=",
    "ignore=",
    "layout=",
    "missing=",
    "columns=",
)
ALL = settings(max_examples=200)


@st.composite
def tables(draw, kind):
    """A table: its values, how they are written, and what is odd about it."""
    rows, columns = draw(st.integers(3, 9)), draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if kind == "binary":
        values = rng.integers(0, 2, (rows, columns)).astype(float)
        values[:2] = [1.0], [0.0]  # both stand in every column
    elif kind == "real":
        values = rng.gamma(1.0, 9.0, (rows, columns)).round(3) + 0.001
    else:
        values = rng.integers(1, 11, (rows, columns)) / 2
    hidden = rng.random((rows, columns)) < draw(st.sampled_from([0.0, 0.2]))
    hidden[:2] = hidden[-1] = False
    values[hidden] = np.nan
    header = draw(st.sampled_from(["words", "numbers", "none"]))
    side = draw(st.sampled_from(["none", "names", "id", *["corner"] * (header != "none")]))
    separator = draw(st.sampled_from([",", ";", "\t", "|"]))
    return {
        "values": values, "kind": kind, "side": side, "header": header, "separator": separator,
        "pair": draw(st.sampled_from(WORDS)),
        "comma": draw(st.booleans()) and separator != "," and kind != "binary",
        "blank": draw(st.sampled_from(["", "NA"])),
        "end": draw(st.sampled_from(["\n", "\r\n"])),
        "labels": draw(st.booleans()) and kind != "ratings" and header == "words",
        "quoting": draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
        "packing": draw(st.sampled_from(["plain", "mark", "gz", "comment", "blank line"])),
        "odd": draw(st.sampled_from(ODD)), "at": draw(st.sampled_from([0, -1])),
    }  # fmt: skip


def parts_of(table):
    """Return the lines of a table as texts, and the names of its rows and columns."""
    values, kind = table["values"], table["kind"]

    def cell(value):
        if np.isnan(value):
            return table["blank"]
        if kind == "binary":
            return table["pair"][0 if value else 1]
        return f"{value:g}".replace(".", ",") if table["comma"] else f"{value:g}"

    body = [[cell(value) for value in row] for row in values]
    columns = [f"Q{j}" for j in range(len(body[0]))]
    if table["header"] == "numbers":
        columns = [str(1990 + j) for j in range(len(columns))]
    names, lines = list(columns), body
    if table["labels"]:
        names = ["party", *names]
        lines = [["left" if i % 2 else "right", *row] for i, row in enumerate(lines)]
    rows = [f"p{i}" if table["side"] == "names" else str(1001 + i) for i in range(len(body))]
    if table["side"] != "none":
        names = [{"names": "who", "id": "user_id", "corner": ""}[table["side"]], *names]
        lines = [[name, *row] for name, row in zip(rows, lines, strict=True)]
    if table["odd"] == "short":
        lines[-1] = lines[-1][:-1]
    elif table["odd"] == "long":
        lines[-1] = [*lines[-1], cell(1.0)]
    elif table["odd"]:
        at = table["at"]
        lines[at] = [*lines[at][:-1], table["odd"]]
    return lines if table["header"] == "none" else [names, *lines], rows, columns


def written(folder, lines, table):
    """Write lines of fields as a file of a dialect."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=table["separator"], lineterminator=table["end"],
                        quoting=table["quoting"])  # fmt: skip
    writer.writerows(lines)
    text, packing = stream.getvalue(), table["packing"]
    if packing == "blank line":
        first, end, rest = text.partition(table["end"])
        text = first + end + end + rest
    text = "# made by a program" * (packing == "comment") + table["end"] + text
    path = folder / ("any.csv.gz" if packing == "gz" else "any.csv")
    content = text.encode("utf-8-sig" if packing == "mark" else "utf-8")
    path.write_bytes(gzip.compress(content, mtime=0) if packing == "gz" else content)
    return path


@pytest.mark.parametrize("kind", ["binary", "real", "ratings"])
def test_a_table_is_read_as_meant_or_refused(tmp_path, kind):
    """200 tables: many of them read, and some of every oddity refused."""
    read, refused = [], []

    @ALL
    @given(tables(kind))
    def one(table):
        lines, rows, columns = parts_of(table)
        path = written(tmp_path, lines, table)
        try:
            if kind == "ratings":
                found = load_ratings(path, layout="table")
            else:
                found = (load if kind == "binary" else load_real)(path)
        except InputError as error:
            refused.append(table["odd"])
            check_refusal(str(error), table, len(lines))
            return
        read.append(table)
        assert not table["odd"], f"{table['odd']} was read"
        np.testing.assert_allclose(found.dense(np.float64), table["values"], rtol=1e-5)
        has_header, has_names = table["header"] != "none", table["side"] != "none"
        assert (found.has_column_names, found.has_row_names) == (has_header, has_names)
        assert not has_header or found.column_names == tuple(columns)
        assert not has_names or found.row_names == tuple(rows)
        assert (found.row_labels is not None) == table["labels"]
        if table["header"] == "words" and table["packing"] == "plain":
            frame = pd.read_csv(path, sep=table["separator"], decimal=".,"[table["comma"]])
            again = type(found).from_frame(frame, layout="table")
            assert again.fingerprint() == found.fingerprint()
            assert again.row_names == found.row_names and again.column_names == found.column_names

    one()
    assert len(read) > 60 and set(ODD) - {None} <= set(refused)


def check_refusal(said, table, number):
    """A refusal names the cell or the line that is odd; else it offers a choice."""
    odd = table["odd"]
    if odd in ("short", "long"):
        assert re.search(r"line \d+ has \d+ cells|may be", said), said
        return
    choice = any(option in said for option in CHOICES)
    assert choice, said
    clear = table["header"] == "words" and table["side"] != "none"
    assert not clear or odd or "decimal" in said, said
    assert not clear or not odd or odd in said or "decimal" in said, said


@st.composite
def lists(draw):
    """Lines of row, column and rating, with or without a time and a header, in an order."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ids = draw(st.booleans())
    users = [str(7 + 3 * k) if ids else f"u{k}" for k in range(draw(st.integers(2, 6)))]
    films = [str(101 + k) if ids else f"film {k}" for k in range(draw(st.integers(2, 5)))]
    cells = [(u, f) for u in users for f in films]
    rng.shuffle(cells)
    cells = cells[: max(3, int(len(cells) * 0.8))]
    stars = rng.integers(1, 11, len(cells)) / 2
    lines = [[u, f, f"{s:g}", str(880650458 + 977 * k)] for k, ((u, f), s) in
             enumerate(zip(cells, stars, strict=True))]  # fmt: skip
    return {
        "lines": lines, "header": draw(st.booleans()), "times": draw(st.booleans()),
        "separator": draw(st.sampled_from([",", ";", "\t", "::"])),
        "order": draw(st.permutations(range(4))),
        "odd": draw(st.sampled_from([None, None, None, "?", "twice", "short", "999", "good"])),
        "at": draw(st.sampled_from([0, -1])),
    }  # fmt: skip


def test_a_list_of_ratings_is_read_as_meant_or_refused(tmp_path):
    read = []

    @ALL
    @given(lists())
    def one(made):
        lines, odd = [list(line) for line in made["lines"]], made["odd"]
        if odd == "twice":
            lines.append([*lines[0][:2], "0.5", lines[0][3]])
        elif odd in ("?", "999", "good"):
            lines[made["at"]][2] = odd
        order = made["order"] if made["header"] else range(4)
        order = [k for k in order if k < 3 or made["times"]]
        fields = [["userId", "movieId", "rating", "timestamp"]] * made["header"] + lines
        fields = [[line[k] for k in order] for line in fields]
        if odd == "short":
            fields[-1] = fields[-1][:2]
        path = tmp_path / "any.dat"
        path.write_text("".join(made["separator"].join(line) + "\n" for line in fields))
        try:
            found = load_ratings(path)
        except InputError as error:
            said = str(error)
            assert odd or any(choice in said for choice in CHOICES), said
            assert odd or not made["header"], said
            return
        assert not odd, f"{odd} was read"
        read.append(made)
        own = {(found.row_names[i], found.column_names[j]): f"{v:g}" for i, j, v in
               zip(found.rows, found.columns, found.values, strict=True)}  # fmt: skip
        assert own == {(u, f): s for u, f, s, _ in lines}
        left = ("timestamp",) if made["header"] else ("field 4",)
        assert found.reading.ignored == left * made["times"]

    one()
    assert len(read) > 60

"""Names that cannot be stored are refused where they are read; none steers a terminal."""

import os
import sys

import numpy as np
import pandas as pd
import pytest

import bmfjax
from bmfjax.data.names import title_of
from bmfjax.errors import printable

HALF = os.fsdecode(b"caf\xe9") if sys.platform != "win32" else "caf\udce9"


def test_a_nul_in_a_file_is_refused_with_its_place(tmp_path):
    path = tmp_path / "votes.csv"
    path.write_text(",a,c\0x\nann,1,0\nbob,0,1\n")
    with pytest.raises(bmfjax.InputError, match=r"votes\.csv: .*column 2 .*is 'c\\x00x'.* NUL"):
        bmfjax.load(path)


def objects(*names):
    """Names that pandas 3 does not make texts of its own, which have no half characters."""
    return pd.Index(names, dtype=object)


@pytest.mark.parametrize("bad", ["a\0b", "\ud800", HALF])
@pytest.mark.parametrize(
    "make",
    [
        lambda bad: bmfjax.BinaryMatrix(np.eye(2), row_names=["ann", bad]),
        lambda bad: bmfjax.BinaryMatrix(np.eye(2), row_labels=["ann", bad]),
        lambda bad: bmfjax.RealMatrix(pd.DataFrame(np.eye(2), columns=objects("x", bad))),
        lambda bad: bmfjax.Ratings(["ann", "bob"], ["x", bad], [1.0, 2.0]),
        lambda bad: bmfjax.fit(np.eye(2), 1, anchors={"x": [1, 0], bad: [0, 1]}),
        lambda bad: bmfjax.fit(
            np.eye(2),
            1,
            model="pmf",
            row_attributes=pd.DataFrame([[0, 1], [1, 0]], columns=objects("x", bad)),
        ),
    ],
    ids=["row", "label", "column", "ratings", "anchor", "attribute"],
)
def test_names_that_no_file_keeps_are_refused(make, bad):
    with pytest.raises(bmfjax.InputError, match=r"2 \(counted from 1\) is .*cannot be stored"):
        make(bad)


def test_data_are_called_what_can_be_written():
    assert title_of(HALF) == "caf\ufffd"
    assert bmfjax.BinaryMatrix(np.eye(2), name=HALF).name == "caf\ufffd"
    assert bmfjax.BinaryMatrix(np.eye(2), name="café").name == "café"
    assert bmfjax.BinaryMatrix(np.eye(2)).name is None


@pytest.mark.parametrize(
    "text, shown",
    [
        ("plain ä 漢字 क्‍ष", "plain ä 漢字 क्‍ष"),
        ("\x1b[2Jx\x07\x7f", r"\x1b[2Jx\x07\x7f"),
        ("\x9b31m", r"\x9b31m"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\u202etxt.exe\u2069", r"\u202etxt.exe\u2069"),
        ("\u2028\udce9", r"\u2028\udce9"),
    ],
)
def test_what_steers_a_terminal_is_escaped(text, shown):
    assert printable(text) == shown

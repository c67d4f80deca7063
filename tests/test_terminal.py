"""What the command line says: names of strangers neither steer a terminal nor end a command."""

import io
import os
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bmfjax
from bmfjax import cli

EVIL = "\x1b]0;owned\x07[red]x[/red] :smile: \u202e\n\udce9"


def clean(text):
    """Whether a terminal takes a text for what it is, lines apart."""
    return all(line.isprintable() for line in text.split("\n"))


def test_a_table_shows_names_as_they_are(capsys):
    frame = pd.DataFrame({"factor": [1], EVIL: [EVIL]})
    cli._print_table(frame, f"Fit of {EVIL}")
    told = capsys.readouterr().out
    assert clean(told) and "[red]x[/red]" in told and ":smile:" in told and r"\x1b]0;" in told


def test_errors_warnings_and_arguments_are_escaped(tmp_path, capsys, monkeypatch):
    path = tmp_path / "votes\x1b[2J.csv"
    path.write_text("a,\x1b[31mb\n1,0\n0,7\n")
    assert cli.main(["fit", str(path)]) == 2
    with pytest.raises(SystemExit):
        cli.main(["datasets", EVIL])
    monkeypatch.setattr(bmfjax.data, "datasets", warn)
    with pytest.warns(RuntimeWarning, match=r"^\\x1b\]0;"):
        assert cli.main(["datasets"]) == 0
    error = capsys.readouterr().err
    assert clean(error) and error.count(r"\x1b") >= 4


def warn():
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(EVIL, UserWarning, stacklevel=1)
        warnings.warn(EVIL, RuntimeWarning, stacklevel=1)
    return []


@pytest.mark.skipif(sys.platform == "win32", reason="names of bytes and a shell of Unix")
def test_the_command_that_continues_is_one_for_a_shell(tmp_path):
    words = ["fit", os.fsdecode(b"caf\xe9 'x\\'.csv"), "--rank", "2", "a b"]
    said = cli._resuming(words)
    assert clean(said) and said.endswith("--rank 2 'a b'")
    printed = subprocess.run(
        ["bash", "-c", said.replace("bmfjax", r"printf '%s\0'", 1)], capture_output=True, check=True
    ).stdout.split(b"\0")
    assert [os.fsdecode(w) for w in printed[:-1]] == ["fit", "--resume", *words[1:]]


def test_a_terminal_without_a_character_ends_nothing(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(bmfjax.data, "datasets", lambda: [matrix_called("caf\u00e9 \ufffd")])
    assert cli.main(["datasets"]) == 0
    stream.flush()
    assert b"caf\\xe9 \\ufffd" in stream.buffer.getvalue()


def matrix_called(name):
    return types.SimpleNamespace(
        name=name, shape=(2, 2), num_missing=0, density=0.5, title="", licence=""
    )


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_reader_that_goes_ends_nothing(monkeypatch, name):
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as gone:
        monkeypatch.setattr(sys, name, gone)
        cli._say("x" * 100_000, error=name == "stderr")
        cli._say("and on", error=name == "stderr")
        assert os.path.samestat(os.fstat(gone.fileno()), os.stat(os.devnull))


def test_a_table_for_a_program_has_names_raw_and_one_for_a_terminal_has_not(monkeypatch, capsys):
    table = pd.DataFrame({"row": ["=1+1", "\x1b[2J"], "mean": [0.5, 1.0]})
    options = types.SimpleNamespace(output=None)
    cli._give(table, options, "rows")
    assert capsys.readouterr().out == "row,mean\n=1+1,0.5\n\x1b[2J,1\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    cli._give(table, options, "rows")
    assert capsys.readouterr().out == "row,mean\n=1+1,0.5\n\\x1b[2J,1\n"


def test_a_fit_stays_in_the_current_folder_whatever_its_data_are_called():
    data = bmfjax.BinaryMatrix(np.eye(2), name="/../../home\0")
    found = cli._output(types.SimpleNamespace(output=None), data)
    assert found == Path("bmfjax-_.._.._home\ufffd") and len(found.parts) == 1

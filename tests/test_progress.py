"""The line that says what runs: on a terminal in place, elsewhere as lines."""

import io
import re
import time

import pytest
from rich.console import Console

from bmfjax import progress
from bmfjax.clock import clock_running
from bmfjax.progress import counted, say, status_line


@pytest.fixture
def lines(monkeypatch, capsys):
    """Return the lines of a standard error that is no terminal, once there are so many."""
    monkeypatch.setattr(progress, "NEW_SECONDS", 0.01)
    told = io.StringIO()

    def written(number):
        for _ in range(500):
            told.write(capsys.readouterr().err)
            if told.getvalue().count("\n") >= number:
                break
            time.sleep(0.01)
        return told.getvalue().splitlines()

    return written


def test_a_log_has_a_line_for_each_thing_that_runs(lines):
    with clock_running() as clock, status_line():
        clock.limit = 300.0
        say("reading the data")
        assert len(lines(1)) == 1
        say("warm-up", "3 of 750 steps")
        lines(2)
        say("warm-up", "4 of 750 steps")
    found = lines(2)
    assert [re.sub(r"^\d+:\d\d", "0:00", line) for line in found] == [
        "0:00 of 5:00  reading the data",
        "0:00 of 5:00  warm-up: 3 of 750 steps",
    ]


def test_what_lasts_is_told_again(lines, monkeypatch):
    monkeypatch.setattr(progress, "SAME_SECONDS", 0.02)
    with status_line():
        say("compiling")
        assert set(lines(3)) == {"0:00  compiling"}


def test_an_inner_line_is_shown_by_the_outer_one_with_its_work(lines):
    with counted(2, True) as following:
        following("rank 3")
        with status_line():
            say("sampling")
        assert lines(1) == ["0:00  fit 1 of 2, rank 3: sampling"]


@pytest.mark.parametrize("enabled", [True, False])
def test_a_terminal_of_80_columns_has_one_line_that_goes(monkeypatch, enabled):
    stream = io.StringIO()
    made = {"file": stream, "force_terminal": True, "width": 80, "_environ": {"TERM": "xterm"}}
    monkeypatch.setattr(progress, "Console", lambda **_: Console(**made))
    with status_line(enabled):
        say("sampling", "a name that steers, \x1b[2J, " + 100 * "x")
    shown = stream.getvalue()
    if not enabled:
        assert not shown
        return
    plain = re.sub(r"\x1b\[[\d?;]*[A-Za-z]", "", shown)
    assert r"\x1b[2J" in plain and "…" in plain
    assert max(len(line) for line in re.split(r"[\r\n]", plain)) == 80
    assert "\x1b[2K" in shown.rsplit("xx", 1)[1]  # wiped at the end


def test_a_notebook_without_ipywidgets_has_lines_and_no_warning(lines, monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)
    with status_line():
        say("reading the data")
        assert lines(1) == ["0:00  reading the data"]

"""The line that says what runs: on a terminal in place, elsewhere as lines."""

import io
import math
import re
import threading
import types

import pytest
from rich.console import Console

from bmfjax import progress
from bmfjax.clock import clock_running
from bmfjax.progress import counted, say, status_line


class Ticks:
    """An event for which a thread waits until the test says that the time has passed."""

    def __init__(self):
        self.waits, self.passed, self.over = threading.Semaphore(0), threading.Semaphore(0), False

    def wait(self, seconds):
        self.waits.release()
        self.passed.acquire()
        return self.over

    def set(self):
        self.over = True
        self.passed.release()

    def tick(self):
        """Let one waiting pass, and return at the next."""
        assert self.waits.acquire(timeout=600), "no line is to come"
        self.passed.release()
        assert self.waits.acquire(timeout=600), "the line does not come"
        self.waits.release()


@pytest.fixture
def lines(monkeypatch, capsys):
    """Return, at the next tick, all lines of a standard error that is no terminal, at 0:00."""
    ticks, told = Ticks(), io.StringIO()
    threads = types.SimpleNamespace(Event=lambda: ticks, Thread=threading.Thread)
    monkeypatch.setattr(progress, "threading", threads)
    monkeypatch.setattr(progress, "SAME_SECONDS", math.inf)

    def written():
        ticks.tick()
        told.write(capsys.readouterr().err)
        return re.sub(r"^\d+:\d\d", "0:00", told.getvalue(), flags=re.MULTILINE).splitlines()

    return written


def test_a_log_has_a_line_for_each_thing_that_runs(lines):
    with clock_running() as clock, status_line():
        clock.limit = 300.0
        assert not lines()
        say("reading the data")
        assert len(lines()) == len(lines()) == 1
        say("warm-up", "3 of 750 steps")
        lines()
        say("warm-up", "4 of 750 steps")
        assert lines() == [
            "0:00 of 5:00  reading the data",
            "0:00 of 5:00  warm-up: 3 of 750 steps",
        ]


def test_what_lasts_is_told_again(lines, monkeypatch):
    monkeypatch.setattr(progress, "SAME_SECONDS", 0.0)
    with status_line():
        say("compiling")
        lines()
        assert lines() == 2 * ["0:00  compiling"]


def test_an_inner_line_is_shown_by_the_outer_one_with_its_work(lines):
    with counted(2, True) as following:
        following("rank 3")
        with status_line():
            say("sampling")
        assert lines() == ["0:00  fit 1 of 2, rank 3: sampling"]


@pytest.mark.parametrize("enabled", [True, False])
def test_a_terminal_of_80_columns_has_one_line_that_goes(monkeypatch, enabled):
    stream = io.StringIO()
    stream.isatty = lambda: True
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
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm-color"}.items():  # by its kernel
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)
    with status_line():
        say("reading the data")
        assert lines() == ["0:00  reading the data"]

"""What is said beforehand of how long a run takes."""

import pytest

from bmfjax.clock import clock_running
from bmfjax.families import sampling
from bmfjax.infer import timings
from bmfjax.infer.timings import expected, remember
from bmfjax.kernels.numerics import kept_programs
from tests.toy import Toy, asked, fitted

ALIKE = Toy(0.0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for module in (kept_programs, timings, sampling):
        monkeypatch.setattr(module, "kept_folder", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def clock(monkeypatch):
    """A clock of a machine that gives this process half of its time."""
    with clock_running() as clock:
        monkeypatch.setattr(type(clock), "slowness", 2.0)
        yield clock


def test_seconds_are_those_of_a_machine_without_other_work(folder, clock, monkeypatch):
    assert expected("fit") == {}
    remember("fit", {"starts": 8.0, "draws": 30.0})
    remember("other", {"draws": 1.0})
    assert expected("fit") == {"starts": 8.0, "draws": 30.0}
    monkeypatch.setattr(type(clock), "slowness", 1.0)
    assert expected("fit") == {"starts": 4.0, "draws": 15.0}
    remember("fit", {"draws": 20.0})
    assert expected("fit") == {"starts": 4.0, "draws": 20.0} and expected("other")["draws"] == 0.5
    monkeypatch.setattr(timings, "MOST_KINDS", 1)
    remember("third", {"draws": 1.0})
    assert expected("fit") == {} and expected("third") == {"draws": 1.0}
    (folder / "seconds.json").write_text("[")
    assert expected("third") == {}


def test_a_run_that_is_known_says_how_long_it_takes(folder, monkeypatch):
    assert sampling.estimate(asked(ALIKE)) == ""
    fitted(ALIKE)
    assert sampling.estimate(asked(ALIKE)) == ""  # a moment
    monkeypatch.setattr(sampling, "TOLD_SECONDS", 0.0)
    told = sampling.estimate(asked(ALIKE, seed=1))
    assert told.startswith("about 0 s, as before: starts 0, draws 0"), told
    assert sampling.estimate(asked(ALIKE, num_chains=2)) != told


def test_nothing_is_kept_without_a_folder():
    remember("fit", {"draws": 1.0})
    assert expected("fit") == {}

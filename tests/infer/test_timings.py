"""What is said beforehand of how long a run takes."""

import copy
import dataclasses

import numpy as np
import pytest

import bmfjax
from bmfjax import fitting
from bmfjax.clock import clock_running
from bmfjax.families import ask, sampling
from bmfjax.infer import timings
from bmfjax.infer.timings import expected, remember
from bmfjax.kernels.numerics import kept_programs
from tests.toy import Toy, asked, fitted, let_steps_take_a_second


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


@pytest.fixture
def alone(monkeypatch):
    """A machine without other work."""
    with clock_running() as clock:
        monkeypatch.setattr(type(clock), "slowness", 1.0)


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
    now = let_steps_take_a_second(monkeypatch)

    class Started(Toy):
        def chains(self, request):
            chains = super().chains(request)

            def start(resume):
                now[0] += 7.0
                return chains.start(resume)

            return dataclasses.replace(chains, start=start)

    family = Started(0.0)
    assert sampling.estimate(asked(family)) == ""
    found = fitted(family)
    steps = found.warmup + found.draws
    told = f"about {7 + steps} s, as before: starts 7, draws {steps}"
    assert sampling.estimate(asked(family, seed=1)) == told
    assert sampling.estimate(asked(family, num_chains=2)) == ""
    monkeypatch.setattr(sampling, "TOLD_SECONDS", 7.5 + steps)
    assert sampling.estimate(asked(family, seed=1)) == ""  # a moment


VALUES = np.kron(np.eye(2), np.ones((3, 2)))
#: A call, and others that may take as long, or not.
CALL = {"model": bmfjax.OrMachine(2), "sampler": bmfjax.Gibbs(), "num_warmup": 9}
OTHERS = {
    "prior": {"model": bmfjax.OrMachine(2, num_rates=1)},
    "model": {"model": bmfjax.Relaxed(2)},
    "sampler": {"sampler": bmfjax.Gibbs(update="joint")},
    "moves": {"sampler": bmfjax.Gibbs(moves=[])},
    "rank": {"model": bmfjax.OrMachine("auto", max_rank=2)},
    "warm-up": {"num_warmup": 8},
    "until": {"until": "usable"},
    "error": {"mc_error": 0.02},
    "check": {"check": 0.1},
    "start": {"init": {"usage": np.ones((6, 2)), "basis": np.ones((4, 2))}},
    "known": {"anchors": {"known": np.array([1, 1, 0, 0])}},
    "chains": {"chains": [1, 2]},
}


def test_runs_that_differ_in_anything_but_their_seed_are_not_alike(folder, alone):
    sampling.remember_report(ask(VALUES, **CALL), 60.0)
    for seed in (0, 1):
        again = ask(VALUES.copy(), **CALL, seed=seed)
        assert sampling.estimate(again) == "about 60 s, as before: report 60"
        assert sampling.estimate(again, 100.0) == ""
    assert sampling.estimate(ask(1.0 - VALUES, **CALL)) == ""
    for name, other in OTHERS.items():
        first = ask(VALUES, **CALL | other)
        assert sampling.estimate(first) == "", name
        sampling.remember_report(first, 50.0, 100.0)
        again = ask(VALUES, **CALL | copy.deepcopy(other), seed=3)
        assert sampling.estimate(again, 100.0).startswith("about 50 s"), name


def test_the_model_that_was_chosen_is_said_with_how_long_it_takes(folder, alone, monkeypatch):
    said = []
    monkeypatch.setattr(fitting, "finish", lambda *_, **__: said.append("finished"))
    monkeypatch.setattr(fitting, "say", lambda *of: said.append(": ".join(of)))
    problem = ask(VALUES, 2)
    assert problem.default
    sampling.remember_report(problem, 60.0)
    bmfjax.fit(VALUES, 2, progress=False)
    known = f"about 60 s, as before: report 60; {problem.default}"
    assert said[1:] == [f"preparing the chains: {known}", "finished"]
    bmfjax.fit(VALUES, 2, progress=False, seed=1, max_time=9.0)
    assert said[4:] == [f"preparing the chains: {problem.default}", "finished"]


def test_nothing_is_kept_without_a_folder():
    remember("fit", {"draws": 1.0})
    assert expected("fit") == {}

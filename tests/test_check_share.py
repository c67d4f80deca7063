"""A share of the entries that is hidden on request: a first fit without it, then one of all."""

import dataclasses

import numpy as np
import pytest

from bmfjax.data import BinaryMatrix, InputError
from bmfjax.families import base, sampling
from bmfjax.infer.search_ends import SearchEnds
from bmfjax.kernels import Algorithm
from bmfjax.kernels.base import State
from bmfjax.kernels.tempering import annealed
from bmfjax.posterior.held_out import HeldOut
from tests.toy import Toy, asked, fitted, interrupted

DATA = BinaryMatrix(np.tile(np.eye(4), (2, 2)))
FOUND = HeldOut(
    share=0.25, num_entries=16, explained=0.3, explained_error=0.1, baseline="independent columns",
    log_score=-0.5, baseline_score=-0.7, calibration_error=np.nan, error_by_chance=np.nan,
    complete=True,
)  # fmt: skip
#: What two searches had found, of which the first gave up its end.
ENDS = SearchEnds(np.array([1, 1]), np.eye(3, 2) > np.zeros((2, 1, 1)), np.ones((2, 4, 2), "f4"))
ORIGIN = 1, ENDS


class Annealed(Toy):
    """Two modes that chains never leave, annealed for 12 steps, from a start that is searched."""

    seen = 0

    def chains(self, request):
        made, self.seen = super().chains(request), self.seen + 1
        self.data = request.data

        def search(run):
            raise AssertionError("a search that is not needed")

        walk = made.algorithm
        with_position = Algorithm(
            lambda key, position, data: State(walk.init(key, position, data)),
            lambda key, s, data, power=1.0: (State(walk.step(key, s.position, data)[0]), None),
            lambda state, info: walk.observe(state.position, info),
        )
        return dataclasses.replace(
            made, algorithm=annealed(with_position, 12), trace=(*made.trace, "inverse_temperature"),
            **({"search": search} if request.goes_on else {"num_starts": 1, "search_ends": ENDS}),
        )  # fmt: skip


@pytest.fixture
def first(monkeypatch):
    """What was asked about the first fit, whose predictions are made up."""
    asked_of = []

    def stub(fit, cells, share, seed):
        asked_of.append((fit, cells, share, seed))
        return FOUND

    monkeypatch.setattr(sampling, "held_out", stub)
    return asked_of


def test_chains_go_on_with_all_entries_where_they_were_without_some(first, monkeypatch):
    family = Annealed(apart=40.0)
    found = fitted(family, data=DATA, check=0.25, seed=3, num_samples=30, num_warmup=60)
    (fit, (i, j, values), share, seed), *more = first
    assert not more and (share, seed) == (0.25, 3) and len(i) == 16
    np.testing.assert_array_equal(values, DATA.dense()[i, j])
    assert fit.settings["num_samples"] == 30 and "check" not in fit.settings
    # The last fit has all entries, the modes of the first, and nothing of its annealing.
    assert family.data is DATA and family.seen == 3
    np.testing.assert_array_equal(found.usage.mean((1, 2, 3)) > 0, fit.usage.mean((1, 2, 3)) > 0)
    assert (found.trace["inverse_temperature"] == 1.0).all()
    assert found.origin == ORIGIN  # who found what they go on with
    assert (fit.trace["inverse_temperature"][:, :12] < 1.0).all()
    # The warm-up that was given is that of both fits; one that was not may be shorter again.
    assert (found.planned_warmup, fit.planned_warmup) == (60, 60)
    made = asked(Toy(apart=1.0), DATA, num_samples=30, num_warmup=60).chains()
    assert [made.going_on({}, shorter=short).num_warmup for short in (True, False)] == [50, 60]
    monkeypatch.setattr(base, "WARMUP_AGAIN", 5)
    auto = dataclasses.replace(asked(Toy(apart=1.0), DATA), goes_on=True, positions={})
    assert auto.chains().num_warmup == 5
    settings = found.settings
    assert (settings["check"], settings["goes_on"]) == (0.25, True)
    assert HeldOut.of_stored(settings["held_out"]).explained == 0.3
    plain = fitted(Annealed(apart=40.0), data=DATA, seed=3, num_samples=30, num_warmup=60)
    assert {"check", "held_out", "goes_on"}.isdisjoint(plain.settings)


def test_a_run_that_is_resumed_hides_nothing_again(first, tmp_path):
    options = {"data": DATA, "check": 0.25, "num_samples": 60, "num_warmup": 60}
    whole = fitted(Annealed(apart=40.0), **options)
    with interrupted(1, 70):
        fitted(Annealed(apart=40.0), checkpoint=tmp_path / "run", **options)
    assert len(first) == 2
    again = fitted(Annealed(apart=40.0), checkpoint=tmp_path / "run", resume=True, **options)
    assert len(first) == 2
    np.testing.assert_array_equal(again.usage, whole.usage)
    assert again.settings == whole.settings
    assert again.origin[0] == 1
    assert all(map(np.array_equal, again.origin[1], ORIGIN[1]))
    with pytest.raises(InputError, match=r"check is 0\.25 there and None here"):
        without = {**options, "check": None}
        fitted(Annealed(apart=40.0), checkpoint=tmp_path / "run", resume=True, **without)


def test_ctrl_c_while_entries_are_hidden_ends_the_fit(first, tmp_path):
    with interrupted(0, 40), pytest.raises(KeyboardInterrupt, match="while entries were hidden"):
        fitted(
            Annealed(apart=40.0), data=DATA, check=0.25, num_samples=60, num_warmup=20,
            checkpoint=tmp_path / "run",
        )  # fmt: skip
    assert not first and not list((tmp_path / "run").glob("*.npz"))


def test_the_first_fit_ends_where_predictions_hold():
    problem = asked(Toy(apart=1.0), DATA, check=0.25, mc_error=0.02)
    first, hidden = problem.without_cells()
    assert (first.until, first.mc_error, first.check) == ("predictions", 0.02, None)
    assert problem.going_on(first, FOUND, None).until == "all"
    assert np.isnan(first.data.dense()[hidden.cells[:2]]).all()


def test_states_without_a_position_start_anew(first):
    found = fitted(Toy(apart=40.0), data=DATA, check=0.25, num_samples=30, num_warmup=60)
    assert found.settings["goes_on"] is False and found.planned_warmup == 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"check": 0.6}, r"check is 0\.6; give the share of the entries that is hidden"),
        ({"check": 0}, r"check is 0; give a positive"),
        ({"check": True}, "check is True; give the share of the entries that is hidden"),
        ({"check": 0.1, "chain_numbers": (1,)}, r"chains \(--chain\) names some of them"),
    ],
)
def test_what_cannot_be_hidden_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        asked(Toy(apart=1.0), DATA, **options)

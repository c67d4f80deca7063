"""Starts of chains: the best of annealed rounds of each, or of all where that is far better."""

import types

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from bmfjax.families import ask
from bmfjax.families.base import Chains
from bmfjax.infer import ChainRun, feature_start
from bmfjax.infer.feature_start import AGAIN, Search, affordable, best_starts, planned
from bmfjax.kernels import Algorithm
from bmfjax.kernels.tempering import AnnealedState, annealed

SEARCH = Search(rounds=3, sweeps=10, num_anneal=6, lowest=0.3)


def walker():
    """It rises while it is hot, and falls where it is high; its mass says where it is."""

    def step(key, x, data, inverse_temperature=1.0):
        moved = jnp.where(x < 8.5, 1.0, -1.0) + 0.01 * random.normal(key)
        return x + jnp.where(inverse_temperature < 1.0, moved, 0.0), inverse_temperature

    return Algorithm(
        lambda key, position, data: 0.01 * random.normal(key), step,
        lambda x, power: {"usage": x, "log_mass": 0.1 * x, "power": 1.0 * power},
    )  # fmt: skip


def run_of(seed=4):
    return ChainRun(
        annealed(walker(), SEARCH.num_anneal, lowest=SEARCH.lowest), random.key(seed), None,
        num_chains=3, num_warmup=2, num_samples=5,
        draws={"usage": 1}, trace={"log_mass": 1, "power": 1},
    )  # fmt: skip


def watched(run):
    """Let a run tell where each of its rehearsals started and what it traced."""
    seen, rehearse = [], run.rehearse

    def told(*given):
        start = run.state.inner
        seen.append((start, rehearse(*given)))
        return seen[-1][1]

    run.rehearse = told
    return seen


def moved(snapshot, number):
    """Another start for the next round, above where it is, and far below for the last chain."""
    state, reducers = snapshot
    return state._replace(inner=state.inner + np.float32([3.0, 2.0, -9.0])), reducers


def test_each_chain_keeps_the_best_of_its_rounds_and_later_rounds_are_cold():
    run = run_of()
    seen = watched(run)
    (state, _), origin, own = best_starts(run, SEARCH, again=moved)
    ends = np.array([trace["log_mass"][:, -1] for _, trace in seen])
    assert len(seen) == 3 and np.argmax(ends, 0).tolist() == [2, 2, 0]
    assert origin.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(own[0].inner, state.inner)
    np.testing.assert_allclose(0.1 * state.inner, ends.max(0), rtol=1e-6)
    assert [trace["power"].shape[1] for _, trace in seen] == [10, AGAIN, AGAIN]
    # Every round starts from the best before it, moved; only the first is annealed.
    for number, (start, trace) in enumerate(seen[1:], 1):
        best = 10.0 * ends[:number].max(0)
        np.testing.assert_allclose(start, best + np.array([3.0, 2.0, -9.0]), rtol=1e-5)
        assert (trace["power"] == 1.0).all()
    np.testing.assert_allclose(seen[0][1]["power"][0, 0], 0.3, atol=1e-6)


def test_rounds_end_where_chains_are_equally_good_after_the_least(monkeypatch):
    monkeypatch.setattr(feature_start, "LEAST", 2)
    for far, rounds in ((0.0, 2), (-500.0, 5)):
        run = run_of()
        begun = run.state._replace(inner=np.float32([0.0, 0.0, far]))
        run.restore((begun, {}), 0, {})
        seen = watched(run)
        best_starts(run, SEARCH._replace(rounds=5), again=lambda snapshot, number: snapshot)
        assert len(seen) == rounds


def test_chains_far_below_the_best_start_there():
    run = run_of()
    for far, starts in ((90.0, [1, 1, 2]), (110.0, [1, 1, 1])):  # a tenth of that in mass
        begun = run.state._replace(inner=np.float32([0.0, 200.0, 200.0 - far]))
        run.restore((begun, {}), 0, {})
        found = best_starts(run, SEARCH._replace(rounds=1))
        own = run.state.inner
        assert found.number == len(set(starts)) and found.origin.tolist() == starts
        np.testing.assert_array_equal(found.snapshot[0].inner, own[starts])
        np.testing.assert_array_equal(found.ends[0].inner, own)  # what it had found is kept


def climbing(run, tops):
    """Let chains of a run climb by 20 a look, each to a top of its own; return where they began."""
    seen, wobble = [], 5.0 * np.sin(np.arange(20.0))

    def rehearse(steps, number, is_late):
        seen.append(run.state.inner.copy())
        climbed = np.maximum(run.state.inner, np.minimum(run.state.inner + 20.0, tops))
        run.restore((run.state._replace(inner=climbed), {}), 0, {})
        return {"log_mass": climbed[:, None] + wobble}

    run.rehearse = rehearse
    return seen


def test_chains_settle_until_the_best_no_longer_rises():
    """Two chains climb, each by itself, to the top of the first; one is left far behind."""
    run, tops = run_of(), np.float32([25.0, 60.0, 61.0])
    seen = climbing(run, tops)
    begun = run.state._replace(inner=np.zeros(3, np.float32)), {}
    found, origin, ends = feature_start._settled(run, SEARCH, begun, 20)
    # The first has its top at 25, falls behind, and goes on from where the second is.
    np.testing.assert_array_equal(np.transpose(seen)[:2], [[0, 20, 40, 60], [0, 20, 40, 60]])
    np.testing.assert_array_equal(found[0].inner, [60.0, 60.0, 61.0])
    assert origin.tolist() == [1, 1, 2]
    # Its own end is where it fell behind; the others went on by themselves.
    np.testing.assert_array_equal(ends[0].inner, tops)


@pytest.mark.parametrize("top, goes", [(45.0, False), (25.0, True)])
def test_chains_of_a_number_that_is_found_climb_apart(top, goes):
    """The mass of each moves by 3.5; the first goes to the best at last if it lacks too much."""
    run, tops = run_of(), np.float32([top, 60.0, 61.0])
    seen = climbing(run, tops)
    begun = run.state._replace(inner=np.zeros(3, np.float32)), {}
    found, origin, ends = feature_start._settled(run, SEARCH._replace(apart=True), begun, 20)
    np.testing.assert_array_equal(np.transpose(seen)[0], np.minimum([0, 20, 40, 60], top))
    assert origin.tolist() == [2 if goes else 0, 1, 2]
    np.testing.assert_array_equal(found[0].inner, tops[origin])
    np.testing.assert_array_equal(ends[0].inner, tops)


@pytest.mark.parametrize("apart, starts", [(False, [0, 0, 0]), (True, [0, 1, 0])])
def test_chains_that_do_not_settle_are_compared_alike(apart, starts):
    """The mass of each moves by 7 about its mean: the second lacks 25, and the last 60."""
    run, wobble = run_of(), 10.0 * np.sin(np.pi / 4 * np.arange(8.0))
    mass = np.array([0.0, -25.0, -60.0])[:, None] + wobble
    run.rehearse = lambda steps, number, is_late: {"log_mass": mass}
    search = Search(rounds=1, sweeps=8, num_anneal=0, lowest=0.3, apart=apart)
    assert best_starts(run, search).origin.tolist() == starts


@pytest.mark.parametrize("rank", [2, "auto"])
def test_chains_of_a_fit_climb_apart_where_it_finds_the_number(rank):
    problem = ask(np.eye(6, dtype=int), rank, model="features")
    chains = problem.family.chains_of(problem, problem.family.plan(problem))
    assert chains.search.keywords["search"].apart == (rank == "auto")


@pytest.mark.parametrize("whole", [0, 2])
def test_rounds_end_when_their_time_is_up(monkeypatch, whole):
    """Before one is whole all chains go on from where they are; later the best ones are taken."""
    run = run_of()
    seen = watched(run)
    monkeypatch.setattr(feature_start, "_deadline", lambda: lambda: len(seen) == whole)
    (state, _), *found = best_starts(run, SEARCH, again=moved)
    assert [trace["power"].shape[1] for _, trace in seen] == [*[10, AGAIN][:whole], 1]
    assert found[0].tolist() == [0, 1, 2] and (state.step >= SEARCH.num_anneal).all()
    if not whole:
        np.testing.assert_array_equal(state.inner, run.state.inner)


def test_rounds_may_take_a_share_of_what_compilation_left(monkeypatch):
    for left, answers in ((100.0, [False, False, True]), (-1.0, [True])):
        clock, times = types.SimpleNamespace(left=lambda left=left: left), iter([3.0, 37.0, 39.0])
        monkeypatch.setattr(feature_start, "running_clock", lambda clock=clock: clock)
        monkeypatch.setattr(feature_start, "time", types.SimpleNamespace(monotonic=times.__next__))
        is_late = feature_start._deadline()
        assert [is_late() for _ in answers] == answers


def test_rehearsals_count_for_nothing_and_have_random_numbers_of_their_own():
    run, plain = run_of(), run_of()
    first, again = run.rehearse(10, 0), run.rehearse(10, 0)
    assert run.steps_done == 0 and first["log_mass"].shape == (3, 10)
    assert not np.array_equal(np.diff(first["power"]), np.diff(again["power"]))  # cold by then
    begun = AnnealedState(np.full(3, 0.5, np.float32), np.zeros(3, np.int32)), {}
    other = run_of()
    other.rehearse(10, 1)
    for some in (run, plain, other):
        some.begin_at(begun)
        some.finish()
    np.testing.assert_array_equal(run.draws()["usage"], plain.draws()["usage"])
    np.testing.assert_array_equal(other.trace()["power"], plain.trace()["power"])
    moves = [np.diff(trace["log_mass"][0, :6]) for trace in (first, plain.trace())]
    assert not np.allclose(*moves)


def test_some_of_the_chains_begin_where_they_do_beside_all_others():
    def begun(own):
        chains = Chains(
            annealed(walker(), SEARCH.num_anneal, lowest=SEARCH.lowest), None, {},
            trace=("log_mass",), num_warmup=2, num_samples=5,
            search=lambda run: (best_starts(run, SEARCH).snapshot, 1, None),
        )  # fmt: skip
        problem = types.SimpleNamespace(
            key=random.key(1), num_chains=3, chain_numbers=own, mesh=None
        )
        run = chains.run(problem)
        assert chains.run(problem, resume=True).state.step.max() == 0
        return run.state

    every, second = begun(None), begun((2,))
    assert np.ptp(every.inner) > 0 and second.inner.shape == (1,)
    np.testing.assert_array_equal(second.inner[0], every.inner[1])


def test_rounds_are_as_many_and_as_long_as_a_matrix_affords():
    assert planned(435 * 16, 4, 4) == (40, 100)
    assert planned(403 * 67, 20, 4) == (10, 100)
    assert planned(1226 * 285, 16, 4) == (1, 40)
    assert planned(1500 * 112, 16, 2) == (1, 99)
    assert affordable(435 * 16, 4, 4) == 200 and affordable(1226 * 285, 16, 4) == 20
    assert affordable(300 * 500, 4, 4, part=4, between=(10, 80)) == 55


def test_a_warmup_that_is_given_holds_the_rounds():
    assert Search(6, 100, 60, 0.3).within(150)[:4] == (2, 100, 60, 0.3)
    assert Search(6, 100, 60, 0.3).within(150).steps == 140
    assert Search(6, 100, 9, 0.3).within(15)[:4] == (1, 15, 9, 0.3)
    assert Search(6, 100, 0, 0.3).within(0).rounds == Search(6, 100, 0, 0.3).within(0).steps == 0


def test_a_chain_may_lack_ten_nats_and_two_errors_of_a_difference():
    rng = np.random.default_rng(0)
    quick = rng.normal(0.0, 20.0, (4, 400))
    slow = np.repeat(rng.normal(0.0, 20.0, (4, 4)), 100, 1)  # all of it between batches
    error = feature_start.error_of_mean
    assert 0.3 < error(quick) < 3.0 and 5.0 < error(slow) < 20.0
    assert error(quick[:, :3]) == 0.0
    mass = np.array([0.0, -12.0, -16.0])
    np.testing.assert_array_equal(feature_start._sources(mass, 1.0), [0, 1, 0])

"""Runs that end by themselves: when they look, where they stop, what follows, how they resume."""

import dataclasses
import functools
import gc
import itertools
import math
import re
import signal
import sys
import threading
import time
import types
import weakref

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bmfjax
from bmfjax import cli, verdict
from bmfjax.cli import build_parser
from bmfjax.clock import OutOfTimeError, clock_running
from bmfjax.data import BinaryMatrix, InputError
from bmfjax.diagnostics import agreement
from bmfjax.families import ask, base, sampling, stopping
from bmfjax.families.base import LOOKS
from bmfjax.families.boolean import (
    LADDER,
    PATIENCE,
    STAGE_WARMUP,
    WHOLE_FACTORS,
    WHOLE_LADDER,
    WHOLE_RANK,
)
from bmfjax.families.features import Features
from bmfjax.infer import ChainRun, geometric_ladder
from bmfjax.infer import run as driver
from bmfjax.kernels.numerics import compiling
from bmfjax.kernels.numerics.programs import forget_programs
from bmfjax.kernels.tempering import OBSERVED
from bmfjax.posterior.selection import informed
from bmfjax.specs.run import LEAST_KEPT
from tests.toy import DATA, Toy, asked, fitted, interrupted, let_steps_take_a_second

ALIKE, APART, CURED = Toy(0.0), Toy(5.0), Toy(5.0, second=True)
#: Fewer looks, so that what never agrees ends soon.
FEW = (250, 500, 750)
#: Seconds after which a test that waits for what does not come fails.
LONG = 600


@pytest.fixture
def few_looks(monkeypatch):
    monkeypatch.setattr("bmfjax.families.base.LOOKS", FEW)


@functools.cache
def unbroken(family):
    return fitted(family)


def assert_same(a, b):
    for name in ("usage", "log_joint"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert (a.warmup, a.draws, a.complete, a.earlier) == (b.warmup, b.draws, b.complete, b.earlier)


# ---- where a run ends --------------------------------------------------------------------------


def test_looks_grow_by_a_quarter_at_most():
    assert LOOKS[:5] == (250, 310, 375, 430, 500) and LOOKS[-1] == 128_000
    assert all(a < b <= 1.25 * a for a, b in itertools.pairwise(LOOKS))


def test_a_run_is_the_beginning_of_a_longer_one():
    found = unbroken(ALIKE)
    assert found.complete and not found.timed_out and found.earlier == 0
    assert found.draws + found.warmup - 20 in LOOKS[:8]
    fixed = fitted(ALIKE, num_warmup=20, num_samples=1000)
    steps = found.warmup + found.draws
    np.testing.assert_array_equal(found.log_joint, fixed.log_joint[:, :steps])
    # Kept draws are of steps that are some way apart.
    after = [
        run.warmup + run.every * np.arange(1, run.usage.shape[1] + 1) for run in (found, fixed)
    ]
    _, ours, theirs = np.intersect1d(*after, return_indices=True)
    assert len(ours) > 30
    np.testing.assert_array_equal(found.usage[:, ours], fixed.usage[:, theirs])


def test_a_warmup_that_is_given_stays():
    assert fitted(ALIKE, num_warmup=7).warmup == 7


def test_the_beginning_is_discarded_where_it_differs():
    """Draws that fall for the first sixth: a quarter of them is warm-up."""
    request, rng = asked(ALIKE), np.random.default_rng(0)
    usage = (
        rng.normal(size=(4, 600, 3, 1)) + np.where(np.arange(600) < 100, 9.0, 0.0)[:, None, None]
    )
    run = types.SimpleNamespace(
        draws=lambda: {"usage": usage, "basis": np.ones((4, 600, 2, 1))},
        trace=lambda: {"log_joint": rng.normal(size=(4, 620))},
        thinning=lambda name: 1,
        num_warmup=20,
    )
    seen = stopping.look(request, request.chains(), run)
    assert (seen.discarded, seen.done) == (150, True)
    given = asked(ALIKE, num_warmup=20)
    seen = stopping.look(given, given.chains(), run)
    assert (seen.discarded, seen.done) == (0, False)


def test_draws_of_chains_that_rise_together_are_discarded():
    """They overlap, so that R-hat is least where all are counted; half are warm-up at most."""
    noise, steps = np.random.default_rng(0).normal(size=(4, 600)), np.arange(600)
    for rise, discarded in ((0 * steps, 0), (-np.exp(5 - steps / 30), 75), (0.1 * steps, 150)):
        assert stopping._settled(noise + rise, [0, 75, 150], 2) == discarded
    assert stopping._settled(np.ones((4, 600)), [0, 75, 150], 2) == 0


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 99),
    fall=st.sampled_from([0.0, 0.5, 9.0]),
    shift=st.sampled_from([0.0, 0.05, 0.3, 3.0]),
    level=st.sampled_from([0.0, 5.0]),
    empties=st.sampled_from([None, np.zeros(1, bool), np.ones(1, bool)]),
)
def test_a_run_that_is_done_has_converged(seed, fall, shift, level, empties):
    """Whether it starts far away, chains differ, or the factor is known, or empty."""
    family, rng = Toy(0.0), np.random.default_rng(seed)
    family.alike, family.empties = False, empties
    usage = level * np.arange(1, 4)[:, None] + rng.normal(size=(4, 400, 3, 1))
    usage += fall * (np.arange(400) < 70)[:, None, None] + shift * np.arange(4)[:, None, None, None]
    drawn, trace = {"usage": usage, "basis": np.ones((4, 400, 2, 1))}, rng.normal(size=(4, 420))
    run = types.SimpleNamespace(
        draws=lambda: drawn,
        trace=lambda: {"log_joint": trace},
        thinning=lambda name: 1,
        num_warmup=20,
    )
    request = asked(family)
    seen = stopping.look(request, request.chains(), run)
    kept = {name: values[:, seen.discarded :] for name, values in drawn.items()}
    judged = verdict.of_chains(
        verdict.mixing(informed(DATA), kept["usage"], kept["basis"]), 4, math.nan,
        agreement(*(kept[n].mean(1) for n in ("usage", "basis"))),
        {"log_joint": trace[:, 20 + seen.discarded :]}, exact=True, empty=empties,
    )  # fmt: skip
    assert seen.done is verdict.suffices(judged.figures)
    assert judged.figures.converged or not seen.done
    if level == fall == shift == 0.0:  # of a factor of noise
        assert seen.done is bool(empties is not None and empties.all())


def test_a_run_goes_on_while_only_factors_differ(few_looks):
    """Not in another stage, which is for chains that are apart; empty factors do not count."""
    family = Toy(0.0, second=True)
    family.alike = False
    found = fitted(family)
    assert found.earlier == 0 and found.complete and found.warmup + found.draws == 20 + FEW[-1]
    # Predictions may be all that is asked for.
    assert_same(fitted(family, until="predictions"), unbroken(ALIKE))
    family.empties = np.ones(1, bool)
    assert_same(fitted(family), unbroken(ALIKE))


def test_a_run_goes_on_while_chains_disagree_on_whether_a_factor_is_there(few_looks):
    """Whatever their means say; where the draws leave it open they end by themselves."""
    family = Toy(0.0)
    family.present = np.array([[0.9], [0.9], [0.3], [0.3]])
    seen = fitted(family)
    assert seen.complete and seen.warmup + seen.draws == 20 + FEW[-1]
    family.present = np.array([[0.4], [0.4], [0.3], [0.3]])
    assert_same(fitted(family), unbroken(ALIKE))


def test_a_run_goes_on_until_predictions_are_as_exact_as_was_asked(few_looks):
    family = Toy(0.0)
    near = verdict.UNSEEN._replace(error=np.full(1, 0.02))
    family.mixing = lambda problem, drawn, number: near
    assert_same(fitted(family, mc_error=0.03), unbroken(ALIKE))
    found = fitted(family, mc_error=0.01)
    assert found.complete and found.warmup + found.draws == 20 + FEW[-1]
    assert found.settings["mc_error"] == 0.01 and "mc_error" not in unbroken(ALIKE).settings


def test_a_run_may_end_as_soon_as_it_is_usable(few_looks):
    family = Toy(0.0)
    for error, ends in ((0.09, True), (0.11, False)):
        rough = verdict.UNSEEN._replace(error=np.full(1, error))
        family.mixing = lambda problem, drawn, number, rough=rough: rough
        found = fitted(family, until="usable")
        assert (found.draws == unbroken(ALIKE).draws) is ends
        assert fitted(family).warmup + fitted(family).draws == 20 + FEW[-1]


def test_what_ends_a_run_is_checked():
    for options, words in (
        ({"until": "factors"}, "until is 'factors'"),
        ({"mc_error": 0.2}, "mc_error is 0.2; give a number above 0 and up to 0.05"),
        ({"mc_error": 0.0}, "mc_error is 0.0"),
        ({"until": "predictions", "num_samples": 500}, "num_samples is 500, and until ends a run"),
        ({"mc_error": 0.01, "num_samples": 500}, "num_samples is 500, and mc_error ends a run"),
    ):
        with pytest.raises(InputError, match=words):
            asked(ALIKE, **options)
    options = build_parser().parse_args(["fit", "--until", "predictions", "--mc-error", "0.02"])
    assert (options.until, options.mc_error) == ("predictions", 0.02)


def test_chains_that_never_agree_take_every_draw_there_may_be(few_looks):
    found = fitted(APART)
    assert found.complete and found.warmup + found.draws == 20 + FEW[-1]


def test_one_chain_ends_where_its_halves_agree():
    family = Toy(0.0)
    family.chains = lambda request: Toy.chains(family, request).__class__(
        **{**vars(Toy.chains(family, request)), "start": lambda resume: None}
    )
    assert fitted(family, num_chains=1).complete


# ---- the second stage --------------------------------------------------------------------------


def test_a_second_stage_follows_where_chains_disagree_and_only_there():
    assert unbroken(Toy(0.0, second=True)).earlier == 0
    found = unbroken(CURED)
    # Not before 500 draws, whose steps it does not count as its own.
    assert found.earlier == 20 + 500 and found.complete
    # It starts where the first one ended, in other random numbers.
    alone = fitted(APART, num_warmup=20, num_samples=500)
    assert not np.isin(found.log_joint[:, :20], alone.log_joint).any()


def test_a_first_stage_has_the_patience_it_asks_for():
    assert fitted(Toy(5.0, second=True, patience=(750, 1.2))).earlier == 20 + 750


def test_a_stage_is_compiled_once(compilations):
    request = asked(Toy(5.0, second=True))
    chains, counts = request.chains(), []
    for _ in range(2):
        run = chains.run(request)
        run.advance(1)
        compilations()
        run.finish(on_chunk=lambda run: run.steps_done > 800, ends=(100, 270, 520))
        counts.append(compilations())
        chains = chains.next_stage and chains.next_stage(run)
    assert counts == [0, 0]


def test_a_small_matrix_starts_with_few_programs(compilations):
    data = BinaryMatrix((np.random.default_rng(1).random((33, 9)) < 0.5).astype(float))
    request = ask(data, bmfjax.OrMachine(2), num_chains=2)
    compilations()
    request.chains().run(request)
    # The start, the key, the distinct lines, and five copies to the device.
    assert compilations() <= 9


def options_of(request):
    return request.family.plan(request).options


def later_options(request):
    return [stage.options for stage in request.family.plan(request).stages[1:]]


def test_later_stages_have_the_jumps_the_temperatures_and_their_patience():
    """Which stages there are `test_plan.py` says."""
    data = BinaryMatrix((np.random.default_rng(0).random((30, 8)) < 0.5).astype(float))
    auto = ask(data, bmfjax.OrMachine(2))
    jumps, hotter = later_options(auto)
    assert jumps["moves"] == hotter["moves"] == (*WHOLE_FACTORS, "jump")
    assert hotter["inverse_temperatures"] == geometric_ladder(LADDER[1], LADDER[0])
    high = ask(data, bmfjax.OrMachine(WHOLE_RANK))
    assert len(later_options(high)[1]["inverse_temperatures"]) == WHOLE_LADDER[0]
    # Jumps cost little, and temperatures much.
    first = high.chains()
    assert first.patience == auto.chains().patience < PATIENCE
    assert first.next_stage(first.run(high)).patience == PATIENCE
    chosen = ask(data, WHOLE_RANK, sampler=bmfjax.Gibbs(moves=["xor"]))
    assert later_options(chosen)[0]["moves"] == ("xor",) and chosen.chains().patience == PATIENCE
    assert "update" not in options_of(ask(data, 2, sampler=bmfjax.Gibbs(moves="birth")))
    given = ask(data, 2, sampler=bmfjax.Gibbs(inverse_temperatures=(1.0, 0.5)))
    assert later_options(given) == [] and given.chains().next_stage is None
    # A checkpoint of a first stage is not continued by another second one.
    others = [ask(data, 2, bmfjax.Gibbs(num_exchanges=n)).chains().settings for n in (2, 4)]
    assert others[0] != others[1] == auto.chains().settings


def test_no_jumps_where_factors_are_not_alike():
    data = BinaryMatrix((np.random.default_rng(0).random((30, 8)) < 0.5).astype(float))
    apart = ask(data, 2, model=bmfjax.OrMachine(usage=np.full((30, 2), 0.3)))
    for request in (apart, ask(data, bmfjax.OrMachine(1))):
        assert all("jump" not in options.get("moves", ()) for options in later_options(request))


def test_later_stages_of_small_matrices_go_on_from_those_before():
    data = BinaryMatrix((np.random.default_rng(0).random((30, 8)) < 0.5).astype(float))
    request = ask(data, bmfjax.OrMachine(2), bmfjax.Gibbs(num_anneal=3), num_chains=2)
    first = request.chains()
    run = first.run(request)
    jumping = first.next_stage(run)
    assert jumping.trace[-1] == "jump_accepted" and jumping.num_starts == 0
    jax.tree.map(np.testing.assert_array_equal, jumping.start(False), run.state.inner.position)
    # One chain is far above the other, and finds for both what they then share.
    run.trace = lambda: {"log_joint": np.repeat([[-5.0], [-90.0]], run.num_warmup + 40, 1)}
    assert first.next_stage(run).num_starts == 1
    run = first.next_stage(run).run(request)
    run.trace = lambda: {"log_joint": np.full((2, run.num_warmup + 40), -5.0)}
    hotter = jumping.next_stage(run)
    assert run.num_starts == hotter.num_starts == 1
    # Who found what is told, and not that chains began alike.
    assert request.family.origin(request, jumping, run) == {"found_by": 1}
    assert hotter.trace[-4:] == (*OBSERVED, "population_accepted") and not hotter.next_stage
    options = later_options(request)[1]
    assert options["num_anneal"] + options["num_adapt"] == STAGE_WARMUP * request.rank
    jax.tree.map(np.testing.assert_array_equal, hotter.start(False), run.state.inner.position)


@pytest.mark.long
def test_solutions_are_stored_with_the_chains_that_jump_to_them():
    """A stage that is resumed knows no draws of the one before, and goes on alike."""
    data = BinaryMatrix((np.random.default_rng(0).random((30, 8)) < 0.5).astype(float))
    request = ask(data, bmfjax.OrMachine(2), bmfjax.Gibbs(num_anneal=3), num_chains=2)
    first = request.chains()
    before = first.run(request)
    while before.num_draws < 8:
        before.advance()
    whole = first.next_stage(before).run(request)
    whole.advance(5)
    snapshot = whole.snapshot()
    # What each chain had found before it jumps is kept, which may lead it anywhere.
    assert whole.search_ends.usage.shape == (2, 30, 2) and whole.search_ends.basis.shape == (
        2,
        8,
        2,
    )
    assert not whole.search_ends.own.any() and (whole.search_ends.origin < 0).all()
    assert whole.search_ends.usage.any()
    assert np.isfinite(snapshot[0].solutions.log_chance).any()
    resumed = first.next_stage(first.run(request)).run(request, resume=True)
    assert not np.isfinite(resumed.state.solutions.log_chance).any()
    resumed.restore(snapshot, 5, whole.recorded_between(0, 5))
    for run in (whole, resumed):
        run.advance(20)
    jax.tree.map(np.testing.assert_array_equal, resumed.state, whole.state)


# ---- stopped, and resumed ----------------------------------------------------------------------


@pytest.mark.parametrize(("stage", "steps"), [(0, 520), (1, 10), (1, 200)])
def test_a_stopped_run_resumes_in_its_stage(tmp_path, stage, steps):
    with interrupted(stage, steps):
        part = fitted(CURED, checkpoint=tmp_path)
    assert not part.complete
    # Without a draw of its own the second stage leaves the result to the first.
    assert part.earlier == (520 if steps == 200 else 0)
    # No step is taken, for which nothing is compiled. The draws of the first stage are not stored.
    again = fitted(CURED, checkpoint=tmp_path, resume=True, max_time=1e-9)
    assert again.timed_out and not again.complete
    assert again.warmup == (10 if steps == 10 else 20)
    whole = fitted(CURED, checkpoint=tmp_path, resume=True)
    assert_same(whole, unbroken(CURED))
    # A finished run has nothing to resume.
    assert_same(fitted(CURED, checkpoint=tmp_path, resume=True), whole)


@pytest.fixture
def late(request, monkeypatch):
    """Compilations that do not begin before this event, and for which the time is up at once.

    Unless they are waited for, which is the parameter.
    """
    event, begins = threading.Event(), compiling.Compilation
    waits = getattr(request, "param", False)
    forget_programs()

    class Late(begins):
        def __init__(self, compile):
            super().__init__(lambda: event.wait(LONG) and compile())

        def program(self, seconds=None, stops=None):
            if stops is not None and not (event.is_set() or waits):
                raise TimeoutError
            return super().program(seconds, stops)

    monkeypatch.setattr(driver, "Compilation", Late)
    yield event
    event.set()
    # The process could not end before.
    while compiling.is_compiling():
        time.sleep(0.01)


def test_what_is_not_compiled_in_time_leaves_the_starts(late, tmp_path):
    """It cannot be interrupted, and goes on: the next fit of this form need not begin it again."""
    part = fitted(APART, max_time=600, checkpoint=tmp_path)
    assert part.timed_out and not part.complete and compiling.is_compiling()
    assert (part.warmup, part.planned_warmup, part.draws) == (0, 20, LEAST_KEPT)
    starts = np.where(np.arange(4) % 2 == 0, 5.0, -5.0)
    assert (part.usage == starts[:, None, None, None]).all()
    # What is stored would not be searched again.
    with pytest.raises(InputError, match="no checkpoint to resume from"):
        fitted(APART, checkpoint=tmp_path, resume=True)
    late.set()
    assert_same(fitted(CURED), unbroken(CURED))


def test_a_resumed_run_whose_time_is_up_does_not_wait_for_the_compiler(late, tmp_path):
    late.set()
    with interrupted(0, 100), pytest.raises(KeyboardInterrupt):
        fitted(APART, num_warmup=300, checkpoint=tmp_path)
    late.clear()
    forget_programs()
    found = fitted(APART, num_warmup=300, checkpoint=tmp_path, resume=True, max_time=600)
    assert found.timed_out and (found.warmup, found.draws) == (100, LEAST_KEPT)


@pytest.mark.parametrize("late", [True], indirect=True)
def test_ctrl_c_is_heard_while_xla_compiles(late, monkeypatch):
    pressed = []

    def wait(*given):
        pressed.append(given)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(compiling, "wait", wait)
    for limit in (None, 600):
        with pytest.raises(KeyboardInterrupt, match="after 0 of 20 steps of warm-up"):
            fitted(APART, max_time=limit)
    assert len(pressed) == 2


def test_starts_that_are_not_found_in_time_are_those_of_the_sampler():
    def start(resume):
        raise OutOfTimeError

    chains = dataclasses.replace(asked(APART).chains(), start=start)
    with clock_running():
        found = sampling.finish(asked(APART), chains, max_time=600)
    assert found.timed_out and (found.warmup, found.draws) == (0, LEAST_KEPT)
    assert (found.usage == 5.0).all()


def test_a_compilation_that_failed_is_begun_again():
    found = iter([MemoryError(), 7])

    def compile():
        got = next(found)
        if isinstance(got, MemoryError):
            raise got
        return got

    made = compiling.Compilation(compile)
    with pytest.raises(MemoryError):
        made.program()
    assert made.program(math.inf) == 7


def test_a_failure_that_nobody_waited_for_is_not_that_of_who_asks_next():
    event, found = threading.Event(), iter([None, 7])

    def compile():
        if (got := next(found)) is None:
            event.wait()
            raise MemoryError
        return got

    made = compiling.Compilation(compile)
    with pytest.raises(TimeoutError):
        made.program(0.0)
    event.set()
    while compiling.is_compiling():
        time.sleep(0.01)
    assert made.program() == 7


def test_what_was_compiled_is_forgotten():
    class Lowered:
        def compile(self):
            return 7

    lowered = Lowered()
    kept = weakref.ref(lowered)
    made = compiling.Compilation(lambda lowered=lowered: lowered.compile())
    del lowered
    assert made.program() == 7 and made.program() == 7
    while compiling.is_compiling():
        time.sleep(0.01)
    gc.collect()
    assert kept() is None


def test_a_command_ends_while_xla_compiles(late, monkeypatch):
    """Its threads would crash in an interpreter that takes itself apart."""
    monkeypatch.setattr(cli, "main", lambda *, ends_process: 3 if ends_process else 1)
    monkeypatch.setattr(cli.os, "_exit", lambda code: sys.exit(f"at once, {code}"))
    with pytest.raises(SystemExit) as ended:
        cli.run()
    assert ended.value.code == 3
    driver.Compilation(lambda: None)
    with pytest.raises(SystemExit) as ended:
        cli.run()
    assert ended.value.code == "at once, 3"


# ---- the time is up ----------------------------------------------------------------------------


@pytest.fixture
def steps_of_a_second(monkeypatch):
    return let_steps_take_a_second(monkeypatch)


def test_the_time_of_all_that_came_before_counts(steps_of_a_second):
    with clock_running(began=-30.0):
        found = fitted(APART, max_time=100)
    assert found.timed_out and not found.complete
    # What is summarised afterwards has its share, and a chunk at the end may be longer.
    assert 50 <= found.warmup + found.draws <= 80


def test_time_that_is_up_in_the_warmup_leaves_a_result(steps_of_a_second, tmp_path):
    given = {"num_warmup": 300, "num_samples": 100}
    found = fitted(ALIKE, max_time=20, checkpoint=tmp_path, **given)
    assert found.timed_out and found.draws == found.usage.shape[1] == LEAST_KEPT
    assert 15 <= found.warmup <= 30 and found.planned_warmup == 300
    # The checkpoint is of the warm-up, which a resumed run completes.
    assert fitted(ALIKE, checkpoint=tmp_path, resume=True, **given).warmup == 300


def test_several_processes_take_the_same_steps(steps_of_a_second, monkeypatch):
    """The time of another one is up: neither starts nor last steps go by one's own clock."""
    together = ChainRun.together

    def first_late(run, *values):
        return [1] if len(values) == 1 else together(run, *values)

    monkeypatch.setattr(ChainRun, "together", first_late)
    monkeypatch.setattr(sampling, "several_processes", lambda mesh: True)
    with clock_running() as clock:
        asks = asked(ALIKE, num_warmup=300, num_samples=100)
        found = sampling.finish(asks, asks.chains(), max_time=20)
    assert not clock.binds and found.timed_out and found.draws == LEAST_KEPT
    # No step was taken for a draw.
    assert (found.log_joint[:, found.warmup :] == found.log_joint[:, [found.warmup - 1]]).all()


def test_no_stage_follows_that_has_no_time_to_compile(steps_of_a_second, monkeypatch):
    """It takes a minute by this clock, as that of the stage before did."""

    def options(is_short):
        steps_of_a_second[0] += 60.0

    monkeypatch.setattr("bmfjax.infer.run.chain_options", options)
    assert fitted(CURED, max_time=600).earlier == 0 and steps_of_a_second[0] < 600
    assert fitted(CURED, max_time=700).earlier == 520


@pytest.mark.parametrize("limit", [65, 80])
def test_for_starts_alone_less_time_is_kept_back(steps_of_a_second, monkeypatch, limit):
    """Compiling, which takes a minute by this clock, may last until they can just be told."""
    said = []

    def options(is_short):
        steps_of_a_second[0] += 60.0

    monkeypatch.setattr("bmfjax.infer.run.chain_options", options)
    monkeypatch.setattr(sampling, "say", lambda *of: said.append(": ".join(of)))
    asks = asked(ALIKE, num_warmup=300, num_samples=100)
    with clock_running() as clock:
        clock.aside, clock.aside_of_starts, clock.has_report = 30.0, 10.0, True
        clock.meanwhile = lambda: said.append("meanwhile")
        found = sampling.finish(asks, asks.chains(), max_time=limit)
    assert found.timed_out and found.draws == LEAST_KEPT
    assert "compiling the sampler: at least 11 s are kept for the report" in said
    assert said.count("meanwhile") == 1
    is_late = limit < 60 + 11
    assert clock.ended[1] == (11.0 if is_late else 30.0 + sampling.SUMMARY_SECONDS)
    # Without a step the statistics of the last one are not known.
    assert (found.log_joint == 0).all() == is_late


def test_time_for_modes_is_kept_where_a_report_may_have_them():
    def seconds(model, draws):
        run = types.SimpleNamespace(num_draws=draws, num_chains=4, thinning=lambda name: 2)
        data, named = types.SimpleNamespace(shape=(1000, 50)), types.SimpleNamespace(name=model)
        problem = types.SimpleNamespace(rank=3, data=data, model=named)
        chains = types.SimpleNamespace(sites=("usage", "basis"))
        return sampling._seconds_after(sampling.Stage(problem, chains, run))

    with clock_running() as clock:
        plain = {draws: seconds("features", draws) for draws in (20, 2000)}
        clock.has_report = True
        # 500 of the lines are compared, and 100 draws of a chain.
        for draws, compared in ((20, 10), (2000, 100)):
            more = sampling.MODES_SECONDS * 4 * 3 * compared * (500 + 50 + sampling.MATCHING)
            assert seconds("features", draws) == pytest.approx(plain[draws] + more)
            assert seconds("pmf", draws) == pytest.approx(plain[draws])


def test_without_a_number_of_draws_there_is_a_limit_of_time(few_looks, monkeypatch):
    monkeypatch.setattr(base, "MAX_TIME", 1e-9)
    found = fitted(APART)
    assert found.timed_out and not found.complete and found.usage.shape[1] == LEAST_KEPT
    assert found.draws < fitted(APART, max_time=600).draws
    assert fitted(ALIKE, num_samples=8, num_warmup=0).complete


def test_a_limit_that_was_not_given_is_not_in_the_call(limit_of_users):
    given = {"num_samples": 8, "num_warmup": 0}
    for max_time, options, limit, said in (
        (None, {}, limit_of_users, []),
        (77, {}, 77, ["max_time=77"]),
        (math.inf, {}, math.inf, ["max_time=float('inf')"]),
        (None, given, None, []),
    ):
        asks = asked(ALIKE, **options)
        with clock_running() as clock:
            with sampling.sampled(asks, asks.chains(), max_time=max_time) as stage:
                assert clock.limit == limit
            settings = base._used_settings(asks, stage.chains, 1)
        assert settings["max_time"] == limit
        assert re.findall(r"max_time=[^,]*", settings["call"]) == said


@pytest.mark.parametrize(
    ("more", "asked", "said"),
    [
        ({"chains_apart": 0.3}, {}, "predictions do not hold (chains differ by 0.30)"),
        ({"chains_apart": 0.15}, {}, "predictions hold so far; chains differ by 0.15"),
        ({"mc_error": 0.07}, {}, "predictions hold so far; to within 0.07 only"),
        ({}, {"mc_error": 0.01}, "predictions hold so far; to within 0.02 only"),
        ({}, {"until": "usable", "mc_error": 0.01}, "predictions hold so far; to within 0.02 only"),
        ({"rhat_log_joint": 1.012}, {}, "predictions hold so far; R-hat 1.012"),
        ({"ess_log_joint": 150.0}, {}, "predictions hold so far; 150 of 200 effective draws"),
        (
            {"factors_holding": ("1", "2"), "factors_of_most": ("2",), "factors_differing": (),
             "factors_agreeing": 0.5},
            {}, "predictions hold so far; factor 2 not in all chains",
        ),
        ({"rank": 2, "rhat_rank": 1.03}, {}, "predictions hold so far; R-hat 1.030"),
        ({"factors_agreeing": 0.5}, {}, "50 % of the factors hold"),
        # More draws do not compare what one chain found.
        (
            {"found_by": 1, "starts": 1, "shared_starts": True, "rhat_product": 1.08}, {},
            "predictions hold so far; R-hat 1.08",
        ),
        (
            {"num_chains": 1, "rhat_log_joint": 1.02}, {},
            "one chain is compared with none; R-hat 1.020",
        ),
    ],
)  # fmt: skip
def test_a_run_whose_parts_hold_waits_for_what_ends_it(more, asked, said):
    known = {"num_chains": 4, "exact": True, "factors_agreeing": 1.0}
    known |= {"chains_apart": 0.01, "mc_error": 0.02}
    watch, figures = object.__new__(stopping.Watch), verdict.Figures(**known | more)
    watch.last = stopping.Look(0, figures, False)
    watch._problem = types.SimpleNamespace(**{"until": "all", "mc_error": None} | asked)
    assert watch.waits_for == said and not verdict.suffices(figures, **asked)


def test_looks_know_who_found_what_the_chains_have():
    """As the verdict does, so that chains of one start end by its bounds."""
    seen = []
    for found in (0, 1, 3):
        family, rng = Toy(0.0), np.random.default_rng(0)
        family.origin = functools.partial(Features.origin, family)
        run = types.SimpleNamespace(
            draws=lambda rng=rng: {
                "usage": rng.normal(size=(4, 400, 3, 1)), "basis": np.ones((4, 400, 2, 1)),
            },
            trace=lambda rng=rng: {"log_joint": rng.normal(size=(4, 420))},
            thinning=lambda name: 1, num_warmup=20, num_starts=found, search_ends=None,
        )  # fmt: skip
        figures = stopping.look(asked(family), asked(family).chains(), run).figures
        seen.append((figures.found_by, figures.starts, figures.is_of_one_start))
    assert seen == [(None, None, False), (1, 1, True), (3, 3, False)]


def test_a_run_says_how_far_it_is_how_long_it_takes_and_what_it_waits_for(
    steps_of_a_second, few_looks, monkeypatch
):
    told = []
    monkeypatch.setattr(sampling, "say", lambda *said: told.append(": ".join(said)))
    fitted(APART, num_warmup=100, max_time=5000)
    said = " | ".join(told)
    # Of the first step nothing is known, and each takes a second.
    assert told[0] == "compiling the sampler"
    assert re.match(r"warm-up: 1 of 100 steps, log joint", told[1])
    assert "of 100 steps, about 1:3" in said and "draws; chains are compared at 250" in said
    assert "sampling: 500 draws; predictions do not hold yet (R-hat" in said


# ---- what users give ---------------------------------------------------------------------------


def test_words_other_than_auto_are_refused():
    for name in ("num_samples", "num_warmup"):
        with pytest.raises(InputError, match=f"{name} is 'all'; give a whole number of .* 'auto'"):
            asked(ALIKE, **{name: "all"})
    options = build_parser().parse_args(["fit", "--samples", "50"])
    assert (options.samples, options.warmup, options.max_time) == (50, "auto", None)
    assert ask(DATA, 1, num_samples=50).warmup(3) == 1000


@pytest.mark.parametrize("model", ["relaxed", pytest.param("pmf", marks=pytest.mark.long)])
def test_every_sampler_ends_by_itself(model, monkeypatch):
    """Two blocks, which chains find at once; the last look has the figures of the verdict."""
    looks, look = [], stopping.look
    monkeypatch.setattr(stopping, "look", lambda *run: looks.append(look(*run)) or looks[-1])
    data = np.kron(np.eye(2), np.ones((6, 4))) + 0.01 * np.arange(8)
    options = {"num_chains": 2, "progress": False}
    found = bmfjax.fit(data > 0.5 if model == "relaxed" else data, 1, model=model, **options)
    assert found.figures.complete and found.settings["num_samples"] == "auto"
    assert "max_time" not in found.settings["call"]
    assert found.figures.num_draws <= LOOKS[12]
    assert found.figures.converged and found.verdict.factors.holds
    last = looks[-1].figures.known()
    assert [looked.done for looked in looks] == [False] * (len(looks) - 1) + [True]
    for name in [
        n
        for n in last
        if n.startswith(("rhat", "ess", "factors_agreeing", "chains_apart", "mc_error"))
    ]:
        np.testing.assert_array_equal(last[name], getattr(found.figures, name), err_msg=name)
    lp = found.idata["sample_stats"]["lp"].values
    assert lp.shape[1] == found.usage_draws.shape[1]

"""Run the chains of a fit to their end: progress, checkpoints, interrupts; then the result."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import numbers
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from bmfjax.clock import Clock, running_clock
from bmfjax.data import InputError, checks
from bmfjax.data.io.files import reason
from bmfjax.families.base import Chains, Problem, default_limit, how_far, versions_in_use
from bmfjax.families.stopping import Watch
from bmfjax.infer import ChainRun
from bmfjax.infer.checkpoint import Checkpoint, identity_in
from bmfjax.infer.interrupt import Terminated, interrupt_requests, pass_on_termination
from bmfjax.infer.timings import expected, remember
from bmfjax.kernels.numerics.kept_programs import kept_folder
from bmfjax.kernels.numerics.mesh import agreed, is_first, several_processes
from bmfjax.kernels.tempering import position_of
from bmfjax.posterior.held_out import held_out
from bmfjax.posterior.modes import MAX_DRAWS, MOST_COMPARED
from bmfjax.progress import minutes, say
from bmfjax.result import Fit
from bmfjax.specs.base import text_of
from bmfjax.specs.run import CHECKPOINT_SECONDS
from bmfjax.store import held_checkpoint, holds_checkpoint

#: CPU seconds that a result takes, and for each number that was drawn.
SUMMARY_SECONDS, NUMBER_SECONDS = 2.0, 1.5e-7
#: CPU seconds that a report takes to search modes, for each number that it compares, and how many
#: numbers take as long as it takes to match a factor of a draw.
MODES_SECONDS, MATCHING = 4e-7, 200
#: Seconds that steps after the time may take, where there are too few draws for a result.
LAST_SECONDS = 1.0
#: Seconds below which the sampler may not be compiled in time.
SHORT_SECONDS = 60.0
#: Seconds from which on it is said beforehand how long something takes.
TOLD_SECONDS = 2.0
#: Share of the time that a fit without the hidden entries may take.
CHECK_TIME = 0.5
#: What a trace that says how far a run is, is of.
OBJECTIVES = {
    "log_joint": "log joint density",
    "elbo": "lower bound",
    "log_evidence": "log evidence",
}


def finish(problem: Problem, chains: Chains, **options) -> Fit:
    """Sample, and return the result; the options are those of `sampled`."""
    with sampled(problem, chains, **options) as stage:
        return result_of(stage)


@contextlib.contextmanager
def sampled(
    problem: Problem,
    chains: Chains,
    *,
    max_time: float | None = None,
    checkpoint: str | os.PathLike | None = None,
    resume: bool = False,
    overwrite: bool = False,
    patient: bool = False,
) -> Iterator[Stage]:
    """Sample, and yield the last stage; its checkpoint is held until the work with it is done.

    The options are those of `bmfjax.fit`. Time is that of the clock that runs
    (`bmfjax.clock`). `overwrite` replaces what an earlier run has stored. A `patient` run
    goes on beyond `max_time` until there are draws enough, as its chains say.
    """
    is_number = isinstance(max_time, numbers.Real) and not isinstance(max_time, bool)
    if max_time is not None and not (is_number and max_time > 0):
        raise InputError(f"max_time is {max_time!r}; give a positive number of seconds")
    if checkpoint is not None:
        checks.path_of("checkpoint", checkpoint)
    if checks.switch("resume", resume) and checkpoint is None:
        raise InputError("resume needs a checkpoint folder; give checkpoint=")
    if resume and not holds_checkpoint(Path(checkpoint)):
        raise InputError(f"{checkpoint} holds no checkpoint to resume from; leave resume out")
    clock = running_clock()
    clock.limit = default_limit(problem, chains) if max_time is None else max_time
    clock.on_cpu = jax.default_backend() == "cpu"
    # Chains that run apart leave nothing but what they have stored; and clocks of several processes
    # differ, which must start alike.
    apart = problem.chain_numbers is not None or several_processes(problem.mesh)
    clock.binds = not (patient or apart)
    writes = checkpoint is not None and is_first(problem.mesh)
    like = _like(problem, max_time) if _keeps(problem) else ""
    with contextlib.ExitStack() as held:

        def hold():
            held.enter_context(held_checkpoint(checkpoint))
            if holds_checkpoint(Path(checkpoint)) and not (resume or overwrite):
                raise InputError(
                    f"{checkpoint} holds the checkpoint of an earlier run; go on with it by "
                    "resume=True, give another folder, or delete this one"
                )

        agreed(problem.mesh, lambda: writes and hold())
        began = time.monotonic()
        if problem.check is not None:
            if resume:
                problem = problem.resumed(identity_in(checkpoint))
            else:
                problem = _after_check(problem, clock)
            chains = problem.chains()
        store = None if checkpoint is None else Checkpoint(checkpoint, identity(problem, chains))
        if resume:
            stage = _stored(problem, chains, store)
        else:
            stage = Stage(problem, chains, chains.run(problem, is_ready=_ready(problem, chains)))
        stage.run.seconds += time.monotonic() - began
        starts = stage.run.seconds - stage.run.compile_seconds
        agreed(problem.mesh, lambda: writes and not resume and store.check_room(stage.run))
        try:
            over = False
            while not over:
                stage, over = _sample(stage, store, clock, patient)
            run = stage.run
            if like and run.is_complete and not (resume or run.earlier_steps):
                draws = run.seconds - starts - run.compile_seconds
                remember(like, {"starts": starts, "draws": draws})
            yield stage._replace(is_stored=_is_stored(store))
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(str(stop) or _so_far(stage, store)) from None
        except Terminated as stop:
            raise Terminated(str(stop) or _so_far(stage, store), stop.signum) from None


def estimate(problem: Problem, max_time: float | None = None) -> str:
    """Say how long the run takes where one like it has run on this machine; else nothing."""
    phases = expected(_like(problem, max_time)) if _keeps(problem) else {}
    if sum(phases.values()) < TOLD_SECONDS:
        return ""
    parts = ", ".join(f"{name} {seconds:.0f}" for name, seconds in phases.items())
    return f"about {sum(phases.values()):.0f} s, as before: {parts}"


def remember_report(problem: Problem, seconds: float, max_time: float | None = None) -> None:
    """Keep how long a result and its report took, for the estimate of a run like this one."""
    if _keeps(problem):
        remember(_like(problem, max_time), {"report": seconds})


def _keeps(problem: Problem) -> bool:
    """Tell whether it is kept how long runs take."""
    return kept_folder() is not None and not problem.data.is_shared


def _like(problem: Problem, max_time: float | None) -> str:
    """Name runs that take as long: those in which all but the seed is the same."""
    rows, columns = problem.data.shape
    run = problem.settings(
        seed=None, grows=problem.grows, init=problem.init, max_time=max_time,
        platform=jax.default_backend(), mesh=problem.mesh and dict(problem.mesh.shape),
    )  # fmt: skip
    values = text_of((run, problem.priors, problem.sampler.fields()))
    return (
        f"{_kind(problem)} {rows}x{columns} {problem.data.fingerprint()[:16]} "
        f"{hashlib.sha256(values.encode()).hexdigest()[:16]}"
    )


def _kind(problem: Problem) -> str:
    """Name samplers that take about as long to compile."""
    return f"{problem.model.name} {problem.sampler.name}"


def _ready(problem: Problem, chains: Chains) -> Callable[[ChainRun], bool]:
    """Return what says of a run whether its sampler is compiled, for which there may be no time."""
    clock, kind = running_clock(), f"{_kind(problem)} {chains.phase}"
    waits = not (clock.binds and chains.can_stand)

    def is_ready(run):
        about = 0.0 if run.is_kept else expected(kind).get("compiling", 0.0)
        of_starts = functools.partial(clock.left, drawn=False)
        note = [f"about {about:.0f} s"] * (about >= TOLD_SECONDS)
        if not waits and math.isfinite(of_starts()):
            kept = clock.kept(drawn=False)
            note += [f"at least {kept:.0f} s are kept for the {clock.follows}"] * (
                kept >= TOLD_SECONDS
            )
        say("compiling the sampler", *["; ".join(note)] * bool(note))
        if not waits and not run.is_kept and clock.left() < SHORT_SECONDS:
            run.prepare_to_stand()
        before = run.compile_seconds
        # The starts alone are a result at once.
        found = run.is_ready((lambda: math.inf) if waits else of_starts, clock.use_wait)
        if not found:
            clock.note_end(drawn=False)
        took = run.compile_seconds - before
        # A program that JAX has in its own cache is there sooner.
        if found and took / clock.slowness >= TOLD_SECONDS:
            remember(kind, {"compiling": took})
        return found

    return is_ready


def _after_check(problem: Problem, clock: Clock) -> Problem:
    """Fit without some entries, and return the problem of all of them, whose chains go on there.

    A kernel whose state is no position, such as that of an optimisation, starts anew.
    """
    first, hidden = problem.without_cells()
    chains, limit = first.chains(), clock.limit
    chains = replace(chains, phase=f"{chains.phase} without {len(hidden.cells[0]):,} entries")
    if limit is not None:
        clock.limit = clock.spent + CHECK_TIME * (limit - clock.spent)
    stage = Stage(first, chains, chains.run(first, is_ready=_ready(first, chains)))
    over = False
    try:
        while not over:
            stage, over = _sample(stage, None, clock, False)
    finally:
        clock.limit = limit
    run = stage.run
    if not (run.is_complete or run.timed_out):
        raise KeyboardInterrupt(f"while entries were hidden, {_so_far(stage, None)}")
    say("predicting what was hidden")
    found = held_out(result_of(stage), hidden.cells, problem.check, problem.seed)
    moves = problem.kernel.exact and chains.objective == "log_joint"
    positions = position_of(run.state) if moves else None
    return problem.going_on(stage.problem, found, positions, (run.num_starts, run.search_ends))


def identity(problem: Problem, chains: Chains) -> dict:
    """Return what must be the same for the draws to be the same."""
    here = {"data": problem.data.fingerprint(), "platform": jax.default_backend()}
    grows = {"grows": True} if problem.grows and chains.looks else {}
    return {**here, **chains.settings, **grows, **versions_in_use()}


class Stage(NamedTuple):
    """Chains that run, and those that ran before them."""

    problem: Problem
    chains: Chains
    run: ChainRun
    earlier: tuple[int, ...] = ()  # steps of the stages before; negative where more factors follow
    before: Stage | None = None  # where its draws are known
    is_stored: bool = False  # once sampling is over: whether the last checkpoint was written

    @property
    def is_wider(self) -> bool:
        """Whether it has more factors than the stage before, which has just ended."""
        return self.before is not None and self.before.problem is not self.problem

    def next(self, steps: int | None = None) -> Stage:
        """Return the stage that follows, at its start; of a run that is resumed after `steps`."""
        return self._then(self.problem, self.chains.next_stage(self.run), steps)

    def wider(self, steps: int | None = None) -> Stage:
        """Return chains with more factors, which start anew; `steps` as in `next`."""
        problem = self.problem.wider
        chains = problem.chains()
        chains = replace(chains, phase=f"{chains.phase} at most {problem.rank} factors")
        return self._then(problem, chains, steps)

    def _then(self, problem: Problem, chains: Chains, steps: int | None) -> Stage:
        run = chains.run(problem, resume=steps is not None, is_ready=_ready(problem, chains))
        done = self.run.steps_done if steps is None else steps
        earlier = (*self.earlier, done if problem is self.problem else -done)
        run.earlier_steps = sum(map(abs, earlier))
        run.seconds = self.run.seconds
        return Stage(problem, chains, run, earlier, self if steps is None else None)


def result_of(stage: Stage) -> Fit:
    """Return the fit of a last stage."""
    problem = stage.problem
    say("putting the draws together")
    return problem.family.result(problem.of_result, stage.chains, stage.run)


def _stored(problem, chains, store) -> Stage:
    """Return the stage of a checkpoint, where it stopped."""
    found = {}

    def run_of(earlier):
        stage = Stage(problem, chains, chains.run(problem, resume=True))
        for steps in earlier:
            stage = stage.wider(-steps) if steps < 0 else stage.next(steps)
        found[earlier] = stage
        return stage.run

    store.read(run_of)
    return found[store.earlier]


def _sample(stage, store, clock, patient) -> tuple[Stage, bool]:
    """Run a stage to its end, storing now and then; return the stage to go on with, or the last.

    The second is whether it is the last. Ctrl-C and SIGTERM stop it after the chunk that runs.
    """
    problem, chains, run = stage.problem, stage.chains, stage.run
    watch, objective = Watch(problem, chains, run), chains.objective
    stored, grows, first = time.monotonic(), False, None
    began = stored - run.seconds
    with interrupt_requests() as interrupt:

        def is_over():
            return chains.finished(run) or watch.is_done or watch.is_stuck

        def is_cramped():
            """Tell whether more factors, with which it takes as long again, have no time."""
            return clock.left() < run.seconds

        def on_chunk(run):
            nonlocal stored, grows, first
            now = time.monotonic(), run.steps_done
            first = now if first is None else first
            pace = (now[0] - first[0]) / max(now[1] - first[1], 1)
            say(_phase(chains, run), _note(chains, watch, run, pace))
            if not np.isfinite(run.last_trace(objective)).all():
                what = OBJECTIVES[objective]
                raise FloatingPointError(
                    f"the {what} is not finite after {run.steps_done} steps; look for "
                    "extreme numbers in the priors (in the relaxed model a high fixed precision, "
                    "with iasg a large step_size)"
                )
            # With more factors there is a result already, of the chains before.
            late = clock.left(_seconds_after(stage)) <= 0
            late &= not patient or stage.is_wider or chains.enough(run)
            due = time.monotonic() - stored > CHECKPOINT_SECONDS
            late, due, stops, cramped = run.together(late, due, interrupt.requested, is_cramped())
            grows = watch.is_full and not (cramped or stops or late)
            run.cramped |= watch.is_full and bool(cramped)
            if store is not None and due:
                keep(run, store, stage.earlier)
                stored = time.monotonic()
            run.seconds = time.monotonic() - began
            run.timed_out = bool(late) and run.steps_done < run.num_steps
            if run.timed_out:
                clock.note_end(_seconds_after(stage))
            return bool(stops or is_over() or grows or late)

        # A run that is resumed may have been over already.
        if run.steps_done > 0 and watch.is_full:
            (run.cramped,) = map(bool, run.together(is_cramped()))
            grows = not run.cramped
        over = grows or (run.steps_done > 0 and is_over())
        is_ready = _ready(problem, chains)
        if not (over or run.timed_out):
            if is_ready(run):
                run.finish(on_chunk=on_chunk, ends=watch.steps)
            else:
                run.timed_out = not interrupt.requested
        # To compile the next stage takes as long as this one took.
        short = clock.left(_seconds_after(stage)) <= run.compile_seconds
        stops, is_short = run.together(interrupt.requested, short)
        # A run that is resumed would not search its start again.
        if store is not None and run.steps_done > 0:
            keep(run, store, stage.earlier)
    if interrupt.terminated:
        # Whoever sent it will not wait for a result.
        pass_on_termination(interrupt.signum, _so_far(stage, store))
    if not chains.enough(run):
        if stage.before is not None:  # which has draws
            stage.before.run.timed_out = run.timed_out
            stage.before.run.cramped |= stage.is_wider and run.timed_out
            return stage.before, True
        if stops:
            raise KeyboardInterrupt(_so_far(stage, store))
        if not run.timed_out or not chains.can_stand:
            more = f"give {'more seconds or ' * run.timed_out}{chains.sooner}"
            if _is_stored(store):
                more += ", or continue with resume=True (--resume)"
            why = f"max_time is {clock.limit:g}, which was up" if run.timed_out else "the run ended"
            raise InputError(f"{why} {_so_far(stage, store)}: too few for a result; {more}")
        # What is stored is as it was, so that a run that is resumed ends its warm-up.
        run.end_warmup()
        last = time.monotonic() + LAST_SECONDS
        if run.steps_done > 0 and run.is_ready(lambda: 0.0):
            while not (chains.enough(run) or any(run.together(time.monotonic() >= last))):
                run.advance(1)
        chains.stand(run)
        run.seconds = time.monotonic() - began
        return stage, True
    if chains.looks:
        run.discard(watch.look().discarded)
    run.is_enough = chains.finished(run) or watch.is_done
    if grows and not stops:
        return _wider(stage, store, clock)
    if watch.is_stuck and not stops:
        run.timed_out = bool(is_short)
        if not is_short:
            return _following(stage, stage.next, store)
    return stage, True


def _seconds_after(stage) -> float:
    """Return the CPU seconds that a result takes of the draws so far."""
    if not stage.chains.sites:
        return 0.0
    run, problem = stage.run, stage.problem
    kept, lines = run.num_draws // run.thinning("usage"), problem.data.shape
    numbers = problem.rank * run.num_chains
    seconds = SUMMARY_SECONDS + NUMBER_SECONDS * kept * numbers * sum(lines)
    kind = Fit._of_model(problem.model.name)
    if running_clock().has_report and kind is not None and kind._has_modes:
        compared = MATCHING + sum(min(side, MOST_COMPARED) for side in lines)
        seconds += MODES_SECONDS * numbers * min(kept, MAX_DRAWS) * compared
    return seconds


def _wider(stage, store, clock) -> tuple[Stage, bool]:
    """Return chains with more factors; or those before where there is no room or time for them."""
    try:
        following, over = _following(stage, stage.wider, store)
        run = stage.run
        (run.cramped,) = map(bool, run.together(clock.left() <= run.compile_seconds))
        run.timed_out = run.cramped and not run.is_enough
        return (stage, True) if run.cramped else (following, over)
    except InputError as error:
        stage.run.is_enough = True
        warnings.warn(
            f"all {stage.problem.rank} factors that were allowed are there, and there is no fit "
            f"with more: {error}",
            stacklevel=2,
        )
        return stage, True


def _following(stage, start, store) -> tuple[Stage, bool]:
    """Return the stage that follows, or the one before where its start was interrupted."""
    with interrupt_requests() as interrupt:
        began = time.monotonic()
        following = start()
        following.run.seconds += time.monotonic() - began
        (stops,) = following.run.together(interrupt.requested)
    if interrupt.terminated:
        pass_on_termination(interrupt.signum, _so_far(stage, store))
    return (stage, True) if stops else (following, False)


def _phase(chains, run) -> str:
    """Name what the steps of a run are."""
    return "warm-up" if run.steps_done < run.num_warmup else chains.phase


def _note(chains, watch, run, pace) -> str:
    """Say how far a run is, and what it waits for where it ends by itself.

    A step takes `pace` seconds, 0 where it is not known yet.
    """

    def of(done, most, what):
        left = f", about {minutes((most - done) * pace)} left" if pace > 0 else ""
        return f"{done:,} of {most:,} {what}{left}, {value}"

    objective = chains.objective
    value = f"{objective.replace('_', ' ')} {float(np.mean(run.last_trace(objective))):,.0f}"
    if run.steps_done < run.num_warmup:
        return of(run.steps_done, run.num_warmup, "steps")
    if chains.reached is not None:
        return chains.reached(run)
    drawn = run.steps_done - run.num_warmup
    if not chains.looks:
        return of(drawn, run.num_samples, chains.counted)
    return f"{drawn:,} draws; {watch.waits_for}"


def keep(run, store, earlier=()) -> None:
    """Write a checkpoint; one that fails costs itself alone, and of several the first is named.

    A disk that is full, or gone, may have room again, or come back: the next one is tried too.
    """
    warned = store.failed
    try:
        store.write(run, earlier)
    except (OSError, MemoryError) as error:
        if warned:
            return
        why = reason(error) if isinstance(error, OSError) else "there is not enough memory"
        before = "none is there" if store.steps_done is None else "the one before it stays"
        warnings.warn(
            f"the checkpoint in {store.folder} was not written ({why}); {before}, and the fit "
            "goes on",
            stacklevel=2,
        )


def _is_stored(store) -> bool:
    """Say whether a run can go on from its last checkpoint."""
    return store is not None and store.steps_done is not None and not store.failed


def _so_far(stage, store) -> str:
    """Say how far a stage has come, and where that is kept."""
    run = stage.run
    text = f"after {how_far(stage.chains, run)}"
    if store is None or store.steps_done is None:
        return text
    if (store.earlier, store.steps_done) != (stage.earlier, run.steps_done):
        # The second Ctrl-C does not wait.
        text += f", the first {store.steps_done:,} of {run.num_steps:,} steps"
    return f"{text}, kept in {store.folder}"

"""A family of models that compiles in milliseconds, for tests of what runs chains.

`registered` makes it a model of `bmfjax.fit`.
"""

import contextlib
import importlib
import signal
import types

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from bmfjax.clock import clock_running, running_clock
from bmfjax.data import BinaryMatrix
from bmfjax.diagnostics import agreement
from bmfjax.families import FAMILIES
from bmfjax.families.base import Chains, Family, Ordered, Problem, thinning
from bmfjax.families.sampling import finish
from bmfjax.infer import ChainRun
from bmfjax.kernels import Algorithm
from bmfjax.specs.base import Kernel, Model, Sampler, value_class

DATA = BinaryMatrix(np.eye(3)[:, :2])


def walk(apart: float, moves: bool, shape=DATA.shape, rank=1, used=1) -> Algorithm:
    """Chains on two modes, `apart` from each other; they go from one to the other if it `moves`.

    Of at most `rank` factors so many are `used`.
    """

    def step(key, state, data, inverse_temperature=1.0):
        key_mode, key_x = random.split(key)
        mode, x = state["mode"], state["x"]
        if moves:
            mode = random.rademacher(key_mode, (), jnp.float32)
        return {"mode": mode, "x": 0.1 * x + random.normal(key_x, x.shape)}, None

    def init(key, position, data):
        x = jnp.zeros((shape[0], rank))
        return {"mode": jnp.float32(1.0), "x": x} if position is None else position

    def observe(state, info):
        usage = state["x"] + apart * state["mode"]
        seen = {"usage": usage, "basis": jnp.ones((shape[1], rank)), "rank": jnp.int32(used)}
        return seen | {"log_joint": -jnp.sum(state["x"] ** 2)}

    return Algorithm(init, step, observe)


@value_class
class Walk(Sampler):
    """Walk at random."""

    name = "walk"


@value_class
class ToyModel(Model):
    """Two modes."""

    name = "toy"
    samplers = {Walk: Kernel(f"{__name__}:walk", ("log_joint",))}  # noqa: RUF012


class Toy(Family):
    """Two modes that chains do not leave at first, and do in a stage that may follow."""

    models = {"toy": ToyModel}  # noqa: RUF012
    finds_rank = ("walk",)
    #: Factors that chains use, where they may.
    used = 3
    #: Whether chains agree about the factor whatever they draw, whether it is empty, and in which
    #: share of its draws each chain has it.
    alike, empties, present = True, None, None

    def __init__(self, apart: float, second: bool = False, **more):
        self.apart, self.second, self.more = apart, second, more

    def chains(self, request):
        size, rank = request.num_chains, int(request.rank)

        def start(resume):
            modes = jnp.where(jnp.arange(size) % 2 == 0, 1.0, -1.0)
            return {"mode": modes, "x": jnp.zeros((size, request.data.num_rows, rank))}

        def next_stage(run):
            return stage(True, lambda resume: run.state, stream=7)

        def stage(moves, start, **more):
            return Chains(
                walk(self.apart, moves, request.data.shape, rank, min(rank, self.used)),
                None,
                request.settings(thinning=1),
                sites=("usage", "basis"),
                trace=("log_joint", "rank") if request.finds_rank else ("log_joint",),
                thinning=thinning(1000, request.most_samples),
                num_warmup=request.warmup(20),
                num_samples=request.most_samples,
                start=start,
                looks=request.looks,
                **more,
            )

        return stage(False, start, next_stage=next_stage if self.second else None, **self.more)

    def ordered(self, request, chains, seen):
        alike = agreement(seen.sites["usage"].mean(1), seen.sites["basis"].mean(1))
        return Ordered(seen.sites, np.ones(len(alike)) if self.alike else alike)

    def when_rounded(self, request, found, seen):
        rounded = {"empty": self.empties, "present": self.present}
        return {name: value for name, value in rounded.items() if value is not None}

    def result(self, request, chains, run):
        return types.SimpleNamespace(
            usage=run.draws()["usage"],
            log_joint=run.trace()["log_joint"],
            trace=run.trace(),
            settings=chains.settings,
            rank=request.rank,
            warmup=run.warmup_steps,
            planned_warmup=run.planned_warmup,
            draws=run.num_draws,
            complete=run.is_complete,
            timed_out=run.timed_out,
            cramped=run.cramped,
            earlier=run.earlier_steps,
            every=run.thinning("usage"),
            origin=(run.num_starts, run.search_ends),
        )


@contextlib.contextmanager
def registered(family: Family):
    """Make the toy a model like others: ``model="toy"``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAMILIES, "toy", family)
        yield


def asked(family, data=DATA, rank=1, **options):
    return Problem(family, data, rank, ToyModel(), Walk(), **options)


def fitted(family, *, max_time=None, checkpoint=None, resume=False, **options):
    request = asked(family, **options)
    given = {"max_time": max_time, "checkpoint": checkpoint, "resume": resume}
    with clock_running(running_clock().began):
        return finish(request, request.chains(), **given)


def set_clock(patch, seconds, modules=("clock", "families.sampling")):
    """Let modules of bmfjax read, instead of the time, what `seconds()` returns."""
    clock = types.SimpleNamespace(monotonic=seconds, process_time=seconds)
    for module in modules:
        patch.setattr(importlib.import_module(f"bmfjax.{module}"), "time", clock)


def let_steps_take_a_second(patch):
    """Set a clock that goes on by one second with every step, whatever else happens; return it."""
    now, advance = [0.0], ChainRun.advance

    def slow(run, num_steps=None):
        taken = advance(run, num_steps)
        now[0] += taken
        return taken

    set_clock(patch, lambda: now[0], ("clock", "infer.run", "families.sampling"))
    patch.setattr(ChainRun, "advance", slow)
    return now


@contextlib.contextmanager
def interrupted(stage, steps):
    """Press Ctrl-C when a run of a stage, counted from 0, has taken so many steps."""
    advance, runs = ChainRun.advance, []

    def patched(run, num_steps=None):
        if run not in runs:
            runs.append(run)
        left = steps - run.steps_done
        here = runs.index(run) == stage
        taken = advance(run, min(num_steps, left) if here and left > 0 else num_steps)
        if here and run.steps_done == steps:
            signal.raise_signal(signal.SIGINT)
        return taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChainRun, "advance", patched)
        yield

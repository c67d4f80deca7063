"""A fit in three parts: check the options, sample, put the result together."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from bmfjax.boolean_plan import boolean_plan
from bmfjax.data import (
    BinaryMatrix,
    InputError,
    Ratings,
    RealMatrix,
    load,
    load_ratings,
    load_real,
)
from bmfjax.infer.checkpoint import Checkpoint
from bmfjax.infer.interrupt import Terminated, interrupt_requests, pass_on_termination
from bmfjax.logistic_plan import logistic_plan
from bmfjax.nmf_plan import nmf_plan
from bmfjax.output import held_checkpoint
from bmfjax.pmf_plan import pmf_plan
from bmfjax.progress import progress_bar
from bmfjax.relaxed_plan import relaxed_plan
from bmfjax.request import Plan, Request
from bmfjax.result import Fit
from bmfjax.samplers import SAMPLERS, default_sampler

#: What each model makes of a request: ``plan(request) -> Plan``.
MODELS = {
    "ormachine": boolean_plan, "relaxed": relaxed_plan, "logistic": logistic_plan,
    "nmf": nmf_plan,
    "pmf": pmf_plan, "probit": pmf_plan, "ordered-probit": pmf_plan,
}  # fmt: skip
#: Models of numbers that need not be 0 and 1.
OF_RATINGS = ("pmf", "ordered-probit")
OF_NUMBERS = ("nmf", *OF_RATINGS)
PACKAGES = ("bmfjax", "jax", "jaxlib", "numpyro", "optax")

CHECKPOINT_SECONDS = 10.0


@dataclass(frozen=True)
class Job:
    """A fit whose options are checked.

    Attributes
    ----------
    plan : Plan
    """

    plan: Plan

    @property
    def data(self) -> BinaryMatrix | RealMatrix | Ratings:
        """The matrix."""
        return self.plan.data

    @property
    def settings(self) -> dict:
        """Everything that determines the draws besides the data."""
        return self.plan.settings

    def finish(
        self,
        *,
        max_time: float | None = None,
        progress: bool = True,
        checkpoint: str | os.PathLike | None = None,
        resume: bool = False,
    ) -> Fit:
        """Sample and put the result together; the options are those of `bmfjax.fit`."""
        if max_time is not None and not max_time > 0:
            raise InputError(f"max_time is {max_time}; give a positive number of seconds")
        if resume and checkpoint is None:
            raise InputError("resume needs a checkpoint folder; give checkpoint=")
        versions = versions_in_use()
        identity = {"data": self.data.fingerprint(), **self.settings, **versions}
        store = None if checkpoint is None else Checkpoint(checkpoint, identity)
        began = time.monotonic()
        with contextlib.nullcontext() if store is None else held_checkpoint(checkpoint):
            run = self.plan.start(resume)
            if resume:
                store.read(run)
            try:
                _sample(run, self.plan, store, max_time, progress)
                return self.plan.assemble(self.plan, run, versions, time.monotonic() - began)
            except (KeyboardInterrupt, Terminated) as stop:
                raise type(stop)(str(stop) or _so_far(run, self.plan, store)) from None


def prepare(
    data: Any,
    rank: int,
    *,
    model: str = "ormachine",
    sampler: str | None = None,
    priors: Any = None,
    init: Mapping | None = None,
    num_chains: int = 4,
    num_warmup: int = 1000,
    num_samples: int = 3000,
    seed: int = 0,
    sampler_options: Mapping | None = None,
) -> Job:
    """Check everything that a user gave, before any work; arguments as of `bmfjax.fit`."""
    if model not in MODELS:
        raise InputError(f"model is {model!r}; choose from {', '.join(MODELS)}")
    data = _matrix(data, model)
    _check_structure(data)
    sampler = default_sampler(model, data) if sampler is None else sampler
    request = Request(
        data, rank, model, sampler, priors, init,
        num_chains, num_warmup, num_samples, seed, sampler_options,
    )  # fmt: skip
    _check(request)
    return Job(MODELS[model](request))


# ---- before -----------------------------------------------------------------------------


def _matrix(data, model):
    if isinstance(data, BinaryMatrix):
        return data
    if isinstance(data, Ratings | RealMatrix):
        if model not in (*OF_NUMBERS, "probit"):
            raise InputError(
                f"data is a {type(data).__name__}, and model {model!r} is of ones and zeros; give "
                f"a BinaryMatrix, or model='pmf'"
            )
        if model == "nmf" and isinstance(data, Ratings):
            raise InputError(
                "data is a Ratings, and model 'nmf' is of matrices; give a RealMatrix or an array "
                "with NaN where an entry is missing"
            )
        return data
    if isinstance(data, str | os.PathLike):
        if model == "nmf":
            return load_real(data) if os.path.isfile(data) else load(data)
        return load_ratings(data) if model in OF_NUMBERS else load(data)
    if sp.issparse(data) and model in OF_RATINGS:
        raise InputError(
            f"data is a sparse matrix, of which model {model!r} would take the cells that are not "
            "stored for ratings of 0; give bmfjax.Ratings(rows, columns, values), or an array "
            "with NaN where a rating is missing"
        )
    return RealMatrix(data) if model in OF_NUMBERS else BinaryMatrix(data)


def _check_structure(data):
    """Refuse a matrix in which there is nothing to factorise, whatever the model.

    Chains of such a fit do not agree, or agree on the prior, and neither says what the matter is.
    """
    for side, count in (("row", data.num_rows), ("column", data.num_columns)):
        if count == 1:
            raise InputError(
                f"the matrix has one {side}, and factors are what {side}s have in common, so there "
                f"is nothing to factorise; give at least two {side}s"
            )
    if isinstance(data, BinaryMatrix):
        for name, number in (("ones", data.num_ones), ("zeros", data.num_zeros)):
            if number == 0:
                raise InputError(
                    f"the matrix has no {name} among its observed entries, so there is nothing to "
                    "factorise; look at what was read, and at the threshold (binarize) if there "
                    "is one"
                )
    elif data.range[0] == data.range[1]:
        raise InputError(
            f"every observed value is {data.range[0]:g}, so there is nothing to factorise; look "
            "at what was read"
        )


def _check(request):
    data, rank, choices = request.data, request.rank, SAMPLERS[request.model]
    if request.sampler not in choices:
        raise InputError(
            f"sampler is {request.sampler!r}; model {request.model!r} has {', '.join(choices)}"
        )
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer):
        raise InputError(f"rank is {rank!r}; give a whole number of factors")
    if not 1 <= rank <= min(data.shape):
        raise InputError(
            f"rank is {rank}; give a number from 1 to {min(data.shape)}, the smaller side of the "
            f"{data.num_rows} x {data.num_columns} matrix"
        )
    for name, least in (("num_chains", 1), ("num_warmup", 0), ("num_samples", 4)):
        value = getattr(request, name)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise InputError(f"{name} is {value}; give a whole number of at least {least}")


def versions_in_use() -> dict[str, str]:
    """Versions on which the draws depend."""
    found = {"python": platform.python_version()}
    found["precision"] = str(np.dtype(jax.numpy.result_type(float)))
    return found | {p: importlib.metadata.version(p) for p in PACKAGES}


# ---- sampling -----------------------------------------------------------------------------


def _sample(run, plan, store, max_time, progress) -> None:
    """Run to the end, storing now and then; Ctrl-C and SIGTERM stop after the chunk that runs."""
    stored, objective = time.monotonic(), plan.objective
    with interrupt_requests() as interrupt:

        def on_chunk(run):
            nonlocal stored
            show()
            if not np.isfinite(run.last_trace(objective)).all():
                what = "log joint density" if objective == "log_joint" else "lower bound"
                raise FloatingPointError(
                    f"the {what} is not finite after {run.steps_done} steps; look for "
                    "extreme numbers in the priors (in the relaxed model a high fixed precision, "
                    "with iasg a large step_size)"
                )
            if store is not None and time.monotonic() - stored > CHECKPOINT_SECONDS:
                store_on_the_way(run, store)
                stored = time.monotonic()
            return interrupt.requested or plan.finished(run)

        with progress_bar(run, progress, objective) as show:
            run.finish(max_time=max_time, on_chunk=on_chunk)
        if store is not None:
            store.write(run)
    if interrupt.terminated:
        # Whoever sent it will not wait for a result.
        pass_on_termination(_so_far(run, plan, store))
    if not plan.enough(run):
        if interrupt.requested:
            raise KeyboardInterrupt(_so_far(run, plan, store))
        more = "give more seconds or a smaller num_warmup"
        if store is not None:
            more += ", or continue with resume=True (--resume)"
        raise InputError(
            f"max_time is {max_time}, which was up {_so_far(run, plan, store)}: too few for a "
            f"result; {more}"
        )


def store_on_the_way(run, store) -> None:
    """Write a checkpoint; a full disk, which may have room again, ends no run of hours."""
    try:
        store.write(run)
    except OSError as error:
        warnings.warn(
            f"the checkpoint in {store.folder} was not written ({error.strerror or error}); the "
            "one before it stays, and sampling goes on",
            stacklevel=2,
        )


def _so_far(run, plan, store) -> str:
    """How far a run has come, and where that is kept."""
    said = f"after {run.num_draws:,} of {run.num_samples:,} {plan.counted}"
    if not run.num_draws:
        said = f"after {run.steps_done:,} of {run.num_warmup:,} steps of warm-up"
    if store is None or store.steps_done is None:
        return said
    if store.steps_done < run.steps_done:  # the second Ctrl-C does not wait
        said += f", the first {store.steps_done:,} of {run.num_steps:,} steps"
    return f"{said}, kept in {store.folder}"

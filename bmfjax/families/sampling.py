"""Run the chains of a fit to their end: progress, checkpoints, interrupts; then the result."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from pathlib import Path

import numpy as np

from bmfjax.data import InputError
from bmfjax.families.base import Chains, Request, versions_in_use
from bmfjax.infer.checkpoint import Checkpoint
from bmfjax.infer.interrupt import Terminated, interrupt_requests, pass_on_termination
from bmfjax.infer.progress import progress_bar
from bmfjax.result import Fit
from bmfjax.store import held_checkpoint, holds_checkpoint

CHECKPOINT_SECONDS = 10.0


def finish(
    request: Request,
    chains: Chains,
    *,
    max_time: float | None = None,
    progress: bool = True,
    checkpoint: str | os.PathLike | None = None,
    resume: bool = False,
) -> Fit:
    """Sample, and return the result; the options are those of `bmfjax.fit`."""
    if max_time is not None and not max_time > 0:
        raise InputError(f"max_time is {max_time}; give a positive number of seconds")
    if resume and checkpoint is None:
        raise InputError("resume needs a checkpoint folder; give checkpoint=")
    if resume and not holds_checkpoint(Path(checkpoint)):
        raise InputError(f"{checkpoint} holds no checkpoint to resume from; leave resume out")
    identity = {"data": request.data.fingerprint(), **chains.settings, **versions_in_use()}
    store = None if checkpoint is None else Checkpoint(checkpoint, identity)
    began = time.monotonic()
    with contextlib.nullcontext() if store is None else held_checkpoint(checkpoint):
        run = chains.run(request, resume)
        if resume:
            store.read(run)
        try:
            _sample(run, chains, store, max_time, progress)
            run.seconds = time.monotonic() - began
            return request.family.result(request, chains, run)
        except (KeyboardInterrupt, Terminated) as stop:
            raise type(stop)(str(stop) or _so_far(run, chains, store)) from None


def _sample(run, chains, store, max_time, progress) -> None:
    """Run to the end, storing now and then; Ctrl-C and SIGTERM stop after the chunk that runs."""
    stored, objective = time.monotonic(), chains.objective
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
            return interrupt.requested or chains.finished(run)

        with progress_bar(run, progress, objective) as show:
            run.finish(max_time=max_time, on_chunk=on_chunk)
        if store is not None:
            store.write(run)
    if interrupt.terminated:
        # Whoever sent it will not wait for a result.
        pass_on_termination(_so_far(run, chains, store))
    if not chains.enough(run):
        if interrupt.requested:
            raise KeyboardInterrupt(_so_far(run, chains, store))
        more = "give more seconds or a smaller num_warmup"
        if store is not None:
            more += ", or continue with resume=True (--resume)"
        raise InputError(
            f"max_time is {max_time}, which was up {_so_far(run, chains, store)}: too few for a "
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


def _so_far(run, chains, store) -> str:
    """Say how far a run has come, and where that is kept."""
    text = f"after {run.num_draws:,} of {run.num_samples:,} {chains.counted}"
    if not run.num_draws:
        text = f"after {run.steps_done:,} of {run.num_warmup:,} steps of warm-up"
    if store is None or store.steps_done is None:
        return text
    if store.steps_done < run.steps_done:  # the second Ctrl-C does not wait
        text += f", the first {store.steps_done:,} of {run.num_steps:,} steps"
    return f"{text}, kept in {store.folder}"

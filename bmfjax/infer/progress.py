"""Progress bars on standard error, which may go while a run lasts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bmfjax.infer.run import ChainRun


class _Lasting:
    """A stream that takes what it can: what a closed terminal does not take ends no run."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str):
        return getattr(self._stream, name)


def _console() -> Console:
    return Console(file=_Lasting(sys.stderr))


@contextlib.contextmanager
def tasks_bar(total: int, enabled: bool) -> Iterator[Callable[[str], None]]:
    """Show how many of several fits are done; call what is yielded with the next one's name."""
    if not enabled:
        yield lambda name: None
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=_console()) as bar:
        task = bar.add_task("", total=total)
        begun = 0

        def show(name):
            nonlocal begun
            bar.update(task, completed=begun, description=name)
            begun += 1

        yield show
        bar.update(task, completed=total)


@contextlib.contextmanager
def progress_bar(
    run: ChainRun, enabled: bool, objective: str = "log_joint", phase: str = "sampling"
) -> Iterator[Callable[[int, str], None]]:
    """Show how far a run is, with the mean of a trace; call what is yielded after every chunk.

    ``show(end, note)`` takes the step that the bar ends with, and what else there is to say.
    """
    if not enabled:
        yield lambda end, note: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=_console()) as bar:
        name = objective.replace("_", " ")
        # How many steps a population takes is seen on the way.
        total = None if objective == "log_evidence" else run.num_steps
        task = bar.add_task("compiling", total=total, note="", completed=run.steps_done)

        def show(end, note):
            value = f"{name} {float(np.mean(run.last_trace(objective))):,.0f}"
            bar.update(
                task,
                completed=run.steps_done,
                total=None if objective == "log_evidence" else end,
                description="warm-up" if run.steps_done < run.num_warmup else phase,
                note="; ".join(filter(None, (value, note))),
            )

        yield show

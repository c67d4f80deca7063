"""A progress bar on standard error."""

from __future__ import annotations

import contextlib
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


@contextlib.contextmanager
def progress_bar(
    run: ChainRun, enabled: bool, objective: str = "log_joint"
) -> Iterator[Callable[[], None]]:
    """Show how far a run is, with the mean of a trace; call what is yielded after every chunk."""
    if not enabled:
        yield lambda: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        name = objective.replace("_", " ")
        task = bar.add_task("compiling", total=run.num_steps, note="", completed=run.steps_done)

        def show():
            phase = "warm-up" if run.steps_done < run.num_warmup else "sampling"
            phase = "optimising" if objective == "elbo" else phase
            value = float(np.mean(run.last_trace(objective)))
            bar.update(
                task, completed=run.steps_done, description=phase, note=f"{name} {value:,.0f}"
            )

        yield show

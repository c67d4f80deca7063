"""What a user asks of a fit, and what a model makes of it before it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bmfjax.data import BinaryMatrix
from bmfjax.data.memory import require_memory
from bmfjax.infer import ChainRun
from bmfjax.result import Fit

#: Kept draws of each chain below which nothing can be said of them.
LEAST_KEPT = 4


@dataclass(frozen=True)
class Request:
    """What a user asked of a fit, read and checked as far as all models have it in common.

    Attributes
    ----------
    data : BinaryMatrix
    rank, num_chains, num_warmup, num_samples, seed : int
    model, sampler : str
    priors, init, sampler_options : any
        As of `bmfjax.fit`.
    """

    data: BinaryMatrix
    rank: int
    model: str
    sampler: str
    priors: Any
    init: Any
    num_chains: int
    num_warmup: int
    num_samples: int
    seed: int
    sampler_options: Any

    def settings(self) -> dict:
        """What determines the draws, besides the data and the model's own options."""
        names = ("model", "sampler", "num_chains", "num_warmup", "num_samples", "seed")
        return {"rank": int(self.rank)} | {n: getattr(self, n) for n in names}


@dataclass(frozen=True)
class Plan:
    """A fit whose options are checked.

    Attributes
    ----------
    data : BinaryMatrix
    settings : dict
        Everything that determines the draws besides the data.
    start : callable
        ``start(resume) -> ChainRun``, the chains at their start; what only a new run needs is not
        looked for where one is resumed.
    assemble : callable
        ``assemble(plan, run, versions, seconds) -> Fit``.
    objective : str
        The trace that says how far it is: the log joint density, or the bound of a variational fit.
    counted : str
        What the steps of a run after its warm-up are.
    finished : callable
        ``finished(run) -> bool``: whether a run needs no more of its steps.
    enough : callable
        ``enough(run) -> bool``: whether a run that was stopped has enough for a result.
    """

    data: BinaryMatrix
    settings: dict
    start: Callable[[bool], ChainRun]
    assemble: Callable[..., Fit]
    objective: str = "log_joint"
    counted: str = "draws a chain"
    finished: Callable[[ChainRun], bool] = lambda run: False
    enough: Callable[[ChainRun], bool] = lambda run: (
        run.num_draws // run.thinning("usage") >= LEAST_KEPT
    )


def check_memory(data, bytes_an_entry: float, why: str) -> None:
    """Refuse a matrix of which a model would need more than the memory that is left."""
    require_memory(
        bytes_an_entry * data.num_rows * data.num_columns,
        f"{why}, which for {data.num_rows:,} x {data.num_columns:,}",
        "choose fewer rows or columns",
    )

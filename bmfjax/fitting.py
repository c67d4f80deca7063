"""The whole way for a user who wants an answer: `fit`."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from jax.sharding import Mesh

from bmfjax.clock import clock_running
from bmfjax.data import checks
from bmfjax.families import ask
from bmfjax.families.apart import check_apart, merge, place_of
from bmfjax.families.sampling import estimate, finish
from bmfjax.infer.checkpoint import identity_in
from bmfjax.kernels.numerics.mesh import checked_mesh, is_first
from bmfjax.progress import say, status_line
from bmfjax.result import Fit
from bmfjax.specs import MODELS, ModelName, SamplerName, with_fields_refused
from bmfjax.specs.base import AUTO, Model, Sampler
from bmfjax.specs.default import RULE
from bmfjax.specs.ratings import RATINGS_RANK
from bmfjax.specs.run import (
    ACCURATE,
    CHECKPOINT_SECONDS,
    LARGE_MAX_RANK,
    MAX_RANK,
    MAX_TIME,
)
from bmfjax.verdict import RHAT_GOOD, RHAT_USABLE

__all__ = ["Fit", "fit", "merge"]


@with_fields_refused
def fit(
    data: Any,
    rank: int | Literal["auto"] | Model | None = None,
    sampler: SamplerName | Sampler | None = None,
    *,
    model: ModelName | Model | None = None,
    max_rank: int | None = None,
    init: Mapping | None = None,
    num_chains: int = 4,
    num_warmup: int | Literal["auto"] = AUTO,
    num_samples: int | Literal["auto"] = AUTO,
    until: Literal["all", "predictions", "usable"] = "all",
    mc_error: float | None = None,
    check: float | None = None,
    max_time: float | None = None,
    seed: int = 0,
    progress: bool = True,
    anchors: Any = None,
    row_attributes: Any = None,
    column_attributes: Any = None,
    chains: Sequence[int] | None = None,
    mesh: Mesh | None = None,
    checkpoint: str | os.PathLike | None = None,
    resume: bool = False,
) -> Fit:
    """Fit a model of a binary or nonnegative matrix, or of ratings, with its uncertainty.

    Models and samplers are values, whose documentation describes them. A name stands for the value
    with its defaults.

    Parameters
    ----------
    data : BinaryMatrix, Ratings, RealMatrix, array, scipy.sparse matrix, DataFrame, or str
        The matrix: 0, 1 and missing (NaN); for `NMF` and the models of ratings any numbers, for
        `Poisson` counts. A str is a shipped name or a path. What a sparse matrix does not store is
        0.
    rank : int, "auto" or Model
        Number of factors, at most the smaller side of the matrix; "auto" finds it, and
        `Fit.rank_probabilities` is its posterior. Or a model with its rank, as ``OrMachine(4)``.
        By default {ratings_rank} of `PMF` and `OrderedProbit`.
    sampler : str or Sampler, optional
        `Gibbs`, of every model; `SMC` for `OrMachine`; `Minibatch`, `IterateAveraging` and
        `ThesisAveraging` for `Relaxed`; `Batch` and `SVI` for `Logistic`.
    model : str or Model
        `Features`; `OrMachine`, and its variants `OrMachineEffects`, `DeepOrMachine`, `OneHot` and
        `Hamming`; `Relaxed`; `Logistic`; `NMF`; `Poisson`; of ratings `PMF`, `Probit` and
        `OrderedProbit`.
        Default: `PMF` of `Ratings`, else
        {rule}.
        Names: {models}.
    max_rank : int, optional
        Most factors that "auto" may find: by default {max_rank}, of large `Features`
        {large_max_rank}; doubled while time is left.
    init : mapping, optional
        Where every chain starts: `usage` (rows, rank) and `basis` (columns, rank). Then nothing is
        annealed, and other modes are not looked for.
    num_chains : int
        Chains, of `Batch` and `SVI` starts, and of `SMC` populations.
    num_warmup : int or "auto"
        Steps before draws count; of `Batch` and `SVI` the most steps of optimisation.
    num_samples : int or "auto"
        Draws of each chain. "auto": chains run until the verdict holds, at an R-hat of at most
        {rhat} ({rhat_approximate}, if the sampler is approximate).
    until : str
        "all" parts of the verdict, "predictions" alone, or "usable": all by wider
        bounds.
    mc_error : float, optional
        Most error of 99 % of the predictions, two Monte Carlo standard errors: {accurate:g}.
    check : float, optional
        Share of the observed entries, such as 0.1, hidden from a first fit, which predicts them
        (`Fit.held_out`). Its chains then go on with all entries.
    max_time : float, optional
        Seconds the fit may take, from reading the data to the result: by default {max_time:g}
        where `num_samples` is "auto" (but of `SMC`), and any number where it is given. After them
        the result is of the draws so far, if need be of the warm-up or of the starts, and the
        verdict says so.
    seed : int
        Sets the draws, on one CPU bit for bit.
    progress : bool
        Show on standard error what runs and is waited for.
    anchors : mapping or DataFrame, optional
        Known factors, the first of `rank`, whose basis stays as it is given: names with lists of
        columns, or with a number a column. NaN is learned.
    row_attributes, column_attributes : array, scipy.sparse matrix or DataFrame, optional
        What is known of rows and of columns, for the models of ratings: the prior means of factors
        and effects depend on it linearly (`Fit.coefficients`; Simm et al. 2017, "Macau").
    chains : sequence of int, optional
        Run only these chains, numbered from 1, and store them in `checkpoint`, the same folder for
        all; `bmfjax.merge` makes one fit of them.
    mesh : jax.sharding.Mesh, optional
        Devices that run all chains together, with the axes "chains" and "rows". Draws depend on it
        by rounding at most.
    checkpoint : path, optional
        Folder in which the run is stored every {checkpoint:g} seconds and when it stops.
    resume : bool
        Continue from `checkpoint`, with the draws of an unbroken run.

    Returns
    -------
    Fit

    Raises
    ------
    InputError
        For bad data or options.
    FloatingPointError
        Where the sampler leaves the finite numbers.

    Notes
    -----
    Ctrl-C stops the sampling, and draws so far make the result. SIGTERM and SIGUSR1 write the
    checkpoint, and end the process.

    Examples
    --------
    >>> import bmfjax
    >>> short = {{"num_chains": 2, "num_warmup": 200, "num_samples": 100, "progress": False}}
    >>> fit = bmfjax.fit("davis", bmfjax.OrMachine(2), **short)
    >>> fit.usage.shape, fit.basis.shape
    ((18, 2), (14, 2))
    >>> fit.summary().index.tolist()
    [1, 2]
    """
    tells = checks.switch("progress", progress) and is_first(mesh and checked_mesh(mesh))
    before = identity_in(checkpoint) if resume and checkpoint is not None else {}
    with clock_running(), status_line(tells):
        say("reading the data")
        problem = ask(
            data,
            rank,
            sampler,
            model=model,
            max_rank=max_rank,
            init=init,
            num_chains=num_chains,
            num_warmup=num_warmup,
            num_samples=num_samples,
            seed=seed,
            anchors=anchors,
            row_attributes=row_attributes,
            column_attributes=column_attributes,
            chains=chains,
            mesh=mesh,
            until=until,
            mc_error=mc_error,
            check=check,
            before=before.get("model"),
        )
        about = "" if resume else estimate(problem, max_time)
        say("preparing the chains", "; ".join(filter(None, [about, problem.default])))
        made = problem.chains()
        if chains is not None:
            check_apart(problem, made)
        if chains is not None and checkpoint is not None:
            checkpoint, resume = place_of(problem, made, checkpoint, resume=resume)
        return finish(
            problem,
            made,
            max_time=max_time,
            checkpoint=checkpoint,
            resume=resume,
        )


fit.__doc__ = inspect.cleandoc(fit.__doc__ or "").format(
    models=textwrap.fill(
        ", ".join(f'"{name}"' for name in MODELS),
        86,
        subsequent_indent=" " * 4,
        break_on_hyphens=False,
    ),
    rule=textwrap.fill(RULE, 80, subsequent_indent=" " * 4),
    max_rank=MAX_RANK,
    large_max_rank=LARGE_MAX_RANK,
    ratings_rank=RATINGS_RANK,
    rhat=RHAT_GOOD,
    rhat_approximate=RHAT_USABLE,
    accurate=ACCURATE,
    max_time=MAX_TIME,
    checkpoint=CHECKPOINT_SECONDS,
)

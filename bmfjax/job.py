"""A fit in three parts: check the options, sample, put the result together."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from bmfjax import models, trust
from bmfjax.boolean import boolean_factors
from bmfjax.data import BinaryMatrix, InputError, load
from bmfjax.diagnostics import agreement, align
from bmfjax.infer import ChainRun
from bmfjax.infer.checkpoint import Checkpoint
from bmfjax.infer.interrupt import interrupt_requests
from bmfjax.kernels.truncated_normal import truncated_normal
from bmfjax.options import describe, digest, given_start, model_arguments, sampled_sites
from bmfjax.progress import progress_bar
from bmfjax.result import Fit
from bmfjax.samplers import DEFAULT, SAMPLERS, make_kernel

MODELS = ("relaxed",)
PACKAGES = ("bmfjax", "jax", "jaxlib", "numpyro", "optax")

#: Kept draws of the factors: up to this many a chain, and bytes in all.
MAX_KEPT, MAX_KEPT_BYTES = 250, 512 * 2**20

CHECKPOINT_SECONDS = 10.0


@dataclass(frozen=True)
class Job:
    """A fit whose options are checked and whose chains stand at their start.

    Attributes
    ----------
    data : BinaryMatrix
    run : ChainRun
    settings : dict
        Everything that determines the draws besides the data.
    priors : dict
        Prior of the entries of `usage` and of `basis`, and of `precision`.
    """

    data: BinaryMatrix
    run: ChainRun
    settings: dict
    priors: dict

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
        if resume:
            store.read(self.run)
        seconds = _sample(self.run, store, max_time, progress)
        return _assemble(self, versions, seconds)


def prepare(
    data: Any,
    rank: int,
    *,
    model: str = "relaxed",
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
    data = _matrix(data)
    _check_options(data, rank, model, sampler, num_chains, num_warmup, num_samples)
    sampler = sampler or DEFAULT
    arguments = model_arguments(priors, sampler)
    model_function = functools.partial(models.relaxed_bmf, rank=rank, **arguments)
    kernel, options = make_kernel(
        sampler, model_function, sampler_options, num_warmup, started=init is not None
    )
    every = _thinning(data, rank, num_chains, num_samples)
    position = given_start(init, data, rank, num_chains, arguments)
    bound = kernel.bind(data.dense())
    run = ChainRun(
        bound.algorithm,
        jax.random.key(seed),
        bound.data,
        num_chains=num_chains,
        num_warmup=num_warmup,
        num_samples=num_samples,
        position=position,
        draws={n: every for n in sampled_sites(arguments)},
        trace=dict.fromkeys(_traced(sampler, arguments, options), 1),
    )
    settings = {
        "rank": int(rank),
        "model": model,
        "sampler": sampler,
        "priors": {n: describe(p) for n, p in arguments.items()},
        "init": "prior" if position is None else digest(position),
        "num_chains": num_chains,
        "num_warmup": num_warmup,
        "num_samples": num_samples,
        "seed": seed,
        "thinning": every,
        "window": bound.window,
        "sampler_options": {n: str(v) for n, v in options.items()},
    }
    priors = {
        "usage": arguments["usage_prior"],
        "basis": arguments["basis_prior"],
        "precision": arguments["precision"],
    }
    return Job(data, run, settings, priors)


# ---- before -----------------------------------------------------------------------------


def _matrix(data) -> BinaryMatrix:
    if isinstance(data, BinaryMatrix):
        return data
    if isinstance(data, str | os.PathLike):
        return load(data)
    return BinaryMatrix(data)


def _check_options(data, rank, model, sampler, num_chains, num_warmup, num_samples):
    if model not in MODELS:
        raise InputError(f"model is {model!r}; choose from {', '.join(MODELS)}")
    if sampler is not None and sampler not in SAMPLERS:
        raise InputError(f"sampler is {sampler!r}; choose from {', '.join(SAMPLERS)}")
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer):
        raise InputError(f"rank is {rank!r}; give a whole number of factors")
    if not 1 <= rank <= min(data.shape):
        raise InputError(
            f"rank is {rank}; give a number from 1 to {min(data.shape)}, the smaller side of the "
            f"{data.num_rows} x {data.num_columns} matrix"
        )
    for name, value, least in (
        ("num_chains", num_chains, 1),
        ("num_warmup", num_warmup, 0),
        ("num_samples", num_samples, 4),
    ):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise InputError(f"{name} is {value}; give a whole number of at least {least}")
    # Both orientations, a mask of each, and lists of missing cells of up to rank/8 copies.
    bytes_an_entry = 16 + (rank // 2 if data.num_missing else 0)
    needed, memory = bytes_an_entry * data.num_rows * data.num_columns, _memory()
    if needed > 0.8 * memory:
        raise InputError(
            f"the relaxed model keeps the matrix dense, which for {data.num_rows} x "
            f"{data.num_columns} takes {needed / 2**30:.0f} GiB of the {memory / 2**30:.0f} GiB "
            "here; choose fewer rows or columns"
        )


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not known on this system
        return 2**63


def _traced(sampler, arguments, options):
    names = SAMPLERS[sampler].trace
    if sampler == "gibbs" and "precision" in sampled_sites(arguments):
        names = (*names, "precision")
    if options.get("inverse_temperatures") is not None:
        names = (*names, "swap_probability", "replica")
    return names


def _thinning(data, rank, num_chains, num_samples) -> int:
    size = 4 * num_chains * rank * (data.num_rows + data.num_columns)
    keep = min(MAX_KEPT, max(8, MAX_KEPT_BYTES // size))
    return math.ceil(num_samples / keep) if num_samples > keep else 1


def versions_in_use() -> dict[str, str]:
    """Versions on which the draws depend."""
    found = {"python": platform.python_version()}
    found["precision"] = str(np.dtype(jax.numpy.result_type(float)))
    return found | {p: importlib.metadata.version(p) for p in PACKAGES}


# ---- sampling -----------------------------------------------------------------------------


def _sample(run, store, max_time, progress) -> float:
    """Run to the end, storing now and then; Ctrl-C stops after the chunk that runs."""
    began, stored = time.monotonic(), time.monotonic()
    with interrupt_requests() as interrupt, progress_bar(run, progress) as show:

        def on_chunk(run):
            nonlocal stored
            show()
            if not np.isfinite(run.last_trace("log_joint")).all():
                raise FloatingPointError(
                    f"the log joint density is not finite after {run.steps_done} steps; "
                    "give a lower fixed precision or, with iasg, a smaller step_size"
                )
            if store is not None and time.monotonic() - stored > CHECKPOINT_SECONDS:
                store.write(run)
                stored = time.monotonic()
            return interrupt.requested

        run.finish(max_time=max_time, on_chunk=on_chunk)
    if store is not None:
        store.write(run)
    if run.num_draws < 4 * max(run.thinning("usage"), 1):
        kept = ""
        if store is not None:
            kept = f"; they are kept in {store.folder}, and --resume (resume=True) continues"
        message = f"{run.steps_done} of {run.num_steps} steps are too few for a result{kept}"
        raise (KeyboardInterrupt if interrupt.requested else InputError)(message)
    return time.monotonic() - began


# ---- after --------------------------------------------------------------------------------


def _assemble(job, versions, seconds) -> Fit:
    data, run, settings = job.data, job.run, job.settings
    drawn, trace = _with_prior_draws(job), run.trace()
    aligned = align(drawn["usage"], drawn["basis"], pivot=_most_probable(run, trace))
    chain_means = aligned.usage.mean(1), aligned.basis.mean(1)
    agreeing = agreement(*chain_means)
    binary = boolean_factors(data, aligned.usage, aligned.basis)
    order = np.argsort(-binary.usage.sum(0) * binary.basis.sum(0), kind="stable")
    usage, basis = aligned.usage[..., order], aligned.basis[..., order]
    scalars = {
        "num_warmup": settings["num_warmup"],
        "num_draws": run.num_draws,
        "thinning": settings["thinning"],
        "complete": run.steps_done == run.num_steps,
        "seconds": seconds,
        "expected_errors": binary.expected_loss,
        "rows_without_information": len(data.empty_rows),
        "columns_without_information": len(data.empty_columns),
        **trust.assess(
            data,
            usage,
            basis,
            binary,
            agreeing,
            _after(trace, run.num_warmup),
            exact=SAMPLERS[settings["sampler"]].exact,
            residual_floor=2 * _prior_rate(job.priors["precision"]),
        ),
    }
    return Fit(
        data=data,
        model=settings["model"],
        sampler=settings["sampler"],
        settings=settings,
        usage_draws=usage,
        basis_draws=basis,
        precision_draws=drawn.get("precision"),
        rate_draws=_aligned_rates(drawn, aligned.permutation, order),
        trace=trace,
        agreement=agreeing[order],
        scalars=scalars,
        usage_binary=binary.usage[:, order],
        basis_binary=binary.basis[:, order],
        versions=versions,
    )


def _with_prior_draws(job) -> dict:
    """Kept draws, with rows and columns of which nothing is observed drawn from the prior.

    That is their posterior; a gradient of zero would leave them where they started. The exact
    sampler has drawn them itself.
    """
    drawn = job.run.draws()
    if SAMPLERS[job.settings["sampler"]].exact:
        return drawn
    empty = {"usage": job.data.empty_rows, "basis": job.data.empty_columns}
    for i, (site, cases) in enumerate(empty.items()):
        if len(cases):
            chains, kept, _, rank = drawn[site].shape
            key = jax.random.fold_in(jax.random.key(job.settings["seed"]), 2**31 - 1 - i)
            prior = _prior_draws(job.priors[site], key, (chains, kept, len(cases), rank), drawn)
            drawn[site] = drawn[site].copy()
            drawn[site][:, :, cases] = np.asarray(prior)
    return drawn


def _aligned_rates(drawn, permutation, order):
    if "rate" not in drawn:
        return None
    return np.take_along_axis(drawn["rate"], permutation, -1)[..., order]


def _prior_draws(prior, key, shape, drawn):
    if prior != "ard":
        return prior.sample(key, shape)
    rates = jax.numpy.asarray(drawn["rate"])[:, :, None, :]
    return truncated_normal(key, jax.numpy.broadcast_to(-rates, shape), 0.0, 0.0, 1.0)


def _after(trace, num_warmup) -> dict:
    return {n: values[:, num_warmup:] for n, values in trace.items()}


def _prior_rate(prior) -> float:
    """Rate of the Gamma prior of a learned precision; 0 where it is fixed."""
    return float(prior.rate) if hasattr(prior, "rate") else 0.0


def _most_probable(run, trace):
    """Position (chain, draw) of the kept draw with the highest log joint density."""
    every = run.thinning("usage")
    kept = trace["log_joint"][:, run.num_warmup :][:, every - 1 :: every]
    return tuple(int(i) for i in np.unravel_index(np.argmax(kept), kept.shape))

"""The nonnegative model's part of a fit: its chains, and the result of their draws."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import jax
import numpy as np

from bmfjax import models, trust
from bmfjax.data import InputError
from bmfjax.diagnostics import agreement, align
from bmfjax.diagnostics.align import apply_permutation
from bmfjax.infer import ChainRun
from bmfjax.kernels.relaxed import MAX_PRECISION
from bmfjax.options import check_start, describe, digest
from bmfjax.outcome import after_warmup, fit_of, most_probable, thinning
from bmfjax.request import Plan, Request, check_memory
from bmfjax.result import Fit
from bmfjax.samplers import make_kernel
from bmfjax.solutions import farther_solutions

PRIORS = ("usage_rate", "basis_rate", "precision")
#: Root mean square of the data from which on the bound of a learned precision is no matter.
LEAST_SIZE, MOST_SIZE = 0.03, 1e6
RATES = PRIORS[:2]


def nmf_plan(request: Request) -> Plan:
    """Chains of the nonnegative model at their start."""
    data, rank = request.data, request.rank
    arguments = nmf_arguments(data, rank, request.priors)
    model = functools.partial(models.nmf, rank=rank, **arguments)
    kernel, options = make_kernel(request, model)
    # Of every chain and replica the residuals, and with gaps lists of cells.
    each = 4 + (rank // 2 if data.num_missing else 0)
    copies = request.num_chains * (1 + len(options.get("walls") or ()))
    check_memory(data, 24 + each * copies, "model 'nmf' keeps the matrix dense")
    every, most_kept = thinning(
        4 * request.num_chains * rank * (data.num_rows + data.num_columns), request.num_samples
    )
    learned = () if isinstance(arguments["precision"], float) else ("precision",)
    position = _given_start(request, arguments)
    bound = kernel.bind(data.dense())
    replicas = ("swap_probability", "replica") if options.get("walls") is not None else ()
    run = ChainRun(
        bound.algorithm,
        jax.random.key(request.seed),
        bound.data,
        num_chains=request.num_chains,
        num_warmup=request.num_warmup,
        num_samples=request.num_samples,
        position=position,
        draws=dict.fromkeys(("usage", "basis", *learned), every),
        most_kept=most_kept,
        trace=dict.fromkeys(("log_joint", "residual", *learned, *replicas), 1),
    )
    settings = request.settings() | {
        "priors": {n: describe(p) for n, p in arguments.items()},
        "init": "prior" if position is None else digest(position),
        "thinning": every,
        "sampler_options": {n: str(v) for n, v in options.items()},
    }
    return Plan(data, settings, lambda resume: run, functools.partial(_assemble, arguments))


def nmf_arguments(data, rank: int, given) -> dict:
    """Keyword arguments of `bmfjax.models.nmf`; what was not given is set by the data's scale.

    Parameters
    ----------
    data : RealMatrix or BinaryMatrix
    rank : int
    given : mapping or None

    Returns
    -------
    dict
        As `bmfjax.models.priors_by_scale` has them where nothing else is given.

    Raises
    ------
    InputError
        For other names or values, or data whose mean is not positive.
    """
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"priors is {given!r}; give a mapping of any of {', '.join(PRIORS)}")
    unknown = sorted(set(given or {}) - set(PRIORS))
    if unknown:
        raise InputError(f"priors name {unknown[0]!r}; model 'nmf' has {', '.join(PRIORS)}")
    values = data.dense(np.float64)
    mean, square = float(np.nanmean(values)), float(np.nanmean(values**2))
    if mean <= 0:
        raise InputError(
            f"the mean of the data is {mean:.4g}; model 'nmf' is of nonnegative products: give "
            "data with a positive mean, or another model"
        )
    if not LEAST_SIZE < square**0.5 < MOST_SIZE:
        raise InputError(
            f"the root mean square of the data is {square**0.5:.3g}; give the data in a unit in "
            f"which it is between {LEAST_SIZE} and {MOST_SIZE:.0e}, so that float32 holds the noise"
        )
    given = dict(given or {})
    found = models.priors_by_scale(rank, mean, square) | given
    found["precision"] = models.resolve_precision(found["precision"])
    if len(given.keys() & set(RATES)) == 1:
        # Of one rate that is given the other follows: their product matters.
        one = next(iter(given.keys() & set(RATES)))
        other = next(n for n in RATES if n != one)
        if isinstance(given[one], int | float) and given[one] > 0:
            found[other] = rank / (mean * given[one])
    return found


def _given_start(request, arguments) -> dict | None:
    if request.init is None:
        return None
    check_start(request.init)
    data, start = request.data, {}
    for name, size in (("usage", data.num_rows), ("basis", data.num_columns)):
        try:
            values = np.asarray(request.init[name], np.float32)
        except (TypeError, ValueError):
            raise InputError(f"init {name!r} is not numeric; give an array of numbers") from None
        if values.shape != (size, request.rank):
            raise InputError(
                f"init {name!r} has shape {values.shape}; it must be {(size, request.rank)}"
            )
        if not ((values >= 0) & (values < np.inf)).all():
            raise InputError(f"init {name!r} has values that are negative or not finite")
        # Above zero, where the density is that of the interval's inside.
        values = np.maximum(values, np.finfo(np.float32).tiny)
        start[name] = np.broadcast_to(values, (request.num_chains, size, request.rank))
    prior = arguments["precision"]
    if not isinstance(prior, float):
        # The conditional mean: a start with the wrong precision is left at the first step.
        product = start["usage"][0] @ start["basis"][0].T
        residual = np.nansum((data.dense() - product) ** 2)
        seen = data.num_rows * data.num_columns - data.num_missing
        mean = (prior.concentration + seen / 2) / (prior.rate + residual / 2)
        start["precision"] = np.full(request.num_chains, min(mean, MAX_PRECISION), np.float32)
    return start


def _assemble(arguments, plan, run, versions, seconds) -> Fit:
    data, drawn, trace = plan.data, run.draws(), run.trace()
    usage, basis = _ordered(drawn["usage"], drawn["basis"], most_probable(run, trace))
    agreeing = agreement(usage.mean(1), basis.mean(1))
    prior = arguments["precision"]
    seen = data.num_rows * data.num_columns - data.num_missing
    # A learned precision is bounded by its prior, and by the arithmetic.
    floor = 0.0 if isinstance(prior, float) else 2 * max(float(prior.rate), seen / MAX_PRECISION)
    judged = trust.assess(
        data, usage, basis, float("nan"), agreeing, after_warmup(run, trace),
        exact=True, residual_floor=floor,
    )  # fmt: skip
    return fit_of(
        plan,
        run,
        drawn | {"usage": usage, "basis": basis},
        seconds,
        versions,
        trace=trace,
        agreement=agreeing,
        apart=farther_solutions(usage, basis),
        judged=judged,
    )


def _ordered(usage, basis, pivot):
    """Draws with factors matched by their directions, the largest first."""
    units = (f / np.maximum(np.sqrt((f**2).sum(-2, keepdims=True)), 1e-30) for f in (usage, basis))
    permutation = align(*units, pivot=pivot).permutation
    usage, basis = apply_permutation(usage, basis, permutation)
    sizes = (usage.astype(float) ** 2).mean((0, 1, 2)) * (basis.astype(float) ** 2).mean((0, 1, 2))
    order = np.argsort(-sizes, kind="stable")
    return usage[..., order], basis[..., order]

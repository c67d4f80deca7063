"""The relaxed model's part of a fit: its chains, and the result of their draws."""

from __future__ import annotations

import functools

import jax
import numpy as np

from bmfjax import models
from bmfjax.diagnostics import align
from bmfjax.infer import ChainRun
from bmfjax.kernels.truncated_normal import truncated_normal
from bmfjax.options import describe, digest, given_start, model_arguments, sampled_sites
from bmfjax.outcome import most_probable, outcome, thinning
from bmfjax.request import Plan, Request, check_memory
from bmfjax.result import Fit
from bmfjax.samplers import make_kernel, sampler_of


def relaxed_plan(request: Request) -> Plan:
    """Chains of the relaxed model at their start."""
    data, rank = request.data, request.rank
    # Both orientations, a mask of each, and lists of missing cells of up to rank/8 copies.
    check_memory(
        data,
        16 + (rank // 2 if data.num_missing else 0),
        "the relaxed model keeps the matrix dense",
    )
    arguments = model_arguments(request.priors, request.sampler)
    model = functools.partial(models.relaxed_bmf, rank=rank, **arguments)
    kernel, options = make_kernel(request, model)
    every, most_kept = thinning(
        4 * request.num_chains * rank * (data.num_rows + data.num_columns), request.num_samples
    )
    position = given_start(request.init, data, rank, request.num_chains, arguments)
    bound = kernel.bind(data.dense())
    run = ChainRun(
        bound.algorithm,
        jax.random.key(request.seed),
        bound.data,
        num_chains=request.num_chains,
        num_warmup=request.num_warmup,
        num_samples=request.num_samples,
        position=position,
        draws={n: every for n in sampled_sites(arguments)},
        most_kept=most_kept,
        trace=dict.fromkeys(_traced(request, arguments, options), 1),
    )
    settings = request.settings() | {
        "priors": {n: describe(p) for n, p in arguments.items()},
        "init": "prior" if position is None else digest(position),
        "thinning": every,
        "window": bound.window,
        "sampler_options": {n: str(v) for n, v in options.items()},
    }
    return Plan(data, settings, lambda resume: run, functools.partial(_assemble, arguments))


def _traced(request, arguments, options):
    names = sampler_of(request).trace
    if request.sampler == "gibbs" and "precision" in sampled_sites(arguments):
        names = (*names, "precision")
    if options.get("inverse_temperatures") is not None:
        names = (*names, "swap_probability", "replica")
    return names


def _assemble(arguments, plan, run, versions, seconds) -> Fit:
    exact = sampler_of(plan.settings).exact
    drawn, trace = _with_prior_draws(plan, run, arguments, exact), run.trace()
    aligned = align(drawn.pop("usage"), drawn.pop("basis"), pivot=most_probable(run, trace))
    if "rate" in drawn:
        drawn["rate"] = np.take_along_axis(drawn["rate"], aligned.permutation, -1)
    return outcome(
        plan,
        run,
        aligned,
        trace,
        exact=exact,
        seconds=seconds,
        versions=versions,
        residual_floor=2 * _prior_rate(arguments["precision"]),
        draws=drawn,
    )


def _with_prior_draws(plan, run, arguments, exact) -> dict:
    """Kept draws, with rows and columns of which nothing is observed drawn from the prior.

    That is their posterior; a gradient of zero would leave them where they started. The exact
    sampler has drawn them itself.
    """
    drawn = run.draws()
    if exact:
        return drawn
    empty = {"usage": plan.data.empty_rows, "basis": plan.data.empty_columns}
    for i, (site, cases) in enumerate(empty.items()):
        if len(cases):
            chains, kept, _, rank = drawn[site].shape
            key = jax.random.fold_in(jax.random.key(plan.settings["seed"]), 2**31 - 1 - i)
            prior = arguments[f"{site}_prior"]
            prior = _prior_draws(prior, key, (chains, kept, len(cases), rank), drawn)
            drawn[site] = drawn[site].copy()
            drawn[site][:, :, cases] = np.asarray(prior)
    return drawn


def _prior_draws(prior, key, shape, drawn):
    if prior != "ard":
        return prior.sample(key, shape)
    rates = jax.numpy.asarray(drawn["rate"])[:, :, None, :]
    return truncated_normal(key, jax.numpy.broadcast_to(-rates, shape), 0.0, 0.0, 1.0)


def _prior_rate(prior) -> float:
    """Rate of the Gamma prior of a learned precision; 0 where it is fixed."""
    return float(prior.rate) if hasattr(prior, "rate") else 0.0

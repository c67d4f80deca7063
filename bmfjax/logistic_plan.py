"""The logistic model's part of a fit: its starts, and the result of their posteriors."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import numpy as np

from bmfjax import logistic_trust
from bmfjax.data import InputError
from bmfjax.data.memory import require_memory
from bmfjax.diagnostics import agreement, align_signed
from bmfjax.infer import ChainRun
from bmfjax.infer.logistic_chains import posterior_draws, posterior_of, sampled_entries
from bmfjax.logistic_entries import MOMENTS
from bmfjax.options import check_start, digest
from bmfjax.outcome import fit_of, thinning
from bmfjax.request import Plan, Request
from bmfjax.result import Fit
from bmfjax.samplers import sampler_of
from bmfjax.solutions import solutions
from bmfjax.variational import LogisticPrior, entry_sampler, logistic, sign_blocks

PRIORS = ("scale", "bias_scale", "row_effects", "column_effects")
#: Entries that a step draws for each row and column.
ENTRIES_A_LINE = 4
#: Bytes of memory an entry that "batch" takes while the matrix is unpacked.
BYTES_AN_ENTRY = 3
#: Of the random numbers of a fit, beside those of the starts: entries of the bound, and draws.
BOUND_STREAM, DRAW_STREAM = 2**32 - 2, 2**32 - 1
#: Options of each sampler, and their defaults.
OPTIONS = {"svi": {"sampling": "biased", "step_entries": None}, "batch": {}}


def logistic_plan(request: Request) -> Plan:
    """Starts of the logistic model."""
    data, rank = request.data, request.rank
    if request.num_warmup < 2:
        raise InputError(
            f"num_warmup is {request.num_warmup}; of the logistic model these are the most "
            "steps of optimisation: give at least 2"
        )
    priors = logistic_priors(request.priors)
    options = _options(request)
    prior = LogisticPrior(rank, **priors)
    share = np.clip(data.density, 1e-6, 1 - 1e-6)
    log_odds = float(np.log(share / (1 - share)))
    make, arguments = sampler_of(request).make, (prior, data.shape, log_odds)
    if request.sampler == "svi":
        key = jax.random.fold_in(jax.random.key(request.seed), BOUND_STREAM)
        sampled = sampled_entries(key, entry_sampler(data, options["sampling"]))
        algorithm = make(*arguments, options["step_entries"] // logistic.CHUNK)
    else:
        size = f"{data.num_rows:,} x {data.num_columns:,}"
        require_memory(
            BYTES_AN_ENTRY * data.num_rows * data.num_columns,
            f"sampler 'batch', which looks at all entries of the {size} matrix,",
            "choose sampler='svi'",
        )
        sampled, algorithm = sign_blocks(data), make(*arguments)
    position = _given_start(request)
    run = ChainRun(
        algorithm,
        jax.random.key(request.seed),
        sampled,
        num_chains=request.num_chains,
        num_samples=request.num_warmup,
        position=position,
        trace=dict.fromkeys(sampler_of(request).trace, 1),
    )
    settings = request.settings() | {
        "priors": priors,
        "init": "random" if position is None else digest(position),
        "thinning": 1,
        "sampler_options": options,
    }
    return Plan(
        data, settings, lambda resume: run, _assemble, objective="elbo",
        counted="steps of optimisation",
        finished=lambda run: bool(run.last_trace("settled").all()),
        enough=lambda run: run.steps_done > 0,
    )  # fmt: skip


def logistic_priors(given) -> dict:
    """Arguments of `LogisticPrior` besides the rank, from what the user gave as priors."""
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"priors is {given!r}; give a mapping of any of {', '.join(PRIORS)}")
    unknown = sorted(set(given or {}) - set(PRIORS))
    if unknown:
        raise InputError(f"priors name {unknown[0]!r}; the logistic model has {', '.join(PRIORS)}")
    found = {"scale": 1.0, "bias_scale": 5.0, "row_effects": False, "column_effects": False}
    found |= dict(given or {})
    for name in PRIORS[:2]:
        value = found[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value < math.inf:
            raise InputError(f"prior {name!r} is {value!r}; give a positive standard deviation")
        found[name] = float(value)
    for name in PRIORS[2:]:
        if not isinstance(found[name], bool):
            raise InputError(f"prior {name!r} is {found[name]!r}; give True or False")
    return found


def _options(request) -> dict:
    given, defaults = request.sampler_options or {}, OPTIONS[request.sampler]
    if not isinstance(given, Mapping):
        raise InputError(f"sampler_options is {given!r}; give a mapping of names to values")
    for name in given:
        if name not in defaults:
            has = "; ".join(f"{s!r} has {', '.join(o) or 'none'}" for s, o in OPTIONS.items())
            raise InputError(
                f"sampler_options name {name!r}, which sampler {request.sampler!r} does not have; "
                f"of the samplers of this model {has}"
            )
    options = defaults | dict(given)
    if request.sampler == "svi":
        lines = request.data.num_rows + request.data.num_columns
        entries = options["step_entries"]
        entries = ENTRIES_A_LINE * lines if entries is None else entries
        if isinstance(entries, bool) or not isinstance(entries, int) or entries < 1:
            raise InputError(f"step_entries is {entries!r}; give a whole number of at least 1")
        most = max(request.data.num_rows * request.data.num_columns, logistic.CHUNK)
        if entries > most:
            raise InputError(
                f"step_entries is {entries}, more than the matrix has; give at most {most}, or "
                "sampler='batch', which looks at every entry in every step"
            )
        # Entries are drawn in chunks, of which a step has whole ones.
        chunks = math.ceil(entries / logistic.CHUNK)
        if chunks * request.num_warmup >= 2**31:
            raise InputError(
                f"step_entries is {entries} and num_warmup {request.num_warmup}, more entries than "
                "can be counted; give fewer"
            )
        options["step_entries"] = chunks * logistic.CHUNK
    return options


def _given_start(request) -> dict | None:
    init, data, rank = request.init, request.data, request.rank
    if init is None:
        return None
    check_start(init)
    start = {}
    for name, size in (("usage", data.num_rows), ("basis", data.num_columns)):
        try:
            values = np.asarray(init[name], np.float32)
        except (TypeError, ValueError):
            raise InputError(f"init {name!r} is not numeric; give an array of numbers") from None
        if values.shape != (size, rank):
            raise InputError(f"init {name!r} has shape {values.shape}; it must be {(size, rank)}")
        if not np.isfinite(values).all():
            raise InputError(f"init {name!r} has values that are not finite; give numbers")
        start[name] = np.broadcast_to(values, (request.num_chains, size, rank))
    if request.sampler == "batch" and request.num_chains > 1:
        raise InputError(
            f"num_chains is {request.num_chains}, and from one init sampler 'batch' goes one way; "
            "give num_chains=1, or sampler='svi'"
        )
    return start


def _assemble(plan, run, versions, seconds) -> Fit:
    settings, trace = plan.settings, run.trace()
    settled = trace["settled"][:, -1]
    # The run may have gone on after the last start had settled, as far as its chunk went.
    steps = np.where(settled, trace["settled"].argmax(1) + 1, run.steps_done)
    elbo = trace["elbo"][:, : steps.max()]
    posterior = jax.device_get(posterior_of(run.state))
    rank, best = settings["rank"], int(np.argmax(elbo[:, -1]))
    means = [getattr(posterior, n).mean[..., :rank] for n in ("usage", "basis")]
    order = align_signed(*means, pivot=best)
    approximation = {
        f"{name}_{moment}": _ordered(getattr(getattr(posterior, name), moment), order, rank, moment)
        for name in ("usage", "basis", "bias")
        for moment in MOMENTS
    }
    drawn = _draws(settings, posterior)
    factors = {n: order.apply(drawn[n]) for n in ("usage", "basis")}
    agreeing = agreement(*(approximation[f"{n}_mean"][..., :rank] for n in ("usage", "basis")))
    judged = logistic_trust.assess(
        plan.data, approximation, agreeing, elbo, steps, settled, settings["num_warmup"],
        sampled=settings["sampler"] == "svi",
    )  # fmt: skip
    return fit_of(
        plan,
        run,
        drawn | factors,
        seconds,
        versions,
        trace={"elbo": elbo},
        agreement=agreeing,
        apart=solutions(factors["basis"], signed=False),
        judged=judged | {"num_draws": drawn["bias"].shape[1]},
        approximation=approximation,
    )


def _draws(settings, posterior) -> dict:
    """As many draws of each start as were asked for, or as there is room for."""
    prior = LogisticPrior(settings["rank"], **settings["priors"])
    lines = posterior.usage.mean.shape[1] + posterior.basis.mean.shape[1]
    asked = settings["num_samples"]
    every, _ = thinning(4 * settings["num_chains"] * prior.width * lines, asked)
    key = jax.random.fold_in(jax.random.key(settings["seed"]), DRAW_STREAM)
    return posterior_draws(key, posterior, prior, asked // every)


def _ordered(values, order, rank, moment):
    """Factors in their order; effects and ones after them, and the bias, as they are."""
    values = np.asarray(values)
    if values.ndim == 1:
        return values
    moved = order.apply(values[..., :rank], signed=moment == "mean")
    return np.concatenate([moved, values[..., rank:]], -1)

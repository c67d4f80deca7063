"""The Boolean model's part of a fit: where its chains start, and the result of their draws."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import jax
import numpy as np

from bmfjax import models
from bmfjax.data import InputError
from bmfjax.data.memory import require_memory, size_text
from bmfjax.data.packed import WORD
from bmfjax.diagnostics import Alignment, Binarized
from bmfjax.diagnostics.align import matched
from bmfjax.draws import PackedDraws
from bmfjax.infer import ChainRun, boolean_starts
from bmfjax.options import check_start, describe, digest
from bmfjax.outcome import most_probable, outcome, thinning
from bmfjax.request import Plan, Request
from bmfjax.result import Fit
from bmfjax.samplers import make_kernel, sampler_of
from bmfjax.selection import MAX_ENTRIES

#: Draws of a chain that are kept: bits are small.
MAX_KEPT = 500
#: Rows and columns by which the factors of all draws are matched.
MAX_MATCHED = 1000
SITES = ("usage", "basis", "flip_rate", "usage_density", "basis_density")
PRIORS = ("usage", "basis", "flip_rate", "num_rates")


def boolean_plan(request: Request) -> Plan:
    """A fit of the Boolean model, whose chains start when it is run."""
    data, rank = request.data, request.rank
    arguments = boolean_arguments(request.priors)
    given = _given_start(request.init, data, rank)
    model = functools.partial(models.ormachine, rank=rank, **arguments)
    kernel, options = make_kernel(request, model)
    from_prior = given is None and options.get("update") == "collapsed"
    lines = data.num_rows + data.num_columns
    every, most_kept = thinning(request.num_chains * rank * lines, request.num_samples, MAX_KEPT)
    kept = min(most_kept, request.num_samples)
    needed = memory_needed(data, rank, request.num_chains, kept, options)
    require_memory(
        sum(needed.values()),
        f"a fit of {data.num_rows:,} x {data.num_columns:,} "
        f"({', '.join(f'{n} {size_text(b)}' for n, b in needed.items())})",
        "choose fewer rows or columns, or a lower rank",
    )
    bound, _ = kernel.bind_packed(data)

    def start(resume: bool) -> ChainRun:
        key = jax.random.key(request.seed)
        traced = [*sampler_of(request).trace, *_traced(options)]
        return ChainRun(
            bound.algorithm,
            key,
            bound.data,
            num_chains=request.num_chains,
            num_warmup=request.num_warmup,
            num_samples=request.num_samples,
            position=None if from_prior else positions(key, resume),
            draws=dict.fromkeys(sites_of(arguments), every),
            most_kept=most_kept,
            trace=dict.fromkeys(traced, 1),
        )

    def positions(key, resume):
        if given is not None:
            starts = [given] * request.num_chains
        elif resume:  # what was stored replaces it
            starts = [_empty(data, rank)] * request.num_chains
        else:
            key_start = jax.random.fold_in(key, 2**31 - 1)
            starts = boolean_starts(key_start, data, rank, request.num_chains)
        place = jax.jit(bound.unconstrain)
        return jax.tree.map(lambda *leaves: np.stack(leaves), *[place(s) for s in starts])

    settings = request.settings() | {
        "priors": {n: _said(p) for n, p in arguments.items()},
        "init": _said_start(given, from_prior, options["num_anneal"]),
        "thinning": every,
        "sampler_options": {n: str(v) for n, v in options.items()},
    }
    exact = options.get("dispersion", "sample") == "sample"
    return Plan(data, settings, start, functools.partial(_assemble, exact))


def memory_needed(data, rank: int, chains: int, kept: int, options: Mapping) -> dict[str, float]:
    """Bytes that a fit takes, by what takes them."""
    rows, columns = data.shape
    both_ways = 4 * (rows * -(-columns // WORD) + columns * -(-rows // WORD))
    replicas = chains * len(options.get("inverse_temperatures") or (1.0,))
    bits = rank * (rows + columns)
    needed = {
        "packed words": both_ways * (2 if data.num_missing else 1),
        # As drawn and in one order.
        "kept draws": 2 * kept * chains * bits / 8,
        # A few numbers for every bit of every chain, then means and counts of all.
        "chains": 8 * replicas * bits + 32 * bits,
    }
    if options.get("update") == "collapsed":
        # Of every state of a line, in every replica: a few numbers at a time.
        states = f"weights of {2**rank:,} states a line"
        needed[states] = 20.0 * replicas * 2**rank * max(data.shape)
    return needed


def boolean_arguments(priors) -> dict:
    """Keyword arguments of `bmfjax.models.ormachine` from what the user gave as priors."""
    given = dict(priors) if isinstance(priors, Mapping) else {}
    if priors is not None and not isinstance(priors, Mapping):
        given = {"usage": priors, "basis": priors}
    unknown = sorted(set(given) - set(PRIORS))
    if unknown:
        raise InputError(f"priors name {unknown[0]!r}; the Boolean model has {', '.join(PRIORS)}")
    return {
        "usage_prior": given.get("usage"),
        "basis_prior": given.get("basis"),
        "flip_rate": given.get("flip_rate"),
        "num_rates": given.get("num_rates", 1),
    }


def sites_of(arguments) -> list[str]:
    """Names of the sites that a model with these arguments has; densities only where learned."""

    def learned(prior):
        return prior is None or hasattr(prior, "arg_constraints")

    fixed = [f"{s}_density" for s in ("usage", "basis") if not learned(arguments[f"{s}_prior"])]
    return [n for n in SITES if n not in fixed]


def _said_start(given, from_prior, num_anneal):
    if given is not None:
        return digest(given)
    if from_prior:
        return "annealed from the prior" if num_anneal else "the prior"
    return "annealed relaxed model"


def _said(prior):
    """A prior as settings say it; an array by its fingerprint."""
    if np.ndim(prior) and not hasattr(prior, "arg_constraints"):
        return digest({"prior": np.asarray(prior, float)})
    return describe(prior) if hasattr(prior, "arg_constraints") else repr(prior)


def _given_start(init, data, rank) -> dict | None:
    if init is None:
        return None
    check_start(init)
    start = {}
    for name, size in (("usage", data.num_rows), ("basis", data.num_columns)):
        values = np.asarray(init[name], float)
        if values.shape != (size, rank):
            raise InputError(f"init {name!r} has shape {values.shape}; it must be {(size, rank)}")
        if not np.isin(values, (0.0, 1.0)).all():
            raise InputError(f"init {name!r} has values other than 0 and 1; round it first")
        start[name] = values > 0.5
    return start


def _empty(data, rank) -> dict:
    sizes = {"usage": data.num_rows, "basis": data.num_columns}
    return {n: np.zeros((size, rank), bool) for n, size in sizes.items()}


def _traced(options):
    names = [f"{m}_accepted" for m in np.atleast_1d(options.get("moves", ()))]
    if options.get("inverse_temperatures") is not None:
        names += ["swap_probability", "replica"]
    return names


def _assemble(exact, plan, run, versions, seconds) -> Fit:
    drawn, trace = run.draws(), run.trace()
    usage = PackedDraws(drawn.pop("usage"), plan.data.num_rows)
    basis = PackedDraws(drawn.pop("basis"), plan.data.num_columns)
    aligned = align_packed(usage, basis, most_probable(run, trace))
    for name in ("usage_density", "basis_density"):
        if name in drawn:
            drawn[name] = np.take_along_axis(drawn[name], aligned.permutation, -1)
    best = int(np.argmax(trace["log_joint"][:, run.num_warmup :].mean(1)))
    return outcome(
        plan,
        run,
        aligned,
        trace,
        exact=exact,
        seconds=seconds,
        versions=versions,
        binary=_binary_of_large(plan.data, aligned, best),
        draws=drawn,
    )


def align_packed(usage: PackedDraws, basis: PackedDraws, pivot) -> Alignment:
    """Align packed draws by up to 1,000 rows and 1,000 columns, those used most unevenly."""
    found = matched(*(f.packed_lines(_telling(f)) for f in (usage, basis)), pivot=pivot)
    moved = [f.reordered(found.permutation) for f in (usage, basis)]
    return found._replace(usage=moved[0], basis=moved[1])


def _telling(draws: PackedDraws) -> np.ndarray:
    """The lines whose bits differ most between factors of one draw."""
    if draws.size <= MAX_MATCHED:
        return np.arange(draws.size)
    share = draws[0, draws.shape[1] - 1].mean(-1)
    return np.sort(np.argsort(-share * (1 - share), kind="stable")[:MAX_MATCHED])


def _binary_of_large(data, aligned, best) -> Binarized | None:
    """Of a matrix too large to be formed: the factors of the best chain, by the majority."""
    if data.num_rows * data.num_columns <= MAX_ENTRIES:
        return None
    chain = (PackedDraws(f.words[best : best + 1], f.size) for f in (aligned.usage, aligned.basis))
    return Binarized(*(f.mean() >= 0.5 for f in chain), float("nan"))

"""What the draws of any model become: aligned factors, Boolean factors, figures, a `Fit`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from bmfjax import trust
from bmfjax.boolean import boolean_factors
from bmfjax.diagnostics import Alignment, Binarized, agreement
from bmfjax.draws import PackedDraws
from bmfjax.infer.intervals import regular_interval
from bmfjax.result import Fit
from bmfjax.solutions import solutions

#: Kept draws of the factors: up to this many a chain, and bytes in all.
MAX_KEPT, MAX_KEPT_BYTES = 250, 512 * 2**20


def thinning(entries: int, num_samples: int, most: int = MAX_KEPT) -> tuple[int, int]:
    """Return how far kept draws are apart, and how many are kept at most.

    Parameters
    ----------
    entries : int
        Bytes that one kept draw of all chains takes where it is looked at.
    num_samples : int
    most : int
        Draws of a chain that a complete run keeps at most.

    Returns
    -------
    every : int
        Of how many draws a complete run keeps one, with no prime factor but 2 and 3.
    most_kept : int
        Draws of a chain that a run keeps at most on its way: half as many again if memory allows,
        so that at least half of `most` are left where it goes on to three times the interval.

    Examples
    --------
    >>> thinning(1000, 3000), thinning(2**27, 3000)
    ((12, 375), (256, 12))
    """
    # Twelve at least: a third of them, after the widest step of the interval, are four.
    room = max(12, MAX_KEPT_BYTES // entries)
    every = regular_interval(math.ceil(num_samples / min(most, room)))
    return every, min(most + most // 2, room)


def most_probable(run, trace) -> tuple[int, int]:
    """Position (chain, draw) of the kept draw with the highest log joint density."""
    every = run.thinning("usage")
    kept = trace["log_joint"][:, run.num_warmup :][:, every - 1 :: every]
    return tuple(int(i) for i in np.unravel_index(np.argmax(kept), kept.shape))


def outcome(
    plan,
    run,
    aligned: Alignment,
    trace: Mapping,
    *,
    exact: bool,
    seconds: float,
    versions: Mapping,
    residual_floor: float = 0.0,
    binary: Binarized | None = None,
    draws: Mapping | None = None,
) -> Fit:
    """The result of a fit.

    Parameters
    ----------
    plan : bmfjax.request.Plan
    run : ChainRun
    aligned : Alignment
        Its draws may be packed.
    trace : dict
        (chain, step), warm-up included.
    exact : bool
    seconds : float
    versions : dict
    residual_floor : float
        See `bmfjax.trust.assess`.
    binary : Binarized, optional
        Boolean factors in the order of `aligned`; default the most probable ones.
    draws : dict, optional
        Of other sites, `precision`, `rate`, `flip_rate`, ...; those with a last axis of factors in
        `aligned`'s order must be named in `PER_FACTOR`.

    Returns
    -------
    Fit
        Factors ordered by the size of their tiles.
    """
    data = plan.data
    agreeing = _agreeing(aligned)
    binary = boolean_factors(data, aligned.usage, aligned.basis) if binary is None else binary
    order = np.argsort(-binary.usage.sum(0) * binary.basis.sum(0), kind="stable")
    usage, basis = (reordered(f, order) for f in (aligned.usage, aligned.basis))
    others = {n: v[..., order] if n in PER_FACTOR else v for n, v in (draws or {}).items()}
    judged = trust.assess(
        data, usage, basis, wrong_entries(data, binary), agreeing, after_warmup(run, trace),
        exact=exact, residual_floor=residual_floor,
    )  # fmt: skip
    return fit_of(
        plan,
        run,
        {"usage": usage, "basis": basis, **others},
        seconds,
        versions,
        trace=trace,
        agreement=agreeing[order],
        apart=solutions(basis),
        judged={"expected_errors": binary.expected_loss, **judged},
        binary=binary._replace(usage=binary.usage[:, order], basis=binary.basis[:, order]),
    )


def _agreeing(aligned) -> np.ndarray:
    """Agreement across chains, of packed draws one factor at a time: means take 64 times a bit."""
    draws = aligned.usage, aligned.basis
    if not isinstance(aligned.usage, PackedDraws):
        return agreement(*(f.mean(1) for f in draws))
    rank = aligned.usage.shape[3]
    return np.concatenate(
        [agreement(*(f.reordered([k]).mean(1) for f in draws)) for k in range(rank)]
    )


def after_warmup(run, trace) -> dict:
    """The trace of the draws that count: {name: (chain, draw)}."""
    return {n: values[:, run.num_warmup :] for n, values in trace.items()}


def fit_of(
    plan, run, draws, seconds, versions, *, trace, agreement, apart, judged, binary=None,
    approximation=None,
) -> Fit:  # fmt: skip
    """The result of a fit from what its model has made of the draws.

    Parameters
    ----------
    plan : bmfjax.request.Plan
    run : ChainRun
    draws : dict
        {site: (chain, draw, ...)}, `usage` and `basis` with factors in their final order.
    seconds : float
    versions : dict
    trace : dict
    agreement : (rank,) float
    apart : Coverage
        How far apart its solutions are.
    judged : dict
        The figures of the model's own assessment, its verdict among them.
    binary : Binarized, optional
        Of Boolean factors.
    approximation : dict, optional
        Of a variational fit.

    Returns
    -------
    Fit
    """
    others = {n: v for n, v in draws.items() if n not in ("usage", "basis")}
    return Fit(
        data=plan.data,
        model=plan.settings["model"],
        sampler=plan.settings["sampler"],
        settings=plan.settings,
        usage_draws=draws["usage"],
        basis_draws=draws["basis"],
        other_draws=others,
        trace=trace,
        agreement=agreement,
        scalars={**run_figures(plan, run, apart, seconds), **judged},
        binary=binary,
        versions=versions,
        approximation=approximation or {},
    )


def run_figures(plan, run, apart, seconds: float) -> dict:
    """What every fit says of its run.

    Parameters
    ----------
    plan : bmfjax.request.Plan
    run : ChainRun
    apart : Coverage
        How far apart its solutions are.
    seconds : float

    Returns
    -------
    dict
    """
    return {
        "num_warmup": plan.settings["num_warmup"],
        "num_draws": run.num_draws,
        "thinning": run.intervals().get("usage", plan.settings["thinning"]),
        "complete": run.steps_done == run.num_steps,
        "timed_out": run.timed_out,
        "seconds": seconds,
        **data_figures(plan.data, apart),
    }


def data_figures(data, apart) -> dict:
    """What every fit says of its data and of how far apart its solutions are."""
    return {
        "coverage_largest": apart.largest,
        "coverage_mean": apart.mean,
        "rows_without_information": len(data.empty_rows),
        "columns_without_information": len(data.empty_columns),
    }


#: Sites with a number a factor.
PER_FACTOR = ("rate", "usage_density", "basis_density")


def reordered(draws, order):
    """Draws (chain, draw, lines, rank), packed or not, with the factors permuted."""
    return draws.reordered(order) if hasattr(draws, "reordered") else draws[..., order]


def wrong_entries(data, binary: Binarized) -> int:
    """Observed entries that the Boolean product gets wrong, counted on words."""
    return data.count_errors(binary.usage, binary.basis)

"""The figures at the top of the page, each with what it means."""

from __future__ import annotations

import math

import numpy as np

from bmfjax.cells import noise_sd
from bmfjax.data import BinaryMatrix
from bmfjax.infer import round_trips, swap_rates
from bmfjax.infer.settling import WINDOW
from bmfjax.pmf_cells import LINKS


def facts(fit) -> list[tuple[str, str, str]]:
    """Name, value and explanation of the figures at the top of the page."""
    if fit.model in LINKS or fit.model == "nmf":
        return _of_data(fit.data) + _of_factorisation(fit)
    return _of_data(fit.data) + (_of_starts(fit) if fit.is_real else _of_chains(fit))


def _of_data(data) -> list[tuple[str, str, str]]:
    mute = f"{_count(data.empty_rows, 'row')}, {_count(data.empty_columns, 'column')}"
    missing = data.num_missing / (data.num_rows * data.num_columns)
    if isinstance(data, BinaryMatrix):
        share = f"{data.num_ones:,} ({data.density:.1%})"
        entries = ("Ones", share, "share of the observed entries")
    else:
        low, high = data.range
        entries = ("Values", f"{low:g} to {high:g}", "smallest and largest observed")
    return [
        ("Size", f"{data.num_rows:,} x {data.num_columns:,}", "rows x columns"),
        entries,
        ("Missing", f"{data.num_missing:,} ({missing:.1%})", "not observed"),
        ("Without information", mute, "nothing observed of them here"),
    ]


def _of_factorisation(fit) -> list[tuple[str, str, str]]:
    """Of a matrix factorisation by Gibbs sampling."""
    scalars, other, kept = fit.scalars, fit.other_draws, fit.usage_draws.shape[1]
    given = fit.settings.get("given_new")
    whose = "drawn given its kept draws; steps, time and noise are its"
    rows = [("Given a fit", f"new {given}", whose)] if given else []
    rows += [
        (
            "Draws",
            f"{fit.num_chains} x {int(scalars['num_draws']):,}",
            f"chains x draws after {int(scalars['num_warmup']):,} warm-up steps; "
            f"{kept:,} a chain are kept",
        ),
        ("Time", _seconds(scalars["seconds"]), "sampling and compilation"),
        (
            "R-hat",
            _number(scalars["rhat_product"]),
            f"99 % of the fits keep to it; worst {_number(scalars['rhat_product_worst'])}; "
            f"log joint density {_number(scalars['rhat_log_joint'])}",
        ),
        (
            "Effective draws",
            _number(scalars["ess_product"], 0),
            "99 % of the fits have at least as many",
        ),
        _found(fit, "chains"),
        _apart(fit),
    ]
    if fit.model == "pmf":
        sd = noise_sd(fit)
        rows.append(("Noise", f"{sd.mean():.3f} ± {sd.std():.3f}", "its standard deviation"))
    if "cutpoints" in other:
        cuts = other["cutpoints"].mean((0, 1))
        rows.append(("Cut points", ", ".join(f"{c:.2f}" for c in cuts), "between the stars, means"))
        rows.append(_cut_points(fit))
    if "replica" in fit.trace:
        least = np.nanmin(swap_rates(fit.trace["swap_probability"]))
        trips = int(round_trips(fit.trace["replica"]).sum())
        rows.append(
            (
                "Replicas",
                f"{fit.trace['replica'].shape[2]}",
                f"neighbours exchange states with a probability of at least {least:.2f}; "
                f"{trips} round trips",
            )
        )
    if fit.model == "nmf" and fit.precision_draws is not None:
        sd = fit.precision_draws**-0.5
        rows.append(("Noise", f"{sd.mean():.3g} ± {sd.std():.2g}", "its standard deviation"))
    return rows + [
        (
            f"{what} effects",
            f"± {other[name].mean((0, 1)).std():.2f}",
            f"spread of their means, which {what.lower()}s add to all of their fits; factors may "
            "hold a part of it",
        )
        for name, what in (("row_effect", "Row"), ("column_effect", "Column"))
        if name in other
    ]


def _cut_points(fit) -> tuple[str, str, str]:
    """Whether the chains agree on what lies between the stars."""
    scalars, trace = fit.scalars, fit.trace["cut_acceptance"][:, int(fit.scalars["num_warmup"]) :]
    return (
        "R-hat of cut points",
        _number(scalars["rhat_cutpoints"]),
        f"and of their distances, the worst; at least {_number(scalars['ess_cutpoints'], 0)} "
        f"effective draws; {trace.mean():.0%} of their steps were accepted",
    )


def _of_starts(fit) -> list[tuple[str, str, str]]:
    """Of a variational fit."""
    scalars, kept = fit.scalars, fit.usage_draws.shape[1]
    spread = scalars["elbo_spread"]
    spread = "" if math.isnan(spread) else f"; the worst start is {spread:,.0f} below"
    bias = fit.other_draws["bias"]
    return [
        (
            "Starts",
            f"{fit.num_chains}",
            f"the longest of {int(scalars['steps']):,} steps of optimisation (at most "
            f"{int(scalars['num_warmup']):,}); {kept:,} draws of each result are kept",
        ),
        ("Time", _seconds(scalars["seconds"]), "optimisation and compilation"),
        ("Lower bound", f"{scalars['elbo']:,.0f}", f"of the best start{spread}"),
        (
            "Change",
            f"{scalars['elbo_rise']:+.2%}",
            f"of the bound from the mean of {WINDOW} steps to that of the last {WINDOW}, in the "
            "start that changed most",
        ),
        (
            "R-hat",
            _number(scalars["rhat_product"]),
            "across starts; 99 % of the log odds keep to it; worst "
            f"{_number(scalars['rhat_product_worst'])}",
        ),
        _found(fit, "starts"),
        _apart(fit),
        ("Bias", f"{bias.mean():.2f} ± {bias.std():.2f}", "log odds without factors and effects"),
    ] + [
        (
            f"{what} effects",
            f"± {fit.other_draws[name].mean((0, 1)).std():.2f}",
            f"spread of the log odds that {what.lower()}s have of their own; in fit.idata",
        )
        for name, what in (("row_effect", "Row"), ("column_effect", "Column"))
        if name in fit.other_draws
    ]


def _apart(fit) -> tuple[str, str, str]:
    """How far apart the draws are; not known of a fit that an earlier version wrote."""
    largest, mean = (fit.scalars.get(f"coverage_{n}", math.nan) for n in ("largest", "mean"))
    note = f"largest angle between matched factors of two draws; {_number(mean, 0)}° on average"
    return "Solutions apart", "none" if math.isnan(largest) else f"{largest:.0f}°", note


def _found(fit, chains) -> tuple[str, str, str]:
    agreeing, found = fit.scalars["factors_agreeing"], "not checked"
    if not math.isnan(agreeing):
        found = f"{round(agreeing * fit.rank)} of {fit.rank}"
    note = f"tiles at least 0.8 alike in every two {chains}"
    return f"Factors found by all {chains}", found, note


def _of_chains(fit) -> list[tuple[str, str, str]]:
    """Of a fit by draws from the posterior."""
    scalars, kept = fit.scalars, fit.usage_draws.shape[1]
    seen = fit.data.num_ones + fit.data.num_zeros
    which = "uncertain" if fit.is_boolean else "reconstructed"
    rows = [
        (
            "Draws",
            f"{fit.num_chains} x {int(scalars['num_draws']):,}",
            f"chains x draws after {int(scalars['num_warmup']):,} warm-up steps; "
            f"{kept:,} a chain are kept",
        ),
        ("Time", _seconds(scalars["seconds"]), "sampling and compilation"),
        (
            "Wrong entries",
            f"{int(scalars['errors']):,} ({scalars['errors'] / seen:.1%})",
            "observed entries that the Boolean product of the factors gets wrong",
        ),
        (
            "Expected wrong entries",
            f"{scalars['expected_errors']:,.0f}",
            "of the Boolean product against the noise-free matrix, by the posterior",
        ),
        (
            "R-hat",
            _number(scalars["rhat_product"]),
            f"99 % of the {which} entries keep to it; worst "
            f"{_number(scalars['rhat_product_worst'])}; "
            f"log joint density {_number(scalars['rhat_log_joint'])}",
        ),
        (
            "Effective draws",
            _number(scalars["ess_product"], 0),
            f"99 % of the {which} entries have at least as many; "
            f"log joint density {_number(scalars['ess_log_joint'], 0)}",
        ),
        _found(fit, "chains"),
        _apart(fit),
    ]
    if not math.isnan(scalars["clamped"]):
        rows.append(
            (
                "Clamped",
                f"{scalars['clamped']:.0%}",
                "of the coordinates were held at 0 or 1 in a step, on average",
            )
        )
    if fit.is_boolean:
        rows += _boolean_facts(fit)
    if fit.precision_draws is not None:
        mean, sd = fit.precision_draws.mean(), fit.precision_draws.std()
        rows.append(
            ("Noise precision", f"{mean:.2f} ± {sd:.2f}", "learned: one over the noise variance")
        )
    return rows


def _boolean_facts(fit) -> list[tuple[str, str, str]]:
    share = fit.scalars["entries_uncertain"]
    rows = [
        (
            "Uncertain entries",
            f"{share:.1%}",
            "of the entries of the product have a probability between .05 and .95",
        )
    ]
    rates = np.asarray(fit.other_draws["flip_rate"])
    rates = rates[..., None] if rates.ndim == 2 else rates
    names = ("Flip rate",) if rates.shape[-1] == 1 else ("Flip rate of zeros", "Flip rate of ones")
    for k, name in enumerate(names):
        mean, sd = rates[..., k].mean(), rates[..., k].std()
        rows.append((name, f"{mean:.3f} ± {sd:.3f}", "probability that an entry is observed wrong"))
    return rows


def _count(lines, what: str) -> str:
    return f"{len(lines):,} {what}" + "s" * (len(lines) != 1)


def _number(value, digits: int = 2) -> str:
    value = float(value)
    return "none" if math.isnan(value) else f"{value:,.{digits}f}"


def _seconds(value) -> str:
    value = float(value)
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"

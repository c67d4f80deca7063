"""The figures at the top of the page, each with what it means: every function yields its rows."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bmfjax.data import BinaryMatrix
from bmfjax.infer import communication_barrier, round_trips
from bmfjax.posterior.cells import noise_sd
from bmfjax.report.section import Fact, digits
from bmfjax.variational.settling import WINDOW
from bmfjax.verdict import number_agreeing

# ---- data ----------------------------------------------------------------------------------


def data(fit) -> Iterator[Fact]:
    """Size, values, and what is missing."""
    data = fit.data
    missing = data.num_missing / (data.num_rows * data.num_columns)
    yield Fact("Read as", str(data.reading).removeprefix("read as "), "decided at reading")
    yield Fact("Size", f"{data.num_rows:,} x {data.num_columns:,}", "rows x columns")
    if isinstance(data, BinaryMatrix):
        share = f"{data.num_ones:,} ({data.density:.1%})"
        yield Fact("Ones", share, "share of the observed entries")
    elif missing < 1:
        low, high = data.range
        yield Fact("Values", f"{low:g} to {high:g}", "smallest and largest observed")
    yield Fact("Missing", f"{data.num_missing:,} ({missing:.1%})", "not observed")
    mute = f"{_count(data.empty_rows, 'row')}, {_count(data.empty_columns, 'column')}"
    yield Fact("Without information", mute, "no entry of them is observed")


def given_new(fit) -> Iterator[Fact]:
    """Say where the draws of `Fit.given_new` come from."""
    side = fit.settings.get("given_new")
    if side:
        note = "drawn given the kept draws of a fit; steps, time and noise are those of that fit"
        yield Fact("Given a fit", f"new {side}", note)


def known(fit) -> Iterator[Fact]:
    """Say which factors were given, and not learned."""
    if fit.anchors is not None:
        note = "their part of the basis was given and stays; who uses them was learned"
        yield Fact("Known factors", ", ".join(fit.anchors.names), note)


def attributes(fit) -> Iterator[Fact]:
    """Say which attributes of rows and columns the prior means depend on."""
    for side, own in fit.attributes.items():
        given, rated = len(own.names) - len(own.rated), len(own.rated)
        what = [f"{given:,} of {side}s"] * bool(given) + ["which cells were rated"] * bool(rated)
        note = f"in the prior means of the {side}s' factors and effects, by learned coefficients"
        yield Fact(f"Attributes of {side}s", ", ".join(what), note)


# ---- the run -------------------------------------------------------------------------------


def draws(fit) -> Iterator[Fact]:
    """Say how many draws there are, and how many are kept; of particles, the evidence too."""
    kept = f"{fit.usage_draws.shape[1]:,}"
    if fit.figures.log_evidence is not None:
        yield from _particles(fit, kept)
        return
    if fit.verdict.is_of_starts:
        yield Fact("Starts", f"{fit._num_chains}", "of chains that drew nothing")
        return
    steps = int(fit.figures.num_warmup)
    searching = f" ({fit._search_steps:,} before them searched for starts)"
    yield Fact(
        "Draws",
        f"{fit._num_chains} x {int(fit.figures.num_draws):,}",
        f"chains x draws after {steps:,} warm-up step{'s' * (steps != 1)}"
        f"{searching * (fit._search_steps > 0)}{_earlier(fit)}; "
        f"{kept} a chain are kept",
    )


def _particles(fit, kept) -> Iterator[Fact]:
    figures, found = fit.figures, fit.log_evidence
    yield Fact(
        "Particles",
        f"{fit._num_chains} x {int(figures.num_draws):,}",
        f"independent runs (chains, below) x particles, from the prior through "
        f"{int(figures.temperatures)} temperatures; {kept} a run are kept",
    )
    runs = ", ".join(f"{value:,.1f}" for value in found.runs)
    yield Fact(
        "Log evidence",
        f"{found.value:,.2f} ± {found.error:.2f}",
        f"of the model at this rank, with its standard error; of the runs: {runs}",
    )


def _earlier(fit) -> str:
    """Say what ran before chains that jump, have several temperatures, or more factors."""
    steps = fit.figures.earlier_steps or 0
    before = "chains that did not agree, or that were allowed too few factors"
    if fit._rank_draws is None:
        before = "chains that did not agree"
    return f", which follow {steps:,} steps of {before}" * (steps > 0)


def starts(fit) -> Iterator[Fact]:
    """Say how many starts an optimisation had."""
    steps = int(fit.figures.steps)
    yield Fact(
        "Starts",
        f"{fit._num_chains}",
        f"the longest took {steps:,} step{'s' * (steps != 1)} of optimisation (at most "
        f"{int(fit.figures.num_warmup):,}); {fit.usage_draws.shape[1]:,} draws of each result "
        "are kept",
    )


def seconds(fit, *, of: str = "sampling") -> Iterator[Fact]:
    """Say how long it took."""
    value = float(fit.figures.seconds)
    text = f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"
    yield Fact("Time", text, f"{of} and compilation")


def replicas(fit) -> Iterator[Fact]:
    """Say how well replicas at several temperatures exchange their states."""
    if "replica" not in fit.trace:
        return
    first, number = int(fit.figures.num_warmup), fit.trace["replica"].shape[2]
    found = communication_barrier(fit.trace["swap_probability"][:, first:])
    steps, least = fit.trace["replica"].shape[1] - first, 1.0 - np.nanmax(found.rejection)
    trips = round_trips(fit.trace["replica"][:, first:]).sum()
    expected = np.nansum(found.round_trip_rate) * steps
    yield Fact(
        "Replicas",
        f"{number}",
        f"neighbours exchange states with a probability of at least {least:.2f}; {trips:,} round "
        f"trips, where these rates allow about {expected:,.0f}; recommended number: "
        f"{found.num_temperatures.max()}",
    )


def clamped(fit) -> Iterator[Fact]:
    """Share of coordinates at a bound, of an approximate sampler."""
    share = fit.figures.clamped
    if not math.isnan(share):
        note = "of the coordinates were held at 0 or 1 in a step, on average"
        yield Fact("Clamped", f"{share:.0%}", note)


def gradient_noise(fit) -> Iterator[Fact]:
    """Noise of the gradients of a sampler from minibatches that makes up for it."""
    share = fit.figures.noise_share
    if share:
        yield Fact("Gradient noise", f"{share:.0%}", "of what the sampler can make up for")


def bound(fit) -> Iterator[Fact]:
    """Say the lower bound on the log probability of the data, and whether it still changes."""
    figures = fit.figures
    below = figures.elbo_spread
    below = "" if math.isnan(below) else f"; the worst start is {below:,.0f} below"
    yield Fact("Lower bound", f"{figures.elbo:,.0f}", f"of the best start{below}")
    yield Fact(
        "Change",
        f"{figures.elbo_rise:+.2%}",
        f"of the bound, from the mean of {WINDOW} steps to the mean of the last {WINDOW}, in the "
        "start that changed most",
    )


# ---- agreement of chains -------------------------------------------------------------------


def mixing(fit, *, of: str) -> Iterator[Fact]:
    """R-hat and effective draws of what the reconstruction is called."""
    if fit.verdict.is_of_starts:
        return
    figures = fit.figures
    of_entries, worst = _number(figures.rhat_product), _number(figures.rhat_product_worst)
    value, note = of_entries, f"99 % of the {of} have at most this; worst {worst}"
    if figures.log_joint_counts is not False and not figures.asks_entries:
        value = _number(figures.rhat_log_joint)
        note = (
            f"of the log joint density, by which factors are judged; 99 % of the {of} have at most "
            f"{of_entries}, worst {worst}: these are judged by the error and the distance of "
            "predictions"
        )
    yield Fact("R-hat", value, note)
    yield Fact(
        "Effective draws",
        _number(figures.ess_product, 0),
        f"99 % of the {of} have at least as many; log joint density "
        f"{_number(figures.ess_log_joint, 0)}",
    )


def rhat_of_starts(fit) -> Iterator[Fact]:
    """R-hat of the log odds across the starts of a variational fit."""
    if fit.verdict.is_of_starts:
        return
    worst = _number(fit.figures.rhat_product_worst)
    note = f"across starts; 99 % of the log odds have at most this; worst {worst}"
    yield Fact("R-hat", _number(fit.figures.rhat_product), note)


def found(fit, *, runs: str = "chains") -> Iterator[Fact]:
    """Say how many factors all chains found, and how far apart the draws are."""
    if fit.verdict.is_of_starts:
        return
    agreeing, text = fit.figures.factors_agreeing, "not checked"
    if not math.isnan(agreeing):
        agreeing = number_agreeing(fit.figures, fit.rank)
        text = f"{agreeing} of {fit.rank}"
    note = f"at least 0.8 alike in all {runs}"
    for number, what in (
        (fit.figures.factors_empty or 0, "empty"),
        (len(fit.figures.factors_in_few_draws or ()), "in too few draws"),
    ):
        if number:
            note += f"; {number} {'is' if number == 1 else 'are'} {what}, so not found"
    yield Fact(f"Factors found by all {runs}", text, note)
    largest, mean = fit.figures.coverage_largest, fit.figures.coverage_mean
    note = f"largest angle between matched factors of two draws; {_number(mean, 0)}° on average"
    note += ", empty factors left out" * bool(fit.figures.factors_empty)
    yield Fact("Solutions apart", "none" if math.isnan(largest) else f"{largest:.0f}°", note)


# ---- the model -----------------------------------------------------------------------------


def errors(fit) -> Iterator[Fact]:
    """Say what the Boolean product of the factors gets wrong."""
    figures, observed = fit.figures, fit.data.num_ones + fit.data.num_zeros
    yield Fact(
        "Entries unlike the data",
        f"{int(figures.errors):,} ({figures.errors / observed:.1%})",
        "observed entries that differ from the Boolean product of the factors, as noise makes them",
    )
    if not np.isnan(figures.get("expected_errors")):  # known of a matrix that is formed
        yield Fact(
            "Expected errors",
            f"{figures.expected_errors:,.0f}",
            "entries in which this product differs from the matrix without noise, by the posterior",
        )


def uncertain(fit) -> Iterator[Fact]:
    """Share of entries that the posterior leaves open."""
    note = "of the entries of the product have a probability between 0.05 and 0.95"
    yield Fact("Uncertain entries", f"{fit.figures.entries_uncertain:.1%}", note)


def flip_rates(fit) -> Iterator[Fact]:
    """Give one flip rate, or that of zeros and that of ones."""
    rates = np.asarray(fit.other_draws["flip_rate"])
    rates = rates[..., None] if rates.ndim == 2 else rates
    names = ("Flip rate",) if rates.shape[-1] == 1 else ("Flip rate of zeros", "Flip rate of ones")
    for k, name in enumerate(names):
        value = _mean_sd(rates[..., k], ".3f")
        yield Fact(name, value, "probability that an entry is observed wrong")


def levels(fit) -> Iterator[Fact]:
    """Say the intercept, and what a factor adds, of log odds with effects."""
    value = _mean_sd(fit.other_draws["intercept"], ".2f")
    yield Fact("Intercept", value, "log odds halfway between covered and uncovered entries")
    value = _mean_sd(fit.other_draws["dispersion"], ".2f")
    note = "added to the log odds of entries that a factor covers, and taken from those of others"
    yield Fact("Dispersion", value, note)


def hamming_dispersion(fit) -> Iterator[Fact]:
    """Say what a code adds to the log odds."""
    value = _mean_sd(fit.other_draws["dispersion"], ".2f")
    note = "each code of a row adds to the log odds of its ones, and takes from those of its zeros"
    yield Fact("Dispersion", value, note)


def weights(fit) -> Iterator[Fact]:
    """Give the shares of the rows that have each factor."""
    if "weights" in fit.other_draws:
        means = fit.other_draws["weights"].mean((0, 1))
        shown = ", ".join(f"{w:.2f}" for w in means)
        yield Fact("Weights", shown, "probability that a row has each factor, means")


def layers(fit) -> Iterator[Fact]:
    """Say the layers above the first, and whether all chains found their factors."""
    shares = fit.figures.layers_agreeing or ()
    for number, (rank, share) in enumerate(zip(fit.ranks[1:], shares, strict=True), 2):
        text = "not checked" if math.isnan(share) else f"{round(share * rank)} of {rank}"
        note = "factors of that layer that all chains found, at least 0.8 alike"
        yield Fact(f"Layer {number}, found by all chains", text, note)


def precision(fit) -> Iterator[Fact]:
    """Say the learned noise precision."""
    if fit.other_draws.get("precision") is not None:
        value = _mean_sd(
            fit.other_draws.get("precision"), digits(fit.other_draws.get("precision").mean())
        )
        yield Fact("Noise precision", value, "learned: one over the noise variance")


def noise(fit) -> Iterator[Fact]:
    """Say the standard deviation of normal noise, learned or fixed."""
    sd = noise_sd(fit)
    note = "its standard deviation" + ", fixed" * (fit.other_draws.get("precision") is None)
    yield Fact("Noise", f"{sd.mean():.3g} ± {sd.std():.2g}", note)


def bias(fit) -> Iterator[Fact]:
    """Say the log odds that all entries share."""
    value = _mean_sd(fit.other_draws["bias"], ".2f")
    yield Fact("Bias", value, "log odds without factors and effects")


def cut_points(fit) -> Iterator[Fact]:
    """Say where the stars part, and whether the chains agree on it."""
    means = fit.other_draws["cutpoints"].mean((0, 1))
    yield Fact("Cut points", ", ".join(f"{c:.2f}" for c in means), "between the stars, means")
    trace = fit.trace["cut_acceptance"][:, int(fit.figures.num_warmup) :]
    yield Fact(
        "R-hat of cut points",
        _number(fit.figures.rhat_cutpoints),
        f"the worst, their distances included; at least {_number(fit.figures.ess_cutpoints, 0)} "
        f"effective draws; {trace.mean():.0%} of their steps were accepted",
    )


def effects(fit, *, note: str) -> Iterator[Fact]:
    """Spread of the effects of rows and of columns in a draw, `note` with the name of either."""
    for what in ("row", "column"):
        if f"{what}_effect" in fit.other_draws:
            spread = fit.other_draws[f"{what}_effect"].std(-1, dtype=float).mean()
            text = f"± {spread:{digits(spread)}}"
            yield Fact(f"{what.capitalize()} effects", text, note.format(what))


def stopped_optimising(fit) -> str:
    """Say after how many steps an optimisation was stopped."""
    if fit.verdict.is_of_starts:
        return "The time was up before the first step; this page shows where the starts are."
    return f"The run was stopped after step {fit.figures.steps:,} of its optimisation."


def _count(lines, what: str) -> str:
    return f"{len(lines):,} {what}" + "s" * (len(lines) != 1)


def _number(value, digits: int = 2) -> str:
    value = float(value)
    return "none" if math.isnan(value) else f"{value:,.{digits}f}"


def _mean_sd(draws, digits: str) -> str:
    return f"{draws.mean():{digits}} ± {draws.std():{digits}}"

"""How many factors there are, where the fit found it: the figure at the top, and a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from bmfjax import verdict
from bmfjax.report.section import Fact, Section, image, section
from bmfjax.report.style import COLOURS, axis_label, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Probabilities below this are not named one by one.
LEAST_NAMED = 0.005
#: Others are named one by one up to so many, more as a range.
MOST_NAMED = 3


def number_sentence(fit) -> str:
    """Say which numbers of factors are probable."""
    found = fit._rank_probabilities
    best = max(found, key=found.get)
    others = [f"{n}: {p:.2f}" for n, p in found.items() if n != best and p >= LEAST_NAMED]
    beside = f" ({', '.join(others)})" if others else ""
    if len(others) > MOST_NAMED:
        low, high, share = verdict.shortest_range(found)
        beside = f" ({low} to {high}: {share:.2f})"
    most = fit._most_factors
    bound = f"; no more than {most} were allowed"
    if most == min(fit.data.shape):
        bound = f"; no more than {most}, the smaller side of the matrix, are looked for"
    return (
        f"{best} factor{'' if best == 1 else 's'} with probability {found[best]:.2f}{beside}"
        f"{bound * (found.get(most, 0.0) >= verdict.AT_BOUND)}"
    )


def rank_line(fit) -> str:
    """Say at the top of the page how many factors there are, and how many it shows."""
    if fit._rank_probabilities is None:
        said = verdict.rank_given(fit.figures, fit.rank)
        return f"{said[0].upper()}{said[1:]}"
    empty = verdict.and_empty(fit.figures)
    if fit.verdict.is_of_starts:
        return f"Number of factors: not known, there are no draws. The page shows {fit.rank}{empty}"
    return (
        f"Number of factors: {verdict.in_range(fit.figures)}. The page shows the {fit.rank} "
        f"{fit._shown_factors}{empty}"
    )


def number_of_factors(fit) -> Iterator[Fact]:
    """Say the most probable number of factors."""
    if fit._rank_probabilities is None or fit.verdict.is_of_starts:
        return
    figures = fit.figures
    mixed = "it is the same in every draw"
    if not np.isnan(figures.rhat_rank):
        mixed = f"R-hat {figures.rhat_rank:.2f}"
    low, high = figures.rank_between or (figures.rank, figures.rank)
    yield Fact(
        "Number of factors",
        f"{low} to {high}" if low < high else f"{figures.rank}",
        f"{number_sentence(fit)}; beforehand "
        f"{fit._ranks_beforehand.format(most=fit._most_factors)}; {mixed}",
    )


def number_section(fit) -> Section | None:
    """Show the probability of every number of factors, in every chain."""
    if fit._rank_probabilities is None or fit.verdict.is_of_starts:
        return None
    return section(
        "How many factors are there?",
        "Posterior probability of every number of factors, the dots those of each "
        f"{'start' if fit._is_variational else 'chain'}. {fit._counts_as_factor} The page shows "
        f"the factors {fit._shown_factors}.{_empty_text(fit)}",
        image(number_figure(fit), "Posterior probability of the number of factors", wide=False),
    )


def _empty_text(fit) -> str:
    """Say that some of the factors shown are empty, though most draws use them."""
    empty = fit.figures.factors_empty or 0
    if not empty:
        return ""
    one = empty == 1
    return (
        f" When rounded, {empty} of them {'is' if one else 'are'} empty: each draw uses "
        f"{'it' if one else 'them'} with other rows or columns."
    )


def number_figure(fit) -> Figure:
    """Draw P(rank) as bars, and that of every chain as a dot."""
    figure = new_figure(5.2, 2.6)
    draw_number(figure.add_subplot(), fit)
    return figure


def draw_number(axes, fit) -> None:
    """Draw P(rank) as bars, and that of every chain as a dot."""
    from matplotlib import rcParams

    drawn = fit._rank_draws
    most = min(drawn.max() + 1, fit._most_factors)
    numbers = np.arange(max(0, drawn.min() - 1), most + 1)
    of_chains = np.stack([np.mean(drawn == n, axis=1) for n in numbers])
    axes.bar(numbers, of_chains.mean(1), width=0.6, color=COLOURS[0], alpha=0.75)
    dots = rcParams["text.color"]
    for c, values in enumerate(of_chains.T):
        across = numbers + 0.06 * (c - (drawn.shape[0] - 1) / 2)
        axes.plot(across, values, "o", color=dots, markersize=3)
    axes.set_xticks(numbers)
    axes.set_ylim(0, 1.02)
    axis_label(axes, "number of factors", "p_rank, posterior probability")
    tidy(axes, "y")

"""Ranks side by side: scores, probabilities, code lengths, and factors that all chains share."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from bmfjax.report.style import (
    COLOURS,
    DASHED,
    DOUBTFUL,
    EDGE,
    GOOD,
    INK,
    MISSING,
    axis_label,
    default_parameters,
    heading,
    new_figure,
    tidy,
)
from bmfjax.verdict import Status

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Scores of the table, their names in the legend, and markers.
SCORES = (
    ("entries", "hidden entries", "o"),
    ("blocks", "bi-cross-validation", "s"),
    ("loo", "PSIS-LOO", "^"),
)
#: Standard errors below and above the best that are shown enlarged.
CLOSE = (9.0, 3.0)


@default_parameters()
def ranks_figure(table, recommended: int) -> Figure:
    """Draw a table of `bmfjax.comparison.RankComparison`, one panel a criterion."""
    panels = [(_scores, 2.4), (_shared, 1.6)]
    close = _close_range(table)
    if close is not None:
        panels.insert(1, (functools.partial(_scores, close=close), 1.9))
    if table["p_rank"].notna().any():
        panels.insert(-1, (_probabilities, 1.6))
    if table["code_length"].notna().any():
        panels.insert(-1, (_code_lengths, 1.6))
    heights = [height for _, height in panels]
    figure = new_figure(7.6, 0.6 + sum(heights))
    axes = figure.subplots(len(panels), 1, sharex=True, height_ratios=heights)
    for ax, (draw, _) in zip(axes, panels, strict=True):
        ax.axvspan(recommended - 0.5, recommended + 0.5, color=MISSING, alpha=0.3, linewidth=0,
                   zorder=0)  # fmt: skip
        draw(ax, table)
        tidy(ax, "y")
    axes[-1].set_xticks(list(table.index))
    axes[-1].set_xlim(table.index.min() - 0.6, table.index.max() + 0.6)
    axis_label(axes[-1], x=f"rank (recommended: {recommended})")
    return figure


def _close_range(table) -> tuple[float, float] | None:
    """Return the scores near the best that are shown enlarged, where others are far below."""
    shown = [name for name, *_ in SCORES if table[name].notna().any()]
    errors = table[[f"{name}_difference_se" for name in shown]].to_numpy(float)
    unit = float(np.median(errors[errors > 0])) if (errors > 0).any() else 0.0
    behind = table[[f"{name}_difference" for name in shown]].to_numpy(float)
    low, high = -CLOSE[0] * unit, CLOSE[1] * unit
    # More than the best of each score is near, and more than half of the height is not.
    several = (behind >= low).sum() > len(shown)
    return (low, high) if unit and several and np.nanmin(behind) < 2 * low else None


def _scores(ax, table, close=None) -> None:
    """Draw how far each rank is behind the best, with standard errors of the difference."""
    shown = [s for s in SCORES if table[s[0]].notna().any()]
    for n, (name, label, marker) in enumerate(shown):
        shift = 0.1 * (n - (len(shown) - 1) / 2)
        ax.errorbar(
            table.index + shift, table[f"{name}_difference"],
            yerr=np.nan_to_num(table[f"{name}_difference_se"]), label=label, marker=marker,
            markersize=5, color=COLOURS[n], linewidth=1, capsize=2, elinewidth=1,
        )  # fmt: skip
    ax.axhline(0, color=EDGE, **DASHED)
    if close is not None:
        ax.set_ylim(*close)
        heading(ax, "The same, near the best")
        return
    ax.legend(fontsize=8.5, frameon=False, loc="lower right")
    heading(ax, "Mean log density of a cell, against the best rank (bars: one standard error)")


def _probabilities(ax, table) -> None:
    ax.bar(table.index, table["p_rank"], width=0.6, color=COLOURS[0],
           yerr=table["p_rank_se"], ecolor=INK, capsize=2)  # fmt: skip
    ax.set_ylim(0, 1.05)
    heading(ax, "Probability of the rank, by the evidence")


def _code_lengths(ax, table) -> None:
    ax.plot(table.index, table["code_length"], color=COLOURS[4], marker="o", markersize=5)
    ax.ticklabel_format(axis="y", useOffset=False, style="plain")
    heading(ax, "Code length of the data, bits")


def _shared(ax, table) -> None:
    """Draw the factors that all chains found, coloured by the verdict, beside all factors."""
    holds = table["verdict"].isin([Status.RELIABLE, Status.USABLE])
    colours = [GOOD if good else DOUBTFUL for good in holds]
    ax.bar(table.index, table.index, width=0.6, color="white", edgecolor=EDGE, linewidth=1)
    ax.bar(table.index, table["shared"], width=0.6, color=colours)
    heading(ax, "Factors that all chains found (green: all parts of the fit hold; outline: all)")

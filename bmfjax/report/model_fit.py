"""Whether the model fits the data: what it explains, calibration, and replicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bmfjax.posterior.model_check import ModelCheck
from bmfjax.report.section import Section, beside, image, section, table
from bmfjax.report.style import (
    COLOURS,
    DASHED,
    DOUBTFUL,
    EDGE,
    GOOD,
    GRID,
    INK,
    axis_label,
    heading,
    new_figure,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def model_section(fit) -> Section | None:
    """Show what the model explains, and where data of its own differ from the data."""
    if not fit._can_be_checked:
        return None
    found = fit.check()
    statistics = found.statistics.drop(columns="worst").astype(float)
    statistics.insert(1, "worst", found.statistics["worst"])
    return section(
        "Does the model fit?",
        f"{found} What it explains is measured on {found.num_entries:,} observed entries, each "
        "left out.",
        beside(
            image(explained_figure(found), "What the model explains", wide=False),
            None
            if found.calibration is None
            else image(calibration_figure(found), "Calibration of probabilities", wide=False),
        ),
        "Data that the draws make are compared with the data: the row, column or pair of columns "
        "that is farthest off is named, and the p-value is the share of made data in which some "
        "row, column or pair is as far off.",
        table(statistics),
    )


def explained_figure(found: ModelCheck) -> Figure:
    """Draw what is explained as a part of a bar, with two standard errors."""
    figure = new_figure(5.2, 1.7)
    axes = figure.subplots()
    share = min(max(found.explained, 0.0), 1.0)
    axes.barh([0], [1.0], color=GRID, height=0.5)
    axes.barh([0], [share], color=GOOD if found.explains else DOUBTFUL, height=0.5)
    axes.errorbar(
        [share], [0], xerr=[2.0 * found.explained_error], color=INK, capsize=4, linewidth=1.2
    )
    axes.set_xlim(min(0.0, found.explained), 1.0)
    axes.set_ylim(-0.5, 0.5)
    axes.set_yticks([])
    tidy(axes)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter("{x:.0%}")
    heading(axes, f"Explained: {100 * found.explained:.0f} %")
    axis_label(axes, f"0 %: {found.baseline}; 100 %: every entry known")
    return figure


def calibration_figure(found: ModelCheck) -> Figure:
    """Draw the share of ones beside the probability of a one, a dot a bin."""
    figure = new_figure(4.2, 3.6)
    axes = figure.subplots()
    bins = found.calibration
    axes.plot([0, 1], [0, 1], color=EDGE, **DASHED)
    size = 20 + 180 * bins["entries"] / bins["entries"].max()
    axes.scatter(bins["predicted"], bins["observed"], s=size, color=COLOURS[0], alpha=0.85)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    tidy(axes, "both")
    heading(axes, "Calibrated" if found.is_calibrated else "Not calibrated")
    axis_label(axes, "probability of a one, entry left out", "share of ones")
    return figure

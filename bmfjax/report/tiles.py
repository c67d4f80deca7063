"""Which tiles are real: a drawing of their probabilities."""

from __future__ import annotations

import numpy as np

from bmfjax.report.style import DASHED, DOUBTFUL, EDGE, GOOD, axis_label, new_figure, plain, tidy


def tiles_size(fit) -> tuple[float, float]:
    """Return the inches that the drawing takes."""
    return 7.0, 0.9 + 0.24 * max(fit.rank, 3)


def tiles_figure(fit):
    """Draw the probability that each tile is real."""
    figure = new_figure(*tiles_size(fit))
    draw_tiles(figure.add_subplot(), fit)
    return figure


def draw_tiles(axes, fit) -> None:
    """Draw the probability that each tile is real, green where it is kept, and its size."""
    table = fit.tiles(all=True)
    places, real = np.arange(len(table)), table["p_real"].to_numpy()
    colours = [GOOD if kept else DOUBTFUL for kept in table["kept"]]
    axes.hlines(places, 0, real, color=colours, linewidth=3)
    axes.scatter(real, places, color=colours, s=34, zorder=3, clip_on=False)
    axes.axvline(0.5, color=EDGE, **DASHED)
    axes.set_yticks(places, map(plain, fit._factor_titles))
    axes.set_ylim(len(table) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axis_label(axes, "p_real, probability that it is real (green: kept)", "factor")
    tidy(axes, "x")
    for place, (_, line) in zip(places, table.iterrows(), strict=True):
        text = f"{line['rows']:,} x {line['columns']:,}"
        if line["remarks"]:
            text += f", {line['remarks']}"
        axes.text(1.03, place, text, transform=axes.get_yaxis_transform(), fontsize=8, va="center")

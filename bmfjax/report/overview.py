"""The matrix, its reconstruction and its uncertainty side by side, ordered by the factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bmfjax.data import BinaryMatrix, RealMatrix
from bmfjax.data.blocks import spaced
from bmfjax.posterior import products
from bmfjax.posterior.packed import subset
from bmfjax.report import ordering
from bmfjax.report.section import Section, image, section
from bmfjax.report.style import (
    EDGE,
    GRID,
    INK,
    MISSING,
    ONE,
    UNKNOWN,
    ZERO,
    colour_scale,
    label_colours,
    new_figure,
    plain,
    plain_colour_bar,
    rgb,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Entries formed at once, columns at most, and pixels of a side.
MAX_ENTRIES, MAX_COLUMNS, MAX_PIXELS = 10_000_000, 20_000, (600, 540)
#: Draws x entries summed for the mean and spread of the picture.
MAX_WORK = 300_000_000
MAX_NAMED_COLUMNS, MAX_NAMED_ROWS = 60, 60

PANELS = (
    ("matrix", "Observed matrix"),
    ("reconstruction", "Reconstruction (mean over the draws)"),
    ("uncertainty", "Uncertainty (standard deviation)"),
)
# Every pixel of the data is at least one of the image, so that nothing needs to be blended.
IMAGE = {"aspect": "auto", "interpolation": "nearest"}


class Picture(NamedTuple):
    """What the overview draws, pooled to pixels."""

    rows: np.ndarray  # positions drawn, in order
    columns: np.ndarray
    block: tuple[int, int]  # rows and columns averaged in a pixel
    matrix: np.ndarray  # (height, width, 3) colours, mixed where entries share a pixel
    mean: np.ndarray  # (height, width)
    sd: np.ndarray
    top: float  # value of the strongest colour: 1, or of real numbers the largest observed
    labels: np.ndarray | None  # (height, 1, 3) colours
    num_draws: int  # draws behind `mean` and `sd`


def matrix(fit, *, shown: str, moments: Callable, data=BinaryMatrix) -> Section | None:
    """Show the matrix ordered by its factors, beside what is `shown`; None for other `data`.

    `moments` is `of_product`, or `linked` by a function.
    """
    if not isinstance(fit.data, data):
        return None
    drawn = picture(fit, moments)
    labels = (
        " The strip at the left shows the label of each row. The labels took no part in the fit or "
        "in the order: where the colours separate, the factors have found what the labels say."
    )
    return section(
        "The matrix, ordered by its factors",
        "Rows with like factors stand together, and so do columns, so that factors become blocks. "
        f"The middle panel is the {shown}, averaged over the draws, and the right one its standard "
        f"deviation. The three panels share one order.{labels if fit.data.row_labels else ''} "
        f"{describe(fit, drawn)}",
        image(
            overview_figure(fit, drawn),
            "Observed matrix, reconstruction and uncertainty, ordered by the factors",
        ),
    )


def of_product(fit, rows, columns, some) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread of the product over some draws, (rows, columns) each."""
    chains, kept = fit.usage_draws.shape[:2]
    if fit._is_boolean and len(some) == kept:  # the mean of a bit is its probability, known already
        return products.moments_of_bits(
            fit.probability(rows, columns, positions=True), chains * kept
        )
    return products.moments(
        subset(fit.usage_draws, some, rows), subset(fit.basis_draws, some, columns)
    )


def linked(fit, rows, columns, some, *, link) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread of a function of the product, effects included."""
    usage, basis = fit._product_draws(rows, columns)
    return products.moments(usage[:, some], basis[:, some], link=link)


def picture(fit, moments: Callable = of_product) -> Picture:
    """Order, thin where there are more than 10^7 entries, and pool to at most 600 x 540."""
    order = ordering.order_by_factors(fit)
    columns = order.columns[spaced(len(order.columns), MAX_COLUMNS)]
    most = max(1, MAX_ENTRIES // len(columns))
    rows = order.rows[spaced(len(order.rows), most)]
    block = tuple(map(ordering.block_size, (len(rows), len(columns)), MAX_PIXELS))

    values, top = _observed(fit.data, rows, columns)
    share = ordering.pool(np.isnan(values), *block)[..., None]
    matrix = colour_scale("values")(np.nan_to_num(ordering.pool(values, *block)) / top)[..., :3]
    matrix = (1 - share) * matrix + share * np.array(rgb(MISSING))

    chains, kept = fit.usage_draws.shape[:2]
    most = max(4, MAX_WORK // (chains * len(rows) * len(columns)))
    some = spaced(kept, most)
    mean, sd = moments(fit, rows, columns, some)
    return Picture(
        rows,
        columns,
        block,
        matrix,
        ordering.pool(mean, *block),
        ordering.pool(sd, *block),
        top,
        _label_strip(fit.data.row_labels, rows, block[0]),
        chains * len(some),
    )


def _observed(data, rows, columns):
    """Values of some rows and columns, NaN where missing, and what the strongest colour is."""
    if isinstance(data, RealMatrix):
        return data.part(rows, columns).astype(np.float32), max(data.range[1], 1e-30)
    ones, hidden = data.part(rows, columns)
    return np.where(hidden, np.nan, ones.astype(np.float32)), 1.0


def _label_strip(labels, rows, block):
    if labels is None:
        return None
    colours = label_colours(labels)
    strip = np.array([[rgb(colours[labels[i] or UNKNOWN])] for i in rows])
    return ordering.pool(strip, block, 1)


def describe(fit, drawn: Picture) -> str:
    """Say how the picture is pooled and thinned; '' where it is neither."""
    parts = []
    for what, chosen, total in (
        ("rows", drawn.rows, fit.data.num_rows),
        ("columns", drawn.columns, fit.data.num_columns),
    ):
        if len(chosen) < total:
            parts.append(f"Shown are {len(chosen):,} evenly spaced {what} of {total:,}.")
    if max(drawn.block) > 1:
        parts.append(
            f"Each pixel is the average of up to {drawn.block[0]} x {drawn.block[1]} entries "
            "(rows x columns)."
        )
    total = fit._num_chains * fit.usage_draws.shape[1]
    if drawn.num_draws < total:
        parts.append(f"Mean and spread come from {drawn.num_draws:,} of the {total:,} kept draws.")
    return " ".join(parts)


def overview_figure(fit, drawn: Picture, *, width: float = 12.0) -> Figure:
    """Draw the matrix, its reconstruction and its uncertainty in one order."""
    height = _height(drawn)
    figure = new_figure(width, height)
    strip = drawn.labels is not None
    grid = figure.add_gridspec(
        2, 3 + strip, width_ratios=[0.06] * strip + [1.0] * 3, height_ratios=[0.12, height - 1.0]
    )
    panels = [figure.add_subplot(grid[1, strip + i]) for i in range(3)]
    keys = [figure.add_subplot(grid[0, strip + i], label="key") for i in range(3)]
    top = max(float(np.nanmax(drawn.sd)), 0.05 * drawn.top)
    images = (
        panels[0].imshow(drawn.matrix, **IMAGE),
        panels[1].imshow(drawn.mean, cmap=colour_scale("values"), vmin=0, vmax=drawn.top, **IMAGE),
        panels[2].imshow(drawn.sd, cmap=colour_scale("spread"), vmin=0, vmax=top, **IMAGE),
    )
    for panel, key, drawing, (name, text) in zip(panels, keys, images, PANELS, strict=True):
        panel.set_label(name)
        key.set_title(text, fontsize=11, color=INK, pad=6)
        _tidy_image(panel)
        if name == "matrix":
            _value_key(key, fit)
        else:
            plain_colour_bar(figure.colorbar(drawing, cax=key, orientation="horizontal"))
    left = panels[0]
    if strip:
        left = figure.add_subplot(grid[1, 0], label="labels")
        left.imshow(drawn.labels, **IMAGE)
        _tidy_image(left)
        _name_labels(figure, fit)
    _name_lines(fit, drawn, panels, left)
    return figure


def _height(drawn):
    rows = len(drawn.mean)
    return float(np.clip(2.7 + 0.01 * rows + 0.07 * min(rows, MAX_NAMED_ROWS), 5.0, 9.0))


def _value_key(axes, fit):
    from matplotlib.patches import Patch

    axes.axis("off")
    low, high = ("zero", "one")
    if isinstance(fit.data, RealMatrix):
        least, most = fit.data.range
        low, high = ("0" if least >= 0 else "0 and less", f"{most:.3g}")
    kinds = [(low, ZERO), (high, ONE)] + [("missing", MISSING)] * bool(fit.data.num_missing)
    patches = [Patch(facecolor=c, edgecolor=EDGE, linewidth=0.5, label=n) for n, c in kinds]
    axes.legend(
        handles=patches, loc="center", ncols=3, frameon=False, fontsize=9, handlelength=1.0,
        handleheight=1.0,
    )  # fmt: skip


def _name_labels(figure, fit):
    from matplotlib.patches import Patch

    colours = label_colours(fit.data.row_labels)
    shown = dict(list(colours.items())[:12])
    patches = [Patch(facecolor=c, label=plain(n)) for n, c in shown.items()]
    if len(colours) > len(shown):
        patches[-1].set_label(f"and {len(colours) - len(shown) + 1} more")
    figure.legend(
        handles=patches,
        loc="outside upper left",
        ncols=min(len(patches), 6),
        frameon=False,
        fontsize=10.5,
        title="Rows at the left edge are coloured by their label:",
        alignment="left",
        title_fontsize=9.5,
    )


def _tidy_image(axes):
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(GRID)


def _name_lines(fit, drawn, panels, left):
    rows, columns = fit.data.shape
    if columns <= MAX_NAMED_COLUMNS and drawn.block[1] == 1:
        names = [plain(fit.data.column_names[j], 30) for j in drawn.columns]
        for axes in panels:
            axes.set_xticks(
                range(len(names)), names, rotation=90, fontsize=8 if columns < 40 else 6
            )
            axes.tick_params(axis="x", length=0, colors=INK)
    else:
        for axes in panels:
            axes.set_xlabel(f"{columns:,} columns", fontsize=9, color=INK)
    if len(drawn.rows) <= MAX_NAMED_ROWS and drawn.block[0] == 1:
        names = [plain(fit.data.row_names[i], 20) for i in drawn.rows]
        left.set_yticks(range(len(names)), names, fontsize=8 if len(names) < 40 else 6)
        left.tick_params(axis="y", length=0, colors=INK)
    else:
        left.set_ylabel(f"{rows:,} rows, ordered by their factors", fontsize=9, color=INK)

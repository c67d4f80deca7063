"""The matrix, its reconstruction and its uncertainty side by side, ordered by the factors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from scipy.special import expit, ndtr

from bmfjax import posterior
from bmfjax.data import RealMatrix
from bmfjax.draws import subset
from bmfjax.report import ordering
from bmfjax.report.style import (
    GRID,
    INK,
    MISSING,
    ONE,
    SPREAD,
    VALUES,
    ZERO,
    label_colours,
    new_figure,
    plain,
    rgb,
)
from bmfjax.report.style import UNKNOWN as UNKNOWN_LABEL

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
    """What the overview draws, pooled to pixels.

    Attributes
    ----------
    rows, columns : int arrays
        Positions drawn, in order.
    block : (int, int)
        Rows and columns averaged in a pixel.
    matrix : (height, width, 3) float
        Colours: zeros, ones and missing, mixed where entries share a pixel.
    mean, sd : (height, width) float
    top : float
        Value of the strongest colour: 1, or of real numbers the largest observed.
    labels : (height, 1, 3) float or None
    num_draws : int
        Draws behind `mean` and `sd`.
    """

    rows: np.ndarray
    columns: np.ndarray
    block: tuple[int, int]
    matrix: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    top: float
    labels: np.ndarray | None
    num_draws: int


def picture(fit) -> Picture:
    """Order, thin where there are more than 10^7 entries, and pool to at most 600 x 540.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    Picture
    """
    order = ordering.order_by_factors(fit)
    columns = order.columns[ordering.spaced(len(order.columns), MAX_COLUMNS)]
    most = max(1, MAX_ENTRIES // len(columns))
    rows = order.rows[ordering.spaced(len(order.rows), most)]
    block = tuple(map(ordering.block_size, (len(rows), len(columns)), MAX_PIXELS))

    values, top = _observed(fit.data, rows, columns)
    share = ordering.pool(np.isnan(values), *block)[..., None]
    matrix = VALUES(np.nan_to_num(ordering.pool(values, *block)) / top)[..., :3]
    matrix = (1 - share) * matrix + share * np.array(rgb(MISSING))

    chains, kept = fit.usage_draws.shape[:2]
    most = max(4, MAX_WORK // (chains * len(rows) * len(columns)))
    some = ordering.spaced(kept, most)
    mean, sd = _moments(fit, rows, columns, some)
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
        return data.dense()[rows][:, columns], max(data.range[1], 1e-30)
    hidden = data.missing()[rows][:, columns].toarray()
    ones = data.ones()[rows][:, columns].toarray()
    return np.where(hidden, np.nan, ones.astype(np.float32)), 1.0


def _moments(fit, rows, columns, some):
    """Mean and spread over some draws of the reconstruction; of log odds, of the probability."""
    if fit.is_signed:
        usage, basis = fit.product_draws(rows, columns)
        link = ndtr if fit.model == "probit" else expit
        return posterior.moments(usage[:, some], basis[:, some], link=link)
    return posterior.moments(
        subset(fit.usage_draws, some, rows), subset(fit.basis_draws, some, columns)
    )


def _label_strip(labels, rows, block):
    if labels is None:
        return None
    colours = label_colours(labels)
    strip = np.array([[rgb(colours[labels[i] or UNKNOWN_LABEL])] for i in rows])
    return ordering.pool(strip, block, 1)


def describe(fit, drawn: Picture) -> str:
    """What a reader must know to read the picture: pooling and thinning, '' where there is none."""
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
    total = fit.num_chains * fit.usage_draws.shape[1]
    if drawn.num_draws < total:
        parts.append(f"Mean and spread come from {drawn.num_draws:,} of the {total:,} kept draws.")
    return " ".join(parts)


def overview_figure(fit, *, width: float = 12.0, drawn: Picture | None = None) -> Figure:
    """The matrix, its reconstruction and its uncertainty, rows and columns in one order.

    Parameters
    ----------
    fit : Fit
    width : float
        Inches.
    drawn : Picture, optional
        From `picture`, where it has been made already.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import bmfjax
    >>> fit = bmfjax.fit(
    ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
    ... )
    >>> [axes.get_label() for axes in overview_figure(fit).axes if axes.images]
    ['matrix', 'reconstruction', 'uncertainty']
    """
    drawn = picture(fit) if drawn is None else drawn
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
        panels[1].imshow(drawn.mean, cmap=VALUES, vmin=0, vmax=drawn.top, **IMAGE),
        panels[2].imshow(drawn.sd, cmap=SPREAD, vmin=0, vmax=top, **IMAGE),
    )
    for panel, key, image, (name, text) in zip(panels, keys, images, PANELS, strict=True):
        panel.set_label(name)
        key.set_title(text, fontsize=11, color=INK, pad=6)
        _tidy_image(panel)
        if name == "matrix":
            _value_key(key, fit)
        else:
            _colour_key(figure, key, image)
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


def _colour_key(figure, axes, image):
    bar = figure.colorbar(image, cax=axes, orientation="horizontal")
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2, colors=INK)


def _value_key(axes, fit):
    axes.axis("off")
    low, high = ("zero", "one")
    if isinstance(fit.data, RealMatrix):
        low, high = ("0 and less", f"{fit.data.range[1]:.3g}")
    kinds = [(low, ZERO), (high, ONE)] + [("missing", MISSING)] * bool(fit.data.num_missing)
    patches = [Patch(facecolor=c, edgecolor="#8d94a3", linewidth=0.5, label=n) for n, c in kinds]
    axes.legend(
        handles=patches, loc="center", ncols=3, frameon=False, fontsize=9, handlelength=1.0,
        handleheight=1.0,
    )  # fmt: skip


def _name_labels(figure, fit):
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

"""The matrix, its reconstruction and its uncertainty side by side, ordered by the factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bmfjax.data import BinaryMatrix, RealMatrix
from bmfjax.data.blocks import spaced
from bmfjax.posterior import products
from bmfjax.posterior.model_check import COUNTS
from bmfjax.posterior.packed import subset
from bmfjax.report import ordering
from bmfjax.report.section import Section, image, section
from bmfjax.report.style import (
    EDGE,
    LABEL_COLOURS,
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
MAX_NAMED_ROWS = 60

PANELS = {
    "matrix": "Observed matrix",
    "reconstruction": "Reconstruction (mean of draws)",
    "uncertainty": "Uncertainty (sd of draws)",
}
#: The second of a fit that has not drawn.
OF_STARTS = "Reconstruction (where chains began)"
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
    low: float  # values of the first and the last colour: 0 and 1, or the largest number observed;
    top: float  # of numbers with negative ones its size either way
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
    panels = panels_of(fit, drawn)
    return section(
        "The matrix, ordered by its factors",
        "Rows with like factors stand together, and so do columns, so that factors become blocks. "
        f"{_beside(panels, shown)}"
        f"{' Colours go by square roots.' if fit._scored == COUNTS else ''}"
        f"{labels if fit.data.row_labels else ''} "
        f"{describe(fit, drawn)}",
        image(
            overview_figure(fit, drawn),
            ", ".join(p.capitalize() for p in panels) + ", ordered by the factors",
        ),
    )


def panels_of(fit, drawn: Picture) -> tuple[str, ...]:
    """Return which of `PANELS` say something.

    Where chains began nothing is uncertain that was drawn; and without a factor there may be no
    reconstruction either.
    """
    if not fit.verdict.is_of_starts:
        return tuple(PANELS)
    return ("matrix", "reconstruction")[: 1 + bool(np.ptp(drawn.mean) > 0)]


def _beside(panels, shown: str) -> str:
    """Say what stands beside the matrix."""
    if len(panels) == len(PANELS):
        return (
            f"The middle panel is the {shown}, averaged over the draws, and the right one its "
            "standard deviation. The three panels share one order."
        )
    if len(panels) == 1:
        return "Where chains began, no factor says anything of it."
    return f"The right panel is the {shown} where chains began. Both share one order."


def of_product(fit, rows, columns, some) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and spread of the product over some draws, (rows, columns) each."""
    chains, kept = fit.usage_draws.shape[:2]
    if fit._is_boolean and len(some) == kept:  # the mean of a bit is its probability, known already
        return products.moments_of_bits(
            fit.probability(rows, columns, positions=True), chains * kept
        )
    return products.moments(
        subset(fit.usage_draws, some, rows), subset(fit.basis_draws, some, columns)
    )


def linked(fit, rows, columns, some, *, link) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and spread of a function of the product, effects included."""
    usage, basis = fit._product_draws(rows, columns)
    return products.moments(usage[:, some], basis[:, some], link=link)


def picture(fit, moments: Callable = of_product) -> Picture:
    """Order, thin where there are more than 10^7 entries, and pool to at most 600 x 540."""
    order = ordering.order_by_factors(fit)
    columns = order.columns[spaced(len(order.columns), MAX_COLUMNS)]
    most = max(1, MAX_ENTRIES // len(columns))
    rows = order.rows[spaced(len(order.rows), most)]
    block = tuple(map(ordering.block_size, (len(rows), len(columns)), MAX_PIXELS))

    values, low, top = _observed(fit.data, rows, columns)
    share = ordering.pool(np.isnan(values), *block)[..., None]
    shown = _norm(fit, low, top)(np.nan_to_num(ordering.pool(values, *block)))
    matrix = colour_scale(_scale_from(low))(shown)[..., :3]
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
        low,
        top,
        _label_strip(fit.data.row_labels, rows, block[0]),
        chains * len(some),
    )


def _observed(data, rows, columns):
    """Return values of some cells, NaN where missing, and those of first and last colour."""
    if isinstance(data, RealMatrix):
        least, most = data.range
        top = max(abs(least), abs(most), 1e-30)
        return data.part(rows, columns).astype(np.float32), -top if least < 0 else 0.0, top
    ones, hidden = data.part(rows, columns)
    return np.where(hidden, np.nan, ones.astype(np.float32)), 0.0, 1.0


def _scale_from(low: float) -> str:
    """Return the colour scale of values, which are on both sides of zero where `low` is below."""
    return "signed" if low < 0 else "values"


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
    panels = panels_of(fit, drawn)
    figure = new_figure(width * max(2, len(panels)) / len(PANELS), panel_height(fit, drawn))
    draw_panels(figure.subplots(1, len(panels), squeeze=False)[0], fit, drawn, panels)
    return figure


def panel_height(fit, drawn: Picture) -> float:
    """Return a height in inches that suits the rows, and the legend of the labels."""
    rows, lines = len(drawn.mean), 0
    if drawn.labels is not None:
        lines = -(-_shown_labels(fit) // 4)
    height = float(np.clip(2.7 + 0.01 * rows + 0.07 * min(rows, MAX_NAMED_ROWS), 5.0, 9.0))
    return height + 0.2 * lines


def draw_panels(panels, fit, drawn: Picture, names=tuple(PANELS)) -> None:
    """Draw panels beside each other; the first has the names of the rows and their labels."""
    for axes, of in zip(panels, names, strict=True):
        _draw(axes, fit, drawn, of, left=axes is panels[0])
    if drawn.labels is not None:
        named = f" ({name})" if (name := _label_name(fit.data)) else ""
        panels[0].figure.legend(
            loc="outside upper left", fontsize=10, title="Rows at the left edge have the colour of "
            f"their label{named}:", title_fontsize=9.5, **_legend(fit, 140),
        )  # fmt: skip


def draw_panel(axes, fit, drawn: Picture, of: str) -> None:
    """Draw one of `PANELS` alone, with names and labels of its own."""
    _draw(axes, fit, drawn, of, left=True)
    if drawn.labels is not None:
        axes.legend(
            loc="upper left", bbox_to_anchor=(1.02, 1.0), fontsize=8.5,
            title=_label_name(fit.data), title_fontsize=8.5, **_legend(fit, 0),
        )  # fmt: skip


def _draw(axes, fit, drawn, of, *, left):
    """Draw a panel, a colour bar above it, and the names of its lines."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.ticker import MaxNLocator

    scale, values, low, top = _scale_from(drawn.low), drawn.mean, drawn.low, drawn.top
    if of == "uncertainty":
        scale, values, low = "spread", drawn.sd, 0.0
        top = max(float(np.nanmax(drawn.sd)), 0.05 * drawn.top)
    norm = _norm(fit, low, top)
    if of == "matrix":
        axes.imshow(drawn.matrix, **IMAGE)
    else:
        axes.imshow(values, cmap=colour_scale(scale), norm=norm, **IMAGE)
    shown, ticks = ScalarMappable(norm, colour_scale(scale)), {}
    if of == "matrix" and not isinstance(fit.data, RealMatrix):
        shown, ticks = _kinds(bool(fit.data.num_missing))
    bar = axes.figure.colorbar(
        shown, ax=axes, location="top", fraction=0.05, pad=0.015, aspect=40, **ticks
    )
    plain_colour_bar(bar)
    if fit._scored == COUNTS and not ticks:  # large ones are close together there
        bar.set_ticks(MaxNLocator(3))
    bar.ax.tick_params(which="both", length=0, pad=1)
    missing = " (yellow: missing)"
    with_note = of == "matrix" and not ticks and fit.data.num_missing
    title = PANELS[of]
    if of == "reconstruction" and fit.verdict.is_of_starts:
        title = OF_STARTS
    bar.ax.set_title(title + missing * bool(with_note), fontsize=10.5, pad=5)
    _tidy_image(axes)
    _name_columns(axes, fit, drawn)
    if left:
        _name_rows(axes, fit, drawn)


def _norm(fit, low: float, top: float):
    """Return where values are between the first colour and the last: of counts, by their roots.

    A few counts may be a hundred times the others, which would all have the first colour.
    """
    from matplotlib.colors import Normalize, PowerNorm

    return PowerNorm(0.5, low, top) if fit._scored == COUNTS else Normalize(low, top)


def _kinds(missing: bool):
    """Return colours of zeros, ones and missing entries for a bar, and the names on it."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap

    names = ["zero", "one"] + ["missing"] * missing
    colours = ListedColormap([ZERO, ONE, MISSING][: len(names)])
    norm = BoundaryNorm(np.arange(len(names) + 1) - 0.5, len(names))
    ticks = {"ticks": range(len(names)), "format": lambda place, _: names[int(place)]}
    return ScalarMappable(norm, colours), ticks


def _label_name(data) -> str:
    """Return the names of the columns that label the rows; "" where there are none."""
    return " / ".join(map(plain, data.reading.labels))


def _shown_labels(fit) -> int:
    """Return how many lines a legend has: labels of a colour, and one for the others."""
    return min(len(label_colours(fit.data.row_labels)), len(LABEL_COLOURS) + 1)


def _legend(fit, letters: int) -> dict:
    """Return the handles of a legend, in as many columns as so many letters fill."""
    from matplotlib.patches import Patch

    colours = label_colours(fit.data.row_labels)
    number = _shown_labels(fit)
    patches = [Patch(facecolor=c, label=plain(n)) for n, c in list(colours.items())[:number]]
    if len(colours) > number:
        patches[-1].set_label(f"and {len(colours) - number + 1} more")
    longest = max(len(patch.get_label()) for patch in patches)
    columns = min(len(patches), max(1, letters // (longest + 6)))
    return {"handles": patches, "ncols": columns, "frameon": False, "alignment": "left"}


def _tidy_image(axes):
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(EDGE)


def _name_columns(axes, fit, drawn):
    total = fit.data.num_columns
    names = [plain(fit.data.column_names[j], 30) for j in drawn.columns]
    first = ordering.specificity(fit._basis, fit._usage)[drawn.columns].max(1)
    width = axes.get_window_extent().width / axes.figure.dpi * 72
    shown, size = _fitting(first, width, fit.data.has_column_names)
    axes.set_xticks(
        (shown + 0.5) / drawn.block[1] - 0.5, [names[k] for k in shown], rotation=90, fontsize=size
    )
    axes.tick_params(axis="x", length=2 * (len(shown) < len(names)), pad=2)
    if len(shown) < total:
        named = ", the most specific with names" * bool(len(shown))
        axes.set_xlabel(f"{total:,} columns{named}", fontsize=9)


def _name_rows(axes, fit, drawn):
    total = fit.data.num_rows
    names = [plain(fit.data.row_names[i], 24) for i in drawn.rows]
    first = ordering.specificity(fit._usage, fit._basis)[drawn.rows].max(1)
    height = axes.get_window_extent().height / axes.figure.dpi * 72
    shown, size = _fitting(first, height, fit.data.has_row_names)
    if drawn.labels is not None:
        strip = axes.inset_axes((-0.05, 0, 0.035, 1), label="labels")
        strip.imshow(drawn.labels, **IMAGE)
        _tidy_image(strip)
        axes = strip
    axes.set_yticks((shown + 0.5) / drawn.block[0] - 0.5, [names[k] for k in shown], fontsize=size)
    axes.tick_params(axis="y", length=2 * (len(shown) < len(names)), pad=2)
    if len(shown) < total:
        axes.set_ylabel(f"{total:,} rows, ordered by their factors", fontsize=9)


def _fitting(first, points: float, named: bool) -> tuple[np.ndarray, float]:
    """Return which of some lines are named so that no names overlap, and the size of letters.

    `first` (line,) says which lines come first where the room, in points, is too small for all.
    """
    number = len(first)
    for size in (8.0, 7.0, 6.0):
        if number * 1.2 * size <= points:
            return np.arange(number), size
    if not named:
        return np.arange(0), 7.0
    spacing, chosen = 1.35 * 7.0 * number / points, []
    for line in np.argsort(-first, kind="stable"):
        if all(abs(line - other) >= spacing for other in chosen):
            chosen.append(line)
    return np.sort(np.array(chosen, int)), 7.0

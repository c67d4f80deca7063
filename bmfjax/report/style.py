"""Colours and small helpers that all figures share."""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from scipy.spatial import cKDTree

from bmfjax.diagnostics.libraries import imported

if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

#: Steps of a colour scale: an eye sees no more, and the images stay small.
LEVELS = 64
INK, GRID, EDGE = "#1d2433", "#d9dde5", "#8d94a3"
GOOD, DOUBTFUL = "#2a9d78", "#d1495b"
ZERO, ONE, MISSING = "#f4f5f8", "#26365e", "#f3c45a"
SCALES = {
    "values": (ZERO, "#8a9cc4", ONE),
    "spread": ("#f7f5f9", "#d8b5d6", "#a4549b", "#4f1457"),
    "signed": ("#8f2335", "#d1495b", ZERO, "#2f7fc1", "#1b4a78"),
}
#: Colours of labels and chains (Okabe and Ito), distinct to most colour-blind eyes.
COLOURS = ("#2f7fc1", "#d1495b", "#2a9d78", "#e29b31", "#8a63b5", "#59b9d6", "#7d5a44", "#c978a8")
OTHER = "#b4b9c4"
UNKNOWN = "unknown"
DASHED = {"linewidth": 1.2, "linestyle": (0, (4, 3))}


@contextlib.contextmanager
def default_parameters() -> Iterator[None]:
    """Make and draw figures by matplotlib's own parameters, whatever those of the user are.

    Where they ask for LaTeX, names of rows and columns would be its commands.
    """
    matplotlib = imported("matplotlib")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        yield


@functools.cache
def colour_scale(name: str) -> Colormap:
    """Return one of `SCALES`."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(f"bmfjax-{name}", SCALES[name], N=LEVELS)


def label_colours(labels) -> dict[str, str]:
    """Give each label a colour, in alphabetical order; rare ones beyond eight share grey."""
    counts = Counter(label or UNKNOWN for label in labels)
    named = [n for n, _ in counts.most_common() if n != UNKNOWN]
    coloured = dict(zip(sorted(named[: len(COLOURS)]), COLOURS, strict=False))
    return coloured | {n: OTHER for n in sorted(set(counts) - set(coloured))}


def plain(text, most: int = 28) -> str:
    """Shorten a name for a figure: one line, and no formula between dollar signs."""
    text = re.sub(r"\s+", " ", str(text)).strip()
    text = text if len(text) <= most else text[: most - 1].rstrip() + "…"
    # Matplotlib leaves a legend entry out if it starts with an underscore.
    return (" " + text if text.startswith("_") else text).replace("$", r"\$")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure in inches, outside of pyplot and thus without global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes, grid: str | None = None) -> None:
    """Remove the frame above and to the right, and draw pale grid lines."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(EDGE)
    axes.tick_params(colors=INK, labelsize=9)
    if grid:
        axes.grid(True, axis=grid, color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)


def heading(axes, text: str) -> None:
    """Set a title at the left, as in the page's text."""
    axes.set_title(text, loc="left", fontsize=10.5, color=INK)


def axis_label(axes, x: str | None = None, y: str | None = None) -> None:
    """Name the axes."""
    for text, name in ((x, axes.set_xlabel), (y, axes.set_ylabel)):
        if text:
            name(text, fontsize=9.5, color=INK)


def plain_colour_bar(bar, label: str | None = None, size: float = 9.5) -> None:
    """Remove the frame of a colour bar, and name it."""
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2, colors=INK)
    if label:
        bar.set_label(label, fontsize=size, color=INK)


def rgb(colour: str) -> tuple[float, ...]:
    """Red, green and blue of a colour such as "#1d2433", 0 to 1."""
    return tuple(byte / 255 for byte in bytes.fromhex(colour[1:]))


@default_parameters()
def png(figure: Figure, dpi: int = 130) -> bytes:
    """Return a figure as PNG of at most 256 colours, half the size of all colours."""
    with warnings.catch_warnings():
        # A name in a script that the font lacks shows boxes; that is no fault of the reader.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.set_dpi(dpi)
        figure.canvas.draw()
    buffer = io.BytesIO()
    image = _few_colours(np.asarray(figure.canvas.buffer_rgba())[..., :3])
    # Higher levels take far longer, for images that are hardly smaller.
    image.save(buffer, format="png", compress_level=6)
    return buffer.getvalue()


def _few_colours(pixels) -> Image.Image:
    """Keep the 256 most frequent colours, which hold every step of a colour scale exactly.

    Pillow's own choices of a palette merge the steps that few pixels have, and those are the
    ends of the scales.
    """
    image = Image.fromarray(np.ascontiguousarray(pixels))
    counted = image.getcolors(image.width * image.height)
    counts, colours = (np.array(column) for column in zip(*sorted(counted), strict=True))
    by_number = _packed(colours)
    order = np.lexsort((by_number, -counts))
    palette = colours[order[:256]].astype(np.uint8)
    # From every number of a colour to its place: to search among all pixels takes far longer.
    place = np.zeros(1 << 24, np.uint8)
    place[by_number] = cKDTree(palette).query(colours)[1]
    image = Image.fromarray(place[_packed(pixels)])
    image.putpalette(palette.tobytes())
    return image


def _packed(colours):
    """Return the 24 bits of colours (..., 3) as numbers."""
    return colours.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)


def data_uri(figure: Figure, dpi: int = 130) -> str:
    """Return a figure as the source of an image that needs no file."""
    return "data:image/png;base64," + base64.b64encode(png(figure, dpi)).decode("ascii")

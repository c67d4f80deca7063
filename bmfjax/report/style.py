"""Colours and small helpers that all figures share."""

from __future__ import annotations

import base64
import contextlib
import functools
import html
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
#: Colours that follow a dark page, by the variable of `page.css` that takes their place.
INK, GRID, SHADE, PAPER = "#1d2433", "#d9dde5", "#eceef3", "#ffffff"
#: The shade on a dark ground, as of a style sheet of the user.
DARK_SHADE = "#333a48"
THEMED = {INK: "ink", "#000000": "ink", GRID: "line", SHADE: "shade", PAPER: "page"}
EDGE = "#8d94a3"
#: Text on the colours of a scale, which is the same on any page.
ON_PALE, ON_DARK = "#1c2332", "#fefefe"
ZERO, ONE, MISSING = "#f4f5f8", "#26365e", "#f3c45a"
SCALES = {
    "values": (ZERO, "#8a9cc4", ONE),
    "spread": ("#f7f5f9", "#d8b5d6", "#a4549b", "#4f1457"),
    "signed": ("#8f2335", "#d1495b", ZERO, "#2f7fc1", "#1b4a78"),
}
#: Colours of chains: distinct to colour-blind eyes, on white and on dark pages. The first three
#: are those of Okabe and Ito; the others were searched for.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#782dff", "#78a5c3", "#d2003c", "#8778ff", "#785a78")
GOOD, DOUBTFUL = COLOURS[2], COLOURS[1]
#: Colours of labels, found in the same way from six of Okabe and Ito.
LABEL_COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7800ff", "#002d2d",
    "#96f096", "#2d0f96", "#692d00", "#8769ff", "#3c0f5a", "#f0d2d2", "#e11e4b", "#873c69",
    "#69f05a", "#87e1ff", "#8796ff", "#2dc378",
)  # fmt: skip
OTHER = "#b4b9c4"
UNKNOWN = "unknown"
DASHED = {"linewidth": 1.2, "linestyle": (0, (4, 3))}
#: Vertices from which on a line or a cloud of points is stored as pixels: their list would be long.
DENSE = 1500
#: Colours of text and axes on a page. Other figures have those that the user set.
ON_PAGE = {
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "svg.fonttype": "none",
    "svg.hashsalt": "bmfjax",
}


@contextlib.contextmanager
def default_parameters() -> Iterator[None]:
    """Make and draw figures by matplotlib's own parameters, whatever those of the user are.

    Where they ask for LaTeX, names of rows and columns would be its commands.
    """
    matplotlib = imported("matplotlib")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(ON_PAGE)
        yield


@functools.cache
def colour_scale(name: str) -> Colormap:
    """Return one of `SCALES`."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(f"bmfjax-{name}", SCALES[name], N=LEVELS)


def label_colours(labels) -> dict[str, str]:
    """Give each label a colour, in alphabetical order; rare ones beyond twenty share grey."""
    counts = Counter(label or UNKNOWN for label in labels)
    named = [n for n, _ in counts.most_common() if n != UNKNOWN]
    coloured = dict(zip(sorted(named[: len(LABEL_COLOURS)]), LABEL_COLOURS, strict=False))
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
    axes.tick_params(labelsize=9)
    if grid:
        axes.grid(True, axis=grid, color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)


def heading(axes, text: str) -> None:
    """Set a title at the left, as in the page's text."""
    axes.set_title(text, loc="left", fontsize=10.5)


def axis_label(axes, x: str | None = None, y: str | None = None) -> None:
    """Name the axes."""
    for text, name in ((x, axes.set_xlabel), (y, axes.set_ylabel)):
        if text:
            name(text, fontsize=9.5)


def plain_colour_bar(bar, label: str | None = None, size: float = 9.5) -> None:
    """Remove the frame of a colour bar, and name it."""
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2)
    if label:
        bar.set_label(label, fontsize=size)


def rgb(colour: str) -> tuple[float, ...]:
    """Return red, green and blue of a colour such as "#1d2433", 0 to 1."""
    return tuple(byte / 255 for byte in bytes.fromhex(colour[1:]))


@contextlib.contextmanager
def _drawing() -> Iterator[None]:
    """Draw by the page's parameters, and without warnings of letters that a font lacks."""
    with default_parameters(), warnings.catch_warnings():
        # A name in a script that the font lacks shows boxes; that is no fault of the reader.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def png(figure: Figure, dpi: int = 130) -> bytes:
    """Return a figure as PNG of at most 256 colours, half the size of all colours."""
    with _drawing():
        figure.set_dpi(dpi)
        figure.canvas.draw()
    return _png_of(_few_colours(np.asarray(figure.canvas.buffer_rgba())[..., :3]))


def _png_of(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    # Higher levels take far longer, for images that are hardly smaller.
    image.save(buffer, format="png", compress_level=6)
    return buffer.getvalue()


@default_parameters()
def prepare() -> None:
    """Draw a small figure: the first one of a process takes longer than those after it."""
    figure = new_figure(2.0, 2.0)
    axes = figure.subplots()
    axes.plot([0.0, 1.0], label="line")
    axes.legend()
    heading(axes, "figure")
    tidy(axes, "y")
    svg(figure)


def svg(figure: Figure, dpi: int = 150) -> str:
    """Return a figure as SVG: text stays text, and what has many points or cells is an image."""
    for artist in figure.findobj(lambda one: _points(one) > DENSE):
        artist.set_rasterized(True)
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with _drawing():
        # Before saving, which would draw everything once for the layout alone.
        if (layout := figure.get_layout_engine()) is not None:
            layout.execute(figure)
            figure.set_layout_engine(None)  # "none" would be one, too
        figure.savefig(buffer, format="svg", dpi=dpi, metadata=nothing)
    text = buffer.getvalue()
    text = _IMAGE.sub(_smaller, text[text.index("<svg") :])
    # A tenth of a point is below what a screen shows, and one font is enough.
    text = _FONT.sub("", text).replace("<svg", f'<svg style="{_FAMILY}"', 1)
    text = _PLACES.sub(lambda found: _DECIMALS.sub(r"\1", found[0]), text)
    return re.sub(r"\s*\n\s*", " ", text)


def _points(artist) -> int:
    """Return how many vertices a line has, or how many shapes a collection draws."""
    if hasattr(artist, "get_xdata"):
        return len(artist.get_xdata())
    return len(artist.get_offsets()) if hasattr(artist, "get_offsets") else 0


_PLACES = re.compile(r' (?:d|x|y|transform)="(?:[^"(]|rotate\()*"')
_DECIMALS = re.compile(r"(\.\d)\d+")
_FONT = re.compile(r' font-family: [^;"]*;?')
_FAMILY = "font-family: 'DejaVu Sans', Verdana, sans-serif"
_IMAGE = re.compile(r"data:image/png;base64,\s*([A-Za-z0-9+/=\s]+)")


def _smaller(found) -> str:
    """Store an image that hides what is below it by few colours."""
    stored = base64.b64decode(found[1])
    pixels = np.asarray(Image.open(io.BytesIO(stored)).convert("RGBA"))
    if (pixels[..., 3] == 255).all():
        stored = _png_of(_few_colours(pixels[..., :3]))
    return "data:image/png;base64," + base64.b64encode(stored).decode("ascii")


def inline(drawn: str, alt: str) -> str:
    """Return an SVG for a page: its colours follow the page, and it needs no name spaces."""
    head, _, body = drawn.partition(">")
    head = re.sub(r'\s(xmlns(:xlink)?|version)="[^"]*"', "", head)
    body = re.sub(r"<!--.*?-->\s*|<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", body, flags=re.S)
    # Pictures of a page may not share the names of their parts.
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    for colour, name in THEMED.items():
        body = re.sub(f"(?<=[:;] ){colour}\\b", f"var(--{name})", body)
    label = html.escape(alt, quote=True)
    return f'{head} role="img" aria-label="{label}">{body}'


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


def data_uri(drawn: str) -> str:
    """Return an SVG as an address that needs no file."""
    return "data:image/svg+xml;base64," + base64.b64encode(drawn.encode()).decode("ascii")

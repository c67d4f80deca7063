"""Draw the pictures of "Reading the report": each figure of a good fit beside those of bad ones.

``python docs/pictures.py [NAME ...]`` fits small matrices and writes ``docs/pictures/NAME.png``.
For ``house-votes`` it writes ``docs/house-votes.svg``.
"""

import functools
import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import bmfjax
from bmfjax.report import checks, factors, number, overview, plots, ratings, style

FOLDER = Path(__file__).parent / "pictures"
DPI = 72
INK = (29, 36, 51)


def image(figure) -> Image.Image:
    """Return a figure as an image."""
    return Image.open(io.BytesIO(style.png(figure, DPI))).convert("RGB")


def under(text: str, picture: Image.Image) -> Image.Image:
    """Return a picture with a line of text above it."""
    page = Image.new("RGB", (picture.width, picture.height + 26), "white")
    page.paste(picture, (0, 26))
    ImageDraw.Draw(page).text((6, 4), text, fill=INK, font=ImageFont.load_default(15))
    return page


def write(name: str, good, *bad, beside: bool = False) -> None:
    """Write figures with few colours, the good one first."""
    pictures = [under("good", image(good)), *(under("bad", image(figure)) for figure in bad)]
    width, height = (max(sizes) for sizes in zip(*(p.size for p in pictures), strict=True))
    size = (sum(p.width for p in pictures), height)
    if not beside:
        size = (width, sum(p.height for p in pictures))
    page, at = Image.new("RGB", size, "white"), 0
    for picture in pictures:
        page.paste(picture, (at, 0) if beside else (0, at))
        at += picture.width if beside else picture.height
    FOLDER.mkdir(exist_ok=True)
    page.quantize(128, dither=Image.Dither.NONE).save(FOLDER / f"{name}.png", optimize=True)


def stars(noise: float, precision: float | None):
    """Return a fit of simulated ratings; a precision that is given may be wrong."""
    rng = np.random.default_rng(0)
    taste = 3.5 + rng.normal(size=(60, 2)) @ rng.normal(size=(2, 40))
    values = taste + rng.normal(0, noise, taste.shape)
    values[rng.random(taste.shape) > 0.5] = np.nan
    return bmfjax.fit(values, bmfjax.PMF(2, precision=precision), seed=0, progress=False)


def spectra():
    """Return a fit of nonnegative factors that the data determine."""
    rng = np.random.default_rng(0)
    values = rng.gamma(0.5, size=(60, 3)) @ rng.gamma(0.5, size=(3, 30))
    values += rng.normal(0, 0.05, values.shape)
    return bmfjax.fit(values, rank=3, model="nmf", seed=0, progress=False)


@functools.cache
def votes():
    """Return a good fit of the votes, and a bad one."""
    good = bmfjax.fit("house-votes", bmfjax.OrMachine(4), seed=0, progress=False)
    bad = bmfjax.fit(
        "house-votes", rank=6, num_warmup=50, num_samples=100, seed=0, progress=False,
        sampler=bmfjax.Gibbs(update="gibbs"),
    )  # fmt: skip
    return good, bad


@functools.cache
def tiles(flips: float = 0.08, missing: float = 0.03):
    """Return a matrix of four tiles, of which two overlap, with flips and missing entries."""
    rng = np.random.default_rng(1)
    values = np.zeros((90, 64), bool)
    for rows, columns in (
        (slice(0, 38), slice(0, 22)),
        (slice(27, 56), slice(14, 34)),
        (slice(54, 74), slice(34, 50)),
        (slice(72, 90), slice(48, 64)),
    ):
        values[rows, columns] = True
    values ^= rng.random(values.shape) < flips
    values = np.where(rng.random(values.shape) < missing, np.nan, values)
    return values[rng.permutation(90)][:, rng.permutation(64)]


def matrices():
    """Draw the matrix of a good fit, of one with too few factors, and of one with little data."""
    fits = [bmfjax.fit(tiles(), bmfjax.OrMachine(r), seed=0, progress=False) for r in (4, 2)]
    little = bmfjax.fit(
        tiles(flips=0.3, missing=0.75), rank=4, num_warmup=300, num_samples=300, seed=0,
        progress=False, sampler=bmfjax.Gibbs(update="gibbs"),
    )  # fmt: skip
    fits.append(little)
    figures = [overview.overview_figure(fit, overview.picture(fit), width=9.0) for fit in fits]
    for figure in figures:
        figure.set_size_inches(9.0, 4.6)
    return figures


def first_page():
    """Draw the matrix of the first page: what `bmfjax fit` makes without arguments."""
    fit = bmfjax.fit("house-votes", rank=4, progress=False)
    return fit.plot.matrix()[0].figure


def numbers():
    """Draw the number of factors from chains that agree, and from chains that are too short."""
    short, model = {"num_warmup": 10, "num_samples": 25}, bmfjax.OrMachine("auto", max_rank=7)
    fits = [bmfjax.fit("davis", model, seed=0, progress=False, **length) for length in ({}, short)]
    return [number.number_figure(fit) for fit in fits]


def bounds():
    """Draw the bound of an optimisation that has settled, and of one that was cut off."""
    rng = np.random.default_rng(0)
    likes = rng.random((60, 5)) @ rng.random((5, 40)) > 1.6
    drawn = []
    for steps in ({}, {"num_warmup": 80}):
        fit = bmfjax.fit(likes, rank=3, model="logistic", seed=0, progress=False, **steps)
        drawn.append(plots.trace_figure(fit, "start", "optimisation"))
    return drawn


def moments():
    """Draw means and standard deviations of relaxed fits with as many and with spare factors."""
    fits = [
        bmfjax.fit(tiles(), rank=rank, model="relaxed", seed=0, progress=False) for rank in (4, 8)
    ]
    return [plots.mean_sd_figure(fit) for fit in fits]


def _of_votes(draw):
    return lambda: [draw(fit) for fit in votes()]


#: The picture of the first page, in SVG.
FIRST = "house-votes"
#: Figures of a good and of a bad fit, and whether they stand beside each other.
PICTURES = {
    "matrix": (matrices, False),
    "number": (numbers, True),
    "bound": (bounds, False),
    "moments": (moments, False),
    "traces": (_of_votes(plots.trace_figure), False),
    "rhat": (_of_votes(checks.convergence_figure), False),
    "agreement": (_of_votes(checks.agreement_figure), False),
    "basis": (_of_votes(lambda fit: factors.basis_figure(fit, factors.UNIT)), True),
    "spread": (
        lambda: [checks.spread_figure(fit.spread) for fit in (spectra(), votes()[1])],
        False,
    ),
    "calibration": (
        lambda: [ratings.curve_figure(ratings.of_intervals(stars(0.5, p))) for p in (None, 40.0)],
        True,
    ),
}


@style.default_parameters()
def main(names) -> None:
    """Draw the pictures that are named, or all."""
    if not names or FIRST in names:
        (Path(__file__).parent / f"{FIRST}.svg").write_text(style.svg(first_page()))
    for name in [name for name in names if name != FIRST] if names else PICTURES:
        draw, beside = PICTURES[name]
        write(name, *draw(), beside=beside)


if __name__ == "__main__":
    main(sys.argv[1:])

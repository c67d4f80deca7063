"""Draw the pictures of the guide: of records, of schemes, and of small fits.

``python docs/pictures.py [NAME ...]`` writes ``docs/pictures/NAME.png`` where a figure of a good
fit stands beside those of bad ones, and ``docs/pictures/NAME.svg`` otherwise. For ``house-votes``
it writes ``docs/house-votes.svg``.
"""

import base64
import functools
import html
import io
import json
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from matplotlib.patches import Patch, Rectangle
from numpyro.infer import MCMC, NUTS
from PIL import Image, ImageDraw, ImageFont

import bmfjax
from bmfjax.optimize import best_reconstruction
from bmfjax.report import checks, factors, number, overview, plots, ratings, style

FOLDER = Path(__file__).parent / "pictures"
ROOT = Path(__file__).parents[1]
DPI = 72
INK = (29, 36, 51)
BLUE, ORANGE, GREEN = style.COLOURS[:3]


# ---- good and bad figures of the report ----------------------------------------------------


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
    """Write figures, the good one first."""
    pictures = [under("good", image(good)), *(under("bad", image(figure)) for figure in bad)]
    width, height = (max(sizes) for sizes in zip(*(p.size for p in pictures), strict=True))
    size = (sum(p.width for p in pictures), height)
    if not beside:
        size = (width, sum(p.height for p in pictures))
    page, at = Image.new("RGB", size, "white"), 0
    for picture in pictures:
        page.paste(picture, (at, 0) if beside else (0, at))
        at += picture.width if beside else picture.height
    store(page, name)


def store(page: Image.Image, name: str) -> None:
    """Write a picture with few colours."""
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


@functools.cache
def default_votes():
    """Return the fit of the first page: what `bmfjax fit` makes without arguments."""
    return bmfjax.fit("house-votes", rank=4, progress=False)


def first_page():
    """Draw the matrix of the first page."""
    return default_votes().plot.matrix()[0].figure


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


def log_joint(fit):
    """Draw the first of the traces."""
    figure = style.new_figure(10, 2.6)
    plots.draw_traces([figure.add_subplot()], fit, ["log_joint"])
    return figure


def _of_votes(draw):
    return lambda: [draw(fit) for fit in votes()]


# ---- pictures of records -------------------------------------------------------------------


def record(name: str):
    """Return the figures of a record of the benchmarks."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())["figures"]


def real_sets() -> list[dict]:
    """Return the cells of each set of the panel but the product that was planted."""
    return [of for name, of in record("panel")["sets"].items() if name != "product"]


def panel():
    """Draw what models gain over latent classes against their processor seconds."""
    found = {}
    for of in real_sets():
        for model, cell in of.items():
            started = "the warm-up was cut short" in cell.get("verdict", "")
            # Column means are far below.
            if "auc" in cell and not started and model != "column means":
                gain = cell["log_score"] - of["latent classes"]["log_score"]
                found.setdefault(model, []).append((cell["cpu_seconds"], gain, "verdict" in cell))
    figure = style.new_figure(8.0, 4.6)
    axes = figure.add_subplot()
    axes.axhline(0, color=style.EDGE, **style.DASHED)
    axes.set_xscale("log")
    marks = {False: (ORANGE, "s", "others"), True: (BLUE, "o", "bmfjax")}
    points = {}
    for model, cells in found.items():
        seconds, gains, ours = map(list, zip(*cells, strict=True))
        colour, marker, _ = marks[ours[0]]
        place = max(np.median(seconds), 0.1), np.mean(gains)
        axes.scatter(*place, color=colour, marker=marker, s=42, zorder=3)
        points[f"{SHORT.get(model, model)} ({len(cells)})"] = place
    for colour, marker, name in marks.values():
        axes.scatter([], [], color=colour, marker=marker, label=name)
    axes.set_xlim(0.07, 400)
    axes.set_xticks([0.1, 1, 10, 100], ["0.1 or less", "1", "10", "100"])
    style.axis_label(axes, "processor seconds of a matrix, median (log scale)")
    style.axis_label(axes, y="mean gain in log score over latent classes (nats)")
    style.tidy(axes, "both")
    axes.legend(loc="lower left", fontsize=9)
    named_points(axes, points, line=0.0)
    return figure


def named_points(axes, points: dict, line: float) -> None:
    """Write names beside points, where no other name, point or the level `line` is, if possible."""
    axes.figure.canvas.draw()
    at = axes.transData.transform(list(points.values())) * 72 / axes.figure.dpi
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in at]
    level = axes.transData.transform((1, line))[1] * 72 / axes.figure.dpi
    taken.append((-np.inf, level - 1, np.inf, level + 1))
    for (x, y), (name, place) in zip(at, points.items(), strict=True):
        width = 4.6 * len(name)
        tries = []
        for dx, side in ((6, "left"), (-6, "right")):
            for dy in (0, -7, 7, -13, 13):
                left = x + dx - width * (side == "right")
                box = (left, y + dy - 4, left + width, y + dy + 4)
                meets = sum(
                    box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3]
                    for b in taken
                )
                tries.append((meets, len(tries), dx, dy, side, box))
        _, _, dx, dy, side, box = min(tries)
        taken.append(box)
        axes.annotate(
            name, place, (dx, dy), textcoords="offset points", fontsize=8, ha=side, va="center"
        )


#: Names of models of the panel, where readers would not know the short one.
SHORT = {
    "logistic": "logistic, tuned", "nmf": "NMF, tuned", "bmfjax nmf": "nmf", "bmfjax pmf": "pmf",
    "NumPyro Gibbs, Boolean product": "NumPyro, Boolean",
    "NumPyro NUTS, logistic": "NumPyro, logistic",
}  # fmt: skip


def panel_calibration():
    """Draw observed against stated probabilities of hidden entries, of matrices together."""
    found = {}
    for of in real_sets():
        for model, cell in of.items():
            if "calibration" in cell and "warm-up was cut short" not in cell.get("verdict", ""):
                bins = cell["calibration"]
                number = np.array(bins["number"])
                sums = np.array([number, number * bins["stated"], bins["ones"]], float)
                ours, before, times = found.get(model, (False, 0.0, 0))
                found[model] = "verdict" in cell or ours, before + sums, times + 1
    # Bins of one or two matrices are few.
    shown = {m: of for m, of in found.items() if m != "column means" and of[2] >= 3}
    names = sorted(shown, key=lambda m: (not shown[m][0], -shown[m][2]))
    wide = 5
    high = -(-len(names) // wide)
    figure = style.new_figure(9.4, 2.1 * high + 0.3)
    for axes in (grid := figure.subplots(high, wide, sharex=True, sharey=True, squeeze=False)).flat:
        axes.set_visible(False)
    for axes, model in zip(grid.flat, names, strict=False):
        axes.set_visible(True)
        ours, (number, stated, ones), times = shown[model]
        some = number >= 20
        number, stated, ones = number[some], (stated / np.maximum(number, 1))[some], ones[some]
        share = ones / number
        error = 2 * np.sqrt(np.maximum(share * (1 - share), 1 / number) / number)
        colour, marker = (BLUE, "o") if ours else (ORANGE, "s")
        axes.plot([0, 1], [0, 1], color=style.EDGE, **style.DASHED)
        # All bars are one path, for fewer bytes.
        bars = np.stack([share - error, share + error, np.full(len(share), np.nan)], 1)
        axes.plot(
            np.repeat(stated, 3), bars.ravel(), color=colour, linewidth=1, solid_capstyle="butt"
        )
        size = 8 + 60 * np.sqrt(number / number.max())
        axes.scatter(stated, share, s=size, color=colour, marker=marker, zorder=3)
        axes.set_title(f"{SHORT.get(model, model)} ({times})", loc="left", fontsize=8.5)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xticks([0, 0.5, 1])
        axes.set_yticks([0, 0.5, 1])
        style.tidy(axes)
        axes.tick_params(labelbottom=True, labelsize=8)
    figure.supxlabel("stated probability of a one", fontsize=9.5)
    figure.supylabel("observed share of ones", fontsize=9.5)
    return figure


def sizes():
    """Draw the time of a sweep and the memory of a process against the rows."""
    found = {}
    for name, of in record("scaling")["sizes"].items():
        rows, columns, rank = map(int, name.split("x"))
        found.setdefault((columns, rank), []).append((rows, of))
    figure = style.new_figure(9.0, 3.5)
    time, memory = figure.subplots(1, 2)
    for (columns, rank), lines in found.items():
        look = {
            "color": BLUE if columns == 1000 else ORANGE,
            "linestyle": "-" if rank == 10 else "--",
            "marker": "o", "markersize": 4,
        }  # fmt: skip
        rows = [one for one, _ in lines]
        label = f"{columns:,} columns, rank {rank}"
        time.loglog(rows, [of["fastest_ms_a_sweep"] / 1e3 for _, of in lines], **look, label=label)
        memory.semilogx(rows, [of["peak_bytes"] / 1e9 for _, of in lines], **look)
    memory.set_ylim(0)
    style.heading(time, "Seconds of a sweep of one chain, on one core")
    style.heading(memory, "Peak memory of the process, GB")
    for axes in (time, memory):
        style.axis_label(axes, "rows")
        style.tidy(axes, "both")
    time.legend(fontsize=8.5)
    return figure


def devices():
    """Draw sweeps on two CPU cores beside those on one GPU."""
    gpu, large = record("accelerator_h200"), record("ormachine_speed")["sizes"]
    cpu = gpu["on cpu"]
    votes, nmf, stars, features = (
        "votes, rank 8, four temperatures", "nmf, 2,000 x 1,000, rank 10",
        "ratings, 943 x 1,682, 100,000 stars, rank 32", "features, 1,000 x 200, rank 16",
    )  # fmt: skip
    shown = {
        "Boolean,\n100,000 x 1,000, rank 20": (
            large["100000x1000, rank 20"]["updates"]["metropolis"],
            gpu["large boolean"]["100,000 x 1,000, rank 20"],
        ),
        "nmf,\n2,000 x 1,000, rank 10": (cpu[nmf], gpu["nonnegative"][nmf]),
        "ratings,\n100,000 stars, rank 32": (cpu[stars], gpu["ratings"][stars]),
        "binary features,\n1,000 x 200, rank 16": (cpu[features], gpu["features"][features]),
        "votes, rank 8,\nfour temperatures": (cpu[votes], gpu["votes"][votes]),
    }
    figure = style.new_figure(8.0, 4.0)
    axes, at = figure.add_subplot(), range(len(shown))
    both = np.array([[one["sweep_ms"] for one in pair] for pair in shown.values()])
    axes.hlines(at, both[:, 1], both[:, 0], color=style.EDGE)
    for values, label, colour in zip(
        both.T, ("two CPU cores", "H200"), (ORANGE, BLUE), strict=True
    ):
        axes.scatter(values, at, color=colour, s=60, label=label, zorder=3)
        for value, place in zip(values, at, strict=True):
            axes.text(value, place - 0.14, f"{value:.3g}", ha="center", va="bottom", fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(0.3, 1500)
    axes.set_yticks(at, shown)
    axes.set_ylim(len(shown) - 0.6, -0.7)
    style.axis_label(axes, "milliseconds of a sweep")
    style.tidy(axes, "x")
    axes.legend(fontsize=9)
    return figure


def phases():
    """Draw what a first and a later run of the votes take beside their sampling."""
    runs = record("first_answer")["cases"]["house-votes"]
    words = {
        "import": "import", "compile": "compile", "start": "starts", "after": "verdict and report",
    }  # fmt: skip
    figure = style.new_figure(8.0, 1.9)
    axes = figure.add_subplot()
    for k, run in enumerate(("cold", "warm")):
        left = 0.0
        for (phase, word), colour in zip(words.items(), style.COLOURS, strict=False):
            seconds = runs[run]["phases"][phase]["cpu"]
            axes.barh(k, seconds, 0.6, left, color=colour, label=word if k == 0 else None)
            left += seconds
        axes.text(left, k, f" {left:.1f} s", va="center", fontsize=9)
    axes.margins(x=0.1)
    axes.set_yticks([0, 1], ["first run", "later runs"])
    axes.invert_yaxis()
    style.axis_label(axes, "processor seconds beside sampling")
    style.tidy(axes, "x")
    figure.legend(loc="outside upper center", ncols=4, fontsize=9, frameon=False)
    return figure


def sheet():
    """Return a picture of each notebook that has one, small, with the name of its page."""
    wide, high, gap, line = 236, 150, 8, 22
    found = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        outputs = [o for c in json.loads(path.read_text())["cells"] for o in c.get("outputs", [])]
        stored = [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]
        images = [Image.open(io.BytesIO(base64.b64decode("".join(one)))) for one in stored]
        if images:  # the one that fills its place best
            found[path.stem] = min(
                images, key=lambda one: abs(np.log(one.width / one.height * high / wide))
            )
    rows = -(-len(found) // 3)
    page = Image.new("RGB", (3 * (wide + gap), rows * (high + line + gap)), "white")
    draw = ImageDraw.Draw(page)
    for k, (name, picture) in enumerate(found.items()):
        left, top = (k % 3) * (wide + gap), (k // 3) * (high + line + gap)
        draw.text((left + 4, top + 3), name, fill=INK, font=ImageFont.load_default(13))
        small = picture.convert("RGB")
        small.thumbnail((wide, high), Image.Resampling.LANCZOS)
        page.paste(small, (left, top + line))
    return page


# ---- schemes -------------------------------------------------------------------------------

SURVEY = """respondent_id,gender,age,Q1,Q2,Q3
1001,male,25,Yes,No,Don't know
1002,female,60,No,No,Yes
1003,female,28,Yes,Yes,No
1004,male,50,No,Yes,No
"""
ROLES = {
    "names of rows": "#cfe3f5", "label": "#f7d9c4", "left out": style.SHADE,
    "values": "#cdebdf", "missing": "#f3c45a",
}  # fmt: skip


def survey():
    """Draw the table of "Your data" with a colour for what each part was read as."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "survey.csv"
        path.write_text(SURVEY)
        data = bmfjax.load(path)
    header, *lines = (line.split(",") for line in SURVEY.splitlines())
    columns = dict(zip(header, zip(*lines, strict=True), strict=True))
    dense, named = data.dense(), list(data.column_names)

    def role(name, row):
        if name in named:
            return "missing" if np.isnan(dense[row, named.index(name)]) else "values"
        if columns[name] == tuple(data.row_names):
            return "names of rows"
        return "label" if columns[name] == tuple(data.row_labels) else "left out"

    cells = {
        (-1, j): (name, "left out" if role(name, 0) == "left out" else None)
        for j, name in enumerate(header)
    }
    for i, line in enumerate(lines):
        cells |= {(i, j): (text, role(header[j], i)) for j, text in enumerate(line)}
    figure = style.new_figure(8.0, 2.5)
    axes = figure.add_subplot()
    for (i, j), (text, of) in cells.items():
        colour = ROLES.get(of, style.PAPER)
        axes.add_patch(Rectangle((j, i), 1, 1, facecolor=colour, edgecolor=style.EDGE))
        weight = "bold" if i < 0 else "normal"
        ink = style.EDGE if of == "left out" else style.ON_PALE
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=ink, weight=weight)
    axes.set_xlim(0, len(header))
    axes.set_ylim(len(lines), -1)
    axes.axis("off")
    patches = [Patch(facecolor=c, edgecolor=style.EDGE, label=n) for n, c in ROLES.items()]
    figure.legend(handles=patches, loc="outside lower center", ncols=5, frameon=False)
    return figure


def _span(number, first, last):
    return (np.arange(number) >= first) & (np.arange(number) < last)


def variants():
    """Draw the probability of a one of two made-up factors, under each Boolean model."""
    rows, columns, dispersion = 24, 14, 1.8
    usage = np.stack([_span(rows, 0, 13), _span(rows, 9, 20)], 1)
    basis = np.stack([_span(columns, 0, 7), _span(columns, 5, 11)], 1)
    covered = usage @ basis.T
    effects = np.linspace(-1.2, 1.2, rows)[:, None] + np.cos(2.3 * np.arange(columns))
    # One factor of the second layer joins the first and the third of the first layer.
    third = np.stack([*basis.T, _span(columns, 11, 14)], 1)
    joined = np.stack([usage[:, 0], usage[:, 1], usage[:, 0]], 1) @ third.T
    single = np.stack([_span(rows, 0, 11), _span(rows, 11, rows)], 1) @ basis.T
    pulled = usage.astype(int) @ (2 * basis.T.astype(int) - 1)
    odds = {
        "ormachine": dispersion * (2 * covered - 1),
        "ormachine-effects": dispersion * (2 * covered - 1) + effects,
        "deep-ormachine": dispersion * (2 * joined - 1),
        "one-hot": dispersion * (2 * single - 1),
        "hamming": dispersion * pulled,
    }
    figure = style.new_figure(9.0, 3.1)
    for axes, (name, values) in zip(figure.subplots(1, len(odds)), odds.items(), strict=True):
        drawn = axes.imshow(
            1 / (1 + np.exp(-values)), cmap=style.colour_scale("values"), vmin=0, vmax=1,
            aspect="auto", interpolation="nearest",
        )  # fmt: skip
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color(style.EDGE)
        style.heading(axes, name)
        style.axis_label(axes, "columns")
    style.axis_label(figure.axes[0], y="rows")
    style.plain_colour_bar(figure.colorbar(drawn, ax=figure.axes, fraction=0.02), "probability")
    return figure


def shapes():
    """Draw the matrices of a factorisation, with the names that libraries give them."""
    figure = style.new_figure(8.0, 2.7)
    axes = figure.add_subplot()
    for left, top, width, height, colour, text in (
        (0.0, 0.0, 3.0, 2.4, style.ZERO, "data\nrows x columns"),
        (4.0, 0.0, 0.9, 2.4, "#cfe3f5", "usage\nW\nZ"),
        (5.5, 0.0, 3.0, 0.9, "#f7d9c4", "basis transposed\nH\nW transposed"),
    ):
        axes.add_patch(Rectangle((left, top), width, height, facecolor=colour, edgecolor=style.INK))
        place = (left + width / 2, top + height / 2)
        axes.text(*place, text, ha="center", va="center", fontsize=10.5, color=style.ON_PALE)
    axes.text(3.5, 1.2, "≈", ha="center", va="center", fontsize=18)
    axes.text(5.2, 0.45, "·", ha="center", va="center", fontsize=18)
    names = ("usage, basis: bmfjax", "W, H: scikit-learn, nimfa", "Z, W: MOFA")
    for line, text in enumerate(names):
        axes.text(5.5, 1.35 + 0.38 * line, text, fontsize=9.5, va="center")
    axes.set_xlim(-0.05, 8.6)
    axes.set_ylim(2.5, -0.1)
    axes.axis("off")
    return figure


# ---- pictures of small fits ----------------------------------------------------------------


def filled_in():
    """Draw the members who miss most votes, before and after missing votes are predicted."""
    fit = default_votes()
    values = fit.data.dense()
    rows = np.argsort(-np.isnan(values).sum(1), kind="stable")[:24]
    values = values[rows]
    i, j = np.nonzero(np.isnan(values))
    chance = fit.predict_cells(rows[i], j, "probability", positions=True)
    figure = style.new_figure(9.0, 4.9)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, title in zip(panels, ("The votes of 24 members", "Predicted"), strict=True):
        shades = style.colour_scale("values")(np.nan_to_num(values))[..., :3]
        shades[i, j] = style.rgb(style.MISSING)
        if title == "Predicted":
            shades = 0.25 * shades + 0.75  # what was observed steps back
            shades[i, j] = style.colour_scale("values")(chance)[..., :3]
            for row, column in zip(i, j, strict=True):
                corner = (column - 0.5, row - 0.5)
                axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=style.MISSING))
        axes.imshow(shades, aspect="auto", interpolation="nearest")
        names = [style.plain(name) for name in fit.data.column_names]
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
        axes.set_yticks([])
        axes.tick_params(length=0)
        style.heading(axes, title)
    colours = {"nay": style.ZERO, "yea": style.ONE, "missing": style.MISSING}
    patches = [Patch(facecolor=c, edgecolor=style.EDGE, label=n) for n, c in colours.items()]
    figure.legend(handles=patches, loc="outside upper right", ncols=3, frameon=False, fontsize=9)
    return figure


def reconstruction():
    """Draw the votes, the best Boolean product that was found, and where it is wrong."""
    data = bmfjax.load("house-votes")
    values = data.dense()
    best = best_reconstruction(data, rank=4, max_time=1)
    order = np.lexsort(best.usage.T[::-1]), np.lexsort(best.basis.T[::-1])
    values = values[order[0]][:, order[1]]
    product = (best.usage.astype(int) @ best.basis.T.astype(int) > 0)[order[0]][:, order[1]]
    wrong = ~np.isnan(values) & (values != product)
    panels = {
        f"The votes, {np.isnan(values).sum()} missing": values,
        "Product of four Boolean factors": product,
        f"{wrong.sum()} wrong entries": wrong,
    }
    figure = style.new_figure(8.0, 4.0)
    for axes, (title, shown) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        shades = style.colour_scale("values")(np.nan_to_num(shown.astype(float)))[..., :3]
        shades[np.isnan(shown.astype(float))] = style.rgb(style.MISSING)
        if shown is wrong:
            shades[wrong] = style.rgb(ORANGE)
        axes.imshow(shades, aspect="auto", interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        style.heading(axes, title)
        style.axis_label(axes, "votes")
    style.axis_label(figure.axes[0], y="members, by their factors")
    return figure


def anchored():
    """Draw the factors of the zoo beside one that is known."""
    known = {"bird": ["feathers", "eggs", "backbone", "breathes", "legs=2", "tail"]}
    fit = bmfjax.fit("zoo", bmfjax.OrMachine(4), anchors=known, seed=0, progress=False)
    return factors.basis_figure(fit, factors.UNIT)


def cells():
    """Draw the simulated cells of "AnnData and single cells", ordered by their factors."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, 90)
    counts = rng.poisson(0.1 + 2.0 * np.kron(np.eye(3), np.ones(10))[groups])
    data = bmfjax.BinaryMatrix(
        counts > 0,
        row_names=[f"cell{i}" for i in range(90)],
        column_names=[f"gene{j}" for j in range(30)],
        row_labels=groups.astype(str),
    )
    fit = bmfjax.fit(data, bmfjax.OrMachine(3), seed=0, progress=False)
    return overview.overview_figure(fit, overview.picture(fit), width=9.0)


def own_model():
    """Draw the posterior of the regression of "NumPyro and ArviZ", by two samplers."""

    def regression(x, y):
        beta = numpyro.sample("beta", dist.Normal(0, 10).expand([x.shape[1]]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
        with numpyro.plate("rows", len(y)) as i:
            numpyro.sample("y", dist.Normal(x[i] @ beta, sigma), obs=y[i])

    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2)).astype(np.float32)
    y = (x @ [1.0, -2.0] + 0.5 * rng.normal(size=400)).astype(np.float32)
    draws = {}
    for kernel in (bmfjax.SGHMC(regression), NUTS(regression)):
        mcmc = MCMC(kernel, num_warmup=300, num_samples=4000, progress_bar=False)
        mcmc.run(jax.random.key(0), jax.numpy.asarray(x), jax.numpy.asarray(y))
        draws[type(kernel).__name__] = mcmc.get_samples()["beta"]
    figure = style.new_figure(8.0, 2.8)
    for k, axes in enumerate(figure.subplots(1, 2)):
        bins = np.linspace(*np.quantile(draws["NUTS"][:, k], (0.0005, 0.9995)), 36)
        shared = {"bins": bins, "density": True}
        axes.hist(draws["SGHMC"][:, k], color=BLUE, alpha=0.55, label="SGHMC", **shared)
        look = {"histtype": "step", "color": ORANGE, "linewidth": 1.6}
        axes.hist(draws["NUTS"][:, k], label="NUTS", **look, **shared)
        style.heading(axes, f"beta[{k}]")
        axes.set_yticks([])
        style.tidy(axes)
    figure.axes[0].legend(fontsize=9, frameon=False)
    return figure


def by_party():
    """Draw how often each party uses each component of the votes."""
    return factors.usage_by_label_figure(votes()[0], factors.UNIT)


COMMAND = ("fit", "house-votes", "--rank", "4", "--model", "ormachine", "--output", "votes")


def terminal() -> str:
    """Return a picture of a terminal with a command and what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "bmfjax", *COMMAND], cwd=folder, text=True, check=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    printed = [f"$ bmfjax {' '.join(COMMAND)}", *done.stdout.rstrip().splitlines()]
    lines = [part for one in printed for part in textwrap.wrap(one, 90) or [""]]
    width, line = 8.2 * max(map(len, lines)) + 28, 18
    text = "".join(
        f'<text x="14" y="{30 + line * k}" xml:space="preserve">{html.escape(one)}</text>'
        for k, one in enumerate(lines)
    )
    height = 28 + line * len(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}"><rect width="100%" height="100%" rx="6" '
        f'fill="{style.INK}"/><g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" '
        f'font-size="13.5" fill="{style.ON_DARK}">{text}</g></svg>'
    )


# ---- all of them ---------------------------------------------------------------------------

#: The picture of the first page, in SVG.
FIRST = "house-votes"
#: Figures of a good and of a bad fit, and whether they stand beside each other.
PICTURES = {
    "matrix": (matrices, False),
    "number": (numbers, True),
    "bound": (bounds, False),
    "moments": (moments, False),
    "traces": (_of_votes(log_joint), False),
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


#: Figures of one kind, in SVG.
SINGLE = {
    "anchored": anchored,
    "by-party": by_party,
    "cells": cells,
    "devices": devices,
    "filled-in": filled_in,
    "own-model": own_model,
    "panel": panel,
    "panel-calibration": panel_calibration,
    "phases": phases,
    "reconstruction": reconstruction,
    "shapes": shapes,
    "sizes": sizes,
    "survey": survey,
    "terminal": terminal,
    "variants": variants,
}
#: Pictures made of stored ones, in PNG.
SHEETS = {"notebooks": sheet}


def draw_one(name: str) -> None:
    """Draw a picture and write it."""
    if name in PICTURES:
        draw, beside = PICTURES[name]
        write(name, *draw(), beside=beside)
    elif name in SHEETS:
        store(SHEETS[name](), name)
    else:
        folder, draw = (FOLDER.parent, first_page) if name == FIRST else (FOLDER, SINGLE[name])
        drawn = draw()
        text = drawn if isinstance(drawn, str) else style.svg(drawn)
        (folder / f"{name}.svg").write_text(text)


@style.default_parameters()
def main(names) -> None:
    """Draw the pictures that are named, or all."""
    bmfjax.use_compilation_cache()
    for name in names or (FIRST, *PICTURES, *SINGLE, *SHEETS):
        draw_one(name)


if __name__ == "__main__":
    main(sys.argv[1:])

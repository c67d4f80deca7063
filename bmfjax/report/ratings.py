"""How well entries are predicted: the expected error, and whether probabilities are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from markupsafe import Markup
from scipy.special import ndtr

from bmfjax.posterior.cells import cell_draws, noise_sd
from bmfjax.report.section import Section, image, section
from bmfjax.report.style import COLOURS, DASHED, EDGE, axis_label, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Observed entries and unobserved cells looked at, at most; cells of a table that is listed.
MAX_CELLS, LISTED = 4000, 4_000_000
LEVELS = np.arange(0.05, 1.0, 0.05)


def prediction(fit, *, error: Callable, calibration: Callable) -> Section:
    """Show the expected error of unobserved entries, and the calibration of observed ones.

    `error` is the standard deviation of some cells given the data, noise included.
    """
    new = fit.settings.get("given_new")
    which = f"the same new {new[:-1]}" if new else "the same row and of the same column"
    expected = image(error_figure(fit, error), "Expected error by observed entries")
    caption = (
        "The error that the fit itself expects for entries that are not observed, noise included "
        "(a root mean square over cells drawn from these at random), by how many entries of "
        f"{which} are observed. More of them can bring it down to the noise, and no further."
    )
    curve = calibration(fit)
    # Every sentence is ours: there is nothing to escape.
    note = Markup(
        f"<p>{curve.note} The fit has seen these entries, which have a say in what is predicted of "
        f"them. Even if the noise and its form are right, the curve therefore lies {curve.lies} "
        "the dashed line, the more so the fewer entries a row or a column has. Hide some entries "
        "(and use <code>fit.predict_cells</code>) to see the same of entries that were not fitted: "
        "they should lie on it.</p>"
    )
    return section(
        "How well are entries predicted?",
        expected,
        caption if expected else None,
        image(curve_figure(curve), curve.alt, wide=False),
        note,
    )


# ---- expected error ------------------------------------------------------------------------


def error_figure(fit, error: Callable) -> Figure | None:
    """Draw the expected error of unobserved cells, by what is observed of their row and column.

    For new lines (`Fit.given_new`) their entries alone are counted. None if all cells are observed.
    """
    rows, columns, _, _ = fit._observed_cells()
    i, j = unseen_cells(rows, columns, fit.data.shape, MAX_CELLS)
    if not len(i):
        return None
    variance = error(fit, i, j) ** 2
    sides = {"row": (i, rows, fit.data.num_rows), "column": (j, columns, fit.data.num_columns)}
    new = fit.settings.get("given_new")
    sides = {n: s for n, s in sides.items() if new in (None, f"{n}s")}
    figure = new_figure(5 * len(sides), 3.0)
    panels = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
    for axes, (what, (line, of, size)) in zip(panels, sides.items(), strict=True):
        count = np.bincount(of, minlength=size)[line]
        edges = np.unique(np.quantile(count, np.linspace(0, 1, 9)).astype(int))
        place = np.clip(np.searchsorted(edges, count, side="right") - 1, 0, len(edges) - 1)
        shown = np.unique(place)
        expected = [variance[place == k].mean() ** 0.5 for k in shown]
        middle = [np.median(count[place == k]) for k in shown]
        axes.plot(middle, expected, color=COLOURS[0], marker="o", markersize=5)
        axis_label(axes, f"observed entries of the {what}")
        if middle[-1] > 20 * max(middle[0], 1):  # a logarithm has too few ticks for less
            axes.set_xscale("symlog")
        axes.set_ylim(0, 1.15 * max(*expected, axes.get_ylim()[1] / 1.15))
        tidy(axes, "y")
    axis_label(panels[0], y="expected error")
    return figure


def unseen_cells(rows, columns, shape, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows and columns of cells that are not observed, (cell,) int each.

    They are at most so many; fewer if there are fewer, or if next to none are. The given `rows` and
    `columns` are those of the observed ones.
    """
    total, seen = shape[0] * shape[1], np.asarray(rows) * shape[1] + np.asarray(columns)
    rng = np.random.default_rng(0)
    if total <= LISTED:
        unseen = np.setdiff1d(np.arange(total), seen, assume_unique=True)
        chosen = rng.choice(unseen, min(most, len(unseen)), replace=False)
    else:
        # A few cells of so large a table are hit at random, unless it is all but full.
        drawn = np.unique(rng.integers(0, total, 8 * most))
        chosen = rng.permutation(np.setdiff1d(drawn, seen, assume_unique=True))[:most]
    return np.divmod(chosen, shape[1])


def noisy_sd(fit, rows, columns) -> np.ndarray:
    """Return the standard deviation of ratings and stars."""
    return fit.predict_cells(rows, columns, "sd", noisy=True, positions=True)


def sd_of_a_bit(fit, rows, columns) -> np.ndarray:
    """Return the standard deviation of a zero or one."""
    share = fit.predict_cells(rows, columns, "probability", positions=True)
    return np.sqrt(share * (1.0 - share))


# ---- calibration ---------------------------------------------------------------------------


class Curve(NamedTuple):
    """Shares of what happened, by what was predicted."""

    predicted: list[float]
    happened: list[float]
    x: str
    y: str
    note: str = "How often what was predicted with a probability happened."
    lies: str = "steeper than"
    alt: str = "Predicted probabilities against observed shares"


def curve_figure(curve: Curve) -> Figure:
    """Draw what was predicted against what happened."""
    figure = new_figure(4.6, 4.0)
    draw_curve(figure.add_subplot(), curve)
    return figure


def draw_curve(axes, curve: Curve) -> None:
    """Draw what was predicted against what happened."""
    axes.plot([0, 1], [0, 1], color=EDGE, **DASHED)
    axes.plot(curve.predicted, curve.happened, color=COLOURS[0], marker="o", markersize=4)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axis_label(axes, curve.x, curve.y)
    tidy(axes, "y")


def of_intervals(fit) -> Curve:
    """Return shares of observed ratings in central intervals, by their probability."""
    rows, columns, values = _some_observed(fit)
    # A mixture of normals over the draws.
    place = ndtr((values - cell_draws(fit, rows, columns)) / noise_sd(fit)[:, None]).mean(0)
    outward = 2 * np.abs(place - 0.5)
    return Curve(
        LEVELS,
        [(outward <= level).mean() for level in LEVELS],
        "probability of the interval",
        "share of entries inside",
        "The share of the observed entries inside of their predictive intervals.",
        "above",
        "Coverage of predictive intervals",
    )


def of_ones(fit) -> Curve:
    """Return shares of ones among observed entries, by their predicted probability."""
    rows, columns, values = _some_observed(fit)
    shares = _shares(fit.predict_cells(rows, columns, "probability", positions=True), values > 0)
    return Curve(*shares, "predicted probability of a one", "share of ones")


def of_stars(fit) -> Curve:
    """Return shares of observed entries with a star, by its predicted probability."""
    rows, columns, values = _some_observed(fit)
    chance = fit.predict_cells(rows, columns, "probability", positions=True)
    shares = _shares(chance.ravel(), (np.arange(chance.shape[1]) == values[:, None]).ravel())
    return Curve(*shares, "predicted probability of a star", "share of entries with it")


def _some_observed(fit):
    """Return rows, columns and values of observed cells, at most 4,000 at random."""
    cells = fit._observed_cells()[:3]
    if len(cells[0]) > MAX_CELLS:
        some = np.sort(np.random.default_rng(0).choice(len(cells[0]), MAX_CELLS, replace=False))
        cells = [x[some] for x in cells]
    return cells


def _shares(chance, happened, bins=10):
    which = np.minimum((chance * bins).astype(int), bins - 1)
    shown = [k for k in range(bins) if (which == k).sum() >= 10]
    return [chance[which == k].mean() for k in shown], [happened[which == k].mean() for k in shown]

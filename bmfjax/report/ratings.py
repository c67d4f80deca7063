"""Figures of predicted ratings: how large errors are to be, and whether intervals are right."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from bmfjax.cells import cell_draws, noise_sd
from bmfjax.pmf_cells import LINKS, expected, star_probabilities
from bmfjax.pmf_plan import observed
from bmfjax.report.style import COLOURS, INK, new_figure, tidy

#: Observed entries and unobserved cells looked at, at most; cells of a table that is listed.
MAX_CELLS, LISTED = 4000, 4_000_000
LEVELS = np.arange(0.05, 1.0, 0.05)


def error_figure(fit) -> Figure | None:
    """Expected error of cells that are not observed, by what is observed of their row and column.

    By the posterior itself: the root mean square of what it leaves open, noise included.

    Parameters
    ----------
    fit : Fit
        Of new lines (`Fit.given_new`) their entries alone are counted.

    Returns
    -------
    matplotlib.figure.Figure or None
        None where all cells are observed.
    """
    rows, columns, _, _ = observed(fit.data, "identity")
    i, j = unseen_cells(rows, columns, fit.data.shape, MAX_CELLS)
    if not len(i):
        return None
    variance = predictive_variance(fit, i, j)
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
        error = [variance[place == k].mean() ** 0.5 for k in shown]
        middle = [np.median(count[place == k]) for k in shown]
        axes.plot(middle, error, color=COLOURS[0], marker="o", markersize=5)
        axes.set_xlabel(f"observed entries of the {what}", fontsize=9.5, color=INK)
        if middle[-1] > 20 * max(middle[0], 1):  # a logarithm has too few ticks for less
            axes.set_xscale("symlog")
        axes.set_ylim(0, 1.15 * max(*error, axes.get_ylim()[1] / 1.15))
        tidy(axes, "y")
    panels[0].set_ylabel("expected error", fontsize=9.5, color=INK)
    return figure


def unseen_cells(rows, columns, shape, most: int):
    """Rows and columns of cells that are not observed, drawn at random, (cell,) int each.

    Parameters
    ----------
    rows, columns : (entry,) int
        Of the observed ones.
    shape : (int, int)
    most : int
        So many at most; fewer where there are fewer, or where next to none are.

    Examples
    --------
    >>> [x.tolist() for x in unseen_cells(np.array([0, 0, 1]), np.array([0, 1, 1]), (2, 2), 10)]
    [[1], [0]]
    """
    total, seen = shape[0] * shape[1], np.asarray(rows) * shape[1] + np.asarray(columns)
    rng = np.random.default_rng(0)
    if total <= LISTED:
        unseen = np.setdiff1d(np.arange(total), seen, assume_unique=True)
        chosen = rng.choice(unseen, min(most, len(unseen)), replace=False)
    else:
        # Of so large a table a few are hit at random, unless it is all but full.
        drawn = np.unique(rng.integers(0, total, 8 * most))
        chosen = rng.permutation(np.setdiff1d(drawn, seen, assume_unique=True))[:most]
    return np.divmod(chosen, shape[1])


def predictive_variance(fit, rows, columns) -> np.ndarray:
    """Variance of an entry given the data, noise included, (cell,) float."""
    fits = cell_draws(fit, rows, columns)
    mean = expected(fit, fits)
    if fit.model == "pmf":
        return mean.var(0) + (noise_sd(fit) ** 2).mean()
    if fit.model == "probit":
        share = mean.mean(0)
        return share * (1.0 - share)
    p, stars = star_probabilities(fit, fits), np.asarray(fit.settings["stars"], float)
    return p @ stars**2 - (p @ stars) ** 2


def calibration_figure(fit) -> Figure:
    """Whether the observed entries lie where the posterior expects them.

    Of "pmf" the share of entries inside of central intervals, by the intervals' probability; of
    the probit models the share of ones, or of each star, by their predicted probability. The
    entries have been fitted, so that a good curve is no proof for hidden ones.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    matplotlib.figure.Figure
    """
    link = LINKS[fit.model]
    rows, columns, values, _ = observed(fit.data, "identity" if link == "ordered" else link)
    if link == "ordered":
        # By the stars that were fitted: new lines need not have all of them.
        values = np.searchsorted(fit.settings["stars"], values)
    if len(rows) > MAX_CELLS:
        some = np.sort(np.random.default_rng(0).choice(len(rows), MAX_CELLS, replace=False))
        rows, columns, values = rows[some], columns[some], values[some]
    fits = cell_draws(fit, rows, columns)
    if link == "identity":
        told, seen = _coverage(fit, fits, values)
        labels = "probability of the interval", "share of entries inside"
    elif link == "probit":
        told, seen = _shares(expected(fit, fits).mean(0), values > 0)
        labels = "predicted probability of a one", "share of ones"
    else:
        p = star_probabilities(fit, fits)
        told, seen = _shares(p.ravel(), (np.arange(p.shape[1]) == values[:, None]).ravel())
        labels = "predicted probability of a star", "share of entries with it"
    figure = new_figure(4.6, 4.0)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="#8d94a3", linewidth=1.2, linestyle=(0, (4, 3)))
    axes.plot(told, seen, color=COLOURS[0], marker="o", markersize=4)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel(labels[0], fontsize=9.5, color=INK)
    axes.set_ylabel(labels[1], fontsize=9.5, color=INK)
    tidy(axes, "y")
    return figure


def _coverage(fit, fits, values):
    """Shares of values inside of central intervals of a mixture of normals over the draws."""
    from scipy.special import ndtr

    place = ndtr((values - fits) / noise_sd(fit)[:, None]).mean(0)
    outward = 2 * np.abs(place - 0.5)
    return LEVELS, [(outward <= level).mean() for level in LEVELS]


def _shares(told, happened, bins=10):
    which = np.minimum((told * bins).astype(int), bins - 1)
    shown = [k for k in range(bins) if (which == k).sum() >= 10]
    return ([told[which == k].mean() for k in shown], [happened[which == k].mean() for k in shown])

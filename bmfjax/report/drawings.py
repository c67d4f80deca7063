"""The drawings of a fit, `bmfjax.Fit.plot`: the report has the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bmfjax.data import InputError
from bmfjax.data.checks import one_of
from bmfjax.errors import ArgumentError, with_calls_checked
from bmfjax.report import overview, plots
from bmfjax.report.checks import draw_modes
from bmfjax.report.factors import (
    MAX_BASIS_COLUMNS,
    POSITIVE,
    SIGNED,
    draw_basis,
    draw_labels,
    factors,
    heat_size,
)
from bmfjax.report.model_fit import draw_calibration
from bmfjax.report.number import draw_number
from bmfjax.report.ratings import draw_curve, prediction
from bmfjax.report.section import maker_of
from bmfjax.report.tiles import draw_tiles, tiles_size
from bmfjax.verdict.undrawn import warn_undrawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Plots:
    """Drawings of a fit by matplotlib, each on axes of yours or in a new figure.

    ``fit.plot.matrix()`` makes a figure and returns its axes; ``fit.plot.matrix(ax=ax)`` draws on
    axes that are there, and returns them. The report has the same drawings. Fonts and colours of
    text follow ``matplotlib.rcParams``; the colours of chains and labels are distinct to
    colour-blind eyes. `dir` lists the drawings that the fit has.

    Examples
    --------
    >>> import bmfjax, matplotlib
    >>> matplotlib.use("agg")
    >>> fit = bmfjax.fit(
    ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
    ...     progress=False,
    ... )
    >>> dir(fit.plot)
    ['calibration', 'factors', 'matrix', 'modes', 'tiles', 'traces']
    >>> fit.plot.factors().get_xlabel()
    'factor'
    """

    def __init__(self, fit) -> None:
        self._fit = fit

    def __repr__(self) -> str:
        return f"Drawings of a fit of model {self._fit.model!r}: {', '.join(dir(self))}"

    def __call__(self, *args, **given):
        calls = ", ".join(f"fit.plot.{name}()" for name in dir(self))
        raise ArgumentError(f"fit.plot draws nothing by itself; call one of its drawings, {calls}")

    def __getattr__(self, name: str):
        hint = "" if name.startswith("_") else f"; it has {', '.join(dir(self))}"
        raise AttributeError(f"fit.plot has no {name!r}{hint}")

    def __dir__(self) -> list[str]:
        names = [name for name in vars(type(self)) if not name.startswith("_")]
        return sorted(name for name in names if not self._refusal(name))

    def matrix(self, ax: Axes | None = None, *, of: str | None = None):
        """Draw the matrix, its reconstruction and its uncertainty, ordered by the factors.

        Columns and rows have names where there is room, those that are most specific of a factor
        first. A strip at the left has the labels of the rows.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Draw one panel here; default all three in a new figure.
        of : {"matrix", "reconstruction", "uncertainty"}, optional
            The panel; default all, or with `ax` "matrix".

        Returns
        -------
        matplotlib.axes.Axes, or an array of three
        """
        asked, fit = self._checked("matrix"), self._fit
        if of is not None:
            one_of("of", of, tuple(overview.PANELS))
        drawn = overview.picture(fit, asked["moments"])
        height = overview.panel_height(fit, drawn)
        if ax is None and of is None:
            panels = _new(12.0, height, columns=len(overview.PANELS))
            overview.draw_panels(panels, fit, drawn)
            return panels
        ax = _new(5.0, height) if ax is None else ax
        overview.draw_panel(ax, fit, drawn, of or "matrix")
        return ax

    def factors(self, ax: Axes | None = None, *, of: str = "basis") -> Axes:
        """Draw a heat map of the factors: columns, or labels of rows, by factors.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Draw here; default in a new figure.
        of : {"basis", "labels"}
            Posterior means of the basis, of at most 60 columns, which are those that are most
            specific of a factor; or mean usage of the rows of each label.

        Returns
        -------
        matplotlib.axes.Axes
        """
        asked, fit = self._checked("factors"), self._fit
        one_of("of", of, ("basis", "labels"))
        shades = asked.get("shades") or (SIGNED if fit._is_signed else POSITIVE)
        if of == "basis":
            number = min(fit.data.num_columns, MAX_BASIS_COLUMNS)
            ax = _new(*heat_size(fit, number, 0.2)) if ax is None else ax
            draw_basis(ax, fit, shades)
            return ax
        if fit.data.row_labels is None:
            raise InputError("the rows have no labels; give row_labels with the data")
        ax = _new(*heat_size(fit, len(set(fit.data.row_labels)), 0.36)) if ax is None else ax
        draw_labels(ax, fit, shades)
        return ax

    def rank(self, ax: Axes | None = None) -> Axes:
        """Draw the posterior probability of every number of factors, a dot for each chain.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Draw here; default in a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        self._checked("rank")
        ax = _new(5.2, 2.6) if ax is None else ax
        draw_number(ax, self._fit)
        return ax

    def traces(self, ax: Axes | None = None, *, of: str | None = None):
        """Draw what was traced along the steps, a colour for each chain.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Draw one trace here; default all in a new figure.
        of : str, optional
            Its name, such as "log_joint" or "precision"; default all, or with `ax` the first.

        Returns
        -------
        matplotlib.axes.Axes, or an array of one for each trace
        """
        asked, fit = self._checked("traces"), self._fit
        names = plots.traced(fit)
        if of is not None:
            one_of("of", of, tuple(names))
        words = {name: asked[name] for name in ("run", "phase") if name in asked}
        if ax is None and of is None:
            panels = _new(10.0, 0.7 + 1.85 * len(names), rows=len(names))
            plots.draw_traces(np.atleast_1d(panels), fit, names, **words)
            return panels
        ax = _new(10.0, 2.6) if ax is None else ax
        plots.draw_traces([ax], fit, [of or names[0]], **words)
        return ax

    def tiles(self, ax: Axes | None = None) -> Axes:
        """Draw the probability that the tile of each factor is real, green where it is kept.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Draw here; default in a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        self._checked("tiles")
        ax = _new(*tiles_size(self._fit)) if ax is None else ax
        draw_tiles(ax, self._fit)
        return ax

    def calibration(self, ax: Axes | None = None) -> Axes:
        """Draw how often what was predicted with a probability happened.

        For zeros and ones of entries that are left out, as `Fit.check` has it; for ratings of
        observed ones.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Draw here; default in a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        asked, fit = self._checked("calibration"), self._fit
        ax = _new(4.6, 4.0) if ax is None else ax
        if _has_ones(fit):
            draw_calibration(ax, fit.check())
        else:
            draw_curve(ax, asked["calibration"](fit))
        return ax

    def modes(self, ax: Axes | None = None) -> Axes:
        """Draw the weights of the solutions, and which of them each chain is in.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Draw here; default in a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        self._checked("modes")
        ax = _new(7.0, 1.4 + 0.24 * self._fit._num_chains) if ax is None else ax
        draw_modes(ax, self._fit)
        return ax

    def _checked(self, name: str) -> dict:
        """Return how the page of the model draws it; refuse what the fit lacks."""
        if said := self._refusal(name):
            raise InputError(f"there is no plot.{name}() of this fit: {said}")
        warn_undrawn(self._fit)
        makers = {
            "matrix": overview.matrix,
            "factors": factors,
            "traces": plots.traces,
            "calibration": prediction,
        }
        return self._section(makers.get(name)) or {}

    def _section(self, maker) -> dict | None:
        """Return the arguments of a section of the page; None where it has no such section."""
        sections = self._fit._page.sections
        found = (s for s in sections if maker_of(s) is maker)
        return next((dict(getattr(s, "keywords", {})) for s in found), None)

    def _refusal(self, name: str) -> str:
        """Say why there is no such drawing; '' where there is."""
        fit = self._fit
        if name == "rank" and fit._rank_probabilities is None:
            given = "is a default" if fit.verdict.number.default else "was given"
            return f"the number of factors {given}; fit with rank='auto' to find it"
        # The class is asked, because the fit would compute its modes.
        if name in ("tiles", "modes") and not hasattr(type(fit), name):
            return f"model {fit.model!r} has no {name}; dir(fit.plot) lists what it has"
        if name == "matrix":
            kind = (self._section(overview.matrix) or {}).get("data", overview.BinaryMatrix)
            if not isinstance(fit.data, kind):
                return "its data are ratings, few of all cells; use plot.factors()"
        if name == "calibration" and not (_has_ones(fit) or self._section(prediction)):
            return f"model {fit.model!r} has no probabilities of ones; use check()"
        if name == "calibration" and fit.verdict.is_of_starts:
            more = f"give it more, max_time={fit.figures.more_seconds}"
            return f"the time was up before the sampler drew; {more}"
        return ""


with_calls_checked(Plots, "fit.plot")


def _has_ones(fit) -> bool:
    """Tell whether the check of the model says how probabilities of ones are calibrated."""
    return fit._is_of_ones and fit._can_be_checked


def _new(width: float, height: float, *, rows: int = 1, columns: int = 1):
    """Return axes of a new figure, which a notebook shows."""
    from matplotlib import pyplot

    size = {"figsize": (width, height), "layout": "constrained"}
    return pyplot.subplots(rows, columns, sharex=rows > 1, **size)[1]

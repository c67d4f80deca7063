"""Figures of a fit; each function takes a `Fit` and returns a `matplotlib.figure.Figure`."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from bmfjax.report import ordering
from bmfjax.report.overview import overview_figure
from bmfjax.report.style import (
    COLOURS,
    INK,
    SIGNED,
    UNKNOWN,
    VALUES,
    heading,
    label_colours,
    new_figure,
    plain,
    tidy,
)

__all__ = [
    "basis_figure",
    "label_shares",
    "mean_sd_figure",
    "overview_figure",
    "trace_figure",
    "usage_by_label_figure",
]

MAX_BASIS_COLUMNS, MAX_LABELS = 60, 20
#: Entries above which a scatter plot becomes a density, and entries drawn at most.
MAX_POINTS, MAX_BINNED = 4000, 500_000
MAX_STEPS = 2000


# ---- factors -------------------------------------------------------------------------------


def basis_figure(fit) -> Figure:
    """Heat map of the posterior means of the basis, columns by factors.

    Beyond 60 columns only those with the highest mean in any factor are drawn.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    matplotlib.figure.Figure
    """
    columns = ordering.order_by_factors(fit).columns
    if len(columns) > MAX_BASIS_COLUMNS:
        high = np.argsort(-abs(fit.basis).max(1), kind="stable")[:MAX_BASIS_COLUMNS]
        columns = columns[np.isin(columns, high)]
    names = [plain(fit.data.column_names[j], 40) for j in columns]
    figure = new_figure(2.8 + max(2.4, 0.36 * fit.rank), 1.1 + 0.2 * len(names))
    axes = figure.add_subplot()
    _heat(figure, axes, fit.basis[columns], names, fit, "mean of the basis")
    return figure


def usage_by_label_figure(fit) -> Figure | None:
    """Heat map of the mean usage of the rows of each label, labels by factors.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    matplotlib.figure.Figure or None
        None where the rows have no labels.
    """
    if fit.data.row_labels is None:
        return None
    groups = _label_rows(fit)
    values = np.array([fit.usage[rows].mean(0) for rows in groups.values()])
    names = [f"{plain(n)} ({len(rows)})" for n, rows in groups.items()]
    figure = new_figure(2.8 + max(2.4, 0.36 * fit.rank), 1.3 + 0.36 * len(names))
    axes = figure.add_subplot()
    _heat(figure, axes, values, names, fit, "mean usage of the label's rows")
    return figure


def label_shares(fit) -> dict[str, np.ndarray]:
    """Share of each label's rows that use a factor, ``{label: (rank,)}``; {} without labels."""
    if fit.data.row_labels is None:
        return {}
    return {n: fit.usage_binary[rows].mean(0) for n, rows in _label_rows(fit).items()}


def _label_rows(fit):
    """Rows of each label, at most the twenty most frequent, in the order of their colours."""
    labels = np.array([n or UNKNOWN for n in fit.data.row_labels])
    rows = {n: np.flatnonzero(labels == n) for n in label_colours(labels)}
    frequent = sorted(rows, key=lambda n: -len(rows[n]))[:MAX_LABELS]
    return {n: r for n, r in rows.items() if n in frequent}


def _heat(figure, axes, values, names, fit, text):
    rank, low, top, colours = fit.rank, 0.0, 1.0, VALUES
    if fit.is_real:
        top = max(float(abs(values).max()), 1e-3)
    if fit.is_signed:
        low, colours = -top, SIGNED
    image = axes.imshow(
        values, cmap=colours, vmin=low, vmax=top, aspect="auto", interpolation="nearest"
    )
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    shown = ordering.spaced(rank, 30)
    axes.set_xticks(shown, [str(k + 1) for k in shown], fontsize=8.5)
    axes.set_xlabel("factor", fontsize=9.5, color=INK)
    axes.tick_params(length=0, colors=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xticks(np.arange(rank - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(len(names) - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="minor", length=0)
    if rank <= 12:
        for (i, k), value in np.ndenumerate(values):
            if abs(value) >= 0.005:
                colour = "white" if abs(value) > 0.5 * top else INK
                axes.text(k, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
    bar = figure.colorbar(
        image,
        ax=axes,
        location="top",
        fraction=0.05,
        pad=0.02,
        aspect=30,
        ticks=None if fit.is_real else [0, 0.5, 1],
    )
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2, colors=INK)
    bar.set_label(text, fontsize=9.5, color=INK)


# ---- mean against standard deviation -------------------------------------------------------


def mean_sd_figure(fit) -> Figure:
    """Mean against standard deviation of all entries of both factors (Gonsior 2019, fig. 4.7).

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = new_figure(10, 4.1)
    panels = figure.subplots(1, 2, sharey=True)
    grid = np.linspace(0, 1, 200)
    for axes, name, mean, sd in (
        (panels[0], "Usage", fit.usage, fit.usage_sd),
        (panels[1], "Basis", fit.basis, fit.basis_sd),
    ):
        chosen = ordering.spaced(mean.size, MAX_BINNED)
        _mean_sd(figure, axes, mean.ravel()[chosen], sd.ravel()[chosen])
        axes.plot(
            grid, np.sqrt(grid * (1 - grid)), color="#8d94a3", linewidth=1, linestyle=(0, (4, 3))
        )
        heading(axes, f"{name}: {mean.size:,} entries")
        axes.set_xlabel("mean", fontsize=9.5, color=INK)
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.01, 0.52)
        tidy(axes, "both")
    panels[0].set_ylabel("standard deviation", fontsize=9.5, color=INK)
    return figure


def _mean_sd(figure, axes, mean, sd):
    if len(mean) <= MAX_POINTS:
        alpha = float(np.clip(200 / max(len(mean), 1), 0.15, 0.7))
        axes.scatter(mean, sd, s=14, color=COLOURS[0], alpha=alpha, linewidths=0)
        return
    bins = axes.hexbin(
        mean, sd, gridsize=(56, 32), bins="log", mincnt=1, cmap="viridis", linewidths=0.1,
        extent=(0, 1, 0, 0.5),
    )  # fmt: skip
    bar = figure.colorbar(bins, ax=axes, fraction=0.04, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2, colors=INK)
    bar.set_label("entries", fontsize=8.5, color=INK)


# ---- traces --------------------------------------------------------------------------------


TRACES = {
    "log_joint": "Log joint density",
    "dispersion": "Dispersion (log odds that an entry is not flipped)",
    "errors": "Observed entries that the product gets wrong",
    "elbo": "Lower bound",
    "precision": "Noise precision",
    "residual": "Sum of squared residuals",
    "clamped": "Share of coordinates held at a bound",
}


def trace_figure(fit) -> Figure:
    """Log joint density, learned precision and what else was traced, along every chain's steps.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    matplotlib.figure.Figure
    """
    warmup = int(fit.scalars["num_warmup"])
    curves = [
        (text, name, *_thinned(fit.trace[name]))
        for name, text in TRACES.items()
        if name in fit.trace
    ]
    if fit.precision_draws is not None and "precision" not in fit.trace:
        every = max(1, int(fit.scalars["thinning"]))
        steps = warmup + every * np.arange(1, fit.precision_draws.shape[1] + 1)
        curves.append(("Noise precision (kept draws)", "precision", steps, fit.precision_draws))
    figure = new_figure(10, 0.7 + 1.85 * len(curves))
    panels = figure.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
    total = next(iter(fit.trace.values())).shape[1]
    chain_name = "start" if fit.approximation else "chain"
    for axes, (text, name, steps, values) in zip(panels, curves, strict=True):
        for c, chain in enumerate(values):
            axes.plot(steps, chain, color=COLOURS[c % len(COLOURS)], linewidth=0.7, alpha=0.8,
                      label=f"{chain_name} {c + 1}")  # fmt: skip
        if warmup:
            axes.axvspan(0, min(warmup, total), color="#eceef3", zorder=0, linewidth=0)
        heading(axes, text)
        tidy(axes, "y")
        axes.ticklabel_format(axis="y", useOffset=False)
        if name in ("log_joint", "elbo", "residual", "errors"):
            _zoom(axes, steps, values)
    if warmup:
        across = panels[0].get_xaxis_transform()
        middle = min(warmup, total) / 2
        name = "optimisation" if fit.approximation else "warm-up"
        panels[0].text(middle, 0.06, name, transform=across, ha="center", fontsize=8.5)
    panels[-1].set_xlabel("step", fontsize=9.5, color=INK)
    panels[-1].set_xlim(0, max(total, 1))
    if fit.num_chains <= 8:
        panels[0].legend(
            loc="lower right", ncols=fit.num_chains, fontsize=8, frameon=False, handlelength=1.2
        )
    return figure


def _zoom(axes, steps, values):
    """Leave the first steps out of the scale: the way in hides the differences that matter."""
    later = values[:, len(steps) // 20 :]
    later = later[np.isfinite(later)]
    if later.size:
        low, high = float(later.min()), float(later.max())
        margin = 0.08 * (high - low) or 1.0
        axes.set_ylim(low - 2 * margin, high + margin)


def _thinned(trace):
    """Steps counted from 1 and their values, at most 2,000 of them."""
    chosen = ordering.spaced(trace.shape[1], MAX_STEPS)
    return chosen + 1, np.asarray(trace)[:, chosen]

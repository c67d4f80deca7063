"""Posterior means against standard deviations, and traces along the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bmfjax.data.blocks import spaced
from bmfjax.report.section import Section, image, section
from bmfjax.report.style import (
    COLOURS,
    DARK_SHADE,
    DASHED,
    EDGE,
    SHADE,
    axis_label,
    heading,
    new_figure,
    plain_colour_bar,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Entries above which a scatter plot becomes a density, and entries drawn at most.
MAX_POINTS, MAX_BINNED = 4000, 500_000
MAX_STEPS = 600


# ---- mean against standard deviation -------------------------------------------------------


def mean_sd(fit) -> Section:
    """Show how sure the entries of factors in [0, 1] are."""
    return section(
        "How sure the entries are: mean against standard deviation",
        "One point for each entry of the two factor matrices, or a density where there are many. "
        "Decided entries lie in the two lower corners. At a high point in the middle the draws do "
        "not agree about the entry. A low point in the middle is a settled value between no and "
        "yes: the data are ambiguous, and more draws do not help. Nothing can lie above the dashed "
        "line.",
        image(
            mean_sd_figure(fit), "Mean against standard deviation of all entries of usage and basis"
        ),
    )


def mean_sd_figure(fit) -> Figure:
    """Draw the entries of both factors (Gonsior 2019, fig. 4.7)."""
    figure = new_figure(10, 4.1)
    panels = figure.subplots(1, 2, sharey=True)
    grid = np.linspace(0, 1, 200)
    for axes, name, mean, sd in (
        (panels[0], "Usage", fit._usage, fit._usage_sd),
        (panels[1], "Basis", fit._basis, fit._basis_sd),
    ):
        chosen = spaced(mean.size, MAX_BINNED)
        _mean_sd(figure, axes, mean.ravel()[chosen], sd.ravel()[chosen])
        axes.plot(grid, np.sqrt(grid * (1 - grid)), color=EDGE, **(DASHED | {"linewidth": 1}))
        heading(axes, f"{name}: {mean.size:,} entries")
        axis_label(axes, "mean")
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.01, 0.52)
        tidy(axes, "both")
    axis_label(panels[0], y="standard deviation")
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
    plain_colour_bar(bar, "entries", 8.5)


# ---- traces --------------------------------------------------------------------------------


TRACES = {
    "log_joint": "Log joint density",
    "dispersion": "Dispersion (log odds that an entry is not flipped)",
    "errors": "Entries unlike the data (the product differs)",
    "rank": "Number of factors",
    "elbo": "Lower bound",
    "precision": "Noise precision",
    "residual": "Sum of squared residuals",
    "clamped": "Share of coordinates held at a bound",
    "noise_share": "Noise of the gradients, as a share of what is made up for",
}
#: Traces whose first steps are far from the others.
ZOOMED = ("log_joint", "elbo", "residual", "errors")
#: Share of the steps below which the warm-up has no room for its name.
NARROW = 0.1

SETTLED = (
    "All chains should have settled before the shaded warm-up ends, at the same height, without a "
    "trend. The scale leaves out the first steps."
)
#: Captions for particles, which are no steps.
PARTICLES = (
    "Particles of every run, one after the other, relatives next to each other. All runs should "
    "have the same heights, without long flat stretches, which are families of one ancestor."
)


def traces(
    fit, *, note: str = SETTLED, more: str = "", run: str = "chain", phase: str = "warm-up"
) -> Section:
    """Show what was traced; `run` and `phase` name a chain and its first steps."""
    if fit.figures.log_evidence is not None:
        note, run = PARTICLES, "run"
    figure = image(trace_figure(fit, run, phase), "Traces along the steps")
    return section("Traces", f"{note} {more}", figure)


def trace_figure(fit, run: str = "chain", phase: str = "warm-up") -> Figure:
    """Draw the log joint density, learned precision and other traces of every chain."""
    names = traced(fit)
    figure = new_figure(10, 0.7 + 1.85 * len(names))
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    draw_traces(panels, fit, names, run, phase)
    return figure


def traced(fit) -> list[str]:
    """Return the names of what is traced; `precision` may be that of the kept draws."""
    found = [name for name in TRACES if name in fit.trace]
    kept = fit.other_draws.get("precision") is not None and "precision" not in found
    return found + ["precision"] * kept


def draw_traces(panels, fit, names, run: str = "chain", phase: str = "warm-up") -> None:
    """Draw a trace in each of the panels, with a legend in the first."""
    warmup, total = int(fit.figures.num_warmup), next(iter(fit.trace.values())).shape[1]
    for axes, name in zip(panels, names, strict=True):
        steps, values = _curve(fit, name)
        for c, chain in enumerate(values):
            axes.plot(steps, chain, color=COLOURS[c % len(COLOURS)], linewidth=0.7, alpha=0.8,
                      label=f"{run} {c + 1}")  # fmt: skip
        if warmup:
            shade = SHADE if np.mean(axes.get_facecolor()[:3]) > 0.5 else DARK_SHADE
            axes.axvspan(0, min(warmup, total), color=shade, zorder=0, linewidth=0)
        heading(axes, TRACES[name] if name in fit.trace else "Noise precision (kept draws)")
        tidy(axes, "y")
        axes.ticklabel_format(axis="y", useOffset=False)
        if name in ZOOMED:
            _zoom(axes, steps, values)
    if warmup:
        across, shaded = panels[0].get_xaxis_transform(), min(warmup, total)
        # Where there is no room inside, it begins at the axis.
        at, side = (0.0, "left") if shaded < NARROW * total else (shaded / 2, "center")
        panels[0].text(at, 0.06, f" {phase}", transform=across, ha=side, fontsize=8.5)
    axis_label(panels[-1], "step" if fit.figures.log_evidence is None else "particle")
    panels[-1].set_xlim(0, max(total, 1))
    if fit._num_chains <= 8:
        panels[0].legend(
            loc="lower right", ncols=fit._num_chains, fontsize=8, frameon=False, handlelength=1.2
        )


def _curve(fit, name: str):
    """Return steps counted from 1 and values of every chain."""
    if name in fit.trace:
        return _thinned(fit.trace[name])
    values, every = fit.other_draws[name], max(1, int(fit.figures.thinning))
    return int(fit.figures.num_warmup) + every * np.arange(1, values.shape[1] + 1), values


def _zoom(axes, steps, values):
    """Leave the first steps out of the scale: they would hide the differences that matter."""
    later = values[:, len(steps) // 20 :]
    later = later[np.isfinite(later)]
    if later.size:
        low, high = float(later.min()), float(later.max())
        margin = 0.08 * (high - low) or 1.0
        axes.set_ylim(low - 2 * margin, high + margin)


def _thinned(trace):
    """Return steps counted from 1 and their values, at most 600."""
    chosen = spaced(trace.shape[1], MAX_STEPS)
    return chosen + 1, np.asarray(trace)[:, chosen]

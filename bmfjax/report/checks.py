"""Whether the chains agree: R-hat, effective draws, the same factors, the same solutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bmfjax import verdict
from bmfjax.diagnostics import Coverage, ess_bulk, split_rhat
from bmfjax.posterior import mixture
from bmfjax.posterior.modes import EVIDENCE, STACKING, VISITS
from bmfjax.posterior.selection import informed
from bmfjax.report.section import Section, image, section, table
from bmfjax.report.style import (
    COLOURS,
    DASHED,
    DOUBTFUL,
    EDGE,
    GOOD,
    INK,
    axis_label,
    heading,
    new_figure,
    plain,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Scalars whose R-hat and effective draws are computed, and draws needed for that.
MAX_SCALARS, MIN_DRAWS = 1000, 4
#: Degrees below which solutions are the same: a curve would lie on the axis.
SAME = 0.5
#: A factor counts as found by a chain from this cosine of its tile to that of the others on.
AGREEING = 0.8
_MODES = (
    "Draws are in one mode if their mean factors are alike: all tiles, matched, at least 0.8. A "
    "factor that differs is not alike in the first mode. The weights"
)
#: What the weights of modes mean, by how they were found.
WEIGHTED = {
    EVIDENCE: f"{_MODES} are posterior probabilities, by the estimated evidence.",
    VISITS: f"{_MODES} are shares of the draws, because the chains move between the modes and "
    "agree on how often, or there is one chain.",
    STACKING: f"{_MODES} are approximate: shares of the draws, each chain weighted as in the "
    "mixture of chains that predicts left-out entries best. They are no posterior probabilities.",
}
#: Rows and columns that are listed where chains of one mode differ.
SHOWN_LINES = 20
#: Values of R-hat above this share the last bar.
TOP_RHAT = 1.2


def convergence_figure(fit) -> Figure | None:
    """Draw histograms of R-hat and effective draws, of reconstructed entries and factor entries.

    Rows and columns without an observed entry are left out: they follow the prior alone. None with
    fewer than four kept draws a chain.
    """
    if fit.usage_draws.shape[1] < MIN_DRAWS:
        return None
    figure = new_figure(10, 5.6)
    panels = figure.subplots(2, 2, sharex="col")
    entries, factors = fit._mixing, factor_entries(fit)
    some = "Random entries" if factors.shape[2] == MAX_SCALARS else "Entries"
    kind = "Reconstructed" if np.isnan(entries.uncertain) else "Uncertain"
    of_entries = (
        (f"{kind} entries", entries.rhat, entries.ess),
        (f"{some} of the aligned factors", split_rhat(factors), ess_bulk(factors)),
    )
    for row, (text, rhat, ess) in zip(panels, of_entries, strict=True):
        _rhat(row[0], rhat, text)
        _ess(row[1], ess, text, fit._num_chains)
    axis_label(panels[1, 0], "R-hat (1 is best)")
    axis_label(panels[1, 1], "effective draws (more is better)")
    return figure


def starts_figure(fit) -> Figure | None:
    """Draw histograms of R-hat across the starts of a variational fit, of log odds and of factors.

    It is that of the normals that the starts reached, not of their draws. None with one start.
    """
    if fit._num_chains == 1:
        return None
    figure = new_figure(10, 3.0)
    panels = figure.subplots(1, 2)
    at, rank, (rows, columns) = fit.approximation, fit.rank, informed(fit.data).values()
    of_factors = [
        mixture.rhat(*(at[f"{name}_{m}"][:, lines, :rank] for m in ("mean", "variance")))
        for name, lines in (("usage", rows), ("basis", columns))
    ]
    _rhat(panels[0], fit._mixing.rhat, "Log odds")
    _rhat(panels[1], np.concatenate([r.ravel() for r in of_factors]), "Factors, matched")
    for axes in panels:
        axis_label(axes, "R-hat (1 is best)")
    return figure


def factor_entries(fit) -> np.ndarray:
    """Return draws of up to 1,000 entries of usage and basis, (chain, draw, entry)."""
    rows, columns = informed(fit.data).values()
    lines = len(rows) + len(columns)
    chosen = np.arange(lines * fit.rank)
    if len(chosen) > MAX_SCALARS:
        rng = np.random.default_rng(0)
        chosen = np.sort(rng.choice(len(chosen), MAX_SCALARS, replace=False))
    line, factor = np.divmod(chosen, fit.rank)
    inside = line < len(rows)
    usage = fit.usage_draws[:, :, rows[line[inside]], factor[inside]]
    basis = fit.basis_draws[:, :, columns[line[~inside] - len(rows)], factor[~inside]]
    return np.concatenate([usage, basis], axis=2)


def _rhat(axes, values, text):
    moving = values[~np.isnan(values)]
    beyond = int((moving > TOP_RHAT).sum())
    edges = np.linspace(0.99, TOP_RHAT, 64)
    axes.hist(np.clip(moving, 0.99, TOP_RHAT), edges, color=COLOURS[0])
    _mark(axes, verdict.RHAT_GOOD, GOOD)
    _mark(axes, verdict.RHAT_USABLE, DOUBTFUL)
    axes.set_xlim(0.99, TOP_RHAT)
    good = float((moving <= verdict.RHAT_GOOD).mean()) if len(moving) else float("nan")
    notes = [f"{_percent(good)} are at most {verdict.RHAT_GOOD}"] if len(moving) else []
    notes += [f"{beyond:,} above {TOP_RHAT} (last bar)"] if beyond else []
    _notes(axes, values, notes, text)


def _ess(axes, values, text, chains):
    moving = values[~np.isnan(values)]
    if len(moving):
        # Bins from 0, whose width does not vanish where all values are the same.
        axes.hist(moving, np.linspace(0, max(1.0, moving.max()), 51), color=COLOURS[4])
    least = verdict.ESS_PER_CHAIN * chains
    _mark(axes, least, DOUBTFUL)
    axes.set_xlim(left=0)
    share = float((moving >= least).mean()) if len(moving) else float("nan")
    _notes(axes, values, [f"{_percent(share)} have at least {least}"] if len(moving) else [], text)


def _mark(axes, value, colour):
    axes.axvline(value, color=colour, **DASHED)
    across = axes.get_xaxis_transform()
    axes.text(value, 1.0, f" {value}", fontsize=8.5, va="top", transform=across)


def _percent(share):
    """Round down, so that 100 % means all."""
    return f"{np.floor(1000 * share) / 10:g} %"


def _notes(axes, values, notes, text):
    still = int(np.isnan(values).sum())
    notes += [f"{still:,} never moved"] if still else []
    heading(axes, f"{text} ({len(values):,})")
    axes.set_ylim(top=1.4 * axes.get_ylim()[1])  # room for the notes
    axes.text(0.98, 0.97, "\n".join(notes), transform=axes.transAxes, ha="right", va="top",
              fontsize=9, color=INK)  # fmt: skip
    axis_label(axes, y="entries")
    tidy(axes, "y")


def agreement(
    fit, *, first: str, runs: str = "chains", convergence: Callable = convergence_figure
) -> Section:
    """Show R-hat of entries and factors, and how alike factors are in some `runs` and the others.

    `first` says what counts first in the figure of `convergence`.
    """
    histograms, note = image(convergence(fit), "Histograms of R-hat"), ""
    if histograms:
        note = (
            f"R-hat compares the spread between {runs} with the spread within each. {first} Dashed "
            "lines: what entries have that are good, and usable. The verdict asks how far "
            "predictions are apart."
        )
    elif fit.usage_draws.shape[1] < MIN_DRAWS:
        note = f"Too few draws for R-hat: at least {MIN_DRAWS} a chain are needed."
    alike = image(agreement_figure(fit, runs), "Agreement about each factor")
    caption = f"With one {runs.removesuffix('s')} there is nothing to compare the factors with."
    if alike:
        caption = (
            f"For each factor, how alike it is in the {runs} that differ most and in all others: 1 "
            f"is the same. A factor below the dashed line does not count as found by all {runs}."
        )
    return section(f"Do the {runs} agree?", note, histograms, caption, alike)


def modes(fit) -> Section | None:
    """Show the modes that chains are in where they disagree; of one mode, where they differ."""
    if not fit.figures.chains_differ:
        return None
    found = fit.modes
    if len(found) == 1:
        return None if found.differences is None else _one_mode(found)
    return section(
        "Modes",
        WEIGHTED[found.weighted_by],
        image(modes_figure(fit), "Weights of the modes, and the draws of each chain in them"),
        table(found.table),
        found.shared,
    )


def _one_mode(found) -> Section:
    """Show in which lines the chains of one mode differ."""
    lines = found.differences.head(SHOWN_LINES).set_index("name")
    shown = table(lines) if len(lines) else ""
    note = (
        "In how many of its entries of the factors chains differ (R-hat above "
        f"{verdict.RHAT_USABLE}), and how many of these are stuck: they never change within a "
        "chain."
    )
    return section("Modes", found.sentence, note if len(lines) else "", shown)


def modes_figure(fit) -> Figure:
    """Draw the weights of the modes, and which of them each chain is in."""
    figure = new_figure(7, 1.2 + 0.24 * (1 + fit._num_chains))
    draw_modes(figure.add_subplot(), fit)
    return figure


def draw_modes(axes, fit) -> None:
    """Draw the weights of the modes as a bar, and below it the draws of each chain."""
    found = fit.modes
    shares = [(found.labels == m).mean(1) for m in range(len(found))]
    lines = np.column_stack([found.weights, np.array(shares)])
    names = [f"weights ({found.weighted_by})", *(f"chain {c + 1}" for c in range(len(shares[0])))]
    left = np.zeros(len(names))
    for m, line in enumerate(lines):
        axes.barh(names, line, left=left, height=0.7, color=COLOURS[m % len(COLOURS)],
                  edgecolor=EDGE, linewidth=0.5, label=f"mode {m + 1}")  # fmt: skip
        left += line
    axes.invert_yaxis()
    axes.set_xlim(0, max(1.0, left.max()))
    axis_label(axes, "share of the draws, and of the weight")
    tidy(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)


def spread(fit, *, of: str = "") -> Section | None:
    """Show how far apart the solutions in the draws are; `of` names what is compared besides.

    Empty factors have no direction, and do not count.
    """
    heading, empty = "How far apart are the solutions?", fit._empty
    if empty is not None and empty.all():
        return None
    if fit._spread.largest < SAME:
        return section(
            heading,
            "They are the same: all draws that were compared have the same factors (columns of the "
            f"basis{of}) to within {SAME} degrees. Entries and usages may still be uncertain.",
        )
    return section(
        heading,
        "Two draws are as far apart as the largest angle between their matched factors (columns of "
        f"the basis{of}): 0 degrees for the same factors, 90 if one of them shares nothing"
        f"{'; empty factors are left out' * (empty is not None and bool(empty.any()))}. The "
        "curve shows how many draws it takes to have one within that angle of every other. If it "
        f"falls to 1 at a small angle, there is one solution. {_beyond_one(fit)}",
        image(spread_figure(fit._spread), "Covering numbers of the draws by angle"),
    )


def _beyond_one(fit) -> str:
    """Say what it means that the curve stays above 1: chains that agree are in one solution."""
    if fit._num_chains > 1 and fit.verdict.factors.holds:
        return (
            "Here the chains agree on the factors, and the curve shows how much the draws of each "
            "vary. A factor that a draw lacks is at 90 degrees from itself in the others."
        )
    return (
        "If it stays at 2 or more over a wide range, there may be as many solutions, or draws in "
        "which a factor comes and goes. The verdict says whether chains differ."
    )


def spread_figure(found: Coverage) -> Figure:
    """Draw how many draws it takes to have one within an angle of every other, by the angle."""
    figure = new_figure(10, 2.8)
    axes = figure.add_subplot()
    axes.step(found.radii, found.covering, where="post", color=COLOURS[0], linewidth=2)
    axes.set_yscale("log")
    ticks = [t for t in (1, 2, 3, 5, 10, 20, 50, 100) if t <= max(found.covering)]
    axes.set_yticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    axes.set_xlim(0, max(found.largest, 1.0))
    axes.set_ylim(0.9, 1.2 * max(2, *found.covering))
    axis_label(axes, "angle in degrees", "draws that cover all")
    tidy(axes, "y")
    return figure


def agreement_figure(fit, runs: str = "chains") -> Figure | None:
    """Draw how alike each factor is in the chains that differ most and in the others."""
    if fit._num_chains == 1:
        return None
    figure = new_figure(10, 1.0 + 0.2 * max(fit.rank, 4))
    axes = figure.add_subplot()
    factors = np.arange(1, fit.rank + 1)
    colours = [COLOURS[0] if a >= AGREEING else COLOURS[1] for a in fit.agreement]
    axes.hlines(factors, 0, fit.agreement, color=colours, linewidth=3)
    axes.scatter(fit.agreement, factors, color=colours, s=34, zorder=3)
    axes.axvline(AGREEING, color=EDGE, **DASHED)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(fit.rank + 0.6, 0.4)
    axes.set_yticks(factors, map(plain, fit._factor_titles))
    axis_label(
        axes, f"smallest likeness of the factor's tile in some {runs} and the others", "factor"
    )
    tidy(axes, "x")
    return figure

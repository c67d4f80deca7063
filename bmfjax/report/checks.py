"""Figures of convergence: R-hat, effective draws, and agreement of the chains."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from bmfjax import logistic_entries, posterior, trust
from bmfjax.diagnostics import ess_bulk, split_rhat
from bmfjax.report.style import COLOURS, INK, heading, new_figure, tidy
from bmfjax.solutions import farther_solutions, solutions

#: Scalars whose R-hat and effective draws are computed, and draws needed for that.
MAX_SCALARS, MIN_DRAWS = 3000, 4
#: A factor counts as found by two chains from this cosine of its tiles on.
AGREEING = 0.8
#: Values of R-hat above this share the last bar.
TOP_RHAT = 1.2


def convergence_figure(fit) -> Figure | None:
    """Histograms of R-hat and effective draws, for reconstructed entries and factor entries.

    Rows and columns without an observed entry are left out: they follow the prior alone.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    matplotlib.figure.Figure or None
        None with fewer than four kept draws a chain.
    """
    if fit.usage_draws.shape[1] < MIN_DRAWS:
        return None
    figure = new_figure(10, 5.6)
    panels = figure.subplots(2, 2, sharex="col")
    for row, (text, draws) in zip(
        panels,
        (
            ("Reconstructed entries", reconstructed_entries(fit)),
            ("Entries of the aligned factors", factor_entries(fit)),
        ),
        strict=True,
    ):
        _rhat(row[0], split_rhat(draws), text)
        _ess(row[1], ess_bulk(draws), text, fit.num_chains)
    panels[1, 0].set_xlabel("R-hat (1 is best)", fontsize=9.5, color=INK)
    panels[1, 1].set_xlabel("effective draws (more is better)", fontsize=9.5, color=INK)
    return figure


def starts_figure(fit) -> Figure | None:
    """Histograms of R-hat across the starts of a variational fit, of log odds and of factors.

    Of the normals that the starts reached, not of their draws.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    matplotlib.figure.Figure or None
        None with one start.
    """
    if fit.num_chains == 1:
        return None
    figure = new_figure(10, 3.0)
    panels = figure.subplots(1, 2)
    at, rank, (rows, columns) = fit.approximation, fit.rank, _informed(fit)
    of_factors = [
        logistic_entries.rhat(*(at[f"{name}_{m}"][:, lines, :rank] for m in ("mean", "variance")))
        for name, lines in (("usage", rows), ("basis", columns))
    ]
    entries = logistic_entries.sampled_rhat(at, fit.data, MAX_SCALARS)
    _rhat(panels[0], entries, "Log odds")
    _rhat(panels[1], np.concatenate([r.ravel() for r in of_factors]), "Factors, matched")
    for axes in panels:
        axes.set_xlabel("R-hat (1 is best)", fontsize=9.5, color=INK)
    return figure


def reconstructed_entries(fit) -> np.ndarray:
    """Draws of up to 3,000 entries of the reconstruction, (chain, draw, entry)."""
    rows, columns = _informed(fit)
    usage, basis = fit.usage_draws, fit.basis_draws
    if fit.is_real:
        everything = np.arange(fit.data.num_rows), np.arange(fit.data.num_columns)
        usage, basis = fit.product_draws(*everything)
    return posterior.sampled_entries(usage, basis, MAX_SCALARS, rows=rows, columns=columns)


def factor_entries(fit) -> np.ndarray:
    """Draws of up to 3,000 entries of usage and basis, (chain, draw, entry)."""
    rows, columns = _informed(fit)
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


def _informed(fit):
    rows = np.setdiff1d(np.arange(fit.data.num_rows), fit.data.empty_rows)
    return rows, np.setdiff1d(np.arange(fit.data.num_columns), fit.data.empty_columns)


def _rhat(axes, values, text):
    moving = values[~np.isnan(values)]
    beyond = int((moving > TOP_RHAT).sum())
    edges = np.linspace(0.99, TOP_RHAT, 64)
    axes.hist(np.clip(moving, 0.99, TOP_RHAT), edges, color=COLOURS[0])
    for value, colour in ((trust.RHAT_GOOD, "#2a9d78"), (trust.RHAT_USABLE, "#d1495b")):
        axes.axvline(value, color=colour, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.text(value, 1.0, f" {value}", color=colour, fontsize=8.5, va="top",
                  transform=axes.get_xaxis_transform())  # fmt: skip
    axes.set_xlim(0.99, TOP_RHAT)
    good = float((moving <= trust.RHAT_GOOD).mean()) if len(moving) else float("nan")
    notes = [f"{_percent(good)} are at most {trust.RHAT_GOOD}"] if len(moving) else []
    notes += [f"{beyond:,} above {TOP_RHAT} (last bar)"] if beyond else []
    _notes(axes, values, notes, text)


def _ess(axes, values, text, chains):
    moving = values[~np.isnan(values)]
    if len(moving):
        # Bins from 0, whose width does not vanish where all values are the same.
        axes.hist(moving, np.linspace(0, max(1.0, moving.max()), 51), color=COLOURS[4])
    least = trust.ESS_PER_CHAIN * chains
    axes.axvline(least, color="#d1495b", linewidth=1.2, linestyle=(0, (4, 3)))
    axes.text(least, 1.0, f" {least}", color="#d1495b", fontsize=8.5, va="top",
              transform=axes.get_xaxis_transform())  # fmt: skip
    axes.set_xlim(left=0)
    share = float((moving >= least).mean()) if len(moving) else float("nan")
    _notes(axes, values, [f"{_percent(share)} have at least {least}"] if len(moving) else [], text)


def _percent(share):
    """Rounded down, so that 100 % means all."""
    return f"{np.floor(1000 * share) / 10:g} %"


def _notes(axes, values, notes, text):
    still = int(np.isnan(values).sum())
    notes += [f"{still:,} never moved"] if still else []
    heading(axes, f"{text} ({len(values):,})")
    axes.set_ylim(top=1.4 * axes.get_ylim()[1])  # room for the notes
    axes.text(0.98, 0.97, "\n".join(notes), transform=axes.transAxes, ha="right", va="top",
              fontsize=9, color=INK)  # fmt: skip
    axes.set_ylabel("entries", fontsize=9.5, color=INK)
    tidy(axes, "y")


def solutions_figure(fit) -> Figure:
    """How many draws it takes to have one within an angle of every other, by the angle.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    matplotlib.figure.Figure
    """
    if fit.model == "nmf":
        found = farther_solutions(fit.usage_draws, fit.basis_draws)
    else:
        found = solutions(fit.basis_draws, signed=not fit.is_signed)
    figure = new_figure(10, 2.8)
    axes = figure.add_subplot()
    axes.step(found.radii, found.covering, where="post", color=COLOURS[0], linewidth=2)
    axes.set_yscale("log")
    ticks = [t for t in (1, 2, 3, 5, 10, 20, 50, 100) if t <= max(found.covering)]
    axes.set_yticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    axes.set_xlim(0, max(found.largest, 1.0))
    axes.set_ylim(0.9, 1.2 * max(2, *found.covering))
    axes.set_xlabel("angle in degrees", fontsize=9.5, color=INK)
    axes.set_ylabel("draws that cover all", fontsize=9.5, color=INK)
    tidy(axes, "y")
    return figure


def agreement_figure(fit) -> Figure | None:
    """How alike each factor is in the two chains that differ most in it.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    matplotlib.figure.Figure or None
        None with one chain.
    """
    if fit.num_chains == 1:
        return None
    figure = new_figure(10, 1.0 + 0.2 * max(fit.rank, 4))
    axes = figure.add_subplot()
    factors, chains = np.arange(1, fit.rank + 1), "starts" if fit.approximation else "chains"
    colours = [COLOURS[0] if a >= AGREEING else COLOURS[1] for a in fit.agreement]
    axes.hlines(factors, 0, fit.agreement, color=colours, linewidth=3)
    axes.scatter(fit.agreement, factors, color=colours, s=34, zorder=3)
    axes.axvline(AGREEING, color="#8d94a3", linewidth=1.2, linestyle=(0, (4, 3)))
    axes.set_xlim(0, 1.02)
    axes.set_ylim(fit.rank + 0.6, 0.4)
    axes.set_yticks(factors, [str(k) for k in factors])
    axes.set_ylabel("factor", fontsize=9.5, color=INK)
    axes.set_xlabel(
        f"smallest likeness of the factor's tile between two {chains}", fontsize=9.5, color=INK
    )
    tidy(axes, "x")
    return figure

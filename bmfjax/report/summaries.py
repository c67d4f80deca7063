"""Scalars of the whole fit, which no order of its factors changes, in ArviZ's plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bmfjax import verdict
from bmfjax.data.bits import count_ones
from bmfjax.diagnostics.arviz import is_legacy, plot_scalars
from bmfjax.posterior.packed import PackedDraws
from bmfjax.report.section import Section, image, section
from bmfjax.report.style import COLOURS, axis_label, heading, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Scalars by their names in a fit, and what they are called here.
SCALARS = {
    "log_joint": "Log joint density",
    "rank": "Number of factors",
    "precision": "Noise precision",
    "flip_rate": "Flip rate",
    "intercept": "Intercept",
    "dispersion": "Dispersion",
    "bias": "Bias",
    "residual": "Squared residuals",
}
#: Scalars that are shown at most, and draws of a chain that are needed.
MOST, MIN_DRAWS = 5, 20
#: Relative differences that are rounding, of numbers in double precision.
ROUNDING = 1e-12
SIDES = ("Usage", "Basis")
RANKS = {
    True: "Ranks of the draws among those of all chains, a row of bars for each chain. Bars of "
    "chains that agree are near their dashed line.",
    False: "Ranks of the draws among those of all chains: how far their distribution in each chain "
    "is from an even one. Lines of chains that agree stay near zero. Black stretches are too far.",
}


def summaries(fit) -> Section | None:
    """Show how the chains agree on scalars; None of what has no chains to compare."""
    drawn = scalars(fit)
    if fit._is_variational or fit.figures.log_evidence is not None or not drawn:
        return None
    parts = [
        "Plots of ArviZ, of the kept draws. What they show of the fit does not depend on how "
        "factors are matched."
    ]
    # The others, or what amounts to them, have their traces already, with the warm-up.
    untraced = {n: v for n, v in drawn.items() if n.startswith(SIDES)}
    if 1 < fit._num_chains <= len(COLOURS):
        if untraced:
            parts += [
                "The density of each chain's draws, and the draws in order. Curves of chains that "
                "agree lie on each other.",
                image(scalars_figure(untraced), f"Density and trace of {_listed(untraced)}"),
            ]
        parts += [RANKS[is_legacy()], image(rank_figure(drawn), f"Ranks of {_listed(drawn)}")]
    parts += [
        "Effective draws by the number of draws, blue of the centre and red of the tails. They "
        "should grow with the draws, and end above the dashed line, as those of a reliable fit do.",
        image(size_figure(drawn), f"Effective draws of {_listed(drawn)}"),
    ]
    return section("Do the chains agree on the whole?", *parts)


def scalars(fit) -> dict[str, np.ndarray]:
    """Return draws (chain, draw) of up to five scalars that moved, by what they are called."""
    if fit.usage_draws.shape[1] < MIN_DRAWS:
        return {}
    found = {}
    for name, text in SCALARS.items():
        if name in fit.other_draws:
            found[text] = np.asarray(fit.other_draws[name], float)
        elif name in fit.trace:
            found[text] = np.asarray(fit._kept_trace(name), float)
    if "Flip rate" in found:
        found.pop("Dispersion", None)  # a function of it
    if "Flip rate" in found and found["Flip rate"].ndim == 3:
        rates = found.pop("Flip rate")
        found |= {f"Flip rate of {n}": rates[..., k] for k, n in enumerate(("zeros", "ones"))}
    if hasattr(fit, "tiles"):
        found |= _of_tiles(fit)
    moved = {n: v for n, v in found.items() if v.ndim == 2 and _moves(v)}
    return dict(list(moved.items())[:MOST])


def _moves(values) -> bool:
    """Tell whether draws differ by more than rounding, unlike shares of one factor a row."""
    return bool(np.ptp(values) > ROUNDING * np.abs(values).max())


def _of_tiles(fit) -> dict[str, np.ndarray]:
    """Return how full the factors are, and how many have ones on both sides."""
    shares = [_share(draws) for draws in (fit.usage_draws, fit.basis_draws)]
    kind = "share of ones" if fit._is_boolean else "mean"
    found = {f"{n}: {kind}": s.mean(-1) for n, s in zip(SIDES, shares, strict=True)}
    if fit._is_boolean and "rank" not in fit.trace:
        found["Factors with a tile"] = ((shares[0] > 0) & (shares[1] > 0)).sum(-1).astype(float)
    return found


def _share(draws) -> np.ndarray:
    """Return the mean of each factor, (chain, draw, rank)."""
    if isinstance(draws, PackedDraws):
        return count_ones(draws.words) / draws.size
    return np.asarray(draws.mean(2), float)


def _listed(drawn) -> str:
    return ", ".join(name[0].lower() + name[1:] for name in drawn)


def scalars_figure(drawn) -> Figure:
    """Draw density and trace of every chain."""
    figure = new_figure(10, 0.3 + 1.35 * len(drawn))
    panels = figure.subplots(len(drawn), 2, width_ratios=(1, 2.6), squeeze=False)
    plot_scalars("trace", drawn, panels, COLOURS)
    for (left, right), name in zip(panels, drawn, strict=True):
        _plain(left, name)
        _plain(right, "")
        left.set_yticks([])
    axis_label(panels[-1, 1], "kept draw")
    return figure


def rank_figure(drawn) -> Figure:
    """Draw the ranks of the draws of every chain."""
    figure, panels = _row(drawn)
    plot_scalars("rank", drawn, panels, COLOURS)
    for axes, name in zip(panels, drawn, strict=True):
        _plain(axes, name)
        axis_label(axes, "rank")
        axes.set_yticks([])
        for points in axes.collections:  # the black stretches of ArviZ 1.x
            points.set_sizes([4])
    axis_label(panels[0], y="chain" if is_legacy() else "difference")
    return figure


def size_figure(drawn) -> Figure:
    """Draw effective draws by the number of draws."""
    figure, panels = _row(drawn)
    chains = len(next(iter(drawn.values())))
    plot_scalars("ess", drawn, panels, COLOURS, verdict.ESS_PER_CHAIN * chains)
    for axes, name in zip(panels, drawn, strict=True):
        _plain(axes, name)
        axes.set_ylim(bottom=0)
        axis_label(axes, "draws of all chains")
    axis_label(panels[0], y="effective draws")
    return figure


def _row(drawn):
    figure = new_figure(10, 2.2)
    return figure, figure.subplots(1, len(drawn), squeeze=False)[0]


def _plain(axes, name: str) -> None:
    """Give what ArviZ drew the form of the page."""
    if axes.get_legend() is not None:
        axes.get_legend().remove()
    for text in list(axes.texts):
        text.remove()
    axes.set_title("")
    heading(axes, name)
    axes.set_xlabel("")
    axes.set_ylabel("")
    axes.locator_params(axis="x", nbins=4)
    tidy(axes)

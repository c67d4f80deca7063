"""Scalars of the whole fit, which no order of its factors changes: density, ranks, draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bmfjax import verdict
from bmfjax.data.bits import count_ones
from bmfjax.diagnostics import ess_bulk, ess_tail
from bmfjax.posterior.packed import PackedDraws
from bmfjax.report.section import Section, image, section
from bmfjax.report.style import COLOURS, DASHED, EDGE, axis_label, heading, new_figure, tidy

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
#: Points of a density, bins of ranks, and numbers of draws at which effective draws are shown.
POINTS, BINS, SIZES = 200, 20, 20


def summaries(fit) -> Section | None:
    """Show how the chains agree on scalars; None of what has no chains to compare."""
    drawn = scalars(fit)
    if fit._is_variational or fit.figures.log_evidence is not None or not drawn:
        return None
    parts = [
        "Plots of the kept draws. What they show of the fit does not depend on how factors are "
        "matched."
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
        parts += [
            "Ranks of the draws among those of all chains, a row of bars for each chain. Bars of "
            "chains that agree are near their dashed line.",
            image(rank_figure(drawn), f"Ranks of {_listed(drawn)}"),
        ]
    parts += [
        "Effective draws by the number of draws, blue of the centre and red of the tails. They "
        "should grow with the draws. The dashed line is what a run that ends by itself asks of "
        "scalars that count for its verdict; others may have fewer.",
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
    for (left, right), (name, values) in zip(panels, drawn.items(), strict=True):
        for chain, colour in zip(values, COLOURS, strict=False):
            left.plot(*density_of(chain), color=colour, linewidth=1.2)
            right.plot(chain, color=colour, linewidth=0.7, alpha=0.8)
        _plain(left, name)
        _plain(right, "")
        left.set_yticks([])
        left.set_ylim(bottom=0)
        right.set_xlim(0, max(values.shape[1] - 1, 1))
    axis_label(panels[-1, 1], "kept draw")
    return figure


def density_of(values) -> tuple[np.ndarray, np.ndarray]:
    """Return points, and the density of draws (draw,) there by a normal kernel.

    Its width is that of Silverman (1986), "Density estimation for statistics and data analysis",
    equation 3.31.

    Examples
    --------
    >>> at, density = density_of(np.random.default_rng(0).normal(size=1000))
    >>> step = at[1] - at[0]
    >>> bool(abs(density.sum() * step - 1.0) < 0.001), bool(abs(at[density.argmax()]) < 0.3)
    (True, True)
    """
    low, high = np.quantile(values, (0.25, 0.75))
    scale = min(values.std(), (high - low) / 1.34) or values.std()
    if scale == 0:  # a chain that never moved
        return np.full(2, values[0]), np.array([0.0, 1.0])
    width = 0.9 * scale * len(values) ** -0.2
    at = np.linspace(values.min() - 3.5 * width, values.max() + 3.5 * width, POINTS)
    near = (at[:, None] - values) / width
    density = np.exp(-0.5 * near**2).mean(1) / (width * (2.0 * np.pi) ** 0.5)
    return at, density


def rank_figure(drawn) -> Figure:
    """Draw the ranks of the draws of every chain."""
    figure, panels = _row(drawn)
    for axes, (name, values) in zip(panels, drawn.items(), strict=True):
        edges = np.linspace(0, values.size, min(BINS, values.shape[1] // 4) + 1)
        counts = [np.histogram(chain, edges)[0] for chain in ranks(values)]
        even, height = values.shape[1] / (len(edges) - 1), 1.05 * np.max(counts)
        for c, (found, colour) in enumerate(zip(counts, COLOURS, strict=False)):
            axes.stairs(c * height + found, edges, baseline=c * height, fill=True, color=colour)
            axes.axhline(c * height + even, color=EDGE, **(DASHED | {"linewidth": 1.0}))
        _plain(axes, name)
        axes.set_xlim(0, values.size)
        axis_label(axes, "rank")
        axes.set_yticks([])
    axis_label(panels[0], y="chain")
    return figure


def ranks(values) -> np.ndarray:
    """Return ranks (chain, draw) of draws among all, equal ones in a random order.

    As ties they would look like disagreement.
    """
    flat = np.ravel(values)
    order = np.lexsort((np.random.default_rng(0).random(flat.size), flat))
    found = np.empty(flat.size)
    found[order] = np.arange(flat.size)
    return found.reshape(np.shape(values))


def size_figure(drawn) -> Figure:
    """Draw effective draws by the number of draws."""
    figure, panels = _row(drawn)
    numbers, *sizes = sizes_by_draws(np.stack(list(drawn.values()), -1))
    chains = len(next(iter(drawn.values())))
    for k, (axes, name) in enumerate(zip(panels, drawn, strict=True)):
        for found, colour in zip(sizes, COLOURS[:2], strict=True):
            axes.plot(chains * numbers, found[:, k], "o-", color=colour, markersize=3, linewidth=1)
        axes.axhline(verdict.ESS_PER_CHAIN * chains, color=EDGE, **(DASHED | {"linewidth": 1.0}))
        _plain(axes, name)
        axes.set_ylim(bottom=0)
        axis_label(axes, "draws of all chains")
    axis_label(panels[0], y="effective draws")
    return figure


def sizes_by_draws(values) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return numbers of draws, and for each the effective ones, of the centre and of the tails.

    `values` are (chain, draw, scalar), and the effective draws (number, scalar).
    """
    length = values.shape[1]
    points = max(2, min(SIZES, length // 4))  # each has the four draws that it needs
    numbers = np.linspace(length / points, length, points).astype(int)
    of = [[ess(values[:, :n]) for n in numbers] for ess in (ess_bulk, ess_tail)]
    return numbers, *map(np.array, of)


def _row(drawn):
    figure = new_figure(10, 2.2)
    return figure, figure.subplots(1, len(drawn), squeeze=False)[0]


def _plain(axes, name: str) -> None:
    """Name what was drawn, in the form of the page."""
    heading(axes, name)
    axes.locator_params(axis="x", nbins=4)
    tidy(axes)

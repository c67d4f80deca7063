"""What do the figures of the thesis show here?

Figures 4.1 to 4.12 of Gonsior 2019, from the runs of seed 0 that `thesis.py` made. Figures 4.2 and
4.3 show a model of three variables and need no runs. A figure is drawn where the folder holds all
of its runs; of the others it says which runs are missing.

    python -m benchmarks.papers.thesis_figures --work FOLDER
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.device import script
from benchmarks.papers.thesis import (
    BATCHES,
    DATA,
    FACTORS,
    PUBLISHED,
    STARTS,
    TRUE_RANK,
    Run,
    figures_of,
    read,
)

COLOURS = {"usage": "#2b5fa8", "basis": "#c4661f"}
PRIORS = ("flat", "Normal", "PanPAL")
#: x and y of the analogue, and where it is cut along z.
GRID, CUTS = np.linspace(0.0, 1.0, 101), (0.0, 0.25, 0.5, 0.75, 1.0)


class Missing(Exception):
    """A run that a figure needs is not in the folder."""


class Runs:
    """The runs of a folder, read when they are asked for."""

    def __init__(self, work: Path):
        self.work = work

    def path(
        self, draws=60_000, data="clean", prior="Normal", start="random", rank=TRUE_RANK, batch=512
    ) -> Path:
        return self.work / f"{Run(draws, data, prior, start, rank, batch, 0).name}.npz"

    def has(self, **about) -> bool:
        return self.path(**about).exists()

    def __call__(self, *place, **about) -> dict:
        path = self.path(*place, **about)
        if not path.exists():
            raise Missing(path.stem)
        return read(path)


def panels(rows: int, columns: int, size, x: str, y: str, **options):
    """A figure of small panels with one label for all of their axes."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    figure.supxlabel(x, fontsize=10)
    figure.supylabel(y, fontsize=10)
    return figure, axes


def grid(axes, rows, columns):
    """Yield the cell, and what stands for it in rows and columns, of a figure's panels."""
    for row, one in zip(axes, rows, strict=True):
        for cell, other in zip(row, columns, strict=True):
            yield cell, one, other


def log_likelihood(runs: Runs) -> Figure:
    """Figure 4.1: the log joint density over the first 10,000 draws."""
    figure, axes = panels(2, 3, (10, 5.5), "draw", "log joint density", sharex=True)
    for cell, start, prior in grid(axes, STARTS, PRIORS):
        for batch in BATCHES:
            trace = runs(prior=prior, start=start, batch=batch)["log_joint"]
            every = 60_000 // len(trace)
            shown = trace[: 10_000 // every]
            cell.plot(np.arange(len(shown)) * every, shown, label=f"batch {batch}", linewidth=1)
        cell.set_title(f"{prior} prior, from {_named(start)}", fontsize=10, loc="left")
    axes[0, 0].legend(fontsize=8)
    return figure


def analogue(x, y, z, ones, normal: bool):
    """Log-likelihood of the model of three variables: equation 4.1, or 4.2 with the Normal prior.

    The thesis prints minus signs between the squares. With these the second and third would be
    rewarded for missing their data, against what its figures show; the sum of squares is meant.
    """
    a, b, c = ones
    squares = (x * y - a) ** 2 + (x * z - b) ** 2 + (y * z - c) ** 2
    return -0.5 * (squares + (x * x + y * y + z * z if normal else 0.0))


def maxima(values: np.ndarray) -> np.ndarray:
    """Where on the grid a cut is largest, as indices (point, axis): many where it is flat."""
    return np.argwhere(values >= values.max() - 1e-9)


def low_dimensional(normal: bool) -> Figure:
    """Figures 4.2 and 4.3: cuts through the analogue, with their maxima."""
    figure, axes = panels(len(CUTS), 8, (14, 9), "x", "y", sharex=True, sharey=True)
    x, y = np.meshgrid(GRID, GRID, indexing="ij")
    for column, ones in enumerate(itertools.product((0, 1), repeat=3)):
        for row, z in enumerate(CUTS):
            values, cell = analogue(x, y, z, ones, normal), axes[row, column]
            cell.contourf(GRID, GRID, values.T, levels=np.linspace(-3, 0, 25), cmap="viridis",
                          extend="min")  # fmt: skip
            at = maxima(values)
            cell.plot(GRID[at[:, 0]], GRID[at[:, 1]], "o", color="red", markersize=3, clip_on=False)
            cell.set_aspect("equal")
            if row == 0:
                cell.set_title("a, b, c = " + ", ".join(map(str, ones)), fontsize=9)
            if column == 0:
                cell.set_ylabel(f"z = {z}", fontsize=9)
    return figure


def mean_images(runs: Runs) -> Figure:
    """Figure 4.4: posterior means of both factors, transposed; red is 0, yellow 0.5, blue 1."""
    figure, axes = panels(2, 2, (11, 5), "row or column of the matrix", "factor")
    for cell, start, name in grid(axes, STARTS[::-1], FACTORS):
        image = runs(start=start)[f"{name}_mean"].T
        colours = {"cmap": "RdYlBu", "vmin": 0, "vmax": 1, "interpolation": "nearest"}
        shown = cell.imshow(image, aspect="auto", **colours)
        cell.set_title(f"{name}, from {_named(start)}", fontsize=10, loc="left")
    figure.colorbar(shown, ax=axes, label="posterior mean", shrink=0.8)
    return figure


def mean_histograms(runs: Runs, draws: int) -> Figure:
    """Figures 4.5 and 4.6: histograms of the posterior means above 0.05."""
    figure, axes = panels(2, 2, (8, 5), "posterior mean", "entries", sharex=True)
    for cell, start, name in grid(axes, STARTS[::-1], FACTORS):
        means = runs(draws=draws, start=start)[f"{name}_mean"].ravel()
        cell.hist(means[means >= 0.05], bins=np.linspace(0.05, 1, 39), color=COLOURS[name])
        below = f"{int((means < 0.05).sum()):,} below 0.05"
        cell.set_title(f"{name}, from {_named(start)}; {below}", fontsize=9, loc="left")
    return figure


def mean_and_sd(runs: Runs, rank: int) -> Figure:
    """Figures 4.7, 4.10 and 4.11: standard deviation against mean, by length and start.

    Two million draws are shown where the run is there: it takes the longest of all.
    """
    lengths = (60_000, 600_000)
    if rank == TRUE_RANK and runs.has(draws=2_000_000):
        lengths += (2_000_000,)
    figure, axes = panels(2, len(lengths), (3.6 * len(lengths), 6), "posterior mean",
                          "posterior standard deviation", sharex=True, sharey=True)  # fmt: skip
    for cell, start, draws in grid(axes, STARTS, lengths):
        if draws == 2_000_000 and start == "optimum":
            cell.set_axis_off()  # not among the thesis's runs
            continue
        _scatter(cell, runs(draws=draws, start=start, rank=rank), "sd")
        title = f"{draws:,} draws, from {_named(start)}"
        cell.set_title(title, fontsize=9, loc="left")
    _legend(axes[0, 0])
    return figure


def noisy_mean_and_sd(runs: Runs) -> Figure:
    """Figure 4.7 for the noisy matrix: the run of two million draws."""
    figure, axes = panels(1, 1, (4.4, 3.6), "posterior mean", "posterior standard deviation")
    _scatter(axes[0, 0], runs(draws=2_000_000, data="noisy"), "sd")
    axes[0, 0].set_title("noisy, 2,000,000 draws, from a random start", fontsize=9, loc="left")
    _legend(axes[0, 0])
    return figure


def by_prior_and_batch(runs: Runs, of: str) -> Figure:
    """Figures 4.8 and 4.9: standard deviation, or mean gradient, against mean."""
    label = {"sd": "posterior standard deviation", "gradient": "mean gradient"}[of]
    shared = {"sharex": True, "sharey": of == "sd"}
    figure, axes = panels(2, 6, (16, 5.5), "posterior mean", label, **shared)
    for cell, batch, (start, prior) in grid(axes, (75, 512), [*itertools.product(STARTS, PRIORS)]):
        _scatter(cell, runs(prior=prior, start=start, batch=batch), of)
        title = f"{prior}, batch {batch},\nfrom {_named(start)}"
        cell.set_title(title, fontsize=9, loc="left")
    _legend(axes[0, 0])
    return figure


def _scatter(cell, kept: dict, of: str) -> None:
    """One dot an entry: its mean, and its standard deviation or mean gradient."""
    for name in FACTORS:
        gradient = kept[f"gradient_{name}_mean"]
        y = np.sqrt(kept[f"{name}_variance"]) if of == "sd" else gradient
        cell.plot(kept[f"{name}_mean"].ravel(), y.ravel(), ".", markersize=2, alpha=0.3,
                  color=COLOURS[name], markeredgewidth=0, rasterized=True, label=name)  # fmt: skip


def _legend(cell) -> None:
    for handle in cell.legend(fontsize=8, markerscale=4).legend_handles:
        handle.set_alpha(1)


def thresholds(runs: Runs) -> Figure:
    """Figure 4.12: the thresholds with the fewest errors, by the index of tables 4.1 and 4.2."""
    figure, axes = panels(1, 2, (10, 4.5), "index in the table", "best thresholds", sharey=True)
    rows = list(itertools.product(DATA, PRIORS, BATCHES))
    for column, (cell, start) in enumerate(zip(axes[0], STARTS, strict=True)):
        for index, (data, prior, batch) in enumerate(rows):
            run = Run(60_000, data, prior, start, TRUE_RANK, batch, 0)
            found = figures_of(run, runs(*run[:-1]))
            ours, theirs = (
                (found["tau_min"], found["tau_max"]),
                PUBLISHED[start, data, prior, batch],
            )
            for shift, (low, high), colour, label in (
                (-0.15, ours, "#2b5fa8", "here"), (0.15, theirs[2:], "#999999", "thesis"),
            ):  # fmt: skip
                # A single threshold is drawn as wide as a step of its grid.
                cell.vlines(index + shift, low - 0.005, high + 0.005, colour, linewidth=4,
                            label=label if index == column == 0 else None)  # fmt: skip
        cell.axhline(0.5, color="red", linewidth=1)
        cell.set_xticks(range(len(rows)))
        cell.set_ylim(0, 1)
        cell.set_title(f"from {_named(start)}", fontsize=10, loc="left")
    axes[0, 0].legend(fontsize=8)
    return figure


def _named(start: str) -> str:
    return "the optimum" if start == "optimum" else "a random start"


def all_figures(runs: Runs) -> Iterator[tuple[str, object]]:
    """Their numbers, and what draws them."""
    yield "4.01", lambda: log_likelihood(runs)
    yield "4.02", lambda: low_dimensional(normal=False)
    yield "4.03", lambda: low_dimensional(normal=True)
    yield "4.04", lambda: mean_images(runs)
    yield "4.05", lambda: mean_histograms(runs, 60_000)
    yield "4.06", lambda: mean_histograms(runs, 600_000)
    yield "4.07", lambda: mean_and_sd(runs, TRUE_RANK)
    yield "4.07_noisy", lambda: noisy_mean_and_sd(runs)
    yield "4.08", lambda: by_prior_and_batch(runs, "sd")
    yield "4.09", lambda: by_prior_and_batch(runs, "gradient")
    yield "4.10", lambda: mean_and_sd(runs, 20)
    yield "4.11", lambda: mean_and_sd(runs, 40)
    yield "4.12", lambda: thresholds(runs)


ANSWER = """
All 108 runs of 60,000 draws of its table 3.2 have been made, all 24 of 600,000 draws and both of
two million, and twelve more with the Beta prior.

* Ten times as many draws bring chains from both starts nearer to each other: 60,000 draws show the
  start. On the clean matrix with the Normal prior and batch 512 the wrong entries go from 295 to
  70; after two million draws there are as many. On the noisy matrix two million leave [224
  wrong](results/thesis_runs_noisy.json).
* At rank 20 ten of the thirty tiles, 640 entries, cannot be had. From the optimum, clean, runs have
  640 to 840 wrong entries at the best threshold, and from a random start 702 to 1,920, which is
  everything. At rank 40, clean, seven of the nine runs from the optimum come to none.
* With the Beta prior, which the thesis left out of its tables, chains end in a corner and stay.
* Standard deviations fall with the length of the run: on average from 0.030 to 0.013 and, after two
  million draws, to 0.0075 from a random start. The thesis takes this as certainty. It is neither:
  a posterior's do not depend on the length of a chain, and those of this posterior are [far
  larger](#what-does-the-posterior-of-the-thesis-know).

`python -m benchmarks.papers.thesis_figures --work FOLDER`: [tables and
figures](results/thesis_runs.md), [record](results/thesis_runs.json). `python
-m benchmarks.papers.thesis --work FOLDER`: [the other runs of table
3.2](results/thesis_runs_table_3_2.json).
"""


@script(__doc__, work=dict(type=Path, required=True, help="folder of the runs"))
def main(options):
    for number, draw in all_figures(Runs(options.work)):
        try:
            figure = draw()
        except Missing as missing:
            print(f"figure {number}: the run {missing} is missing; make it with thesis.py")
            continue
        path = options.results / f"thesis_figure_{number.replace('.', '_')}.png"
        figure.savefig(path, dpi=100)
        print(path)

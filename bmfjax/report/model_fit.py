"""Whether the model fits the data: what it explains, calibration, and replicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from bmfjax.diagnostics.leave_one_out import percent
from bmfjax.posterior.latent_classes import predicted_by_classes
from bmfjax.posterior.model_check import BINARY, SPREADS, LeftOut, ModelCheck
from bmfjax.posterior.scores import observed_sample
from bmfjax.report.section import Section, image, section, table
from bmfjax.report.style import (
    COLOURS,
    DASHED,
    EDGE,
    axis_label,
    heading,
    new_figure,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def model_section(fit) -> Section | None:
    """Show what the model explains, and where data of its own differ from the data."""
    if not fit._can_be_checked or fit.verdict.is_of_starts:
        return None
    found = fit.check()
    statistics = found.statistics.drop(columns="worst").astype(float)
    statistics.insert(1, "worst", found.statistics["worst"])
    return section(
        "Does the model fit?",
        f"{found} What it explains is measured on {found.num_entries:,} observed entries, each "
        "left out.",
        None if fit.held_out is None else f"{fit.held_out} The draws of this page are of all.",
        None
        if found.calibration is None
        else image(calibration_figure(found), "Calibration of probabilities", wide=False),
        "Data that the draws make are compared with the data: the row, column or pair of columns "
        "that is farthest off is named, and the p-value is the share of made data in which some "
        "row, column or pair is as far off.",
        "Dispersions are squared distances of counts from what is expected of them, in parts of "
        "it: 1 for Poisson counts, above it for those that scatter more."
        if "dispersions" in statistics.index
        else None,
        "Spreads are root mean squares of a row or a column about what is fitted, in the unit of "
        "the data: those of the noise, unless it differs by row or column."
        if SPREADS[0] in statistics.index
        else None,
        table(statistics),
    )


def explained_bar(fit) -> Markup:
    """Show what the model explains as a part of a bar, with two standard errors, beside others."""
    # Where chains began says nothing of entries that are left out.
    if not fit._can_be_checked or fit.verdict.is_of_starts:
        return Markup("")
    found = fit._left_out
    ends = [found.explained + side * 2.0 * found.explained_error for side in (-1, 0, 1)]
    low, share, high = (100 * min(max(end, 0.0), 1.0) for end in ends)
    classes, beside = _share_of_classes(fit, found), Markup("")
    others = f"{found.baseline} 0\N{NO-BREAK SPACE}%"
    if classes is not None:
        others += f", latent classes {100 * classes:z.0f}\N{NO-BREAK SPACE}%"
        beside = Markup('<em style="left: {:.1f}%"></em>').format(100 * min(max(classes, 0.0), 1.0))
    elif fit._scored == BINARY:
        others += "; latent classes are not fitted to a matrix of this size"
    return Markup(
        '<div class="explained"><b>Explained: {}</b> ({})'
        '<div class="track"><i style="width: {:.1f}%"></i>'
        '<b style="left: {:.1f}%; width: {:.1f}%"></b>{}</div>'
        "<small><span>0 %: {}</span><span>100 %: every entry known</span></small></div>"
    ).format(
        percent(found.explained, found.explained_error), others, share, low, max(high - low, 0.3),
        beside, found.baseline,
    )  # fmt: skip


def _share_of_classes(fit, found: LeftOut) -> float | None:
    """Return what latent classes explain of the same entries, None where it would cost much."""
    if fit._scored != BINARY or not found.baseline_score:
        return None
    scores = predicted_by_classes(fit.data, observed_sample(fit.data))
    return None if scores is None else float(1.0 - scores.mean() / found.baseline_score)


def calibration_figure(found: ModelCheck) -> Figure:
    """Draw the share of ones beside the probability of a one, a dot a bin."""
    figure = new_figure(4.2, 3.6)
    draw_calibration(figure.subplots(), found)
    return figure


def draw_calibration(axes, found: ModelCheck) -> None:
    """Draw the share of ones beside the probability of a one, a dot a bin."""
    bins = found.calibration
    axes.plot([0, 1], [0, 1], color=EDGE, **DASHED)
    size = 20 + 180 * bins["entries"] / bins["entries"].max()
    axes.scatter(bins["predicted"], bins["observed"], s=size, color=COLOURS[0], alpha=0.85)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    tidy(axes, "both")
    heading(axes, found.calibration_text.capitalize())
    axis_label(axes, "probability of a one, entry left out", "share of ones")

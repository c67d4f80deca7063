"""What the page tells about binary features: what is common to all rows, and what is special."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup
from scipy.special import expit

from bmfjax.posterior.features import are_told, special_first
from bmfjax.report.factors import (
    FIRST_COLUMNS,
    FIRST_ROWS,
    MORE_COLUMNS,
    MORE_ROWS,
    Bar,
    Card,
    Names,
    agreement_of,
    label_shares,
    lines_left_out,
    trust_of_line,
)
from bmfjax.report.section import Section, section, template
from bmfjax.report.style import label_colours

#: A row that surely has a feature is named without a probability.
SURE = 0.995
#: Odds ratios are cut here: beyond, the data only say that they are large.
LARGE = 1000.0


def common(fit) -> Section:
    """Show what all rows have in common: the columns' chances without features, and row effects."""
    effect = fit.other_draws["column_effect"]
    chance = expit(effect.mean((0, 1), dtype=float))
    ends = expit(np.quantile(effect, (0.05, 0.95), axis=(0, 1)))
    order = np.argsort(-chance, kind="stable")[: FIRST_COLUMNS + MORE_COLUMNS]
    drew = not fit.verdict.is_of_starts
    bars = [
        Bar(
            fit.data.column_names[j],
            float(chance[j]),
            f"{chance[j]:.0%}" + _interval(f"{ends[0, j]:.0%}", f"{ends[1, j]:.0%}") * drew,
        )
        for j in order
    ]
    left_out = fit.data.num_columns - len(bars)
    card = Card(
        f"{fit.data.num_rows:,} rows x {fit.data.num_columns:,} columns",
        _spread_of_rows(fit),
        [],
        bars[:FIRST_COLUMNS],
        bars[FIRST_COLUMNS:],
        lines_left_out(left_out, "with lower chances"),
        _busy_rows(fit),
        heading="All rows",
    )
    return section(
        "What is common",
        "The chance of a one in a row of average effect that has none of the features"
        + ", with an interval of 90 %" * drew
        + ". Features change these odds.",
        Markup(template("cards.html").render(cards=[card], numbers=[0])),
    )


def _spread_of_rows(fit) -> str:
    if "row_scale" not in fit.other_draws:
        return "Rows have no effects of their own."
    if fit.verdict.is_of_starts:
        return ""
    scale = fit.other_draws["row_scale"]
    low, high = np.quantile(scale, (0.05, 0.95))
    return (
        "Rows differ in how many ones they have at all: standard deviation of their log odds "
        f"{scale.mean():.2f} ({low:.2f} to {high:.2f})."
    )


def _busy_rows(fit) -> list[Names]:
    if "row_effect" not in fit.other_draws or not fit.data.has_row_names:
        return []
    effect = fit.other_draws["row_effect"].mean((0, 1), dtype=float)
    if np.ptp(effect) < 0.01:  # as where chains begin: no row has more than another
        return []
    # No row is among both.
    found, number = [], min(FIRST_ROWS, fit.data.num_rows // 2)
    for heading, order in (("most", np.argsort(-effect)), ("least", np.argsort(effect))):
        names = [f"{fit.data.row_names[i]} (x {np.exp(effect[i]):.2f})" for i in order[:number]]
        left = fit.data.num_rows - number
        found.append(Names(f"Rows with the {heading} ones beside features, odds", names, [], left))
    return found


def feature_card(fit, line, k: int) -> Card:
    """Describe feature `k`, from its line of `Fit.summary` and of `Fit.tiles`."""
    found, colours = fit._found, label_colours(fit.data.row_labels or ())
    order = special_first(found, k)[: FIRST_COLUMNS + MORE_COLUMNS]
    order = order[found.concerned[order, k] > 0]
    known = are_told(fit)[:, k]
    bars = [_bar(fit, found, j, k, bool(known[j])) for j in order]
    first = len(bars) if len(bars) <= FIRST_COLUMNS + 2 else FIRST_COLUMNS
    left_out = fit.data.num_columns - len(bars)
    size = f"{int(line['rows']):,} rows; concerns {_columns_concerned(line)}"
    figures = agreement_of(fit, line) + found_by(fit, line)
    if found.too_few[k]:
        there = found.there[..., k]
        size = f"in {there.sum():,} of {there.size:,} draws: too few to tell its rows and columns"
        return Card(size, figures, [], [], [], "", [], *trust_of_line(line, fit._num_chains))
    return Card(
        size,
        figures,
        [
            Bar(name, float(share[k]), f"{100 * share[k]:.0f} %", colour=colours[name])
            for name, share in label_shares(fit).items()
        ],
        bars[:first],
        bars[first:],
        lines_left_out(left_out, "on which it has less effect"),
        _members(fit, found.members[:, k]),
        *trust_of_line(line, fit._num_chains),
    )


def found_by(fit, line) -> str:
    """Say how many independent searches found a feature by themselves, where that is known."""
    if "searches" not in line:
        return ""
    return f" Found by {line['searches']} of {fit.figures.searches} searches."


def _columns_concerned(line) -> str:
    """Say how many columns a feature concerns, and how many more it rather does than not."""
    number, unknown = int(line["columns"]), int(line["unknown"])
    text = f"{number:,} column{'s' * (number != 1)}"
    return f"{text}, and perhaps {unknown:,} more" if unknown else text


def _bar(fit, found, j: int, k: int, known: bool) -> Bar:
    mean, low, high = found.log_odds[:, j, k]
    share = found.concerned[j, k]
    classes = ["outside"] * bool(share < 0.5 or not known) + ["below"] * bool(mean < 0)
    before = fit.other_draws["basis_density"][..., k].mean(dtype=float)
    text = f"{share:.2f}; the data say little ({before:.2f} without them)"
    if known:
        if_so = " if so" * bool(share < 0.5)
        ratio, *ends = (_ratio(x) for x in (mean, low, high))
        # Where all are beyond what is told, one says it.
        beyond = ratio[0] in "<>" and {ratio} == {*ends}
        text = f"{share:.2f};{if_so} odds x {ratio}{'' if beyond else _interval(*ends)}"
    return Bar(fit.data.column_names[j], float(share), text, " ".join(classes))


def _interval(low: str, high: str) -> str:
    """Return an interval that stays in one line."""
    return " " + f"({low} to {high})".replace(" ", "\N{NO-BREAK SPACE}")


def _ratio(log_odds: float) -> str:
    if abs(log_odds) > np.log(LARGE):
        return f"> {LARGE:,.0f}" if log_odds > 0 else f"< {1 / LARGE:g}"
    value = float(np.exp(log_odds))
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _members(fit, share) -> list[Names]:
    rows = np.flatnonzero(share >= 0.5)
    rows = rows[np.argsort(-share[rows], kind="stable")]
    if not fit.data.has_row_names or not len(rows):
        return []
    names = [
        fit.data.row_names[i] + ("" if share[i] >= SURE else f" ({share[i]:.2f})")
        for i in rows[: FIRST_ROWS + MORE_ROWS]
    ]
    heading = "Rows that have it, the surest first"
    return [Names(heading, names[:FIRST_ROWS], names[FIRST_ROWS:], len(rows) - len(names))]

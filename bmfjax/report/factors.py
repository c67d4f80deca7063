"""What the page tells about each factor: its columns, its rows, and who uses it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from markupsafe import Markup

from bmfjax.data.blocks import spaced
from bmfjax.posterior import trust
from bmfjax.report import ordering
from bmfjax.report.section import Section, beside, digits, image, section, template
from bmfjax.report.style import (
    ON_DARK,
    ON_PALE,
    UNKNOWN,
    axis_label,
    colour_scale,
    label_colours,
    new_figure,
    plain,
    plain_colour_bar,
)
from bmfjax.report.tiles import tiles_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Columns shown at once and on a click, and names of rows likewise.
FIRST_COLUMNS, MORE_COLUMNS = 15, 60
FIRST_ROWS, MORE_ROWS = 12, 150
#: Columns and labels in a heat map.
MAX_BASIS_COLUMNS, MAX_LABELS = 60, 20
#: Weights of red, green and blue in how bright a colour is (ITU-R BT.601).
BRIGHTNESS = (0.299, 0.587, 0.114)


class Bar(NamedTuple):
    """A row of a table: a name, a bar and a number."""

    name: str
    share: float
    number: str
    look: str = ""  # classes of the style sheet: "outside", "below"
    colour: str = ""


class Names(NamedTuple):
    """Rows of a factor: those shown at once, those on a click, and how many are not listed."""

    heading: str
    first: list[str]
    more: list[str]
    left_out: int


class Card(NamedTuple):
    """What the page says of one factor."""

    size: str
    figures: str
    labels: list[Bar]
    first: list[Bar]
    more: list[Bar]
    left_out: str
    names: list[Names]
    trust: str = ""  # whether it is a tile to trust, and what speaks against it
    shade: str = ""  # a class of the style sheet
    name: str = ""  # of a known factor
    heading: str = ""  # of a card that is of no factor

    @property
    def said_of_more(self) -> str:
        """Say how many columns are shown on a click, and how many of them are not its own.

        Examples
        --------
        >>> own, other = Bar("a", 0.9, ""), Bar("b", 0.1, "", "outside")
        >>> empty = Card("", "", [], [], [], "", [])
        >>> [empty._replace(more=more).said_of_more for more in ([own], [own, other], [other] * 2)]
        ['1 more column', '2 more columns, 1 of them grey', '2 more columns, all grey']
        """
        number = len(self.more)
        grey = sum("outside" in bar.look.split() for bar in self.more)
        which = f", {'all' if grey == number > 1 else f'{grey} of them'} grey" * (grey > 0)
        return f"{number} more column{'s' * (number != 1)}{which}"


class Shades(NamedTuple):
    """How a heat map is coloured: its scale, its lowest value as a multiple of its highest."""

    scale: str = "values"
    low: float = 0.0
    top: float | None = None  # None: the largest value
    ticks: tuple[float, ...] | None = None


UNIT = Shades(top=1.0, ticks=(0, 0.5, 1))
POSITIVE = Shades()
SIGNED = Shades("signed", low=-1.0)
HOLDS_AND_REAL = (
    "A factor holds where two thirds of the chains have it, by their means and in at least half of "
    "their draws, and half of the searches for a start, two at least, where these are counted. It "
    "is real with the probability that a single draw has it: one that holds may be missing from "
    "too many draws to be kept."
)


def factors(fit, *, note: str, card: Callable, shades: Shades | None = None) -> Section:
    """Show a card for each factor, in the order of the fit, and with `shades` the heat maps.

    Factors of starts without rows or columns are left out: there is nothing to tell of them.
    """
    table = summary_with_trust(fit) if hasattr(fit, "tiles") else fit.summary()
    shown, real = np.arange(fit.rank), None
    if fit.verdict.is_of_starts:
        shown = np.flatnonzero((table["rows"] > 0) & (table["columns"] > 0))
        if not len(shown):
            return section(
                "The factors",
                "No factor is shown: none has rows and columns where chains began, and the time "
                "was up before the sampler drew.",
            )
        note = f"{note} {_of_starts(fit, shown)}"
    elif hasattr(fit, "tiles"):
        note = f"{note} {HOLDS_AND_REAL}"
        real = image(tiles_figure(fit), "Probability that each tile is real", wide=False)
    maps = None
    if shades is not None:
        maps = beside(
            image(
                basis_figure(fit, shades), "Posterior means of the basis, columns by factors",
                wide=False,
            ),
            image(
                usage_by_label_figure(fit, shades),
                "Mean usage of each label's rows, labels by factors",
                wide=False,
            ),
        )  # fmt: skip
    return section("The factors", note, real, _cards(fit, card, table, shown), maps)


def _of_starts(fit, shown) -> str:
    """Say that factors are those of starts, and how many of them are shown."""
    said = "These are the factors where chains began."
    left_out = fit.rank - len(shown)
    if not left_out:
        return said
    number = "One more has" if left_out == 1 else f"{left_out:,} more have"
    return f"{said} {number} no rows or no columns there."


def _cards(fit, card, table, shown) -> Markup:
    names = {k: fit._given_names.get(k + 1, "") for k in shown}
    cards = [card(fit, table.loc[k + 1], k)._replace(name=name) for k, name in names.items()]
    numbers = [int(k) + 1 for k in shown]
    if fit.verdict.is_of_starts:  # whose repeated draws have no probability to be real
        cards = [c._replace(trust="", shade="") for c in cards]
        return Markup(template("cards.html").render(cards=cards, numbers=numbers))
    # There is nothing to tell of an empty factor.
    nothing = {"figures": "", "labels": [], "first": [], "more": [], "left_out": "", "names": []}
    empty = table["remarks"].str.contains(trust.EMPTY) if "remarks" in table else [False] * fit.rank
    cards = [c._replace(**nothing) if none else c for c, none in zip(cards, empty, strict=True)]
    return Markup(template("cards.html").render(cards=cards, numbers=numbers))


# ---- cards ---------------------------------------------------------------------------------


def summary_with_trust(fit):
    """Return `Fit.summary` with what `Fit.tiles` adds."""
    table = fit.summary()
    tiles = fit.tiles(all=True)
    return table.join(tiles.drop(columns=table.columns.intersection(tiles.columns)))


def tile_card(fit, line, k: int) -> Card:
    """Describe factor `k` as a tile, from its line of `Fit.summary`."""
    mean, inside = fit._basis[:, k], fit._basis_binary[:, k]
    # Columns of the Boolean factor first: they may have a lower mean than one that is left out.
    order = np.lexsort((-mean, ~inside))
    rows = np.flatnonzero(fit._usage_binary[:, k])
    rows = rows[np.argsort(-fit._usage[rows, k], kind="stable")]
    colours = label_colours(fit.data.row_labels or ())
    return Card(
        f"{int(line['rows']):,} rows x {int(line['columns']):,} columns",
        f"Ones in the tile: {_known(line['density'], '.0%')}. Mean probability of its entries: "
        f"{_known(line['p_one'], '.0%')}. {agreement_of(fit, line)}",
        [
            Bar(name, float(share[k]), f"{100 * share[k]:.0f} %", colour=colours[name])
            for name, share in label_shares(fit).items()
        ],
        *_columns(fit, k, order, mean, inside, "with lower means"),
        _names(fit, "Rows, highest usage first", rows, MORE_ROWS),
        *trust_of_line(line, fit._num_chains),
    )


def code_card(fit, line, k: int) -> Card:
    """Describe factor `k` as a code of ones and zeros, from its line of `Fit.summary`."""
    mean, inside = fit._basis[:, k], fit._basis_binary[:, k]
    rows = np.flatnonzero(fit._usage_binary[:, k])
    rows = rows[np.argsort(-fit._usage[rows, k], kind="stable")]
    colours = label_colours(fit.data.row_labels or ())
    return Card(
        f"{int(line['rows']):,} rows use it; {int(line['columns']):,} ones in its code",
        agreement_of(fit, line),
        [
            Bar(name, float(share[k]), f"{100 * share[k]:.0f} %", colour=colours[name])
            for name, share in label_shares(fit).items()
        ],
        *_columns(fit, k, np.argsort(-mean, kind="stable"), mean, inside, "with lower means"),
        _names(fit, "Rows, highest usage first", rows, MORE_ROWS),
    )


def trust_of_line(line, num_chains) -> tuple[str, str]:
    """Say whether a tile is to be trusted, and its shade."""
    why = trust.in_words(line, num_chains)
    if trust.EMPTY in line["remarks"]:
        return "Empty: no rows or no columns.", "grey"
    kept = "Kept" if line["kept"] else "Not kept"
    said = (
        f"Real with probability {line['p_real']:.2f}. {kept} at a false discovery rate of "
        f"{100 * trust.LEVEL:.0f} %."
    )
    if trust.ROBUST in line["remarks"]:
        return f"{said} Robust: all chains have it.", "green"
    if why:
        said += f" {why[0].upper()}{why[1:]}."
    return said, "green" if line["kept"] and not why else "amber"


def signed_card(
    fit, line, k: int, *, scale: str, runs: str = "chains", both_ends: bool = True
) -> Card:
    """Describe factor `k` of real numbers: how many lines differ from zero, and by how much."""
    mean, sd = fit._basis[:, k], fit._basis_sd[:, k]
    share = np.abs(mean) / (float(np.abs(mean).max()) or 1.0)
    names = _names(fit, "Rows, highest usage first", np.argsort(-fit._usage[:, k], kind="stable"))
    if both_ends:
        lowest = np.argsort(-fit._usage[:, k], kind="stable")[::-1]
        names += _names(fit, "Rows, lowest usage first", lowest)
    return Card(
        f"{int(line['rows']):,} rows and {int(line['columns']):,} columns differ from zero",
        f"Size on the scale of {scale}: {line['size']:{digits(line['size'])}}. "
        f"{agreement_of(fit, line, runs)}",
        [],
        *_columns(
            fit,
            k,
            np.argsort(-np.abs(mean), kind="stable"),
            share,
            np.abs(mean) > 2 * sd,
            "nearer to zero",
        ),
        names,
    )


def _columns(fit, k, order, share, inside, others) -> tuple[list[Bar], list[Bar], str]:
    """Return bars shown at once and on a click, and what is said of the columns left out."""
    mean, sd = fit._basis[:, k], fit._basis_sd[:, k]
    form = _decimals(float(np.abs(mean).max()))
    bars = [
        Bar(
            fit.data.column_names[j],
            float(share[j]),
            f"{mean[j]:{form}} ± {sd[j]:{form}}",
            " ".join(["outside"] * (not inside[j]) + ["below"] * bool(mean[j] < 0)),
        )
        for j in order[: FIRST_COLUMNS + MORE_COLUMNS]
    ]
    # A click for a column or two would cost more room than it saves.
    first = len(bars) if len(bars) <= FIRST_COLUMNS + 2 else FIRST_COLUMNS
    return bars[:first], bars[first:], lines_left_out(fit.data.num_columns - len(bars), others)


def lines_left_out(number: int, which: str) -> str:
    """Say how many columns are not listed, and which these are; nothing where all are.

    Examples
    --------
    >>> lines_left_out(1, "with lower means"), lines_left_out(0, "with lower means")
    ('1 column with lower means is not listed.', '')
    """
    if number == 1:
        return f"1 column {which} is not listed."
    return f"{number:,} columns {which} are not listed." if number else ""


def _names(fit, heading, rows, more: int = 0) -> list[Names]:
    if not fit.data.has_row_names or not len(rows):
        return []
    names = [fit.data.row_names[i] for i in rows[: FIRST_ROWS + more]]
    return [Names(heading, names[:FIRST_ROWS], names[FIRST_ROWS:], len(rows) - len(names))]


def _decimals(largest: float) -> str:
    """Return one format of means and standard deviations, so that these stand in columns."""
    if 1e-3 <= largest < 0.1:
        return f".{1 - math.floor(math.log10(largest))}f"
    return digits(largest)


def agreement_of(fit, line, runs: str = "chains") -> str:
    """Say how alike chains, or starts, have a factor, or why that is not known."""
    if not math.isnan(line["agreement"]):
        return f"Agreement of the {runs}: {line['agreement']:.2f}."
    why = f"there is one {runs.removesuffix('s')}" if fit._num_chains == 1 else "it is empty"
    if fit.verdict.is_of_starts:
        why = "nothing was drawn"
    return f"Agreement of the {runs}: not known, because {why}."


def _known(value, digits):
    """Return a share of the observed entries of a tile, or say that it has none."""
    return "not known, because none is observed" if math.isnan(value) else f"{value:{digits}}"


# ---- heat maps -----------------------------------------------------------------------------


def basis_figure(fit, shades: Shades = UNIT) -> Figure:
    """Draw the posterior means of the basis as a heat map, columns by factors."""
    figure = new_figure(*heat_size(fit, min(fit.data.num_columns, MAX_BASIS_COLUMNS), 0.2))
    draw_basis(figure.add_subplot(), fit, shades)
    return figure


def usage_by_label_figure(fit, shades: Shades = UNIT) -> Figure | None:
    """Draw the mean usage of the rows of each label, labels by factors; None without labels."""
    if fit.data.row_labels is None:
        return None
    figure = new_figure(*heat_size(fit, len(_label_rows(fit)), 0.36))
    draw_labels(figure.add_subplot(), fit, shades)
    return figure


def heat_size(fit, lines: int, height: float) -> tuple[float, float]:
    """Return the inches that a heat map of so many lines takes."""
    return 2.8 + max(2.4, 0.36 * fit.rank), 1.2 + height * lines


def draw_basis(axes, fit, shades: Shades) -> None:
    """Draw columns by factors; beyond 60 columns those that are most specific of each factor."""
    columns = ordering.order_by_factors(fit).columns
    if len(columns) > MAX_BASIS_COLUMNS:
        scores = ordering.specificity(fit._basis, fit._usage)
        chosen = ordering.most_specific(scores, MAX_BASIS_COLUMNS)
        columns = columns[np.isin(columns, chosen)]
    names = [plain(fit.data.column_names[j], 40) for j in columns]
    _heat(axes, fit, fit._basis[columns], names, shades, "mean of the basis")
    if len(columns) < fit.data.num_columns:
        text = f"the {len(columns)} most specific of {fit.data.num_columns:,} columns"
        axis_label(axes, y=text)


def draw_labels(axes, fit, shades: Shades) -> None:
    """Draw the mean usage of the rows of each label, labels by factors."""
    groups = _label_rows(fit)
    values = np.array([fit._usage[rows].mean(0) for rows in groups.values()])
    names = [f"{plain(n)} ({len(rows)})" for n, rows in groups.items()]
    if fit._usage.min() >= 0.0 and fit._usage.max() <= 1.0:  # probabilities have no other sign
        shades = UNIT
    _heat(axes, fit, values, names, shades, "mean usage of the label's rows")


def label_shares(fit) -> dict[str, np.ndarray]:
    """Share of each label's rows that use a factor, ``{label: (rank,)}``; {} without labels."""
    if fit.data.row_labels is None:
        return {}
    return {n: fit._usage_binary[rows].mean(0) for n, rows in _label_rows(fit).items()}


def _label_rows(fit):
    """Return the rows of each of up to twenty labels, in the order of their colours."""
    labels = np.array([n or UNKNOWN for n in fit.data.row_labels])
    rows = {n: np.flatnonzero(labels == n) for n in label_colours(labels)}
    frequent = sorted(rows, key=lambda n: -len(rows[n]))[:MAX_LABELS]
    return {n: r for n, r in rows.items() if n in frequent}


def _heat(axes, fit, values, names, shades, text):
    rank = values.shape[1]
    top = (float(abs(values).max()) or 1.0) if shades.top is None else shades.top
    heat = axes.imshow(
        values,
        cmap=colour_scale(shades.scale),
        vmin=shades.low * top,
        vmax=top,
        aspect="auto",
        interpolation="nearest",
    )
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    shown = spaced(rank, 30)
    titles = [fit._factor_titles[k] for k in shown]
    upright = all(len(title) <= 3 for title in titles)
    axes.set_xticks(shown, map(plain, titles), fontsize=8.5, rotation=0 if upright else 90)
    axis_label(axes, "factor")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xticks(np.arange(rank - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(len(names) - 1) + 0.5, minor=True)
    axes.grid(which="minor", color=ON_DARK, linewidth=1.2)
    axes.tick_params(which="minor", length=0)
    if rank <= 12:
        form = digits(top)
        least = 0.005 if form == ".2f" else 0.005 * top
        for (i, k), value in np.ndenumerate(values):
            if abs(value) >= least:
                shade = heat.to_rgba(value)[:3]
                colour = ON_DARK if np.dot(shade, BRIGHTNESS) < 0.5 else ON_PALE
                axes.text(
                    k, i, f"{value:{form}}", ha="center", va="center", fontsize=7, color=colour
                )
    bar = axes.figure.colorbar(
        heat, ax=axes, location="top", fraction=0.05, pad=0.02, aspect=30, ticks=shades.ticks
    )
    plain_colour_bar(bar, text)

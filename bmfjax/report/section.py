"""What a page is made of: facts, sections, words, and the page of a family as data."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from bmfjax.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def digits(size: float) -> str:
    """Return the format of numbers up to this size, which may have any unit.

    Two decimals, or three digits where two decimals would be zeros or more than anybody reads.
    """
    return ".2f" if size == 0 or 0.1 <= abs(size) < 1e6 else ".3g"


class Fact(NamedTuple):
    """A figure at the top of the page, with what it means."""

    name: str
    value: str
    note: str


class Word(NamedTuple):
    """An entry of the glossary."""

    term: str
    meaning: str


class Section(NamedTuple):
    """A heading and what stands below it."""

    heading: str
    html: Markup


def maker_of(section: Callable) -> Callable:
    """Return the function that makes a section of a page, whatever arguments the page gives it."""
    return getattr(section, "func", section)


def _stopped_sampling(fit) -> str:
    if fit.verdict.is_of_starts:
        return "The time was up before the sampler drew; this page shows where chains began."
    planned = fit.settings["num_samples"]
    drawn = int(fit.figures.num_draws)
    reached = f"{drawn:,} draw{'s' * (drawn != 1)}"
    if planned != "auto":
        reached = f"{drawn:,} of {int(planned):,} draws"
    return f"The run was stopped after {reached} a chain; this page shows what was drawn."


@dataclass(frozen=True)
class Page:
    """What the page of a family shows, in this order. Every function takes the fit."""

    facts: tuple[Callable[..., Iterable[Fact]], ...]
    sections: tuple[Callable[..., Section | None], ...]
    words: tuple[Word, ...]
    stopped: Callable[..., str] = _stopped_sampling  # how far a run went that was stopped
    query: str = "probability"  # the method that the code at the end of the page calls


def section(heading: str, *parts: str | Markup | None) -> Section:
    """Join parts to a section: a string is a paragraph, markup stays, None is left out."""
    shown = (part for part in parts if part)
    marked = (p if isinstance(p, Markup) else Markup("<p>{}</p>").format(p) for p in shown)
    return Section(heading, Markup("\n").join(marked))


def image(figure: Figure | None, alt: str, *, wide: bool = True) -> Markup | None:
    """Show a figure, with a link that saves it; a wide one may scroll on a small screen."""
    if figure is None:
        return None
    drawn = style.svg(figure)
    return Markup(
        '<figure{}>{}<figcaption><a download="{}.svg" href="{}">Save as SVG</a></figcaption>'
        "</figure>"
    ).format(
        Markup(' class="wide"' if wide else ""),
        Markup(style.inline(drawn, alt)),
        re.sub(r"[^a-z0-9]+", "-", alt.lower()).strip("-"),
        style.data_uri(drawn),
    )


def table(frame) -> Markup:
    """Show a data frame, its index first, numbers with four digits; it may scroll."""
    frame = frame.reset_index()
    row = Markup("<tr>{}</tr>").format
    head = row(Markup("").join(Markup("<th>{}</th>").format(name) for name in frame.columns))
    lines = [
        row(
            Markup("").join(
                Markup("<td>{}</td>").format(f"{v:,.4g}" if isinstance(v, float) else v)
                for v in values
            )
        )
        for values in frame.itertuples(index=False)
    ]
    shown = Markup('<div class="wide"><table class="plain">{}</table></div>')
    return shown.format(Markup("\n").join([head, *lines]))


def beside(*images: Markup | None) -> Markup:
    """Show images beside each other where there is room."""
    return Markup('<div class="pair">\n{}\n</div>').format(Markup("\n").join(filter(None, images)))


def template(name: str) -> Template:
    """Return a template of this folder; it escapes what it shows."""
    return _environment().get_template(name)


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

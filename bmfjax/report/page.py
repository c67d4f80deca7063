"""One HTML page about a fit: figures inside, nothing to fetch, no script."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bmfjax.data import BinaryMatrix, Ratings, RealMatrix
from bmfjax.data.io.files import replacing
from bmfjax.report.checks import agreement, modes, spread
from bmfjax.report.model_fit import explained_bar, model_section
from bmfjax.report.number import number_section, rank_line
from bmfjax.report.plots import traces
from bmfjax.report.ratings import prediction
from bmfjax.report.section import maker_of, template
from bmfjax.report.style import default_parameters
from bmfjax.specs import MODELS, SAMPLERS
from bmfjax.specs.base import AUTO, parameters
from bmfjax.store import PAGE_MARK, check_page
from bmfjax.verdict import Number, Part, Predictions, Status, rank_text
from bmfjax.verdict.undrawn import said_elsewhere

#: What settings of a run are.
SAID = {
    "max_rank": "most factors that there could be",
    "num_warmup": "steps before draws count",
    "num_samples": "draws of each chain; auto: until the chains agree",
    "thinning": "one draw in so many is kept",
    "init": "where chains start",
    "max_time": "seconds that the fit could take",
    "until": "parts of the verdict that end the run",
    "mc_error": "error of predictions that ends the run",
    "check": "share of the entries that were hidden first",
}
#: Sections that say nothing of starts, from which no chain has moved.
OF_DRAWS = (agreement, modes, prediction, spread, traces)
#: Title of a page whose data have no name.
NAMELESS = {BinaryMatrix: "binary matrix", RealMatrix: "matrix", Ratings: "ratings"}


def write_report(fit, path, *, overwrite: bool = False) -> Path:
    """Write one self-contained HTML page for a person.

    Parameters
    ----------
    fit : Fit
    path : path
        File to write, in a folder that exists.
    overwrite : bool
        Replace an existing page. A file that is no page of bmfjax stays.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    InputError
        If the file exists and may not be replaced, cannot be a file at all, or a run writes to
        its folder.

    Examples
    --------
    >>> import tempfile, bmfjax
    >>> fit = bmfjax.fit(
    ...     "davis", bmfjax.OrMachine(2), num_chains=2, num_warmup=200, num_samples=100,
    ...     progress=False,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(fit, folder + "/davis.html").name
    'davis.html'
    """
    path = check_page(path, overwrite)
    write_page(fit, path)
    return path


def write_page(fit, path) -> None:
    """Write the page over whatever is there."""
    text = render(fit)
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")


@default_parameters()
def render(fit) -> str:
    """Return the page as text."""
    with said_elsewhere(fit):  # in the verdict
        return _rendered(fit)


def _rendered(fit) -> str:
    page = fit._page
    # After the matrix: whether the model says anything about the data, whatever chains say.
    after = 1 + (number_section in page.sections)
    makers = [*page.sections[:after], model_section, *page.sections[after:]]
    of_starts = fit.verdict.is_of_starts
    if of_starts:
        makers = [make for make in makers if maker_of(make) not in OF_DRAWS]
    sections = [make(fit) for make in makers]
    drawn = {"draws": "none: starts"} if of_starts else {"thinning": fit.figures.thinning}
    return template("page.html").render(
        mark=PAGE_MARK,
        name=fit.data.name or NAMELESS[type(fit.data)],
        fit=fit,
        factors=rank_text(fit.figures, fit.rank) + ": starts, no draws" * of_starts,
        number=rank_line(fit),
        shade=_shade(fit),
        marks=[_mark(part) for part in fit.verdict.parts],
        explained=explained_bar(fit),
        stopped="" if fit.figures.complete else page.stopped(fit),
        facts=[fact for tell in page.facts for fact in tell(fit)],
        sections=[section for section in sections if section is not None],
        words=page.words,
        query=page.query,
        call=fit.settings.get("call", ""),
        settings=[
            *((name, value, _about(fit, name)) for name, value in _flat(fit.settings | drawn)),
            *((name, value, "") for name, value in fit.versions.items()),
        ],
    )


def _shade(fit) -> str:
    """Green where all parts hold by exact draws, red where nothing does; grey where none is known.

    An approximate sampler is amber at best.
    """
    status = fit.verdict.status
    if status == Status.RELIABLE and fit.figures.noise_free:
        return "amber"
    shades = {Status.UNCHECKED: "grey", Status.RELIABLE: "green", Status.UNRELIABLE: "red"}
    return shades.get(status, "amber")


def _mark(part: Part) -> str:
    """Return the class of a part of the verdict.

    A number by default is neither found nor given, and predictions that are true may say nothing.
    """
    neither = isinstance(part, Number) and part.default is not None
    if isinstance(part, Predictions) and part.holds:
        neither = "explains nothing" in part.lead
    return "by-default" if neither else part.status.replace(" ", "-")


def _about(fit, name: str) -> str:
    """Say what a setting is, by its name as `_flat` has it; nothing where that is plain."""
    if name == "rank" and fit.verdict.number.default is not None:
        return "the default: none was given"
    place, _, inner = name.rpartition(".")
    kinds = {"priors": MODELS.get(fit.model), "sampler_options": SAMPLERS.get(fit.sampler)}
    known = {} if kinds.get(place) is None else parameters(kinds[place])
    return known[inner].about if inner in known else SAID.get(name, "")


def _flat(settings) -> list[tuple[str, str]]:
    """Return settings as rows of a table; a setting inside of a setting is `outer.inner`.

    Where the number of factors is found, the most that there may be is a setting of its own.
    """
    rows, settings = [], dict(settings)
    settings.pop("call", None)  # which stands alone
    if settings.pop("finds_rank", False):  # as earlier versions stored it
        settings |= {"rank": AUTO, "max_rank": settings["rank"]}
    for name, value in settings.items():
        if isinstance(value, dict):
            rows += [(f"{name}.{inner}", str(v)) for inner, v in value.items()]
        else:
            rows.append((name, str(np.asarray(value).tolist()) if np.ndim(value) else str(value)))
    return rows

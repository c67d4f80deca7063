"""One HTML page about a fit: figures inside, nothing to fetch, no script."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bmfjax.data import BinaryMatrix
from bmfjax.data.files import replacing
from bmfjax.output import PAGE_MARK, check_page
from bmfjax.pmf_cells import LINKS
from bmfjax.report import checks, plots, ratings
from bmfjax.report.factors import factor_cards, signed_cards
from bmfjax.report.facts import facts
from bmfjax.report.overview import describe, picture
from bmfjax.report.style import data_uri
from bmfjax.trust import RHAT_GOOD


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
        Where the file exists and may not be replaced, cannot be a file at all, or a run writes to
        its folder.

    Examples
    --------
    >>> import tempfile, bmfjax
    >>> fit = bmfjax.fit(
    ...     "davis", rank=2, num_chains=2, num_warmup=200, num_samples=100, progress=False
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


def render(fit) -> str:
    """The page as text."""
    return _environment().get_template(_template(fit)).render(context(fit))


def _template(fit) -> str:
    if fit.model in LINKS:
        return "ratings.html"
    if fit.model == "nmf":
        return "nmf.html"
    return "real.html" if fit.is_real else "boolean.html"


def _kind(fit) -> str:
    """What a matrix without a name is called."""
    if isinstance(fit.data, BinaryMatrix):
        return "binary matrix"
    return "matrix" if fit.model == "nmf" else "ratings"


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def context(fit) -> dict:
    """Everything that the template shows.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    dict
        Plain values, text and images; the template escapes what it shows.
    """
    # Of a table that is mostly empty there is no picture.
    whole = isinstance(fit.data, BinaryMatrix) or fit.model == "nmf"
    drawn = picture(fit) if whole else None
    figures = {
        "overview": None if drawn is None else plots.overview_figure(fit, drawn=drawn),
        "basis": plots.basis_figure(fit),
        "usage_by_label": plots.usage_by_label_figure(fit),
        # Of bits the mean tells the standard deviation; the figure is about numbers in [0, 1].
        "mean_sd": None if fit.is_boolean or fit.is_real else plots.mean_sd_figure(fit),
        "traces": plots.trace_figure(fit),
        "convergence": (checks.starts_figure if fit.approximation else checks.convergence_figure)(
            fit
        ),
        "agreement": checks.agreement_figure(fit),
        "solutions": checks.solutions_figure(fit),
    }
    if fit.model in LINKS:
        figures["error"] = ratings.error_figure(fit)
        figures["calibration"] = ratings.calibration_figure(fit)
    return {
        "mark": PAGE_MARK,
        "name": fit.data.name or _kind(fit),
        "fit": fit,
        "shade": _shade(fit),
        "stopped": _stopped(fit),
        "facts": facts(fit),
        "figures": {n: None if f is None else _image(f) for n, f in figures.items()},
        "overview_note": "" if drawn is None else describe(fit, drawn),
        "has_labels": fit.data.row_labels is not None,
        "cards": signed_cards(fit) if fit.is_real else factor_cards(fit),
        "settings": _flat(fit.settings),
        "versions": dict(fit.versions),
        "fingerprint": fit.data.fingerprint(),
    }


def _image(figure) -> dict:
    # Shown at the size it was drawn for, in CSS pixels, and sharper where the screen is.
    return {"source": data_uri(figure, 150), "width": round(96 * figure.get_figwidth())}


def _shade(fit) -> str:
    """Green for exact draws of chains that agree; amber at best for an approximate sampler."""
    scalars = fit.scalars
    if scalars["converged"]:
        good = scalars["exact"] and scalars["rhat"] <= RHAT_GOOD and not scalars["noise_free"]
        return "green" if good else "amber"
    return "grey" if fit.num_chains == 1 else "red"


def _stopped(fit) -> str:
    if fit.scalars["complete"]:
        return ""
    if fit.approximation:
        return f"The run was stopped after step {fit.scalars['steps']:,} of its optimisation."
    return (
        f"The run was stopped after {int(fit.scalars['num_draws']):,} of "
        f"{int(fit.settings['num_samples']):,} draws a chain; this page shows what was drawn."
    )


def _flat(settings) -> list[tuple[str, str]]:
    """Settings as rows of a table, what is inside of a setting as `outer.inner`."""
    rows = []
    for name, value in settings.items():
        if isinstance(value, dict):
            rows += [(f"{name}.{inner}", str(v)) for inner, v in value.items()]
        else:
            rows.append((name, str(np.asarray(value).tolist()) if np.ndim(value) else str(value)))
    return rows

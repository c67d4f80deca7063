"""One HTML page about a fit: figures inside, nothing to fetch, no script."""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bmfjax.data import InputError
from bmfjax.report import checks, plots
from bmfjax.report.factors import factor_cards
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
        Replace an existing file.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    InputError
        Where the file exists and may not be replaced, or cannot be a file at all.

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
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a directory; give a file for the report")
    if path.exists() and not overwrite:
        raise InputError(f"{path} already exists; give another file, or overwrite to replace it")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a directory; make it, or give another path")
    beside = path.with_name(f".unfinished-{path.name}")
    try:
        beside.write_text(render(fit), encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def render(fit) -> str:
    """The page as text."""
    return _environment().get_template("page.html").render(context(fit))


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
    drawn = picture(fit)
    figures = {
        "overview": plots.overview_figure(fit, drawn=drawn),
        "basis": plots.basis_figure(fit),
        "usage_by_label": plots.usage_by_label_figure(fit),
        # Of bits the mean tells the standard deviation.
        "mean_sd": None if fit.is_boolean else plots.mean_sd_figure(fit),
        "traces": plots.trace_figure(fit),
        "convergence": checks.convergence_figure(fit),
        "agreement": checks.agreement_figure(fit),
    }
    return {
        "name": fit.data.name or "binary matrix",
        "fit": fit,
        "shade": _shade(fit),
        "stopped": _stopped(fit),
        "facts": facts(fit),
        "figures": {n: None if f is None else _image(f) for n, f in figures.items()},
        "overview_note": describe(fit, drawn),
        "has_labels": fit.data.row_labels is not None,
        "cards": factor_cards(fit),
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
    return (
        f"The run was stopped after {int(fit.scalars['num_draws']):,} of "
        f"{int(fit.settings['num_samples']):,} draws a chain; this page shows what was drawn."
    )


def facts(fit) -> list[tuple[str, str, str]]:
    """Name, value and explanation of the figures at the top of the page."""
    data, scalars = fit.data, fit.scalars
    seen = data.num_ones + data.num_zeros
    mute = f"{_count(data.empty_rows, 'row')}, {_count(data.empty_columns, 'column')}"
    kept = fit.usage_draws.shape[1]
    missing = data.num_missing / (data.num_rows * data.num_columns)
    agreeing = scalars["factors_agreeing"]
    which = "uncertain" if fit.is_boolean else "reconstructed"
    rows = [
        ("Size", f"{data.num_rows:,} x {data.num_columns:,}", "rows x columns"),
        ("Ones", f"{data.num_ones:,} ({data.density:.1%})", "share of the observed entries"),
        ("Missing", f"{data.num_missing:,} ({missing:.1%})", "neither one nor zero"),
        ("Without information", mute, "nothing observed, so nothing learned"),
        (
            "Draws",
            f"{fit.num_chains} x {int(scalars['num_draws']):,}",
            f"chains x draws after {int(scalars['num_warmup']):,} warm-up steps; "
            f"{kept:,} a chain are kept",
        ),
        ("Time", _seconds(scalars["seconds"]), "sampling and compilation"),
        (
            "Wrong entries",
            f"{int(scalars['errors']):,} ({scalars['errors'] / seen:.1%})",
            "observed entries that the Boolean product of the factors gets wrong",
        ),
        (
            "Expected wrong entries",
            f"{scalars['expected_errors']:,.0f}",
            "of the Boolean product against the noise-free matrix, by the posterior",
        ),
        (
            "R-hat",
            _number(scalars["rhat_product"]),
            f"99 % of the {which} entries keep to it; worst "
            f"{_number(scalars['rhat_product_worst'])}; "
            f"log joint density {_number(scalars['rhat_log_joint'])}",
        ),
        (
            "Effective draws",
            _number(scalars["ess_product"], 0),
            f"99 % of the {which} entries have at least as many; "
            f"log joint density {_number(scalars['ess_log_joint'], 0)}",
        ),
        (
            "Factors found by all chains",
            "not checked"
            if math.isnan(agreeing)
            else f"{round(agreeing * fit.rank)} of {fit.rank}",
            "tiles at least 0.8 alike in every two chains",
        ),
    ]
    if not math.isnan(scalars["clamped"]):
        rows.append(
            (
                "Clamped",
                f"{scalars['clamped']:.0%}",
                "of the coordinates were held at 0 or 1 in a step, on average",
            )
        )
    if fit.is_boolean:
        rows += _boolean_facts(fit)
    if fit.precision_draws is not None:
        mean, sd = fit.precision_draws.mean(), fit.precision_draws.std()
        rows.append(
            ("Noise precision", f"{mean:.2f} ± {sd:.2f}", "learned: one over the noise variance")
        )
    return rows


def _boolean_facts(fit) -> list[tuple[str, str, str]]:
    share = fit.scalars["entries_uncertain"]
    rows = [
        (
            "Uncertain entries",
            f"{share:.1%}",
            "of the entries of the product have a probability between .05 and .95",
        )
    ]
    rates = np.asarray(fit.other_draws["flip_rate"])
    rates = rates[..., None] if rates.ndim == 2 else rates
    names = ("Flip rate",) if rates.shape[-1] == 1 else ("Flip rate of zeros", "Flip rate of ones")
    for k, name in enumerate(names):
        mean, sd = rates[..., k].mean(), rates[..., k].std()
        rows.append((name, f"{mean:.3f} ± {sd:.3f}", "probability that an entry is observed wrong"))
    return rows


def _count(lines, what: str) -> str:
    return f"{len(lines):,} {what}" + "s" * (len(lines) != 1)


def _number(value, digits: int = 2) -> str:
    value = float(value)
    return "none" if math.isnan(value) else f"{value:,.{digits}f}"


def _seconds(value) -> str:
    value = float(value)
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def _flat(settings) -> list[tuple[str, str]]:
    """Settings as rows of a table, what is inside of a setting as `outer.inner`."""
    rows = []
    for name, value in settings.items():
        if isinstance(value, dict):
            rows += [(f"{name}.{inner}", str(v)) for inner, v in value.items()]
        else:
            rows.append((name, str(np.asarray(value).tolist()) if np.ndim(value) else str(value)))
    return rows

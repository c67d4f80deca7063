"""What the page tells about each factor: its columns, its rows, and who uses it."""

from __future__ import annotations

import math

import numpy as np

from bmfjax.report.plots import label_shares
from bmfjax.report.style import label_colours

#: Columns shown at once and on a click, and names of rows likewise.
FIRST_COLUMNS, MORE_COLUMNS = 15, 60
FIRST_ROWS, MORE_ROWS = 12, 150


def signed_cards(fit) -> list[dict]:
    """One dict a real factor, in the order of the fit.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    list of dict
        `number`; `rows`, `columns`: how many differ from zero; `size`, `agreement`: text, as in
        `Fit.summary`; `first`, `more`: columns by falling distance from zero; `left_out`: how many
        are not listed; `names`: a heading and rows, at either end of a signed factor and at the
        upper one of a nonnegative, if rows have names.
    """
    table, cards = fit.summary(), []
    for k in range(fit.rank):
        line, mean, sd = table.loc[k + 1], fit.basis[:, k], fit.basis_sd[:, k]
        order = np.argsort(-np.abs(mean), kind="stable")[: FIRST_COLUMNS + MORE_COLUMNS]
        largest = max(float(np.abs(mean).max()), 1e-12)
        columns = [
            {
                "name": fit.data.column_names[j],
                "mean": float(mean[j]),
                "share": abs(float(mean[j])) / largest,
                "sd": float(sd[j]),
                "inside": bool(abs(mean[j]) > 2 * sd[j]),
            }
            for j in order
        ]
        first = len(columns) if len(columns) <= FIRST_COLUMNS + 2 else FIRST_COLUMNS
        cards.append(
            {
                "number": k + 1,
                "rows": int(line["rows"]),
                "columns": int(line["columns"]),
                "size": f"{line['size']:.2f}",
                "agreement": _two_digits(line["agreement"]),
                "first": columns[:first],
                "more": columns[first:],
                "left_out": fit.data.num_columns - len(columns),
                "names": _ends(fit, k),
            }
        )
    return cards


def _ends(fit, k):
    if not fit.data.has_row_names:
        return []
    order = np.argsort(-fit.usage[:, k], kind="stable")
    ends = {"Rows, highest usage first": order, "Rows, lowest usage first": order[::-1]}
    names = fit.data.row_names
    found = [(text, [names[i] for i in o[:FIRST_ROWS]]) for text, o in ends.items()]
    # Low usage is nothing of note where none is below zero.
    return found if fit.is_signed else found[:1]


def factor_cards(fit) -> list[dict]:
    """One dict a factor, in the order of the fit (largest tile first).

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    list of dict
        `number`, `rows`, `columns`: position and size; `density`, `probability`,
        `agreement`: text, as in `Fit.summary`; `first`, `more`: columns by falling mean;
        `left_out`: how many columns are not listed; `names`, `more_names`: rows with the
        highest usage, if rows have names; `unnamed`: rows not listed; `labels`: share of
        each label's rows.
    """
    table = fit.summary()
    shares = label_shares(fit)
    colours = label_colours(fit.data.row_labels or ())
    cards = []
    for k in range(fit.rank):
        line = table.loc[k + 1]
        columns = _columns(fit, k)
        # A click for a column or two would cost more room than it saves.
        first = len(columns) if len(columns) <= FIRST_COLUMNS + 2 else FIRST_COLUMNS
        names = _row_names(fit, k)
        cards.append(
            {
                "number": k + 1,
                "rows": int(line["rows"]),
                "columns": int(line["columns"]),
                "density": _share(line["density"]),
                "probability": _share(line["probability"]),
                "agreement": _two_digits(line["agreement"]),
                "first": columns[:first],
                "more": columns[first:],
                "left_out": fit.data.num_columns - len(columns),
                "names": names[:FIRST_ROWS],
                "more_names": names[FIRST_ROWS:],
                "unnamed": int(line["rows"]) - len(names),
                "labels": [
                    {"name": n, "colour": colours[n], "share": float(s[k])}
                    for n, s in shares.items()
                ],
            }
        )
    return cards


def _columns(fit, k):
    mean, sd, inside = fit.basis[:, k], fit.basis_sd[:, k], fit.basis_binary[:, k]
    # Columns of the Boolean factor first: they may have a lower mean than one that is left out.
    order = np.lexsort((-mean, ~inside))[: FIRST_COLUMNS + MORE_COLUMNS]
    return [
        {
            "name": fit.data.column_names[j],
            "mean": float(mean[j]),
            "sd": float(sd[j]),
            "inside": bool(inside[j]),
        }
        for j in order
    ]


def _row_names(fit, k):
    if not fit.data.has_row_names:
        return []
    rows = np.flatnonzero(fit.usage_binary[:, k])
    rows = rows[np.argsort(-fit.usage[rows, k], kind="stable")]
    return [fit.data.row_names[i] for i in rows[: FIRST_ROWS + MORE_ROWS]]


def _two_digits(value):
    return "–" if math.isnan(value) else f"{value:.2f}"


def _share(value):
    return "–" if math.isnan(value) else f"{value:.0%}"

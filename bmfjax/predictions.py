"""Tables of a fit for files: predictions of cells, and the usage of new rows."""

from __future__ import annotations

import importlib.util
import os
import re
from array import array
from pathlib import Path

import numpy as np
import pandas as pd

from bmfjax.data import InputError
from bmfjax.data.io.files import reading, replacing
from bmfjax.data.reading.tables import is_id_name
from bmfjax.data.reading.text import read_lines
from bmfjax.posterior import cells, features, trust
from bmfjax.posterior.selection import positions
from bmfjax.report import interop
from bmfjax.verdict.undrawn import warn_undrawn

ENDINGS = (".csv", ".parquet")
#: Numbers in a .csv: as many digits as float32 has.
FLOAT_FORMAT = "%.7g"
#: Names of the columns of every table written here, by which one is known from a user's own.
HEADER = re.compile(
    r"row,column(?=,)(,mean)?(,sd)?(,lower,upper)?(,log_odds(_sd|_lower|_upper)?)*"
    r"(,(probability|p_one|p_observed)(_[^,]+)?)*"
    r"|row(,factor_\d+(_sd)?)+"
    r"|user,item,mean,sd,lower,upper,(probability|p_liked)"
    r"|fit,model,sampler,rank,seed,log_score,.*,verdict"
    rf"|{trust.HEADER}|{features.HEADER}|{interop.HEADER}"
)


def predictions_table(fit, rows, columns, level: float = 0.9, noisy: bool = False) -> pd.DataFrame:
    """Return all that a fit predicts of some cells, a line each; see `bmfjax.Fit.predict_cells`.

    The columns are the names `row` and `column`, `mean`, `sd`, `lower` and `upper` (ends of the
    central interval), and `p_one`, the probability that the true entry is a one, or `p_observed_1`,
    ... of every star. Models of log odds name the first four `log_odds`, `log_odds_sd`,
    `log_odds_lower` and `log_odds_upper`. With `noisy`, it is `p_observed` of an observation, and
    what that does not have is left out.
    """
    warn_undrawn(fit)
    i = positions(rows, fit.data.row_names, "row", by_position=True)
    j = positions(columns, fit.data.column_names, "column", by_position=True)
    has = set(fit._kinds) & set(fit._noisy_kinds if noisy else fit._kinds)
    found = fit._tell_cells(i, j, [kind for kind in cells.KINDS if kind in has], level, noisy)
    table = {
        side: _taken(names, at) for (side, names), at in zip(_sides(fit.data), (i, j), strict=True)
    }
    chance = "p_observed" if noisy else "p_one"
    of = "" if noisy or fit._predicts_of is None else fit._predicts_of.replace(" ", "_")
    for kind, values in found.items():
        if kind == "interval":
            table |= {_joined(of, "lower"): values[0], _joined(of, "upper"): values[1]}
        elif values.ndim == 2:
            stars = fit.settings["stars"]
            table |= {f"p_observed_{s:g}": v for s, v in zip(stars, values.T, strict=True)}
        else:
            table[chance if kind == "probability" else _joined(of, kind)] = values
    return pd.DataFrame(table)


def _joined(of: str, kind: str) -> str:
    """Return the name of a figure, with what it is of where that is no number of the data."""
    return "_".join(word for word in (of, kind) if word).removesuffix("_mean")


def _sides(data):
    return ("row", data.row_names), ("column", data.column_names)


def _taken(names, at):
    """Return some of the names, each the same str however often it occurs."""
    return np.array(names, object)[at]


def read_cells(path, data, header="auto") -> tuple[np.ndarray, np.ndarray]:
    """Return the positions (cell,) of the rows and columns of the cells that a text file names.

    Its lines begin with the names of row and column, separated as for `bmfjax.load_ratings`;
    further fields are ignored. With header "auto" the first line names the fields if it names
    neither a row nor a column, and holds no digit or has names such as "user" and "movieId".
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such file; give one with a line for each cell")
    sides = _sides(data)
    places = [{name: i for i, name in enumerate(names)} for _, names in sides]
    cells_at, first, hint = (array("q"), array("q")), True, ""
    with reading(path):
        for line, fields in read_lines(path):
            if len(fields) < 2:
                raise InputError(f"line {line}: {len(fields)} field; give row and column")
            found = [place.get(field, -1) for place, field in zip(places, fields, strict=False)]
            if first:
                first = False
                neither = header == "auto" and max(found) < 0
                if header is True or (neither and _name_fields(fields)):
                    continue
                hint = f" (--header if line {line} names the fields)" if neither else ""
            for at, here, field, (side, names) in zip(cells_at, found, fields, sides, strict=False):
                if here < 0:
                    raise _unknown(line, side, field, names, hint)
                at.append(here)
        if first:
            raise InputError("the file is empty; give a line for each cell")
        if not cells_at[0]:
            raise InputError("there is a header alone; give a line for each cell")
    return tuple(np.array(at, int) for at in cells_at)


def _name_fields(fields):
    """Tell whether the fields of a first line are what a header may hold."""
    return not re.search(r"\d", "".join(fields)) or all(map(is_id_name, fields[:2]))


def _unknown(line, side, field, names, hint):
    listed = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
    return InputError(
        f"line {line}: {side} {field!r} is not in the fitted matrix, whose {side}s are {listed}; "
        f"write their names{hint}"
    )


def usage_table(fit, new, kind: str = "mean") -> pd.DataFrame:
    """Return the usage of new rows, a line each: the name `row`, `factor_1`, `factor_2`, ...

    With `kind` "sd" they are standard deviations, `factor_1_sd`, ...; see `bmfjax.Fit.transform`.
    """
    usage, what = fit.transform(new, kind=kind), "_sd" * (kind == "sd")
    factors = {f"factor_{k}{what}": values for k, values in enumerate(usage.T, 1)}
    return pd.DataFrame({"row": list(new.row_names)} | factors)


# ---- files -------------------------------------------------------------------------------------


def check_table_file(path, overwrite: bool, source) -> None:
    """Refuse a table's file before any work is done: it cannot be written, or is there.

    Only a table is overwritten, never another file or the `source` that is read.
    """
    path, source = Path(path), Path(source)
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{path} has the ending {path.suffix!r}; give {' or '.join(ENDINGS)}")
    if path.suffix.lower() == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise InputError(
            "writing .parquet needs the package pyarrow; run pip install 'bmfjax[parquet]', or "
            "give a .csv"
        )
    if path.exists() and source.exists() and path.samefile(source):
        raise InputError(f"{path} is what is read; give another file for the output")
    _check_there(path, overwrite)
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a directory; make it, or give another path")


def _check_there(path, overwrite):
    """Refuse a path at which there is anything but a table that may be replaced."""
    if not os.path.lexists(path):
        return
    if path.is_dir():
        raise InputError(f"{path} is a directory; give a file")
    if not _is_table(path):
        raise InputError(f"{path} is no table of bmfjax; move it away, or give another file")
    if not overwrite:
        raise InputError(f"{path} already exists; give another file, or --overwrite")


def check_export(path: Path, overwrite: bool, tiles) -> None:
    """Refuse a table of factors beside a fit where something else is, or will be."""
    if tiles is not None and Path(tiles).resolve() == path.resolve():
        raise InputError(f"--tiles is {tiles}, where --export writes; give another file to --tiles")
    if os.path.lexists(path) and not (overwrite and _is_table(path)):
        raise InputError(
            f"{path} is there already, and --export writes it; move it away, give another "
            "--output, or leave --export out"
        )


def remove_exported(folder: Path) -> None:
    """Delete the tables of factors of an older fit in its folder."""
    for path in (folder / f"factors{ending}" for ending in ENDINGS):
        if _is_table(path, re.compile(interop.HEADER)):
            path.unlink()


def _is_table(path, header=HEADER):
    """Tell whether a file has the columns of a table that is written here."""
    if path.is_symlink() or not path.is_file():
        return False
    if path.suffix.lower() == ".csv":
        with open(path, encoding="utf-8", errors="replace") as stream:
            return bool(header.fullmatch(stream.readline(1_000_000).rstrip("\n")))
    try:
        from pyarrow import parquet

        names = parquet.read_schema(path).names
    except (ImportError, OSError, ValueError):  # no .parquet, or a broken one
        return False
    return bool(header.fullmatch(",".join(names)))


def write_table(table: pd.DataFrame, path, overwrite: bool) -> None:
    """Write a .csv or .parquet, whole or not at all; `overwrite` as of `check_place`."""
    path = Path(path)
    with replacing(path) as draft:
        if path.suffix.lower() == ".csv":
            table.to_csv(draft, index=False, float_format=FLOAT_FORMAT)
        else:
            table.to_parquet(draft, engine="pyarrow", index=False)
        _check_there(path, overwrite)  # again: a file may have come during the work

"""Ratings from a text file: a line each, with row, column and value first."""

import os
from pathlib import Path

import pandas as pd

from bmfjax.data.errors import InputError
from bmfjax.data.ratings import Ratings

#: What separates the fields, in the order in which it is looked for.
SEPARATORS = ("::", "\t", ";", ",", " ")


def load_ratings(path, *, scale=None, header="auto", name=None):
    """Read ratings from a file such as MovieLens' `u.data`, `ratings.dat` or `ratings.csv`.

    Parameters
    ----------
    path : str or path
        A text file whose lines begin with row, column and value, separated by commas, tabs,
        semicolons, "::" or spaces; further fields are left out. Rows and columns are names, also
        where they are numbers.
    scale : (float, float), optional
        Lowest and highest rating that there can be.
    header : {"auto", True, False}
        Whether the first line holds names of the fields; "auto": if its value is no number.
    name : str, optional
        Default: the name of the file.

    Returns
    -------
    Ratings

    Raises
    ------
    InputError
        If the file cannot be read, a line has fewer than three fields, or as for `Ratings`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "films.csv"
    ...     _ = path.write_text("user,film,stars\\nann,Heat,5\\nbob,Heat,4\\n")
    ...     load_ratings(path, scale=(1, 5))
    Ratings 'films': 2 of 2 rows x 1 columns (100 %), values from 4 to 5 on a scale from 1 to 5
    """
    path = Path(os.fspath(path))
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as err:
        raise InputError(f"{path} cannot be read: {err.strerror or err}; give another") from err
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"{path} is empty; give a line for each rating")
    separator = next((s for s in SEPARATORS if s in lines[0]), ",")
    table = [[field.strip().strip('"') for field in line.split(separator)] for line in lines]
    short = next((k for k, fields in enumerate(table) if len(fields) < 3), None)
    if short is not None:
        raise InputError(
            f"{path}, line {short + 1}: {len(table[short])} fields; give row, column and value, "
            f"separated by {separator!r} as in the first line"
        )
    named = header is True or (header == "auto" and not _is_number(table[0][2]))
    table = pd.DataFrame([fields[:3] for fields in table[named:]])
    if table.empty:
        raise InputError(f"{path} has a header alone; give a line for each rating")
    wrong = ~table[2].map(_is_number)
    if wrong.any():
        k = int(wrong.to_numpy().argmax())
        raise InputError(f"{path}, line {k + 1 + named}: {table[2][k]!r} is no number; give one")
    table[2] = table[2].astype(float)
    return Ratings.from_frame(table, scale=scale, name=path.stem if name is None else name)


def _is_number(field):
    try:
        float(field)
    except ValueError:
        return False
    return True

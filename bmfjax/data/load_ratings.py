"""Ratings from a text file, a line each with row, column and value first, or from a saved one."""

import csv
import io
import os
import re
from pathlib import Path

import numpy as np

from bmfjax.data.declared import check_rating_lines
from bmfjax.data.errors import InputError
from bmfjax.data.files import opened_npz, reading
from bmfjax.data.ratings import Ratings
from bmfjax.data.storage import RATINGS, read_saved

#: What the third field of a header may be called, and others may not.
RATING_NAMES = ("rating", "ratings", "stars", "score", "value")
#: What separates the fields, in the order in which it is looked for.
SEPARATORS = ("::", "\t", ";", ",", " ")


def load_ratings(path, *, scale=None, header="auto", row_names=None, column_names=None, name=None):
    """Read ratings from a file such as MovieLens' `u.data`, `ratings.dat` or `ratings.csv`.

    Parameters
    ----------
    path : str or path
        A text file whose lines begin with row, column and value, separated by commas, tabs,
        semicolons, "::" or spaces; further fields are left out. Rows and columns are names, also
        where they are numbers; one that holds a separator stands in double quotes. Or a .npz in
        which `bmfjax.data.save` wrote ratings.
    scale : (float, float), optional
        Lowest and highest rating that there can be; of a .npz default as it was saved.
    header : {"auto", True, False}
        Whether the first line of a text file holds names of the fields; "auto": if a word stands
        where its value would.
    row_names, column_names : sequence of str, optional
        All names of the rows or columns, in the order that they are to have, such as
        ``fit.data.column_names`` for new rows of a fit. Default: those of the file, in the order in
        which they first occur.
    name : str, optional
        Default: the name of the file, or the one in a .npz.

    Returns
    -------
    Ratings

    Raises
    ------
    InputError
        If the file cannot be read, a line has fewer than three fields or one of them is empty, or
        as for `Ratings`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "films.csv"
    ...     _ = path.write_text('user,film,stars\\nann,"Crouching Tiger, Hidden Dragon",5\\n')
    ...     load_ratings(path, scale=(1, 5)).column_names
    ('Crouching Tiger, Hidden Dragon',)
    """
    path = Path(os.fspath(path))
    if header not in ("auto", True, False):
        raise InputError(f"header is {header!r}; give True, False or 'auto'")
    given = {"scale": scale, "row_names": row_names, "column_names": column_names, "name": name}
    if path.suffix.lower() == ".npz":
        if header != "auto":
            raise InputError(f"header is for text files and {path} is none; leave it out")
        with reading(path):
            return _renamed(_saved(path), path.stem, **given)
    if path.is_file():
        with reading(path):
            check_rating_lines(path)
    rows, columns, values = _triples(path, header)
    return Ratings(rows, columns, values, **given | {"name": path.stem if name is None else name})


# ---- a saved file ----------------------------------------------------------------------------


def _saved(path):
    with opened_npz(path) as arrays:
        kind = str(arrays["kind"]) if "kind" in arrays else "unknown"
    if kind != RATINGS:
        raise InputError(f"its kind is {kind!r}; give ratings that bmfjax.save wrote")
    return read_saved(path)


def _renamed(found, stem, *, scale, row_names, column_names, name):
    """Saved ratings with what was asked for in place of what the file says."""
    labels, sides = found.row_labels, []
    for ids, asked, own in (
        (found.rows, row_names, found.row_names if found.has_row_names else None),
        (found.columns, column_names, found.column_names if found.has_column_names else None),
    ):
        # Where both have names they are matched; else names belong to positions.
        both = asked is not None and own is not None
        sides.append((np.take(own, ids) if both else ids, own if asked is None else asked))
    (rows, row_names), (columns, asked_columns) = sides
    if labels is not None and found.has_row_names:
        label_of = dict(zip(found.row_names, labels, strict=True))
        labels = [label_of.get(n, "") for n in row_names]
    shape = [size if names is None else len(names) for size, (_, names) in
             zip(found.shape, sides, strict=True)]  # fmt: skip
    return Ratings(
        rows, columns, found.values, row_names=row_names, column_names=asked_columns, shape=shape,
        scale=found.scale if scale is None else scale, row_labels=labels,
        name=name or found.name or stem,
    )  # fmt: skip


# ---- lines of text ----------------------------------------------------------------------------


def _triples(path, header):
    """Names of rows, names of columns and values."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as err:
        line = err.object[: err.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: not UTF-8; save the file in that encoding") from err
    except OSError as err:
        raise InputError(f"{path} cannot be read: {err.strerror or err}; give another") from err
    first = next((line for line in io.StringIO(text) if line.strip()), None)
    if first is None:
        raise InputError(f"{path} is empty; give a line for each rating")
    bare = re.sub('"[^"]*"', "", first)
    separator = next((s for s in SEPARATORS if s in bare), ",")
    table = list(_fields(path, text, separator))
    for number, fields in table:
        if len(fields) < 3:
            raise InputError(
                f"{path}, line {number}: {len(fields)} fields; give row, column and value, "
                f"separated by {separator!r} as in the first line"
            )
    if header is True or (header == "auto" and _is_header(*(fields for _, fields in table[:2]))):
        _check_order(path, table[0][1])
        table = table[1:]
    if not table:
        raise InputError(f"{path} has a header alone; give a line for each rating")
    values = [_number(fields[2]) for _, fields in table]
    for (number, fields), value in zip(table, values, strict=True):
        for k, what in enumerate(("row", "column")):
            if not fields[k]:
                raise InputError(f"{path}, line {number}: the {what} is empty; name every {what}")
        if value is None:
            names = header == "auto" and number == table[0][0]
            raise InputError(
                f"{path}, line {number}: {fields[2]!r} is no number; give one"
                f"{', or header=True if the line names the fields' if names else ''}"
            )
    rows, columns = ([fields[k] for _, fields in table] for k in range(2))
    return rows, columns, values


def _fields(path, text, separator):
    """(line number, fields) of every line that is not blank."""
    if len(separator) > 1:  # as MovieLens writes them, without quotes
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield number, [field.strip() for field in line.split(separator)]
        return
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    began = 1
    try:
        for fields in reader:
            if len(fields) > 1 or any(field.strip() for field in fields):
                yield began, [field.strip() for field in fields]
            began = reader.line_num + 1
    except csv.Error as err:
        raise InputError(
            f"{path}, line {began}: {err}; close every double quote, and write two for one inside"
        ) from err


def _is_header(first, second=None):
    """A word where a rating would stand; what holds a digit, or nothing, is a rating gone wrong.

    So is a line with more or fewer fields than the next.
    """
    field = first[2]
    word = bool(field) and _number(field) is None and not any(c.isdigit() for c in field)
    return word and (second is None or len(first) == len(second))


def _check_order(path, names):
    """A header may say that another field is the rating."""
    at = [k for k, name in enumerate(names) if name.lower() in RATING_NAMES]
    if at and 2 not in at:
        raise InputError(
            f"{path}: the header has {names[at[0]]!r} as field {at[0] + 1}, and the third is read "
            "as the rating; put row, column and rating first, in this order"
        )


def _number(field):
    if "_" in field:  # which Python takes for digits apart
        return None
    try:
        return float(field)
    except ValueError:
        return None

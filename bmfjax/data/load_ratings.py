"""Ratings from a text file, as lines or as a table, or from a saved one."""

import os
from pathlib import Path

import numpy as np

from bmfjax.data.errors import InputError
from bmfjax.data.files import opened_npz, reading
from bmfjax.data.rating_text import LAYOUTS, layout_of, read_table_of_ratings, read_triples
from bmfjax.data.ratings import Ratings
from bmfjax.data.storage import RATINGS, read_saved


def load_ratings(
    path,
    *,
    layout="auto",
    scale=None,
    header="auto",
    row_names=None,
    column_names=None,
    name=None,
):
    """Read ratings from a file such as MovieLens' `u.data`, `ratings.dat` or `ratings.csv`.

    Parameters
    ----------
    path : str or path
        A text file of fields that are separated by commas, tabs, semicolons, "::" or spaces; a
        field that holds a separator stands in double quotes. Or a .npz in which `bmfjax.data.save`
        wrote ratings.
    layout : {"auto", "triples", "table"}
        What the lines of a text file are. "triples": each begins with row, column and value, and
        further fields are left out; rows and columns are names, also where they are numbers.
        "table": each is a row with a cell for every column, blank or NA where there is no rating;
        the first line may name the columns, and the first column the rows. "auto": a table if the
        header has no name for the first column, or cells are blank where lines have a rating, or
        there are more than four fields of numbers; triples if the header says so or the fields do
        not suit a table. What may be either is refused.
    scale : (float, float), optional
        Lowest and highest rating that there can be; of a .npz default as it was saved.
    header : {"auto", True, False}
        Whether the first line of a text file holds names of the fields or columns; "auto": if a
        word stands where a value would, or, in a table, whole numbers rise beyond the ratings. A
        line of rising numbers that may be ratings is refused.
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
        If the file cannot be read, its layout or header is not clear, a line has fewer than three
        fields or one of them is empty, a cell of a table is no number, or as for `Ratings`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "films.csv"
    ...     _ = path.write_text('user,film,stars\\nann,"Crouching Tiger, Hidden Dragon",5\\n')
    ...     load_ratings(path, scale=(1, 5)).column_names
    ('Crouching Tiger, Hidden Dragon',)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "wide.csv"
    ...     _ = path.write_text("user,Heat,Fargo,Alien\\nann,5,,\\nbob,4,2,\\n")
    ...     load_ratings(path).column_names
    ('Heat', 'Fargo', 'Alien')
    """
    options = {"scale": scale, "row_names": row_names, "column_names": column_names, "name": name}
    return read_ratings(path, layout=layout, header=header, **options)[0]


def read_ratings(path, *, layout="auto", header="auto", **options):
    """Return the ratings of a file and the layout in which they were read, None of a saved file.

    The options are those of `load_ratings`.
    """
    path = Path(os.fspath(path))
    if layout not in ("auto", *LAYOUTS):
        raise InputError(f"layout is {layout!r}; give 'auto', 'triples' or 'table'")
    if header not in ("auto", True, False):
        raise InputError(f"header is {header!r}; give True, False or 'auto'")
    if path.suffix.lower() == ".npz":
        for option, value in (("header", header), ("layout", layout)):
            if value != "auto":
                raise InputError(f"{option} is for text files and {path} is none; leave it out")
    with reading(path):
        if path.suffix.lower() == ".npz":
            return _renamed(_saved(path), path.stem, **options), None
        if layout == "auto":
            layout = layout_of(path, header)
        read = read_triples if layout == "triples" else read_table_of_ratings
        return _renamed(read(path, header), path.stem, **options), layout


def _saved(path):
    with opened_npz(path) as arrays:
        kind = str(arrays["kind"]) if "kind" in arrays else "unknown"
    if kind != RATINGS:
        raise InputError(f"its kind is {kind!r}; give ratings that bmfjax.save wrote")
    return read_saved(path)


def _renamed(found, stem, *, scale=None, row_names=None, column_names=None, name=None):
    """Ratings of a file with what was asked for in place of what the file says."""
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

"""From a shipped name or a file to a matrix of any kind; `formats` lists what can be read."""

import difflib
import inspect
import os
import textwrap
from contextlib import contextmanager
from importlib.resources import as_file
from pathlib import Path

import numpy as np

from bmfjax.data.checks import one_of
from bmfjax.data.datasets import dataset_file, dataset_names
from bmfjax.data.errors import InputError
from bmfjax.data.io.files import check_threshold, opened_npz, reading
from bmfjax.data.io.formats import ANY_ENDING, BINARY, FOLDERS, RATINGS, READERS, REAL
from bmfjax.data.io.npz import read_truth
from bmfjax.data.io.triples import LAYOUTS, layout_of
from bmfjax.data.ratings import Ratings

_DEFAULTS = {
    "missing": (),
    "binarize": None,
    "header": "auto",
    "row_names": "auto",
    "label_column": None,
    "layout": "auto",
}


def load(source, *, missing=(), binarize=None, header="auto", row_names="auto", label_column=None):
    """Load a binary matrix that ships with the package, or one from a file.

    {formats}

    Parameters
    ----------
    source : str or path
        The name of a shipped matrix (see `bmfjax.data.datasets`) or a file.
    missing : str or sequence of str
        More marks of a missing cell in a .csv or .tsv, such as "?".
    binarize : float, optional
        Entries above it become ones and the others zeros; missing stays missing. Without it an
        entry which is neither 0 nor 1 is refused.
    header : bool or "auto"
        Whether the first line of a .csv or .tsv names the columns. "auto": it does if a cell of it
        beside the first is neither a number nor missing, so that a header of mere numbers needs
        True.
    row_names : bool or "auto"
        Whether the first column of a .csv, .tsv or .parquet names the rows. "auto": it does if
        the header has no name for it or some cell of it is neither a number nor missing, so that
        row names which are mere numbers under a column name need True.
    label_column : str, optional
        The column (of a .csv, .tsv or .parquet, or of the obs of an .h5ad or .zarr) that holds a
        side label for each row; it becomes `BinaryMatrix.row_labels` and is no column of the
        matrix.

    Returns
    -------
    BinaryMatrix

    Raises
    ------
    InputError
        If there is no such file or name, the format is unknown or the file broken, a value is not
        binary, or an option is given that means nothing for the format.
    TypeError
        If `source` or an option is an object of a wrong kind.

    Examples
    --------
    >>> load("house-votes")
    BinaryMatrix 'house-votes': 435 rows x 16 columns, 3421 ones (52.1 % of the observed entries),
    392 missing
    """
    options = _checked_options(missing, header, row_names, label_column)
    options["binarize"] = check_threshold(binarize)
    with _located(source) as (path, name):
        return _read(BINARY, path, options, **name)


def load_share(source, share_of, **options):
    """Load as `load` does, but of some large matrices the rows of this process alone.

    ``share_of(shape)`` is the `bmfjax.data.stores.Share` of this process, or None where it needs
    all rows. All are read where the format cannot be read in parts, or the matrix is not large.
    """
    given = {n: v for n, v in _DEFAULTS.items() if n != "layout"} | options
    binarize = check_threshold(given.pop("binarize"))
    checked = _checked_options(**given) | {"binarize": binarize}
    with _located(source) as (path, name):
        if not _reader(BINARY, path).shares:
            return _read(BINARY, path, checked, **name)
        found = _read(BINARY, path, checked, share_of=share_of, **name)
    return found.shared_by(lambda: load(source, **options))


def load_real(path, *, missing=(), header="auto", row_names="auto", label_column=None):
    """Load a matrix of real numbers from a file.

    {formats}

    Parameters
    ----------
    path : str or path
    missing, header, row_names
        As for `bmfjax.load`, of a .csv or .tsv.
    label_column : str, optional
        As for `bmfjax.load`.

    Returns
    -------
    RealMatrix

    Raises
    ------
    InputError
        If there is no such file, its format is unknown, it is broken, or a cell is no number.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "spectra.csv").write_text("name,a,b\\nfirst,0.5,\\nsecond,2,1e-3\\n")
    ...     load_real(f"{folder}/spectra.csv")
    RealMatrix 'spectra': 2 rows x 2 columns, values from 0.001 to 2, 1 missing
    """
    options = _checked_options(missing, header, row_names, label_column)
    return _read(REAL, _file(path), options)


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
        there are more than four fields; triples if the header has a name for the rating or for row
        and column ("user", "item_id"), or up to four fields do not suit a table, or of more fields
        without a header one is a word in every line. What may be either is refused.
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


def read_ratings(path, *, layout="auto", header="auto", **others):
    """Return the ratings of a file and the layout in which they were read, None of a saved file.

    The options are those of `load_ratings`.
    """
    path = _file(path)
    options = {
        "layout": one_of("layout", layout, ("auto", *LAYOUTS)),
        "header": _checked_switch("header", header),
    }
    text = "layout" in _reader(RATINGS, path).options
    with reading(path):
        if text and layout == "auto":
            options["layout"] = layout_of(path, header)
    found = _read(RATINGS, path, options)
    with reading(path):
        return _renamed(found, path.stem, **others), options["layout"] if text else None


def _with_formats(doc, kind) -> str:
    """Fill the table of the endings under which a kind of data is read into a docstring."""
    endings = {}
    for ending, row in READERS.items():
        if kind in row:
            endings.setdefault(row[kind], []).append(ending)
    rule = f"{'=' * 12}  {'=' * 78}"
    lines = [
        textwrap.fill(
            reader.about, len(rule), initial_indent=f"{', '.join(names):14}",
            subsequent_indent=" " * 14,
        )
        for reader, names in endings.items()
    ]  # fmt: skip
    table = "\n".join([rule, f"{'ending':14}what is read", rule, *lines, rule])
    return inspect.cleandoc(doc).replace("{formats}", table)


load.__doc__ = _with_formats(load.__doc__ or "", BINARY)
load_real.__doc__ = _with_formats(load_real.__doc__ or "", REAL)


def load_truth(source):
    """Load the true factors that `bmfjax.data.save` wrote beside a matrix.

    Parameters
    ----------
    source : str or path
        A .npz file with factors, or a shipped matrix that has them ("calculator-digits").

    Returns
    -------
    Truth
        Bool arrays `usage` (rows, rank), `basis` (columns, rank) and `clean` (rows, columns); the
        last is the Boolean product where the file holds no other.

    Raises
    ------
    InputError
        If there is no such file or name, the file is broken or holds no factors.

    Examples
    --------
    >>> usage, basis, clean = load_truth("calculator-digits")
    >>> usage.shape, basis.shape, int(clean.sum())
    ((10, 7), (54, 7), 169)
    """
    with _located(source) as (path, _):
        if path.suffix.lower() != ".npz":
            raise InputError(f"{path} holds no true factors; only a .npz file of bmfjax does")
        with reading(path), opened_npz(path) as arrays:
            return read_truth(arrays)


# ---- where the file is, and how it is read ------------------------------------------------------


@contextmanager
def _located(source):
    """Give the file of a shipped name or of a path; of the former the name, too."""
    if isinstance(source, str) and source in dataset_names():
        with as_file(dataset_file(source)) as path:
            yield path, {"name": source}  # the file may be an unpacked copy of another name
    else:
        yield _file(source, or_name=True), {}


def is_there(path) -> bool:
    """Whether a path is a file, or a folder that is read as one."""
    path = Path(path)
    return path.is_file() or (path.is_dir() and path.suffix.lower() in FOLDERS)


def _file(source, or_name=False):
    """Return the path of a file that exists."""
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            f"source is a {type(source).__name__}; give {'a name or ' if or_name else ''}a path, "
            "or make a matrix of an array"
        )
    path = Path(source)
    if path.is_dir() and path.suffix.lower() not in FOLDERS:
        raise InputError(f"{path} is a folder; give a file in it")
    if path.exists():
        return path
    if not or_name or path.suffix.lower() in READERS or len(path.parts) > 1:
        raise InputError(f"{path} does not exist: no such file; check the path")
    names = dataset_names()
    close = difflib.get_close_matches(str(source).lower(), names, n=1)
    hint = f"did you mean {close[0]!r}? The" if close else "the"
    raise InputError(
        f"{str(source)!r} is no shipped matrix, and there is no such file; {hint} shipped ones are "
        f"{', '.join(names)}"
    )


def _reader(kind, path):
    """Return the reader of an ending for one kind of data."""
    row = ANY_ENDING | READERS.get(path.suffix.lower(), {})
    if kind not in row:
        raise InputError(
            f"{path} has the ending {path.suffix!r}, which is not known; give one of "
            f"{' '.join(_endings(kind))}"
        )
    return row[kind]


def _endings(kind, option=None):
    """Return the endings under which a kind of data is read, or those that use an option."""
    readers = {ending: row[kind] for ending, row in READERS.items() if kind in row}
    return [end for end, reader in readers.items() if option is None or option in reader.options]


def _read(kind, path, options, **more):
    """Read a file; refuse options that mean nothing for its format."""
    reader = _reader(kind, path)
    for name, value in options.items():
        if value != _DEFAULTS[name] and name not in reader.options:
            formats = " ".join(_endings(kind, name)) or "text"
            raise InputError(
                f"{name} means nothing for {path}: it is for {formats} files; leave it out"
            )
    with reading(path):
        return reader.read(path, **{name: options[name] for name in reader.options}, **more)


def _checked_options(missing, header, row_names, label_column):
    """Check the options of a table as text."""
    marks = (missing,) if isinstance(missing, str) else missing
    try:
        marks = tuple(str(mark).strip() for mark in marks)
    except TypeError:
        raise TypeError(
            f"missing is a {type(missing).__name__}; give the marks of a missing cell, such as '?'"
        ) from None
    if label_column is not None and not isinstance(label_column, str):
        raise TypeError(f"label_column is a {type(label_column).__name__}; give its name, a str")
    return {
        "missing": marks,
        "header": _checked_switch("header", header),
        "row_names": _checked_switch("row_names", row_names),
        "label_column": label_column,
    }


def _checked_switch(name, value):
    if not isinstance(value, bool) and value != "auto":
        raise InputError(f"{name} is {value!r}; give True, False or 'auto'")
    return value


def _renamed(found, stem, *, scale=None, row_names=None, column_names=None, name=None):
    """Replace the names, scale and title of a file by those that are given."""
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

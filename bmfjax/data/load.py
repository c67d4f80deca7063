"""From a shipped name or a file to a BinaryMatrix."""

import difflib
import os
from contextlib import contextmanager
from functools import partial
from importlib.resources import as_file
from pathlib import Path

from bmfjax.data.datasets import dataset_file, dataset_names
from bmfjax.data.errors import InputError
from bmfjax.data.files import check_threshold, opened_npz, reading
from bmfjax.data.foreign import read_h5ad, read_matrix_market, read_parquet, read_scipy_npz
from bmfjax.data.storage import read_matrix, read_truth
from bmfjax.data.text import read_table
from bmfjax.data.transactions import read_transactions

_TABLE = ("missing", "binarize", "header", "row_names", "label_column")

# Ending, reader, and the options of `load` that mean something for it.
_READERS = {
    ".npz": (None, ()),
    ".csv": (read_table, _TABLE),
    ".tsv": (read_table, _TABLE),
    ".mtx": (read_matrix_market, ("binarize",)),
    ".dat": (read_transactions, ()),
    ".h5ad": (read_h5ad, ("binarize", "label_column")),
    ".parquet": (read_parquet, ("binarize", "row_names", "label_column")),
}
_DEFAULTS = {
    "missing": (),
    "binarize": None,
    "header": "auto",
    "row_names": "auto",
    "label_column": None,
}


def load(source, *, missing=(), binarize=None, header="auto", row_names="auto", label_column=None):
    """Load a binary matrix that ships with the package, or one from a file.

    ============  ==============================================================================
    ending        what is read
    ============  ==============================================================================
    .npz          a file of `bmfjax.data.save` or of ``scipy.sparse.save_npz``
    .csv, .tsv    0, 1, true, false; a cell is missing if it is empty, NA, NaN or whatever else
                  pandas takes for missing, or is listed in `missing`. A .csv may be separated
                  by commas, semicolons or tabs. Blank lines are skipped
    .mtx          Matrix Market
    .dat          FIMI transactions: a line lists the integer items of a row; columns are the
                  items that occur, ascending
    .h5ad         AnnData's X (``pip install 'bmfjax[h5ad]'``)
    .parquet      a table (``pip install 'bmfjax[parquet]'``)
    ============  ==============================================================================

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
        The column (of a .csv, .tsv or .parquet, or of the obs of an .h5ad) that holds a side label
        for each row; it becomes `BinaryMatrix.row_labels` and is no column of the matrix.

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
    options = {
        "missing": _check_marks(missing),
        "binarize": check_threshold(binarize),
        "header": _check_switch("header", header),
        "row_names": _check_switch("row_names", row_names),
        "label_column": _check_label_column(label_column),
    }
    given = [name for name, value in options.items() if value != _DEFAULTS[name]]
    with _located(source) as (path, name_of_matrix):
        if path.suffix.lower() == ".npz":
            read, used = _npz_reader(path, name_of_matrix)
        else:
            read, used = _READERS[path.suffix.lower()]
        for name in given:
            if name not in used:
                formats = " ".join(end for end, (_, uses) in _READERS.items() if name in uses)
                raise InputError(
                    f"{name} means nothing for {path}: it is for {formats} files; leave it out"
                )
        with reading(path):
            return read(path, **{name: options[name] for name in used})


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


@contextmanager
def _located(source):
    """Give the file of a shipped name or of a path, and what its matrix is called."""
    if isinstance(source, str) and source in dataset_names():
        with as_file(dataset_file(source)) as path:
            yield path, source  # the file itself may be an unpacked copy of another name
        return
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            f"source is a {type(source).__name__}; give a name or a path, or make a BinaryMatrix "
            "of an array"
        )
    path = Path(source)
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a file in it")
    if not path.exists():
        raise _no_such(source, path)
    if path.suffix.lower() not in _READERS:
        raise InputError(
            f"{path} has the ending {path.suffix!r}, which is not known; give one of "
            f"{' '.join(_READERS)}"
        )
    yield path, path.stem


def _no_such(source, path):
    names = dataset_names()
    if path.suffix.lower() in _READERS or len(path.parts) > 1:
        return InputError(f"{path} does not exist: no such file; check the path")
    close = difflib.get_close_matches(str(source).lower(), names, n=1)
    hint = f"did you mean {close[0]!r}? The" if close else "the"
    return InputError(
        f"{str(source)!r} is no shipped matrix, and there is no such file; {hint} shipped ones are "
        f"{', '.join(names)}"
    )


def _npz_reader(path, name):
    """Tell the project's own .npz files from those of scipy, by the arrays in them."""
    with reading(path), opened_npz(path) as arrays:
        keys = set(arrays.files)
    if "kind" in keys:
        return partial(_read_own, name=name), ()
    if "format" in keys:
        return read_scipy_npz, ("binarize",)
    raise InputError(
        f"{path} holds the arrays {', '.join(sorted(keys)[:6])} and not a matrix; "
        "give a file of bmfjax.data.save or scipy.sparse.save_npz"
    )


def _read_own(path, name):
    with opened_npz(path) as arrays:
        return read_matrix(arrays, name)


def _check_marks(missing):
    marks = (missing,) if isinstance(missing, str) else missing
    try:
        return tuple(str(mark).strip() for mark in marks)
    except TypeError:
        raise TypeError(
            f"missing is a {type(missing).__name__}; give the marks of a missing cell, such as '?'"
        ) from None


def _check_switch(name, value):
    if not isinstance(value, bool) and value != "auto":
        raise InputError(f"{name} is {value!r}; give True, False or 'auto'")
    return value


def _check_label_column(label_column):
    if label_column is not None and not isinstance(label_column, str):
        raise TypeError(f"label_column is a {type(label_column).__name__}; give its name, a str")
    return label_column

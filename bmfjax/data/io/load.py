"""From a shipped name or a file to a matrix of any kind; `formats` lists what can be read."""

import contextlib
import inspect
import os
import textwrap
from dataclasses import fields
from importlib.resources import as_file
from itertools import chain
from pathlib import Path

from bmfjax.data.datasets import dataset_file, dataset_names
from bmfjax.data.errors import InputError
from bmfjax.data.io.files import opened_npz, reading
from bmfjax.data.io.formats import ANY_ENDING, FOLDERS, OF_BITS, OPTIONS, READERS, is_text
from bmfjax.data.io.npz import read_truth
from bmfjax.data.names import title_of
from bmfjax.data.reading.annotated import is_annotated
from bmfjax.data.reading.record import BINARY, RATINGS, REAL, Asked
from bmfjax.errors import ArgumentError, did_you_mean, meant

#: A file that every stored fit has.
OF_FIT = "summary.json"
#: What is no file of data, by its ending.
NO_DATA = (
    dict.fromkeys([".html", ".htm", ".xhtml"], "a page (HTML)")
    | {".pdf": "a document (PDF)", ".tex": "a document (LaTeX)"}
    | dict.fromkeys([".doc", ".docx", ".odt", ".rtf", ".md"], "a document")
    | dict.fromkeys([".png", ".jpg", ".jpeg", ".svg", ".gif"], "a picture")
)
#: The options of a reading and their defaults; None, or False, is the default of the others.
_OF_READING = {field.name: field.default for field in fields(Asked)}


def load(source, *, binarize=None, one=(), zero=(), one_hot=(), layer=None, use_raw=False,
         modality=None, **options):  # fmt: skip
    """Load a binary matrix that ships with the package, or one from a file.

    {formats}

    What was read is said by `BinaryMatrix.reading`. What may be read in two ways is refused, with
    the option that chooses.

    Parameters
    ----------
    source : str, path, AnnData or MuData
        The name of a shipped matrix (see `bmfjax.data.datasets`), a file, or an object, which is
        read as its file would be.
    binarize : float, optional
        Entries above it become ones and the others zeros; missing stays missing. For counts and
        other numbers. Without it an entry which is neither a one nor a zero is refused.
    one, zero : str, number or sequence, optional
        Texts or numbers that are ones, and zeros. Without them columns of 0 and 1, true and false,
        yes and no, y and n, t and f, or + and - are read.
    one_hot : str or sequence of str
        Columns of categories, of which each category becomes a column of the matrix.
    layer : str, optional
        The layer of AnnData that is read in place of X.
    use_raw : bool
        Whether AnnData's raw values are read in place of X.
    modality : str, optional
        The modality of MuData that is read; needed where there are several.
    missing : str, number or sequence
        More marks of a missing cell of a text, such as "?" or 99.
    header : bool or "auto"
        Whether the first line of a text names the columns. "auto": it does if a cell of it beside
        the first is no value, or numbers in it cannot be values.
    row_names : bool or "auto"
        Whether the first column names the rows. "auto": it does if the header has no name for it,
        if its cells are texts, or if it is called id, year, sample or the like and its numbers are
        distinct.
    columns, ignore : str or sequence of str, optional
        The columns that hold values, and those that are left out: names, or "first:last".
    label_column : str or sequence of str, optional
        The column (of a text, a .parquet, or of the obs of an .h5ad or .zarr) that holds a side
        label for each row; it becomes `BinaryMatrix.row_labels` and is no column of the matrix.
    layout : {"auto", "table", "triples", "pairs", "baskets"}
        What the lines of a text are: rows of a table; row, column and value; row and column of a
        one; or the items of a row.
    decimal : {"auto", ".", ","}
        The decimal sign.
    encoding : str, optional
        That of a text; default: UTF-8, or UTF-16 where the file begins so.

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
    given = {"binarize": binarize, "one": one, "zero": zero, "one_hot": one_hot, "layer": layer,
             "use_raw": use_raw, "modality": modality}  # fmt: skip
    with _located(source) as (path, name):
        return _read(BINARY, path, given | options, **name)


def load_share(source, share_of, **options):
    """Load as `load` does, but of some large matrices the rows of this process alone.

    ``share_of(shape)`` is the `bmfjax.data.stores.Share` of this process, or None where it needs
    all rows. All are read where the format cannot be read in parts, or the matrix is not large.
    """
    with _located(source) as (path, name):
        if not _reader(BINARY, path).shares:
            return _read(BINARY, path, options, **name)
        found = _read(BINARY, path, options, share_of=share_of, **name)
    return found.shared_by(lambda: load(source, **options))


def load_by_names(source, kind, names, **options):
    """Load one kind of data whose columns are those of a fit, by the names of these.

    In a table of texts these names tell the header and the columns of values.
    """
    with _located(source) as (path, name):
        is_table = not is_annotated(path) and "columns" in _reader(kind, path).options
        return _read(kind, path, options, **name, **({"fitted": tuple(names)} if is_table else {}))


def load_real(path, *, duplicates="error", layer=None, use_raw=False, modality=None, **options):
    """Load a matrix of real numbers from a file.

    {formats}

    Parameters
    ----------
    path : str, path, AnnData or MuData
    duplicates : {"error", "last", "mean", "sum"}
        What to do with a cell that lines of row, column and value list more than once.
    layer, use_raw, modality
        As for `bmfjax.load`: what of AnnData or MuData is read.
    **options
        `missing`, `header`, `row_names`, `columns`, `ignore`, `label_column`, `layout`, `decimal`
        and `encoding` of `bmfjax.load`.

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
    given = {"duplicates": duplicates, "layer": layer, "use_raw": use_raw, "modality": modality}
    return _read(REAL, path if is_annotated(path) else _file(path), given | options)


def load_ratings(
    path, *, scale=None, row_names=None, column_names=None, name=None, duplicates="error", **options
):
    """Read ratings from a file such as MovieLens' `u.data`, `ratings.dat` or `ratings.csv`.

    Parameters
    ----------
    path : str or path
        A text file of fields that are separated by commas, tabs, semicolons, "::" or spaces; a
        field that holds a separator stands in double quotes. It may be packed (.gz). Or an .xlsx, a
        .parquet, or a .npz in which `bmfjax.data.save` wrote ratings.
    scale : (float, float), optional
        Lowest and highest rating that there can be; of a .npz default as it was saved.
    row_names, column_names : sequence of str, optional
        All names of the rows or columns, in the order that they are to have, such as
        ``fit.data.column_names`` for new rows of a fit. Default: those of the file, in the order in
        which they first occur. For a table `row_names` may also be as for `bmfjax.load`.
    name : str, optional
        Default: the name of the file, or the one in a .npz.
    duplicates : {"error", "last", "mean", "sum"}
        What to do with a cell that is rated more than once.
    layout : {"auto", "triples", "table"}
        What the lines of a text file are. "triples": each holds a row, a column and a rating, which
        a header names or which are its first three fields; rows and columns are names, also where
        they are numbers. "table": each is a row with a cell for every column, blank or NA where
        there is no rating. "auto": told by the header, by blank cells and by the number of fields.
        What may be either is refused.
    columns : sequence, optional
        For triples the fields of row, column and rating: names of the header or numbers from 1.
    header : {"auto", True, False}
        Whether the first line of a text file holds names; a line of rising numbers that may be
        ratings is refused.
    missing : str, number or sequence
        Marks of cells without a rating, such as 99 or "?".
    ignore, decimal, encoding
        As for `bmfjax.load`.

    Returns
    -------
    Ratings

    Raises
    ------
    InputError
        If the file cannot be read, its layout or header is not clear, a line has too few fields or
        one of them is empty, a cell of a table is no number, or as for `Ratings`.

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
    if isinstance(row_names, bool | str):
        options, row_names = options | {"row_names": row_names}, None
    sides = {"row_names_given": row_names, "column_names_given": column_names}
    given = {"scale": scale, "duplicates": duplicates} | sides | options
    found = _read(RATINGS, _file(path), given)
    found._name = found.name if name is None else title_of(name)
    return found


def _with_formats(doc, kind) -> str:
    """Fill the table of the endings under which a kind of data is read into a docstring."""
    endings = {}
    for ending, row in READERS.items():
        if kind in row:
            endings.setdefault(row[kind], []).append(ending)
    width = max(len(", ".join(names)) for names in endings.values())
    rule = f"{'=' * width}  {'=' * 78}"
    lines = [
        textwrap.fill(
            reader.about, len(rule), initial_indent=f"{', '.join(names):{width + 2}}",
            subsequent_indent=" " * (width + 2),
        )
        for reader, names in endings.items()
    ]  # fmt: skip
    table = "\n".join([rule, f"{'ending':{width + 2}}what is read", rule, *lines, rule])
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


@contextlib.contextmanager
def _located(source):
    """Give the file of a shipped name or of a path; of the former the name, too."""
    if is_annotated(source):
        yield source, {}
    elif isinstance(source, str) and source in dataset_names():
        with as_file(dataset_file(source)) as path:
            yield path, {"name": source}  # the file may be an unpacked copy of another name
    else:
        yield _file(source, or_name=True), {}


def is_there(path) -> bool:
    """Tell whether a path is a file, or a folder that is read as one."""
    path = Path(path)
    return path.is_file() or (path.is_dir() and path.suffix.lower() in FOLDERS)


def _file(source, or_name=False):
    """Return the path of a file that exists."""
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            f"source is a {type(source).__name__}; give {'a name or ' if or_name else ''}a path. "
            "bmfjax.fit takes arrays and data frames as they are, and of a data frame from_frame "
            "of BinaryMatrix, RealMatrix or Ratings takes the options"
        )
    path = Path(source)
    if path.is_dir() and path.suffix.lower() not in FOLDERS:
        if (path / OF_FIT).is_file():
            raise InputError(f"{path} is a fit; read it by bmfjax.Fit.load({str(path)!r})")
        raise InputError(f"{path} is a folder; give a file in it")
    if path.exists():
        return path
    if not or_name or path.suffix.lower() in READERS or len(path.parts) > 1:
        raise InputError(f"{path} does not exist: no such file; check the path")
    names = dataset_names()
    close = meant(str(source), names)
    hint = f"did you mean {close!r}? The" if close else "the"
    raise InputError(
        f"{str(source)!r} is no shipped matrix, and there is no such file; {hint} shipped ones are "
        f"{', '.join(names)}"
    )


def _reader(kind, path):
    """Return the reader of an ending for one kind of data."""
    ending = path.suffix.lower()
    if ending == ".gz" and path.with_suffix("").suffix.lower() in (".csv", ".tsv", ".basket"):
        ending = path.with_suffix("").suffix.lower()
    row = (ANY_ENDING if is_text(ending) else {}) | READERS.get(ending, {})
    _refuse_document(path)
    if kind not in row:
        why, more = f"of which no {kind} data are read", ""
        if is_text(ending):
            why = "which is not known"
            more = "; if it holds ratings, say model='pmf' (--model pmf)"
        raise InputError(
            f"{path} has the ending {path.suffix!r}, {why}; give one of {' '.join(_endings(kind))}"
            f"{more}"
        )
    return row[kind]


def _refuse_document(path):
    """Refuse a file that holds no data by its ending; a report of a fit says which fit."""
    what = NO_DATA.get(path.suffix.lower())
    if what is None:
        return
    if (path.parent / OF_FIT).is_file():
        raise InputError(
            f"{path} is {what}, made of a fit; read the fit by "
            f"bmfjax.Fit.load({str(path.parent)!r}), or give a file of data"
        )
    raise InputError(f"{path} is {what}, and holds no data that can be read; give a file of data")


def _endings(kind, option=None):
    """Return the endings under which a kind of data is read, or those that use an option."""
    readers = {ending: row[kind] for ending, row in READERS.items() if kind in row}
    if option is not None and kind in ANY_ENDING:
        readers = {"text": ANY_ENDING[kind]} | readers
    return [end for end, reader in readers.items() if option is None or option in reader.options]


def _read(kind, path, options, **more):
    """Read a file; refuse options that mean nothing for its format."""
    is_object = is_annotated(path)
    reader = READERS[".h5ad"][kind] if is_object else _reader(kind, path)
    known = [name for name in OPTIONS if kind == BINARY or name not in OF_BITS]
    given = {name: value for name, value in options.items() if _is_given(name, value)}
    for name in options:
        if name not in known:
            raise ArgumentError(
                f"{name} is no option of this loader; give one of {', '.join(known)}"
                f"{did_you_mean(name, known)}"
            )
    Asked.of(**{n: v for n, v in given.items() if n in _OF_READING})  # checks them
    if not isinstance(given.get("label_column"), str | list | tuple | None):
        raise TypeError("label_column is no name; give a str or several")
    for name in given.keys() - set(reader.options):
        able = {k: own for k in (kind, BINARY, REAL, RATINGS) if (own := _endings(k, name))}
        formats, of = able.get(kind), ""
        if formats is None:  # of other kinds
            formats, of = dict.fromkeys(chain(*able.values())), f" of {' or '.join(able)} data"
        where = type(path).__name__ if is_object else path
        raise InputError(
            f"{name} means nothing for {where}: it is for {' '.join(formats)} files{of}; leave it "
            "out"
        )
    with contextlib.nullcontext() if is_object else reading(path):
        found = reader.read(path, kind, **given, **more)
    if found._reading is None:  # of no text
        found._say(_said_of(given), given.get("label_column"))
    return found


def _said_of(given) -> tuple[str, ...]:
    """Say what options chose, for the reading of a file that is no text."""
    chosen = (
        ("modality", "modality {!r}"), ("layer", "layer {!r}"), ("use_raw", "raw values"),
        ("binarize", "ones above {:g}"),
    )  # fmt: skip
    return tuple(text.format(given[name]) for name, text in chosen if name in given)


def _is_given(name, value) -> bool:
    """Say whether the value of an option is another than its default."""
    default = _OF_READING.get(name)
    if isinstance(value, list | tuple) and default == ():
        return len(value) > 0
    is_default = isinstance(value, str) and value == default
    return not (is_default or value is None or (value is False and name not in _OF_READING))

"""The real matrix: numbers of any size, some missing, with names for rows and columns."""

import hashlib

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bmfjax.data.bits import WORD
from bmfjax.data.blocks import blocks
from bmfjax.data.errors import InputError
from bmfjax.data.intake import as_table, checked_observed, is_nested, nothing_observed
from bmfjax.data.memory import require_memory
from bmfjax.data.names import check_labels, checked_sides, place_text
from bmfjax.data.reading.door import found_in
from bmfjax.data.reading.record import REAL
from bmfjax.data.reading.tables import sentinels
from bmfjax.data.stores import LARGE
from bmfjax.data.table import NamedTable, locked


class RealMatrix(NamedTable):
    """A matrix of real numbers, some of whose entries may be missing. It never changes.

    A sparse matrix without missing entries stays sparse: its dense form is made when it is asked
    for.

    Parameters
    ----------
    values : array (rows, columns), scipy sparse matrix, pandas DataFrame or nested sequence
        Numbers; NaN, None and pandas' NA are missing, and so are masked entries of a NumPy masked
        array. What a sparse matrix does not store is 0. The index and columns of a data frame
        become names, unless they merely count.
    observed : bool array (rows, columns), optional
        True where an entry is observed; values that it does not mark are not looked at.
    row_names, column_names : sequences of str, optional
        Distinct names; they replace those of a data frame.
    row_labels : sequence of str, optional
        A side label for each row, used to colour reports, never to fit.
    name : str, optional
        What the matrix is called.

    Raises
    ------
    InputError
        If a value is infinite or no number, nothing is observed, the matrix has no rows or no
        columns or not two axes, or names, labels or `observed` do not fit.

    Examples
    --------
    >>> spectra = RealMatrix([[1.5, 0.0, None], [2.0, 1.0, 0.5]], row_names=["a", "b"])
    >>> spectra
    RealMatrix: 2 rows x 3 columns, values from 0 to 2, 1 missing
    >>> spectra.dense()
    array([[1.5, 0. , nan],
           [2. , 1. , 0.5]], dtype=float32)

    A sparse matrix of counts:

    >>> import scipy.sparse as sp
    >>> counts = RealMatrix(sp.random_array((1000, 500), density=0.01, rng=0))
    >>> counts.is_sparse, counts.nonzero().nnz
    (True, 5000)
    """

    _values_are = "numbers"

    def __init__(
        self,
        values,
        observed=None,
        row_names=None,
        column_names=None,
        *,
        row_labels=None,
        name=None,
    ):
        if isinstance(values, NamedTable):
            raise TypeError(f"values is a {type(values).__name__}; give an array, or its dense()")
        table, rows, columns, _ = as_table(values)
        table = _numbers(table)
        rows, columns = checked_sides(table.shape, (row_names, column_names), (rows, columns))
        table = _checked(table, observed, rows, columns)
        self._name_sides(rows, columns, check_labels(row_labels, table.shape[0]), name)
        self._values = locked(table)

    @classmethod
    def from_frame(cls, frame, *, name=None, **options):
        """Make a matrix of a data frame, whose columns are values, names, labels and others.

        Parameters
        ----------
        frame : DataFrame of pandas, polars or pyarrow
            A table, or lines of row, column and value.
        name : str, optional
            What the matrix is called.
        **options
            `row_names`, `layout`, `columns`, `ignore`, `label_column`, `missing` and `duplicates`
            of `bmfjax.load`.

        Returns
        -------
        RealMatrix

        Examples
        --------
        >>> frame = pd.DataFrame({"sample": [3, 4], "zinc": [0.5, 1.5], "lead": [2.5, 0.0]})
        >>> print(RealMatrix.from_frame(frame).reading)
        read as 2 rows named by 'sample' x 2 columns 'zinc' ... 'lead' of numbers from 0 to 2.5
        """
        return cls._of_reading(found_in(frame, REAL, options), name)

    @property
    def shape(self):
        """(rows, columns), two int."""
        return tuple(map(int, self._values.shape))

    @property
    def is_sparse(self):
        """Whether the matrix is kept as its nonzero entries (it came from a sparse one), bool."""
        return sp.issparse(self._values)

    @property
    def num_missing(self):
        """Number of missing entries, int."""
        if self.is_sparse:
            return 0
        return self._kept("num_missing", lambda: int(np.isnan(self._values).sum()))

    @property
    def range(self):
        """Smallest and largest observed value, two float."""
        return self._kept("range", self._range)

    def _range(self):
        if not self.is_sparse:
            return float(np.nanmin(self._values)), float(np.nanmax(self._values))
        return float(self._values.min()), float(self._values.max())

    def _missing_counts(self, axis):
        if self.is_sparse:
            return np.zeros(self.shape[1 - axis], np.int64)
        return np.isnan(self._values).sum(axis)

    def at(self, rows, columns):
        """Return the values of single entries, NaN where missing.

        Parameters
        ----------
        rows, columns : int arrays (entry,)
            Positions.

        Returns
        -------
        float64 array (entry,)

        Raises
        ------
        InputError
            If a position is no whole number from 0 to the number of rows or columns less one, or
            there are not as many rows as columns.

        Examples
        --------
        >>> RealMatrix([[1.5, 0.0], [None, 2.0]]).at([0, 1], [0, 0])
        array([1.5, nan])
        """
        found = self._values[self._cells(rows, columns)]
        # SciPy returns an array or a sparse one, depending on its version.
        return np.asarray(found.toarray() if sp.issparse(found) else found).ravel()

    def part(self, rows, columns):
        """Return the values of some rows and columns, NaN where missing; these alone are formed.

        Parameters
        ----------
        rows, columns : int arrays (part of the rows,) and (part of the columns,)
            Positions.

        Returns
        -------
        float64 array (part of the rows, part of the columns)

        Raises
        ------
        InputError
            If a position is no whole number from 0 to the number of rows or columns less one.

        Examples
        --------
        >>> RealMatrix([[1.5, 0.0], [None, 2.0]]).part([1], [1, 0])
        array([[ 2., nan]])
        """
        rows, columns = self._positions(rows, columns)
        found = self._values[rows][:, columns]
        return found.toarray() if self.is_sparse else found

    def _said_values(self, values):
        low, high = self.range
        return f"{values} from {low:.4g} to {high:.4g}"

    def _odd_values(self):
        far = {} if self.is_sparse else sentinels(self._values)
        cells = ((mark, f"{n} cell{'s' * (n > 1)}") for mark, n in far.items())
        return tuple(f"{mark} ({many}) may mean that there is none" for mark, many in cells)

    def nonzero(self):
        """Return the entries that are not zero as a read-only ``scipy.sparse.csr_array``.

        As float64; a missing entry is NaN.
        """
        return self._kept(
            "nonzero",
            lambda: self._values if self.is_sparse else sp.csr_array(self._values),
        )

    def dense(self, dtype=np.float32, missing=np.nan):
        """Return the matrix as a read-only NumPy array.

        Parameters
        ----------
        dtype : floating-point dtype
        missing : float
            Stands for a missing entry.

        Returns
        -------
        (rows, columns) array of `dtype`
        """

        def make():
            if self.is_sparse:
                remedy = "ask for rows and columns, by part()"
                _check_dense(self.shape, np.dtype(dtype).itemsize, remedy)
                return self._values.astype(dtype).toarray()
            held = self._values.astype(dtype)
            held[np.isnan(self._values)] = missing
            return held

        return self._kept(("dense", np.dtype(dtype), repr(missing)), make)

    def observed(self):
        """Return a read-only bool array (rows, columns): True where an entry is observed."""
        return self._kept(
            "observed",
            lambda: np.ones(self.shape, bool) if self.is_sparse else ~np.isnan(self._values),
        )

    def transpose(self):
        """Return the matrix with rows and columns exchanged; row labels have no place there."""
        return RealMatrix(
            self._values.T, None, self._column_names, self._row_names, name=self._name
        )

    def fingerprint(self):
        """Return the sha256 of shape and values, as 64 hexadecimal digits; names do not count."""

        return self._kept("fingerprint", self._fingerprint)

    def _fingerprint(self):
        values, (rows, columns) = self._values, self.shape
        if rows * columns > LARGE and WORD * self._num_nonzero() < rows * columns:
            # A large matrix with few entries other than zero: these alone are read.
            csr = self.nonzero()
            digest = hashlib.sha256(repr(("sparse real", self.shape)).encode())
            values = np.where(np.isnan(csr.data), np.nan, csr.data)
            for part, kind in ((csr.indptr, "<i8"), (csr.indices, "<i8"), (values, "<f8")):
                digest.update(np.ascontiguousarray(part, kind))
            return digest.hexdigest()
        digest = hashlib.sha256(repr(("real", self.shape)).encode())
        for some in blocks(rows, columns):
            part = values[some].toarray() if self.is_sparse else values[some]
            # One kind of NaN, and no negative zero: equal content has equal bytes.
            digest.update(np.where(np.isnan(part), np.nan, part + 0.0).tobytes())
        return digest.hexdigest()

    def _num_nonzero(self):
        return self._values.nnz if self.is_sparse else np.count_nonzero(self._values)

    def __repr__(self):
        missing = f", {self.num_missing} missing" if self.num_missing else ""
        low, high = self.range
        return (
            f"{self._title()}: {self.num_rows} rows x {self.num_columns} columns, "
            f"values from {low:.4g} to {high:.4g}{missing}"
        )


def _numbers(table):
    """Return a table as a float64 array, NaN where missing, or as a CSR where it is one."""
    if sp.issparse(table) and table.dtype.kind in "biuf":
        table = table.astype(np.float64, copy=False)
        table.eliminate_zeros()
        return table
    if sp.issparse(table):
        _check_dense(table.shape, 8, "give a sparse matrix of integers or of floats")
        table = table.toarray()
    try:
        if table.dtype.kind == "O":
            table = np.where(pd.isna(table), np.nan, table)
        if table.dtype.kind not in "biufO" or (table.dtype.kind == "O" and is_nested(table).any()):
            raise ValueError
        return np.array(table, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "values are not all numbers; give a table of numbers, NaN where one is missing (a list "
            "of row, column and rating as bmfjax.Ratings.from_frame makes it)"
        ) from None


def _check_dense(shape, width, remedy):
    """Refuse to form a dense matrix that does not fit, with so many bytes an entry."""
    what = f"the dense form of {shape[0]:,} x {shape[1]:,} numbers"
    require_memory(float(shape[0]) * shape[1] * width, what, remedy)


def _checked(table, observed, row_names, column_names):
    if sp.issparse(table):
        if observed is None and not np.isnan(table.data).any():
            _check_size(table.data, table, row_names, column_names)
            return table
        remedy = "a sparse matrix with missing entries is held dense: give zeros there, or a part"
        _check_dense(table.shape, 8, remedy)
        table = table.toarray()
    if observed is not None:
        observed = checked_observed(observed, table.shape)
        table[~(observed.toarray() if sp.issparse(observed) else observed)] = np.nan
    _check_size(table, table, row_names, column_names)
    if np.isnan(table).all():
        raise nothing_observed("number")
    return table


def _check_size(values, table, row_names, column_names):
    """Refuse a table whose `values`, all of them or those that it stores, are too large."""
    if not (np.abs(values) > np.finfo(np.float32).max).any():
        return
    cells = zip(*(np.abs(table) > np.finfo(np.float32).max).nonzero(), strict=True)
    i, j = next(cells)
    raise InputError(
        f"value {table[i, j]} at {place_text(i, j, row_names, column_names)} (counted from 1) is "
        "too large to compute with; give finite numbers, NaN where one is missing"
    )

"""The real matrix: numbers of any size, some missing, with names for rows and columns."""

import hashlib

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bmfjax.data.errors import InputError
from bmfjax.data.intake import (
    check_axes,
    check_is_table,
    check_not_empty,
    check_one_shape,
    nothing_observed,
    unmasked,
)
from bmfjax.data.names import check_labels, checked_sides, names_of_index, place
from bmfjax.data.table import NamedTable, locked


class RealMatrix(NamedTable):
    """A matrix of real numbers, some of whose entries may be missing. It never changes.

    Parameters
    ----------
    values : array (rows, columns), scipy sparse matrix, pandas DataFrame or nested sequence
        Numbers; NaN, None and pandas' NA are missing, and so are masked entries of a NumPy masked
        array. The index and columns of a data frame become names, unless they merely count.
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
    """

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
        table, rows, columns = _numbers(values)
        rows, columns = checked_sides(table.shape, (row_names, column_names), (rows, columns))
        table = _checked(table, observed, rows, columns)
        self._name_sides(rows, columns, check_labels(row_labels, table.shape[0]), name)
        self._values = locked(table)

    def __reduce__(self):
        names = (self._row_names, self._column_names, self._row_labels, self._name)
        return _restored, (np.array(self._values), *names)

    @property
    def shape(self):
        """(rows, columns), two int."""
        return tuple(map(int, self._values.shape))

    @property
    def num_missing(self):
        """Number of missing entries, int."""
        return self._kept("num_missing", lambda: int(np.isnan(self._values).sum()))

    @property
    def range(self):
        """Smallest and largest observed value, two float."""
        return self._kept(
            "range", lambda: (float(np.nanmin(self._values)), float(np.nanmax(self._values)))
        )

    def _missing_counts(self, axis):
        return np.isnan(self._values).sum(axis)

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
            held = self._values.astype(dtype)
            held[np.isnan(self._values)] = missing
            return held

        return self._kept(("dense", np.dtype(dtype), repr(missing)), make)

    def observed(self):
        """Return a read-only bool array (rows, columns): True where an entry is observed."""
        return self._kept("observed", lambda: ~np.isnan(self._values))

    def transpose(self):
        """Return the matrix with rows and columns exchanged; row labels have no place there."""
        return RealMatrix(
            self._values.T, None, self._column_names, self._row_names, name=self._name
        )

    def fingerprint(self):
        """Return the sha256 of shape and values, as 64 hexadecimal digits; names do not count."""

        def make():
            digest = hashlib.sha256(repr(("real", self.shape)).encode())
            # One kind of NaN, and no negative zero: equal content has equal bytes.
            digest.update(np.where(np.isnan(self._values), np.nan, self._values + 0.0).tobytes())
            return digest.hexdigest()

        return self._kept("fingerprint", make)

    def __repr__(self):
        missing = f", {self.num_missing} missing" if self.num_missing else ""
        low, high = self.range
        return (
            f"{self._title()}: {self.num_rows} rows x {self.num_columns} columns, "
            f"values from {low:.4g} to {high:.4g}{missing}"
        )


def _restored(values, row_names, column_names, row_labels, name):
    return RealMatrix(values, None, row_names, column_names, row_labels=row_labels, name=name)


def _numbers(values):
    """Return (float64 array, NaN where missing; names of its rows; of its columns)."""
    rows = columns = None
    if isinstance(values, pd.DataFrame):
        rows, columns = names_of_index(values.index), names_of_index(values.columns)
        values = values.to_numpy(dtype=object)
    check_is_table(values)
    if sp.issparse(values):
        values = values.toarray()
    try:
        table = np.asarray(unmasked(values))
        if table.dtype.kind == "O":
            table = np.where(pd.isna(table), np.nan, table)
        if table.dtype.kind not in "biufO":
            raise ValueError
        table = np.array(table, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "values are not all numbers, or rows have different lengths; give a table of numbers, "
            "NaN where one is missing"
        ) from None
    check_axes(table)
    check_not_empty(table)
    return table, rows, columns


def _checked(table, observed, row_names, column_names):
    if observed is not None:
        observed = np.asarray(observed.toarray() if sp.issparse(observed) else observed)
        check_one_shape(observed, table.shape)
        if observed.dtype != bool:
            raise InputError(
                f"observed has dtype {observed.dtype}; give True where an entry is observed and "
                "False where it is not"
            )
        table[~observed] = np.nan
    beyond = np.abs(table) > np.finfo(np.float32).max
    if beyond.any():
        i, j = np.unravel_index(np.argmax(beyond), table.shape)
        raise InputError(
            f"value {table[i, j]} at {place(i, j, row_names, column_names)} (counted from 1) is "
            "too large to compute with; give finite numbers, NaN where one is missing"
        )
    if np.isnan(table).all():
        raise nothing_observed("number")
    return table

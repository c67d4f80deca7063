"""The binary matrix: ones, zeros and missing entries, with names for rows and columns."""

import numpy as np

from bmfjax.data import stores
from bmfjax.data.bits import (
    PackedMatrix,
    count_errors,
    full_line,
    pack_on_host,
    product_words,
)
from bmfjax.data.checks import one_of
from bmfjax.data.errors import InputError
from bmfjax.data.intake import as_table, read_packed, read_store
from bmfjax.data.names import check_labels, checked_sides
from bmfjax.data.reading.door import found_in
from bmfjax.data.reading.record import BINARY
from bmfjax.data.table import NamedTable, locked


class BinaryMatrix(NamedTable):
    """A binary matrix, some of whose entries may be missing. It never changes.

    Rows are transactions (members, cells, users), columns are items (votes, genes, films).
    A missing entry is neither a one nor a zero. Sparse input stays sparse, and of other input a bit
    an entry is kept; every other representation is made when it is first asked for, kept (words of
    large matrices are not), and handed out read-only.

    Parameters
    ----------
    values : array (rows, columns), scipy sparse matrix, pandas DataFrame or nested sequence
        0 and 1 of any numeric dtype, or bool; NaN, None and pandas' NA are missing, and so are
        masked entries of a NumPy masked array. The index and columns of a data frame become names,
        unless they merely count 0, 1, 2, ...
    observed : bool array or sparse matrix (rows, columns), optional
        True where an entry is observed. Entries that it does not mark become missing and their
        values are not looked at; an entry whose value is missing stays missing.
    row_names, column_names : sequences of str, optional
        Distinct names; they replace those of a data frame.
    row_labels : sequence of str, optional
        A side label for each row, such as a party: used to colour reports, never to fit.
    name : str, optional
        What the matrix is called.

    Raises
    ------
    InputError
        If a value is neither 0, 1 nor missing, nothing is observed, the matrix has no rows or no
        columns or not two axes, or names, labels or `observed` do not fit.
    TypeError
        If `values`, names or labels are objects of a wrong kind.

    Examples
    --------
    >>> import numpy as np
    >>> votes = BinaryMatrix([[1, 0, None], [1, 1, 0]], row_names=["ann", "bob"])
    >>> votes
    BinaryMatrix: 2 rows x 3 columns, 3 ones (60 % of the observed entries), 1 missing
    >>> votes.dense()
    array([[ 1.,  0., nan],
           [ 1.,  1.,  0.]], dtype=float32)
    >>> votes.T.shape, votes.row_names, votes.column_names
    ((3, 2), ('ann', 'bob'), ('column 1', 'column 2', 'column 3'))
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
        if isinstance(values, BinaryMatrix):
            raise TypeError("values is a BinaryMatrix already; use it as it is")
        table, rows, columns, repeats = as_table(values)
        rows, columns = checked_sides(table.shape, (row_names, column_names), (rows, columns))
        labels = check_labels(row_labels, table.shape[0])
        store = read_store(table, observed, rows, columns, repeats)
        self._fill(store, rows, columns, labels, name)

    @classmethod
    def from_frame(cls, frame, *, name=None, **options):
        """Make a matrix of a data frame, whose columns are values, names, labels and others.

        Parameters
        ----------
        frame : DataFrame of pandas, polars or pyarrow
            A table, lines of row, column and value, or a list of pairs.
        name : str, optional
            What the matrix is called.
        **options
            `row_names`, `layout`, `columns`, `ignore`, `label_column`, `one`, `zero`, `missing`,
            `binarize`, `one_hot` and `duplicates` of `bmfjax.load`.

        Returns
        -------
        BinaryMatrix

        Examples
        --------
        >>> import pandas as pd
        >>> answers = {"id": [7, 9], "sex": ["f", "m"], "Q1": ["Yes", "No"], "Q2": ["No", "No"]}
        >>> print(BinaryMatrix.from_frame(pd.DataFrame(answers)).reading)
        read as 2 rows named by 'id' x 2 columns 'Q1' ... 'Q2' of Yes/No; 'sex' a label
        """
        return cls._of_reading(found_in(frame, BINARY, options), name)

    @classmethod
    def _from_store(cls, store, row_names=None, column_names=None, row_labels=None, name=None):
        """Make a matrix from a store and checked names, as the readers of files have them."""
        matrix = cls.__new__(cls)
        matrix._fill(store, row_names, column_names, row_labels, name)
        return matrix

    @classmethod
    def from_packed(
        cls,
        ones,
        num_columns,
        observed=None,
        row_names=None,
        column_names=None,
        *,
        row_labels=None,
        name=None,
    ):
        """Make a matrix from packed words, a bit an entry, which are kept as they are.

        Parameters
        ----------
        ones : uint32 array (rows, ceil(num_columns / 32))
            As `bmfjax.data.pack_bits` packs them: bit ``j % 32`` of word ``j // 32`` is entry j.
            Copied where anyone else may write to it: ``words.flags.writeable = False`` of an array
            that is no view of another gives it away without a copy.
        num_columns : int
        observed : uint32 array of the same shape, optional
            Bits of the observed entries; default: all.
        row_names, column_names, row_labels, name
            As for `BinaryMatrix`.

        Returns
        -------
        BinaryMatrix

        Raises
        ------
        InputError
            If the words are not uint32 of this shape, bits beyond the last column or of missing
            entries are set, nothing is observed, or names or labels do not fit.

        Examples
        --------
        >>> BinaryMatrix.from_packed(np.array([[0b101], [0b110]], np.uint32), 3).dense(int)
        array([[1, 0, 1],
               [0, 1, 1]])
        """
        store = read_packed(ones, observed, num_columns)
        names = checked_sides(store.shape, (row_names, column_names), (None, None))
        return cls._from_store(store, *names, check_labels(row_labels, store.shape[0]), name)

    def _fill(self, store, row_names, column_names, row_labels, name):
        self._name_sides(row_names, column_names, row_labels, name)
        self._store = type(store)(*map(locked, store))

    # -- what it is ---------------------------------------------------------------------------

    @property
    def shape(self):
        """(rows, columns), two int."""
        return tuple(map(int, self._store.shape))

    @property
    def num_ones(self):
        """Number of observed ones, int."""
        return self._kept("num_ones", self._store.num_ones)

    @property
    def num_missing(self):
        """Number of missing entries, int."""
        return self._kept("num_missing", lambda: stores.num_missing(self._store))

    @property
    def num_zeros(self):
        """Number of observed zeros, int."""
        return self.num_rows * self.num_columns - self.num_ones - self.num_missing

    @property
    def density(self):
        """Ones over observed entries, float."""
        return self.num_ones / (self.num_ones + self.num_zeros)

    @property
    def is_sparse(self):
        """Whether the matrix is kept as positions (it came from a sparse matrix), bool."""
        return isinstance(self._store, stores.SparseStore)

    @property
    def is_packed(self):
        """Whether the matrix is kept as packed words (it came as such, or dense), bool."""
        return isinstance(self._store, stores.PackedStore)

    def _missing_counts(self, axis):
        return self._store.missing_counts(axis)

    def fingerprint(self):
        """Return the sha256 of shape, ones and missing pattern, as 64 hexadecimal digits.

        Equal content gives equal fingerprints, however it was given; names and labels do not count.

        Examples
        --------
        >>> import scipy.sparse as sp
        >>> dense = BinaryMatrix([[1, 0], [0, 1]])
        >>> dense.fingerprint() == BinaryMatrix(sp.identity(2)).fingerprint()
        True
        """
        return self._kept("fingerprint", lambda: stores.fingerprint(self._store))

    def __repr__(self):
        missing = f", {self.num_missing} missing" if self.num_missing else ""
        return (
            f"{self._title()}: {self.num_rows} rows x {self.num_columns} columns, "
            f"{self.num_ones} ones ({100 * self.density:.3g} % of the observed entries){missing}"
        )

    def at(self, rows, columns):
        """Return whether single entries are ones, and whether they are missing.

        Parameters
        ----------
        rows, columns : int arrays (entry,)

        Returns
        -------
        ones, missing : bool arrays (entry,)

        Raises
        ------
        InputError
            If a position is no whole number from 0 to the number of rows or columns less one, or
            there are not as many rows as columns.

        Examples
        --------
        >>> BinaryMatrix([[1, 0], [None, 1]]).at([0, 1], [0, 0])
        (array([ True, False]), array([False,  True]))
        """
        return self._store.at(*self._cells(rows, columns))

    def part(self, rows, columns):
        """Return ones and missing entries of some rows and columns, which alone are formed.

        Parameters
        ----------
        rows, columns : int arrays (part of the rows,) and (part of the columns,)

        Returns
        -------
        ones, missing : bool arrays (part of the rows, part of the columns)

        Raises
        ------
        InputError
            If a position is no whole number from 0 to the number of rows or columns less one.

        Examples
        --------
        >>> BinaryMatrix([[1, 0], [None, 1]]).part([1], [0, 1])
        (array([[False,  True]]), array([[ True, False]]))
        """
        return self._store.part(*self._positions(rows, columns))

    # -- representations ----------------------------------------------------------------------

    def dense(self, dtype=np.float32, missing=np.nan):
        """Return the matrix as a NumPy array.

        Parameters
        ----------
        dtype : dtype
        missing : number
            Stands for a missing entry.

        Returns
        -------
        read-only array (rows, columns) of `dtype`

        Raises
        ------
        InputError
            If entries are missing and `dtype` cannot hold `missing`, as no integer holds NaN.

        Examples
        --------
        >>> BinaryMatrix([[1, None], [0, 1]]).dense(int, missing=-1)
        array([[ 1, -1],
               [ 0,  1]])
        """
        dtype = np.dtype(dtype)
        if self.num_missing:
            _check_fits(missing, dtype, self.num_missing)
        else:
            missing = 0  # one array, whatever would have stood for a missing entry
        return self._kept(("dense", dtype, repr(missing)), lambda: self._dense(dtype, missing))

    def _dense(self, dtype, missing):
        array = self._store.ones_array().astype(dtype)
        hidden = self._store.missing_array()
        if hidden is not None:
            array[hidden] = missing
        return array

    def observed(self):
        """Return a read-only bool array (rows, columns): True where an entry is observed."""
        return self._kept("observed", self._observed)

    def _observed(self):
        hidden = self._store.missing_array()
        return np.ones(self.shape, dtype=bool) if hidden is None else ~hidden

    def ones(self):
        """Return the ones as a read-only bool ``scipy.sparse.csr_array`` (rows, columns)."""
        return self._kept("ones", self._store.ones_csr)

    def missing(self):
        """Return the missing entries as a read-only bool ``scipy.sparse.csr_array``.

        Its size is the number of missing entries, which may be many in a sparse table of few
        observations.
        """
        return self._kept("missing", self._store.missing_csr)

    def packed(self, orientation="rows"):
        """Return ones and observed entries as 32-bit words (`bmfjax.data.bits`).

        Parameters
        ----------
        orientation : {"rows", "columns"}
            Whether a line of words holds a row or a column.

        Returns
        -------
        PackedMatrix
            Read-only NumPy uint32 `ones` and `observed` of shape (rows, ceil(columns / 32)), or
            (columns, ceil(rows / 32)); `observed` is None if nothing is missing.

        Examples
        --------
        >>> BinaryMatrix([[1, 0, 1], [0, 1, None]]).packed()
        PackedMatrix(ones=array([[5], [2]], dtype=uint32),
                     observed=array([[7], [3]], dtype=uint32))
        """
        one_of("orientation", orientation, ("rows", "columns"))
        if self.num_rows * self.num_columns > stores.LARGE:
            return self._packed(orientation)
        return self._kept(("packed", orientation), lambda: self._packed(orientation))

    def _packed(self, orientation):
        words = self._store.packed(orientation == "columns")
        return type(words)(*map(locked, words))

    def fill_words(self, orientation, room):
        """Pack as `packed` does into words that ``room(lines, entries)`` makes, of zeros."""
        return self._store.packed(orientation == "columns", room)

    def fill_rows(self, first, last, orientation, room):
        """Pack rows from `first` to before `last` as `fill_words` does the whole matrix.

        With observed entries if any row of the matrix misses some.
        """
        is_turned = orientation == "columns"
        lines = (self.num_columns, last - first) if is_turned else (last - first, self.num_columns)
        if first < last:
            ones, observed = self._store.rows(slice(first, last)).packed(is_turned, room)
        else:
            ones, observed = room(*lines), None
        if self.num_missing and observed is None:
            observed = room(*lines)
            observed[:] = full_line(lines[1])
        return PackedMatrix(ones, observed if self.num_missing else None)

    @property
    def is_shared(self):
        """Whether processes share the rows, and this one holds its own alone, bool."""
        return isinstance(self._store, stores.SharedStore)

    @property
    def held_rows(self):
        """Number of rows whose entries this process holds, int."""
        return len(self._store.own.ones) if self.is_shared else self.num_rows

    def shared_by(self, whole):
        """Return the matrix, which is read by ``whole()`` where all rows are needed here."""
        if self.is_shared:
            self._store = self._store._replace(whole=whole)
        return self

    def complete(self):
        """Return the matrix with all rows here: itself, unless processes share them."""
        return self._store.whole() if self.is_shared else self

    def count_errors(self, usage, basis):
        """Return how many observed entries the Boolean product of two factor matrices gets wrong.

        Parameters
        ----------
        usage : bool array (rows, rank)
        basis : bool array (columns, rank)

        Returns
        -------
        int

        Examples
        --------
        >>> BinaryMatrix([[1, 0], [None, 1]]).count_errors(np.ones((2, 1), bool), np.eye(2, 1) > 0)
        1
        """
        words, errors = pack_on_host(basis.T), 0
        step = max(1, stores.LARGE // self.num_columns)
        for start in range(0, self.num_rows, step):
            rows = slice(start, start + step)
            product = product_words(usage[rows].T, words)
            errors += count_errors(product, *self._store.rows(rows).packed())
        return errors

    def tile_counts(self, usage, basis):
        """Return how many ones, and how many observed entries, the tile of each factor holds.

        Parameters
        ----------
        usage : bool array (rows, rank)
        basis : bool array (columns, rank)

        Returns
        -------
        ones, observed : int64 arrays (rank,)

        Examples
        --------
        >>> ones, observed = BinaryMatrix([[1, 0], [None, 1]]).tile_counts(
        ...     np.ones((2, 1), bool), np.ones((2, 1), bool)
        ... )
        >>> ones.tolist(), observed.tolist()
        ([2], [3])
        """
        ones, missing = self._store.tile_sums(usage, basis)
        return ones, usage.sum(0, dtype=np.int64) * basis.sum(0, dtype=np.int64) - missing

    def transpose(self):
        """Return the matrix with rows and columns exchanged; row labels have no place there."""
        return self._from_store(
            self._store.transpose(), self._column_names, self._row_names, None, self._name
        )


def _check_fits(missing, dtype, num_missing):
    try:
        held = np.asarray(missing).astype(dtype) if np.isfinite(missing) else dtype.type(missing)
        # NaN is the one value that differs from itself.
        fits = held.ndim == 0 and (held == missing or (held != held and missing != missing))
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise InputError(
            f"{num_missing} entries are missing and {dtype} cannot hold {missing!r} for them; "
            "give missing= a number that it can hold, or a floating-point dtype"
        )

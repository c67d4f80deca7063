"""What matrices of any kind of entries have in common: a shape, names, and what is empty."""

import dataclasses

import numpy as np
import scipy.sparse as sp

from bmfjax.data.errors import InputError
from bmfjax.data.memory import require_memory
from bmfjax.data.names import title_of
from bmfjax.data.reading.record import Reading, quoted


class NamedTable:
    """Rows and columns with names, some of whose cells may be missing; the base of matrices.

    A class that derives from it has `shape` and `transpose`, calls `_name_sides` and answers
    `_missing_counts`.
    """

    #: What its values are, for the reading of a matrix that says no more.
    _values_are = "0/1"
    #: Whether processes share the rows, and this one holds its own alone.
    is_shared = False

    def _name_sides(self, row_names, column_names, row_labels, name):
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name is a {type(name).__name__}; give a str or None")
        self._row_names, self._column_names = row_names, column_names
        self._row_labels = row_labels
        self._name = title_of(name)
        self._made = {}
        self._reading = None

    def __getstate__(self):
        # A copy or a pickle takes the content along, not what was made of it.
        return self.__dict__ | {"_made": {}}

    def __setstate__(self, state):
        self.__dict__.update(state)
        for held in state.values():
            for part in held if isinstance(held, tuple) else (held,):
                locked(part)

    @classmethod
    def _of_reading(cls, found, name, **more):
        """Make data of what a reading found, and keep what it says."""
        data = cls(**found.given | more, name=name)
        names = data.column_names if data.has_column_names else ("", "")
        data._reading = dataclasses.replace(
            found.reading, shape=data.shape, first=names[0], last=names[-1],
            values=data._said_values(found.reading.values), notes=found.notes,
            share_missing=data.num_missing / (data.num_rows * data.num_columns),
            empty=data._said_empty(),
        )  # fmt: skip
        return data

    def _said_values(self, values):
        """Say what the values are, for a reading that calls them so."""
        return values

    def _kept(self, key, make):
        """Return what was made under `key`, or make it now and lock it."""
        if key not in self._made:
            self._made[key] = locked(make())
        return self._made[key]

    def _title(self):
        """Return what it is and what it is called."""
        return type(self).__name__ + ("" if self.name is None else f" {self.name!r}")

    def _missing_counts(self, axis):
        """Count the missing cells of each column (axis 0) or row (axis 1)."""
        raise NotImplementedError

    def complete(self):
        """Return the table with all rows here: itself, where processes do not share them."""
        return self

    @property
    def T(self):
        """The transposed table."""
        return self.transpose()

    @property
    def num_rows(self):
        """Number of rows, int."""
        return self.shape[0]

    @property
    def num_columns(self):
        """Number of columns, int."""
        return self.shape[1]

    @property
    def reading(self):
        """What was read, and how, a `bmfjax.data.reading.record.Reading`; its str is one line."""
        if self._reading is not None:
            return self._reading
        names = self._column_names or ("",)
        # Where rows are shared, all processes would have to ask at once.
        missing = 0 if self.is_shared else self.num_missing
        return Reading(
            "matrix", self.shape, first=names[0], last=names[-1],
            values=self._said_values(self._values_are),
            share_missing=missing / (self.num_rows * self.num_columns), empty=self._said_empty(),
            notes=self._odd_values(),
        )  # fmt: skip

    def _said_empty(self):
        """Name the columns and rows without any value, in words; nothing where there are none."""
        if self.is_shared or not self.num_missing:
            return ""
        said = []
        for side, empty, names in (
            ("column", self.empty_columns, self._column_names),
            ("row", self.empty_rows, self._row_names),
        ):
            if len(empty):
                own = [names[k] if names else k + 1 for k in empty]
                some = quoted(own) if names else quoted(own).replace("'", "")
                said.append(f"{side}{'s' * (len(own) > 1)} {some}")
        return " and ".join(said)

    def _odd_values(self):
        """Say which values may be marks of missing ones, where nobody has said so."""
        return ()

    def _say(self, notes, labels):
        """Put notes, and names of columns of labels, into what is said of the reading."""
        labels = (labels,) if isinstance(labels, str) else tuple(labels or ())
        if notes or labels:
            notes = (*notes, *self.reading.notes)
            self._reading = dataclasses.replace(self.reading, notes=notes, labels=labels)

    @property
    def name(self):
        """What the matrix is called, str or None."""
        return self._name

    @property
    def has_row_names(self):
        """Whether the rows have names of their own, bool."""
        return self._row_names is not None

    @property
    def has_column_names(self):
        """Whether the columns have names of their own, bool."""
        return self._column_names is not None

    @property
    def row_names(self):
        """Tuple of str, a name a row; 'row 1', 'row 2', ... where none were given."""
        if self._row_names is not None:
            return self._row_names
        return self._kept("rows", lambda: _counted("row", self.num_rows))

    @property
    def column_names(self):
        """Tuple of str, a name a column; 'column 1', 'column 2', ... where none were given."""
        if self._column_names is not None:
            return self._column_names
        return self._kept("columns", lambda: _counted("column", self.num_columns))

    @property
    def row_labels(self):
        """Tuple of str, a side label a row ('' where unknown), or None."""
        return self._row_labels

    @property
    def empty_rows(self):
        """Indices (from 0) of the rows without an observed entry, int64 array: kept, but mute."""
        return self._kept("empty_rows", lambda: self._empty(axis=1))

    @property
    def empty_columns(self):
        """Indices (from 0) of the columns without an observed entry, int64 array."""
        return self._kept("empty_columns", lambda: self._empty(axis=0))

    def _empty(self, axis):
        return np.flatnonzero(self._missing_counts(axis) == self.shape[axis]).astype(np.int64)

    def _cells(self, rows, columns):
        """Return positions of cells, as many rows as columns, or refuse what is none."""
        rows, columns = self._positions(rows, columns)
        if len(rows) != len(columns):
            raise InputError(
                f"rows has {len(rows)} positions and columns {len(columns)}; give a pair an entry"
            )
        return rows, columns

    def _positions(self, rows, columns):
        """Return positions of rows and of columns as int arrays, or refuse what is none."""
        found = []
        for name, given, size in zip(("rows", "columns"), (rows, columns), self.shape, strict=True):
            places = np.asarray(given)
            if places.ndim == 1 and not len(places):
                places = places.astype(int)
            if places.ndim != 1 or places.dtype.kind not in "iu":
                raise InputError(
                    f"{name} is {places.dtype} with {places.ndim} axes; give a list of positions, "
                    "whole numbers"
                )
            if len(places) and not 0 <= places.min() <= places.max() < size:
                raise InputError(
                    f"{name} has positions from {places.min()} to {places.max()}; give some from 0 "
                    f"to {size - 1}"
                )
            found.append(places)
        return found


def _counted(side, number):
    """Name rows or columns by their count from 1."""
    # A string of 72 bytes and its place in the tuple.
    require_memory(80 * number, f"naming {number:,} {side}s", f"give fewer {side}s")
    return tuple(f"{side} {k + 1}" for k in range(number))


def locked(value):
    """Make the arrays of a kept value read-only."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    elif sp.issparse(value):
        for array in (value.data, value.indices, value.indptr):
            array.flags.writeable = False
    return value

"""Ratings: who gave what how many stars, as triples, with names for rows and columns."""

import hashlib
import math

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bmfjax.data.checks import check_sides, one_of
from bmfjax.data.checks import share as checked_share
from bmfjax.data.errors import InputError
from bmfjax.data.names import are_ids, check_labels, check_names, checked_sides, place_text
from bmfjax.data.reading.door import found_in
from bmfjax.data.reading.longs import merged
from bmfjax.data.reading.record import DUPLICATES, RATINGS, Found
from bmfjax.data.table import NamedTable, locked


class Ratings(NamedTable):
    """Values of some cells of a large table, most of which are missing. It never changes.

    Rows are users, columns are items. Users and items without any rating are kept where they are
    named (or counted by `shape`): a fit tells of them what its prior says, and `empty_rows` and
    `empty_columns` list them.

    Parameters
    ----------
    rows, columns : (rating,) sequences of int or str
        Whom each rating is from, and what it is of: positions from 0, or names. Names must be in
        `row_names` or `column_names` where these are given; else they are taken in the order in
        which they first occur. Whole numbers without names and `shape` are ids, and so names,
        unless all from 0 to the largest occur; beside names that are whole numbers they are names.
    values : (rating,) sequence of numbers
    row_names, column_names : sequences of str, optional
        Distinct names.
    shape : (int, int), optional
        Rows and columns, where positions do not reach the last ones and there are no names.
    scale : (float, float), optional
        Lowest and highest rating that there can be. Ratings outside are refused, and predictions
        are held inside.
    row_labels : sequence of str, optional
        A side label for each row, used to colour reports, never to fit.
    name : str, optional
        What the ratings are called.
    duplicates : {"error", "last", "mean", "sum"}
        What to do with cells that are rated more than once.

    Raises
    ------
    InputError
        For lists of different lengths, no ratings, positions that are not whole numbers or lie
        outside, unknown names, values that are missing, infinite or outside the scale, and cells
        that are rated twice.

    Examples
    --------
    >>> ratings = Ratings(["ann", "ann", "bob"], ["Heat", "Fargo", "Heat"], [5, 3, 4], scale=(1, 5))
    >>> ratings
    Ratings: 3 of 2 rows x 2 columns (75 %), values from 3 to 5 on a scale from 1 to 5
    >>> ratings.row_names, ratings.rows.tolist()
    (('ann', 'bob'), [0, 0, 1])
    """

    _values_are = "ratings"

    def __init__(
        self,
        rows,
        columns,
        values,
        *,
        row_names=None,
        column_names=None,
        shape=None,
        scale=None,
        row_labels=None,
        name=None,
        duplicates="error",
    ):
        one_of("duplicates", duplicates, DUPLICATES)
        values = _numbers(values)
        sides = []
        for side, ids, names, size in (
            ("row", rows, row_names, None if shape is None else shape[0]),
            ("column", columns, column_names, None if shape is None else shape[1]),
        ):
            sides.append(_positions(side, ids, names, size, len(values)))
        (rows, row_names, n), (columns, column_names, m) = sides
        check_sides((n, m))
        self._shape = (n, m)
        self._name_sides(row_names, column_names, check_labels(row_labels, n), name)
        self._scale = _checked_scale(scale)
        self._check_values(rows, columns, values)
        # In one order, whatever order they were given in.
        self._triples = tuple(map(locked, merged(rows, columns, values, duplicates, self._place)))

    @classmethod
    def from_frame(
        cls, frame, *, row_names=None, column_names=None, scale=None, name=None, **options
    ):
        """Make ratings of a data frame with a line for each rating.

        The columns of row, column and rating are known by their names, such as user, item and
        rating, in any order; where these say nothing they are the first three.

        Parameters
        ----------
        frame : DataFrame of pandas, polars or pyarrow
            Further columns, such as a time, are left out.
        row_names, column_names, scale, name
            As for the class.
        **options
            `columns`, the names of row, column and rating, `missing` and `duplicates` of
            `bmfjax.load_ratings`; and its `layout`, for a table with a rating in each cell.

        Examples
        --------
        >>> frame = pd.DataFrame({"user": [7, 9], "film": ["Heat", "Heat"], "stars": [5, 4]})
        >>> Ratings.from_frame(frame).row_names
        ('7', '9')
        """
        found = found_in(frame, RATINGS, {"layout": "triples", "scale": scale} | options)
        return cls._of_reading(found, name, **found.renamed(row_names, column_names))

    @classmethod
    def without_any(cls, shape, *, row_names=None, column_names=None, scale=None):
        """Make a table in which nothing is rated, of lines that are known by attributes alone.

        Parameters
        ----------
        shape : (int, int)
        row_names, column_names, scale
            As for the class.

        Examples
        --------
        >>> Ratings.without_any((2, 3), row_names=["ann", "bob"])
        Ratings: 0 of 2 rows x 3 columns (0 %)
        """
        check_sides(shape)
        names = checked_sides(shape, (row_names, column_names), (None, None))
        none = (np.zeros(0, kind) for kind in (np.int64, np.int64, float))
        return cls._of_triples(none, map(int, shape), names, _checked_scale(scale))

    @classmethod
    def _of_triples(cls, triples, shape, names, scale, name=None):
        """Make ratings of checked triples, in the order of rows and columns, and checked names."""
        found = cls.__new__(cls)
        found._shape, found._scale = tuple(shape), scale
        found._name_sides(*names, None, name)
        found._triples = tuple(map(locked, triples))
        return found

    def _check_values(self, rows, columns, values):
        for wrong, what, cure in (
            (np.isnan(values), "missing", "leave out what is not rated"),
            (np.abs(values) > np.finfo(np.float32).max, "too large", "give finite numbers"),
        ):
            if wrong.any():
                k = int(np.argmax(wrong))
                where = self._place(rows[k], columns[k])
                raise InputError(f"the rating at {where} is {what}; {cure}")
        if self._scale is not None:
            low, high = self._scale
            outside = (values < low) | (values > high)
            if outside.any():
                k = int(np.argmax(outside))
                where = self._place(rows[k], columns[k])
                raise InputError(
                    f"the rating {values[k]:g} at {where} is outside the scale from {low:g} to "
                    f"{high:g}; correct it, or give scale= as it is"
                )

    def _place(self, row, column):
        where = place_text(int(row), int(column), self._row_names, self._column_names)
        return f"{where} (counted from 1)"

    # -- what it is ---------------------------------------------------------------------------

    @property
    def shape(self):
        """(rows, columns), two int."""
        return self._shape

    @property
    def num_ratings(self):
        """Number of ratings, int."""
        return len(self._triples[2])

    @property
    def num_missing(self):
        """Number of cells without a rating, int."""
        return self.num_rows * self.num_columns - self.num_ratings

    @property
    def rows(self):
        """Positions of the ratings' rows, (rating,) int64, read-only, ascending."""
        return self._triples[0]

    @property
    def columns(self):
        """Positions of the ratings' columns, (rating,) int64, read-only."""
        return self._triples[1]

    @property
    def values(self):
        """The ratings, (rating,) float64, read-only."""
        return self._triples[2]

    @property
    def scale(self):
        """Lowest and highest rating that there can be, two float, or None."""
        return self._scale

    @property
    def range(self):
        """Smallest and largest rating, two float; NaN where nothing is rated."""
        if not self.num_ratings:
            return math.nan, math.nan
        return float(self.values.min()), float(self.values.max())

    def _said_values(self, values):
        low, high = self.range
        return f"{self.num_ratings:,} {values} from {low:g} to {high:g}"

    def _missing_counts(self, axis):
        mine, size = (self.rows, self.num_rows) if axis == 1 else (self.columns, self.num_columns)
        return self.shape[axis] - np.bincount(mine, minlength=size)

    def dense(self, dtype=np.float32, missing=np.nan):
        """Return the whole table as a read-only array (rows, columns); mind its size."""

        def make():
            table = np.full(self.shape, missing, dtype)
            table[self.rows, self.columns] = self.values
            return table

        return self._kept(("dense", np.dtype(dtype), repr(missing)), make)

    def sparse(self):
        """Return the ratings as a read-only ``scipy.sparse.csr_array``, in which zeros are kept."""
        triples = (self.values, (self.rows, self.columns))
        return self._kept("sparse", lambda: sp.csr_array(triples, shape=self.shape))

    def transpose(self):
        """Return the ratings with rows and columns exchanged; row labels have no place there."""
        order = np.lexsort((self.rows, self.columns))
        triples = (side[order] for side in (self.columns, self.rows, self.values))
        names = self._column_names, self._row_names
        return self._of_triples(triples, self.shape[::-1], names, self._scale, self._name)

    def renamed(self, row_names=None, column_names=None, scale=None):
        """Return the ratings under names that are given, all of them in their order, and a scale.

        Names of both are matched; where these ratings have none, names belong to positions.
        """
        if row_names is None and column_names is None and scale is None:
            return self
        given = {
            "rows": self.rows, "columns": self.columns, "values": self.values,
            "row_names": self._row_names, "column_names": self._column_names, "shape": self.shape,
            "scale": self.scale if scale is None else scale, "name": self.name,
        }  # fmt: skip
        given |= Found(given, self.reading).renamed(row_names, column_names)
        labels = self._row_labels
        if labels is not None and self.has_row_names:
            label_of = dict(zip(self.row_names, labels, strict=True))
            labels = [label_of.get(name, "") for name in given["row_names"]]
        return Ratings(**given, row_labels=labels)

    def fingerprint(self):
        """Return the sha256 of shape, scale and triples, as 64 hexadecimal digits."""

        def make():
            digest = hashlib.sha256(repr(("ratings", self.shape, self._scale)).encode())
            for array in self._triples:
                digest.update((array + 0).tobytes())  # no negative zero
            return digest.hexdigest()

        return self._kept("fingerprint", make)

    def __repr__(self):
        low, high = self.range
        share = 100 * self.num_ratings / (self.num_rows * self.num_columns)
        scale = "" if self.scale is None else " on a scale from {:g} to {:g}".format(*self.scale)
        values = f", values from {low:g} to {high:g}" if self.num_ratings else ""
        return (
            f"{self._title()}: {self.num_ratings} of {self.num_rows} rows x {self.num_columns} "
            f"columns ({share:.3g} %){values}{scale}"
        )


def latest(times, share: float = 0.2, *, users=None) -> np.ndarray:
    """Return which ratings are the latest, to be predicted from those before them.

    Parameters
    ----------
    times : (rating,) sequence of numbers, dates or texts of dates
        Texts are in ISO 8601, such as 2020-03-13: day and month of others cannot be told apart.
        Times without a zone are in UTC.
    share : float
        The share of the ratings that are chosen, at most; ratings of one time go together.
    users : (rating,) sequence, optional
        Who rated: then they are the latest of each user, of whose ratings at least one is left.
        Default: the latest of all.

    Returns
    -------
    (rating,) bool

    Raises
    ------
    InputError
        For a time that is missing, texts that are no such date, lists of different lengths, and a
        share outside (0, 1).

    Examples
    --------
    >>> latest([10, 40, 30, 20], 0.5).tolist()
    [False, True, True, False]
    >>> latest([10, 40, 30, 20], 0.5, users=["ann", "ann", "bob", "bob"]).tolist()
    [False, True, True, False]
    """
    share = checked_share("share", share, 1e-9, 1, "a share of the ratings, above 0 and below 1")
    given = times = pd.Series(np.asarray(times))
    if not pd.api.types.is_numeric_dtype(times):
        times = pd.to_datetime(times, errors="coerce", format="ISO8601", utc=True)
    if given.isna().any():
        raise InputError(f"times has none at position {int(given.isna().argmax())}; give one each")
    if times.isna().any():
        at = int(times.isna().argmax())
        raise InputError(
            f"times has {given[at]!r} at position {at}; give dates as 2020-03-13, or use "
            "pandas.to_datetime, with dayfirst where the day is first"
        )
    if users is not None and len(users) != len(times):
        raise InputError(f"there are {len(times)} times and {len(users)} users; give one each")
    groups = times.groupby(np.zeros(len(times)) if users is None else np.asarray(users))
    # Equal times all count as the earliest of them: they stay together.
    later = groups.rank(method="max", ascending=False)
    return (later <= share * groups.transform("size")).to_numpy()


def _numbers(values):
    try:
        values = np.array(pd.to_numeric(pd.Series(values)), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("the ratings are not all numbers; give one number for each") from None
    if not len(values):
        raise InputError("there are no ratings; give at least one")
    return values


def _checked_scale(scale):
    if scale is None:
        return None
    try:
        low, high = map(float, scale)
    except (TypeError, ValueError):
        raise InputError(f"scale is {scale!r}; give the lowest and the highest rating") from None
    if not low < high < math.inf or low == -math.inf:
        raise InputError(f"scale is from {low:g} to {high:g}; give the lower number first")
    return low, high


def _refuse_floats(side, ids):
    k = int(np.argmax(ids != np.floor(ids)))  # the first if all are whole
    raise InputError(
        f"{side} ids are floating-point numbers (the first is {ids[k]:g}); give whole numbers "
        "from 0, or names"
    )


def _positions(side, ids, names, size, length):
    """Return (positions, checked names or None, number) of the rows or columns."""
    ids = ids.to_numpy() if hasattr(ids, "to_numpy") else np.asarray(ids)
    if ids.ndim != 1 or len(ids) != length:
        raise InputError(
            f"{side}s has shape {ids.shape} and there are {length} ratings; give one {side} each"
        )
    if ids.dtype.kind in "US" or (ids.dtype.kind == "O" and all(isinstance(i, str) for i in ids)):
        return _named(side, ids, names, size)
    if ids.dtype.kind == "f":
        _refuse_floats(side, ids)
    if ids.dtype.kind not in "iu":
        raise InputError(f"{side} ids are {ids.dtype}; give whole numbers from 0, or names")
    found = np.unique(ids)
    names = None if names is None else list(names)
    counts = found[0] < 0 or found[-1] == len(found) - 1
    if size is None and not counts and names is None:
        names = list(map(str, found))  # ids, of which none is empty
    if size is None and names is not None and are_ids(names):
        return _named(side, ids, names, None)
    if names is not None:
        size = len(names) if size is None else size
        names = check_names(names, size, side)
    number = int(ids.max()) + 1 if size is None else int(size)
    outside = (ids < 0) | (ids >= number)
    if outside.any():
        k = int(np.argmax(outside))
        raise InputError(
            f"{side}s[{k}] is {ids[k]}; give positions from 0 to {number - 1}"
            + (", or a larger shape" if names is None else f", one for each of the {side} names")
        )
    return ids.astype(np.int64), names, number


def _named(side, ids, names, size):
    texts = ids.astype(str).astype(object)
    names = pd.unique(texts) if names is None else list(names)
    names = check_names(names, len(names), side)
    if size is not None and size != len(names):
        raise InputError(
            f"shape has {size} {side}s, and {len(names)} are named; give {side}_names for all, or "
            "leave shape out"
        )
    positions = pd.Index(names, dtype=object).get_indexer(texts)
    if (positions < 0).any():
        hint = ", or give shape= if they are positions" if ids.dtype.kind in "iu" else ""
        raise InputError(
            f"{side} {texts[int(np.argmin(positions))]!r} is not among the {side} names; add it to "
            f"them{hint}"
        )
    return positions.astype(np.int64), names, len(names)

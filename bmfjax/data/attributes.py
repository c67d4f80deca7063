"""Attributes of rows and columns ("side information"): tables of what is known of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bmfjax.data.errors import InputError
from bmfjax.data.names import check_stored, order_of
from bmfjax.data.reading.door import read_named_lines

#: Numbers of a table of attributes at most, and the longest of its shorter sides.
MAX_NUMBERS, MAX_DIRECTIONS = 200_000_000, 10_000

#: How an attribute is read: its name, and its categories where it is no number.
Field = tuple[str, tuple[str, ...] | None]


class AttributeTable(NamedTuple):
    """What is known of the lines of a side."""

    fields: tuple[Field, ...]
    values: np.ndarray  # (lines, attributes) float64; a category is a column of zeros and ones


class Attributes(NamedTuple):
    """How the attributes of a side were read in a fit, so that those of new lines are read alike.

    `rated` names lines of the other side, where it is an attribute whether they were rated. The
    `centre` is subtracted from the values, those that were given first.
    """

    fields: tuple[Field, ...]
    rated: tuple[str, ...]
    centre: np.ndarray  # (attributes,) float64

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each attribute, those that were given first."""
        return (*names_of_fields(self.fields), *(f"rated {name}" for name in self.rated))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return these as arrays, for a file."""
        text = json.dumps(self.fields)
        return {
            "fields": np.array(text), "rated": np.array(self.rated, str), "centre": self.centre
        }  # fmt: skip

    @classmethod
    def of_arrays(cls, arrays) -> Attributes:
        """Return what `arrays` was called of."""
        fields = tuple(
            (name, None if levels is None else tuple(levels))
            for name, levels in json.loads(str(arrays["fields"]))
        )
        return cls(fields, tuple(arrays["rated"].tolist()), arrays["centre"])


def names_of_fields(fields: Sequence[Field]) -> tuple[str, ...]:
    """Return a name for each column of values; that of a category is "job=clerk"."""
    return tuple(
        name if levels is None else f"{name}={level}"
        for name, levels in fields
        for level in (levels or ("",))
    )


def read_attributes(given: Any, side: str, line_names: Sequence[str]) -> AttributeTable:
    """Read the attributes of the rows or columns (`side`) of data whose lines have these names.

    They are an array, a scipy.sparse matrix or a DataFrame, (lines, attributes), in the order of
    the lines; a DataFrame whose index has their names is put in that order, and may name further
    lines. Its texts, categories and bools are categories.

    >>> table = pd.DataFrame({"age": [24, 53], "job": ["clerk", "nurse"]})
    >>> found = read_attributes(table, "row", ["ann", "bob"])
    >>> names_of_fields(found.fields), found.values.tolist()
    (('age', 'job=clerk', 'job=nurse'), [[24.0, 1.0, 0.0], [53.0, 0.0, 1.0]])
    """
    what = f"{side}_attributes"
    if isinstance(given, pd.DataFrame):
        given = _in_order(given, side, line_names)
        fields = tuple((str(name), _categories(given.iloc[:, k], f"{what} {name!r}"))
                       for k, name in enumerate(given.columns))  # fmt: skip
    else:
        given = _table(given, what)
        fields = tuple((f"attribute {k + 1}", None) for k in range(given.shape[1]))
    if given.shape[0] != len(line_names):
        raise InputError(
            f"{what} has {given.shape[0]} lines and the data {len(line_names)} {side}s; give one "
            f"line for each {side}, in their order, or a pandas.DataFrame with their names"
        )
    if not fields:
        raise InputError(f"{what} has no attributes; give at least one, or leave it out")
    _check_distinct(fields, what)
    # A text with many values is many columns: before they are formed.
    check_size(len(given), len(names_of_fields(fields)), what)
    values = _values(given, fields, what)
    named = zip(names_of_fields(fields), values.T, strict=True)
    for position, (name, column) in enumerate(named, start=1):
        check_stored(name, "attribute", position)
        if column.min() == column.max():
            raise InputError(
                f"{what}: {name!r} is {column[0]:g} for every {side}, so that it tells nothing; "
                "leave it out"
            )
    return AttributeTable(fields, values)


def read_new(given: Any, side: str, fields: Sequence[Field], number: int | None, names):
    """Read attributes of new lines as those of the fit were read: (lines, attributes) float64.

    `number` of them, or any for None, which have these `names` or None.
    """
    what = f"attributes of new {side}s"
    if isinstance(given, pd.DataFrame):
        if names is not None:
            given = _in_order(given, side, names)
        for name, _ in fields:
            if name not in given.columns:
                raise InputError(f"{what} lack {name!r}, which the fit has; add it")
        given = given[[name for name, _ in fields]]
    else:
        given = _table(given, what)
        text = next((name for name, levels in fields if levels is not None), None)
        if text is not None:
            raise InputError(
                f"{what} are numbers, and {text!r} of the fit is a category; give a "
                "pandas.DataFrame with the columns of the fit"
            )
        if given.shape[1] != len(fields):
            raise InputError(
                f"{what} have {given.shape[1]} columns and those of the fit {len(fields)}; give "
                "the same attributes in the same order"
            )
    if number is not None and len(given) != number:
        raise InputError(
            f"{what} have {len(given)} lines, and there are {number} new {side}s; give one each"
        )
    check_size(len(given), len(names_of_fields(fields)), what)
    return _values(given, fields, what)


def rated_attributes(rows, columns, shape, side: str) -> np.ndarray:
    r"""Return which cells are rated as attributes of a side: (lines, lines of the other side).

    A line has :math:`n^{-1/2}` for each of its n rated cells (Koren 2008, "Factorization meets the
    neighborhood", KDD, equation 15), so that all lines are equally long.

    >>> rated_attributes([0, 0, 1], [0, 2, 1], (2, 3), "row").round(2).tolist()
    [[0.71, 0.0, 0.71], [0.0, 1.0, 0.0]]
    """
    check_size(*(shape if side == "row" else shape[::-1]), "which cells were rated")
    found = np.zeros(shape)
    found[np.asarray(rows), np.asarray(columns)] = 1.0
    found = found if side == "row" else found.T
    return found / np.sqrt(np.maximum(found.sum(1, keepdims=True), 1.0))


def standardised(values, alike: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return attributes on one scale: values (lines, attributes), centre and unit (attributes,).

    Numbers have a standard deviation of one before all are divided by the root mean squared length
    of a line; zeros and ones keep their scale, and so do all columns that are `alike`.

    >>> values, centre, unit = standardised(np.array([[1.0, 5.0], [0.0, 9.0]]))
    >>> values.round(2).tolist(), centre.tolist()
    ([[0.45, -0.89], [-0.45, 0.89]], [0.5, 7.0])
    """
    centre = values.mean(0)
    centred = values - centre
    unit = np.ones(values.shape[1])
    if not alike:
        numbers = ~np.isin(values, (0.0, 1.0)).all(0)
        unit[numbers] = centred[:, numbers].std(0)
    centred = centred / unit
    size = np.sqrt((centred**2).sum(1).mean())
    return centred / size, centre, unit * size


def check_size(lines: int, attributes: int, what: str) -> None:
    """Refuse tables that are too large for a singular value decomposition."""
    if lines * attributes > MAX_NUMBERS or min(lines, attributes) > MAX_DIRECTIONS:
        raise InputError(
            f"{what}: a table of {lines:,} x {attributes:,} is too large; the most are "
            f"{MAX_NUMBERS:,} numbers and a shorter side of {MAX_DIRECTIONS:,}: leave out "
            "attributes, or add up those that go together"
        )


# ---- reading -------------------------------------------------------------------------------------


def _table(given, what) -> np.ndarray:
    """Return an array of two axes from an array or a sparse matrix."""
    if sp.issparse(given):
        check_size(*given.shape, what)
        given = given.toarray()
    elif not hasattr(given, "__array__") and not isinstance(given, list | tuple):
        raise InputError(
            f"{what}: a {type(given).__name__} was given; give an array, a scipy.sparse matrix or "
            "a pandas.DataFrame"
        )
    try:
        given = np.asarray(given, float)
    except (TypeError, ValueError):
        raise InputError(
            f"{what}: an array holds values that are no numbers; give a pandas.DataFrame, whose "
            "texts are categories"
        ) from None
    if given.ndim != 2:
        raise InputError(f"{what}: an array has shape {given.shape}; give lines x attributes")
    return given


def _in_order(table, side, names) -> pd.DataFrame:
    """Return the lines of a DataFrame in the order of the data."""
    order = order_of(table.index, names, f"{side}_attributes", side)
    return table if order is None else table.iloc[order]


def _categories(column: pd.Series, what: str) -> tuple[str, ...] | None:
    """Return the categories of a column, None of numbers."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return None
    if column.isna().any():
        raise InputError(f"{what} has missing values; fill them in, or leave the attribute out")
    return tuple(sorted(set(column.astype(str))))


def _check_distinct(fields, what) -> None:
    names = pd.Index([name for name, _ in fields], dtype=object)
    if names.has_duplicates:
        again = names[names.duplicated()][0]
        raise InputError(f"{what} has two attributes named {again!r}; give each its own name")


def _values(given, fields, what) -> np.ndarray:
    """Return the values of a table by its fields, (lines, attributes) float64."""
    if isinstance(given, np.ndarray):
        values = given
    else:
        columns = [given.iloc[:, k] for k in range(given.shape[1])]
        values = np.concatenate(
            [_column(c, *f, what) for c, f in zip(columns, fields, strict=True)], axis=1
        )
    wrong = ~np.isfinite(values)
    if wrong.any():
        name = names_of_fields(fields)[int(wrong.any(0).argmax())]
        raise InputError(
            f"{what}: {name!r} has values that are missing or not finite; fill them in, or leave "
            "the attribute out"
        )
    return values


def _column(column, name, levels, what) -> np.ndarray:
    if levels is None:
        try:
            return column.to_numpy(float)[:, None]
        except (TypeError, ValueError):
            raise InputError(f"{what}: {name!r} is not numeric; give numbers") from None
    texts = column.astype(str).to_numpy(dtype=object)
    strange = next((t for t in texts if t not in levels), None)
    if strange is not None:
        raise InputError(
            f"{what}: {name!r} is {strange!r}, which is none of the categories of the fit, "
            f"{', '.join(levels[:8])}{', ...' * (len(levels) > 8)}"
        )
    return (texts[:, None] == np.array(levels, dtype=object)).astype(float)


# ---- files ---------------------------------------------------------------------------------------


def load_attributes(path, **how) -> pd.DataFrame:
    """Read a table for `read_attributes`: fields that are numbers in all lines, or categories.

    `how` is the `decimal` sign and the `encoding`, as of `bmfjax.load`.
    """
    fields = "a name and at least one attribute"
    names, columns = read_named_lines(path, "names by attributes", fields, **how)
    values = {
        k: c.values if c.is_numeric and not {"true", "false"} & {*map(str.lower, c.words)}
        else np.where(c.missing, np.nan, np.array(c.all_texts(), object))
        for k, c in enumerate(columns)
    }  # fmt: skip
    return pd.DataFrame(values, names).set_axis([c.name for c in columns], axis=1)

"""Known factors: columns of the basis that a user gives by name, as pathways or signatures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bmfjax.data.errors import InputError
from bmfjax.data.names import check_stored, names_for, names_of_index, order_of
from bmfjax.data.reading.door import read_named_lines

FORMS = "a list of column names, a mapping of column names to numbers, or one number a column"


class Anchors(NamedTuple):
    """Factors whose part of the basis is known."""

    names: tuple[str, ...]
    values: np.ndarray  # (columns, number) float64: their basis; NaN is not known, and learned

    @property
    def number(self) -> int:
        """Number of known factors."""
        return len(self.names)

    @property
    def whole(self) -> np.ndarray:
        """Which of them have no entry that is learned, (number,) bool."""
        return ~np.isnan(self.values).any(0)

    def unknown(self, columns: int) -> Anchors:
        """Return these factors for so many other columns, of which nothing is known."""
        return Anchors(self.names, np.full((columns, self.number), np.nan))


def read_anchors(given: Any, column_names: Sequence[str], rank: int = 0) -> Anchors:
    """Read known factors, given in any of the forms that `bmfjax.fit` takes.

    None has the number of another of the `rank` factors as its name.

    >>> read_anchors({"oils": ["olive", "palm"]}, ["corn", "olive", "palm"]).values[:, 0]
    array([0., 1., 1.])
    """
    if isinstance(given, pd.DataFrame):
        columns = _of_table(given, column_names)
    elif isinstance(given, Mapping):
        places = {name: j for j, name in enumerate(column_names)}
        columns = [(str(name), _column(str(name), v, places)) for name, v in given.items()]
    else:
        raise InputError(
            f"anchors is a {type(given).__name__}; give a mapping of factor names to columns, or a "
            "pandas.DataFrame of columns by factors"
        )
    if not columns:
        raise InputError("anchors has no factors; name at least one, or leave anchors out")
    names = tuple(name for name, _ in columns)
    for k, name in enumerate(names):
        if not name.strip():
            raise InputError(f"anchor {k + 1} (counted from 1) has no name; give it one")
        check_stored(name, "anchor", k + 1)
        if name in names[:k]:
            raise InputError(f"anchors has two factors named {name!r}; give each its own name")
        number = re.fullmatch(r"(?:factor )?([1-9]\d*)", name)
        if number and k + 1 != int(number[1]) <= rank:
            raise InputError(
                f"anchor {k + 1} (counted from 1) is named {name!r}, as factor {number[1]} is "
                "called; give it another name"
            )
    values = np.stack([column for _, column in columns], axis=1)
    for k, name in enumerate(names):
        if np.isnan(values[:, k]).all():
            raise InputError(
                f"nothing is known of anchor {name!r}: all of its values are missing; leave it out"
            )
        for l in range(k):  # noqa: E741
            if np.array_equal(values[:, k], values[:, l], equal_nan=True):
                raise InputError(
                    f"anchors {names[l]!r} and {name!r} have the same values, so that no data can "
                    "distinguish them; leave one of them out"
                )
    return Anchors(names, values)


def _of_table(table, column_names) -> list[tuple[str, np.ndarray]]:
    """Return name and values of each factor of a DataFrame."""
    order = order_of(table.index, column_names, "anchors", "column", others=False)
    if len(table) != len(column_names):  # in their order
        raise InputError(
            f"anchors has {len(table)} rows without names and the data {len(column_names)} "
            "columns; give one row a column, or an index of column names"
        )
    order = slice(None) if order is None else order
    names = names_of_index(table.columns)
    if names is None:  # a mere count
        names = [f"anchor {k}" for k in range(1, table.shape[1] + 1)]
    return [
        (name, _numbers(name, table.iloc[:, k])[order]) for k, name in enumerate(map(str, names))
    ]


def _column(name: str, given, places: Mapping[str, int]) -> np.ndarray:
    """Return the values of one factor, (columns,) float64."""
    if isinstance(given, pd.Series) and (
        names_for(given.index, places, f"anchor {name!r}", "column") is not None
    ):
        given = dict(given)
    if isinstance(given, Mapping):
        keys, numbers = [str(key) for key in given], _numbers(name, list(given.values()))
    else:
        try:
            listed = given.tolist() if hasattr(given, "tolist") else list(given)
        except TypeError:
            listed = given
        if isinstance(given, str | bytes) or not isinstance(listed, list):
            raise InputError(f"anchor {name!r} is {given!r}; give {FORMS}")
        if not listed or not all(isinstance(value, str) for value in listed):
            numbers = _numbers(name, listed)
            if numbers.shape != (len(places),):
                raise InputError(
                    f"anchor {name!r} has {len(numbers)} numbers and the data {len(places)} "
                    f"columns; give {FORMS}"
                )
            return numbers
        keys, numbers = listed, np.ones(len(listed))
    values = np.zeros(len(places))
    for key, number in zip(keys, numbers, strict=True):
        if key not in places:
            raise InputError(_no_column(f"anchor {name!r} names {key!r}"))
        values[places[key]] = number
    return values


def _numbers(name, values) -> np.ndarray:
    """Return numbers, NaN where missing."""
    try:
        found = pd.Series(values, dtype=object).astype(float).to_numpy()
    except (TypeError, ValueError):
        raise InputError(f"anchor {name!r} is not numeric; give {FORMS}") from None
    if np.isinf(found).any():
        raise InputError(f"anchor {name!r} has values that are not finite; give numbers")
    return found


def _no_column(what: str) -> str:
    return f"{what}, which is no column of the data; give names of its columns"


# ---- what the models take ----------------------------------------------------------------------


def check_bits(anchors: Anchors) -> None:
    """Refuse known factors that are not Boolean, or that have no columns."""
    for name, values in zip(anchors.names, anchors.values.T, strict=True):
        wrong = values[~np.isnan(values) & (values != 0) & (values != 1)]
        if len(wrong):
            raise InputError(
                f"anchor {name!r} has the value {wrong[0]:g}, and the factors of this model are "
                "Boolean; give 0 and 1, or the names of its columns"
            )
        if not (np.isnan(values) | (values == 1)).any():
            raise InputError(f"anchor {name!r} has no columns; give at least one, or leave it out")


def check_weights(anchors: Anchors, model: str, *, signed: bool) -> None:
    """Refuse known factors that real factors cannot have: unknown, negative or all zero."""
    for name, values in zip(anchors.names, anchors.values.T, strict=True):
        if np.isnan(values).any():
            raise InputError(
                f"anchor {name!r} has missing values, which only model 'ormachine' learns; give a "
                f"number for every column, or leave the anchor out of model {model!r}"
            )
        if not signed and (values < 0).any():
            raise InputError(
                f"anchor {name!r} has negative values, and the factors of model {model!r} have "
                "none; give numbers that are not negative"
            )
        if not values.any():
            raise InputError(f"anchor {name!r} is zero in all columns; leave it out")


# ---- files ---------------------------------------------------------------------------------------


def load_anchors(path, **how) -> pd.DataFrame:
    """Read known factors for `read_anchors`: a line for each column of the data.

    `how` is the `decimal` sign and the `encoding`, as of `bmfjax.load`.
    """
    fields = "the name of a column and a number for each known factor"
    names, columns = read_named_lines(path, "columns by known factors", fields, **how)
    for column in columns:
        if (odd := column.odd()) is not None:
            raise InputError(
                f"{path} has {column.text(odd)!r} for anchor {column.name!r}; give numbers, and "
                "leave what is not known blank"
            )
    values = dict(enumerate(column.values for column in columns))
    table, named = pd.DataFrame(values, names), [column.name for column in columns]
    return table if named == list(map(str, range(len(named)))) else table.set_axis(named, axis=1)

"""New rows for a fit: their columns are found by the names of the fitted ones."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import scipy.sparse as sp

from bmfjax.data.binary import BinaryMatrix
from bmfjax.data.errors import InputError
from bmfjax.data.io.load import load_by_names
from bmfjax.data.ratings import Ratings
from bmfjax.data.reading.cells import WORDS, is_value
from bmfjax.data.reading.longs import read_baskets
from bmfjax.data.reading.record import BINARY, RATINGS, REAL, Asked
from bmfjax.data.real import RealMatrix

_KINDS = {BinaryMatrix: BINARY, RealMatrix: REAL, Ratings: RATINGS}
#: Layouts of which the columns are those that are listed: what is not listed is no column.
_LISTS = ("pairs", "triples", "baskets")


def opened(source, fit):
    """Return new rows for a fit: those of a file, where `source` is the path of one.

    For a fit of ones and zeros whose columns have names they may be lists of the items of each row.
    """
    fitted = fit.data
    if isinstance(source, str | os.PathLike):
        return load_new(source, fitted)
    if isinstance(fitted, BinaryMatrix) and fitted.has_column_names and _are_items(source, fitted):
        lines = list(enumerate(source, 1))
        return BinaryMatrix._of_reading(read_baskets(lines, Asked()), None)
    return source


def _are_items(source, fitted) -> bool:
    """Say whether rows are lists of items, and not of as many texts of ones and zeros each."""
    if not isinstance(source, list | tuple):
        return False
    if not all(isinstance(row, list | tuple | set | frozenset) for row in source):
        return False
    if not all(isinstance(item, str) for row in source for item in row):
        return False
    items = {item for row in source for item in row}
    if not items:
        return False
    are_values = any(is_value(item) or item.lower() in WORDS for item in items)
    is_ragged = len(set(map(len, source))) > 1
    return is_ragged or not (are_values or items.isdisjoint(fitted.column_names))


def load_new(source, fitted, **options):
    """Load new rows for a fit as its own data are read; see `by_names`."""
    names = fitted.column_names if fitted.has_column_names else ()
    return by_names(load_by_names(source, _KINDS[type(fitted)], names, **options), fitted)


def by_names(new, fitted):
    """Return new rows with the columns of the fitted data, where both have names.

    They are put in the order of the fitted ones, and others are left out; others that are rated are
    refused. A fitted column that is lacking is refused when the rows are used; in a list, such as
    one of pairs, it is one of which nothing was listed.
    """
    names = fitted.column_names
    are_named = fitted.has_column_names and new.has_column_names
    if not are_named or new.column_names == names:
        return new
    return (_ratings_by_name if isinstance(new, Ratings) else _by_name)(new, names)


def _by_name(new, names):
    """Return a matrix with columns of some names, in their order; as it is if any is lacking."""
    place = {name: at for at, name in enumerate(new.column_names)}
    at = np.array([place.get(name, -1) for name in names])
    is_list, gone = new.reading.layout in _LISTS, at < 0
    if gone.all() or (gone.any() and not is_list):
        return new
    rest = tuple(name for name in new.column_names if name not in set(names))
    sides = {
        "row_names": new.row_names if new.has_row_names else None,
        "column_names": names, "row_labels": new.row_labels, "name": new.name,
    }  # fmt: skip
    found = type(new)(*_columns(new, at), **sides)
    found._reading = dataclasses.replace(
        new.reading, shape=found.shape, first=names[0], last=names[-1],
        ignored=(*new.reading.ignored, *rest), empty=found._said_empty(),
        share_missing=found.num_missing / (found.num_rows * found.num_columns),
    )  # fmt: skip
    return found


def _columns(new, at) -> tuple:
    """Return values of some columns and which are observed; of column -1 nothing was listed."""
    gone = at < 0
    if new.is_sparse and not new.num_missing:
        values = new.ones() if isinstance(new, BinaryMatrix) else new.nonzero()
        blank = sp.csr_array((new.num_rows, 1), dtype=values.dtype)
        return sp.csr_array(sp.hstack([values, blank], format="csc")[:, at]), None
    rows, own = np.arange(new.num_rows), np.where(gone, 0, at)
    if not isinstance(new, BinaryMatrix):
        values = new.part(rows, own)
        values[:, gone] = np.nan
        return values, None
    ones, missing = new.part(rows, own)
    ones[:, gone], missing[:, gone] = False, new.num_missing > 0
    return ones, ~missing


def _ratings_by_name(new: Ratings, names) -> Ratings:
    place = {name: at for at, name in enumerate(names)}
    at = np.array([place.get(name, -1) for name in new.column_names])
    if (at < 0).any():
        name = new.column_names[int(np.argmax(at < 0))]
        raise InputError(
            f"the new rows rate {name!r}, which is no column of the fitted ratings; leave it out"
        )
    found = Ratings(
        new.rows, at[new.columns], new.values,
        row_names=new.row_names if new.has_row_names else None,
        column_names=names, shape=(new.num_rows, len(names)),
        row_labels=new.row_labels, scale=new.scale, name=new.name,
    )  # fmt: skip
    found._reading = new.reading
    return found

"""Names of rows and columns: checked once, quoted in every message."""

import re
from collections.abc import Iterable

import numpy as np
import pandas as pd

from bmfjax.data.errors import InputError

#: Numbers that stand for missing entries in matrices of zeros and ones.
_MARKS = (-1, 9, -9, 99, -99, 999, -999, 9999, -9999)
#: What no file keeps: NUL, and halves of characters, as which Python reads bytes that are no UTF-8.
_NOT_STORED = re.compile("[\0\ud800-\udfff]")


def check_names(names, count, side):
    """Return names of `count` rows or columns (`side`) as a tuple of distinct str, or None."""
    if names is None:
        return None
    argument = f"{side}_names"
    names = _listed(names, count, side, argument)
    seen = {}
    for position, name in enumerate(names, start=1):
        if _is_missing(name):
            raise InputError(
                f"{argument}: {side} {position} has no name; name every {side} or none"
            )
        name = str(name)
        check_stored(name, side, position)
        first = seen.setdefault(name, position)
        if first != position:
            raise InputError(
                f"{side} name {name!r} is given twice, to {side}s {first} and {position} "
                f"(counted from 1); make the {side} names distinct"
            )
    return tuple(seen)


def checked_sides(shape, given, own):
    """Return the checked names of rows and of columns; `given` ones replace those of the data."""
    return tuple(
        check_names(theirs if names is None else names, count, side)
        for count, names, theirs, side in zip(shape, given, own, ("row", "column"), strict=True)
    )


def check_labels(labels, count):
    """Return one side label (a string) for each of `count` rows; an unknown label is ''.

    Unlike names, labels repeat: the party of each member, the class of each animal.
    """
    if labels is None:
        return None
    labels = _listed(labels, count, "row", "row_labels")
    labels = ["" if _is_missing(label) else str(label) for label in labels]
    for position, label in enumerate(labels, start=1):
        check_stored(label, "row", position, "label")
    return tuple(labels)


def check_stored(name, side, position, what="name"):
    """Refuse a name that files cannot keep."""
    if _NOT_STORED.search(name):
        held = "a NUL character" if "\0" in name else "half of a character"
        raise InputError(
            f"the {what} of {side} {position} (counted from 1) is {name!r}, with {held}, which "
            "cannot be stored; take it out"
        )


def are_ids(names) -> bool:
    """Say whether names are whole numbers, all of them.

    >>> are_ids(["7", "12"]), are_ids(["7", "x"])
    (True, False)
    """
    return all(re.fullmatch(r"-?\d+", str(name)) for name in names)


def title_of(name):
    r"""Return what data are called, such as by their file: what files cannot keep is shown as �.

    >>> title_of("caf\udce9")
    'caf�'
    """
    return _NOT_STORED.sub("\ufffd", name) if isinstance(name, str) else name


def in_words(names) -> str:
    """Join names.

    >>> in_words(["a", "b", "c"]), in_words(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def names_of_index(index):
    """Return the names that a pandas index carries, or None for a mere count 0, 1, 2, ..."""
    if isinstance(index, pd.MultiIndex):
        return [" / ".join(map(str, key)) for key in index]
    counts = pd.api.types.is_integer_dtype(index.dtype) and np.array_equal(
        np.asarray(index), np.arange(len(index))
    )
    return None if counts else list(index)


def names_for(index, names, what, side):
    """Return the names by which an index goes with the lines of some data; None for their order.

    A count 0, 1, 2, ... is of ids where the data have such ids. It is none where pandas made the
    index by itself: that is then in the order of the data, and refused where it could be both.
    `what` has the index, and `side` is that of the data, for messages.

    >>> names_for(pd.Index([0, 1, 2], name="user"), ["2", "0", "1"], "row_attributes", "row")
    [0, 1, 2]
    >>> names_for(pd.RangeIndex(3), ["ann", "bob", "eve"], "row_attributes", "row") is None
    True
    """
    found = names_of_index(index)
    if found is not None:
        return found
    counts, names = [str(i) for i in index], [str(name) for name in names]
    given_by_pandas = isinstance(index, pd.RangeIndex) and index.name is None
    if not given_by_pandas:
        return list(index) if set(counts) & set(names) else None
    if counts != names and sorted(counts) == sorted(names):
        raise InputError(
            f"{what} has the index 0, 1, 2, ..., and the {side}s of the data have these names in "
            f"another order ({', '.join(names[:3])}, ...); name the index "
            "(table.rename_axis('name')) to go by names, or set it to the names of the data to go "
            "by their order"
        )
    return None


def order_of(index, names, what, side, *, others=True):
    """Return which line of an index is that of each of some names; None where they are in order.

    The arguments are those of `names_for`. An index with a name twice, without one of the `names`,
    or, unless there may be `others`, with another one, is refused.
    """
    found = names_for(index, names, what, side)
    if found is None:
        return None
    own = pd.Index([str(name) for name in found], dtype=object)
    if own.has_duplicates:
        again = own[own.duplicated()][0]
        raise InputError(f"{what} has two lines for {side} {again!r}; give one")
    names = [str(name) for name in names]
    if not others and len(strange := own.difference(names, sort=False)):
        raise InputError(
            f"a line of {what} names {strange[0]!r}, which is no {side} of the data; give names of "
            f"its {side}s"
        )
    order = own.get_indexer(names)
    if (order < 0).any():
        raise InputError(
            f"{what} has no line for {side} {names[int(np.argmin(order))]!r}; add it, or leave its "
            "names (the index) out if the lines are in the order of the data"
        )
    return order


def place_text(row, column, row_names=None, column_names=None):
    """Say where an entry is, rows and columns counted from 1 (the arguments count from 0)."""
    of_row = f" ({row_names[row]!r})" if row_names else ""
    of_column = f" ({column_names[column]!r})" if column_names else ""
    return f"row {row + 1}{of_row}, column {column + 1}{of_column}"


def not_binary(value, where, num_columns=None, others=(0, 1)):
    """Return the error for an entry which is neither 0, 1 nor missing.

    `others` are the values of all entries: a mark of a missing one may be the only odd one.
    """
    value = value.item() if isinstance(value, np.generic) else value
    # One line, also for a table in a cell.
    said = " ".join(repr(value).split())
    said = said if len(said) <= 60 else said[:57] + "..."
    if isinstance(value, float) and not value.is_integer():
        cure = (
            "fit real numbers by model='pmf', or model='nmf' where none is negative, or make the "
            "values binary first, by values > a threshold (binarize= where a file is loaded)"
        )
    elif isinstance(value, str) and num_columns == 2:
        cure = (
            "of a list of pairs make a DataFrame with two columns (BinaryMatrix.from_frame), and "
            "ones of a text by values == the text"
        )
    else:
        cure = (
            "fit counts by model='poisson' and ratings by model='pmf', or make the values binary "
            "first: counts by values > 0 (binarize=0 where a file is loaded), and codes by values "
            "== the code of a one (one=, zero= where a text is loaded)"
        )
    if isinstance(value, int | float) and value in _MARKS and set(others) == {0, 1, value}:
        cure = (
            f"if {said} means that nothing was observed, put NaN there, by np.where(values == "
            f"{said}, np.nan, values) (missing={said} where a text is loaded); else {cure}"
        )
    return InputError(f"value {said} at {where} is neither 0 nor 1 (counted from 1); {cure}")


def not_single(times, total, where):
    """Return the error for an entry that is listed `times` times, with a sum that is not 0 or 1."""
    listed = "twice" if times == 2 else f"{times} times"
    return InputError(
        f"the entry at {where} (counted from 1) is listed {listed}, and its values add up to "
        f"{total:g}; list every entry once, or make it a one by values > 0 (by binarize=0 where a "
        "file is loaded, --binarize 0 on the command line)"
    )


def _listed(values, count, side, argument):
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(
            f"{argument} is a {type(values).__name__}; give a sequence with one string a {side}"
        )
    values = list(values)
    if len(values) != count:
        raise InputError(
            f"{argument} has {len(values)} entries and the matrix has {count} {side}s; "
            f"give one a {side}"
        )
    return values


def _is_missing(value):
    return value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value))

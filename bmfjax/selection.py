"""Rows and columns by position, name or mask."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from bmfjax.data import BinaryMatrix, InputError

#: Matrices up to this many entries are formed whole without being asked for.
MAX_ENTRIES = 10_000_000


def positions(chosen, names, kind: str) -> np.ndarray:
    """Positions of what was chosen.

    Parameters
    ----------
    chosen : None, int, str, or a sequence of them, or bool array
        None: all. Arrays of NumPy, and a Series or Index of pandas, are sequences too.
    names : sequence of str
    kind : str
        "row" or "column", for the message.

    Returns
    -------
    (chosen,) int array

    Raises
    ------
    InputError
        For a name or position that is not there, or a mask of another shape.

    Examples
    --------
    >>> positions(["b", 0], ("a", "b"), "row").tolist()
    [1, 0]
    """
    if chosen is None:
        return np.arange(len(names))
    chosen = _listed(chosen)
    if chosen.ndim != 1:
        raise InputError(f"{kind}s have shape {chosen.shape}; give one list of them")
    if chosen.dtype.kind == "b":
        if chosen.shape != (len(names),):
            raise InputError(
                f"the {kind} mask has shape {chosen.shape}; it must be ({len(names)},)"
            )
        return np.flatnonzero(chosen)
    what = pd.api.types.infer_dtype(chosen, skipna=False)
    if what == "string":
        return _of_names(chosen, names, kind)
    if what == "integer":
        return _of_numbers(chosen, names, kind)
    for item in chosen:
        if isinstance(item, bool | np.bool_) or not isinstance(item, str | int | np.integer):
            raise InputError(f"{kind} {item!r} is neither a position nor a name")
    is_name = np.array([isinstance(item, str) for item in chosen], bool)
    out = np.empty(len(chosen), int)
    out[is_name] = _of_names(chosen[is_name], names, kind)
    out[~is_name] = _of_numbers(chosen[~is_name], names, kind)
    return out


def _listed(chosen) -> np.ndarray:
    """An array of what was chosen, in which no item has become one of another type."""
    if hasattr(chosen, "to_numpy"):
        return chosen.to_numpy()
    if isinstance(chosen, np.ndarray):
        return chosen
    if isinstance(chosen, str | bytes) or not isinstance(chosen, Iterable):
        chosen = [chosen]
    return np.fromiter(chosen, object)


def _of_names(items, names, kind):
    found = found_names(items.tolist(), names)
    if (found < 0).any():
        item = str(items[np.argmax(found < 0)])
        raise InputError(f"{kind} {item!r} is not in the matrix; see its {kind}_names")
    return found


def _of_numbers(items, names, kind):
    outside = (items < 0) | (items >= len(names))
    if outside.any():
        item = items[np.argmax(outside)]
        raise InputError(f"{kind} {item} is outside 0 to {len(names) - 1}")
    return items.astype(int)


def found_names(items, names) -> np.ndarray:
    """Positions of names, and -1 for those that are not there: (item,) int.

    Examples
    --------
    >>> found_names(["b", "c", "b"], ("a", "b")).tolist()
    [1, -1, 1]
    """
    place = {name: i for i, name in enumerate(names)}
    return np.fromiter((place.get(item, -1) for item in items), int, len(items))


def selected(data: BinaryMatrix, rows, columns) -> tuple[np.ndarray, np.ndarray]:
    """Positions of rows and columns, which together must be chosen where the matrix is large."""
    i = positions(rows, data.row_names, "row")
    j = positions(columns, data.column_names, "column")
    if len(i) * len(j) > MAX_ENTRIES and rows is None and columns is None:
        raise InputError(
            f"the whole matrix has {len(i) * len(j):,} entries; choose rows and columns "
            f"(up to {MAX_ENTRIES:,} entries are formed at once by default), or list cells for "
            "predict_cells()"
        )
    return i, j


def is_all(chosen: np.ndarray, number: int) -> bool:
    """Whether positions are all there are, in order."""
    return len(chosen) == number and bool((np.asarray(chosen) == np.arange(number)).all())

"""Rows and columns by position, name or mask, and entries drawn at random."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import numpy as np
import pandas as pd

from bmfjax.data import BinaryMatrix, InputError, checks
from bmfjax.data.names import are_ids

#: Matrices up to this many entries are formed whole without being asked for.
MAX_ENTRIES = 10_000_000


def positions(chosen, names, kind: str, by_position: bool = False) -> np.ndarray:
    """Return the positions (chosen,) of lines given by position, name or mask; all for None.

    They may be a Series or Index of pandas. `kind` is "row" or "column", for the message. Where all
    names are whole numbers a whole number is a name, unless `by_position`: 7 is "7", else "007".
    Where most of them are, one that is the name of a line, and the position of another, is refused.
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
    of_numbers = _of_numbers if by_position else _of_ids if are_ids(names) else _of_positions
    what = pd.api.types.infer_dtype(chosen, skipna=False)
    if what == "string":
        return _of_names(chosen, names, kind)
    if what == "integer":
        return of_numbers(chosen, names, kind)
    for item in chosen:
        if isinstance(item, bool | np.bool_) or not isinstance(item, str | int | np.integer):
            raise InputError(f"{kind} {item!r} is neither a position nor a name")
    is_name = np.array([isinstance(item, str) for item in chosen], bool)
    out = np.empty(len(chosen), int)
    out[is_name] = _of_names(chosen[is_name], names, kind)
    out[~is_name] = of_numbers(chosen[~is_name], names, kind)
    return out


def _listed(chosen) -> np.ndarray:
    """Return an array of what was chosen, in which no item has become one of another type."""
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
        raise InputError(f"{kind} {item!r} is not in the matrix; {closest(item, names, kind)}")
    return found


def _of_numbers(items, names, kind):
    outside = (items < 0) | (items >= len(names))
    if outside.any():
        item = items[np.argmax(outside)]
        raise InputError(f"{kind} {item} is outside 0 to {len(names) - 1}")
    return items.astype(int)


def _of_positions(items, names, kind):
    """Return positions; refuse one that is the name of another line, where most are numbers."""
    at = _of_numbers(items, names, kind)
    if 2 * sum(map(str.isdecimal, names)) > len(names):
        place = _by_number(names)
        for item in at.tolist():
            if place.get(item, item) != item and names[item] != str(item):
                others = (n for k, n in enumerate(names) if k != item and are_ids([n]))
                name = next(n for n in others if int(n) == item)
                raise InputError(
                    f"{kind} {item} may be the position of {names[item]!r}, or the one called "
                    f"{name!r}; say {name!r}, or positions=True for the position"
                )
    return at


def _by_number(names) -> dict[int, int | None]:
    """Return the position of each name that is a whole number, None where several have it."""
    place: dict[int, int | None] = {}
    for at, name in enumerate(names):
        if are_ids([name]):
            place[int(name)] = None if int(name) in place else at
    return place


def _of_ids(items, names, kind):
    texts = [str(item) for item in items]
    if (missing := found_names(texts, names) < 0).any():  # 7 may be called 007
        place = _by_number(names)
        for k in np.flatnonzero(missing):
            at = place.get(int(items[k]))
            texts[k] = texts[k] if at is None else names[at]
    try:
        return _of_names(np.array(texts, object), names, kind)
    except InputError as err:
        raise InputError(
            f"{err}: whole numbers are names here, and positions by positions=True"
        ) from None


def closest(name: str, names, kind: str) -> str:
    """Name the lines whose names are the closest, or some; `kind` is what one of them is.

    Examples
    --------
    >>> closest("an", ["ann", "bob"], "row"), closest("zoe", ["ann", "bob", "cid", "di"], "user")
    ("the closest is 'ann'", "users are 'ann', 'bob', 'cid', ...")
    """
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"the closest {'are' if len(close) > 1 else 'is'} {', '.join(map(repr, close))}"
    return f"{kind}s are {', '.join(map(repr, names[:3]))}" + ", ..." * (len(names) > 3)


def found_names(items, names) -> np.ndarray:
    """Return the positions of names (item,), and -1 for those that are not there."""
    place = {name: i for i, name in enumerate(names)}
    return np.fromiter((place.get(item, -1) for item in items), int, len(items))


def selected(
    data: BinaryMatrix, rows, columns, by_position: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of rows and columns; where the matrix is large, some must be chosen."""
    i = positions(rows, data.row_names, "row", by_position)
    j = positions(columns, data.column_names, "column", by_position)
    if len(i) * len(j) > MAX_ENTRIES and rows is None and columns is None:
        raise InputError(
            f"the whole matrix has {len(i) * len(j):,} entries; choose rows and columns "
            f"(up to {MAX_ENTRIES:,} entries are formed at once by default), or list cells for "
            "predict_cells()"
        )
    return i, j


def is_all(chosen: np.ndarray, number: int) -> bool:
    """Return whether positions are all there are, in order."""
    return len(chosen) == number and bool((np.asarray(chosen) == np.arange(number)).all())


def informed(data) -> dict[str, np.ndarray]:
    """Return positions of the `rows` and `columns` of which something is observed."""
    return {
        "rows": np.setdiff1d(np.arange(data.num_rows), data.empty_rows),
        "columns": np.setdiff1d(np.arange(data.num_columns), data.empty_columns),
    }


def without(members: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """Return members of factors (line, factor) in which some lines belong to none."""
    if not len(lines):
        return members
    members = np.array(members)
    members[lines] = False
    return members


def sampled_positions(rows, columns, number: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column of up to `number` different entries, drawn at random, in order."""
    entries = len(rows) * len(columns)
    rng = np.random.default_rng(checks.seed_number(seed))
    drawn = rng.choice(entries, min(number, entries), replace=False)
    i, j = np.divmod(np.sort(drawn), len(columns))
    return rows[i], columns[j]

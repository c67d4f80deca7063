"""Rows and columns by position, name or mask."""

from __future__ import annotations

import numpy as np

from bmfjax.data import BinaryMatrix, InputError

#: Matrices up to this many entries are formed whole without being asked for.
MAX_ENTRIES = 10_000_000


def positions(chosen, names, kind: str) -> np.ndarray:
    """Positions of what was chosen.

    Parameters
    ----------
    chosen : None, int, str, or a sequence of them, or bool array
        None: all.
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
    if isinstance(chosen, str | int | np.integer):
        chosen = [chosen]
    if isinstance(chosen, np.ndarray) and chosen.dtype.kind == "b":
        if chosen.shape != (len(names),):
            raise InputError(
                f"the {kind} mask has shape {chosen.shape}; it must be ({len(names)},)"
            )
        return np.flatnonzero(chosen)
    lookup = None
    out = []
    for item in chosen:
        if isinstance(item, str):
            lookup = lookup or {n: i for i, n in enumerate(names)}
            if item not in lookup:
                raise InputError(f"{kind} {item!r} is not in the matrix; see its {kind}_names")
            out.append(lookup[item])
        elif isinstance(item, bool | np.bool_) or not isinstance(item, int | np.integer):
            raise InputError(f"{kind} {item!r} is neither a position nor a name")
        elif 0 <= item < len(names):
            out.append(int(item))
        else:
            raise InputError(f"{kind} {item} is outside 0 to {len(names) - 1}")
    return np.asarray(out, dtype=int)


def selected(data: BinaryMatrix, rows, columns) -> tuple[np.ndarray, np.ndarray]:
    """Positions of rows and columns, which together must be chosen where the matrix is large."""
    i = positions(rows, data.row_names, "row")
    j = positions(columns, data.column_names, "column")
    if len(i) * len(j) > MAX_ENTRIES and rows is None and columns is None:
        raise InputError(
            f"the whole matrix has {len(i) * len(j):,} entries; choose rows and columns "
            f"(up to {MAX_ENTRIES:,} entries are formed at once by default)"
        )
    return i, j


def is_all(chosen: np.ndarray, number: int) -> bool:
    """Whether positions are all there are, in order."""
    return len(chosen) == number and bool((np.asarray(chosen) == np.arange(number)).all())

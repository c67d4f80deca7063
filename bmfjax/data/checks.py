"""Checks of arguments: each returns what it was given, or refuses it in one sentence."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bmfjax.data.errors import InputError


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return a whole number of at least `least` and at most `most`; booleans are none."""
    number = isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)
    if not number or value < least or (most is not None and value > most):
        which = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{name} is {value!r}; give a whole number {which}")
    return int(value)


def seed_number(value: Any, name: str = "seed") -> int:
    """Return a seed: JAX takes 32 bits of it, so that larger ones would be smaller ones again."""
    return whole(name, value, 0, 2**32 - 1)


def positive(name: str, value: Any, what: str = "number") -> float:
    """Return a finite number above zero; `what` names it in the refusal."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    if not number or not 0 < value < math.inf:
        raise InputError(f"{name} is {value!r}; give a positive {what}")
    return float(value)


#: Most rows or columns: positions are numbers of 32 bits in samplers and in files.
MOST_LINES = 2**31 - 1


def check_sides(shape: Sequence[int]) -> None:
    """Refuse a matrix with more rows or columns than have a position."""
    for side, size in zip(("rows", "columns"), shape, strict=False):
        if size > MOST_LINES:
            raise InputError(
                f"the matrix has {size:,} {side}, and there may be {MOST_LINES:,}; leave out "
                f"{side} without entries"
            )


def is_real(kind: Any) -> bool:
    """Whether a dtype, also one of pandas, is of numbers that are not complex."""
    return pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind)


def switch(name: str, value: Any) -> bool:
    """Return what is True or False; nothing else, for a text or a number would be read as True."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} is {value!r}; give True or False")
    return bool(value)


def share(name: str, value: Any, least: float, below: float, what: str) -> float:
    """Return a number from `least` to below `below`; `what` says which, in the refusal."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    if not number or not least <= value < below:
        raise InputError(f"{name} is {value!r}; give {what}")
    return float(value)


def one_of(name: str, value: Any, choices: Iterable) -> Any:
    """Return a value that is among the choices."""
    choices = tuple(choices)
    if value not in choices:
        raise InputError(f"{name} is {value!r}; choose from {', '.join(map(str, choices))}")
    return value


def mapping(name: str, given: Any, names: Sequence[str], owner: str) -> dict:
    """Return a mapping as a dict, None as an empty one; refuse names that its owner lacks."""
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"{name} is {given!r}; give a mapping of any of {', '.join(names)}")
    unknown = sorted(set(given or {}) - set(names), key=str)
    if unknown:
        raise InputError(f"{name} name {unknown[0]!r}; {owner} has {', '.join(names) or 'none'}")
    return dict(given or {})


def numeric(name: str, value: Any, shape: tuple[int, ...], kind: Any = np.float32) -> np.ndarray:
    """Return an array of numbers of one shape."""
    try:
        values = np.asarray(value, kind)
    except (TypeError, ValueError):
        raise InputError(f"{name} is not numeric; give an array of numbers") from None
    if values.shape != shape:
        raise InputError(f"{name} has shape {values.shape}; it must be {shape}")
    return values

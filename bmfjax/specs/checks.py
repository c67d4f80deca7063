"""Checks of arguments: each returns what it was given, or refuses it in one sentence."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from bmfjax.errors import InputError, did_you_mean


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


def path_of(name: str, value: Any, what: str = "folder") -> str:
    """Return a path as a text; `what` names what it is of, in the refusal."""
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"{name} is {value!r}; give the path of a {what}, a text")
    return os.fspath(value)


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
        known = ", ".join(map(str, choices))
        raise InputError(f"{name} is {value!r}; choose from {known}{did_you_mean(value, choices)}")
    return value

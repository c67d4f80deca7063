"""Checks of arguments and arrays; those of single values are at home in `bmfjax.specs.checks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from bmfjax.errors import InputError
from bmfjax.specs.checks import one_of, path_of, positive, seed_number, share, switch, whole

__all__ = [
    "MOST_LINES",
    "check_axes",
    "check_sides",
    "is_real",
    "numeric",
    "one_of",
    "path_of",
    "positive",
    "probabilities",
    "seed_number",
    "share",
    "switch",
    "whole",
]


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


def check_axes(array: Any, name: str = "values") -> None:
    """Refuse an array that has not two axes."""
    if array.ndim != 2:
        held = (
            "is one-dimensional" if array.ndim == 1 else f"has {array.ndim} dimensions, and not two"
        )
        raise InputError(f"{name} {held}; give a matrix")


def is_real(kind: Any) -> bool:
    """Tell whether a dtype, also one of pandas, is of numbers that are not complex."""
    return pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind)


def probabilities(values: np.ndarray) -> None:
    """Refuse what is no probability of a one, such as log odds."""
    if not ((values >= 0) & (values <= 1)).all():
        raise InputError(
            "a probability is outside of [0, 1] or NaN; give probabilities of a one, such as "
            "those of fit.probability(): fit.predict() has log odds where the model is of these"
        )


def numeric(name: str, value: Any, shape: tuple[int, ...], kind: Any = np.float32) -> np.ndarray:
    """Return an array of numbers of one shape."""
    try:
        values = np.asarray(value, kind)
    except (TypeError, ValueError):
        raise InputError(f"{name} is not numeric; give an array of numbers") from None
    if values.shape != shape:
        raise InputError(f"{name} has shape {values.shape}; it must be {shape}")
    return values

"""What the parts of `peers.py` share: a registry of methods, and how options are tuned."""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np


class Method(NamedTuple):
    """One program with its options; `packages` are loaded before its clock starts."""

    run: Callable  # (problem, seed) -> Answer
    packages: tuple[str, ...]
    ours: bool


class Answer(NamedTuple):
    """What a method predicts, what was chosen for it, and the seconds that this choice took."""

    predicted: Any
    chosen: Mapping[str, Any]
    tuning: tuple[float, float] = (0.0, 0.0)  # wall, processor


class Registry(dict):
    """Methods by name."""

    def add(self, name: str, *packages: str):
        """Register the function below under a name, with the packages it loads."""

        def register(run):
            self[name] = Method(run, packages, name.startswith("bmfjax"))
            return run

        return register


def clocks() -> np.ndarray:
    """Return wall and processor seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def grid(**options: Iterable) -> list[dict]:
    """Return all combinations of options."""
    return [
        dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())
    ]


def best_of(candidates: Iterable[dict], loss: Callable[[dict], float]):
    """Return the candidate of least loss, and the seconds of the search.

    A candidate that fails, or whose loss is not finite, is not taken.
    """
    began, found = clocks(), []
    for options in candidates:
        try:
            value = float(loss(options))
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):
            continue
        if np.isfinite(value):
            found.append((value, len(found), options))
    if not found:
        raise ValueError("no candidate could be fitted")
    return min(found)[2], tuple(clocks() - began)

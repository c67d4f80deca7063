"""Warn that draws are none of the posterior where results of them are asked for."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator

from bmfjax.errors import is_read_inside, outside

#: Where a fit keeps that it was said.
_SAID = "_said_to_be_undrawn"


def warn_undrawn(fit) -> None:
    """Warn, once a fit, that its draws are none of the posterior, if they are not."""
    if fit.verdict.undrawn and not vars(fit).get(_SAID):
        vars(fit)[_SAID] = True
        warnings.warn(
            f"{fit.verdict.undrawn}; means, probabilities and intervals of this fit are not those "
            f"of the posterior. Next, {fit.verdict.remedy}",
            stacklevel=outside(),
        )


def of_draws(method: Callable) -> Callable:
    """Warn before a method of a fit returns what only draws from the posterior can tell.

    What the method refuses it refuses without.
    """

    @functools.wraps(method)
    def told(self, *args, **kwargs):
        found = method(self, *args, **kwargs)
        warn_undrawn(self)
        return found

    return told


class DrawnAttribute:
    """An attribute of a fit that warns who reads it from outside of the package.

    What the package reads of it is for results that warn themselves, or say it.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, fit, owner=None):
        if fit is None or self._name not in vars(fit):
            raise AttributeError(self._name)
        value = vars(fit)[self._name]
        if value is not None and not is_read_inside():
            warn_undrawn(fit)
        return value

    def __set__(self, fit, value) -> None:
        vars(fit)[self._name] = value


@contextlib.contextmanager
def said_elsewhere(fit) -> Iterator[None]:
    """Do not warn: what is made of the fit says it itself."""
    before = vars(fit).get(_SAID)
    vars(fit)[_SAID] = True
    try:
        yield
    finally:
        vars(fit)[_SAID] = before

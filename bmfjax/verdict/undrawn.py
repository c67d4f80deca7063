"""Warn that draws are none of the posterior where results of them are asked for."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType

#: Where a fit keeps that it was said.
_SAID = "_said_to_be_undrawn"


def warn_undrawn(fit, stacklevel: int = 2) -> None:
    """Warn, once a fit, that its draws are none of the posterior, if they are not."""
    if fit.verdict.undrawn and not vars(fit).get(_SAID):
        vars(fit)[_SAID] = True
        warnings.warn(
            f"{fit.verdict.undrawn}; means, probabilities and intervals of this fit are not those "
            f"of the posterior. Next, {fit.verdict.remedy}",
            stacklevel=stacklevel + 1,
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


class of_posterior(functools.cached_property):
    """A property, computed once, that warns whoever asks for it from outside of this package.

    Inside, results are made of it that have a verdict, or warn themselves.
    """

    def __get__(self, fit, owner=None):
        if fit is None:
            return self
        if not _is_ours(sys._getframe(1)):
            warn_undrawn(fit)
        name = self.attrname
        return vars(fit)[name] if name in vars(fit) else super().__get__(fit, owner)

    def __set__(self, fit, value):
        # So that Python asks `__get__` for what is computed already, too.
        raise AttributeError(f"{self.attrname} follows from the draws")


def _is_ours(frame: FrameType) -> bool:
    """Tell whether code of this package runs in a frame."""
    return frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]


@contextlib.contextmanager
def said_elsewhere(fit) -> Iterator[None]:
    """Do not warn: what is made of the fit says it itself."""
    before = vars(fit).get(_SAID)
    vars(fit)[_SAID] = True
    try:
        yield
    finally:
        vars(fit)[_SAID] = before

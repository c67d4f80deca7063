"""Warn that draws are none of the posterior where results of them are asked for."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator

from bmfjax.errors import outside

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


@contextlib.contextmanager
def said_elsewhere(fit) -> Iterator[None]:
    """Do not warn: what is made of the fit says it itself."""
    before = vars(fit).get(_SAID)
    vars(fit)[_SAID] = True
    try:
        yield
    finally:
        vars(fit)[_SAID] = before

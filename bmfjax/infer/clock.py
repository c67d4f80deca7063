"""The time that a fit, or a command, may take: from its first line to its result.

The clock of the work that runs is known to all of its parts, as a deadline of `asyncio.timeout` is:
what searches for starts asks it how long it may go on, and no call in between passes it on.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar


class Clock:
    """The seconds since some work began, of the `limit` that it may take (None: any)."""

    def __init__(self, began: float | None = None):
        self.began = time.monotonic() if began is None else began
        self.limit: float | None = None
        #: Of the limit, what the work takes after its draws, besides their summary.
        self.aside = 0.0

    @property
    def spent(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds that are left for draws; infinity without a limit."""
        return math.inf if self.limit is None else self.limit - self.aside - self.spent


_running: ContextVar[Clock | None] = ContextVar("bmfjax clock", default=None)


@contextlib.contextmanager
def clock_running(began: float | None = None) -> Iterator[Clock]:
    """Start a clock, which `running_clock` returns until the work is done.

    The work `began` at a reading of the monotonic clock, by default now.
    """
    clock = Clock(began)
    token = _running.set(clock)
    try:
        yield clock
    finally:
        _running.reset(token)


def running_clock() -> Clock:
    """Return the clock of the work that runs; one that starts now where there is none."""
    return _running.get() or Clock()

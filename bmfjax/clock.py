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

#: A share of the machine that is smaller is not waited for.
MOST_SLOWNESS = 8.0


class OutOfTimeError(Exception):
    """The time that some work may take is up, and what it would have found is not there."""


class Clock:
    """The seconds since some work began, of the `limit` that it may take (None: any)."""

    def __init__(self, began: float | None = None):
        self._here = time.monotonic(), time.process_time()
        self.began = self._here[0] if began is None else began
        self.limit: float | None = None
        #: Whether work that has no result yet ends with the time, too.
        self.binds = True
        #: CPU seconds that the work takes after the result, of the same limit.
        self.aside = 0.0

    @property
    def spent(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self.began

    @property
    def slowness(self) -> float:
        """Seconds that a CPU second of this work has taken so far, on a machine that has others."""
        wall, cpu = time.monotonic() - self._here[0], time.process_time() - self._here[1]
        return min(max(wall / max(cpu, 1e-3), 1.0), MOST_SLOWNESS)

    def left(self, after: float = 0.0) -> float:
        """Return the seconds that are left before what takes so many CPU seconds, or infinity."""
        if self.limit is None:
            return math.inf
        # Half is for draws, whatever follows them.
        after = min((self.aside + after) * self.slowness, self.limit / 2)
        return self.limit - self.spent - after

    def has(self, seconds: float) -> bool:
        """Tell whether there is time for what takes so many CPU seconds, or must not end early."""
        return not self.binds or self.left() >= seconds * self.slowness


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

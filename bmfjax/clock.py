"""The time that a fit, or a command, may take: from its first line to its result.

The clock of the work that runs is known to all of its parts, as a deadline of `asyncio.timeout` is:
what searches for starts asks it how long it may go on, and no call in between passes it on.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar

#: A share of the machine that is smaller is not waited for.
MOST_SLOWNESS = 8.0
#: CPU seconds that a result of the starts takes.
STARTS_SECONDS = 1.0
#: Seconds whose share of the machine is that of now, and between looks at it.
RECENT, MARK = 15.0, 3.0


class OutOfTimeError(Exception):
    """The time that some work may take is up, and what it would have found is not there."""


class Clock:
    """The seconds since some work began, of the `limit` that it may take (None: any)."""

    def __init__(self, began: float | None = None):
        self._here = time.monotonic(), time.process_time()
        self._marks = deque([self._here])
        self.began = self._here[0] if began is None else began
        self.limit: float | None = None
        #: Whether work that has no result yet ends with the time, too.
        self.binds = True
        #: CPU seconds that the work takes after the result, of the same limit; and after one of
        #: starts alone, of which there is less to tell.
        self.aside = self.aside_of_starts = 0.0
        #: Whether this process itself does the work, on the CPU. Otherwise it may wait for a
        #: device, which looks like other work on the machine.
        self.on_cpu = False
        #: Whether a report follows the result, of the same limit.
        self.has_report = False
        #: What can be done, once, while something else is waited for.
        self.meanwhile: Callable[[], None] | None = None
        #: When work ended because of the limit, and the seconds kept for what follows it.
        self.ended: tuple[float, float] | None = None
        #: What was worked on, and from when on, one after the other.
        self.works: list[tuple[float, str]] = []

    @property
    def spent(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self.began

    @property
    def follows(self) -> str:
        """What the time after the draws is for."""
        return "report" if self.has_report else "result"

    @property
    def slowness(self) -> float:
        """Seconds that a CPU second of this work has taken so far, on a machine that has others."""
        return _slowness(self._here, (time.monotonic(), time.process_time()))

    @property
    def slowness_now(self) -> float:
        """The same of the last seconds, where that is known."""
        if not self.on_cpu:
            return self.slowness
        now, marks = (time.monotonic(), time.process_time()), self._marks
        while len(marks) > 1 and now[0] - marks[1][0] >= RECENT:
            marks.popleft()
        if now[0] - marks[-1][0] >= MARK:
            marks.append(now)
        return _slowness(marks[0], now)

    def kept(self, after: float = 0.0, *, drawn: bool = True) -> float:
        """Return the seconds that are kept for what follows the draws, or else the starts.

        It takes `after` CPU seconds until the result is there. Whoever finds no time for more than
        the starts gives up for good: a moment in which the machine is busy is no reason.
        """
        if self.limit is None:
            return 0.0
        slowness = self.slowness_now if drawn else self.slowness
        after += self.aside if drawn else STARTS_SECONDS + self.aside_of_starts
        # Half is for draws, whatever follows them.
        return min(after * slowness, self.limit / 2)

    def left(self, after: float = 0.0, *, drawn: bool = True) -> float:
        """Return the seconds that are left before those that are kept, or infinity."""
        if self.limit is None:
            return math.inf
        return self.limit - self.spent - self.kept(after, drawn=drawn)

    def note_end(self, after: float = 0.0, *, drawn: bool = True) -> None:
        """Note that work ends now because no time is left, and what is kept."""
        self.ended = self.spent, self.kept(after, drawn=drawn)

    def note_work(self, what: str) -> None:
        """Note what is worked on from now on."""
        if not self.works or self.works[-1][1] != what:
            self.works.append((self.spent, what))

    def worked_on(self, since: float) -> dict[str, float]:
        """Return what was worked on after so many seconds, and for how many seconds each."""
        found: dict[str, float] = {}
        ends = [begin for begin, _ in self.works[1:]] + [self.spent]
        for (begin, what), end in zip(self.works, ends, strict=True):
            if end > since:
                found[what] = found.get(what, 0.0) + end - max(begin, since)
        return found

    def use_wait(self) -> None:
        """Do what can be done while something is waited for; the next wait has nothing to do."""
        work, self.meanwhile = self.meanwhile, None
        if work is not None:
            work()

    def has(self, seconds: float) -> bool:
        """Tell whether there is time for what takes so many CPU seconds, or must not end early."""
        return not self.binds or self.left() >= seconds * self.slowness


def _slowness(since: tuple[float, float], now: tuple[float, float]) -> float:
    """Return the seconds in which a CPU second passed between two readings of (time, CPU time)."""
    wall, cpu = now[0] - since[0], now[1] - since[1]
    return min(max(wall / max(cpu, 1e-3), 1.0), MOST_SLOWNESS)


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


def note_work(what: str) -> None:
    """Note on the clock that runs, if there is one, what is worked on from now on."""
    if (clock := _running.get()) is not None:
        clock.note_work(what)


def running_clock() -> Clock:
    """Return the clock of the work that runs; one that starts now where there is none."""
    return _running.get() or Clock()

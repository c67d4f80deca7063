"""What runs now, in one line on standard error, from the first second on.

Whoever works says so by `say`; where `status_line` is on, it is shown. On a terminal the line
changes in place. Elsewhere, such as in a log or in a notebook without ipywidgets, it is printed
when something else has begun, and now and then while it lasts.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from rich.console import Console
from rich.live import Live
from rich.text import Text

from bmfjax.clock import note_work, running_clock
from bmfjax.errors import printable

#: Seconds after which a plain line follows another: of something else, and of the same.
NEW_SECONDS, SAME_SECONDS = 1.0, 30.0


class _Lasting:
    """A stream that takes what it can: what a closed terminal does not take ends no run."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str):
        return getattr(self._stream, name)


class _Status:
    """What runs, how far it is, and since when all of it runs."""

    def __init__(self):
        self.clock = running_clock()
        #: Which of several works it is, each with phases of its own; phase, and how far it is.
        self.work, self.phase, self.note = "", "", ""

    @property
    def text(self) -> str:
        now, limit = self.clock.spent, self.clock.limit
        spent, of = minutes(now), ""
        if limit is not None and not math.isinf(limit):
            over = now - limit
            of = f", {minutes(over)} over the limit" if over >= 1.0 else f" of {minutes(limit)}"
        said = f"{self.phase}: {self.note}" if self.note else self.phase
        return printable(f"{spent}{of}  {self.work}{said}")

    def __rich__(self) -> Text:
        return Text(self.text, no_wrap=True, overflow="ellipsis")


_shown: ContextVar[_Status | None] = ContextVar("bmfjax status", default=None)


def say(phase: str, note: str = "") -> None:
    """Say what runs now, and how far it is."""
    note_work(phase)
    if (status := _shown.get()) is not None:
        status.phase, status.note = phase, note


@contextlib.contextmanager
def status_line(enabled: bool = True) -> Iterator[None]:
    """Show what `say` is told until the work is done; an outer line shows it for this one."""
    if not enabled or _shown.get() is not None:
        yield
        return
    status = _Status()
    token = _shown.set(status)
    # Without ipywidgets a notebook has no display that changes, only a warning.
    widgets = importlib.util.find_spec("ipywidgets") is not None
    console = Console(file=_Lasting(sys.stderr), force_jupyter=None if widgets else False)
    # The kernel of a notebook asks for colours, whereupon Rich takes its stream for a terminal.
    changes = console.is_jupyter or (console.is_interactive and console.file.isatty())
    try:
        with (_changing if changes else _plain)(status, console):
            yield
    finally:
        _shown.reset(token)


def _changing(status: _Status, console: Console):
    """Show a status in a line that changes, and goes at the end."""
    # What is printed to a file or a pipe goes there.
    whole = sys.stdout.isatty()
    return Live(status, console=console, transient=True, redirect_stdout=whole)


@contextlib.contextmanager
def _plain(status: _Status, console: Console) -> Iterator[None]:
    """Print a status when something else has begun, and now and then."""
    over = threading.Event()

    def tell():
        told, last = "", 0.0
        while not over.wait(NEW_SECONDS):
            here = status.work or status.phase
            if here and (here != told or time.monotonic() - last >= SAME_SECONDS):
                told, last = here, time.monotonic()
                console.file.write(status.text + "\n")
                console.file.flush()

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def counted(total: int, enabled: bool) -> Iterator[Callable[[str], None]]:
    """Show which of several fits runs; call what is yielded with the next one's name."""
    number = 0

    def next_is(name):
        nonlocal number
        number += 1
        if (status := _shown.get()) is not None:
            status.work = f"fit {number} of {total}, {name}: "

    with status_line(enabled):
        yield next_is


def minutes(seconds: float) -> str:
    """Write seconds as minutes and seconds.

    Examples
    --------
    >>> minutes(7.6), minutes(3725)
    ('0:07', '62:05')
    """
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"

"""Ctrl-C as a request: the chunk that runs is finished, and what was drawn is kept."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Interrupt:
    """`requested` turns true at the first Ctrl-C; a second one interrupts at once."""

    requested = False


@contextlib.contextmanager
def interrupt_requests() -> Iterator[Interrupt]:
    """Catch the first Ctrl-C (SIGINT) of the main thread as a request to stop.

    Examples
    --------
    >>> with interrupt_requests() as interrupt:
    ...     signal.raise_signal(signal.SIGINT)
    ...     interrupt.requested
    True
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt  # signals reach the main thread only
        return

    def handler(signum, frame):
        if interrupt.requested:
            raise KeyboardInterrupt
        interrupt.requested = True

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)

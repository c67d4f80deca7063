"""Ctrl-C and SIGTERM as requests: the chunk that runs is finished, and what was drawn is kept."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


class Terminated(SystemExit):
    """SIGTERM ended the work; exit code 143, as shells have it."""

    def __init__(self, message: str = ""):
        super().__init__(message)
        self.code = 128 + signal.SIGTERM


class Interrupt:
    """What was asked for: `requested` turns true at the first Ctrl-C or SIGTERM.

    A second Ctrl-C interrupts at once; a second SIGTERM says nothing new.
    """

    requested = terminated = False


@contextlib.contextmanager
def interrupt_requests() -> Iterator[Interrupt]:
    """Catch the first Ctrl-C (SIGINT) and any SIGTERM of the main thread as requests to stop.

    SIGTERM is left alone where it is ignored.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt  # signals reach the main thread only
        return

    def interrupted(signum, frame):
        if interrupt.requested:
            raise KeyboardInterrupt
        interrupt.requested = True

    def terminated(signum, frame):
        interrupt.requested = interrupt.terminated = True

    with _handled(signal.SIGINT, interrupted), _handled(signal.SIGTERM, terminated):
        yield interrupt


@contextlib.contextmanager
def exit_when_terminated() -> Iterator[None]:
    """Raise `Terminated` at a SIGTERM that would end the process without a word."""

    def terminated(signum, frame):
        raise Terminated

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    with _handled(signal.SIGTERM, terminated):
        yield


def pass_on_termination(message: str) -> None:
    """Do what SIGTERM does here: raise `Terminated`, or call the handler that is installed."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        raise Terminated(message)
    try:
        signal.raise_signal(signal.SIGTERM)
    except Terminated:  # of `exit_when_terminated`, which does not know of the draws
        raise Terminated(message) from None


@contextlib.contextmanager
def _handled(signum: signal.Signals, handler: Callable) -> Iterator[None]:
    """Install a handler, unless the signal is ignored or its handler cannot be put back."""
    before = signal.getsignal(signum)
    if before is None or (signum == signal.SIGTERM and before is signal.SIG_IGN):
        yield
        return
    signal.signal(signum, handler)
    try:
        yield
    finally:
        signal.signal(signum, before)

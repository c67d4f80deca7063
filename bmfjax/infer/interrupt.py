"""Ctrl-C and signals that end a process as requests: the chunk is finished, and draws are kept.

SIGTERM is what clusters end a job with, SIGUSR1 what they can warn it with before, and SIGHUP what
comes where the terminal goes.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar

#: Signals that end the work with a checkpoint and without a result. Not all systems have all.
NAMES = ("SIGTERM", "SIGUSR1", "SIGHUP")
ENDING = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))


class Terminated(SystemExit):
    """A signal ended the work; the exit code is as shells have it: 143 of SIGTERM."""

    def __init__(self, message: str = "", signum: int = signal.SIGTERM):
        super().__init__(message)
        self.signum = signum
        self.code = 128 + signum


class Interrupt:
    """What was asked for: `requested` turns true at the first Ctrl-C or signal of `ENDING`.

    A second Ctrl-C interrupts at once; a second of the others says nothing new. `signum` is that
    of the first of the others, None before.
    """

    requested = False
    signum: int | None = None

    @property
    def terminated(self) -> bool:
        """Whether whoever sent the signal will not wait for a result."""
        return self.signum is not None


_caught: ContextVar[Interrupt | None] = ContextVar("bmfjax interrupt", default=None)


def is_interrupted() -> bool:
    """Tell whether the work that runs has been asked to end, by what is caught as a request."""
    caught = _caught.get()
    return caught is not None and caught.requested


@contextlib.contextmanager
def interrupt_requests() -> Iterator[Interrupt]:
    """Catch the first Ctrl-C (SIGINT) and any signal of `ENDING` in the main thread as requests.

    A signal of `ENDING` is left alone where it is ignored.
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
        interrupt.requested = True
        interrupt.signum = interrupt.signum or signum

    with contextlib.ExitStack() as handlers:
        handlers.enter_context(_handled(signal.SIGINT, interrupted))
        for signum in ENDING:
            handlers.enter_context(_handled(signum, terminated))
        handlers.callback(_caught.reset, _caught.set(interrupt))
        yield interrupt


@contextlib.contextmanager
def exit_when_terminated() -> Iterator[None]:
    """Raise `Terminated` at a signal of `ENDING` that would end the process without a word."""

    def terminated(signum, frame):
        raise Terminated(signum=signum)

    main = threading.current_thread() is threading.main_thread()
    with contextlib.ExitStack() as handlers:
        for signum in ENDING if main else ():
            if signal.getsignal(signum) is signal.SIG_DFL:
                handlers.enter_context(_handled(signum, terminated))
        yield


def pass_on_termination(signum: int, message: str) -> None:
    """Do what a signal does here: raise `Terminated`, or call the handler that is installed."""
    if signal.getsignal(signum) is signal.SIG_DFL:
        raise Terminated(message, signum)
    try:
        signal.raise_signal(signum)
    except Terminated:  # of `exit_when_terminated`, which does not know of the draws
        raise Terminated(message, signum) from None


@contextlib.contextmanager
def _handled(signum: signal.Signals, handler: Callable) -> Iterator[None]:
    """Install a handler, unless the signal is ignored or its handler cannot be put back."""
    before = signal.getsignal(signum)
    if before is None or (signum in ENDING and before is signal.SIG_IGN):
        yield
        return
    signal.signal(signum, handler)
    try:
        yield
    finally:
        signal.signal(signum, before)

"""Ctrl-C and signals that end: the first is a request, a second Ctrl-C not; all is put back."""

import signal
import threading

import pytest

from bmfjax.infer.interrupt import (
    Terminated,
    exit_when_terminated,
    interrupt_requests,
    pass_on_termination,
)

pytestmark = pytest.mark.usefixtures("signals_of_a_terminal")


@pytest.fixture(params=[signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def signum(request):
    """A signal that ends the work."""
    return request.param


@pytest.fixture
def handler(signum):
    """Install a handler of the signal until the end of the test."""
    before = signal.getsignal(signum)
    yield lambda new: signal.signal(signum, new)
    signal.signal(signum, before)


def test_the_first_is_a_request_and_the_second_interrupts():
    before = signal.getsignal(signal.SIGINT)
    with interrupt_requests() as interrupt:
        assert not interrupt.requested
        signal.raise_signal(signal.SIGINT)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_handler_is_put_back_also_after_an_error():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError), interrupt_requests():
        assert signal.getsignal(signal.SIGINT) is not before
        raise RuntimeError
    assert signal.getsignal(signal.SIGINT) is before


def test_a_request_does_not_outlive_its_block():
    with interrupt_requests():
        signal.raise_signal(signal.SIGINT)
    with interrupt_requests() as interrupt:
        assert not interrupt.requested


def test_in_another_thread_nothing_is_caught():
    before, seen = signal.getsignal(signal.SIGINT), []

    def work():
        with interrupt_requests() as interrupt:
            seen.append((interrupt.requested, signal.getsignal(signal.SIGINT) is before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, True)]


# ---- signals that end a process ----------------------------------------------------------------


def test_termination_is_a_request_however_often_it_comes(signum):
    before = signal.getsignal(signum)
    with interrupt_requests() as interrupt:
        for _ in range(2):
            signal.raise_signal(signum)
            assert interrupt.requested and interrupt.terminated
    assert signal.getsignal(signum) is before


def test_termination_that_is_ignored_stays_ignored(handler, signum):
    handler(signal.SIG_IGN)
    with exit_when_terminated(), interrupt_requests() as interrupt:
        signal.raise_signal(signum)
        assert not interrupt.requested
    assert signal.getsignal(signum) is signal.SIG_IGN


def test_termination_is_passed_on_to_what_was_there(handler, signum):
    handler(signal.SIG_DFL)
    with pytest.raises(Terminated, match="after 3 draws") as exit:
        pass_on_termination(signum, "after 3 draws")
    assert exit.value.code == 128 + signum and isinstance(exit.value, SystemExit)
    with exit_when_terminated():
        with pytest.raises(Terminated, match=r"^$"):
            signal.raise_signal(signum)
        with pytest.raises(Terminated, match="after 3 draws"):
            pass_on_termination(signum, "after 3 draws")
    assert signal.getsignal(signum) is signal.SIG_DFL
    seen = []
    handler(lambda signum, frame: seen.append(signum))
    with exit_when_terminated():  # leaves a handler of the user's own alone
        pass_on_termination(signum, "after 3 draws")
    assert seen == [signum]

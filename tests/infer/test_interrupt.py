"""Ctrl-C: the first is a request, the second is not, and outside nothing is changed."""

import signal
import threading

import pytest

from bmfjax.infer.interrupt import interrupt_requests


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

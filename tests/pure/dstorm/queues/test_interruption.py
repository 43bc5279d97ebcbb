"""A signal that comes while something must be whole: its exception comes out after it, never within."""

import os
import signal
import sys

import pytest
from queued import gathered, payload, run
from schedules import send

from dstorm import Group
from dstorm.waits import interruption


class Signal(BaseException):
    """What the handler raises."""


def handle():
    """As a signal handler does, in the frame that it interrupts."""
    error = Signal()
    if not interruption.defers(sys._getframe(1), error):
        raise error


sent = interruption.whole(send)
"""A scatter: it sends a message as a whole."""


def test_a_wait_ends_at_once():
    """Also one that a message begins with: nothing is sent then."""

    def live(rank, queues, transport):
        if rank == 0:
            sent(queues, [1], 1, payload(0, 1))
            pause, transport.pause = transport.pause, lambda *_: handle()
            with pytest.raises(Signal):
                sent(queues, [1], 2, payload(0, 2))
            transport.pause = pause
        transport.barrier()
        return len(gathered(queues, [0] if rank else []))

    assert run(live, "aa", sync="notify-ack") == [0, 1]
    assert interruption.pending is None


@pytest.mark.parametrize("raises", [False, True])
def test_it_comes_out_of_the_outermost(raises):
    done = []

    @interruption.whole
    def inner():
        handle()
        done.append("inner")

    @interruption.whole
    def outer():
        inner()
        done.append("outer")
        if raises:
            raise ZeroDivisionError

    with pytest.raises(Signal) as caught:
        outer()
    assert done == ["inner", "outer"] and interruption.pending is None
    assert isinstance(caught.value.__context__, ZeroDivisionError) == raises


def test_code_of_users_is_interrupted_at_once():
    """What it calls of malt is whole again."""
    done = []

    @interruption.whole
    def act():
        handle()
        done.append("act")

    def function(name):
        with pytest.raises(Signal):
            act()
        done.append("after it")
        handle()
        done.append(name)

    @interruption.whole
    def outer():
        try:
            interruption.exposed(function, "function")
        finally:
            done.append("outer")

    with pytest.raises(Signal):
        outer()
    assert done == ["act", "after it", "outer"] and interruption.pending is None


def test_what_is_for_one_thread_is_not_raised_in_another():
    main = Signal()
    interruption.pending, interruption._thread = main, -1
    try:
        assert Group(1, 0).run(lambda rank: interruption.raise_pending()) == [None]
        assert Group(1, 0).run(lambda rank: interruption.raise_in_wait()) == [None]
        assert interruption.pending is main
    finally:
        interruption.pending = None


def test_an_interrupt_that_python_would_raise_at_once_is_deferred():
    """Where no launcher of malt has taken it; not where the program has."""
    done = []

    @interruption.whole
    def act():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("act")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interruption.take_interrupts()
        with pytest.raises(KeyboardInterrupt):
            act()
        assert done == ["act"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        interruption.take_interrupts()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)

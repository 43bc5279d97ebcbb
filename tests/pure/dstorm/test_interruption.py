"""A signal that comes while a message is under way: its exception comes out after the message, never within."""

from __future__ import annotations

import sys

import pytest
from schedules import send
from test_queues import check, payload, run

from dstorm import Group, interruption

pytestmark = pytest.mark.serial


class Signal(BaseException):
    """What the handler raises."""


def handle():
    """As a signal handler does, in the frame that it interrupts."""
    error = Signal()
    if not interruption.defers(sys._getframe(1), error):
        raise error


@pytest.mark.parametrize("moment", range(3))
def test_a_message_is_whole_before_the_exception_comes_out(moment, monkeypatch):
    """Between any two stages: mark, payload, publish."""

    def live(rank, queues, transport):
        if rank == 0:
            flush, flushes = queues.outbox._flush_all, []

            def interrupted():
                flush()
                flushes.append(0)
                if len(flushes) == moment + 1:
                    handle()

            queues.outbox._flush_all = interrupted
            with pytest.raises(Signal):
                send(queues, [1], 1, payload(0, 1))
            assert len(flushes) == 3 and interruption.pending is None
        transport.barrier()
        messages = queues.receive(lambda: [0] if rank else [], newest=True)
        check(messages)
        return len(messages)

    assert run(2, 0, live) == [0, 1]


def test_a_wait_ends_at_once():
    """Also one that a message begins with: nothing is sent then."""

    def live(rank, queues, transport):
        if rank == 0:
            send(queues, [1], 1, payload(0, 1))
            pause, transport.pause = transport.pause, lambda *_: handle()
            with pytest.raises(Signal):
                send(queues, [1], 2, payload(0, 2))
            transport.pause = pause
        transport.barrier()
        return len(queues.receive(lambda: [0] if rank else [], newest=False))

    assert run(2, 0, live, sync="notify-ack") == [0, 1]
    assert interruption.pending is None


def test_what_is_for_one_thread_is_not_raised_in_another():
    main = Signal()
    interruption.pending, interruption._thread = main, -1
    try:
        assert Group(1, 0).run(lambda rank: interruption.raise_pending()) == [None]
        assert interruption.pending is main
    finally:
        interruption.pending = None

"""Every interleaving of a message that crosses to another host, into a slot that an older one has left, with a gather.

The sender runs first, under notify-ack, against a window that records its Puts; acknowledgements are written for it.
All messages but the last one have arrived and are gathered. Then the pieces of the last one arrive, in every order in
which its Puts may, at every access of the receiver.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise

import numpy as np
from schedules import (
    CAPACITY,
    OneEnd,
    RecordingWindow,
    ReplayedWindow,
    Violation,
    _receive,
    arrival_orders,
    every_schedule,
    layout,
    scheduled_reads,
    send,
)

from dstorm import Queues, header, parse

MODE = "notify-ack"


class CutWindow(RecordingWindow):
    """The sender's: a compact message comes in pieces that are cut inside its words, its check and its payload."""

    def put(self, source, peer, offset):
        data = bytes(source)
        if len(data) <= header.NBYTES:
            return super().put(source, peer, offset)
        cuts = [0, 12, 60, header.NBYTES + 6, len(data)]
        self._stage += [(offset + at, data[at:to]) for at, to in pairwise(cuts)]


class AcknowledgingWindow(ReplayedWindow):
    """The receiver's: its acknowledgements go nowhere, as the sender has run before."""

    def prepared(self, source, peer, offset):
        return lambda: None

    def prepared_flush(self, peers):
        return lambda: None

    def flush(self, peers): ...


def crossed_stages(messages, depth):
    """By message, the stages of its Puts. The slot that it goes to has been given back."""
    window = CutWindow(layout(depth).window_nbytes(0), cut_headers=False)
    sender = Queues(OneEnd(0, window), layout(depth), parse(MODE), 1.0)
    found = []
    for number in range(1, messages + 1):
        header.write(window.memory.data, layout(depth).acknowledgement(0, 1), number - 1, number - 1, header.WHOLE)
        send(sender, [1], number, np.full(CAPACITY, number, np.uint8))
        found.append([stage for stage in window.stages if stage])
        window.stages = []
    return found


@contextmanager
def scheduled_checks(window):
    """As `scheduled_reads`, each load of a header one by one, and the payload of a compact message is an access too."""
    check = header._compact_check

    def checked(*arguments):
        window.access()
        return check(*arguments)

    header._compact_check = checked
    try:
        with scheduled_reads(window, twice=True):
            yield
    finally:
        header._compact_check = check


def play_crossed(before, pieces, depth, newest, schedule):
    """Gathers while the last message arrives, and one when all is quiet; Violation where the promises do not hold."""
    window = AcknowledgingWindow(layout(depth).window_nbytes(1), [], schedule)
    receiver = Queues(OneEnd(1, window), layout(depth), parse(MODE), 1.0)
    steps = []
    schedule.closed = True
    for stages in before:
        for offset, data in (piece for stage in stages for piece in stage):
            window.memory[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
        steps += _receive(receiver, newest)
        receiver.acknowledge([])
    schedule.closed, window._pieces = False, list(pieces)
    with scheduled_checks(window):
        steps += _receive(receiver, newest)
    receiver.acknowledge([])
    window.finish()
    steps += _receive(receiver, newest)
    if steps != list(range(1, len(before) + 2)):
        raise Violation(f"of {len(before) + 1} messages came {steps}")


def explore_crossed(messages, depth, newest):
    """Play every schedule; how many there were."""
    count = 0
    *before, last = crossed_stages(messages, depth)
    for pieces in arrival_orders(last):
        for schedule in every_schedule():
            play_crossed(before, pieces, depth, newest, schedule)
            count += 1
    return count

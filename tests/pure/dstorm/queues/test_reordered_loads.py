"""Memory as of a processor that reorders loads: without a sync a payload is seen as it was before its header."""

import numpy as np
import pytest
from ranks import run_ranks
from schedules import CAPACITY, OneEnd, ReplayedWindow, layout

from dstorm import Queues, Slots, header
from dstorm.header import NBYTES, WHOLE
from dstorm.membership.barriers import barrier
from dstorm.membership.barriers.barrier import Barrier
from dstorm.queues.consistency import ASP, BSP, FLOW, NOTIFY_ACK

PAYLOAD = np.full(CAPACITY, 7, np.uint8)


class ReorderedWindow(ReplayedWindow):
    """The receiver's: `arrived` is what has come, `memory` what loads find. A header is found as it is; all else as it
    was at the last sync."""

    def __init__(self, nbytes):
        super().__init__(nbytes, [], None)
        self.arrived = np.zeros(nbytes, np.uint8)

    def load_header(self, offset):
        self.memory[offset : offset + NBYTES] = self.arrived[offset : offset + NBYTES]

    def sync(self):
        self.memory[:] = self.arrived

    def copy(self, offset, destination):
        destination[:] = self.memory[offset : offset + destination.nbytes]


@pytest.fixture
def headers(monkeypatch):
    """Each load of a header finds it as it is: the window must be given as `headers.window`."""

    class Headers:
        window = None

    loads, checked = Headers(), header._checked

    def found(buffer, offset):
        loads.window.load_header(offset)
        return checked(buffer, offset)

    def watched(self):
        return found(self._buffer, self._offset)[1]

    monkeypatch.setattr(header.Watched, "read", watched)
    monkeypatch.setattr(header, "_checked", found)
    return loads


@pytest.mark.parametrize("mode", [ASP, BSP, NOTIFY_ACK, FLOW], ids=lambda mode: mode.name)
@pytest.mark.parametrize("newest", [False, True])
def test_a_payload_is_loaded_after_its_header(mode, newest, headers):
    headers.window = window = ReorderedWindow(layout(2).window_nbytes(1))
    queues = Queues(OneEnd(1, window), layout(2), mode, 1.0)
    queues.inbox.step = 1
    queues.inbox.wait(list, None)  # its sync comes before the message
    slot = layout(2).slots(0, 1)[0]
    header.write(window.arrived.data, slot, 1, 1, WHOLE, nbytes=CAPACITY)
    window.arrived[slot + NBYTES :][:CAPACITY] = PAYLOAD
    if mode is ASP and newest:
        (message,) = queues.inbox.look()
    else:
        (message,) = queues.inbox.take(newest)
    assert message.payload.tolist() == PAYLOAD.tolist()


def test_a_block_is_loaded_after_its_header(headers):
    headers.window = window = ReorderedWindow(4 * NBYTES + CAPACITY)
    transport = OneEnd(1, window)
    transport.connect = lambda peers: None
    slots, block = Slots(transport, [CAPACITY], 1, 1.0), np.zeros(CAPACITY, np.uint8)
    header.write(window.arrived.data, slots._head(0, 0), 1, 0, WHOLE, nbytes=CAPACITY)
    window.arrived[slots._starts[0] :][:CAPACITY] = PAYLOAD
    assert slots.seen(0, 0).number == 1
    slots.take(0, 0, block)
    assert block.tolist() == PAYLOAD.tolist()


def test_what_was_put_before_a_barrier_is_loaded_after_the_entries(monkeypatch):
    def live(transport):
        window, loads = transport.window(barrier.nbytes(2)), []
        one, sync = Barrier(transport, window, 5.0), window.sync
        read = one._cells.read
        monkeypatch.setattr(window, "sync", lambda: (loads.append("sync"), sync()))
        monkeypatch.setattr(one._cells, "read", lambda *words: (loads.append("an entry"), read(*words))[1])
        one.enter("a test")
        return loads

    for loads in run_ranks(live, "aa"):
        assert "an entry" in loads and loads[-1] == "sync"

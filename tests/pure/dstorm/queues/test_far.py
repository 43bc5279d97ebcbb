"""Messages to other hosts under bsp and notify-ack: fewer flushes, none torn, none missed."""

import numpy as np
import pytest
from carried import ROUND_TRIP_S, LateWindow
from mutation import plant
from queued import payload, run
from schedules import OneEnd, RecordingWindow, Violation, complete, explore_crossed, send

from dstorm import Queues, header, parse
from dstorm.header import NBYTES, WHOLE, Header
from dstorm.queues.receiving import receiver
from dstorm.queues.sending import far
from dstorm.queues.sending.edge import OutgoingMessage
from dstorm.queues.sending.far import FarEdges


@pytest.fixture
def long_messages(monkeypatch):
    """All messages are too long for one Put."""
    monkeypatch.setattr(far, "COMPACT_NBYTES", -1)


@pytest.fixture(autouse=True)
def few_retries(monkeypatch):
    """Each retry multiplies the schedules."""
    monkeypatch.setattr(receiver, "_TORN_RETRIES", 2)


SCENARIOS = [dict(messages=2, depth=1, newest=False), dict(messages=3, depth=2, newest=True)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_every_schedule_keeps_the_promises(scenario):
    assert explore_crossed(**scenario) > 100


MUTANTS = {
    "payload_unchecked": ("check.update(", "str("),
    "fields_unchecked": ("_FIELDS.pack(*fields)", 'b""'),
    # The check is that of the header which is there by now, not of the one that was unpacked.
    "header_read_twice": ("_FIELDS.pack(*fields)", "bytes(buffer[offset : offset + _CHECK_AT])"),
    "half_passes_for_whole": ("if is_whole else None", "if True else None"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_some_schedule_catches(mutant, monkeypatch):
    plant(monkeypatch, header, "_checked" if mutant == "half_passes_for_whole" else "_compact_check", MUTANTS[mutant])
    with pytest.raises(Violation):
        explore_crossed(**SCENARIOS[0])


def test_a_long_message_is_not_published_before_it_is_there(long_messages, monkeypatch):
    assert explore_crossed(**SCENARIOS[0]) > 5
    plant(monkeypatch, FarEdges, "send", ("if not self._window.keeps_order and", "if False and"))
    with pytest.raises(Violation):
        explore_crossed(**SCENARIOS[0])


def test_bytes_of_an_older_message_never_pass_for_those_of_a_new_one():
    """Each byte may be the older one's. Numbers of which Python's hash is the same are told apart."""
    older, newer = np.array([-2, 5, 2**61 - 1], np.int64), np.array([-1, 5, 0], np.int64)
    new = np.zeros(NBYTES + newer.nbytes, np.uint8)
    new[NBYTES:] = newer.view(np.uint8)
    message = Header(9, 9, WHOLE, 0, newer.nbytes, taken=2**40 + 1)
    header.write_compact(new.data, message)
    assert header.read(new.data, 0) == message
    old = np.concatenate([new[:NBYTES] ^ 1, older.view(np.uint8)])
    for place in np.flatnonzero(new != old):
        mixed = new.copy()
        mixed[place] = old[place]
        assert header.read(mixed.data, 0) is None


@pytest.mark.parametrize("sync", ["bsp", "notify-ack"])
@pytest.mark.parametrize("keeps_order", [False, True])
def test_a_short_message_takes_one_flush_and_a_long_one_two(sync, keeps_order):
    """One, where Puts keep their order."""

    def flushes(nbytes):
        window = RecordingWindow(1 << 16, cut_headers=False)
        window.keeps_order = keeps_order
        queues = Queues(OneEnd(0, window), complete(2, capacity=8192), parse(sync), 1.0)
        queues.send_each([OutgoingMessage(1, np.ones(nbytes, np.uint8), None, nbytes)], 1)
        return len(window.stages)

    assert [flushes(nbytes) for nbytes in (0, 40, 4096, 4097)] == [1, 1, 1, 1 if keeps_order else 2]


def test_a_long_message_travels_while_the_last_one_is_not_acknowledged(long_messages):
    """The receiver takes long to acknowledge: the payload of the next message is there by then."""
    busy_s = 3 * ROUND_TRIP_S

    def live(rank, queues, transport):
        for step in range(1, 5):
            if rank == 0:
                send(queues, [1], step, payload(0, step))
                continue
            while not (messages := queues.receive(lambda: [0], newest=False)):
                transport.pause(0)
            assert [one.step for one in messages] == [step]
            end = transport.clock() + busy_s
            while transport.clock() < end:
                transport.pause(12)
            queues.acknowledge(messages)
        return transport.clock()

    assert run(live, sync="notify-ack", carried=False, kind=LateWindow)[1] < 4 * busy_s + 10 * ROUND_TRIP_S

"""Messages to other hosts under bsp and notify-ack: fewer flushes, none torn, none missed."""

from __future__ import annotations

import numpy as np
import pytest
from carried import ROUND_TRIP_S, run_carried
from crossed import explore_crossed
from mutation import plant
from schedules import OneEnd, RecordingWindow, Violation, send

from dstorm import DeadlinePassed, Layout, Queues, header, parse
from dstorm.header import NBYTES, WHOLE, Header
from dstorm.queues.receiving import receiver
from dstorm.queues.sending import far
from dstorm.queues.sending.edge import OutgoingMessage
from dstorm.queues.sending.far import FarEdges
from dstorm.queues.unflushed import Unflushed

pytestmark = pytest.mark.serial

CAPACITY = 40


def complete(size, depth=2, capacity=CAPACITY):
    def others(rank):
        return [peer for peer in range(size) if peer != rank]

    return Layout(others, others, depth, capacity)


def payload(rank, step):
    """Every byte shows who sent it and when."""
    return np.full(CAPACITY, (rank * 50 + step) % 251, np.uint8)


def ring(size, depth):
    return Layout(lambda rank: [(rank - 1) % size], lambda rank: [(rank + 1) % size], depth, CAPACITY)


def steps_of(messages):
    for one in messages:
        assert set(one.payload.tolist()) == {(one.sender * 50 + one.step) % 251}
    return [one.step for one in messages]


def run(live, hosts="ab", seed=0, sync="bsp", depth=2, carried=False, shape=complete):
    """live(rank, queues, transport) on all ranks; results by rank."""

    def start(transport):
        queues = Queues(transport, shape(len(hosts), depth), parse(sync), 1.0)
        return live(transport.rank, queues, transport)

    return run_carried(start, hosts, seed, carried)


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


def test_every_schedule_of_a_long_message_keeps_them(long_messages):
    assert explore_crossed(messages=2, depth=1, newest=False) > 5


def payload_unchecked(monkeypatch):
    plant(monkeypatch, header, "_compact_check", ("check.update(", "str("))


def fields_unchecked(monkeypatch):
    plant(monkeypatch, header, "_compact_check", ("_FIELDS.pack(*fields)", 'b""'))


def header_read_twice(monkeypatch):
    """The check is that of the header which is there by now, not of the one that was unpacked."""
    now = "bytes(buffer[offset : offset + _CHECK_AT])"
    plant(monkeypatch, header, "_compact_check", ("_FIELDS.pack(*fields)", now))


def half_passes_for_whole(monkeypatch):
    plant(monkeypatch, header, "_checked", ("if is_whole else None", "if True else None"))


MUTANTS = [payload_unchecked, fields_unchecked, header_read_twice, half_passes_for_whole]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.__name__)
def test_some_schedule_catches(mutant, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(Violation):
        explore_crossed(messages=2, depth=1, newest=False)


def test_a_long_message_is_not_published_before_it_is_there(long_messages, monkeypatch):
    plant(monkeypatch, FarEdges, "send", ("if not self._window.keeps_order and", "if False and"))
    with pytest.raises(Violation):
        explore_crossed(messages=2, depth=1, newest=False)


def test_bytes_of_an_older_message_never_pass_for_those_of_a_new_one():
    """Each byte may be the older one's. Numbers of which Python's hash is the same are told apart."""
    older, newer = np.array([-2, 5, 2**61 - 1], np.int64), np.array([-1, 5, 0], np.int64)
    new = np.zeros(NBYTES + newer.nbytes, np.uint8)
    new[NBYTES:] = newer.view(np.uint8)
    message = Header(9, 9, WHOLE, 0, newer.nbytes, taken=2**40 + 1)
    header.write_compact(new.data, message)
    assert header.read(new.data, 0) == message
    for place in np.flatnonzero(newer.view(np.uint8) != older.view(np.uint8)):
        mixed = new.copy()
        mixed[NBYTES + place] = older.view(np.uint8)[place]
        assert header.read(mixed.data, 0) is None
    for place in range(NBYTES):
        mixed = new.copy()
        mixed[place] ^= 1
        assert header.read(mixed.data, 0) is None


def exchange(steps):
    def live(rank, queues, transport):
        peers, sources = queues.layout.out(rank), queues.layout.into(rank)
        before = transport.clock()
        for step in range(1, steps + 1):
            # Under bsp a rank that sends a step alone must not overtake the message of the step before.
            to = peers if (rank + step) % 3 else []
            send(queues, to, step, payload(rank, step))
            found = queues.receive(lambda: sources, newest=False)
            if queues.consistency.lockstep:
                assert [(one.sender, one.step) for one in found] == [
                    (peer, step) for peer in sources if (peer + step) % 3
                ]
            steps_of(found)
            queues.acknowledge([])
        took_s = transport.clock() - before
        queues.close()  # what comes from now on is acknowledged by nobody
        transport.barrier()
        assert queues.statistics().overwritten == 0
        return took_s

    return live


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("sync", ["bsp", "notify-ack"])
@pytest.mark.parametrize("length", ["short", "long"])
def test_modes_keep_their_promises_across_hosts(sync, depth, seed, length, request):
    if length == "long":
        request.getfixturevalue("long_messages")
    run(exchange(8), "aabb", seed, sync, depth, carried=bool(seed % 2))


def test_a_message_that_overtakes_another_is_caught(monkeypatch):
    plant(monkeypatch, Unflushed, "leave", ("return self._window.flush(left) if left else None", "return"))
    with pytest.raises((AssertionError, RuntimeError)):
        for seed in range(100):
            run(exchange(8), "abc", seed, shape=ring)


def flushes(keeps_order, sync, nbytes):
    """How many flushes a scatter to another host takes."""
    window = RecordingWindow(1 << 16, cut_headers=False)
    window.keeps_order = keeps_order
    queues = Queues(OneEnd(0, window), complete(2, capacity=8192), parse(sync), 1.0)
    queues.send_each([OutgoingMessage(1, np.ones(nbytes, np.uint8), None, nbytes)], 1)
    return len(window.stages)


@pytest.mark.parametrize("sync", ["bsp", "notify-ack"])
def test_a_short_message_takes_one_flush_and_a_long_one_two(sync):
    assert [flushes(False, sync, nbytes) for nbytes in (0, 40, 4096, 4097)] == [1, 1, 1, 2]


@pytest.mark.parametrize("sync", ["bsp", "notify-ack"])
def test_where_puts_keep_order_any_message_takes_one_flush(sync):
    assert [flushes(True, sync, nbytes) for nbytes in (0, 40, 8192)] == [1, 1, 1]


def test_a_long_message_travels_while_the_last_one_is_not_acknowledged(long_messages):
    """The receiver takes long to acknowledge: the payload of the next message is there by then."""
    busy_s = 3 * ROUND_TRIP_S

    def live(rank, queues, transport):
        def wait(seconds):
            end = transport.clock() + seconds
            while transport.clock() < end:
                transport.pause(12)

        for step in range(1, 5):
            if rank == 0:
                send(queues, [1], step, payload(0, step))
                continue
            while not (found := steps_of(queues.receive(lambda: [0], newest=False))):
                transport.pause(0)
            assert found == [step]
            wait(busy_s)
            queues.acknowledge([])
        return transport.clock()

    assert run(live, sync="notify-ack")[1] < 4 * busy_s + 9 * ROUND_TRIP_S


def test_what_a_scatter_has_written_ahead_is_forgotten_where_it_fails(long_messages):
    """The peer has not acknowledged within the deadline. The next scatter sends what it was given."""

    def live(rank, queues, transport):
        def until(time):
            while transport.clock() < time:
                transport.pause(12)

        got = []
        if rank == 0:
            send(queues, [1], 1, payload(0, 1))
            with pytest.raises(DeadlinePassed):
                send(queues, [1], 2, payload(0, 77))
            until(3)
            send(queues, [1], 2, payload(0, 2))
            return got
        for time in (2.4, 4):  # the deadline is 1 s
            until(time)
            got += steps_of(queues.receive(lambda: [0], newest=False))
            queues.acknowledge([])
        return got

    assert run(live, sync="notify-ack")[1] == [1, 2]

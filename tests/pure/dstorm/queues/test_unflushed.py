"""Puts to other hosts that are left to a later flush: fewer round trips; nothing stays behind or is overtaken."""

import math
import threading
from functools import partial
from types import SimpleNamespace

import pytest
import queued
from carried import ROUND_TRIP_S, LateWindow
from mutation import plant
from queued import gathered, payload
from schedules import send

from dstorm import DeadlinePassed, Group, Queues, SimulatedTransport
from dstorm.header import COMPACT_NBYTES
from dstorm.queues.sending.far import FarEdges
from dstorm.queues.unflushed import DELAY_S, Unflushed
from dstorm.transports.transfer import TransferThread

SHORT, LONG = 40, COMPACT_NBYTES + 1


run = partial(queued.run, sync="bsp", deadline_s=2.0, capacity=LONG)


def exchanges(steps, nbytes):
    """As many exchanges with all others; the seconds that they took."""

    def live(rank, queues, transport):
        peers, before = queues.layout.out(rank), transport.clock()
        for step in range(1, steps + 1):
            send(queues, peers, step, payload(rank, step, nbytes))
            assert gathered(queues, peers) == [(peer, step) for peer in peers]
        took_s = transport.clock() - before
        transport.barrier()
        return took_s

    return live


@pytest.mark.parametrize("nbytes", [SHORT, LONG])
@pytest.mark.parametrize("hosts", ["ab", "aabb"])
def test_an_exchange_takes_a_round_trip_less(hosts, nbytes):
    """Here a header comes with its flush at the latest, which the carrier makes."""
    trips = 1 if nbytes == SHORT else 2
    assert max(run(exchanges(20, nbytes), hosts)) < (trips + 0.1) * 20 * ROUND_TRIP_S


@pytest.mark.parametrize("nbytes", [SHORT, LONG])
def test_a_message_to_a_receiver_that_takes_it_at_once_waits_for_no_acknowledgement(nbytes):
    def live(rank, queues, transport):
        before, taken = transport.clock(), 0
        for step in range(1, 21) if rank == 0 else ():
            send(queues, [1], step, payload(0, step, nbytes))
        while rank == 1 and taken < 20:
            taken += len(gathered(queues, [0]))
            transport.pause(9)
        return transport.clock() - before

    trips = 1 if nbytes == SHORT else 2
    assert max(run(live, sync="notify-ack")) < 20 * (trips + 0.25) * ROUND_TRIP_S


def last_header(rank, queues, transport):
    """Rank 0 scatters a long message twice, and makes no call then; the seconds until rank 1 has the second one."""
    for step in (1, 2):
        before = transport.clock()
        if rank == 0:
            send(queues, [1], step, payload(0, step, LONG))
        else:
            send(queues, [], step, payload(1, step))
            queues.receive(lambda: [0], newest=False)
            queues.acknowledge([])
    if rank == 0:
        transport._group.switch(0, 1.0)
    return transport.clock() - before


def last_acknowledgement(rank, queues, transport):
    """Rank 1 gathers once, and makes no call then; the seconds until rank 0 has sent twice."""
    before = transport.clock()
    if rank == 0:
        send(queues, [1], 1, payload(0, 1))
        send(queues, [1], 2, payload(0, 2))
        return transport.clock() - before
    while not gathered(queues, [0]):
        transport.pause(9)
    transport._group.switch(1, 1.0)
    return 0.0


LAST = [(last_header, "bsp", 1), (last_acknowledgement, "notify-ack", 0)]


@pytest.mark.parametrize(("live", "sync", "waits"), LAST)
def test_what_is_left_leaves_though_its_rank_makes_no_call(live, sync, waits, monkeypatch):
    assert run(live, sync=sync, kind=LateWindow)[waits] < 3 * DELAY_S + 3.5 * ROUND_TRIP_S
    monkeypatch.setattr(Unflushed, "start", lambda self: False)
    with pytest.raises(DeadlinePassed):
        run(live, sync=sync, kind=LateWindow)


def test_short_messages_acknowledge_those_that_came_before(monkeypatch):
    def live(rank, queues, transport):
        for edge in queues.inbox.edges.values():
            monkeypatch.setattr(edge, "acknowledge", lambda *_: pytest.fail("it has a Put of its own"))
        for step in range(1, 9):
            send(queues, [1 - rank], step, payload(rank, step))
            if rank == 0 or step < 7:
                assert gathered(queues, [1 - rank]) == [(1 - rank, step)]
        return queues.outbox.edges[1 - rank].ring.taken

    assert run(live) == [6, 6]
    plant(monkeypatch, Unflushed, "take_owed", ("else edge.acknowledged", "else 0"))
    with pytest.raises(pytest.fail.Exception, match="a Put of its own"):
        run(live)


@pytest.mark.parametrize("nbytes", [SHORT, LONG])
def test_two_ranks_that_look_for_the_others_message_find_it(nbytes, monkeypatch):
    """Else both might wait in their next scatter until the other one takes it."""

    def live(rank, queues, transport):
        for step in range(1, 9):
            send(queues, [1 - rank], step, payload(rank, step, nbytes))
            gathered(queues, [1 - rank])

    for seed in range(5):
        run(live, "ab", seed, sync="notify-ack", kind=LateWindow)
    plant(monkeypatch, FarEdges, "send", ("if self._lockstep else", "if True else"))
    with pytest.raises(DeadlinePassed):
        for seed in range(5):
            run(live, "ab", seed, sync="notify-ack", kind=LateWindow)


def overtaken(seed):
    def live(rank, queues, transport):
        peers = queues.layout.out(rank)
        for step in range(1, 9):
            to = peers if (rank + step) % 3 else []
            send(queues, to, step, payload(rank, step, (SHORT, LONG)[step % 2]))
            expected = [(peer, step) for peer in peers if (peer + step) % 3]
            assert gathered(queues, peers) == expected
        transport.barrier()

    run(live, "abc", seed)


MUTANTS = [
    (FarEdges, "send", "if self._unflushed.has_messages and", "if False and"),
    (Unflushed, "complete", "self._window.flush(sorted(peers))", "0"),
    (Unflushed, "leave", "self.has_messages |= bool(peers)", "0"),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: f"{one[1]}: {one[2]}")
def test_a_message_that_overtakes_another_is_caught(mutant, monkeypatch):
    for seed in range(10):
        overtaken(seed)
    owner, name, healthy, sick = mutant
    plant(monkeypatch, owner, name, (healthy, sick))
    with pytest.raises((AssertionError, RuntimeError, DeadlinePassed)):
        for seed in range(20):
            overtaken(seed)


def test_an_acknowledgement_that_is_owed_does_not_hide_that_its_rank_has_closed(monkeypatch):
    def live(rank, queues, transport):
        send(queues, [1 - rank], 1, payload(rank, 1))
        gathered(queues, [1 - rank])
        if rank == 1:
            queues.close()
            transport._group.switch(1, 1.0)  # the carrier says so
        transport.barrier()
        if rank == 0:
            queues.outbox.note_acknowledgement(queues.outbox.edges[1])
            return queues.outbox.edges[1].done
        return True

    assert all(run(live))
    plant(monkeypatch, Queues, "_leave_later", ('self._unflushed.drain("close")', "self._unflushed.complete()"))
    assert not all(run(live))


class Logged(Unflushed):
    """With a carrier that never calls it, and rank 9 as the peer that messages go to. `log`: what it puts and flushes:
    the numbers that are acknowledged as (peer, number), flushes as lists of peers, local ones as tuples."""

    def __init__(self, keeps_order=False):
        self.log = []
        window = SimpleNamespace(
            flush=lambda peers: self.log.append(list(peers)), flush_local=lambda peers: self.log.append(tuple(peers)),
            keeps_order=keeps_order,
        )  # fmt: skip
        carrier = SimpleNamespace(add=lambda load: None, wake=lambda: None, check=lambda: None)
        super().__init__(window, SimulatedTransport(Group(1), 0), carrier, [9])

    def acknowledge_all(self, taken):
        """Acknowledge the messages up to these, by peer."""
        edges = [
            SimpleNamespace(peer=peer, ring=SimpleNamespace(taken=number),
                            acknowledge=lambda number, *_, peer=peer: self.log.append((peer, number)))
            for peer, number in taken.items()
        ]  # fmt: skip
        self.acknowledge(edges, 1)


CALLS = {
    "a second acknowledgement waits until the first is there": (False, [
        (Logged.acknowledge_all, {1: 1}, [(1, 1)]), (Logged.acknowledge_all, {1: 2, 2: 1}, [[1], (1, 2), (2, 1)]),
        (Logged.complete, [3], [[1, 2, 3]]), (Logged.acknowledge_all, {1: 3}, [(1, 3)]), (Logged.drain, "close", [[1]]),
    ]),
    "the newest acknowledgement goes behind the next messages, and once": (False, [
        (Logged.acknowledge_all, {9: 1}, []), (Logged.acknowledge_all, {9: 2}, []), (Logged.leave, [3], [(9, 2)]),
        (Logged.acknowledge_all, {9: 3}, []), (Logged.drain, "barrier", [[3, 9], (9, 3), [9]]),
        (Logged.drain, "barrier", []),
    ]),
    "where Puts keep order all leaves at once, and a collective call waits for it": (True, [
        (Logged.leave, [3], [(3,)]), (Logged.acknowledge_all, {1: 1}, [(1, 1), (1,)]),
        (Logged.acknowledge_all, {1: 2}, [(1, 2), (1,)]), (Logged.drain, "barrier", [[1, 3]]),
    ]),
}  # fmt: skip
"""Whether Puts keep order; calls, with what each of them logs."""


@pytest.mark.parametrize("case", CALLS)
def test_what_is_put_and_flushed(case):
    keeps_order, calls = CALLS[case]
    unflushed = Logged(keeps_order)
    for call, argument, logged in calls:
        call(unflushed, argument)
        assert unflushed.log == logged
        if keeps_order:
            unflushed.before_wait()
            assert (unflushed.has_messages, unflushed.due_at, unflushed.log) == (False, math.inf, logged)
        unflushed.log.clear()


def test_what_is_left_while_the_carrier_flushes_is_not_forgotten():
    unflushed = Logged()
    unflushed.acknowledge_all({1: 1})
    assert not unflushed.start()
    unflushed.due_at = 0.0
    assert unflushed.start()
    unflushed.leave([2])
    unflushed.finish()
    assert unflushed.has_messages
    unflushed.complete()
    assert unflushed.log == [(1, 1), [1, 2]] and not unflushed.has_messages


def test_what_one_thread_leaves_while_another_one_flushes_is_not_forgotten():
    """One is in a collective call, and the other one scatters."""
    unflushed = Logged()
    is_flushing, may_end = threading.Event(), threading.Event()

    def flush(peers):
        is_flushing.set()
        assert may_end.wait(10)
        unflushed.log.append(list(peers))

    unflushed.acknowledge_all({1: 1})
    unflushed._window.flush = flush
    drains = threading.Thread(target=unflushed.drain, args=["barrier"])
    leaves = threading.Thread(target=unflushed.leave, args=[[2]])
    drains.start()
    assert is_flushing.wait(10)
    leaves.start()
    leaves.join(0.2)
    may_end.set()
    drains.join()
    leaves.join()
    assert unflushed.log == [(1, 1), [1]] and unflushed.has_messages


def test_ranks_begin_with_the_rank_after_their_own():
    def order(rank, queues, transport):
        outgoing = queues.outbox.outgoing
        return list(queues.outbox.crossing.edges if outgoing is None else outgoing.edges)

    for sync in ("bsp", "asp"):
        assert run(order, "abcd", sync=sync) == [[1, 2, 3], [2, 3, 0], [3, 0, 1], [0, 1, 2]]


def test_the_thread_looks_again_by_itself_when_a_load_is_due():
    thread, done = TransferThread(SimulatedTransport(Group(1), 0), 5.0), threading.Event()

    class Later:
        due_at = 0.0

        def start(self):
            if self.due_at:
                self.due_at = float("inf")
                done.set()
            else:
                self.due_at = 1e-9
            return False

    thread.add(Later())
    thread.wake()
    assert done.wait(10)
    thread.stop()


@pytest.mark.parametrize("nbytes", [SHORT, LONG])
@pytest.mark.parametrize("calls", ["ssgsg", "sgssgsg"])
def test_what_is_owed_leaves_before_a_scatter_waits(calls, nbytes):
    """A step without a gather is not merged. Then each rank owes what the scatter of the other one waits for."""

    def live(rank, queues, transport):
        (peer,) = queues.layout.out(rank)
        step, found = 0, []
        for call in calls:
            if call == "s":
                step += 1
                send(queues, [peer], step, payload(rank, step, nbytes))
            else:
                found += gathered(queues, [peer])
        return found == [(peer, calls[: at + 1].count("s")) for at, call in enumerate(calls) if call == "g"]

    assert run(live) == [True, True]

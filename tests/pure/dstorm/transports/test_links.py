"""Puts over connections, to ranks that end, stand still, or have been given up."""

import signal
import socket
import threading
import time
from unittest import mock

import numpy as np
import pytest
from processes import wait_for

from dstorm.membership import quorum
from dstorm.membership.quorum import Quorum
from dstorm.transports.links import channels, links
from dstorm.transports.links.arbiter import Arbiter
from dstorm.transports.links.links import Links
from dstorm.waits import interruption

pytestmark = pytest.mark.serial
NBYTES = 1 << 22


class Left(Exception):
    """Stands for the end of the process."""


def begun(function, *arguments):
    """A thread that calls it."""
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def returns(thread, within_s=60):
    """Whether the call of a thread ends in time."""
    thread.join(within_s)
    return not thread.is_alive()


class Pair:
    """Ranks 0 and 1, on hosts of their own. `first`: the links of rank 0, or of rank `lower`, as this `incarnation`."""

    def __init__(self, suspect_after_s=None, lower=0, incarnation=0):
        self.ways = []
        self.memory = [np.zeros(NBYTES, np.uint8) for _ in range(2)]
        self.left = []
        self._before = threading.enumerate()
        (out0, into1), (out1, into0) = self.more(2)
        self._made = []
        self.arbiters = [Arbiter(rank, 2, incarnation=incarnation if rank == lower else 0) for rank in range(2)]
        out, into = {1 - lower: out0}, {1 - lower: into0}
        self.first = Links(self.memory[lower], out, into, self.arbiters[lower], self._leave, suspect_after_s)
        self._second = ({0: out1}, {0: into1}, self.arbiters[1], self._leave, suspect_after_s)

    def more(self, number):
        """So many connections more."""
        self.ways += [socket.socketpair() for _ in range(number)]
        return self.ways[-number:]

    def again(self):
        """Connections of rank 1's next incarnation: its own ends, to rank 0 and from it, and those that rank 0 gets."""
        (to, into0), (from_, out0) = self.more(2)
        return to, from_, (out0, into0)

    def links(self, *arguments, **options):
        """Links that are closed at the end."""
        self._made.append(Links(*arguments, **options))
        return self._made[-1]

    def second(self):
        return self.links(self.memory[1], *self._second)

    def end_second(self):
        """As the system does when a process ends."""
        for connection in (self.ways[0][1], self.ways[1][0]):
            connection.shutdown(socket.SHUT_RDWR)

    def cut(self):
        """As a network does that drops the connections of two live ranks."""
        for way in self.ways:
            for connection in way:
                channels.shut(connection)

    def _leave(self, why):
        self.left.append(why)
        raise Left(why)

    def close(self):
        for one in (self.first, *self._made):
            one.close()
        for way in self.ways:
            for connection in way:
                channels.shut(connection)
        for thread in threading.enumerate():
            if thread.name in ("malt link", "malt heartbeat") and thread not in self._before:
                thread.join(5)
        for way in self.ways:
            for connection in way:
                connection.close()


@pytest.fixture
def make(monkeypatch):
    monkeypatch.setattr(links, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(quorum, "SETTLE_S", 0.1)
    monkeypatch.setattr(quorum, "ALONE_S", 0.2)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)  # of those that have left
    made = []

    def pair(*args, **kwargs):
        made.append(Pair(*args, **kwargs))
        return made[-1]

    yield pair
    for one in made:
        one.close()


@pytest.fixture
def pair(make):
    """A pair of which both ranks have their links."""
    made = make()
    made.second()
    return made


def test_what_was_put_is_there_after_the_flush(pair):
    generator = np.random.default_rng(0)
    for nbytes in (1, 63, 64, 65, channels.BUFFER_NBYTES - 24, channels.BUFFER_NBYTES, NBYTES - 7):
        payload = generator.integers(0, 256, nbytes, np.uint8)
        pair.first.put(payload, 1, 7)
        pair.first.prepared(payload[:1], 1, 3)()
        pair.first.put(payload[:0], 1, 0)
        pair.first.flush([1])
        np.testing.assert_array_equal(pair.memory[1][7 : 7 + nbytes], payload)
        assert pair.memory[1][3] == payload[0]
    payload = np.arange(3000, dtype=np.uint16).view(np.uint8)
    for place in range(3000):  # many small ones at once
        pair.first.put(payload[2 * place : 2 * place + 2], 1, 2 * place)
    pair.first.flush([1])
    np.testing.assert_array_equal(pair.memory[1][:6000], payload)
    assert not pair.memory[0].any()


@pytest.mark.parametrize("offset", [-1, NBYTES - 3])
def test_nothing_is_written_beyond_the_memory(pair, offset):
    pair.first.put(np.ones(4, np.uint8), 1, offset)
    pair.first.flush([1])
    assert not pair.memory[1].any()


def test_rows_may_be_asked_for_in_more_bytes_than_the_memory_has(pair):
    pair.memory[1][:] = np.arange(NBYTES) % 251
    places = np.random.default_rng(0).integers(0, NBYTES, NBYTES // 8)
    found = np.empty((len(places), 1), np.uint8)
    assert pair.first.get(found, 1, 0, places) == found.nbytes + places.nbytes
    np.testing.assert_array_equal(found[:, 0], places % 251)


def test_both_may_send_much_at_once(make):
    pair = make()
    second = pair.second()
    payload = np.ones(NBYTES, np.uint8)

    def send(here, peer):
        for _ in range(20):
            here.put(payload, peer, 0)
            here.flush([peer])

    threads = [begun(send, pair.first, 1), begun(send, second, 0)]
    assert all(map(returns, threads))
    assert pair.memory[0].all() and pair.memory[1].all()


@pytest.mark.parametrize("nbytes", [8, NBYTES])
def test_a_flush_towards_one_that_ends_returns(make, nbytes):
    pair = make()  # nobody answers there
    threading.Timer(0.2, pair.end_second).start()
    pair.first.put(np.ones(nbytes, np.uint8), 1, 0)
    pair.first.flush([1])
    wait_for(lambda: pair.arbiters[0].failed() == [1])
    pair.first.put(np.ones(nbytes, np.uint8), 1, 0)
    pair.first.flush([1])
    assert not pair.left


def test_what_it_sent_before_it_ended_arrives_before_it_is_gone(make):
    pair = make()
    head = channels.HEAD.pack(channels.PUT, 5, 3)
    for part in (head[:10], head[10:] + b"ab", b"c"):
        pair.ways[1][0].send(part)
    pair.end_second()
    wait_for(lambda: pair.arbiters[0].failed() == [1])
    assert pair.memory[0][5:8].tobytes() == b"abc"


@pytest.mark.parametrize("nbytes", [8, NBYTES])
def test_one_that_is_silent_is_given_up_and_told(make, nbytes):
    pair = make(suspect_after_s=0.4)
    start = time.monotonic()
    pair.first.put(np.ones(nbytes, np.uint8), 1, 0)
    pair.first.flush([1])
    assert 0.3 < time.monotonic() - start < 60
    wait_for(lambda: pair.arbiters[0].failed() == [1])
    pair.first.part({1: 0})  # as the transport does then
    assert not pair.left
    with pytest.raises(OSError):  # what it sends late does not arrive
        for _ in range(100):
            pair.ways[1][0].send(channels.HEAD.pack(channels.PUT, 0, 1) + b"x")
            time.sleep(0.01)
    assert not pair.memory[0].any()


def test_the_smaller_part_leaves(make):
    pair = make(suspect_after_s=0.4, lower=1)
    wait_for(lambda: pair.left)
    assert "it has lost ranks [0], which may be going on" in pair.left[0]


def test_who_was_given_up_leaves(pair):
    pair.first.cut([1])
    wait_for(lambda: pair.left)
    assert "the others go on without it" in pair.left[0]


def test_who_is_cut_off_learns_it_though_a_flush_waits_for_it(make):
    """The thread that waits holds the lock of the connection on which it sends."""
    pair = make()  # nobody answers there
    flush = begun(pair.first.flush, [1])
    assert not returns(flush, 0.2)
    pair.first.cut([1])
    assert returns(flush)
    said = pair.ways[1][0]
    said.settimeout(60)
    received = b""
    while data := said.recv(4096):
        received += data
    assert channels.CUT in received


def test_who_is_cut_off_learns_it_though_a_heartbeat_is_being_sent(make, monkeypatch):
    monkeypatch.setattr(links, "HEARTBEAT_S", 0.3)
    pair = make()
    sending = pair.first._into[1]._lock
    sending.acquire()
    threading.Timer(0.01, sending.release).start()
    pair.first.cut([1])
    pair.ways[1][0].settimeout(60)
    assert channels.CUT in pair.ways[1][0].recv(4096)


def test_of_two_that_lose_their_connection_one_goes_on(pair):
    time.sleep(0.1)
    pair.cut()
    wait_for(lambda: pair.left and pair.arbiters[0].failed() == [1])
    assert len(pair.left) == 1 and "rank" in pair.left[0] and pair.arbiters[1].failed() == []
    assert pair.arbiters[0].was_cut_off(1)
    pair.first.settle()


def test_one_that_ends_in_order_is_no_loss(make):
    """Though it is the lower one, the other goes on."""
    pair = make()
    second = pair.second()
    pair.first.close()
    wait_for(lambda: 0 in second._leaving)
    pair.cut()
    wait_for(lambda: pair.arbiters[1].failed() == [0])
    assert not pair.left and not pair.arbiters[1].was_cut_off(0)


def test_the_end_is_said_though_rows_are_being_sent(make):
    pair = make()
    other = pair.second()
    sending = pair.first._into[1]._lock
    sending.acquire()
    threading.Timer(0.1, sending.release).start()
    pair.first.close()
    wait_for(lambda: 0 in other._leaving)


@pytest.mark.parametrize("held", ["its own connection", "that to it, for a while"])
def test_an_evicted_rank_ends_whatever_threads_hold(make, held):
    """Its main thread may be held up in a flush. That of the other rank may be in one as it evicts."""
    pair = make()
    second = pair.second()
    lock = second._out[0].lock if held == "its own connection" else pair.first._out[1].lock
    with lock:
        pair.first.evict(1)
        if held == "its own connection":
            wait_for(lambda: pair.left)
        else:
            time.sleep(0.2)
    wait_for(lambda: pair.left)
    assert "rank 0 waits for it no longer" in pair.left[0]


def test_the_next_incarnation_of_an_evicted_rank_is_not_asked_to_end(make, monkeypatch):
    """It may be linked as the former one is about to be asked."""
    pair, joined, dismiss = make(), [], channels.Outgoing.try_dismiss
    ways = pair.more(6)
    to1, to2, from1, from2, again, back = (way[0] for way in ways)
    three = pair.links(pair.memory[0], {1: to1, 2: to2}, {1: from1, 2: from2}, Arbiter(0, 3), pair._leave)

    def dismiss_late(way):
        if way.peer == 1 and not joined:
            three.join(2, 1, again, back)
            joined.append(2)
        dismiss(way)

    monkeypatch.setattr(channels.Outgoing, "try_dismiss", dismiss_late)
    for rank in (2, 1):
        three.evict(rank)
    wait_for(lambda: joined)
    ways[4][1].settimeout(0.2)
    with pytest.raises(TimeoutError):
        ways[4][1].recv(1)


def test_to_evict_waits_for_nobody():
    here, there = socket.socketpair()
    way = channels.Outgoing(1, here, int, lambda *_: None)
    with here, there:
        here.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                here.send(bytes(1 << 16))
        here.settimeout(None)
        assert returns(begun(way.try_dismiss)) and not way.broken  # it takes no more
        while there.recv(1 << 20, socket.MSG_DONTWAIT | socket.MSG_PEEK)[:1] == b"\0":
            there.recv(1 << 20)
            way.try_dismiss()
        assert channels.HEAD.unpack(there.recv(channels.HEAD.size))[0] == channels.LEAVE


def test_nothing_follows_half_a_request():
    way = channels.Outgoing(1, mock.Mock(send=lambda data, flags: len(data) // 2), int, lambda *_: None)
    way.try_dismiss()
    assert way.broken and way.is_done()


def test_a_rank_is_confirmed_by_those_that_keep_it_alone(make):
    pair = make()
    second = pair.second()
    pair.first.confirm()
    second.confirm()
    assert not pair.left
    pair.arbiters[0].suspect([1])
    confirmed = []
    asking = begun(lambda: (second.confirm(), confirmed.append(1)))
    wait_for(lambda: pair.left)  # the process would have ended; either thread may be the first that hears of it
    assert not confirmed
    second.close()
    assert returns(asking)


def test_a_signal_as_a_rank_asks_to_be_confirmed_leaves_no_lock_taken(pair, monkeypatch):
    """Else no flush to the peer returns any more."""

    def interrupted(way, number):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(channels.Outgoing, "question", interrupted)
    before = signal.signal(signal.SIGINT, interruption._interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            pair.first.confirm()
    finally:
        signal.signal(signal.SIGINT, before)
    lock = pair.first._out[1].lock
    assert lock.acquire(timeout=5)
    lock.release()


def test_nothing_is_written_once_parted(make, monkeypatch):
    """What the peer sent last waits unread while it is parted from; the reader is slow."""
    hear = Links._hear
    monkeypatch.setattr(Links, "_hear", lambda self, peer: (time.sleep(0.05), hear(self, peer)))
    pair = make()
    nbytes = 1 << 16
    connection = pair.ways[1][0]
    for place in range(2):
        connection.send(channels.HEAD.pack(channels.PUT, place * nbytes, nbytes) + b"x" * nbytes)
    pair.first.part({1: 0, 5: 0})
    after = pair.memory[0].copy()
    assert after.any()
    time.sleep(0.3)
    np.testing.assert_array_equal(pair.memory[0], after)


def test_one_that_takes_a_long_message_slowly_is_heard_meanwhile(make, monkeypatch):
    fill = channels._Arrivals.fill

    def slow(arrivals, into):
        """In 16 pieces, which take three times the heartbeat timeout."""
        for start in range(0, into.nbytes, NBYTES // 16):
            time.sleep(0.1)
            if not fill(arrivals, into[start : start + NBYTES // 16]):
                return False
        return True

    monkeypatch.setattr(channels._Arrivals, "fill", slow)
    pair = make(suspect_after_s=0.5)
    pair.second()
    pair.first.put(np.ones(NBYTES, np.uint8), 1, 0)
    pair.first.flush([1])
    assert pair.memory[1].all() and pair.arbiters[0].failed() == [] and not pair.left


def test_a_beat_is_no_end_of_a_flush(make):
    pair = make()
    pair.ways[0][1].send(channels.ALIVE * 100)
    flush = begun(pair.first.flush, [1])
    assert not returns(flush, 0.2)
    pair.ways[0][1].send(channels.DONE)
    assert returns(flush)


@pytest.fixture
def joins(make):
    """A pair whose rank 1 has ended, and the ends of the connections that it makes again: to rank 0, and from it."""
    pair = make()
    pair.second().close()
    pair.end_second()
    wait_for(lambda: pair.arbiters[0].failed() == [1])
    pair.known = {(1, 0)}
    pair.first.takes_part = lambda *one: one in pair.known
    return pair, *pair.again()


def putting(connection, data):
    """What a peer sends these bytes with, to place 8; they and the flush are sent."""
    way = channels.Outgoing(0, connection, int, lambda *_: None)
    way.put(np.frombuffer(data, np.uint8), 8)
    way.ask()
    return way


def await_flush(way):
    way.connection.settimeout(60)
    while not way.is_done():  # heartbeats and votes may come before the answer
        assert way.listen()
    assert not way.broken


def test_a_rank_that_was_started_again_is_heard_once_the_former_one_is_parted(joins):
    pair, to, from_, ours = joins
    way = putting(to, b"\1\2\3\4")
    pair.first.join(1, 1, *ours)
    time.sleep(0.1)
    assert not pair.memory[0].any()
    pair.known.clear()
    pair.first.part({1: 0})
    await_flush(way)
    assert bytes(pair.memory[0][8:12]) == b"\1\2\3\4"
    pair.first.put(np.full(2, 7, np.uint8), 1, 40)
    begun(pair.first.flush, [1])
    head = from_.recv(channels.HEAD.size + 2, socket.MSG_WAITALL)
    assert channels.HEAD.unpack_from(head) == (channels.PUT, 40, 2) and head[-2:] == b"\7\7"
    from_.sendall(channels.DONE)


def test_one_whose_former_incarnation_is_not_parted_waits_to_be_a_member(make, monkeypatch):
    """The main thread of this rank computes for long. The newcomer would be left out for the end of the former one."""
    monkeypatch.setattr(quorum, "ECHO_S", 0.1)
    pair, arbiter, lowest, known = make(), Arbiter(1, 3), Quorum(0, 3), {(2, 0)}
    ways = pair.more(4)
    to, from_, again, back = (way[0] for way in ways)
    three = pair.links(pair.memory[0], {2: to}, {2: from_}, arbiter, pair._leave)
    three.takes_part = lambda *one: one in known
    for _, former in ways[:2]:
        channels.shut(former)
    three.join(2, 1, again, back)

    def is_admitted():
        """Each of both ranks tells the other its state."""
        lowest.note(1, arbiter._quorum.state, time.monotonic())
        lowest.note_over({2: 0})
        lowest.decide(time.monotonic())
        found = lowest.propose(2, 1)
        arbiter.note(0, lowest.state.to_bytes())
        return found

    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert not is_admitted() and arbiter._quorum.state.epoch == 0
    known.clear()
    three.part({2: 0})
    wait_for(is_admitted)
    assert lowest.members == arbiter._quorum.members == 0b111


def test_nothing_that_was_put_for_a_former_incarnation_reaches_the_next(joins):
    pair, _, from_, ours = joins
    pair.first.put(np.full(2, 7, np.uint8), 1, 40)
    pair.first.join(1, 1, *ours)
    pair.first.put(np.full(2, 8, np.uint8), 1, 40)
    pair.first.flush([1])
    pair.first.part({1: 0})
    from_.settimeout(0.2)
    with pytest.raises(TimeoutError):
        from_.recv(1)


@pytest.mark.parametrize("is_parted_first", [True, False])
def test_one_that_came_back_is_linked_and_its_end_is_a_failure_again(joins, is_parted_first):
    """Also where the failure of the former one is noted late."""
    pair, to, _, ours = joins
    pair.known.clear()
    if is_parted_first:
        pair.first.part({1: 0})
    pair.first.join(1, 1, *ours)
    if not is_parted_first:
        pair.first.part({1: 0})
    to.sendall(channels.HEAD.pack(channels.PUT, 8, 1) + b"\1")
    wait_for(lambda: pair.memory[0][8] == 1)
    wait_for(lambda: pair.arbiters[0].propose(1, 1))
    assert pair.arbiters[0].failed() == []
    channels.shut(to)
    wait_for(lambda: pair.arbiters[0].failed() == [1])


def test_one_that_ends_before_it_takes_part_leaves_its_place_to_the_next(joins):
    pair, former, _, ours = joins
    pair.known.clear()
    pair.first.part({1: 0})
    pair.first.join(1, 1, *ours)
    channels.shut(former)
    to, _, next_ones = pair.again()
    pair.first.join(1, 3, *next_ones)
    _, _, late = pair.again()
    pair.first.join(1, 2, *late)  # its thread came later
    await_flush(putting(to, b"\1"))
    assert pair.memory[0][8] == 1
    assert [one.fileno() for one in (*ours, *late)] == [-1] * 4


def test_one_that_came_back_and_ends_in_order_has_ended(make):
    """Also for a rank that was started again itself, and so has found the other as it was."""
    pair = make()
    pair.first._incarnations[1] = 2
    pair.arbiters[0].note_over({1: 1})
    second = pair.second()
    second.close()
    pair.end_second()
    wait_for(lambda: pair.arbiters[0]._quorum.state.over[1] == 3)


def test_one_that_ends_while_it_is_admitted_is_a_failure_again(joins):
    pair, to, _, ours = joins
    pair.known.clear()
    pair.first.join(1, 1, *ours)
    channels.shut(to)
    pair.first._receivers[1].join()
    arbiter = pair.arbiters[0]
    arbiter.is_linked = lambda rank: True  # when it was accepted
    arbiter.decide()  # the former incarnation is no member
    arbiter.propose(1, 1)
    wait_for(lambda: arbiter.was_cut_off(1))


def test_one_that_is_no_member_yet_is_not_waited_for(joins):
    """It may still be starting, or have ended with its host."""
    pair, _, _, ours = joins
    pair.known.clear()
    pair.first.join(1, 1, *ours)
    assert returns(begun(pair.first.flush, [1]), 10) and not pair.first._out[1].is_done()


def test_to_part_a_rank_waits_for_none_that_is_linked_meanwhile(joins, monkeypatch):
    pair, _, _, ours = joins
    monkeypatch.setattr(links, "_PART_S", 3600.0)
    cut_off = pair.first._cut_off

    def cut_off_then_join(*one):
        monkeypatch.setattr(pair.first, "_cut_off", cut_off)
        cut_off(*one)
        pair.first.join(1, 1, *ours)

    pair.known.clear()
    monkeypatch.setattr(pair.first, "_cut_off", cut_off_then_join)
    assert returns(begun(pair.first.part, {1: 0}), 10) and pair.first._incarnations[1] == 1


def test_one_that_is_linked_as_the_former_one_is_suspected_stays_linked(make, monkeypatch):
    pair, joined = make(), []
    pair.second()
    suspect = pair.arbiters[0].suspect

    def suspect_late(lost):
        if threading.current_thread().name == "malt heartbeat" and not joined:
            joined.append(begun(pair.first.join, 1, 1, *pair.again()[2]))
            joined[0].join(0.5)
        suspect(lost)

    monkeypatch.setattr(pair.arbiters[0], "suspect", suspect_late)
    pair.first._out[1].broken = True
    wait_for(lambda: joined)
    assert returns(joined[0])
    time.sleep(0.1)
    assert pair.first._incarnations[1] == 1 and not pair.first._out[1].broken


@pytest.mark.parametrize("late", ["its turn", "at it"])
def test_what_a_former_incarnation_has_said_of_its_end_is_not_said_of_the_next_one(pair, monkeypatch, late):
    """A thread has received it, and waits for its turn, or is at it, as the next incarnation is linked."""
    (_, _, ours), take, joined = pair.again(), channels.Outgoing._take, []

    class Leaving(set):
        def add(self, rank):
            if late == "at it":
                join_meanwhile()
            super().add(rank)

    def join_meanwhile():
        if not joined:
            joined.append(begun(pair.first.join, 1, 1, *ours))
            joined[0].join(0.5)

    def take_late(way, received):
        if late == "its turn" and channels.END in received:
            join_meanwhile()
        take(way, received)

    monkeypatch.setattr(channels.Outgoing, "_take", take_late)
    pair.first._leaving = Leaving()
    pair.ways[0][1].sendall(channels.END)
    wait_for(lambda: joined)
    assert returns(joined[0])
    channels.shut(ours[1])
    pair.first._receivers[1].join(60)
    assert pair.arbiters[0]._quorum.state.over[1] == 1


def test_the_end_of_a_former_incarnation_that_is_seen_late_is_not_that_of_the_next(pair, monkeypatch):
    """Its receiver was given up, as the next one was linked."""
    joined = []

    class Ended(set):
        def add(self, rank):
            if not joined:
                joined.append(begun(pair.first.join, 1, 1, *pair.again()[2]))
                joined[0].join(0.5)
            super().add(rank)

    monkeypatch.setattr(links, "_PART_S", 0.0)
    pair.first._ended = Ended()
    pair.end_second()
    wait_for(lambda: joined)
    assert returns(joined[0])
    wait_for(lambda: pair.first._incarnations.get(1) == 1)
    time.sleep(0.1)
    assert not pair.first._out[1].broken and not pair.first._ended


def test_one_that_is_admitted_though_it_is_not_linked_is_suspected(make):
    pair = make()
    arbiter = Arbiter(0, 2)
    pair.links(pair.memory[0], {}, {}, arbiter, pair._leave, unreached=[1])
    arbiter.is_linked = lambda rank: True  # it has waited for that long enough
    wait_for(lambda: arbiter.failed() == [1])
    arbiter.propose(1, 1)
    wait_for(lambda: arbiter._quorum.state.incarnations[1] == 1 and arbiter.was_cut_off(1))


def test_one_that_is_no_member_yet_waits_for_no_flush(make):
    """The other may still be starting, and wait for this one."""
    pair = make(lower=1, incarnation=1)
    assert returns(begun(pair.first.flush, [0])) and pair.left == [] and not pair.first._out[0].is_done()


def test_a_flush_towards_one_that_is_known_to_have_ended_returns(make):
    """The network has dropped what its host said of its end: nothing comes of it any more."""
    pair = make()
    flush = begun(pair.first.flush, [1])
    assert not returns(flush, 0.1)
    pair.arbiters[0].note_over({1: 0})
    assert returns(flush, 15)


def test_one_that_is_no_member_yet_suspects_nobody(make):
    pair = make(suspect_after_s=0.0, lower=1, incarnation=1)
    pair.first._suspect_silent()
    assert not pair.first._out[0].broken

"""What every Window and every Transport promises (dstorm/transport.py), and every edge between two ranks.

`run(body)` runs body(transport) on each rank of a group, side by side, and returns what they returned, or that of this
rank alone. An implementation passes the checks, or says in its own test which promises it does not make.
"""

import json
import threading
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

from dstorm import ClosedError, DeadlinePassed, Layout, MismatchedCalls, OutgoingMessage, Queues, parse
from dstorm.queues.consistency import FLOW


def check_window(run):
    """A window's memory, Puts, flushes, copies, and its end."""
    changes = [partial(_puts_from_a_source_that_changes, flush=flush) for flush in ("flush", "flush_local")]
    for body in (_zeroed, _puts, *changes, _prepared, _gets, _copies, _freed):
        run(body)


def check_transport(run, has_deadlines=True):
    """A transport's ranks, collectives, barriers and signs of life. `has_deadlines`: whether a barrier has one, and a
    rank that uses no vector any more says so."""
    run(_ranks)
    check_collectives(run)
    for body in (_barrier, _signs_of_life, _harmless):
        run(body)
    if has_deadlines:
        for body in (_patience, _closes):
            run(body)
    run(_mismatched)


def check_collectives(run):
    """The collective calls of a transport alone."""
    for body in (_allgather, _alltoall, _allreduce, _weighted, _broadcast):
        run(body)


def check_edge(run, renews=True, has_threads=False):
    """Messages from rank to rank, by `Queues` alone, in each mode: what is sent, taken, overwritten and counted, and
    who waits for whom.

    `renews`: whether edges may begin anew, as where a rank comes back. `has_threads`: whether other threads of a rank
    may make its calls.
    """
    modes = {
        MODES: [_whole, _at_their_own_pace, _unmerged, _closed],
        (ASP, SSP): [_overwritten, _looked, _joined],
        (ASP, BSP): [_sent_again],
        (parse("ssp:0"), parse("ssp:3")): [_bounded],
        (parse("ssp:0"), BSP): [_steps_alone, _in_vain],
        (BSP, NOTIFY_ACK): [_in_a_cycle],
        (BSP, NOTIFY_ACK, FLOW): [_fast, _not_sent, _let_go],
        (BSP,): [_skipped],
    }
    bodies = [(body, some) for some, bodies in modes.items() for body in bodies]
    bodies += [(_renewed, MODES)] if renews else []
    bodies += [(_in_turn, [ASP]), (_ended_by_another_thread, [BSP])] if has_threads else []
    run(lambda transport: [body(transport, mode) for body, some in bodies for mode in some])


def _others(transport):
    return [rank for rank in range(transport.size) if rank != transport.rank]


def _zeroed(transport):
    """Each rank has as much as it asked for, at least, and peers may ask for other sizes; all of it is zero."""
    window = transport.window(100 + 10 * transport.rank)
    assert window.memory.nbytes >= 100 + 10 * transport.rank and window.memory.dtype == np.uint8
    assert not window.memory.any()
    transport.barrier()
    window.free()


def _puts(transport):
    """What was put before a flush is in the peers' memory after it, in any number of Puts; nothing else changes."""
    size, mine, others = transport.size, transport.rank, _others(transport)
    window = transport.window(64 * size)
    for peer in others:
        window.put(np.full(8, 1 + mine, np.uint8), peer, 64 * mine)
        window.put(np.full(1, 100 + mine, np.uint8), peer, 64 * mine + 63)
        window.put(np.empty(0, np.uint8), peer, 64 * mine)
    window.flush(others)
    transport.barrier()
    window.sync()
    wanted = np.zeros((size, 64), np.uint8)
    for peer in others:
        wanted[peer, :8], wanted[peer, 63] = 1 + peer, 100 + peer
    np.testing.assert_array_equal(window.memory[: 64 * size].reshape(size, 64), wanted)
    transport.barrier()
    window.free()


def _puts_from_a_source_that_changes(transport, flush):
    """It may, after either flush; and the memory may be written to by its own rank."""
    size, mine, others = transport.size, transport.rank, _others(transport)
    window, source = transport.window(8 * size), np.full(8, 1 + mine, np.uint8)
    window.memory[8 * mine : 8 * mine + 8] = 50 + mine
    for peer in others:
        window.put(source, peer, 8 * mine)
    getattr(window, flush)(others)
    source[:] = 99
    window.flush(others)
    transport.barrier()
    window.sync()
    found = window.memory[: 8 * size].reshape(size, 8)
    assert all((found[rank] == (50 if rank == mine else 1) + rank).all() for rank in range(size))
    transport.barrier()
    window.free()


def _prepared(transport):
    """A prepared Put takes its source as it is when started, any number of times."""
    mine, others = transport.rank, _others(transport)
    window, source = transport.window(8 * transport.size), np.zeros(8, np.uint8)
    puts = [window.prepared(source, peer, 8 * mine) for peer in others]
    flush, flush_none = window.prepared_flush(others), window.prepared_flush([])
    for turn in (1, 2):
        source[:] = 10 * turn + mine
        for put in puts:
            put()
        flush()
        flush_none()
        transport.barrier()
        window.sync()
        for peer in others:
            assert (window.memory[8 * peer : 8 * peer + 8] == 10 * turn + peer).all()
        transport.barrier()
    window.free()


def _gets(transport):
    """What lies in any rank's memory, at any offset: bytes, or rows in any order, also more than once."""
    window = transport.window(300_000)
    window.memory[:300_000] = np.arange(300_000) % 251 + transport.rank
    window.sync()
    transport.barrier()
    for peer in range(transport.size):
        wanted = (np.arange(300_000) % 251 + peer).astype(np.uint8)
        for offset, nbytes in ((0, 300_000), (13, 7), (5, 0)):
            found = np.zeros(nbytes, np.uint8)
            assert window.get(found, peer, offset) >= nbytes
            np.testing.assert_array_equal(found, wanted[offset : offset + nbytes])
        for places in ([], [3], [20_000, 0, 7, 0]):
            rows = np.zeros((len(places), 12), np.uint8)
            assert window.get(rows, peer, 64, np.array(places, np.int64)) >= rows.nbytes
            np.testing.assert_array_equal(rows, wanted[64 : 64 + 12 * 20_001].reshape(-1, 12)[places])
    transport.barrier()
    window.free()


def _copies(transport):
    """What lies in this rank's memory, at any offset."""
    window, found = transport.window(40), np.empty(7, np.uint8)
    window.memory[:40] = np.arange(40)
    window.copy(5, found)
    assert found.tolist() == [5, 6, 7, 8, 9, 10, 11]
    transport.barrier()
    window.free()


def _freed(transport):
    """A second call does nothing; what is made next is zeroed again."""
    window = transport.window(100)
    window.memory[:] = 7
    transport.barrier()
    window.free()
    window.free()
    again = transport.window(100)
    assert not again.memory.any()
    transport.barrier()
    again.free()


def _ranks(transport):
    """Who is in the group, on which hosts, and alive."""
    size = transport.size
    assert 0 <= transport.rank < size == len(transport.hosts)
    mine = transport.hosts[transport.rank]
    assert all(rank != transport.rank and transport.hosts[rank] == mine for rank in transport.local_peers)
    assert transport.library and "\n" not in transport.library
    assert transport.view is transport.view and transport.view.alive == tuple(range(size))
    assert (transport.view.version, transport.view.failed) == (0, frozenset())
    everyone = transport.allgather(str(transport.rank).encode())
    assert [int(text) for text in everyone] == list(range(size))


def _allgather(transport):
    """By rank, of any length, also none."""
    for nbytes in (1, 1000, 150_000):
        given = [bytes([rank]) * (rank * nbytes) for rank in range(transport.size)]
        assert transport.allgather(given[transport.rank]) == given


def _alltoall(transport):
    """What each rank has sent to this one, of any length, also none; not changed by what its sender does afterwards."""

    def given(sender, receiver):
        return np.full((sender + 2 * receiver) % 3 * 200_000, 1 + sender + 10 * receiver, np.uint8)

    parts = {peer: given(transport.rank, peer) for peer in range(transport.size) if (peer + transport.rank) % 3 != 1}
    received = transport.alltoall(parts)
    for part in parts.values():
        part[:] = 0
    assert list(received) == list(range(transport.size))
    for sender, part in received.items():
        wanted = given(sender, transport.rank)[: None if (sender + transport.rank) % 3 != 1 else 0]
        np.testing.assert_array_equal(part, wanted)
    assert all(part.nbytes == 0 for part in transport.alltoall({}).values())


def _allreduce(transport):
    """Mean, sum, maximum and minimum; the same bits on all."""
    size = transport.size
    values = [np.array([[0.1 * (1 + rank)], [-rank]], np.float32) for rank in range(size)]
    total = values[0].copy()
    for other in values[1:]:
        total += other
    wanted = {"sum": total, "mean": total / np.float32(size), "max": np.max(values, 0), "min": np.min(values, 0)}
    for op, result in wanted.items():
        array = values[transport.rank].copy()
        transport.allreduce(array, op)
        np.testing.assert_array_equal(array, result, strict=True)
    for array in (np.array(2.0 * transport.rank), np.empty(0, np.float16)):
        before = array.shape
        transport.allreduce(array)
        assert array.shape == before and (array == size - 1).all()


def _weighted(transport):
    """Who has no weight does not count; where none has any, all raise the same."""
    array = np.array([1.0 if transport.rank == 0 else np.nan])
    transport.allreduce(array, "mean", {0: 3.0})
    assert array.tolist() == [1.0]
    with pytest.raises(ValueError, match="all weights are zero"):
        transport.allreduce(array, "mean", dict.fromkeys(range(transport.size), 0.0))


def _broadcast(transport):
    """That of the lowest rank, or of a root."""
    for root, source in ((None, 0), (transport.size - 1, transport.size - 1)):
        for length in (3, 100_000):
            array = np.full((2, length), transport.rank, np.int16)
            transport.broadcast(array, root)
            assert (array == source).all()


def _barrier(transport):
    """Nobody returns from it before all have come."""
    others = _others(transport)
    window = transport.window(8 * transport.size)
    for turn in (1, 2, 3):
        for polls in range((transport.rank * turn) % 4):
            transport.pause(polls)
        for peer in others:
            window.put(np.full(1, turn, np.uint8), peer, 8 * transport.rank)
        window.flush(others)
        transport.barrier(f"turn {turn}")
        window.sync()
        assert all(window.memory[8 * peer] >= turn for peer in others)
    transport.barrier("the end")
    window.free()


def _signs_of_life(transport):
    """Any number, from any rank, at any time; the clock goes on."""
    before = transport.clock()
    for polls in range(3):
        transport.heartbeat()
        transport.count_step()
        transport.poll_failures()
        transport.pause(polls)
    assert transport.clock() >= before
    assert all(transport.heard_at(peer) <= transport.clock() for peer in _others(transport))
    assert not any(transport.was_evicted(rank) for rank in range(transport.size))
    transport.barrier()


def _harmless(transport):
    """What changes nothing here: to connect, to set the deadline, to be in a call, to end a wait."""
    transport.connect(_others(transport))
    transport.connect([])
    transport.set_deadline(300.0)
    with transport.calling("a call"), transport.calling("a part of it"):
        transport.barrier("its barrier")
    transport.end_wait()
    transport.barrier()


def _patience(transport):
    """Who is missing is named after it; the same call, made again, waits for them again."""
    window, others = transport.window(8), _others(transport)
    if transport.rank == 0:
        with pytest.raises(DeadlinePassed, match="an early barrier") as raised:
            transport.barrier("an early barrier", 0.05)
        assert sorted(raised.value.missing) == others
        for peer in others:
            window.put(np.ones(1, np.uint8), peer, 0)
        window.flush(others)
    while transport.rank and not window.memory[0]:
        transport.pause(0)
        window.sync()
    transport.barrier("an early barrier")
    window.free()


def _closes(transport):
    """A rank that uses a vector has not closed all that it made; when it has, the others see it."""
    transport.barrier()
    transport.opened()
    transport.barrier("all have opened one")
    assert not any(transport.has_closed(peer) for peer in _others(transport))
    transport.barrier("all have looked")
    transport.closed()
    transport.barrier("all have closed it")
    assert all(transport.has_closed(peer) for peer in _others(transport))
    transport.barrier()


def _mismatched(transport):
    """Ranks in calls of different names: it raises on each."""
    if transport.size > 1:
        with pytest.raises(MismatchedCalls, match="rank"):
            transport.barrier("one call" if transport.rank % 2 else "another call")


ASP, SSP, BSP, NOTIFY_ACK = (parse(mode) for mode in ("asp", "ssp:1", "bsp", "notify-ack"))
MODES = (ASP, SSP, BSP, NOTIFY_ACK, FLOW)
NBYTES = 40
LONG = 4097
"""A message of up to 4,096 bytes may travel in another way than a longer one."""
_LENGTHS = ((0, 1), (NBYTES, 1), (NBYTES, 2), (LONG - 1, 2), (LONG, 1), (LONG, 2), (200_000, 2))
"""Lengths of payloads, and in how many arrays they are."""
_PATTERN = (np.arange(200_000) % 251).astype(np.uint8)
_SLOW = 12
"""So many polls before a pause make it a long one, also in virtual time."""
_MOST_POLLS = 100_000
"""So many polls take 20 s where time is real."""


def _all_to_all(size):
    """The neighbours of a rank: those from which it gathers, and those to which it scatters."""
    others = [[peer for peer in range(size) if peer != rank] for rank in range(size)]
    return others.__getitem__, others.__getitem__


def _to_the_first(size):
    return lambda rank: [] if rank else list(range(1, size)), lambda rank: [0] if rank else []


def _upwards(size):
    return lambda rank: list(range(rank)), lambda rank: list(range(rank + 1, size))


@contextmanager
def _queues(transport, mode, depth=2, capacity=NBYTES, graph=_all_to_all):
    """Queues that are closed and freed at the end."""
    queues = Queues(transport, Layout(*graph(transport.size), depth, capacity), mode, 30.0)
    try:
        yield queues
    except AssertionError as error:
        raise AssertionError(f"{mode.name}, {depth} slots: {error}") from error
    queues.close()
    transport.barrier("all have closed")
    queues.free()


def _neighbours(queues):
    """From which ranks this one gathers, and to which it scatters."""
    return queues.layout.into(queues.transport.rank), queues.layout.out(queues.transport.rank)


def _payload(sender, step, nbytes=NBYTES):
    """Each byte shows who has sent it, and at which step; neighbouring ones differ."""
    return _PATTERN[:nbytes] + np.uint8((50 * sender + step) % 256)


def _send(queues, step, to=None, nbytes=NBYTES, arrays=1, encoding=0, **options):
    """Scatter the message of `step` to the ranks of `to` (None: all), and use its arrays for other things at once."""
    payload = _payload(queues.transport.rank, step, nbytes)
    body, tail = (payload, None) if arrays == 1 else (payload[: nbytes // 3], payload[nbytes // 3 :])
    to = _neighbours(queues)[1] if to is None else to
    sent = queues.send_each([OutgoingMessage(peer, body, tail, nbytes, encoding) for peer in to], step, **options)
    payload[:] = 255
    return sent


def _steps(messages):
    """The senders and steps of messages, which are whole."""
    for one in messages:
        np.testing.assert_array_equal(one.payload, _payload(one.sender, one.step, one.payload.nbytes))
    return [(one.sender, one.step) for one in messages]


def _receive(queues, newest=False):
    """The senders and steps of the messages of a gather. They are acknowledged."""
    messages = queues.receive(lambda: _neighbours(queues)[0], newest=newest)
    found = _steps(messages)
    queues.acknowledge(messages)
    return found


def _receive_into(came, queues, newest=False):
    """As `_receive`; add the steps to those that have come, by sender."""
    found = _receive(queues, newest)
    for sender, step in found:
        came[sender].append(step)
    return found


def _from_all(queues, step):
    """What a gather finds where each in-neighbour has sent one message, of that step."""
    return [(peer, step) for peer in _neighbours(queues)[0]]


def _meet(queues, step, sends=True, nbytes=NBYTES):
    """Send to all, and gather what all have sent when it is there; nobody sends more before all have it."""
    if sends:
        _send(queues, step, nbytes=nbytes)
    queues.transport.barrier()
    found = _receive(queues)
    queues.transport.barrier()
    return found


def _until(transport, has_come):
    """Poll until has_come()."""
    polls = 0
    while not has_come():
        transport.pause(polls)
        polls += 1
        assert polls < _MOST_POLLS, "it never comes"


def _check_account(queues, nbytes=NBYTES):
    """Once all is quiet: what a rank has sent and not superseded has come, and counts once, and so do its bytes. The
    counters."""
    transport, hosts = queues.transport, queues.transport.hosts
    transport.barrier()
    mine = queues.statistics()
    left = {peer: edge.sent - edge.superseded for peer, edge in mine.peers.items()}
    sent = [json.loads(one) for one in transport.allgather(json.dumps(left).encode())]
    for peer, edge in mine.peers.items():
        is_far = hosts[peer] != hosts[transport.rank]
        assert edge.gathered + edge.overwritten + edge.refused + edge.pending == sent[peer][str(transport.rank)], edge
        assert edge.bytes_sent == left[peer] * nbytes, edge
        assert edge.bytes_across == (edge.bytes_sent if is_far else 0), edge
        assert edge.superseded == 0 or is_far, edge
    for peer in _neighbours(queues)[1]:
        assert queues.outbox.sent(peer)[:2] == (left[peer], left[peer] * nbytes)
    for name in ("sent", "superseded", "gathered", "overwritten", "refused", "pending", "bytes_sent", "bytes_across"):
        assert getattr(mine, name) == sum(getattr(edge, name) for edge in mine.peers.values()), name
    return mine


def _whole(transport, mode):
    """What was sent before a collective call is there after it: whole, of any length, from one array or two, with its
    encoding, weight and share of the mass. So is a step that comes without a message."""
    others = _others(transport)
    with _queues(transport, mode, capacity=200_000) as queues:
        for step, (nbytes, arrays) in enumerate(_LENGTHS, 1):
            share = step / 4 / (1 + len(others))
            sent = _send(queues, step, None, nbytes, arrays, 3 * step, weight=step / 8, mass=step / 4)
            assert sent == (nbytes * len(others), share)
            transport.barrier()
            assert all(queues.outbox.sent(peer).left == step for peer in others)
            assert queues.has_arrived() == bool(others)
            found = queues.receive(lambda: others, newest=False)
            assert _steps(found) == _from_all(queues, step)
            for one in found:
                came = (one.payload.nbytes, one.encoding, one.weight, one.share)
                assert came == (nbytes, 3 * step, step / 8, share)
            queues.acknowledge(found)
            assert not queues.has_arrived()
            transport.barrier()
        _send(queues, step + 1, [])
        assert _meet(queues, step + 1, sends=False) == []
        assert queues.reached() == dict.fromkeys(others, step + 1)
        counts = _check_account(queues, sum(nbytes for nbytes, _ in _LENGTHS) / len(_LENGTHS))
        assert counts.pending == counts.overwritten == 0


def _sent_again(transport, mode):
    """A message that was prepared is what its array holds when it is sent."""
    with _queues(transport, mode) as queues:
        body = np.empty(NBYTES, np.uint8)
        messages = [OutgoingMessage(peer, body, None, NBYTES) for peer in _others(transport)]
        for one in messages:
            queues.outbox.prepare(one)
        for step in (1, 2, 3):
            body[:] = _payload(transport.rank, step)
            queues.send_each(messages, step)
            body[:] = 255
            assert _meet(queues, step, sends=False) == _from_all(queues, step)


def _overwritten(transport, mode):
    """Where nobody waits the newest messages are there, in order; a gather of the newest alone takes one a sender."""
    with _queues(transport, mode) as queues:
        gathered = 0
        for last, newest in ((5, False), (10, True)):
            for step in range(last - 4, last + 1):
                _send(queues, step)
            transport.barrier()
            came = {peer: [] for peer in _others(transport)}
            found = _receive_into(came, queues, newest)
            assert all(one[-1] == last and len(one) <= (1 if newest else 2) for one in came.values()), came
            assert found == sorted(found) and _receive(queues) == []
            gathered += len(found)
            transport.barrier()
        counts = _check_account(queues)
        assert (counts.sent, counts.gathered, counts.pending) == (10 * len(_others(transport)), gathered, 0)
        assert counts.lag.count == gathered


def _looked(transport, mode):
    """Views of messages count as merged where these were still whole afterwards; else nothing changes."""
    others = _others(transport)

    def look(step):
        """The views of the messages of that step; None: there are none, as with a check, and a gather takes copies."""
        found = queues.look(lambda: others)
        assert found is None or _steps(found) == _from_all(queues, step)
        return found

    with _queues(transport, mode) as queues:
        _send(queues, 1)
        transport.barrier()
        is_merged = queues.inbox.look_again() if look(1) is not None else _receive(queues) == _from_all(queues, 1)
        assert is_merged and not queues.has_arrived()
        transport.barrier()
        _send(queues, 2)
        transport.barrier()
        before = look(2)
        transport.barrier()
        for step in (3, 4):
            _send(queues, step)
            transport.barrier()
        assert before is None or queues.inbox.look_again() == (not others)
        assert queues.statistics().gathered == len(others)
        is_merged = queues.inbox.look_again() if look(4) is not None else _receive(queues, True) == _from_all(queues, 4)
        counts = _check_account(queues)
        assert is_merged and (counts.gathered, counts.overwritten) == (2 * len(others), 2 * len(others))


def _joined(transport, mode):
    """What a message holds that waited for another host when the next one came is in what comes of both."""

    def added(waiting, new):
        """The sum of all."""
        return [new._replace(payload=sum((one.payload for one in waiting), new.payload))]

    ones, others = np.ones(NBYTES, np.uint8), _others(transport)
    with _queues(transport, mode, depth=4) as queues:
        for step in range(1, 10):
            queues.send_each([OutgoingMessage(peer, ones, None, NBYTES) for peer in others], step, join=added)
            if step % 3 == 0:
                transport.barrier()
                found = queues.receive(lambda: others, newest=False)
                for peer in others:
                    total = sum(one.payload for one in found if one.sender == peer)
                    assert (total == 3).all(), f"of 3 messages of rank {peer} came {total}"
                queues.acknowledge(found)
                transport.barrier()
        counts = _check_account(queues)
        assert (counts.sent, counts.overwritten) == (9 * len(others), 0)


def _at_their_own_pace(transport, mode):
    """Ranks that send to some peers at a time lose no message that is not counted, and none where they wait."""

    def sent(sender, receiver):
        return [step for step in range(1, 10) if (sender + receiver + step) % 3]

    rank = transport.rank
    with _queues(transport, mode, graph=_upwards if mode is FLOW else _all_to_all) as queues:
        into, out = _neighbours(queues)
        came, all_sent = {peer: [] for peer in into}, {peer: sent(peer, rank) for peer in into}
        for step in range(1, 10):
            _send(queues, step, [peer for peer in out if step in sent(rank, peer)])
            transport.pause((0, _SLOW, 3)[(rank + step) % 3])
            found = _receive_into(came, queues, newest=mode in (ASP, SSP) and step % 2 == 0)
            assert mode is not BSP or found == [(peer, step) for peer in into if step in sent(peer, rank)]
        if mode in (NOTIFY_ACK, FLOW):  # senders wait for it
            _until(transport, lambda: came == all_sent or _receive_into(came, queues) is None)
        transport.barrier()
        _receive_into(came, queues)
        assert came == all_sent or not mode.acknowledges
        assert all(one == sorted(set(one)) and one[-1] == all_sent[peer][-1] for peer, one in came.items()), came
        transport.barrier()
        counts = _check_account(queues)
        assert (counts.gathered, counts.pending) == (sum(map(len, came.values())), 0)
        assert counts.overwritten == 0 or not mode.acknowledges


def _bounded(transport, mode):
    """A gather waits until its peers are as far as the mode says: one of them is slow."""
    with _queues(transport, mode) as queues:
        newest = dict.fromkeys(_others(transport), 0)
        for step in range(1, 9):
            transport.pause(0 if transport.rank else _SLOW)
            _send(queues, step)
            newest |= dict(_receive(queues))
            assert all(its >= step - mode.staleness for its in newest.values()), f"at step {step}: {newest}"


def _steps_alone(transport, mode):
    """A scatter that sends nothing to a peer lets its gather go on, and is not seen before the message before it."""
    rank, others = transport.rank, _others(transport)
    for depth in (1, 2):
        with _queues(transport, mode, depth) as queues:
            newest = dict.fromkeys(others, 0)
            for step in range(1, 9):
                _send(queues, step, [] if (rank + step) % 2 else None)
                found, sent = _receive(queues), [(peer, step) for peer in others if (peer + step) % 2 == 0]
                newest |= dict(found)
                assert mode is not BSP or found == sent, f"at step {step}: {found}"
                assert all(newest[peer] >= step for peer, _ in sent), f"at step {step}: {newest}"


def _fast(transport, mode):
    """Where receivers acknowledge, a sender has no more messages under way than the mode says: it waits."""
    in_flight = 1 if mode is NOTIFY_ACK else 2
    with _queues(transport, mode, graph=_to_the_first) as queues:
        came = {peer: [] for peer in _neighbours(queues)[0]}
        if transport.rank:
            for step in range(1, 6):
                _send(queues, step)
        else:

            def is_full():
                counts = queues.statistics().peers
                assert all(edge.pending <= in_flight and edge.overwritten == 0 for edge in counts.values())
                return all(counts[peer].pending == in_flight for peer in came)

            _until(transport, is_full)
            for _ in range(10):
                transport.pause(_SLOW)
                assert is_full()
            for step in range(1, 6):
                _send(queues, step)
                while any(step not in one for one in came.values()):
                    _until(transport, lambda: _receive_into(came, queues) or not came)
        assert all(one == [1, 2, 3, 4, 5] for one in came.values()), came
        assert _check_account(queues).overwritten == 0


def _in_a_cycle(transport, mode):
    """Ranks that scatter and gather at both ends of an edge never wait for each other for ever."""
    for depth in (1, 2):
        with _queues(transport, mode, depth, LONG) as queues:
            came, steps = {peer: [] for peer in _others(transport)}, [*range(1, 9)]
            for step in steps:
                _send(queues, step, nbytes=(NBYTES, LONG)[step // 2 % 2])
                found = _receive_into(came, queues)
                assert mode is NOTIFY_ACK or found == _from_all(queues, step)
            transport.barrier()
            _receive_into(came, queues)
            assert all(one == steps for one in came.values()), came
            assert _check_account(queues, (NBYTES + LONG) / 2).overwritten == 0


def _in_vain(transport, mode):
    """A gather that has waited for as long as it may names who is missing, and has taken nothing."""
    others = _others(transport)
    with _queues(transport, mode) as queues:
        if transport.rank == 0:
            _send(queues, 1)
            if others:
                before = transport.clock()
                with pytest.raises(DeadlinePassed, match="gather: the deadline passed") as raised:
                    queues.receive(lambda: others, newest=False, timeout_s=0.01)
                assert transport.clock() - before < 15, "it has waited for the deadline of the session"
                assert raised.value.missing == dict.fromkeys(others, 0) and queues.statistics().waited_s > 0
        transport.barrier()
        if transport.rank:
            _send(queues, 1)
        assert _receive(queues) == _from_all(queues, 1)


def _not_sent(transport, mode):
    """A scatter whose wait has failed has sent nothing: the next one sends what it is given."""

    def fails():
        polls.append(1)
        if len(polls) == 5:
            raise ArithmeticError

    with _queues(transport, mode, 2 if mode is NOTIFY_ACK else 1, LONG, _to_the_first) as queues:
        for step, nbytes in ((1, NBYTES), (3, LONG)):
            if transport.rank:
                _send(queues, step, nbytes=nbytes)
                polls = []
                transport.duties.append(fails)  # what this rank does for its peers while it waits
                with pytest.raises(ArithmeticError):
                    _send(queues, 77, nbytes=nbytes)
                transport.duties.remove(fails)
                assert queues.statistics().sent == step
            assert _meet(queues, step, sends=transport.rank == 0) == _from_all(queues, step)
            assert _meet(queues, step + 1, nbytes=nbytes) == _from_all(queues, step + 1)
        assert _check_account(queues, (NBYTES + LONG) / 2).overwritten == 0


def _let_go(transport, mode):
    """A scatter that waits for a peer goes on when that closes, and has sent it nothing."""
    with _queues(transport, mode, 1, graph=_to_the_first) as queues:
        if transport.rank:
            _send(queues, 1)
            assert _send(queues, 2) == (0, 1.0)
        else:
            _until(transport, lambda: queues.statistics().pending == transport.size - 1)
            for _ in range(10):
                transport.pause(_SLOW)
            queues.close()
        assert _check_account(queues).gathered == 0


def _skipped(transport, mode):
    """In lockstep a gather merges the messages of its own step; those of a step without a gather are overwritten."""
    with _queues(transport, mode) as queues:
        _send(queues, 1)
        transport.barrier()
        assert _meet(queues, 2) == _from_all(queues, 2)
        assert _check_account(queues).overwritten == len(_others(transport))


def _unmerged(transport, mode):
    """What a receiver refuses or discards counts as refused or overwritten, is no lag, and is acknowledged."""
    others = _others(transport)
    with _queues(transport, mode, depth=1) as queues:
        _send(queues, 1)
        transport.barrier()
        messages = queues.receive(lambda: others, newest=False)
        for one in messages[:1]:
            queues.inbox.refuse(one)
        queues.acknowledge(messages[1:])
        transport.barrier()
        _send(queues, 2)
        transport.barrier()
        queues.discard()
        assert not queues.has_arrived() and queues.receive(lambda: others, newest=False) == []
        transport.barrier()
        assert _meet(queues, 3) == _from_all(queues, 3)
        counts = _check_account(queues)
        assert [counts.peers[peer].refused for peer in others] == [1, *[0] * (len(others) - 1)][: len(others)]
        assert counts.overwritten == len(others)
        assert counts.lag.count == counts.gathered == max(0, 2 * len(others) - 1)


def _closed(transport, mode):
    """What a rank sent before it closed is taken. Then nobody sends to it or waits for it, whatever it still does."""
    others, last = _others(transport), transport.size - 1
    present = [peer for peer in others if peer != last]
    with _queues(transport, mode, depth=1) as queues:
        _send(queues, 1)
        if transport.rank == last:
            came = {peer: [] for peer in others}
            if mode is BSP:
                assert _steps(queues.receive(lambda: others, newest=False)) == _from_all(queues, 1)
            elif mode.acknowledges:
                _until(transport, lambda: all(came.values()) or _receive_into(came, queues) is None)
            queues.close()
            queues.acknowledge([])  # it takes the place of nothing that says so
            queues.close()
            for call in (partial(_send, queues, 2), partial(_receive, queues), queues.discard):
                with pytest.raises(ClosedError, match="closed"):
                    call()
            assert not queues.has_arrived()
            transport.barrier()
            transport.barrier()
        else:
            assert _meet(queues, 1, sends=False) == _from_all(queues, 1)
            for step in (2, 3, 4) if mode is not FLOW else (2,):  # which has no promise for cycles
                assert _send(queues, step) == (NBYTES * len(present), 1 / (1 + len(present)))
                _receive(queues)
            assert [peer for peer in others if queues.outbox.edges[peer].done] == [last]
        _check_account(queues)


def _renewed(transport, mode):
    """Where a rank comes back its edges begin anew: nothing of before is taken, all of it is counted, and nobody waits
    for the rank before the step at which it begins."""
    others, base = _others(transport), 1 << 40
    anew = others if transport.rank == 0 else [0]
    with _queues(transport, mode) as queues:
        assert _meet(queues, 1) == _from_all(queues, 1)
        _send(queues, 2)
        transport.barrier()
        for peer in anew:  # it may be called again, and nothing changes
            queues.renew(peer, base)
        transport.barrier()
        if transport.rank == 0:
            queues.begin(2, dict.fromkeys(others, 2))
            assert not queues.has_arrived()
        transport.barrier()
        if transport.rank:
            assert _receive(queues) == [(peer, 2) for peer in others if peer]
        transport.barrier()
        assert _meet(queues, 3) == _from_all(queues, 3)
        for peer in anew:
            queues.renew(peer, base)
        counts = queues.statistics()
        assert (counts.sent, counts.pending) == (3 * len(others), 0)
        assert (counts.gathered, counts.overwritten) == (3 * len(others) - len(anew), len(anew))
        for peer in anew:
            edge = counts.peers[peer]
            assert (edge.sent, edge.gathered, edge.overwritten, edge.bytes_sent) == (1, 1, 0, NBYTES)


def _in_turn(transport, mode):
    """One thread of a rank scatters and another one gathers, each in its turn; a third reads the counters meanwhile."""
    steps, turns = range(1, 21), threading.Barrier(3, timeout=30)
    came = {peer: [] for peer in _others(transport)}

    def scatter():
        for step in steps:
            with queues.call_lock.taken("scatter"):
                _send(queues, step)
            turns.wait()
            turns.wait()

    def count():
        before = 0
        for _ in (*steps, *steps):
            queues.has_arrived()
            gathered = queues.statistics().gathered
            assert gathered >= before
            before = gathered
            turns.wait()

    with _queues(transport, mode) as queues:
        threads = [threading.Thread(target=one) for one in (scatter, count)]
        for thread in threads:
            thread.start()
        for _ in steps:
            turns.wait()
            with queues.call_lock.taken("gather"):
                _receive_into(came, queues)
            turns.wait()
        for thread in threads:
            thread.join(30)
        transport.barrier()
        _receive_into(came, queues)
        assert all(one == sorted(set(one)) and one[-1] == steps[-1] for one in came.values()), came
        transport.barrier()
        _check_account(queues)


def _ended_by_another_thread(transport, mode):
    """A gather that waits ends when another thread closes the queues."""
    waits, ended = threading.Event(), []

    def sources():
        waits.set()
        return _others(transport)

    def gather():
        with queues.call_lock.taken("gather"), pytest.raises(ClosedError):
            _send(queues, 1)
            queues.receive(sources, newest=False)
        ended.append(True)

    with _queues(transport, mode) as queues:
        thread = threading.Thread(target=gather)
        if transport.rank == 0 and transport.size > 1:
            thread.start()
            assert waits.wait(30)
            queues.close()
            thread.join(30)
            assert ended
        transport.barrier()

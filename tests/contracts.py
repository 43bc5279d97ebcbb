"""What every Window and every Transport promises (dstorm/transport.py), checked on any of them.

`run(body)` runs body(transport) on each rank of a group, side by side, and returns what they returned, or that of this
rank alone. An implementation passes both checks, or says in its own test which promises it does not make.
"""

from __future__ import annotations

import numpy as np
import pytest

from dstorm import DeadlinePassed, MismatchedCalls


def check_window(run):
    """A window's memory, Puts, flushes, copies, and its end."""
    for body in (_zeroed, _puts, _puts_from_a_source_that_changes, _prepared, _gets, _copies, _freed):
        run(body)


def check_transport(run, has_deadlines=True):
    """A transport's ranks, collectives, barriers and signs of life. `has_deadlines`: whether a barrier has one, and a
    rank that uses no vector any more says so."""
    for body in (_ranks, _allgather, _alltoall, _allreduce, _weighted, _broadcast, _barrier, _signs_of_life, _harmless):
        run(body)
    if has_deadlines:
        for body in (_patience, _closes):
            run(body)
    run(_mismatched)


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


def _puts_from_a_source_that_changes(transport):
    """It may, after the flush; and the memory may be written to by its own rank."""
    size, mine, others = transport.size, transport.rank, _others(transport)
    window, source = transport.window(8 * size), np.full(8, 1 + mine, np.uint8)
    window.memory[8 * mine : 8 * mine + 8] = 50 + mine
    for peer in others:
        window.put(source, peer, 8 * mine)
    window.flush(others)
    source[:] = 99
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
    given = [bytes([rank]) * (rank * 1000) for rank in range(transport.size)]
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
        array = np.full((2, 3), transport.rank, np.int16)
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

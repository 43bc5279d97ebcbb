"""Connections are made before the progress thread calls MPI, or while it pauses."""

import threading

import numpy as np
import pytest
from ranks import run_ranks

from dstorm import DeadlinePassed
from dstorm.queues.consistency import parse
from dstorm.transports import connections, progress
from dstorm.transports.connections import exchange, partners
from dstorm.waits.stopwatch import Stopwatch

TREE = 200


@pytest.mark.serial
@pytest.mark.parametrize("size", [1, 2, 3, 64, 65, TREE])
def test_partners_are_mutual_and_reach_all(size):
    found = [partners(rank, size) for rank in range(size)]
    assert all(rank in found[peer] and peer != rank for rank in range(size) for peer in found[rank])
    reached, fresh = {0}, {0}
    while fresh:
        fresh = {peer for rank in fresh for peer in found[rank]} - reached
        reached |= fresh
    assert reached == set(range(size))
    assert {len(peers) for peers in found} == {size - 1} if size <= 64 else max(map(len, found)) <= 3


class Mail:
    """The communicator of one rank. The ranks are threads; `sent` holds the messages between them."""

    def __init__(self, rank, sent, log):
        self._rank, self._sent, self._log = rank, sent, log

    def Isend(self, buffer, peer, tag):  # noqa: N802
        self._log.append((self._rank, peer))
        self._sent.add((self._rank, peer))
        return Request(lambda: True)

    def Irecv(self, buffer, peer, tag):  # noqa: N802
        return Request(lambda: (peer, self._rank) in self._sent)


class Request:
    def __init__(self, test):
        self.Test = test


@pytest.mark.serial
@pytest.mark.parametrize("most_paired", [64, 2])
def test_each_pair_exchanges_a_message_each_way_the_lower_first(monkeypatch, most_paired):
    monkeypatch.setattr(connections, "MOST_PAIRED", most_paired)
    sent, log = set(), []

    def live(transport):
        rank, size = transport.rank, transport.size
        exchange(Mail(rank, sent, log), rank, partners(rank, size), 60, Stopwatch(transport.clock), transport.pause)

    assert run_ranks(live, "aabb") == [None] * 4
    expected = {(rank, peer) for rank in range(4) for peer in partners(rank, 4)}
    assert len(log) == len(expected) and set(log) == expected
    assert all(log.index((low, high)) < log.index((high, low)) for low, high in expected if low < high)


@pytest.mark.serial
def test_a_missing_rank_is_named_in_the_error():
    now = [0.0]

    def pause(polls):
        now[0] += 1

    with pytest.raises(DeadlinePassed, match=r"waiting for rank 0 .*, rank 3 ") as caught:
        exchange(Mail(1, {(2, 1)}, []), 1, [0, 2, 3], 5, Stopwatch(lambda: now[0]), pause)
    assert sorted(caught.value.missing) == [0, 3] and now[0] == 6


@pytest.mark.parallel
@pytest.mark.parametrize("most_paired", [64, 1])
def test_no_thread_calls_mpi_while_connections_are_made(monkeypatch, most_paired):
    """This holds too when a new vector connects its neighbours."""
    from mpi4py import MPI

    from dstorm.transports import mpi
    from vol import DenseVector, as_graph

    log, helpers = [], []

    class Helper(progress.Helper):
        def __init__(self, poll):
            log.append("starts")
            helpers.append(self)
            super().__init__(poll)

    def watched(comm, rank, peers, *rest):
        if helpers:
            free = []
            probe = threading.Thread(target=lambda: free.append(helpers[0].calling.acquire(blocking=False)))
            probe.start()
            probe.join()
            assert free == [False]
        log.append(sorted(peers))
        exchange(comm, rank, peers, *rest)

    monkeypatch.setattr(connections, "MOST_PAIRED", most_paired)
    monkeypatch.setattr(connections, "exchange", watched)
    monkeypatch.setattr(progress, "spans_hosts", lambda hosts: True)
    monkeypatch.setattr(progress, "library_helps", lambda *_: False)
    monkeypatch.setattr(progress, "Helper", Helper)
    transport = mpi.MpiTransport(MPI.COMM_WORLD)
    rank, size = transport.rank, transport.size
    vectors = [DenseVector(np.zeros(4), transport, as_graph("all", size), parse("asp")) for _ in range(2)]
    others = [peer for peer in range(size) if peer != rank]
    tree = partners(rank, size)
    if most_paired == 1:
        assert log == [tree, "starts", [peer for peer in others if peer not in tree], []]
    else:
        assert log == [others, "starts"]
    for vector in vectors:
        vector.close()
    transport.barrier()
    for vector in vectors:
        vector.free()
    transport.close()

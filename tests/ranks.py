"""Ranks as threads, on hosts as named: a transport with the collective calls alone, which all must meet."""

from __future__ import annotations

import threading
from contextlib import nullcontext

MEETING_S = 10.0
"""A rank that has waited so long for the others is in a call that they do not come to."""


class Ranks:
    """What the threads share."""

    def __init__(self, hosts):
        self.hosts = tuple(hosts)
        self.size = len(self.hosts)
        self.barrier = threading.Barrier(self.size)
        self.slots = [b""] * self.size
        self.collectives = 0

    def run(self, function):
        """function(transport) on every rank; by rank what it returned or the exception that it raised."""
        outcomes = [None] * self.size

        def live(rank):
            try:
                outcomes[rank] = function(ThreadTransport(self, rank))
            except Exception as error:
                outcomes[rank] = error

        threads = [threading.Thread(target=live, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for outcome in outcomes:
            assert not isinstance(outcome, threading.BrokenBarrierError), outcomes
        return outcomes


class ThreadTransport:
    """One of them."""

    library = "threads"
    mortal = False
    dead = frozenset()

    def __init__(self, ranks, rank):
        self._ranks = ranks
        self.rank, self.size, self.hosts = rank, ranks.size, ranks.hosts

    def allgather(self, data):
        self._ranks.slots[self.rank] = bytes(data)
        self.barrier()
        gathered = list(self._ranks.slots)
        self.barrier()
        return gathered

    def calling(self, what):
        return nullcontext()

    def barrier(self):
        self._ranks.barrier.wait(MEETING_S)


def run_ranks(function, hosts="a"):
    """As Ranks.run, on a rank for each letter of `hosts`."""
    return Ranks(hosts).run(function)


def run_alone(function):
    """function(transport) on a single rank: what it returns or raises."""
    (outcome,) = run_ranks(function)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def same_error(outcomes):
    """The error that all ranks raised, which is one and the same."""
    assert all(isinstance(outcome, Exception) for outcome in outcomes), outcomes
    assert len({(type(outcome), str(outcome)) for outcome in outcomes}) == 1, outcomes
    assert "\n" not in str(outcomes[0])
    return outcomes[0]

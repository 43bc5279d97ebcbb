"""The connections that MPI makes before a progress thread calls it. Pure: no MPI, no clock.

Over TCP an MPI library connects two ranks at the first message between them. With Open MPI 5.0.11 a job hangs now and
then where a second thread calls the library meanwhile. So each rank exchanges a small message with the ranks that it
will communicate with, before the thread starts or while it pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dstorm.errors import DeadlinePassed
from dstorm.waits.stopwatch import Stopwatch

MOST_PAIRED = 64
"""With up to so many ranks all pairs are connected at the start. With more, a tree is, and each vector's neighbours."""

_TAG = 1


def partners(rank: int, size: int) -> list[int]:
    """The ranks that `rank` exchanges a message with at the start, ascending. The relation is symmetric."""
    if size <= MOST_PAIRED:
        return [peer for peer in range(size) if peer != rank]
    tree = [(rank - 1) // 2, 2 * rank + 1, 2 * rank + 2]
    return [peer for peer in tree if 0 <= peer < size]


def exchange(
    comm: Any, rank: int, peers: Iterable[int], deadline_s: float, waited: Stopwatch, pause: Callable[[int], object]
) -> None:  # fmt: skip
    """Exchange one byte with each of `peers`, which do the same, over `comm`, a communicator of mpi4py. Collective.

    The lower of two ranks begins, and the other answers, so that the two never connect to each other at the same
    moment. `waited`: counts the time since the call. DeadlinePassed names the missing ranks.
    """
    peers, polls = list(peers), 0
    byte = np.zeros(1, np.uint8)
    come = {peer: comm.Irecv(np.empty(1, np.uint8), peer, _TAG) for peer in peers}
    sent = {peer: comm.Isend(byte, peer, _TAG) for peer in peers if peer > rank}
    while come or sent:
        for peer in [peer for peer, request in come.items() if request.Test()]:
            del come[peer]
            if peer < rank:
                sent[peer] = comm.Isend(byte, peer, _TAG)
        sent = {peer: request for peer, request in sent.items() if not request.Test()}
        silent_s = waited.seconds()
        if (missing := sorted(come.keys() | sent.keys())) and silent_s > deadline_s:
            steps = dict.fromkeys(missing, 0)
            raise DeadlinePassed("MPI's connections", steps, dict.fromkeys(missing, silent_s))
        pause(polls)
        polls += 1

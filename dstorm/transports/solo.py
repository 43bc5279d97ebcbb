"""The transport of a single rank: a program that was started alone, with or without an MPI library."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstorm import reduction
from dstorm.queues.waits.waiting import LONGEST_POLL_S, yield_core
from dstorm.transport import Bytes, Carrier, Training, Window
from dstorm.transports import shm_space
from dstorm.transports.mapped import MappedMemory
from dstorm.view import View
from dstorm.waits.wait import Wait


def _nothing(*_: Any, **__: Any) -> Any:
    """Do nothing, in place of what needs other ranks."""


class SoloWindow(MappedMemory):
    """Memory that no other rank writes to. Puts go to this rank's own memory, whoever the peer is."""

    def __init__(self, nbytes: int) -> None:
        shm_space.check_host("the window", nbytes)
        memory = np.zeros(max(nbytes, 1), np.uint8)
        super().__init__(0, defaultdict(lambda: memory), _nothing)


class SoloTransport(Training):
    """One rank without peers, in real time."""

    rank, size, meetings = 0, 1, 0
    waiting: Wait | None = None
    returns: Any = None
    carrier: Carrier | None = None
    longest_poll_s = LONGEST_POLL_S
    may_send_ahead = False
    local_peers: frozenset[int] = frozenset()

    def __init__(self, library: str = "no MPI") -> None:
        self.library = library
        self.hosts: tuple[str, ...] = (os.uname().nodename,)
        self.view = View(1)
        self.duties: list[Callable[[], object]] = []

    def window(self, nbytes: int) -> Window:
        """Return memory of this rank. Local. MemoryError: there is too little memory."""
        return SoloWindow(nbytes)

    def allgather(self, data: bytes) -> list[bytes]:
        """Return this rank's part alone. Local."""
        return [bytes(data) if rank == self.rank else b"" for rank in range(self.size)]

    def alltoall(self, parts: Mapping[int, Bytes]) -> dict[int, Bytes]:
        """Return what each live rank has sent to this one, by rank, ascending. Collective."""
        return {self.rank: parts.get(self.rank, np.empty(0, np.uint8)).copy()}

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Combine the arrays of this rank alone. Local. ValueError: the weight is zero."""
        reduction.counting(weights, [self.rank])

    allreduce_by_mpi = allreduce

    def broadcast(self, array: NDArray[np.generic], root: int | None = None) -> None:
        """Do nothing: this rank has the data."""

    def barrier(
        self, what: str = "barrier", patience_s: float | None = None, final: bool = False, mark: bool = False
    ) -> bool:  # fmt: skip
        """Enter a barrier of this rank alone. Local."""
        return mark

    def calling(self, what: str) -> AbstractContextManager[None]:
        """Note nothing: no rank waits for this one."""
        return nullcontext()

    @property
    def lacks_ranks(self) -> bool:
        """False: no rank waits for this one."""
        return False

    def tell_left(self) -> None:
        """Do nothing: no rank asks. Local."""

    def heard_at(self, rank: int) -> float:
        """Return the time at which `rank` last gave a heartbeat, by this rank's clock, as far as this rank knows."""
        return self.clock()

    def poll_wait(self, wait: Wait) -> bool:
        """Return whether the deadline of `wait` has passed. One-sided. To be called whenever the wait is due."""
        return False

    def end_wait(self, in_vain: bool = False) -> None:
        """Do nothing: no wait lasts."""

    def poll_failures(self, quietly: bool = False) -> None:
        """Find no failure: there is no other rank."""

    def has_closed(self, rank: int) -> bool:
        """Return whether `rank` has closed all its vectors, as far as this rank knows. Local."""
        return True

    def was_evicted(self, rank: int) -> bool:
        """Return whether `rank` was killed because it gave no heartbeat while others waited for it. Local."""
        return False

    attend = connect = set_deadline = _nothing
    heartbeat = opened = closed = depart = progress = close = _nothing
    clock = staticmethod(time.perf_counter)

    def count_step(self) -> None:
        """Publish one more step of this rank. A step is a heartbeat, too. One-sided."""
        if self.trains_since is None:
            self.begin_training(self.clock())

    def pause(self, polls: int, until: float = math.inf) -> None:
        """Yield the core between two polls of a wait, for longer after more `polls`. Local."""
        yield_core(polls)


class LoneTransport(SoloTransport):
    """One rank of several, as far as it needs no other one: which ranks there are, the clock, and how to wait.

    So it can work without the others for a while, in collective calls, as if they had failed.
    """

    def __init__(self, rank: int, hosts: Sequence[str]) -> None:
        super().__init__()
        self.rank, self.size, self.hosts = rank, len(hosts), tuple(hosts)
        self.local_ranks = tuple(other for other, host in enumerate(hosts) if host == hosts[rank])
        """The ranks of this host, ascending; this rank is one of them."""
        self.local_peers = frozenset(self.local_ranks) - {rank}

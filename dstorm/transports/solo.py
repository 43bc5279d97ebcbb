"""The transport of a single rank: a program that was started alone, with or without an MPI library."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstorm import reduction
from dstorm.queues.waits.waiting import LONGEST_POLL_S, yield_core
from dstorm.transport import Bytes, Carrier, Places, Put, Training
from dstorm.transports import shm_space
from dstorm.transports.mapped import read
from dstorm.view import View
from dstorm.waits.wait import Wait


def _nothing(*_: object) -> None:
    """Do nothing, in place of what needs other ranks."""


class SoloWindow:
    """Memory that no other rank writes to."""

    addresses: Mapping[int, int] = {}
    keeps_order = True

    def __init__(self, nbytes: int) -> None:
        shm_space.check_host("the window", nbytes)
        self.memory: Bytes = np.zeros(max(nbytes, 1), np.uint8)

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """Copy into this rank's own memory, whoever `peer` is. Local."""
        np.copyto(self.memory[offset : offset + source.nbytes], source.reshape(-1))

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """Return a function that does `put` with these arguments. Local."""
        return partial(self.put, source, peer, offset)

    def flush(self, peers: Sequence[int]) -> None:
        """Do nothing: a Put is complete."""

    def flush_local(self, peers: Sequence[int]) -> None:
        """Do nothing: a Put is complete."""

    def linger(self, peers: Sequence[int]) -> None:
        """Do nothing: a Put is complete."""

    def prepared_flush(self, peers: Sequence[int]) -> Put:
        """Return a function that does `flush` with these peers; with no peers it does nothing. Local."""
        return _nothing

    def get(self, destination: Bytes, peer: int, offset: int, places: Places | None = None) -> int:
        """Read from `peer`'s memory, which may be this rank's own, into `destination`; complete on return."""
        read(self.memory, offset, destination, places)
        return destination.nbytes

    def sync(self) -> None:
        """Do nothing: no other rank writes."""

    def copy(self, offset: int, destination: Bytes) -> None:
        """Copy `destination.nbytes` bytes of this rank's own memory, from `offset` on, into `destination`. Local."""
        np.copyto(destination, self.memory[offset : offset + destination.nbytes])

    def free(self) -> None:
        """Free the memory. Collective. A second call does nothing."""
        self.memory = np.empty(0, np.uint8)


class SoloTransport(Training):
    """One rank without peers, in real time."""

    rank, size, meetings = 0, 1, 0
    waiting = None
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

    def window(self, nbytes: int) -> SoloWindow:
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
    """One rank of several that works without the others for a while, in collective calls, as if they had failed."""

    def __init__(self, rank: int, hosts: Sequence[str]) -> None:
        super().__init__()
        self.rank, self.size, self.hosts = rank, len(hosts), tuple(hosts)

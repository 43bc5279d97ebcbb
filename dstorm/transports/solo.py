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
from dstorm.queues.waiting import LONGEST_POLL_S, yield_core
from dstorm.training import Training
from dstorm.transport import Bytes, Carrier, Places, Put
from dstorm.transports import shm_space
from dstorm.transports.mapped import read
from dstorm.view import View
from dstorm.wait import Wait


def _nothing(*_: object) -> None:
    """What needs other ranks does nothing."""


class SoloWindow:
    """Memory that no other rank writes to."""

    addresses: Mapping[int, int] = {}
    keeps_order = True

    def __init__(self, nbytes: int) -> None:
        shm_space.check_host("the window", nbytes)
        self.memory: Bytes = np.zeros(max(nbytes, 1), np.uint8)

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """As `Window.put`. Local. ValueError: it leaves the window."""
        if not 0 <= offset <= offset + source.nbytes <= self.memory.nbytes:
            raise ValueError(f"a Put of {source.nbytes} bytes at {offset} leaves the window")
        np.copyto(self.memory[offset : offset + source.nbytes], source.reshape(-1))

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """As `Window.prepared`. Local."""
        return partial(self.put, source, peer, offset)

    def flush(self, peers: Sequence[int]) -> None:
        """As `Window.flush`: nothing."""

    def flush_local(self, peers: Sequence[int]) -> None:
        """As `Window.flush_local`: nothing."""

    def linger(self, peers: Sequence[int]) -> None:
        """As `Window.linger`: nothing."""

    def prepared_flush(self, peers: Sequence[int]) -> Put:
        """As `Window.prepared_flush`. Local."""
        return _nothing

    def get(self, destination: Bytes, peer: int, offset: int, places: Places | None = None) -> int:
        """As `Window.get`. Local."""
        read(self.memory, offset, destination, places)
        return destination.nbytes

    def sync(self) -> None:
        """As `Window.sync`: nothing."""

    def copy(self, offset: int, destination: Bytes) -> None:
        """As `Window.copy`. Local."""
        np.copyto(destination, self.memory[offset : offset + destination.nbytes])

    def free(self) -> None:
        """As `Window.free`. Local."""
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
        """As `Transport.window`. Local. MemoryError: there is too little memory."""
        return SoloWindow(nbytes)

    def allgather(self, data: bytes) -> list[bytes]:
        """As `Transport.allgather`: of this rank alone. Local."""
        return [bytes(data) if rank == self.rank else b"" for rank in range(self.size)]

    def alltoall(self, parts: Mapping[int, Bytes]) -> dict[int, Bytes]:
        """As `Transport.alltoall`. Local."""
        return {0: parts.get(0, np.empty(0, np.uint8)).copy()}

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """As `Transport.allreduce`. Local. ValueError: the weight is zero."""
        reduction.counting(weights, [0])

    allreduce_by_mpi = allreduce

    def broadcast(self, array: NDArray[np.generic], root: int | None = None) -> None:
        """As `Transport.broadcast`: nothing."""

    def barrier(
        self, what: str = "barrier", patience_s: float | None = None, final: bool = False, mark: bool = False
    ) -> bool:  # fmt: skip
        """As `Transport.barrier`, of this rank alone. Local."""
        return mark

    def calling(self, what: str) -> AbstractContextManager[None]:
        """As `Transport.calling`: nothing."""
        return nullcontext()

    def heard_at(self, rank: int) -> float:
        """As `Transport.heard_at`. Local."""
        return self.clock()

    def poll_wait(self, wait: Wait) -> bool:
        """As `Transport.poll_wait`. Local."""
        return False

    def end_wait(self, in_vain: bool = False) -> None:
        """As `Transport.end_wait`: nothing."""

    def poll_failures(self, quietly: bool = False) -> None:
        """As `Transport.poll_failures`: nothing."""

    def has_closed(self, rank: int) -> bool:
        """As `Transport.has_closed`. Local."""
        return True

    def was_evicted(self, rank: int) -> bool:
        """As `Transport.was_evicted`. Local."""
        return False

    attend = connect = set_deadline = _nothing
    heartbeat = opened = closed = depart = progress = close = _nothing
    clock = staticmethod(time.perf_counter)

    def count_step(self) -> None:
        """As `Transport.count_step`. Local."""
        if self.trains_since is None:
            self.begin_training(self.clock())

    def pause(self, polls: int, until: float = math.inf) -> None:
        """As `Transport.pause`. Local."""
        yield_core(polls)


class LoneTransport(SoloTransport):
    """One rank of several that works without the others for a while, in collective calls, as if they had failed."""

    def __init__(self, rank: int, hosts: Sequence[str]) -> None:
        super().__init__()
        self.rank, self.size, self.hosts = rank, len(hosts), tuple(hosts)

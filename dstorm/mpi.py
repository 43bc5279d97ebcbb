"""MPI: the one module that calls it. Windows by Win.Allocate under one Lock_all for life; Put, Flush, Sync, and
plain loads of one's own memory are all that moves data (MPI-4.1, chapter 12). No accumulate: it is where MPI
libraries break.

Importing this module loads the MPI library and initializes it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dstorm import shared_memory
from dstorm.transport import Bytes

_YIELD_POLLS = 2_000
"""Polls of a wait that only yield the core; those after them sleep."""
_NAP_S = 2e-4
"""Short: after a barrier the ranks start as far apart as they slept."""


def library() -> str:
    """The name and version of the MPI library, as "Open MPI 5.0.11" or "MPICH 5.0.2". Local."""
    words = MPI.Get_library_version().replace(",", " ").replace("Version:", "").split()
    version = next(place for place, word in enumerate(words) if word.lstrip("v")[:1].isdigit())
    return " ".join([*words[:version], words[version].lstrip("v")])


class MpiWindow:
    """This rank's part of an MPI window."""

    def __init__(self, comm: MPI.Intracomm, nbytes: int) -> None:
        self._win = MPI.Win.Allocate(max(nbytes, 1), 1, comm=comm)
        self._win.Lock_all(MPI.MODE_NOCHECK)
        self.memory: Bytes = np.frombuffer(self._win.tomemory(), np.uint8)  # type: ignore[call-overload]
        self.memory[:] = 0  # stamps must read EMPTY; and touched pages count in what /dev/shm has left
        self._win.Sync()
        comm.Barrier()

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        nbytes = source.nbytes
        self._win.Put((source, nbytes, MPI.BYTE), peer, (offset, nbytes, MPI.BYTE))

    def flush(self, peers: Sequence[int]) -> None:
        if len(peers) == 1:
            self._win.Flush(peers[0])
        else:
            self._win.Flush_all()

    def sync(self) -> None:
        self._win.Sync()

    def copy(self, offset: int, destination: Bytes) -> None:
        np.copyto(destination, self.memory[offset : offset + destination.nbytes])

    def free(self) -> None:
        win, self._win = self._win, MPI.WIN_NULL
        if win != MPI.WIN_NULL:
            self.memory = np.empty(0, np.uint8)
            win.Unlock_all()
            win.Free()


class MpiTransport:
    """The ranks of an MPI intracommunicator. Collective: it is duplicated, so that no traffic of others mixes in."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm.Dup()
        self.rank = comm.rank
        self.size = comm.size
        self.library = library()
        self.hosts = self._find_hosts()
        mine = self.hosts[self.rank]
        self.rivals = frozenset(rank for rank in range(self.size) if self.hosts[rank] == mine and rank != self.rank)

    def _find_hosts(self) -> tuple[str, ...]:
        """Ranks that can share memory are on one host, whatever the host's name: containers may share that too."""
        group = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        leader = np.array([self.rank])
        group.Bcast(leader)
        group.Free()
        return tuple(name.decode() for name in self.allgather(f"{MPI.Get_processor_name()}/{leader[0]}".encode()))

    def window(self, nbytes: int) -> MpiWindow:
        """As `Transport.window`. MemoryError, on all ranks alike, where a host's /dev/shm cannot hold its ranks'
        parts: nothing has been allocated then."""
        wanted = np.array([nbytes, shared_memory.free_nbytes()])
        table = np.empty((self.size, 2), wanted.dtype)
        self._comm.Allgather(wanted, table)
        shared_memory.check(self.hosts, table[:, 0].tolist(), table[:, 1].tolist())
        return MpiWindow(self._comm, nbytes)

    def allgather(self, data: bytes) -> list[bytes]:
        self.barrier()
        lengths = np.empty(self.size, np.int64)
        self._comm.Allgather(np.array([len(data)], np.int64), lengths)
        everything = np.empty(int(lengths.sum()), np.uint8)
        self._comm.Allgatherv(np.frombuffer(data, np.uint8), (everything, lengths))
        ends = np.cumsum(lengths)
        return [everything[end - length : end].tobytes() for length, end in zip(lengths, ends, strict=True)]

    def mean(self, array: NDArray[np.generic]) -> None:
        # Reduced at one rank and sent from there: an Allreduce may round differently on each rank.
        self.barrier()
        wide = array.astype(np.float32) if array.dtype == np.float16 else array
        if self.rank == 0:
            self._comm.Reduce(MPI.IN_PLACE, wide)
            np.divide(wide, self.size, out=array, casting="same_kind")
        else:
            self._comm.Reduce(wide, None)
        self.broadcast(array)

    def broadcast(self, array: NDArray[np.generic]) -> None:
        self.barrier()
        self._comm.Bcast(array.reshape(-1).view(np.uint8))

    def barrier(self) -> None:
        # Polled: MPI's own wait would take the core from ranks that are still training.
        request = self._comm.Ibarrier()
        polls = 0
        while not request.Test():
            self.pause(polls)
            polls += 1

    def clock(self) -> float:
        return time.perf_counter()

    def pause(self, polls: int) -> None:
        if polls < _YIELD_POLLS:
            os.sched_yield()
        else:
            time.sleep(_NAP_S)

    def close(self) -> None:
        """Give the communicator back. Collective."""
        self._comm.Free()

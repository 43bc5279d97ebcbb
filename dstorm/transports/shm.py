"""Fault-tolerant shared memory of the ranks of one host. No call waits for another rank.

MPI makes its windows in collective calls, which hang or crash when a rank fails in them. Inside a host such a window is
a mapping of shared memory, and a Put is a copy. This module does the same with a file of /dev/shm that each rank maps
by itself.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from dstorm.queues.waiting import yield_core
from dstorm.transport import Bytes, Put


class SharedMemory:
    """A window in a file that the ranks of a host share: `nbytes` for each rank, which read as zeros.

    The constructor is Local: the first rank creates the file. The memory lasts while it is mapped; remove the name of
    the file once all ranks have mapped it. `fence()`: orders the loads and stores of this core before the call with
    those after it. MemoryError: the file cannot be mapped.
    """

    def __init__(self, path: Path, rank: int, size: int, nbytes: int, fence: Callable[[], object]) -> None:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(file, size * nbytes)
            self._map: mmap.mmap | None = mmap.mmap(file, size * nbytes)
        except OSError as error:
            raise MemoryError(f"cannot map {size * nbytes / 1e6:,.0f} MB of shared memory: {error.strerror}: raise the "
                              "limit (ulimit -v unlimited)") from error  # fmt: skip
        finally:
            os.close(file)
        everything = np.frombuffer(self._map, np.uint8)
        self._first = rank * nbytes
        self._parts = [everything[peer * nbytes : (peer + 1) * nbytes] for peer in range(size)]
        self.memory: Bytes = self._parts[rank]
        self._fence = fence

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """As `Window.put`, but complete on return. One-sided."""
        np.copyto(self._parts[peer][offset : offset + source.nbytes], source)

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """As `Window.prepared`. Local."""
        return partial(np.copyto, self._parts[peer][offset : offset + source.nbytes], source)

    def flush(self, peers: Sequence[int]) -> None:
        """As `Window.flush`. One-sided."""
        self._fence()

    def prepared_flush(self, peers: Sequence[int]) -> Put:
        """As `Window.prepared_flush`. Local."""
        return self._fence

    def sync(self) -> None:
        """As `Window.sync`. Local."""
        self._fence()

    def copy(self, offset: int, destination: Bytes) -> None:
        """As `Window.copy`. Local."""
        np.copyto(destination, self.memory[offset : offset + destination.nbytes])

    def discard(self, offset: int, nbytes: int) -> None:
        """Give `nbytes` of `memory` from `offset` on back to the system, as far as it takes them. Local.

        Only whole pages are given back. They read as zeros afterwards.
        """
        start, end = self._first + offset, self._first + offset + nbytes
        first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if self._map is not None and last > first:
            with contextlib.suppress(OSError):  # not every file can have holes
                self._map.madvise(mmap.MADV_REMOVE, first, last - first)

    def free(self) -> None:
        """Drop the mapping. The memory is freed when no view of it is left. Local."""
        self._parts, self.memory, self._map = [], np.empty(0, np.uint8), None


class OneHost:
    """The ranks of one host, and how they wait."""

    def __init__(self, rank: int, size: int, library: str) -> None:
        self.rank, self.size, self.library = rank, size, library
        self.hosts = (f"{os.uname().nodename}/0",) * size
        self.local_peers = frozenset(range(size)) - {rank}

    clock = staticmethod(time.perf_counter)
    pause = staticmethod(yield_core)

    def set_deadline(self, deadline_s: float) -> None:
        """Nothing: no call of this class waits. Local."""

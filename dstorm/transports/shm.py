"""The ranks of one host where some may die: memory that all of them share, without a call that must wait for another.

MPI's collective calls, which make its windows, hang or crash when a rank dies in them. Inside a host a window is a
mapping of shared memory, and a Put is a copy: this does the same with a file in /dev/shm that each rank maps by itself.
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
    """A window in a file that the ranks of a host share: `nbytes` for each, which read as zeros.

    Local: whoever comes first makes the file, and nobody waits. It lasts while it is mapped; remove its name when all
    have come. `fence`: orders what this processor core has loaded and stored before it with what comes after it.
    """

    def __init__(self, path: Path, rank: int, size: int, nbytes: int, fence: Callable[[], object]) -> None:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(file, size * nbytes)
            self._map: mmap.mmap | None = mmap.mmap(file, size * nbytes)
        except OSError as error:
            raise MemoryError(f"cannot map {size * nbytes / 1e6:,.0f} MB of shared memory: {error.strerror}: raise the "
                              "limit (ulimit -v unlimited), or run without --survive") from error  # fmt: skip
        finally:
            os.close(file)
        everything = np.frombuffer(self._map, np.uint8)
        self._first = rank * nbytes
        self._parts = [everything[peer * nbytes : (peer + 1) * nbytes] for peer in range(size)]
        self.memory: Bytes = self._parts[rank]
        self._fence = fence

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """As `Window.put`; complete on return. One-sided."""
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
        """What `memory` holds there is needed no more: whole pages of it go back to the system, where it takes them,
        and read as zeros. Local."""
        start, end = self._first + offset, self._first + offset + nbytes
        first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if self._map is not None and last > first:
            with contextlib.suppress(OSError):  # not every file can have holes
                self._map.madvise(mmap.MADV_REMOVE, first, last - first)

    def free(self) -> None:
        """Forget it: the memory goes when no view of it is left. Local."""
        self._parts, self.memory, self._map = [], np.empty(0, np.uint8), None


class OneHost:
    """Who the ranks of one host are, and how they wait."""

    def __init__(self, rank: int, size: int, library: str) -> None:
        self.rank, self.size, self.library = rank, size, library
        self.hosts = (f"{os.uname().nodename}/0",) * size
        self.local_peers = frozenset(range(size)) - {rank}

    clock = staticmethod(time.perf_counter)
    pause = staticmethod(yield_core)

    def set_deadline(self, deadline_s: float) -> None:
        """Nothing: no call here waits."""

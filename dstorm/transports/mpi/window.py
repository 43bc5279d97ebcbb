"""Windows over MPI: the one module that calls MPI.Win.

A window is made by Win.Allocate, and lies under one Lock_all for its whole life. Put, Flush, Sync and plain loads of
one's own memory are all that moves data (MPI-4.1, chapter 12). Accumulate is not used: MPI libraries break there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np
from mpi4py import MPI

from dstorm.transport import Bytes, Put
from dstorm.transports import progress
from dstorm.transports.watchdog import Watchdog


def fence() -> Callable[[], None]:
    """Return a function that orders the loads and stores of shared memory before its call with those after it. Local.

    It is MPI_Win_sync (MPI-4.1, 12.5.4) on a window of this process alone.
    """
    win = MPI.Win.Allocate(1, 1, comm=MPI.COMM_SELF)
    win.Lock_all(MPI.MODE_NOCHECK)
    return win.Sync


def _nothing() -> None:
    """The flush of no peers."""


class MpiWindow:
    """This rank's part of an MPI window. The constructor is Collective.

    `watchdog`: watches the flushes. `clear`: whether the memory is zeroed. `lock`: held during each call of MPI; the
    caller of the constructor holds it, too.
    """

    def __init__(
        self, comm: MPI.Intracomm, nbytes: int, watchdog: Watchdog | None = None, clear: bool = True,
        lock: threading.RLock | None = None,
    ) -> None:  # fmt: skip
        self._watchdog = watchdog
        self._win = MPI.Win.Allocate(max(nbytes, 1), 1, comm=comm)
        self._win.Lock_all(MPI.MODE_NOCHECK)
        self.memory: Bytes = np.frombuffer(self._win.tomemory(), np.uint8)  # type: ignore[call-overload]
        if clear:
            self.memory[:] = 0  # headers must read EMPTY, and pages that are touched count in free_nbytes()
        self._win.Sync()
        comm.Barrier()
        if lock is not None:
            self._win = cast("MPI.Win", progress.Serialized(self._win, lock))

    @property
    def model(self) -> str:
        """The memory model, "unified" or "separate" (MPI-4.1, 12.4). Local."""
        return "unified" if self._win.model == MPI.WIN_UNIFIED else "separate"

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """As `Window.put`. One-sided."""
        nbytes = source.nbytes
        self._win.Put((source, nbytes, MPI.BYTE), peer, (offset, nbytes, MPI.BYTE))

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """As `Window.prepared`. Local. mpi4py does not convert the arguments anew for each call."""
        nbytes = source.nbytes
        return partial(self._win.Put, [source.data, nbytes, MPI.BYTE], peer, (offset, nbytes, MPI.BYTE))

    def flush(self, peers: Sequence[int]) -> None:
        """As `Window.flush`. One-sided. The watchdog watches it where ranks are on other hosts."""
        if self._watchdog is None:
            self._flush(peers)
        else:
            with self._watchdog.watching(f"MPI_Win_flush to ranks {list(peers)}"):
                self._flush(peers)

    def _flush(self, peers: Sequence[int]) -> None:
        if len(peers) == 1:
            self._win.Flush(peers[0])
        else:
            self._win.Flush_all()

    def prepared_flush(self, peers: Sequence[int]) -> Put:
        """As `Window.prepared_flush`. Local."""
        if not peers:
            return _nothing
        if self._watchdog is not None:
            return partial(self.flush, peers)
        return partial(self._win.Flush, peers[0]) if len(peers) == 1 else self._win.Flush_all

    def sync(self) -> None:
        """As `Window.sync`. Local."""
        self._win.Sync()

    def copy(self, offset: int, destination: Bytes) -> None:
        """As `Window.copy`. Local."""
        np.copyto(destination, self.memory[offset : offset + destination.nbytes])

    def free(self) -> None:
        """As `Window.free`. Collective."""
        win, self._win = self._win, MPI.WIN_NULL
        if win != MPI.WIN_NULL:
            self.memory = np.empty(0, np.uint8)
            win.Unlock_all()
            win.Free()

"""Windows over MPI: the one module that calls MPI.Win.

A window lies under one Lock_all for its whole life. Put, Get, Flush, Sync, and plain loads and stores of shared
memory are all that moves data (MPI-4.1, chapter 12). Accumulate is not used: MPI libraries break there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, cast

import numpy as np
from mpi4py import MPI

from dstorm.transport import Bytes, Places, Put
from dstorm.transports import progress
from dstorm.transports.mapped import MappedMemory, SpanningWindow
from dstorm.transports.mpi.library import library, wait_for
from dstorm.transports.mpi.rows import MOST_NBYTES, pieces, ranges
from dstorm.transports.watchdog import Watchdog

_SHORTEST_NAP_S, _LONGEST_NAP_S = 2e-5, 1e-3
"""The naps between two looks whether Puts have arrived."""
_NAP_SHARE = 1 / 16
"""A nap as a share of the time that they have taken so far. Each look may interrupt a rank that computes."""
_LONG_NBYTES = 1 << 14
"""Puts of so many bytes are asked for themselves whether they have arrived. A Get may overtake them."""


class _FarMemory:
    """The memory of ranks of other hosts, over a window of MPI. `watchdog`: watches the flushes."""

    keeps_order = False

    def __init__(self, win: MPI.Win, watchdog: Watchdog) -> None:
        self._win, self._watchdog = win, watchdog
        is_shared = not isinstance(win, progress.Serialized)
        self._lingers = is_shared and progress.spins(library(), os.environ)
        self._looks = is_shared and not progress.can_yield(library())
        self._long: dict[int, list[MPI.Request]] = {}
        """The long Puts that no flush has completed, by peer."""

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """Start to write all of `source` (C-contiguous) at byte `offset` of `peer`'s memory. One-sided."""
        nbytes = source.nbytes
        put = (source, nbytes, MPI.BYTE), peer, (offset, nbytes, MPI.BYTE)
        if self._lingers and nbytes >= _LONG_NBYTES:
            request = self._win.Rput(*put)
            self._long.setdefault(peer, []).append(request)
        else:
            self._win.Put(*put)

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """Prepare a Put whose arguments mpi4py does not convert anew for each call. Local."""
        nbytes = source.nbytes
        return partial(self._win.Put, [source.data, nbytes, MPI.BYTE], peer, (offset, nbytes, MPI.BYTE))

    def flush(self, peers: Sequence[int]) -> None:
        """Return when all earlier Puts to `peers` are complete in their memory. One-sided."""
        with self._watching("MPI_Win_flush", peers):
            long = self._taken(peers)
            if len(peers) == 1:
                self._win.Flush(peers[0])
            else:
                self._win.Flush_all()
            if long:
                MPI.Request.Waitall(long)

    flush_local = flush
    """Puts keep no order here, so none may leave before those that it follows are complete."""

    def linger(self, peers: Sequence[int]) -> None:
        """Sleep until the long Puts to `peers`, and a Get from each of them, have come back. One-sided."""
        if not self._lingers:
            return
        with self._watching("MPI_Rput or MPI_Rget", peers):
            read = np.empty((len(peers), 1), np.uint8)
            requests = [
                self._win.Rget((byte, 1, MPI.BYTE), peer, (0, 1, MPI.BYTE))
                for byte, peer in zip(read, peers, strict=True)
            ]
            requests += self._taken(peers)
            start = time.monotonic()
            while not MPI.Request.Testall(requests):
                nap_s = _NAP_SHARE * (time.monotonic() - start)
                time.sleep(min(max(nap_s, _SHORTEST_NAP_S), _LONGEST_NAP_S))

    def _taken(self, peers: Sequence[int]) -> list[MPI.Request]:
        return [request for peer in peers for request in self._long.pop(peer, ())] if self._long else []

    def _watching(self, call: str, peers: Sequence[int]) -> AbstractContextManager[object]:
        return self._watchdog.watching(f"{call} to ranks {list(peers)}")

    def get(self, destination: Bytes, peer: int, offset: int, places: Places | None = None) -> int:
        """Read from `peer`'s memory into `destination`, complete on return. Return the bytes read. One-sided."""
        if not destination.size:
            return 0
        if places is None:
            return self._get(destination, peer, offset)
        return self._get_rows(destination, peer, offset, places)

    def _get(self, destination: Bytes, peer: int, offset: int) -> int:
        gets = []
        for start in range(0, destination.nbytes, MOST_NBYTES):
            some = destination[start : start + MOST_NBYTES]
            gets.append(((some, some.nbytes, MPI.BYTE), peer, (offset + start, some.nbytes, MPI.BYTE)))
        self._read(gets, peer)
        return destination.nbytes

    def _get_rows(self, destination: Bytes, peer: int, offset: int, places: Places) -> int:
        width = destination.shape[1]
        found, kinds, gets = ranges(places, width), [], []
        read = np.empty((int(found.counts.sum()), width), np.uint8)
        for rows, (starts, counts, _) in pieces(found, width):
            kind = MPI.BYTE.Create_hindexed((counts * width).tolist(), (offset + starts * width).tolist()).Commit()
            gets.append(((read[rows], read[rows].nbytes, MPI.BYTE), peer, (0, 1, kind)))
            kinds.append(kind)
        try:
            self._read(gets, peer)
        finally:
            for kind in kinds:
                kind.Free()
        np.take(read, found.wanted, axis=0, out=destination)
        return read.nbytes

    def _read(self, gets: Sequence[tuple[Any, ...]], peer: int) -> None:
        """Make these Gets from `peer`; return once all have come back.

        A flush of MPICH would keep the core from the other ranks of this host: where two share one, a pull took 9 to 16
        ms so, and takes 2 to 5.
        """
        if not self._looks:
            for get in gets:
                self._win.Get(*get)
            return self.flush([peer])
        with self._watching("MPI_Rget", [peer]):
            requests = []
            try:
                for get in gets:
                    requests.append(self._win.Rget(*get))
                wait_for(*requests)
            finally:  # a signal may have ended the loop: the memory is MPI's until they have come back
                MPI.Request.Waitall(requests)


class MpiWindow(SpanningWindow):
    """This rank's part of a window over MPI. The constructor is Collective.

    The memory of the ranks of one host is shared: each of them maps all of it, and stores into it in place of a Put.
    Ranks of other hosts are reached by Puts into the same memory.

    `comm`, `host`: all ranks, and those of this host. `hosts`: the name of the host of each rank of `comm`. `watchdog`:
    watches the flushes to other hosts, and the end. `lock`: held during each call of MPI; the caller of the constructor
    holds it, too.
    """

    def __init__(
        self, comm: MPI.Intracomm, host: MPI.Intracomm, hosts: Sequence[str], nbytes: int,
        watchdog: Watchdog, lock: threading.RLock | None,
    ) -> None:  # fmt: skip
        self._wins = _windows(comm, host, len(set(hosts)), max(nbytes, 1))
        for win in self._wins:
            win.Lock_all(MPI.MODE_NOCHECK)
        mates = [rank for rank, name in enumerate(hosts) if name == hosts[comm.rank]]
        parts = {rank: _part(self._wins[0], place) for place, rank in enumerate(mates)}
        parts[comm.rank] = parts[comm.rank][: max(nbytes, 1)]  # a shared part is some whole pages
        parts[comm.rank][:] = 0  # headers must read EMPTY, and pages that are touched count in free_nbytes()
        if lock is not None:
            self._wins = [cast("MPI.Win", progress.Serialized(win, lock)) for win in self._wins]
        self._watchdog = watchdog
        near = MappedMemory(comm.rank, parts, self._wins[0].Sync if len(self._wins) == 1 else self._sync_all)
        super().__init__(near, _FarMemory(self._wins[-1], watchdog))
        self.sync()
        wait_for(comm.Ibarrier())

    @property
    def model(self) -> str:
        """The memory model, "unified" or "separate" (MPI-4.1, 12.4). Local."""
        return "unified" if self._wins[-1].model == MPI.WIN_UNIFIED else "separate"

    def _sync_all(self) -> None:
        for win in self._wins:
            win.Sync()

    def free(self) -> None:
        """Free the memory. Collective. A second call does nothing."""
        wins, self._wins = self._wins, []
        super().free()
        with self._watchdog.watching("MPI_Win_free"):
            for win in reversed(wins):
                win.Unlock_all()
                win.Free()


def _windows(comm: MPI.Intracomm, host: MPI.Intracomm, hosts: int, nbytes: int) -> list[MPI.Win]:
    """Windows of one memory: the first among the ranks of `host`, the last among those of `comm`. Collective.

    MPI-4.1, 12.2.3: memory is shared by the ranks of one host alone (MPI_Win_allocate_shared). Those of others get a
    window of it that is made by MPI_Win_create; where no rank has another one on its host, all is as MPI has it.
    """
    if hosts == comm.size > 1:
        return [MPI.Win.Allocate(nbytes, 1, comm=comm)]
    info = MPI.Info.Create({"alloc_shared_noncontig": "true"})  # so that the part of each rank begins at a page
    shared = MPI.Win.Allocate_shared(nbytes, 1, info, host)
    info.Free()
    return [shared] if hosts == 1 else [shared, MPI.Win.Create(shared.tomemory(), 1, comm=comm)]


def _part(win: MPI.Win, place: int) -> Bytes:
    """The memory of a rank of this host."""
    is_shared = win.flavor == MPI.WIN_FLAVOR_SHARED
    memory: Any = win.Shared_query(place)[0] if is_shared else win.tomemory()
    return np.frombuffer(memory, np.uint8)

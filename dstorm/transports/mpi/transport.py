"""The transport over MPI."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dstorm.membership.barriers import barrier, gathering
from dstorm.membership.barriers.barrier import Barrier
from dstorm.membership.barriers.barrier_transport import BarrierTransport
from dstorm.membership.barriers.gathering import GatheringBarrier
from dstorm.membership.collectives import mapped
from dstorm.membership.collectives.mapped import MappedCollectives
from dstorm.membership.letters import Letter
from dstorm.queues.waits.waiting import LONGEST_POLL_S, yield_core
from dstorm.transport import Bytes
from dstorm.transports import connections, progress, shm_space
from dstorm.transports.mpi.collectives import MpiCollectives
from dstorm.transports.mpi.library import library, sends_at_once, wait_for
from dstorm.transports.mpi.window import MpiWindow
from dstorm.transports.transfer import TransferThread
from dstorm.transports.watchdog import Watchdog
from dstorm.view import View
from dstorm.waits.stopwatch import Stopwatch

_LINE_NBYTES = 64
"""The size of a cache line."""
_MOST_NBYTES = 2**62
"""The largest size of a window that ranks exchange. It fits int64, and no window is as large."""


class MpiTransport(BarrierTransport):
    """The transport of the ranks of an MPI intracommunicator. The constructor is Collective.

    `comm` is duplicated, so that its other traffic does not interfere. `call`: the user's call, for errors.
    """

    carrier: TransferThread | None = None

    def __init__(self, comm: MPI.Intracomm, deadline_s: float = 300.0, call: str = "MPI_Comm_dup") -> None:
        self.rank, self.size, self.library = comm.rank, comm.size, library()
        self._poll: Callable[[], object] | None = None
        self._lock: threading.RLock | None = None
        self._helper: progress.Helper | None = None
        self._watchdog = Watchdog(self.rank, deadline_s, lambda: MPI.COMM_WORLD.Abort(1))
        with self._watchdog.watching(call):  # a rank may never come here
            self._comm, duplicated = comm.Idup()
            wait_for(duplicated)
            self._by_mpi = MpiCollectives(self._comm, self.barrier, self._calling)
            self._collectives: MpiCollectives | MappedCollectives = self._by_mpi
            self._host = cast("MPI.Intracomm", self._comm.Split_type(MPI.COMM_TYPE_SHARED))
            self.hosts = self._find_hosts()
        mine = self.hosts[self.rank]
        self.view = View(self.size)
        self.duties: list[Callable[[], object]] = []
        self.local_peers = frozenset(
            rank for rank in range(self.size) if self.hosts[rank] == mine and rank != self.rank
        )
        self._connected: set[int] = set()
        if progress.spans_hosts(self.hosts):
            self._poll = self._comm.Iprobe
            self._exchange(connections.partners(self.rank, self.size))
            self._take_turns()
            self._barrier = spanning = GatheringBarrier(self, self.window(gathering.nbytes(self.size)), deadline_s)
            self._by_mpi.gather = partial(self._gather, spanning)
            self.barrier(call)  # here each rank writes to all others, while none of their threads runs yet
            self._help_progress()
            spanning.leaves_puts = self._helper is not None and sends_at_once()
            if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
                self.carrier = TransferThread(self, deadline_s)
        else:
            start = -(-barrier.nbytes(self.size) // _LINE_NBYTES) * _LINE_NBYTES
            window = self.window(nbytes := start + mapped.nbytes(self.size))
            self._barrier = Barrier(self, window, deadline_s)
            cells = {rank: part[start:nbytes] for rank, part in window.parts.items()}
            self._collectives = MappedCollectives(
                self.rank, self.view, self._barrier, cells, window.sync, self.barrier
            )  # fmt: skip
        self.may_send_ahead = MPI.Query_thread() == MPI.THREAD_MULTIPLE or self._lock is not None

    def _find_hosts(self) -> tuple[str, ...]:
        """The names of the hosts by rank. Ranks that can share memory are on one host, whatever its name is.

        Containers of different hosts may have the same name.
        """
        leader = np.array([self.rank])
        wait_for(self._host.Ibcast(leader))
        return tuple(name.decode() for name in self.allgather(f"{MPI.Get_processor_name()}/{leader[0]}".encode()))

    def _take_turns(self) -> None:
        """Make the lock by which this rank and its helper take turns to call MPI, where the thread level needs it."""
        helps = progress.library_helps(self.library, os.environ)
        if MPI.Query_thread() == MPI.THREAD_SERIALIZED and not helps:
            self._lock = threading.RLock()
            self._poll = progress.unless_held(self._lock, self._comm.Iprobe)

    def _help_progress(self) -> None:
        """Start the helper, by which Puts of peers complete while this rank computes, if the thread level allows it."""
        if self._poll is None or progress.library_helps(self.library, os.environ):
            return
        level = MPI.Query_thread()
        if level >= MPI.THREAD_SERIALIZED:
            self._helper = progress.Helper(self._poll)
        if level < MPI.THREAD_MULTIPLE and self.rank == 0:
            print(progress.ADVICE[level == MPI.THREAD_SERIALIZED], file=sys.stderr)

    def _exchange(self, peers: Sequence[int]) -> None:
        """Connect to the ranks of `peers` that this rank is not connected to yet."""
        fresh = [peer for peer in peers if peer not in self._connected]
        connections.exchange(self._comm, self.rank, fresh, self._watchdog.deadline_s, Stopwatch(), yield_core)
        self._connected.update(fresh)

    def connect(self, peers: Sequence[int]) -> None:
        """Connect this rank to `peers`, which connect to it. Collective, also for a rank that has no peers."""
        if self.size <= connections.MOST_PAIRED or not progress.spans_hosts(self.hosts):
            return  # all ranks are connected, or need no connections
        with contextlib.ExitStack() as pauses:
            for thread in (self._helper, self.carrier):
                if thread is not None:
                    pauses.enter_context(thread.calling)
            self._barrier.enter("MPI's connections")  # from here on no other thread of a rank calls MPI
            self._exchange(peers)
            self._barrier.enter("MPI's connections")

    def window(self, nbytes: int) -> MpiWindow:
        """Return a window, in memory of each host that its ranks map. Collective.

        MemoryError, on all ranks: the /dev/shm of a host cannot hold the parts of its ranks; or, where each rank has a
        host of its own, its memory. Nothing is allocated then.
        """
        is_shared = len(set(self.hosts)) < self.size
        free = shm_space.free_nbytes() if is_shared else shm_space.host_nbytes()
        wanted = np.array([min(nbytes, _MOST_NBYTES), free], np.int64)
        table = np.frombuffer(b"".join(self.allgather(wanted.tobytes())), wanted.dtype).reshape(-1, 2)
        shm_space.check(self.hosts, table[:, 0].tolist(), table[:, 1].tolist(), is_shared)
        with self._calling("MPI_Win_allocate"):
            return MpiWindow(self._comm, self._host, self.hosts, nbytes, self._watchdog, self._lock)

    def allgather(self, data: bytes) -> list[bytes]:
        """The `data` of every rank, by rank; b"" for failed ranks. Collective. Lengths may differ."""
        return self._collectives.allgather(data)

    def _gather(self, spanning: GatheringBarrier, call: str, data: bytes) -> tuple[list[Letter], bytes]:
        with self._entering(call):
            return spanning.gather(call, data)

    def alltoall(self, parts: Mapping[int, Bytes]) -> dict[int, Bytes]:
        """Return what each live rank has sent to this one, by rank, ascending. Collective."""
        return self._collectives.alltoall(parts)

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Replace `array` by the mean, sum, max or min over the live ranks: the same bits on all ranks. Collective."""
        self._collectives.allreduce(array, op, weights)

    def allreduce_by_mpi(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Combine arrays like `allreduce`, but by MPI_Reduce and MPI_Bcast, which may combine in any order."""
        self._by_mpi.reduce_and_broadcast(array, op, weights)

    def broadcast(self, array: NDArray[np.generic], root: int | None = None) -> None:
        """Replace `array` by that of `root`, by default the lowest live rank. Collective."""
        self._collectives.broadcast(array, root)

    def barrier(
        self, what: str = "barrier", patience_s: float | None = None, final: bool = False, mark: bool = False
    ) -> bool:  # fmt: skip
        """Return when all live ranks have entered the barrier: whether any of them gave `mark`. Collective."""
        with self._entering(what, patience_s) as patience_s:
            self._barrier.enter(what, patience_s, final, mark)
        return self._barrier.is_marked

    def poll_failures(self, quietly: bool = False) -> None:
        """Call `attend`: the failure of a rank ends the job. One-sided."""
        if self.duties:
            self.attend()

    def depart(self) -> None:
        """Publish that this rank leaves in order while the others go on. One-sided. A second call does nothing."""
        try:
            if self.carrier is not None:
                self.carrier.drain("the departure of this rank")
        finally:
            self._barrier.depart()

    def set_deadline(self, deadline_s: float) -> None:
        """Set how long a barrier waits for a rank that gives no heartbeat. Local."""
        self._watchdog.deadline_s = deadline_s
        self._barrier.deadline_s = deadline_s
        if self.carrier is not None:
            self.carrier.waiting.deadline_s = deadline_s

    @contextlib.contextmanager
    def _calling(self, call: str) -> Iterator[None]:
        """Watch MPI's `call`, and hold the lock by which this rank and its helper take turns, where there is one."""
        with self._lock or contextlib.nullcontext(), self._watchdog.watching(call):
            yield

    clock = staticmethod(time.perf_counter)
    longest_poll_s = LONGEST_POLL_S

    def pause(self, polls: int, until: float = math.inf) -> None:
        """Yield the core between two polls of a wait, for longer after more `polls`. Local."""
        self._call_mpi()
        self.attend()
        yield_core(polls)

    def progress(self) -> None:
        """Let Puts of other hosts come in, where that takes calls of this rank, and yield the core once. Local."""
        self._call_mpi()
        yield_core(0)

    def _call_mpi(self) -> None:
        # What is awaited may come over a network, and only while MPI is called. A flush of the transfer thread calls
        # it; with MPICH another call would wait for that.
        if self._poll is not None and not (self.carrier is not None and self.carrier.is_under_way):
            self._poll()
            if self._helper is not None:
                self._helper.is_relieved = True

    def close(self) -> None:
        """Free the communicator. Collective, after all windows are freed."""
        self._barrier.close()
        for thread in (self.carrier, self._helper):
            if thread is not None:
                thread.stop()
        self._watchdog.stop()
        self._host.Free()
        self._comm.Free()

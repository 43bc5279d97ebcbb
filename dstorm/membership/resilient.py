"""The fault-tolerant transport: when some of its ranks fail, the others go on.

MPI's own collective calls hang or crash when a rank fails in them. So one window, the arena, is made before a failure
can do harm. Everything else is a slice of it, which the live ranks allocate alike: the memory of the barrier, the
mailboxes of the collectives, all vectors.

A slice that was freed is used again. No rank can then still write into it for its earlier use. Live ranks have entered
a barrier since they freed it. The processes of ranks that failed before have ended, or are cut off: the first
subscriber of the view must see to that. Each rank zeroes its own part, and all enter another barrier before the first
Put.
"""

from __future__ import annotations

import math
import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dstorm.errors import WithoutMpi
from dstorm.membership import barrier, collectives
from dstorm.membership.allocator import Allocator
from dstorm.membership.barrier_transport import BarrierTransport
from dstorm.membership.collectives import Collectives
from dstorm.membership.tolerant import TolerantBarrier
from dstorm.transport import Bytes, Places, Put, Window
from dstorm.view import FaultTolerantView


class Place(Protocol):
    """The part of a `Transport` that needs no other rank: the ranks, the clock and how to wait."""

    rank: int
    size: int
    hosts: tuple[str, ...]
    local_peers: frozenset[int]
    library: str

    def set_deadline(self, deadline_s: float) -> None:
        """As `Transport.set_deadline`. Local."""

    def clock(self) -> float:
        """As `Transport.clock`. Local."""

    def pause(self, polls: int) -> None:
        """As `Transport.pause`. Local."""


class Slice:
    """A window: a part of the arena, at the same offset on all ranks."""

    def __init__(self, arena: Window, start: int, nbytes: int, give_back: Callable[[int, int], object]) -> None:
        self._arena, self._start = arena, start
        self._give_back: Callable[[int, int], object] | None = give_back
        self.memory: Bytes = arena.memory[start : start + nbytes]
        self.addresses: Mapping[int, int] = {peer: address + start for peer, address in arena.addresses.items()}
        self.flush, self.prepared_flush, self.sync = arena.flush, arena.prepared_flush, arena.sync
        self.keeps_order = arena.keeps_order

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """As `Window.put`. One-sided."""
        self._arena.put(source, peer, self._start + offset)

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """As `Window.prepared`. Local."""
        return self._arena.prepared(source, peer, self._start + offset)

    def get(self, destination: Bytes, peer: int, offset: int, places: Places | None = None) -> None:
        """As `Window.get`. One-sided."""
        self._arena.get(destination, peer, self._start + offset, places)

    def copy(self, offset: int, destination: Bytes) -> None:
        """As `Window.copy`. Local."""
        self._arena.copy(self._start + offset, destination)

    def free(self) -> None:
        """As `Window.free`, but Local: no rank waits. All live ranks free the same slices in the same order."""
        if self._give_back is not None:
            self._give_back(self._start, self.memory.nbytes)
            self._give_back, self.addresses, self.memory = None, {}, np.empty(0, np.uint8)


class SurvivingTransport(BarrierTransport):
    """The transport of the ranks of `place`, some of which may fail or have failed. The constructor is Local.

    `arena`: a window of the same size on all ranks, whose memory reads as zeros. `find_failed()`: the ranks whose
    failure this rank can find by itself; none that may come back. `leave(why)`: ends this process; called where the
    others have marked it failed. `discard(offset, nbytes)`: gives unused pages of this rank's part of the arena back to
    the system, where that is possible. `evict(rank)`: kills a rank that gives no heartbeat while others wait for it,
    and returns whether it can.
    """

    def __init__(
        self, place: Place, arena: Window, find_failed: Callable[[], Sequence[int]], deadline_s: float = 300.0,
        leave: Callable[[str], object] | None = None, discard: Callable[[int, int], object] | None = None,
        evict: Callable[[int], bool] | None = None,
    ) -> None:  # fmt: skip
        self._place, self.may_send_ahead = place, False
        self.rank, self.size = place.rank, place.size
        self.hosts, self.local_peers, self.library = place.hosts, place.local_peers, place.library
        self.view = FaultTolerantView(place.size)
        self._news = self.view.unreported
        self.duties: list[Callable[[], object]] = []
        self.clock = place.clock
        self._arena = arena
        self._discard = discard
        self._allocator = Allocator(arena.memory.nbytes)
        self._calls: list[Callable[[], object]] = []
        self._reporting = threading.RLock()
        """Held while changes are reported, as any thread may find them."""
        memory = self._slice(barrier.nbytes(self.size))
        self._barrier: TolerantBarrier = TolerantBarrier(self, memory, deadline_s, self.view, find_failed, leave, evict)
        self._collectives = Collectives(self, self._slice(collectives.nbytes(self.size)), self._barrier)

    def call_later(self, call: Callable[[], object]) -> None:
        """Have the next `poll_failures` that is not quiet call `call()`, which may raise. Local.

        At that moment this rank is not in the middle of a collective call or of making a window.
        """
        self._calls.append(call)

    def connect(self, peers: Sequence[int]) -> None:
        """Nothing: all ranks were connected at the start. Local."""

    def window(self, nbytes: int) -> Slice:
        """As `Transport.window`. Collective. MemoryError, on all ranks: no gap of the arena is long enough."""
        wanted = [int(text) for text in self._collectives.allgather(str(nbytes).encode(), "window") if text]
        self._report()  # from here on nothing arrives from ranks that had failed at the last barrier
        longest = max(1, *wanted)
        if longest > self._allocator.longest:
            raise MemoryError(
                f"this vector takes {longest / 1e6:,.1f} MB of each rank, and {self._allocator.longest / 1e6:,.1f} MB "
                "are left in one piece of what was set aside for vectors at the start: make room in /dev/shm, or close "
                "vectors that are not needed any more"
            )
        made = self._slice(longest)
        made.memory[:] = 0
        self.barrier("window")
        return made

    def _slice(self, nbytes: int) -> Slice:
        try:
            return Slice(self._arena, self._allocator.take(nbytes), nbytes, self._give_back)
        except MemoryError:
            raise MemoryError(
                f"/dev/shm is too small for {self.size} ranks: make room in it (docker run --shm-size)"
            ) from None

    def _give_back(self, start: int, nbytes: int) -> None:
        if self._discard is not None:
            self._discard(start, nbytes)
        self._allocator.give_back(start)

    def allgather(self, data: bytes) -> list[bytes]:
        """As `Transport.allgather`. Collective."""
        everyone = self._collectives.allgather(data)
        self._report()
        return everyone

    def alltoall(self, parts: Mapping[int, Bytes]) -> dict[int, Bytes]:
        """As `Transport.alltoall`. Collective."""
        received = self._collectives.alltoall(parts)
        self._report()
        return received

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """As `Transport.allreduce`. Collective."""
        self._collectives.allreduce(array, op, weights)
        self._report()

    def allreduce_by_mpi(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """As `Transport.allreduce_by_mpi`: WithoutMpi."""
        raise WithoutMpi("MPI_Reduce")

    def broadcast(self, array: NDArray[np.generic], root: int | None = None) -> None:
        """As `Transport.broadcast`. Collective."""
        self._collectives.broadcast(array, root)
        self._report()

    def barrier(self, what: str = "barrier", patience_s: float | None = None, final: bool = False) -> None:
        """As `Transport.barrier`. Collective."""
        lost = self._barrier.enter(what, patience_s, final)
        self._report(lost if final else None)

    def set_deadline(self, deadline_s: float) -> None:
        """As `Transport.set_deadline`. Local."""
        self._place.set_deadline(deadline_s)
        self._barrier.deadline_s = deadline_s

    def poll_failures(self, quietly: bool = False) -> None:
        """As `Transport.poll_failures`; also a heartbeat. One-sided: it publishes the ranks that it marks failed."""
        self._barrier.heartbeat()
        self.settle()
        self._barrier.check_now_and_then()
        self._report()
        self.attend()
        if self._calls and not quietly:
            calls, self._calls = self._calls, []
            _make_all(calls)

    def settle(self) -> None:
        """Return once it is decided who goes on, where ranks have lost each other; here none can. Local."""

    def confirm(self) -> None:
        """Return once a quorum of the ranks has confirmed that it goes on with this one, before a file is written.

        Here at once, as a failure is certain. Local.
        """

    def was_cut_off(self, rank: int) -> bool:
        """Whether the others go on without `rank`, of which nobody knows that it has ended; here none. Local."""
        return False

    def depart(self) -> None:
        """Nothing: the others go on without this rank once its process has ended. Local."""

    def pause(self, polls: int, until: float = math.inf) -> None:
        """As `Transport.pause`; now and then it also checks for failed ranks. One-sided."""
        self._place.pause(polls)
        self._barrier.check_now_and_then()
        self.attend()

    def _report(self, ranks: Collection[int] | None = None) -> None:
        if self._news:
            with self._reporting:
                self.view.report(ranks)

    def close(self) -> None:
        """Nothing: freeing the arena would need all ranks. Local."""


def _make_all(calls: Sequence[Callable[[], object]]) -> None:
    """Make all calls, then raise the first error; print the others."""
    errors = []
    for call in calls:
        try:
            call()
        except BaseException as error:
            errors.append(error)
    for later in errors[1:]:
        traceback.print_exception(later)
    if errors:
        raise errors[0]

"""A group of ranks of which some may die: the others go on.

Everything that the underlying transport does for all ranks together happens before the first death can do harm: one
window is made, the arena, and what it holds from then on, the roster, the mailboxes, all vectors, is dealt out of it by
the living (MPI's own collective calls hang or crash when a rank dies in them).

A slice that was freed serves again. Nobody can still write into it then: those who live have come to a meeting since
they freed it, and who had died before that is either gone, or cut off (the first subscriber of the view must see to
it). Each clears its own part, and all meet again before anybody writes.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dstorm.membership import barrier, collectives
from dstorm.membership.allocator import Allocator
from dstorm.membership.collectives import Collectives
from dstorm.membership.enrolment import Enrolled
from dstorm.membership.tolerant import TolerantRoster
from dstorm.membership.view import FaultTolerantView
from dstorm.transport import Bytes, Put, Window


class Place(Protocol):
    """Who the ranks are and how they wait: the part of a `Transport` in which no rank needs another."""

    rank: int
    size: int
    hosts: tuple[str, ...]
    local_peers: frozenset[int]
    library: str

    def set_deadline(self, deadline_s: float) -> None: ...
    def clock(self) -> float: ...
    def pause(self, polls: int) -> None: ...


class Slice:
    """A part of the arena that lies at the same place on all ranks, used as a window of its own."""

    def __init__(self, arena: Window, start: int, nbytes: int, give_back: Callable[[int, int], object]) -> None:
        self._arena, self._start = arena, start
        self._give_back: Callable[[int, int], object] | None = give_back
        self.memory: Bytes = arena.memory[start : start + nbytes]

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """As `Window.put`. One-sided."""
        self._arena.put(source, peer, self._start + offset)

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """As `Window.prepared`. Local."""
        return self._arena.prepared(source, peer, self._start + offset)

    def flush(self, peers: Sequence[int]) -> None:
        """As `Window.flush`. One-sided."""
        self._arena.flush(peers)

    def prepared_flush(self, peers: Sequence[int]) -> Put:
        """As `Window.prepared_flush`. Local."""
        return self._arena.prepared_flush(peers)

    def sync(self) -> None:
        """As `Window.sync`. Local."""
        self._arena.sync()

    def copy(self, offset: int, destination: Bytes) -> None:
        """As `Window.copy`. Local."""
        self._arena.copy(self._start + offset, destination)

    def free(self) -> None:
        """As `Window.free`; whoever lives does it alike, but nobody waits: the next `window` does. Local."""
        if self._give_back is not None:
            self._give_back(self._start, self.memory.nbytes)
            self._give_back, self.memory = None, np.empty(0, np.uint8)


class SurvivingTransport(Enrolled):
    """The ranks of a place while some of them die, or have died before. Local.

    `arena`: a window whose memory reads as zeros, of the same size on all ranks. `find_failed`: tells which ranks have
    ended, as far as this one can see for itself; never one that may come back. `leave(why)`: ends this process; called
    where the others take it for dead. `discard(offset, nbytes)`: gives pages of this rank's part of the arena that hold
    nothing any more back to the system, where that can be done. `evict(rank)`: kills a rank that gives no sign of life
    while others wait for it; whether it can.
    """

    def __init__(
        self, place: Place, arena: Window, find_failed: Callable[[], Sequence[int]], deadline_s: float = 300.0,
        leave: Callable[[str], object] | None = None, discard: Callable[[int, int], object] | None = None,
        evict: Callable[[int], bool] | None = None, membership: FaultTolerantView | None = None,
    ) -> None:  # fmt: skip
        self._place = place
        self.rank, self.size = place.rank, place.size
        self.hosts, self.local_peers, self.library = place.hosts, place.local_peers, place.library
        self.view = FaultTolerantView(place.size) if membership is None else membership
        self._news = self.view.unreported
        self.while_waiting: list[Callable[[], object]] = []
        self.clock = place.clock
        self._arena = arena
        self._discard = discard
        self._allocator = Allocator(arena.memory.nbytes)
        self._calls: list[Callable[[], object]] = []
        self._reporting = threading.RLock()
        """Held while changes are reported: any thread may find out."""
        memory = self._slice(barrier.nbytes(self.size))
        self._barrier: TolerantRoster = TolerantRoster(self, memory, deadline_s, self.view, find_failed, leave, evict)
        self._collectives = Collectives(self, self._slice(collectives.nbytes(self.size)), self._barrier)

    def call_later(self, call: Callable[[], object]) -> None:
        """Have `look` make a call that may raise, or call anything: nobody is in the middle of a collective call then,
        nor of the making of a window, which those who live must come through alike. Local."""
        self._calls.append(call)

    def connect(self, peers: Sequence[int]) -> None:
        """Nothing: all were connected before the first could die. Local."""

    def window(self, nbytes: int) -> Slice:
        """As `Transport.window`. MemoryError, on all ranks alike: the arena has no room for it."""
        wanted = [int(text) for text in self._collectives.allgather(str(nbytes).encode(), "window") if text]
        self._report()  # from here on nothing arrives from who was dead at that meeting
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
                "/dev/shm is too small for survive=True: docker run --shm-size, or no --survive"
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

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """As `Transport.allreduce`. Collective."""
        self._collectives.allreduce(array, op, weights)
        self._report()

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
        """As `Transport.look`; a sign of life. One-sided: the others are told of those they may not know of."""
        self._barrier.heartbeat()
        self._barrier.check_now_and_then()
        self._report()
        if self._calls and not quietly:
            calls, self._calls = self._calls, []
            _make_all(calls)

    def depart(self) -> None:
        """Nothing: the others go on without a rank that leaves, once its process has ended. Local."""

    def pause(self, polls: int) -> None:
        """As `Transport.pause`; now and then it looks who has died. One-sided."""
        self._place.pause(polls)
        self._barrier.check_now_and_then()
        for call in tuple(self.while_waiting) if self.view.failed else ():
            call()

    def _report(self, ranks: Collection[int] | None = None) -> None:
        if self._news:
            with self._reporting:
                self.view.report(ranks)

    def close(self) -> None:
        """Nothing: to free the arena all ranks would have to come."""


def _make_all(calls: Sequence[Callable[[], object]]) -> None:
    """Make all of them, then raise the first error; the others are printed."""
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

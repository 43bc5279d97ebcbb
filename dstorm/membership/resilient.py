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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
from numpy.typing import NDArray

from dstorm.errors import Refused, WithoutMpi
from dstorm.membership.arena.allocator import Allocator
from dstorm.membership.arena.slices import Slice
from dstorm.membership.barriers import barrier
from dstorm.membership.barriers.barrier import Barrier
from dstorm.membership.barriers.barrier_transport import BarrierTransport
from dstorm.membership.collectives import mailboxes
from dstorm.membership.collectives.mailboxes import Collectives
from dstorm.membership.returns import board
from dstorm.membership.returns.board import Board
from dstorm.membership.returns.returns import Returns
from dstorm.transport import Bytes, Transport, Window
from dstorm.view import FaultTolerantView
from dstorm.waits import interruption

_CHECK_S, _OFTEN = 0.02, 8
"""Period of the checks for failed ranks, where there are up to _OFTEN others; with more, longer in proportion."""


class SurvivingTransport(BarrierTransport):
    """The transport of the ranks of `place`, some of which may fail or have failed. The constructor is Local.

    `place`: which ranks there are, the clock, and how to wait, for which it needs no other rank. `arena`: a window of
    the same size on all ranks, whose memory reads as zeros. `find_failed()`: the ranks whose failure this rank can find
    by itself; none that may come back. `leave(why)`: ends this process; called where the others have marked it failed.
    `discard(offset, nbytes)`: gives unused pages of this rank's part of the arena back to the system, where that is
    possible. `evict(rank)`: kills a rank that gives no heartbeat while others wait for it, and returns whether it can.
    `readmit(rank, process)`: given where failed ranks may come back; it is called with a rank that has, and its
    process. `absent`: the ranks that take no part at first, and may come later. `incarnations`: those with which the
    ranks begin, by rank, where not 0.
    """

    def __init__(
        self, place: Transport, arena: Window, find_failed: Callable[[], Sequence[int]], deadline_s: float = 300.0,
        leave: Callable[[str], object] | None = None, discard: Callable[[int, int], object] | None = None,
        evict: Callable[[int], bool] | None = None,
        readmit: Callable[[int, Sequence[int]], object] | None = None, absent: Collection[int] = (),
        incarnations: Mapping[int, int] | None = None,
    ) -> None:  # fmt: skip
        self._place, self.may_send_ahead = place, False
        self.rank, self.size = place.rank, place.size
        self.hosts, self.local_peers, self.library = place.hosts, place.local_peers, place.library
        self.longest_poll_s = place.longest_poll_s
        self.view = FaultTolerantView(place.size, absent, incarnations)
        self._news = self.view.unreported
        self.duties: list[Callable[[], object]] = []
        self.clock = place.clock
        self._arena = arena
        self._discard = discard
        self._allocator = Allocator(arena.memory.nbytes)
        self._calls: list[Callable[[], object]] = []
        self._reporting = threading.RLock()
        """Held while changes are reported, or taken to be, as any thread may find them."""
        self._lending = threading.Lock()
        """Held while memory is lent or taken back: threads may take up ranks, each in another vector."""
        self._attached: list[Window] = []
        memory = self._slice(barrier.nbytes(self.size))
        if readmit is not None:
            notes = Board(self._slice(board.nbytes(self.size)), self.rank)
            self.returns = Returns(notes, self.view, self.rank, self, readmit)
        check_s = _CHECK_S * max(1.0, (self.size - 1) / _OFTEN)
        self._barrier = Barrier(self, memory, deadline_s, find_failed, leave, evict, check_s)
        self._collectives = Collectives(self, self._slice(mailboxes.nbytes(self.size)), self._barrier)
        if self.returns is not None:
            self.returns.send_again = self._collectives.send_again

    @property
    def taken(self) -> dict[int, int]:
        """The parts of the arena that are taken: their ends, by their starts; the same on all ranks. Local."""
        return self._allocator.taken

    def take_over(self, taken: Mapping[int, int]) -> None:
        """Let the same parts of the arena be taken as on other ranks. Local. For a rank that has come back."""
        self._allocator.take_over(taken)

    def window_at(self, place: int, nbytes: int) -> Window:
        """The window that the others have made before, at `place`. Local. Nothing is zeroed, and no rank waits."""
        return Slice(self._arena, place, nbytes, self.give_back)

    def attach(self, window: Window) -> None:
        """Let the next `window` be this one. Local."""
        self._attached.append(window)

    def lend(self, nbytes: int) -> tuple[int, Bytes] | None:
        """The offset of memory of this rank that no window takes at present, and the memory. Local. None: too long."""
        with self._lending:
            found = self._allocator.lend(nbytes)
        return None if found is None else (found, self._arena.memory[found : found + nbytes])

    def take_back(self, offset: int) -> None:
        """End the use of what `lend` gave. Local."""
        with self._lending:
            self._allocator.take_back(offset)

    def read(self, peer: int, offset: int, nbytes: int) -> Bytes:
        """A copy of the memory of `peer`. One-sided. PeerLost: it has failed."""
        copy = np.empty(nbytes, np.uint8)
        self._arena.get(copy, peer, offset)
        return copy

    def clear(self) -> None:
        """Make all memory of this rank zeros that windows may take: a former process has left it. Local."""
        start = max(self._allocator.taken.values())
        nbytes = self._arena.memory.nbytes - start
        if self._discard is None:
            self._arena.memory[start:] = 0
        else:
            self._discard(start, nbytes)

    def call_later(self, call: Callable[[], object]) -> None:
        """Have the next `poll_failures` that is not quiet call `call()`, which may raise. Local.

        At that moment this rank is not in the middle of a collective call or of making a window.
        """
        self._calls.append(call)

    def connect(self, peers: Sequence[int]) -> None:
        """Nothing: all ranks were connected at the start. Local."""

    def window(self, nbytes: int) -> Window:
        """Make a window in the arena. Collective. MemoryError, on all ranks: no gap of the arena is long enough."""
        if self._attached:
            return self._attached.pop()
        with self._as_one("window"):
            return self._made(nbytes)

    @contextmanager
    def _as_one(self, what: str) -> Iterator[None]:
        """A collective call of several barriers, between two of which no rank is admitted; then report. One-sided."""
        self._check_admitted(what)
        with self._barrier.calling(what) if self.returns is not None else nullcontext(), self._entering(what):
            yield
        self._report()

    def _check_admitted(self, what: str) -> None:
        """Refused: this rank has come back, and is not admitted yet. One-sided: else it opens no more for now."""
        if self._barrier.is_outside:
            call = self._barrier.calls.name(what)
            raise Refused(self.rank, f"{call} must be called before malt.vector and malt.Replica")
        if self.returns is not None:
            self.returns.opened_all()

    def _made(self, nbytes: int) -> Slice:
        wanted = [int(text) for text in self._collectives.allgather(str(nbytes).encode(), "window") if text]
        self._report()  # from here on nothing arrives from ranks that had failed at the last barrier
        longest = max(1, *wanted)
        if longest > self._allocator.longest:
            raise MemoryError(
                f"this vector takes {longest / 1e6:,.1f} MB of each rank, and {self._allocator.longest / 1e6:,.1f} MB "
                "are left in one piece of what was reserved for vectors at the start: free space in /dev/shm, or close "
                "vectors that are no longer needed"
            )
        made = self._slice(longest)
        made.memory[:] = 0
        made.born = self.view.generation  # before the last barrier: a rank that has left that may admit one
        self.barrier("window")
        return made

    def _slice(self, nbytes: int) -> Slice:
        try:
            return Slice(self._arena, self._allocator.take(nbytes), nbytes, self.give_back)
        except MemoryError:
            raise MemoryError(
                f"/dev/shm is too small for {self.size} ranks: make room in it (docker run --shm-size)"
            ) from None

    def give_back(self, start: int, nbytes: int) -> None:
        """Let a part of the arena be taken again. Local. All live ranks do so alike."""
        if self._discard is not None:
            self._discard(start, nbytes)
        self._allocator.give_back(start)

    def allgather(self, data: bytes) -> list[bytes]:
        """Return the `data` of every rank, by rank; b"" for failed ranks. Collective."""
        with self._as_one("allgather"):
            return self._collectives.allgather(data)

    def alltoall(self, parts: Mapping[int, Bytes]) -> dict[int, Bytes]:
        """Return what each live rank has sent to this one, by rank, ascending. Collective."""
        with self._as_one("alltoall"):
            return self._collectives.alltoall(parts)

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Replace `array` by the mean, sum, max or min over the live ranks. Collective."""
        with self._as_one("allreduce"):
            self._collectives.allreduce(array, op, weights)

    def allreduce_by_mpi(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Raise WithoutMpi."""
        raise WithoutMpi("MPI_Reduce")

    def broadcast(self, array: NDArray[np.generic], root: int | None = None) -> None:
        """Replace `array` by that of `root`, by default the lowest live rank. Collective."""
        with self._as_one("broadcast"):
            self._collectives.broadcast(array, root)

    def barrier(
        self, what: str = "barrier", patience_s: float | None = None, final: bool = False, mark: bool = False
    ) -> bool:  # fmt: skip
        """Return True when all live ranks have entered the barrier, if one gave `mark`. Collective."""
        self._check_admitted(what)
        with self._entering(what, patience_s) as patience_s:
            lost = self._barrier.enter(what, patience_s, final)
        self._report(lost if final else None)
        return True

    def set_deadline(self, deadline_s: float) -> None:
        """Set how long a barrier waits for a rank that gives no heartbeat. Local."""
        self._barrier.deadline_s = deadline_s

    def poll_failures(self, quietly: bool = False) -> None:
        """Find failed ranks, and give a heartbeat. One-sided: it publishes the ranks that it marks failed."""
        if self._barrier.is_outside:
            return
        self._barrier.heartbeat()
        self._barrier.check_now_and_then()
        self._report()
        self.attend()
        if self._calls and not quietly:
            self._make_calls()

    @interruption.whole
    def _make_calls(self) -> None:
        """Make all calls that wait, then raise the first error; print the others."""
        with self._reporting:  # another thread may be about to make the same calls
            calls, self._calls = self._calls, []
        errors = []
        for call in calls:
            try:
                interruption.exposed(call)
            except BaseException as error:
                errors.append(error)
        for later in errors[1:]:
            traceback.print_exception(later)
        if errors:
            raise errors[0]

    def was_cut_off(self, rank: int) -> bool:
        """Return whether the others go on without `rank`, of which nobody knows that it has ended; here none. Local."""
        return False

    def depart(self) -> None:
        """Nothing: the others go on without this rank once its process has ended. Local."""

    def pause(self, polls: int, until: float = math.inf) -> None:
        """Yield the core between two polls of a wait; now and then check for failed ranks. One-sided."""
        self._place.pause(polls)
        self._barrier.check_now_and_then()
        self.attend()

    def _report(self, ranks: Collection[int] | None = None) -> None:
        if self._news:
            with self._reporting:
                self.view.report(ranks)

    def close(self) -> None:
        """Nothing: freeing the arena would need all ranks. Local."""

"""The interfaces `Transport` and `Window`, which move bytes. Pure: no MPI, no clock.

Each module of dstorm/transports implements them. Everything else is written against them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dstorm.trace import Trace
from dstorm.view import View
from dstorm.waits.wait import Wait

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]
Put = Callable[[], object]
"""A Put or a flush that is prepared; each call starts it once."""


class RemoteMemory(Protocol):
    """Access to the memory of peers."""

    keeps_order: bool
    """Whether Puts to a rank of another host arrive in the order in which they start, which MPI does not promise."""

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """Start to write all of `source` (C-contiguous) at byte `offset` of `peer`'s memory. One-sided.

        `source` must not change before the next `flush`. Puts between two flushes arrive in any order, in any pieces.
        """

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """Return a function that does `put` with these arguments, in half the time. Local."""

    def flush(self, peers: Sequence[int]) -> None:
        """Return when all earlier Puts to `peers` are complete in their memory. One-sided."""

    def flush_local(self, peers: Sequence[int]) -> None:
        """Let all earlier Puts to `peers` leave; return when their sources may change (MPI_Win_flush_local). One-sided.

        It waits for no answer.
        """

    def linger(self, peers: Sequence[int]) -> None:
        """Return once what was put to `peers`, ranks of other hosts, has most likely arrived; or at once. One-sided.

        For a thread that has nothing else to do, before `flush`, which says so for certain: it sleeps, where a flush
        would keep a core from others for as long as it waits.
        """

    def get(self, destination: Bytes, peer: int, offset: int, places: Places | None = None) -> int:
        """Read from `peer`'s memory, which may be this rank's own, into `destination`; complete on return. One-sided.

        `destination` is C-contiguous. It takes the bytes from `offset` on. With `places` it has a row for each of them,
        and takes the row of that number: rows as long as its own are counted from `offset` on. What is written
        meanwhile may be read half-done. PeerLost: the memory has gone with its rank.

        Return the bytes that were moved: also what was asked, and what lies between rows and was read with them.
        """


class Window(RemoteMemory, Protocol):
    """One rank's memory that its peers write to, and access to the memory of its peers."""

    memory: Bytes
    """This rank's memory: a view, zeroed at creation. Peers write to it at any time."""
    addresses: Mapping[int, int]
    """Where the memory of ranks begins that this process maps, whose Puts are then copies: by rank. Its own, too."""

    def prepared_flush(self, peers: Sequence[int]) -> Put:
        """Return a function that does `flush` with these peers; with no peers it does nothing. Local."""

    def sync(self) -> None:
        """Order this rank's loads and stores of `memory` with the Puts of its peers (MPI_Win_sync). Local."""

    def copy(self, offset: int, destination: Bytes) -> None:
        """Copy `destination.nbytes` bytes of this rank's own memory, from `offset` on, into `destination`. Local."""

    def free(self) -> None:
        """Free the memory. Collective. A second call does nothing."""


class Load(Protocol):
    """A buffer whose messages a carrier sends to other hosts. One thread at a time calls the first three methods."""

    due_at: float
    """When `start` is to be called, though nobody wakes the carrier; infinity: never."""

    def start(self) -> bool:
        """Start the Puts of the next messages; return whether there are any. One-sided."""

    def flush(self) -> None:
        """Return when the Puts are complete. One-sided."""

    def finish(self) -> None:
        """Note that they are. Local."""

    def drain(self, what: str, timeout_s: float | None = None) -> None:
        """Return when all that was handed over before this call has arrived; what comes meanwhile has time.

        `what`, `timeout_s`: as those of `Carrier.drain`. DeadlinePassed.
        """


class Carrier(Protocol):
    """The sender to ranks of other hosts while this rank computes. Any thread may call all methods but `drain`."""

    moved_at: float
    """When something that it carries arrived last, by the clock of the transport."""
    busy_s: float
    """For how long rounds have taken in which there was something to send, in seconds."""

    @property
    def calling(self) -> AbstractContextManager[Any]:
        """The lock held during its one-sided calls: a thread that holds it keeps the carrier from them."""

    def add(self, load: Load) -> None:
        """Carry `load` from now on, until `remove`. Local."""

    def remove(self, load: Load) -> None:
        """Carry `load` no more: nothing is left in it, and its window is about to be freed. Local."""

    def later(self, errand: Callable[[], object], peers: Iterable[int]) -> None:
        """Call `errand()` soon: it makes one-sided calls to `peers` that this rank does not wait for. Local."""

    def wake(self) -> None:
        """Take up what the loads have got meanwhile. Local."""

    def check(self) -> None:
        """TransferFailed: an error has ended it, and it carries nothing any more. Local."""

    def drain(self, what: str, timeout_s: float | None = None) -> None:
        """Return when all that was handed over before this call has arrived. One-sided.

        `what`: the call that waits, for errors. `timeout_s`: the longest wait, in seconds; None: until nothing has
        arrived for the deadline of the session. DeadlinePassed names the peers. TransferFailed, as `check`.
        """


class Transport(Protocol):
    """A group of ranks that can make windows on each other's memory."""

    rank: int
    size: int
    hosts: tuple[str, ...]
    """The host name of each rank. Ranks with the same name share memory and files."""
    local_peers: frozenset[int]
    """The other ranks of this host that may compete with this one for its cores."""
    library: str
    """The MPI library and its version in one line, or what takes its place."""
    longest_poll_s: float
    """The longest time between two polls of a wait of a process that runs (dstorm/waits/running_time.py). Infinity in a
    simulation, where none is stopped."""
    may_send_ahead: bool
    """Whether another thread may send a part of what the ranks exchange, while the caller computes the rest: not where
    ranks take turns in one thread, nor where a rank may fail between the two."""

    @property
    def carrier(self) -> Carrier | None:
        """The sender to ranks of other hosts while this rank computes; collective calls drain it first. Local.

        None: nobody, and a scatter to such a rank waits for its flushes.
        """

    @property
    def view(self) -> View:
        """The membership view of this rank: which ranks are alive. Always the same object. Local."""

    duties: list[Callable[[], object]]
    """What this rank does for its peers: functions that make one-sided calls, which `attend` calls."""
    returns: Any
    """What ranks tell each other where failed ones may come back: a `Returns`. None: none may."""
    trace: Trace | None
    """Where its events are written down. None: it is not traced."""
    trains_since: float | None
    """When this rank began to train, by `clock`. None: it has not so far."""
    waited_s: float
    """The seconds that it has waited in collective calls since it began to train."""

    def begin_training(self, now: float) -> None:
        """Note that this rank begins to train, unless it has: with its first step or exchange. Local."""

    def attend(self) -> None:
        """Call the functions of `duties`. One-sided. Each `pause` and each `poll_failures` does so."""

    def connect(self, peers: Sequence[int]) -> None:
        """Connect this rank to `peers`, which connect to it. Collective, also for a rank that has no peers.

        DeadlinePassed names the missing ranks.
        """

    def window(self, nbytes: int) -> Window:
        """Make a window with `nbytes` of zeroed memory on this rank. Collective. Sizes may differ between ranks."""

    def allgather(self, data: bytes) -> list[bytes]:
        """The `data` of every rank, by rank; b"" for failed ranks. Collective. Lengths may differ."""

    def alltoall(self, parts: Mapping[int, Bytes]) -> dict[int, Bytes]:
        """Return what each live rank has sent to this one, by rank, ascending. Collective.

        `parts`: what this rank sends, by receiver, itself too; nothing to a rank that is left out. Where a rank fails
        meanwhile, it is missing in the results of all other ranks alike.
        """

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Replace `array` by the mean, sum, max or min over the live ranks: the same bits on all ranks. Collective.

        `array`: C-contiguous, of the same shape and dtype on all ranks. Arrays are combined in rank order. `weights`:
        the weight of each rank in a mean, the same on all ranks; a rank that has none does not count. ValueError, on
        all ranks: no live rank has a weight.
        """

    def allreduce_by_mpi(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Combine arrays like `allreduce`, but by MPI_Reduce and MPI_Bcast, which may combine in any order. Collective.

        ValueError, on all ranks: the ranks do not use MPI, one may fail, or MPI cannot combine this dtype.
        """

    def broadcast(self, array: NDArray[np.generic], root: int | None = None) -> None:
        """Replace `array` by that of `root`, by default the lowest live rank. Collective.

        `array`: C-contiguous, of the same shape and dtype on all ranks. PeerLost, on all ranks: `root` has failed;
        `array` is unchanged.
        """

    @property
    def meetings(self) -> int:
        """The number of barriers this rank has entered, those of other collective calls too. Local.

        One more while it is about to enter one: what another thread sends then may not be there when all have met.
        """

    def barrier(
        self, what: str = "barrier", patience_s: float | None = None, final: bool = False, mark: bool = False
    ) -> bool:  # fmt: skip
        """Return when all live ranks have entered the barrier: whether any of them gave `mark`. Collective.

        Where ranks may fail alone, it returns True.

        `what` names the barrier in errors. `final`: the barrier ends the session; a rank that has entered it does not
        count as failed afterwards. All other collective calls enter a barrier first, and raise the same errors.

        DeadlinePassed: the missing ranks have given no heartbeat for the deadline, or have not come within
        `patience_s`; or what this rank had scattered to them has not arrived. MismatchedCalls: a rank is in another
        collective call. PeerLost: a rank has departed.
        """

    def calling(self, what: str) -> AbstractContextManager[None]:
        """Give the collective calls in the block the name `what` in errors and reports. Local.

        Where blocks are nested, the name of the outermost counts. RuntimeError: another thread of this rank is in a
        collective call.
        """

    @property
    def lacks_ranks(self) -> bool:
        """True if this rank waits in a collective call that a live rank has not entered, as far as it knows. Local.

        So no rank has left that call: what this rank had seen before of ranks that `tell_left` is from before its end.
        """

    def tell_left(self) -> None:
        """Publish that this rank has left the last collective call, unless it has. One-sided."""

    def set_deadline(self, deadline_s: float) -> None:
        """Set how long a barrier waits for a rank that gives no heartbeat. Local."""

    def poll_failures(self, quietly: bool = False) -> None:
        """Find the ranks that have failed and report them to the subscribers of the view. Local.

        Does nothing where it was done a moment ago. Calls the callbacks of users, unless `quietly`; an error of one of
        them is raised after all have been called.
        """

    def count_step(self) -> None:
        """Publish one more step of this rank. A step is a heartbeat, too. One-sided."""

    def heartbeat(self) -> None:
        """Publish that this rank is alive. One-sided. Any thread may call it."""

    def heard_at(self, rank: int) -> float:
        """Return the time at which `rank` last gave a heartbeat, by this rank's clock, as far as this rank knows.
        Local."""

    @property
    def waiting(self) -> Wait | None:
        """The wait that `poll_wait` was last called for, if it has not ended. Local; any thread may read it."""

    def poll_wait(self, wait: Wait) -> bool:
        """Return whether the deadline of `wait` has passed. One-sided. To be called whenever the wait is due.

        Publishes for whom this rank waits, and reports a long wait on stderr. Where ranks may fail, evicts the ranks
        that hold the wait up.
        """

    def end_wait(self, in_vain: bool = False) -> None:
        """Publish that this rank waits no longer. One-sided.

        `in_vain`: the deadline has passed. Then the wait stays published until the next heartbeat: others that wait in
        the same circle would otherwise take this rank for one at work.
        """

    def opened(self) -> None:
        """Count one more vector that this rank has open. Local. Others learn of it at the next collective call."""

    def closed(self) -> None:
        """Count one open vector less, and publish it. One-sided."""

    def has_closed(self, rank: int) -> bool:
        """Return whether `rank` has closed all its vectors, as far as this rank knows. Local."""

    def was_evicted(self, rank: int) -> bool:
        """Return whether `rank` was killed because it gave no heartbeat while others waited for it. Local."""

    def depart(self) -> None:
        """Publish that this rank leaves in order while the others go on. One-sided. A second call does nothing.

        Collective calls that need this rank raise PeerLost on the others at once. Where ranks may fail no call needs a
        particular rank: the others go on once its process has ended.
        """

    def clock(self) -> float:
        """Seconds since a fixed moment, also while this process is stopped; in a simulation virtual ones. Local."""

    def compute(self, seconds: float) -> None:
        """Advance the clock by `seconds` of computation in a simulation; elsewhere nothing. Local."""

    def pause(self, polls: int, until: float = math.inf) -> None:
        """Yield the core between two polls of a wait, for longer after more `polls`. Local.

        `until`: when the wait ends, by `clock`, if what it awaits does not come. A simulated rank sleeps no longer.
        """

    def progress(self) -> None:
        """Let Puts of other hosts come in, where that takes calls of this rank, and yield the core once. Local."""

    def close(self) -> None:
        """Free what the transport holds. Collective, after all windows are freed."""


class Training:
    """The base of transports: when a rank began to train, and its waits since. Its members are those of `Transport`."""

    trace: Trace | None = None
    trains_since: float | None = None
    waited_s: float = 0.0

    def begin_training(self, now: float) -> None:
        """Note that this rank begins to train, unless it has: with its first step or exchange. Local."""
        if self.trains_since is not None:
            return
        self.trains_since, self.waited_s = now, 0.0
        if self.trace is not None:
            self.trace.begun(now)

    def compute(self, seconds: float) -> None:
        """Nothing: work takes its time. Local."""

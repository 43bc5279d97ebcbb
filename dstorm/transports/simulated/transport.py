"""The Transport and the Window of simulated ranks: one process, no MPI, a schedule that a seed decides."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstorm import reduction
from dstorm.errors import WithoutMpi
from dstorm.membership.barriers.barrier_transport import call_all
from dstorm.membership.barriers.calls import Calls
from dstorm.transport import Bytes, Places, Put
from dstorm.transports import shm_space
from dstorm.transports.mapped import read
from dstorm.transports.simulated.collective import Collective
from dstorm.transports.simulated.group import Group
from dstorm.transports.solo import SoloTransport
from dstorm.transports.transfer import Rounds
from dstorm.view import View
from dstorm.waits.wait import Wait

_view = lru_cache(maxsize=4)(View)
"""The view of all ranks of a group. It never changes, so they share it."""
_DEADLINE_S = 300.0
"""Until `set_deadline`."""


class SimulatedWindow:
    """One rank's part of a window among simulated ranks. All methods are those of `Window`."""

    addresses: Mapping[int, int] = {}
    keeps_order = False

    def __init__(self, group: Group, rank: int, nbytes: int) -> None:
        self._group = group
        self._rank = rank
        shm_space.check_host(f"the window of rank {rank}", nbytes)
        self.memory: Bytes = np.zeros(max(nbytes, 1), np.uint8)
        self._parts: list[Bytes] = group.gather(rank, "a window", self.memory).things

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """Put in pieces that are cut at random. One-sided. ValueError: it leaves the window."""
        target = self._parts[peer][offset : offset + source.nbytes]
        if target.nbytes != source.nbytes:
            raise ValueError(f"a Put of {source.nbytes} bytes at {offset} leaves rank {peer}'s window")
        self._group.send(self._rank, peer, source.reshape(-1), target)
        self._group.maybe_switch(self._rank)

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """Return a function that does `put`; it is not faster. Local."""
        return partial(self.put, source, peer, offset)

    def flush(self, peers: Collection[int]) -> None:
        """Deliver all that is pending. Other ranks may run before and after. One-sided."""
        self._group.maybe_switch(self._rank)
        self._group.deliver(self._rank, peers)
        self._group.maybe_switch(self._rank)

    def flush_local(self, peers: Sequence[int]) -> None:
        """Flush, as a Put has no copy of its source. One-sided."""
        self.flush(peers)

    def linger(self, peers: Sequence[int]) -> None:
        """Do nothing: a flush takes no core."""

    def prepared_flush(self, peers: Sequence[int]) -> Put:
        """Return a function that does `flush`; it is not faster. Local."""
        return partial(self.flush, frozenset(peers))

    def get(self, destination: Bytes, peer: int, offset: int, places: Places | None = None) -> int:
        """Read from the memory of `peer`. Other ranks may run meanwhile. One-sided."""

        def copy(piece: slice) -> None:
            """Copy the rows, or bytes, of a piece. Local."""
            start, some = (offset + (piece.start or 0), None) if places is None else (offset, places[piece])
            read(self._parts[peer], start, destination[piece], some)

        self._group.read(self._rank, peer, destination, copy)
        return destination.nbytes

    def sync(self) -> None:
        """Let other ranks run. Local."""
        self._group.look(self._rank)

    def copy(self, offset: int, destination: Bytes) -> None:
        """Copy in two pieces, between which other ranks may run. Local."""
        half = self._group.random.randint(0, destination.nbytes)
        destination[:half] = self.memory[offset : offset + half]
        self._group.maybe_switch(self._rank)
        destination[half:] = self.memory[offset + half : offset + destination.nbytes]

    def free(self) -> None:
        """Free the window once all ranks have. Collective."""
        if self._parts:
            self._parts = []
            self._group.gather(self._rank, "the end of a window", None)


class SimulatedTransport(SoloTransport):
    """One rank of a `Group`: what needs other ranks is done by the group. All methods are those of `Transport`."""

    longest_poll_s = math.inf
    carrier: Rounds | None

    def __init__(self, group: Group, rank: int, deadline_s: float = _DEADLINE_S) -> None:
        super().__init__("in process")
        self._group = group
        self.rank, self.size, self.hosts = rank, group.size, group.hosts
        self.view = _view(self.size)
        self._calls = Calls()
        self.carrier = group.carrier(self, deadline_s)

    def window(self, nbytes: int) -> SimulatedWindow:
        """Make a window with `nbytes` of zeroed memory on this rank. Collective. Sizes may differ between ranks."""
        return SimulatedWindow(self._group, self.rank, nbytes)

    def find_failed(self) -> Sequence[int]:
        """The failed ranks, ascending. Local."""
        return sorted(self._group.failed)

    def allgather(self, data: bytes) -> list[bytes]:
        """The `data` of every rank, by rank; b"" for failed ranks. Collective. Lengths may differ."""
        return list(self._gather("allgather", data, "allgather").things)

    def alltoall(self, parts: Mapping[int, Bytes]) -> dict[int, Bytes]:
        """Return what each live rank has sent to this one, by rank, ascending. Collective."""
        given = self._gather("alltoall", {peer: part.copy() for peer, part in parts.items()}, "alltoall").things
        return {rank: theirs.get(self.rank, np.empty(0, np.uint8)) for rank, theirs in enumerate(given)}

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Replace `array` by the mean, sum, max or min over the live ranks: the same bits on all ranks. Collective."""
        collective = self._gather("allreduce", array.astype(reduction.accumulator(array.dtype)), "allreduce")
        if collective.result is None:
            parts = {rank: collective.things[rank] for rank in reduction.counting(weights, range(self.size))}
            reduced = np.empty_like(array)
            reduction.reduce_into(reduced, parts, op, weights)
            collective.result = reduced
        array[...] = collective.result

    def allreduce_by_mpi(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Raise WithoutMpi."""
        raise WithoutMpi("MPI_Reduce")

    def broadcast(self, array: NDArray[np.generic], root: int | None = None) -> None:
        """Replace `array` by that of `root`, by default the lowest live rank. Collective."""
        root = root or 0
        mine = array.copy() if self.rank == root else None
        array[...] = self._gather("broadcast", mine, "broadcast").things[root]

    def barrier(
        self, what: str = "barrier", patience_s: float | None = None, final: bool = False, mark: bool = False
    ) -> bool:  # fmt: skip
        """Return when all live ranks have entered the barrier: whether any of them gave `mark`. Collective."""
        return any(self._gather(what, mark, patience_s=patience_s).things)

    def _gather(self, what: str, thing: Any, kind: str = "", patience_s: float | None = None) -> Collective:
        if self.carrier is not None:
            self.carrier.drain(what, patience_s)
        self.meetings += 1
        meanwhile, start = self.attend if self.duties else None, self.clock()
        gathered = self._group.gather(self.rank, self._calls.name(what), thing, meanwhile, kind)
        self.waited_s += self.clock() - start
        return gathered

    def calling(self, what: str) -> AbstractContextManager[None]:
        """Give the collective calls in the block the name `what` in errors and reports. Local."""
        return self._calls.calling(what, self.trace)

    @property
    def lacks_ranks(self) -> bool:
        """True if this rank waits in a collective call that a live rank has not entered. Local."""
        return self._group.lacks_ranks(self.rank)

    def set_deadline(self, deadline_s: float) -> None:
        """Set how long a barrier waits for a rank that gives no heartbeat. Local."""
        if self.carrier is not None:
            self.carrier.waiting.deadline_s = deadline_s

    def attend(self) -> None:
        """Call the functions of `duties`. One-sided. Each `pause` and each `poll_failures` does so."""
        if self.duties:
            call_all(self.duties)

    def poll_failures(self, quietly: bool = False) -> None:
        """Attend to duties; no failure is found here. Local."""
        self.attend()

    def count_step(self) -> None:
        """Publish one more step of this rank. A step is a heartbeat, too. One-sided."""
        self.begin_training(self.clock())
        self.heartbeat()

    def heartbeat(self) -> None:
        """Publish that this rank is alive. One-sided. Any thread may call it."""
        self._group.heard_at[self.rank] = self.clock()

    def heard_at(self, rank: int) -> float:
        """Return the time at which `rank` last gave a heartbeat, by this rank's clock, as far as this rank knows."""
        return self._group.heard_at[rank]

    def poll_wait(self, wait: Wait) -> bool:
        """Return whether the deadline of `wait` has passed. One-sided. To be called whenever the wait is due."""
        self.waiting = wait
        return wait.judge(self.clock(), self.heard_at, lambda rank: ()).is_over

    def end_wait(self, in_vain: bool = False) -> None:
        """Publish that this rank waits no longer. One-sided."""
        self.waiting = None

    def clock(self) -> float:
        """Return the time of the group. Local."""
        return self._group.now

    def pause(self, polls: int, until: float = math.inf) -> None:
        """Let other ranks run. Local."""
        self.attend()
        self._group.poll(self.rank, polls, until)

    def compute(self, seconds: float) -> None:
        """Advance this rank's clock by `seconds`, while others run. Local."""
        self._group.compute(self.rank, seconds)

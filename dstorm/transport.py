"""What moves bytes: the interface that the MPI and the in-process implementation share.

Everything above this line is written against `Transport` and `Window`; nothing here imports MPI or a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dstorm.membership.view import View
from dstorm.wait import Wait

Bytes = NDArray[np.uint8]
Put = Callable[[], object]
"""A Put, or the flush of some, that is ready to be started."""


class Window(Protocol):
    """One rank's part of a distributed one-sided memory, and the way into the parts of its peers."""

    memory: Bytes
    """This rank's part, zeroed at creation: a view. Peers write into it at any time."""

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """Start to write all of `source` (C-contiguous) at byte `offset` of `peer`'s memory. One-sided.

        `source` must stay as it is until the next `flush`; Puts between two flushes land in any order, in any pieces.
        """

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """The `put` of these arguments, to be started by a call, any number of times: half as dear. Local."""

    def flush(self, peers: Sequence[int]) -> None:
        """Return when every Put so far towards `peers` is complete in their memory. One-sided."""

    def prepared_flush(self, peers: Sequence[int]) -> Put:
        """The `flush` of these peers, as `prepared`; of none, nothing. Local."""

    def sync(self) -> None:
        """Order this rank's loads and stores of `memory` with what peers wrote. Local."""

    def copy(self, offset: int, destination: Bytes) -> None:
        """Copy `destination.nbytes` bytes out of this rank's own memory at `offset`. Local."""

    def free(self) -> None:
        """Give the memory back. Collective; a second call does nothing."""


class Transport(Protocol):
    """A group of ranks that can open windows on each other."""

    rank: int
    size: int
    hosts: tuple[str, ...]
    """The name of the host of each rank: ranks of one name share memory and files."""
    local_peers: frozenset[int]
    """The other ranks of this host, which may be given the cores that this one needs, and the other way round."""
    library: str
    """The MPI library and its version in one line, or what stands in for it."""

    @property
    def view(self) -> View:
        """Who is alive, as far as this rank knows: always the same object. Local."""

    while_waiting: list[Callable[[], object]]
    """What each `pause` calls once ranks have failed. One-sided calls, in the thread that waits."""

    def connect(self, peers: Sequence[int]) -> None:
        """Make ready for traffic with `peers`, who do the same. Collective: also where there are none. DeadlinePassed:
        who is missing."""

    def window(self, nbytes: int) -> Window:
        """A window with `nbytes` of zeroed memory on this rank; peers may give other sizes. Collective."""

    def allgather(self, data: bytes) -> list[bytes]:
        """What every rank gave, by rank; lengths may differ; b"" of those who are dead. Collective."""

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Replace `array`, C-contiguous and of the same shape and dtype on all, by the mean, sum, max or min over those
        who live, combined in rank order: the same bits on all. Collective.

        `weights`: those of the ranks in a mean, the same on all; who has none does not count. ValueError, on all: none
        of the living has any.
        """

    def broadcast(self, array: NDArray[np.generic], root: int | None = None) -> None:
        """Replace `array`, C-contiguous and of the same shape and dtype on all, by that of `root`, by default of the
        lowest rank that lives. Collective. PeerLost, on all: `root` has failed; `array` is as before."""

    def barrier(self, what: str = "barrier", patience_s: float | None = None, final: bool = False) -> None:
        """Return when all ranks have called it. `final`: it ends the session, and who has come to it has not failed,
        whatever the others are in. Collective.

        DeadlinePassed, which says `what` was waited in: ranks are missing that have made no step for the deadline, or
        have not come within `patience_s`. MismatchedCalls: a rank is in another collective call. PeerLost: one has
        departed. So do the other collective calls, before they begin.
        """

    def calling(self, what: str) -> AbstractContextManager[None]:
        """From here to its end all that this rank does with the others is part of the collective call `what`, or of the
        one that this is part of, and is called so where it waits, or another rank is in another call. Local.
        RuntimeError: another thread of this rank is in a collective call."""

    def set_deadline(self, deadline_s: float) -> None:
        """From here on a barrier waits so long for a rank that makes no step. Local."""

    def poll_failures(self, quietly: bool = False) -> None:
        """Look who has failed, unless it has just been done, and report it to the subscribers of the view; make the
        calls that users asked for, but not `quietly`. Local. What such a call raises, once all have been made."""

    def count_step(self) -> None:
        """Count a step of this rank, so that others who wait for it know that it is alive. One-sided."""

    def heartbeat(self) -> None:
        """A sign of life, without a step. From any thread. One-sided."""

    def heard_at(self, rank: int) -> float:
        """When `rank` last gave a sign of life, by this rank's clock, as far as it has looked. Local."""

    def attend(self, wait: Wait) -> bool:
        """Look after a wait, whenever it is due: publish it, say on stderr whom it is for where that is due; where
        ranks may die, evict who holds it up. Whether its deadline has passed. One-sided."""

    def end_wait(self, in_vain: bool = False) -> None:
        """This rank's wait is over; `in_vain`: its deadline has passed, which the others, of whom some may wait in the
        same circle, learn only with its next sign of life. One-sided."""

    def opened(self) -> None:
        """This rank has a vector more in use. Local: the others learn of it at the next collective call."""

    def closed(self) -> None:
        """It has one less in use. One-sided."""

    def has_closed(self, rank: int) -> bool:
        """Whether `rank` uses none any more, as far as this one has looked. Local."""

    def was_evicted(self, rank: int) -> bool:
        """Whether `rank` was killed because it gave no sign of life while others waited for it. Local."""

    def depart(self) -> None:
        """Tell the others that this rank leaves in order while they go on, once it has closed its windows' users: a
        collective call that still needs it raises PeerLost on them at once. Where ranks may die, nothing: they need
        none. One-sided; a second call does nothing."""

    def clock(self) -> float:
        """Seconds since some fixed moment: the time of deadlines (virtual in a simulation). Local."""

    def pause(self, polls: int) -> None:
        """Let others run between two polls of a wait, longer the more `polls` there were. Local."""

    def close(self) -> None:
        """Give back what the transport holds. Collective, after all windows are freed."""

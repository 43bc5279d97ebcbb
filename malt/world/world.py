"""A world: the ranks that train together, and what this one of them holds open."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dstorm import DeadlinePassed, PeerLost, Transport
from malt.world.endings import Ending
from malt.world.shardnotes import ShardNotes

if TYPE_CHECKING:
    from malt.replica.replica import Replica
    from vol import Vector

_LAST = "malt.finalize"
DEADLINE_S = 300.0
"""The default, which malt.init tells from a number that was given by identity."""


class World:
    """The ranks that train together, as one of them sees it."""

    def __init__(
        self, transport: Transport, deadline_s: float = DEADLINE_S, comm: Any = None, ending: Ending | None = None
    ) -> None:  # fmt: skip
        self.transport = transport
        self.comm = comm
        """The communicator of its ranks; None: they need no MPI."""
        self.ending = ending or Ending()
        """How it ends as its program does."""
        self.deadline_s = deadline_s
        self.vectors: list[Vector] = []
        """Those that are not freed yet, in the order in which all ranks made them."""
        self.lost: dict[int, float] = {}
        """Ranks that have died, and when that was found out, or they were first seen to stand still: seconds since
        1970."""
        self.reasons: dict[int, str] = {}
        """Why each of them did, as far as that is known."""
        self.callbacks: list[Callable[[int], None]] = []
        """What malt.on_death was given."""
        self.made = 0
        """Vectors made so far."""
        self.replicas: list[Replica] = []
        """Those neither finished nor closed yet."""
        self.replicas_made = 0
        """Replicas made so far."""
        self.notes = ShardNotes()
        """Of what malt.shard was given."""
        self.closed = False
        self.departed = False
        """Whether it was closed here alone, without the others: no session can follow."""

    @property
    def rank(self) -> int:
        """This process, 0 to size - 1."""
        return self.transport.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.transport.size

    @property
    def library(self) -> str:
        """The MPI library and its version, or what stands in for it."""
        return self.transport.library

    @property
    def survive(self) -> bool:
        """Whether ranks may fail while the others go on. A world of one has no others."""
        return self.transport.view.can_change

    @property
    def alive(self) -> tuple[int, ...]:
        """The ranks that live, as far as this one knows, ascending."""
        return self.transport.view.alive

    @property
    def is_lowest(self) -> bool:
        """Whether this is the lowest rank that lives, as far as it knows: who writes files, and speaks for all."""
        return self.rank == self.transport.view.lowest

    @property
    def may_be_lowest(self) -> bool:
        """Whether it is that, or may come to be."""
        return self.transport.view.may_be_lowest(self.rank)

    def reachable(self, neighbours: Sequence[int]) -> Sequence[int]:
        """Whom a vector of this rank must be able to reach, ascending, where its graph gives it `neighbours`."""
        return self.transport.view.reachable(lambda rank: neighbours)(self.rank)

    def report(self, line: str) -> bool:
        """Print a line on stderr, on the lowest rank that lives alone; whether this is it. Local."""
        if speaks := self.is_lowest:
            print(line, file=sys.stderr, flush=True)
        return speaks

    def close(self, patience_s: float | None = None) -> None:
        """Close and free all vectors. Collective; a second call does nothing.

        DeadlinePassed: the others have not come, or not within `patience_s`, after which it may be called again. Where
        one of them has departed, this rank does so too. RuntimeError: another thread is in a collective call; nothing
        has been closed.
        """
        if not self.closed:
            with self.transport.calling(_LAST):
                self._close(patience_s)

    def _close(self, patience_s: float | None) -> None:
        self.closed = True
        for vector in self.vectors:
            vector.close()
        try:
            self.transport.barrier(_LAST, patience_s, final=True)
        except DeadlinePassed:
            self.closed = patience_s is None
            raise
        except PeerLost:
            self.depart()
            return
        for vector in self.vectors:
            vector.free()
        self.vectors.clear()
        self.transport.close()

    def depart(self) -> None:
        """Close all vectors, and leave the session while others go on. One-sided; harmless a second time."""
        for vector in self.vectors:
            vector.close()
        self.transport.depart()
        self.closed = self.departed = True

    def __repr__(self) -> str:
        return f"<malt world: rank {self.rank} of {self.size}, {self.library}{', closed' if self.closed else ''}>"

"""`malt.World`: the ranks that train together, and what this rank holds open."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from dstorm import DeadlinePassed, EdgeStatistics, PeerLost, Statistics, Transport
from dstorm.queues.statistics import added, located, total
from dstorm.reduction import Traffic
from dstorm.trace import EdgeTotals
from malt.session.world.agreement import exchange
from malt.session.world.creations import Awaited, Creations, Newcomer
from malt.session.world.crew import Crew, Dealt, dealt
from malt.session.world.endings import Ending
from malt.session.world.failures import Failures, Moment
from malt.session.world.shard_notes import ShardNotes
from malt.session.world.training_speed import TrainingSpeed
from malt.watch.jobs import launched_s
from malt.watch.split import Split, split
from vol.shared import Shared

if TYPE_CHECKING:
    from malt.session.world.meter import Meter
    from vol import OwnedVector, SparseShardedVector

_LAST = "malt.finalize"
DEADLINE_S = 300.0
"""The default. malt.init compares by identity, to find out whether a deadline was given."""
Kind = TypeVar("Kind", bound=Shared)


class Paced(Protocol):
    """An object that determines when this rank exchanges."""

    @property
    def every(self) -> int:
        """The counts between two exchanges, now."""


class OpenReplica(Paced, Protocol):
    """A Replica, as the end of a session and the view see it."""

    name: str

    @property
    def is_apart(self) -> bool:
        """True if it has counted a step since all ranks had one model."""


class World:
    """The session, as this rank sees it: its ranks, and the vectors that are open. malt.init returns it.

    Its properties are Local.
    """

    def __init__(
        self, transport: Transport, deadline_s: float = DEADLINE_S, comm: Any = None, ending: Ending | None = None
    ) -> None:  # fmt: skip
        self.transport = transport
        self.comm = comm
        """The communicator of the ranks. None: they do not use MPI."""
        self.ending = ending or Ending()
        """How the session ends with the program."""
        self.begun_at = transport.clock()
        """When the session began, by the clock of the transport."""
        self.deadline_s = deadline_s
        """The deadline of a wait, in seconds."""
        self.vectors: list[Shared | Awaited] = []
        """Vectors and blocks that are not freed yet, in the order in which all ranks made them."""
        self.freed = Statistics()
        """The totals of those that are freed."""
        self.failures = Failures()
        """The ranks that have failed, and those of them that have come back."""
        self.creations = Creations()
        """What all ranks have agreed on of vectors and Replicas, for ranks that come back."""
        self.newcomer: Newcomer | None = None
        """How this rank gets what the others have, as it has come back. None: it has all, or has not come back."""
        self.crew: Crew | None = None
        """How many ranks there are to be, and who trains when, where ranks come and go. None: they do not."""
        self.made = self.replicas_made = 0
        """The number of vectors and blocks made so far, and of Replicas."""
        self.replicas: list[OpenReplica] = []
        """Replicas that are neither finished nor closed."""
        self.exchanges: Paced | None = None
        """The malt.Exchanges that was made last. None: there was none."""
        self.notes = ShardNotes()
        """The notes of what malt.shard was given."""
        self.training_speed = TrainingSpeed()
        """How fast this rank is, for malt.shard(..., by_speed=True)."""
        self.traffic = Traffic(transport)
        """What this rank has exchanged by the algorithms of malt.allreduce."""
        self.chunk_traffic = Traffic(transport)
        """What this rank has sent and received of the datasets of malt.map_reduce."""
        self.meter: Meter | None = None
        """What malt plan measures or charges the exchanges of Replicas with."""
        self.closed = False
        """Whether the session has ended here."""
        self.departed = False
        """Whether this rank has departed while others went on: no session can follow."""

    @property
    def rank(self) -> int:
        """This process's rank, 0 to size - 1."""
        return self.transport.rank

    @property
    def size(self) -> int:
        """The number of ranks; where it changes, the one that the job is to have."""
        return self.transport.size if self.crew is None else self.crew.size

    @property
    def is_elastic(self) -> bool:
        """True if the number of ranks may change (malt run --elastic)."""
        return self.crew is not None and self.crew.is_elastic

    @property
    def dealt(self) -> Dealt:
        """Among whom rows are dealt now. Local."""
        if self.crew is not None:
            return self.crew.dealt
        return dealt(range(self.transport.size), self.transport.view.failed)

    @property
    def library(self) -> str:
        """The MPI library and its version, or what is used in its place."""
        return self.transport.library

    @property
    def members(self) -> tuple[int, ...]:
        """The launcher's number of each rank: its rank in MPI.COMM_WORLD."""
        if self.comm is None:
            return tuple(range(self.transport.size))
        from dstorm.transports import mpi

        return mpi.members(self.comm)

    @property
    def survive(self) -> bool:
        """True if ranks may fail while the others continue. False with a single rank."""
        return self.ending.goes_on

    @property
    def alive(self) -> tuple[int, ...]:
        """The live ranks, ascending, as far as this rank knows. Local."""
        return self.transport.view.alive

    @property
    def is_lowest(self) -> bool:
        """True if this is the lowest live rank, as far as it knows: the one that writes files and reports. Local."""
        lowest = self.transport.view.lowest
        return self.rank == lowest and not self.is_outside

    @property
    def may_be_lowest(self) -> bool:
        """True if this rank is the lowest live rank, or may become it. Local."""
        return self.transport.view.may_be_lowest(self.rank)

    def statistics(self) -> Statistics:
        """Return totals of malt.reduce_scatter, of malt.allreduce with an algorithm other than "auto" and "mpi", and of
        large results of malt.map_reduce. Local.

        `bytes_sent` and `bytes_read` are what this rank has sent and received, in total and by peer.
        """
        return _totals(self.traffic, self.transport.hosts)

    def chunk_statistics(self) -> Statistics:
        """Return totals of the chunks of datasets that malt.map_reduce has sent, like `statistics`. Local."""
        return _totals(self.chunk_traffic, self.transport.hosts)

    @property
    def sharded(self) -> list[OwnedVector]:
        """The sharded vectors that are not freed yet, the same on all ranks: one rank may have left one alone."""
        return [cast("OwnedVector", one) for one in self.vectors if one.is_sharded]

    def kind_of(self, plain: type[Kind]) -> type[Kind]:
        """The class of a vector or of blocks that are made here: `plain`, or what notes its events. Local."""
        if self.transport.trace is None:
            return plain
        from malt.watch.trace.vectors import TRACED

        return TRACED[plain]

    def reachable(self, neighbours: Sequence[int]) -> Sequence[int]:
        """The ranks that a vector of this rank must be able to reach, ascending. Local.

        `neighbours`: those that its graph gives this rank.
        """
        return self.transport.view.reachable(lambda rank: neighbours)(self.rank)

    @property
    def has_come_back(self) -> bool:
        """True if this process has taken the place of one that had failed, and was admitted. Local."""
        returns = self.transport.returns
        return returns is not None and returns.has_come_back and not returns.barrier.is_outside

    @property
    def is_outside(self) -> bool:
        """True if this rank has come back, and is not admitted yet. Local."""
        return self.transport.returns is not None and self.transport.returns.barrier.is_outside

    @property
    def reading(self) -> Transport:
        """The transport by which files are read: a rank that is not admitted yet reads them without the others."""
        if not self.is_outside:
            return self.transport
        from dstorm.transports.solo import LoneTransport

        return LoneTransport(self.rank, self.transport.hosts)

    @property
    def seconds(self) -> float:
        """Since the session began on this rank; in a simulation virtual ones. Local."""
        return self.transport.clock() - self.begun_at

    @cached_property
    def launched_at(self) -> float:
        """The time at which the launcher began, by the clock of the transport. Local."""
        return self.transport.clock() - launched_s()

    def begin_training(self) -> None:
        """Note that this rank begins to train, unless it has. Local."""
        self.transport.begin_training(self.transport.clock())

    def split(self, waited_s: float) -> Split:
        """The seconds of this rank so far. Local. `waited_s`: those for which it has waited in scatters and gathers."""
        transport, now = self.transport, self.transport.clock()
        since = transport.trains_since
        return split(now - self.launched_at, None if since is None else now - since, waited_s + transport.waited_s)

    @property
    def every(self) -> int:
        """The counts between two exchanges: by the last malt.Exchanges, else the first open Replica, else 0. Local."""
        loops: Sequence[Paced] = [*self.replicas] if self.exchanges is None else [self.exchanges]
        return next((one.every for one in loops), 0)

    def moment(self, ago_s: float = 0.0) -> Moment:
        """The moment that was so long ago. Local."""
        return Moment(time.time() - ago_s, self.seconds - ago_s)

    def free_places(self) -> list[int]:
        """The places in `vectors` of those that may be freed as far as this rank is concerned. Local."""
        return [place for place, one in enumerate(self.vectors) if one.can_free]

    def free(self, reports: Iterable[Iterable[int]]) -> None:
        """Free the vectors whose places are in all of `reports`, the `free_places` of the ranks. Collective."""
        places = set.intersection(*map(set, reports))
        for place in sorted(places):
            self.freed = added(self.freed, self.vectors[place].statistics())
            self.vectors[place].free()
        self.vectors = [vector for place, vector in enumerate(self.vectors) if place not in places]

    def report(self, line: str) -> bool:
        """Print `line` on stderr if this is the lowest live rank. Return whether it is. Local."""
        if is_lowest := self.is_lowest:
            print(line, file=sys.stderr, flush=True)
        return is_lowest

    def settle_pushes(self, call: str) -> None:
        """Add what was pushed to sharded vectors before this call, by any rank. Collective.

        Returns once all ranks have done so: after one barrier, where no rank has pushed since the ranks met last, else
        after two. `call`: the call of the user. PeerLost, on all ranks: one has failed with its part of an open vector.
        """
        if vectors := self.sharded:
            for vector in vectors:
                vector.settle()  # all that was pushed before the ranks met last has come
            met = self.transport.meetings
            fresh = [vector for vector in vectors if vector.pushed_at >= met]
            if self.transport.barrier(call, mark=bool(fresh)):
                for vector in vectors:
                    vector.settle()
                self.ending.meet(self, call)
            else:
                for vector in fresh:  # it was entered before that, and has passed its deadline: the next one is marked
                    vector.pushed_at = self.transport.meetings
            from vol import SparseShardedVector

            self.grow([vector for vector in vectors if isinstance(vector, SparseShardedVector)])

    def grow(self, vectors: Sequence[SparseShardedVector]) -> None:
        """Give the tables of `vectors` more rows where a rank needs them. Collective. MemoryError, on all ranks."""
        from vol import resting

        wanted = [0 if vector.closed else vector.wanted for vector in vectors]
        reports = exchange(self.transport, wanted) if vectors else {}
        rows = map(max, zip(*reports.values(), strict=True))
        outgrown = [vector for vector, most in zip(vectors, rows, strict=True) if most > vector.capacity]
        with resting(outgrown, self.transport):
            for vector in outgrown:
                vector.grow()

    def close(self, patience_s: float | None = None) -> None:
        """Close and free all vectors. Collective; a second call does nothing.

        `patience_s`: how long to wait for the other ranks, in seconds; None: the deadline. Where one of them has
        departed, this rank departs too.

        DeadlinePassed: ranks are missing. After `patience_s` the call may be repeated. RuntimeError: another thread is
        in a collective call. Nothing is closed.
        """
        if not self.closed:
            with self.transport.calling(_LAST):
                self._close(patience_s)

    def _close(self, patience_s: float | None) -> None:
        self.closed = True
        if self.is_outside:
            return self.transport.close()
        for vector in self.vectors:
            if not vector.is_sharded:  # these take what others push until all ranks are here
                vector.leave()
        try:
            self.transport.barrier(_LAST, patience_s, final=True)
        except DeadlinePassed:
            self.closed = patience_s is None
            raise
        except PeerLost:
            self.depart()
            return
        for vector in self.vectors:
            vector.leave()
        if self.transport.trace is not None:
            for sent in (self.traffic.sent, self.chunk_traffic.sent):
                self.transport.trace.settle({peer: EdgeTotals(nbytes=sent[peer]) for peer in sent})
        self.ending.free(self)
        self.transport.close()

    def depart(self) -> None:
        """Close all vectors, and leave the session while others go on. One-sided; a second call does nothing."""
        for vector in self.vectors:
            vector.leave()
        self.transport.depart()
        self.closed = self.departed = True

    def __repr__(self) -> str:
        return f"<malt world: rank {self.rank} of {self.size}, {self.library}{', closed' if self.closed else ''}>"


def _totals(traffic: Traffic, hosts: Sequence[str]) -> Statistics:
    """The bytes that this rank has sent and received, in all and by peer."""
    others = [peer for peer in traffic.sent if peer != traffic.rank]
    edges = {peer: EdgeStatistics(bytes_sent=traffic.sent[peer], bytes_read=traffic.received[peer]) for peer in others}
    return total(located(edges, hosts, traffic.rank), 0.0)

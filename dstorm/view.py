"""The membership view of a rank: which ranks are alive. Pure: no MPI, no clock.

A rank has one view, and no code keeps a copy of it. Code that depends on it keeps the version that it has seen, or
subscribes to changes. Where no rank can fail without the job, the view never changes, and the same code asks it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from dstorm.errors import PeerLost
from dstorm.waits import interruption


class Member(NamedTuple):
    """A process that takes part. Where it has failed, another process may take its rank, as the next incarnation."""

    rank: int
    incarnation: int = 0


class Change(NamedTuple):
    """A change of a view."""

    version: int
    """The version of the view after the change."""
    failed: frozenset[Member]
    """The members that have failed."""
    joined: frozenset[Member]
    """The members that have joined."""


Neighbours = Callable[[int], Sequence[int]]
"""A function that returns the neighbours of a rank, ascending."""


class HasPeer(Protocol):
    """An object that connects this rank with another one."""

    peer: int


Edge = TypeVar("Edge", bound=HasPeer)


class View:
    """The membership view where no rank can fail without the job: all ranks are always alive. All methods are Local."""

    can_change = False
    """Whether ranks may fail or join while the others go on."""
    incarnations: Sequence[int] = ()
    """By rank: the incarnation of the member that is alive, or was last; (): ranks have but one."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reported: list[Change] = []
        """The changes that were reported to subscribers."""
        self.version = 0
        """A number that rises with each change."""
        self.came_in: Sequence[int] = (0,) * size
        """By rank: the generation in which it has come back last; 0: it has not. The same on all ranks of a generation.
        """
        self.alive: tuple[int, ...] = tuple(range(size))
        """The ranks of the live members, ascending. A change replaces the tuple."""
        self.failed: frozenset[int] = frozenset()
        """The ranks that have no live member. A change replaces the set."""

    @property
    def generation(self) -> int:
        """The number of returns of ranks so far. It is the same on all ranks that have heard of as many."""
        return max(self.came_in)

    @property
    def lowest(self) -> int:
        """The lowest live rank, which writes files and reports for all ranks."""
        return self.alive[0]

    def may_be_lowest(self, rank: int) -> bool:
        """Return whether `rank` is the lowest live rank, or may become it."""
        return rank == self.lowest

    def incarnation(self, rank: int) -> int:
        """The incarnation of the member of `rank` that is alive, or was last."""
        return 0

    def member(self, rank: int) -> Member:
        """The member of `rank` that is alive, or was last: another one once a new process has come in its place."""
        return Member(rank, self.incarnation(rank))

    def newcomers(self, since: int, rank: int) -> list[int]:
        """The live ranks, without `rank`, that have come back since `generation` was `since`."""
        return [other for other in self.alive if self.came_in[other] > since and other != rank]

    def epoch(self, since: int, ranks: Iterable[int]) -> int:
        """Return the generation in which one of `ranks` has come back last; 0: none since `generation` was `since`."""
        last = max(self.came_in[rank] for rank in ranks)
        return last if last > since else 0

    def means(self, edge: HasPeer) -> bool:
        """Return whether `edge` means the present member of its rank, or whichever there is."""
        return getattr(edge, "member", None) in (None, self.member(edge.peer))

    def to_admit(self, rank: int) -> list[int]:
        """The failed ranks that `rank` may admit, ascending: the lowest live rank may, no other."""
        return sorted(self.failed) if rank == self.lowest else []

    def subscribe(self, callback: Callable[[Change], object]) -> None:
        """Have callback(change) called for each reported change, in order; at once for those reported before.

        This view never changes, so it does nothing.
        """

    def report(self, ranks: Collection[int] | None = None) -> None:
        """Call the subscribers with the unreported changes; with `ranks`, only with those of these ranks."""

    def check_alive(self, ranks: Iterable[int], why: str) -> None:
        """Raise PeerLost, with `why` as its reason, where one of `ranks` has failed."""
        if lost := self.failed.intersection(ranks):
            raise PeerLost(min(lost), why)

    def check_left(self, rank: int, why: str) -> None:
        """Raise PeerLost, with `why` as its reason: `rank` has left what a call of this rank needs."""
        raise PeerLost(rank, why)

    def outlasted(self, ranks: Iterable[int]) -> set[int]:
        """The ranks of `ranks`, which have finished, that end while the others go on: none."""
        return set()

    def to_living(self, edges: Iterable[Edge]) -> list[Edge]:
        """The edges of `edges` whose peers are alive, as the incarnations that they mean."""
        failed = self.failed
        return [edge for edge in edges if edge.peer not in failed] if failed else list(edges)

    def has(self, rank: int, incarnation: int) -> bool:
        """Return whether that incarnation of `rank` is a member, and alive."""
        return Member(rank, incarnation) in {Member(one, self.incarnation(one)) for one in self.alive}

    def ended(self, incarnations: Mapping[int, int]) -> list[Member]:
        """Those of these members, incarnations by rank, that are known to have failed."""
        over = {rank: self.incarnation(rank) - (rank not in self.failed) for rank in incarnations}
        return [Member(*one) for one in incarnations.items() if one[1] <= over[one[0]]]

    def reachable(self, neighbours: Neighbours) -> Neighbours:
        """A function that returns the ranks that a rank must be able to reach, ascending.

        `neighbours`: the neighbours of a rank in the graph.
        """
        return neighbours


class FaultTolerantView(View):
    """The membership view where ranks may fail while the others go on. `absent`: the ranks that may come later.

    `incarnations`: those with which the ranks begin, by rank, where not 0. One thread at a time may change it, and one
    at a time may report.
    """

    can_change = True

    def __init__(
        self, size: int, absent: Iterable[int] = (), incarnations: Mapping[int, int] | None = None
    ) -> None:  # fmt: skip
        super().__init__(size)
        self.incarnations: list[int] = [(incarnations or {}).get(rank, 0) for rank in range(size)]
        self.failed = frozenset(absent)
        self.alive = tuple(sorted(set(self.alive) - self.failed))
        self._subscribers: list[Callable[[Change], object]] = []
        self.unreported: deque[Change] = deque()
        """The changes that were not reported to subscribers yet."""

    def may_be_lowest(self, rank: int) -> bool:
        """Return True: any rank may become the lowest."""
        return True

    def incarnation(self, rank: int) -> int:
        """The incarnation of the member of `rank` that is alive, or was last."""
        return self.incarnations[rank]

    def outlasted(self, ranks: Iterable[int]) -> set[int]:
        """The ranks of `ranks`, which have finished, that end while the others go on: all."""
        return set(ranks)

    def to_living(self, edges: Iterable[Edge]) -> list[Edge]:
        """The edges of `edges` whose peers are alive, as the incarnations that they mean."""
        left = super().to_living(edges)
        return list(filter(self.means, left)) if any(self.incarnations) else left

    def change(
        self, failed: Iterable[int] = (), joined: Iterable[int] = (), incarnations: Mapping[int, int] | None = None
    ) -> None:  # fmt: skip
        """Mark the ranks `failed` failed, and give the ranks `joined` new members, which are alive.

        A rank that has failed before, or a rank of `joined` that is alive, does not change. `incarnations`: of
        those of `joined` that are not the next ones, as some have failed before they were members.
        """
        left, came = set(failed) - self.failed, self.failed & set(joined)
        if not left | came:
            return
        for rank in came:
            self.incarnations[rank] = (incarnations or {}).get(rank, self.incarnations[rank] + 1)
            self.came_in = (*self.came_in[:rank], self.generation + 1, *self.came_in[rank + 1 :])
        self.failed = self.failed - came | left
        self.alive = tuple(sorted(set(range(self.size)) - self.failed))
        self.unreported.append(Change(self.version + 1, self._members(left), self._members(came)))
        self.version += 1  # last, so that a thread that sees the new version sees the rest, too

    def begin(self, failed: Iterable[int], incarnations: Sequence[int], came_in: Sequence[int]) -> None:
        """Take over the view of others, as a rank that they have admitted. Nobody is told of that."""
        self.incarnations, self.came_in = list(incarnations), tuple(came_in)
        self.failed = frozenset(failed)
        self.alive = tuple(sorted(set(range(self.size)) - self.failed))
        self.version += 1

    def touch(self) -> None:
        """Let what depends on the version be made anew, though no rank has failed or joined."""
        self.version += 1

    def subscribe(self, callback: Callable[[Change], object]) -> None:
        """Have callback(change) called for each reported change, in order; at once for those reported before."""
        self._subscribers.append(callback)
        for change in self.reported:
            callback(change)

    @interruption.whole
    def report(self, ranks: Collection[int] | None = None) -> None:
        """Call the subscribers with the unreported changes of `ranks`. Those of other ranks stay unreported."""
        kept: list[Change] = []
        while self.unreported:  # a subscriber may report, too
            due, rest = _divided(self.unreported.popleft(), ranks)
            kept += rest
            for change in due:
                self.reported.append(change)
                for callback in tuple(self._subscribers):
                    callback(change)
        self.unreported.extendleft(reversed(kept))

    def check_left(self, rank: int, why: str) -> None:
        """Do nothing: the others go on without a rank once it has failed."""

    def reachable(self, neighbours: Neighbours) -> Neighbours:
        """Return all other ranks: any may become a neighbour when the graph is mended."""
        return lambda rank: [other for other in range(self.size) if other != rank]

    def _members(self, some: Iterable[int]) -> frozenset[Member]:
        return frozenset(Member(rank, self.incarnations[rank]) for rank in some)


def _divided(change: Change, ranks: Collection[int] | None) -> tuple[list[Change], list[Change]]:
    """The part of `change` that concerns `ranks` (None: all), and the rest; each has at most one change."""
    if ranks is None:
        return [change], []
    return _part(change, ranks, True), _part(change, ranks, False)


def _part(change: Change, ranks: Collection[int], inside: bool) -> list[Change]:
    parts = [frozenset(one for one in some if (one.rank in ranks) is inside) for some in change[1:]]
    return [Change(change.version, *parts)] if any(parts) else []

"""Who is alive: the view that all of a rank's code asks, and how the living come to the same. Pure: no MPI, no clock.

A rank has one view. Nobody keeps a copy of what it says: who needs to know of a change remembers the version that it
has seen, or subscribes. Where no rank can fail without the job the view never changes: the same code asks it.

A rank buries another when it has seen for itself that it is gone for good, or when one of the living has buried it: so
all come to bury the same ranks, at different moments.

A meeting must end with the same list of the dead on all who leave it. The lowest living rank decides: once all of the
living have come, and have buried all below it, what it has buried then is the list. A decision is taken over from those
who are not buried alone, and passed on to all before it is acted on. Hence if the lowest dies and one of the living has
acted on its decision, the next to decide knows that, and does not decide anew. (After Chandra and Toueg 1996, for a
detector that is never wrong.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from dstorm.errors import PeerLost

DEPARTED, DESERTED, OPEN, FINAL = 1, 2, 4, 8
"""Flags of a word: this rank has departed; it knows of one that has; it has vectors that it has not closed; the meeting
that it has come to is its last."""


class Word(NamedTuple):
    """What a rank says of itself to all others. Ranks are bits of `failed`, `lost`, `awaited` and `evicted`."""

    come: int = 0
    """How many meetings it has come to."""
    steps: int = 0
    failed: int = 0
    """Whom it has buried."""
    decided: int = 0
    """The latest meeting of which it knows the decision."""
    lost: int = 0
    """That decision: who was dead."""
    name: int = 0
    """The checksum of what its meeting is called."""
    heartbeats: int = 0
    """Heartbeats, which are not steps."""
    flags: int = 0
    awaited: int = 0
    """Whom it waits for; 0: it does not wait, or not for long."""
    evicted: int = 0
    """Whom it has evicted."""


def ranks(mask: int) -> frozenset[int]:
    """The ranks that are bits of `mask`."""
    return frozenset(rank for rank in range(mask.bit_length()) if mask >> rank & 1)


def mask(some: Iterable[int]) -> int:
    """The bits of some ranks."""
    return sum(1 << rank for rank in set(some))


class Member(NamedTuple):
    """A process that takes part. Where one has failed, another may take its rank, as the next incarnation."""

    rank: int
    incarnation: int = 0


class Change(NamedTuple):
    """One step of a view to its next version."""

    version: int
    """The version from then on."""
    failed: frozenset[Member]
    joined: frozenset[Member]


Neighbours = Callable[[int], Sequence[int]]
"""Those of a rank, ascending."""


class HasPeer(Protocol):
    """What connects this rank with another."""

    peer: int


Edge = TypeVar("Edge", bound=HasPeer)


class View:
    """Who is alive where no rank can fail without the job: all ranks, always. *Local*, all of it."""

    can_change = False
    """Whether ranks may fail or join while the others go on."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reported: list[Change] = []
        """What subscribers have been told of."""
        self.version = 0
        """Rises with each change."""
        self.alive: tuple[int, ...] = tuple(range(size))
        """The ranks of the living members, ascending; replaced, never changed."""
        self.failed: frozenset[int] = frozenset()
        """The ranks without one; replaced, never changed."""

    @property
    def lowest(self) -> int:
        """The lowest rank that is alive: who writes files and reports for all."""
        return self.alive[0]

    def may_be_lowest(self, rank: int) -> bool:
        """Whether `rank` is the lowest, or may come to be."""
        return rank == self.lowest

    def incarnation(self, rank: int) -> int:
        """Which incarnation of `rank` is alive, or was last."""
        return 0

    def subscribe(self, callback: Callable[[Change], object]) -> None:
        """From here on callback(change) is called for each change that is reported, in order; at once for those that
        were. Here there is none."""

    def report(self, ranks: Collection[int] | None = None) -> None:
        """Call the subscribers with the changes that they have not been told of; `ranks`: only of these ranks."""

    def check_alive(self, ranks: Iterable[int], why: str) -> None:
        """PeerLost, which says `why` it matters: one of `ranks` has failed."""
        if lost := self.failed.intersection(ranks):
            raise PeerLost(min(lost), why)

    def to_living(self, edges: Iterable[Edge]) -> list[Edge]:
        """Those of `edges` whose peers have not failed."""
        failed = self.failed
        return [edge for edge in edges if edge.peer not in failed]

    def reachable(self, neighbours: Neighbours) -> Neighbours:
        """Whom each rank must be able to reach, by rank, where a graph gives it `neighbours(rank)`; ascending."""
        return neighbours


class FaultTolerantView(View):
    """Who is alive where ranks may fail while the others go on. One thread at a time changes it, one reports."""

    can_change = True

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._incarnations = [0] * size
        self._subscribers: list[Callable[[Change], object]] = []
        self.unreported: deque[Change] = deque()
        """What subscribers have not been told of."""

    def may_be_lowest(self, rank: int) -> bool:
        """As `View.may_be_lowest`: any may."""
        return True

    def incarnation(self, rank: int) -> int:
        """As `View.incarnation`."""
        return self._incarnations[rank]

    def change(self, failed: Iterable[int] = (), joined: Iterable[int] = ()) -> None:
        """The members of the ranks `failed`, which were alive, are not; new ones of the ranks `joined`, which were not,
        are. Of other ranks nothing changes."""
        left, came = set(failed) - self.failed, self.failed & set(joined)
        if not left | came:
            return
        for rank in came:
            self._incarnations[rank] += 1
        self.failed = self.failed - came | left
        self.alive = tuple(sorted(set(range(self.size)) - self.failed))
        self.unreported.append(Change(self.version + 1, self._members(left), self._members(came)))
        self.version += 1  # last: who sees it sees the rest

    def subscribe(self, callback: Callable[[Change], object]) -> None:
        """As `View.subscribe`."""
        self._subscribers.append(callback)
        for change in self.reported:
            callback(change)

    def report(self, ranks: Collection[int] | None = None) -> None:
        """As `View.report`. The others are reported later, if ever."""
        kept: list[Change] = []
        while self.unreported:  # a subscriber may report, too
            due, rest = _divided(self.unreported.popleft(), ranks)
            kept += rest
            for change in due:
                self.reported.append(change)
                for callback in tuple(self._subscribers):
                    callback(change)
        self.unreported.extendleft(reversed(kept))

    def reachable(self, neighbours: Neighbours) -> Neighbours:
        """As `View.reachable`: all others, as any of them may take the place of one that has failed."""
        return lambda rank: [other for other in range(self.size) if other != rank]

    def _members(self, some: Iterable[int]) -> frozenset[Member]:
        return frozenset(Member(rank, self._incarnations[rank]) for rank in some)


def _divided(change: Change, ranks: Collection[int] | None) -> tuple[list[Change], list[Change]]:
    """What of `change` concerns `ranks`, all if None, and the rest: of each up to one."""
    if ranks is None:
        return [change], []
    return _part(change, ranks, True), _part(change, ranks, False)


def _part(change: Change, ranks: Collection[int], inside: bool) -> list[Change]:
    parts = [frozenset(one for one in some if (one.rank in ranks) is inside) for some in change[1:]]
    return [Change(change.version, *parts)] if any(parts) else []


class Membership:
    """How one rank comes to know what the others know. `words`: what each rank said last, its own included."""

    def __init__(self, rank: int, view: View) -> None:
        self.rank, self.view = rank, view
        self.words = [Word()] * view.size

    @property
    def own(self) -> Word:
        """What this rank has to say."""
        return self.words[self.rank]

    def others(self) -> list[int]:
        """All who are not buried here, ascending, but this rank."""
        return [rank for rank in self.view.alive if rank != self.rank]

    def come(self, name: int) -> int:
        """Come to the next meeting; its number."""
        self._report(self.own._replace(come=self.own.come + 1, name=name))
        return self.own.come

    def stay_away(self) -> None:
        """The meeting did not take place, and is the next one again."""
        self._report(self.own._replace(come=self.own.come - 1))

    def heard(self, rank: int, word: Word) -> int:
        """Take down what `rank`, who is not buried, says; those that are to be buried now."""
        self.words[rank] = word
        return word.failed & ~self.own.failed

    def mark_failed(self, fresh: Iterable[int]) -> None:
        """The view says that `fresh` have failed: they wait for nobody. Say `own` to all."""
        for rank in fresh:
            self.words[rank] = self.words[rank]._replace(awaited=0)
        self._report(self.own._replace(failed=mask(self.view.failed)))

    def decision(self, generation: int) -> int | None:
        """Who was dead at `generation`, as all who leave it know; None: not decided yet. Publish `own`, then leave."""
        others = self.others()
        reports = [word for word in (self.words[rank] for rank in others) if word.decided == generation]
        if reports:
            self._decide(generation, reports[0].lost)
        elif self._may_decide(generation, others):
            self._decide(generation, self.own.failed)
        return self.own.lost if self.own.decided == generation else None

    def missing(self, generation: int) -> list[int]:
        """The living who have not come to `generation`."""
        return [rank for rank in self.view.alive if self.words[rank].come < generation]

    def _may_decide(self, generation: int, others: list[int]) -> bool:
        below = (1 << self.rank) - 1
        words = [self.words[rank] for rank in others]
        return self.view.lowest == self.rank and all(
            word.come >= generation and not below & ~word.failed for word in words
        )

    def _decide(self, generation: int, lost: int) -> None:
        self._report(self.own._replace(decided=generation, lost=lost))

    def _report(self, word: Word) -> None:
        self.words[self.rank] = word

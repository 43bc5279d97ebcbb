"""The crew of a session: how many ranks it is to have, and which of them train an epoch (malt/runner/roster.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, NoReturn

from dstorm.membership.resilient import SurvivingTransport
from malt.runner import roster
from malt.runner.roster import Position, Roster

_LOOK_S = 0.1
"""The interval of the looks at the roster."""
_MOST_LOOPS = 1 << 32
"""More loops over epochs than a session has."""


class Dealt(NamedTuple):
    """Among whom the rows of an epoch are dealt."""

    ranks: tuple[int, ...]
    """The ranks that each get an equal part, ascending."""
    heirs: Mapping[int, Sequence[int]]
    """Who shares the part of each of them that has failed, ascending."""


def dealt(ranks: Sequence[int], failed: Collection[int]) -> Dealt:
    """Rows dealt among `ranks`, of which those of `failed` have failed: all others share their parts. Pure."""
    living = sorted(set(ranks).difference(failed))
    return Dealt(tuple(ranks), dict.fromkeys(sorted(set(ranks).intersection(failed)), living))


class Crew:
    """The crew, as this rank knows it. `folder`: that of the job. The constructor is Local.

    `incarnation`: of this rank. `comes_later`: whether the others have begun the session. `session`: its number.
    """

    def __init__(
        self, folder: str, transport: SurvivingTransport, incarnation: int, found: Roster, comes_later: bool,
        session: int = 1,
    ) -> None:  # fmt: skip
        self._folder, self._transport = folder, transport
        self._rank, self._incarnation = transport.rank, incarnation
        self._size, self.is_elastic = found.size, found.least < found.most
        self._seen = 0
        self._loops = self._before = (session - 1) * _MOST_LOOPS
        """The loops that were begun, and those of the sessions before, which count as so many as they can be: a rank
        that was started again has not gone through them."""
        self._looked_at = transport.clock()
        self._first: Position | None = None if comes_later else (0, 0)
        """The first epoch that this rank trains. None: it has come later, and has not begun a loop."""
        self._epoch: Dealt | None = None
        self._is_told = False
        self.is_retired = False
        """Whether this rank leaves, as the job has shrunk."""

    @property
    def size(self) -> int:
        """The number of ranks that the job is to have, as far as this rank knows. Local."""
        return self._size

    @property
    def dealt(self) -> Dealt:
        """Among whom rows are dealt now: in an epoch as it began. Local."""
        if self._epoch is not None:
            return self._epoch
        return dealt(range(self._size), self._transport.view.failed)

    def look(self) -> None:
        """Read the roster if it has changed, at most every _LOOK_S. Local. It is one of the duties of the transport.

        A rank that is to go is told so by its next call, if its program has no loop over malt.epochs.
        """
        now = self._transport.clock()
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at, seen = now, roster.changed_at(self._folder)
        if seen != self._seen:
            self._seen = seen
            self.refresh()
        if self._rank >= self._size and self._loops == self._before and not self._is_told:
            self._is_told = True
            self._transport.call_later(self._retire_if_told)

    def refresh(self) -> Roster | None:
        """Learn how many ranks there are to be now; return the roster. Local."""
        found = roster.read(self._folder)
        self._size = self._size if found is None else found.size
        return found

    def has_retired(self, rank: int, incarnation: int) -> bool:
        """Whether `rank`, which has ended, has left as the job shrank. Local."""
        found = self.refresh()
        return found is not None and found.has_retired(rank, incarnation)

    def scale(self, size: int) -> None:
        """Let the job have `size` ranks. Local. ValueError: it cannot have so many."""
        with roster.changing(self._folder) as found:
            found.scale(size)
        self._size = size

    def begin_loop(self) -> int:
        """Begin the next loop over epochs of this program; return the first of its epochs that this rank trains. Local.

        It is larger than any where the others have gone on to a later loop.
        """
        loop, self._loops = self._loops, self._loops + 1
        if self._first is None:
            with roster.changing(self._folder) as found:
                self._first = found.come(self._rank, self._incarnation)
        at, epoch = self._first
        return 0 if loop > at else epoch if loop == at else 2**62

    def begin(self, epoch: int) -> int:
        """Begin an epoch of the loop that was begun last; return which. Local.

        SystemExit: the job has shrunk, and this rank goes. It stays as long as none is there of the ranks that the job
        is to have, and is then given the first epoch that no rank has begun.
        """
        view = self._transport.view
        running = dict(map(view.member, view.alive))
        with roster.changing(self._folder) as found:
            at = self._loops - 1, epoch
            for member in view.ended(found.members(at)):
                found.lose(*member)
            begun = found.begin(self._rank, self._incarnation, at, running)
            self._size, at = found.size, begun or at
            self._epoch = Dealt(tuple(found.members(at)), found.heirs(at))
        if begun is None:
            self._leave()
        return begun[1]

    def end_loop(self) -> None:
        """End the loop over epochs. Local."""
        self._epoch = None

    def _retire_if_told(self) -> None:
        """Leave, unless the job has grown again. SystemExit."""
        self._is_told = False
        with roster.changing(self._folder) as found:
            self._size = found.size
            goes = found.leaves(self._rank, self._transport.view.alive)
            if goes:
                found.retire(self._rank, self._incarnation)
        if goes:
            self._leave()

    def _leave(self) -> NoReturn:
        """Leave as the job has shrunk. SystemExit."""
        self.is_retired = True
        raise SystemExit(0)

"""The crew of a session: how many ranks it is to have, and which of them train an epoch (malt/runner/roster.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from malt.runner import departure, reporting, roster
from malt.runner.roster import Position, Roster

if TYPE_CHECKING:
    from dstorm.membership.resilient import SurvivingTransport
    from dstorm.view import Member

_LOOK_S = 0.1
"""The interval of the looks at the roster."""
_LEAVES, _LEFT = "left-{}-{}", re.compile(r"left-\d+-\d+")
"""The names under which ranks publish something as they leave: number and incarnation."""
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
    """The crew, as this rank knows it. `folder`: that of the job on this host. The constructor is Local.

    `incarnation`: of this rank. `comes_later`: whether the others have begun the session. `session`: its number.
    """

    def __init__(
        self, folder: str, transport: SurvivingTransport, incarnation: int, found: Roster, comes_later: bool,
        session: int = 1,
    ) -> None:  # fmt: skip
        from malt.session.world.roster_requests import Asking  # jobs of a fixed size need none

        self._folder, self._transport = folder, transport
        self._rank, self._incarnation = transport.rank, incarnation
        self._size, self.is_elastic = found.size, found.least < found.most
        self._asking = Asking(folder, found, lambda polls: transport.pause(polls))
        self._seen = ""
        self._loops = self._before = (session - 1) * _MOST_LOOPS
        """The loops that were begun, and those of the sessions before, which count as so many as they can be: a rank
        that was started again has not gone through them."""
        self._looked_at = transport.clock()
        self._first: Position | None = None if comes_later else (0, 0)
        """The first epoch that this rank trains. None: it has come later, and has not begun a loop."""
        self._epoch: Dealt | None = None
        self._is_told = self._is_signalled = self._is_departing = False
        self.leave_behind: Callable[[], object] | None = None
        """Returns what `left_behind` gives the others where this rank leaves: anything that JSON can represent."""
        self.is_retired = False
        """Whether this rank leaves in order."""

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
        self._looked_at, seen = now, roster.written(self._folder)
        if seen != self._seen:
            self._seen = seen
            self.refresh()
        goes = self._rank >= self._size or self._is_signalled
        if goes and self._loops == self._before and not self._is_told:
            self._is_told = True
            self._transport.call_later(self._retire_if_told)

    def refresh(self) -> Roster:
        """Learn how many ranks there are to be now; return the roster. Local."""
        found = self._asking.read()
        self._size = found.size
        return found

    def why_left(self, rank: int, incarnation: int) -> str:
        """Return why `rank`, which has ended, has left in order; "": it has not, and so has failed. Local."""
        found = self.refresh()
        if not found.has_retired(rank, incarnation):
            return ""
        return "as it was told to (SIGTERM)" if found.is_departing(rank, incarnation) else "as the job shrank"

    def depart(self) -> None:
        """Have this rank leave at its next epoch, or without malt.epochs in its next call. For a signal handler. Local.

        Where too few ranks would be left, it is ended by SIGTERM then.
        """
        self._is_signalled = True

    def left_behind(self) -> list[Any]:
        """Return what the ranks that have left in order have left behind, as far as this rank knows. Local."""
        names = sorted(name for name in departure.publications() if _LEFT.fullmatch(name))
        return [json.loads(departure.published(name) or "null") for name in names]

    def scale(self, size: int) -> None:
        """Let the job have `size` ranks. Local. ValueError: it cannot have so many."""
        found, _ = self._asking.change("scale", size)
        self._size = found.size

    def begin_loop(self) -> int:
        """Begin the next loop over epochs of this program; return the first of its epochs that this rank trains. Local.

        It is larger than any where the others have gone on to a later loop.
        """
        loop, self._loops = self._loops, self._loops + 1
        if self._first is None:
            loop_of_it, first = self._asking.change("come", self._rank, self._incarnation)[1]
            self._first = loop_of_it, first
        at, epoch = self._first
        return 0 if loop > at else epoch if loop == at else 2**62

    def begin(self, epoch: int) -> int:
        """Begin an epoch of the loop that was begun last; return which. Local.

        SystemExit: the job has shrunk, and this rank goes. It stays as long as none is there of the ranks that the job
        is to have, and is then given the first epoch that no rank has begun.
        """
        view = self._transport.view
        self._depart_if_signalled()
        ended = [tuple(one) for one in view.ended(dict(map(view.member, range(view.size))))]
        at = self._loops - 1, epoch
        found, begun = self._asking.change("begin", self._rank, self._incarnation, at, self._running(), ended)
        at = at if begun is None else (begun[0], begun[1])
        self._size, self._epoch = found.size, Dealt(tuple(found.members(at)), found.heirs(at))
        if begun is None:
            self._leave()
        return at[1]

    def end_loop(self) -> None:
        """End the loop over epochs. Local."""
        self._epoch = None

    def _retire_if_told(self) -> None:
        """Leave, unless the job has grown again. SystemExit. A rank that has begun a loop does so at an epoch of it."""
        if self._loops != self._before:
            self._is_told = False
            return  # else the others would go on to deal it rows
        self._depart_if_signalled()
        found, goes = self._asking.change("leave", self._rank, self._incarnation, self._running())
        self._size, self._is_told = found.size, False  # not before, as it may have waited for the answer
        if goes:
            self._leave()

    def _running(self) -> list[Member]:
        """The ranks that run, as far as this one knows, and their incarnations."""
        view = self._transport.view
        return list(map(view.member, view.alive))

    def _depart_if_signalled(self) -> None:
        """Ask to leave, where a signal has told this rank to."""
        if self._is_signalled and not self._is_departing:
            self._is_departing = self._asking.change("depart", self._rank, self._incarnation, self._running())[1]
            if not self._is_departing:
                departure.end_by_sigterm()

    def _leave(self) -> NoReturn:
        """Leave in order. SystemExit."""
        self.is_retired = True
        if self.leave_behind is not None:
            reporting.publish(_LEAVES.format(self._rank, self._incarnation), json.dumps(self.leave_behind()))
        raise SystemExit(0)

"""The ranks that train in each epoch, as ranks come and go (malt run --elastic, --rejoin): a file in the job's folder.

A spell is a period in which one incarnation of a rank trains: from one epoch on, up to another. A rank that joins
begins at the first epoch that no rank has begun, and a rank that leaves ends there. So no rank waits: the members of an
epoch do not change once a rank has begun it, and all ranks deal its rows alike, whenever they come to it.

A member that has failed stays one until its next incarnation comes. Its rows of an epoch go to those that had not begun
that epoch when the failure was noted here, which is the first time that a rank began one after it.

The file is replaced as a whole, under a lock, so that of two ranks the later one sees what the earlier one has done.
It is on the launcher's host. Other hosts have a copy, which the agent writes; ranks there ask the launcher (`ASK`).

Agents are sent this module, after reporting.py, and it imports nothing else of malt.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

from malt.runner.reporting import write as write_whole

FILE, _LOCK, _NAP_S = "roster", "roster.lock", 0.001
ASK, ANSWER = "roster-ask", "roster-answer"
"""The names under which a rank of another host publishes what it asks for: a number, and the arguments of `follow`; and
under which the launcher does its answer: the number, a result, why it is refused or "", and the roster."""

Position = tuple[int, int]
"""An epoch: the number of the loop over epochs in the program, and of the epoch in it, both from 0."""
Lives = Mapping[int, int] | Iterable[tuple[int, int]]
"""Ranks and their incarnations."""


class Spell(NamedTuple):
    """A time in which one incarnation of a rank trains."""

    rank: int
    incarnation: int
    first: Position
    """The first epoch that it trains."""
    end: Position | None = None
    """The first one that it does not train any more. None: it goes on."""

    def covers(self, at: Position) -> bool:
        """Return whether it trains the epoch `at`."""
        return self.first <= at and (self.end is None or at < self.end)


class Loss(NamedTuple):
    """A member that has failed."""

    rank: int
    incarnation: int
    begun: dict[int, Position]
    """The latest epoch that each rank had begun when that was noted."""


@dataclass
class Roster:
    """The ranks that train, by epoch. Pure.

    `first`: the number of ranks that the job began with. `least`, `most`: the bounds of `size`, the number that it is
    to have.
    """

    first: int
    least: int
    most: int
    size: int
    begun: dict[int, tuple[int, Position]] = field(default_factory=dict)
    """The latest epoch that each rank has begun, after the incarnation that has."""
    spells: list[Spell] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    retired: dict[int, int] = field(default_factory=dict)
    """The ranks that have left in order, and their incarnations."""
    departing: dict[int, int] = field(default_factory=dict)
    """The ranks that were told to leave although the job does not shrink, and their incarnations."""
    version: int = 0
    """How often it was changed."""

    @classmethod
    def of(cls, ranks: int, least: int, most: int) -> Roster:
        """That of a job which begins with so many ranks."""
        return cls(ranks, least, most, ranks, spells=[Spell(rank, 0, (0, 0)) for rank in range(ranks)])

    @property
    def fresh(self) -> Position:
        """The first epoch that no rank has begun."""
        if not self.begun:
            return 0, 0
        loop, epoch = max(at for _, at in self.begun.values())
        return loop, epoch + 1

    def members(self, at: Position) -> dict[int, int]:
        """The ranks that train the epoch `at`, ascending, and their incarnations: of each the last that has come."""
        return dict(sorted((one.rank, one.incarnation) for one in self.spells if one.covers(at)))

    def begin(
        self, rank: int, incarnation: int, at: Position, running: Lives, ended: Lives = ()
    ) -> Position | None:  # fmt: skip
        """Note that `rank` is about to train the epoch `at`, and return it. None: it retires, as the job has shrunk.

        `running`, `ended`: the ranks that run, and those that have ended, as far as is known. A rank that is to go
        stays as long as none trains that is to stay, for what it knows would be lost. It then gets the first epoch that
        no rank has begun.
        """
        at, running, over = (at[0], at[1]), dict(running), dict(ended)
        for member, life in self.members(at).items():
            if life <= over.get(member, -1):
                self.lose(member, life)
        others = {one: life for one, (life, _) in self.begun.items() if one != rank and not self.goes(one, life)}
        has_others = any(running.get(one) == life for one, life in others.items())
        if self.goes(rank, incarnation) and has_others:
            self._divide()  # it may have stayed until now
        if self.members(at).get(rank) != incarnation:
            if has_others:
                self.retire(rank, incarnation)
                return None
            at = self.come(rank, incarnation)
        self.begun[rank] = incarnation, at
        return at

    def goes(self, rank: int, incarnation: int) -> bool:
        """Return whether this incarnation of `rank` is to leave, or has left."""
        return rank >= self.size or self.is_departing(rank, incarnation)

    def is_departing(self, rank: int, incarnation: int) -> bool:
        """Return whether it was told to leave although the job does not shrink."""
        return self.departing.get(rank, -1) >= incarnation

    def leave(self, rank: int, incarnation: int, running: Lives) -> bool:
        """Let this incarnation of `rank` retire, if it is to go, and one of those that run is to stay. Returns that."""
        leaves = self.goes(rank, incarnation) and not all(self.goes(*one) for one in dict(running).items())
        if leaves:
            self.retire(rank, incarnation)
        return leaves

    def depart(self, rank: int, incarnation: int, running: Lives) -> bool:
        """Let this incarnation of `rank` leave, and the others of `running` go on. False: too few would; it stays.

        It may come again where `scale` is called once it has left.
        """
        staying = [one for one in dict(running).items() if one[0] != rank and not self.goes(*one)]
        if len(staying) < self.least and not self.goes(rank, incarnation):
            return False
        self.departing[rank] = incarnation
        self._divide()
        return True

    def lose(self, rank: int, incarnation: int) -> None:
        """Note that this incarnation of `rank` has failed, unless it has left before, or that was noted."""
        is_noted = any(one[:2] == (rank, incarnation) for one in self.losses)
        if not is_noted and not self.has_retired(rank, incarnation):
            self.losses.append(Loss(rank, incarnation, {one: at for one, (_, at) in self.begun.items()}))

    def heirs(self, at: Position) -> dict[int, tuple[int, ...]]:
        """Return the ranks that share the rows of each member that failed before it had trained the epoch `at`.

        They are ascending. None share them if all others had begun the epoch by then, and trained without them.
        """
        members = self.members(at)
        lost = {
            one.rank: one.begun for one in self.losses
            if members.get(one.rank) == one.incarnation and not at < one.begun.get(one.rank, at)
        }  # fmt: skip
        living = [rank for rank in members if rank not in lost]
        late = {rank: [one for one in living if one not in begun or begun[one] < at] for rank, begun in lost.items()}
        return {rank: tuple(late[rank]) for rank in sorted(lost)}

    def come(self, rank: int, incarnation: int) -> Position:
        """Let a new incarnation of `rank` train; return its first epoch. Those before it have failed, or left."""
        for one in self.spells:
            if one.rank == rank and one.incarnation < incarnation:
                self.lose(rank, one.incarnation)  # while it is known how far it has come
        self.spells.append(Spell(rank, incarnation, self.fresh))
        return self.fresh

    def enlist(self, rank: int, incarnation: int) -> None:
        """Let an incarnation of `rank` that begins a session with the others train, unless it does so already."""
        if self.members(self.fresh).get(rank) != incarnation:
            self.come(rank, incarnation)

    def scale(self, size: int) -> None:
        """Let the job have `size` ranks. ValueError: that is not within its bounds; nothing changes."""
        if not self.least <= size <= self.most:
            raise ValueError(f"the number of ranks of this job is from {self.least} to {self.most}, not {size}")
        self.size = size
        lost = {one[:2] for one in self.losses}
        self.departing = {rank: one for rank, one in self.departing.items()
                          if not self.has_retired(rank, one) and (rank, one) not in lost}  # fmt: skip
        self._divide()

    def _divide(self) -> None:
        """End the spells of ranks that are to go, and let those go on that were to go, and stay."""
        self._end([one for one in self.spells if self.goes(one.rank, one.incarnation)])
        last = {one.rank: one for one in sorted(self.spells, key=lambda one: (one.rank, one.incarnation))}
        for place, one in enumerate(self.spells):
            has_gone = self.has_retired(one.rank, one.incarnation) or one is not last[one.rank]
            if not self.goes(one.rank, one.incarnation) and one.end == self.fresh and not has_gone:
                self.spells[place] = one._replace(end=None)

    def retire(self, rank: int, incarnation: int) -> None:
        """Note that `rank` leaves in order."""
        self.retired[rank] = incarnation

    def has_retired(self, rank: int, incarnation: int) -> bool:
        """Return whether this incarnation of `rank` has left so."""
        return self.retired.get(rank, -1) >= incarnation

    def follow(self, name: str, *arguments: Any) -> Any:
        """Call the method of that name, as a rank asks for. Arguments and result are such as JSON has."""
        if name not in ("begin", "come", "depart", "leave", "scale"):
            raise ValueError(f"a roster does not {name!r}")
        return getattr(self, name)(*arguments)

    def _end(self, spells: Iterable[Spell]) -> None:
        """End those of `spells` that go on, at the first epoch that no rank has begun."""
        ended = {one: one._replace(end=self.fresh) for one in spells if one.end is None}
        self.spells = [ended.get(one, one) for one in self.spells]


def write(folder: str | os.PathLike[str], roster: Roster) -> None:
    """Make `roster` that of the job in `folder`, in place of the one before. OSError: nothing changes. Local."""
    write_whole(os.path.join(folder, FILE), text(roster))


def text(roster: Roster) -> str:
    """`roster` as a line. Pure."""
    fields = {
        **vars(roster), **{name: list(vars(roster)[name].items()) for name in ("begun", "retired", "departing")},
        "losses": [(*one[:2], list(one.begun.items())) for one in roster.losses],
    }  # fmt: skip
    return json.dumps(fields)


def read(folder: str | os.PathLike[str]) -> Roster | None:
    """That of the job in `folder`; None: it has none. Local."""
    with contextlib.suppress(ValueError):
        return parsed(written(folder))
    return None


def written(folder: str | os.PathLike[str]) -> str:
    """The line of that of the job in `folder`; "": it has none. Local.

    Whether it has changed, this alone says: two changes within a tick of the clock of files leave their time and inode
    as they were.
    """
    with contextlib.suppress(OSError), open(os.path.join(folder, FILE), encoding="utf-8") as file:
        return file.read()
    return ""


def parsed(line: str) -> Roster:
    """Return the roster in a line of its file. Pure. ValueError: it is something else."""
    found = json.loads(line)
    spells = [
        Spell(rank, life, (first[0], first[1]), None if end is None else (end[0], end[1]))
        for rank, life, first, end in found["spells"]
    ]
    begun = {rank: (life, (loop, epoch)) for rank, (life, (loop, epoch)) in found["begun"]}
    losses = [
        Loss(rank, life, {one: (loop, epoch) for one, (loop, epoch) in begun}) for rank, life, begun in found["losses"]
    ]
    return Roster(
        found["first"], found["least"], found["most"], found["size"], begun, spells, losses, dict(found["retired"]),
        dict(found["departing"]), found["version"],
    )  # fmt: skip


@contextlib.contextmanager
def changing(
    folder: str | os.PathLike[str], pause: Callable[[int], object] = lambda polls: time.sleep(_NAP_S)
) -> Iterator[Roster]:  # fmt: skip
    """A block that changes the roster of the job in `folder`, which is written at its end. Local.

    Others wait for it, so it is short. An exception in it changes nothing. LookupError: the job has none.

    pause(polls): called while another changes it. That one may be stopped: a rank finds that out, and ends it.
    """
    with open(os.path.join(folder, _LOCK), "a") as lock:
        polls = 0
        while not _takes(lock):
            polls += 1
            pause(polls)
        try:
            found = read(folder)
            if found is None:
                raise LookupError("the number of ranks of this job does not change: start it with malt run --elastic")
            yield found
            found.version += 1
            write(folder, found)
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # else a process that another thread has forked meanwhile would keep it


def _takes(lock: IO[str]) -> bool:
    """Take a lock, if no other has it. Returns whether it is taken."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False

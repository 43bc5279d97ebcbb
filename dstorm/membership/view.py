"""Who is alive: what one rank knows of it, and how the living come to the same. Pure: no MPI, no clock.

A rank buries another when it has seen for itself that it is gone for good, or when one of the living has buried it: so
all come to bury the same ranks, at different moments.

A meeting must end with the same list of the dead on all who leave it. The lowest living rank decides: once all of the
living have come, and have buried all below it, what it has buried then is the list. A decision is taken over from those
who are not buried alone, and passed on to all before it is acted on. Hence if the lowest dies and one of the living has
acted on its decision, the next to decide knows that, and does not decide anew. (After Chandra and Toueg 1996, for a
detector that is never wrong.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

DEPARTED, DESERTED, OPEN = 1, 2, 4
"""Flags of a word: this rank has departed; it knows of one that has; it has vectors that it has not closed."""


class Word(NamedTuple):
    """What a rank says of itself to all others. Ranks are bits of `dead`, `lost`, `awaited` and `evicted`."""

    come: int = 0
    """How many meetings it has come to."""
    steps: int = 0
    dead: int = 0
    """Whom it has buried."""
    decided: int = 0
    """The latest meeting of which it knows the decision."""
    lost: int = 0
    """That decision: who was dead."""
    name: int = 0
    """The checksum of what its meeting is called."""
    beats: int = 0
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


class Membership:
    """One rank's knowledge. `words`: what each rank said last, its own included."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.words = [Word()] * size

    @property
    def own(self) -> Word:
        """What this rank has to say."""
        return self.words[self.rank]

    @property
    def lowest(self) -> int:
        """The lowest living rank, who decides."""
        return self.living()[0]

    def is_dead(self, rank: int) -> bool:
        """Whether this rank has buried `rank`."""
        return bool(self.own.dead >> rank & 1)

    def living(self) -> list[int]:
        """All who are not buried here, ascending, this rank included."""
        return [rank for rank in range(self.size) if rank == self.rank or not self.is_dead(rank)]

    def come(self, name: int) -> int:
        """Come to the next meeting; its number."""
        self._say(self.own._replace(come=self.own.come + 1, name=name))
        return self.own.come

    def stay_away(self) -> None:
        """The meeting did not take place, and is the next one again."""
        self._say(self.own._replace(come=self.own.come - 1))

    def heard(self, rank: int, word: Word) -> int:
        """Take down what `rank`, who is not buried, says; those that are to be buried now."""
        self.words[rank] = word
        return word.dead & ~self.own.dead

    def bury(self, dead: int) -> None:
        """`dead` are gone; say `own` to all."""
        self._say(self.own._replace(dead=self.own.dead | dead))

    def verdict(self, meeting: int) -> int | None:
        """Who was dead at `meeting`, as all who leave it know; None: not decided yet. Say `own` to all, then leave."""
        others = [rank for rank in self.living() if rank != self.rank]
        told = [word for word in (self.words[rank] for rank in others) if word.decided == meeting]
        if told:
            self._decide(meeting, told[0].lost)
        elif self._may_decide(meeting, others):
            self._decide(meeting, self.own.dead)
        return self.own.lost if self.own.decided == meeting else None

    def missing(self, meeting: int) -> list[int]:
        """The living who have not come to `meeting`."""
        return [rank for rank in self.living() if self.words[rank].come < meeting]

    def _may_decide(self, meeting: int, others: list[int]) -> bool:
        below = (1 << self.rank) - 1
        words = [self.words[rank] for rank in others]
        return self.lowest == self.rank and all(word.come >= meeting and not below & ~word.dead for word in words)

    def _decide(self, meeting: int, lost: int) -> None:
        self._say(self.own._replace(decided=meeting, lost=lost))

    def _say(self, word: Word) -> None:
        self.words[self.rank] = word

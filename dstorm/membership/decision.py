"""How all live ranks come to the same membership view, and to the same decision at a barrier. Pure: no MPI, no clock.

A rank marks another one failed when it has found the failure by itself, or when a live rank has marked that one failed.
So all live ranks mark the same ranks failed, at different moments.

A barrier must end with the same list of failed ranks on all ranks that leave it. The lowest live rank decides: once all
live ranks have entered the barrier, and have marked all ranks below the lowest failed, the list is the ranks that the
lowest has marked failed. A rank accepts a decision only from ranks that it has not marked failed, and publishes it to
all before it acts on it. Suppose that the lowest rank fails, and a live rank has acted on its decision. Then the next
rank that could decide knows the decision, and does not decide anew. (After Chandra and Toueg 1996, for a failure
detector that is never wrong.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dstorm.view import View

DEPARTED, DESERTED, OPEN, FINAL = 1, 2, 4, 8
"""Flags of a word: the rank has departed; it knows of a rank that has; it has open vectors; the barrier that it has
entered is the final one."""


class Word(NamedTuple):
    """The state that a rank publishes to all others. `failed`, `lost`, `awaited` and `evicted` are masks of ranks."""

    entered: int = 0
    """Number of barriers that it has entered."""
    steps: int = 0
    """Number of its steps."""
    failed: int = 0
    """The ranks that it has marked failed."""
    decided: int = 0
    """The latest barrier of which it knows the decision."""
    lost: int = 0
    """That decision: the ranks that had failed."""
    name: int = 0
    """Checksum of the name of its barrier."""
    heartbeats: int = 0
    """Number of its heartbeats that are not steps."""
    flags: int = 0
    """DEPARTED, DESERTED, OPEN and FINAL."""
    awaited: int = 0
    """The ranks that it waits for; 0: it does not wait, or has not waited for long."""
    evicted: int = 0
    """The ranks that it has evicted."""


def ranks(mask: int) -> frozenset[int]:
    """The ranks whose bits are set in `mask`."""
    return frozenset(rank for rank in range(mask.bit_length()) if mask >> rank & 1)


def mask(some: Iterable[int]) -> int:
    """The mask of the ranks `some`."""
    return sum(1 << rank for rank in set(some))


class Membership:
    """The knowledge of one rank about all ranks. `words`: the last published word of each rank, its own included."""

    def __init__(self, rank: int, view: View) -> None:
        self.rank, self.view = rank, view
        self.words = [Word()] * view.size

    @property
    def own(self) -> Word:
        """The word of this rank."""
        return self.words[self.rank]

    def others(self) -> list[int]:
        """The live ranks without this one, ascending."""
        return [rank for rank in self.view.alive if rank != self.rank]

    def enter(self, name: int) -> int:
        """Enter the next barrier; return its number."""
        self._write(self.own._replace(entered=self.own.entered + 1, name=name))
        return self.own.entered

    def withdraw(self) -> None:
        """Undo `enter`: the barrier did not take place, and is the next one again."""
        self._write(self.own._replace(entered=self.own.entered - 1))

    def note(self, rank: int, word: Word) -> int:
        """Note the word of `rank`, which is alive; return the ranks that it has marked failed and this rank has not."""
        self.words[rank] = word
        return word.failed & ~self.own.failed

    def mark_failed(self, fresh: Iterable[int]) -> None:
        """Note that the view has marked `fresh` failed: they wait for no rank. The caller publishes `own`."""
        for rank in fresh:
            self.words[rank] = self.words[rank]._replace(awaited=0)
        self._write(self.own._replace(failed=mask(self.view.failed)))

    def decision(self, generation: int) -> int | None:
        """The ranks that had failed at barrier `generation`, as a mask, the same on all ranks; None: not decided yet.

        The caller publishes `own` before it leaves the barrier.
        """
        others = self.others()
        decided = [word for word in (self.words[rank] for rank in others) if word.decided == generation]
        if decided:
            self._decide(generation, decided[0].lost)
        elif self._may_decide(generation, others):
            self._decide(generation, self.own.failed)
        return self.own.lost if self.own.decided == generation else None

    def missing(self, generation: int) -> list[int]:
        """The live ranks that have not entered barrier `generation`."""
        return [rank for rank in self.view.alive if self.words[rank].entered < generation]

    def _may_decide(self, generation: int, others: list[int]) -> bool:
        below = (1 << self.rank) - 1
        words = [self.words[rank] for rank in others]
        return self.view.lowest == self.rank and all(
            word.entered >= generation and not below & ~word.failed for word in words
        )

    def _decide(self, generation: int, lost: int) -> None:
        self._write(self.own._replace(decided=generation, lost=lost))

    def _write(self, word: Word) -> None:
        self.words[self.rank] = word

"""Brings all live ranks to the same membership view, and to one decision at each barrier. Pure: no MPI, no clock.

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

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dstorm.membership.returns.admission import Stamps, entered_of, merged, newer, stamp, still_failed, with_stamp
from dstorm.view import View

DEPARTED, DESERTED, OPEN, FINAL, JOINING = 1, 2, 4, 8, 16
"""Flags of a word: the rank has departed; it knows of a rank that has; it has open vectors; the barrier that it has
entered is the final one; it asks to be admitted, and is no member yet."""
MARKS = 32, 64
"""The same: it has marked the last barrier of an even, or of an odd number, that it has entered. So a rank that has
left a barrier can read the marks of all, until it enters the next one."""


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
    """DEPARTED, DESERTED, OPEN, FINAL, JOINING and MARKS."""
    awaited: int = 0
    """The ranks that it waits for; 0: it does not wait, or has not waited for long."""
    evicted: int = 0
    """The ranks that it has evicted."""
    stamps: Stamps = ()
    """The stamps of all ranks (dstorm/membership/returns/admission.py): `failed` are incarnations that these name. ():
    no rank can fail without the job."""


def ranks(mask: int) -> frozenset[int]:
    """The ranks whose bits are set in `mask`."""
    return frozenset(rank for rank in range(mask.bit_length()) if mask >> rank & 1)


def mask(some: Iterable[int]) -> int:
    """The mask of the ranks `some`."""
    return sum(1 << rank for rank in set(some))


def knowledge(words: Sequence[Word]) -> tuple[int, tuple[int, ...]]:
    """Return what `words` say together: the mask of the failed ranks, and the stamps of all."""
    stamps = tuple(map(max, *(word.stamps for word in words), words[0].stamps))
    failed = 0
    for word in words:
        failed |= still_failed(word.failed, word.stamps, stamps)
    return failed, stamps


class Membership:
    """The knowledge of one rank about all ranks. `words`: the last published word of each rank, its own included."""

    def __init__(self, rank: int, view: View) -> None:
        self.rank, self.view = rank, view
        stamps = tuple(map(stamp, view.incarnations))
        self.words = [Word(stamps=stamps)] * view.size
        self._write(Word(failed=mask(view.failed), stamps=stamps))

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
        failed = word.failed
        if word.stamps != self.own.stamps:
            failed = still_failed(failed, word.stamps, self.own.stamps)
        return failed & ~self.own.failed

    def admissions(self) -> dict[int, int]:
        """The stamps, by rank, that others have published and this rank has not followed."""
        stamps = self.own.stamps
        for published in {word.stamps for word in self.words}:  # most ranks have the same
            stamps = merged(stamps, published)
        return newer(stamps, self.own.stamps)

    def admit(self, rank: int, one: int) -> None:
        """Note that the view has admitted `rank`, by this stamp. The caller publishes `own`."""
        stamps = with_stamp(self.own.stamps, rank, one)
        self._write(self.own._replace(failed=mask(self.view.failed), stamps=stamps))
        self.words[rank] = Word(entered=entered_of(stamps, rank), stamps=stamps)

    def begin(self, stamps: Stamps, words: Mapping[int, Word]) -> None:
        """Begin as a rank that was admitted, whose view is set. `stamps`: of all ranks; `words`: of the live ones.

        The decision of the last barrier without this rank must be known to it, as it may be the lowest rank now: where
        no live rank knows it, none has acted on it, and this rank decides it.
        """
        entered = entered_of(stamps, self.rank)
        self.words = [
            words.get(rank, Word(entered=entered_of(stamps, rank), stamps=stamps)) for rank in range(self.view.size)
        ]
        self._write(Word(entered=entered, failed=mask(self.view.failed), stamps=stamps))
        decided = [word for word in words.values() if word.decided == entered]
        if decided:
            self._decide(entered, decided[0].lost)
        elif self._decides:
            later = [other for other in range(self.view.size) if self.came_after(other, entered)]
            self._decide(entered, self.own.failed | mask(later))

    def came_after(self, rank: int, generation: int) -> bool:
        """Return whether barrier `generation` has gone on without `rank`, which was admitted later."""
        stamps = self.own.stamps
        return stamps[rank] > 0 and entered_of(stamps, rank) >= generation

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
        return self._decides and all(word.entered >= generation and not below & ~word.failed for word in words)

    @property
    def _decides(self) -> bool:
        """True if this is the rank that decides: the lowest."""
        return self.view.lowest == self.rank

    def _decide(self, generation: int, lost: int) -> None:
        self._write(self.own._replace(decided=generation, lost=lost))

    def _write(self, word: Word) -> None:
        self.words[self.rank] = word

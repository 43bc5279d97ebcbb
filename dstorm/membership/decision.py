"""Brings all live ranks to the same membership view, and to one decision at each barrier. Pure: no MPI, no clock.

A rank marks another one failed when it has found the failure by itself, or when a live rank has marked that one failed.
So all live ranks mark the same ranks failed, at different moments. Nobody waits for that.

*Barriers.* A barrier must end with the same list of failed ranks on all ranks that leave it. The lowest live rank
decides, once all live ranks have entered the barrier and agree with it (`Membership.leads`): they have marked failed
what it has. The list is that. A rank accepts a decision only from ranks that it has not marked failed, and publishes it
to all before it acts on it.

*Generations.* A failed rank may be started again, as its next incarnation. The lowest live rank admits it between two
collective calls, once all live ranks agree with it, by a word that names the next generation. Whoever reads that word
from a rank that it has not marked failed goes on to the generation, and publishes it. The newcomer is in once all live
ranks have. A word of another generation says nothing of failures: these are of the members of one.

Both are the same on all that live. Say that X and Y have decided a barrier differently, or made two generations of one
number. One of them, Y, had marked the other one failed, as both were the lowest. Each rank that was alive for Y agreed
with it then. It had marked X failed, too, and all others that Y had; and it knew nothing of what X had made, or Y would
have taken that over. So it does not hear of it any more: not from X, nor from the others that have failed for Y, and of
the ranks that are alive for Y none can be the first to hear of it. Hence no rank that lives with Y goes on with X.
(After Chandra and Toueg 1996, for a failure detector that is never wrong.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dstorm.view import View

DEPARTED, DESERTED, OPEN, FINAL, JOINING = 1, 2, 4, 8, 16
"""Flags of a word: the rank has departed; it knows of a rank that has; it has open vectors; the barrier that it has
entered is the final one; it asks to be admitted, and is no member yet."""
MARKS = 32, 64
"""The same: it has marked the last barrier of an even, or of an odd number, that it has entered. So a rank that has
left a barrier can read the marks of all, until it enters the next one."""


class Generation(NamedTuple):
    """The members after a rank has come back. Failures shrink them, and make no generation."""

    number: int = 0
    """How many ranks have come back before, this one included."""
    rank: int = 0
    """The rank that has come back."""
    incarnation: int = 0
    """The incarnation as which it has."""
    entered: int = 0
    """The number of the last barrier without it."""


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
    generation: Generation = Generation()
    """Its generation: `failed` are members of that. Of a rank that asks to be admitted: its rank and incarnation."""
    before: int = 0
    """Checksum of the name of the barrier before."""

    def called(self, number: int) -> int:
        """Return the checksum of the name that it had for barrier `number`; 0: it has not said. Pure."""
        if self.entered == number:
            return self.name
        return self.before if self.entered == number + 1 else 0


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
        self._write(Word(failed=mask(view.failed)))

    @property
    def own(self) -> Word:
        """The word of this rank."""
        return self.words[self.rank]

    def others(self) -> list[int]:
        """The live ranks without this one, ascending."""
        return [rank for rank in self.view.alive if rank != self.rank]

    def enter(self, name: int) -> int:
        """Enter the next barrier; return its number."""
        self._write(self.own._replace(entered=self.own.entered + 1, name=name, before=self.own.name))
        return self.own.entered

    def leave(self, number: int) -> bool:
        """Note that this rank has left barrier `number`. Return False where ranks may fail: a decision says so."""
        if self.view.can_change:
            return False
        self._write(self.own._replace(decided=number))
        return True

    def withdraw(self) -> None:
        """Undo `enter`: the barrier did not take place, and is the next one again."""
        self._write(self.own._replace(entered=self.own.entered - 1, name=self.own.before, before=0))

    def is_former(self, rank: int, word: Word) -> bool:
        """Return whether a former incarnation of `rank` has left `word`."""
        return word.generation.number < self.view.came_in[rank]

    def is_next(self, word: Word) -> bool:
        """Return whether `word`, of a rank that asks to be admitted, is of an incarnation that has not been."""
        return word.generation.incarnation > self.view.incarnation(word.generation.rank)

    def note(self, rank: int, word: Word) -> int:
        """Note the word of `rank`, which is alive; return the ranks that it has marked failed and this rank has not."""
        self.words[rank] = word
        own = self.own
        return word.failed & ~own.failed if word.generation == own.generation else 0

    def admission(self) -> Word | None:
        """Return a word of a live rank that names a later generation than this rank's."""
        number = self.own.generation.number
        later = [word for word in map(self.words.__getitem__, self.others()) if word.generation.number > number]
        return later[0] if later else None

    def admit(self, word: Word) -> None:
        """Go on to the generation of `word`, whose newcomer the view has admitted. The caller publishes `own`.

        It comes with the decision of the last barrier without the newcomer: who has made it had left that barrier, and
        this rank, which agreed with it, has marked failed who had failed there.
        """
        new = word.generation
        decided, lost = max((self.own.decided, self.own.lost), (word.decided, word.lost))
        own = self.own._replace(failed=mask(self.view.failed), generation=new, decided=decided, lost=lost)
        self._write(own)
        self.words[new.rank] = Word(entered=new.entered, generation=new)

    def begin(self, words: Mapping[int, Word]) -> None:
        """Begin as a newcomer, whose view is set. `words`: of the live ranks, which name its generation."""
        self.words = [words.get(rank, Word()) for rank in range(self.view.size)]
        last = max(words.values(), key=lambda word: word.decided)
        entered, failed = last.generation.entered, mask(self.view.failed)
        self._write(Word(entered, 0, failed, last.decided, last.lost, generation=last.generation))

    def leads(self) -> bool:
        """Return whether this rank is the lowest, and all live ranks agree with it: they are in its generation, and
        have marked failed what it has. None has left a barrier that this rank has not entered, or has withdrawn from.
        """
        own, words = self.own, [self.words[rank] for rank in self.view.alive]
        agree = [(word.generation, own.failed & ~word.failed) == (own.generation, 0) for word in words]
        return all([self.view.lowest == self.rank, *agree, *(word.decided <= own.entered for word in words)])

    def mark_failed(self, fresh: Iterable[int]) -> None:
        """Note that the view has marked `fresh` failed: they wait for no rank. The caller publishes `own`."""
        for rank in fresh:
            self.words[rank] = self.words[rank]._replace(awaited=0)
        self._write(self.own._replace(failed=mask(self.view.failed)))

    def decision(self, number: int) -> int | None:
        """The ranks that had failed at barrier `number`, as a mask, the same on all ranks; None: not decided yet.

        To be called once this rank has the words of all, which come over other connections than the decision. Where
        `own` has changed, the caller publishes it before it leaves the barrier.
        """
        if not self.view.can_change:
            return 0
        if self.own.decided != number:
            decided = [word.lost for word in map(self.words.__getitem__, self.others()) if word.decided == number]
            if not decided and not self.leads():
                return None
            self._write(self.own._replace(decided=number, lost=decided[0] if decided else self.own.failed))
        return self.own.lost

    def missing(self, number: int) -> list[int]:
        """The live ranks that have not entered barrier `number`."""
        return [rank for rank in self.view.alive if self.words[rank].entered < number]

    def _write(self, word: Word) -> None:
        self.words[self.rank] = word

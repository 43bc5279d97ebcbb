"""Ranks that come back: their admission, the vectors that they open, and what they get for them.

A rank that comes back, the newcomer, asks by a word that has the flag JOINING and names its incarnation. The lowest
live rank admits it between two collective calls of its own, by the next generation. It gives the newcomer what all
ranks know alike then. The newcomer takes part once all live ranks are in that generation. Where none may come back
nobody asks.

The newcomer opens vectors one by one, each by its place: the offset of its memory in the
arena. It asks one rank, the server, for the values, which answers with their place in its own part of the arena. Every
live rank that has the vector open answers how far it is. Until the newcomer says that it is in, nobody sends to it, and
nobody waits for it. It begins at the largest of the steps of the others. Under bsp and ssp all go on to that step, hold
before their next exchange until the newcomer has opened all vectors, and say so (vol/returns/returning.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dstorm.errors import DeadlinePassed, Refused
from dstorm.membership.decision import JOINING, Generation, Word, ranks
from dstorm.membership.returns.board import Board, Note
from dstorm.view import FaultTolerantView, Member
from dstorm.waits.stopwatch import Stopwatch

if TYPE_CHECKING:
    from dstorm.membership.barriers.barrier import Barrier
    from dstorm.membership.resilient import SurvivingTransport

_AGAIN_S = 1.0
"""How long a newcomer waits to be admitted before it asks again."""
_PASSED_S = 1.0
"""How long a rank that has come back waits for ranks that are in a barrier without it: what they sent may be late."""

_K, _PROCESS, _OPEN, _ANSWERS = "incarnation", "process", "open", "answers"
_ADMISSION, _REFUSAL, _OPENS = "admission", "refusal", "opens"
IN = -1
"""What a newcomer says of a vector in which it takes part from now on."""


class Answer(NamedTuple):
    """The answer of a rank to a newcomer that opens a vector. It is written again as often as it changes."""

    step: int
    """The step of its last exchange, or of the one under way."""
    is_between: bool = False
    """Whether none is under way, in no vector under bsp or ssp."""
    closed: bool = False
    """Whether it has closed the vector."""
    values: Sequence[int] = ()
    """Where the values are: offset and length in its part of the arena; offset -1: it has no room. (): not yet."""
    holds: int = -1
    """The place of the vector before whose exchange it waits until the newcomer has opened all; -1: it does not."""
    at: int = -1
    """The same as `step`, of the vector within whose exchanges those of this one begin; -1: there was none so far."""


class Opening(NamedTuple):
    """The note of a newcomer on a vector that it opens."""

    server: int
    """The rank that it asks for the values. IN: it has them, or there are none, and it takes part."""
    asked: int
    """The step to which the others go on without it."""
    at: int = -1
    """The same, of the vector within whose exchanges those of this one begin."""


class Returns:
    """The returns of ranks, as one rank takes part in them. All methods are One-sided. Any thread may call them.

    `arena`: has the memory in which values wait for a newcomer. `readmit(rank, process)`: notes the process of a rank
    that has come back.
    """

    def __init__(
        self, board: Board, view: FaultTolerantView, rank: int, arena: SurvivingTransport,
        readmit: Callable[[int, Sequence[int]], object],
    ) -> None:  # fmt: skip
        self._board, self._view, self._rank, self.arena, self._readmit = board, view, rank, arena, readmit
        self._common: dict[str, Any] = {_K: 0, _OPEN: {}, _OPENS: False}
        self._private: dict[int, dict[str, Any]] = {}
        self._seen: dict[int, Note] = {}
        self._lock = threading.RLock()
        self.barrier: Barrier
        """The barriers of this rank. They note themselves here."""
        self.offer: Callable[[], Note | str] = lambda: "the session has not begun"
        """What all ranks know alike between two collective calls, for a newcomer; or why none can be admitted."""
        self.propose: Callable[[int, int], bool] = lambda rank, incarnation: True
        """Proposes to all who go on that a rank is admitted, as this incarnation; returns whether they all know it."""
        self.is_member: Callable[[], bool] = lambda: True
        """Whether this rank, once the others have admitted it, knows of that: before, its flushes wait for nobody."""
        self.send_again: Callable[[int], object] = lambda rank: None
        """Called with a rank that has come back, before this rank passes its admission on."""
        self.has_opened: Callable[[], object] = bool
        """Called once this rank, which has come back, has all that it opens of what the others have."""
        self.stepwise: list[Any] = []
        """How this rank takes newcomers up in each open vector under bsp and ssp (vol/returns/returning.py)."""
        self.held_at: set[int] | None = None
        """Of a newcomer: the places of the vectors before whose exchanges the others hold. None: it has not waited yet
        until they do."""

    @property
    def has_come_back(self) -> bool:
        """True if this rank has come to the others after the session began, or asks to."""
        return bool(self._common[_K])

    # -- every rank -------------------------------------------------------------------------------------------

    def poll(self) -> bool:
        """Read the notes of ranks that are newcomers, or may answer this one; return whether there is news."""
        since = -1 if self._common[_K] else 0
        is_news = False
        for rank in self._view.newcomers(since, self._rank):
            note = self._board.read(rank)
            if note is not self._seen.get(rank):
                self._seen[rank] = note
                is_news = True
        return is_news

    def welcome(self, rank: int, admission: Note | None = None) -> None:
        """Begin anew with `rank`, which has come back: what was told its former incarnation is void.

        `admission`: what it is told by the rank that has admitted it.
        """
        with self._lock:
            self._private[rank] = {_ADMISSION: admission} if admission else {}
            self._write(rank)
        self.send_again(rank)

    def watch(self, rank: int) -> None:
        """Note the process of `rank`, where it has come back. Else, or where that is not known, it has failed."""
        note, member = self._board.read(rank), self._view.member(rank)
        if note.get(_K) == member.incarnation and _PROCESS in note:
            self._readmit(rank, note[_PROCESS])

    def opening(self, rank: int, place: int) -> Opening | None:
        """Return the note of `rank`, which has come back, on the vector at `place`; None: it has not opened it."""
        found = self._note(rank).get(_OPEN, {}).get(str(place))
        return None if found is None else Opening(*found)

    def opens_more(self, rank: int) -> bool:
        """Return whether `rank`, which has come back, has vectors to open still, as far as it has said."""
        return bool(self._note(rank).get(_OPENS))

    def _note(self, rank: int) -> Note:
        """The note of the live member of `rank`; empty where there is none."""
        note = self._seen.get(rank, {})
        is_present = self._view.has(rank, note.get(_K, -1))
        return note if is_present else {}

    def answer(self, member: Member, place: int, answer: Answer) -> None:
        """Answer `member`, which has opened the vector at `place`; not the next one of its rank."""
        rank, incarnation = member
        with self._lock:
            is_current = self._view.incarnation(rank) == incarnation
            if is_current:  # else another thread has followed the admission of the next one
                private = self._private.setdefault(rank, {})
                private.pop(_ADMISSION, None)  # it has read that, and a note has a longest length
                private.setdefault(_ANSWERS, {})[str(place)] = answer
                self._write(rank)

    # -- the rank that admits ---------------------------------------------------------------------------------

    def admit_all(self) -> None:
        """Admit the ranks that ask, where this rank may."""
        for rank in self._view.to_admit(self._rank):
            word = self.barrier.word(rank)
            if word is not None and word.flags & JOINING and self.barrier.membership.is_next(word):
                self._consider(rank, word.generation.incarnation)

    def _consider(self, rank: int, incarnation: int) -> None:
        if self.barrier.is_at_the_end:
            return self._refuse(rank, incarnation, "the others are at the end of the session")
        if not self.barrier.membership.leads() or not self.propose(rank, incarnation):
            return
        with self.barrier.between_calls() as is_free:
            if not is_free:
                return
            session = self.offer()
            if isinstance(session, str):
                return self._refuse(rank, incarnation, session)
            entered = self.barrier.membership.own.entered
            generation = Generation(self._view.generation + 1, rank, incarnation, entered)
            came_in, incarnations = [*self._view.came_in], [*self._view.incarnations]
            came_in[rank], incarnations[rank] = generation.number, incarnation
            admission = {"generation": generation, "members": [incarnations, came_in], "session": session}
            if not self._board.holds({**self._common, _ADMISSION: admission}):
                return self._refuse(rank, incarnation, "too many vectors were made")
            self.barrier.follow(Word(generation=generation), admission)

    def _refuse(self, rank: int, incarnation: int, why: str) -> None:
        """Tell `rank` that it cannot come back."""
        with self._lock:
            if self._private.get(rank, {}).get(_REFUSAL) != [incarnation, why]:
                self._private[rank] = {_REFUSAL: [incarnation, why]}
                self._write(rank)

    # -- the newcomer -----------------------------------------------------------------------------------------

    def ask(
        self, incarnation: int, process: Sequence[int], find_ended: Callable[[], Collection[int]],
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """Come in later, as this incarnation. Local. `find_ended()`: the ranks whose processes have ended.

        `is_over()`: whether the others have ended the session.
        """
        self.barrier.is_outside = True
        self.barrier.forget()
        with self._lock:
            self._common = {_K: incarnation, _PROCESS: list(process), _OPEN: {}, _OPENS: True}
        self._find_ended, self._is_over_elsewhere = find_ended, is_over

    def come_in(self) -> Note:
        """Be admitted; return what all ranks know alike.

        Refused: they cannot, or have ended. DeadlinePassed: they have not done it within the deadline.
        """
        self._ask()
        incarnation = self._common[_K]
        waited, asked, polls = self._stopwatch(), self._stopwatch(), 0
        while (words := self._admitting(incarnation)) is None or not self.is_member():
            notes = [self._board.read(rank).get(_REFUSAL, (0, "")) for rank in self._others()]
            if why := [why for refused, why in notes if refused == incarnation]:
                raise Refused(self._rank, why[0])
            if self._is_over_elsewhere():
                raise Refused(self._rank, "the others have ended the session")
            if waited.seconds() > self.barrier.deadline_s:
                unknown = dict.fromkeys(self._others(), 0)
                raise DeadlinePassed("malt.init", unknown, unknown)
            if asked.seconds() > _AGAIN_S:
                self._ask()
                asked = self._stopwatch()
            self.arena.pause(polls)
            polls += 1
        return self._begin(words)

    def _ask(self) -> None:
        """Ask all to be admitted. One that comes back afterwards, on another host, has not got it."""
        with self._lock:
            for rank in self._others():
                self._write(rank)
        self.barrier.ask(self._common[_K])

    def _admitting(self, incarnation: int) -> dict[int, Word] | None:
        """The words of the live ranks, all of which have passed this rank's admission on; None: not yet."""
        read = self.barrier.read_words()
        asking = {rank for rank, word in read.items() if word.flags & JOINING}
        words = {
            rank: word for rank, word in read.items()
            if rank not in asking and word.generation[1:3] == (self._rank, incarnation)
        }  # fmt: skip
        newest = max((word.generation.number for word in words.values()), default=0)
        words = {rank: word for rank, word in words.items() if word.generation.number == newest}
        others, ended = set(self._others()), set(self._find_ended())
        if ended >= others or (not words and ended | asking >= others):
            raise Refused(self._rank, "the other ranks have ended")
        out = _failed(words)
        words = {rank: word for rank, word in words.items() if rank not in out}
        return words if words and words.keys() >= others - out - ended else None

    def _begin(self, words: dict[int, Word]) -> Note:
        """Begin as a member, with the words of the others; return what all ranks know alike. Refused."""
        out, generation = _failed(words), list(next(iter(words.values())).generation)
        notes = [self._board.read(rank).get(_ADMISSION) for rank in self._others()]
        admissions = [note for note in notes if note and note["generation"] == generation]
        if not admissions or self._rank in out:
            raise Refused(self._rank, "the rank that admitted it has failed")
        self._view.begin(out, *admissions[0]["members"])
        for rank in set(self._others()) - out:
            self.watch(rank)
        self.barrier.begin(words)
        self.poll()  # others may have come back before: what they have opened
        session: Note = admissions[0]["session"]
        return session

    def _others(self) -> list[int]:
        return [rank for rank in range(self._view.size) if rank != self._rank]

    def _stopwatch(self) -> Stopwatch:
        """A stopwatch to be read in the polls of a wait."""
        return Stopwatch(self.arena.clock, self.arena.longest_poll_s)

    def check_past(self, what: str, awaited: Collection[int], past: Stopwatch | None) -> Stopwatch | None:
        """Return the time for which this rank, which has come back, has waited for ranks that are in a barrier without
        it; None: it does not wait. Local.

        To be called again and again in a wait, at first with None, then with the last result. Refused: it has done so
        for too long: its program makes other calls than theirs.
        """
        if not (self.has_come_back and awaited and {*self.barrier.past()} >= {*awaited}):
            return None
        if past is not None and past.seconds() > min(_PASSED_S, self.barrier.deadline_s / 8):
            raise Refused(self._rank, f"it is in {what}, and the others in {self.barrier.name_of(min(awaited))}")
        return self._stopwatch() if past is None else past

    def open(self, place: int, opening: Opening) -> None:
        """Tell all live ranks what this one says of the vector at `place`."""
        with self._lock:
            self._common[_OPEN][str(place)] = opening
            self._tell()

    def opened_all(self) -> None:
        """Tell all live ranks that this one opens no more vectors that they have; once, where it has come back."""
        if self._common[_OPENS]:
            with self._lock:
                self._common[_OPENS] = False
                self._tell()
            self.has_opened()

    def answers(self, place: int) -> dict[int, Answer]:
        """The answers of live ranks for the vector at `place`, by rank."""
        found = {}
        for rank in self._view.alive:
            note = self._board.read(rank) if rank != self._rank else {}
            if str(place) in note.get(_ANSWERS, {}):
                found[rank] = Answer(*note[_ANSWERS][str(place)])
        return found

    def _tell(self) -> None:
        """Write the note to all other live ranks."""
        for rank in self._view.alive:
            if rank != self._rank:
                self._write(rank)

    def _write(self, rank: int) -> None:
        self._board.write(rank, {**self._common, **self._private.get(rank, {})})


def _failed(words: Mapping[int, Word]) -> set[int]:
    """The ranks that failed by one of `words`."""
    return {rank for word in words.values() for rank in ranks(word.failed)}

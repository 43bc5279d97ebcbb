"""Notes between ranks while a failed one comes back: which vectors it has opened, and what it gets for them.

A rank that comes back, the newcomer, opens vectors one by one, each by its place: the offset of its memory in the
arena. It asks one rank, the server, for the values, which answers with their place in its own part of the arena. Every
live rank that has the vector open answers how far it is. Until the newcomer says that it is in, nobody sends to it, and
nobody waits for it. It begins at the largest of the steps of the others. Under bsp and ssp all go on to that step, hold
before their next exchange until the newcomer has opened all vectors, and say so (vol/returns/returning.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dstorm.membership.returns.board import Board, Note
from dstorm.view import Member, View

if TYPE_CHECKING:
    from dstorm.membership.barriers.tolerant import TolerantBarrier
    from dstorm.membership.resilient import SurvivingTransport

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
    holds: bool = False
    """Whether it waits in the vector until the newcomer has opened all."""


class Opening(NamedTuple):
    """The note of a newcomer on a vector that it opens."""

    server: int
    """The rank that it asks for the values. IN: it has them, or there are none, and it takes part."""
    asked: int
    """The step to which the others go on without it."""


class Returns:
    """The notes of one rank to others, and of them to it. All methods are One-sided. Any thread may call them.

    `arena`: has the memory in which values wait for a newcomer.
    """

    def __init__(self, board: Board, view: View, rank: int, arena: SurvivingTransport) -> None:
        self._board, self._view, self._rank, self.arena = board, view, rank, arena
        self._common: dict[str, Any] = {_K: 0, _OPEN: {}, _OPENS: False}
        self._private: dict[int, dict[str, Any]] = {}
        self._seen: dict[int, Note] = {}
        self._lock = threading.RLock()
        self.barrier: TolerantBarrier
        """The barriers of this rank, which admit ranks that come back, and ask for that."""
        self.has_opened: Callable[[], object] = bool
        """Called once this rank, which has come back, has all that it opens of what the others have."""
        self.stepwise: list[Any] = []
        """How this rank takes newcomers up in each open vector under bsp and ssp (vol/returns/returning.py)."""

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

        `admission`: what it is told by the rank that has admitted it, which `is_short` has found short enough.
        """
        with self._lock:
            self._private[rank] = {_ADMISSION: admission} if admission else {}
            self._write(rank)

    def process_of(self, member: Member) -> Sequence[int] | None:
        """The process of a member that has come back; None: it has failed since, or has not come back."""
        note = self._board.read(member.rank)
        return note.get(_PROCESS) if note.get(_K) == member.incarnation else None

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

    def is_short(self, admission: Note) -> bool:
        """Return whether this rank can tell a newcomer so much. Local."""
        return self._board.holds({**self._common, _ADMISSION: admission})

    def refuse(self, rank: int, incarnation: int, why: str) -> None:
        """Tell `rank` that it cannot come back."""
        with self._lock:
            if self._private.get(rank, {}).get(_REFUSAL) != [incarnation, why]:
                self._private[rank] = {_REFUSAL: [incarnation, why]}
                self._write(rank)

    # -- the newcomer -----------------------------------------------------------------------------------------

    def announce(self, incarnation: int, process: Sequence[int], others: Sequence[int]) -> None:
        """Tell `others` which process this rank is now."""
        with self._lock:
            self._common = {_K: incarnation, _PROCESS: list(process), _OPEN: {}, _OPENS: True}
            for rank in others:
                self._write(rank)

    def refusal(self, incarnation: int, others: Sequence[int]) -> str:
        """Return why this rank is refused; "": it is not."""
        found = [self._board.read(rank).get(_REFUSAL, (0, "")) for rank in others]
        return next((why for number, why in found if number == incarnation), "")

    def admission(self, generation: Sequence[int], others: Sequence[int]) -> Note | None:
        """Return what came with the admission by `generation`."""
        notes = [self._board.read(rank).get(_ADMISSION) for rank in others]
        return next((note for note in notes if note and note["generation"] == list(generation)), None)

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

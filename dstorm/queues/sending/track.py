"""The messages on their way to one peer of another host: those that wait, and the one that leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dstorm.queues.sending.edge import OutEdge
from dstorm.queues.sending.unsent import Unsent


class Sealed(NamedTuple):
    """The messages that were handed over for a peer before a collective call."""

    number: int
    """The number of its last message."""
    tells: tuple[int, int] | None
    """What its progress header is to say: the object, as later ones may be equal."""


@dataclass(eq=False)
class Track:
    """The messages on their way to one peer."""

    edge: OutEdge
    sealed: tuple[Unsent, ...] = ()
    """Messages whose payload has not been put, oldest first. A collective call waits for them: none joins them."""
    waiting: tuple[Unsent, ...] = ()
    """Those behind them, which the next one may be joined with."""
    leaving: Unsent | None = None
    """The message that is put in the flush under way."""
    tells: tuple[int, int] | None = None
    """A step and a state that its progress header is to say, after all messages."""
    sealed_tells: tuple[int, int] | None = None
    """Those that it is to say after the sealed ones."""
    telling: tuple[int, int] | None = None
    """Those that it says in the flush under way."""
    superseded: int = 0
    """Messages in whose place another one has left, or will."""

    @property
    def inside(self) -> tuple[Unsent, ...]:
        """The messages that have not arrived, oldest first."""
        return (*(() if self.leaving is None else (self.leaving,)), *self.sealed, *self.waiting)

    @property
    def sent(self) -> int:
        """The number of messages that scatters have handed over."""
        return self.edge.ring.count + self.superseded + len(self.inside)

    def take(self) -> bool:
        """Let the oldest message leave; return whether one may. Those behind sealed steps wait for these."""
        if self.sealed:
            self.leaving, self.sealed = self.sealed[0], self.sealed[1:]
        elif self.waiting and self.sealed_tells is None:
            self.leaving, self.waiting = self.waiting[0], self.waiting[1:]
        return self.leaving is not None

    def seal(self) -> Sealed:
        """Let what waits leave as it is."""
        self.sealed, self.waiting = (*self.sealed, *self.waiting), ()
        if self.tells is not None:
            self.sealed_tells, self.tells = self.tells, None
        return Sealed(self.edge.ring.sent + len(self.inside), self.sealed_tells or self.telling)

    def unseal(self) -> None:
        """Let the next message be joined with what is left of it."""
        if self.sealed:
            self.sealed, self.waiting = (), (*self.sealed, *self.waiting)
        self.tells, self.sealed_tells = self.tells or self.sealed_tells, None

    def drop(self) -> None:
        """Drop what is on its way; begin anew."""
        self.sealed = self.waiting = ()
        self.leaving = self.tells = self.sealed_tells = self.telling = None
        self.superseded = 0

    def holds(self, sealed: Sealed) -> bool:
        """Return whether some of it has not arrived."""
        has_said = sealed.tells is None or (sealed.tells is not self.sealed_tells and sealed.tells is not self.telling)
        return self.edge.ring.sent < sealed.number or not has_said

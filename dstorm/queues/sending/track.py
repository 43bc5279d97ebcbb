"""The messages on their way to one peer of another host: those that wait, and the one that leaves."""

from __future__ import annotations

from dataclasses import dataclass

from dstorm.queues.sending.edge import OutEdge
from dstorm.queues.sending.unsent import Unsent


@dataclass(eq=False)
class Track:
    """The messages on their way to one peer."""

    edge: OutEdge
    waiting: tuple[Unsent, ...] = ()
    """Messages whose payload has not been put, oldest first. The next one may be joined with them."""
    leaving: Unsent | None = None
    """The message that is put in the flush under way."""
    tells: tuple[int, int] | None = None
    """A step and a state that its progress header is to say, after all messages."""
    telling: tuple[int, int] | None = None
    """Those that it says in the flush under way."""
    told: int = 0
    """How often its progress header has said what it was to say."""
    superseded: int = 0
    """Messages in whose place another one has left, or will."""

    @property
    def inside(self) -> tuple[Unsent, ...]:
        """The messages that have not arrived, oldest first."""
        return (*(() if self.leaving is None else (self.leaving,)), *self.waiting)

    def take(self) -> bool:
        """Let the oldest message leave; return whether there is one."""
        if self.waiting:
            self.leaving, self.waiting = self.waiting[0], self.waiting[1:]
        return self.leaving is not None

    def drop(self) -> None:
        """Drop what is on its way; begin anew."""
        self.waiting = ()
        self.leaving = self.tells = self.telling = None
        self.superseded = 0

    @property
    def arrived(self) -> int:
        """The number of messages and steps that have arrived."""
        return self.edge.ring.sent + self.told

    @property
    def due(self) -> int:
        """The value of `arrived` once all that is here now has arrived, or a later message that says the same.

        Each flush brings one of them, oldest first. What comes meanwhile is behind them, or takes their place.
        """
        return self.arrived + len(self.inside) + (self.telling is not None) + (self.tells is not None)

    def lacks(self, due: int) -> bool:
        """Return whether some of what was here when `due` was read has not arrived."""
        return self.arrived < min(due, self.due)

"""A message that waits to leave for another host, and what becomes of it when the next one comes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dstorm.transport import Bytes


class Unsent(NamedTuple):
    """A message in the buffer, or a step without a message."""

    step: int
    encoding: int
    weight: float
    share: float
    """The part of the sender's mass that goes with it."""
    payload: Bytes
    """A copy, which peers may share: it is never changed."""
    told: int = 0
    """The state that the progress header says with the step; 0: it is a message."""


class Sent(NamedTuple):
    """The counts of what scatters have handed over for one peer."""

    left: int
    """Messages that have left this rank."""
    nbytes: int
    """Their bytes."""
    waiting: int = 0
    """Messages that have not left."""
    waiting_nbytes: int = 0
    superseded: int = 0
    """Messages that never leave by themselves."""


def _nothing(new: Unsent) -> None:
    """Undo nothing: a join has changed nothing beside its result."""


class Join(NamedTuple):
    """The rule by which messages that wait for a peer are joined with the next one."""

    function: Callable[[int, Sequence[Unsent], Unsent], Sequence[Unsent]]
    """A function of a peer, of what waits for it, oldest first, and of a new message: what waits from then on, at least
    one message. What waits moves forward, if at all."""
    undo: Callable[[Unsent], object] = _nothing
    """Given a new message: undoes what the function has changed for it, if it was called, as the result is not used."""


supersede = Join(lambda peer, waiting, new: [new])
"""The new message alone: it says all that the older ones said. It is the default of what joins messages."""


class Shortening(NamedTuple):
    """The rule by which a payload is shortened when it leaves."""

    function: Callable[[Bytes], Bytes]
    """A function of the payload. It returns a copy, of `nbytes` bytes."""
    nbytes: int
    encoding: int
    """That of the message then."""

"""A message that waits to leave for another host, and what becomes of it when the next one comes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
    rest: Any = None
    """What a join has not put into the payload. The next message to the peer is joined with it, also where this one has
    left."""


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


Join = Callable[[Sequence[Unsent], Unsent], Sequence[Unsent]]
"""A function of what waits for a peer, oldest first, and of a new message: what waits from then on, at least one
message. What waits moves forward, if at all. It changes nothing else, as its result may not be used."""


def supersede(waiting: Sequence[Unsent], new: Unsent) -> Sequence[Unsent]:
    """The new message alone: it says all that the older ones said. It is the default of what joins messages."""
    return [new]


class Shortening(NamedTuple):
    """The rule by which a payload is shortened when it leaves."""

    function: Callable[[Bytes], Bytes]
    """A function of the payload. It returns a copy, of `nbytes` bytes."""
    nbytes: int
    encoding: int
    """That of the message then."""

"""The edge from this rank to one peer: what the sending end knows of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dstorm import header
from dstorm.header import BLANK, Header, Watched
from dstorm.queues.ring import SendRing
from dstorm.queues.waits.waiting import Awaited
from dstorm.transport import Bytes, Put, Window


class OutgoingMessage(NamedTuple):
    """One message on its way to one peer."""

    peer: int
    body: Bytes
    """The payload, or its first part. C-contiguous, like `tail`; neither may change until `send` returns."""
    tail: Bytes | None
    """The second part of the payload; None: there is none."""
    nbytes: int
    """Length of body and tail in bytes."""
    encoding: int = 0

    def copy_into(self, target: Bytes) -> None:
        """Copy the payload to the start of `target`. Local."""
        np.copyto(target[: self.body.nbytes], self.body)
        if self.tail is not None:
            np.copyto(target[self.body.nbytes : self.nbytes], self.tail)


NO_SLOT = -1
_NONE = OutgoingMessage(-1, np.empty(0, np.uint8), None, 0)


@dataclass(eq=False)
class OutEdge(Awaited):
    """The edge to one peer, and the peer's queue for it. `step`: the peer's step when it last acknowledged."""

    window: Window
    ring: SendRing
    slots: list[int]
    """Offsets of the headers of the slots in the peer's memory."""
    acknowledgement: Watched
    """The peer's acknowledgement, in this rank's memory."""
    headers: list[header.Write]
    """What writes the header of each slot."""
    progress: header.Write
    """What writes the progress header."""
    back: Sequence[Watched] = ()
    """The headers of the peer's messages to this rank that may acknowledge messages, too."""
    message: OutgoingMessage = _NONE
    """The message of the scatter under way."""
    slot: int = NO_SLOT
    """Its slot. NO_SLOT: it was for a former incarnation of the peer, which came back during the wait."""
    is_ahead: bool = False
    """Whether its payload is in its slot already."""
    lasting: OutgoingMessage | None = None
    """The message that was given to `prepare`."""
    put_lasting: list[Put] = field(default_factory=list)
    """Puts of its body into each slot."""
    heard: Header = BLANK
    """The acknowledgement that was noted last."""
    bytes_sent: int = 0

    def say(self, step: int, state: int) -> None:
        """Put to the peer that this rank is at `step`, or with state DONE that it has closed. One-sided."""
        self.progress(self.ring.sent, step, state)

    def put_payload(self) -> None:
        """Start to write the payload of its message into its slot. One-sided."""
        message, offset = self.message, self.slots[self.slot] + header.NBYTES
        if message is self.lasting:
            self.put_lasting[self.slot]()
        elif message.nbytes:
            self.window.put(message.body, self.peer, offset)
            if message.tail is not None:
                self.window.put(message.tail, self.peer, offset + message.body.nbytes)

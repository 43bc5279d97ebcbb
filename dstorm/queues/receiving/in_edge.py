"""The edge from one peer to this rank: what the receiving end knows of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dstorm import header
from dstorm.header import DONE, WRITING, Header, Watched
from dstorm.queues.ring import ReceiveRing
from dstorm.queues.statistics import LagCounter
from dstorm.queues.waits.waiting import Awaited
from dstorm.transport import Bytes


@dataclass(eq=False)
class InEdge(Awaited):
    """The edge from one peer to this rank, and its queue in this rank's memory."""

    ring: ReceiveRing
    slots: list[int]
    """Offsets of the headers of the slots."""
    headers: list[Watched]
    """The headers of the slots."""
    payloads: list[Bytes]
    """Views of the slots behind their headers."""
    cells: list[Watched]
    """The headers of the slots, and the progress header."""
    acknowledge: header.Write
    """What writes the acknowledgement in the peer's memory."""
    acknowledged: int = 0
    """The newest message that was acknowledged."""
    copies: list[Bytes] = field(default_factory=list)
    """Buffers for copied payloads."""
    lag: LagCounter = field(default_factory=LagCounter)

    def say(self, step: int, state: int) -> None:
        """Acknowledge all that was taken, at `step` of this rank; with state DONE it has closed. One-sided."""
        self.acknowledge(self.ring.taken, step, state)
        self.acknowledged = self.ring.taken

    @property
    def reached(self) -> int:
        """The step up to which the peer has scattered, where its last scatter had no message for this rank and all of
        its messages have been taken; else 0."""
        said = self.cells[-1].read()
        return said.step if said is not None and said.number == self.ring.taken else 0

    def is_seen_at(self, step: int, clock: Callable[[], float]) -> bool:
        """Return whether the peer has published `step` or closed, as far as it has come here. After a sync."""
        if self.step >= step or self.done:
            return True
        for slot, cell in enumerate(self.cells):
            seen = cell.read()
            if seen is None or (seen.step <= self.step and seen.state != DONE):
                continue
            if seen.check is None or self._has_come(slot, seen):
                self.note(seen, clock)
                if self.step >= step:
                    return True
        return self.done

    def _has_come(self, slot: int, seen: Header) -> bool:
        """Return whether the payload of a checked message is there, too. One of a wrong length is refused as it is."""
        return not self.ring.is_sound(seen) or header.payload_check(self.payload(slot, seen)) == seen.check

    def note(self, seen: Header | None, clock: Callable[[], float]) -> None:
        """Note what a header says of the peer's step."""
        if seen is None or seen.state == WRITING or seen.number < self.ring.base:
            return
        self.done = self.done or seen.state == DONE
        if seen.step > self.step:
            self.heard_at = clock()
            self.step = seen.step

    def holds_newer(self, number: int) -> bool:
        """Return whether a slot holds the header of a newer message than `number`, which its sender had then flushed.
        """
        return any(one is not None and one.number > number for one in (cell.read() for cell in self.headers))

    def payload(self, slot: int, seen: Header) -> Bytes:
        """A view of the payload in `slot`, whose header is `seen`."""
        payload = self.payloads[slot]
        return payload if seen.nbytes == payload.nbytes else payload[: max(0, seen.nbytes)]

"""Where everything lies in the windows: pure arithmetic that sender and receiver do alike.

A rank's window holds, in this order:

    acknowledgements   one stamp for each out-neighbour, which alone writes it (its newest message taken)
    queues             one for each in-neighbour, which alone writes it:
        progress       one stamp: the sender's step where no message carried it, and whether it has left
        slots          `depth` of them, each a stamp and a payload

Neighbours are in ascending order of rank. Memory is in-degree x depth x slot: it does not grow with the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dstorm import header


@dataclass(frozen=True)
class Layout:
    """The places of one segment. A rank asks for its own and those that it has in its neighbours' windows."""

    into: Callable[[int], Sequence[int]]
    """In-neighbours of a rank, ascending."""
    out: Callable[[int], Sequence[int]]
    """Out-neighbours of a rank, ascending."""
    depth: int
    capacity: int
    """The longest payload in bytes."""

    @property
    def slot_nbytes(self) -> int:
        """A stamp and a payload, rounded up to whole cache lines."""
        return header.NBYTES + -(-self.capacity // header.NBYTES) * header.NBYTES

    @property
    def queue_nbytes(self) -> int:
        """A progress stamp and `depth` slots."""
        return header.NBYTES + self.depth * self.slot_nbytes

    def window_nbytes(self, rank: int) -> int:
        """The size of `rank`'s window."""
        return len(self.out(rank)) * header.NBYTES + len(self.into(rank)) * self.queue_nbytes

    def progress(self, sender: int, receiver: int) -> int:
        """The offset, in the receiver's window, of the sender's progress stamp."""
        place = self.into(receiver).index(sender)
        return len(self.out(receiver)) * header.NBYTES + place * self.queue_nbytes

    def slots(self, sender: int, receiver: int) -> list[int]:
        """The offsets, in the receiver's window, of the stamps of the edge's slots; payloads follow their stamps."""
        first = self.progress(sender, receiver) + header.NBYTES
        return [first + slot * self.slot_nbytes for slot in range(self.depth)]

    def acknowledgement(self, sender: int, receiver: int) -> int:
        """The offset, in the *sender's* window, of what the receiver acknowledges."""
        return self.out(sender).index(receiver) * header.NBYTES

"""The layout of the windows: offsets that sender and receiver compute alike. Pure: no MPI, no clock.

The window of a rank holds, in this order:

    acknowledgements   one header for each out-neighbour, which alone writes it: the newest message that it has taken
    queues             one for each in-neighbour, which alone writes it:
        progress       one header: the sender's step where no message carries it, and whether the sender has closed
        slots          `depth` slots, each a header and a payload
    what lies behind   bytes for the user of the queues

Neighbours are in ascending order of rank. Memory is in-degree x depth x slot: it does not grow with the number of
ranks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from dstorm import header


@dataclass(frozen=True)
class Layout:
    """The layout of the queues of one vector. All sizes and offsets are in bytes. Pure."""

    into: Callable[[int], Sequence[int]]
    """The in-neighbours of a rank, ascending."""
    out: Callable[[int], Sequence[int]]
    """The out-neighbours of a rank, ascending."""
    depth: int
    """Slots of a queue."""
    capacity: int
    """Length of the longest payload in bytes."""
    behind_nbytes: Callable[[int], int] = lambda rank: 0
    """Bytes behind the queues of a rank."""

    @cached_property
    def slot_nbytes(self) -> int:
        """Size of a slot: a header and a payload, rounded up to whole cache lines."""
        return header.NBYTES + -(-self.capacity // header.NBYTES) * header.NBYTES

    @cached_property
    def queue_nbytes(self) -> int:
        """Size of a queue: a progress header and `depth` slots."""
        return header.NBYTES + self.depth * self.slot_nbytes

    def behind(self, rank: int) -> int:
        """Offset of the bytes behind the queues of `rank`."""
        return len(self.out(rank)) * header.NBYTES + len(self.into(rank)) * self.queue_nbytes

    def window_nbytes(self, rank: int) -> int:
        """Size of the window of `rank`."""
        return self.behind(rank) + self.behind_nbytes(rank)

    def progress(self, sender: int, receiver: int) -> int:
        """Offset of the sender's progress header in the receiver's window."""
        place = bisect_left(self.into(receiver), sender)
        return len(self.out(receiver)) * header.NBYTES + place * self.queue_nbytes

    def slots(self, sender: int, receiver: int) -> list[int]:
        """Offsets of the headers of the edge's slots in the receiver's window. Each payload follows its header."""
        first = self.progress(sender, receiver) + header.NBYTES
        return [first + slot * self.slot_nbytes for slot in range(self.depth)]

    def acknowledgement(self, sender: int, receiver: int) -> int:
        """Offset of the receiver's acknowledgement in the *sender's* window."""
        return bisect_left(self.out(sender), receiver) * header.NBYTES

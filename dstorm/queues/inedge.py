"""The edge from one peer to this rank: what the receiving end knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from dstorm import header
from dstorm.header import Watched
from dstorm.queues.ring import ReceiveRing
from dstorm.queues.statistics import LagCounter
from dstorm.queues.waiting import Awaited
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

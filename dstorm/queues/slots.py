"""Slots for blocks of an array: each rank has one for each block, to which one peer at a time writes.

A block has one holder, who alone passes it on. So no message overwrites another one, there is no ring, and a receiver
reads a slot only between two passes. A pass has two stages: the payload, and the header that announces it. The first is
complete at the receiver before the second begins.

A slot has several headers, the lanes. Bytes of a header that do not change it may arrive after the receiver has found
it whole. If another rank had written to the same header meanwhile, they would damage that. So each lane has one writer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from dstorm import header
from dstorm.header import DONE, WHOLE, Header
from dstorm.queues.closable import Closable
from dstorm.queues.statistics import EdgeStatistics, Statistics, located, total
from dstorm.queues.waits.waiting import Awaited, Waiting
from dstorm.transport import Bytes, Transport


@dataclass(eq=False)
class Edge(Awaited):
    """The traffic with one peer. `step`: the number of blocks that came from it."""

    sent: int = 0
    bytes_sent: int = 0


class Slots(Closable):
    """The slots of one rank, and access to those of its peers. The constructor is Collective.

    `nbytes`: the size of each block. All ranks pass the same sizes and deadline.
    """

    def __init__(self, transport: Transport, nbytes: Sequence[int], lanes: int, deadline_s: float) -> None:
        super().__init__()
        others = [peer for peer in range(transport.size) if peer != transport.rank]
        transport.connect(others)
        self._ends = len(nbytes) * lanes * header.NBYTES
        """The offset of one more header for each rank: whether it has closed."""
        heads = self._ends + transport.size * header.NBYTES
        sizes = [-(-size // header.NBYTES) * header.NBYTES for size in nbytes]
        *self._starts, whole = accumulate(sizes, initial=heads)
        self._lanes = lanes
        self._transport = transport
        self._window = self._opened(transport, whole if transport.size > 1 else heads)
        self._memory: memoryview = self._window.memory.data
        self._cell = np.zeros(header.NBYTES, np.uint8)
        self._waiting = Waiting(transport, deadline_s, self.notice)
        self._edges = {peer: Edge(peer, heard_at=transport.clock()) for peer in others}

    def put(self, peer: int, block: int, lane: int, number: int, payload: Bytes) -> None:
        """Write `payload`, the rows of a block, into the peer's slot. One-sided. It may change on return.

        `number`: the version of the block.
        """
        window = self._window
        window.put(payload, peer, self._starts[block])
        window.flush([peer])
        header.write(self._cell.data, 0, number, 0, WHOLE, nbytes=payload.nbytes)
        window.put(self._cell, peer, self._head(block, lane))
        window.flush([peer])
        edge = self._edges[peer]
        edge.sent += 1
        edge.bytes_sent += payload.nbytes
        self._transport.count_step()

    def _head(self, block: int, lane: int) -> int:
        """The offset of a header. All headers stand before the slots, as a rank reads many of them while it waits."""
        return (block * self._lanes + lane) * header.NBYTES

    def sync(self) -> None:
        """Order this rank's loads of its slots with the Puts of its peers. Local."""
        self._window.sync()

    def seen(self, block: int, lane: int) -> Header | None:
        """The header of this slot and lane; None where it is torn. Local."""
        return header.read(self._memory, self._head(block, lane))

    def take(self, block: int, giver: int, destination: Bytes) -> None:
        """Copy the block that `giver` has passed on, and whose header is WHOLE, into `destination`. Local."""
        self.sync()  # the header was read before the block
        self._window.copy(self._starts[block], destination)
        edge = self._edges[giver]
        edge.step += 1
        edge.heard_at = self._transport.clock()

    def wait(self, what: str, givers: Callable[[], set[int]]) -> None:
        """Wait until givers(), the ranks that are waited for, is empty, or none of them is alive. One-sided.

        `what`: the call that waits, for errors. DeadlinePassed: one of them has given no heartbeat for the deadline.
        """
        self._waiting.until_none(what, lambda: [self._edges[peer] for peer in sorted(givers())])

    def statistics(self) -> Statistics:
        """The totals so far, and by peer with which there was traffic. A message is a pass. Local."""
        peers = {
            edge.peer: EdgeStatistics(
                sent=edge.sent, gathered=edge.step, bytes_sent=edge.bytes_sent, waited_s=edge.waited_s
            )
            for edge in self._edges.values()
            if edge.sent or edge.step or edge.waited_s
        }
        return total(located(peers, self._transport.hosts, self._transport.rank), self._waiting.total_s)

    def has_closed(self, peer: int) -> bool:
        """Return whether `peer` has closed, as far as this rank knows. What it passed on before has come then. Local.
        """
        self.sync()
        seen = header.read(self._memory, self._ends + peer * header.NBYTES)
        return seen is not None and seen.state == DONE

    def _leave(self) -> None:
        header.write(self._cell.data, 0, 0, 0, DONE)
        for peer in self._edges:
            self._window.put(self._cell, peer, self._ends + self._transport.rank * header.NBYTES)
        if self._edges:
            self._window.flush(list(self._edges))
        self._transport.closed()

    def free(self) -> None:
        """Free the memory. Collective."""
        self._memory = memoryview(b"")
        self._window.free()

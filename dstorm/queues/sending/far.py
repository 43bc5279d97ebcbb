"""Messages that cross to other hosts while their scatter waits, in as few round trips as the window allows.

Receivers acknowledge (bsp, notify-ack), so nobody reads the slot of the next message, and it needs no mark. A short
message is compact (dstorm/header.py): one Put and one flush. A longer one takes a flush more, between its payload and
its header, as MPI promises no order of Puts. Where the window keeps order, all Puts of a message share one flush.

A message starts when all that was put to its peer before is complete. Else a receiver might see its step first, take it
that the peer has no message for an earlier step, and go on without it. The payload of a long message may start before:
its flush comes before its header. Under bsp the last flush of a scatter is left to the next one
(dstorm/queues/unflushed.py). Not under notify-ack: two ranks that look for the other's message would both find none,
and both wait in their next scatter until the other one takes it.

Ranks begin with the rank after their own. Else all would send to the lowest rank first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

import numpy as np

from dstorm import header
from dstorm.header import COMPACT_NBYTES, WHOLE, Header
from dstorm.queues.consistency import Consistency
from dstorm.queues.sending.edge import OutEdge, OutgoingMessage
from dstorm.queues.sending.unsent import Join
from dstorm.queues.unflushed import Unflushed
from dstorm.transport import Window

Write = Callable[[OutgoingMessage, Header], None]
"""A function that puts a message with its header. One-sided."""


def compact_writer(window: Window, peer: int, offset: int, capacity: int) -> Write:
    """Return a function that starts to write compact messages into one slot of `peer`, as copies. Local."""
    cell = np.zeros(header.NBYTES + min(capacity, COMPACT_NBYTES), np.uint8)
    buffer, payload = cell.data, cell[header.NBYTES :]
    prepared = lru_cache(maxsize=4)(lambda nbytes: window.prepared(cell[: header.NBYTES + nbytes], peer, offset))

    def write(message: OutgoingMessage, fields: Header) -> None:
        """Start to write a message with a header of these fields. One-sided."""
        message.copy_into(payload)
        header.write_compact(buffer, fields)
        prepared(message.nbytes)()

    return write


class FarEdges:
    """The edges from this rank to ranks of other hosts, which acknowledge. Its constructor is Local.

    `unflushed`: what is left to the next flush.
    """

    def __init__(
        self, window: Window, edges: Collection[OutEdge], capacity: int, consistency: Consistency, unflushed: Unflushed
    ) -> None:  # fmt: skip
        self.edges = {edge.peer: edge for edge in edges}
        self._window, self._unflushed = window, unflushed
        self._lockstep = consistency.lockstep
        self._compact: dict[tuple[int, int], Write] = {}
        if not window.keeps_order:
            places = [(edge.peer, slot, at) for edge in edges for slot, at in enumerate(edge.slots)]
            self._compact = {(peer, slot): compact_writer(window, peer, at, capacity) for peer, slot, at in places}

    def send_ahead(self, edges: Sequence[OutEdge]) -> None:
        """Write payloads into slots that are free, while a scatter must not publish them yet. One-sided.

        What is owed leaves first: the peers may wait for that before they acknowledge.
        """
        self._unflushed.leave()
        long = [edge for edge in edges if edge.peer in self.edges and not self._is_compact(edge)]
        for edge in long:
            edge.put_payload()
            edge.is_ahead = True
        if self._window.keeps_order:
            self._window.flush_local([edge.peer for edge in long])
        elif long:
            self._unflushed.complete(edge.peer for edge in long)

    def send(self, edges: Sequence[OutEdge], step: int, weight: float, share: float, join: Join) -> int:
        """Send the messages of `edges`, and the step to all others; return the bytes that are sent. One-sided.

        `join` is not used: none of them waits for another one.
        """
        if self._unflushed.has_messages and not (edges and all(map(self._may_overlap, edges))):
            self._unflushed.complete()
        for edge in edges:
            number, (_, _, _, nbytes, encoding) = edge.ring.sent + 1, edge.message
            if self._is_compact(edge):
                taken = self._unflushed.take_owed(edge.peer)
                fields = Header(number, step, WHOLE, encoding, nbytes, weight, share, None, taken)
                self._compact[edge.peer, edge.slot](edge.message, fields)
            elif not edge.is_ahead:
                edge.put_payload()
        long = [edge for edge in edges if not self._is_compact(edge)]
        if not self._window.keeps_order and (late := [edge.peer for edge in long if not edge.is_ahead]):
            self._unflushed.complete(late)
        for edge in long:
            _, _, _, nbytes, encoding = edge.message
            edge.headers[edge.slot](edge.ring.sent + 1, step, WHOLE, encoding, nbytes, weight, share)
        for edge in edges:
            edge.ring.sent += 1
            edge.bytes_sent += edge.message.nbytes
        for edge in self.edges.values() if len(edges) < len(self.edges) else ():
            if edge not in edges:
                edge.say(step, WHOLE)
        (self._unflushed.leave if self._lockstep else self._unflushed.complete)(self.edges)
        return sum(edge.message.nbytes for edge in edges)

    def _may_overlap(self, edge: OutEdge) -> bool:
        """Return whether the payload of an edge's message may be put while the message before is not complete.

        Its flush comes before its header. Until then nobody sees it, but it must have a slot of its own.
        """
        return edge.ring.depth > 1 and not self._is_compact(edge) and not edge.is_ahead

    def _is_compact(self, edge: OutEdge) -> bool:
        return bool(self._compact) and edge.message.nbytes <= COMPACT_NBYTES

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

from collections.abc import Collection, Sequence

import numpy as np

from dstorm import header
from dstorm.header import COMPACT_NBYTES, WHOLE, Header
from dstorm.queues.consistency import Consistency
from dstorm.queues.sending.edge import OutEdge, OutgoingMessage
from dstorm.queues.sending.unsent import Join
from dstorm.queues.unflushed import Unflushed
from dstorm.transport import Put, Window


class CompactWriter:
    """Writes compact messages into one slot of a peer. Its constructor is Local."""

    __slots__ = ("_buffer", "_cell", "_nbytes", "_offset", "_peer", "_put", "_window")

    def __init__(self, window: Window, peer: int, offset: int, capacity: int) -> None:
        buffer = np.zeros(header.NBYTES + min(capacity, COMPACT_NBYTES), np.uint8)
        self._buffer = buffer.data
        self._window, self._peer, self._offset, self._cell = window, peer, offset, buffer
        self._nbytes, self._put = 0, self._prepared(0)
        """The length of the payloads that the Put is prepared for."""

    def _prepared(self, nbytes: int) -> Put:
        return self._window.prepared(self._cell[: header.NBYTES + nbytes], self._peer, self._offset)

    def write(self, message: OutgoingMessage, number: int, step: int, weight: float, share: float, taken: int) -> None:
        """Start to write a message, as a copy. It acknowledges `taken`, a message of the peer, too. One-sided."""
        buffer, nbytes, first = self._buffer, message.nbytes, header.NBYTES + message.body.nbytes
        if message.body.nbytes:
            buffer[header.NBYTES : first] = message.body.reshape(-1).data
        if message.tail is not None and message.tail.nbytes:
            buffer[first : header.NBYTES + nbytes] = message.tail.reshape(-1).data
        header.write_compact(buffer, Header(number, step, WHOLE, message.encoding, nbytes, weight, share, None, taken))
        if nbytes != self._nbytes:
            self._put, self._nbytes = self._prepared(nbytes), nbytes
        self._put()


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
        places = [(edge.peer, slot, offset) for edge in edges for slot, offset in enumerate(edge.slots)]
        self._compact: dict[tuple[int, int], CompactWriter] = {}
        if not window.keeps_order:
            self._compact = {(peer, slot): CompactWriter(window, peer, at, capacity) for peer, slot, at in places}
        self._ahead: set[int] = set()
        """The peers in whose slots the payload is complete already."""

    def nbytes(self, whole: int) -> int:
        """The bytes that leave of a payload of `whole` bytes. Local."""
        return whole

    def forget(self) -> None:
        """End a scatter that has failed in its wait: what it has written ahead does not count. Local."""
        self._ahead = set()

    def send_ahead(self, edges: Sequence[OutEdge]) -> None:
        """Write payloads into slots that are free, while a scatter must not publish them yet. One-sided."""
        long = [edge for edge in edges if edge.peer in self.edges and not self._is_compact(edge)]
        for edge in long:
            edge.put_payload()
        self._ahead = {edge.peer for edge in long}
        if self._window.keeps_order:
            self._window.flush_local(sorted(self._ahead))
        elif long:
            self._unflushed.complete(self._ahead)

    def post(self, edges: Sequence[OutEdge], step: int, weight: float, share: float, join: Join) -> None:
        """Start to write the messages of `edges`: their Puts up to the first flush. One-sided. TransferFailed.

        `join` is not used: none of them waits for another one.
        """
        self._unflushed.check()
        if self._unflushed.has_messages and not (edges and all(map(self._may_overlap, edges))):
            self._unflushed.complete()
        for edge in edges:
            if self._is_compact(edge):
                writer, taken = self._compact[edge.peer, edge.slot], self._unflushed.take_owed(edge.peer)
                writer.write(edge.message, edge.ring.sent + 1, step, weight, share, taken)
                continue
            if edge.peer not in self._ahead:
                edge.put_payload()

    def publish(self, edges: Sequence[OutEdge], step: int, weight: float, share: float) -> None:
        """Publish the messages of `edges`, and the step to all others. One-sided."""
        long = [edge for edge in edges if not self._is_compact(edge)]
        if not self._window.keeps_order and (late := [edge.peer for edge in long if edge.peer not in self._ahead]):
            self._unflushed.complete(late)
        self._ahead = set()
        for edge in long:
            one = edge.message
            edge.headers[edge.slot](edge.ring.sent + 1, step, WHOLE, one.encoding, one.nbytes, weight, share)
        for edge in edges:
            edge.ring.sent += 1
            edge.bytes_sent += edge.message.nbytes
        if len(edges) < len(self.edges):
            for edge in self.edges.values():
                if edge not in edges:
                    edge.progress(edge.ring.sent, step, WHOLE)
        if self._lockstep:
            self._unflushed.leave(self.edges)
        else:
            self._unflushed.complete(self.edges)

    def _may_overlap(self, edge: OutEdge) -> bool:
        """Return whether the payload of an edge's message may be put while the message before is not complete.

        Its flush comes before its header. Until then nobody sees it, but it must have a slot of its own.
        """
        return edge.ring.depth > 1 and not self._is_compact(edge) and edge.peer not in self._ahead

    def _is_compact(self, edge: OutEdge) -> bool:
        return bool(self._compact) and edge.message.nbytes <= COMPACT_NBYTES

"""The sending end of a segment: the way into the queue of each out-neighbour.

One scatter costs three flushes, shared by all its peers: mark, payload, publish.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from dstorm import header
from dstorm.header import DONE, WHOLE, WRITING, Header
from dstorm.queues.consistency import Consistency
from dstorm.queues.layout import Layout
from dstorm.queues.ring import SendRing
from dstorm.queues.waiting import Waiting
from dstorm.transport import Bytes, Put, Transport, Window

_STATE = 2 * 8
"""Where the low byte of a stamp's state lies in it."""


class OutgoingMessage(NamedTuple):
    """One message on its way to one peer."""

    peer: int
    body: Bytes
    """C-contiguous, as the tail is; neither may change until `send` returns."""
    tail: Bytes | None
    """What follows the body in the payload."""
    nbytes: int
    """Of both."""
    encoding: int = 0


_NONE = OutgoingMessage(-1, np.empty(0, np.uint8), None, 0)


@dataclass(eq=False)
class OutEdge:
    """This rank's way into one peer's queue."""

    peer: int
    ring: SendRing
    slots: list[int]
    acknowledgement: int
    """Offset in this rank's memory."""
    state_at: int
    """Where the low byte of its state lies."""
    cell: memoryview
    """Staging for a stamp on its way to this peer."""
    put_header: list[Put]
    """Of the cell, into each slot."""
    put_progress: Put
    message: OutgoingMessage = _NONE
    """What goes with the scatter under way."""
    slot: int = 0
    """Where it goes."""
    lasting: OutgoingMessage | None = None
    """What goes with most of them, and is prepared."""
    put_lasting: list[Put] = field(default_factory=list)
    step: int = 0
    """The peer's step when it last acknowledged."""
    done: bool = False
    bytes_sent: int = 0
    heard_at: float = 0.0
    waited_s: float = 0.0


class Outbox:
    """Sends along the out-edges of one rank. All is *One-sided* but where it says otherwise."""

    def __init__(
        self, transport: Transport, window: Window, layout: Layout, consistency: Consistency, waiting: Waiting
    ) -> None:  # fmt: skip
        self._transport, self._window, self._waiting = transport, window, waiting
        self._memory: memoryview = window.memory.data
        self._acknowledged = consistency.acknowledges
        self._in_flight = consistency.unacknowledged(layout.depth)
        rank = transport.rank
        self.edges = {peer: self._edge(layout, rank, peer) for peer in layout.out(rank)}
        self._flush_all = window.prepared_flush(layout.out(rank))

    def _edge(self, layout: Layout, rank: int, peer: int) -> OutEdge:
        cell = np.zeros(header.NBYTES, np.uint8)
        slots = layout.slots(rank, peer)
        return OutEdge(
            peer,
            SendRing(layout.depth),
            slots,
            layout.acknowledgement(rank, peer),
            layout.acknowledgement(rank, peer) + _STATE,
            cell.data,
            [self._window.prepared(cell, peer, slot) for slot in slots],
            self._window.prepared(cell, peer, layout.progress(rank, peer)),
            heard_at=self._transport.clock(),
        )

    def prepare(self, message: OutgoingMessage) -> None:
        """From here on this very parcel, of a body alone, is sent in less time. Local."""
        edge = self.edges[message.peer]
        edge.lasting = message
        edge.put_lasting = [self._window.prepared(message.body, edge.peer, slot + header.NBYTES) for slot in edge.slots]

    def send(self, messages: Iterable[OutgoingMessage], step: int, weight: float, mass: float) -> tuple[int, float]:
        """As `Segment.send_each`."""
        edges = self._ready(messages)
        flush = self._flush_all if len(edges) == len(self.edges) else partial(self._flush, edges)
        nbytes, share = 0, mass / (len(edges) + 1)
        for edge in edges:
            number = edge.ring.sent + 1
            edge.slot = edge.ring.next_slot
            header.write(edge.cell, 0, (number, step, WRITING, 0, 0, 1.0, 0.0))
            edge.put_header[edge.slot]()
            nbytes += edge.message.nbytes
        flush()
        if nbytes:
            for edge in edges:
                self._put_payload(edge)
            flush()
        for edge in edges:
            _, _, _, payload_nbytes, encoding = edge.message
            edge.ring.sent += 1
            edge.bytes_sent += payload_nbytes
            header.write(edge.cell, 0, (edge.ring.sent, step, WHOLE, encoding, payload_nbytes, weight, share))
            edge.put_header[edge.slot]()
        if len(edges) < len(self.edges):
            self._put_step(step, without=edges)
            flush = self._flush_all
        flush()
        self._transport.count_step()
        return nbytes, share

    def _put_step(self, step: int, without: Sequence[OutEdge]) -> None:
        """The step alone, to those who get no message."""
        for edge in self.edges.values():
            if edge not in without:
                header.write(edge.cell, 0, (edge.ring.sent, step, WHOLE, 0, 0, 1.0, 0.0))
                edge.put_progress()

    def leave(self, step: int) -> None:
        """Tell all out-neighbours that this rank has left, at `step`; `flush` is the caller's."""
        for edge in self.edges.values():
            header.write(edge.cell, 0, Header(edge.ring.sent, step, DONE))
            edge.put_progress()

    def _ready(self, messages: Iterable[OutgoingMessage]) -> list[OutEdge]:
        """The edges that a scatter goes along, each with its parcel, once they may be sent to."""
        edges = []
        for message in messages:
            edge = self.edges[message.peer]
            if not (edge.done or (self._memory[edge.state_at] == DONE and self._has_left(edge))):
                edge.message = message
                edges.append(edge)
        if self._acknowledged:
            missing = lambda: [edge for edge in edges if not self._may_send(edge)]  # noqa: E731
            if self._waiting.until_none("scatter", missing):
                self._waiting.check_alive(edges)
            edges = [edge for edge in edges if not edge.done]
        return edges

    def _put_payload(self, edge: OutEdge) -> None:
        message = edge.message
        if message is edge.lasting:
            edge.put_lasting[edge.slot]()
        elif message.nbytes:
            offset = edge.slots[edge.slot] + header.NBYTES
            self._window.put(message.body, edge.peer, offset)
            if message.tail is not None:
                self._window.put(message.tail, edge.peer, offset + message.body.nbytes)

    def _flush(self, edges: Sequence[OutEdge]) -> None:
        if edges:
            self._window.flush([edge.peer for edge in edges])

    def _has_left(self, edge: OutEdge) -> bool:
        """Whether the peer, as it seems, has closed its end."""
        self._note_acknowledgement(edge)
        return edge.done

    def _may_send(self, edge: OutEdge) -> bool:
        if not edge.ring.may_send(self._in_flight):
            self._window.sync()
            self._note_acknowledgement(edge)
        return edge.done or edge.ring.may_send(self._in_flight)

    def _note_acknowledgement(self, edge: OutEdge) -> None:
        seen = header.read(self._memory, edge.acknowledgement)
        if seen is None:
            return
        edge.ring.acknowledged(seen.number)
        edge.done = edge.done or seen.state == DONE
        if seen.step > edge.step or edge.done:
            edge.step = seen.step
            edge.heard_at = self._transport.clock()

"""The sending end: it writes into the queue of each out-neighbour.

One scatter takes three flushes, which all its peers share: mark, payload, publish.
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
"""Offset of the low byte of the state in a header."""


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


_NONE = OutgoingMessage(-1, np.empty(0, np.uint8), None, 0)


@dataclass(eq=False)
class OutEdge:
    """The edge from this rank to one peer, and the peer's queue for it."""

    peer: int
    ring: SendRing
    slots: list[int]
    """Offsets of the headers of the slots in the peer's memory."""
    acknowledgement: int
    """Offset of the peer's acknowledgement in this rank's memory."""
    state_at: int
    """Offset of the low byte of the acknowledgement's state."""
    cell: memoryview
    """Buffer of the header that is sent to this peer."""
    put_header: list[Put]
    """Puts of the cell into each slot."""
    put_progress: Put
    """The Put of the cell into the progress header."""
    message: OutgoingMessage = _NONE
    """The message of the scatter under way."""
    slot: int = 0
    """The slot of that message."""
    lasting: OutgoingMessage | None = None
    """The message that was given to `prepare`."""
    put_lasting: list[Put] = field(default_factory=list)
    """Puts of its body into each slot."""
    step: int = 0
    """The peer's step when it last acknowledged."""
    done: bool = False
    """Whether the peer has closed its end."""
    bytes_sent: int = 0
    heard_at: float = 0.0
    """When the peer reached `step`, by this rank's clock."""
    waited_s: float = 0.0
    """Seconds spent waiting for the peer."""


class Outbox:
    """The out-edges of one rank. All methods are One-sided where they do not say otherwise."""

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
        """As `Queues.prepare`. Local."""
        edge = self.edges[message.peer]
        edge.lasting = message
        edge.put_lasting = [self._window.prepared(message.body, edge.peer, slot + header.NBYTES) for slot in edge.slots]

    def send(self, messages: Iterable[OutgoingMessage], step: int, weight: float, mass: float) -> tuple[int, float]:
        """As `Queues.send_each`."""
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
        """Send the step alone to the peers that get no message."""
        for edge in self.edges.values():
            if edge not in without:
                header.write(edge.cell, 0, (edge.ring.sent, step, WHOLE, 0, 0, 1.0, 0.0))
                edge.put_progress()

    def leave(self, step: int) -> None:
        """Put to all out-neighbours that this rank has closed, at `step`. The caller flushes."""
        for edge in self.edges.values():
            header.write(edge.cell, 0, Header(edge.ring.sent, step, DONE))
            edge.put_progress()

    def _ready(self, messages: Iterable[OutgoingMessage]) -> list[OutEdge]:
        """The edges of a scatter, each with its message, once the consistency allows them to send."""
        edges = []
        for message in messages:
            edge = self.edges[message.peer]
            if not (edge.done or (self._memory[edge.state_at] == DONE and self._has_closed(edge))):
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

    def _has_closed(self, edge: OutEdge) -> bool:
        """Whether the peer has closed its end, as far as this rank knows."""
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

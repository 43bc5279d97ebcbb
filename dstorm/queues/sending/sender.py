"""The sending end: it writes into the queue of each out-neighbour.

A message to a rank of this host is there when the scatter returns (dstorm/queues/sending/near.py). To another host it
goes in fewer flushes: where receivers acknowledge, while the scatter waits (dstorm/queues/sending/far.py), else by way
of the outgoing buffer (dstorm/queues/sending/outgoing.py). Where no thread may carry that, all edges are near.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dstorm import header
from dstorm.errors import PeerLost
from dstorm.header import DONE, Header, Watched
from dstorm.queues.consistency import Consistency
from dstorm.queues.layout import Layout
from dstorm.queues.neighbours import of_other_hosts
from dstorm.queues.ring import SendRing
from dstorm.queues.sending.edge import NO_SLOT, OutEdge, OutgoingMessage
from dstorm.queues.sending.near import NearEdges
from dstorm.queues.sending.unsent import Join, Sent
from dstorm.queues.unflushed import Unflushed
from dstorm.queues.waits.waiting import Waiting
from dstorm.transport import Transport, Window

if TYPE_CHECKING:
    from dstorm.queues.sending.far import FarEdges
    from dstorm.queues.sending.outgoing import Outgoing


class Outbox:
    """The out-edges of one rank. All methods are One-sided where they do not say otherwise."""

    def __init__(
        self, transport: Transport, window: Window, layout: Layout, consistency: Consistency, waiting: Waiting,
        unflushed: Unflushed,
    ) -> None:  # fmt: skip
        self._transport, self._window, self._waiting = transport, window, waiting
        acknowledged = consistency.acknowledges
        self._in_flight = consistency.unacknowledged(layout.depth) if acknowledged else sys.maxsize
        rank = transport.rank
        self.edges = {peer: self._edge(layout, rank, peer) for peer in layout.out(rank)}
        # From the next rank on: else all would send to the lowest one first.
        peers, size = of_other_hosts(transport.hosts, rank, self.edges), transport.size
        far = [self.edges[peer] for peer in sorted(peers, key=lambda peer: (peer - rank) % size)]
        self._carrier = transport.carrier if far else None
        self.outgoing: Outgoing | None = None
        """The outgoing buffer; None where there is none."""
        self.crossing: FarEdges | None = None
        """The edges to other hosts whose messages cross while a scatter waits; None where there are none."""
        if far and acknowledged:
            from dstorm.queues.sending.far import FarEdges

            self.crossing = FarEdges(window, far, layout.capacity, consistency, unflushed)
        elif self._carrier is not None:
            from dstorm.queues.sending.outgoing import Outgoing

            self.outgoing = Outgoing(window, {edge.peer: edge for edge in far}, self._carrier, waiting)
        crosses = far if self.crossing is not None or self.outgoing is not None else ()
        self.near = NearEdges(window, [edge for edge in self.edges.values() if edge not in crosses], not acknowledged)
        # What waits for a flush comes after what is a copy.
        self._ends = [end for end in (self.outgoing, self.near, self.crossing) if end is not None and end.edges]

    def _edge(self, layout: Layout, rank: int, peer: int) -> OutEdge:
        slots = layout.slots(rank, peer)
        return OutEdge(
            peer,
            self._window,
            SendRing(layout.depth),
            slots,
            Watched(self._window.memory.data, layout.acknowledgement(rank, peer)),
            [header.writer(self._window.prepared, peer, slot) for slot in slots],
            header.writer(self._window.prepared, peer, layout.progress(rank, peer)),
            heard_at=self._transport.clock(),
            member=self._transport.view.member(peer),
        )

    def buffer_of(self, peer: int) -> Outgoing | None:
        """Return the buffer in which messages to `peer` wait, or None."""
        return self.outgoing if self.outgoing is not None and peer in self.outgoing.edges else None

    def renew(self, peer: int, base: int) -> None:
        """Begin the edge to `peer` anew, after message number `base`; drop what waits for it. Local."""
        if (edge := self.edges.get(peer)) is None:
            return
        buffer = self.buffer_of(peer)
        with contextlib.nullcontext() if buffer is None else buffer.dropping(peer):
            edge.ring.begin(base)
            edge.renew(self._transport.clock(), self._transport.view.member(peer))
            edge.bytes_sent, edge.slot = 0, NO_SLOT

    def prepare(self, message: OutgoingMessage) -> None:
        """Prepare the Puts of a message that is the same in each scatter. Local."""
        edge = self.edges[message.peer]
        edge.lasting = message
        edge.put_lasting = [self._window.prepared(message.body, edge.peer, slot + header.NBYTES) for slot in edge.slots]

    def send(
        self, messages: Iterable[OutgoingMessage], step: int, weight: float, mass: float, what: str, join: Join
    ) -> tuple[int, float]:  # fmt: skip
        """Publish a step to all out-neighbours, and send `messages` to some (`Queues.send_each`)."""
        if self._carrier is not None:
            self._carrier.check()
        edges = self._ready(messages, what)
        share, nbytes = mass / (len(edges) + 1), 0
        for end in self._ends:
            some = edges if len(self._ends) == 1 else [edge for edge in edges if edge.peer in end.edges]
            nbytes += end.send(some, step, weight, share, join)
        self._transport.count_step()
        return nbytes, share

    def _ready(self, messages: Iterable[OutgoingMessage], what: str) -> list[OutEdge]:
        """The edges of a scatter, each with its message, once the consistency allows them to send."""
        edges, is_behind = [], False
        for message in messages:
            edge = self.edges[message.peer]
            if (seen := edge.acknowledgement.read()) is not edge.heard:
                self._hear(edge, seen)
            if not edge.done:
                ring = edge.ring
                edge.message, edge.slot, edge.is_ahead = message, ring.sent % ring.depth, False
                is_behind = is_behind or ring.sent >= ring.taken + self._in_flight
                edges.append(edge)
        return self._once_acknowledged(edges, what) if is_behind else edges

    def _once_acknowledged(self, edges: list[OutEdge], what: str) -> list[OutEdge]:
        """`edges`, but those whose peers have closed, once the peers have acknowledged enough. DeadlinePassed."""

        def missing() -> list[OutEdge]:
            """The edges whose peers must acknowledge more before this rank may send. Local."""
            return [edge for edge in edges if not self._may_send(edge)]

        if self.crossing is not None and (late := missing()):
            self.crossing.send_ahead([edge for edge in late if edge.ring.may_send(edge.ring.depth)])
        if self._waiting.until_none(what, missing):
            self._waiting.check_alive(edges)
            self._check_slots(edges)
        return [edge for edge in edges if not edge.done]

    def _check_slots(self, edges: Iterable[OutEdge]) -> None:
        """PeerLost: the slot that a message had got is one of a former incarnation of its receiver."""
        for edge in edges:
            is_meant = self._transport.view.means(edge)
            if edge.slot == NO_SLOT or not is_meant:
                raise PeerLost(edge.peer, "it failed while this rank waited for it, and has come back")

    def _may_send(self, edge: OutEdge) -> bool:
        if not edge.ring.may_send(self._in_flight):
            self._window.sync()
            self.note_acknowledgement(edge)
        return edge.done or edge.ring.may_send(self._in_flight)

    def note_acknowledgement(self, edge: OutEdge) -> None:
        """Note what the peer has acknowledged by now. Local."""
        for cell in edge.back:
            if (seen := cell.read()) is not None:
                edge.ring.acknowledged(seen.taken)
        self._hear(edge, edge.acknowledgement.read())

    def _hear(self, edge: OutEdge, seen: Header | None) -> None:
        """Note the acknowledgement `seen`; nothing where it is torn, or of a former incarnation. Local."""
        if seen is None or seen is edge.heard or seen.number < edge.ring.base:
            return
        edge.done = edge.done or seen.state == DONE
        edge.ring.acknowledged(seen.number)
        if seen.step > edge.step or edge.done:
            edge.heard_at = self._transport.clock()
            edge.step = seen.step
        edge.heard = seen  # last: what is not noted is looked at again

    def sent(self, peer: int) -> Sent:
        """Return what was sent to a peer. Local."""
        if (buffer := self.buffer_of(peer)) is not None:
            return buffer.sent(peer)
        edge = self.edges[peer]
        return Sent(edge.ring.count, edge.bytes_sent)

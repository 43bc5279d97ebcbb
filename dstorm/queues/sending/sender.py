"""The sending end: it writes into the queue of each out-neighbour.

One scatter takes three flushes, which all its peers share: mark, payload, publish. Where receivers acknowledge, nobody
reads the slot that is written, so it needs no mark. Messages to other hosts go into the outgoing buffer, where there is
one (dstorm/queues/sending/outgoing.py), or cross in fewer flushes while the scatter waits
(dstorm/queues/sending/far.py).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from dstorm import header
from dstorm.errors import PeerLost, TransferFailed
from dstorm.header import DONE, WHOLE, WRITING, Header, Watched
from dstorm.queues.consistency import Consistency
from dstorm.queues.layout import Layout
from dstorm.queues.ring import SendRing
from dstorm.queues.sending.edge import NO_SLOT, OutEdge, OutgoingMessage
from dstorm.queues.sending.far import FarEdges
from dstorm.queues.sending.outgoing import Outgoing
from dstorm.queues.sending.unsent import Join
from dstorm.queues.unflushed import Unflushed
from dstorm.queues.waiting import Waiting
from dstorm.transport import Transport, Window


class Outbox:
    """The out-edges of one rank. All methods are One-sided where they do not say otherwise."""

    def __init__(
        self, transport: Transport, window: Window, layout: Layout, consistency: Consistency, waiting: Waiting,
        unflushed: Unflushed,
    ) -> None:  # fmt: skip
        self._transport, self._window, self._waiting = transport, window, waiting
        self._consistency, self._acknowledged = consistency, consistency.acknowledges
        self._in_flight = consistency.unacknowledged(layout.depth) if consistency.acknowledges else sys.maxsize
        rank = transport.rank
        self.edges = {peer: self._edge(layout, rank, peer) for peer in layout.out(rank)}
        self.outgoing = self._buffer()
        self._at_once = {peer: edge for peer, edge in self.edges.items() if not edge.is_far}
        """The edges that are written while a scatter waits."""
        self.far = self._make_far(layout.capacity, unflushed)
        """Those to other hosts among them that need fewer stages."""
        self._near = {peer: edge for peer, edge in self._at_once.items() if peer not in self.far.edges}
        """Those that are written in stages which all of them share."""
        self._flush_all = window.prepared_flush(list(self._near))

    def _edge(self, layout: Layout, rank: int, peer: int) -> OutEdge:
        slots = layout.slots(rank, peer)
        return OutEdge(
            peer,
            SendRing(layout.depth),
            slots,
            Watched(self._window.memory.data, layout.acknowledgement(rank, peer)),
            [self._header(peer, slot) for slot in slots],
            self._header(peer, layout.progress(rank, peer)),
            heard_at=self._transport.clock(),
            incarnation=self._transport.view.incarnation(peer),
        )

    def _buffer(self) -> Outgoing | None:
        """The outgoing buffer for ranks of other hosts; None where there is none."""
        transport, carrier = self._transport, self._transport.carrier
        if carrier is None or self._acknowledged:
            return None
        here = transport.hosts[transport.rank]
        far = self._in_turn(edge for peer, edge in self.edges.items() if transport.hosts[peer] != here)
        for edge in far:
            edge.is_far = True
        return Outgoing(self._window, far, carrier, self._waiting) if far else None

    def _make_far(self, capacity: int, unflushed: Unflushed) -> FarEdges:
        """The edges to other hosts that need fewer stages."""
        hosts, here = self._transport.hosts, self._transport.hosts[self._transport.rank]
        far: list[OutEdge] = []
        if self._acknowledged or self._window.keeps_order:
            far = self._in_turn(edge for peer, edge in self._at_once.items() if hosts[peer] != here)
        return FarEdges(self._window, far, capacity, self._consistency, self._put_payload, unflushed)

    def _in_turn(self, edges: Iterable[OutEdge]) -> list[OutEdge]:
        """`edges` from the rank after this one on."""
        rank, size = self._transport.rank, self._transport.size
        return sorted(edges, key=lambda edge: (edge.peer - rank) % size)

    def _header(self, peer: int, offset: int) -> header.Write:
        return header.writer(lambda cell: self._window.prepared(cell, peer, offset))

    def renew(self, peer: int, base: int) -> None:
        """Begin the edge to `peer` anew, after message number `base`. Local."""
        if (edge := self.edges.get(peer)) is not None:
            edge.ring.begin(base)
            edge.renew(self._transport.clock())
            edge.incarnation = self._transport.view.incarnation(peer)
            edge.bytes_sent, edge.slot = 0, NO_SLOT

    def begin(self, step: int, steps: Mapping[int, int]) -> None:
        """Put to the peers in `steps` that this rank begins at `step`; note their steps. The caller flushes."""
        for peer in self.edges.keys() & steps.keys():
            edge = self.edges[peer]
            edge.step = steps[peer]
            edge.progress(edge.ring.sent, step, WHOLE)

    def prepare(self, message: OutgoingMessage) -> None:
        """As `Queues.prepare`. Local."""
        edge = self.edges[message.peer]
        edge.lasting = message
        edge.put_lasting = [self._window.prepared(message.body, edge.peer, slot + header.NBYTES) for slot in edge.slots]

    def send(
        self, messages: Iterable[OutgoingMessage], step: int, weight: float, mass: float, what: str, join: Join
    ) -> tuple[int, float]:  # fmt: skip
        """As `Queues.send_each`."""
        edges = self._ready(messages, what)
        share = mass / (len(edges) + 1)
        nbytes = 0
        if self.outgoing is not None:
            far, edges = [edge for edge in edges if edge.is_far], [edge for edge in edges if not edge.is_far]
            nbytes = sum(self.outgoing.nbytes(edge.message.nbytes) for edge in far)
            self._post(self.outgoing, far, step, weight, share, join)
        for edge in edges:
            nbytes += edge.message.nbytes
        if self.far.edges:
            self._send_across(edges, step, weight, share)
        elif self._near:
            self._send_near(edges, step, weight, share)
        self._transport.count_step()
        return nbytes, share

    def _send_across(self, edges: Sequence[OutEdge], step: int, weight: float, share: float) -> None:
        """Send to other hosts and to peers of this one, and the step to all of both."""
        across = [edge for edge in edges if edge.peer in self.far.edges]
        self.far.start(across, step, weight, share)
        if self._near:
            self._send_near([edge for edge in edges if edge.peer in self._near], step, weight, share)
        self.far.finish(across, step, weight, share)

    def _send_near(self, edges: Sequence[OutEdge], step: int, weight: float, share: float) -> None:
        """Send to peers that share the stages, and the step to all of them."""
        flush = self._flush_all if len(edges) == len(self._near) else partial(self._flush, edges)
        if not self._acknowledged:
            for edge in edges:
                edge.headers[edge.slot](edge.ring.sent + 1, step, WRITING)
            flush()
        is_empty = True
        for edge in edges:
            message = edge.message
            if message is edge.lasting:
                edge.put_lasting[edge.slot]()
            else:
                self._put_payload(edge)
            is_empty = is_empty and not message.nbytes
        if not is_empty:
            flush()
        for edge in edges:
            message = edge.message
            edge.ring.sent += 1
            edge.bytes_sent += message.nbytes
            edge.headers[edge.slot](edge.ring.sent, step, WHOLE, message.encoding, message.nbytes, weight, share)
        if len(edges) < len(self._near):
            self._put_step(step, without=edges)
        self._flush_all()

    def _post(
        self, outgoing: Outgoing, far: Sequence[OutEdge], step: int, weight: float, share: float, join: Join
    ) -> None:  # fmt: skip
        """Hand the messages of `far` over to the buffer, and the step to other ranks of other hosts."""
        outgoing.post(far, step, weight, share, join)
        if len(far) < len(outgoing.tracks):
            outgoing.tell(outgoing.tracks.keys() - {edge.peer for edge in far}, step)

    def _put_step(self, step: int, without: Sequence[OutEdge]) -> None:
        """Send the step alone to the peers that get no message."""
        for edge in self._near.values():
            if edge not in without:
                edge.progress(edge.ring.sent, step, WHOLE)

    def leave(self, peers: Collection[int], step: int) -> None:
        """Put to `peers` that this rank has closed, at `step`. The caller flushes."""
        for peer in self._at_once.keys() & peers:
            edge = self.edges[peer]
            edge.progress(edge.ring.sent, step, DONE)

    def leave_later(self, step: int) -> None:
        """Say the same to all others, after what waits in the outgoing buffer.

        Where an error has ended the transfer thread they are not told. Collective calls raise it; a close does not, so
        that the ranks of this host are told.
        """
        if self.outgoing is not None:
            with contextlib.suppress(TransferFailed):
                self.outgoing.tell(self.outgoing.tracks, step, DONE)

    def _ready(self, messages: Iterable[OutgoingMessage], what: str) -> list[OutEdge]:
        """The edges of a scatter, each with its message, once the consistency allows them to send."""
        edges, is_behind = [], False
        for message in messages:
            edge = self.edges[message.peer]
            if (seen := edge.acknowledgement.read()) is not edge.heard:
                self._hear(edge, seen)
            if not edge.done:
                ring = edge.ring
                edge.message, edge.slot = message, ring.sent % ring.depth
                is_behind = is_behind or (ring.sent >= ring.taken + self._in_flight and not self._may_send(edge))
                edges.append(edge)
        return self._once_acknowledged(edges, what) if is_behind else edges

    def _once_acknowledged(self, edges: list[OutEdge], what: str) -> list[OutEdge]:
        """`edges`, but those whose peers have closed, once the peers have acknowledged enough. DeadlinePassed."""

        def missing() -> list[OutEdge]:
            """The edges whose peers must acknowledge more before this rank may send. Local."""
            return [edge for edge in edges if not self._may_send(edge)]

        if self.far.edges and (behind := missing()):
            self.far.send_ahead([edge for edge in behind if edge.ring.may_send(edge.ring.depth)])
        try:
            if self._waiting.until_none(what, missing):
                self._waiting.check_alive(edges)
                self._check_slots(edges)
        except BaseException:
            self.far.forget()
            raise
        return [edge for edge in edges if not edge.done]

    def _check_slots(self, edges: Iterable[OutEdge]) -> None:
        """PeerLost: the slot that a message had got is one of a former incarnation of its receiver."""
        for edge in edges:
            meant = edge.incarnation in (None, self._transport.view.incarnation(edge.peer))
            if edge.slot == NO_SLOT or not meant:
                raise PeerLost(edge.peer, "it failed while this rank waited for it, and has come back")

    def _put_payload(self, edge: OutEdge) -> None:
        """Start to write the payload of the edge's message."""
        message, offset = edge.message, edge.slots[edge.slot] + header.NBYTES
        if message is edge.lasting:
            edge.put_lasting[edge.slot]()
        elif message.nbytes:
            self._window.put(message.body, edge.peer, offset)
            if message.tail is not None:
                self._window.put(message.tail, edge.peer, offset + message.body.nbytes)

    def _flush(self, edges: Sequence[OutEdge]) -> None:
        if edges:
            self._window.flush([edge.peer for edge in edges])

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

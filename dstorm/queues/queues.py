"""The receive queues of one vector on one rank.

They have two ends, dstorm/queues/sending/sender.py and dstorm/queues/receiving/receiver.py. These apply the pure
modules (layout, header, ring, consistency) to one window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from dstorm.errors import ClosedError
from dstorm.header import DONE, WHOLE
from dstorm.queues.closable import Closable
from dstorm.queues.consistency import Consistency
from dstorm.queues.layout import Layout
from dstorm.queues.neighbours import of_other_hosts
from dstorm.queues.receiving.in_edge import InEdge
from dstorm.queues.receiving.message import Message
from dstorm.queues.receiving.receiver import Inbox
from dstorm.queues.sending.edge import OutEdge, OutgoingMessage
from dstorm.queues.sending.sender import Outbox
from dstorm.queues.sending.unsent import Join, Shortening, supersede
from dstorm.queues.statistics import EdgeStatistics, Statistics, located, total
from dstorm.queues.unflushed import Unflushed
from dstorm.queues.waits.waiting import Waiting
from dstorm.transport import Transport

_IDLE = EdgeStatistics()


class Queues(Closable):
    """The queues of one vector on one rank: those of its in-neighbours, and access to those of its out-neighbours.

    The constructor is Collective. All ranks pass the same layout, consistency and deadline.
    """

    def __init__(
        self, transport: Transport, layout: Layout, consistency: Consistency, deadline_s: float
    ) -> None:  # fmt: skip
        super().__init__()
        self.consistency, self.layout = consistency, layout
        self.transport = transport
        self.window = self._opened(transport, layout.window_nbytes(transport.rank))
        """The memory of the queues, and of what lies behind them."""
        self.waiting = Waiting(transport, deadline_s, self.notice)
        self._unflushed = self._make_unflushed()
        self.outbox = Outbox(transport, self.window, layout, consistency, self.waiting, self._unflushed)
        self.has_buffer = self.outbox.outgoing is not None
        """Whether some messages wait in an outgoing buffer before they leave."""
        self.inbox = Inbox(transport, self.window, layout, consistency, self.waiting, self._unflushed)
        for peer in self._unflushed.owing:
            self.outbox.edges[peer].back = self.inbox.edges[peer].headers
        self._is_freed = False
        self._former: list[EdgeStatistics] = []
        """The totals of edges with former incarnations of ranks that have come back."""
        if consistency.lockstep and transport.view.can_change:
            transport.duties.append(self._make_way)

    def _make_unflushed(self) -> Unflushed:
        """Return the object that leaves flushes to other hosts to a later call, where receivers acknowledge."""
        layout, here, mode = self.layout, self.transport.rank, self.consistency
        leaves = mode.acknowledges and self._far
        owes = mode.lockstep and layout.depth > 1 and not self.window.keeps_order
        owing = self._far.intersection(layout.out(here), layout.into(here)) if owes else ()
        return Unflushed(self.window, self.transport, self.transport.carrier if leaves else None, owing)

    def shorten(self, shortening: Shortening) -> None:
        """Shorten payloads as they leave the outgoing buffer, all of them of one length. Local."""
        if self.outbox.outgoing is not None:
            self.outbox.outgoing.shortening = shortening

    def send_each(
        self, outgoing: Iterable[OutgoingMessage], step: int, weight: float = 1.0, mass: float = 1.0, *,
        what: str = "scatter", join: Join = supersede,
    ) -> tuple[int, float]:  # fmt: skip
        """Publish each message to its peer, at most one a peer, and `step` to all out-neighbours. One-sided.

        Returns the payload bytes sent, and a share of `mass`: mass / (messages + 1). That much went with each message,
        and that much is left to this rank. `what`: the call, for errors.

        On return the arrays of the messages may change. The data is in the memory of peers of this host. That for other
        hosts may be on its way, or, under asp and ssp, in the outgoing buffer, where `join` decides what becomes of
        messages to the same peer that have not begun to leave. It is in their memory when a collective call of the
        transport returns.
        Peers that have closed are skipped. It waits only where the consistency requires acknowledgements.
        DeadlinePassed; PeerLost: an awaited rank has failed; TransferFailed; ClosedError. Nothing was sent then.
        """
        if self.closed:
            self.check_open(what)
        sent = self.outbox.send(outgoing, step, weight, mass, what, join)
        self.inbox.step = step
        return sent

    def has_arrived(self) -> bool:
        """Return whether `receive` may find a message; False if closed. Local. It is cheap, and any thread may call it.
        """
        with self.reading:
            return not self.closed and self.inbox.has_arrived()

    def receive(
        self, sources: Callable[[], Iterable[int]], *, newest: bool, timeout_s: float | None = None
    ) -> list[Message]:
        """The messages that a gather at this rank's step merges, ordered by sender, then step. Local.

        Their contents are not checked: the caller calls `inbox.refuse` for wrong ones, and `acknowledge` after the
        merge.
        It waits as the consistency requires for `sources()`, the in-neighbours of this step, which is called at each
        poll. Messages come from all in-neighbours; under lockstep, of this step and from its in-neighbours alone.
        `newest`: only the newest message of each sender; earlier ones count as overwritten.

        DeadlinePassed, ClosedError: nothing was taken.
        """
        if self.closed:
            self.check_open("gather")
        self.inbox.wait(sources, timeout_s)
        return self.inbox.take(newest)

    def look(self, sources: Callable[[], Iterable[int]], timeout_s: float | None = None) -> list[Message] | None:
        """Views of the newest message of each sender, in its slot. Local.

        The messages are not taken, and may be overwritten while they are used: a result of them is valid only if
        `inbox.look_again` returns True. None: a message has a wrong length, or a check; `receive` takes it. It waits as
        `receive`. Not for lockstep. DeadlinePassed, ClosedError.
        """
        if self.closed:
            self.check_open("gather")
        self.inbox.wait(sources, timeout_s)
        return self.inbox.look()

    def reached(self) -> Mapping[int, int]:
        """By in-neighbour the step up to which it has scattered, and all its messages have been taken. Local.

        After `receive`. Under lockstep those of this rank's step; else 0 where this rank cannot tell, as with a message
        that is still there.
        """
        is_known = self.consistency.lockstep  # the wait of this step has read the steps of all
        return {peer: edge.step if is_known else edge.reached for peer, edge in self.inbox.edges.items()}

    def acknowledge(self, merged: Iterable[Message]) -> None:
        """End the merge of `merged`: the payloads of `receive` may be overwritten from now on. One-sided.

        Acknowledges the messages to their senders where the consistency requires it; not once it is closed, as that
        would take the place of what says so.
        """
        self.inbox.merged(merged)
        if self.consistency.acknowledges and not self.closed:
            self.inbox.acknowledge()

    def discard(self) -> None:
        """Count all messages that have come and were not received as overwritten. One-sided.

        No peer sends meanwhile. ClosedError.
        """
        self.check_open("discard")
        self.inbox.discard()

    def statistics(self, neighbours: Collection[int] | None = None) -> Statistics:
        """The totals so far, overall and by peer. Local.

        The peers are `neighbours` (None: all) and those with which there was any traffic.
        """
        self.window.sync()
        peers = sorted(self.outbox.edges.keys() | self.inbox.edges.keys())
        edges = {peer: self._edge_statistics(peer) for peer in peers}
        if neighbours is not None:
            edges = {peer: edge for peer, edge in edges.items() if peer in neighbours or edge != _IDLE}
        present = located(edges, self.transport.hosts, self.transport.rank)
        whole = total({**present, **dict(enumerate(self._former, 1 + max(peers, default=0)))}, self.waiting.total_s)
        return replace(whole, peers=present)

    def _make_way(self) -> None:
        """Skip old messages (`Inbox.make_way`) after the graph was mended; not while another thread sends or receives
        here."""
        if self.transport.view.version:
            with self.call_lock.lent() as is_free:
                if is_free and not self.closed:  # another thread may have closed it since it was asked to
                    self.inbox.make_way()

    def renew(self, peer: int, base: int) -> None:
        """Begin the edges to and from `peer` anew, which has come back, after message number `base`. Local.

        What its former incarnation has sent and this rank has not gathered counts as overwritten. The caller holds
        `call_lock`.
        """
        if (sending := self.outbox.edges.get(peer)) is not None and sending.ring.base == base:
            return
        was = self._edge_statistics(peer)
        if was != _IDLE:
            across = was.bytes_sent if of_other_hosts(self.transport.hosts, self.transport.rank, [peer]) else 0
            self._former.append(
                replace(was, pending=0, overwritten=was.overwritten + was.pending, bytes_across=across)
            )  # fmt: skip
        self.outbox.renew(peer, base)
        self.inbox.renew(peer, base)

    def begin(self, step: int, steps: Mapping[int, int]) -> None:
        """Begin at `step`, as this rank has come back; publish that. One-sided. `steps`: those of peers, by rank."""
        self.inbox.step = self.inbox.over = step
        for edge in self._edges_of(steps):
            edge.step = steps[edge.peer]
            edge.say(step, WHOLE)
        if steps:
            self.window.flush(sorted(steps))

    def note_closed(self, peers: Iterable[int]) -> None:
        """Note that `peers` have closed their ends. Local."""
        for edge in self._edges_of(peers):
            edge.done = True

    def _edges_of(self, peers: Iterable[int]) -> list[OutEdge | InEdge]:
        """Return the edges to and from `peers`."""
        ends: list[Mapping[int, OutEdge | InEdge]] = [self.outbox.edges, self.inbox.edges]
        return [edges[peer] for peer in peers for edges in ends if peer in edges]

    def _edge_statistics(self, peer: int) -> EdgeStatistics:
        """Return the totals with `peer`. After close all that waits will leave, and counts as if it had."""
        record = EdgeStatistics()
        if (sending := self.outbox.edges.get(peer)) is not None:
            sent = self.outbox.sent(peer)
            record = EdgeStatistics(
                sent=sent.left + sent.waiting + sent.superseded, superseded=sent.superseded,
                bytes_sent=sent.nbytes + sent.waiting_nbytes * self.closed, waited_s=sending.waited_s,
            )  # fmt: skip
        if (receiving := self.inbox.edges.get(peer)) is not None:
            ring, (pending, overwritten) = receiving.ring, self.inbox.outstanding(receiving)
            record = replace(
                record, gathered=ring.gathered, overwritten=overwritten, pending=pending, refused=ring.refused,
                torn_retries=ring.torn_retries, waited_s=record.waited_s + receiving.waited_s,
                lag=receiving.lag.record(),
            )  # fmt: skip
        return record

    def _leave(self) -> None:
        if self._make_way in self.transport.duties:
            self.transport.duties.remove(self._make_way)
        peers, far = self.outbox.edges.keys() | self.inbox.edges.keys(), self._far
        if far and (carrier := self.transport.carrier) is not None:
            carrier.later(lambda: self._leave_later(far), far)
        if (outgoing := self.outbox.outgoing) is not None:
            outgoing.tell(outgoing.edges, self.inbox.step, DONE)
        self._leave_to(peers - far)
        self.transport.closed()

    def _leave_later(self, far: Collection[int]) -> None:
        """Leave by the carrier; do nothing if all that wait for it have failed, and the window is freed."""
        if self._is_freed:
            return
        self._unflushed.drain("close")  # a header that says less must not arrive later
        self._leave_to(far)

    def _leave_to(self, peers: Collection[int]) -> None:
        """Publish to `peers` that this rank has closed; an outgoing buffer says so behind what waits. One-sided."""
        for edge in self._edges_of(peers):
            if isinstance(edge, InEdge) or self.outbox.buffer_of(edge.peer) is None:
                edge.say(self.inbox.step, DONE)
        if peers:
            self.window.flush(sorted(peers))

    @property
    def _far(self) -> set[int]:
        """The neighbours on other hosts, where a carrier sends to them."""
        if self.transport.carrier is None:
            return set()
        here = self.transport.rank
        return set(of_other_hosts(self.transport.hosts, here, {*self.layout.out(here), *self.layout.into(here)}))

    def free(self) -> None:
        """Free the memory of the queues. Collective. ClosedError: not all ranks have closed."""
        if not self.closed:
            raise ClosedError("queues are freed only after all ranks have closed them")
        self._is_freed = True
        for load in (self.outbox.outgoing, self._unflushed):
            if load is not None and self.transport.carrier is not None:
                self.transport.carrier.remove(load)
        self.window.free()

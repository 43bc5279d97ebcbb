"""A segment: one receive queue for each in-neighbour, and the way into those of the out-neighbours.

Its two ends, dstorm/queues/sender.py and dstorm/queues/receiver.py, drive the pure parts (layout, stamp, ring,
consistency) over one window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from dstorm import interruption
from dstorm.errors import ClosedError
from dstorm.queues.consistency import Consistency
from dstorm.queues.layout import Layout
from dstorm.queues.receiver import Inbox, Message
from dstorm.queues.sender import Outbox, OutgoingMessage
from dstorm.queues.statistics import EdgeStatistics, Statistics, total
from dstorm.queues.waiting import Waiting
from dstorm.transport import Transport
from dstorm.turn import Turn

_IDLE = EdgeStatistics()


class Segment:
    """One rank's end of the queues of one vector.

    Collective. All ranks pass the same layout, consistency and deadline.
    """

    def __init__(
        self, transport: Transport, layout: Layout, consistency: Consistency, deadline_s: float
    ) -> None:  # fmt: skip
        self._consistency = consistency
        transport.opened()
        try:
            self._window = transport.window(layout.window_nbytes(transport.rank))
        except BaseException:
            transport.closed()
            raise
        self._transport = transport
        self._waiting = Waiting(transport, deadline_s, self._notice)
        self._out = Outbox(transport, self._window, layout, consistency, self._waiting)
        self._in = Inbox(transport, self._window, layout, consistency, self._waiting)
        self._step = 0
        self.closed = self._is_closing = False
        self.turn = Turn()
        """Whoever sends or receives has it; also who closes, which other threads may do at any time."""
        if consistency.lockstep:
            transport.while_waiting.append(self._make_way)

    def prepare(self, outgoing: OutgoingMessage) -> None:
        """From here on this very parcel, of a body alone, is sent in less time. Local."""
        self._out.prepare(outgoing)

    @interruption.message
    def send_each(
        self, outgoing: Iterable[OutgoingMessage], step: int, weight: float = 1.0, mass: float = 1.0
    ) -> tuple[int, float]:  # fmt: skip
        """Publish each parcel to its peer, at most one to each, and `step` to all out-neighbours. One-sided.

        The payload bytes sent; and the share of `mass` that went with each message and is left to this rank:
        mass / (messages + 1).

        On return the data is in the peers' memory and the parcels' may change. Peers that have left are skipped.
        Waits only where the consistency wants acknowledgements. DeadlinePassed, and PeerLost, where one that was waited
        for died: nothing was sent.
        """
        try:
            sent = self._out.send(outgoing, step, weight, mass)
            self._step = step
            return sent
        finally:
            if interruption.pending is not None:
                interruption.raise_pending()

    def sent_to(self, peers: Iterable[int]) -> int:
        """Messages published so far in the memory of `peers`. Local."""
        return sum(self._out.edges[peer].ring.sent for peer in peers)

    def receive(
        self, sources: Callable[[], Iterable[int]], *, newest: bool, timeout_s: float | None = None
    ) -> list[Message]:
        """The messages that a gather at this rank's step merges, by sender, then step, whatever they hold: `refuse`
        what is wrong, and `acknowledge` when the merge is over. Local, but for its waits.

        Waits as the consistency wants it for `sources()`, the in-neighbours of this step, asked anew at each poll.
        Messages come from all in-neighbours; under lockstep from `sources()` alone, and of this very step. `newest`:
        only the newest message of each sender; those before it count as overwritten. DeadlinePassed: nothing was taken.
        """
        self._in.wait(sources, self._step, timeout_s)
        return self._in.take(newest)

    def look(self, sources: Callable[[], Iterable[int]], timeout_s: float | None = None) -> list[Message] | None:
        """The newest message of each sender where it lies, not taken, and perhaps overwritten while it is used: what
        is made of them counts only where `look_again` agrees. None: one has an impossible length: `receive` refuses it.

        Waits as `receive`. Not under lockstep. Local. DeadlinePassed.
        """
        self._in.wait(sources, self._step, timeout_s)
        return self._in.look()

    def look_again(self) -> bool:
        """Whether all messages of `look` are still whole; then they are taken, and merged. Else nothing is. Local."""
        return self._in.look_again()

    def refuse(self, message: Message) -> None:
        """What this message of the last `receive` holds cannot be: it counts as refused, not as gathered. Local."""
        self._in.refuse(message)

    def acknowledge(self) -> None:
        """The merge is over: from here on the payloads of `receive` may be overwritten, and senders are told so where
        the consistency wants it. One-sided."""
        self._in.merged()
        if self._consistency.acknowledges:
            self._in.acknowledge()

    def statistics(self, neighbours: Collection[int] | None = None) -> Statistics:
        """Totals so far, overall and by peer: `neighbours`, all if None, and those with whom there was any traffic.
        Local."""
        self._window.sync()
        peers = sorted(self._out.edges.keys() | self._in.edges.keys())
        edges = {peer: self._edge_statistics(peer) for peer in peers}
        if neighbours is not None:
            edges = {peer: edge for peer, edge in edges.items() if peer in neighbours or edge != _IDLE}
        return total(edges, self._waiting.total_s)

    def _make_way(self) -> None:
        """As `Inbox.make_way`, while any call of this rank waits; unless another thread is at work here."""
        with self.turn.lent() as is_free:
            if is_free:
                self._in.make_way()

    def _notice(self) -> None:
        """Between two polls of a wait."""
        if self._is_closing:
            raise ClosedError("it was closed, by another thread, while this call waited")

    def _edge_statistics(self, peer: int) -> EdgeStatistics:
        sending, receiving = self._out.edges.get(peer), self._in.edges.get(peer)
        record = EdgeStatistics()
        if sending is not None:
            record = EdgeStatistics(sent=sending.ring.sent, bytes_sent=sending.bytes_sent, waited_s=sending.waited_s)
        if receiving is None:
            return record
        ring = receiving.ring
        pending, overwritten = self._in.outstanding(receiving)
        return EdgeStatistics(
            record.sent, ring.gathered, overwritten, pending, ring.torn_retries, ring.refused,
            record.bytes_sent, record.waited_s + receiving.waited_s, receiving.lag.record(),
        )  # fmt: skip

    def close(self) -> None:
        """Tell all neighbours that this rank has left: nobody waits for it, nobody sends to it. One-sided.

        What it sent can still be gathered. A second call does nothing. A call of another thread is over first; where it
        waits it raises ClosedError.
        """
        self._is_closing = True
        with self.turn.lock:
            if not self.closed:
                self.closed = True
                self._leave()

    def _leave(self) -> None:
        if self._make_way in self._transport.while_waiting:
            self._transport.while_waiting.remove(self._make_way)
        self._out.leave(self._step)
        self._in.leave(self._step)
        if neighbours := sorted(self._out.edges.keys() | self._in.edges.keys()):
            self._window.flush(neighbours)
        self._transport.closed()

    def free(self) -> None:
        """Give the memory back. Collective, once all ranks have closed; views of it are dead. ClosedError: not yet."""
        if not self.closed:
            raise ClosedError("a segment is freed only after all ranks have closed it")
        with self.turn.lock:
            self._window.free()

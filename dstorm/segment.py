"""A segment: one receive queue for each in-neighbour, and the way into those of the out-neighbours.

It drives the pure parts (layout, stamp, ring, consistency) over a window. One scatter costs three flushes, shared
by all its peers: mark, payload, publish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dstorm import stamp
from dstorm.consistency import Consistency
from dstorm.errors import ClosedError, DeadlinePassed
from dstorm.layout import Layout
from dstorm.ring import ReceiveRing, SendRing, Verdict
from dstorm.stamp import DONE, WHOLE, WRITING, Stamp
from dstorm.statistics import EdgeStatistics, Lag, Statistics, total
from dstorm.transport import Bytes, Transport

_TORN_RETRIES = 16
"""Looks at one message that may fail before a gather leaves it to the next: a sender that never pauses must not
hold a receiver."""


_HEAD_START = 1
"""Steps that a rank under asp may be ahead of one on the same cores before it gives way."""
_PATIENCE_S = 0.05
"""How long it gives way in all, over the life of a segment."""


_NOTHING = np.empty(0, np.uint8)


class Message(NamedTuple):
    """A whole message, out of the queue."""

    sender: int
    step: int
    encoding: int
    weight: float
    share: float
    payload: Bytes
    """A view, good until the segment's next `receive`."""


class Parcel(NamedTuple):
    """One message on its way to one peer."""

    peer: int
    body: Bytes
    """C-contiguous, as the tail is; neither may change until `send_each` returns."""
    tail: Bytes | None
    """What follows the body in the payload."""
    nbytes: int
    """Of both."""
    encoding: int = 0


@dataclass(eq=False)
class _OutEdge:
    """This rank's way into one peer's queue."""

    peer: int
    ring: SendRing
    slots: list[int]
    progress: int
    acknowledgement: int
    """Offset in this rank's memory."""
    cell: Bytes
    """Staging for a stamp on its way to this peer."""
    parcel: Parcel = Parcel(-1, _NOTHING, None, 0)
    """What goes with the scatter under way."""
    step: int = 0
    """The peer's step when it last acknowledged."""
    done: bool = False
    bytes_sent: int = 0
    heard_at: float = 0.0
    waited_s: float = 0.0


@dataclass(eq=False)
class _InEdge:
    """One peer's queue in this rank's memory."""

    peer: int
    ring: ReceiveRing
    slots: list[int]
    progress: int
    acknowledgement: int
    """Offset in the peer's memory."""
    cell: Bytes
    """Staging for an acknowledgement on its way to the peer."""
    step: int = 0
    """The newest step that the peer is known to have reached."""
    done: bool = False
    acknowledged: int = 0
    copies: list[Bytes] = field(default_factory=list)
    lag: Lag = Lag()
    heard_at: float = 0.0
    waited_s: float = 0.0


class Segment:
    """One rank's end of the queues of one vector.

    Collective. All ranks pass the same layout, consistency and deadline. `accept` judges a message by its content:
    one that it turns down is refused, and counted as that.
    """

    def __init__(
        self,
        transport: Transport,
        layout: Layout,
        consistency: Consistency,
        deadline_s: float,
        accept: Callable[[Message], bool] = lambda message: True,
    ) -> None:
        self._transport = transport
        self._accept = accept
        self._consistency = consistency
        self._deadline_s = deadline_s
        self._in_flight = consistency.unacknowledged(layout.depth)
        self._window = transport.window(layout.window_nbytes(transport.rank))
        self._view: memoryview = self._window.memory.data
        rank = transport.rank
        self._staging = np.zeros((len(layout.out[rank]) + len(layout.into[rank]), stamp.NBYTES), np.uint8)
        cells = iter(self._staging)
        self._out = {
            peer: _OutEdge(
                peer,
                SendRing(layout.depth),
                layout.slots(rank, peer),
                layout.progress(rank, peer),
                layout.acknowledgement(rank, peer),
                next(cells),
            )
            for peer in layout.out[rank]
        }
        self._in = {
            peer: _InEdge(
                peer,
                ReceiveRing(layout.depth, layout.capacity),
                layout.slots(peer, rank),
                layout.progress(peer, rank),
                layout.acknowledgement(peer, rank),
                next(cells),
            )
            for peer in layout.into[rank]
        }
        self._rivals = (
            [] if consistency.waits else [self._in[peer] for peer in layout.into[rank] if peer in transport.rivals]
        )
        self._patience_s = _PATIENCE_S
        self._step = 0
        self._waited_s = 0.0
        self.closed = False
        now = transport.clock()
        for out in self._out.values():
            out.heard_at = now
        for into in self._in.values():
            into.heard_at = now

    # -- sending ----------------------------------------------------------------------------------------------

    def send(
        self, peers: Iterable[int], step: int, payload: Bytes, encoding: int = 0, weight: float = 1.0,
        mass: float = 1.0, timeout_s: float | None = None,
    ) -> tuple[int, float]:  # fmt: skip
        """Publish one and the same `payload` to `peers`: as `send_each`."""
        parcels = [Parcel(peer, payload, None, payload.nbytes, encoding) for peer in peers]
        return self.send_each(parcels, step, weight, mass, timeout_s)

    def send_each(
        self, parcels: Iterable[Parcel], step: int, weight: float = 1.0, mass: float = 1.0,
        timeout_s: float | None = None,
    ) -> tuple[int, float]:  # fmt: skip
        """Publish each parcel to its peer, at most one to each, and `step` to all out-neighbours. One-sided.

        The payload bytes sent; and the share of `mass` that went with each message and is left to this rank:
        mass / (messages + 1).

        On return the data is in the peers' memory and the parcels' may change. Peers that have left are skipped.
        Waits only where the consistency wants acknowledgements. DeadlinePassed: nothing was sent.
        """
        edges = []
        for parcel in parcels:
            edge = self._out[parcel.peer]
            if not self._has_left(edge):
                edge.parcel = parcel
                edges.append(edge)
        if self._consistency.acknowledges:
            self._wait("scatter", lambda: [edge for edge in edges if not self._may_send(edge)], timeout_s)
            edges = [edge for edge in edges if not edge.done]
        self._step = step
        share = mass / (len(edges) + 1)
        total_nbytes = 0
        for edge in edges:
            self._put(edge, edge.slots[edge.ring.next_slot], Stamp(edge.ring.sent + 1, step, WRITING))
            total_nbytes += edge.parcel.nbytes
        self._flush(edges)
        if total_nbytes:
            for edge in edges:
                self._put_payload(edge)
            self._flush(edges)
        for edge in edges:
            _, _, _, nbytes, encoding = edge.parcel
            whole = Stamp(edge.ring.sent + 1, step, WHOLE, encoding, nbytes, weight, share)
            self._put(edge, edge.slots[edge.ring.next_slot], whole)
            edge.ring.sent += 1
            edge.bytes_sent += nbytes
        others = [edge for edge in self._out.values() if edge not in edges] if len(edges) < len(self._out) else []
        for edge in others:
            self._put(edge, edge.progress, Stamp(edge.ring.sent, step, WHOLE))
        self._flush(edges + others)
        self._transport.beat()
        return total_nbytes, share

    def _put_payload(self, edge: _OutEdge) -> None:
        _, body, tail, nbytes, _ = edge.parcel
        offset = edge.slots[edge.ring.next_slot] + stamp.NBYTES
        if nbytes:
            self._window.put(body, edge.peer, offset)
        if tail is not None:
            self._window.put(tail, edge.peer, offset + body.nbytes)

    def sent_to(self, peers: Iterable[int]) -> int:
        """Messages published so far in the memory of `peers`. Local."""
        return sum(self._out[peer].ring.sent for peer in peers)

    def _put(self, edge: _OutEdge | _InEdge, offset: int, what: Stamp) -> None:
        stamp.write(edge.cell.data, 0, what)
        self._window.put(edge.cell, edge.peer, offset)

    def _flush(self, edges: Sequence[_OutEdge | _InEdge]) -> None:
        if edges:
            self._window.flush([edge.peer for edge in edges])

    def _has_left(self, edge: _OutEdge) -> bool:
        """Whether the peer has closed its end, as far as this rank has been told."""
        if not edge.done and self._view[edge.acknowledgement + 2 * 8]:  # the low byte of the state word
            self._note_acknowledgement(edge)
        return edge.done

    def _may_send(self, edge: _OutEdge) -> bool:
        if not edge.ring.may_send(self._in_flight):
            self._window.sync()
            self._note_acknowledgement(edge)
        return edge.done or edge.ring.may_send(self._in_flight)

    def _note_acknowledgement(self, edge: _OutEdge) -> None:
        seen = stamp.read(self._view, edge.acknowledgement)
        if seen is None:
            return
        edge.ring.acknowledged(seen.number)
        edge.done = seen.state == DONE
        if seen.step > edge.step or edge.done:
            edge.step = seen.step
            edge.heard_at = self._transport.clock()

    # -- receiving --------------------------------------------------------------------------------------------

    def receive(self, sources: Iterable[int], *, newest: bool, timeout_s: float | None = None) -> list[Message]:
        """The messages that a gather at this rank's step merges, by sender, then step. Local, but for its waits.

        Waits as the consistency wants it for `sources`, the in-neighbours of this step. Messages come from all
        in-neighbours; under lockstep from `sources` alone, and of this very step. `newest`: only the newest
        message of each sender; those before it count as overwritten. DeadlinePassed: nothing was taken.
        """
        awaited = self._consistency.awaited_step(self._step)
        self._window.sync()
        if self._rivals:
            self._give_way()
        if awaited:
            edges = [self._in[peer] for peer in sources]
            self._wait("gather", lambda: [edge for edge in edges if not self._has_reached(edge, awaited)], timeout_s)
        if self._consistency.lockstep:
            found = [self._take_step(self._in[peer]) for peer in sources] if self._step else []
            return [message for message in found if message is not None]
        taken: list[Message] = []
        for edge in self._in.values():
            taken += self._take_newest(edge) if newest else self._take_all(edge)
        return taken

    def acknowledge(self) -> None:
        """Tell senders what has been taken, where the consistency wants it. One-sided.

        Call it when the merge is over: from here on the payloads of `receive` may be overwritten.
        """
        if not self._consistency.acknowledges:
            return
        fresh = [edge for edge in self._in.values() if edge.ring.taken > edge.acknowledged]
        for edge in fresh:
            self._put(edge, edge.acknowledgement, Stamp(edge.ring.taken, self._step, WHOLE))
            edge.acknowledged = edge.ring.taken
        self._flush(fresh)

    def _has_reached(self, edge: _InEdge, step: int) -> bool:
        """Whether the peer has published `step`, or has left. Looks no further than it must."""
        if edge.step >= step or edge.done:
            return True
        self._window.sync()
        first = edge.ring.next_slot
        for offset in edge.slots[first:] + edge.slots[:first]:
            self._note_step(edge, stamp.read(self._view, offset))
            if edge.step >= step:
                return True
        self._note_step(edge, stamp.read(self._view, edge.progress))
        return edge.step >= step or edge.done

    def _give_way(self) -> None:
        """Yield the core to ranks of this host that have fallen behind, where nothing else ever waits for them.

        No wait for a message: what it evens out is the system's scheduling, whose time slices are as long as a short
        training. When the patience is used up, one yield a gather is all.
        """
        step = self._step - _HEAD_START
        behind = [edge for edge in self._rivals if not self._has_reached(edge, step)]
        start, polls = self._transport.clock(), 0
        while behind and (polls == 0 or self._transport.clock() - start < self._patience_s):
            self._transport.pause(polls)
            polls += 1
            behind = [edge for edge in behind if not self._has_reached(edge, step)]
        if polls:
            self._patience_s -= self._transport.clock() - start

    def _note_step(self, edge: _InEdge, seen: Stamp | None) -> None:
        if seen is None or seen.state == WRITING:
            return
        edge.done = edge.done or seen.state == DONE
        if seen.step > edge.step:
            edge.step = seen.step
            edge.heard_at = self._transport.clock()

    def _take_step(self, edge: _InEdge) -> Message | None:
        """The peer's message of this rank's step, or None where it sent none then. Older ones are skipped."""
        while True:
            seen = stamp.read(self._view, edge.slots[edge.ring.next_slot])
            verdict = edge.ring.look(seen)
            if verdict is Verdict.NOTHING:
                return None
            if verdict is not Verdict.READY or seen is None:
                self._window.sync()
                continue
            if seen.step > self._step:
                return None
            if seen.step < self._step:
                edge.ring.skip(seen.number)
                continue
            return self._taken(edge, seen, self._payload(edge, seen))

    def _take_all(self, edge: _InEdge) -> list[Message]:
        """The peer's waiting messages, oldest first: at most as many as there are slots."""
        taken: list[Message] = []
        tries = 0
        while len(taken) < len(edge.slots) and tries < _TORN_RETRIES:
            slot = edge.ring.next_slot
            seen = stamp.read(self._view, edge.slots[slot])
            verdict = edge.ring.look(seen)
            if verdict is Verdict.NOTHING:
                break
            if verdict is Verdict.READY and seen is not None and self._copied(edge, slot, seen, len(taken)):
                if (message := self._taken(edge, seen, edge.copies[len(taken)][: seen.nbytes])) is not None:
                    taken.append(message)
                continue
            tries += 1
            self._window.sync()
        return taken

    def _take_newest(self, edge: _InEdge) -> list[Message]:
        """The peer's newest waiting message, if there is one."""
        for _ in range(_TORN_RETRIES):
            seen = edge.ring.newest([stamp.read(self._view, offset) for offset in edge.slots])
            if seen is None:
                break
            slot = (seen.number - 1) % len(edge.slots)
            if self._copied(edge, slot, seen, 0):
                message = self._taken(edge, seen, edge.copies[0][: seen.nbytes])
                return [] if message is None else [message]
            self._window.sync()
        return []

    def _taken(self, edge: _InEdge, seen: Stamp, payload: Bytes) -> Message | None:
        """Settle a message that is whole; None where it is refused."""
        self._note_step(edge, seen)
        message = Message(edge.peer, seen.step, seen.encoding, seen.weight, seen.share, payload)
        if not edge.ring.is_sound(seen) or not self._accept(message):
            edge.ring.refuse(seen.number)
            return None
        edge.ring.take(seen.number)
        edge.lag = edge.lag.plus(self._step - seen.step)
        return message

    def _payload(self, edge: _InEdge, seen: Stamp) -> Bytes:
        """The payload in place: nobody writes to the slot before it is acknowledged."""
        start = edge.slots[edge.ring.next_slot] + stamp.NBYTES
        return self._window.memory[start : start + seen.nbytes]

    def _copied(self, edge: _InEdge, slot: int, seen: Stamp, place: int) -> bool:
        """Copy a slot's payload, and look again whether it is the whole message that was seen first."""
        if place == len(edge.copies):
            edge.copies.append(np.empty(edge.ring.capacity, np.uint8))
        if not edge.ring.is_sound(seen):
            return True
        self._window.sync()
        self._window.copy(edge.slots[slot] + stamp.NBYTES, edge.copies[place][: seen.nbytes])
        self._window.sync()
        return edge.ring.look_again(seen, stamp.read(self._view, edge.slots[slot]))

    # -- waiting ----------------------------------------------------------------------------------------------

    def _wait(self, what: str, lacking: Callable[[], Sequence[_OutEdge | _InEdge]], timeout_s: float | None) -> None:
        """Poll until no edge is lacking. DeadlinePassed: `timeout_s` is over, or an awaited rank has made no step
        for the deadline of the session."""
        edges = lacking()
        if not edges:
            return
        start = now = self._transport.clock()
        polls = 0
        try:
            while edges:
                silent_s = {edge.peer: now - max(edge.heard_at, start) for edge in edges}
                if now - start > timeout_s if timeout_s is not None else max(silent_s.values()) > self._deadline_s:
                    heard_s = {edge.peer: now - edge.heard_at for edge in edges}
                    raise DeadlinePassed(what, {edge.peer: edge.step for edge in edges}, heard_s)
                before = now
                self._transport.pause(polls)
                polls += 1
                now = self._transport.clock()
                for edge in edges:
                    edge.waited_s += now - before
                edges = lacking()
        finally:
            self._waited_s += now - start

    # -- the end ----------------------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Totals so far, overall and by peer. Local."""
        self._window.sync()
        peers = sorted(self._out.keys() | self._in.keys())
        return total({peer: self._edge_statistics(peer) for peer in peers}, self._waited_s)

    def _edge_statistics(self, peer: int) -> EdgeStatistics:
        sending, receiving = self._out.get(peer), self._in.get(peer)
        record = EdgeStatistics()
        if sending is not None:
            record = EdgeStatistics(sent=sending.ring.sent, bytes_sent=sending.bytes_sent, waited_s=sending.waited_s)
        if receiving is None:
            return record
        ring = receiving.ring
        pending, overwritten = ring.outstanding([stamp.read(self._view, offset) for offset in receiving.slots])
        return EdgeStatistics(
            record.sent, ring.gathered, overwritten, pending, ring.torn_retries, ring.refused,
            record.bytes_sent, record.waited_s + receiving.waited_s, receiving.lag,
        )  # fmt: skip

    def close(self) -> None:
        """Tell all neighbours that this rank has left: nobody waits for it, nobody sends to it. One-sided.

        What it sent can still be gathered. A second call does nothing.
        """
        if self.closed:
            return
        self.closed = True
        for out in self._out.values():
            self._put(out, out.progress, Stamp(out.ring.sent, self._step, DONE))
        for edge in self._in.values():
            self._put(edge, edge.acknowledgement, Stamp(edge.ring.taken, self._step, DONE))
        self._flush([*self._out.values(), *self._in.values()])

    def free(self) -> None:
        """Give the memory back. Collective, once all ranks have closed; views of it are dead. ClosedError: not yet."""
        if not self.closed:
            raise ClosedError("a segment is freed only after all ranks have closed it")
        self._view.release()
        self._window.free()

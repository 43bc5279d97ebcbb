"""The receiving end: a queue for each in-neighbour, in this rank's own memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import numpy as np

from dstorm import header
from dstorm.header import WHOLE, Header, Watched
from dstorm.queues.consistency import Consistency
from dstorm.queues.layout import Layout
from dstorm.queues.neighbours import of_other_hosts
from dstorm.queues.receiving.in_edge import InEdge
from dstorm.queues.receiving.message import Message, made
from dstorm.queues.ring import ReceiveRing, SlotState
from dstorm.queues.statistics import LagCounter
from dstorm.queues.unflushed import Unflushed
from dstorm.queues.waits.head_start import HeadStart
from dstorm.queues.waits.waiting import Waiting
from dstorm.transport import Bytes, Transport, Window

_TORN_RETRIES = 16
"""How often a gather tries to copy a torn message before it leaves it to the next gather. A sender that never pauses
must not hold a receiver up."""
_MOST_PIECES = 64
"""The most calls by which a gather that finds nothing lets pieces of messages come in."""
_IDLE_S = 1e-5
"""A call that takes less has moved no bytes."""


class Inbox:
    """The in-edges of one rank. All methods are Local where they do not say otherwise."""

    def __init__(
        self, transport: Transport, window: Window, layout: Layout, consistency: Consistency, waiting: Waiting,
        unflushed: Unflushed,
    ) -> None:  # fmt: skip
        self._transport, self._window, self._waiting, self._unflushed = transport, window, waiting, unflushed
        self._consistency = consistency
        rank = transport.rank
        self.edges = {peer: self._edge(layout, rank, peer) for peer in layout.into(rank)}
        self._sync, self._clock = window.sync, transport.clock
        self._far = frozenset(of_other_hosts(transport.hosts, rank, self.edges) if consistency.acknowledges else ())
        """The in-neighbours on other hosts that this rank acknowledges messages to."""
        self._flush_near = window.prepared_flush([peer for peer in self.edges if peer not in self._far])
        local_peers = [edge for peer, edge in self.edges.items() if peer in transport.local_peers]
        self._head_start = None
        if local_peers and not consistency.waits:
            self._head_start = HeadStart(transport, waiting, window.sync, local_peers)
        self._seen: list[tuple[InEdge, int, Header]] = []
        """The messages of the last `look`: edge, slot, header."""
        self.step = 0
        """That of this rank's last send."""
        self.over = 0
        """Under lockstep: the last step whose messages no gather merges any more; -1: a gather is under way."""

    def _edge(self, layout: Layout, rank: int, peer: int) -> InEdge:
        memory, slots = self._window.memory, layout.slots(peer, rank)
        headers = [Watched(memory.data, slot) for slot in slots]
        return InEdge(
            peer,
            ReceiveRing(layout.depth, layout.capacity),
            slots,
            headers,
            [memory[slot + header.NBYTES :][: layout.capacity] for slot in slots],
            [*headers, Watched(memory.data, layout.progress(peer, rank))],
            header.writer(self._window.prepared, peer, layout.acknowledgement(peer, rank)),
            heard_at=self._transport.clock(),
            member=self._transport.view.member(peer),
        )

    def renew(self, peer: int, base: int) -> None:
        """Begin the edge from `peer` anew, after message number `base`. Local.

        A header that its former incarnation has left half written would be awaited for ever. It is cleared: the peer
        sends nothing before this rank has answered it.
        """
        if (edge := self.edges.get(peer)) is not None:
            self._sync()
            for slot, cell in zip(edge.slots, edge.headers, strict=True):
                if cell.read() is None:
                    self._window.memory[slot : slot + header.NBYTES] = 0
            edge.ring.begin(base)
            edge.renew(self._clock(), self._transport.view.member(peer))
            edge.acknowledged, edge.lag = base, LagCounter()
            self._seen = [one for one in self._seen if one[0] is not edge]

    def wait(self, sources: Callable[[], Iterable[int]], timeout_s: float | None) -> None:
        """Wait for `sources()` as the consistency requires it at this rank's step. DeadlinePassed."""
        self._sync()
        if self._head_start is not None:
            self._head_start.limit(self.step)
        awaited, clock = self._consistency.awaited_step(self.step), self._clock
        if not awaited or all(edge.is_seen_at(awaited, clock) for edge in self.edges.values()):
            return

        def missing() -> list[InEdge]:
            """The edges whose peers are behind."""
            self._sync()
            edges = [self.edges[peer] for peer in sources()]
            return [edge for edge in edges if not edge.is_seen_at(awaited, clock)]

        if self._far and timeout_s is None:
            self._unflushed.before_wait()
        self._waiting.until_none("gather", missing, timeout_s)

    def newest_step(self) -> int:
        """Return the last step that an in-neighbour has published, as far as it has come here."""
        self._sync()
        for edge in self.edges.values():
            edge.is_seen_at(sys.maxsize, self._clock)
        return max((edge.step for edge in self.edges.values()), default=0)

    def has_arrived(self) -> bool:
        """Return whether `take` may find a message."""
        self._sync()
        nexts = ((edge.headers[edge.ring.next_slot].read(), edge.ring.taken) for edge in self.edges.values())
        return any(seen is None or seen.number > taken for seen, taken in nexts)

    def take(self, newest: bool) -> list[Message]:
        """Take the pending messages of all peers, of each the newest alone if `newest` (`Queues.receive`)."""
        taken: list[Message] = []
        if self._consistency.lockstep:
            # Only edges of this step can hold a message of this step. But a message of another step that was not
            # gathered then blocks its sender, so all queues are read.
            self.over = -1
            for edge in self.edges.values() if self.step else ():
                if (seen := self._next(edge, self.step)) is not None and seen.step == self.step:
                    # It is used in place: its sender does not write to the slot before it is acknowledged.
                    payload = edge.payload(edge.ring.next_slot, seen)
                    if (message := self._taken(edge, seen, payload)) is not None:
                        taken.append(message)
        else:
            for edge in self.edges.values():
                taken += self._take_newest(edge) if newest else self._take_all(edge)
            if not taken and self._far:
                self._let_come_in()
        if taken and self._consistency.acknowledges:
            self._sync()  # the headers were read before the payloads, which are used in place
        return taken

    def _let_come_in(self) -> None:
        """Let Puts of other hosts come in. Local. A loop of the user's may look for messages, and do nothing else.

        Some MPI libraries take a small piece of a long message in each call: more calls follow while pieces come.
        """
        transport, polls = self._transport, 0
        end = transport.clock()
        while polls < _MOST_PIECES:
            start = end
            transport.progress()
            end = transport.clock()
            if end - start < _IDLE_S:
                break
            polls += 1

    def refuse(self, message: Message) -> None:
        """Count a message of the last `take` as refused, not as gathered, for its contents. Local."""
        self.edges[message.sender].ring.refuse_taken()

    def look(self) -> list[Message] | None:
        """Return the newest messages in place, or None where they must be copied (`Queues.look`)."""
        self._seen.clear()
        found = []
        for edge in self.edges.values():
            if (seen := edge.ring.newest([cell.read() for cell in edge.headers])) is None:
                continue
            if not edge.ring.is_sound(seen) or seen.check is not None:
                return None
            slot = edge.ring.slot(seen.number)
            self._seen.append((edge, slot, seen))
            found.append(made(edge.peer, seen, edge.payload(slot, seen)))
        if found:
            self._sync()  # the headers were read before the payloads
        return found

    def look_again(self) -> bool:
        """Return whether all messages of `look` are still whole. If so, they count as merged; else nothing changes."""
        self._sync()
        for edge, slot, seen in self._seen:
            if not edge.ring.look_again(seen, edge.headers[slot].read()):
                return False
        for edge, _, seen in self._seen:
            if seen.step > edge.step:
                edge.note(seen, self._clock)
            edge.ring.take(seen.number)
            edge.lag.note(self.step - seen.step)
        return True

    def merged(self, messages: Iterable[Message]) -> None:
        """Count the lags of these messages of `take`."""
        for message in messages:
            self.edges[message.sender].lag.note(self.step - message.step)

    def acknowledge(self) -> None:
        """Acknowledge all messages that were taken (`Queues.acknowledge`). One-sided."""
        fresh = [edge for edge in self.edges.values() if edge.ring.taken > edge.acknowledged]
        self._sync()  # the messages have been read before their slots are given back
        if self._far and (far := [edge for edge in fresh if edge.peer in self._far]):
            self._unflushed.acknowledge(far, self.step)
            fresh = [edge for edge in fresh if edge.peer not in self._far]
        for edge in fresh:
            edge.say(self.step, WHOLE)
        if fresh:
            self._flush_near()
        self.over = self.step

    def discard(self) -> None:
        """Settle all messages that have come as overwritten, unread; acknowledge them where that is required.

        One-sided. Not while a peer sends: its message may be one of those, or not.
        """
        self._sync()
        for edge in self.edges.values():
            if (seen := edge.ring.newest([cell.read() for cell in edge.headers])) is not None:
                edge.note(seen, self._clock)
                edge.ring.skip(seen.number)
        if self._consistency.acknowledges:
            self.acknowledge()

    def make_way(self) -> None:
        """Under lockstep: skip the messages of steps that are over, and acknowledge them. One-sided.

        When the graph is mended, a rank can get an in-neighbour that is `depth` or more steps behind. No gather of this
        rank merges the messages of those steps, so they fill the slots. The neighbour would wait for free slots, and
        this rank for the neighbour.
        """
        skipped = []
        for edge in self.edges.values():
            before = edge.ring.taken
            self._next(edge, self.over + 1)
            if edge.ring.taken > before:
                edge.say(self.step, WHOLE)
                skipped.append(edge.peer)
        if skipped:
            self._window.flush(skipped)

    def outstanding(self, edge: InEdge) -> tuple[int, int]:
        """The counts (pending, overwritten) of an edge."""
        return edge.ring.outstanding([cell.read() for cell in edge.headers])

    def _next(self, edge: InEdge, step: int) -> Header | None:
        """The header of the peer's first message of `step` or later; None where there is none. Older ones are skipped.

        Where receivers acknowledge, no slot holds a later message than the one that it is awaited in. One that is still
        being written is later than the step that the peer has published: all messages up to that are whole.
        """
        ring = edge.ring
        while (seen := edge.headers[ring.next_slot].read()) is not None:
            if seen.number != ring.taken + 1 or seen.state != WHOLE:
                return None
            if seen.step >= step:
                return seen
            edge.note(seen, self._clock)
            ring.skip(seen.number)
        return None

    def _take_all(self, edge: InEdge) -> list[Message]:
        """The pending messages of the peer, oldest first; at most as many as there are slots."""
        taken: list[Message] = []
        tries = 0
        while len(taken) < len(edge.slots) and tries < _TORN_RETRIES:
            slot = edge.ring.next_slot
            seen = edge.headers[slot].read()
            state = edge.ring.look(seen)
            if state is SlotState.NOTHING:
                break
            if state is SlotState.READY and seen is not None:
                had_come = seen.check is not None and edge.holds_newer(seen.number)
                payload = self._settled_payload(edge, slot, seen, len(taken))
                if payload is not None:
                    message = self._taken(edge, seen, payload)
                    taken += [] if message is None else [message]
                    continue
                if had_come:  # so it is being overwritten
                    edge.ring.skip(seen.number)
                    continue
                if seen.check is not None:  # it comes: the next gather finds it
                    break
            elif state is SlotState.TORN and self._is_rewritten(edge, slot):
                edge.ring.skip(edge.ring.taken + 1)
                continue
            tries += 1
            self._sync()
        return taken

    def _is_rewritten(self, edge: InEdge, slot: int) -> bool:
        """Return whether the header of the awaited message is torn as a later one is being written over it.

        It was whole before a newer message began. So a header that is torn after a look at that one is not its own.
        """
        return edge.holds_newer(edge.ring.taken + 1) and edge.headers[slot].read() is None

    def _take_newest(self, edge: InEdge) -> list[Message]:
        """The newest pending message of the peer; [] where there is none."""
        torn: list[Header | None] = []  # an older message may be whole
        for _ in range(_TORN_RETRIES):
            seen = edge.ring.newest([one for cell in edge.headers if (one := cell.read()) not in torn])
            if seen is None:
                break
            if (payload := self._settled_payload(edge, edge.ring.slot(seen.number), seen, 0)) is not None:
                message = self._taken(edge, seen, payload)
                return [] if message is None else [message]
            torn.append(seen)
            self._sync()
        return []

    def _taken(self, edge: InEdge, seen: Header, payload: Bytes) -> Message | None:
        """Settle a whole message and return it; None where its length is wrong, and it is refused."""
        if seen.step > edge.step:
            edge.step, edge.heard_at = seen.step, self._clock()
        if not edge.ring.is_sound(seen):
            edge.ring.refuse(seen.number)
            return None
        edge.ring.take(seen.number)
        return made(edge.peer, seen, payload)

    def _settled_payload(self, edge: InEdge, slot: int, seen: Header, place: int) -> Bytes | None:
        """The payload of a slot whose header was read before: in place where its sender does not write to it before it
        is acknowledged, else a copy. None: that is not whole."""
        if self._consistency.acknowledges or not edge.ring.is_sound(seen):
            return edge.payload(slot, seen)
        if place == len(edge.copies):
            edge.copies.append(np.empty(edge.ring.capacity, np.uint8))
        copy = edge.copies[place][: seen.nbytes]
        self._sync()
        self._window.copy(edge.slots[slot] + header.NBYTES, copy)
        self._sync()
        if seen.check is None:
            again = edge.headers[slot].read()
        else:  # the check says it, whatever the slot holds now
            again = seen if header.payload_check(copy) == seen.check else None
        return copy if edge.ring.look_again(seen, again) else None

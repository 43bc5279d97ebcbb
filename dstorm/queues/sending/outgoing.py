"""The outgoing buffer of a vector: messages to ranks of other hosts, which leave while this rank computes.

A flush takes a round trip there. So under asp and ssp a scatter copies its message into this buffer, and returns. The
carrier of the transport (dstorm/transports/transfer.py) sends one message to each peer at a time, in one round trip:
its payload, its header, and a flush for both. The header holds a check of the payload (`dstorm.header`), by which a
receiver knows whether what it has copied is whole. Where the window keeps order, a mark of the slot comes first
instead, as inside a host.

A message that waits is the scatter's. Until its payload is put it may be joined with the next one. `leaving` is the
carrier's. `waiting` changes under the lock, which is never held in a call of MPI, a copy or a join. So a join goes by
what waited when it began, and counts if the same waits when it has ended.

A collective call counts what is here, and waits for as many flushes: what comes meanwhile does not hold it up, however
much another thread scatters.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dstorm import header
from dstorm.header import DONE, WHOLE, WRITING
from dstorm.queues.sending.edge import OutEdge
from dstorm.queues.sending.unsent import Join, Sent, Shortening, Unsent
from dstorm.queues.waits.waiting import Waiting
from dstorm.transport import Bytes, Carrier, Window

_NOTHING = np.empty(0, np.uint8)


@dataclass(eq=False)
class Track:
    """Messages on their way to one peer, and at last a step without a message. Each flush brings one of them."""

    edge: OutEdge
    waiting: tuple[Unsent, ...] = ()
    """Those whose Puts have not started, oldest first. Messages among them may be joined with the next one."""
    leaving: Unsent | None = None
    """The one of the flush under way."""
    arrived: int = 0
    """How many have arrived."""
    superseded: int = 0
    """Messages in whose place another one has left, or will."""
    rest: Any = None
    """That of the newest message."""

    @property
    def inside(self) -> tuple[Unsent, ...]:
        """Those that have not arrived, oldest first."""
        return self.waiting if self.leaving is None else (self.leaving, *self.waiting)

    def take(self) -> bool:
        """Let the oldest one leave; return whether there is one."""
        if self.waiting:
            self.leaving, self.waiting = self.waiting[0], self.waiting[1:]
        return self.leaving is not None

    def drop(self) -> None:
        """Drop what is on its way; begin anew."""
        self.waiting, self.leaving, self.superseded = (), None, 0

    @property
    def due(self) -> int:
        """The value of `arrived` once all that is here now has arrived, or a later message that says the same.

        What comes meanwhile is behind it, or takes its place.
        """
        return self.arrived + len(self.inside)

    def lacks(self, due: int) -> bool:
        """Return whether some of what was here when `due` was read has not arrived."""
        return self.arrived < min(due, self.due)


@dataclass(eq=False)
class Outgoing:
    """The outgoing buffer of one vector on one rank: a `Load`. Its constructor is Local.

    `edges`: those to ranks of other hosts, by rank. `waiting`: how `drain` waits.
    """

    window: Window
    edges: Mapping[int, OutEdge]
    carrier: Carrier
    waiting: Waiting
    due_at: float = math.inf
    """Infinity: a scatter wakes the carrier."""
    tracks: dict[int, Track] = field(init=False)
    _marks: dict[tuple[int, int], header.Write] = field(init=False)
    """What marks the slots, by peer and slot, each with a cell of its own; none where headers hold a check."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    shortening: Shortening | None = None
    """What all payloads become as they leave. What waits is whole, so that it can be joined, and is never shortened for
    nothing."""
    _prepared: tuple[Bytes, Bytes, int] | None = None
    """A payload of the flush under way, as peers may share it; what it was shortened to; the state of its header."""
    _moving: list[Track] = field(default_factory=list)
    """The tracks of the flush under way."""

    def __post_init__(self) -> None:
        self.tracks = {peer: Track(edge) for peer, edge in self.edges.items()}
        marked = self.edges.values() if self.window.keeps_order else ()
        places = [(edge.peer, slot, at) for edge in marked for slot, at in enumerate(edge.slots)]
        self._marks = {(peer, slot): header.writer(self.window.prepared, peer, at) for peer, slot, at in places}
        self.carrier.add(self)

    # -- what a scatter does ----------------------------------------------------------------------------------

    def send(self, edges: Sequence[OutEdge], step: int, weight: float, share: float, join: Join) -> int:
        """Take over the messages of `edges`, and the step for all others; return the bytes that will leave. Local.

        `join` decides what becomes of messages that wait.
        """
        copies: dict[tuple[int, int], Bytes] = {}
        try:
            for edge in edges:
                message = edge.message
                key = id(message.body), id(message.tail)
                if key not in copies:
                    message.copy_into(copies.setdefault(key, np.empty(message.nbytes, np.uint8)))
                new = Unsent(step, message.encoding, weight, share, copies[key])
                while not self._add(self.tracks[edge.peer], new, join):
                    pass
            self.tell(self.edges.keys() - {edge.peer for edge in edges}, step)
        finally:  # also where a signal handler raises within
            self.carrier.wake()
        return sum(self.nbytes(edge.message.nbytes) for edge in edges)

    def _add(self, track: Track, new: Unsent, join: Join) -> bool:
        """Let a message wait; return whether it does: not where one that it was joined with has begun to leave."""
        before = track.waiting
        messages = [one for one in before if not one.told]
        closed = [one for one in before if one.told == DONE]  # a step alone is one that the message is past
        with np.errstate(all="ignore"):  # an error would come out when other peers have got theirs
            after = join(messages, new._replace(rest=track.rest))
        superseded, waiting, rest = track.superseded + len(messages) + 1 - len(after), (*after, *closed), after[-1].rest
        with self._lock:
            if is_added := track.waiting is before:
                # Python calls signal handlers after calls. So none comes between these.
                track.waiting, track.superseded, track.rest = waiting, superseded, rest
        return is_added

    def tell(self, peers: Iterable[int], step: int, state: int = WHOLE) -> None:
        """Publish `step` alone, or with state DONE that this rank has closed, after all messages to `peers`. Local."""
        with self._lock:
            for peer in peers:
                track, told = self.tracks[peer], Unsent(step, 0, 0.0, 0.0, _NOTHING, state)
                track.waiting = (*[one for one in track.waiting if not one.told], told)
        self.carrier.wake()

    def sent(self, peer: int) -> Sent:
        """Return what was handed over for a peer. Local."""
        with self._lock:
            track, edge = self.tracks[peer], self.edges[peer]
            waits = [self.nbytes(one.payload.nbytes) for one in track.inside if not one.told]
            return Sent(edge.ring.count, edge.bytes_sent, len(waits), sum(waits), track.superseded)

    def nbytes(self, whole: int) -> int:
        """The bytes that leave of a payload of `whole` bytes. Local."""
        return whole if self.shortening is None else self.shortening.nbytes

    @contextmanager
    def dropping(self, peer: int) -> Iterator[None]:
        """Let the edge to `peer` begin anew in the block: what waits was for a former incarnation, and is dropped.
        Local; it waits for the end of a round.
        """
        with self.carrier.calling, self._lock:
            self.tracks[peer].drop()
            yield

    def drain(self, what: str, timeout_s: float | None = None) -> None:
        """Wait until all that is here now has arrived. DeadlinePassed names the peers, and `what` waits. One-sided."""
        with self._lock:
            due = [(track, track.due) for track in self.tracks.values()]

        def missing() -> list[OutEdge]:
            """The edges to whose peers some of it has not arrived."""
            self.carrier.check()
            with self._lock:
                return [track.edge for track, count in due if track.lacks(count)]

        self.waiting.until_none(what, missing, timeout_s, lambda: self.carrier.moved_at)

    # -- what the carrier does --------------------------------------------------------------------------------

    def start(self) -> bool:
        """Start the Puts that are due; return whether there are any, which `flush` and `finish` follow. One-sided."""
        with self._lock:
            self._moving = [track for track in self.tracks.values() if track.take()]
        for track in self._moving:
            self._put(track)
        return bool(self._moving)

    def _put(self, track: Track) -> None:
        """Put what leaves, shortened where it is to be. The caller does not hold the lock."""
        edge, whole = track.edge, track.leaving
        assert whole is not None
        if whole.told:
            return edge.say(whole.step, whole.told)
        one, state = self._ready(whole)
        track.leaving, slot = one, edge.ring.next_slot
        if self._marks:
            self._marks[edge.peer, slot](edge.ring.sent + 1, one.step, WRITING)
        self.window.put(one.payload, edge.peer, edge.slots[slot] + header.NBYTES)
        nbytes = one.payload.nbytes
        edge.headers[slot](edge.ring.sent + 1, one.step, state, one.encoding, nbytes, one.weight, one.share)

    def _ready(self, one: Unsent) -> tuple[Unsent, int]:
        """A message as it leaves, and the state that its header has, with the check of its payload."""
        if self._prepared is None or self._prepared[0] is not one.payload:
            payload = one.payload if self.shortening is None else self.shortening.function(one.payload)
            state = WHOLE if self.window.keeps_order else header.checked(header.payload_check(payload))
            self._prepared = one.payload, payload, state
        _, payload, state = self._prepared
        encoding = one.encoding if self.shortening is None else self.shortening.encoding
        return one._replace(payload=payload, encoding=encoding), state

    def flush(self) -> None:
        """Complete the Puts that `start` has started. One-sided."""
        peers = [track.edge.peer for track in self._moving]
        self.window.linger(peers)
        self.window.flush(peers)

    def finish(self) -> None:
        """Note that the Puts have arrived: what they carried has left. Local."""
        with self._lock:
            for track in self._moving:
                one, track.leaving, track.arrived = track.leaving, None, track.arrived + 1
                if one is not None and not one.told:
                    track.edge.ring.sent += 1
                    track.edge.bytes_sent += one.payload.nbytes
        self._prepared = None

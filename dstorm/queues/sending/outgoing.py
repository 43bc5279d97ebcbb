"""The outgoing buffer of a vector: messages to ranks of other hosts, which leave while this rank computes.

A flush takes a round trip there. So under asp and ssp a scatter copies its message into this buffer, and returns. The
carrier of the transport (dstorm/transports/transfer.py) sends one message to each peer at a time, in one round trip:
its payload, its header, and a flush for both. The header holds a check of the payload (`dstorm.header`), by which a
receiver knows whether what it has copied is whole. Where the window keeps order, a mark of the slot comes first
instead, as inside a host.

A message that waits is the scatter's. Until its payload is put it may be joined with the next one. `leaving` is the
carrier's. `waiting`, `sealed` and `tells` change under the lock, which is never held in a call of MPI, a copy or a
join. So a join goes by what waited when it began, and counts if the same waits when it has ended.

A collective call seals what waits: it leaves as it is, before all that is handed over later. So the call waits for what
was handed over before it, however much another thread scatters meanwhile.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from dstorm import header
from dstorm.header import WHOLE, WRITING
from dstorm.queues.sending.edge import OutEdge
from dstorm.queues.sending.track import Track
from dstorm.queues.sending.unsent import Join, Shortening, Unsent
from dstorm.queues.waits.waiting import Waiting
from dstorm.transport import Bytes, Carrier, Put, Window


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
    _moving: list[int] = field(default_factory=list)
    """The peers of the flush under way."""

    def __post_init__(self) -> None:
        self.tracks = {peer: Track(edge) for peer, edge in self.edges.items()}
        marked = self.edges.values() if self.window.keeps_order else ()
        self._marks = {
            (edge.peer, slot): self._mark(edge.peer, at) for edge in marked for slot, at in enumerate(edge.slots)
        }
        self.carrier.add(self)

    def _mark(self, peer: int, offset: int) -> header.Write:
        return header.writer(lambda cell: self.window.prepared(cell, peer, offset))

    # -- what a scatter does ----------------------------------------------------------------------------------

    def post(self, edges: Iterable[OutEdge], step: int, weight: float, share: float, join: Join) -> None:
        """Take over the message of each edge. `join` decides what becomes of those that wait. Local.

        TransferFailed: nothing is taken over.
        """
        self.carrier.check()
        copies: dict[tuple[int, int], Bytes] = {}
        try:
            for edge in edges:
                message = edge.message
                key = id(message.body), id(message.tail)
                if key not in copies:
                    copies[key] = _copied(message.body, message.tail, message.nbytes)
                new = Unsent(step, message.encoding, weight, share, copies[key])
                while not self._add(self.tracks[edge.peer], new, join):
                    pass
        finally:  # also where a signal handler raises within
            self.carrier.wake()

    def publish(self, edges: Sequence[OutEdge], step: int, weight: float, share: float) -> None:
        """Publish `step` alone to the peers but those of `edges`, whose messages say it. Local. TransferFailed."""
        if len(edges) < len(self.edges):
            self.tell(self.edges.keys() - {edge.peer for edge in edges}, step)

    def _add(self, track: Track, new: Unsent, join: Join) -> bool:
        """Let a message wait; return whether it does: not where one that it was joined with has begun to leave."""
        before, is_added = track.waiting, False
        try:
            with np.errstate(all="ignore"):  # an error would come out when other peers have got theirs
                after = tuple(join.function(track.edge.peer, before, new))
            superseded = track.superseded + len(before) + 1 - len(after)
            with self._lock:
                if track.waiting is before:
                    # Python calls signal handlers after calls. So none comes between these.
                    track.waiting, track.superseded, is_added = after, superseded, True
                    if track.tells is not None and track.tells[1] == WHOLE:
                        track.tells = None  # the message says a newer step
            return is_added
        finally:
            if not is_added:
                join.undo(new)

    def tell(self, peers: Iterable[int], step: int, state: int = WHOLE) -> None:
        """Publish `step` alone, or with state DONE that this rank has closed, after all messages to `peers`. Local.

        TransferFailed: nothing is published.
        """
        self.carrier.check()
        with self._lock:
            for peer in peers:
                self.tracks[peer].tells = step, state
        self.carrier.wake()

    def sent(self, peer: int) -> tuple[int, int, int, int]:
        """Of messages to a peer: how many scatters have handed over, how many of these never leave by themselves; the
        bytes that have left, and those that wait. Local."""
        with self._lock:
            track = self.tracks[peer]
            waits = sum(self.nbytes(one.payload.nbytes) for one in track.inside)
            return track.sent, track.superseded, track.edge.bytes_sent, waits

    def nbytes(self, whole: int) -> int:
        """The bytes that leave of a payload of `whole` bytes. Local."""
        return whole if self.shortening is None else self.shortening.nbytes

    def left(self, peer: int) -> tuple[int, int]:
        """The messages to a peer that have left, and their bytes. Local."""
        with self._lock:
            edge = self.tracks[peer].edge
            return edge.ring.count, edge.bytes_sent

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
            sealed = [(track, track.seal()) for track in self.tracks.values()]

        def missing() -> list[OutEdge]:
            """The edges to whose peers some of it has not arrived."""
            self.carrier.check()
            with self._lock:
                return [track.edge for track, one in sealed if track.holds(one)]

        try:
            self.waiting.until_sent(what, missing, lambda: self.carrier.moved_at, timeout_s)
        finally:
            with self._lock:
                for track, _ in sealed:
                    track.unseal()

    # -- what the carrier does --------------------------------------------------------------------------------

    def start(self) -> bool:
        """Start the Puts that are due; return whether there are any, which `flush` and `finish` follow. One-sided."""
        puts: list[Put] = []
        with self._lock:
            for peer, track in self.tracks.items():
                due = self._due(track)
                if due is not None:
                    self._moving.append(peer)
                    puts.append(due)
        for put in puts:
            put()
        return bool(puts)

    def _due(self, track: Track) -> Put | None:
        """Return the function that puts the next message of a track, or else the step that it is to say."""
        if track.take():
            return lambda: self._put(track)
        if track.sealed_tells or track.tells:
            return self._progress(track)
        return None

    def _progress(self, track: Track) -> Put:
        if track.sealed_tells:
            track.telling, track.sealed_tells = track.sealed_tells, None
        else:
            track.telling, track.tells = track.tells, None
        assert track.telling is not None
        step, state = track.telling
        return lambda: track.edge.progress(track.edge.ring.sent, step, state)

    def _put(self, track: Track) -> None:
        """Put the message that leaves, shortened where it is to be. The caller does not hold the lock."""
        edge, whole = track.edge, track.leaving
        assert whole is not None
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
        self.window.linger(self._moving)
        self.window.flush(self._moving)

    def finish(self) -> None:
        """Note that the Puts have arrived: what they carried has left. Local."""
        with self._lock:
            for peer in self._moving:
                track = self.tracks[peer]
                track.telling = None
                if track.leaving is not None:
                    track.edge.ring.sent += 1
                    track.edge.bytes_sent += track.leaving.payload.nbytes
                    track.leaving = None
            self._moving.clear()
        self._prepared = None


def _copied(body: Bytes, tail: Bytes | None, nbytes: int) -> Bytes:
    copy = np.empty(nbytes, np.uint8)
    np.copyto(copy[: body.nbytes], body)
    if tail is not None:
        np.copyto(copy[body.nbytes :], tail)
    return copy

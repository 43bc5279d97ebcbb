"""The outgoing buffer of a vector: messages to ranks of other hosts, which leave while this rank computes.

A flush takes a round trip there. So under asp and ssp a scatter copies its message into this buffer, and returns. The
carrier of the transport (dstorm/transports/transfer.py) takes it through the stages of a message, a flush after each:
the header as a mark, the payload, the header. All peers go through their stages together. Where the next message waits
already, its mark goes with the header before it, into another slot.

A message that waits is the scatter's. Until its payload is put it may be joined with the next one. `leaving` and the
stages are the carrier's. `waiting`, `tells` and `closes` are handed over under the lock, which is never held in a call
of MPI, a copy or a join.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np

from dstorm import header
from dstorm.header import WHOLE, WRITING
from dstorm.queues.sending.edge import OutEdge
from dstorm.queues.waiting import Waiting
from dstorm.transport import Bytes, Carrier, Put, Window


class Parcel(NamedTuple):
    """A message in the buffer."""

    step: int
    encoding: int
    weight: float
    share: float
    """The part of the sender's mass that goes with it."""
    payload: Bytes
    """A copy, which peers may share: it is never changed."""


Join = Callable[[int, Sequence[Parcel], Parcel], Sequence[Parcel]]
"""A function of a peer, of what waits for it, oldest first, and of a new message: what waits from then on."""


def supersede(peer: int, waiting: Sequence[Parcel], new: Parcel) -> Sequence[Parcel]:
    """The new message alone: it says all that the older ones said. It is the default of what joins messages."""
    return [new]


class Stage(Enum):
    """How far the message that leaves has come: what is complete in the peer's memory."""

    NONE = "nothing leaves"
    MARKED = "its slot is marked"
    WRITTEN = "its payload is written"


@dataclass(eq=False)
class Track:
    """What is on its way to one peer."""

    edge: OutEdge
    waiting: Sequence[Parcel] = ()
    """Messages whose payload has not been put, oldest first."""
    joining: int = 0
    """How many messages a scatter has taken out, to join them."""
    leaving: Parcel | None = None
    """The message whose payload is put."""
    stage: Stage = Stage.NONE
    following: Stage = Stage.NONE
    """The stage after the flush under way."""
    is_moving: bool = False
    """Whether its Puts are under way."""
    published: Parcel | None = None
    """The message whose header is put in the flush under way."""
    tells: tuple[int, int] | None = None
    """A step and a state that its progress header is to say, after all messages."""
    superseded: int = 0
    """Messages in whose place another one has left, or will."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to carry."""
        return not (self.waiting or self.joining or self.is_moving or self.tells) and self.stage is Stage.NONE

    @property
    def sent(self) -> int:
        """How many messages scatters have handed over."""
        inside = len(self.waiting) + self.joining + (self.leaving is not None)
        return self.edge.ring.sent + self.superseded + inside


@dataclass(eq=False)
class Outgoing:
    """The outgoing buffer of one vector on one rank. Its constructor is Local.

    `edges`: those to ranks of other hosts. `waiting`: how `drain` waits.
    """

    window: Window
    edges: Iterable[OutEdge]
    carrier: Carrier
    waiting: Waiting
    tracks: dict[int, Track] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _moving: list[int] = field(default_factory=list)
    """The peers of the flush under way."""

    def __post_init__(self) -> None:
        self.tracks = {edge.peer: Track(edge) for edge in self.edges}
        self.carrier.add(self)

    # -- what a scatter does ----------------------------------------------------------------------------------

    def post(self, edges: Iterable[OutEdge], step: int, weight: float, share: float, join: Join) -> None:
        """Take over the message of each edge. `join` decides what becomes of those that wait. Local."""
        copies: dict[tuple[int, int], Bytes] = {}
        for edge in edges:
            message = edge.message
            key = id(message.body), id(message.tail)
            if key not in copies:
                copies[key] = _copied(message.body, message.tail, message.nbytes)
            self._add(edge.peer, Parcel(step, message.encoding, weight, share, copies[key]), join)
        self.carrier.wake()

    def _add(self, peer: int, new: Parcel, join: Join) -> None:
        track = self.tracks[peer]
        with self._lock:
            before, track.waiting = track.waiting, ()
            track.joining = len(before)
        after: Sequence[Parcel] = before
        try:
            after = join(peer, before, new)
        finally:
            with self._lock:
                track.joining, track.waiting = 0, tuple(after)
                if after is not before:
                    track.superseded += len(before) + 1 - len(after)

    def tell(self, peers: Iterable[int], step: int, state: int = WHOLE) -> None:
        """Publish `step` alone, or with state DONE that this rank has closed, after all messages to `peers`. Local."""
        with self._lock:
            for peer in peers:
                self.tracks[peer].tells = step, state
        self.carrier.wake()

    def sent(self, peer: int) -> tuple[int, int, int, int]:
        """Of messages to a peer: how many scatters have handed over, how many of these never leave by themselves; the
        bytes that have left, and those that wait. Local."""
        with self._lock:
            track = self.tracks[peer]
            inside = [*track.waiting, *([] if track.leaving is None else [track.leaving])]
            return track.sent, track.superseded, track.edge.bytes_sent, sum(one.payload.nbytes for one in inside)

    def drain(self, what: str) -> None:
        """As `Load.drain`. One-sided."""
        self.waiting.until_none(what, self._busy, even_closed=True)

    def _busy(self) -> list[OutEdge]:
        """The edges to whose peers something is left to carry."""
        with self._lock:
            return [track.edge for track in self.tracks.values() if not track.is_idle]

    # -- what the carrier does --------------------------------------------------------------------------------

    def start(self) -> bool:
        """As `Load.start`. One-sided."""
        puts: list[Put] = []
        with self._lock:
            for peer, track in self.tracks.items():
                due = self._due(track)
                if due:
                    track.is_moving = True
                    self._moving.append(peer)
                    puts += due
        for put in puts:
            put()
        return bool(puts)

    def _due(self, track: Track) -> list[Put]:
        """The Puts of the next stage of a track."""
        if track.stage is Stage.MARKED:
            return self._payload(track)
        if track.stage is Stage.WRITTEN:
            return self._header(track)
        if track.waiting:
            return [self._mark(track, track.edge.ring.sent)]
        if track.tells and not track.joining:
            (step, state), track.tells = track.tells, None
            return [lambda: track.edge.progress(track.edge.ring.sent, step, state)]
        return []

    def _mark(self, track: Track, sent: int) -> Put:
        """The Put that marks the slot of the message after `sent` ones."""
        track.following, edge = Stage.MARKED, track.edge
        return lambda: edge.headers[sent % edge.ring.depth](sent + 1, 0, WRITING)

    def _payload(self, track: Track) -> list[Put]:
        if not track.waiting:  # a scatter is joining it with the next
            return []
        track.leaving, *rest = track.waiting
        track.waiting, track.following = tuple(rest), Stage.WRITTEN
        payload, edge = track.leaving.payload, track.edge
        offset = edge.slots[edge.ring.next_slot] + header.NBYTES
        return [lambda: self.window.put(payload, edge.peer, offset)]

    def _header(self, track: Track) -> list[Put]:
        one, edge = track.leaving, track.edge
        assert one is not None
        track.published, track.following = one, Stage.NONE
        slot, number = edge.ring.next_slot, edge.ring.sent + 1
        puts: list[Put] = [
            lambda: edge.headers[slot](number, one.step, WHOLE, one.encoding, one.payload.nbytes, one.weight, one.share)
        ]
        if track.waiting and edge.ring.depth > 1:
            puts.append(self._mark(track, number))
        return puts

    def flush(self) -> None:
        """As `Load.flush`. One-sided."""
        self.window.flush(self._moving)

    def finish(self) -> None:
        """As `Load.finish`. Local."""
        with self._lock:
            for peer in self._moving:
                track = self.tracks[peer]
                track.is_moving, track.stage = False, track.following
                if track.published is not None:
                    track.edge.ring.sent += 1
                    track.edge.bytes_sent += track.published.payload.nbytes
                    track.published = track.leaving = None
            self._moving.clear()


def _copied(body: Bytes, tail: Bytes | None, nbytes: int) -> Bytes:
    copy = np.empty(nbytes, np.uint8)
    np.copyto(copy[: body.nbytes], body)
    if tail is not None:
        np.copyto(copy[body.nbytes :], tail)
    return copy

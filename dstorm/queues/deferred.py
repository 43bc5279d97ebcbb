"""Puts to other hosts whose flush is left for later, where receivers acknowledge.

A flush to another host takes a round trip. But what a scatter has put has mostly arrived by the next scatter of the
vector: this rank has waited for its peers meanwhile. So a scatter starts its Puts and returns, and the next one flushes
them first. An acknowledgement that is not needed at once waits for the next scatter, too, and goes with its messages.

MPI promises that a Put arrives only when it is flushed (MPI-4.1, 12.7.3). So a collective call flushes what is left
before it enters. Where this rank makes no call for a moment the carrier of the transport flushes, and puts the
acknowledgements that wait.

A cell is written anew only when its last Put is complete: MPI promises no order. `taken` keeps the carrier and the
thread of the user apart.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from dstorm import interruption
from dstorm.header import WHOLE
from dstorm.queues.consistency import Consistency
from dstorm.queues.layout import Layout
from dstorm.queues.receiving.inedge import InEdge
from dstorm.transport import Carrier, Put, Transport, Window

DELAY_S: Final = 2e-3
"""How long nothing may be put before the carrier flushes what is left. A wake of its thread takes some 50 us."""

_KEPT: Final = 0.99
"""What is left of the longest time of a flush after one more. On a slow link few flushes are waited for by mistake."""


class Deferred:
    """What one rank has put for one vector to `peers`, ranks of other hosts, without a flush. Its constructor is Local.

    `postpones`: whether acknowledgements may wait for the next scatter, as no peer needs them before its own next one.
    """

    def __init__(
        self, window: Window, transport: Transport, carrier: Carrier, peers: Iterable[int], postpones: bool
    ) -> None:  # fmt: skip
        self.peers, self.postpones = frozenset(peers), postpones
        self._window, self._carrier = window, carrier
        self._clock, self._pause = transport.clock, transport.pause
        self._using = threading.Lock()
        """Held by who puts or flushes."""
        self._left: frozenset[int] = frozenset()
        """The peers of Puts that are not flushed."""
        self._acknowledged = False
        """Whether acknowledgements are among these Puts."""
        self.has_sent = False
        """Whether messages, or steps, are among them."""
        self._postponed: dict[int, Put] = {}
        """The acknowledgements that wait, by peer. A newer one takes the place of an older one."""
        self._has_changed = False
        """Whether something was put, or postponed, since the carrier looked last."""
        self._is_watched = False
        """Whether the carrier will look again by itself."""
        self._is_closed = False
        self._took_s = 0.0
        """How long a flush takes: the longest of the last ones."""
        self.due_at = math.inf
        """As `Load.due_at`."""
        carrier.add(self)

    # -- what scatters and gathers do -------------------------------------------------------------------------

    def take(self) -> None:
        """Wait until the carrier does not use it, and keep it from that until `give`. TransferFailed."""
        self._carrier.check()
        polls = 0
        while not self._using.acquire(False):
            self._pause(polls)
            polls += 1
            self._carrier.check()

    def try_take(self) -> bool:
        """Take it, unless the carrier uses it; return whether that was done. Local. TransferFailed."""
        self._carrier.check()
        return self._using.acquire(False)

    def give(self) -> None:
        """End what `take` or `try_take` began. Local."""
        self._using.release()

    def started(self, peers: Iterable[int], sent: bool = True) -> None:
        """Note that Puts to `peers` have started. `sent`: messages, or steps. Local."""
        self._left |= frozenset(peers)
        self.has_sent = self.has_sent or sent
        self._watch()

    def settle(self) -> None:
        """Return when all that has started is complete. One-sided."""
        if self._left:
            start = self._clock()
            self._window.flush(sorted(self._left))
            self._clear()
            self._took_s = max(self._clock() - start, _KEPT * self._took_s)

    def _clear(self) -> None:
        self._left, self._acknowledged, self.has_sent = frozenset(), False, False

    def before_look(self) -> None:
        """Settle where messages are on their way. One-sided. TransferFailed.

        Two ranks scatter, and look for the other's message. If neither had come, both would wait in the next scatter
        until the other one takes it. So a rank looks when its own message is there: one of the two finds it.
        """
        if self.has_sent:
            self.drain("gather")

    def before_wait(self) -> None:
        """Settle where that is quick: some MPI libraries begin a round trip in the flush. One-sided. TransferFailed.

        Where it takes long the wait may end before, and the carrier flushes.
        """
        if self._left and self._took_s < DELAY_S:
            self.drain("gather")

    def acknowledge(self, edges: Sequence[InEdge], step: int) -> list[InEdge]:
        """Acknowledge what was taken from other hosts, now or later; return the edges from this one. One-sided."""
        far = [edge for edge in edges if edge.peer in self.peers]
        for edge in far:
            self._postponed[edge.peer] = partial(edge.acknowledge, edge.ring.taken, step, WHOLE)
            edge.acknowledged = edge.ring.taken
        if far:
            self._watch()
            if not self.postpones:
                self.put_postponed_now()
        return [edge for edge in edges if edge.peer not in self.peers]

    def carried(self, peers: Iterable[int]) -> None:
        """Note that messages to `peers` carry the acknowledgements that wait for them. Local."""
        for peer in peers:
            self._postponed.pop(peer, None)

    def put_postponed(self) -> None:
        """Start to put the acknowledgements that wait. One-sided."""
        if not self._postponed:
            return
        if self._acknowledged:
            self.settle()  # older ones might come later, and are in the same memory of this rank
        peers = []
        while self._postponed:
            peer, acknowledge = self._postponed.popitem()
            acknowledge()
            peers.append(peer)
        self._acknowledged = True
        self.started(peers, sent=False)

    @interruption.whole
    def put_postponed_now(self) -> None:
        """As `put_postponed`, by a call that has not taken it. One-sided."""
        self.take()
        try:
            self.put_postponed()
        finally:
            self.give()

    def close(self) -> None:
        """Return when all that has started is complete. No acknowledgement is put any more. One-sided.

        For the carrier, once this rank neither scatters nor gathers.
        """
        self._is_closed = True
        self._postponed.clear()
        if self._left:
            self._window.flush(sorted(self._left))

    def _watch(self) -> None:
        self._has_changed = True
        if not self._is_watched:
            self._is_watched = True
            self._carrier.wake()

    # -- what the carrier does --------------------------------------------------------------------------------

    def start(self) -> bool:
        """As `Load.start`: where nothing has changed for DELAY_S. One-sided."""
        if not self._is_watched or self._is_closed:
            self.due_at = math.inf
            return False
        now = self._clock()
        if self._has_changed:
            self._has_changed, self.due_at = False, now + DELAY_S
            return False
        if now < self.due_at:
            return False
        if not self._left and not self._postponed:
            self.due_at, self._is_watched = math.inf, False
            if self._has_changed:  # just now, by a thread that relied on the watch
                self.due_at, self._is_watched = now + DELAY_S, True
            return False
        if not self._using.acquire(False):
            self.due_at = now + DELAY_S
            return False
        if not self._left:
            self.put_postponed()
        return True

    def flush(self) -> None:
        """As `Load.flush`. One-sided."""
        self._window.flush(sorted(self._left))

    def finish(self) -> None:
        """As `Load.finish`. Local."""
        self._clear()
        self.due_at = self._clock()
        self._using.release()

    @interruption.whole
    def drain(self, what: str, timeout_s: float | None = None) -> None:
        """As `Load.drain`. One-sided. TransferFailed."""
        if not self._left:
            return
        self.take()
        try:
            self.settle()
        finally:
            self.give()


def deferred(window: Window, transport: Transport, layout: Layout, consistency: Consistency) -> Deferred | None:
    """What defers the flushes to neighbours on other hosts. Local.

    None: there are none, receivers do not acknowledge, or nobody flushes while this rank computes.
    """
    rank, hosts, carrier = transport.rank, transport.hosts, transport.carrier
    if carrier is None or not consistency.acknowledges:
        return None
    out, into = ({peer for peer in of(rank) if hosts[peer] != hosts[rank]} for of in (layout.out, layout.into))
    if not out | into:
        return None
    postpones = consistency.lockstep and layout.depth > 1 and bool(out)
    return Deferred(window, transport, carrier, out | into, postpones)

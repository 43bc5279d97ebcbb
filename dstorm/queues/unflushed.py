"""Puts to other hosts that nobody has flushed yet, where receivers acknowledge.

A flush to another host takes a round trip. But what a scatter under bsp has put has mostly arrived by the next scatter
of the vector: this rank has waited for its peers meanwhile. So the next scatter flushes it, before it puts anything.
An acknowledgement is owed until then: it goes with the next message to its receiver, where that is compact, else behind
it. The receiver sends to this rank, too. Where both gather after each scatter, it waits for that message before it
needs the acknowledgement. Else each may wait for what the other one owes: a scatter puts what is owed before it waits.

MPI promises that a Put arrives only when it is flushed (MPI-4.1, 12.7.3). So a collective call puts what is owed and
flushes before it enters, and the carrier of the transport flushes where this rank makes no call for a moment. Without a
carrier nothing is left, and nothing owed.

A cell is written anew only when its last Put is complete: MPI promises no order. Where the window keeps order, what is
put leaves at once, nothing is owed, and only a collective call waits for answers.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from dstorm.header import WHOLE
from dstorm.queues.receiving.in_edge import InEdge
from dstorm.transport import Carrier, Transport, Window
from dstorm.waits import interruption

DELAY_S: Final = 2e-3
"""How long nothing may be put before the carrier flushes what is left. A wake of its thread takes some 50 us. A flush
that takes as long is not waited for where the carrier may make it."""

_KEPT: Final = 0.99
"""What is left of the longest time of a flush after one more. On a slow link few flushes are waited for by mistake."""


class Unflushed:
    """The Puts of one rank for one vector to ranks of other hosts that are not flushed: a `Load`.

    Its constructor is Local.

    `carrier`: who flushes where this rank makes no call. None: each Put is flushed at once. `owing`: the peers to which
    acknowledgements may wait for the next scatter.
    """

    def __init__(
        self, window: Window, transport: Transport, carrier: Carrier | None, owing: Collection[int] = ()
    ) -> None:  # fmt: skip
        self._window, self._carrier, self._clock = window, carrier, transport.clock
        self._peers: frozenset[int] = frozenset()
        """The peers of these Puts."""
        self.has_messages = False
        """Whether headers of messages, or steps, are among them that others may overtake."""
        self._has_acknowledgements = False
        self.owing = frozenset(owing if carrier is not None else ())
        self._owed: dict[int, tuple[InEdge, int]] = {}
        """The edges to whose peers an acknowledgement is owed, and the step of its gather."""
        self._puts = 0
        """How often something was left. A flush that began before the last time has not completed that."""
        self._flushing = 0
        """The same, when the carrier's flush began."""
        self._using = threading.RLock()
        """Held by a thread of the program while it puts or flushes: another one may be in a collective call."""
        self._changing = threading.Lock()
        """Held while `_peers` changes, never in a call of MPI: the carrier need not wait for these threads."""
        self._is_ordered = window.keeps_order
        self._took_s = 0.0
        """How long a flush takes: the longest of the last ones."""
        self.due_at = math.inf
        """When the carrier is to flush what was left; infinity: nothing was."""
        if carrier is not None:
            carrier.add(self)

    def leave(self, peers: Collection[int] = ()) -> None:
        """Leave the Puts of a scatter to `peers`, which have started; behind them goes what is owed. One-sided.

        Without a carrier they are flushed.
        """
        with self._using:
            if self._owed and self._has_acknowledgements:
                self.complete()  # a newer one could arrive first, and is in the same memory of this rank
            owed, self._owed = self._owed, {}
            for edge, step in owed.values():
                edge.acknowledge(edge.acknowledged, step, WHOLE)
            left = sorted({*peers, *owed})
            if self._carrier is None or not left:
                return self._window.flush(left) if left else None
            with self._changing:  # the carrier forgets what it has flushed: these are not among it
                self._puts += 1
                self._peers = self._peers.union(left)
                self.has_messages |= bool(peers) and not self._is_ordered
                self._has_acknowledgements |= bool(owed) and not self._is_ordered
            if self._is_ordered:
                return self._window.flush_local(left)
            with self._changing:  # a watch ends only where nothing is left
                due_at, self.due_at = self.due_at, self._clock() + DELAY_S
            if due_at == math.inf:
                self._carrier.wake()

    def complete(self, peers: Iterable[int] = ()) -> None:
        """Return when all Puts to `peers`, and all that were left, are complete. One-sided."""
        with self._using:
            peers = self._peers.union(peers)
            if peers:
                start = self._clock()
                self._window.flush(sorted(peers))
                self._took_s = max(self._clock() - start, _KEPT * self._took_s)
                with self._changing:
                    self._forget()

    def before_wait(self) -> None:
        """Complete what was left, where that is quick: some MPI libraries begin a round trip in the flush. One-sided.

        Where it takes long the wait may end before, and the carrier flushes.
        """
        if self._peers and self._took_s < DELAY_S and not self._is_ordered:
            self.complete()

    def acknowledge(self, edges: Sequence[InEdge], step: int) -> None:
        """Acknowledge to the peers of `edges`, on other hosts, what was taken from them, or owe it. One-sided."""
        with self._using:
            for edge in edges:
                self._owed[edge.peer] = edge, step
                edge.acknowledged = edge.ring.taken
            if not self.owing.issuperset(self._owed):
                self.leave()

    def take_owed(self, peer: int) -> int:
        """The message of `peer` whose acknowledgement is owed, and goes with a message to it; 0: none. Local."""
        with self._using:
            edge, _ = self._owed.pop(peer, (None, 0))
        return 0 if edge is None else edge.acknowledged

    def _forget(self) -> None:
        self._peers, self.has_messages, self._has_acknowledgements = frozenset(), False, False

    # -- what the carrier does --------------------------------------------------------------------------------

    def start(self) -> bool:
        """Start a flush where nothing was left for DELAY_S; return whether there is one. One-sided."""
        with self._changing:
            if not self._peers:
                self.due_at = math.inf
            self._flushing = self._puts
        return self._clock() >= self.due_at

    def flush(self) -> None:
        """Complete the Puts to all peers that were left. One-sided."""
        self._window.flush(sorted(self._peers))

    def finish(self) -> None:
        """Forget what the flush has completed, unless more has started since. Local."""
        with self._changing:
            if self._flushing == self._puts:
                self._forget()

    @interruption.whole
    def drain(self, what: str, timeout_s: float | None = None) -> None:
        """Put the acknowledgements that are owed, and complete all Puts. One-sided."""
        self.leave()
        self.complete()

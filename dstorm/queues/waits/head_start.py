"""The head start of a rank under asp: it yields its core to peers of its host that are behind.

This is not a wait for a message. It evens out the system's scheduling, whose time slices may be as long as a short
training.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from dstorm.queues.receiving.in_edge import InEdge
from dstorm.queues.waits.patience import Patience
from dstorm.queues.waits.waiting import Waiting
from dstorm.transport import Transport
from dstorm.waits import interruption

STEPS = 1
"""Steps that a rank may be ahead of a local peer before it yields its core."""


class HeadStart:
    """The distance by which one rank is ahead of its local peers. Local. `sync`: that of the window."""

    def __init__(
        self, transport: Transport, waiting: Waiting, sync: Callable[[], object], local_peers: Sequence[InEdge]
    ) -> None:  # fmt: skip
        self._transport, self._view, self._waiting = transport, transport.view, waiting
        self._sync, self._clock, self._local_peers = sync, transport.clock, local_peers
        self._patience: defaultdict[int, Patience] = defaultdict(Patience)
        """How long it may yield, by version of the view: a rank that fails holds others up before they know of it."""

    def limit(self, step: int) -> None:
        """Yield the core while a local peer is behind `step` by more than the head start. After a sync.

        Once the patience is used up, it yields once.
        """
        for edge in self._local_peers:
            if not edge.is_seen_at(step - STEPS, self._clock):
                return self._yield_core(step - STEPS)

    def _is_ahead(self, step: int) -> bool:
        """Return whether a peer is alive and has not reached `step`."""
        self._sync()
        return not all(edge.is_seen_at(step, self._clock) for edge in self._view.to_living(self._local_peers))

    def _yield_core(self, step: int) -> None:
        if not self._is_ahead(step):
            return
        patience, start = self._patience[self._view.version], self._clock()
        patience.arrive(start, step)
        while True:
            patience.pause(self._transport.pause, self._clock)
            interruption.raise_in_wait()
            self._waiting.notice()
            if not (self._is_ahead(step) and patience.is_left):
                break
        end = self._clock()
        patience.leave(end)
        if self._transport.trace is not None:
            self._transport.trace.yielded(start, end)

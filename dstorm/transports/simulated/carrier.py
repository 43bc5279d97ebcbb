"""The transfer thread of a simulated rank on a network: rounds in virtual time, while the rank computes.

It has no thread and no turn of its own. A round is two events: its Puts start, and they are there. What is put,
and what becomes of messages that wait, is that of real ranks (dstorm/queues/sending/outgoing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dstorm.transport import Load, Transport
from dstorm.transports.transfer import Rounds

if TYPE_CHECKING:
    from dstorm.transports.simulated.timed import TimedGroup


class TimedRounds(Rounds):
    """The rounds of the rank of `transport`, which is in `simulation`. All methods are Local but `drain`."""

    def __init__(self, transport: Transport, deadline_s: float, simulation: TimedGroup) -> None:
        super().__init__(transport, deadline_s)
        self._simulation, self._is_awake = simulation, False
        self._started: Sequence[Load] = ()
        """The loads of the round under way."""
        self._running = 0
        """How many errands, the oldest, are made in it."""

    def wake(self) -> None:
        """Begin a round once this rank computes or waits."""
        if not self._is_awake:
            self._is_awake = True
            self._simulation.at(self._simulation.now, self._begin)

    def drain(self, what: str, timeout_s: float | None = None) -> None:
        """Wait until all that was handed over has arrived, as `moved` tells. One-sided. DeadlinePassed, TransferFailed.
        """
        with self._simulation.undisturbed(self._rank):
            super().drain(what, timeout_s)

    def _begin(self) -> None:
        try:
            with self._simulation.carrying(self._rank) as peers:
                self._started = [load for load in self._loads if load.start()]
                self._running = len(self._errands)
                for errand in self._errands:
                    errand.run()
                for load in self._started:
                    load.flush()
        except Exception as error:  # as in the transfer thread: `check` raises it
            self._error = error
            self._simulation.moved(self._rank)
            return
        self._is_awake = bool(self._started) or self._running > 0
        if self._is_awake:
            self._simulation.when_there(self._rank, peers, self._end)

    def _end(self) -> None:
        for load in self._started:
            load.finish()
        for _ in range(self._running):
            self._errands.popleft().is_done = True
        self.moved_at = self._simulation.now
        self._simulation.moved(self._rank)
        self._begin()

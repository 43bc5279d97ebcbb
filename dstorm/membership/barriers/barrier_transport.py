"""The methods of a transport that its barrier implements: heartbeats, waits, open vectors; and its duties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from dstorm.membership.barriers.barrier import Barrier
from dstorm.transport import Carrier, Training
from dstorm.waits import interruption
from dstorm.waits.wait import Wait


@interruption.whole
def call_all(duties: Iterable[Callable[[], object]]) -> None:
    """Call functions, which may change what they go through."""
    for duty in tuple(duties):
        duty()


class BarrierTransport(Training):
    """The base of transports that have a `Barrier`, here `_barrier`, and `duties`."""

    _barrier: Barrier
    duties: list[Callable[[], object]]
    carrier: Carrier | None = None
    returns: Any = None
    clock: Callable[[], float]
    _is_entering = 0

    def attend(self) -> None:
        """Call the functions of `duties`. One-sided. Each `pause` and each `poll_failures` does so."""
        if self.duties:
            call_all(self.duties)

    def calling(self, what: str) -> AbstractContextManager[None]:
        """The lock held during its one-sided calls: a thread that holds it keeps the carrier from them."""
        return self._barrier.calling(what)

    @property
    def lacks_ranks(self) -> bool:
        """True if this rank waits in a collective call that a live rank has not entered, as far as it knows. Local."""
        return self._barrier.lacks_ranks

    def tell_left(self) -> None:
        """Publish that this rank has left the last collective call, unless it has. One-sided."""
        self._barrier.tell_left()

    @property
    def count_step(self) -> Callable[[], None]:
        """The function of the barrier itself, without a call in between. One-sided."""
        return self._barrier.count_step

    @property
    def meetings(self) -> int:
        """The number of barriers this rank has entered, those of other collective calls too. Local."""
        return self._barrier.next_number - 1 + self._is_entering

    @contextmanager
    def _entering(self, what: str, patience_s: float | None = None) -> Iterator[float | None]:
        """Wait until what this rank has scattered has arrived; yield what is left of its patience. One-sided."""
        before, start = self._is_entering, self.clock()
        self._is_entering = 1
        try:
            if self.carrier is not None:
                self.carrier.drain(self._barrier.calls.name(what), patience_s)
            yield None if patience_s is None else max(0.0, patience_s - (self.clock() - start))
        finally:
            self._is_entering = before

    def heartbeat(self) -> None:
        """Publish that this rank is alive. One-sided. Any thread may call it."""
        self._barrier.heartbeat()

    def heard_at(self, rank: int) -> float:
        """Return the time at which `rank` last gave a heartbeat, by this rank's clock, as far as this rank knows."""
        return self._barrier.heard_at(rank)

    def progress(self) -> None:
        """Do nothing."""

    @property
    def waiting(self) -> Wait | None:
        """The wait that `poll_wait` was last called for, if it has not ended. Local; any thread may read it."""
        return self._barrier.waiting

    def poll_wait(self, wait: Wait) -> bool:
        """Return whether the deadline of `wait` has passed. One-sided. To be called whenever the wait is due."""
        return self._barrier.poll_wait(wait)

    def end_wait(self, in_vain: bool = False) -> None:
        """Publish that this rank waits no longer. One-sided."""
        self._barrier.end_wait(in_vain)

    def opened(self) -> None:
        """Count one more vector that this rank has open. Local. Others learn of it at the next collective call."""
        self._barrier.opened()

    def closed(self) -> None:
        """Count one open vector less, and publish it. One-sided."""
        self._barrier.closed()

    def has_closed(self, rank: int) -> bool:
        """Return whether `rank` has closed all its vectors, as far as this rank knows. Local."""
        return self._barrier.has_closed(rank)

    def was_evicted(self, rank: int) -> bool:
        """Return whether `rank` was killed because it gave no heartbeat while others waited for it. Local."""
        return self._barrier.was_evicted(rank)

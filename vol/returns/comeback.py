"""The part of a vector that takes up ranks which come back, and begins as that of such a rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dstorm import Queues, Transport
from dstorm.queues.consistency import Consistency
from vol.returns.packing import Values
from vol.returns.returning import BESIDE, Returning
from vol.topology import Topology
from vol.update import Array

ARRAY = "array"
"""The name of the array of a vector among its values."""


class ComesBack:
    """The part of a vector that takes up ranks which come back, and begins as that of such a rank."""

    _array: Array
    _step: int
    _begun: int
    _gathered_at: int
    _topology: Topology
    _transport: Transport
    _queues: Queues
    _consistency: Consistency
    _returning: Returning | None
    given: Values | None = None
    """What the others gave where this rank has come back. None: it has not, or they have closed the vector."""

    @property
    def returning(self) -> Returning | None:
        """The ranks that come back, as this one takes them up. None: none may."""
        return self._returning

    def come_in(self, born: Sequence[int]) -> None:
        """Begin where the others are, as this rank has come back, with what one of them gives. One-sided.

        `born`: see `Returning`. PeerLost, DeadlinePassed, MemoryError, Refused: as `Returning.fetched`.
        """
        assert self._returning is not None
        self._returning.announce(born)
        step = self._returning.agreed()
        if step >= 0:
            self._begin_at(step)
            self.given = self._returning.fetched()
        if self.given is not None:
            self.take_over(self.given)

    def accompany(self, state: Callable[[], Mapping[str, Any]]) -> dict[str, Array] | None:
        """Send state() to ranks that come back (malt run --rejoin), in addition to the contents of this vector. Local.

        Return what this rank received in this way after coming back; None on others, or if they have closed the vector.
        `state()`: arrays and numbers by name, of the step at which such a rank begins. It is called within exchanges
        of this vector, and makes none itself.
        """
        if self._returning is None:
            return None
        self._returning.beside = state
        if self.given is None:
            return None
        return {name.removeprefix(BESIDE): one for name, one in self.given.items() if name.startswith(BESIDE)}

    def take_over(self, values: Values) -> None:
        """Make the array that of the rank which gave `values`. Local."""
        self._array[...] = values[ARRAY]

    def _begin_at(self, step: int) -> None:
        """Begin at `step`, where the others are. One-sided."""
        assert self._returning is not None
        self._returning.begin(step)
        self._step = self._begun = self._gathered_at = step
        with self._queues.turn.lock:
            self._topology.renew()

    def _begin_returning(self) -> None:
        """Take up ranks that come back from now on, where they may; the vector is made. Local."""
        transport, view = self._transport, self._transport.view
        if transport.returns is not None:
            self._returning = Returning(
                transport, transport.returns, self._queues, view.era, lambda: {ARRAY: self._array},
                self._consistency,
            )  # fmt: skip
            self._returning.ended = self._ended
            if self._consistency.is_stepwise:
                transport.returns.stepwise.append(self._returning)
            transport.duties.append(self._attend)

    def _ended(self) -> int | None:
        """The step of the last exchange; None: one is under way."""
        is_steady = self._returning is not None and self._returning.is_steady
        return self._step if is_steady and self._gathered_at == self._step else None

    def _poll_and_hold(self, returning: Returning) -> None:
        """Poll failures before a scatter; then hold where newcomers open vectors still. One-sided. DeadlinePassed."""
        if not returning.is_steady:
            self._begun = self._step + 1  # a Replica has begun the exchange: who is found now has no part in it
        self._transport.poll_failures()
        returning.before_exchange()

    def _end_returning(self) -> None:
        """Take up no rank any more: the memory is about to be freed. Local."""
        if self._attend in self._transport.duties:
            self._transport.duties.remove(self._attend)
        self._returning = None  # another thread may be about to attend

    def _absent(self) -> frozenset[int]:
        """The live ranks that have come back, and not opened this vector yet."""
        return frozenset() if self._returning is None else self._returning.absent()

    def _attend(self) -> None:
        """Take up ranks that come back, between two calls, and in waits. One-sided."""
        if not self._topology.is_present:
            with self._queues.turn.lent() as is_free:
                if is_free:
                    self._topology.follow()

    def _without_newcomers(self, peers: Sequence[int], step: int) -> Sequence[int]:
        """`peers` without the ranks that were taken up when `step` had begun."""
        if self._returning is None or not self._returning.since:
            return peers
        since = self._returning.since
        left = [peer for peer in peers if step > since.get(peer, 0)]
        for rank in [rank for rank, last in since.items() if last <= step]:
            del since[rank]
        if not since:
            self._settled()
        return left

    def _without_later(self, reached: Mapping[int, int]) -> Mapping[int, int]:
        """`reached`, by rank, without the ranks that have come back and begin after the present step."""
        if self._returning is None:
            return reached
        later = self._returning.begins_after
        return {peer: step for peer, step in reached.items() if not later(peer, self._step)}

    def _settled(self) -> None:
        """All newcomers take part from the next step on."""

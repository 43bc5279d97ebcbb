"""The part of a vector that takes up ranks which come back, and begins as that of such a rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dstorm import Queues, Transport
from dstorm.queues.consistency import Consistency
from vol.graphs.topology import Topology
from vol.returns.packing import Values
from vol.returns.returning import BESIDE, Returning
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

    def come_in(self, born: int) -> None:
        """Begin where the others are, as this rank has come back, with what one of them gives. One-sided.

        `born`: see `Returning.announce`. DeadlinePassed, MemoryError, Refused: as `Returning.fetched`.
        """
        assert self._returning is not None
        self._returning.announce(born)
        step, self.given = self._returning.fetched()
        if self.given is not None:
            self._step = self._begun = self._gathered_at = step
            self.take_over(self.given)
            self._returning.begin(step)
            with self._queues.call_lock.lock:
                self._topology.renew()

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

    def _begin_returning(self) -> None:
        """Take up ranks that come back from now on, where they may; the vector is made. Local."""
        transport = self._transport
        if transport.returns is not None:
            self._returning = Returning(
                transport, transport.returns, self._queues, lambda: {ARRAY: self._array},
                self._consistency, self._progress,
            )  # fmt: skip
            if self._consistency.is_stepwise:
                transport.returns.stepwise.append(self._returning)
            transport.duties.append(self._attend)

    def _progress(self) -> tuple[int, bool]:
        """The step of the last exchange, or of the one under way; whether it is the last one."""
        is_steady = self._returning is not None and self._returning.is_steady
        return self._begun, is_steady and self._begun == self._gathered_at

    def _end_returning(self) -> None:
        """Take up no rank any more: the memory is about to be freed. Local."""
        if self._attend in self._transport.duties:
            self._transport.duties.remove(self._attend)
        self._returning = None  # another thread may be about to attend

    def _absent(self) -> frozenset[int]:
        """The live ranks that have come back, and are not in this vector yet."""
        return frozenset() if self._returning is None else self._returning.absent()

    def _attend(self) -> None:
        """Take up ranks that come back, between two calls, and in waits. One-sided."""
        returning = self._returning
        if not self._topology.is_present or (returning is not None and returning.is_held):
            with self._queues.call_lock.lent() as is_free:
                if is_free:
                    self._topology.follow()
                    if returning is not None:
                        returning.serve()

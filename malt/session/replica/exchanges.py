"""`malt.Exchanges`: when a loop exchanges that trains many rows in one call, or exchanges vectors itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from dstorm.waits.core_waits import waited_for_core_s
from malt.session import session
from malt.session.replica.options import bounds
from malt.session.replica.pacing import pacing
from vol import Vector, arguments

_SYNC: Final = "asp"
"""Ranks need not exchange together."""


class Exchanges:
    """Decides when this rank exchanges: at a fixed interval, or as often as is worth the cost.

        exchanges = malt.Exchanges(vectors=[v], epoch=len(rows))
        for part, due in exchanges.parts(rows):
            train(part)
            if due:
                with exchanges.exchange():
                    v.scatter()
                    v.gather(malt.AVG)

    Local. Use it where malt.Replica does not apply: for a kernel that trains many rows in one call, or a loop that
    exchanges vectors itself. `every`, `epoch`: as for malt.Replica; None is "auto". `first`: the interval at the start
    of "auto", and in malt.simulate, where work takes no time. `vectors`: what is exchanged, a list that may be filled
    later: "auto" counts their messages to other hosts. `done`: the counts of earlier runs, from which this one goes on.

    Each rank has an interval of its own. So "auto" is for "asp" and "ssp:S", and for "notify-ack".

    ValueError, TypeError: an argument is wrong.
    """

    def __init__(
        self, every: Any = None, *, epoch: int | None = None, first: int | None = None,
        vectors: Sequence[Vector] = (), done: int = 0,
    ) -> None:  # fmt: skip
        for name, value in (("epoch", epoch), ("first", first)):
            if value is not None:
                arguments.whole(name, value, 1)
        world, self._count, self._held_s = session.world(), arguments.whole("done", done, 0), 0.0
        self._clock = world.transport.clock
        is_timed = world.meter is None and not session.in_simulation()
        self._pacing = pacing(
            world.transport, vectors, bounds(every, _SYNC), is_timed, waited_for_core_s, epoch=epoch, first=first,
            count=self._count,
        )  # fmt: skip
        self.most = self._pacing.most
        """The most counts between two exchanges: for the capacity of messages. Infinity: no bound is known."""
        self._due_at: float = self._pacing.begin(self._count)
        world.exchanges = self

    @property
    def every(self) -> int:
        """The counts between two exchanges, now. Local."""
        return self._pacing.every

    def count(self, n: int = 1) -> bool:
        """Count `n` examples or batches; return whether an exchange is due. Local.

        TypeError, ValueError: `n` is not a non-negative integer.
        """
        self._count += arguments.whole("n", n, 0)
        if self._count < self._due_at:
            return False
        self._due_at = self._pacing.begin(self._count)  # also where nothing says what the exchange costs
        return True

    def parts(self, order: Any) -> Iterator[tuple[Any, bool]]:
        """Yield the parts of `order`, a sequence, one after the other: each with whether an exchange is due after it.

        The parts are slices of it. They are counted. Local.
        """
        place = 0
        while place < len(order):
            part = order[place : place + int(self._due_at) - self._count]
            place += len(part)
            yield part, self.count(len(part))

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Take what the block costs for an exchange that is due. Local; the block exchanges."""
        with self.part_of_exchange():
            yield
        self.end()

    @contextmanager
    def part_of_exchange(self) -> Iterator[None]:
        """Take what the block costs for a part of an exchange, which `end` ends. Local."""
        began_at = self._clock()
        yield
        self._held_s += self._clock() - began_at

    def end(self) -> None:
        """End an exchange: from here on the next one is due. Local."""
        self._pacing.begin(self._count)
        self._due_at, self._held_s = self._pacing.end(self._held_s), 0.0

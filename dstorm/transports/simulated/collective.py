"""A collective call of simulated ranks. Pure."""

from __future__ import annotations

from typing import Any

from dstorm.errors import MismatchedCalls


class Collective:
    """One collective call: by rank, the name and the argument of each rank's call."""

    def __init__(self, size: int) -> None:
        self.calls: list[str | None] = [None] * size
        self.things: list[Any] = [None] * size
        self.result: Any = None
        """The result for all ranks. The first rank that resumes computes it."""
        self.entered = 0
        """How many ranks have entered it."""
        self.is_over = False
        self._is_one_call = True
        self._first: str | None = None

    def add(self, rank: int, call: str, thing: Any) -> None:
        """Note the name and the argument of the call of `rank`. Local."""
        self.calls[rank], self.things[rank] = call, thing
        self.entered += 1
        self._first = self._first or call
        self._is_one_call = self._is_one_call and call == self._first

    def check(self, rank: int, call: str) -> None:
        """MismatchedCalls: a rank made another call than `rank`."""
        if not self._is_one_call:
            for other, its in enumerate(self.calls):
                if its not in (call, None):
                    raise MismatchedCalls(rank, call, other, its)

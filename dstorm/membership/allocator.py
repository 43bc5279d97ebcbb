"""Which parts of an arena are taken. Pure: no MPI, no clock.

All ranks take and give back alike, and so come to the same places without a word: where a part lies follows from what
was asked for before, and from nothing else.
"""

from __future__ import annotations

_ALIGNMENT = 4096


class Allocator:
    """`nbytes` of which parts are taken and given back."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._taken: dict[int, int] = {}
        """The end of each part that is taken, by its start."""

    @property
    def longest(self) -> int:
        """The longest part that can be taken."""
        return max((length for length, _ in self._gaps()), default=0)

    def take(self, nbytes: int) -> int:
        """Where a part of `nbytes` begins, which no other that is taken overlaps: a multiple of 4096, in the shortest
        gap that holds it. MemoryError: none does."""
        length = _aligned(nbytes)
        fitting = [gap for gap in self._gaps() if gap[0] >= length]
        if not fitting:
            raise MemoryError(f"{nbytes} bytes are wanted, {self.longest} are left in one piece")
        _, start = min(fitting)
        self._taken[start] = start + length
        return start

    def give_back(self, start: int) -> None:
        """The part that begins at `start` can be taken again. KeyError: there is none."""
        del self._taken[start]

    def _gaps(self) -> list[tuple[int, int]]:
        """(length, start) of each that is not taken; its length is that of whole parts."""
        end_of_all = self._nbytes // _ALIGNMENT * _ALIGNMENT
        starts, ends = [*sorted(self._taken), end_of_all], [0, *sorted(self._taken.values())]
        return [(start - end, end) for start, end in zip(starts, ends, strict=True) if start > end]


def _aligned(nbytes: int) -> int:
    return -(-max(nbytes, 1) // _ALIGNMENT) * _ALIGNMENT

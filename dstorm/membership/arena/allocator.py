"""The allocator of an arena. Pure: no MPI, no clock.

All ranks make the same calls in the same order. So they get the same offsets without communication.
"""

from __future__ import annotations

from collections.abc import Mapping

_ALIGNMENT = 4096


class Allocator:
    """An allocator of parts of `nbytes` bytes. All methods are Local."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._taken: dict[int, int] = {}
        """The end of each taken part, by its start."""
        self._lent: dict[int, int] = {}
        """As `_taken`, of parts that this rank alone uses for a while. They are free for the others."""

    @property
    def longest(self) -> int:
        """Length of the longest part that can be taken, in bytes."""
        return max((length for length, _ in self._gaps()), default=0)

    def take(self, nbytes: int) -> int:
        """Take a part of `nbytes` bytes; return its offset, a multiple of 4096.

        It lies in the shortest gap that holds it. MemoryError: no gap does; nothing is taken.
        """
        length = _aligned(nbytes)
        fitting = [gap for gap in self._gaps() if gap[0] >= length]
        if not fitting:
            raise MemoryError(f"{nbytes} bytes are wanted, {self.longest} are left in one piece")
        _, start = min(fitting)
        self._taken[start] = start + length
        return start

    def lend(self, nbytes: int) -> int | None:
        """The offset of `nbytes` bytes that this rank may use until others take them; None: there are none.

        They lie at the end of the longest gap.
        """
        length, start = max(self._gaps_of({**self._taken, **self._lent}), default=(0, 0))
        if length < _aligned(nbytes):
            return None
        offset = start + length - _aligned(nbytes)
        self._lent[offset] = start + length
        return offset

    def take_back(self, offset: int) -> None:
        """End the use of what `lend` gave."""
        self._lent.pop(offset, None)

    @property
    def taken(self) -> dict[int, int]:
        """The end of each taken part, by its start: a copy."""
        return dict(self._taken)

    def take_over(self, taken: Mapping[int, int]) -> None:
        """Let exactly these parts be taken, as `taken` of another rank has them."""
        self._taken = dict(taken)

    def give_back(self, start: int) -> None:
        """Give the part at offset `start` back. KeyError: no part begins there."""
        del self._taken[start]

    def _gaps(self) -> list[tuple[int, int]]:
        return self._gaps_of(self._taken)

    def _gaps_of(self, taken: Mapping[int, int]) -> list[tuple[int, int]]:
        """The gaps between the parts `taken`, as (length, start)."""
        end_of_all = self._nbytes // _ALIGNMENT * _ALIGNMENT
        starts, ends = [*sorted(taken), end_of_all], [0, *sorted(taken.values())]
        return [(start - end, end) for start, end in zip(starts, ends, strict=True) if start > end]


def _aligned(nbytes: int) -> int:
    return -(-max(nbytes, 1) // _ALIGNMENT) * _ALIGNMENT

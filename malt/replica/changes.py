"""Detection of arrays that a loop does not change in place."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from vol.update import Array

CHECKS = 3
"""An array that is unchanged in so many checks is warned about."""


class Changes:
    """The arrays that have not been seen to change between two exchanges yet. Local.

    `names`: the names of the arrays to watch, by place. Each array is watched until it has changed once.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._left = dict.fromkeys(names, 0)
        """The last checksums of the arrays that have not changed yet, by place."""
        self._names = names
        self._checks = 0

    def record(self, arrays: Sequence[Array]) -> None:
        """Record the arrays as they are now, before the loop goes on."""
        for place in self._left:
            self._left[place] = checksum(arrays[place])

    def check(self, arrays: Sequence[Array]) -> None:
        """Stop watching the arrays that have changed since `record`."""
        self._left = {place: was for place, was in self._left.items() if checksum(arrays[place]) == was}
        self._checks += 1

    @property
    def is_over(self) -> bool:
        """Whether all arrays have changed, or were checked often enough."""
        return not self._left or self._checks == CHECKS

    @property
    def unchanged(self) -> list[str]:
        """The names of the arrays that have not changed."""
        return [self._names[place] for place in self._left]


def warning(replica: str, names: Sequence[str]) -> str:
    """The warning about arrays that have not changed. Pure."""
    return (
        f"malt: {replica}: {', '.join(names)} did not change between exchanges: does the loop make a new array, as in "
        "w = w + g, which the Replica does not know of? Change it in place (w += g), or give malt.Replica the dict or "
        "list that holds it, or a function that returns it (lambda: model.coef_), with set= where that cannot be "
        "written into. An array that is frozen may be left out."
    )


def checksum(array: Array) -> int:
    """The CRC-32 of all bytes of `array`. Pure."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

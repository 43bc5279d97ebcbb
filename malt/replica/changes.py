"""Which of some arrays the loop has been seen to change."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from vol.update import Array

LOOKS = 3
"""So often an array may look as it was left before it is warned about."""


class Changes:
    """Watches arrays, named by their places, until each has once been seen to change between two exchanges. Local."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._left = dict.fromkeys(names, 0)
        """The checksums that were left, by place, of those not seen to change yet."""
        self._names = names
        self._looks = 0

    def leave(self, arrays: Sequence[Array]) -> None:
        """The arrays are left to the loop as they are now."""
        for place in self._left:
            self._left[place] = checksum(arrays[place])

    def look(self, arrays: Sequence[Array]) -> None:
        """Look which have changed since they were left."""
        self._left = {place: was for place, was in self._left.items() if checksum(arrays[place]) == was}
        self._looks += 1

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to see."""
        return not self._left or self._looks == LOOKS

    @property
    def unseen(self) -> list[str]:
        """The names of those that have not been seen to change."""
        return [self._names[place] for place in self._left]


def warning(replica: str, names: Sequence[str]) -> str:
    """What is said of arrays that have not been seen to change."""
    return (
        f"malt: {replica}: {', '.join(names)} did not change between exchanges: does the loop make a new array, as in "
        "w = w + g, which the Replica does not know of? Change it in place (w += g), or give malt.Replica the dict or "
        "list that holds it, or a function that returns it (lambda: model.coef_), with set= where that cannot be "
        "written into. An array that is frozen may be left out."
    )


def checksum(array: Array) -> int:
    """Of all its bytes. Pure."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

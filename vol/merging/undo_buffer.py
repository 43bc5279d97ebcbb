"""The values from before a change in place, which come back where it fails: it is made whole, or not at all. Pure.

Malt's own handlers of signals defer their errors until a change is whole (dstorm/waits/interruption.py). What else may
raise within one is NumPy, where numpy.seterr has it so or warnings are errors, or a handler of the program's own.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from vol.update import Array

FEW: Final = 65_536
"""So many elements are kept in the cache of a core, in less time than their merge takes."""


class UndoBuffer:
    """The values of a flat array from before a change in place, block by block. Local."""

    __slots__ = ("_count", "_values")

    def __init__(self, values: Array) -> None:
        self._values = values
        """Memory for them: as long as the array, of its dtype."""
        self._count = 0
        """How many of them are kept."""

    def clear(self) -> None:
        """Drop the values."""
        self._count = 0

    def keep(self, block: Array) -> None:
        """Keep the values of the next block of the array."""
        end = self._count + block.size
        self._values[self._count : end] = block
        self._count = end

    def restore(self, array: Array) -> None:
        """Write the values that are kept back into the array."""
        array[: self._count] = self._values[: self._count]


def is_kept(size: int) -> bool:
    """Return whether the values of `size` elements are kept while they change. Local.

    Many are only where NumPy may raise: a copy of them takes about as long as a merge.
    """
    return size <= FEW or _numpy_may_raise()


def _numpy_may_raise() -> bool:
    if any(how in ("raise", "call", "log") for how in np.geterr().values()):
        return True
    return any(action == "error" for action, *_ in warnings.filters)


@contextlib.contextmanager
def all_or_nothing(*arrays: Array, rows: NDArray[np.intp] | None = None) -> Iterator[None]:
    """Restore `arrays`, which the block changes in place, if the block raises and they were kept. Local.

    `rows`: those that it changes; None: all.
    """
    size = sum(array.size if rows is None else len(rows) * math.prod(array.shape[1:]) for array in arrays)
    place = slice(None) if rows is None else rows
    kept = [array[place].copy() for array in arrays] if is_kept(size) else []
    try:
        yield
    except BaseException:
        for array, values in zip(arrays, kept, strict=False):
            array[place] = values
        raise

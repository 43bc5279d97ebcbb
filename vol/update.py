"""The update: one message of one sender, as a gather function receives it. What a gather returns. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Update:
    """One whole message."""

    sender: int
    """The rank that sent it."""
    step: int
    """The step of the sender at the scatter."""
    lag: int
    """The step of this rank minus `step`."""
    weight: float
    """The weight that the sender gave to `scatter`."""
    share: float
    """The part of the sender's mass that the message carries, for malt.PUSH_SUM."""
    rows: NDArray[np.integer] | None
    """The rows that `values` holds, ascending; None if it holds all of them."""
    values: Array
    """The values, of the dtype of the vector, in the shape of the vector or of those rows. Users get a copy."""


@dataclass(slots=True)
class Gathered:
    """The result of a gather. True if it merged at least one update."""

    senders: tuple[int, ...] = ()
    """The sender of each update, ascending."""
    steps: tuple[int, ...] = ()
    """The step of each update, in the order of `senders`."""
    lag: int = 0
    """The step of this rank minus the lowest of `steps`; 0 without updates."""

    @property
    def count(self) -> int:
        """The number of updates merged."""
        return len(self.senders)

    def __bool__(self) -> bool:
        return bool(self.senders)

"""The places of exchanges within an epoch. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Order = NDArray[Any]


def as_many(order: Order, count: int, most_rows: int) -> Iterator[tuple[Order, bool]]:
    """The parts of an epoch's examples if all ranks synchronize after it: an exchange is due after each part.

    All ranks make the same number of exchanges, that of a rank with `most_rows` rows. Otherwise a rank could wait in an
    exchange for one that already waits at the end of the epoch.
    """
    return ((part, True) for part in np.array_split(order, -(-most_rows // count)))


def as_often(counts: Collection[int], epochs: int, every: int, at_ends: bool = False) -> bool:
    """Return whether ranks have made the same number of exchanges after `epochs`.

    `counts`: what each rank counts in an epoch. They exchange at multiples of `every`; if `at_ends`, also at the end of
    an epoch, if something was counted since the last exchange.
    """

    def made(count: int) -> int:
        """The exchanges of a rank."""
        ends = sum(count * epoch % every > 0 for epoch in range(1, 1 + epochs)) if at_ends and count else 0
        return count * epochs // every + ends

    return len({made(count) for count in counts}) == 1

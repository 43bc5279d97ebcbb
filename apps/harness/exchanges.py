"""Where exchanges fall in an epoch. Pure."""

from __future__ import annotations

from collections.abc import Iterator
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

"""Where in an epoch exchanges fall. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Order = NDArray[Any]


def every(order: Order, count: int, done: int) -> Iterator[tuple[Order, bool]]:
    """The parts of an epoch's examples, and whether an exchange is due after each: one every `count` examples, whatever
    the epochs. `done`: examples trained on before."""
    first = count - done % count
    ends = [*range(first, len(order) + 1, count)]
    yield from ((part, True) for part in np.split(order, ends)[: len(ends)])
    if (rest := order[ends[-1] if ends else 0 :]).size:
        yield rest, False


def as_many(order: Order, count: int, most_rows: int) -> Iterator[tuple[Order, bool]]:
    """The same where all ranks come together after each epoch: all make as many exchanges in it as the rank of
    `most_rows` does. A rank that waits in an exchange for one that waits for it after the epoch would wait long."""
    return ((part, True) for part in np.array_split(order, -(-most_rows // count)))

"""What a gather function is given: one update of one sender."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Update:
    """A whole message, as a gather function sees it."""

    sender: int
    """Rank that sent it."""
    step: int
    """The sender's step when it was sent."""
    lag: int
    """This rank's step minus the sender's."""
    weight: float
    """As given to `scatter`."""
    share: float
    """The part of its sender's mass that came with it, for malt.PUSH_SUM."""
    rows: NDArray[np.integer] | None
    """The rows that `values` holds; None: all of them."""
    values: Array
    """The vector's dtype and shape. In a user's function a private copy, safe to keep."""

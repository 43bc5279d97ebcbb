"""Changes of a model that are sent as their sums since the start, so that no message is missed that is overwritten.

Averages of models under asp are held back by old models: a rank merges what the others were one exchange ago, or more.
A change counts once, whenever it arrives.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from vol import DenseVector, Gathered, Update
from vol.merge import wide_dtype
from vol.update import Array


class ChangeSums:
    """The sum of this rank's changes, and those of other ranks that it has merged. Local."""

    def start(self, like: Array, sources: Collection[int]) -> None:
        """Begin with sums of zero, of the shape of `like`. `sources`: the ranks whose changes arrive from the start."""
        self._own = np.zeros(like.shape, wide_dtype(like.dtype))
        self._received: dict[int, Array | None] = dict.fromkeys(sources)
        self._new = np.zeros_like(like)

    def exchange(self, vector: DenseVector, count: float) -> Gathered:
        """Add the changes of other ranks that are new to vector.array, which holds this rank's. One-sided.

        The vector carries sums meanwhile. `count`: the weight of the message.
        """
        np.copyto(self._new, vector.array)
        self._own += vector.array
        np.copyto(vector.array, self._own, casting="same_kind")
        vector.scatter(weight=count)
        gathered = vector.gather(self._take)
        np.copyto(vector.array, self._new)
        return gathered

    def _take(self, own: Array, updates: list[Update]) -> None:
        """Add what is new in the newest sum of each sender.

        A rank that became a neighbour when another failed has been one of none: its first sum is what it begins with.
        """
        for sender, values in {update.sender: update.values for update in updates}.items():
            before = self._received.get(sender, values)
            self._new += values if before is None else values - before
            self._received[sender] = values

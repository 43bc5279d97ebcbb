"""Changes of a model that are sent as their sums since the start, so that no message is missed that is overwritten.

Averages of models under asp are held back by old models: a rank merges what the others were one exchange ago, or more.
A change counts once, whenever it arrives.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from vol import DenseVector, GatherFunction
from vol.merge import Own, Updates, wide_dtype
from vol.update import Array


class ChangeSums:
    """The sum of this rank's changes, and those of other ranks that it has merged. Local."""

    def start(self, like: Array, sources: Collection[int]) -> None:
        """Begin with sums of zero, of the shape of `like`. `sources`: the ranks whose changes arrive from the start."""
        self._own = np.zeros(like.shape, wide_dtype(like.dtype))
        self._received = {rank: np.zeros_like(like) for rank in sources}
        self._new, self._difference = np.zeros_like(like), np.empty_like(like)
        self._function = GatherFunction("sums of changes", newest=True, merge=self._take)

    def exchange(self, vector: DenseVector) -> None:
        """Add the changes of other ranks that are new to vector.array, which holds this rank's. One-sided.

        The vector carries sums meanwhile.
        """
        np.copyto(self._new, vector.array)
        self._own += vector.array
        np.copyto(vector.array, self._own, casting="same_kind")
        vector.scatter()
        vector.gather(self._function)
        np.copyto(vector.array, self._new)

    def _take(self, own: Own, updates: Updates) -> None:
        """Add what is new in the newest sum of each sender. The array of the vector stays as it is.

        A rank that became a neighbour when another failed has been none: its first sum is where it begins.
        """
        for update in updates:
            if update.sender not in self._received:
                self._received[update.sender] = update.values.copy()
            before = self._received[update.sender]
            self._new += np.subtract(update.values, before, out=self._difference)
            np.copyto(before, update.values)

"""A factorization: its rows, and its predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from malt.models.factors import compiled
from malt.models.factors.problem import Numbers, Rows


@dataclass(frozen=True, eq=False)
class Model:
    """A factorization. Its ratings are mean + spread (b_u + b_i + p_u . q_i), clipped to low and high. Local."""

    users: Rows
    """(users, rank + 1): p, and b in the last column."""
    items: Rows
    user_ids: NDArray[Any]
    """The id of each row of `users`, ascending: int64 or bytes."""
    item_ids: NDArray[Any]
    mean: float
    """The mean of the training ratings."""
    spread: float
    """The standard deviation of the training ratings."""
    low: float
    """The lowest training rating."""
    high: float
    """The highest training rating."""
    biases: bool
    """Whether users and items have biases. Otherwise the last columns are zeros."""

    @property
    def rank(self) -> int:
        """The length of p and q."""
        return int(self.items.shape[1]) - 1

    def predict(self, user_ids: NDArray[Any], item_ids: NDArray[Any]) -> NDArray[np.float64]:
        """The predicted rating of each pair of a user and an item, float64. Unknown ids add nothing to the mean."""
        whose, which = numbered(self.user_ids, user_ids), numbered(self.item_ids, item_ids)
        scaled = compiled.predict(self.users, self.items, whose, which)
        return np.clip(self.mean + self.spread * scaled.astype(np.float64), self.low, self.high)


def numbered(known: NDArray[Any], ids: NDArray[Any]) -> Numbers:
    """The index of each of `ids` in `known`, which is ascending; -1 for an id that is not there. int32. Local."""
    if known.dtype.kind != ids.dtype.kind:  # numbers in one, names in the other: compared as names
        names = known.astype("S")
        order = np.argsort(names)
        places = numbered(names[order], ids.astype("S"))
        return np.where(places < 0, -1, order[places]).astype(np.int32)
    if not known.size:
        return np.full(ids.shape, -1, np.int32)
    places = np.minimum(np.searchsorted(known, ids), known.size - 1)
    return np.where(known[places] == ids, places, -1).astype(np.int32)

"""Owners of unequal size dealt out to ranks, so that each gets about as much. Pure."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

HEAVY: Final = 1024
"""So many of the largest are dealt one by one, each to the rank that has least so far."""


def deal(counts: NDArray[np.integer[Any]], ranks: int) -> NDArray[np.int32]:
    """The rank of each owner, given how much each has.

    The largest are dealt singly; the others, in an order that has nothing to do with theirs, fill all ranks up to the
    same level. Loads differ by no more than the largest of those others, unless one of the first is more than a share.
    """
    rank_of = np.zeros(counts.size, dtype=np.int32)
    by_size = np.argsort(-counts.astype(np.int64), kind="stable")
    heavy, light = by_size[:HEAVY], by_size[HEAVY:]
    loads = np.zeros(ranks, dtype=np.int64)
    for owner in heavy:
        rank_of[owner] = loads.argmin()
        loads[rank_of[owner]] += counts[owner]
    if light.size:
        light = np.random.default_rng(0).permutation(np.sort(light))
        middles = np.cumsum(counts[light], dtype=np.float64) - counts[light] / 2
        rank_of[light] = np.searchsorted(np.cumsum(_room(loads, counts[light].sum()))[:-1], middles)
    return rank_of


def _room(loads: NDArray[np.int64], total: int) -> NDArray[np.float64]:
    """How much of `total` each rank takes for all to reach one level; nothing where a rank is above that."""
    ascending = np.sort(loads)
    levels = (total + np.cumsum(ascending)) / np.arange(1, loads.size + 1)  # were only the first so many to be filled
    level = levels[np.flatnonzero(levels >= ascending)[-1]]
    return np.asarray(np.maximum(level - loads, 0.0))

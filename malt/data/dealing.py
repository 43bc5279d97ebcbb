"""Items of unequal size, dealt to ranks so that each rank gets about the same total. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from vol import arguments

HEAVY: Final = 1024
"""The number of largest items that are dealt one by one, each to the rank with the smallest total so far."""


def deal(counts: NDArray[np.integer[Any]], ranks: int) -> NDArray[np.int32]:
    """Return the rank of each item, given the size of each, integers: an array of int32 in the order of `counts`.

    The HEAVY largest items are dealt one by one. The others, in a fixed random order, fill all ranks up to the same
    level. The totals of two ranks differ by at most the largest of those others, unless one of the largest items
    exceeds the share of a rank.

    ValueError, TypeError: `counts` are not sizes, or `ranks` is not an integer of at least 1.
    """
    counts, ranks = np.asarray(counts), arguments.whole("malt.data.deal: ranks", ranks, 1)
    if counts.ndim != 1 or (counts.size and counts.dtype.kind not in "iu") or counts.min(initial=0) < 0:
        raise ValueError("malt.data.deal: counts must be a list of integers of at least 0")
    rank_of = np.zeros(counts.size, dtype=np.int32)
    by_size = np.argsort(-counts.astype(np.int64), kind="stable")
    heavy, light = by_size[:HEAVY], by_size[HEAVY:]
    loads = np.zeros(ranks, dtype=np.int64)
    for item in heavy:
        rank_of[item] = loads.argmin()
        loads[rank_of[item]] += counts[item]
    if light.size:
        light = np.random.default_rng(0).permutation(np.sort(light))
        middles = np.cumsum(counts[light], dtype=np.float64) - counts[light] / 2
        rank_of[light] = np.searchsorted(np.cumsum(_shares(loads, counts[light].sum()))[:-1], middles)
    return rank_of


def inherit(owners: NDArray[np.int32], failed: Collection[int], ranks: int) -> NDArray[np.int32]:
    """Return the rank of each item, once the ranks of `failed` have failed: a new array.

    `owners` holds the rank of each item without failures. Items of failed ranks are dealt to the live ranks by hash.
    The order of failures does not matter. A live rank keeps its items when more ranks fail (highest random weight:
    Thaler and Ravishankar 1998).
    """
    moved = np.flatnonzero(np.isin(owners, sorted(failed)))
    living = np.array(sorted(set(range(ranks)) - set(failed)))
    weights = _mixed(moved.astype(np.uint64)[:, np.newaxis] * np.uint64(ranks) + living.astype(np.uint64))
    dealt = owners.copy()
    dealt[moved] = living[weights.argmax(axis=1)]
    return dealt


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each number (splitmix64)."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _shares(loads: NDArray[np.int64], total: int) -> NDArray[np.float64]:
    """Return how much of `total` each rank takes so that all reach one level; 0 for a rank above that level."""
    ascending = np.sort(loads)
    levels = (total + np.cumsum(ascending)) / np.arange(1, loads.size + 1)  # if the first 1, 2, ... were filled
    level = levels[np.flatnonzero(levels >= ascending)[-1]]
    return np.asarray(np.maximum(level - loads, 0.0))

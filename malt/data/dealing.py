"""Owners of unequal size dealt out to ranks, so that each gets about as much. Pure."""

from __future__ import annotations

from collections.abc import Collection
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
        rank_of[light] = np.searchsorted(np.cumsum(_allocator(loads, counts[light].sum()))[:-1], middles)
    return rank_of


def inherit(owners: NDArray[np.int32], failed: Collection[int], ranks: int) -> NDArray[np.int32]:
    """Who has what once the ranks of `failed` have died: what was theirs is dealt to the living, as if at random. Who
    died first does not matter, and what a living rank has it keeps, also when more die (highest random weight: Thaler
    and Ravishankar 1998)."""
    lost = np.flatnonzero(np.isin(owners, sorted(failed)))
    living = np.array(sorted(set(range(ranks)) - set(failed)))
    weights = _mixed(lost.astype(np.uint64)[:, np.newaxis] * np.uint64(ranks) + living.astype(np.uint64))
    heirs = owners.copy()
    heirs[lost] = living[weights.argmax(axis=1)]
    return heirs


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers that look random, of different ones (splitmix64)."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _allocator(loads: NDArray[np.int64], total: int) -> NDArray[np.float64]:
    """How much of `total` each rank takes for all to reach one level; nothing where a rank is above that."""
    ascending = np.sort(loads)
    levels = (total + np.cumsum(ascending)) / np.arange(1, loads.size + 1)  # were only the first so many to be filled
    level = levels[np.flatnonzero(levels >= ascending)[-1]]
    return np.asarray(np.maximum(level - loads, 0.0))

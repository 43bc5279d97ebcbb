"""The tokens of each topic, by word: a sharded vector of shape (words, topics), whose parts go round the ranks.

The words of a part follow each other. Words are dealt to parts by how often they are there, so that parts have about as
many tokens. A rank has memory for two parts: at each moment it changes the one, while the rank before it may still read
the other. In a visit of all parts each goes once round, and comes home.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

import malt
from apps.harness import Array
from apps.lda.kernels import Doubles, Floats
from malt.models import compared_parts, moved


class Counts:
    """The counts, zeros at first. The constructor is collective.

    `frequencies`: the tokens of each word. `ranks`: those that have a part. PeerLost: one of them has failed.
    """

    def __init__(self, frequencies: NDArray[np.int64], topics: int, ranks: tuple[int, ...]) -> None:
        self._parts, self._home = len(ranks), ranks.index(malt.rank())
        self._size = -(-len(frequencies) // self._parts)
        """The words of a part; the last row of some parts has none."""
        self.bounds = np.arange(self._parts + 1) * self._size
        """Where parts begin, and the last ends."""
        self.places = _dealt(frequencies, self.bounds)
        """The row of each word."""
        self.totals = np.zeros(topics)
        """The tokens of each topic."""
        self._rows = malt.sharded((2 * int(self.bounds[-1]), topics))
        if absent := set(ranks) - set(self._rows.owners):
            raise malt.PeerLost(min(absent), "it has no part of the counts")
        self._changes = malt.vector(np.zeros(topics + 1), sync="bsp")
        """What the last step has changed of the totals, and what its work returned: after it the sums over ranks."""
        self._half = 0
        """The half of each rank's memory where its part is."""
        self.traffic = [moved(self._rows), self._changes]

    def close(self) -> None:
        """Let go of what ranks exchange, but of the rows. One-sided. A second call does nothing."""
        self._changes.close()

    @property
    def local(self) -> Floats:
        """The rows of this rank: a view. Local."""
        rows: Floats = self._held()[: len(self.words)]
        return rows

    @property
    def words(self) -> NDArray[np.int64]:
        """The words of these rows. Local."""
        mine = np.flatnonzero(self.places // self._size == self._home)
        return mine[np.argsort(self.places[mine])]

    def visit(self, work: Callable[[int, int, Floats, Doubles], float]) -> float:
        """Call work(part, its first row, its rows, totals) for each part; return the sum over ranks. Collective.

        It changes rows and totals in place. PeerLost, on all ranks: a rank has failed with its rows.
        """
        found = sum(self._visit((self._home + step) % self._parts, work) for step in range(1, self._parts + 1))
        malt.barrier()
        return found

    def _visit(self, part: int, work: Callable[[int, int, Floats, Doubles], float]) -> float:
        """Work on a part, which the next rank has held until now.

        The gather takes what all ranks have sent at the end of this step. So nobody reads a part before its holder has
        left it, and nobody changes a half of the memory that is still being read. Where a rank has failed the others
        make the rest of the steps, and the barrier raises PeerLost on all.
        """
        changes = self._changes.array
        changes[:-1], changes[-1] = self.totals, 0.0
        with suppress(malt.PeerLost):  # on this rank alone
            held = self._taken()
            changes[-1] = work(part, int(self.bounds[part]), held, changes[:-1])
        changes[:-1] -= self.totals
        self._changes.scatter()
        self._changes.gather(malt.SUM)
        self.totals += changes[:-1]
        return float(changes[-1])

    def _taken(self) -> Floats:
        """The part that the next rank holds, now in this rank's memory. PeerLost: that rank has failed."""
        if self._parts > 1:
            there = (2 * ((self._home + 1) % self._parts) + self._half) * self._size
            self._half = 1 - self._half
            self._rows.pull(slice(there, there + self._size), self._held())
        return self._held()

    def _held(self) -> Floats:
        """The memory of this rank where its part is: a view."""
        start = self._half * self._size
        rows: Floats = self._rows.local[start : start + self._size]
        return rows

    def of_words(self, words: NDArray[Any]) -> Floats:
        """The counts of some words. Collective. PeerLost, on all ranks: a rank has failed with its rows."""
        rows = np.empty((len(words), len(self.totals)), np.float32)
        with suppress(malt.PeerLost):
            self._rows.pull(self._at(words), rows)
        malt.barrier()
        return rows

    def whole(self) -> Floats:
        """All counts, by word. One-sided."""
        rows: Floats = self._rows.pull(self._at(slice(None)))
        return rows

    def _at(self, words: Any) -> NDArray[np.int64]:
        """The rows of the sharded vector where the counts of some words are."""
        places = self.places[words]
        rows: NDArray[np.int64] = places + (places // self._size + self._half) * self._size
        return rows

    def compared(self) -> Mapping[str, Array]:
        """The hash of each part, which is the same on all ranks. Collective."""
        return compared_parts(self._held().tobytes(), self._rows.owners)


def _dealt(frequencies: NDArray[np.int64], bounds: NDArray[Any]) -> NDArray[np.int64]:
    """The row of each word: the most frequent ones one to each part, then as many from the last part to the first..."""
    part = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    depth = np.arange(bounds[-1]) - bounds[part]
    rows = np.lexsort((np.where(depth % 2, -part, part), depth))
    places = np.empty(len(frequencies), np.int64)
    places[np.argsort(-frequencies, kind="stable")] = rows[: len(places)]
    return places

"""The tokens of each topic, by word: a sharded vector of shape (words, topics), of which ranks visit part after part.

The words of a part follow each other. Words are dealt to parts by how often they are there, so that parts have about as
many tokens. At each moment each rank has another part: it pulls the part, changes the copy and pushes the change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import malt
from apps.harness import Array
from apps.lda.kernels import Doubles, Floats


class Counted(NamedTuple):
    """Traffic, as the harness counts that of a vector."""

    statistics: Any
    array: Array


class Counts:
    """The counts, zeros at first. The constructor is collective. `frequencies`: the tokens of each word."""

    def __init__(self, frequencies: NDArray[np.int64], topics: int) -> None:
        words = len(frequencies)
        self._rows = malt.sharded((words, topics))
        parts = len(self._rows.owners)
        self.bounds = np.arange(parts + 1) * words // parts
        """Where parts begin, and the last ends."""
        self.places = _dealt(frequencies, self.bounds)
        """The row of each word."""
        self.totals = np.zeros(topics)
        """The tokens of each topic."""
        self.counted = Counted(self._rows.statistics, np.empty(0))

    @property
    def local(self) -> Floats:
        """The rows of this rank: a view. Local."""
        rows: Floats = self._rows.local
        return rows

    @property
    def words(self) -> NDArray[np.int64]:
        """The words of these rows. Local."""
        words: NDArray[np.int64] = np.argsort(self.places)[self._rows.range]
        return words

    def visit(self, work: Callable[[int, int, Floats, Doubles], float]) -> float:
        """Call work(part, its first row, its rows, totals) for each part; return the sum over ranks. Collective.

        It changes rows and totals in place. PeerLost, on all ranks: a rank has failed with its rows.
        """
        parts, found = len(self._rows.owners), 0.0
        first = self._rows.owners.index(malt.rank())
        for step in range(parts):
            found += self._visit((first + step) % parts, work)
        return found

    def _visit(self, part: int, work: Callable[[int, int, Floats, Doubles], float]) -> float:
        rows = slice(int(self.bounds[part]), int(self.bounds[part + 1]))
        numbers = np.append(self.totals, 0.0)
        with suppress(malt.PeerLost):  # on this rank alone: the barrier raises it on all
            held = self._rows.pull(rows)
            old = held.copy()
            numbers[-1] = work(part, rows.start, held, numbers[:-1])
            self._rows.push(np.subtract(held, old, out=held), rows)
        numbers[:-1] -= self.totals
        malt.allreduce(numbers, "sum")
        malt.barrier()
        self.totals += numbers[:-1]
        return float(numbers[-1])

    def of_words(self, words: NDArray[Any]) -> Floats:
        """The counts of some words. Collective. PeerLost, on all ranks: a rank has failed with its rows."""
        rows = np.empty((len(words), len(self.totals)), np.float32)
        with suppress(malt.PeerLost):
            self._rows.pull(self.places[words], rows)
        malt.barrier()
        return rows

    def whole(self) -> Floats:
        """All counts, by word. One-sided."""
        rows: Floats = self._rows.pull(self.places)
        return rows

    def compared(self) -> Mapping[str, Array]:
        """The hash of each part, which is the same on all ranks. Collective."""
        digest = hashlib.sha256(self._rows.local.tobytes()).digest()
        parts = malt.allgather(np.frombuffer(digest, np.uint8))
        malt.barrier()  # raises PeerLost where a part is missing
        return {"parts": np.stack([parts[rank] for rank in self._rows.owners])}


def _dealt(frequencies: NDArray[np.int64], bounds: NDArray[Any]) -> NDArray[np.int64]:
    """The row of each word: the most frequent ones one to each part, then as many from the last part to the first..."""
    part = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    depth = np.arange(bounds[-1]) - bounds[part]
    rows = np.lexsort((np.where(depth % 2, -part, part), depth))
    places = np.empty(len(frequencies), np.int64)
    places[np.argsort(-frequencies, kind="stable")] = rows
    return places

"""Which rows are dirty for whom: changed, bit by bit, and not yet sent to that peer. Pure: no MPI, no clock.

A shadow holds each row as it was when last looked at. Rows that differ from it are *news*, owed to every peer; a
scatter that leaves some peers out turns news into the *backlog* of those. Most of the time nobody is behind, and all
peers are owed one and the same set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from vol.rows import Rows
from vol.update import Array

_BLOCK = 16_384
"""Words compared at once: a block of the array, of its shadow, and the marks stay in a core's cache."""

Marks = NDArray[np.bool_]


class DirtyRows:
    """The dirty rows of `array`, of shape (n, width), which its owner goes on changing; clean at first, for `peers`."""

    def __init__(self, array: Array, peers: Iterable[int]) -> None:
        self._words = _as_words(array)
        self._shadow = self._words.copy()
        self._differs = np.empty((max(_BLOCK // max(self._words.shape[1], 1), 1), self._words.shape[1]), bool)
        self._news: Marks = np.zeros(len(array), bool)
        self._peers = frozenset(peers)
        self._backlog: dict[int, Marks] = {}
        self._behind: set[int] = set()
        """Those whose backlog may hold a row."""

    def look(self) -> None:
        """Note all rows that changed since they were last looked at: reads the array and its shadow once."""
        step = len(self._differs)
        for start in range(0, len(self._words), step):
            words, shadow = self._words[start : start + step], self._shadow[start : start + step]
            differs = np.not_equal(words, shadow, out=self._differs[: len(words)])
            if differs.any():
                self._news[start : start + step] |= differs.any(axis=1)
                np.copyto(shadow, words)

    def note(self, rows: Rows) -> None:
        """Note which of `rows` changed since they were last looked at."""
        if len(rows) == len(self._words):
            self.look()
            return
        for start in range(0, len(rows), len(self._differs)):
            some = rows[start : start + len(self._differs)]
            words = self._words[some]
            self._news[some] |= np.not_equal(words, self._shadow[some]).any(axis=1)
            self._shadow[some] = words

    def ignore(self, rows: Rows) -> None:
        """Take `rows` as they are now for looked at: what changed them since is no news."""
        if len(rows) == len(self._words):
            np.copyto(self._shadow, self._words)
        else:
            self._shadow[rows] = self._words[rows]

    def news(self) -> Rows:
        """The rows noted that are owed to every peer, ascending."""
        return np.flatnonzero(self._news)

    def owed(self, peers: Iterable[int], news: Rows) -> list[tuple[Rows, list[int]]]:
        """What is owed to `peers`, and to whom of them: ascending sets; first `news`, to all that are not behind."""
        current = [peer for peer in peers if peer not in self._behind]
        return [(news, current)] + [
            (np.flatnonzero(self._backlog[peer] | self._news), [peer]) for peer in peers if peer in self._behind
        ]

    def settle(self, peers: Collection[int], news: Rows) -> None:
        """All that was owed to `peers`, of which `news` is part, has been sent: the others are owed that still."""
        self._leave_out(peers, news)
        for peer in self._behind.intersection(peers):
            self._backlog[peer][:] = False
        self._behind.difference_update(peers)

    def settle_rows(self, peers: Collection[int], rows: Rows) -> None:
        """`rows`, as they are now, have been sent to `peers`; what else was owed to them still is."""
        if len(self._peers) > len(peers):
            self.note(rows)
        else:
            self.ignore(rows)
        self._leave_out(peers, rows[self._news[rows]])
        for peer in self._behind.intersection(peers):
            self._backlog[peer][rows] = False

    def _leave_out(self, peers: Collection[int], news: Rows) -> None:
        """`news` is news no more, but backlog of all but `peers`."""
        self._news[news] = False
        if not len(news):
            return
        for peer in self._peers.difference(peers):
            if peer not in self._backlog:
                self._backlog[peer] = np.zeros(len(self._words), bool)
            self._backlog[peer][news] = True
            self._behind.add(peer)


def _as_words(array: Array) -> NDArray[np.unsignedinteger]:
    """The same memory as unsigned integers, the longest of which a row is a whole number: NaN and -0.0 are bits."""
    row_nbytes = array.shape[1] * array.itemsize
    aligned = (8, 4, 2, 1)
    nbytes = next(size for size in aligned if row_nbytes % size == 0 and array.ctypes.data % size == 0)
    return array.view(np.dtype(f"u{nbytes}"))

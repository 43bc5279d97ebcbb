"""Which rows are dirty for whom: changed, bit by bit, and not yet sent to that peer. Pure: no MPI, no clock.

A shadow holds each row as it was when last looked at. Rows that differ from it are *news*, owed to every peer; a
scatter that leaves some peers out turns news into the *backlog* of those. Most of the time nobody is behind, and all
peers are owed one and the same set. *Arrears* are rows that are owed and may wait: they go, each in its turn, as far as
there is room besides the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from vol.sparse.rows import Rows
from vol.update import Array

_BLOCK = 32_768
"""Words compared at once: a block of the array, of its shadow, and the marks stay in a core's cache."""

_FEW = 16
"""Where fewer than 1 / _FEW of something changed, it is addressed one by one."""

Marks = NDArray[np.bool_]


class DirtyRows:
    """The dirty rows of `array`, of shape (n, width), which its owner goes on changing; clean at first, for `peers`."""

    def __init__(self, array: Array, peers: Iterable[int]) -> None:
        self._words = _as_words(array)
        self._shadow = self._words.copy()
        self._rows_at_once = max(_BLOCK // self._words.shape[1], 1)
        self._differs = np.empty(self._rows_at_once * self._words.shape[1], bool)
        self._news: Marks = np.zeros(len(array), bool)
        self._peers = frozenset(peers)
        self._backlog: dict[int, Marks] = {}
        self._deferred: dict[int, Marks] = {}
        """Of those who have any."""
        self._turn: dict[int, int] = {}
        """The row from which on arrears go next: rows that change all the time do not keep others waiting."""
        self._behind: set[int] = set()
        """Those whose backlog or arrears may hold a row."""

    def look(self) -> None:
        """Note all rows that changed since they were last looked at: reads the array and its shadow once."""
        words, shadow, width = self._words.reshape(-1), self._shadow.reshape(-1), self._words.shape[1]
        for start in range(0, len(self._words), self._rows_at_once):
            block = slice(start * width, (start + self._rows_at_once) * width)
            differs = np.not_equal(words[block], shadow[block], out=self._differs[: words[block].size])
            count = np.count_nonzero(differs)
            if count * _FEW > differs.size:
                self._news[start : start + self._rows_at_once] |= _any_by_row(differs, width)
                np.copyto(shadow[block], words[block])
            elif count:
                at = np.flatnonzero(differs)
                self._news[start + at // width] = True
                shadow[start * width + at] = words[start * width + at]

    def note(self, rows: Rows) -> None:
        """Note which of `rows` changed since they were last looked at."""
        if len(rows) == len(self._words):
            self.look()
            return
        for start in range(0, len(rows), self._rows_at_once):
            some = rows[start : start + self._rows_at_once]
            words = self._words[some]
            self._news[some] |= _any_by_row(np.not_equal(words, self._shadow[some]), words.shape[1])
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

    def pass_on(self, rows: Rows) -> None:
        """Note which of `rows` changed since they were last looked at: they are arrears of all peers, or news still."""
        was_news = self._news[rows]
        self.note(rows)
        changed = rows[self._news[rows] & ~was_news]
        self._news[changed] = False
        if len(changed):
            for peer in self._peers:
                self._marks(self._deferred, peer)[changed] = True

    def defer(self, peers: Iterable[int]) -> None:
        """The backlog of `peers` becomes arrears."""
        for peer in self._backlog.keys() & self._behind.intersection(peers):
            self._marks(self._deferred, peer)[self._backlog.pop(peer)] = True

    def pending(self, peers: Iterable[int], news: Rows, room: int) -> list[tuple[Rows, list[int]]]:
        """What is owed to `peers`, and to whom of them: ascending sets; first `news`, to all that are not behind. Of
        arrears only what makes a set of up to `room` rows."""
        current = [peer for peer in peers if peer not in self._behind]
        return [(news, current)] + [(self._pending_for(peer, room), [peer]) for peer in peers if peer in self._behind]

    def _pending_for(self, peer: int, room: int) -> Rows:
        due = self._news | self._backlog.get(peer, self._news)
        if peer in self._deferred:
            late = np.flatnonzero(self._deferred[peer] & ~due)
            late = np.roll(late, -np.searchsorted(late, self._turn.get(peer, 0)))[: max(room - due.sum(), 0)]
            if len(late):
                self._turn[peer] = late[-1] + 1
            due[late] = True
        return np.flatnonzero(due)

    def settle(self, sent: Collection[tuple[Rows, Collection[int]]], news: Rows) -> None:
        """`sent`, as `pending` told it with `news`, has been sent: who is not in it is owed `news` still."""
        self._leave_out({peer for _, peers in sent for peer in peers}, news)
        for rows, peers in sent:
            for peer in self._behind.intersection(peers):
                if peer in self._backlog:
                    self._backlog[peer][:] = False
                if peer in self._deferred:
                    self._deferred[peer][rows] = False
                    if self._deferred[peer].any():
                        continue
                    del self._deferred[peer]
                self._behind.discard(peer)

    def settle_rows(self, peers: Collection[int], rows: Rows) -> None:
        """`rows`, as they are now, have been sent to `peers`; what else was owed to them still is."""
        if len(self._peers) > len(peers):
            self.note(rows)
        else:
            self.ignore(rows)
        self._leave_out(peers, rows[self._news[rows]])
        for peer in self._behind.intersection(peers):
            for marks in (self._backlog, self._deferred):
                if peer in marks:
                    marks[peer][rows] = False

    def _leave_out(self, peers: Collection[int], news: Rows) -> None:
        """`news` is news no more, but backlog of all but `peers`."""
        if len(news) * _FEW > len(self._news) and np.count_nonzero(self._news) == len(news):
            self._news.fill(False)
        else:
            self._news[news] = False
        if not len(news):
            return
        for peer in self._peers.difference(peers):
            self._marks(self._backlog, peer)[news] = True

    def _marks(self, of: dict[int, Marks], peer: int) -> Marks:
        """The marks of `peer`, which is behind from here on."""
        if peer not in of:
            of[peer] = np.zeros(len(self._words), bool)
        self._behind.add(peer)
        return of[peer]


def _any_by_row(differs: Marks, width: int) -> Marks:
    """Whether any word of each row differs."""
    bundle = _longest(width)
    bundles = differs.reshape(-1).view(np.dtype(f"u{bundle}")).reshape(-1, width // bundle)
    if bundles.shape[1] > _FEW:
        by_row: Marks = np.logical_or.reduce(bundles, axis=1, dtype=bool)
        return by_row
    some: Marks = bundles[:, 0] != 0
    for column in range(1, bundles.shape[1]):  # a pass over all rows each: reducing row by row is slower
        some |= bundles[:, column] != 0
    return some


def _as_words(array: Array) -> NDArray[np.unsignedinteger]:
    """The same memory as unsigned integers, the longest of which a row is a whole number: NaN and -0.0 are bits."""
    return array.view(np.dtype(f"u{_longest(array.shape[1] * array.itemsize, array.ctypes.data)}"))


def _longest(*multiples: int) -> int:
    """The longest integer, in bytes, that divides all of `multiples`."""
    return next(nbytes for nbytes in (8, 4, 2, 1) if not any(multiple % nbytes for multiple in multiples))

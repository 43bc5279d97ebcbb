"""The dirty rows of an array for each peer: rows that changed, and that this peer has not been sent. Pure.

A shadow holds each row as it was at the last check. A row has changed if any bit differs from the shadow: NaN and -0.0
are bits. Other threads may write into the array at any time. So the shadow is what is sent, and what the rows of others
are merged with: what is written a moment later differs from it at the next check.

Each dirty row of a peer is in one of three sets:

    changed   pending for every peer
    backlog   pending for this peer, as a scatter left it out
    deferred  may wait: the rows go in turn, as far as the capacity of a message allows beside the pending ones

Most of the time no peer is behind. Then the changed rows are all there is, the same for every peer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from vol.sparse.rows import Rows
from vol.update import Array

_BLOCK = 32_768
"""Words compared at once: a block of the array, its shadow and the marks stay in the cache of a core."""

_FEW = 16
"""Below 1 / _FEW of all, items are addressed one by one."""

Marks = NDArray[np.bool_]


class DirtyRows:
    """The dirty rows of `array`, of shape (n, width), for each of `peers`. Local.

    The owner of the array goes on changing it. All rows are clean at first. A set of rows is ascending, each row once.
    """

    def __init__(self, array: Array, peers: Iterable[int]) -> None:
        self._words = as_words(array)
        self._shadow = self._words.copy()
        self.checked: Array = self._shadow.view(array.dtype)
        """The rows as they were at their last check, in the shape of the array: the shadow."""
        self._rows_at_once = max(_BLOCK // self._words.shape[1], 1)
        self._differs = np.empty(self._rows_at_once * self._words.shape[1], bool)
        self._changed: Marks = np.zeros(len(array), bool)
        self._peers = frozenset(peers)
        self._backlog: dict[int, Marks] = {}
        self._deferred: dict[int, Marks] = {}
        """By peer, for those that have deferred rows."""
        self._next_row: dict[int, int] = {}
        """By peer, the deferred row that goes next: rows that change all the time do not hold up the others."""
        self._behind: set[int] = set()
        """The peers that may have a backlog or deferred rows."""
        self._is_blank = False
        """Whether the shadow is zeros, as nothing was checked since `clear`."""

    def find_changed(self) -> None:
        """Find all rows that changed since their last check. Where few have, it reads the array and its shadow once.

        In the first check after `clear` rows of zeros count as unchanged, whatever their signs: products with a
        negative number make -0.0.
        """
        words, shadow, width = self._words.reshape(-1), self._shadow.reshape(-1), self._words.shape[1]
        for start in range(0, len(self._words), self._rows_at_once):
            block = slice(start * width, (start + self._rows_at_once) * width)
            differs = np.not_equal(words[block], shadow[block], out=self._differs[: words[block].size])
            count = np.count_nonzero(differs)
            if count * _FEW > differs.size:
                copy = words[block].copy()  # what is compared is what is kept, whatever another thread writes
                np.not_equal(copy, shadow[block], out=differs)
                self._changed[start : start + self._rows_at_once] |= _any_by_row(differs, width)
                shadow[block] = copy
            elif count:
                at = np.flatnonzero(differs)  # their rows count as changed, whatever these words are now
                self._changed[start + at // width] = True
                shadow[start * width + at] = words[start * width + at]
        if self._is_blank:
            self._is_blank, found = False, self.changed()
            self._changed[found] = self.checked[found].any(axis=1)

    def check(self, rows: Rows) -> None:
        """Find those of `rows` that changed since their last check."""
        if len(rows) == len(self._words):
            self.find_changed()
            return
        self._is_blank = False
        for some in self._blocks(rows):
            words = self._words[some]
            self._changed[some] |= _any_by_row(np.not_equal(words, self._shadow[some]), words.shape[1])
            self._shadow[some] = words

    def skip(self, rows: Rows) -> None:
        """Count `rows`, as they are now, as checked: they do not become changed rows."""
        _copy_rows(self._words, self._shadow, rows)

    def changed(self) -> Rows:
        """Return the changed rows that were found: pending for every peer."""
        return np.flatnonzero(self._changed)

    def write_back(self, rows: Rows) -> None:
        """Write `rows` of `checked`, which a merge has changed, into the array. They do not become changed rows."""
        _copy_rows(self._shadow, self._words, rows)

    def pass_on(self, rows: Rows, defers: bool) -> None:
        """Write rows back like `write_back`, but rows that differ become changed rows. With `defers` they are deferred
        for all peers.

        Rows that were changed rows before stay changed rows.
        """
        differs = [_any_by_row(self._words[some] != self._shadow[some], self._words.shape[1])
                   for some in self._blocks(rows)]  # fmt: skip
        fresh = rows[np.concatenate([*differs, np.empty(0, bool)]) & ~self._changed[rows]]
        if not defers:
            self._changed[fresh] = True
        elif len(fresh):
            for peer in self._peers:
                self._marks(self._deferred, peer)[fresh] = True
        self.write_back(rows)

    def clear(self) -> None:
        """Make all rows clean, as if the array had been zeros at their last check: those that are not are dirty."""
        self._shadow.fill(0)
        self._changed.fill(False)
        self._is_blank = True
        for marks in (self._backlog, self._deferred, self._next_row, self._behind):
            marks.clear()

    def defer(self, peers: Iterable[int]) -> None:
        """Defer the backlog of `peers`."""
        for peer in self._backlog.keys() & self._behind.intersection(peers):
            self._marks(self._deferred, peer)[self._backlog.pop(peer)] = True

    def pending(self, peers: Iterable[int], changed: Rows, capacity: int) -> list[tuple[Rows, list[int]]]:
        """Return the pending rows of `peers` as pairs: a set of rows, and the peers to send it to.

        The first pair is `changed`, for all peers that are not behind. Each peer that is behind has a pair of its own.
        Deferred rows fill that up to `capacity` rows.
        """
        current = [peer for peer in peers if peer not in self._behind]
        behind = [(self._pending_for(peer, capacity), [peer]) for peer in peers if peer in self._behind]
        return [(changed, current), *behind]

    def _pending_for(self, peer: int, capacity: int) -> Rows:
        due = self._changed | self._backlog.get(peer, self._changed)
        if peer in self._deferred:
            late = np.flatnonzero(self._deferred[peer] & ~due)
            late = np.roll(late, -np.searchsorted(late, self._next_row.get(peer, 0)))[: max(capacity - due.sum(), 0)]
            if len(late):
                self._next_row[peer] = late[-1] + 1
            due[late] = True
        return np.flatnonzero(due)

    def mark_sent(self, sent: Collection[tuple[Rows, Collection[int]]], changed: Rows) -> None:
        """Mark `sent`, which `pending` returned for `changed`, as sent. `changed` joins the backlog of other peers."""
        self._add_to_backlog({peer for _, peers in sent for peer in peers}, changed)
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

    def mark_rows_sent(self, peers: Collection[int], rows: Rows) -> None:
        """Mark `rows`, as they were checked last, as sent to `peers`. Other dirty rows of these peers stay dirty."""
        self._add_to_backlog(peers, rows[self._changed[rows]])
        for peer in self._behind.intersection(peers):
            for marks in (self._backlog, self._deferred):
                if peer in marks:
                    marks[peer][rows] = False

    def _add_to_backlog(self, peers: Collection[int], changed: Rows) -> None:
        """Move `changed` from the changed rows to the backlog of all peers but `peers`."""
        if len(changed) * _FEW > len(self._changed) and np.count_nonzero(self._changed) == len(changed):
            self._changed.fill(False)
        else:
            self._changed[changed] = False
        if not len(changed):
            return
        for peer in self._peers.difference(peers):
            self._marks(self._backlog, peer)[changed] = True

    def _blocks(self, rows: Rows) -> Iterator[Rows | slice]:
        """Indices of `rows`, block by block: slices where they are all rows."""
        for start in range(0, len(rows), self._rows_at_once):
            block = slice(start, start + self._rows_at_once)
            yield block if len(rows) == len(self._words) else rows[block]

    def _marks(self, of: dict[int, Marks], peer: int) -> Marks:
        """Return the marks of `peer`, which counts as behind from now on."""
        if peer not in of:
            of[peer] = np.zeros(len(self._words), bool)
        self._behind.add(peer)
        return of[peer]


def _copy_rows(source: NDArray[np.unsignedinteger], target: NDArray[np.unsignedinteger], rows: Rows) -> None:
    """target[rows] <- source[rows]."""
    if len(rows) == len(source):
        np.copyto(target, source)
    else:
        target[rows] = source[rows]


def _any_by_row(differs: Marks, width: int) -> Marks:
    """Return a mark for each row: whether any of its words differs."""
    bundle = _longest(width)
    bundles = differs.reshape(-1).view(np.dtype(f"u{bundle}")).reshape(-1, width // bundle)
    if bundles.shape[1] > _FEW:
        by_row: Marks = np.logical_or.reduce(bundles, axis=1, dtype=bool)
        return by_row
    some: Marks = bundles[:, 0] != 0
    for column in range(1, bundles.shape[1]):  # a pass for each column: a reduction row by row is slower
        some |= bundles[:, column] != 0
    return some


def as_words(array: Array) -> NDArray[np.unsignedinteger]:
    """Return a view of the same memory as unsigned integers, the longest that divide a row."""
    return array.view(np.dtype(f"u{_longest(array.shape[1] * array.itemsize, array.ctypes.data)}"))


def _longest(*multiples: int) -> int:
    """Return the size in bytes of the longest integer that divides all of `multiples`."""
    return next(nbytes for nbytes in (8, 4, 2, 1) if not any(multiple % nbytes for multiple in multiples))

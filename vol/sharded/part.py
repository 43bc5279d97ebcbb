"""The parts of a sharded vector in the windows of their owners: this rank changes its own, and reads any.

A part is cut into blocks, each with a version. The owner makes it odd, changes the block, and makes it even; fences
stand between. A reader reads versions, rows, and versions again, each complete before the next begins. Rows whose
version was the same even number both times are whole: had the owner begun a change before they were read, the second
version would be another one; had it not ended one, the first would be odd.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dstorm import Window
from vol.sharded.layout import Numbers, ShardLayout
from vol.update import Array

Read = tuple[NDArray[np.bool_], int]
"""The result of a read: which blocks, or which rows, are whole; the bytes that it has moved, versions included."""


class Parts:
    """The parts of a vector, as `rank` sees them. `at`: by rank, where its memory begins in its window. Local."""

    def __init__(self, window: Window, layout: ShardLayout, rank: int, at: list[int]) -> None:
        self._window, self.layout, self._at = window, layout, at
        start, rows_at, end = at[rank], at[rank] + layout.rows_at(rank), at[rank] + layout.nbytes(rank)
        rows = np.frombuffer(window.memory[rows_at:end].data, layout.dtype)  # the base of all views of it
        self.local: Array = rows.reshape(layout.count(rank), *layout.row_shape)
        """The rows of this rank: a view of its window."""
        self._kept = weakref.ref(rows)
        self._versions = window.memory[start:][: 8 * layout.block_count(rank)].view(np.int64)

    @property
    def are_kept(self) -> bool:
        """True if `local`, or a view of it, is kept anywhere. Local."""
        return self._kept() is not None

    def let_go(self) -> None:
        """Let go of `local`, and of all else in the window of this rank. Local."""
        self.local, self._versions = np.empty(0, self.layout.dtype), np.empty(0, np.int64)

    @contextlib.contextmanager
    def changing(self, rows: slice) -> Iterator[None]:
        """Let no rank take the blocks of `rows`, of this rank, for whole while the code block changes them. Local."""
        versions = self._versions[self.layout.blocks_of(rows)]
        versions += 1
        self._window.sync()
        try:
            yield
        finally:
            self._window.sync()
            versions += 1
            self._window.sync()

    def read_range(self, owner: int, rows: slice, into: NDArray[np.uint8]) -> Read:
        """Read a range of rows of `owner`, counted from its first one on: which blocks are whole. One-sided.

        `into`: the bytes of a row in each row.
        """
        blocks, width = self.layout.blocks_of(rows), into.shape[1]
        versions = partial(self._read_versions, owner, blocks.stop - blocks.start, blocks.start)
        before, first = versions()
        nbytes = self._window.get(into.reshape(-1), owner, self._rows_at(owner) + rows.start * width)
        after, last = versions()
        return _whole(before, after), first + nbytes + last

    def read_rows(self, owner: int, rows: Numbers, into: NDArray[np.uint8]) -> Read:
        """Read rows of `owner` by their numbers, counted from its first one on: which are whole. One-sided.

        `into`: the bytes of a row in each row. All rows of a block are whole, of the same moment, or none is.
        """
        block_of = rows // self.layout.block_rows
        is_whole = np.zeros(self.layout.block_count(owner), np.bool_)
        is_whole[block_of] = True
        blocks = np.flatnonzero(is_whole).astype(np.int64)
        versions = partial(self._read_versions, owner, len(blocks), 0, blocks)
        before, first = versions()
        nbytes = self._window.get(into, owner, self._rows_at(owner), rows)
        after, last = versions()
        is_whole[blocks] = _whole(before, after)
        return is_whole[block_of], first + nbytes + last

    def _read_versions(self, owner: int, count: int, start: int, blocks: Numbers | None = None) -> tuple[Numbers, int]:
        """The versions of `count` blocks of `owner`, from `start` on or `blocks`, and the bytes moved. One-sided."""
        found = np.empty(count, np.int64)
        into, width = found.view(np.uint8), found.itemsize
        as_rows = into if blocks is None else into.reshape(count, width)
        return found, self._window.get(as_rows, owner, self._at[owner] + width * start, blocks)

    def _rows_at(self, owner: int) -> int:
        return self._at[owner] + self.layout.rows_at(owner)


def _whole(before: Numbers, after: Numbers) -> NDArray[np.bool_]:
    """Return where versions are even, and the same both times."""
    whole: NDArray[np.bool_] = (before == after) & (before % 2 == 0)
    return whole

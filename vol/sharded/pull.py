"""A pull: rows are read from their owners until each is whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dstorm import Transport
from dstorm.queues.waits.waiting import Awaited, Waiting
from dstorm.transport import Bytes
from vol.sharded.layout import Numbers
from vol.sharded.part import Parts


@dataclass(eq=False)
class Owner(Awaited):
    """A rank from which rows are read. `step`: how often all that was read from it was whole."""

    bytes_read: int = 0
    """Those of the rows."""
    bytes_moved: int = 0
    """Those that the reads have moved, versions included."""


class Range(NamedTuple):
    """A range of rows that is still to be read."""

    owner: int
    rows: slice
    """Counted from the owner's first one on."""
    first: int
    """The place in the result that the owner's first row has, or would have: it may be negative."""

    def read(self, parts: Parts, result: Bytes) -> tuple[int, int, list[Piece]]:
        """Read it into `result`; return its rows, the bytes moved, and what is still to be read, block by block."""
        start, stop = self.rows.start, self.rows.stop
        whole, nbytes = parts.read_range(self.owner, self.rows, result[self.first + start : self.first + stop])
        size, block = parts.layout.block_rows, start // parts.layout.block_rows
        torn = (np.flatnonzero(~whole) + block).tolist()
        left = (slice(max(start, one * size), min(stop, (one + 1) * size)) for one in torn)
        return stop - start, nbytes, [self._replace(rows=rows) for rows in left]


class Listed(NamedTuple):
    """Rows, by their numbers, that are still to be read."""

    owner: int
    rows: Numbers
    """Counted from the owner's first one on."""
    places: Numbers
    """Where they belong in the result."""

    def read(self, parts: Parts, result: Bytes) -> tuple[int, int, list[Piece]]:
        """Read them into `result`; return how many they are, the bytes moved, and what is still to be read."""
        into = np.empty((len(self.rows), result.shape[1]), np.uint8)
        whole, nbytes = parts.read_rows(self.owner, self.rows, into)
        result[self.places[whole]] = into[whole]
        left = Listed(self.owner, self.rows[~whole], self.places[~whole])
        return len(into), nbytes, [left] if len(left.rows) else []


Piece = Range | Listed


class Puller:
    """The pulls of one rank, from `parts`, which may be exchanged between two pulls. One-sided."""

    def __init__(self, transport: Transport, parts: Parts, waiting: Waiting) -> None:
        self.parts, self._waiting, self._clock = parts, waiting, transport.clock
        self.owners = {rank: Owner(rank, heard_at=transport.clock()) for rank in parts.layout.ranks}

    def read(self, what: str, rows: Numbers | slice, result: Bytes) -> None:
        """Read `rows` into the rows of `result`, as bytes. `what`: the call, for errors.

        DeadlinePassed: an owner that was in the midst of a change has given no heartbeat for the deadline. PeerLost: an
        owner has failed. `result` may have changed.
        """
        left: list[Piece] = list(self._ranges(rows) if isinstance(rows, slice) else self._dealt(rows))

        def missing() -> Sequence[Owner]:
            """The owners of rows that are not whole yet."""
            left[:] = [rest for piece in left for rest in self._read(piece, result)]
            return [self.owners[rank] for rank in sorted({piece.owner for piece in left})]

        self._waiting.until_none(what, missing)
        self._waiting.check_alive(self.owners[piece.owner] for piece in left)

    def _ranges(self, rows: slice) -> Iterator[Range]:
        for rank, places, theirs in self.parts.layout.overlaps(rows):
            yield Range(rank, theirs, places.start - theirs.start)

    def _dealt(self, rows: Numbers) -> Iterator[Listed]:
        for rank, places, theirs in self.parts.layout.dealt(rows):
            yield Listed(rank, theirs, places)

    def _read(self, piece: Piece, result: Bytes) -> list[Piece]:
        owner = self.owners[piece.owner]
        count, nbytes, left = piece.read(self.parts, result)
        owner.bytes_read += count * result.shape[1]
        owner.bytes_moved += nbytes
        if not left:
            owner.step, owner.heard_at = owner.step + 1, self._clock()
        return left

"""Windows that are parts of the arena."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dstorm.transport import Bytes, Places, Put, Window


class Slice:
    """A window: a part of the arena, at the same offset on all ranks."""

    def __init__(self, arena: Window, start: int, nbytes: int, give_back: Callable[[int, int], object]) -> None:
        self._arena, self._start = arena, start
        self.place = start
        """Where it begins in the arena, on all ranks."""
        self.born = 0
        """The generation of the ranks that have made it, the same on all of them."""
        self._give_back: Callable[[int, int], object] | None = give_back
        self.memory: Bytes = arena.memory[start : start + nbytes]
        self.addresses: Mapping[int, int] = {peer: address + start for peer, address in arena.addresses.items()}
        self.flush, self.prepared_flush, self.sync = arena.flush, arena.prepared_flush, arena.sync
        self.flush_local, self.linger = arena.flush_local, arena.linger
        self.keeps_order = arena.keeps_order

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """Start to write all of `source` (C-contiguous) at byte `offset` of `peer`'s memory. One-sided."""
        self._arena.put(source, peer, self._start + offset)

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """Return a function that does `put` with these arguments. Local."""
        return self._arena.prepared(source, peer, self._start + offset)

    def get(self, destination: Bytes, peer: int, offset: int, places: Places | None = None) -> int:
        """Read from `peer`'s memory, which may be this rank's own, into `destination`; complete on return."""
        return self._arena.get(destination, peer, self._start + offset, places)

    def copy(self, offset: int, destination: Bytes) -> None:
        """Copy `destination.nbytes` bytes of this rank's own memory, from `offset` on, into `destination`. Local."""
        self._arena.copy(self._start + offset, destination)

    def free(self) -> None:
        """Free the memory. Local: no rank waits. All live ranks free the same slices in the same order."""
        if self._give_back is not None:
            self._give_back(self._start, self.memory.nbytes)
            self._give_back, self.addresses, self.memory = None, {}, np.empty(0, np.uint8)

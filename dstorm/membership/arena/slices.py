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
        self._give_back: Callable[[int, int], object] | None = give_back
        self.memory: Bytes = arena.memory[start : start + nbytes]
        self.addresses: Mapping[int, int] = {peer: address + start for peer, address in arena.addresses.items()}
        self.flush, self.prepared_flush, self.sync = arena.flush, arena.prepared_flush, arena.sync
        self.flush_local, self.linger = arena.flush_local, arena.linger
        self.keeps_order = arena.keeps_order

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """As `Window.put`. One-sided."""
        self._arena.put(source, peer, self._start + offset)

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """As `Window.prepared`. Local."""
        return self._arena.prepared(source, peer, self._start + offset)

    def get(self, destination: Bytes, peer: int, offset: int, places: Places | None = None) -> int:
        """As `Window.get`. One-sided."""
        return self._arena.get(destination, peer, self._start + offset, places)

    def copy(self, offset: int, destination: Bytes) -> None:
        """As `Window.copy`. Local."""
        self._arena.copy(self._start + offset, destination)

    def free(self) -> None:
        """As `Window.free`, but Local: no rank waits. All live ranks free the same slices in the same order."""
        if self._give_back is not None:
            self._give_back(self._start, self.memory.nbytes)
            self._give_back, self.addresses, self.memory = None, {}, np.empty(0, np.uint8)

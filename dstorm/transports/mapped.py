"""Windows whose memory other ranks of the host have mapped: a Put is a copy, and a flush is a fence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import setitem

import numpy as np

from dstorm.transport import Bytes, Places, Put, RemoteMemory

_MOST_HELD_NBYTES = 1 << 16
"""The longest copy that keeps the GIL, and so takes half the time of a call of NumPy."""
_ALL = slice(None)


def read(memory: Bytes, offset: int, destination: Bytes, places: Places | None = None) -> None:
    """Copy from `memory` into `destination`, as `Window.get` has it. Local."""
    if places is None:
        np.copyto(destination, memory[offset : offset + destination.nbytes])
    elif places.size:
        width = destination.shape[1]
        count = (memory.nbytes - offset) // width
        rows = memory[offset : offset + count * width].reshape(count, width)
        np.take(rows, places, axis=0, out=destination, mode="clip")  # the mode that needs no buffer


def fence() -> None:
    """Order the loads and stores of shared memory before this call with those after it, without MPI. Local.

    The release of a lock, and that lock being taken again, are a release and an acquire of one place of memory: on
    x86-64 each is a full fence, on AArch64 they are one together.
    """
    lock = threading.Lock()
    lock.acquire()
    lock.release()
    lock.acquire()


class MappedMemory:
    """The memory of the ranks of a host, all of it mapped by this process. The constructor is Local.

    `parts`: by rank. `fence()`: orders the loads and stores of this core before the call with those after it. Each
    stage of a message ends in one. Without it the stores of a stage could be seen before those of an earlier one: on
    x86-64, too, where a copy of many bytes may bypass the cache.
    """

    keeps_order = False
    """No rank is on another host."""

    def __init__(self, rank: int, parts: Mapping[int, Bytes], fence: Callable[[], None]) -> None:
        self.parts = parts
        self.memory: Bytes = parts[rank]
        self.addresses: Mapping[int, int] = {peer: part.__array_interface__["data"][0] for peer, part in parts.items()}
        self.sync = fence

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """Copy `source` into the memory of a peer; complete on return. One-sided."""
        self.prepared(source, peer, offset)()

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """Return a function that does `put` with these arguments. Local."""
        target = self.parts[peer][offset : offset + source.nbytes]
        if source.nbytes > _MOST_HELD_NBYTES:
            return partial(np.copyto, target, source.reshape(-1))
        return partial(setitem, target.data, _ALL, source.reshape(-1).data)

    def flush(self, peers: Sequence[int]) -> None:
        """Return when all earlier Puts to `peers` are complete in their memory. One-sided."""
        self.sync()

    def flush_local(self, peers: Sequence[int]) -> None:
        """Do nothing: a Put is complete. One-sided."""

    def linger(self, peers: Sequence[int]) -> None:
        """Do nothing: a Put is complete."""

    def prepared_flush(self, peers: Sequence[int]) -> Put:
        """Return a function that does `flush` with these peers; with no peers it does nothing. Local."""
        return self.sync

    def get(self, destination: Bytes, peer: int, offset: int, places: Places | None = None) -> int:
        """Read from `peer`'s memory, which may be this rank's own, into `destination`; complete on return."""
        self.sync()
        read(self.parts[peer], offset, destination, places)
        self.sync()
        return destination.nbytes

    def copy(self, offset: int, destination: Bytes) -> None:
        """Copy `destination.nbytes` bytes of this rank's own memory, from `offset` on, into `destination`. Local."""
        np.copyto(destination, self.memory[offset : offset + destination.nbytes])

    def free(self) -> None:
        """Drop the views of the memory. Local."""
        self.parts, self.addresses, self.memory = {}, {}, np.empty(0, np.uint8)


class SpanningWindow:
    """A window over several hosts: Puts to the ranks of `near` are copies, all others go to `far`. So do reads."""

    def __init__(self, near: MappedMemory, far: RemoteMemory) -> None:
        self._near, self._far, self.keeps_order = near, far, far.keeps_order
        self.memory: Bytes = near.memory
        self.addresses: Mapping[int, int] = near.addresses
        self.sync, self.copy = near.sync, near.copy

    @property
    def parts(self) -> Mapping[int, Bytes]:
        """The memory of the ranks of this host, by rank. Local."""
        return self._near.parts

    def _way(self, peer: int) -> RemoteMemory:
        return self._near if peer in self._near.parts else self._far

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """Start to write all of `source` (C-contiguous) at byte `offset` of `peer`'s memory. One-sided."""
        self._way(peer).put(source, peer, offset)

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """Return a function that does `put` with these arguments. Local."""
        return self._way(peer).prepared(source, peer, offset)

    def flush(self, peers: Sequence[int]) -> None:
        """Return when all earlier Puts to `peers` are complete in their memory. One-sided."""
        far = [peer for peer in peers if peer not in self._near.parts]
        if len(far) < len(peers):
            self.sync()  # it orders copies, and with Open MPI it takes some us
        if far:
            self._far.flush(far)

    def flush_local(self, peers: Sequence[int]) -> None:
        """Let all earlier Puts to `peers` leave; return when their sources may change (MPI_Win_flush_local)."""
        self._far.flush_local([peer for peer in peers if peer not in self._near.parts])

    def linger(self, peers: Sequence[int]) -> None:
        """Return once what was put to `peers`, ranks of other hosts, has most likely arrived; or at once. One-sided."""
        self._far.linger(peers)

    def prepared_flush(self, peers: Sequence[int]) -> Put:
        """Return a function that does `flush` with these peers; with no peers it does nothing. Local."""
        is_near = all(peer in self._near.parts for peer in peers)
        return self.sync if is_near else partial(self.flush, peers)

    def get(self, destination: Bytes, peer: int, offset: int, places: Places | None = None) -> int:
        """Read from `peer`'s memory, which may be this rank's own, into `destination`; complete on return."""
        return self._way(peer).get(destination, peer, offset, places)

    def free(self) -> None:
        """Drop the views of the memory. Local."""
        self._near.free()
        self.memory, self.addresses = self._near.memory, self._near.addresses

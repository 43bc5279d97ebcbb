"""Fault-tolerant shared memory of the ranks of one host. No call waits for another rank.

MPI makes its windows in collective calls, which hang or crash when a rank fails in them. Inside a host such a window is
a mapping of shared memory, and a Put is a copy. This module does the same with a file of /dev/shm that each rank maps
by itself.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dstorm.transports.mapped import MappedMemory


class SharedMemory(MappedMemory):
    """A window in a file that the ranks of a host share: `nbytes` for each of `ranks`, which read as zeros.

    The constructor is Local: the first rank creates the file. The memory lasts while it is mapped; remove the name of
    the file once all ranks have mapped it. `fence()`: as in `MappedMemory`. MemoryError: the file cannot be made or
    mapped, or others than this user may read it or write to it.
    """

    def __init__(
        self, path: Path, rank: int, ranks: Sequence[int], nbytes: int, fence: Callable[[], None]
    ) -> None:  # fmt: skip
        whole = len(ranks) * nbytes
        file = _opened(path)
        try:
            os.ftruncate(file, whole)
            self._map: mmap.mmap | None = mmap.mmap(file, whole)
        except OSError as error:
            raise MemoryError(f"cannot map {whole / 1e6:,.0f} MB of shared memory: {error.strerror}: raise the "
                              "limit (ulimit -v unlimited)") from error  # fmt: skip
        finally:
            os.close(file)
        everything = np.frombuffer(self._map, np.uint8)
        self._first = ranks.index(rank) * nbytes
        parts = {peer: everything[place * nbytes : (place + 1) * nbytes] for place, peer in enumerate(ranks)}
        super().__init__(rank, parts, fence)

    def discard(self, offset: int, nbytes: int) -> None:
        """Give `nbytes` of `memory` from `offset` on back to the system, as far as it takes them. Local.

        Only whole pages are given back. They read as zeros afterwards.
        """
        start, end = self._first + offset, self._first + offset + nbytes
        first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if self._map is not None and last > first:
            with contextlib.suppress(OSError):  # not every file can have holes
                self._map.madvise(mmap.MADV_REMOVE, first, last - first)

    def free(self) -> None:
        """Drop the mapping. The memory is freed when no view of it is left. Local."""
        super().free()
        self._map = None


def _opened(path: Path) -> int:
    """The file `path`, which is made if it is not there. MemoryError.

    All users may make files in /dev/shm, and know the name as soon as the folder of the job is there. So another one
    may have put a file of its own, or a link, in this place.
    """
    foreign = f"{path} is not a file of this user alone, another one may have made it: start anew"
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        mount = f"let this user make files in {path.parent} (docker run --tmpfs {path.parent})"
        raise MemoryError(
            foreign if os.path.lexists(path) else f"cannot make {path}: {error.strerror}: {mount}"
        ) from error
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077 or found.st_nlink > 1:
        os.close(file)
        raise MemoryError(foreign)
    return file
